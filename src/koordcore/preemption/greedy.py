"""The first legal plan: members one by one, each where its victims cost least; who can stay, stays."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations
from typing import TypeAlias

import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._record import record
from koordcore.model.preemption import NO_DAMAGE, Damage, Members
from koordcore.preemption.bounds import Floor, needs_of, usable_up_to, widest_slots
from koordcore.preemption.cost import close, damage_of
from koordcore.preemption.problem import Domains, PreemptionProblem

_MOST_TOGETHER = 10
"""Pods of one gang on one node among whom subsets are tried."""
_DOMAINS_TRIED = 4
"""Domains that may be won at the same highest priority; the solver looks at all of them."""

Cost: TypeAlias = tuple[int, ...]


@record(eq=False)
class Draft:
    """A legal plan without a proof.

    Parameters
    ----------
    counts
        Members per class and node, shape (C, N).
    chosen
        Who leaves, shape (V,).
    damage
        What that costs.
    whole
        Every pending member has a place.
    """

    counts: IntMatrix
    chosen: BoolVector
    damage: Damage
    whole: bool


def draft_plan(problem: PreemptionProblem, domains: Domains, members: Members, floor: Floor) -> Draft | None:
    """Find a legal plan in the domains that can be won at the least priority; None when none was found.

    Parameters
    ----------
    problem, domains
        What is asked, and where the members may go together.
    members
        The minimum, or all of them.
    floor
        What the damage is at least, with the least priority up to which somebody has to leave.
    """
    best: Draft | None = None
    least = floor.vector[1] if floor.vector else None
    if least is None:
        return None
    for number in np.flatnonzero(floor.open)[:_DOMAINS_TRIED].tolist():
        mask = domains.mask(number)
        draft = _draft(problem, mask, members, least) or _draft(problem, mask, members, None)
        if draft is not None and (best is None or draft.damage < best.damage):
            best = draft
    return best


def _draft(
    problem: PreemptionProblem, mask: BoolVector, members: Members, priority: int | None
) -> Draft | None:
    return _Greedy(problem, mask, usable_up_to(problem, priority)).run(members)


class _Greedy:
    """One run over one domain."""

    def __init__(self, problem: PreemptionProblem, mask: BoolVector, usable: BoolVector) -> None:
        self.problem, self.usable = problem, usable
        self.slots = np.where(mask, widest_slots(problem, usable), 0)
        """Members that a node takes yet if all of them are of one class, shape (C, N)."""
        self._shape_of = np.array([shape for _, shape in problem.classes], dtype=np.int64)
        self.counts = np.zeros((len(problem.classes), len(problem.nodes)), dtype=np.int64)
        self.room = problem.free.copy()
        self.chosen = np.zeros(len(problem.candidates), dtype=bool)
        self.evicted: dict[int, int] = {}
        self.budget = problem.budgets.tolist()
        self.stale: set[int] = set()
        self._known: dict[int, list[int]] = {}
        whole = problem.jobs.breakable.copy()
        whole[problem.candidates.job[~usable]] = False
        self.whole = whole

    def run(self, members: Members) -> Draft | None:
        """Place what is needed, then what costs nothing more."""
        problem = self.problem
        order = sorted(range(len(problem.classes)), key=lambda one: (int(self.slots[one].sum()), one))
        left = list(problem.sizes)
        need = dict(enumerate(needs_of(problem, members)))
        for number in order:
            role = problem.classes[number][0]
            wanted = min(left[number], need[role])
            if self._place(number, wanted, free_only=False) < wanted:
                return None
            left[number] -= wanted
            need[role] -= wanted
        if any(need.values()):
            return None
        self.chosen = spare(problem, self.counts, self.chosen)
        self.room = self._room_left()
        for number in order if problem.shares is None else ():
            left[number] -= self._place(number, left[number], free_only=True)
        closed = close(problem, self.chosen)
        if closed is None or (closed != self.chosen).any() or not _in_multiples(problem, self.counts):
            return None
        if not problem.pools_hold(self.counts, self.chosen):
            return None
        damage = damage_of(problem, self.chosen) if self.chosen.any() else NO_DAMAGE
        return Draft(self.counts, self.chosen, damage, whole=not any(left))

    def _room_left(self) -> IntMatrix:
        problem = self.problem
        room = problem.freed(self.chosen)
        for number, (_, shape) in enumerate(problem.classes):
            room -= problem.requests[shape][:, None] * self.counts[number]
        return room

    def _place(self, number: int, wanted: int, *, free_only: bool) -> int:
        """Place members of a class; give how many found a place."""
        if wanted <= 0:
            return 0
        heap: list[tuple[Cost, int]] = []
        now: dict[int, Cost] = {}
        for row in np.flatnonzero(self.slots[number] > 0).tolist():
            cost = self._offer(number, row)
            if cost is not None:
                now[row] = cost
                heap.append((cost, row))
        heapify(heap)
        placed = 0
        while heap and placed < wanted:
            cost, row = heappop(heap)
            if now.get(row) != cost:
                continue
            if free_only and cost != _FREE:
                break
            fresh = self._offer(number, row)
            if fresh != cost:  # a gang can spare fewer than when the node was asked
                now.pop(row)
                if fresh is not None:
                    now[row] = fresh
                    heappush(heap, (fresh, row))
                continue
            self._commit(number, row)
            placed += 1
            for other in sorted(self.stale):
                fresh = self._offer(number, other)
                if fresh is None:
                    now.pop(other, None)
                else:
                    now[other] = fresh
                    heappush(heap, (fresh, other))
            self.stale.clear()
        return placed

    def _candidates(self, row: int) -> list[int]:
        if row not in self._known:
            here = self.problem.on_node(row)
            self._known[row] = here[self.usable[here]].tolist()
        return self._known[row]

    def _offer(self, number: int, row: int) -> Cost | None:
        """What one more member on a node would cost; None where it does not fit at all."""
        if self.slots[number, row] <= 0:
            return None
        picked = self._pick(number, row)
        if picked is None:
            return None
        if not picked:
            return _FREE
        table, jobs = self.problem.candidates, self.problem.jobs
        violations = broken = pods = priorities = 0
        highest = -(2**62)
        spared: dict[int, int] = {}
        lost: set[int] = set()
        for one in picked:
            job = int(table.job[one])
            violations += self._over_budget(one)
            priority = int(table.priority[one])
            highest = max(highest, priority)
            spared[job] = spared.get(job, self._spare_of(job)) - 1
            if spared[job] >= 0:
                pods += 1
                priorities += priority
            elif job not in lost:
                lost.add(job)
                broken += 1
                size = int(jobs.running[job]) - self.evicted.get(job, 0)
                pods += size
                priorities += priority * size
        return (violations, highest, broken, pods, priorities)

    def _spare_of(self, job: int) -> int:
        jobs = self.problem.jobs
        return int(jobs.slack[job]) - self.evicted.get(job, 0)

    def _over_budget(self, one: int) -> int:
        covered = self.problem.covered
        return sum(self.budget[index] <= 0 for index in np.flatnonzero(covered[:, one]).tolist())

    def _pick(self, number: int, row: int) -> list[int] | None:
        """Choose who leaves a node for one more member; None where that is not enough."""
        shape = self.problem.shapes[self.problem.classes[number][1]]
        asked = [(r, int(shape.request[r])) for r in np.flatnonzero(shape.request > 0).tolist()]
        lack = {r: amount - int(self.room[r, row]) for r, amount in asked if amount > self.room[r, row]}
        if not lack:
            return []
        table = self.problem.candidates
        ranked = []
        for one in self._candidates(row):
            if self.chosen[one]:
                continue
            job = int(table.job[one])
            spared = self._spare_of(job) > 0
            if not spared and not self.whole[job]:
                continue
            helps = sum(min(int(table.amounts[r, one]), need) * 1024 // need for r, need in lack.items())
            if helps:
                size = 0 if spared else int(self.problem.jobs.running[job])
                key = (self._over_budget(one), not spared, size, -helps, int(table.priority[one]), one)
                ranked.append(key)
        ranked.sort()
        left = dict(lack)
        picked: list[int] = []
        taken: dict[int, int] = {}
        for key in ranked:
            one = key[-1]
            if all(amount <= 0 for amount in left.values()):
                break
            job = int(table.job[one])
            if not self.whole[job] and taken.get(job, 0) >= self._spare_of(job):
                continue
            taken[job] = taken.get(job, 0) + 1
            picked.append(one)
            for r in left:
                left[r] -= int(table.amounts[r, one])
        if any(amount > 0 for amount in left.values()):
            return None
        for one in picked[-2::-1]:
            if all(left[r] + int(table.amounts[r, one]) <= 0 for r in left):
                picked.remove(one)
                for r in left:
                    left[r] += int(table.amounts[r, one])
        return picked

    def _commit(self, number: int, row: int) -> None:
        picked = self._pick(number, row)
        for one in picked or ():
            if not self.chosen[one]:
                self._evict(one)
        shape = self.problem.classes[number][1]
        self.counts[number, row] += 1
        self.slots[self._shape_of == shape, row] -= 1
        self.room[:, row] -= self.problem.requests[shape]
        self.stale.add(row)

    def _evict(self, one: int) -> None:
        """Take a candidate out, with the rest of its gang where that breaks."""
        job = int(self.problem.candidates.job[one])
        going = [one] if self._spare_of(job) > 0 else self.problem.of_job(job).tolist()
        for each in going:
            if self.chosen[each]:
                continue
            self.chosen[each] = True
            row = int(self.problem.candidates.node[each])
            self.room[:, row] += self.problem.candidates.amounts[:, each]
            self.stale.add(row)
            for index in np.flatnonzero(self.problem.covered[:, each]).tolist():
                self.budget[index] -= 1
            self.evicted[job] = self.evicted.get(job, 0) + 1
        if self._spare_of(job) <= 0:
            # What this gang costs elsewhere has changed.
            self.stale.update(self.problem.candidates.node[self.problem.of_job(job)].tolist())


_FREE: Cost = (0, -(2**62), 0, 0, 0)


def spare(
    problem: PreemptionProblem, counts: IntMatrix, chosen: BoolVector, moves: IntVector | None = None
) -> BoolVector:
    """Let everybody stay who is not needed for those who come to be where they are, dearest first.

    Gangs that are broken stay whole or leave whole; one that has left too far is given back down to what it
    can spare.

    Parameters
    ----------
    problem
        What is asked.
    counts
        Members by shape and node, shape (S, N).
    chosen
        Candidates that would leave, shape (V,).
    moves
        Where candidates move to instead, shape (V,), negative for nowhere; ``None`` where nobody
        moves.
    """
    leavers = _Leavers(problem, counts, chosen, moves)
    jobs = problem.jobs
    for (lone, _, _, job), ones in leavers.units():
        if not leavers.back(ones) and not lone and jobs.slack[job]:
            leavers.most_back(job)
    closed = close(problem, leavers.kept)
    return leavers.kept if closed is None else closed


class _Leavers:
    """Who would leave, and what their nodes have left once those who come are there.

    Parameters
    ----------
    problem, counts, chosen, moves
        As for :func:`spare`; ``kept`` is a copy of ``chosen`` out of which those are taken who may stay.
    """

    def __init__(
        self, problem: PreemptionProblem, counts: IntMatrix, chosen: BoolVector, moves: IntVector | None
    ) -> None:
        self.kept = chosen.copy()
        self._problem, self._counts = problem, counts
        table = problem.candidates
        room = problem.freed(self.kept)
        for number, (_, shape) in enumerate(problem.classes):
            room -= problem.requests[shape][:, None] * counts[number]
        wanted = _wanted(problem, counts)
        for one, row in enumerate(moves.tolist() if moves is not None else ()):
            if row >= 0:
                request = problem.requests[problem.shape_of_kind[one]]
                room[:, row] -= request
                wanted[request > 0, row] = True
        self._staying = np.zeros(len(table), dtype=bool) if moves is None else moves >= 0
        # Thousands of single steps are faster on plain lists than on arrays.
        self._leaving: list[int] = np.flatnonzero(self.kept).tolist()
        self._node = dict(zip(self._leaving, table.node[self._leaving].tolist(), strict=True))
        amounts = table.amounts[:, self._leaving].T.tolist()
        self._given_by: dict[int, list[int]] = dict(zip(self._leaving, amounts, strict=True))
        self._left = {row: room[:, row].tolist() for row in self._node.values()}
        # A node may be short of what nobody who comes asks for: that is not theirs to mend.
        self._asked = {row: np.flatnonzero(wanted[:, row]).tolist() for row in self._left}

    def units(self) -> list[tuple[tuple[int, int, int, int], list[int]]]:
        """Give who stays or leaves together, dearest first: gangs that break whole, all others one by one."""
        table, jobs = self._problem.candidates, self._problem.jobs
        evicted = np.bincount(table.job[self.kept], minlength=len(jobs.names))
        broken = (evicted > 0) & (jobs.running - evicted < jobs.least)
        leaving = self._leaving
        priority = dict(zip(leaving, table.priority[leaving].tolist(), strict=True))
        gangs: dict[int, list[int]] = {}
        units: list[tuple[tuple[int, int, int, int], list[int]]] = []
        of_job = table.job[leaving]
        for one, job, breaks in zip(leaving, of_job.tolist(), broken[of_job], strict=True):
            if breaks:
                gangs.setdefault(job, []).append(one)
            else:
                units.append(((1, -priority[one], 0, one), [one]))
        for job, ones in gangs.items():
            units.append(((0, -max(priority[one] for one in ones), -len(ones), job), ones))
        units.sort(key=lambda unit: (unit[0][1], unit[0]))
        return units

    def back(self, ones: Sequence[int]) -> bool:
        """Let some stay where their nodes and quotas hold them besides those who come."""
        self._give(ones, -1)
        left, asked = self._left, self._asked
        if all(
            left[row][resource] >= 0 for row in {self._node[one] for one in ones} for resource in asked[row]
        ):
            self.kept[list(ones)] = False
            problem = self._problem
            if not problem.pools or problem.pools_hold(self._counts, self.kept & ~self._staying):
                return True
            self.kept[list(ones)] = True
        self._give(ones, 1)
        return False

    def most_back(self, job: int) -> None:
        """Let a gang that breaks keep its minimum where it can spare as many as have to leave."""
        ones = [one for one in self._problem.of_job(job).tolist() if self.kept[one]]
        given: list[int] = []
        for row in sorted({self._node[one] for one in ones}):
            here = [one for one in ones if self._node[one] == row][:_MOST_TOGETHER]
            sets = (some for size in range(len(here), 0, -1) for some in combinations(here, size))
            given += next((some for some in sets if self.back(some)), ())
        if len(ones) - len(given) > self._problem.jobs.slack[job]:
            self.kept[given] = True
            self._give(given, 1)

    def _give(self, ones: Sequence[int], sign: int) -> None:
        for one in ones:
            here = self._left[self._node[one]]
            for resource, amount in enumerate(self._given_by[one]):
                here[resource] += sign * amount


def _wanted(problem: PreemptionProblem, counts: IntMatrix) -> BoolVector:
    """Resources that the members on a node ask for, shape (R, N)."""
    wanted = np.zeros(problem.free.shape, dtype=bool)
    for number, (_, shape) in enumerate(problem.classes):
        wanted |= (problem.requests[shape] > 0)[:, None] & (counts[number] > 0)
    return wanted


def _in_multiples(problem: PreemptionProblem, counts: IntMatrix) -> bool:
    tree = problem.tree
    if tree is None:
        return True
    per_node = counts.sum(axis=0)
    if not per_node.any():
        return True
    if (per_node[problem.place < 0] > 0).any():
        return False
    bound = problem.bound if len(problem.bound) else np.zeros_like(per_node)
    total = np.zeros(len(tree.nodes), np.int64)
    inside = problem.place >= 0
    total[problem.place[inside]] = (per_node + bound)[inside]
    sums = tree.sum_up(total)
    for layer, multiple in problem.spec.multiples.items():
        depth = tree.depth_of(layer)
        if depth is None:
            continue
        span = slice(tree.layer_start[depth], tree.layer_start[depth + 1])
        if (sums[span] % multiple != 0).any():  # also where only members run
            return False
    return True
