"""What was worked out about states of devices, so that equal states are judged once.

In a large cluster most nodes are of few builds and few states of use. A :class:`DeviceMemo` numbers the
states that it meets; a caller keeps one number per node, and every question about all nodes becomes a
look-up by number.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import NDArray

from koordcore.allocators.device.allocate import (
    Outline,
    allocate_devices,
    outline_devices,
    refusal_of,
    write_outline,
)
from koordcore.allocators.device.scoring import score_devices
from koordcore.allocators.device.state import NodeDevices, Signature, TypeUse
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.devices import DeviceAllocation, DeviceRequest, DeviceShortfall

__all__ = ["DeviceMemo"]

IntVector = NDArray[np.int64]
BoolVector = NDArray[np.bool_]

_REFUSED = -1
_UNSCORED = -2


class _Verdicts:
    """Answers to one request, by the number of the state; ``scores`` also tell who refuses."""

    __slots__ = ("choices", "known", "refusals", "scores")

    def __init__(self) -> None:
        self.choices: dict[int, tuple[Outline, tuple[TypeUse, ...]] | DeviceShortfall] = {}
        self.known = np.zeros(0, np.bool_)
        self.scores = np.zeros(0, np.int64)
        self.refusals: dict[int, DeviceShortfall] = {}

    def grow(self, size: int) -> None:
        more = max(size, 2 * len(self.known)) - len(self.known)
        self.known = np.concatenate([self.known, np.zeros(more, np.bool_)])
        self.scores = np.concatenate([self.scores, np.full(more, _UNSCORED, np.int64)])


class DeviceMemo:
    """Remembers derived values only: dropping it changes no answer, and sharing it is safe within one thread.

    Examples
    --------
    >>> memo = DeviceMemo()
    >>> memo.number(None)
    0
    """

    def __init__(self) -> None:
        self._numbers: dict[Signature | None, int] = {}
        self._states: list[NodeDevices | None] = []
        self._verdicts: dict[Hashable, _Verdicts] = {}

    def number(self, state: NodeDevices | None) -> int:
        """Number a state; equal states of equal builds have one number."""
        key = None if state is None else state.signature
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._states)
            self._states.append(state)
        return found

    def numbers(self, states: Iterable[NodeDevices | None]) -> IntVector:
        """Number the states of many nodes, in their order."""
        known, found = self._numbers, []
        for state in states:
            number = known.get(None if state is None else state.signature)
            found.append(self.number(state) if number is None else number)
        return np.array(found, np.int64)

    def _answers(
        self, numbers: IntVector, request: DeviceRequest, numa_mask: int | None, policy: DevicePolicy
    ) -> _Verdicts:
        verdicts = self._verdicts_on(request, numa_mask, policy)
        if len(verdicts.known) < len(self._states):
            verdicts.grow(len(self._states))
        known = verdicts.known[numbers]
        if not known.all():
            for number in np.unique(numbers[~known]).tolist():
                state = self._states[number]
                refusal = refusal_of(state, request, numa_mask, policy=policy)
                if refusal is not None:
                    verdicts.refusals[number] = refusal
                    verdicts.scores[number] = _REFUSED
                verdicts.known[number] = True
        return verdicts

    def take(
        self,
        state: NodeDevices,
        pod: str,
        request: DeviceRequest,
        *,
        policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    ) -> tuple[DeviceAllocation, NodeDevices] | DeviceShortfall:
        """Choose the devices of a pod on one node, and give the node's state with them taken.

        The choice is that of :func:`~koordcore.allocators.device.allocate.allocate_devices`; in equal states
        it is made once.
        """
        if request.designated is not None:
            found = allocate_devices(state, request, policy=policy)
            return found if isinstance(found, DeviceShortfall) else (found, state.assume(pod, found))
        number = self.number(state)
        choices = self._verdicts_on(request, None, policy).choices
        known = choices.get(number)
        if known is None:
            known = choices[number] = self._choose(self._states[number] or state, request, policy)
        if isinstance(known, DeviceShortfall):
            return known
        outline, uses = known
        allocation = write_outline(state, outline)
        return allocation, state.assume(pod, allocation, uses)

    @staticmethod
    def _choose(
        state: NodeDevices, request: DeviceRequest, policy: DevicePolicy
    ) -> tuple[Outline, tuple[TypeUse, ...]] | DeviceShortfall:
        outline = outline_devices(state, request, policy=policy)
        if isinstance(outline, DeviceShortfall):
            return outline
        return outline, state.with_taken(write_outline(state, outline))

    def _verdicts_on(self, request: DeviceRequest, numa_mask: int | None, policy: DevicePolicy) -> _Verdicts:
        key = (request, numa_mask, policy)
        verdicts = self._verdicts.get(key)
        if verdicts is None:
            verdicts = self._verdicts[key] = _Verdicts()
        return verdicts

    def scores(
        self,
        numbers: IntVector,
        request: DeviceRequest,
        numa_mask: int | None = None,
        *,
        policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    ) -> IntVector:
        """Score many nodes by the numbers of their states: raw scores, -1 where the node does not serve.

        Parameters
        ----------
        numbers
            One per node, shape (N,).

        Returns
        -------
        IntVector
            Shape (N,).
        """
        known = self._answers(numbers, request, numa_mask, policy).scores
        scores: IntVector = known[numbers]
        unscored = scores == _UNSCORED
        if unscored.any():
            for number in np.unique(numbers[unscored]).tolist():
                known[number] = score_devices(self._states[number], request, numa_mask, policy=policy)
            scores = known[numbers]
        return scores

    def fits(
        self,
        numbers: IntVector,
        request: DeviceRequest,
        numa_mask: int | None = None,
        *,
        policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    ) -> BoolVector:
        """Tell which of many nodes serve a pod, shape (N,)."""
        served: BoolVector = self._answers(numbers, request, numa_mask, policy).scores[numbers] != _REFUSED
        return served

    def refusal(
        self,
        number: int,
        request: DeviceRequest,
        numa_mask: int | None = None,
        *,
        policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    ) -> DeviceShortfall | None:
        """Tell why a state does not serve; ``None`` where it does."""
        verdicts = self._answers(np.array([number], np.int64), request, numa_mask, policy)
        return verdicts.refusals.get(number)
