"""CPUs and NUMA nodes that a pod must be given: what it is bound to, and what a topology policy demands."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from koordcore._record import record
from koordcore.checking.cpus import STATUS, Held, held_of
from koordcore.checking.devices import parts_of
from koordcore.checking.holders import holder_key
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import KoordcoreError
from koordcore.model.decisions import Bound
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.devices import DeviceObject
from koordcore.model.nodes import Node
from koordcore.model.numa import NodeResourceTopology, NUMAArgs
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.model.resources import CPU, NO_RESOURCES
from koordcore.protocol.hints import hints_at
from koordcore.protocol.numa import numa_topology_spec_of, resource_spec_of
from koordcore.protocol.numa_nodes import node_bind_policy, node_topology_policy
from koordcore.protocol.qos import priority_class_with_default, qos_class_of
from koordcore.protocol.reservation import is_operating_pod
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

PLUGIN: Final = "NodeNUMAResource"
FULL, SPREAD = "FullPCPUs", "SpreadByPCPUs"
RESTRICTED, SINGLE = "Restricted", "SingleNUMANode"


@record(kw_only=True)
class _Ground:
    """A node as far as CPUs, NUMA nodes and the places of devices go."""

    node: Node
    topology: NodeResourceTopology
    devices: DeviceObject | None
    """``None`` where there are none, and where they are not aligned."""


@record(kw_only=True)
class _Given:
    """A new pod with what it wanted and what it holds.

    Parameters
    ----------
    pod
        As it is bound.
    wanted
        As it waited.
    held
        Its CPUs and amounts.
    """

    pod: Pod
    wanted: Pod
    held: Held

    def says(self, message: str, kind: ViolationKind = ViolationKind.CPU) -> Violation:
        """Name what is wrong with it."""
        return Violation(kind, str(self.pod.key), message)


def check_numa_choices(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    *,
    kept: frozenset[PodKey] = frozenset(),
    standing: bool = False,
) -> Iterator[Violation]:
    """New pods are bound to as many CPUs as they asked for, and lie on NUMA nodes as policies demand.

    Parameters
    ----------
    snapshot, result
        Before and afterwards; reservations are whole in the result.
    kept
        Pods that had their NUMA nodes before, since when others may have come.
    standing
        The pods run already. Those on which nothing is written were placed by others, and are not looked at,
        nor are those of a node whose CPUs the dump does not tell.
    """
    policy = result.policy
    if not policy.filters(PLUGIN):
        return
    new = {one.pod: one for one in result.decisions if isinstance(one, Bound)}
    waiting = {pod.key: pod for pod in snapshot.pending}
    args = policy.args_of(NUMAArgs)
    lenders = {holder_key(one) for one in snapshot.of(Reservation)}
    for state in result.snapshot.nodes:
        # Whoever asks for nothing is nobody's concern.
        fresh = [pod for pod in state.pods if pod.key in new and any(pod.requests.values())]
        if standing:
            known = snapshot.find(NodeResourceTopology, state.name) is not None
            fresh = [pod for pod in fresh if known and STATUS in pod.annotations]
        if not fresh:
            continue
        ground = _ground(snapshot, state.node, policy)
        for pod in fresh:
            try:
                held = held_of(pod) or Held(frozenset(), {})
                given = _Given(pod=pod, wanted=waiting.get(pod.key, pod), held=held)
                yield from _check_binding(given, ground, args, shaped=not new[pod.key].over)
                yield from _check_alignment(given, ground)
                if not standing and pod.key not in kept:
                    others = [one for one in state.pods if one.key != pod.key]
                    yield from _check_exclusive(given, ground, others, {*new, *lenders})
            except (ValueError, TypeError, AttributeError, KoordcoreError):
                continue  # what cannot be read is another check's, or binds nobody


def _ground(snapshot: ClusterSnapshot, node: Node, policy: Policy) -> _Ground:
    topology = snapshot.find(NodeResourceTopology, node.name) or NodeResourceTopology(name=node.name)
    aligned = policy.filters("DeviceShare") and policy.args_of(DevicePolicy).align_numa
    devices = snapshot.find(DeviceObject, node.name) if aligned else None
    return _Ground(node=node, topology=topology, devices=devices)


# -- CPUs ----------------------------------------------------------------------------------------------------


def _check_binding(given: _Given, ground: _Ground, args: NUMAArgs, *, shaped: bool) -> Iterator[Violation]:
    """Whoever is bound to CPUs, or must be, holds as many as it asked for, in the shape that is required."""
    asked, cpus = given.pod.requests.get(CPU, 0), given.held.cpus
    bound, required = _binding(given.wanted, args)
    by_node = {"FullPCPUsOnly": FULL, "SpreadByPCPUs": SPREAD}.get(
        node_bind_policy(ground.node.labels, ground.topology.kubelet), ""
    )
    must = asked > 0 and (bound or bool(by_node))
    if (must or cpus) and len(cpus) * 1000 != asked:
        yield given.says(f"asked for {asked} milli-CPU, holds {len(cpus)} CPUs")
        return
    shape = required or by_node
    if not cpus or not shape or not shaped or hints_at(given.wanted.annotations, PLUGIN):
        return
    topology = ground.topology.topology
    cores = len({info.core for info in topology.cpus if info.cpu in cpus})
    if len(cpus) != cores * (topology.cpus_per_core if shape == FULL else 1):
        yield given.says(f"{shape} is required, holds {len(cpus)} CPUs of {cores} cores")


def _binding(pod: Pod, args: NUMAArgs) -> tuple[bool, str]:
    """Tell whether a pod is to be bound to CPUs wherever it goes, and which bind policy it requires."""
    dedicated = qos_class_of(pod.labels) in ("LSE", "LSR")
    if not dedicated or priority_class_with_default(pod.labels, pod.priority, "") != "koord-prod":
        return False, ""
    spec, default = resource_spec_of(pod.annotations), args.default_bind_policy or ""
    required, preferred = spec.required_cpu_bind_policy, spec.preferred_cpu_bind_policy
    required = default if required == "Default" else required
    wanted = required or (default if preferred in ("", "Default") else preferred)
    return wanted in (FULL, SPREAD), required if required in (FULL, SPREAD) else ""


# -- NUMA nodes ----------------------------------------------------------------------------------------------


def _check_alignment(given: _Given, ground: _Ground) -> Iterator[Violation]:
    """Amounts are written for NUMA nodes as asked for, CPUs lie there, and all is on one where it must be."""
    own = numa_topology_spec_of(given.wanted.annotations).numa_topology_policy
    there = node_topology_policy(ground.node.labels, ground.topology.policy)
    if own and there and own != there:
        yield given.says(f"wants {own}, {ground.node.name} is {there}", ViolationKind.NUMA)
        return
    policy = own or there
    if policy not in (RESTRICTED, SINGLE) or hints_at(given.wanted.annotations, PLUGIN):
        return
    zones = ground.topology.zones
    if not zones:
        message = f"is under {policy}, and {ground.node.name} tells no NUMA nodes"
        yield given.says(message, ViolationKind.NUMA)
        return
    if policy == SINGLE and len(zones) == 1:
        return  # it has no choice, and nothing is written
    told = {name for zone in zones for name in zone.resources}
    asked = {name: amount for name, amount in given.pod.requests.items() if amount and name in told}
    for name, amount in sorted(asked.items()):
        holds = sum(one.get(name, 0) for one in given.held.amounts.values())
        if holds < amount:
            message = f"asked for {amount} {name}, holds {holds} on NUMA nodes"
            yield given.says(message, ViolationKind.NUMA)
    cpus = sum(1 << cpu for cpu in given.held.cpus)
    masks = ground.topology.topology.node_masks
    counts = {numa: (mask & cpus).bit_count() for numa, mask in masks.items() if mask & cpus}
    if CPU in asked and counts:
        yield from _check_counts(given, counts)
    if policy != SINGLE:
        return
    devices = _numa_nodes_of(given.pod, ground.devices)
    used = sorted({*counts, *given.held.amounts, *devices})
    # Where the NUMA nodes tell nothing of what it asks for, and no device its own, they do not matter.
    if len(used) > 1 and (asked or devices):
        shown = ", ".join(map(str, used))
        yield given.says(f"is under {policy} and lies on NUMA nodes {shown}", ViolationKind.NUMA)


def _check_counts(given: _Given, counts: Mapping[int, int]) -> Iterator[Violation]:
    for numa in sorted({*counts, *given.held.amounts}):
        amount = given.held.amounts.get(numa, NO_RESOURCES).get(CPU, 0)
        if 1000 * counts.get(numa, 0) != amount:
            message = f"holds {counts.get(numa, 0)} CPUs of NUMA node {numa} and {amount} milli-CPU there"
            yield given.says(message, ViolationKind.NUMA)


def _numa_nodes_of(pod: Pod, devices: DeviceObject | None) -> set[int]:
    """Give the NUMA nodes of those of a pod's devices that tell theirs."""
    if devices is None:
        return set()
    held = {(part.kind, part.minor) for part in parts_of(pod)}
    places = (one.topology for one in devices.devices if (str(one.type), one.minor) in held)
    return {place.node_id for place in places if place is not None and place.node_id >= 0}


