"""Run the scheduler: ``python -m examples.kubernetes --kubeconfig FILE``.

One line of JSON per turn goes to standard output, one for people to standard error.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys

import attrs

from examples.kubernetes.client import connect
from examples.kubernetes.scheduler import Cycle, Scheduler, Settings


def main() -> None:
    """Read the settings and run."""
    parser = argparse.ArgumentParser(prog="python -m examples.kubernetes", description=__doc__)
    parser.add_argument("--kubeconfig", help="how to reach the cluster; left out: from inside it")
    parser.add_argument("--verbose", action="store_true")
    for field in attrs.fields(Settings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    arguments = vars(parser.parse_args())
    logging.basicConfig(
        level=logging.INFO if arguments.pop("verbose") else logging.WARNING,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    api = connect(arguments.pop("kubeconfig"))
    gc.disable()
    Scheduler(api, Settings(**arguments), _Report()).run()


class _Report:
    """Prints turns, and takes what was read and learnt at first out of the garbage collector's sight.

    All of that lasts; to look through it again and again takes seconds in a large cluster.
    """

    def __init__(self) -> None:
        self._number = 0

    def __call__(self, cycle: Cycle) -> None:
        """Print what a turn did: once after the cluster was read, then for each turn with anything to do."""
        self._number += 1
        if self._number <= 2:
            gc.freeze()
            gc.enable()
        print(cycle.line, file=sys.stderr, flush=True)
        print(json.dumps({name: round(value, 4) for name, value in attrs.asdict(cycle).items()}), flush=True)


if __name__ == "__main__":
    main()
