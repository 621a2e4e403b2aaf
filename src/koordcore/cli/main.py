"""The parser, the verbs, and what a user's mistake looks like."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

from koordcore import __version__
from koordcore.cli import (
    colocation,
    compare,
    defrag,
    explain,
    inspect,
    policy,
    quota,
    rebalance,
    schedule,
    simulate,
    topology,
    verify,
    when,
)
from koordcore.errors import KoordcoreError, ManifestError

__all__ = ["main"]

VERBS: Final = (
    schedule,
    explain,
    verify,
    when,
    inspect,
    quota,
    topology,
    colocation,
    rebalance,
    defrag,
    simulate,
    compare,
    policy,
)
"""One module per verb: ``register(subparsers)`` describes it, ``run(arguments)`` gives the exit code."""

EXIT_OK, EXIT_NO, EXIT_USAGE = 0, 1, 2
_SHOWN_PROBLEMS: Final = 50

EPILOG: Final = """\
exit codes:
  0  done
  1  done, and the answer is no: a pod found no node, a plan is not legal
  2  the command or its input cannot be read; the reasons are on standard error

examples:
  kubectl get nodes,pods,podgroups -A -o yaml | koordcore schedule -
  koordcore schedule cluster.yaml pods/ -o json
  koordcore explain default/trainer-0 cluster.yaml
  koordcore inspect cluster.yaml
"""


def build_parser() -> argparse.ArgumentParser:
    """Describe the whole command line."""
    parser = argparse.ArgumentParser(
        prog="koordcore",
        description="Schedule GPU clusters from a dump: legal, explained, checked.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"koordcore {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    for verb in VERBS:
        verb.register(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake ends in a message and exit code 2, never in a traceback."""
    parser = build_parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except ManifestError as error:
        _print_problems(error)
        return EXIT_USAGE
    except (KoordcoreError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader has seen enough, as `head` does; keep the interpreter from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_OK
        print(f"koordcore: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return 130
    return code


def _print_problems(error: ManifestError) -> None:
    number = len(error.problems)
    print(f"koordcore: {number} problem{'s' * (number != 1)} in the input", file=sys.stderr)
    for problem in error.problems[:_SHOWN_PROBLEMS]:
        print(f"  {problem}", file=sys.stderr)
    if number > _SHOWN_PROBLEMS:
        print(f"  … and {number - _SHOWN_PROBLEMS} more", file=sys.stderr)
