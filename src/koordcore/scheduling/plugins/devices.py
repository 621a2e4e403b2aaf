"""DeviceShare: GPUs, NICs and other devices, chosen exactly.

Nodes whose devices are of the same build and equally used are judged once (:class:`DeviceMemo`). The filter
and the choice are one question: a node that passes is a node on which the allocator finds devices (rulings 3
and 23).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.device import (
    DEFAULT_DEVICE_POLICY,
    DevicePolicy,
    NodeDevices,
    allocate_devices,
    device_request_of,
    node_devices,
)
from koordcore.allocators.device.allocate import refusal_of
from koordcore.allocators.device.explain import explain_devices
from koordcore.allocators.device.memo import DeviceMemo
from koordcore.allocators.device.request import DEVICE_RESOURCES
from koordcore.allocators.device.reservations import DeviceReservation, remaining_devices, terms_for
from koordcore.allocators.device.scoring import score_devices
from koordcore.allocators.device.view import Terms
from koordcore.allocators.over_pods import device_terms_over, including_devices
from koordcore.errors import ManifestError
from koordcore.framework.plugin import Evaluator, Plugin, Refusal, Reserved, Scope, default_normalise
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.devices import DeviceAllocation, DeviceObject, DeviceRequest, DeviceShortfall
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.protocol.device import DEVICE_ALLOCATED, format_allocation, parse_allocation
from koordcore.protocol.device_object import inventory_of
from koordcore.reservations.cache import (
    Lending,
    Room,
    Rooms,
    concerns_reservations,
    ended_holders,
    holders_by_user,
)
from koordcore.snapshot import ClusterSnapshot

__all__ = ["Alignment", "Devices", "describe_allocation", "device_state"]

NOT_INCLUDED = "Insufficient GPU Devices"
NO_CARD = "no card chosen: the node has no Device object"


def device_state(snapshot: ClusterSnapshot, state: NodeState) -> NodeDevices | None:
    """Give the devices of one node with what its pods hold by their annotations.

    An annotation that cannot be read holds nothing; the loader reports it.
    """
    found = snapshot.find(DeviceObject, state.name)
    inventory = None if found is None else inventory_of(found, state.node.labels)
    holdings = {}
    for pod in state.pods:
        if DEVICE_ALLOCATED in pod.annotations:
            try:
                allocation = parse_allocation(pod.annotations)
            except ManifestError:
                continue
            if allocation is not None and allocation.devices:
                holdings[str(pod.key)] = allocation
    # What users of a reservation took of it counts once, as theirs.
    ended = ended_holders(snapshot, state.pods)
    for holder, users in holders_by_user(state.pods).items():
        held = holdings.pop(str(holder), None)
        if held is not None:
            left = remaining_devices(
                held, [holdings[str(user.key)] for user in users if str(user.key) in holdings]
            )
            if left.devices and holder not in ended:
                holdings[str(holder)] = left
    return node_devices(inventory, holdings, node=state.name)


def describe_allocation(allocation: DeviceAllocation) -> str:
    """Write an allocation on one line: ``gpu 0,1 (50%) + rdma 2``."""
    parts = []
    for kind, holdings in allocation.devices.items():
        minors = ",".join(str(holding.minor) for holding in holdings)
        shares = {
            amount for holding in holdings for name, amount in holding.resources.items() if "ratio" in name
        }
        share = f" ({min(shares)}%)" if shares and min(shares) < 100 else ""
        parts.append(f"{kind} {minors}{share}")
    return " + ".join(parts)


Masks: TypeAlias = Callable[[Rows], IntVector]
"""The NUMA nodes that a pod is held to per node, as bit masks; -1 for none."""


class Aligning(Protocol):
    """A plugin that holds device pods to NUMA nodes."""

    def masks_for(self, pod: Pod) -> Masks | None:
        """Open the answers to pods like this one; ``None`` where it has no say in them."""

    def mask_from(self, pod: Pod, room: Room, others: Sequence[Room]) -> int:
        """Give the NUMA nodes that a pod is held to out of a room, with others beside it; -1 for none."""


class Alignment:
    """Where the plugins of one workspace find the one that aligns devices with CPUs, if there is one."""

    def __init__(self, workspace: Workspace) -> None:
        del workspace
        self.plugin: Aligning | None = None

    def masks_for(self, pod: Pod) -> Masks | None:
        """Ask the aligning plugin."""
        return None if self.plugin is None else self.plugin.masks_for(pod)

    def mask_from(self, pod: Pod, room: Room, others: Sequence[Room]) -> int:
        """Ask the aligning plugin about a room."""
        return -1 if self.plugin is None else self.plugin.mask_from(pod, room, others)


def holds_devices(state: NodeDevices, room: Room) -> bool:
    """Tell whether a room has devices of its own."""
    return any(str(pod.key) in state.holdings for pod in room.holders)


def device_terms(state: NodeDevices, room: Room) -> Terms:
    """Say what a pod may use of a node's devices out of a room."""
    if room.over:
        return device_terms_over(state, [str(pod.key) for pod in room.holders])
    lent = _reservations(room)
    return terms_for(state, lent, source=None if room.together else lent[0])


