"""One class of equal pods: what is known of all nodes for them, and what a choice says.

A class keeps, for every node, whether its pods fit and the weighted sum of its node-local scores. When a pod
is bound somewhere, only that node's entry grows stale, and it is refreshed when the class is asked for next.
Where amounts decide alone, a class keeps that for every state that nodes are in instead.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from copy import copy
from typing import Final

import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntMatrix, IntVector, Rows
from koordcore.framework.evaluator import Refusal, Scope
from koordcore.framework.known_answers import KnownAnswers, PlainAnswers
from koordcore.framework.lacks import refusal_of
from koordcore.framework.node_view import ALL_ROWS, NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.roles import roles_of
from koordcore.framework.sources import Source
from koordcore.framework.state_scores import AmountAnswers, Choice, Membership, StateGroups, first_of
from koordcore.framework.static_result import Part, StaticResult
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import HeldClaim
from koordcore.model.decisions import Bound, Shortfall, Unschedulable, bound_plainly
from koordcore.model.pods import Pod, PodKey

_REFRESH_SHARE: Final = 4
"""Refreshing more than a quarter of the nodes one by one costs more than asking for all of them."""
_ONE_BY_ONE: Final = 4
"""Fewer nodes than kernels take the time for that they save."""


class SchedulingClass:
    """Answers for one class of equal pods over all nodes, kept up to date.

    Attributes
    ----------
    pod
        Some pod of the class.
    parts
        Plugins that have something to say about these pods, in filter order.
    change
        What each of the pods adds to a node's amounts, where that is the same for all.
    source
        What counts as gone for the pods, if anything.
    kinds
        Classes of pods that want the same of nodes, and more of plugins that may refuse them before.
    """

    def __init__(
        self,
        workspace: Workspace,
        pod: Pod,
        parts: list[Part],
        static: StaticResult,
        change: IntMatrix | None,
        groups: StateGroups,
        remarking: Sequence[Plugin] = (),
        source: Source | None = None,
    ) -> None:
        self._workspace = workspace
        self._groups = groups
        self._remarking = remarking
        self.pod = pod
        self.parts = parts
        self.change = change
        self._static = static
        self.source = source
        self._roles = roles = roles_of(parts, static)
        # The states of nodes tell all there is to choose by.
        self._by_states = not (
            roles.other_filters or roles.other_scorers or roles.cluster_filters or roles.whole_scorers
        )
        self._known = KnownAnswers(follows=bool(roles.amounts.scorers or roles.amounts.filters))
        self.kinds: dict[Hashable, SchedulingClass] = {}
        self._as_plain: PlainAnswers | None = None
        self.era = workspace.era
        """How many times nodes had joined or left when it was made: rows are those of then."""
        self.resources = len(workspace.layout.resources)
        """How many resources were counted when it was made: each stands where it stood then."""

    def take_over(self, old: SchedulingClass) -> None:
        """Take over what a class knew that wants the same of nodes, maybe before some joined or left."""
        known, before, past = self._known, old._known, self._workspace.moved_since(old.era)
        known.asked = before.asked
        change, single = self.change, self._roles.amounts == old._roles.amounts
        if single and change is not None and old.change is not None and change.shape == old.change.shape:
            known.single = before.single
        if past is None or before.read < 0 or self.source is not None or old.source is not None:
            return
        feasible, score, stale = before.moved(past, self._workspace.touched)
        stale.update(self._static.differing(old._static, past).tolist())
        if len(stale) * _REFRESH_SHARE <= len(score):
            known.feasible, known.score, known.read = feasible, score, len(self._workspace.touched)
            if stale:
                self._refresh_some(array("q", sorted(stale)))

    def go_by(self, plain: SchedulingClass) -> None:
        """Take what nodes say that the source does not touch from a class that differs in that alone."""
        if plain._static is self._static:
            known = {id(part.plugin) for part in plain.parts}
            filters = [part for part in self._roles.other_filters if id(part.plugin) not in known]
            scorers = [part for part in self._roles.other_scorers if id(part.plugin) not in known]
            self._as_plain = PlainAnswers(plain.update, plain._known, filters, scorers)

    def kind(self, pod: Pod, parts: list[Part]) -> SchedulingClass:
        """Give a kind of the class, with the parts of those who may refuse its pods and look at no node."""
        made = copy(self)
        made.pod, made.parts = pod, parts
        made._roles = self._roles._replace(refusing=roles_of(parts, self._static).refusing)  # noqa: SLF001
        return made

    def view(self, rows: Rows = ALL_ROWS) -> NodeView:
        """Give some nodes as the pods of the class see them."""
        return NodeView(self._workspace, rows, self.source)

    def _refresh(self, rows: Rows) -> None:
        feasible, score = self._answers(rows)
        if rows is ALL_ROWS:
            self._known.feasible = np.ones(len(score), np.bool_) if feasible is None else feasible.copy()
            self._known.score = score
        else:
            self._known.feasible[rows] = True if feasible is None else feasible
            self._known.score[rows] = score

    def _refresh_some(self, rows: array[int]) -> None:
        """Do what :meth:`_refresh` does for a few nodes."""
        if len(rows) <= _ONE_BY_ONE and self.source is None:
            for row in {*rows}:
                self._refresh_one(row)
        else:
            self._refresh(slice(rows[0], rows[0] + 1) if len(rows) == 1 else np.frombuffer(rows, np.int64))

    def _refresh_one(self, row: int) -> None:
        """Do what :meth:`_refresh` does for one node, as it is."""
        single = self._known.single
        if single is None:
            single = self._known.single = AmountAnswers(self._workspace, self._roles.amounts, self.change)
        static, view = self._static, NodeView(self._workspace, slice(row, row + 1))
        fits, score = single.of(row)
        score += int(static.score[row])
        for part in self._roles.other_filters:
            mask = part.evaluator.fits(view)
            fits = fits and (mask is None or bool(mask[0]))
        for part in self._roles.other_scorers:
            more = part.evaluator.scores(view)
            if more is not None:
                score += part.setting.weight * int(more[0])
        self._known.feasible[row] = fits = fits and bool(static.mask[row])
        self._known.score[row] = score if fits else -1

    def _answers(self, rows: Rows) -> tuple[BoolVector | None, IntVector]:
        """Tell which of the nodes the node-local plugins allow, ``None`` for all, and their score.

        The score is -1 where they do not. Nodes that a source touches are asked about anew.
        """
        plain = NodeView(self._workspace, rows)
        if self.source is None:
            return self._on(plain)
        touched = self.source.touched(rows)
        if np.count_nonzero(touched) * _REFRESH_SHARE > len(touched):
            return self._on(self.view(rows))
        known = self._as_plain if rows is ALL_ROWS else None
        feasible, score = self._on(plain) if known is None else known.on(plain)
        if touched.any():
            feasible = np.ones(len(score), np.bool_) if feasible is None else feasible.copy()
            here = touched.nonzero()[0] if rows is ALL_ROWS else plain.numbers[touched]
            there, score[touched] = self._on(self.view(here))
            feasible[touched] = True if there is None else there
        return feasible, score

    def _on(self, view: NodeView) -> tuple[BoolVector | None, IntVector]:
        """Answer for one view, as :meth:`_answers` does."""
        feasible: BoolVector | None
        rows = view.rows
        if isinstance(rows, slice) or not view.plain or (member := self._member()) is None:
            feasible, score = self._by_amounts(view)
        else:
            feasible, score = member.answers(rows)
        for part in self._roles.other_filters:
            mask = part.evaluator.fits(view)
            if mask is not None:
                feasible = mask if feasible is None else feasible & mask
        for part in self._roles.other_scorers:
            more = part.evaluator.scores(view)
            if more is not None:
                score += part.setting.weight * more
        if feasible is not None and np.count_nonzero(feasible) < len(feasible):
            # Scores are never negative, so -1 keeps a node that does not fit behind all others.
            score[~feasible] = -1
        return feasible, score

    def _by_amounts(self, view: NodeView) -> tuple[BoolVector | None, IntVector]:
        """What static plugins and amounts say, as :meth:`_answers` gives it."""
        static, rows = self._static, view.rows
        score, enough = self._roles.amounts.answers(view)
        if score is None:
            score = np.zeros_like(static.score[rows])
        if static.flat is not None:
            score += static.flat
            return enough, score
        score += static.score[rows]
        return static.mask[rows] if enough is None else static.mask[rows] & enough, score

    def best(self) -> Choice:
        """Find the best node; of equals the one with the first name."""
        if not self._known.asked and not self._roles.cluster_filters and not self._roles.whole_scorers:
            # Many are the only one of their class: nothing is kept before a second one comes.
            self._known.asked = True
            return first_of(*self._answers(ALL_ROWS))
        member = self._member() if self._by_states else None
        return self.best_of(self._feasible()) if member is None else member.best()

    def _member(self) -> Membership | None:
        """Give the place among classes that follow the states of nodes; ``None`` where it has none."""
        known = self._known
        if not known.follows:
            return None
        if known.membership is None:
            known.membership = self._groups.join(self._static, self._roles.amounts)
        if known.membership is None or not known.membership.ready():
            states = self._groups.states_of(self._static)
            known.follows = states is not None and not states.over
            return None
        return known.membership

    def retire(self) -> None:
        """Take note that nobody will ask again."""
        known = self._known
        if known.membership is not None:
            known.membership.leave()
            known.membership, known.follows = None, False  # who goes by it may still ask

    def best_of(self, feasible: BoolVector) -> Choice:
        """Find the best of some nodes that are feasible."""
        return first_of(feasible, self.totals(feasible))

    def update(self) -> None:
        """Bring the nodes that changed since the last call up to date."""
        known, touched = self._known, self._workspace.touched
        end = len(touched)
        if known.read == end:
            return
        if known.read < 0:
            known.read = end
            self._refresh(ALL_ROWS)
            return
        stale = touched[known.read : end]
        known.read = end
        # Where pods of two classes take turns, both mostly went to the same node.
        if self.source is None and stale.count(stale[0]) == len(stale):
            self._refresh_one(stale[0])
        elif len(stale) > _ONE_BY_ONE and len(stale) * _REFRESH_SHARE > len(known.score):
            self._refresh(ALL_ROWS)
        else:
            self._refresh_some(stale)

    def refuse(self) -> tuple[Plugin, Refusal] | None:
        """Give who refuses the pod whatever the node: the first whom no eviction mends, else the last."""
        found = None
        for part in self._roles.refusing:
            refusal = part.evaluator.refuse()
            if refusal is not None:
                found = part.plugin, refusal
                if not refusal.resolvable:
                    break
        return found

    def feasible(self) -> BoolVector:
        """Tell which nodes can take such a pod now: ``(N,)``."""
        mask = self._feasible()
        return mask.copy() if mask is self._known.feasible else mask

    def _feasible(self) -> BoolVector:
        """Do what :meth:`feasible` does, with an array that the next question may write to."""
        self.update()
        mask = self._known.feasible
        for part in self._roles.cluster_filters:
            one = part.evaluator.fits(self.view())
            if one is not None:
                mask = mask & one
        return mask

    def slots(self, most: int) -> IntVector:
        """Tell how many pods of the class each node takes one after another, at most: ``(N,)``."""
        number, view = np.where(self.feasible(), most, 0), self.view()
        for part in self.parts:
            one = part.evaluator.slots(view, most) if part.setting.filters else None
            if one is not None:
                number = np.minimum(number, one)
        return number

    def local_slots(self, most: int) -> IntVector:
        """Do what :meth:`slots` does by those filters alone that look at one node at a time: ``(N,)``.

        Whoever leaves can only make them say yes. Others, such as affinity, may need who leaves.
        """
        number, view = np.where(self._static.mask, most, 0), self.view()
        for part in self.parts:
            if not part.setting.filters or part.evaluator.scope is Scope.CLUSTER:
                continue
            mask, one = part.evaluator.fits(view), part.evaluator.slots(view, most)
            if one is not None:
                number = np.minimum(number, one)
            if mask is not None:
                number = np.where(mask, number, 0)
        return number

    def local_fits(self, rows: IntVector) -> BoolVector:
        """Tell which of some nodes pass the filters that look at one node at a time, shape (n,)."""
        fits, view = self._static.mask[rows], self.view(rows)
        for part in self.parts:
            if part.setting.filters and part.evaluator.scope is Scope.NODE:
                mask = part.evaluator.fits(view)
                fits = fits if mask is None else fits & mask
        return fits

    @property
    def looks_elsewhere(self) -> bool:
        """A filter looks at more than the node in question."""
        return bool(self._roles.cluster_filters)

    @property
    def shares(self) -> bool:
        """A filter may let the pod share on a node what others have brought there."""
        return any(part.setting.filters and part.evaluator.shares() for part in self.parts)

    @property
    def needs_company(self) -> bool:
        """A filter may take more once other pods have come."""
        return any(part.setting.filters and part.evaluator.needs_company() for part in self.parts)

    @property
    def counts_beyond_amounts(self) -> bool:
        """A filter other than that of amounts looks at what runs on a node or in the cluster."""
        filters = (part.evaluator for part in self.parts if part.setting.filters)
        counting = (one for one in filters if one.scope is not Scope.STATIC and "fits" in one.answers)
        return any(one.amounts is None for one in counting)

    @property
    def amounts(self) -> IntVector:
        """What one pod of the class counts against a node: milli-CPU, bytes and counts, ``(R,)``."""
        for part in self.parts:
            amounts = part.evaluator.amounts if part.setting.filters else None
            if amounts is not None:
                return amounts
        alone = np.zeros(len(self._workspace.layout.resources), np.int64)
        alone[PODS_ROW] = 1
        return alone

    def may_fit_after_preemption(self) -> BoolVector:
        """Tell on which nodes the pods fit, or could fit once others have left: ``(N,)``."""
        open_rows = self._static.mask.copy()
        for part in self.parts:
            unresolvable = part.evaluator.unresolvable(self.view()) if part.setting.filters else None
            if unresolvable is None:
                continue
            fits = part.evaluator.fits(self.view())
            open_rows &= ~unresolvable if fits is None else ~unresolvable | fits
        return open_rows

    def totals(self, feasible: BoolVector) -> IntVector:
        """Give the weighted sum of all scores, -1 where the pod does not fit: ``(N,)``.

        Parameters
        ----------
        feasible
            What :meth:`feasible` gave, or a part of it.
        """
        total = self._known.score
        if self._roles.whole_scorers:
            total = total.copy()
            for part in self._roles.whole_scorers:
                raw = part.evaluator.scores(self.view())
                if raw is not None:
                    total += part.setting.weight * part.evaluator.normalise(raw, feasible)
        if feasible is not self._known.feasible:
            return np.where(feasible, total, -1)
        if total is not self._known.score:
            total[~feasible] = -1
        return total

    def score_table(self, feasible: BoolVector) -> dict[str, IntVector]:
        """Give each plugin's score after normalisation, before its weight, for all nodes."""
        table = {}
        for part in self.parts:
            raw = part.evaluator.scores(self.view()) if part.setting.scores else None
            if raw is not None:
                table[part.plugin.name] = part.evaluator.normalise(raw, feasible)
        return table

    def failure(self, pod: Pod, among: BoolVector | None = None) -> Unschedulable:
        """Count why every node refused, and find the one that came closest.

        Parameters
        ----------
        among
            Look at these nodes alone, ``(N,)``; at all when left out.
        """
        return refusal_of(self._workspace, self.parts, self.view, self._remarking, pod, among)

    def decide(self, pod: Pod, row: int, score: int, number: int) -> Bound | Shortfall:
        """Take everything that the pod gets on the node, or say what could not be taken."""
        node = self._workspace.layout.names[row]
        if not self._roles.allocating:
            return bound_plainly(pod.key, node, score, number)
        annotations: dict[str, str] = {}
        labels: dict[str, str] = {}
        notes: tuple[str, ...] = ()
        loan = ""
        over: tuple[PodKey, ...] = ()
        claims: tuple[HeldClaim, ...] = ()
        view = NodeView(self._workspace, slice(row, row + 1))
        loans = None if self.source is None else self.source.taken_from(row)
        if loans is not None:
            view = self.view().inside(loans)
        for part in self._roles.allocating:
            holding = part.evaluator.allocate(pod, view)
            if isinstance(holding, Shortfall):
                return holding
            if holding is not None:
                annotations.update(holding.annotations)
                labels.update(holding.labels)
                notes += holding.notes
                loan = holding.loan or loan
                over += holding.over
                claims += holding.claims
        return Bound(
            pod=pod.key,
            node=node,
            score=score,
            feasible=number,
            annotations=annotations,
            labels=labels,
            reservation=loan,
            notes=notes,
            over=over,
            claims=claims,
        )
