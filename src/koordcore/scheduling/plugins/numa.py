"""NodeNUMAResource: CPUs, memory and devices of one pod from NUMA nodes that serve all of it.

Where a NUMA topology policy applies, of the node or of the pod, CPUs, amounts and devices are one question
with one answer (rulings 5 and 23); the devices plugin then finds its part taken. Elsewhere devices are the
devices plugin's own, and what is decided here is only which CPUs a bound pod gets. Nodes in equal states are
asked once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.device import DEFAULT_DEVICE_POLICY, DevicePolicy, device_request_of
from koordcore.allocators.device.request import DEVICE_RESOURCES
from koordcore.allocators.node import NodeAllocation, NodeRequest
from koordcore.allocators.node_batch import NodeTable, NodeVerdicts
from koordcore.allocators.numa import OF_RESERVATION
from koordcore.allocators.numa_explain import explain_node
from koordcore.allocators.numa_request import CPURequest, NUMARefusal, cpu_request_of, demand_on
from koordcore.allocators.numa_reservation import remaining_cpus
from koordcore.allocators.numa_state import (
    NUMAState,
    allocation_of,
    exclusive_wish,
    numa_node_of,
    numa_state_of,
)
from koordcore.framework.plugin import Evaluator, Plugin, Refusal, Reserved, Scope
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.devices import DeviceRequest
from koordcore.model.nodes import NodeState
from koordcore.model.numa import DEFAULT_NUMA_ARGS, CPUAllocation, NodeResourceTopology, NUMAArgs
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.model.resources import CPU
from koordcore.protocol.fields import load_json
from koordcore.protocol.numa import ANNOTATION_RESOURCE_STATUS
from koordcore.protocol.reservation import RESERVATION_NAME, is_reserve_pod
from koordcore.reservations.cache import (
    Lending,
    Room,
    Rooms,
    concerns_reservations,
    ended_holders,
    holders_by_user,
)
from koordcore.scheduling.plugins.devices import (
    Alignment,
    Masks,
    describe_allocation,
    device_state,
    holds_devices,
)
from koordcore.scheduling.plugins.numa_rooms import HELD, NUMARooms, uid_of
from koordcore.scheduling.plugins.numa_whole import WholeNode, WholeNodeEvaluator, whole_node
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.cpu import format_cpulist
from koordcore.topology.numa import NUMATopologyPolicy

__all__ = ["NUMAPlugin", "numa_state"]


def numa_state(snapshot: ClusterSnapshot, state: NodeState) -> NUMAState:
    """Give the CPUs and NUMA nodes of one node with what its pods hold by their annotations."""
    topology = snapshot.find(NodeResourceTopology, state.name)
    known = numa_state_of(numa_node_of(state.node.labels, state.node.annotations, topology), state.pods)
    using = holders_by_user(state.pods)
    if not using:
        return known
    # What users of a reservation took of it counts once, as theirs.
    by_uid = {one.uid: one for one in known.allocations}
    ended = ended_holders(snapshot, state.pods)
    for pod in state.pods:
        held = by_uid.get(uid_of(pod)) if pod.key in using else None
        if held is not None:
            users = (by_uid.get(uid_of(user)) for user in using[pod.key])
            by_uid[held.uid] = remaining_cpus(held, [one for one in users if one is not None])
            if pod.key in ended:
                del by_uid[held.uid]
    return NUMAState.of(known.node, by_uid.values())


def describe_numa(given: NodeAllocation) -> str:
    """Write CPUs and NUMA nodes on one line: ``cpu 0-3 · NUMA 0``."""
    status = given.numa.status
    parts = [f"cpu {format_cpulist(status.cpuset)}"] if status.cpuset else []
    if status.numa_node_resources:
        parts.append("NUMA " + ",".join(str(entry.node) for entry in status.numa_node_resources))
    return " · ".join(parts)


@attrs.frozen
class _Asked:
    """What a pod asks of CPUs and NUMA nodes, and of devices beside them."""

    cpu: CPURequest
    devices: DeviceRequest | None


@lru_cache(maxsize=4096)
def _asked(cpu: CPURequest, devices: DeviceRequest | None) -> _Asked:
    """Give the very same value for the same requests, which are then compared at a glance."""
    return _Asked(cpu, devices)


class NUMAEvaluator(Evaluator):
    """Filter, score and choice for one kind of pods."""

    scope = Scope.NODE

    def __init__(self, plugin: NUMAPlugin, asked: _Asked) -> None:
        self._plugin = plugin
        self._cpu = asked.cpu
        self._plain = plugin.verdicts(NodeRequest(cpu=asked.cpu))
        self._joint: NodeVerdicts | None = None
        if asked.devices is not None:
            self._joint = plugin.verdicts(NodeRequest(cpu=asked.cpu, devices=asked.devices))
        self._policies: dict[int, NUMATopologyPolicy] = {}

    def _held(self, rows: Rows) -> BoolVector:
        """Tell which nodes hold all of the pod to some NUMA nodes; there devices are asked for here."""
        ids = self._plain.table.ids[rows]
        held = {number: self._policy_of(number) in HELD for number in np.unique(ids).tolist()}
        return np.array([held[number] for number in ids.tolist()], bool)

    def _policy_of(self, number: int) -> NUMATopologyPolicy:
        """Give the topology policy for the pod in one of the distinct states of the nodes."""
        known = self._policies.get(number)
        if known is None:
            demand = demand_on(self._cpu, self._plain.table.states[number].node)
            known = NUMATopologyPolicy.NONE if isinstance(demand, NUMARefusal) else demand.policy
            self._policies[number] = known
        return known

    def fits(self, rows: Rows) -> BoolVector:
        fitting = self.fits_outside(rows)
        if self.lending is not None:
            rooms = self.lending.rooms(rows)
            served = rooms.any_at(self.fits_from(rooms), len(self._plugin.states))
            refused = np.zeros(len(served), bool)
            # CPUs of the node are no help where a reservation has to give them.
            refused[list(self._reserved_refusals(rows, served))] = True
            fitting = (fitting & ~refused[rows]) | served[rows]
        return fitting

    def fits_from(self, rooms: Rooms) -> BoolVector:
        served = self._fits(rooms.rows, rooms.lent[self._plugin.workspace.layout.index[CPU]])
        for index in range(len(rooms.rows)):
            room = rooms.room(index)
            if self._plugin.holds(room):
                served[index] = not isinstance(self._from_room(room), NUMARefusal)
        return served

    def _from_room(self, room: Room) -> NodeAllocation | NUMARefusal:
        others = () if self.lending is None else self.lending.beside(room)
        return self._plugin.rooms.fit(self._verdicts_at(room.row), room, others)

    def fits_outside(self, rows: Rows) -> BoolVector:
        return self._fits(rows, None)

    def _fits(self, rows: Rows, lent: IntVector | None) -> BoolVector:
        self._plugin.update()
        plain = self._plain.fits(rows, lent)
        if self._joint is None:
            return plain
        return np.where(self._held(rows), self._joint.fits(rows, lent), plain)

    def reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        self._plugin.update()
        found = self._plain_reasons(rows)
        reserved = self._reserved_refusals(rows)
        if not reserved:
            return found
        number = len(self._plugin.states)
        at = {row: position for position, row in enumerate(np.arange(number)[rows].tolist())}
        plain = np.ones(len(at), bool)
        masks: dict[tuple[str, int], BoolVector] = {}
        for row, told in reserved.items():
            plain[at[row]] = False
            for place, short in enumerate(told):
                # Each reservation counts, also those that say the same.
                key = short.reason, [one.reason for one in told[:place]].count(short.reason)
                masks.setdefault(key, np.zeros(len(at), bool))[at[row]] = True
        return [(reason, mask & plain) for reason, mask in found] + [
            (reason, mask) for (reason, _), mask in masks.items()
        ]

    def _plain_reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        if self._joint is None:
            return self._plain.reasons(rows)
        aligned = self._held(rows)
        found = {reason: mask & ~aligned for reason, mask in self._plain.reasons(rows)}
        for reason, mask in self._joint.reasons(rows):
            here = mask & aligned
            found[reason] = found[reason] | here if reason in found else here
        return sorted(found.items())

    def _reserved_refusals(self, rows: Rows, served: BoolVector | None = None) -> dict[int, list[Shortfall]]:
        """Say by node why its reservations do not serve a pod that must sit in one of them.

        ``served`` tells the nodes, ``(N,)``, that need not be asked.
        """
        told: dict[int, list[Shortfall]] = {}
        lending = self.lending
        if lending is None or not lending.required:
            return told
        rooms = lending.rooms(rows)
        for index in range(len(rooms.rows)):
            room = rooms.room(index)
            if served is not None and served[room.row]:
                continue
            verdicts = self._verdicts_at(room.row, filtered=True)
            found = self._plugin.rooms.refusal(verdicts, room, lending.beside(room))
            if found is None:
                continue
            here = told.setdefault(room.row, [])
            of_its_own = [one for one in found.shortfalls if one.reason.startswith(OF_RESERVATION)]
            # What does not depend on the reservation is said once.
            here += of_its_own or [one for one in found.shortfalls if one not in here]
        return told

    def unresolvable(self, rows: Rows) -> BoolVector:
        hopeless = self._plain_unresolvable(rows)
        reserved = self._reserved_refusals(rows)
        if not reserved:
            return hopeless
        found = hopeless.copy()
        for position, row in enumerate(np.arange(len(self._plugin.states))[rows].tolist()):
            if row in reserved:
                found[position] = not all(one.resolvable for one in reserved[row])
        return found

    def _plain_unresolvable(self, rows: Rows) -> BoolVector:
        self._plugin.update()
        plain = self._plain.unresolvable(rows)
        if self._joint is None:
            return plain
        return np.where(self._held(rows), self._joint.unresolvable(rows), plain)

    def _verdicts_at(self, row: int, *, filtered: bool = False) -> NodeVerdicts:
        """Give whom to ask for an allocation on a node, or about its filter.

        BestEffort allocates everything together, but who refuses there is who lacks something.
        """
        self._plugin.update()
        if self._joint is None:
            return self._plain
        policy = self._policy_of(int(self._plain.table.ids[row]))
        together = policy in HELD if filtered else policy is not NUMATopologyPolicy.NONE
        return self._joint if together else self._plain

    def shortfalls(self, row: int) -> tuple[Shortfall, ...]:
        answer = self._verdicts_at(row, filtered=True).answer(row)
        return answer.shortfalls if isinstance(answer, NUMARefusal) else ()

    def details(self, row: int) -> tuple[str, ...]:
        verdicts = self._verdicts_at(row, filtered=True)
        if not isinstance(verdicts.answer(row), NUMARefusal):
            return ()
        table = verdicts.table
        found = explain_node(
            table.state_of(row),
            table.devices_of(row),
            verdicts.request,
            args=verdicts.args,
            policy=verdicts.policy,
        )
        return found.lines

    def scores(self, rows: Rows) -> IntVector:
        self._plugin.update()
        off = self._lifted(rows)
        scores = self._plain.scores(rows, off)
        if self._joint is not None:
            scores = np.where(self._held(rows), self._joint.scores(rows, off), scores)
        if self.lending is not None:
            self._score_lent(self.lending, scores, rows)
        return scores

    def _score_lent(self, lending: Lending, scores: IntVector, rows: Rows) -> None:
        """Score nodes under a topology policy by what the pod gets there out of its reservation."""
        concerned = set(lending.rooms(rows).rows.tolist())
        if not concerned:
            return
        for position, row in enumerate(np.arange(len(self._plugin.states))[rows].tolist()):
            room = lending.drawn_from(row) if row in concerned else None
            if room is None or not self._plugin.holds(room):
                continue
            verdicts = self._verdicts_at(row)
            if self._policy_of(int(self._plain.table.ids[row])) is not NUMATopologyPolicy.NONE:
                lifted = lending.lifted(slice(row, row + 1))
                scores[position] = self._plugin.rooms.score(verdicts, room, lifted, lending.beside(room))

    def _lifted(self, rows: Rows) -> dict[str, IntVector] | None:
        """What reservations that the pod may use take of the nodes, by resource."""
        lifted = None if self.lending is None else self.lending.lifted(rows)
        if lifted is None:
            return None
        return {name: lifted[row] for name, row in self._plugin.workspace.layout.index.items()}

    def allocate(self, pod: Pod, row: int) -> Reserved | Shortfall | None:
        return self._write(pod, row, self._verdicts_at(row).answer(row))

    def allocate_from(self, pod: Pod, row: int, room: Room) -> Reserved | Shortfall | None:
        return self._write(pod, row, self._from_room(room))

    def _write(self, pod: Pod, row: int, given: NodeAllocation | NUMARefusal) -> Reserved | Shortfall:
        verdicts = self._verdicts_at(row)
        if isinstance(given, NUMARefusal):
            return given.shortfalls[0]
        node = verdicts.table.state_of(row).node
        before = self._plugin.written_on(pod)
        annotations = given.annotations(verdicts.request, node, before)
        self._plugin.take(pod, row, given)
        notes = [describe_numa(given)]
        if given.devices is not None and given.devices.devices:
            notes.append(describe_allocation(given.devices))
        return Reserved(_changed(annotations, before), notes=tuple(note for note in notes if note))


def _changed(annotations: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Leave out what the pod says already in other white space."""
    return {
        key: text
        for key, text in annotations.items()
        if key not in before or load_json(before[key]) != load_json(text)
    }


