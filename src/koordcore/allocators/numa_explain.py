"""Why a pod does not fit on the NUMA nodes of a node, and whose leaving would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final

import attrs

from koordcore._record import record
from koordcore.allocators.device import NodeDevices
from koordcore.allocators.node import (
    DEFAULT_NODE_ARGS,
    DeviceProvider,
    NodeAllocation,
    NodeOffer,
    fit_node,
)
from koordcore.allocators.node_request import NodeArgs, NodeRequest
from koordcore.allocators.numa_fit import offer_of
from koordcore.allocators.numa_request import CPUDemand, NUMARefusal, demand_on
from koordcore.allocators.numa_state import NUMAState
from koordcore.model.decisions import Shortfall
from koordcore.model.devices import DeviceShortfall
from koordcore.model.resources import format_resources
from koordcore.topology.numa import numa_ids

DEFAULT_TRIALS: Final = 500


@record(kw_only=True)
class NUMANodeVerdict:
    """What one NUMA node can give to a pod by itself.

    Parameters
    ----------
    node
        NUMA node.
    served
        What it has enough of: resources and types of devices, by name.
    shortfalls
        What it lacks, with the numbers.
    """

    node: int
    served: tuple[str, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()

    @property
    def fits(self) -> bool:
        """Everything that the pod asks for is there."""
        return not self.shortfalls


@record(kw_only=True)
class NUMAExplanation:
    """Why a node takes a pod or refuses it.

    Parameters
    ----------
    answer
        What the pod would get, or the refusal.
    nodes
        Each NUMA node by itself, ascending.
    leaving
        Holders (``namespace/name``) without whom the pod would fit: the fewest that were found; empty where
        it fits, or where none were found.
    holding
        What each of them holds there, in words.
    then_on
        NUMA nodes that it would use then.
    """

    answer: NodeAllocation | NUMARefusal
    nodes: tuple[NUMANodeVerdict, ...] = ()
    leaving: tuple[str, ...] = ()
    holding: tuple[str, ...] = ()
    then_on: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """One line for people."""
        if isinstance(self.answer, NodeAllocation):
            mask = self.answer.numa.mask
            return "fits" if mask is None else f"fits on {_nodes(numa_ids(mask))}"
        return "; ".join([*self.answer.reasons, *self.lines])

    @property
    def lines(self) -> tuple[str, ...]:
        """Each NUMA node by itself, then whose leaving would help; without the refusal's own words."""
        lines = []
        for one in self.nodes:
            parts = [f"has enough {_and(one.served)}"] if one.served else []
            lacks = [text for short in one.shortfalls if (text := _lack(short))]
            parts += [f"lacks {_and(lacks)}"] if lacks else []
            parts += [f"serves no devices: {short.reason}" for short in one.shortfalls if not _lack(short)]
            if parts:
                lines.append(f"NUMA node {one.node} {', '.join(parts)}")
        if self.leaving:
            where = f" on {_nodes(self.then_on)}" if self.then_on else ""
            names = (f"{name} ({held})" for name, held in zip(self.leaving, self.holding, strict=True))
            lines.append(f"without {_and(names)} it would fit{where}")
        return tuple(lines)


def _nodes(ids: Iterable[int]) -> str:
    listed = [str(numa) for numa in ids]
    return f"NUMA node{'s' if len(listed) > 1 else ''} {_and(listed)}"


def _and(words: Iterable[str]) -> str:
    listed = list(words)
    return " and ".join([", ".join(listed[:-1]), listed[-1]]) if len(listed) > 1 else "".join(listed)


def _lack(short: Shortfall) -> str:
    """Say what there is too little of; empty where that is not the reason."""
    if not short.requested:
        _, little, what = short.reason.partition("Insufficient ")
        return short.resource or (what if little else "")
    there, asked = (
        format_resources({short.resource: amount})[short.resource]
        for amount in (short.available, short.requested)
    )
    return f"{short.resource} ({there} of {asked})"


