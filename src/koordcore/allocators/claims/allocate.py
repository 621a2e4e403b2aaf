"""Claims of a pod on a node: the one entry of the room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from koordcore._cpsat import Outcome
from koordcore.allocators.claims.exact.options import keep_options
from koordcore.allocators.claims.exact.question import Answer, Question, make_question
from koordcore.allocators.claims.exact.search import answer_question
from koordcore.allocators.claims.exact.sparing import spare_conditional
from koordcore.allocators.claims.first_fit import FirstFit, OutOfSteps
from koordcore.allocators.claims.guided import guided_first_fit
from koordcore.allocators.claims.outcome import (
    OF_SELECTORS,
    ClaimError,
    ClaimErrorKind,
    ClaimOutcome,
    ClaimsAllocated,
    ClaimsRefused,
)
from koordcore.allocators.claims.refusal import claim_shortfalls
from koordcore.allocators.claims.requests import ClaimForms, Form, read_claims
from koordcore.allocators.claims.results import Choice, allocation_of, choice_of
from koordcore.allocators.claims.room import Room
from koordcore.allocators.claims.table import DeviceTable
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, Limits
from koordcore.model.claims import AllocationMode, ClaimAllocation, DeviceClass, ResourceClaim
from koordcore.model.proofs import Leaf, LinearEvidence, LinearProblem, LinearStage

_STEPS: Final = 3_000
"""Steps of the reference's search before the exact one is asked."""
_MOST_STEPS: Final = 300_000
"""Steps where only the reference's search can tell the answer, because it may end in an error."""


def allocate_claims(
    room: Room,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    mode: AllocationMode = AllocationMode.EXACT,
    limits: Limits = DEFAULT_LIMITS,
) -> ClaimOutcome:
    """Allocate all claims of a pod together on a node.

    Parameters
    ----------
    room
        What is left of the node's devices.
    claims
        Claims without an allocation, in the order of the pod.
    classes
        DeviceClasses by name.
    mode
        Which legal allocation is taken.
    limits
        Budget of the solver, for what counting does not decide.

    Returns
    -------
    ClaimsAllocated, ClaimsRefused or ClaimError
        A refusal is a proof. An error says that an object is wrong, or (``TIMEOUT``) that the budget ended.
    """
    chosen = choose_devices(room, claims, classes, mode=mode, limits=limits)
    if isinstance(chosen, ClaimsRefused):
        return ClaimsRefused(claim_shortfalls(room, claims, classes, limits=limits))
    if isinstance(chosen, ClaimError):
        return chosen
    table = room.table
    allocations: list[ClaimAllocation] = []
    for choice, claim in zip(chosen, claims, strict=True):
        allocation = allocation_of(table.pools, table.shareable, choice, claim, classes)
        if isinstance(allocation, ClaimError):
            return allocation
        allocations.append(allocation)
    certificate = _certificate(room, chosen) if mode is AllocationMode.EXACT else None
    return ClaimsAllocated(tuple(allocations), certificate)


def choose_devices(
    room: Room,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    *,
    mode: AllocationMode = AllocationMode.EXACT,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Choice, ...] | ClaimsRefused | ClaimError:
    """Choose the devices of all claims of a pod, by their places on the node; names do not matter.

    The arguments are those of :func:`allocate_claims`, which writes the choice down as well, or says what is
    lacking.

    Parameters
    ----------
    room
        What the node has, and what is held of it.
    claims
        Of one pod, in their order.
    classes
        Device classes by name.
    mode
        Exact, or first fit as upstream does it.
    limits
        Budget of the exact search.
    """
    return choose_forms(room, read_for(room.table, claims, classes, mode), mode=mode, limits=limits)


def read_for(
    table: DeviceTable,
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    mode: AllocationMode,
) -> tuple[ClaimForms, ...] | ClaimError:
    """Read the claims of a pod against devices, whoever holds them, as a mode has it."""
    return read_claims(table, claims, classes, as_reference=mode is AllocationMode.FIRST_FIT)


def choose_forms(
    room: Room,
    forms: tuple[ClaimForms, ...] | ClaimError,
    *,
    mode: AllocationMode = AllocationMode.EXACT,
    limits: Limits = DEFAULT_LIMITS,
) -> tuple[Choice, ...] | ClaimsRefused | ClaimError:
    """Choose the devices of claims that :func:`read_for` has read against the same devices.

    Parameters
    ----------
    room
        What the node has, and what is held of it.
    forms
        The claims as they were read, or what is wrong with them.
    mode, limits
        As for :func:`choose_devices`.
    """
    if isinstance(forms, ClaimError):
        return forms
    chosen = (
        _first_fit(room, forms, limits) if mode is AllocationMode.FIRST_FIT else _exact(room, forms, limits)
    )
    if chosen is None:
        unsettled = next((one.unsettled for one in _every_form(forms) if one.unsettled is not None), None)
        if unsettled is not None:
            return unsettled
        if any(pool.invalid for pool in room.table.pools.pools):
            text = "invalid resource pools were encountered"
            return ClaimError(ClaimErrorKind.INVALID_POOL, text, on_node=True)
        return ClaimsRefused()
    return chosen


