"""The cheapest victims on one node: pods that are alike are counted, and counts are tried with bounds.

A gang gives what it can spare pod by pod, or leaves whole; sets of victims that a dry run refused are left
out, with all their subsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from koordcore._arrays import BoolVector, IntVector
from koordcore.model.preemption import NO_PRIORITY
from koordcore.preemption.problem import PreemptionProblem

__all__ = ["Cost", "NodeVictims", "StepsExceeded", "cheapest_victims"]

_MOST_STEPS: Final = 20_000
"""Steps of one search; beyond, the solver is asked."""
_DEAR: Final = 2**62

Cost: TypeAlias = tuple[int, int, int, int, int, int]
"""The fields of :class:`~koordcore.model.preemption.Damage` without moves."""


class StepsExceeded(Exception):  # noqa: N818 - it is a signal, no error
    """The node's pods are too different to be tried one by one."""


@attrs.frozen(eq=False)
class NodeVictims:
    """Who leaves for a member on one node.

    Parameters
    ----------
    ones
        Candidates, with the rest of the gangs that break.
    cost
        What that costs.
    """

    ones: tuple[int, ...]
    cost: Cost


@attrs.frozen(eq=False)
class _Unit:
    """One step takes the next of some candidates that are alike, or a gang as a whole.

    Parameters
    ----------
    ones
        Candidates in the order in which they are taken; all at once for a whole gang.
    gang
        Job that can spare so many pods only, or breaks; -1 for pods without a gang.
    whole
        The gang breaks.
    gives
        What a step gives on the node, per resource that is lacking.
    highest, pods, priorities, restart
        What a step costs.
    budgets
        How many pods of a step each disruption budget covers.
    refused
        Bits of the refused sets that a step stays within.
    """

    ones: tuple[int, ...]
    gang: int
    whole: bool
    gives: tuple[int, ...]
    highest: int
    pods: int
    priorities: int
    restart: int
    budgets: tuple[tuple[int, int], ...]
    refused: int

    @property
    def most(self) -> int:
        """Steps that can be taken."""
        return 1 if self.whole else len(self.ones)


def cheapest_victims(
    problem: PreemptionProblem,
    row: int,
    lack: Sequence[tuple[int, int]],
    usable: BoolVector,
    refused: Sequence[frozenset[int]] = (),
) -> NodeVictims | None:
    """Find the cheapest set of victims that gives a node what is lacking; None where there is none.

    Parameters
    ----------
    row
        The node.
    lack
        Resources that do not suffice, with what is missing.
    usable
        Candidates that may leave, shape (V,).
    refused
        Victims on the node that were not enough all the same: neither is any part of them.

    Raises
    ------
    StepsExceeded
        When the search takes too long.
    """
    here = problem.on_node(row)
    units = _units(problem, here[usable[here]], [resource for resource, _ in lack], refused)
    search = _Search(problem, units, tuple(amount for _, amount in lack), (1 << len(refused)) - 1)
    return search.run()


def _units(
    problem: PreemptionProblem, here: IntVector, resources: Sequence[int], refused: Sequence[frozenset[int]]
) -> list[_Unit]:
    """What can be taken from a node, dearest to part with last."""
    jobs = problem.jobs
    amounts = problem.candidates.amounts[:, here][list(resources)].T.tolist()
    gives = dict(zip(here.tolist(), map(tuple, amounts), strict=True))
    alike: dict[tuple[object, ...], list[int]] = {}
    whole: dict[int, list[int]] = {}
    for one, job in zip(here.tolist(), problem.candidates.job[here].tolist(), strict=True):
        alone = jobs.running[job] == 1 and jobs.least[job] == 1
        if not alone and jobs.breakable[job] and jobs.least[job] > 0:
            whole.setdefault(job, []).append(one)
        if alone or jobs.slack[job]:
            alike.setdefault(_likeness(problem, one, -1 if alone else job, gives[one], refused), []).append(
                one
            )
    nothing = (0,) * len(resources)
    units = [_unit(problem, ones[:1], tuple(ones), gives[ones[0]], refused) for ones in alike.values()]
    for job, ones in whole.items():
        given = tuple(map(sum, zip(*(gives[one] for one in ones), strict=True))) or nothing
        everybody = problem.of_job(job).tolist()
        units.append(_unit(problem, everybody, tuple(everybody), given, refused, near=ones))
    # Whoever gives most comes first, so that few steps reach what is lacking.
    units.sort(key=lambda unit: (unit.whole, [-amount for amount in unit.gives], unit.highest, unit.ones))
    return units


