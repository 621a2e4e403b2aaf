"""Run the scheduler: ``python -m examples.kubernetes --kubeconfig FILE``.

One line of JSON per turn goes to standard output, one for people to standard error.
"""

from __future__ import annotations

import argparse
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
    Scheduler(api, Settings(**arguments), _print).run()


def _print(cycle: Cycle) -> None:
    print(cycle.line, file=sys.stderr, flush=True)
    print(json.dumps({name: round(value, 4) for name, value in attrs.asdict(cycle).items()}), flush=True)


if __name__ == "__main__":
    main()