def explain_node(
    offer: NodeOffer,
    request: NodeRequest,
    args: NodeArgs = DEFAULT_NODE_ARGS,
    *,
    trials: int = DEFAULT_TRIALS,
) -> NUMAExplanation:
    """Say what each NUMA node has for a pod, and whose leaving would let the pod in.

    Parameters
    ----------
    offer, request, args
        As for :func:`~koordcore.allocators.node.fit_node`.
    trials
        How many sets of holders may be tried, single ones first.
    """
    state, devices = offer.numa, offer.devices
    answer = fit_node(offer, request, args)
    demand = None if request.cpu is None else demand_on(request.cpu, state.node)
    if demand is None or isinstance(demand, NUMARefusal):
        return NUMAExplanation(answer=answer)
    provider = None
    if request.devices is not None:
        provider = DeviceProvider(offer, request.devices, args.devices)
    nodes = tuple(_verdict(offer, demand, provider, numa) for numa in state.node.zone_ids)
    if isinstance(answer, NodeAllocation) or not answer.resolvable:
        return NUMAExplanation(answer=answer, nodes=nodes)
    for count, names in enumerate(_sets_of_holders(state, devices)):
        if count >= trials:
            break
        left, cards = _without(state, devices, names)
        then = fit_node(attrs.evolve(offer, numa=left, devices=cards), request, args)
        if isinstance(then, NodeAllocation):
            return NUMAExplanation(
                answer=answer,
                nodes=nodes,
                leaving=names,
                holding=tuple(_held_by(state, devices, name) for name in names),
                then_on=numa_ids(then.numa.mask or 0),
            )
    return NUMAExplanation(answer=answer, nodes=nodes)


def _verdict(
    node: NodeOffer, demand: CPUDemand, provider: DeviceProvider | None, numa: int
) -> NUMANodeVerdict:
    served, short = [], []
    for name, most in offer_of(node.numa, demand).most.items():
        need, there = demand.request.requests[name], most.get(numa, 0)
        if there >= need:
            served.append(name)
        else:
            short.append(Shortfall(f"Insufficient NUMA {name}", name, need, there))
    if provider is not None and provider.aligned:
        chosen = provider.allocate(1 << numa)
        if isinstance(chosen, DeviceShortfall):
            short += chosen.shortfalls
        else:
            served += provider.names
    for side in node.sides:
        if side.aligned and side.feasible(1 << numa):
            served += side.names
        elif side.aligned:
            short += [Shortfall("", name) for name in side.names]
    return NUMANodeVerdict(node=numa, served=tuple(sorted(served)), shortfalls=tuple(short))


def _name_of(namespace: str, name: str, uid: str) -> str:
    return f"{namespace}/{name}" if name else uid


def _held_by(state: NUMAState, devices: NodeDevices | None, name: str) -> str:
    """Say what a holder has of a node: CPUs or amounts by NUMA node, and devices by type."""
    parts = []
    for held in state.allocations:
        if _name_of(held.namespace, held.name, held.uid) == name:
            if held.cpuset:
                parts.append(f"{held.cpuset.bit_count()} CPUs")
            for entry in held.numa_resources:
                amounts = format_resources(entry.resources)
                texts = [f"{amount} {resource}" for resource, amount in amounts.items()]
                parts += [f"{_and(texts)} on NUMA node {entry.node}"] if texts and not held.cpuset else []
    allocation = None if devices is None else devices.holdings.get(name)
    for kind, cards in allocation.devices.items() if allocation is not None else ():
        parts.append(f"{kind} {', '.join(str(card.minor) for card in cards)}")
    return "; ".join(parts)


def _sets_of_holders(state: NUMAState, devices: NodeDevices | None) -> Iterator[tuple[str, ...]]:
    """Sets of one, two and three holders; those that hold the fewest CPUs first, then by name."""
    weight: dict[str, int] = {}
    for held in state.allocations:
        name = _name_of(held.namespace, held.name, held.uid)
        weight[name] = weight.get(name, 0) + held.cpuset.bit_count()
    for name in devices.holdings if devices is not None else ():
        weight.setdefault(name, 0)
    for size in (1, 2, 3):
        yield from sorted(
            combinations(sorted(weight), size),
            key=lambda names: (sum(weight[name] for name in names), names),
        )


def _without(
    state: NUMAState, devices: NodeDevices | None, names: tuple[str, ...]
) -> tuple[NUMAState, NodeDevices | None]:
    for held in state.allocations:
        if _name_of(held.namespace, held.name, held.uid) in names:
            state = state.removing(held.uid)
    if devices is not None:
        for name in names:
            if name in devices.holdings:
                devices = devices.forget(name)
    return state, devices
