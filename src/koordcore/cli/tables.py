"""Tables: the same rows on a terminal and in a pipe; a terminal adds colours and folds what is too wide."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from itertools import groupby
from typing import Final

import attrs

from koordcore._record import record
from koordcore.cli.layout import Line, Table, Tone, fitted, fold, lines_of
from koordcore.cli.terminal import raw
from koordcore.errors import MissingExtraError, ModelError, printable
from koordcore.model.resources import CPU

_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LENT_CPU: Final = ("batch-cpu", "mid-cpu")
"""Cores that are lent out; their amounts count milli-cores."""
_COLOURS: Final = {Tone.NAME: "1", Tone.GOOD: "32", Tone.BAD: "31", Tone.DIM: "2"}
_TITLE: Final = "1;36"


@record(kw_only=True)
class Presentation:
    """How the tables of a command are shown.

    Parameters
    ----------
    wide
        All columns, however wide that is.
    names
        Only the first column of tables of names, without headings.
    sort_by
        A heading whose column orders the rows; empty for the tables' own orders.
    """

    wide: bool = False
    names: bool = False
    sort_by: str = ""


_PLAIN: Final = Presentation()
_presentation: ContextVar[Presentation] = ContextVar("presentation", default=_PLAIN)


@contextmanager
def presented(how: Presentation) -> Iterator[None]:
    """Show tables in a way of one's own while this lasts."""
    token = _presentation.set(how)
    try:
        yield
    finally:
        _presentation.reset(token)


def amount(resource: str, value: int) -> str:
    """Write an amount for people: cores, binary bytes to one decimal, plain counts.

    >>> amount("cpu", 1500), amount("memory", 3 * 2**29), amount("nvidia.com/gpu", 8)
    ('1.5', '1.5Gi', '8')
    >>> amount("kubernetes.io/batch-cpu", 1500), amount("huawei.com/npu-cpu", 7)
    ('1500m', '7')
    """
    if resource == CPU:
        return f"{value / 1000:.3f}".rstrip("0").rstrip(".")
    if resource.endswith(_LENT_CPU):
        return f"{value}m"
    if not resource.endswith(("memory", "storage")) and "hugepages" not in resource:
        return str(value)
    size, unit = float(value), 0
    while abs(size) >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f}".rstrip("0").rstrip(".") + _UNITS[unit]


def screen_width() -> int | None:
    """Give the columns of the terminal that standard output is; ``None`` where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show(*tables: Table) -> None:
    """Print tables to standard output, with colours where that is a terminal.

    Raises
    ------
    ModelError
        When rows are to be ordered by a column that none of the tables has.
    """
    how = _presentation.get()
    check_heading(*tables)
    for table in tables:
        ordered = _ordered(table, how.sort_by) if how.sort_by else table
        if how.names:
            _print_names(ordered)
        else:
            _print_table(ordered, how)


def show_ranked(table: Table) -> None:
    """Print a table whose rows have an order of their own, which ``--sort-by`` does not change."""
    how = _presentation.get()
    if not how.names:
        _print_table(table, how)


def say(text: str) -> None:
    """Print a sentence for people; it is folded on a terminal and left out where only names are asked for."""
    if _presentation.get().names:
        return
    width = screen_width()
    for line in text.splitlines() or [""]:
        if width is None or len(line) <= width:
            print(line)
            continue
        inset = " " * (len(line) - len(line.lstrip()))
        first, *rest = fold(line.strip(), width - len(inset) - 2)
        print(inset + first)
        for part in rest:
            print(f"{inset}  {part}")


def _print_names(table: Table) -> None:
    if table.columns[0].tone is Tone.NAME:
        for name in dict.fromkeys(row[0].strip() for row in table.rows):
            print(name)


def _print_table(table: Table, how: Presentation) -> None:
    width = screen_width()
    shown, left_out = fitted(table, width, wide=how.wide)
    colours = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    out = raw(sys.stdout) if colours else sys.stdout
    for number, text in enumerate(fold(table.title, width - 2) if width is not None else [table.title]):
        out.write(("  " if number else "") + (_coloured(text, _TITLE) if colours else text) + "\n")
    if not shown.rows:
        out.write("  none\n")
    for line in lines_of(shown, None if how.wide else width) if shown.rows else ():
        out.write((_painted(line) if colours else line.text) + "\n")
    hidden = f"-o wide shows {', '.join(left_out)}" if left_out else ""
    for note in filter(None, (*table.note.split("\n"), hidden)):
        for text in fold(note, width - 2) if width is not None else [note]:
            out.write("  " + (_coloured(printable(text), "2") if colours else text) + "\n")
    out.write("\n")


def _painted(line: Line) -> str:
    return "".join(
        _coloured(printable(text), _COLOURS[tone]) if tone and text.strip() else printable(text)
        for text, tone in line.pieces
    ).rstrip()


def _coloured(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m"


def check_heading(*tables: Table) -> None:
    """Refuse a ``--sort-by`` that is no column of any of the tables, before anything is printed.

    Raises
    ------
    ModelError
        With the column that was meant, or all that there are.
    """
    heading = _presentation.get().sort_by
    known = [column.name for table in tables for column in table.columns if column.name]
    if heading and tables and heading.upper() not in known:
        near = get_close_matches(heading.upper(), known, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(dict.fromkeys(known))}"
        raise ModelError(f"--sort-by: no column {heading}{hint}")


def _ordered(table: Table, heading: str) -> Table:
    """Order rows by a column: numbers by size, the greatest first; names as people count."""
    places = [place for place, column in enumerate(table.columns) if column.name == heading.upper()]
    if not places:
        return table
    place = places[0]
    if table.columns[place].number:
        rows = sorted(table.rows, key=lambda row: -_size(row[place]))
    else:
        rows = sorted(table.rows, key=lambda row: _counted(row[place]))
    return attrs.evolve(table, rows=rows)


def _size(text: str) -> float:
    """Read a number as a table shows it, with its unit.

    >>> _size("1.5Gi") > _size("800"), _size("3/4"), _size("–")
    (True, 3.0, -inf)
    """
    digits = text.lstrip("-+").partition("/")[0]
    end = next((place for place, one in enumerate(digits) if one not in "0123456789."), len(digits))
    try:
        value = float(digits[:end])
    except ValueError:
        return float("-inf")
    unit = next((power for power, one in enumerate(_UNITS) if one and digits[end:].startswith(one)), 0)
    return (-value if text.startswith("-") else value) * 1024.0**unit


def _counted(text: str) -> list[tuple[int, int, str]]:
    """Order ``w-2`` before ``w-10``.

    >>> sorted(["b", "w-10", "a", "w-2"], key=_counted)
    ['a', 'b', 'w-2', 'w-10']
    """
    words = ("".join(part) for _, part in groupby(text, key=str.isdecimal))
    return [(0, int(word), "") if word.isdecimal() else (1, 0, word) for word in words]


def need_yaml(purpose: str) -> None:
    """Make sure that PyYAML is there.

    Raises
    ------
    MissingExtraError
        Names the extra that brings it.
    """
    try:
        import yaml  # noqa: F401 - optional
    except ImportError:
        raise MissingExtraError.for_extra("PyYAML", "yaml", purpose) from None
