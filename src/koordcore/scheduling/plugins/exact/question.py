"""What one kind of pods asks of a node's CPUs, NUMA amounts and devices, and what the nodes answer.

There is one question: which CPUs, amounts and devices would the pod get here? Where a NUMA topology policy
applies, of the node or of the pod, all of it is decided together (rulings 5 and 23); elsewhere CPUs and
devices do not depend on each other. Nodes in equal states are asked once. The evaluator below says under the
name NodeNUMAResource what they answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.device import DeviceAnswers
from koordcore.allocators.node import NodeAllocation
from koordcore.allocators.node_batch import NodeVerdicts
from koordcore.allocators.node_request import NodeArgs, NodeRequest
from koordcore.allocators.numa import NUMAAllocation
from koordcore.allocators.numa_align import NUMAProvider
from koordcore.allocators.numa_explain import explain_node
from koordcore.allocators.numa_request import NUMARefusal, demand_on
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.node_view import REQUESTED, NodeView
from koordcore.framework.sources import Loans
from koordcore.model.decisions import Shortfall
from koordcore.model.devices import DeviceShortfall
from koordcore.model.numa import OF_LOAN
from koordcore.model.pods import Pod
from koordcore.model.resources import CPU
from koordcore.scheduling.plugins.exact.states import ExactStates
from koordcore.topology.numa import NUMATopologyPolicy

if TYPE_CHECKING:
    from koordcore.scheduling.plugins.exact.reserved import ExactLoans

HELD: Final = (NUMATopologyPolicy.RESTRICTED, NUMATopologyPolicy.SINGLE_NUMA_NODE)
"""Policies that the filter looks at: their NUMA nodes are known before nodes are scored."""
_UNKNOWN: Final = -2


class Question:
    """The answers of all nodes to one kind of pods, kept up to date.

    Parameters
    ----------
    states
        What the nodes have.
    request
        What the pods ask for.
    args
        The arguments of all names of the policy that the question belongs to.

    Attributes
    ----------
    cpu, devices
        Answers about CPUs and NUMA amounts alone, and about devices alone; ``None`` where not asked for.
    joint
        Answers about both together; ``None`` where nothing ties them to each other.
    """

    def __init__(self, states: ExactStates, request: NodeRequest, args: NodeArgs) -> None:
        self.states = states
        self.request = request
        self.args = args
        self.cpu: NodeVerdicts | None = None
        self.devices: DeviceAnswers | None = None
        self.joint: NodeVerdicts | None = None
        if request.devices is not None:
            table = states.device_table(by_name=self._designated)
            self.devices = DeviceAnswers(table, request.devices, args.devices)
        if request.cpu is not None:
            self.cpu = self._verdicts(NodeRequest(cpu=request.cpu))
            if request.devices is not None and args.devices.align_numa:
                self.joint = self._verdicts(request)
        self._policies: list[NUMATopologyPolicy] = []
        self._holding: BoolVector = np.zeros(0, np.bool_)
        self._masks: IntVector = np.zeros(0, np.int64)

    @property
    def _designated(self) -> bool:
        return self.request.devices is not None and self.request.devices.designated is not None

    def _verdicts(self, request: NodeRequest) -> NodeVerdicts:
        states = self.states
        return NodeVerdicts(
            states.table(
                with_devices=request.devices is not None,
                by_name=request.devices is not None and self._designated,
            ),
            request,
            self.args,
            devices=None if request.devices is None else self.devices,
            allocatable=states.allocatable,
            requested=states.requested,
        )

    def renew(self) -> None:
        """Take in that there are other nodes, or that some offer something else as a whole."""
        for one in {id(one): one for one in (self.cpu, self.joint) if one is not None}.values():
            one.renew(self.states.allocatable, self.states.requested)
        self._masks = np.zeros(0, np.int64)

    # -- which policy ----------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Work out the topology policy for the pods in states that are new."""
        request = self.request.cpu
        assert self.cpu is not None
        assert request is not None
        for offer in self.cpu.table.states[len(self._policies) :]:
            demand = demand_on(request, offer.numa.node)
            known = NUMATopologyPolicy.NONE if isinstance(demand, NUMARefusal) else demand.policy
            self._policies.append(known)
        if len(self._holding) < len(self._policies):
            self._holding = np.array([one in HELD for one in self._policies], np.bool_)

    def policy_at(self, row: int) -> NUMATopologyPolicy:
        """Give the topology policy for the pods on a node."""
        if self.cpu is None:
            return NUMATopologyPolicy.NONE
        self.states.update()
        self._learn()
        return self._policies[int(self.cpu.table.ids[row])]

    def holding(self, rows: Rows) -> BoolVector | None:
        """Tell which nodes hold the pod to some NUMA nodes; ``None`` for none of them."""
        if self.cpu is None:
            return None
        found = self._held(rows)
        return found if found.any() else None

    def _held(self, rows: Rows) -> BoolVector:
        """Tell on which nodes a policy holds the pod to some NUMA nodes before nodes are scored."""
        assert self.cpu is not None
        self.states.update()
        self._learn()
        found: BoolVector = self._holding[self.cpu.table.ids[rows]]
        return found

    def held(self, rows: Rows) -> BoolVector | None:
        """Tell which nodes hold CPUs and devices of the pod to the same NUMA nodes; ``None`` for none."""
        if self.joint is None:
            return None
        found = self._held(rows)
        return found if found.any() else None

    def asked_at(self, row: int, *, filtered: bool = False) -> NodeRequest:
        """Give what is asked under the name NodeNUMAResource on a node: with devices where they are tied.

        BestEffort allocates everything together, but who refuses there is who lacks something.
        """
        policy = self.policy_at(row)
        tied = policy in HELD if filtered else policy is not NUMATopologyPolicy.NONE
        return self.request if self.joint is not None and tied else NodeRequest(cpu=self.request.cpu)

    def masks(self, rows: Rows) -> IntVector | None:
        """Give the NUMA nodes whose devices are scored on each node, ``(n,)`` bit masks; -1 for all of them.

        ``None`` where that is so on every node. A node that does not serve the pod says -1, too. As upstream
        has it, devices are scored where the pod's CPUs would be also where they need not come from there.
        """
        if self.cpu is None:
            return None
        held = self._held(rows)
        if not held.any():
            return None
        tied = self.joint or self.cpu
        ids = tied.table.ids
        more = len(tied.table.states) - len(self._masks)
        if more:
            self._masks = np.concatenate([self._masks, np.full(more, _UNKNOWN)])
        chosen = self._some(rows, held)
        for row in chosen[self._masks[ids[chosen]] == _UNKNOWN].tolist():
            if self._masks[ids[row]] == _UNKNOWN:
                answer = tied.answer(row)
                mask = None if isinstance(answer, NUMARefusal) else answer.numa.mask
                self._masks[ids[row]] = -1 if mask is None else mask
        found = np.full(len(held), -1, np.int64)
        found[held] = self._masks[ids[chosen]]
        return found

    # -- under the name NodeNUMAResource ---------------------------------------------------------------

    def numa_fits(self, rows: Rows, lent: IntVector | None = None) -> BoolVector:
        """Tell which nodes serve CPUs and amounts, and devices where they are held to the same NUMA nodes.

        ``lent``, ``(n,)``: milli-CPU that is taken off the requested amounts of these nodes.
        """
        assert self.cpu is not None
        self.states.update()
        found = self.cpu.fits(rows, lent)
        held = self.held(rows)
        if held is not None and self.joint is not None:
            found[held] = self.joint.fits(self._some(rows, held), None if lent is None else lent[held])
        return found

    def numa_scores(self, rows: Rows, lifted: Mapping[str, IntVector] | None = None) -> IntVector:
        """Score the nodes, 0..100; ``lifted`` is what is taken off their requested amounts, by resource."""
        assert self.cpu is not None
        self.states.update()
        found = self.cpu.scores(rows, lifted)
        held = self.held(rows)
        if held is not None and self.joint is not None:
            off = None if lifted is None else {name: column[held] for name, column in lifted.items()}
            found[held] = self.joint.scores(self._some(rows, held), off)
        return found

    def numa_reasons(self, rows: Rows) -> Sequence[tuple[str, BoolVector]]:
        """Give each reason with the nodes that it holds for, sorted by text."""
        assert self.cpu is not None
        self.states.update()
        held = self.held(rows)
        if held is None or self.joint is None:
            return self.cpu.reasons(rows)
        found = {reason: mask & ~held for reason, mask in self.cpu.reasons(rows)}
        for reason, mask in self.joint.reasons(self._some(rows, held)):
            there = found.setdefault(reason, np.zeros(len(held), np.bool_))
            there[held] |= mask
        return sorted(found.items())

    def numa_unresolvable(self, rows: Rows) -> BoolVector:
        """Tell at which nodes no eviction would help."""
        assert self.cpu is not None
        self.states.update()
        found = self.cpu.unresolvable(rows)
        held = self.held(rows)
        if held is not None and self.joint is not None:
            found[held] = self.joint.unresolvable(self._some(rows, held))
        return found

    def _some(self, rows: Rows, chosen: BoolVector) -> IntVector:
        """Give the numbers of some of the nodes."""
        some: IntVector = np.arange(len(self.states.numa))[rows][chosen]
        return some

    # -- the answer ------------------------------------------------------------------------------------

    def serves(self, row: int) -> bool:
        """Tell whether a node has NUMA nodes for all that is asked here."""
        tied = self.joint or self.cpu
        return tied is None or not isinstance(tied.answer(row), NUMARefusal)

    def beside(
        self, row: int, sides: tuple[NUMAProvider, ...], *, amounts: bool = True
    ) -> NodeAllocation | NUMARefusal | None:
        """Give what a pod gets where others give it something near the same NUMA nodes.

        ``None`` where no policy ties them to each other. Without ``amounts`` those of the node as a whole are
        taken to suffice.
        """
        if self.cpu is None or self.policy_at(row) is NUMATopologyPolicy.NONE:
            return None
        return (self.joint or self.cpu).beside(row, sides, amounts=amounts)

    def take(self, pod: Pod, row: int, sides: tuple[NUMAProvider, ...] = ()) -> NodeAllocation | NUMARefusal:
        """Give a pod everything on a node as it is, and record it; or say what is lacking."""
        self.states.update()
        numa = NUMAAllocation()
        if self.cpu is not None:
            tied = self.joint is not None and self.policy_at(row) is not NUMATopologyPolicy.NONE
            found = self.beside(row, sides) if sides else None
            if found is None:
                found = (self.joint if tied and self.joint is not None else self.cpu).answer(row)
            if isinstance(found, NUMARefusal):
                return found
            if tied or self.devices is None:
                self.states.take(pod, row, found)
                return found
            numa = found.numa
        state = None if self.devices is None else self.states.devices[row]
        if self.devices is None or state is None:
            given = NodeAllocation(numa=numa)
            self.states.take(pod, row, given)
            return given
        taken = self.devices.take(state, str(pod.key))
        if isinstance(taken, DeviceShortfall):
            return NUMARefusal(taken.shortfalls)
        devices, after = taken
        given = NodeAllocation(numa=numa, devices=devices)
        self.states.take(pod, row, given, after)
        return given


