"""Old and misspelt resource names, and what they mean.

Upstream rewrites the deprecated names on input (its ``ReplaceDeprecatedResources``); names that only the
release notes print are taken the same way and reported (ruling 12). The right name wins where both stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.errors import ManifestError, Problem
from koordcore.model.resources import DEPRECATED_BATCH_NAMES
from koordcore.protocol.device import DEPRECATED_NAMES, written_names
from koordcore.protocol.fields import Json

MISSPELT_RESOURCES: Final = frozenset({"koordinator.sh/gpu-shared"})
"""Names that only release notes and manuals print; the others were right once."""
OLD_NAMES: Final[Mapping[str, str]] = {**DEPRECATED_NAMES, **DEPRECATED_BATCH_NAMES}


def as_written(error: ManifestError, raw: Mapping[str, Json]) -> ManifestError:
    """Name the amounts that are wrong as the list has them that :func:`canonical_names` has rewritten."""
    return written_names(error, raw, OLD_NAMES)


def canonical_names(raw: Mapping[str, Json]) -> tuple[Mapping[str, Json], tuple[Problem, ...]]:
    """Rewrite the names of a resource list.

    Returns
    -------
    tuple
        The list, and what its author should write instead, with paths inside the list.
    """
    if raw.keys().isdisjoint(OLD_NAMES):
        return raw, ()
    renamed: dict[str, Json] = {}
    notes: list[Problem] = []
    for name, amount in raw.items():
        target = OLD_NAMES.get(name, name)
        if target != name and target in raw:
            notes.append(Problem(f"[{name}]", f"ignored, because {target} is there too"))
            continue
        renamed[target] = amount
        if name in MISSPELT_RESOURCES:
            notes.append(Problem(f"[{name}]", f"read as {target}; write that instead"))
    return renamed, tuple(notes)
