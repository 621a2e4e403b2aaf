"""Plans of moves that every plugin agrees with: devices, NUMA, quota, affinity, topology.

The planners of this package know amounts. Here their moves are carried out on a private copy of the cluster,
one after the other, by the same plugins that place pods; then :mod:`koordcore.checking.moves` checks every
step. What either refuses is excluded and the plan is made again: the pair of pod and node, and what
:mod:`koordcore.descheduling.refused_places` finds beside it; in the end the pod, and at last every pod. So no
plan with a refused move is given, and each is certified by the bound of the first, which left nothing out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeVar, cast

import attrs

from koordcore._record import record
from koordcore.checking.moves import verify_moves
from koordcore.checking.violation import Violation
from koordcore.descheduling.budgets import migrating_groups, move_groups, selected_groups
from koordcore.descheduling.moves import Allows, Group
from koordcore.descheduling.refused_places import RefusedPlaces
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.requests import kinds_with
from koordcore.model.affinity import TaintEffect, Toleration, TolerationOperator, tolerated
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.cluster import PodDisruptionBudget, Workload
from koordcore.model.decisions import Bound
from koordcore.model.migration import PodMigrationJob
from koordcore.model.moves import Move
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.rebalance import NO_LIMITS, EvictionLimits, MigrationControllerArgs
from koordcore.model.resources import PODS, Resources
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.gang_book import Minimums
from koordcore.scheduling.gang_groups import JobTable
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.reset import unbound
from koordcore.snapshot import ClusterSnapshot

_STEPS: Final = 3
_MOST_ROUNDS: Final = 20
"""Rounds in which pairs of pod and node are excluded."""
_LAST_ROUNDS: Final = 8
"""Rounds after these, in which pods are."""
_DEFAULT_ARGS: Final = MigrationControllerArgs()


class Plan(Protocol):
    """Whatever a planner gives: it has moves, and it is known how good they are."""

    @property
    def moves(self) -> tuple[Move, ...]:
        """By wave."""

    @property
    def certificate(self) -> Certificate:
        """How good the plan is known to be."""


P = TypeVar("P", bound=Plan)


@record
class CheckedMoves:
    """Moves with what each pod gets at its target.

    Parameters
    ----------
    bound
        One decision per move, in the order of the moves that could be carried out.
    snapshot
        The cluster once the last of these waves is over.
    refusals
        Pairs of pod and node that a plugin or the checker refuses, all of one wave; empty when all agree.
    violations
        What the checker says; empty where nobody asked it.
    """

    bound: tuple[Bound, ...]
    snapshot: ClusterSnapshot
    refusals: tuple[tuple[PodKey, str], ...] = ()
    violations: tuple[Violation, ...] = ()

    @property
    def refused(self) -> tuple[PodKey, str] | None:
        """The first pair that is refused; ``None`` when all agree."""
        return self.refusals[0] if self.refusals else None


def limits_of(
    snapshot: ClusterSnapshot,
    *,
    args: MigrationControllerArgs | None = None,
    limits: EvictionLimits = NO_LIMITS,
) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """List what limits a plan for a snapshot: budgets, workloads, gangs, and the limits that are given.

    Parameters
    ----------
    snapshot
        The cluster, with its PodDisruptionBudgets, workloads, gangs and PodMigrationJobs.
    args
        Limits of migration; upstream's defaults when left out.
    limits
        Evictions that the plan may make per node, per namespace, and in all.

    Returns
    -------
    groups, at_once
        What may be moved in all, and what may be on its way at any moment.
    """
    pods = tuple(snapshot.bound_pods())
    jobs = snapshot.of(PodMigrationJob)
    groups = move_groups(
        pods,
        pending=snapshot.pending,
        budgets=snapshot.of(PodDisruptionBudget),
        workloads=snapshot.of(Workload),
        minimums=Minimums(JobTable(snapshot).book.records),
        jobs=jobs,
        args=args,
        limits=limits,
    )
    at_once = migrating_groups(pods, args=args, jobs=jobs)
    groups = (*groups, *selected_groups(snapshot, args or _DEFAULT_ARGS))
    # What may not even start is a limit on the whole plan, and said as one.
    full = tuple(group for group in at_once if group.most < 1)
    return (*groups, *full), tuple(group for group in at_once if group.most >= 1)


def static_allows(snapshot: ClusterSnapshot, args: MigrationControllerArgs = _DEFAULT_ARGS) -> Allows:
    """Tell where a pod may go by cordon, labels, required node affinity, taints and selected nodes alone."""
    nodes = {state.name: state.node for state in snapshot.nodes}
    memo: dict[tuple[PodKey, str], bool] = {}
    hard = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)

    def allows(key: PodKey, name: str) -> bool:
        known = memo.get((key, name))
        if known is not None:
            return known
        pod, node = snapshot.pod(key), nodes[name]
        verdict = False
        if pod is not None and not node.unschedulable and node.ready and args.selects(node):
            required = pod.affinity.node.required if pod.affinity and pod.affinity.node else None
            verdict = (
                all(node.labels.get(label) == value for label, value in pod.node_selector.items())
                and (required is None or required.matches(node.name, node.labels))
                and all(
                    taint.effect not in hard or tolerated(taint, pod.tolerations) for taint in node.taints
                )
            )
        memo[key, name] = verdict
        return verdict

    return allows


def check_moves(
    snapshot: ClusterSnapshot, moves: Sequence[Move], policy: Policy, now: datetime | None = None
) -> CheckedMoves:
    """Carry moves out wave by wave on a copy of the cluster.

    Parameters
    ----------
    snapshot
        The cluster before.
    moves
        As a planner gives them.
    policy
        Which plugins have a say.
    now
        The moment of the plan, for plugins that ask how old something is.
    """
    bound: list[Bound] = []
    pods = {move.pod: snapshot.pod(move.pod) for move in moves}
    for wave in sorted({move.arrives for move in moves}):
        arriving = [move for move in moves if move.arrives == wave]
        leaving = [move.pod for move in moves if move.leaves <= wave and snapshot.pod(move.pod) is not None]
        standing = [key for key in leaving if key not in {one.pod for one in bound}]
        before = snapshot.forget(*standing)
        workspace = open_workspace(before, policy, now)
        plugins = PluginSet(workspace, policy)
        rows = {name: row for row, name in enumerate(workspace.layout.names)}
        refused: list[tuple[PodKey, str]] = []
        known = len(bound)
        for move in sorted(arriving, key=lambda move: move.pod):
            pod = pods[move.pod]
            assert pod is not None, f"{move.pod} is not in the snapshot"
            decision = place_there(workspace, plugins, unbound(pod), rows[move.target])
            if decision is None:
                refused.append((move.pod, move.target))
            else:
                bound.append(decision)
        if refused:
            return CheckedMoves(tuple(bound), snapshot, tuple(refused))
        snapshot = workspace.freeze()
        for kind in kinds_with(policy, "closed", before):
            snapshot = kind.closed(before, snapshot, bound[known:], now)
    return CheckedMoves(tuple(bound), snapshot)


def slots_there(
    snapshot: ClusterSnapshot,
    slot: Resources,
    places: Sequence[tuple[str, int]],
    policy: Policy,
    now: datetime | None = None,
) -> dict[str, int]:
    """Try to place one pod after the other into the slots that a plan offers.

    Parameters
    ----------
    snapshot
        The cluster after the moves.
    slot
        What each of the pods asks for; they tolerate every taint and count in no quota.
    places
        Node and number of slots.
    policy
        Which plugins have a say.
    now
        As for :func:`check_moves`.

    Returns
    -------
    dict
        Node to the slots that its plugins agree with, where these are fewer: cards are free and form no
        partition, or room is reserved.
    """
    workspace = open_workspace(snapshot, policy, now)
    plugins = PluginSet(workspace, policy.without_plugin("ElasticQuota"))
    everything = (Toleration(operator=TolerationOperator.EXISTS),)
    asked = {name: amount for name, amount in slot.items() if name != PODS}
    fewer: dict[str, int] = {}
    for name, slots in places:
        row = workspace.layout.row_of[name]
        for number in range(slots):
            pod = Pod(name=f"slot-{number}-of-{name}", requests=asked, tolerations=everything)
            if place_there(workspace, plugins, pod, row) is None:
                fewer[name] = number
                break
    return fewer


def refused_shape(snapshot: ClusterSnapshot, slot: Resources, policy: Policy) -> str:
    """Say why no node can ever take a pod of some size, whoever moves; empty where one may."""
    workspace = open_workspace(snapshot, policy)
    plugins = PluginSet(workspace, policy.without_plugin("ElasticQuota"))
    asked = {name: amount for name, amount in slot.items() if name != PODS}
    found = plugins.class_of(Pod(name="slot", requests=asked))
    if isinstance(found, Refusal):
        return found.reason
    refused = found.refuse()
    return refused[1].reason if refused is not None and not refused[1].resolvable else ""


def checked_plan(
    snapshot: ClusterSnapshot,
    plan: Callable[[Allows], P],
    *,
    policy: Policy = Policy(),
    args: MigrationControllerArgs | None = None,
    limits: EvictionLimits = NO_LIMITS,
    movable: Collection[PodKey] = (),
    now: datetime | None = None,
    again: Callable[[Allows], P] | None = None,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> tuple[P, CheckedMoves]:
    """Plan, check, and plan again without what a plugin or the checker refuses.

    Parameters
    ----------
    snapshot
        The cluster.
    plan
        Makes a plan, given where pods may run.
    policy
        Which plugins have a say.
    args, limits
        The limits that the plan was made with; see :func:`limits_of`.
    movable
        Pods that the plan may move, to ask the plugins about more than those whose moves they refuse.
    now
        As for :func:`check_moves`.
    again
        Makes the plans after the first, with less work, as there may be many; ``plan`` does when left out.
    progress
        Called after planning, after asking the plugins and after the check with how many of these are done,
        and of how many; they begin anew where something is refused.

    Returns
    -------
    plan, CheckedMoves
        The plan has no refused move, and no moves at all where nothing else does. ``refused`` of the second
        is set only where a planner moves pods that it may not move.
    """
    static = static_allows(snapshot, args or _DEFAULT_ARGS)
    places = RefusedPlaces(snapshot, policy, movable, now)
    excluded: set[tuple[PodKey, str]] = set()
    staying: set[PodKey] = set()
    over = False

    def allows(key: PodKey, name: str) -> bool:
        if over or key in staying or (key, name) in excluded or places.refuses(key, name):
            return False
        return static(key, name)

    def attempt(plan: Callable[[Allows], P]) -> tuple[P, CheckedMoves]:
        made = plan(allows)
        progress(1, _STEPS)
        checked = check_moves(snapshot, made.moves, policy, now)
        progress(2, _STEPS)
        if checked.refused is None and made.moves:
            found = verify_moves(
                snapshot, made.moves, checked.bound, policy=policy, args=args, limits=limits, now=now
            )
            checked = attrs.evolve(checked, violations=found, refusals=_blamed(made.moves, found))
        return made, checked

    made, checked = attempt(plan)
    first = made.certificate
    for number in range(_MOST_ROUNDS + _LAST_ROUNDS + 1):
        if checked.refused is None:
            break
        pods = tuple(dict.fromkeys(pod for pod, _ in checked.refusals))
        if number < _MOST_ROUNDS:
            excluded.update(checked.refusals)
            places.ask(pods)
        else:
            staying.update(pods)
        over = number == _MOST_ROUNDS + _LAST_ROUNDS
        made, checked = attempt(again or plan)
    return bounded(made, first), checked


def bounded(made: P, first: Certificate) -> P:
    """Certify a plan by what was known before anything was refused.

    What is refused beside some moves might be allowed beside others, so a proof that leaves it out is none.
    """
    own = made.certificate
    if own == first:
        return made
    if own.objective == first.objective:
        known = first
    elif first.bound:
        known = Certificate.make_bounded(own.objective, first.bound)
    else:
        known = Certificate(CertificateStatus.HEURISTIC, own.objective)
    return cast("P", attrs.evolve(cast("Any", made), certificate=known))


def _blamed(moves: Sequence[Move], found: Sequence[Violation]) -> tuple[tuple[PodKey, str], ...]:
    """Choose a move that a violation is about, or to whose target it comes; else the last one."""
    if not found:
        return ()
    subjects = {one.subject for one in found}
    for move in reversed(moves):
        if str(move.pod) in subjects or move.target in subjects:
            return ((move.pod, move.target),)
    return ((moves[-1].pod, moves[-1].target),)
