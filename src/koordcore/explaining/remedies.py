"""What would help pods that wait, each remedy tried out: from what costs nothing to what costs most."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from koordcore.explaining.attempts import Attempts
from koordcore.explaining.claim_remedies import fewer_devices, slices_like, slices_of
from koordcore.explaining.node_remedies import selecting, uncordoning
from koordcore.explaining.node_states import cards_of
from koordcore.explaining.relaxing import relaxing
from koordcore.explaining.remedy import (
    Remedy,
    RemedyKind,
    exact_amount,
    rounded_down,
    shown_amount,
    some,
    told_apart,
)
from koordcore.explaining.waiting import waiting
from koordcore.framework.extended_resources import served_by_classes
from koordcore.model.affinity import Taint, TaintEffect, Toleration, TolerationOperator
from koordcore.model.decisions import Victim
from koordcore.model.devices import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, DeviceObject
from koordcore.model.nodes import Node, NodeState
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import Pod
from koordcore.model.preemption import PreemptionRules
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import PODS
from koordcore.model.volumes import CSINode
from koordcore.snapshot import ClusterSnapshot

_OfNode: TypeAlias = DeviceObject | NodeResourceTopology | CSINode
_HOSTNAME: Final = "kubernetes.io/hostname"
_SHAPES: Final = 8
"""Kinds of nodes that are tried as further nodes."""
_VICTIMS: Final = 4
"""Victims that are named."""
_PARTS: Final = 16
"""Parts that a pod is split into at most."""
_CARDS: Final = (GPU_CORE, GPU_MEMORY_RATIO, GPU_MEMORY)
"""Amounts of cards that shrink together."""
_PARTITIONS: Final = "nvidia.com/mig-"
_STATES: Final = "node.kubernetes.io/"
"""Taints that tell a node's state; nobody tolerates them to get a place."""


def never(asked: Attempts) -> tuple[str, ...]:
    """Name what no node has, whoever leaves: asking for it can never succeed here."""
    found = []
    nodes = asked.snapshot.nodes
    if not nodes:
        return ("the cluster has no node",)
    served = served_by_classes(asked.snapshot)  # a claim speaks for these
    if not any(state.node.allocatable.get(PODS, 0) for state in nodes):
        found.append("no node takes any pod: `pods` is not in its allocatable")
    for name in sorted({name for pod in asked.members for name in pod.requests} - served.keys()):
        found += beyond_any(nodes, name, max(pod.requests.get(name, 0) for pod in asked.members))
    return tuple(found)


def beyond_any(nodes: Sequence[NodeState], name: str, wanted: int) -> tuple[str, ...]:
    """Say that no node has so much of a resource even when nobody runs; nothing where one has it.

    Parameters
    ----------
    nodes
        The nodes of the cluster, at least one.
    name, wanted
        The resource, and how much of it one pod asks for.
    """
    most = max(state.node.allocatable.get(name, 0) for state in nodes)
    if name == PODS or most >= wanted:
        return ()
    if not most:
        return (f"no node offers {name}",)
    having = [state.name for state in nodes if state.node.allocatable.get(name, 0) == most]
    more = f" and {len(having) - 1} more" * (len(having) > 1)
    asks, has = told_apart(name, wanted, most)
    return (f"no node has ever {asks}: the most is {has.partition(' ')[0]}, on {having[0]}{more}",)


# -- what the pod says -----------------------------------------------------------------------------------


