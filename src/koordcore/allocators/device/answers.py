"""What the devices of nodes answer to one request, and how well they suit it; equal states are asked once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore._moved_rows import moved_rows
from koordcore._vector import Splice
from koordcore.allocators.device.allocate import (
    DeviceChoice,
    allocate_devices,
    allocation_of,
    choose_devices,
    refusal_of,
)
from koordcore.allocators.device.shape import Amounts, DeviceShape
from koordcore.allocators.device.state import NodeDevices, TypeUse
from koordcore.allocators.device.view import PLAIN_TERMS, Terms, open_amounts, score_of
from koordcore.allocators.device.wants import wants_of
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceShortfall,
    DeviceType,
)
from koordcore.topology.devices import bits

S = TypeVar("S")


class StateTable(Generic[S]):
    """The states of many nodes, each distinct one kept once; private to one call.

    Parameters
    ----------
    rows
        State of each node.
    key
        What makes two states equal.

    Attributes
    ----------
    rows
        State of each node now; nodes in equal states keep their own, with their own holders.
    ids
        ``(N,)``: number of each node's state, an index into ``states``.
    states
        Distinct states in the order in which they were met; one that no node has any more stays.

    Examples
    --------
    >>> table = StateTable(["busy", "idle", "busy"], key=str)
    >>> table.ids.tolist(), table.states
    ([0, 1, 0], ['busy', 'idle'])
    """

    def __init__(self, rows: Iterable[S], key: Callable[[S], Hashable]) -> None:
        self._key = key
        self._numbers: dict[Hashable, int] = {}
        self.states: list[S] = []
        self.rows = list(rows)
        self.ids: IntVector = np.fromiter(map(self.number, self.rows), np.int64, len(self.rows))

    def __len__(self) -> int:
        return len(self.rows)

    def number(self, state: S) -> int:
        """Give the number of a state; one that is new gets the next."""
        found = self._numbers.setdefault(self._key(state), len(self.states))
        if found == len(self.states):
            self.states.append(state)
        return found

    def put(self, row: int, state: S) -> None:
        """Replace the state of one node."""
        self.rows[row] = state
        self.ids[row] = self.number(state)

    def move(self, edits: Sequence[Splice], came: Mapping[int, S]) -> None:
        """Take nodes out and put others in, one edit after another; these are given by their rows now."""
        for at, gone, come in edits:
            self.rows[at : at + gone] = [*came.values()][:1] * come
        self.ids = moved_rows(self.ids, edits)
        for row, state in came.items():
            self.put(row, state)


def score_devices(
    state: NodeDevices | None,
    request: DeviceRequest,
    numa_mask: int | None = None,
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    terms: Terms = PLAIN_TERMS,
) -> int:
    """Score one node for a pod; raw, so that several types may add up to more than 100.

    A node about whose devices nothing is known, or which cannot serve the pod by its build, scores 0.

    Parameters
    ----------
    state, request, numa_mask, policy, terms
        As for :func:`~koordcore.allocators.device.allocate.allocate_devices`.
    """
    if state is None:
        return 0
    wants = wants_of(state.shape, request, policy)
    if isinstance(wants, DeviceShortfall):
        return 0
    score = 0
    for kind in planned_types(state.shape, request):
        want = wants[kind]
        free, allowed = open_amounts(state, want, numa_mask, terms)
        if not allowed:
            continue
        totals = want.sums if allowed == want.selected else _sums(want.shape.totals, allowed)
        if terms is PLAIN_TERMS:
            # Only devices in use have less left than their capacity.
            frees = list(totals)
            for minor in bits(allowed & state.busy[kind]):
                left, total = free[minor], want.shape.totals[minor]
                for column, _, _ in want.weights:
                    frees[column] += left[column] - total[column]
        else:
            frees = _sums(free, allowed)
        score += score_of(want, totals, frees)
    return score


def planned_types(shape: DeviceShape, request: DeviceRequest) -> tuple[DeviceType, ...]:
    """Give the types that count while nodes are ranked.

    On a node that says its secondary devices are well planned, a pod of whole cards with a joint list is
    ranked by its primary type alone. Whether the node serves the pod is always decided with all types
    (ruling 3).
    """
    whole = request.gpu is not None and not request.gpu.shared
    if shape.well_planned and whole and request.joint is not None:
        return request.joint.types[:1]
    return request.types


def _sums(amounts: Mapping[int, Amounts], minors: int) -> list[int]:
    rows = [amounts[minor] for minor in bits(minors)]
    return [sum(column) for column in zip(*rows, strict=True)]


_UNASKED = -3
_UNSCORED = -2
_REFUSED = -1


def _signature(state: NodeDevices | None) -> Hashable:
    return None if state is None else state.signature


def _signature_and_name(state: NodeDevices | None) -> Hashable:
    return None if state is None else (state.signature, state.node)


def device_table(
    states: Iterable[NodeDevices | None], *, by_name: bool = False
) -> StateTable[NodeDevices | None]:
    """Number the devices of many nodes: those of the same build, equally used, have one number.

    ``by_name`` tells nodes apart by their names as well.
    """
    return StateTable(states, key=_signature_and_name if by_name else _signature)


class _Answers:
    """Answers on one set of NUMA nodes, by the number of the state; ``scores`` also tell who refuses."""

    __slots__ = ("choices", "refusals", "scores", "uses")

    def __init__(self) -> None:
        self.choices: dict[int, DeviceChoice | DeviceShortfall] = {}
        self.uses: dict[int, tuple[TypeUse, ...]] = {}
        self.refusals: dict[int, DeviceShortfall] = {}
        self.scores: IntVector = np.zeros(0, np.int64)


class DeviceAnswers:
    """Answers of the nodes of a table to one request, alone and on sets of NUMA nodes.

    Only what is derived is remembered, so that dropping it changes no answer. What loans and victims
    lend is asked without a memory (:func:`~koordcore.allocators.device.allocate.allocate_devices`).

    Parameters
    ----------
    table
        The devices of the nodes; it may change between questions.
    request, policy
        As for :func:`~koordcore.allocators.device.allocate.allocate_devices`.
    """

    def __init__(
        self,
        table: StateTable[NodeDevices | None],
        request: DeviceRequest,
        policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    ) -> None:
        self.table = table
        self.request = request
        self.policy = policy
        self._by_mask: dict[int | None, _Answers] = {}

    def _on(self, numa_mask: int | None) -> _Answers:
        """Give the answers on a set of NUMA nodes, with room for every state that is known by now."""
        found = self._by_mask.get(numa_mask)
        if found is None:
            found = self._by_mask[numa_mask] = _Answers()
        size, known = len(self.table.states), len(found.scores)
        if known < size:
            more = np.full(max(size, 2 * known) - known, _UNASKED, np.int64)
            found.scores = np.concatenate([found.scores, more])
        return found

    def _judge(self, answers: _Answers, number: int, numa_mask: int | None) -> None:
        state = self.table.states[number]
        refusal = refusal_of(state, self.request, numa_mask, policy=self.policy)
        answers.scores[number] = _UNSCORED
        if refusal is not None:
            answers.refusals[number] = refusal
            answers.scores[number] = _REFUSED

    def _judged(self, numbers: IntVector, numa_mask: int | None) -> tuple[_Answers, IntVector]:
        answers = self._on(numa_mask)
        scores: IntVector = answers.scores[numbers]
        unasked = scores == _UNASKED
        if unasked.any():
            for number in np.unique(numbers[unasked]).tolist():
                self._judge(answers, number, numa_mask)
            scores = answers.scores[numbers]
        return answers, scores

    def fits(self, numbers: IntVector, numa_mask: int | None = None) -> BoolVector:
        """Tell which of many nodes serve the pod, by the numbers of their states: ``(n,)``."""
        served: BoolVector = self._judged(numbers, numa_mask)[1] != _REFUSED
        return served

    def scores(self, numbers: IntVector, numa_mask: int | None = None) -> IntVector:
        """Score many nodes by the numbers of their states: raw, -1 where a node does not serve: ``(n,)``."""
        answers, scores = self._judged(numbers, numa_mask)
        unscored = scores == _UNSCORED
        if unscored.any():
            for number in np.unique(numbers[unscored]).tolist():
                state = self.table.states[number]
                answers.scores[number] = score_devices(state, self.request, numa_mask, policy=self.policy)
            scores = answers.scores[numbers]
        return scores

    def rates(self, numbers: IntVector, numa_mask: int) -> IntVector:
        """Score the devices on a set of NUMA nodes, raw, also where these do not serve the pod: ``(n,)``."""
        scores = self.scores(numbers, numa_mask)
        for at in np.flatnonzero(scores == _REFUSED).tolist():
            state = self.table.states[numbers[at]]
            scores[at] = score_devices(state, self.request, numa_mask, policy=self.policy)
        return scores

    def refusal(self, number: int, numa_mask: int | None = None) -> DeviceShortfall | None:
        """Tell why a state does not serve; ``None`` where it does."""
        answers = self._on(numa_mask)
        if answers.scores[number] == _UNASKED:
            self._judge(answers, number, numa_mask)
        return answers.refusals.get(number)

    def choice(self, number: int, numa_mask: int | None = None) -> DeviceChoice | DeviceShortfall:
        """Choose the devices in a state, not in use before.

        The state must be one of known devices, and the request not one that names its devices: those are a
        node's own.
        """
        choices = self._on(numa_mask).choices
        known = choices.get(number)
        if known is None:
            state = self.table.states[number]
            assert state is not None
            known = choices[number] = choose_devices(state, self.request, numa_mask, policy=self.policy)
        return known

    def _uses(self, number: int, numa_mask: int | None, choice: DeviceChoice) -> tuple[TypeUse, ...]:
        """Say what is taken of a state once its choice is made."""
        # Of all sets of NUMA nodes that are rated by their choice one is taken: only there it matters.
        known = self._on(numa_mask).uses
        if number not in known:
            state = self.table.states[number]
            assert state is not None
            known[number] = state.with_taken(allocation_of(state, choice))
        return known[number]

    def allocate(
        self, state: NodeDevices | None, numa_mask: int | None = None
    ) -> DeviceAllocation | DeviceShortfall:
        """Choose the devices of a node, with its own ids and VFs."""
        if state is None or self.request.designated is not None:
            return allocate_devices(state, self.request, numa_mask, policy=self.policy)
        found = self.choice(self.table.number(state), numa_mask)
        return found if isinstance(found, DeviceShortfall) else allocation_of(state, found)

    def take(
        self, state: NodeDevices, pod: str, numa_mask: int | None = None
    ) -> tuple[DeviceAllocation, NodeDevices] | DeviceShortfall:
        """Choose the devices of a pod on a node, and give the node's state with them taken.

        Parameters
        ----------
        state
            Devices of the node.
        pod
            Who gets them, as holders are named.
        numa_mask
            NUMA nodes that may serve, bit by bit; ``None`` for all.
        """
        if self.request.designated is not None:
            given = self.allocate(state, numa_mask)
            return given if isinstance(given, DeviceShortfall) else (given, state.assume(pod, given))
        number = self.table.number(state)
        choice = self.choice(number, numa_mask)
        if isinstance(choice, DeviceShortfall):
            return choice
        allocation = allocation_of(state, choice)
        return allocation, state.assume(pod, allocation, self._uses(number, numa_mask, choice))
