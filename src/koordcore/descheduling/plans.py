"""Plans of moves for a snapshot: set up, planned, and confirmed by every plugin and by the checker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar

import attrs

from koordcore._notebook import html_table
from koordcore._record import record
from koordcore.descheduling.card_amounts import asked_by_parts, nodes_by_parts, pods_by_parts
from koordcore.descheduling.checked_moves import (
    CheckedMoves,
    Plan,
    bounded,
    checked_plan,
    limits_of,
    slots_there,
)
from koordcore.descheduling.compare import EvictionOutcome, outcome_of
from koordcore.descheduling.costs import moving_costs
from koordcore.descheduling.defrag import DefragmentationPlan, plan_defragmentation
from koordcore.descheduling.emptying import EmptyingPlan, plan_emptying
from koordcore.descheduling.evict import CycleEvictor, balance_low_node_load
from koordcore.descheduling.load_problem import problem_of_load, problem_of_requests, spared
from koordcore.descheduling.migration.filter import under_way
from koordcore.descheduling.moves import Allows, MoveProblem, hot_hosts
from koordcore.descheduling.plan import RebalancePlan, plan_rebalance
from koordcore.descheduling.wanted import Wanted
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, Limits
from koordcore.model.checks import names_its_fields
from koordcore.model.devices import GPU
from koordcore.model.mappings import EMPTY
from koordcore.model.metrics import NodeMetric, PodMetric
from koordcore.model.moves import Move
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.rebalance import (
    NO_LIMITS,
    EvictionLimits,
    EvictorArgs,
    LowNodeLoadArgs,
    MigrationControllerArgs,
)
from koordcore.model.resources import PODS
from koordcore.snapshot import ClusterSnapshot

P = TypeVar("P", bound=Plan)
_MANY: Final = 8
"""Plans after the first that may take together what the first may."""


@names_its_fields
@record(kw_only=True)
class MoveRules:
    """What every plan of moves has to keep to.

    Parameters
    ----------
    policy
        Which plugins say where a pod may run.
    migration
        Limits of migration, and which pods may be evicted at all.
    limits
        Evictions that one plan may make per node, per namespace, and in all.
    costs
        Prices of moving single pods. Left out, hot nodes are cooled at prices by class
        (:func:`~koordcore.descheduling.costs.moving_costs`), and for anything else a move costs 1.
    now
        The moment of the plan, for plugins that ask how old something is, as :func:`koordcore.schedule` takes
        it. Left out, how old a NodeMetric is keeps no pod from a node.
    """

    policy: Policy = Policy()
    migration: MigrationControllerArgs = attrs.field(factory=MigrationControllerArgs)
    limits: EvictionLimits = NO_LIMITS
    costs: Mapping[PodKey, int] = EMPTY
    now: datetime | None = None

    @property
    def evictor(self) -> EvictorArgs:
        """Which pods may be evicted at all."""
        return self.migration.evictor


DEFAULT_RULES: Final = MoveRules()
"""The stock plugins, and upstream's defaults."""


@record
class Moving(Generic[P]):
    """A plan with what it was made from and what it comes to.

    Parameters
    ----------
    snapshot
        The cluster that it was made for.
    problem
        Hosts, movable pods and limits that the planner saw.
    plan
        The plan.
    checked
        What each pod gets at its target. The planners of this package give no plan with a refused move.
    """

    snapshot: ClusterSnapshot = attrs.field(repr=False)
    problem: MoveProblem
    plan: P
    checked: CheckedMoves

    def _repr_html_(self) -> str:
        """Show the moves in a notebook."""
        certificate = self.plan.certificate
        refused = [f"{pod} is refused on {node}" for pod, node in self.checked.refusals]
        title = f"{len(self.plan.moves)} moves, {certificate.status.text}"
        return html_table(title, self.table(), [*refused, f"objective {list(certificate.objective)}"])

    def table(self) -> dict[str, list[Any]]:
        """Give the moves as columns by name, as pandas, polars and pyarrow take them.

        Returns
        -------
        dict
            ``pod``, ``source``, ``target``, and the waves, from 0, in which it ``leaves`` and ``arrives``.
        """
        moves = self.plan.moves
        return {
            "pod": [str(move.pod) for move in moves],
            "source": [move.source for move in moves],
            "target": [move.target for move in moves],
            "leaves": [move.leaves for move in moves],
            "arrives": [move.arrives for move in moves],
        }

    @property
    def legal(self) -> bool:
        """Every plugin and the checker agree with every step."""
        return self.checked.refused is None


