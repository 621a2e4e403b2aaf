"""The parser, the verbs, and what a user's mistake looks like."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from koordcore import __version__
from koordcore.cli.interrupt import INTERRUPTED, was_interrupted
from koordcore.cli.terminal import defect_report, printable_output, whole_lines
from koordcore.cli.words import Parser, folded

if TYPE_CHECKING:
    from koordcore.errors import ManifestError


VERBS: Final = {
    "schedule": "place the pending pods of a dump",
    "explain": "say why a pod or gang goes where it goes, or nowhere, and what helps",
    "diff": "say how two plans or two dumps differ, and why",
    "verify": "check a plan against a dump",
    "when": "say when a pod or a gang can start, and what may run before",
    "inspect": "show what a dump holds: nodes, cards, who waits",
    "report": "write a page to look at: cards, queue, gangs, quotas, plans",
    "quota": "show the quota tree and who lends to whom",
    "topology": "show the network tree and what is free in it",
    "colocation": "show what every node can lend to batch and mid pods",
    "rebalance": "cool hot nodes with the fewest moves",
    "defrag": "make room with the fewest moves",
    "simulate": "replay traces under one policy or several",
    "world": "let the scheduler live through faults, in a bottle",
    "compare": "try several policies on one dump",
    "audit": "tell whether rules that move pods can go round for ever",
    "policy": "say what a scheduler configuration means, and lint it",
    "completion": "print what makes a shell complete these words",
}
"""What each verb does. Its module here has its name: ``describe(parser)`` adds its arguments to the parser,
``run(arguments)`` gives the exit code."""

EXIT_OK, EXIT_NO, EXIT_USAGE, EXIT_DEFECT = 0, 1, 2, 70
_SHOWN_PROBLEMS: Final = 50

EPILOG: Final = """\
exit codes:
  0   done
  1   done, and the answer is no: a pod is unschedulable, a plan is not legal,
      an object cannot be read
  2   the command or its input cannot be read, or is empty
  70  no answer: a defect of koordcore, with what to report
  130 interrupted

examples:
  kubectl get nodes,pods,podgroups -A -o yaml | koordcore schedule -
  koordcore schedule cluster.yaml pods/ -o json
  koordcore schedule --live --context staging
  koordcore explain default/urgent-1 cluster.yaml
  koordcore inspect cluster.yaml
"""


def build_parser(asked: str | None) -> tuple[Parser, Parser | None]:
    """Describe the command line, and in full the one verb that is asked for; its module brings its rooms."""
    parser = Parser(
        prog="koordcore",
        description="Schedule GPU clusters from a dump: legal, explained, checked.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"koordcore {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", required=True)
    described = None
    for verb, summary in VERBS.items():
        its_own = verbs.add_parser(verb, help=summary)
        if verb == asked:
            import_module(f"koordcore.cli.{verb}").describe(its_own)
            its_own.description, its_own.epilog = folded(its_own.description), folded(its_own.epilog)
            described = its_own
    return parser, described


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    A user's mistake ends in a message and exit code 2, never in a traceback; a defect of the library in a
    report of it and exit code 70, which nobody takes for an answer.
    """
    with printable_output(sys.stdout, sys.stderr):
        return _main(sys.argv[1:] if argv is None else argv)


def _main(words: Sequence[str]) -> int:
    try:
        parser, described = build_parser(_verb(words))
        if "_ARGCOMPLETE" in os.environ:
            from koordcore.cli.completion import complete

            complete(parser, described)
        arguments, unknown = parser.parse_known_args(words)
        if unknown:
            (described or parser).error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as stop:
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    return _answer(arguments, words)


def _verb(words: Sequence[str]) -> str | None:
    """Find the verb that is typed, also where a shell asks for the rest of its line."""
    typed = os.environ.get("COMP_LINE", "").split()[1:] if "_ARGCOMPLETE" in os.environ else words
    return next((word for word in typed if not word.startswith("-")), None)


def _answer(arguments: argparse.Namespace, words: Sequence[str]) -> int:
    try:
        from koordcore.errors import KoordcoreError, ManifestError, SolverError
    except KeyboardInterrupt:
        return INTERRUPTED
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except ManifestError as error:
        _print_problems(error)
        return EXIT_USAGE
    except SolverError as error:
        print(defect_report(error, words), file=whole_lines(sys.stderr))
        return EXIT_DEFECT
    except (KoordcoreError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            # The reader has seen enough, as `head` does; keep the interpreter from complaining at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_OK
        print(f"koordcore: {error}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # whatever it is, it is no answer
        if was_interrupted():
            return INTERRUPTED
        print(defect_report(error, words), file=whole_lines(sys.stderr))
        return EXIT_DEFECT
    return code


def _run(arguments: argparse.Namespace) -> int:
    """Run the verb once, or again and again where that was asked for."""
    from koordcore.cli.output import need_rows, presentation_of, watched
    from koordcore.cli.progress import silenced
    from koordcore.cli.tables import presented

    def once(asked: argparse.Namespace) -> int:
        with presented(presentation_of(asked)), silenced(getattr(asked, "quiet", False)):
            code: int = asked.run(asked)
        # What could not be read is no reason to refuse all else, and none to call it done.
        return EXIT_NO if code == EXIT_OK and getattr(asked, "unreadable", False) else code

    need_rows(arguments)
    return once(arguments) if getattr(arguments, "watch", None) is None else watched(arguments, once)


def _print_problems(error: ManifestError) -> None:
    number = len(error.problems)
    print(f"koordcore: {number} problem{'s' * (number != 1)} in the input", file=sys.stderr)
    for problem in error.problems[:_SHOWN_PROBLEMS]:
        print(f"  {problem}", file=sys.stderr)
    if number > _SHOWN_PROBLEMS:
        print(f"  … and {number - _SHOWN_PROBLEMS} more", file=sys.stderr)
