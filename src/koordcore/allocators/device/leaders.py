"""Which cards a pod gets: the search over sets of devices of the leading type.

Cards on one switch that can serve are interchangeable, so sets of *switches* are enumerated, not sets of
cards, and every set that could hold the best answer is looked at: if a legal choice exists, it is found.
Among legal choices the least key wins. Keys, most important first:

* a partition of the table: reserved cards left aside, lower score, remote followers, partitions of 8, 4 and 2
  broken, NUMA nodes, switches, position in the table;
* whole cards: reserved cards left aside, NUMA nodes, remote followers, switches, free cards left on these
  switches, free cards left on these NUMA nodes, places in use, upstream's order;
* one shared card: reserved card left aside, remote followers, untouched switch and NUMA node, device score,
  upstream's order;
* several shared cards: reserved cards left aside, NUMA nodes, remote followers, switches, device scores,
  minors;
* cards of unknown place: reserved cards left aside, remote followers, device scores, minors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple, TypeAlias

from koordcore.allocators.device.followers import Followers
from koordcore.allocators.device.shape import Partition
from koordcore.allocators.device.view import TypeView
from koordcore.model.device_requests import (
    PartitionAllocatePolicy,
    PartitionSpec,
)
from koordcore.topology.devices import Switch, TopologyScope, bits, lowest

Key: TypeAlias = tuple[object, ...]

_PARTITION_WEIGHTS: Final = ((8, 10_000), (4, 100), (2, 1))
"""What a partition that stays free is worth, by its size."""


class Leaders(NamedTuple):
    """Chosen devices of the leading type, in the order of selection."""

    minors: tuple[int, ...]
    switches: tuple[str, ...]


def _remote(followers: Sequence[Followers], switches: Sequence[str]) -> int | None:
    """Add up remote devices over all following types; ``None`` where one type cannot follow."""
    total = 0
    for one in followers:
        remote = one.remote(switches)
        if remote is None:
            return None
        total += remote
    return total


# --- partitions ---------------------------------------------------------------------------------------------


def by_partition(
    view: TypeView,
    table: Mapping[int, Sequence[Sequence[Partition]]],
    spec: PartitionSpec | None,
    scope: TopologyScope | None,
    followers: Sequence[Followers] = (),
) -> Leaders | None:
    """Choose a partition of the requested size.

    Parameters
    ----------
    table
        Size to partitions grouped by score, best first; it has the size that is wanted.
    spec
        Restricted looks at the best group only; a bandwidth must be reached.
    scope
        Required topology scope, if any.
    """
    layout = view.shape.layout
    size = view.want.count
    groups = table[size]
    sizes = [(weight, table[one][0]) for one, weight in _PARTITION_WEIGHTS if one >= size and one in table]
    restricted = spec is not None and spec.policy is PartitionAllocatePolicy.RESTRICTED
    bandwidth = None if spec is None else spec.ring_bus_bandwidth
    best: tuple[Key, Partition, tuple[str, ...]] | None = None
    for group in groups[:1] if restricted else groups:
        for one in group:
            if one.mask & (view.busy | ~view.usable):
                continue
            if bandwidth is not None and (one.bandwidth is None or one.bandwidth < bandwidth):
                continue
            if scope is not None and not layout.within(one.mask, scope):
                continue
            switches = layout.pcies(one.mask)
            remote = _remote(followers, switches)
            if remote is None:
                continue
            key = (
                -(one.mask & view.preferred).bit_count(),
                -one.score,
                remote,
                -_kept(view.busy | one.mask, sizes),
                layout.spread(one.mask),
                one.order,
            )
            if best is None or key < best[0]:
                best = key, one, switches
    return None if best is None else Leaders(best[1].minors, best[2])


def _kept(taken: int, sizes: Sequence[tuple[int, Sequence[Partition]]]) -> int:
    """Value the partitions that stay wholly free: ``(weight, best group)`` of every size that counts."""
    return sum(weight * sum(one.score for one in group if not one.mask & taken) for weight, group in sizes)


# --- topology
# ------------------------------------------------------------------------------------------------


class _Live(NamedTuple):
    """A switch with cards that can serve."""

    position: int
    switch: Switch
    mask: int
    cards: int


def by_switches(
    view: TypeView,
    count: int,
    *,
    whole: bool,
    scope: TopologyScope | None,
    followers: Sequence[Followers] = (),
) -> Leaders | None:
    """Choose cards by their places; every card has one.

    Parameters
    ----------
    whole
        Whole cards are ranked by what they leave behind, shared ones by their score.
    """
    if scope is TopologyScope.DEVICE and count > 1:
        return None
    if view.usable.bit_count() < count:
        return None
    live = []
    for position, switch in enumerate(view.shape.layout.switches):
        mask = switch.mask & view.usable
        if mask:
            live.append(_Live(position, switch, mask, mask.bit_count()))
    if count == 1 and not whole:
        return _one_shared(view, live, followers)
    if whole and not view.preferred:
        nearest = _on_one_switch(view, live, count, followers)
        if nearest is not None:
            return nearest
    best: tuple[Key, Sequence[_Live], tuple[int, ...]] | None = None
    left = _left_in_numa(live) if whole else {}
    for breadth, size, picked in _switch_sets(live, count, scope):
        # Fewest NUMA nodes come first; inside, fewest remote followers, then fewest switches.
        if best is not None and not view.preferred:
            _, found_breadth, found_remote, found_size = best[0][:4]
            if (breadth, 0, size) > (found_breadth, found_remote, found_size):
                break
        remote = 0
        if followers:
            found = _remote(followers, _pcies(picked))
            if found is None:
                continue
            remote = found
        mask = 0
        for one in picked:
            mask |= one.mask
        if whole:
            minors = _lowest_on_each(picked, count, view.preferred)
            rank: Key = (
                mask.bit_count() - count,
                sum(left[numa] for numa in {one.switch.numa for one in picked}),
                *_upstream_order(view, picked, breadth),
                minors,
            )
        else:
            minors = _best_on_each([one.mask for one in picked], count, view.order)
            rank = _score_rank(view, minors)
        chosen = sum(1 << minor for minor in minors)
        key = (-(chosen & view.preferred).bit_count(), breadth, remote, size, *rank)
        if best is None or key < best[0]:
            best = key, picked, minors
    return None if best is None else Leaders(best[2], _pcies(best[1]))


def _on_one_switch(
    view: TypeView, live: Sequence[_Live], count: int, followers: Sequence[Followers]
) -> Leaders | None:
    """Choose whole cards on a single switch beside all that follows: nothing can come before that."""
    best: tuple[Key, _Live] | None = None
    left: dict[int, int] | None = None
    for one in live:
        if one.cards < count or (followers and _remote(followers, (one.switch.pcie,)) != 0):
            continue
        if left is None:
            left = _left_in_numa(live)
        key = (one.cards, left[one.switch.numa], *_upstream_order(view, (one,), 1))
        if best is None or key < best[0]:
            best = key, one
    if best is None:
        return None
    return Leaders(tuple(bits(lowest(best[1].mask, count))), (best[1].switch.pcie,))


def _upstream_order(view: TypeView, picked: Sequence[_Live], breadth: int) -> tuple[int, int]:
    """Rank what is equal otherwise: places in use first, then the first switch or NUMA node.

    Only the places that hold all cards count: one switch, or one NUMA node, or nothing.
    """
    first = picked[0]
    if breadth > 1:
        return 0, 0
    numa_mask = view.shape.layout.numa_masks[first.switch.numa]
    untouched = int(not numa_mask & view.busy)
    if len(picked) == 1:
        return untouched + int(not first.switch.mask & view.busy), first.position
    return untouched, first.switch.numa


def _pcies(picked: Sequence[_Live]) -> tuple[str, ...]:
    if len(picked) == 1:
        return (picked[0].switch.pcie,)
    return tuple(dict.fromkeys(one.switch.pcie for one in picked))


def _left_in_numa(live: Sequence[_Live]) -> dict[int, int]:
    """Usable cards per NUMA node; what a choice leaves there differs from it by a constant."""
    left: dict[int, int] = {}
    for one in live:
        left[one.switch.numa] = left.get(one.switch.numa, 0) + one.cards
    return left


def _switch_sets(
    live: Sequence[_Live], count: int, scope: TopologyScope | None
) -> Iterator[tuple[int, int, Sequence[_Live]]]:
    """Yield ``(NUMA nodes, switches, set)`` of every set that holds ``count`` cards, at least one on each.

    In the order of NUMA nodes, then of switches.
    """
    numas = tuple(dict.fromkeys(one.switch.numa for one in live))
    widest = len(numas) if scope is None or scope is TopologyScope.NODE else 1
    for breadth in range(1, widest + 1):
        pools = []
        for chosen in combinations(numas, breadth):
            pool = [one for one in live if one.switch.numa in chosen]
            if sum(one.cards for one in pool) >= count:
                pools.append((pool, sorted((one.cards for one in pool), reverse=True)))
        largest = max((len(pool) for pool, _ in pools), default=0)
        if scope in (TopologyScope.PCIE, TopologyScope.DEVICE):
            largest = min(largest, 1)
        for size in range(breadth, min(count, largest) + 1):
            for pool, cards in pools:
                if sum(cards[:size]) < count:
                    continue
                for picked in combinations(pool, size):
                    if sum(one.cards for one in picked) >= count and (
                        breadth == 1 or len({one.switch.numa for one in picked}) == breadth
                    ):
                        yield breadth, size, picked


def _lowest_on_each(picked: Sequence[_Live], count: int, preferred: int) -> tuple[int, ...]:
    """Take the lowest cards, at least one on each switch, preferred ones before others; ascending."""
    if len(picked) == 1 and not preferred:
        return tuple(bits(lowest(picked[0].mask, count)))
    chosen = 0
    pool = 0
    for one in picked:
        liked = one.mask & preferred
        chosen |= lowest(liked or one.mask, 1)
        pool |= one.mask
    while chosen.bit_count() < count:
        rest = pool & ~chosen
        chosen |= lowest(rest & preferred or rest, 1)
    return tuple(bits(chosen))


def _best_on_each(masks: Sequence[int], count: int, order: Sequence[int]) -> tuple[int, ...]:
    """Take the first cards in an order, at least one on each switch; in that order."""
    firsts = {next(minor for minor in order if mask >> minor & 1) for mask in masks}
    pool = 0
    for mask in masks:
        pool |= mask
    spare = count - len(firsts)
    chosen = []
    for minor in order:
        if minor in firsts:
            chosen.append(minor)
        elif spare and pool >> minor & 1:
            chosen.append(minor)
            spare -= 1
    return tuple(chosen)


def _score_rank(view: TypeView, minors: Sequence[int]) -> Key:
    scores = view.scores
    return (
        -sum(scores[minor] for minor in minors),
        tuple((-scores[minor], minor) for minor in minors),
    )


def _one_shared(view: TypeView, live: Sequence[_Live], followers: Sequence[Followers]) -> Leaders | None:
    """Choose one card to be shared: beside cards that are in use, and there by score."""
    layout = view.shape.layout
    best: tuple[Key, int, str] | None = None
    for one in live:
        remote = _remote(followers, (one.switch.pcie,))
        if remote is None:
            continue
        numa_mask = layout.numa_masks[one.switch.numa]
        untouched = (not one.switch.mask & view.busy) + (not numa_mask & view.busy)
        for minor in bits(one.mask):
            liked = view.preferred >> minor & 1
            key = (-liked, remote, untouched, -view.scores[minor], one.position, minor)
            if best is None or key < best[0]:
                best = key, minor, one.switch.pcie
    return None if best is None else Leaders((best[1],), (best[2],))


def first_choice(view: TypeView, count: int) -> Leaders:
    """Give the cards that a search without followers starts with in the reference, where there are enough.

    The smallest place that holds them all, one in use before others, and the lowest cards there. A refusal
    is worded by what follows these cards.
    """
    layout = view.shape.layout
    groups = [switch.mask for switch in layout.switches], list(layout.numa_masks.values())
    for masks in groups:
        fitting = [mask for mask in masks if (mask & view.usable).bit_count() >= count]
        if fitting:
            place = next((mask for mask in fitting if mask & view.busy), fitting[0])
            break
    else:
        place = view.usable
    chosen = lowest(place & view.usable, count)
    return Leaders(tuple(bits(chosen)), layout.pcies(chosen))


# --- no topology -------------------------------------------------------------------------------------------


def by_score(view: TypeView, count: int, followers: Sequence[Followers] = ()) -> Leaders | None:
    """Choose devices by score alone, as upstream does where places are unknown or do not count.

    With followers, every combination of switches is tried, because the first devices by score may be where
    nothing can follow.
    """
    order = view.order
    if len(order) < count:
        return None
    pcie_of = view.shape.layout.pcie_of
    if not followers:
        minors = tuple(order[:count])
        return Leaders(minors, _named(pcie_of, minors))
    groups: dict[str | None, int] = {}
    for minor in order:
        place = pcie_of.get(minor)
        groups[place] = groups.get(place, 0) | 1 << minor
    best: tuple[Key, Leaders] | None = None
    for size in range(1, min(count, len(groups)) + 1):
        for places in combinations(groups, size):
            masks = [groups[place] for place in places]
            if sum(mask.bit_count() for mask in masks) < count:
                continue
            switches = tuple(place for place in places if place is not None)
            remote = _remote(followers, switches)
            if remote is None:
                continue
            minors = _best_on_each(masks, count, order)
            chosen = sum(1 << minor for minor in minors)
            key = (-(chosen & view.preferred).bit_count(), remote, *_score_rank(view, minors))
            if best is None or key < best[0]:
                best = key, Leaders(minors, switches)
    return None if best is None else best[1]


def _named(pcie_of: dict[int, str], minors: Sequence[int]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(pcie_of[minor] for minor in minors if minor in pcie_of))
