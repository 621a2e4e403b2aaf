"""NUMA masks, hints and their merging by policy.

A NUMA mask is an ``int`` whose bit *i* stands for NUMA node *i*. Which masks can serve a pod is asked of the
allocators; here their answers become one choice. Upstream: ``frameworkext/topologymanager``; which of several
feasible masks wins follows one total order instead of upstream's order of enumeration (see
``docs/deviations/numa.md``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import combinations
from typing import Final, TypeAlias

from koordcore._record import record

NUMAMask: TypeAlias = int
"""Set of NUMA nodes as a bit mask."""

MAX_NUMA_NODE: Final = 63
"""Highest id that a mask may hold upstream."""


class NUMATopologyPolicy(StrEnum):
    """How closely everything that a pod gets must lie together."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class NUMAExclusive(StrEnum):
    """Whether pods on one NUMA node and pods across several may share one."""

    NONE = ""
    PREFERRED = "Preferred"
    REQUIRED = "Required"


class NUMAStatus(StrEnum):
    """Whose cpusets a NUMA node holds: nobody's, only those of pods on it alone, or also of pods across."""

    IDLE = "idle"
    SINGLE = "single"
    SHARED = "shared"


@record
class NUMAHint:
    """One set of NUMA nodes that can serve a resource.

    Parameters
    ----------
    mask
        The NUMA nodes; ``None`` where the resource does not care.
    preferred
        Whether no smaller set would do.
    score
        Higher is better among sets of one size.
    unsatisfied
        The resource cannot be served at all.
    """

    mask: NUMAMask | None
    preferred: bool
    score: int = 0
    unsatisfied: bool = False


NUMAHints: TypeAlias = Mapping[str, Sequence[NUMAHint] | None]
"""Resource to its hints: ``None`` where it does not care, empty where nothing can serve it."""


def mask_of(ids: Iterable[int]) -> NUMAMask:
    """Make a mask of NUMA node ids."""
    mask = 0
    for numa in ids:
        mask |= 1 << numa
    return mask


@lru_cache(maxsize=4096)
def numa_ids(mask: NUMAMask) -> tuple[int, ...]:
    """List the NUMA nodes of a mask in ascending order."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


@lru_cache(maxsize=1024)
def masks_by_size(ids: tuple[int, ...], size: int) -> tuple[NUMAMask, ...]:
    """All masks of one size over some NUMA nodes, in lexicographic order of their ids."""
    return tuple(mask_of(chosen) for chosen in combinations(ids, size))


def format_numa_mask(mask: NUMAMask | None) -> str:
    """Write a mask as upstream's messages do: binary, padded to an even width.

    Examples
    --------
    >>> [format_numa_mask(mask) for mask in (0b1, 0b11, 0b101, 0b1000, None)]
    ['01', '11', '0101', '1000', '<nil>']
    """
    if mask is None:
        return "<nil>"
    width = 2
    while mask > 1 << width:
        width += 2
    return f"{mask:0{width}b}"


def exclusive_allows(mask: NUMAMask, exclusive: NUMAExclusive, status: Mapping[int, NUMAStatus]) -> bool:
    """Tell whether required exclusiveness lets a pod use a mask.

    A pod across NUMA nodes keeps off those that hold pods of one NUMA node, and the other way round; a node
    without status is idle.

    Parameters
    ----------
    mask
        NUMA nodes that the pod would use, as bits.
    exclusive
        What the pod wishes; only ``REQUIRED`` rules out.
    status
        By NUMA node: what kind of pods run there.
    """
    if exclusive is not NUMAExclusive.REQUIRED:
        return True
    taboo = NUMAStatus.SINGLE if mask & (mask - 1) else NUMAStatus.SHARED
    return all(status.get(numa, NUMAStatus.IDLE) is not taboo for numa in numa_ids(mask))


def preference(mask: NUMAMask, preferred: bool, score: int) -> tuple[bool, int, int, int]:
    """Sort key of a choice, best first: preferred, fewer NUMA nodes, higher score, smaller value.

    Parameters
    ----------
    mask
        NUMA nodes, as bits.
    preferred
        Every resource prefers the mask.
    score
        The higher, the better.
    """
    return not preferred, mask.bit_count(), -score, mask


def unaligned_reason(providers: Iterable[NUMAHints | None], policy: NUMATopologyPolicy) -> str:
    """Say why hints cannot be aligned: per resource the preferred masks among all, sorted by text."""
    parts = []
    for hints in providers:
        for name, listed in (hints or {}).items():
            if listed is None:
                continue
            shown = [hint for hint in listed if not hint.unsatisfied]
            preferred = " ".join(format_numa_mask(hint.mask) for hint in shown if hint.preferred)
            among = " ".join(format_numa_mask(hint.mask) for hint in shown)
            parts.append(f"{name} prefer [{preferred}] among [{among}]")
    glue = "," if policy is NUMATopologyPolicy.SINGLE_NUMA_NODE else " & "
    return f"Unaligned NUMA Hint cause {glue.join(sorted(parts))}"
