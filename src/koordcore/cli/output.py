"""What every verb can print: tables (narrow, wide, names only), JSON, YAML; and that again and again."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from koordcore.cli.tables import Presentation, need_yaml
from koordcore.cli.terminal import raw
from koordcore.errors import KoordcoreError, ModelError

TABLE, WIDE, NAME, JSON, YAML = "table", "wide", "name", "json", "yaml"
TEXT: Final = "text"
"""What a verb prints that has no tables."""
CONFIG: Final = "config"
"""What `koordcore policy` can print, too."""
_DIGITS: Final = 18
"""Of a number of rows that anybody can mean."""
FORMS: Final = (TABLE, WIDE, NAME, JSON, YAML)


def add_output(parser: argparse.ArgumentParser, *others: str, watch: bool = False) -> None:
    """Add ``-o``, ``--sort-by`` and ``--expand``.

    Parameters
    ----------
    others
        Further forms that the verb can print.
    watch
        Add ``--watch``, too.
    """
    parser.add_argument(
        "-o",
        "--output",
        choices=(*FORMS, *others),
        default=TABLE,
        metavar="FORM",
        help=f"{', '.join((*FORMS, *others))} (table); wide leaves out no column, name prints names alone",
    )
    parser.add_argument("--sort-by", metavar="COLUMN", help="order rows by this column")
    if watch:
        parser.add_argument(
            "--watch",
            nargs="?",
            type=_seconds,
            const=5.0,
            metavar="SECONDS",
            help="read and print it again every few seconds (5)",
        )


def add_record_output(parser: argparse.ArgumentParser) -> None:
    """Add ``-o`` to a verb that tells a story and has no tables."""
    forms = (TEXT, JSON, YAML)
    parser.add_argument(
        "-o", "--output", choices=forms, default=TEXT, metavar="FORM", help=f"{', '.join(forms)} ({TEXT})"
    )


def add_limit(parser: argparse.ArgumentParser, default: int, text: str) -> None:
    """Add ``--limit``, which no number below 0 is."""
    parser.add_argument("--limit", type=natural, default=default, metavar="N", help=text)


def natural(text: str) -> int:
    """Read how many there are to be at most."""
    if not (text.isascii() and text.isdigit()) or len(text) > _DIGITS:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 up, got {text[:20]}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0.1 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"expected seconds from 0.1 to 86400, got {text}")
    return value


def presentation_of(arguments: argparse.Namespace) -> Presentation:
    """Give how tables are to be shown; for any arguments, also those of a verb without tables."""
    form = getattr(arguments, "output", TABLE)
    heading = getattr(arguments, "sort_by", None) or ""
    return Presentation(wide=form == WIDE, names=form == NAME, sort_by=heading)


def need_rows(arguments: argparse.Namespace) -> None:
    """Refuse ``--sort-by`` beside a form that is no table; for any arguments, also those of other verbs.

    Raises
    ------
    ModelError
        When it was given there.
    """
    form = getattr(arguments, "output", TABLE)
    if form not in (TABLE, WIDE, NAME) and getattr(arguments, "sort_by", None) is not None:
        raise ModelError(f"--sort-by: it orders rows of tables, and -o {form} has none")


def for_programs(arguments: argparse.Namespace) -> bool:
    """Tell whether JSON or YAML was asked for."""
    return arguments.output in (JSON, YAML)


def print_record(arguments: argparse.Namespace, record: Mapping[str, Any] | list[Any]) -> None:
    """Print a record as JSON, or as YAML where that was asked for.

    What cannot be read of a dump is named in it, so a verb that reads one gives a mapping.

    Raises
    ------
    MissingExtraError
        When PyYAML is not installed.
    """
    unreadable = getattr(arguments, "unreadable", ())
    if unreadable and isinstance(record, Mapping):
        record = {**record, "unreadable": unreadable}
    text = json.dumps(record, indent=2, default=_plain)
    if arguments.output != YAML:
        print(text)
        return
    need_yaml("output as YAML")
    import yaml  # optional: only this output needs it

    # By way of JSON: mappings, tuples and names of enumerations become what YAML knows.
    print(yaml.safe_dump(json.loads(text), sort_keys=False, allow_unicode=True), end="")


def _plain(value: Any) -> Any:
    """Write what JSON does not know."""
    return dict(value) if hasattr(value, "items") else str(value)


def watched(arguments: argparse.Namespace, once: Callable[[argparse.Namespace], int]) -> int:
    """Run a verb every few seconds until Ctrl-C; a screen is cleared before.

    What fails after the first time, such as a server that is busy, is told, and tried again.

    Raises
    ------
    ModelError
        When the input can be read only once.
    """
    read = (*arguments.paths, *(getattr(arguments, one, "") for one in ("plan", "first", "second")))
    if "-" in read:
        raise ModelError("--watch: standard input can be read only once; give files or --live")
    for turn in count():
        if sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="", file=raw(sys.stdout), flush=True)
        try:
            # A verb takes words off its paths; the next round wants them again.
            once(argparse.Namespace(**{**vars(arguments), "paths": list(arguments.paths)}))
        except (KoordcoreError, OSError) as error:
            if not turn:
                raise
            print(f"koordcore: {error}", file=sys.stderr)
        sys.stdout.flush()
        time.sleep(arguments.watch)
    raise AssertionError("it goes on until somebody stops it")