def with_what_is_held(
    state: NodeDevices, room: Room, found: DeviceAllocation
) -> DeviceAllocation | DeviceShortfall:
    """Give devices that were found for a reservation with those of the pods over which it is placed."""
    held = (state.holdings.get(str(pod.key)) for pod in room.holders)
    including = including_devices(found, [one for one in held if one is not None])
    return DeviceShortfall(reasons=(NOT_INCLUDED,)) if including is None else including


def _reservations(room: Room) -> list[DeviceReservation]:
    return [
        DeviceReservation(holder=str(pod.key), policy=one.reservation.allocate_policy, matched=True)
        for pod, one in zip(room.holders, room.states, strict=True)
    ]


class DeviceEvaluator(Evaluator):
    """Filter, score and choice for one kind of pods."""

    scope = Scope.NODE
    normalises = True

    def __init__(self, plugin: Devices, pod: Pod, request: DeviceRequest) -> None:
        self._plugin = plugin
        self._pod = pod
        self._request = request

    @cached_property
    def _masks(self) -> Masks | None:
        return self._plugin.workspace.once(Alignment).masks_for(self._pod)

    def _raw(self, rows: Rows) -> IntVector:
        plugin = self._plugin
        return plugin.memo.scores(plugin.numbers()[rows], self._request, policy=plugin.policy)

    def fits(self, rows: Rows) -> BoolVector:
        fitting = self.fits_outside(rows)
        if self.lending is not None:
            rooms = self.lending.rooms(rows)
            if self.lending.required:
                # Cards of the node are no help where a reservation has to give them.
                fitting &= ~rooms.any_at(self._with_devices(rooms), len(self._plugin.states))[rows]
            fitting |= rooms.any_at(self.fits_from(rooms), len(self._plugin.states))[rows]
        return fitting

    def _with_devices(self, rooms: Rooms) -> BoolVector:
        """Tell which rooms have devices of their own."""
        found = np.zeros(len(rooms.rows), bool)
        for index in range(len(rooms.rows)):
            state = self._plugin.states[int(rooms.rows[index])]
            found[index] = state is not None and holds_devices(state, rooms.room(index))
        return found

    def fits_outside(self, rows: Rows) -> BoolVector:
        plugin = self._plugin
        return plugin.memo.fits(plugin.numbers()[rows], self._request, policy=plugin.policy)

    def fits_from(self, rooms: Rooms) -> BoolVector:
        served = self.fits_outside(rooms.rows)
        for index in range(len(rooms.rows)):
            room = rooms.room(index)
            state = self._plugin.states[room.row]
            if state is not None and holds_devices(state, room):
                served[index] = self._serves(state, room)
        return served

    def _serves(self, state: NodeDevices, room: Room) -> bool:
        policy, terms = self._plugin.policy, device_terms(state, room)
        if not room.over:
            return refusal_of(state, self._request, policy=policy, terms=terms) is None
        return not isinstance(self._out_of(state, room, terms), DeviceShortfall)

    def _out_of(self, state: NodeDevices, room: Room, terms: Terms) -> DeviceAllocation | DeviceShortfall:
        found = allocate_devices(state, self._request, policy=self._plugin.policy, terms=terms)
        if not room.over or isinstance(found, DeviceShortfall):
            return found
        return with_what_is_held(state, room, found)

    def _refusal(self, row: int) -> DeviceShortfall | None:
        plugin = self._plugin
        number = int(plugin.numbers()[row])
        return plugin.memo.refusal(number, self._request, policy=plugin.policy)

    def _each_refusal(self, rows: Rows) -> list[tuple[DeviceShortfall, BoolVector]]:
        plugin = self._plugin
        numbers = plugin.numbers()[rows]
        found = []
        for number in np.unique(numbers).tolist():
            refusal = plugin.memo.refusal(number, self._request, policy=plugin.policy)
            if refusal is not None:
                found.append((refusal, numbers == number))
        return found

    def reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        masks: dict[tuple[str, int], BoolVector] = {}
        reserved = self._reserved_refusals(rows)
        shape = self._plugin.numbers()[rows].shape
        plain = np.array([not one for one in reserved], bool)
        for refusal, mask in self._each_refusal(rows):
            for reason in refusal.reasons:
                there = masks.setdefault((reason, 0), np.zeros(shape, bool))
                there |= mask & plain
        for position, told in enumerate(reserved):
            for place, reason in enumerate(told):
                # Each reservation counts, also those that say the same.
                key = reason, told[:place].count(reason)
                masks.setdefault(key, np.zeros(shape, bool))[position] = True
        return [(reason, mask) for (reason, _), mask in masks.items()]

    def unresolvable(self, rows: Rows) -> BoolVector:
        hopeless = np.zeros(self._plugin.numbers()[rows].shape, bool)
        for refusal, mask in self._each_refusal(rows):
            if not refusal.resolvable:
                hopeless |= mask
        hopeless &= np.array([not one for one in self._reserved_refusals(rows)], bool)
        return hopeless

    def _reserved_refusals(self, rows: Rows) -> list[list[str]]:
        """Say for each node why its reservations do not serve a pod that must sit in one of them."""
        plugin = self._plugin
        numbers = np.arange(len(plugin.states))[rows].tolist()
        lending = self.lending
        if lending is None or not lending.required:
            return [[]] * len(numbers)
        told: dict[int, list[str]] = {}
        rooms = lending.rooms(rows)
        for index in range(len(rooms.rows)):
            room = rooms.room(index)
            state = plugin.states[room.row]
            if state is None or not holds_devices(state, room):
                continue
            terms = device_terms(state, room)
            found = refusal_of(state, self._request, policy=plugin.policy, terms=terms)
            if found is not None:
                told.setdefault(room.row, []).extend(f"Reservation(s) {one}" for one in found.reasons)
        return [told.get(row, []) for row in numbers]

    def shortfalls(self, row: int) -> tuple[Shortfall, ...]:
        refusal = self._refusal(row)
        return () if refusal is None else refusal.shortfalls

    def details(self, row: int) -> tuple[str, ...]:
        plugin = self._plugin
        state = plugin.states[row]
        found = None if state is None else explain_devices(state, self._request, policy=plugin.policy)
        if found is None:
            return ()
        if found.release is None:
            return found.lines
        return (*found.lines, f"without {' and '.join(found.release.holders)} it would do")

    def scores(self, rows: Rows) -> IntVector:
        raw = np.maximum(self._raw(rows), 0)
        plugin = self._plugin
        masks = None if self._masks is None else self._masks(rows)
        if masks is not None:
            # Where a topology policy holds the pod to some NUMA nodes, only their devices are scored.
            numbers = plugin.numbers()[rows]
            for mask in np.unique(masks[masks >= 0]).tolist():
                held = masks == mask
                scores = plugin.memo.scores(numbers[held], self._request, mask, policy=plugin.policy)
                raw[held] = np.maximum(scores, 0)
        if self.lending is not None:
            self._score_lent(self.lending, raw, rows, masks)
        return raw

    def _score_lent(self, lending: Lending, raw: IntVector, rows: Rows, masks: IntVector | None) -> None:
        """Score nodes out of the reservation that would serve the pod, or else as if all had left.

        One that holds no devices scores 0, as upstream has it, although the node gives the devices.
        """
        plugin = self._plugin
        rooms = lending.rooms(rows)
        lent: dict[int, list[Room]] = {row: [] for row in rooms.rows.tolist()}
        for index in range(len(rooms.rows)):
            room = rooms.room(index)
            state = plugin.states[room.row]
            if state is not None and holds_devices(state, room):
                lent[room.row].append(room)
        for position, row in enumerate(np.arange(len(plugin.states))[rows].tolist() if lent else ()):
            state = plugin.states[row]
            if row not in lent or state is None:
                continue
            nominated = lending.room_of(row)
            held = int(masks[position]) if masks is not None else -1
            if nominated is None:
                if lent[row]:
                    terms = terms_for(state, [one for room in lent[row] for one in _reservations(room)])
                    raw[position] = self._score_on(state, terms, held)
            elif not holds_devices(state, nominated):
                raw[position] = 0
            else:
                alignment = plugin.workspace.once(Alignment)
                held = alignment.mask_from(self._pod, nominated, lending.beside(nominated))
                raw[position] = self._score_on(state, device_terms(state, nominated), held)

    def _score_on(self, state: NodeDevices, terms: Terms, held: int) -> int:
        """Score one node on some terms; ``held`` are the NUMA nodes that a policy holds the pod to, or -1."""
        mask = held if held >= 0 else None
        return score_devices(state, self._request, mask, policy=self._plugin.policy, terms=terms)

    def score_from(self, room: Room) -> int:
        plugin = self._plugin
        state = plugin.states[room.row]
        if state is None or not holds_devices(state, room):
            return 0
        held = -1 if self._masks is None else int(self._masks(slice(room.row, room.row + 1))[0])
        return self._score_on(state, device_terms(state, room), held)

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        return default_normalise(raw, feasible)

    def slots(self, most: int) -> IntVector | None:
        plugin = self._plugin
        numbers = plugin.numbers()
        counts = {
            number: self._count(plugin.states[int(np.flatnonzero(numbers == number)[0])], most)
            for number in np.unique(numbers).tolist()
        }
        found: IntVector = np.array([counts[number] for number in numbers.tolist()], np.int64)
        if self.lending is not None:
            # How many fit out of reservations is found out by binding the plan.
            found[self.lending.rooms(slice(None)).rows] = most
        return found

    def _count(self, state: NodeDevices | None, most: int) -> int:
        """Take devices for one pod after another until they do not suffice."""
        if state is None:
            return most
        for taken in range(most):
            found = allocate_devices(state, self._request, policy=self._plugin.policy)
            if isinstance(found, DeviceShortfall):
                return taken
            state = state.assume(f"\0{taken}", found)
        return most

    def allocate(self, pod: Pod, row: int) -> Reserved | Shortfall | None:
        plugin = self._plugin
        state = plugin.states[row]
        if state is None:
            return Reserved(notes=(NO_CARD,))
        if str(pod.key) in state.holdings:
            return None  # taken together with CPUs and NUMA nodes
        found = plugin.memo.take(state, str(pod.key), self._request, policy=plugin.policy)
        if isinstance(found, DeviceShortfall):
            return found.shortfalls[0]
        allocation, after = found
        plugin.put(row, after)
        return self._holding(allocation)

    def allocate_from(self, pod: Pod, row: int, room: Room) -> Reserved | Shortfall | None:
        plugin = self._plugin
        state = plugin.states[row]
        if state is None or not holds_devices(state, room) or str(pod.key) in state.holdings:
            return self.allocate(pod, row)
        found = self._out_of(state, room, device_terms(state, room))
        return found.shortfalls[0] if isinstance(found, DeviceShortfall) else self._holding(found)

    def _holding(self, found: DeviceAllocation) -> Reserved:
        return Reserved({DEVICE_ALLOCATED: format_allocation(found)}, notes=(describe_allocation(found),))