def _likeness(
    problem: PreemptionProblem,
    one: int,
    gang: int,
    gives: tuple[int, ...],
    refused: Sequence[frozenset[int]],
) -> tuple[object, ...]:
    priority, restart = int(problem.candidates.priority[one]), int(problem.restart[one])
    return gang, priority, gives, restart, problem.budgets_of(one), _bits(refused, (one,))


def _unit(
    problem: PreemptionProblem,
    step: Sequence[int],
    ones: tuple[int, ...],
    gives: tuple[int, ...],
    refused: Sequence[frozenset[int]],
    near: Sequence[int] = (),
) -> _Unit:
    """Write down what one step takes and costs.

    Parameters
    ----------
    step
        Who leaves with the first step.
    near
        Those of a whole gang that are on the node; none for candidates that are counted.
    """
    table = problem.candidates
    priorities = [int(table.priority[one]) for one in step]
    covered = Counter(budget for one in step for budget in problem.budgets_of(one))
    job = int(table.job[step[0]])
    alone = problem.jobs.running[job] == 1 and problem.jobs.least[job] == 1
    return _Unit(
        ones=ones,
        gang=-1 if alone else job,
        whole=bool(near),
        gives=gives,
        highest=max(priorities),
        pods=len(step),
        priorities=sum(priorities),
        restart=sum(int(problem.restart[one]) for one in step),
        budgets=tuple(sorted(covered.items())),
        refused=_bits(refused, near or step),
    )


def _bits(refused: Sequence[frozenset[int]], ones: Iterable[int]) -> int:
    """Tell within which of the refused sets some candidates stay, a bit each."""
    listed = tuple(ones)
    return sum(1 << number for number, kept in enumerate(refused) if kept.issuperset(listed))