_UNKNOWN: Final = -2


class NUMAPlugin(Plugin):
    """NodeResourceTopology objects and what pods hold; the arguments are :class:`NUMAArgs`.

    In a cluster where no node tells its topology or wants a policy, only pods that want CPUs of their own
    concern it, unless it scores: then every pod that asks for anything is scored, as upstream has it.
    """

    name = "NodeNUMAResource"

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.args: NUMAArgs = args or DEFAULT_NUMA_ARGS
        self.device_policy: DevicePolicy = DEFAULT_DEVICE_POLICY
        self._states: list[NUMAState] | None = None
        self._tables: dict[bool, NodeTable] = {}
        self._read = 0
        self.rooms = NUMARooms(self)
        workspace.once(Alignment).plugin = self

    @property
    def states(self) -> list[NUMAState]:
        """CPUs and NUMA nodes of every node now, by row."""
        if self._states is None:
            self._states = self.workspace.values(numa_state)
            self._read = len(self.workspace.touched)
        return self._states

    @property
    def _concerned(self) -> bool:
        """Some node tells its topology, wants a policy, or amplifies its CPU."""
        return self.workspace.once(_Told).anything

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        asked = cpu_request_of(pod, self.args)
        if asked is None:
            return None
        if isinstance(asked, NUMARefusal):
            return Refusal(asked.reasons[0], resolvable=asked.resolvable)
        if not self._concerned and not self.scored and not asked.bind and not asked.numa_policy:
            return None
        devices = None
        if not DEVICE_RESOURCES.isdisjoint(pod.requests):
            found = device_request_of(pod.requests, annotations=pod.annotations, labels=pod.labels)
            devices = found if isinstance(found, DeviceRequest) else None
        # Who asks for amounts only, where nodes say nothing, gets nothing of its own and is only scored.
        plain = devices is None and ANNOTATION_RESOURCE_STATUS not in pod.annotations
        if plain and not self._concerned and (whole := whole_node(asked)) is not None:
            return whole
        return _asked(asked, devices)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        if isinstance(request, WholeNode):
            return WholeNodeEvaluator(self.workspace, request.requests, self.args)
        return NUMAEvaluator(self, request)

    def verdicts(self, request: NodeRequest) -> NodeVerdicts:
        """Open the answers to one kind of request."""
        layout, workspace = self.workspace.layout, self.workspace
        return NodeVerdicts(
            self.table(with_devices=request.devices is not None),
            request,
            args=self.args,
            policy=self.device_policy,
            allocatable={name: layout.allocatable[row] for name, row in layout.index.items()},
            requested={name: workspace.requested[row] for name, row in layout.index.items()},
        )

    def masks_for(self, pod: Pod) -> Masks | None:
        """Open the answers to which NUMA nodes a device pod would be held to on each node.

        -1 where it is held to none: without a policy, under BestEffort, and where it does not fit. ``None``
        where the pod is none of this plugin's business, or nothing ever holds it.
        """
        asked = self.request_of(pod)
        if not isinstance(asked, _Asked) or asked.devices is None:
            return None
        if not asked.cpu.numa_policy and not any(state.node.policy for state in self.states):
            return None
        return _Held(self, asked).masks

    def mask_at(self, asked: _Asked, row: int, room: Room | None = None, others: Sequence[Room] = ()) -> int:
        """Give the NUMA nodes that a pod would be held to on one node, or out of a room; -1 for none."""
        verdicts = self.verdicts(NodeRequest(cpu=asked.cpu, devices=asked.devices))
        demand = demand_on(asked.cpu, verdicts.table.state_of(row).node)
        if isinstance(demand, NUMARefusal) or demand.policy not in HELD:
            return -1
        answer = verdicts.answer(row) if room is None else self.rooms.fit(verdicts, room, others)
        mask = None if isinstance(answer, NUMARefusal) else answer.numa.mask
        return -1 if mask is None else mask

    def mask_from(self, pod: Pod, room: Room, others: Sequence[Room]) -> int:
        """Give the NUMA nodes that a device pod would be held to out of a room; -1 for none."""
        asked = self.request_of(pod)
        if not isinstance(asked, _Asked) or asked.devices is None:
            return -1
        return self.mask_at(asked, room.row, room if self.holds(room) else None, others)

    def table(self, *, with_devices: bool) -> NodeTable:
        """Give the distinct states of the nodes, up to date; where no pod asks for devices without them."""
        self.update()
        table = self._tables.get(with_devices)
        if table is None:
            devices = self.workspace.values(device_state) if with_devices else None
            table = self._tables[with_devices] = NodeTable(self.states, devices)
        return table

    def update(self) -> None:
        """Bring the tables up to the changes since the last look."""
        states, touched = self.states, self.workspace.touched
        if self._read == len(touched):
            return
        rows = sorted(set(touched[self._read :]))
        self._read = len(touched)
        for with_devices, table in self._tables.items():
            devices = self.workspace.values(device_state) if with_devices else None
            for row in rows:
                table.put(row, states[row], devices[row] if devices is not None else None)

    def take(self, pod: Pod, row: int, given: NodeAllocation) -> None:
        """Record what a pod was given, as it will be read back from its annotations."""
        uid, status = pod.uid or str(pod.key), given.numa.status
        found: CPUAllocation | None = None
        if not given.numa.written:
            found = allocation_of(uid, pod.annotations, namespace=pod.namespace, name=pod.name)
        elif status.cpuset or status.numa_node_resources:
            found = CPUAllocation(
                uid=uid,
                cpuset=status.cpuset,
                exclusive=exclusive_wish(pod.annotations),
                numa_resources=status.numa_node_resources,
                namespace=pod.namespace,
                name=pod.name,
            )
        if found is not None:
            self.workspace.put(self.states, row, self.states[row].adding(found))
        if given.devices is not None and given.devices.devices:
            devices = self.workspace.values(device_state)
            state = devices[row]
            if state is not None:
                self.workspace.put(devices, row, state.assume(str(pod.key), given.devices))

    def holds(self, room: Room) -> bool:
        """Tell whether a room has CPUs, NUMA amounts or devices of its own."""
        uids = {uid_of(pod) for pod in room.holders}
        if any(one.uid in uids for one in self.states[room.row].allocations):
            return True
        devices = self.workspace.values(device_state)[room.row] if True in self._tables else None
        return devices is not None and holds_devices(devices, room)

    def written_on(self, pod: Pod) -> Mapping[str, str]:
        """Give the annotations that stand on the object itself: those of a template do not."""
        one = None
        if is_reserve_pod(pod):
            one = self.workspace.snapshot.find(Reservation, pod.annotations.get(RESERVATION_NAME, ""))
        return pod.annotations if one is None else one.annotations

    def placed(self, pod: Pod, row: int) -> None:
        if concerns_reservations(pod) and ANNOTATION_RESOURCE_STATUS in pod.annotations:
            self._read_again(row)

    def _read_again(self, row: int) -> None:
        """Take in what the node's pods hold by their annotations: a user changes what its holder has left."""
        workspace = self.workspace
        there = NodeState(workspace.layout.nodes[row], tuple(workspace.pods_on(row).values()))
        workspace.put(self.states, row, numa_state(workspace.snapshot, there))

    def removed(self, pod: Pod, row: int) -> None:
        if concerns_reservations(pod) and ANNOTATION_RESOURCE_STATUS in pod.annotations:
            self._read_again(row)
            return
        before = self.states[row]
        after = before.removing(pod.uid or str(pod.key))
        if after is not before:
            self.workspace.put(self.states, row, after)


