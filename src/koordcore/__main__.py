"""Run the command line: ``koordcore``, ``python -m koordcore``."""

import gc
import os
import sys
from typing import NoReturn


def _end(*_: object) -> NoReturn:
    os.write(2, b"koordcore: interrupted\n")
    os._exit(130)


def run() -> int:
    """Run it as a program of its own, which Ctrl-C ends at any moment, while it starts, too."""
    try:
        import signal

        # What is raised while modules are read may be lost in a callback of the import; this is not.
        listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if listens:
            signal.signal(signal.SIGINT, _end)
        from koordcore.cli.interrupt import (
            INTERRUPTED,
            end_interrupted,
            was_interrupted,
            watch_for_interrupts,
        )

        watch_for_interrupts()
        if listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    except KeyboardInterrupt:
        _end()
    gc.set_threshold(50_000, 20, 20)  # what a command reads lives to its end
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
