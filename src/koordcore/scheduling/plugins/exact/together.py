"""What several pods get of one node together, where one after another some of them find too little.

Devices that no NUMA policy ties to CPUs are enumerated: who does not fit so does not fit. Where a policy
holds pods to NUMA nodes, choices of NUMA nodes are searched, and the devices of each pod are chosen inside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from koordcore.allocators.joint.together import countable, devices_together, never_together
from koordcore.allocators.node import NodeAllocation, NodeOffer, fit_node
from koordcore.allocators.node_request import NodeArgs, NodeRequest
from koordcore.allocators.numa import NUMAAllocation
from koordcore.allocators.numa_align import allowed_masks
from koordcore.allocators.numa_request import NUMARefusal, demand_on
from koordcore.allocators.numa_together import fit_together
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.device_requests import DeviceRequest
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.plugins.exact.states import ExactStates
from koordcore.topology.numa import NUMATopologyPolicy

_VISITS: Final = 400
"""Partial placements of members under a NUMA policy that are looked at on one node."""


def found_together(
    states: ExactStates, args: NodeArgs, asked: Sequence[tuple[Pod, NodeRequest]], row: int, *, tied: bool
) -> Mapping[PodKey, NodeAllocation] | None:
    """Choose what each of several pods gets.

    Parameters
    ----------
    asked
        The pods with what they ask for.
    tied
        A policy holds some of them to NUMA nodes.

    Returns
    -------
    mapping or None
        In the order in which they are to be bound; empty where it is proven that there is no choice, ``None``
        where that is not known.
    """
    if tied and all(request.devices is None for _, request in asked):
        return _cpus_together(states, args, asked, row)
    if tied:
        return _Search(states, args, row).run(asked)
    state = states.devices[row]
    requests = {pod.key: request.devices for pod, request in asked if request.devices is not None}
    if state is None or not requests or not all(map(countable, requests.values())):
        return None
    found = devices_together(state, {str(key): one for key, one in requests.items()}, args.devices)
    if not found:
        return None if found is None else {}
    mark = states.workspace.checkpoint()
    given: dict[PodKey, NodeAllocation] = {}
    by_key = {str(pod.key): (pod, request) for pod, request in asked}
    for key in (*found, *(key for key in by_key if key not in found)):
        pod, request = by_key[key]
        cpus = fit_node(states.offer(row, with_devices=False), NodeRequest(cpu=request.cpu), args)
        if isinstance(cpus, NUMARefusal):
            states.workspace.rollback(mark)
            return None
        given[pod.key] = attrs.evolve(cpus, devices=found.get(key))
        states.take(pod, row, given[pod.key])
    states.workspace.rollback(mark)
    return given


def _cpus_together(
    states: ExactStates, args: NodeArgs, asked: Sequence[tuple[Pod, NodeRequest]], row: int
) -> Mapping[PodKey, NodeAllocation] | None:
    """Choose CPUs and amounts alone, which is an assignment of pods to NUMA nodes."""
    wanting = [(pod, request.cpu) for pod, request in asked if request.cpu is not None]
    found = fit_together(states.numa[row], [cpu for _, cpu in wanting], args=args.numa)
    if isinstance(found, NUMARefusal):
        return None
    given = {pod.key: NodeAllocation(numa=numa) for (pod, _), numa in zip(wanting, found, strict=True)}
    rest = {pod.key: NodeAllocation(numa=NUMAAllocation()) for pod, request in asked if request.cpu is None}
    return given | rest


class _Search:
    """Tries NUMA nodes for one pod after another, the larger pods first."""

    def __init__(self, states: ExactStates, args: NodeArgs, row: int) -> None:
        self._states, self._args, self._row = states, args, row
        self._left = _VISITS
        self._failed: set[tuple[int, object]] = set()

    def run(self, asked: Sequence[tuple[Pod, NodeRequest]]) -> Mapping[PodKey, NodeAllocation] | None:
        """Find a choice; that none is found proves nothing, since devices were not tried in every way."""
        ordered = sorted(asked, key=lambda one: (-_size(one[1]), one[0].key))
        mark = self._states.workspace.checkpoint()
        found = self._place(0, ordered)
        self._states.workspace.rollback(mark)
        return None if found is None else dict(reversed(found))

    def _place(
        self, index: int, ordered: Sequence[tuple[Pod, NodeRequest]]
    ) -> list[tuple[PodKey, NodeAllocation]] | None:
        """Place the pods from one on; the answer has the last one first."""
        if index == len(ordered):
            return []
        pod, request = ordered[index]
        offer = self._states.offer(self._row, with_devices=True)
        known = (index, offer.state)
        self._left -= 1
        if self._left < 0 or known in self._failed:
            return None
        for given in self._choices(offer, request):
            mark = self._states.workspace.checkpoint()
            self._states.take(pod, self._row, given)
            rest = self._place(index + 1, ordered)
            if rest is not None:
                return [*rest, (pod.key, given)]
            self._states.workspace.rollback(mark)
        self._failed.add(known)
        return None

    def _choices(self, offer: NodeOffer, request: NodeRequest) -> Iterator[NodeAllocation]:
        demand = None if request.cpu is None else demand_on(request.cpu, offer.numa.node)
        if isinstance(demand, NUMARefusal):
            return
        masks: list[int] = [0]
        if demand is not None and demand.policy is not NUMATopologyPolicy.NONE:
            masks = list(allowed_masks(offer.numa, demand, self._args.numa))
        for mask in masks:
            one = offer if not mask else attrs.evolve(offer, only=mask)
            found = fit_node(one, request, self._args)
            if not isinstance(found, NUMARefusal):
                yield found


def _size(request: NodeRequest) -> int:
    devices = request.devices
    cards = 0 if devices is None or devices.gpu is None else devices.gpu.count
    return cards * 1_000_000 + (0 if request.cpu is None else sum(request.cpu.requests.values()) // 2**20)


def never_taken(
    states: ExactStates,
    policy: DevicePolicy,
    requests: Sequence[DeviceRequest | None],
    demand: Sequence[int],
    rows: Sequence[int],
) -> Mapping[int, tuple[tuple[int, ...], ...]]:
    """Give by row which counts of some pods its devices never serve together; rows without one are left out.

    Parameters
    ----------
    states, policy
        What nodes have, and the arguments of DeviceShare.
    requests, demand
        What a pod of each kind asks for, and how many there are of it.
    rows
        The nodes.
    """
    asked = [one for one in requests if one is not None]
    if len(asked) < len(requests) or not all(map(countable, asked)):
        return {}
    ids = states.device_table().ids
    known: dict[int, tuple[tuple[int, ...], ...] | None] = {}
    found = {}
    for row in rows:
        state, number = states.devices[row], int(ids[row])
        if state is None:
            continue
        if number not in known:  # nodes with equal devices share the answer
            known[number] = never_together(state, asked, demand, policy)
        least = known[number]
        if least is not None:
            found[row] = least
    return found
