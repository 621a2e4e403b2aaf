"""What a pod gets of a node's CPUs, NUMA nodes and devices out of a reservation, and how that is rated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from koordcore._arrays import IntMatrix, IntVector
from koordcore.allocators.device import PLAIN_TERMS
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.node import NodeAllocation, fit_node
from koordcore.allocators.node_batch import NodeVerdicts
from koordcore.allocators.numa import NodeAmounts, score_given
from koordcore.allocators.numa_align import PLAIN_ROOM, NUMARoom
from koordcore.allocators.numa_request import NUMARefusal, demand_on
from koordcore.allocators.numa_reservation import NUMAReservation, ReservationUse, room_of
from koordcore.allocators.numa_state import NO_GIVE_BACK
from koordcore.allocators.over_pods import including_numa, numa_nodes_of, numa_room_over
from koordcore.model.devices import DeviceAllocation, DeviceShortfall
from koordcore.model.numa import CPUAllocation
from koordcore.model.pods import Pod
from koordcore.model.resources import make_resources, total
from koordcore.reservations.cache import Room
from koordcore.scheduling.plugins.devices import device_terms, holds_devices, with_what_is_held
from koordcore.topology.numa import NUMATopologyPolicy

if TYPE_CHECKING:
    from koordcore.scheduling.plugins.numa import NUMAPlugin

__all__ = ["HELD", "NUMARooms", "uid_of"]

NOT_HELD: Final = "Insufficient NUMA cpu"
HELD: Final = (NUMATopologyPolicy.RESTRICTED, NUMATopologyPolicy.SINGLE_NUMA_NODE)
"""Policies that the filter looks at: their NUMA nodes are known before nodes are scored."""


def uid_of(pod: Pod) -> str:
    """Give the name under which a pod's CPUs and NUMA amounts are kept."""
    return pod.uid or str(pod.key)