def _tolerate(asked: Attempts) -> Iterator[Remedy]:
    taints = sorted(
        {
            taint
            for state in asked.snapshot.nodes
            for taint in state.node.taints
            if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE and not taint.key.startswith(_STATES)
        },
        key=lambda taint: (taint.key, taint.value, taint.effect),
    )
    missing = [
        taint
        for taint in taints
        if not all(any(one.tolerates(taint) for one in pod.tolerations) for pod in asked.members)
    ]
    if not missing:
        return
    found = asked.fits(members=[_tolerating(pod, missing) for pod in asked.members])
    if not found:
        return
    nodes = set(found.values())
    needed = [
        taint for taint in missing if any(taint in asked.snapshot.node(name).node.taints for name in nodes)
    ]
    if not needed or not asked.fits(members=[_tolerating(pod, needed) for pod in asked.members]):
        return
    lines = ["tolerations:"]
    for taint in needed:
        value = f', operator: Equal, value: "{taint.value}"' if taint.value else ", operator: Exists"
        lines.append(f"- {{key: {taint.key}{value}, effect: {taint.effect}}}")
    names = ", ".join(taint.key for taint in needed)
    text = f"the taint {names}; then it fits {some(sorted(nodes))}"
    yield Remedy(kind=RemedyKind.TOLERATE, text=text, paste="\n".join(lines))


def _tolerating(pod: Pod, taints: Sequence[Taint]) -> Pod:
    more = tuple(
        Toleration(
            key=one.key,
            operator=TolerationOperator.EQUAL if one.value else TolerationOperator.EXISTS,
            value=one.value,
            effect=one.effect,
        )
        for one in taints
    )
    return attrs.evolve(pod, tolerations=(*pod.tolerations, *more))


# -- less ------------------------------------------------------------------------------------------------


