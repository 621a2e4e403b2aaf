"""Where the claims of one class of pods can be allocated: on a node, or out of a loan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.claims.near import ClaimSide
from koordcore.allocators.claims.outcome import ClaimError, ClaimsRefused
from koordcore.allocators.claims.results import Choice
from koordcore.allocators.claims.states import Answers
from koordcore.framework.evaluator import LEAVING, Evaluator, Reserved, Scope
from koordcore.framework.node_view import NodeView
from koordcore.framework.numa_sides import NUMASides
from koordcore.framework.sources import Loan, Loans
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import AllocationMode, ClaimAllocation, ClaimArgs, ClaimSpec, ResourceClaim
from koordcore.model.decisions import Shortfall
from koordcore.model.numa import OF_LOAN
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.plugins.claim_book import ClaimKey
from koordcore.scheduling.plugins.claim_ledger import ClaimLedger
from koordcore.scheduling.plugins.claims_given import give_claims
from koordcore.scheduling.plugins.claims_near import NearClaims, claim_side
from koordcore.scheduling.plugins.claims_together import ChosenClaims, asks_for_all
from koordcore.scoring.labels import fit_selector

REASON_CANNOT: Final = "cannot allocate all claims"
REASON_ELSEWHERE: Final = "resourceclaim not available on the node"

_FEW: Final = 8
"""Nodes that are asked about one by one: mostly one or two have changed."""

Wish: TypeAlias = ClaimSpec | ClaimKey
"""What tells the claims of pod classes apart: what is asked for, or the name where others may name it."""


class ClaimsPlugin(Protocol):
    """The plugin as its evaluators see it."""

    workspace: Workspace
    claim_args: ClaimArgs

    @property
    def ledger(self) -> ClaimLedger:
        """Who has which claim."""

    def claims(self, pod: Pod) -> tuple[ResourceClaim, ...]:
        """Give the claims of a pod, in the order of its entries."""

    def split(self, pod: Pod) -> tuple[tuple[ResourceClaim, ...], tuple[ClaimAllocation, ...]]:
        """Tell a pod's claims that are to be allocated from what the others are allocated."""

    def failures(self, claims: Iterable[ResourceClaim]) -> tuple[str, ...]:
        """Say why a pod cannot be bound with what its claims are allocated; empty where it can."""

    @property
    def planned(self) -> Mapping[PodKey, Any]:
        """What was chosen for pods together with others."""