class NUMARooms:
    """The rooms of reservations as the NUMA plugin sees them.

    In all of these ``others`` are the rooms beside one that the pods might use as well: what they hold
    counts as free when NUMA nodes are compared, as upstream has it, and is not drawn from.
    """

    def __init__(self, plugin: NUMAPlugin) -> None:
        self._plugin = plugin

    def fit(
        self, verdicts: NodeVerdicts, room: Room, others: Sequence[Room] = ()
    ) -> NodeAllocation | NUMARefusal:
        """Ask for everything that a kind of pods wants out of a room."""
        return self._fit(verdicts, room, self._numa_room(room, others))

    def refusal(self, verdicts: NodeVerdicts, room: Room, others: Sequence[Room] = ()) -> NUMARefusal | None:
        """Say why pods that must sit in a reservation find nothing in a room; ``None`` where they do.

        Nothing is said either where the room holds no CPUs and no NUMA amounts.
        """
        if room.over or room.together or not self._held(room):
            return None
        offered = attrs.evolve(self._numa_room(room, others), refusal="")
        answer = self._fit(verdicts, room, offered)
        return answer if isinstance(answer, NUMARefusal) else None

    def _fit(self, verdicts: NodeVerdicts, room: Room, offered: NUMARoom) -> NodeAllocation | NUMARefusal:
        devices = verdicts.table.devices_of(room.row)
        given = fit_node(
            verdicts.table.state_of(room.row),
            devices,
            verdicts.request,
            self._amounts(room),
            args=self._plugin.args,
            room=offered,
            policy=self._plugin.device_policy,
            terms=device_terms(devices, room) if devices and holds_devices(devices, room) else PLAIN_TERMS,
            covers=self._covers(room, devices),
        )
        if not room.over or isinstance(given, NUMARefusal):
            return given
        return self._including(given, room, devices)

    def score(
        self, verdicts: NodeVerdicts, room: Room, lifted: IntMatrix | None, others: Sequence[Room] = ()
    ) -> int:
        """Rate a node under a topology policy by what a pod gets there out of a room.

        Parameters
        ----------
        lifted
            ``(R, 1)``: what all reservations that the pod may use count on the node.
        """
        answer = self.fit(verdicts, room, others)
        cpu, state = verdicts.request.cpu, verdicts.table.state_of(room.row)
        demand = None if cpu is None else demand_on(cpu, state.node)
        if isinstance(answer, NUMARefusal) or demand is None or isinstance(demand, NUMARefusal):
            return 0
        status = answer.numa.status
        if demand.policy not in HELD:
            # Under BestEffort upstream scores before it chooses NUMA nodes.
            status = attrs.evolve(status, numa_node_resources=())
        offered = self._numa_room(room)
        lent = offered.fallback or NO_GIVE_BACK
        for trial in offered.trials:
            lent = trial.guard or trial.give_back
        amounts = self._amounts_at(room.row, None if lifted is None else lifted[:, 0])
        return score_given(state, demand, status, amounts, self._plugin.args, lent=lent)

    def _amounts(self, room: Room) -> NodeAmounts:
        """Give a node's amounts as a whole, with what a room lends taken off."""
        lent = total(one.available for one in room.states)
        if room.over:
            lent = total(pod.requests for pod in room.holders)
        names = self._plugin.workspace.layout.resources
        return self._amounts_at(room.row, np.array([lent.get(name, 0) for name in names], np.int64))

    def _amounts_at(self, row: int, off: IntVector | None) -> NodeAmounts:
        workspace = self._plugin.workspace
        layout, requested = workspace.layout, workspace.requested[:, row]
        if off is not None:
            requested = requested - off
        return NodeAmounts(
            make_resources({name: int(layout.allocatable[at, row]) for name, at in layout.index.items()}),
            make_resources({name: int(requested[at]) for name, at in layout.index.items()}),
        )

    def _numa_room(self, room: Room, others: Sequence[Room] = ()) -> NUMARoom:
        """Say where out of a room a pod may find CPUs and amounts."""
        if room.over:
            return numa_room_over(self._held(room))
        found = self._reserved_in(room)
        if not found:
            return PLAIN_ROOM
        if room.together:
            return room_of(found, use=ReservationUse.IGNORED)
        beside = [one for other in others for one in self._reserved_in(other)]
        return room_of([*found, *beside], nominated=found[0].uid)

    def _reserved_in(self, room: Room) -> list[NUMAReservation]:
        held = {one.uid: one for one in self._plugin.states[room.row].allocations}
        return [
            NUMAReservation(
                name=one.reservation.name,
                uid=uid_of(pod),
                matched=True,
                restricted=one.restricted,
                allocation=held[uid_of(pod)],
            )
            for pod, one in zip(room.holders, room.states, strict=True)
            if uid_of(pod) in held
        ]

    def _held(self, room: Room) -> list[CPUAllocation]:
        """Give what the holders of a room hold of CPUs and NUMA nodes."""
        uids = {uid_of(pod) for pod in room.holders}
        return [one for one in self._plugin.states[room.row].allocations if one.uid in uids]

    def _covers(self, room: Room, devices: NodeDevices | None) -> int:
        """Give the NUMA nodes on which pods hold anything that a reservation is placed over, as a mask."""
        if not room.over:
            return 0
        holders = [str(pod.key) for pod in room.holders]
        return numa_nodes_of(self._plugin.states[room.row], self._held(room), devices, holders)

    def _including(
        self, given: NodeAllocation, room: Room, devices: NodeDevices | None
    ) -> NodeAllocation | NUMARefusal:
        """Give what a reservation gets with what the pods hold over which it is placed."""
        status = including_numa(given.numa.status, self._held(room))
        if status is None:
            return NUMARefusal.because(NOT_HELD)
        cards: DeviceAllocation | DeviceShortfall | None = given.devices
        if devices is not None and given.devices is not None:
            cards = with_what_is_held(devices, room, given.devices)
        if isinstance(cards, DeviceShortfall):
            return NUMARefusal(cards.shortfalls)
        return attrs.evolve(given, numa=attrs.evolve(given.numa, status=status), devices=cards)