def _shrink(asked: Attempts) -> Iterator[Remedy]:
    """Find the most of one resource that would fit, all else as it is asked for."""
    for names in _shrinking(asked):
        wanted = _greatest(asked, names)
        most, top = _most(asked, names), wanted[names[0]] if len(names) == 1 else 100
        amounts = {name: rounded_down(name, amount * most // top) for name, amount in wanted.items()}
        # A few percent of little are nothing, which is no advice.
        if not all(amounts.values()):
            continue
        text = " and ".join(
            f"{exact_amount(name, amount)} instead of {exact_amount(name, wanted[name]).partition(' ')[0]}"
            for name, amount in amounts.items()
        )
        if any(pod.requests.get(name, 0) != wanted[name] for pod in asked.members for name in names):
            text += ", the other members in proportion"
        if len(asked.members) == 1:
            text += _split(asked, names[0], -(-wanted[names[0]] // amounts[names[0]]))
        yield Remedy(kind=RemedyKind.SHRINK, text=text)
        return


def _greatest(asked: Attempts, names: Sequence[str]) -> dict[str, int]:
    """Give the most of each resource that one of the members asks for."""
    return {name: max(pod.requests.get(name, 0) for pod in asked.members) for name in names}


def _shrinking(asked: Attempts) -> list[tuple[str, ...]]:
    """Give what could be less, cards first; core and memory of cards go together."""
    named = sorted({name for pod in asked.members for name, amount in pod.requests.items() if amount})
    parts = tuple(name for name in _CARDS if name in named)
    rest: list[tuple[str, ...]] = [(name,) for name in named if name not in parts and name != PODS]
    rest.sort(key=lambda one: ("/" not in one[0], one))
    return [parts, *rest] if parts else rest


def _most(asked: Attempts, names: tuple[str, ...]) -> int:
    """Search the greatest amount that fits; in percent of the request where several names go together."""
    wanted = _greatest(asked, names)[names[0]]
    top = 100 if len(names) > 1 else wanted
    # Cores are tried whole first: pods that are bound to them ask for no parts.
    steps = (1000, 100, 10) if names[0] == "cpu" else (max(1, top // 1024) if len(names) == 1 else 1,)
    step = next(
        (one for one in steps if one < top and asked.fits(members=_scaled(asked, names, one, top))), 0
    )
    if not step:
        return 0
    fitting, failing = 1, -(-top // step)
    while failing - fitting > 1:
        middle = (fitting + failing) // 2
        if asked.fits(members=_scaled(asked, names, middle * step, top)):
            fitting = middle
        else:
            failing = middle
    return fitting * step


def _scaled(asked: Attempts, names: tuple[str, ...], amount: int, top: int) -> list[Pod]:
    def less(requests: Mapping[str, int]) -> dict[str, int]:
        # As it is told: what is found to fit has to fit as it is written.
        return {
            name: (rounded_down(name, value * amount // top) if name in names else value)
            for name, value in requests.items()
        }

    # Containers say it, too: a claim for what only device classes serve is made of what they ask for.
    return [
        attrs.evolve(
            pod,
            requests=less(pod.requests),
            containers=tuple(attrs.evolve(one, requests=less(one.requests)) for one in pod.containers),
        )
        for pod in asked.members
    ]


def _split(asked: Attempts, name: str, least: int) -> str:
    """Say into how many equal pods the pod could be split; empty where that does not help."""
    wanted = asked.members[0].requests.get(name, 0)
    for parts in range(max(least, 2), _PARTS + 1):
        if wanted % parts == 0 and _split_fits(asked, parts):
            return f"; or {parts} pods of {exact_amount(name, wanted // parts)} each"
    return ""


def _split_fits(asked: Attempts, parts: int) -> bool:
    (pod,) = asked.members
    pieces = [
        attrs.evolve(
            pod,
            name=f"{pod.name}-part-{number}",
            uid="",
            requests={name: -(-value // parts) for name, value in pod.requests.items()},
        )
        for number in range(parts)
    ]
    return len(attrs.evolve(asked, least=parts).fits(members=pieces)) == parts


def _fewer(asked: Attempts) -> Iterator[Remedy]:
    number = asked.most_members()
    if number:
        less = asked.least - number
        text = f"{number} of {len(asked.members)} members fit; {less} fewer would start"
        yield Remedy(kind=RemedyKind.FEWER, text=text)


# -- others, and more ------------------------------------------------------------------------------------


def _evict(asked: Attempts) -> Iterator[Remedy]:
    result = asked.plan(rules=PreemptionRules())
    if result.preemptions and (asked.refused or asked.served):
        result = asked.plan(rules=PreemptionRules(), before=True)
    own = {str(one.key) for one in asked.members}
    for number, plan in enumerate(result.preemptions):
        if own.isdisjoint(plan.nominations):
            continue
        pods = tuple(victim.pod for victim in plan.victims)
        before = [one for one in result.preemptions[:number] if one.victims]
        if pods and asked.fits(snapshot=asked.snapshot.forget(*pods)):
            before = []  # what leaves for others is not needed
        others = [victim for one in before for victim in one.victims]
        if not pods and not others:
            continue  # who leaves does so already
        # A gang is gathered as deeply as can be won, and pays for it.
        where = f" in one {plan.layer}" if plan.layer and len(plan.nominations) > 1 else ""
        known = f"the cheapest{where}, proven" if plan.certificate.proven else plan.certificate.status.text
        text = f"{_named(plan.victims)}: {known} (schedule --preempt)" if pods else ""
        if others:
            whom = some([one.job or next(iter(one.nominations)) for one in before])
            first = f"{_named(others)} for {whom}, before it in the queue"
            text = f"{text}; first {first}" if pods else f"{first}; then it fits, too (schedule --preempt)"
        else:
            text += asked.first(asked.snapshot.forget(*pods))
        everybody = dict.fromkeys((*(victim.pod for victim in others), *pods))
        yield Remedy(kind=RemedyKind.EVICT, text=text, pods=tuple(everybody))


def _named(victims: Sequence[Victim]) -> str:
    names = ", ".join(f"{victim.pod} (priority {victim.priority})" for victim in victims[:_VICTIMS])
    return names + (f" and {len(victims) - _VICTIMS} more" if len(victims) > _VICTIMS else "")


def _grow(asked: Attempts) -> Iterator[Remedy]:
    """Try empty nodes like those that are there, as few as do."""
    best: tuple[int, Node, NodeState] | None = None
    shapes: dict[object, NodeState] = {}
    for state in asked.snapshot.nodes:
        domain = {key: value for key, value in state.node.labels.items() if key != _HOSTNAME}
        driven = tuple((one.driver, len(one.devices)) for one in slices_of(asked.snapshot, state.name))
        topology = asked.snapshot.find(NodeResourceTopology, state.name)
        numa = None if topology is None else (topology.policy, topology.topology)
        key = (state.node.allocatable, tuple(sorted(domain.items())), state.node.taints, driven, numa)
        shapes.setdefault(key, state)
    for state in list(shapes.values())[:_SHAPES]:
        limit = len(asked.members) + len(asked.refused) if best is None else best[0] - 1
        number = _fewest(asked, state, limit)
        if number:
            best = (number, state.node, state)
        if number == 1:
            break
    if best is not None:
        number, node, state = best
        cards = cards_of(asked.snapshot, state).total
        shape = [shown_amount(name, node.allocatable.get(name, 0)) for name in ("cpu", "memory")]
        parts = _parts(asked, node)
        shape += parts or [f"{cards} card{'s' * (cards != 1)}"] * bool(cards)
        devices = sum(len(one.devices) for one in slices_of(asked.snapshot, node.name))
        shape += [f"{devices} device{'s' * (devices != 1)} of drivers"] * bool(devices)
        text = f"{number} more like {node.name} ({', '.join(shape)})"
        text += asked.first(_grown(asked.snapshot, state, number))
        yield Remedy(kind=RemedyKind.GROW, text=text)


def _parts(asked: Attempts, node: Node) -> list[str]:
    """Name the partitions of cards that are asked for, as many as a node has."""
    wanted = {name for pod in asked.members for name, amount in pod.requests.items() if amount}
    named = sorted(name for name in wanted if name.startswith(_PARTITIONS))
    return [shown_amount(name, node.allocatable.get(name, 0)) for name in named]


def _fewest(asked: Attempts, state: NodeState, limit: int) -> int:
    if limit < 1 or not _enough(asked, state, limit):
        return 0
    failing, fitting = 0, limit
    while fitting - failing > 1:
        middle = (fitting + failing) // 2
        if _enough(asked, state, middle):
            fitting = middle
        else:
            failing = middle
    return fitting


def _enough(asked: Attempts, state: NodeState, number: int) -> bool:
    """Tell whether so many more do; where others choose before, whether their names come first or last."""
    prefixes = ("0-", "zz-") if asked.refused or asked.served else ("",)
    return all(asked.fits(snapshot=_grown(asked.snapshot, state, number, one)) for one in prefixes)


def _grown(snapshot: ClusterSnapshot, state: NodeState, number: int, prefix: str = "") -> ClusterSnapshot:
    nodes: list[Node] = []
    records: list[ClusterRecord] = []
    own = _records_of(snapshot, state.name)
    for each in range(number):
        name = f"{prefix}{state.name}-more-{each}"
        labels = {**state.node.labels, **({_HOSTNAME: name} if _HOSTNAME in state.node.labels else {})}
        taints = tuple(one for one in state.node.taints if not one.key.startswith(_STATES))
        nodes.append(attrs.evolve(state.node, name=name, labels=labels, taints=taints, unschedulable=False))
        records += (_renamed(one, name) for one in own)
        records += slices_like(snapshot, state.name, name)
    return snapshot.with_nodes(*nodes).with_records(*records)


def _records_of(snapshot: ClusterSnapshot, node: str) -> list[_OfNode]:
    """Give what is known of a node besides itself: devices, CPUs and NUMA nodes, limits of its drivers."""
    kinds: tuple[type[_OfNode], ...] = (DeviceObject, NodeResourceTopology, CSINode)
    return [found for kind in kinds if (found := snapshot.find(kind, node)) is not None]


def _renamed(one: _OfNode, name: str) -> _OfNode:
    return attrs.evolve(one, name=name)


QUESTIONS: Final[tuple[Callable[[Attempts], Iterator[Remedy]], ...]] = (
    waiting,
    _tolerate,
    selecting,
    relaxing,
    uncordoning,
    fewer_devices,
    _shrink,
    _fewer,
    _evict,
    _grow,
)
"""Each tries out one thing that would help, from what costs least."""