_PASSED_OVER: Final = OF_SELECTORS | {ClaimErrorKind.ALL_CONSTRAINT}
"""Errors of the reference that end its search although something may fit."""
_TIMEOUT: Final = ClaimError(ClaimErrorKind.TIMEOUT, "timed out trying to allocate devices", on_node=True)


def _first_fit(
    room: Room, forms: tuple[ClaimForms, ...], limits: Limits
) -> tuple[Choice, ...] | ClaimError | None:
    try:
        return FirstFit(room, forms, steps=_STEPS).run()
    except OutOfSteps:
        pass
    if _may_err(forms):
        question = make_question(room, forms)
        if question.fault is None and answer_question(question, limits) is None:
            return None
        try:
            return FirstFit(room, forms, steps=_MOST_STEPS).run()
        except OutOfSteps:
            return _TIMEOUT
    found = guided_first_fit(room, forms, limits)
    return _TIMEOUT if isinstance(found, Outcome) else found


def _every_form(forms: Sequence[ClaimForms]) -> list[Form]:
    return [form for claim in forms for request in claim.requests for form in request]


def _may_err(forms: Sequence[ClaimForms]) -> bool:
    """Tell whether the reference's search can meet an error, so that the order of its steps matters."""
    return any(
        form.faults
        or form.spec.derived_attributes
        or (form.every and any(form.named(one.requests) for one in forms[form.claim].constraints))
        for form in _every_form(forms)
    )


def _left_out(forms: Sequence[ClaimForms]) -> ClaimError | None:
    """Give the error of the first device that is left out of a set of all: no search comes to it."""
    every = (form for form in _every_form(forms) if form.every)
    faults = (form.faults[device] for form in every for device in sorted(form.faults))
    return next((one for one in faults if one.kind in OF_SELECTORS), None)


def _exact(
    room: Room, forms: tuple[ClaimForms, ...], limits: Limits
) -> tuple[Choice, ...] | ClaimError | None:
    question = make_question(room, forms)
    fault = question.fault
    if fault is not None:
        left_out = _left_out(forms)
        # Devices on which a selector fails are left out as long as others serve. What cannot be counted or
        # derived is the answer where the reference would have stumbled over it, and only there.
        try:
            first = FirstFit(room, forms, steps=_STEPS).run()
        except OutOfSteps:
            pass
        else:
            if isinstance(first, ClaimError) and first.kind not in _PASSED_OVER:
                return first
            if fault.kind not in _PASSED_OVER:
                fault = first if isinstance(first, ClaimError) and first.kind in OF_SELECTORS else left_out
    answer = answer_question(question, limits)
    if isinstance(answer, Outcome):
        return _TIMEOUT
    if answer is None:
        return fault
    return _choices(question, forms, keep_options(question, spare_conditional(question, answer, limits)))


def _choices(question: Question, forms: Sequence[ClaimForms], answer: Answer) -> tuple[Choice, ...]:
    by_claim: list[list[int]] = [[] for _ in forms]
    for request, claim in enumerate(question.claims):
        by_claim[claim].append(request)
    return tuple(
        choice_of(claim, [answer.wishes[r].form for r in mine], [answer.devices[r] for r in mine])
        for claim, mine in zip(forms, by_claim, strict=True)
    )


def _certificate(room: Room, chosen: Sequence[Choice]) -> Certificate:
    ranks = [
        (form.index, len(forms) - 1)
        for choice in chosen
        for form, forms in zip(choice.forms, choice.claim.requests, strict=True)
        if len(forms) > 1
    ]
    places = tuple(place for place, _ in ranks)
    conditional = sum(
        room.table.conditional >> taken.device & 1 for choice in chosen for taken in choice.taken
    )
    if conditional:
        return Certificate.make_bounded((*places, conditional), (*places, 0))
    if any(places):
        return Certificate.make_proven((*places, 0))
    return _nothing_below((*(last for _, last in ranks), sum(len(choice.taken) for choice in chosen)))


def _nothing_below(most: tuple[int, ...]) -> Certificate:
    """Certify that every part is 0: each of them counts something, and may be as much as is said."""
    nothing = (0,) * len(most)
    stages = tuple(LinearStage(((part, 1),)) for part in range(len(most)))
    problem = LinearProblem(lower=nothing, upper=most, rows=(), stages=stages)
    return Certificate.make_proven(nothing, problem, LinearEvidence(nothing, (Leaf((), 1),) * len(most)))