def plan_cooling(
    snapshot: ClusterSnapshot,
    args: LowNodeLoadArgs,
    *,
    now: int,
    metrics: Mapping[str, NodeMetric] | None = None,
    rules: MoveRules = DEFAULT_RULES,
    budget: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> Moving[RebalancePlan]:
    """Plan the fewest moves that leave the fewest nodes hot, and none hotter than it is.

    Among plans of as many moves the cheapest is taken: batch pods move rather than prod pods. Pods that
    terminate, or that active PodMigrationJobs move, are taken to have left hot nodes.

    Parameters
    ----------
    snapshot
        The cluster.
    args
        Thresholds, and which pods are looked at.
    now
        Moment in nanoseconds since 1970.
    metrics
        Node name to its report; those of the snapshot when left out.
    rules
        Where pods may run, and limits.
    budget
        Of the solver.
    progress
        As for :func:`checked_plan`.
    """
    if metrics is None:
        metrics = {one.node: one for one in snapshot.of(NodeMetric)}
    groups, at_once = limits_of(snapshot, args=rules.migration, limits=rules.limits)
    pods = tuple(snapshot.bound_pods())
    going = under_way(snapshot)
    loaded = partial(
        problem_of_load,
        [state.node for state in snapshot.nodes],
        args=args,
        now=now,
        evictor=CycleEvictor(rules.evictor, leaving=going),
        under_way=going,
    )
    costs = {**moving_costs(pods), **rules.costs}
    problem = loaded(pods, metrics, groups=groups, at_once=at_once, costs=costs)
    plan = partial(plan_rebalance, limits=budget)
    again = partial(plan_rebalance, limits=_less(budget))
    moving = confirmed(snapshot, spared(problem), plan, rules, progress, again)
    if not moving.plan.moves or not any(pool.deviation for pool in args.pools):
        return moving
    then = loaded(*_moved(pods, metrics, moving.plan.moves))
    shifted = {host.name for host in hot_hosts(then.hosts)}.difference(moving.plan.after)
    return attrs.evolve(moving, plan=attrs.evolve(moving.plan, hot_again=tuple(sorted(shifted))))


def _moved(
    pods: Sequence[Pod], metrics: Mapping[str, NodeMetric], moves: Sequence[Move]
) -> tuple[list[Pod], dict[str, NodeMetric]]:
    """Give pods and what is reported of them as they are once the moves are done."""
    targets = {move.pod: move.target for move in moves}
    coming: dict[str, list[PodMetric]] = {}
    staying: dict[str, list[PodMetric]] = {name: list(one.pods) for name, one in metrics.items()}
    for move in moves:
        for one in metrics[move.source].pods:
            if (one.namespace, one.name) == (move.pod.namespace, move.pod.name):
                staying[move.source].remove(one)
                coming.setdefault(move.target, []).append(one)
    reported = {
        name: attrs.evolve(one, pods=(*staying[name], *coming.get(name, ()))) for name, one in metrics.items()
    }
    return [pod.at(targets[pod.key]) if pod.key in targets else pod for pod in pods], reported


def compare_round(
    snapshot: ClusterSnapshot,
    args: LowNodeLoadArgs,
    problem: MoveProblem,
    *,
    now: int,
    metrics: Mapping[str, NodeMetric],
    rules: MoveRules = DEFAULT_RULES,
) -> EvictionOutcome:
    """Say what the reference's LowNodeLoad would reach in one round, anomaly detectors left out.

    Parameters
    ----------
    snapshot, args, now, metrics, rules
        As for :func:`plan_cooling`.
    problem
        What that plan was made from.
    """
    pools = tuple(attrs.evolve(pool, anomaly=None) for pool in args.pools)
    evicted, _ = balance_low_node_load(
        [state.node for state in snapshot.nodes],
        tuple(snapshot.bound_pods()),
        metrics,
        attrs.evolve(args, pools=pools),
        now=now,
        evictor=CycleEvictor(rules.evictor, rules.limits, leaving=under_way(snapshot)),
    )
    return outcome_of(problem, (one.pod.key for one in evicted))


def plan_room(
    snapshot: ClusterSnapshot,
    wanted: Wanted,
    *,
    rules: MoveRules = DEFAULT_RULES,
    budget: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> Moving[DefragmentationPlan]:
    """Plan the fewest moves after which a shape fits, by amounts and by every plugin.

    Where the plugins take fewer slots than a node has free amounts for, because cards form no partition or
    CPUs lie on two NUMA nodes, the node is asked for no more than these and the plan is made again. Each slot
    is a pod, whether the shape says so or not.

    Parameters
    ----------
    snapshot
        The cluster.
    wanted
        What should fit.
    rules
        Where pods may run, and limits.
    budget
        Of the solver.
    progress
        As for :func:`checked_plan`.
    """
    problem = problem_of_rooms(snapshot, rules)
    # The webhook writes hundredths of cards as core and memory before anybody places the pod.
    shape = asked_by_parts(wanted.requests) if GPU in wanted.requests else wanted.requests
    aim = attrs.evolve(wanted, requests={PODS: 1, **asked_by_parts(wanted.requests)})
    first: Certificate | None = None
    while True:
        plan = partial(plan_defragmentation, wanted=aim, limits=budget)
        again = partial(plan_defragmentation, wanted=aim, limits=_less(budget))
        moving = confirmed(snapshot, problem, plan, rules, progress, again)
        first = moving.plan.certificate if first is None else first
        fewer = slots_there(moving.checked.snapshot, shape, moving.plan.places, rules.policy, rules.now)
        if not fewer:
            return attrs.evolve(moving, plan=bounded(moving.plan, first))
        aim = attrs.evolve(aim, at_most={**aim.at_most, **fewer})


def plan_empty_nodes(
    snapshot: ClusterSnapshot,
    *,
    most: int | None = None,
    rules: MoveRules = DEFAULT_RULES,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> Moving[EmptyingPlan]:
    """Plan to empty nodes, those with the cheapest pods first.

    Parameters
    ----------
    snapshot
        The cluster.
    most
        Empty at most so many nodes; ``None`` as many as possible.
    rules
        Where pods may run, and limits.
    progress
        As for :func:`checked_plan`.
    """
    problem = problem_of_rooms(snapshot, rules)
    return confirmed(snapshot, problem, partial(plan_emptying, most=most), rules, progress)


def _less(budget: Limits) -> Limits:
    """Give the budget of plans after the first: there may be many, and what is proven is the first one's."""
    return attrs.evolve(budget, deterministic_time=budget.deterministic_time / _MANY)


def problem_of_rooms(snapshot: ClusterSnapshot, rules: MoveRules) -> MoveProblem:
    """Set up moves that look at requests alone."""
    groups, at_once = limits_of(snapshot, args=rules.migration, limits=rules.limits)
    return problem_of_requests(
        nodes_by_parts(state.node for state in snapshot.nodes),
        pods_by_parts(snapshot.bound_pods()),
        evictor=CycleEvictor(rules.evictor),
        groups=groups,
        at_once=at_once,
        costs=rules.costs,
    )


def confirmed(
    snapshot: ClusterSnapshot,
    problem: MoveProblem,
    plan: Callable[[MoveProblem], P],
    rules: MoveRules,
    progress: Callable[[int, int], None] = lambda _, __: None,
    again: Callable[[MoveProblem], P] | None = None,
) -> Moving[P]:
    """Make a plan with everything that plugins and checker refuse left out.

    The plans after the first are made by ``again``, where it is given.
    """

    def with_places(allows: Allows, plan: Callable[[MoveProblem], P] = plan) -> P:
        return plan(attrs.evolve(problem, allows=allows))

    done, checked = checked_plan(
        snapshot,
        with_places,
        policy=rules.policy,
        args=rules.migration,
        limits=rules.limits,
        movable={one.pod for one in problem.movable},
        now=rules.now,
        again=partial(with_places, plan=again or plan),
        progress=progress,
    )
    return Moving(snapshot, problem, done, checked)