class ClaimEvaluator(Evaluator):
    """Filter, score and choice for pods whose claims ask for the same."""

    def __init__(self, plugin: ClaimsPlugin, pod: Pod, wishes: tuple[Wish, ...]) -> None:
        self._plugin = plugin
        self._ledger = plugin.ledger
        self._pod = pod
        named = any(not isinstance(wish, ClaimSpec) for wish in wishes)
        # What is this pod's alone stands for what each other of the class is to get: whether it has got that
        # by now says nothing of them.
        self._claims = {
            (claim.namespace, claim.name): (claim, not isinstance(wish, ClaimSpec))
            for claim, wish in zip(plugin.claims(pod), wishes, strict=True)
        }
        # An allocation for another pod, or of a device that several nodes reach, changes more than one node:
        # of this plugin each class has a scope of its own.
        self.scope = Scope.CLUSTER if named or not self._ledger.devices.local else Scope.NODE  # type: ignore[misc]
        self._named = named
        self._version = -1
        self._open: tuple[ResourceClaim, ...] = ()
        self._settled: tuple[ClaimAllocation, ...] = ()
        self._failures: tuple[str, ...] = ()
        self._answers: Answers | None = None
        self._elsewhere: BoolVector | None = None
        exact = plugin.claim_args.mode is AllocationMode.EXACT
        sides = plugin.workspace.once(NUMASides)
        self._near = NearClaims(sides, self._ledger, pod, self._side_at) if exact else None

    def needs_company(self) -> bool:
        # Whoever comes takes devices, or settles where a shared claim is. Only what are all devices of a node
        # may be fewer of another, where all nodes reach those.
        if not self._named or self._ledger.devices.local:
            return False
        self._read()
        return any(
            named and claim in self._open and asks_for_all(claim) for claim, named in self._claims.values()
        )

    def _side_at(self, row: int) -> ClaimSide | None:
        return claim_side(self._ledger, self._answers, self._settled, row)

    def _read(self) -> None:
        """Tell the claims that are allocated by now from those that are to be."""
        ledger = self._ledger
        ledger.update()
        if self._version >= 0 and (not self._named or self._version == ledger.version):
            return
        self._version = ledger.version
        if self._near is not None:
            self._near.forget()
        args = self._plugin.claim_args
        known = {key: ledger.allocation(key) for key, (_, named) in self._claims.items() if named}
        self._open = tuple(claim for key, (claim, _) in self._claims.items() if known.get(key) is None)
        self._settled = tuple(filter(None, known.values()))
        self._answers = (
            ledger.states.answers(self._open, args.mode, packed=args.packed) if self._open else None
        )
        self._elsewhere = None
        for allocation in self._settled:
            if allocation.node_selector is not None:
                mask = ~fit_selector(self._plugin.workspace.layout, allocation.node_selector)
                self._elsewhere = mask if self._elsewhere is None else self._elsewhere | mask
        shared = (claim for claim, named in self._claims.values() if named)
        self._failures = self._plugin.failures(shared) if self._settled else ()
        if self._failures:
            self._elsewhere = np.ones(len(ledger.numbers), np.bool_)

    def _drawing(self, loan: Loan) -> tuple[int, ...]:
        """Give the states in which a node may serve out of a loan: by what the loan has, else by all."""
        held = [one.allocation for pod in loan.holders for one in pod.held_claims]
        ledger = self._ledger
        if not held:
            return (int(ledger.numbers[loan.row]),)
        own = ledger.number_within(loan.row, held)
        if loan.states and loan.states[0].restricted and not loan.together:
            return (own,)
        return own, ledger.number_without(loan.row, held)

    def _out_of(self, loan: Loan) -> int | None:
        """Give the first of those states in which the claims fit; ``None`` for none."""
        answers = self._answers
        if answers is None:
            return int(self._ledger.numbers[loan.row])
        return next((number for number in self._drawing(loan) if answers.fits(number)), None)

    def _served(self, loans: Loans) -> BoolVector:
        every = (self._out_of(loans.loan(index)) is not None for index in range(len(loans.rows)))
        return np.fromiter(every, np.bool_, len(loans.rows))

    def _with_devices(self, loans: Loans) -> BoolVector:
        """Tell which loans were given devices: a pod that has to draw from them gets none elsewhere."""
        every = (loans.loan(index) for index in range(len(loans.rows)))
        return np.array([any(pod.held_claims for pod in one.holders) for one in every], np.bool_)

    def _by_state(self, rows: Rows) -> tuple[IntVector, IntVector]:
        """Give the states that some nodes are in, and for each node which of them it is."""
        states, inverse = np.unique(self._ledger.numbers[rows], return_inverse=True)
        return states, inverse.reshape(-1)

    def _of_each(self, rows: Rows, ask: Callable[[int], int]) -> list[int] | IntVector:
        """Ask about the state that each of some nodes is in; about few nodes one by one."""
        numbers = self._ledger.numbers[rows]
        if len(numbers) <= _FEW:
            return [ask(number) for number in numbers.tolist()]
        states, which = self._by_state(rows)
        found: IntVector = np.array([ask(number) for number in states.tolist()], np.int64)[which]
        return found

    def fits(self, view: NodeView) -> BoolVector:
        rows = view.rows
        self._read()
        fitting = self._holding(rows)
        if view.drawn is None and self._near is not None:
            fitting = self._near.allowed(rows, fitting)
        if self._answers is not None:
            if view.drawn is not None:
                fitting = self._served(view.drawn)
            elif view.loans is not None:
                fitting |= view.where_any(view.loans, self._served(view.loans))
                withheld = self._withheld(view)
                fitting = fitting if withheld is None else fitting & ~withheld
        if self._elsewhere is not None:
            fitting &= ~self._elsewhere[rows]
        return fitting

    def _withheld(self, view: NodeView) -> BoolVector | None:
        """Tell where the pod has to draw on loans of devices that do not serve it; ``None`` for nowhere."""
        if view.loans is None or view.drawn is not None or not view.required or self._answers is None:
            return None
        held = view.where_any(view.loans, self._with_devices(view.loans))
        return held & ~view.where_any(view.loans, self._served(view.loans)) if held.any() else None

    def _holding(self, rows: Rows) -> BoolVector:
        """Tell which nodes have the devices, wherever they lie."""
        answers = self._answers
        if answers is None:
            return np.ones(self._ledger.numbers[rows].shape, np.bool_)
        return np.array(self._of_each(rows, answers.fits), np.bool_)

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
        holding = here & self._holding(rows)
        withheld = self._withheld(view)
        if withheld is not None:
            masks[OF_LOAN + REASON_CANNOT] = holding & withheld
            holding &= ~withheld
        self._say_near(rows, holding, masks)
        return list(masks.items())

    def _say_near(self, rows: Rows, among: BoolVector, masks: dict[str, BoolVector]) -> None:
        """Add the reasons of nodes that have everything, but not near the same NUMA nodes."""
        if self._near is None or self._near.allowed(rows, among) is among:
            return
        for place, row in enumerate(np.arange(len(self._ledger.numbers))[rows].tolist()):
            for one in self._near.lacks(row) if among[place] else ():
                masks.setdefault(one.reason, np.zeros(among.shape, np.bool_))[place] = True

    def unresolvable(self, view: NodeView) -> BoolVector:
        rows = view.rows
        self._read()
        unresolvable = np.zeros(self._ledger.numbers[rows].shape, np.bool_)
        if self._answers is not None:
            unresolvable |= np.array(self._of_each(rows, self._answers.unresolvable), np.bool_)
        if self._elsewhere is not None:
            unresolvable |= self._elsewhere[rows]
        return unresolvable

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        row = view.row
        self._read()
        if self._elsewhere is not None and self._elsewhere[row]:
            return (Shortfall(REASON_ELSEWHERE, resolvable=False),)
        number = int(self._ledger.numbers[row])
        answer = () if self._answers is None else self._answers.at(number)
        match answer:
            case ClaimError() if self._answers is not None:
                return (Shortfall(answer.text, resolvable=not self._answers.unresolvable(number)),)
            case ClaimsRefused() if self._answers is not None:
                resolvable = not self._answers.unresolvable(number)
                # Enough devices that do not go together are no amount that is short.
                return tuple(
                    Shortfall(REASON_CANNOT, one.request, one.wanted, one.free, resolvable)
                    if one.free < one.wanted
                    else Shortfall(REASON_CANNOT, one.request, resolvable=resolvable)
                    for one in self._answers.shortfalls(number)
                ) or (Shortfall(REASON_CANNOT, resolvable=resolvable),)
            case _:
                withheld = self._withheld(view)
                if withheld is not None and withheld.any():
                    return (Shortfall(OF_LOAN + REASON_CANNOT),)
                return () if self._near is None else self._near.lacks(row)

    def details(self, view: NodeView) -> tuple[str, ...]:
        row = view.row
        self._read()
        if self._failures:
            return self._failures
        number = int(self._ledger.numbers[row])
        if self._answers is None or not isinstance(self._answers.at(number), ClaimsRefused):
            return self._near.lines(row) if self._near is not None and self._near.lacks(row) else ()
        lacking = self._answers.shortfalls_on(row, number, self._open)
        return (*map(str, lacking), *self._release(row))

    def _release(self, row: int) -> Iterator[str]:
        """Say without whom the node would take the pod: the fewest pods that would have to go."""
        ledger, exact = self._ledger, self._plugin.claim_args.mode is AllocationMode.EXACT
        if self._named or not exact or not ledger.devices.local:
            return
        from koordcore.scheduling.plugins.claims_freed import ways_to_free

        there = self._plugin.workspace.pods_on(row)
        answers = ledger.states.together([self._open])
        ways = ways_to_free(ledger, answers, row, [pod for _, pod in sorted(there.items())])
        if ways:
            least = min(ways, key=lambda keys: (len(keys), sorted(keys)))
            yield f"{LEAVING}{' and '.join(map(str, sorted(least)))} it would do"

    def scores(self, view: NodeView) -> IntVector | None:
        rows = view.rows
        self._read()
        answers = self._answers
        if answers is None:
            return None
        scores: IntVector = np.array(self._of_each(rows, answers.score), np.int64)
        if view.drawn is not None:
            for index in range(len(view.drawn.rows)):
                number = self._out_of(view.drawn.loan(index))
                scores[index] = 0 if number is None else answers.score(number)
        return scores

    def slots(self, view: NodeView, most: int) -> IntVector | None:
        self._read()
        answers = self._answers
        if answers is None or self._named:
            return None
        found: IntVector = np.array(
            self._of_each(view.rows, lambda number: answers.count(number, most)), np.int64
        )
        if view.loans is not None:
            # How many fit out of loans is found out by binding the plan.
            found[view.where_any(view.loans, np.ones(len(view.loans.rows), np.bool_))] = most
        return found

    def allocate(self, pod: Pod, view: NodeView) -> Reserved | Shortfall | None:
        self._read()
        number: int | None = int(self._ledger.numbers[view.row])
        if view.drawn is not None:
            number = self._out_of(view.drawn.loan(0))
        if number is None:
            return Shortfall(REASON_CANNOT)
        row, mask = self._plugin.workspace.once(NUMASides).given.pop(pod.key, (-1, None))
        if row == view.row and mask is not None and self._answers is not None and self._near is not None:
            near = self._ledger.states.near(number, mask)
            # Best effort goes on without where there is nothing near.
            number = near if self._answers.fits(near) else number
        return self._give(pod, view.row, number)

    def _give(self, pod: Pod, row: int, number: int) -> Reserved | Shortfall | None:
        """Give a pod what was planned for it together with others, or else what it gets alone."""
        unallocated = () if self._answers is None else self._plugin.split(pod)[0]
        planned: ChosenClaims | None = self._plugin.planned.get(pod.key)
        choices: Sequence[Choice] = ()
        if planned is not None:
            if any((one.namespace, one.name) not in planned for one in unallocated):
                return Shortfall(REASON_CANNOT)  # it is to be allocated on another node, before
            choices = [planned[one.namespace, one.name] for one in unallocated]
        elif unallocated and self._answers is not None:
            answer = self._answers.at(number)
            if not isinstance(answer, tuple):
                return Shortfall(REASON_CANNOT)
            choices = answer
        pairs = zip(unallocated, choices, strict=True)
        chosen = {(claim.namespace, claim.name): (claim, choice) for claim, choice in pairs}
        return give_claims(self._ledger, pod, row, chosen)
