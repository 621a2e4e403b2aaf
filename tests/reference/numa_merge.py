"""NUMA hints of several providers merged under a policy, as the topology manager does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from immutabledict import immutabledict

from koordcore.topology.numa import (
    NUMAExclusive,
    NUMAHint,
    NUMAHints,
    NUMAMask,
    NUMAStatus,
    NUMATopologyPolicy,
    exclusive_allows,
    mask_of,
    preference,
    unaligned_reason,
)


@attrs.frozen
class NUMAMerge:
    """What the hints of all providers come to.

    Parameters
    ----------
    admitted
        Whether the policy lets the pod in.
    hint
        The choice; its mask is ``None`` where NUMA nodes do not matter.
    reasons
        Why the pod is not let in; upstream's texts, sorted.
    """

    admitted: bool
    hint: NUMAHint
    reasons: tuple[str, ...] = ()


def merge_hints(
    policy: NUMATopologyPolicy,
    numa_nodes: Sequence[int],
    providers: Sequence[NUMAHints | None],
    *,
    exclusive: NUMAExclusive = NUMAExclusive.NONE,
    status: Mapping[int, NUMAStatus] = immutabledict(),
) -> NUMAMerge:
    """Choose the NUMA nodes of a pod from the hints of all its resources.

    Only one and the same mask for every resource that cares satisfies them all, so each mask is looked at
    once instead of every combination of hints. The best is preferred, then has the fewest NUMA nodes, the
    highest score (the sum of the scores of the hints that name it), the smallest value.

    Parameters
    ----------
    policy
        ``RESTRICTED`` and ``SINGLE_NUMA_NODE`` let in preferred choices only; the latter looks at single NUMA
        nodes only; ``BEST_EFFORT`` lets in anything and falls back to all NUMA nodes.
    numa_nodes
        Ids of the node's NUMA nodes.
    providers
        Hints by resource, one mapping per provider; ``None`` or an empty one has no preference.
    exclusive, status
        See :func:`exclusive_allows`; a mask that it refuses is not preferred.
    """
    everything = mask_of(numa_nodes)
    if policy is NUMATopologyPolicy.NONE:
        return NUMAMerge(True, NUMAHint(None, False))
    single = policy is NUMATopologyPolicy.SINGLE_NUMA_NODE
    if policy is not NUMATopologyPolicy.BEST_EFFORT:
        unsatisfied = sorted(
            f"Unsatisfied NUMA {name}"
            for hints in providers
            for name, listed in (hints or {}).items()
            if listed is not None and not listed
        )
        if unsatisfied:
            fallback = None if single else everything
            return NUMAMerge(False, NUMAHint(fallback, False), tuple(unsatisfied))
    lists = [
        [hint for hint in listed if not hint.unsatisfied and (not single or _of_one(hint))]
        for hints in providers
        for listed in (hints or {}).values()
        if listed is not None
    ]
    best = _best_mask(everything, lists, exclusive, status)
    if single and best.mask == everything:
        best = NUMAHint(None, best.preferred)
    if policy is NUMATopologyPolicy.BEST_EFFORT or best.preferred:
        return NUMAMerge(True, best)
    return NUMAMerge(False, best, (unaligned_reason(providers, policy),))


def _of_one(hint: NUMAHint) -> bool:
    return hint.preferred and (hint.mask is None or hint.mask.bit_count() == 1)


def _best_mask(
    everything: NUMAMask,
    lists: Sequence[Sequence[NUMAHint]],
    exclusive: NUMAExclusive,
    status: Mapping[int, NUMAStatus],
) -> NUMAHint:
    """Choose the best mask that every list offers; all NUMA nodes, not preferred, where there is none."""
    candidates = {hint.mask for hints in lists for hint in hints if hint.mask is not None}
    choices = [NUMAHint(everything, False)]
    for mask in sorted({*candidates, everything}):
        if mask & ~everything or not mask:
            continue
        allowed = exclusive_allows(mask, exclusive, status)
        for only_preferred in (True, False):
            score = _joint_score(mask, lists, everything, only_preferred=only_preferred)
            if score is not None:
                choices.append(NUMAHint(mask, only_preferred and allowed, score))
    return min(choices, key=lambda hint: preference(hint.mask or 0, hint.preferred, hint.score))


def _joint_score(
    mask: NUMAMask, lists: Sequence[Sequence[NUMAHint]], everything: NUMAMask, *, only_preferred: bool
) -> int | None:
    """Best sum of scores with which every list offers a mask; ``None`` where one does not.

    A hint without a mask goes along with any, and vouches for none but all NUMA nodes: of a smaller mask some
    hint has to speak.
    """
    total, named = 0, mask == everything
    for hints in lists:
        offers = [
            hint for hint in hints if hint.mask in (mask, None) and (hint.preferred or not only_preferred)
        ]
        if not offers:
            return None
        total += max(hint.score if hint.mask == mask else 0 for hint in offers)
        named = named or any(hint.mask == mask for hint in offers)
    return total if named else None