class _Search:
    """Counts of units, one after the other; what cannot beat the best set so far is not followed."""

    def __init__(
        self, problem: PreemptionProblem, units: Sequence[_Unit], lack: tuple[int, ...], refused: int
    ) -> None:
        self._units, self._lack, self._refused = units, lack, refused
        self._allowed = [max(0, int(amount)) for amount in problem.budgets]
        self._slack = problem.jobs.slack
        self._steps = 0
        self._best: Cost | None = None
        self._taken: tuple[int, ...] = ()
        self._now: list[int] = [0] * len(units)

    def run(self) -> NodeVictims | None:
        """Search by the highest priority that leaves, because that costs more than anything below it."""
        for highest in sorted({unit.highest for unit in self._units}):
            self._open = [unit.highest <= highest for unit in self._units]
            self._prepare()
            self._walk(0, _State(self._lack, self._refused))
            if self._best is not None and not self._best[0]:
                break
        if self._best is None:
            return None
        pairs = zip(self._units, self._taken, strict=True)
        ones = [
            one for unit, steps in pairs for one in (unit.ones if unit.whole and steps else unit.ones[:steps])
        ]
        return NodeVictims(tuple(sorted(ones)), self._best)

    def _prepare(self) -> None:
        """What the units from each position on can give in all, and the least that they cost per pod."""
        size = len(self._lack)
        left = [(0,) * size]
        rates = [(0,) * size]
        cheapest = [_DEAR]
        spare = [False]
        for unit, open_ in zip(self._units[::-1], self._open[::-1], strict=True):
            given = tuple(unit.most * amount if open_ else 0 for amount in unit.gives)
            left.append(tuple(map(sum, zip(left[-1], given, strict=True))))
            each = tuple(-(-amount // unit.pods) if open_ else 0 for amount in unit.gives)
            rates.append(tuple(map(max, zip(rates[-1], each, strict=True))))
            cheapest.append(min(cheapest[-1], unit.priorities // unit.pods) if open_ else cheapest[-1])
            spare.append(spare[-1] or (open_ and unit.gang >= 0))
        self._left, self._rates = left[::-1], rates[::-1]
        self._cheapest, self._spare = cheapest[::-1], spare[::-1]

    def _walk(self, at: int, state: _State) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise StepsExceeded
        if not state.refused and all(amount <= 0 for amount in state.lack):
            cost = self._cost(state)
            if self._best is None or cost < self._best:
                self._best, self._taken = cost, tuple(self._now)
            return
        if at == len(self._units) or not self._hopeful(at, state):
            return
        unit = self._units[at]
        for steps in range(self._most(at, state), 0, -1):
            self._now[at] = steps
            self._walk(at + 1, state.after(unit, steps))
        self._now[at] = 0
        self._walk(at + 1, state)

    def _most(self, at: int, state: _State) -> int:
        """Steps of a unit that can be taken and are of use."""
        unit = self._units[at]
        if not self._open[at]:
            return 0
        spent = state.spent.get(unit.gang, 0) if unit.gang >= 0 else 0
        if unit.whole:
            return 0 if spent else 1
        most = unit.most if unit.gang < 0 else min(unit.most, int(self._slack[unit.gang]) - spent)
        needed = [
            -(-amount // given)
            for amount, given in zip(state.lack, unit.gives, strict=True)
            if amount > 0 < given
        ]
        return min(most, max(needed, default=1 if state.refused & ~unit.refused else 0))

    def _hopeful(self, at: int, state: _State) -> bool:
        """Tell whether what is left can be enough, and cheaper than the best so far."""
        few = 1
        for amount, left, rate in zip(state.lack, self._left[at], self._rates[at], strict=True):
            if amount > left:
                return False
            if amount > 0:
                few = max(few, -(-amount // rate))
        if self._best is None:
            return True
        violations, highest, jobs, pods, priorities, restart = self._cost(state)
        bound = (
            violations,
            highest,
            jobs + (0 if self._spare[at] else few),
            pods + few,
            priorities + few * self._cheapest[at],
            restart,
        )
        return bound < self._best

    def _cost(self, state: _State) -> Cost:
        over = (max(0, count - self._allowed[budget]) for budget, count in state.covered.items())
        return (sum(over), state.highest, state.jobs, state.pods, state.priorities, state.restart)


@attrs.frozen(eq=False)
class _State:
    """What has been taken so far.

    Parameters
    ----------
    lack
        What is still missing, per resource.
    refused
        Bits of the refused sets that everything taken stays within.
    spent
        Pods that were taken of gangs that can spare some, by job.
    covered
        Pods that each disruption budget covers.
    """

    lack: tuple[int, ...]
    refused: int
    spent: Mapping[int, int] = {}
    covered: Mapping[int, int] = {}
    highest: int = NO_PRIORITY
    jobs: int = 0
    pods: int = 0
    priorities: int = 0
    restart: int = 0

    def after(self, unit: _Unit, steps: int) -> _State:
        """Take some steps of a unit."""
        spent, covered = self.spent, self.covered
        if unit.gang >= 0:
            spent = {**spent, unit.gang: spent.get(unit.gang, 0) + unit.pods * steps}
        if unit.budgets:
            covered = {
                **covered,
                **{one: covered.get(one, 0) + number * steps for one, number in unit.budgets},
            }
        return _State(
            lack=tuple(amount - steps * given for amount, given in zip(self.lack, unit.gives, strict=True)),
            refused=self.refused & unit.refused,
            spent=spent,
            covered=covered,
            highest=max(self.highest, unit.highest),
            jobs=self.jobs + (steps if unit.gang < 0 or unit.whole else 0),
            pods=self.pods + unit.pods * steps,
            priorities=self.priorities + unit.priorities * steps,
            restart=self.restart + unit.restart * steps,
        )
