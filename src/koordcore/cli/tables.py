"""Tables: rich ones on a terminal, plain columns in a pipe, the same content in both."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

import attrs

from koordcore.cli.terminal import raw
from koordcore.errors import MissingExtraError, printable
from koordcore.model.resources import CPU


class Tone(StrEnum):
    """How a column stands out on a terminal."""

    PLAIN = ""
    NAME = "bold"
    GOOD = "green"
    BAD = "red"
    DIM = "dim"


@attrs.frozen
class Column:
    """A column's heading, whether it holds numbers, and its tone."""

    name: str
    number: bool = False
    tone: Tone = Tone.PLAIN


@attrs.frozen(kw_only=True)
class Table:
    """Rows of text under headings.

    Parameters
    ----------
    note
        A line below the table; empty for none.
    """

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


_UNITS: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LENT_CPU: Final = ("batch-cpu", "mid-cpu")
"""Cores that are lent out; their amounts count milli-cores."""


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


def show(table: Table) -> None:
    """Print a table to standard output, with colours and lines where that is a terminal."""
    if sys.stdout.isatty():
        _show_rich(table)
    else:
        _show_plain(table)


def _show_plain(table: Table) -> None:
    heads = [column.name for column in table.columns]
    widths = [max([len(head), *(len(row[index]) for row in table.rows)]) for index, head in enumerate(heads)]
    print(table.title)
    for row in (tuple(heads), *table.rows):
        cells = [
            cell.rjust(width) if column.number else cell.ljust(width)
            for cell, width, column in zip(row, widths, table.columns, strict=True)
        ]
        print("  " + "  ".join(cells).rstrip())
    if table.note:
        print("  " + table.note)
    print()


def _show_rich(table: Table) -> None:
    try:
        from rich import box  # optional: only a terminal needs it
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        _show_plain(table)
        return
    rich = RichTable(
        title=table.title,
        caption=table.note or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold cyan",
        caption_justify="left",
    )
    for column in table.columns:
        rich.add_column(
            column.name, justify="right" if column.number else "left", style=column.tone.value or None
        )
    for row in table.rows:
        rich.add_row(*(Text(printable(cell)) for cell in row))
    Console(file=raw(sys.stdout)).print(rich)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say on a terminal what is going on while it takes a while; silent in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    try:
        from rich.console import Console
    except ImportError:
        yield
        return
    with Console(file=raw(sys.stderr)).status(what):
        yield


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