class NUMAEvaluator(Evaluator):
    """Filter and score of one kind of pods under the name NodeNUMAResource."""

    scope = Scope.NODE

    def __init__(self, question: Question, loans: ExactLoans) -> None:
        assert question.cpu is not None
        self._question = question
        self._loans = loans
        self._states = question.states
        self._cpu = question.cpu

    def fits(self, view: NodeView) -> BoolVector:
        if view.drawn is not None:
            return self._inside(view, view.drawn)
        fitting = self._question.numa_fits(view.rows)
        loans = view.loans
        if loans is not None:
            inside = self.fits(view.inside(loans))
            served = view.where_any(loans, inside)
            # CPUs of the node are no help where a loan has to give them.
            shortfalls = self._refusals(view, served)
            refused = np.array([row in shortfalls for row in view.numbers.tolist()], bool)
            fitting = (fitting & ~refused) | served
        return fitting

    def _inside(self, view: NodeView, loans: Loans) -> BoolVector:
        lent = loans.lent[self._states.workspace.layout.index[CPU]]
        served = self._question.numa_fits(loans.rows, lent)
        for index in range(len(loans.rows)):
            loan = loans.loan(index)
            if self._loans.holds(self._question, loan):
                asked = self._question.asked_at(loan.row)
                answer = self._loans.fit(self._question, asked, loan, view.beside(loan))
                served[index] = not isinstance(answer, NUMARefusal)
        return served

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        found = self._question.numa_reasons(view.rows)
        refusals = self._refusals(view)
        if not refusals:
            return found
        at = {row: position for position, row in enumerate(view.numbers.tolist())}
        plain = np.ones(len(at), bool)
        masks: dict[tuple[str, int], BoolVector] = {}
        for row, shortfalls in refusals.items():
            plain[at[row]] = False
            for place, short in enumerate(shortfalls):
                # Each loan counts, also those that say the same.
                key = short.reason, [one.reason for one in shortfalls[:place]].count(short.reason)
                masks.setdefault(key, np.zeros(len(at), bool))[at[row]] = True
        return [(reason, mask & plain) for reason, mask in found] + [
            (reason, mask) for (reason, _), mask in masks.items()
        ]

    def _refusals(self, view: NodeView, served: BoolVector | None = None) -> dict[int, list[Shortfall]]:
        """Say by node why its loans do not serve a pod that must draw from one of them.

        ``served`` tells the nodes of the view, ``(n,)``, that need not be asked.
        """
        shortfalls: dict[int, list[Shortfall]] = {}
        loans = view.loans
        if loans is None or not view.required:
            return shortfalls
        skipped = set() if served is None else set(view.numbers[served].tolist())
        for index in range(len(loans.rows)):
            loan = loans.loan(index)
            if loan.row in skipped:
                continue
            found = self._loans.refusal(self._question, loan, view.beside(loan))
            if found is None:
                continue
            here = shortfalls.setdefault(loan.row, [])
            of_its_own = [one for one in found.shortfalls if one.reason.startswith(OF_LOAN)]
            # What does not depend on the loan is said once, whatever numbers each has beside it.
            said = {one.reason for one in here}
            here += of_its_own or [one for one in found.shortfalls if one.reason not in said]
        return shortfalls

    def unresolvable(self, view: NodeView) -> BoolVector:
        unresolvable = self._question.numa_unresolvable(view.rows)
        refusals = self._refusals(view)
        for position, row in enumerate(view.numbers.tolist() if refusals else ()):
            if row in refusals:
                unresolvable[position] = not all(one.resolvable for one in refusals[row])
        return unresolvable

    def _answer(self, row: int) -> NodeAllocation | NUMARefusal:
        question = self._question
        tied = question.asked_at(row, filtered=True) is question.request
        return (question.joint if tied and question.joint is not None else self._cpu).answer(row)

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        answer = self._answer(view.row)
        return answer.shortfalls if isinstance(answer, NUMARefusal) else ()

    def details(self, view: NodeView) -> tuple[str, ...]:
        row = view.row
        if not isinstance(self._answer(row), NUMARefusal):
            return ()
        asked = self._question.asked_at(row, filtered=True)
        offer = self._states.offer(row, with_devices=asked.devices is not None)
        return explain_node(offer, asked, self._question.args).lines

    def scores(self, view: NodeView) -> IntVector:
        scores = self._question.numa_scores(view.rows, self._lifted(view))
        if view.loans is not None:
            self._score_drawn(view, view.loans, scores)
        return scores

    def _score_drawn(self, view: NodeView, loans: Loans, scores: IntVector) -> None:
        """Score nodes under a topology policy by what the pod gets out of the loan it would draw from."""
        concerned = set(loans.rows.tolist())
        for position, row in enumerate(view.numbers.tolist() if concerned else ()):
            loan = view.drawn_from(row) if row in concerned else None
            if loan is None or not self._loans.holds(self._question, loan):
                continue
            if self._question.policy_at(row) is not NUMATopologyPolicy.NONE:
                requested = view.at(row).amounts[REQUESTED][:, 0]
                scores[position] = self._loans.score(self._question, loan, requested, view.beside(loan))

    def _lifted(self, view: NodeView) -> dict[str, IntVector] | None:
        """What counts as gone from the nodes, by resource."""
        if view.plain:
            return None
        lifted = view.workspace.at(view.rows)[REQUESTED] - view.amounts[REQUESTED]
        return {name: lifted[at] for name, at in view.workspace.layout.index.items()}
