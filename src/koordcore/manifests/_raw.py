"""Raw objects, where they came from, and how much input is taken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.errors import ModelError, Problem
from koordcore.model.checks import names_its_fields
from koordcore.protocol.fields import Json

GZIP_FREE: Final = 1 << 24
"""Bytes that a packed file may become whatever its size."""


@names_its_fields
@record(kw_only=True)
class SourceLimits:
    """How much input is taken at most; anything beyond is refused with a clear error.

    Parameters
    ----------
    file_bytes
        Bytes of one file after decompression.
    total_bytes
        Bytes of all files together, after decompression.
    gzip_ratio
        Bytes that one byte of a packed file may become, beyond the first ``GZIP_FREE``; dumps of thousands of
        equal pods reach 100, bombs 1000.
    depth
        Levels of nesting in one YAML document; JSON is bounded by the interpreter's own stack guard.
    alias_values
        Values that the aliases of one YAML document may add to what it spells out.
    """

    file_bytes: int = 1 << 30
    total_bytes: int = 4 << 30
    gzip_ratio: int = 200
    depth: int = 200
    alias_values: int = 1_000_000

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if value < 1:
                raise ModelError(f"{name}: expected a positive number, got {value}")


LIMITS: Final = SourceLimits()


@record
class SourceObject:
    """One raw object and where it came from, such as ``pods.json (item 3)``.

    Parameters
    ----------
    refused
        Why it cannot be taken, whatever it says: a webhook that would have changed it could not.
    end
        Characters of the text up to its end; 0 where nobody counts them.
    """

    source: str
    raw: Json
    refused: tuple[Problem, ...] = ()
    end: int = attrs.field(default=0, eq=False, repr=False)


Source: TypeAlias = SourceObject | Problem


def finite(text: str) -> float:
    """Read a number; one that is too large for a float is none.

    Raises
    ------
    ValueError
        For such a number.
    """
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text[:20]} is not a JSON number")
    return value


def outer(
    surrounding: dict[str, Json], kindless: list[SourceObject], label: str, end: int
) -> Iterator[Source]:
    """Give what surrounds the items: nothing for a list, the object itself for anything else."""
    kind = surrounding.get("kind")
    if surrounding.get("items") == () and (kind is None or (isinstance(kind, str) and kind.endswith("List"))):
        element = str(kind or "").removesuffix("List")
        for item in kindless:
            known = {"apiVersion": surrounding.get("apiVersion"), "kind": element} if element else {}
            assert isinstance(item.raw, dict)
            yield SourceObject(item.source, {**known, **item.raw})
        return
    if surrounding.get("items") == ():
        surrounding["items"] = [item.raw for item in kindless]
    yield SourceObject(label, surrounding, end=end)