# -- who else ------------------------------------------------------------------------------------------------


def _check_exclusive(
    given: _Given, ground: _Ground, others: Collection[Pod], came: Collection[PodKey]
) -> Iterator[Violation]:
    """Who keeps NUMA nodes from pods of the other kind, of one NUMA node or across several, meets none there.

    CPUs make a pod the one or the other, and a NUMA node with both counts as one of several. Nobody is kept
    away by who came in the same call, perhaps later, nor by what is reserved, and perhaps lent.
    """
    spec = numa_topology_spec_of(given.wanted.annotations)
    own, there = spec.numa_topology_policy, node_topology_policy(ground.node.labels, ground.topology.policy)
    if (spec.single_numa_node_exclusive or (own and "Required")) != "Required":
        return
    policy = own or there
    if policy not in (RESTRICTED, SINGLE) or hints_at(given.wanted.annotations, PLUGIN):
        return
    mine = {*_nodes_of_cpus(given.held, ground), *given.held.amounts}
    mine |= _numa_nodes_of(given.pod, ground.devices)
    if len(mine) == 1 and policy == RESTRICTED:
        return  # it may have been given a part of what it may use
    met = {one.key: _nodes_of_cpus(_held_or_none(one), ground) for one in others}
    across = {numa for numas in met.values() if len(numas) > 1 for numa in numas}
    for one in others:
        numas = met[one.key] & mine
        if not numas or one.key in came or is_operating_pod(one):
            continue
        if len(mine) > 1 and len(met[one.key]) == 1 and not numas & across:
            message = f"is across NUMA nodes, and on {min(numas)} is {one.key}, which is there alone"
            yield given.says(message, ViolationKind.NUMA)
        elif len(mine) == 1 and len(met[one.key]) > 1:
            message = f"is on NUMA node {min(numas)} alone, and {one.key}, which is across several, is there"
            yield given.says(message, ViolationKind.NUMA)


def _held_or_none(pod: Pod) -> Held:
    """Read what a pod holds; whoever holds what cannot be read keeps nobody away here."""
    try:
        return held_of(pod) or Held(frozenset(), {})
    except (ValueError, TypeError, AttributeError, KoordcoreError):
        return Held(frozenset(), {})


def _nodes_of_cpus(held: Held, ground: _Ground) -> set[int]:
    cpus = sum(1 << cpu for cpu in held.cpus)
    return {numa for numa, mask in ground.topology.topology.node_masks.items() if mask & cpus}