class _Held:
    """Which NUMA nodes one kind of device pods is held to, by distinct state of a node."""

    def __init__(self, plugin: NUMAPlugin, asked: _Asked) -> None:
        self._plugin = plugin
        self._asked = asked
        self._known = np.zeros(0, np.int64)

    def masks(self, rows: Rows) -> IntVector:
        """Give the bit masks of some nodes."""
        table = self._plugin.table(with_devices=True)
        more = len(table.states) - len(self._known)
        if more:
            self._known = np.concatenate([self._known, np.full(more, _UNKNOWN)])
        ids = table.ids[rows]
        found: IntVector = self._known[ids]
        if (found == _UNKNOWN).any():
            numbers = np.arange(len(table), dtype=np.int64)[rows]
            for number in np.unique(ids[found == _UNKNOWN]).tolist():
                self._known[number] = self._plugin.mask_at(self._asked, int(numbers[ids == number][0]))
            found = self._known[ids]
        return found


class _Told:
    """Whether any node of the cluster says something that this plugin must heed."""

    def __init__(self, workspace: Workspace) -> None:
        snapshot = workspace.snapshot
        self.anything = bool(snapshot.of(NodeResourceTopology)) or snapshot.derived(_labelled, _as_before)


def _labelled(snapshot: ClusterSnapshot) -> bool:
    """Tell whether any node carries a label or an annotation of Koordinator's."""
    return any(
        any("koordinator.sh/" in key for key in (*state.node.labels, *state.node.annotations))
        for state in snapshot.nodes
    )


def _as_before(
    nodes: tuple[NodeState, ...], records: tuple[ClusterRecord, ...], value: bool, snapshot: ClusterSnapshot
) -> bool:
    """The nodes themselves are the same in all snapshots of a line."""
    del nodes, records, snapshot
    return value
