"""How a table is laid out: nothing is cut; columns are left out by importance, sentences folded at spaces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from enum import StrEnum
from textwrap import wrap
from typing import Final

import attrs

from koordcore._record import record

_GAP: Final = "  "
_LEAST_TEXT: Final = 24
"""Fewer columns than that make no sentence; it goes below its row instead."""
_MOST_LINES: Final = 3
"""What would take more lines beside other columns goes below its row, too."""


class Tone(StrEnum):
    """How a column stands out on a terminal."""

    PLAIN = ""
    NAME = "bold"
    GOOD = "green"
    BAD = "red"
    DIM = "dim"


@record
class Column:
    """A column of a table.

    Parameters
    ----------
    name
        Its heading.
    number
        It holds numbers.
    tone
        How it stands out.
    text
        It holds sentences or lists, which may be folded at spaces; everything else stays on its line.
    rank
        0 where there is always room for it; else the highest is left out first where there is none.
    """

    name: str
    number: bool = False
    tone: Tone = Tone.PLAIN
    text: bool = False
    rank: int = 0


ONLY_WIDE: Final = 9
"""The rank of columns that only ``-o wide`` shows."""


@record(kw_only=True)
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

    def only(self, kept: Sequence[int]) -> Table:
        """Give the table with some of its columns."""
        rows = [tuple(row[place] for place in kept) for row in self.rows]
        return attrs.evolve(self, columns=tuple(self.columns[place] for place in kept), rows=rows)


@record
class Line:
    """A line as it is printed: pieces with their tones."""

    pieces: tuple[tuple[str, Tone], ...]

    @property
    def text(self) -> str:
        """The line without tones."""
        return "".join(text for text, _ in self.pieces).rstrip()


def cells(text: str) -> int:
    """Count the columns that a text takes on a terminal.

    >>> cells("gpu-1"), cells("表")
    (5, 2)
    """
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) != 0 for one in text)


def fold(text: str, width: int) -> list[str]:
    """Break a text at spaces into lines of at most ``width``; a longer word keeps a line of its own.

    >>> fold("spine s1, block s1b1", 12)
    ['spine s1,', 'block s1b1']
    """
    lines = wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return lines or [""]


def fitted(table: Table, width: int | None, *, wide: bool = False) -> tuple[Table, tuple[str, ...]]:
    """Leave out columns until the rest has room: those that say nothing at all, then by rank.

    Parameters
    ----------
    width
        Of the screen; ``None`` for as much as it takes.
    wide
        Leave out none.

    Returns
    -------
    tuple
        The table, and the headings of the columns that are left out for want of room.
    """
    kept = list(range(len(table.columns)))
    if not wide:
        kept = [place for place in kept if table.columns[place].rank < ONLY_WIDE]
        kept = [one for one in kept if not one or any(row[one] for row in table.rows)]
    left_out: list[int] = []
    if width is None or wide:
        return table.only(kept), ()
    while _least(table.only(kept)) > width:
        optional = [place for place in kept if table.columns[place].rank]
        if not optional:
            break
        worst = max(optional, key=lambda place: (table.columns[place].rank, place))
        kept.remove(worst)
        left_out.append(worst)
    for place in reversed(left_out[:-1]):
        # The last one was broad, perhaps: there may be room for one that went before.
        if _natural(table)[place] + len(_GAP) <= width - _used(table.only(kept), width):
            kept = sorted([*kept, place])
    return table.only(kept), tuple(
        table.columns[place].name for place in reversed(left_out) if place not in kept
    )


def _natural(table: Table) -> list[int]:
    return [
        max([cells(column.name), *(cells(row[place]) for row in table.rows)])
        for place, column in enumerate(table.columns)
    ]


def _least(table: Table) -> int:
    """Count the columns that a table needs when its sentences are folded as far as that is readable."""
    needed = [
        min(width, max(_LEAST_TEXT, cells(column.name))) if column.text else width
        for column, width in zip(table.columns, _natural(table), strict=True)
    ]
    return sum(needed) + len(_GAP) * len(needed)


def _used(table: Table, width: int) -> int:
    """Count the columns of the screen that a table takes, without what goes below its rows."""
    widths = _natural(table)
    below = _share(table, widths, width)
    return sum(one + len(_GAP) for place, one in enumerate(widths) if place not in below)


def lines_of(table: Table, width: int | None) -> Iterator[Line]:
    """Lay out the heading and the rows of a table.

    Parameters
    ----------
    width
        Of the screen; ``None`` for as much as it takes. Where the columns without sentences alone are wider,
        the sentences go below their rows.
    """
    widths = _natural(table)
    below: set[int] = set()
    if width is not None:
        below = _share(table, widths, width)
    shown = [place for place in range(len(table.columns)) if place not in below]
    heads = tuple(column.name for column in table.columns)
    yield Line(tuple((text, Tone.DIM) for text in _bare(_row(table, heads, widths, shown))))
    for row in table.rows:
        folded = {
            place: fold(row[place], widths[place]) if table.columns[place].text else [row[place]]
            for place in shown
        }
        for number in range(max((len(parts) for parts in folded.values()), default=0)):
            texts = tuple(
                folded[place][number] if place in folded and number < len(folded[place]) else ""
                for place in range(len(row))
            )
            pieces = _bare(_row(table, texts, widths, shown))
            tones = [table.columns[place].tone for place in shown]
            if pieces or not below:
                yield Line(tuple(zip(pieces, tones, strict=False)))
        for place in sorted(below):
            if row[place]:
                # Of several, none stands under its heading: each brings it along.
                head = f"{table.columns[place].name}: " if len(below) > 1 else ""
                for text in fold(head + row[place], (width or 80) - 6):
                    yield Line((("      " + text, table.columns[place].tone),))


def _row(table: Table, texts: Sequence[str], widths: Sequence[int], shown: Sequence[int]) -> list[str]:
    pieces = []
    for place in shown:
        blank = " " * max(widths[place] - cells(texts[place]), 0)
        pieces.append(_GAP + (blank + texts[place] if table.columns[place].number else texts[place] + blank))
    return pieces


def _bare(pieces: list[str]) -> list[str]:
    """Leave out the blanks at the end of a line."""
    while pieces and not pieces[-1].strip():
        pieces = pieces[:-1]
    return [*pieces[:-1], pieces[-1].rstrip()] if pieces else []


def _share(table: Table, widths: list[int], width: int) -> set[int]:
    """Share the room among the sentences, in place; give those that have to go below their rows."""
    texts = [place for place, column in enumerate(table.columns) if column.text]
    fixed = sum(one for place, one in enumerate(widths) if place not in texts) + len(_GAP) * len(widths)
    below: set[int] = set()
    while texts:
        room = width - fixed
        wishes = {place: widths[place] for place in texts}
        least = sum(min(one, _LEAST_TEXT) for one in wishes.values())
        last = max(texts, key=lambda place: (widths[place], place))
        given = _dealt(wishes, room) if least <= room else {}
        if given and widths[last] <= _MOST_LINES * given[last]:
            for place, share in given.items():
                widths[place] = share
            break
        texts.remove(last)
        below.add(last)
        fixed -= len(_GAP)
    return below


def _dealt(wishes: dict[int, int], room: int) -> dict[int, int]:
    """Give every sentence what it wishes where that is little, and the others equal shares of the rest."""
    dealt: dict[int, int] = {}
    for done, (place, wish) in enumerate(sorted(wishes.items(), key=lambda one: (one[1], one[0]))):
        share = (room - sum(dealt.values())) // (len(wishes) - done)
        dealt[place] = min(wish, share)
    return dealt
