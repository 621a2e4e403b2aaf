"""Devices of Kubernetes' drivers as text: pools, cards, holders, counters left, what still fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from koordcore.cli.layout import Column, Table, Tone
from koordcore.explaining.claimed_devices import (
    CardView,
    ClassView,
    CounterLeft,
    DeviceHolder,
    HeldDevice,
    PoolView,
    broken_pools,
    class_views,
    pool_views,
)
from koordcore.model.claims import (
    ResourceClaim,
)
from koordcore.model.device_slices import (
    ResourceSlice,
)
from koordcore.model.nodes import NodeState
from koordcore.model.pods import PodKey
from koordcore.model.quantity import NANO, format_exact_quantity
from koordcore.snapshot import ClusterSnapshot

_BAR = 10
_WIDTH = 80
_POOLS_SHOWN = 20


def draw_pools(snapshot: ClusterSnapshot, state: NodeState) -> Iterator[str]:
    """Draw the pools that a node sees, a few lines each."""
    for pool in pool_views(snapshot, state):
        yield from _pool_lines(pool)


def _pool_lines(pool: PoolView) -> Iterator[str]:
    if pool.problem:
        yield f"  {pool.driver}, pool {pool.name}: {pool.problem}"
        return
    yield f"  {pool.driver}, pool {pool.name}: {_count(pool.devices, 'device')}"
    for card in pool.cards:
        yield from _card_lines(card)
    widest = max((len(one.name) for one in pool.plain), default=0)
    for one in pool.plain:
        yield from _device_lines(one, widest, "    ")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _card_lines(card: CardView) -> Iterator[str]:
    used = max((1 - one.left / one.total for one in card.counters if one.total), default=0.0)
    picture = _strip(card) if card.strip else _bar(used)
    yield f"    {card.name}  {picture}"
    yield from _wrapped("left: " + ", ".join(map(_left, card.counters)), "      ")
    widest = max((len(one.kind) for one in card.held), default=0)
    for number, one in enumerate(card.held):
        mark = f"{_mark(number)}  " if card.strip else ""
        yield from _wrapped(f"{mark}{one.kind:<{widest}}  {_holders(one)}".strip(), "      ")
    fits = ", ".join(f"{count} x {kind}" for kind, count in card.fits) or "nothing"
    yield from _wrapped(f"fits: {fits}" + (" (one of these)" if len(card.fits) > 1 else ""), "      ")


def _strip(card: CardView) -> str:
    """One letter per slice, that of the partition that has it."""
    return "".join("·" if one is None else "?" if one < 0 else _mark(one) for one in card.strip)


def _mark(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else "+"


def _device_lines(one: HeldDevice, widest: int, indent: str) -> Iterator[str]:
    if one.left:
        used = max((1 - left.left / left.total for left in one.left if left.total), default=0.0)
        state = f"{_bar(used)} left: {', '.join(map(_left, one.left))}"
        yield from _wrapped(f"{one.name:<{widest}}  {state}", indent)
        for holder in one.holders:
            yield from _wrapped(_share(holder), indent + " " * (widest + 2))
    else:
        state = f"{_bar(1.0 if one.holders else 0.0)} {_holders(one) or 'free'}"
        kind = f"  {one.kind}" if one.kind else ""
        yield from _wrapped(f"{one.name:<{widest}}  {state}{kind}", indent)
    if one.taints:
        yield f"{indent}{' ' * (widest + 2)}tainted: {', '.join(one.taints)}"


def _holders(one: HeldDevice) -> str:
    return "; ".join(map(_holder, one.holders))


def _holder(holder: DeviceHolder) -> str:
    return ", ".join(holder.pods) if holder.pods else f"claim {holder.claim}, used by nobody"


def _share(holder: DeviceHolder) -> str:
    amounts = ", ".join(f"{name} {_amount(value)}" for name, value in holder.consumed.items())
    return f"{_holder(holder)}: {amounts}" if amounts else _holder(holder)


def _left(one: CounterLeft) -> str:
    return f"{one.name} {_amount(one.left, one.binary)} of {_amount(one.total, one.binary)}"


def _amount(value: int, binary: bool = False) -> str:
    return format_exact_quantity(value, binary=binary or value % (2**20 * NANO) == 0)


def _bar(share: float) -> str:
    full = min(_BAR, max(0, round(share * _BAR)))
    return "█" * full + "·" * (_BAR - full)


def _wrapped(text: str, indent: str) -> Iterable[str]:
    """Lines of at most the usual width, later ones set in further."""
    return wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [indent]


def claim_tables(snapshot: ClusterSnapshot) -> Iterator[Table]:
    """What the cluster has of device classes, its pools that offer nothing, and its claims by state."""
    classes = class_views(snapshot)
    if classes:
        yield _classes_table(classes)
    broken = broken_pools(snapshot) if snapshot.of(ResourceSlice) else ()
    if broken:
        yield _pools_table(broken)
    claims = snapshot.of(ResourceClaim)
    if claims:
        yield _states_table(snapshot, claims)


def _classes_table(classes: Sequence[ClassView]) -> Table:
    return Table(
        title="Device classes",
        columns=(
            Column("CLASS", tone=Tone.NAME),
            Column("DEVICES", number=True),
            Column("HELD", number=True),
            Column("STILL FIT", number=True),
            Column("NODES", number=True),
            Column("MOST ON ONE", number=True),
            Column("", tone=Tone.BAD, text=True),
        ),
        rows=[
            (
                one.name,
                *map(str, (one.devices, one.held, one.fits, one.nodes, one.most)),
                one.problem,
            )
            for one in classes
        ],
        note="STILL FIT: at once, if nothing else of the same cards were taken",
    )


def _pools_table(broken: Sequence[PoolView]) -> Table:
    more = len(broken) - _POOLS_SHOWN
    return Table(
        title="Pools that offer nothing",
        columns=(
            Column("DRIVER", tone=Tone.NAME),
            Column("POOL", tone=Tone.NAME),
            Column("WHY", tone=Tone.BAD),
        ),
        rows=[(one.driver, one.name, one.problem) for one in broken[:_POOLS_SHOWN]],
        note=f"… and {more} more" if more > 0 else "",
    )


def _states_table(snapshot: ClusterSnapshot, claims: Sequence[ResourceClaim]) -> Table:
    states: dict[str, list[ResourceClaim]] = {"in use": [], "allocated, used by nobody": [], "waiting": []}
    for claim in claims:
        used = any(
            one.resource != "pods" or snapshot.pod(PodKey(claim.namespace, one.name)) is not None
            for one in claim.reserved_for
        )
        unused = "waiting" if claim.allocation is None else "allocated, used by nobody"
        states["in use" if used and claim.allocation is not None else unused].append(claim)
    return Table(
        title=_count(len(claims), "resource claim"),
        columns=(
            Column("STATE", tone=Tone.NAME),
            Column("CLAIMS", number=True),
            Column("DEVICES", number=True),
            Column("FOR INSTANCE", tone=Tone.DIM),
        ),
        rows=[
            (
                state,
                str(len(found)),
                str(sum(map(_devices, found))),
                f"{found[0].namespace}/{found[0].name}",
            )
            for state, found in states.items()
            if found
        ],
    )


def _devices(claim: ResourceClaim) -> int:
    return 0 if claim.allocation is None else len(claim.allocation.results)
