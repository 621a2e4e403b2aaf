"""Tables as a notebook shows them: a few rows of HTML, and a line that says how many more there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_MOST: Final = 30


def html_table(title: str, table: Mapping[str, Sequence[Any]], notes: Iterable[str] = ()) -> str:
    """Write columns as an HTML table, of which a notebook shows the first rows.

    Parameters
    ----------
    title
        A line above it.
    table
        Name to values, all of one length.
    notes
        Lines below it.

    Examples
    --------
    >>> print(html_table("1 node", {"node": ["a<b"], "pods": [3]}))
    <p><b>1 node</b></p>
    <table><thead><tr><th>node</th><th>pods</th></tr></thead>
    <tbody>
    <tr><td>a&lt;b</td><td>3</td></tr>
    </tbody></table>
    """
    from html import escape  # with its table of entities: only who looks pays for it

    length = max((len(values) for values in table.values()), default=0)
    rows = [[values[row] for values in table.values()] for row in range(min(length, _MOST))]
    more = [f"… and {length - _MOST} more; table() has them all"] if length > _MOST else []
    lines = [f"<p><b>{escape(title)}</b></p>"]
    if rows:
        lines += [f"<table><thead><tr>{_cells('th', table)}</tr></thead>", "<tbody>"]
        lines += [f"<tr>{_cells('td', row)}</tr>" for row in rows]
        lines.append("</tbody></table>")
    lines += [f"<p>{escape(one)}</p>" for one in (*more, *notes)]
    return "\n".join(lines)


def _cells(tag: str, values: Iterable[Any]) -> str:
    from html import escape

    return "".join(_cell(tag, escape("" if one is None else str(one))) for one in values)


def _cell(tag: str, text: str) -> str:
    # A browser breaks names at their hyphens.
    whole = ' style="white-space:nowrap"' if "-" in text and " " not in text else ""
    return f"<{tag}{whole}>{text}</{tag}>"
