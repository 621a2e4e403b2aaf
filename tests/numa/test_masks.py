"""NUMA masks, hints and merging."""

from __future__ import annotations

import pytest

from koordcore.topology.numa import (
    NUMAExclusive,
    NUMAHint,
    NUMAHints,
    NUMAStatus,
    NUMATopologyPolicy,
    exclusive_allows,
    format_numa_mask,
    mask_of,
    masks_by_size,
    numa_ids,
)
from tests.reference.numa_merge import merge_hints

NONE, BEST, RESTRICTED, SINGLE = NUMATopologyPolicy


def good(*ids: int, score: int = 0) -> NUMAHint:
    return NUMAHint(mask_of(ids), True, score)


def poor(*ids: int, score: int = 0) -> NUMAHint:
    return NUMAHint(mask_of(ids), False, score)


@pytest.mark.parametrize(
    ("ids", "text"),
    [((0,), "01"), ((1,), "10"), ((2,), "100"), ((0, 2), "0101"), ((3,), "1000"), ((4,), "10000")],
)
def test_masks_in_messages(ids: tuple[int, ...], text: str) -> None:
    """Padded to an even width, but powers of four are not."""
    assert format_numa_mask(mask_of(ids)) == text


def test_masks_come_by_size_in_lexicographic_order() -> None:
    """Pairs of four nodes go 3, 5, 9, 6, 10, 12."""
    assert masks_by_size((0, 1, 2, 3), 2) == (3, 5, 9, 6, 10, 12)
    assert numa_ids(0b1010) == (1, 3)


@pytest.mark.parametrize("policy", [BEST, RESTRICTED, SINGLE])
def test_one_common_preferred_mask_wins(policy: NUMATopologyPolicy) -> None:
    """Both want node 1; a common wider mask is worse."""
    providers: list[NUMAHints] = [
        {"a": [good(1), poor(0, 1)]},
        {"b": [good(0), good(1), poor(0, 1)]},
    ]
    merged = merge_hints(policy, (0, 1), providers)
    assert merged.admitted
    assert merged.hint == NUMAHint(0b10, True)


def test_disjoint_wishes() -> None:
    """Nothing in common: best effort takes all, the others say what each wants."""
    providers: list[NUMAHints] = [{"a": [good(0)]}, {"b": [good(1)]}]
    assert merge_hints(BEST, (0, 1), providers).hint == NUMAHint(0b11, False)
    restricted, single = (merge_hints(policy, (0, 1), providers) for policy in (RESTRICTED, SINGLE))
    assert restricted.reasons == (
        "Unaligned NUMA Hint cause a prefer [01] among [01] & b prefer [10] among [10]",
    )
    assert single.reasons == ("Unaligned NUMA Hint cause a prefer [01] among [01],b prefer [10] among [10]",)


def test_a_resource_without_mask_is_unsatisfied() -> None:
    """An empty list refuses, a missing one does not care."""
    assert merge_hints(RESTRICTED, (0, 1), [{"a": []}]).reasons == ("Unsatisfied NUMA a",)
    assert merge_hints(BEST, (0, 1), [{"a": []}]).hint == NUMAHint(0b11, False)
    assert merge_hints(RESTRICTED, (0, 1), [{"a": None}, None, {}]).hint == NUMAHint(0b11, True)


def test_score_decides_among_masks_of_one_size() -> None:
    """Whatever the order and the value (ruling 5); equal scores go to the smallest value."""
    hints = [good(0, 1, score=10), good(0, 3, score=90), good(2, 3, score=50)]
    for listed in (hints, hints[::-1]):
        assert merge_hints(RESTRICTED, range(4), [{"cpu": listed}]).hint.mask == 0b1001
    ties = [good(2), good(0), good(1)]
    assert merge_hints(SINGLE, range(4), [{"cpu": ties}]).hint.mask == 0b1
    two: list[NUMAHints] = [
        {"cpu": [good(0, score=90), good(1, score=10)]},
        {"gpu": [good(0), good(1, score=500)]},
    ]
    assert merge_hints(RESTRICTED, (0, 1), two).hint == NUMAHint(0b10, True, 510)


def test_best_effort_takes_the_best_that_satisfies_everybody() -> None:
    """One needs both nodes, the other prefers one: both it is, not the whole machine."""
    providers: list[NUMAHints] = [{"a": [good(0, 1)]}, {"b": [good(0), good(1), poor(0, 1)]}]
    assert merge_hints(BEST, range(4), providers).hint == NUMAHint(0b11, False)


def test_a_machine_of_one_numa_node_needs_no_mask() -> None:
    """SINGLE drops the mask that is the whole machine."""
    assert merge_hints(SINGLE, (0,), [{"cpu": [good(0, score=31)]}]).hint == NUMAHint(None, True)
    assert merge_hints(NONE, (0, 1), [{"cpu": []}]).admitted


def test_required_exclusiveness() -> None:
    """Single and spread pods keep off each other's NUMA nodes."""
    status = {0: NUMAStatus.SINGLE, 1: NUMAStatus.SHARED}
    required = NUMAExclusive.REQUIRED
    assert exclusive_allows(0b001, required, status)
    assert not exclusive_allows(0b010, required, status)
    assert not exclusive_allows(0b011, required, status)
    assert exclusive_allows(0b110, required, status)
    assert exclusive_allows(0b011, NUMAExclusive.PREFERRED, status)
    providers: list[NUMAHints] = [{"cpu": [good(0, score=50), good(1, score=90)]}]
    shared = {1: NUMAStatus.SHARED}
    chosen = merge_hints(SINGLE, (0, 1), providers, exclusive=required, status=shared)
    assert chosen.hint == NUMAHint(0b01, True, 50)
    both = {0: NUMAStatus.SHARED, 1: NUMAStatus.SHARED}
    assert not merge_hints(SINGLE, (0, 1), providers, exclusive=required, status=both).admitted


def test_a_hint_without_a_mask_vouches_for_no_smaller_mask() -> None:
    """What is preferred then is all NUMA nodes."""
    hints = {"a": [NUMAHint(0b011, False, 4), NUMAHint(None, True)]}
    merged = merge_hints(RESTRICTED, (0, 1, 2), [hints])
    assert merged.admitted
    assert merged.hint == NUMAHint(0b111, True)
