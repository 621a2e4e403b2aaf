"""The cheapest victims on one node: pods that are alike are counted, and counts are tried with bounds.

A gang gives what it can spare pod by pod, or leaves whole; sets of victims that a dry run refused are left
out, with all their subsets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from koordcore._arrays import BoolVector, IntVector
from koordcore._record import record
from koordcore.model.preemption import NO_PRIORITY
from koordcore.preemption.problem import PreemptionProblem

_MOST_STEPS: Final = 20_000
"""Steps of one search; beyond, the solver is asked."""
_DEAR: Final = 2**62

Cost: TypeAlias = tuple[int, int, int, int, int, int]
"""The fields of :class:`~koordcore.model.preemption.Damage` without moves."""


class StepsExceeded(Exception):  # noqa: N818 - it is a signal, no error
    """The node's pods are too different to be tried one by one."""


@record(eq=False)
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


@record(eq=False)
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


@record(eq=False)
class Wanted:
    """What a node lacks for a member.

    Parameters
    ----------
    row
        The node.
    lack
        Resources of the node that do not suffice, with what is missing.
    shared
        What is missing beside the nodes, such as in a quota, with what each candidate gives back, shape (V,).
    far
        Candidates anywhere that may leave for the sake of those.
    refused
        Victims that were not enough all the same, shape (V,) each: neither is any part of them. What has no
        say on the node is marked, too.
    """

    row: int
    lack: tuple[tuple[int, int], ...]
    shared: tuple[tuple[IntVector, int], ...] = ()
    far: tuple[int, ...] = ()
    refused: tuple[BoolVector, ...] = ()

    @property
    def missing(self) -> tuple[int, ...]:
        """How much is missing of everything."""
        return tuple(amount for _, amount in (*self.lack, *self.shared))


def cheapest_victims(problem: PreemptionProblem, wanted: Wanted) -> NodeVictims | None:
    """Find the cheapest set of victims that gives a node what is lacking; None where there is none.

    Raises
    ------
    StepsExceeded
        When the search takes too long.
    """
    return _Search(problem, _Units(problem, wanted).units(), wanted.missing, len(wanted.refused)).run()


class _Units:
    """What can be taken for a node, candidate by candidate or gang by gang."""

    def __init__(self, problem: PreemptionProblem, wanted: Wanted) -> None:
        self._problem, self._wanted = problem, wanted
        here = problem.on_node(wanted.row)
        self._near: list[int] = here[problem.usable[here]].tolist()
        node = problem.candidates.node
        self._far = [one for one in wanted.far if node[one] != wanted.row]
        amounts = problem.candidates.amounts
        self._gives = {
            one: (
                *(int(amounts[resource, one]) for resource, _ in wanted.lack),
                *(int(given[one]) for given, _ in wanted.shared),
            )
            for one in self._near
        }
        nothing = (0,) * len(wanted.lack)
        for one in self._far:
            self._gives[one] = (*nothing, *(int(given[one]) for given, _ in wanted.shared))

    def units(self) -> list[_Unit]:
        """List the units, those first that give most, so that few steps reach what is lacking."""
        problem, jobs = self._problem, self._problem.jobs
        alike: dict[tuple[object, ...], list[int]] = {}
        broken: dict[int, None] = {}
        for one in (*self._near, *self._far):
            job = int(problem.candidates.job[one])
            alone = _alone(problem, job)
            if not alone and jobs.breakable[job] and jobs.least[job] > 0:
                broken[job] = None
            if alone or jobs.slack[job]:
                alike.setdefault(self._likeness(one, -1 if alone else job), []).append(one)
        units = [self._unit(ones[:1], tuple(ones), self._gives[ones[0]]) for ones in alike.values()]
        for job in broken:
            everybody = problem.of_job(job).tolist()
            units.append(self._unit(everybody, tuple(everybody), self._given_by(everybody), whole=True))
        units.sort(key=lambda unit: (unit.whole, [-amount for amount in unit.gives], unit.highest, unit.ones))
        return units

    def _given_by(self, gang: Sequence[int]) -> tuple[int, ...]:
        """What a whole gang gives: on the node by those who are there, beside the nodes by all."""
        size = len(self._wanted.lack)
        here = [self._gives[one] for one in gang if self._problem.candidates.node[one] == self._wanted.row]
        near = [sum(given[place] for given in here) for place in range(size)]
        far = [int(given[list(gang)].sum()) for given, _ in self._wanted.shared]
        return (*near, *far)

    def _likeness(self, one: int, gang: int) -> tuple[object, ...]:
        problem = self._problem
        priority, restart = int(problem.candidates.priority[one]), int(problem.restart[one])
        return gang, priority, self._gives[one], restart, problem.budgets_of(one), self._bits((one,))

    def _unit(
        self, step: Sequence[int], ones: tuple[int, ...], gives: tuple[int, ...], *, whole: bool = False
    ) -> _Unit:
        """Write down what a unit takes and costs; ``step`` leaves with the first step."""
        problem = self._problem
        priorities = [int(problem.candidates.priority[one]) for one in step]
        covered = Counter(budget for one in step for budget in problem.budgets_of(one))
        job = int(problem.candidates.job[step[0]])
        return _Unit(
            ones=ones,
            gang=-1 if _alone(problem, job) else job,
            whole=whole,
            gives=gives,
            highest=max(priorities),
            pods=len(step),
            priorities=sum(priorities),
            restart=sum(int(problem.restart[one]) for one in step),
            budgets=tuple(sorted(covered.items())),
            refused=self._bits(step),
        )

    def _bits(self, ones: Iterable[int]) -> int:
        """Tell within which of the refused sets some candidates stay, a bit each."""
        listed = list(ones)
        return sum(
            1 << number for number, refused in enumerate(self._wanted.refused) if refused[listed].all()
        )


def _alone(problem: PreemptionProblem, job: int) -> bool:
    """Tell whether a job is a pod without a gang."""
    return bool(problem.jobs.running[job] == 1 and problem.jobs.least[job] == 1)


class _Search:
    """Counts of units, one after the other; what cannot beat the best set so far is not followed."""

    def __init__(
        self, problem: PreemptionProblem, units: Sequence[_Unit], lack: tuple[int, ...], refused: int
    ) -> None:
        self._units, self._lack, self._refused = units, lack, (1 << refused) - 1
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


@record(eq=False)
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
