"""DynamicResources: nodes on which the ResourceClaims of a pod can be allocated, all of them together.

The filter and the choice are one question, asked once for all nodes whose devices are in the same state
(:mod:`koordcore.allocators.claims.states`). A claim that is allocated already keeps the pod to where its
devices can be used; one that several pods name is allocated with the first of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.claims.outcome import ClaimError, ClaimsRefused
from koordcore.framework.cluster_changes import ClusterChanges
from koordcore.framework.evaluator import Evaluator, Refusal, Reserved, Scope
from koordcore.framework.extended_resources import asks_for_served, served_by_classes
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import (
    MAX_CONSUMERS,
    ClaimAllocation,
    ClaimArgs,
    ClaimSpec,
    DeviceClass,
    DeviceTaintRule,
    HeldClaim,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from koordcore.model.decisions import PodDecision, Shortfall
from koordcore.model.pods import Pod
from koordcore.protocol.claims import ClaimProblem
from koordcore.scoring.labels import fit_selector
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.claim_records import with_claims

if TYPE_CHECKING:
    # What allocates claims is read for the first pod that has some.
    from koordcore.allocators.claims.states import Answers
    from koordcore.scheduling.plugins.claim_ledger import ClaimKey, ClaimLedger

REASON_CANNOT: Final = "cannot allocate all claims"
REASON_ELSEWHERE: Final = "resourceclaim not available on the node"
_BEST_PLACE: Final = 8
"""What the first alternative of a request scores; each later one a point less."""

_Wish: TypeAlias = "ClaimSpec | ClaimKey"
"""What tells the claims of pod classes apart: what is asked for, or the name where others may name it."""


class ClaimEvaluator(Evaluator):
    """Filter, score and choice for pods whose claims ask for the same."""

    def __init__(self, plugin: DynamicResources, pod: Pod, wishes: tuple[_Wish, ...]) -> None:
        self._plugin = plugin
        self._ledger = plugin.ledger
        self._pod = pod
        named = any(not isinstance(wish, ClaimSpec) for wish in wishes)
        # An allocation for another pod, or of a device that several nodes reach, changes more than one node:
        # of this plugin each class has a scope of its own.
        self.scope = Scope.CLUSTER if named or not self._ledger.devices.local else Scope.NODE  # type: ignore[misc]
        self._named = named
        self._version = -1
        self._open: tuple[ResourceClaim, ...] = ()
        self._settled: tuple[ClaimAllocation, ...] = ()
        self._answers: Answers | None = None
        self._elsewhere: BoolVector | None = None

    def _read(self) -> None:
        """Tell the claims that are allocated by now from those that are to be."""
        ledger = self._ledger
        ledger.update()
        if self._version >= 0 and (not self._named or self._version == ledger.version):
            return
        self._version = ledger.version
        self._open, self._settled = self._plugin.split(self._pod)
        self._answers = (
            ledger.states.answers(self._open, self._plugin.claim_args.mode) if self._open else None
        )
        self._elsewhere = None
        for allocation in self._settled:
            if allocation.node_selector is not None:
                mask = ~fit_selector(self._plugin.workspace.layout, allocation.node_selector)
                self._elsewhere = mask if self._elsewhere is None else self._elsewhere | mask

    def _by_state(self, rows: Rows) -> tuple[IntVector, IntVector]:
        """Give the states that some nodes are in, and for each node which of them it is."""
        states, which = np.unique(self._ledger.numbers[rows], return_inverse=True)
        return states, which.reshape(-1)

    def fits(self, view: NodeView) -> BoolVector:
        rows = view.rows
        self._read()
        answers = self._answers
        if answers is None:
            fitting = np.ones(self._ledger.numbers[rows].shape, np.bool_)
        else:
            states, which = self._by_state(rows)
            fitting = np.array([answers.fits(number) for number in states.tolist()], np.bool_)[which]
        if self._elsewhere is not None:
            fitting &= ~self._elsewhere[rows]
        return fitting

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        rows = view.rows
        self._read()
        masks: dict[str, BoolVector] = {}
        here = np.ones(self._ledger.numbers[rows].shape, np.bool_)
        if self._elsewhere is not None:
            masks[REASON_ELSEWHERE] = self._elsewhere[rows]
            here &= ~self._elsewhere[rows]
        if self._answers is not None:
            states, which = self._by_state(rows)
            for place, number in enumerate(states.tolist()):
                answer = self._answers.at(number)
                if isinstance(answer, tuple):
                    continue
                reason = answer.text if isinstance(answer, ClaimError) else REASON_CANNOT
                known = masks.setdefault(reason, np.zeros(here.shape, np.bool_))
                masks[reason] = known | ((which == place) & here)
        return list(masks.items())

    def unresolvable(self, view: NodeView) -> BoolVector:
        rows = view.rows
        self._read()
        hopeless = np.zeros(self._ledger.numbers[rows].shape, np.bool_)
        if self._answers is not None:
            states, which = self._by_state(rows)
            each = [self._answers.hopeless(number) for number in states.tolist()]
            hopeless |= np.array(each, np.bool_)[which]
        if self._elsewhere is not None:
            hopeless |= self._elsewhere[rows]
        return hopeless

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        row = view.row
        self._read()
        if self._elsewhere is not None and self._elsewhere[row]:
            return (Shortfall(REASON_ELSEWHERE, resolvable=False),)
        if self._answers is None:
            return ()
        number = int(self._ledger.numbers[row])
        answer = self._answers.at(number)
        match answer:
            case ClaimError():
                return (Shortfall(answer.text, resolvable=False),)
            case ClaimsRefused():
                resolvable = not self._answers.hopeless(number)
                return tuple(
                    Shortfall(REASON_CANNOT, str(one.request), one.wanted, one.free, resolvable)
                    for one in answer.shortfalls
                ) or (Shortfall(REASON_CANNOT, resolvable=resolvable),)
            case _:
                return ()

    def details(self, view: NodeView) -> tuple[str, ...]:
        row = view.row
        self._read()
        if self._answers is None:
            return ()
        answer = self._answers.at(int(self._ledger.numbers[row]))
        return tuple(map(str, answer.shortfalls)) if isinstance(answer, ClaimsRefused) else ()

    def scores(self, view: NodeView) -> IntVector | None:
        rows = view.rows
        self._read()
        answers = self._answers
        if answers is None:
            return None
        states, which = self._by_state(rows)
        scores: IntVector = np.array([answers.score(number) for number in states.tolist()], np.int64)[which]
        return scores

    def slots(self, view: NodeView, most: int) -> IntVector | None:
        self._read()
        answers = self._answers
        if answers is None or self._named:
            return None
        states, which = self._by_state(view.rows)
        counts: IntVector = np.array([answers.count(number, most) for number in states.tolist()], np.int64)
        return counts[which]

    def allocate(self, pod: Pod, view: NodeView) -> Reserved | Shortfall | None:
        self._read()
        return self._plugin.allocate(pod, view.row, self._answers)


class DynamicResources(Plugin):
    """Devices by ResourceClaims."""

    name = "DynamicResources"
    serves_claims = True
    reads = frozenset((DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice))
    arguments = ClaimArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.claim_args = args if isinstance(args, ClaimArgs) else ClaimArgs()
        self._asked = False
        # It is made anew where nodes or classes change.
        self._by_class = served_by_classes(workspace.snapshot)

    @classmethod
    def closed(
        cls,
        start: ClusterSnapshot,
        end: ClusterSnapshot,
        decisions: Sequence[PodDecision],
        now: datetime | None,
    ) -> ClusterSnapshot:
        return with_claims(end, decisions)

    def follow(self, changes: ClusterChanges) -> bool:
        if super().follow(changes):
            return True
        if self._asked:
            from koordcore.scheduling.plugins.claim_ledger import ClaimLedger

            self.workspace.drop(ClaimLedger)
        return False

    @property
    def ledger(self) -> ClaimLedger:
        """Who has which claim, up to date."""
        from koordcore.scheduling.plugins.claim_ledger import ClaimLedger

        self._asked = True
        ledger = self.workspace.once(ClaimLedger)
        ledger.update()
        return ledger

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        if not pod.resource_claims and not asks_for_served(pod, self._by_class):
            return None
        ledger = self.ledger
        found = ledger.book.claims_of(pod)
        if isinstance(found, ClaimProblem):
            return Refusal(found.reason)
        wishes: list[_Wish] = []
        for claim in found.claims:
            refusal = self._refusal(pod, claim)
            if refusal is not None:
                return refusal
            key = (claim.namespace, claim.name)
            shared = ledger.book.named[key] > 1 or ledger.allocation(key) is not None
            wishes.append(key if shared else claim.spec)
        return tuple(wishes)

    def _refusal(self, pod: Pod, claim: ResourceClaim) -> Refusal | None:
        ledger = self.ledger
        key = (claim.namespace, claim.name)
        if ledger.allocation(key) is None:
            for request in claim.spec.requests:
                for form in request.forms:
                    if form.class_name not in ledger.devices.classes:
                        return Refusal(
                            f"request {request.name}: device class {form.class_name} does not exist"
                        )
        elif len(claim.reserved_for) + ledger.fresh_users(key) >= MAX_CONSUMERS and all(
            one.name != pod.name for one in claim.reserved_for
        ):
            return Refusal(f"resource claim {'/'.join(key)} is reserved for {MAX_CONSUMERS} pods already")
        return None

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return ClaimEvaluator(self, pod, request)

    def _claims(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        found = self.ledger.book.claims_of(pod)
        return () if isinstance(found, ClaimProblem) else found.claims

    def split(self, pod: Pod) -> tuple[tuple[ResourceClaim, ...], tuple[ClaimAllocation, ...]]:
        """Tell a pod's claims that are to be allocated, each once, from what the others are allocated."""
        ledger = self.ledger
        unallocated: dict[ClaimKey, ResourceClaim] = {}
        settled: list[ClaimAllocation] = []
        for claim in self._claims(pod):
            key = (claim.namespace, claim.name)
            allocation = ledger.allocation(key)
            if allocation is None:
                unallocated[key] = claim
            else:
                settled.append(allocation)
        return tuple(unallocated.values()), tuple(settled)

    def allocate(self, pod: Pod, row: int, answers: Answers | None) -> Reserved | Shortfall | None:
        """Write down what the claims of a pod get on a node, where it is known that they fit."""
        ledger = self.ledger
        unallocated, _ = self.split(pod)
        given: dict[ClaimKey, ClaimAllocation] = {}
        if unallocated and answers is not None:
            from koordcore.allocators.claims.results import allocation_of

            chosen = answers.at(int(ledger.numbers[row]))
            if not isinstance(chosen, tuple):
                return Shortfall(REASON_CANNOT)
            shape = ledger.devices.shape[row]
            shareable = ledger.devices.table(shape).shareable
            for claim, choice in zip(unallocated, chosen, strict=True):
                allocation = allocation_of(
                    ledger.devices.pools[row], shareable, choice, claim, ledger.devices.classes
                )
                if isinstance(allocation, ClaimError):
                    return Shortfall(allocation.text, resolvable=False)
                given[claim.namespace, claim.name] = allocation
        found = ledger.book.claims_of(pod)
        if isinstance(found, ClaimProblem):
            return Shortfall(found.reason, resolvable=False)
        held = []
        # The claim for extended resources belongs to no entry.
        entries = [entry.name for entry in pod.resource_claims]
        entries += [""] * (len(found.claims) - len(entries))
        for entry, claim in zip(entries, found.claims, strict=True):
            key = (claim.namespace, claim.name)
            known = given.get(key)
            settled = known or ledger.allocation(key)
            assert settled is not None
            held.append(
                HeldClaim(
                    name=claim.name,
                    entry=entry,
                    allocation=settled,
                    fresh=known is not None,
                    planned=claim.name in found.planned,
                )
            )
        return Reserved(claims=tuple(held), notes=_notes(held))


def _notes(held: Sequence[HeldClaim]) -> tuple[str, ...]:
    conditional = [
        f"{one.name} waits for {', '.join(result.binding_conditions)} of {result.id}"
        for one in held
        for result in one.allocation.results
        if one.fresh and result.binding_conditions
    ]
    return tuple(conditional)
