"""DeviceShare: GPUs, NICs and other devices of one pod."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.device import NodeDevices, allocate_devices, explain_devices
from koordcore.framework.plugin import Evaluator, Scope, default_normalise
from koordcore.model.decisions import Shortfall
from koordcore.model.devices import DeviceShortfall
from koordcore.reservations.cache import Lending, Room, Rooms
from koordcore.scheduling.plugins.exact.question import Question
from koordcore.scheduling.plugins.exact.rooms import (
    ExactRooms,
    device_terms,
    had_devices,
    holds_devices,
    terms_of_all,
)

__all__ = ["DeviceEvaluator"]


class DeviceEvaluator(Evaluator):
    """Filter and score of one kind of pods under the name DeviceShare."""

    scope = Scope.NODE
    normalises = True

    def __init__(self, question: Question, rooms: ExactRooms) -> None:
        assert question.devices is not None
        assert question.request.devices is not None
        self._question = question
        self._rooms = rooms
        self._states = question.states
        self._devices = question.devices
        self._request = question.request.devices
        self._number = len(question.states.workspace.layout.names)

    def _ids(self, rows: Rows) -> IntVector:
        """Give the number of the state that the devices of each node are in."""
        self._states.update()
        ids: IntVector = self._devices.table.ids[rows]
        return ids

    def fits(self, rows: Rows) -> BoolVector:
        fitting = self.fits_outside(rows)
        if self.lending is not None:
            rooms = self.lending.rooms(rows)
            if self.lending.required:
                # Cards of the node are no help where a reservation has to give them.
                fitting &= ~rooms.any_at(self._with_devices(rooms), self._number)[rows]
            fitting |= rooms.any_at(self.fits_from(rooms), self._number)[rows]
        return fitting

    def _with_devices(self, rooms: Rooms) -> BoolVector:
        """Tell which rooms were given devices, also where their users have all of them."""
        states = self._states.devices
        every = (rooms.room(index) for index in range(len(rooms.rows)))
        found = (
            states[room.row] is not None and (had_devices(room) or holds_devices(states[room.row], room))
            for room in every
        )
        return np.fromiter(found, np.bool_)

    def fits_outside(self, rows: Rows) -> BoolVector:
        return self._devices.fits(self._ids(rows))

    def fits_from(self, rooms: Rooms) -> BoolVector:
        served = self.fits_outside(rooms.rows)
        for index in np.flatnonzero(self._with_devices(rooms)).tolist():
            served[index] = self._rooms.serves_devices(self._question, rooms.room(index))
        return served

    def _each_refusal(self, rows: Rows) -> list[tuple[DeviceShortfall, BoolVector]]:
        numbers = self._ids(rows)
        each = ((number, self._devices.refusal(number)) for number in np.unique(numbers).tolist())
        return [(refusal, numbers == number) for number, refusal in each if refusal is not None]

    def reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        masks: dict[tuple[str, int], BoolVector] = {}
        reserved = self._reserved_refusals(rows)
        shape = self._ids(rows).shape
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
        hopeless = np.zeros(self._ids(rows).shape, bool)
        for refusal, mask in self._each_refusal(rows):
            if not refusal.resolvable:
                hopeless |= mask
        hopeless &= [not one for one in self._reserved_refusals(rows)]
        return hopeless

    def _reserved_refusals(self, rows: Rows) -> list[list[str]]:
        """Say for each node why its reservations do not serve a pod that must sit in one of them."""
        numbers = np.arange(self._number)[rows].tolist()
        lending = self.lending
        if lending is None or not lending.required:
            return [[]] * len(numbers)
        told: dict[int, list[str]] = {}
        rooms = lending.rooms(rows)
        for index in np.flatnonzero(self._with_devices(rooms)).tolist():
            room = rooms.room(index)
            found = self._rooms.device_refusal(self._question, room)
            if found is not None:
                told.setdefault(room.row, []).extend(f"Reservation(s) {one}" for one in found.reasons)
        return [told.get(row, []) for row in numbers]

    def shortfalls(self, row: int) -> tuple[Shortfall, ...]:
        refusal = self._devices.refusal(int(self._ids(slice(row, row + 1))[0]))
        return () if refusal is None else refusal.shortfalls

    def details(self, row: int) -> tuple[str, ...]:
        state = self._states.devices[row]
        if state is None:
            return ()
        found = explain_devices(state, self._request, policy=self._question.args.devices)
        if found is None:
            return ()
        if found.release is None:
            return found.lines
        return (*found.lines, f"without {' and '.join(found.release.holders)} it would do")

    def scores(self, rows: Rows) -> IntVector:
        numbers = self._ids(rows)
        raw = np.maximum(self._devices.scores(numbers), 0)
        masks = self._question.masks(rows)
        if masks is not None:
            # Where a topology policy holds the pod to some NUMA nodes, only their devices are scored.
            for mask in np.unique(masks[masks >= 0]).tolist():
                held = masks == mask
                raw[held] = self._devices.rates(numbers[held], mask)
        if self.lending is not None:
            self._score_lent(self.lending, raw, rows, masks)
        return raw

    def _score_lent(self, lending: Lending, raw: IntVector, rows: Rows, masks: IntVector | None) -> None:
        """Score nodes out of the reservation that would serve the pod, or else as if all had left.

        One that was made without devices scores 0, as upstream has it, although the node gives the devices.
        """
        question, rated = self._question, self._rooms.score_devices
        rooms = lending.rooms(rows)
        lent: dict[int, list[Room]] = {row: [] for row in rooms.rows.tolist()}
        for index in np.flatnonzero(self._with_devices(rooms)).tolist():
            room = rooms.room(index)
            lent[room.row].append(room)
        for position, row in enumerate(np.arange(self._number)[rows].tolist() if lent else ()):
            state = self._states.devices[row]
            if row not in lent or state is None:
                continue
            nominated = lending.room_of(row)
            held = int(masks[position]) if masks is not None else -1
            if nominated is None:
                if lent[row]:
                    raw[position] = rated(question, row, terms_of_all(state, lent[row]), held)
            elif not holds_devices(state, nominated):
                # With all of its devices in use it serves as the node does.
                raw[position] *= had_devices(nominated)
            else:
                held = self._rooms.mask(question, nominated, lending.beside(nominated))
                raw[position] = rated(question, row, device_terms(state, nominated), held)

    def score_from(self, room: Room) -> int:
        state = self._states.devices[room.row]
        if state is None or not holds_devices(state, room):
            return 0
        masks = self._question.masks(slice(room.row, room.row + 1))
        held = -1 if masks is None else int(masks[0])
        return self._rooms.score_devices(self._question, room.row, device_terms(state, room), held)

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        return default_normalise(raw, feasible)

    def slots(self, most: int) -> IntVector | None:
        numbers = self._ids(slice(None))
        states = self._devices.table.states
        counts = {number: self._count(states[number], most) for number in np.unique(numbers).tolist()}
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
            found = allocate_devices(state, self._request, policy=self._question.args.devices)
            if isinstance(found, DeviceShortfall):
                return taken
            state = state.assume(f"\0{taken}", found)
        return most