class Devices(Plugin):
    """Device objects and what pods hold of them; the arguments are a :class:`DevicePolicy`."""

    name = "DeviceShare"

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.policy: DevicePolicy = args or DEFAULT_DEVICE_POLICY
        self.memo = DeviceMemo()
        self._states: list[NodeDevices | None] | None = None
        self._numbers = np.zeros(0, np.int64)
        self._read = 0

    @property
    def states(self) -> list[NodeDevices | None]:
        """Devices of every node now, by row."""
        if self._states is None:
            self._states = self.workspace.values(device_state)
            self._numbers = self.memo.numbers(self._states)
            self._read = len(self.workspace.touched)
        return self._states

    def numbers(self) -> IntVector:
        """Number of each node's state in the memo, up to date."""
        states, touched = self.states, self.workspace.touched
        for row in set(touched[self._read :]):
            self._numbers[row] = self.memo.number(states[row])
        self._read = len(touched)
        return self._numbers

    def put(self, row: int, state: NodeDevices | None) -> None:
        """Replace the devices of one node."""
        self.workspace.put(self.states, row, state)

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        if DEVICE_RESOURCES.isdisjoint(pod.requests):
            return None
        request = device_request_of(
            pod.requests, annotations=pod.annotations, labels=pod.labels, policy=self.policy
        )
        if isinstance(request, DeviceShortfall):
            return Refusal(request.reasons[0])
        return request

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return DeviceEvaluator(self, pod, request)

    def placed(self, pod: Pod, row: int) -> None:
        if concerns_reservations(pod) and DEVICE_ALLOCATED in pod.annotations:
            self._read_again(row)

    def _read_again(self, row: int) -> None:
        """Take in what the node's pods hold by their annotations: a user changes what its holder has left."""
        workspace = self.workspace
        there = NodeState(workspace.layout.nodes[row], tuple(workspace.pods_on(row).values()))
        self.put(row, device_state(workspace.snapshot, there))

    def removed(self, pod: Pod, row: int) -> None:
        if concerns_reservations(pod) and DEVICE_ALLOCATED in pod.annotations:
            self._read_again(row)
            return
        state = self.states[row]
        if state is not None and str(pod.key) in state.holdings:
            self.put(row, state.forget(str(pod.key)))
