"""DeviceShare: GPUs, NICs and other devices of one pod, and what the vendors' device plugins say to it.

A device plugin that cannot serve a pod, or serves another one just now, is found out by upstream while it
binds; here the filter says so (ruling 23).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.device import NodeDevices, allocate_devices, explain_devices
from koordcore.allocators.device.shape import DeviceShape
from koordcore.allocators.device.wants import fill_memory
from koordcore.allocators.joint.together import most_together
from koordcore.errors import ModelError
from koordcore.framework.evaluator import LEAVING, Evaluator, Scope
from koordcore.framework.node_view import NodeView
from koordcore.framework.sources import Loan, Loans
from koordcore.model.decisions import Shortfall
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    GPU_MEMORY,
    DeviceShortfall,
    DeviceType,
)
from koordcore.model.numa import OF_LOAN
from koordcore.model.pods import PodKey
from koordcore.protocol.device_plugins import LOCKS, adapts, lock_blocks, plugin_refusal
from koordcore.scheduling.plugins.exact.question import Question
from koordcore.scheduling.plugins.exact.reserved import (
    ExactLoans,
    device_terms,
    had_devices,
    holds_devices,
    terms_of_all,
)
from koordcore.scheduling.plugins.exact.states import ExactStates
from koordcore.scoring.resources import default_normalise


class DeviceEvaluator(Evaluator):
    """Filter and score of one kind of pods under the name DeviceShare."""

    scope = Scope.NODE
    normalises = True
    rates_loans = True

    def __init__(self, question: Question, loans: ExactLoans, vendors: VendorPlugins) -> None:
        assert question.devices is not None
        assert question.request.devices is not None
        self._question = question
        self._loans = loans
        self._states = question.states
        self._devices = question.devices
        self._request = question.request.devices
        self._vendors = vendors

    def _ids(self, rows: Rows) -> IntVector:
        """Give the number of the state that the devices of each node are in."""
        self._states.update()
        ids: IntVector = self._devices.table.ids[rows]
        return ids

    def fits(self, view: NodeView) -> BoolVector:
        served = self._served(view)
        locked = self._vendors.refused(view.numbers)
        return served if locked is None else served & ~locked

    def _served(self, view: NodeView) -> BoolVector:
        served = self._devices.fits(self._ids(view.rows))
        if view.drawn is not None:
            for index in np.flatnonzero(self._with_devices(view.drawn)).tolist():
                served[index] = self._loans.serves_devices(self._question, view.drawn.loan(index))
            return served
        loans = view.loans
        if loans is not None:
            if view.required:
                # Cards of the node are no help where a loan has to give them.
                served &= ~view.where_any(loans, self._with_devices(loans))
            served |= view.where_any(loans, self._served(view.inside(loans)))
        return served

    def _with_devices(self, loans: Loans) -> BoolVector:
        """Tell which loans were given devices, also where those who draw from them have all of them."""
        states = self._states.devices
        every = (loans.loan(index) for index in range(len(loans.rows)))
        found = (
            states[loan.row] is not None and (had_devices(loan) or holds_devices(states[loan.row], loan))
            for loan in every
        )
        return np.fromiter(found, np.bool_)

    def _each_refusal(self, rows: Rows) -> list[tuple[DeviceShortfall, BoolVector]]:
        numbers = self._ids(rows)
        each = ((number, self._devices.refusal(number)) for number in np.unique(numbers).tolist())
        return [(refusal, numbers == number) for number, refusal in each if refusal is not None]

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        masks: dict[tuple[str, int], BoolVector] = {}
        refused = [
            [locked] if locked else reasons
            for reasons, locked in zip(
                self._refusals(view), self._vendors.refusals(view.numbers), strict=True
            )
        ]
        plain = np.array([not one for one in refused], bool)
        for refusal, mask in self._each_refusal(view.rows):
            for reason in refusal.messages:
                there = masks.setdefault((reason, 0), np.zeros(len(plain), bool))
                there |= mask & plain
        for position, reasons in enumerate(refused):
            for place, reason in enumerate(reasons):
                # Each loan counts, also those that say the same.
                key = reason, reasons[:place].count(reason)
                masks.setdefault(key, np.zeros(len(plain), bool))[position] = True
        return [(reason, mask) for (reason, _), mask in masks.items()]

    def unresolvable(self, view: NodeView) -> BoolVector:
        unresolvable = np.zeros(self._ids(view.rows).shape, bool)
        for refusal, mask in self._each_refusal(view.rows):
            if not refusal.resolvable:
                unresolvable |= mask
        unresolvable &= [not one for one in self._refusals(view)]
        unresolvable |= [bool(one) for one in self._vendors.refusals(view.numbers)]
        return unresolvable

    def _refusals(self, view: NodeView) -> list[list[str]]:
        """Say for each node why its loans do not serve a pod that must draw from one of them."""
        numbers = view.numbers.tolist()
        loans = view.loans
        if loans is None or not view.required:
            return [[]] * len(numbers)
        reasons: dict[int, list[str]] = {}
        for index in np.flatnonzero(self._with_devices(loans)).tolist():
            loan = loans.loan(index)
            found = self._loans.device_refusal(self._question, loan)
            if found is not None:
                reasons.setdefault(loan.row, []).extend(OF_LOAN + one for one in found.reasons)
        return [reasons.get(row, []) for row in numbers]

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        locked = self._vendors.refusal(view.row)
        if locked:
            return (Shortfall(locked, resolvable=False),)
        refusal = self._devices.refusal(int(self._ids(view.rows)[0]))
        return () if refusal is None else refusal.shortfalls

    def details(self, view: NodeView) -> tuple[str, ...]:
        state = self._states.devices[view.row]
        if state is None:
            return ()
        found = explain_devices(state, self._request, policy=self._question.args.devices)
        if found is None:
            return ()
        if found.release is None:
            return found.lines
        return (*found.lines, f"{LEAVING}{' and '.join(found.release.holders)} it would do")

    def scores(self, view: NodeView) -> IntVector:
        numbers = self._ids(view.rows)
        raw = np.maximum(self._devices.scores(numbers), 0)
        masks = self._question.masks(view.rows)
        if masks is not None:
            # Where a topology policy holds the pod to some NUMA nodes, only their devices are scored.
            for mask in np.unique(masks[masks >= 0]).tolist():
                held = masks == mask
                raw[held] = self._devices.rates(numbers[held], mask)
        if view.drawn is not None:
            for index in range(len(view.drawn.rows)):
                raw[index] = self._inside(view.drawn.loan(index), masks[index] if masks is not None else -1)
        elif view.loans is not None:
            self._score_drawn(view, view.loans, raw, masks)
        return raw

    def _inside(self, loan: Loan, mask: int) -> int:
        """Score what a loan has of devices, 0 where it has none."""
        state = self._states.devices[loan.row]
        if state is None or not holds_devices(state, loan):
            return 0
        return self._loans.score_devices(self._question, loan.row, device_terms(state, loan), mask)

    def _score_drawn(self, view: NodeView, loans: Loans, raw: IntVector, masks: IntVector | None) -> None:
        """Score nodes out of the loan that would serve the pod, or else as if all had left.

        One that was made without devices scores 0, as upstream has it, although the node gives the devices.
        """
        question = self._question
        lent: dict[int, list[Loan]] = {row: [] for row in loans.rows.tolist()}
        for index in np.flatnonzero(self._with_devices(loans)).tolist():
            loan = loans.loan(index)
            lent[loan.row].append(loan)
        for position, row in enumerate(view.numbers.tolist() if lent else ()):
            state = self._states.devices[row]
            if row not in lent or state is None:
                continue
            nominated = view.drawn_from(row)
            if nominated is None or nominated.together:
                if lent[row]:
                    held = int(masks[position]) if masks is not None else -1
                    terms = terms_of_all(state, lent[row])
                    raw[position] = self._loans.score_devices(question, row, terms, held)
            elif not holds_devices(state, nominated):
                # With all of its devices in use it serves as the node does.
                raw[position] *= had_devices(nominated)
            else:
                raw[position] = self._inside(
                    nominated, self._loans.mask(question, nominated, view.beside(nominated))
                )

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        return default_normalise(raw, feasible)

    def slots(self, view: NodeView, most: int) -> IntVector | None:
        numbers = self._ids(view.rows)
        states = self._devices.table.states
        self.undercounts = False
        counts = {number: self._count(states[number], most) for number in np.unique(numbers).tolist()}
        found: IntVector = np.array([counts[number] for number in numbers.tolist()], np.int64)
        loans = view.loans
        if loans is not None:
            # How many fit out of loans is found out by binding the plan.
            found[view.where_any(loans, np.ones(len(loans.rows), bool))] = most
        return found

    def _count(self, state: NodeDevices | None, most: int) -> int:
        """Take devices for one pod after another until they do not suffice; then look for room for more."""
        if state is None:
            return most
        start = state
        for taken in range(most):
            found = allocate_devices(state, self._request, policy=self._question.args.devices)
            if isinstance(found, DeviceShortfall):
                policy = self._question.args.devices
                if not taken:
                    return 0
                number, proven = most_together(start, self._request, taken, most, policy)
                self.undercounts = self.undercounts or not proven
                return number
            state = state.assume(f"\0{taken}", found)
        return most


class VendorPlugins:
    """What device plugins answer to one kind of pods; most clusters have none that answers anything."""

    def __init__(self, states: ExactStates, request: DeviceRequest, policy: DevicePolicy) -> None:
        self._states = states
        self._request = request
        self._policy = policy
        asks = request.gpu is not None
        self._rows = states.locking_rows if asks else frozenset[int]()
        self._known: dict[DeviceShape, str] = {}

    def refused(self, numbers: IntVector) -> BoolVector | None:
        """Tell at which nodes, ``(n,)``, the pod cannot be served; ``None`` where no plugin has a say."""
        if not self._rows:
            return None
        return np.array([bool(one) for one in self.refusals(numbers)], np.bool_)

    def refusals(self, numbers: IntVector) -> list[str]:
        """Say for each node why the pod cannot be served; empty where it can."""
        rows = numbers.tolist()
        return [self.refusal(row) for row in rows] if self._rows else [""] * len(rows)

    def refusal(self, row: int) -> str:
        """Say why the plugin of a node does not serve the pod now; empty where it does."""
        if row not in self._rows:
            return ""
        state = self._states.devices[row]
        if state is None or not adapts(self._policy.adapt_plugins, state.shape.vendor, {}):
            return ""
        known = self._known.get(state.shape)
        if known is None:
            known = self._known[state.shape] = self._unserved(state.shape)
        return known or self._locked(row, state.shape.vendor)

    def _unserved(self, shape: DeviceShape) -> str:
        gpu, cards = self._request.gpu, shape.types.get(DeviceType.GPU)
        if gpu is None or cards is None:
            return ""
        totals = [dict(zip(cards.names, each, strict=True)) for each in cards.totals.values() if any(each)]
        least = min(totals, key=lambda one: one.get(GPU_MEMORY, 0), default={})
        return plugin_refusal(shape.vendor, gpu.count, fill_memory(gpu.per_device, least))

    def _locked(self, row: int, vendor: str) -> str:
        workspace = self._states.workspace
        node = workspace.layout.nodes[row]
        value = node.annotations.get(LOCKS[vendor], "")
        if not value:
            return ""
        holder = PodKey(*(*value.split(","), "", "")[1:3])
        pod = workspace.snapshot.pod(holder)
        there = pod is not None and not pod.finished
        try:
            # Without a time of the call a lock lasts as long as its pod.
            blocks = (
                there if workspace.now is None else lock_blocks(value, now=workspace.now, holder_exists=there)
            )
        except ModelError as error:
            return f"lock of the device plugin of {vendor}: {error}"
        return (
            f"node is locked for {holder} until the device plugin of {vendor} has served it" if blocks else ""
        )
