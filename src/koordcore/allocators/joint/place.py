"""A batch of device pods over several nodes: which packing each node takes.

What a node can take of the batch is known exactly (:mod:`~koordcore.allocators.joint.packings`), so what is
left to decide is one packing per node. Nodes in equal states are one node that stands several times, pods
that ask for the same are numbers, and so the integer program is small and without symmetries. A greedy answer
is found first and handed to the solver: the answer is never worse than greedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import attrs
from immutabledict import immutabledict

from koordcore._certify import certify
from koordcore._cpsat import Program, Stage, solve
from koordcore.allocators.device.allocate import write_allocation
from koordcore.allocators.device.followers import Picked
from koordcore.allocators.device.state import NodeDevices, Signature
from koordcore.allocators.device.view import view_of
from koordcore.allocators.device.wants import wants_of
from koordcore.allocators.joint.cells import Share, vf_classes
from koordcore.allocators.joint.greedy import Placed, place_greedily
from koordcore.allocators.joint.packings import Packing, Put, Work, packings_of
from koordcore.allocators.joint.program import place_by_pods
from koordcore.allocators.joint.ways import NOTHING
from koordcore.errors import ModelError, SolverError
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, Limits
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceRequest,
    DeviceShortfall,
    DeviceType,
    ExclusivePolicy,
)
from koordcore.topology.devices import lowest

__all__ = ["DeviceBatch", "place_devices_jointly"]

WORK = 40_000
"""How many ways to put a pod on a node are looked at, some seconds of work; beyond it single pods decide."""


@attrs.frozen(kw_only=True)
class DeviceBatch:
    """Where the pods of a batch go.

    Parameters
    ----------
    nodes
        Pod to node, for those that are placed.
    allocations
        Pod to its devices, for the same pods.
    unplaced
        The others, in the order given.
    certificate
        Objective and bound, smaller is better: pods left out; whole-card pods outside a partition of the
        node's table; partition scores (negated); NUMA nodes of other pods; remote followers; switches.
    """

    nodes: immutabledict[str, str]
    allocations: immutabledict[str, DeviceAllocation]
    unplaced: tuple[str, ...]
    certificate: Certificate


def place_devices_jointly(
    states: Mapping[str, NodeDevices],
    requests: Mapping[str, DeviceRequest],
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    limits: Limits = DEFAULT_LIMITS,
) -> DeviceBatch:
    """Place as many pods as possible, each near what it needs.

    Where a pod wants NICs beside its cards, it gets as many as it asks for and at least one on each of its
    switches if they must be the same; the optional extra NICs of a single allocation are not taken in a
    batch.

    Parameters
    ----------
    states
        Node to its devices.
    requests
        Pod to what it asks for.
    limits
        Budget of the solver.

    Raises
    ------
    ModelError
        When a pod asks for exclusive or designated devices, or for one switch without cards: those are
        decided one by one.
    SolverError
        When the answer does not fit the nodes: a defect, never the caller's input.
    """
    for pod, request in requests.items():
        exclusive = any(hint.exclusive is not ExclusivePolicy.NONE for hint in request.hints.values())
        if exclusive or request.designated is not None:
            raise ModelError(f"{pod}: exclusive and designated devices are decided one by one")
        joint = request.joint
        if (
            joint is not None
            and joint.same_pcie
            and len(joint.types) > 1
            and DeviceType.GPU not in joint.types
        ):
            raise ModelError(f"{pod}: devices on one switch without cards are decided one by one")
    nodes = {node: states[node] for node in sorted(states)}
    greedy = place_greedily(nodes, requests, policy)
    found = _Batch(nodes, requests, policy).solve(greedy, limits)
    placed, certificate = found or place_by_pods(nodes, requests, policy, greedy, limits)
    _check(nodes, placed)
    return DeviceBatch(
        nodes=immutabledict({pod: node for pod, (node, _) in placed.items()}),
        allocations=immutabledict({pod: allocation for pod, (_, allocation) in placed.items()}),
        unplaced=tuple(pod for pod in requests if pod not in placed),
        certificate=certificate,
    )


def _check(nodes: Mapping[str, NodeDevices], placed: Placed) -> None:
    """Put everything on the nodes, which tells whether they can really give it."""
    states = dict(nodes)
    for pod, (node, allocation) in placed.items():
        before = len(states[node].conflicts)
        states[node] = states[node].assume(f"batch/{pod}", allocation)
        if len(states[node].conflicts) > before:
            raise SolverError(f"{pod} on {node}: {states[node].conflicts}")


def _size(request: DeviceRequest) -> int:
    return 0 if request.gpu is None else request.gpu.count * (1 if request.gpu.shared else 2)


@attrs.frozen(eq=False)
class _Group:
    """Nodes in equal states, with what each of them can take and how many take it (variables)."""

    nodes: tuple[str, ...]
    packings: Sequence[Packing]
    variables: Sequence[int]


class _Batch:
    """The batch as numbers of pods of each kind and of nodes of each state."""

    def __init__(
        self, nodes: Mapping[str, NodeDevices], requests: Mapping[str, DeviceRequest], policy: DevicePolicy
    ) -> None:
        self._nodes, self._policy = nodes, policy
        pods: dict[DeviceRequest, list[str]] = {}
        for pod, request in requests.items():
            pods.setdefault(request, []).append(pod)
        # Large pods first: they have the fewest ways to be put.
        self._kinds = sorted(pods, key=lambda request: -_size(request))
        self._pods = [pods[request] for request in self._kinds]
        self._program = Program()

    def solve(self, greedy: Placed, limits: Limits) -> tuple[Placed, Certificate] | None:
        """Choose the packings; ``None`` where there are too many to look at."""
        demand = [len(pods) for pods in self._pods]
        equal: dict[Signature, list[str]] = {}
        for node, state in self._nodes.items():
            equal.setdefault(state.signature, []).append(node)
        work = Work(WORK)
        groups = []
        for names in equal.values():
            found = packings_of(self._nodes[names[0]], self._kinds, demand, self._policy, work)
            if found is None:
                return None
            found = [one for one in found if any(one.counts)]
            variables = [self._program.integer(0, len(names)) for _ in found]
            self._program.require([(variable, 1) for variable in variables], at_most=len(names))
            groups.append(_Group(tuple(names), found, variables))
        for which, most in enumerate(demand):
            taken = [(one, packing.counts[which]) for one, packing in _choices(groups)]
            self._program.require(taken, at_most=most)
        stages = _stages(groups, sum(demand))
        outcome = solve(self._program, stages, hint=self._hint(groups, greedy), limits=limits)
        certificate = certify(self._program.problem(stages), outcome, limits)
        return self._read(groups, outcome.values), certificate

    def _hint(self, groups: Sequence[_Group], greedy: Placed) -> list[int]:
        """Write the greedy answer as numbers of packings, each put on its node in the best way."""
        values = [0] * len(self._program)
        kind_of = {pod: which for which, pods in enumerate(self._pods) for pod in pods}
        counts = {node: [0] * len(self._kinds) for node in self._nodes}
        for pod, (node, _) in greedy.items():
            counts[node][kind_of[pod]] += 1
        for group in groups:
            place = {
                packing.counts: variable
                for packing, variable in zip(group.packings, group.variables, strict=True)
            }
            for node in group.nodes:
                here = tuple(counts[node])
                if any(here):
                    values[place[here]] += 1
        return values

    def _read(self, groups: Sequence[_Group], values: Sequence[int]) -> Placed:
        """Turn numbers into pods on nodes: both in the order of their names."""
        chosen: dict[str, Packing] = {}
        for group in groups:
            names = iter(group.nodes)
            for variable, packing in zip(group.variables, group.packings, strict=True):
                for _ in range(values[variable]):
                    chosen[next(names)] = packing
        waiting = [iter(pods) for pods in self._pods]
        placed: dict[str, tuple[str, DeviceAllocation]] = {}
        for node, state in self._nodes.items():
            if node not in chosen:
                continue
            now = state
            for put in chosen[node].pods():
                pod = next(waiting[put.which])
                allocation = self._allocation(state, now, put)
                now = now.assume(f"batch/{pod}", allocation)
                placed[pod] = node, allocation
        return placed

    def _allocation(self, start: NodeDevices, now: NodeDevices, put: Put) -> DeviceAllocation:
        """Write down what a pod gets: out of each class of equal VFs the first that nobody has taken yet."""
        request = self._kinds[put.which]
        wants = wants_of(start.shape, request, self._policy)
        if isinstance(wants, DeviceShortfall):
            raise SolverError(f"{wants.reasons}: a node that cannot serve a pod was chosen for it")
        views = {kind: copy(view_of(start, want)) for kind, want in wants.items()}
        chosen: dict[DeviceType, list[tuple[int, int]]] = {kind: [] for kind in views}
        for share in sorted(put.shares, key=lambda share: share.minor):
            chosen[share.kind].append((share.minor, share.often))
        if put.order is not None:
            chosen[DeviceType.GPU] = [(minor, 1) for minor in put.order]
        for kind, view in views.items():
            if view.vfs is not None:
                view.vfs = {
                    share.minor: self._vfs(start, now, share) for share in put.shares if share.kind is kind
                }
        picked: dict[DeviceType, Picked] = {kind: tuple(found) for kind, found in chosen.items()}
        return write_allocation(now, request, views, picked)

    def _vfs(self, start: NodeDevices, now: NodeDevices, share: Share) -> int:
        shape = start.shape.types[share.kind]
        taken = now.use(share.kind).vfs[shape.position[share.minor]]
        classes = vf_classes(start, share.kind, share.minor, self._kinds)
        ranks = 0
        for place, number in share.vfs:
            ranks |= lowest(classes[place] & ~taken, number)
        return ranks


def _choices(groups: Sequence[_Group]) -> list[tuple[int, Packing]]:
    return [
        (variable, packing)
        for group in groups
        for variable, packing in zip(group.variables, group.packings, strict=True)
    ]


def _stages(groups: Sequence[_Group], pods: int) -> tuple[Stage, ...]:
    """Pods left out; loose pods; partition scores; NUMA nodes; remote followers; switches."""
    choices = _choices(groups)
    left_out = Stage([(variable, -sum(packing.counts)) for variable, packing in choices], pods, 0)
    return (
        left_out,
        *(
            Stage([(variable, packing.worth[part]) for variable, packing in choices])
            for part in range(len(NOTHING))
        ),
    )
