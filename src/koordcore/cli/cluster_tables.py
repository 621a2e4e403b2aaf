"""The tables of ``koordcore inspect``: nodes by state, cards, room, who waits, what the dump holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from koordcore.cli.layout import ONLY_WIDE, Column, Table, Tone
from koordcore.cli.plan_tables import counted, describe_requests, short_amount
from koordcore.cli.selection import Selection
from koordcore.cli.tables import amount
from koordcore.explaining.groups import group_states, turns_of
from koordcore.explaining.kept_room import TakenRoom, taken_room
from koordcore.explaining.node_states import CardCounts, NodeCondition, cards_of, condition_of
from koordcore.explaining.workloads import by_workload
from koordcore.manifests import Loaded
from koordcore.model.nodes import NodeState
from koordcore.model.resources import EPHEMERAL_STORAGE, PODS
from koordcore.scheduling.plain_cards import CARD_NAMES
from koordcore.scoring.gpu_share import CARD
from koordcore.snapshot import ClusterSnapshot

_SHAPES_SHOWN: Final = 20
_PODS_SHOWN: Final = 20
_GROUPS_SHOWN: Final = 40
_NAMES: Final = 3
_NO_USE: Final = (NodeCondition.CORDONED, NodeCondition.NOT_READY, NodeCondition.UNREACHABLE)


def states_table(snapshot: ClusterSnapshot, selection: Selection) -> Table:
    """Count nodes by what they offer and in which state they are, as ``sinfo`` does."""
    groups: dict[tuple[str, str, NodeCondition], list[NodeState]] = {}
    for state in filter(selection.node, snapshot.nodes):
        cards = cards_of(snapshot, state)
        key = (_shape(state, cards), cards.model, condition_of(snapshot, state))
        groups.setdefault(key, []).append(state)
    order = list(NodeCondition)
    ranked = sorted(groups, key=lambda key: (key[0], key[1], order.index(key[2])))
    rows = [
        (
            str(key[2]),
            str(len(groups[key])),
            key[0],
            key[1],
            str(sum(_pods(state, selection) for state in groups[key])),
            counted((state.name for state in groups[key]), _NAMES),
        )
        for key in ranked[:_SHAPES_SHOWN]
    ]
    more = len(ranked) - len(rows)
    columns = (
        Column("STATE"),
        Column("NODES", number=True),
        Column("EACH OFFERS", text=True),
        Column("MODEL", rank=1),
        Column("PODS", number=True, rank=3),
        Column("WHICH", text=True, rank=2, tone=Tone.DIM),
    )
    note = f"… and {more} more" if more else ""
    number = sum(map(len, groups.values()))
    return Table(title=f"{number} node{'s' * (number != 1)}", columns=columns, rows=rows, note=note)


def nodes_table(snapshot: ClusterSnapshot, selection: Selection) -> Table:
    """List the nodes, each with its state, cards and room."""
    columns = (
        Column("NODE", tone=Tone.NAME),
        Column("STATE"),
        Column("CARDS FREE", number=True),
        Column("SHARED", number=True, rank=6),
        Column("KEPT", number=True, rank=5),
        Column("BROKEN", number=True, rank=5),
        Column("CPU FREE", number=True, rank=2),
        Column("MEMORY FREE", number=True, rank=3),
        Column("PODS", number=True, rank=1),
        Column("MODEL", rank=4),
    )
    shown = [(state, cards_of(snapshot, state)) for state in filter(selection.node, snapshot.nodes)]
    layout, taken = snapshot.layout, taken_room(snapshot)
    left = layout.allocatable - taken.used - taken.kept
    rows = []
    for state, cards in shown:
        row = layout.row_of[state.name]
        free = [amount(name, int(left[layout.index[name], row])) for name in ("cpu", "memory")]
        rows.append(
            (
                state.name,
                str(condition_of(snapshot, state)),
                f"{cards.free}/{cards.total}" if cards.total else "",
                str(cards.shared or ""),
                str(cards.reserved or ""),
                str(cards.broken or ""),
                *free,
                str(_pods(state, selection)),
                cards.model,
            )
        )
    names = [state.name for state, _ in shown]
    notes = (_keepers(cards for _, cards in shown), _kept_by(snapshot, taken, names))
    return Table(title="Nodes", columns=columns, rows=rows, note="; ".join(filter(None, notes)))


def cards_table(snapshot: ClusterSnapshot, selection: Selection) -> Table:
    """Count cards by model: each once, under whatever names its node offers it."""
    models: dict[str, list[tuple[NodeState, CardCounts]]] = {}
    for state in filter(selection.node, snapshot.nodes):
        cards = cards_of(snapshot, state)
        if cards.total:
            models.setdefault(cards.model or "unknown", []).append((state, cards))
    rows = []
    for model in sorted(models):
        found = [cards for _, cards in models[model]]
        useless = sum(
            cards.free for state, cards in models[model] if condition_of(snapshot, state) in _NO_USE
        )
        whole_nodes = sum(cards.free == cards.total for cards in found)
        rows.append(
            (
                model,
                *(str(sum(getattr(one, what) for one in found)) for what in ("total", "held", "shared")),
                str(sum(one.reserved for one in found) or ""),
                *(str(sum(getattr(one, what) for one in found)) for what in ("free", "broken")),
                str(useless),
                str(max(one.free for one in found)),
                str(whole_nodes),
                f"{sum(sum(one.idle) for one in found) / CARD:.1f}",
            )
        )
    columns = (
        Column("MODEL", tone=Tone.NAME),
        Column("CARDS", number=True),
        Column("HELD", number=True),
        Column("SHARED", number=True),
        Column("KEPT", number=True),
        Column("FREE", number=True, tone=Tone.GOOD),
        Column("BROKEN", number=True, rank=3),
        Column("OF FREE UNUSABLE", number=True, rank=5),
        Column("MOST ON ONE", number=True, rank=2),
        Column("EMPTY NODES", number=True, rank=4),
        Column("IDLE", number=True, rank=ONLY_WIDE),
    )
    note = _keepers(cards for found in models.values() for _, cards in found)
    return Table(title="Cards", columns=columns, rows=rows, note=note)


def _pods(state: NodeState, selection: Selection) -> int:
    """Count the pods of the namespace that was asked for; labels choose nodes where nodes are shown."""
    return sum(selection.named(pod.namespace) for pod in state.pods)


def _keepers(cards: Iterable[CardCounts]) -> str:
    """Name the reservations that keep cards without saying which; empty where none does."""
    kept: Counter[str] = Counter()
    for one in cards:
        kept.update(one.kept)
    if not kept:
        return ""
    most = sorted(kept, key=lambda name: (-kept[name], name))
    shown = ", ".join(f"{name} ({kept[name] / CARD:g})" for name in most[:_NAMES])
    more = f" and {len(most) - _NAMES} more" if len(most) > _NAMES else ""
    return f"kept without saying which cards, by reservation{'s' * (len(most) > 1)} {shown}{more}"


def _kept_by(snapshot: ClusterSnapshot, taken: TakenRoom, nodes: Iterable[str]) -> str:
    """Name the reservations whose room on some nodes is not free; empty where there is none."""
    rows = map(snapshot.layout.row_of.__getitem__, nodes)
    names = sorted(name for row in rows for name in taken.keepers.get(row, ()))
    if not names:
        return ""
    shown = counted(names, _NAMES)
    one = len(names) == 1
    return f"room that reservation{'' if one else 's'} {shown} still keep{'s' if one else ''} is not free"


def _shape(state: NodeState, cards: CardCounts) -> str:
    offered = state.node.allocatable
    hidden = {PODS, EPHEMERAL_STORAGE, *(CARD_NAMES if cards.total else ())}
    first = ("cpu", "memory")
    names = sorted(
        (name for name in offered if name not in hidden and offered[name]),
        key=lambda one: (one not in first, one),
    )
    parts = [short_amount(name, offered[name]) for name in names]
    if cards.total:
        parts.append(f"{cards.total} card{'s' * (cards.total != 1)}")
    return ", ".join(parts)


def usage_table(snapshot: ClusterSnapshot, *, wide: bool) -> Table:
    """Add up every resource over the cluster; cards have a table of their own."""
    layout, taken = snapshot.layout, taken_room(snapshot)
    left = layout.allocatable - taken.used - taken.kept
    rows = []
    for number, name in enumerate(layout.resources):
        whole = int(layout.allocatable[number].sum())
        used, kept = int(taken.used[number].sum()), int(taken.kept[number].sum())
        if (not whole and not used and not kept) or (name in CARD_NAMES and not wide):
            continue
        share = f"{100 * used / whole:.1f} %" if whole else "–"
        free, largest = (amount(name, value) for value in (whole - used - kept, int(left[number].max())))
        amounts = (amount(name, whole), amount(name, used), amount(name, kept) if kept else "", free)
        rows.append((name, *amounts, share, largest))
    heads = ("ALLOCATABLE", "REQUESTED", "KEPT", "FREE", "USED", "MOST ON ONE")
    ranks = (3, 4, 0, 0, 1, 2)
    return Table(
        title="Room",
        columns=(
            Column("RESOURCE", tone=Tone.NAME),
            *(Column(head, number=True, rank=rank) for head, rank in zip(heads, ranks, strict=True)),
        ),
        rows=rows,
        note=_kept_by(snapshot, taken, layout.names),
    )


def pending_table(snapshot: ClusterSnapshot, selection: Selection) -> Table:
    """List who waits, in the order in which they take their turns, a row for each workload."""
    queue = turns_of(snapshot)
    names = by_workload([pod for _, pod in queue])
    groups: dict[tuple[str, str, int], list[int]] = {}
    for turn, pod in queue:
        if selection.pod(pod):
            groups.setdefault((names[pod.key], describe_requests(pod), pod.priority), []).append(turn)
    rows = [
        (_turns(turns), name, str(len(turns)), str(priority), asks)
        for (name, asks, priority), turns in list(groups.items())[:_PODS_SHOWN]
    ]
    more = len(groups) - len(rows)
    number = sum(map(len, groups.values()))
    return Table(
        title=f"{number} pending pods, in their order" if number != 1 else "1 pending pod",
        columns=(
            Column("TURN", number=True),
            Column("WORKLOAD", tone=Tone.NAME),
            Column("PODS", number=True),
            Column("PRIORITY", number=True, rank=1),
            Column("EACH ASKS FOR", text=True),
        ),
        rows=rows,
        note=f"… and {more} more workloads" if more else "",
    )


def _turns(turns: list[int]) -> str:
    """Write turns in the queue, of which members of a gang have one; nothing for other schedulers' pods.

    >>> _turns([3, 4, 5]), _turns([7, 7]), _turns([0])
    ('3-5', '7', '')
    """
    first, last = turns[0], turns[-1]
    return f"{first}-{last}" if first < last else str(first or "")


def groups_table(snapshot: ClusterSnapshot) -> Table:
    """List the gangs and groups that have members waiting."""
    states = group_states(snapshot)
    rows = [
        (
            "  " * one.level + one.name,
            str(one.least),
            str(one.running),
            str(one.waiting),
            one.where,
            one.stops,
        )
        for one in states[:_GROUPS_SHOWN]
    ]
    more = len(states) - len(rows)
    return Table(
        title="Gangs and groups with waiting members",
        columns=(
            Column("GROUP", tone=Tone.NAME),
            Column("AT LEAST", number=True),
            Column("RUN", number=True),
            Column("WAIT", number=True),
            Column("WITHIN", text=True, rank=1),
            Column("STOPPED BY", text=True, tone=Tone.DIM, rank=1),
        ),
        rows=rows,
        note=f"… and {more} more" if more else "",
    )


def kinds_table(loaded: Loaded) -> Table:
    """Count objects by kind and say which kinds nothing reads."""
    rows = [
        (kind, str(count), "kept, read by no plugin" if kind in loaded.unread else "")
        for kind, count in sorted(loaded.counts.items())
    ]
    columns = (
        Column("KIND", tone=Tone.NAME),
        Column("NUMBER", number=True),
        Column("", tone=Tone.DIM, rank=1),
    )
    return Table(title="Objects", columns=columns, rows=rows)


def cluster_record(loaded: Loaded, selection: Selection) -> dict[str, Any]:
    """Give what ``inspect`` shows for programs; amounts are those of the snapshot: milli-cores and bytes."""
    snapshot = loaded.snapshot
    waiting = [(turn, pod) for turn, pod in turns_of(snapshot) if selection.pod(pod)]
    return {
        "format": "koordcore/cluster/v1",
        "nodes": [node_record(snapshot, state) for state in filter(selection.node, snapshot.nodes)],
        "pending": [
            {"turn": turn, "pod": str(pod.key), "priority": pod.priority, "requests": dict(pod.requests)}
            for turn, pod in waiting
        ],
        "objects": dict(sorted(loaded.counts.items())),
        "unread": dict(sorted(loaded.unread.items())),
        "states": dict(
            sorted(Counter(str(condition_of(snapshot, state)) for state in snapshot.nodes).items())
        ),
    }


def node_record(snapshot: ClusterSnapshot, state: NodeState) -> dict[str, Any]:
    """Give one node as ``inspect`` shows it to programs."""
    cards = cards_of(snapshot, state)
    layout, amounts = snapshot.layout, taken_room(snapshot).kept[:, snapshot.layout.row_of[state.name]]
    kept = {name: value for name, value in zip(layout.resources, amounts.tolist(), strict=True) if value}
    record: dict[str, Any] = {
        "name": state.name,
        "state": str(condition_of(snapshot, state)),
        "allocatable": dict(state.node.allocatable),
        **({"kept": kept} if kept else {}),
        "pods": [str(pod.key) for pod in state.pods],
    }
    if cards.total:
        record["cards"] = {
            "model": cards.model,
            "total": cards.total,
            "free": cards.free,
            "held": cards.held,
            "shared": cards.shared,
            "broken": cards.broken,
            **({"keptMilli": dict(sorted(cards.kept.items()))} if cards.kept else {}),
            "idleMilli": list(cards.idle),
        }
    return record
