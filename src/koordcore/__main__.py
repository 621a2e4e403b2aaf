"""Run the command line: ``koordcore``, ``python -m koordcore``."""

import os
import sys


def run() -> int:
    """Run it as a program of its own, which Ctrl-C ends at any moment, while it starts, too."""
    try:
        from koordcore.cli.interrupt import (
            INTERRUPTED,
            end_interrupted,
            was_interrupted,
            watch_for_interrupts,
        )

        watch_for_interrupts()
    except KeyboardInterrupt:
        os.write(2, b"koordcore: interrupted\n")
        os._exit(130)
    try:
        from koordcore.cli.main import main

        code = main()
    except BaseException as error:
        if was_interrupted() or isinstance(error, KeyboardInterrupt):
            end_interrupted()
        raise
    if code == INTERRUPTED:
        end_interrupted()
    return code


if __name__ == "__main__":
    sys.exit(run())
