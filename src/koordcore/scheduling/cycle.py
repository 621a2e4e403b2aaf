"""The loop: queue order, admit, filter, score, allocate, assume; one pod after another, call after call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from koordcore._line import Delta
from koordcore.errors import ModelError
from koordcore.framework.evaluator import Refusal
from koordcore.framework.match_plan import MatchPlan
from koordcore.framework.node_moves import departures_between
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.requests import Marks, kinds_with
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import Limits
from koordcore.model.decisions import Bound, JobPlan, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import GangTurns, Policy
from koordcore.protocol.gang_names import (
    ANNOTATION_GANG_NAME,
    LABEL_LIGHTWEIGHT_NAME,
    LABEL_POD_GROUP,
    gang_name,
)
from koordcore.result import ScheduleResult, with_victims_leaving
from koordcore.scheduling.one_pod import place_pod
from koordcore.scheduling.permit_holds import NOBODY, Kept, PermitHolds, again, reopened
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, changes_between, near, steps_between
from koordcore.snapshot.forking import with_waiting

if TYPE_CHECKING:
    from koordcore.model.preemption import PreemptionRules
    from koordcore.scheduling.gang_groups import Job, JobTable
    from koordcore.scheduling.gang_queue import JointTurns
    from koordcore.scheduling.preempt import Preemptor


_GROUPED: Final = Marks(
    frozenset(("scheduling_group", LABEL_POD_GROUP, LABEL_LIGHTWEIGHT_NAME, ANNOTATION_GANG_NAME))
)
"""By which pods say that they go with others; where nobody does, nothing of gangs is read."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def queue_order(pods: Iterable[Pod]) -> list[Pod]:
    """Sort pods as the queue does: higher priority first, then older, then by namespace and name.

    A pod without a creation time counts as older than any that has one.
    """
    ordered = sorted(pods, key=attrgetter("key"))
    ordered.sort(key=_age)
    ordered.sort(key=attrgetter("priority"), reverse=True)  # keeps the order of equals
    return ordered


def _age(pod: Pod) -> datetime:
    return pod.created or _EPOCH


def waiting_pods(snapshot: ClusterSnapshot, policy: Policy) -> Iterable[Pod]:
    """Give the pods that wait, and those that stand for what plugins place."""
    return chain(snapshot.pending, stand_ins(snapshot, policy))


def stand_ins(snapshot: ClusterSnapshot, policy: Policy) -> Iterable[Pod]:
    """Give the pods that stand for what plugins place."""
    return chain.from_iterable(kind.waiting(snapshot) for kind in kinds_with(policy, "waiting", snapshot))


def run(
    snapshot: ClusterSnapshot,
    pods: Iterable[Pod] | None,
    policy: Policy,
    now: datetime | None,
    limits: Limits,
    preempt: PreemptionRules | None,
) -> ScheduleResult:
    """Do what :func:`koordcore.schedule` promises."""
    return _result_of(open_cycle(snapshot, pods, policy, now, limits, preempt))


def open_cycle(
    snapshot: ClusterSnapshot,
    pods: Iterable[Pod] | None,
    policy: Policy,
    now: datetime | None,
    limits: Limits,
    preempt: PreemptionRules | None,
    *,
    ours: Collection[PodKey] = (),
) -> SchedulingCycle:
    """Get ready to decide about pods; nobody has had a turn yet.

    Where a plugin matches all pods with what it holds, both ways are tried and the better one is given.

    Parameters
    ----------
    pods
        Whom to decide about, whatever their scheduler; ``None`` for those that wait for ours.
    ours
        Who of those that wait is decided about, too, for whatever scheduler it waits.
    """
    given = None if pods is None else list(pods)
    snapshot, kept = reopened(snapshot, policy, given, now)
    if kept and given is not None:  # who keeps a place is asked about as the one that stands there
        given = [*(pod for pod in given if pod.key not in kept), *(one.pod for one in kept.values())]
    asked = queue_order(waiting_pods(snapshot, policy) if given is None else given)
    known = _take_in(snapshot, asked)
    strangers: list[Pod] = []
    if pods is None:
        others = {name for name in {pod.scheduler_name for pod in asked} if policy.profile_of(name) is None}
        if others:
            strangers = [pod for pod in asked if pod.scheduler_name in others and pod.key not in ours]
            asked = [pod for pod in asked if pod.scheduler_name not in others or pod.key in ours]

    def cycle(plan: MatchPlan | None = None) -> SchedulingCycle:
        queue = asked if plan is None else plan.order(asked)
        return SchedulingCycle(known, queue, policy, now, limits, preempt, plan, strangers, kept)

    plain = cycle()
    if not plain.plugins.matching:
        return plain
    from koordcore.scheduling.joint_matching import better_of, match_queue

    plan = match_queue(PluginSet(open_workspace(known, policy, now), policy), asked, limits)
    if not plan.meant:
        return plain
    one_by_one, together = _result_of(plain), _result_of(cycle(plan))
    return cycle(plan if better_of(one_by_one, together, asked) is together else None)


def _result_of(cycle: SchedulingCycle) -> ScheduleResult:
    for _ in cycle.turns():
        cycle.decide()
    return cycle.finish()


class SchedulingCycle:
    """One call: the queue, the state that pods are placed in, and what was decided so far.

    Parameters
    ----------
    snapshot
        The cluster, all pods of the queue among its pending ones.
    queue
        Whom to decide about, in this order.
    matched
        What some pods are to try first.
    strangers
        Pods that wait for other schedulers.
    kept
        Members of the queue that keep places from an earlier call.

    Attributes
    ----------
    policy, workspace, plugins
        The state now, and who decides.
    decisions
        What was decided, turn after turn.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        queue: Sequence[Pod],
        policy: Policy,
        now: datetime | None,
        limits: Limits,
        preempt: PreemptionRules | None,
        matched: MatchPlan | None = None,
        strangers: Sequence[Pod] = (),
        kept: Mapping[PodKey, Kept] = NOBODY,
    ) -> None:
        self.policy = policy
        self._start, self._now, self._limits = snapshot, now, limits
        # Where pods are meant for something, that is so in this call only.
        self._lasting = matched is None
        warm = take_warm(opened(snapshot, policy), policy, now) if self._lasting else None
        if warm is None:
            self.workspace = open_workspace(snapshot, policy, now)
            self.plugins = PluginSet(self.workspace, policy)
        else:
            self.workspace, self.plugins = warm
        self._holds = PermitHolds(self.workspace, self.plugins, kept, now) if kept else None
        if self.plugins.nominated.claiming():
            from koordcore.scheduling.promised_claims import keep_for_nominated

            keep_for_nominated(self.workspace, self.plugins)
        self.decisions: list[PodDecision] = []
        self._plans: list[JobPlan] = []
        if matched is not None:
            from koordcore.scheduling.joint_matching import follow

            follow(self.plugins, matched)
        self._strangers, self._asked = strangers, len(queue)
        self._table: JobTable | None = None
        if preempt is not None or any(map(_GROUPED.on, queue)):
            from koordcore.scheduling.gang_groups import JobTable

            self._table = JobTable(self.workspace.snapshot, policy)
        self._preemptor: Preemptor | None = None
        if preempt is not None and self._table is not None:
            from koordcore.scheduling.preempt import Preemptor

            self._preemptor = Preemptor(self.workspace, self.plugins, self._table, preempt, limits)
        self._turns: Iterable[Pod | Job] = queue if self._table is None else self._table.turns(queue)
        self._together: JointTurns | None = None
        if any(profile.gangs is GangTurns.TOGETHER for profile in policy.profiles):
            from koordcore.scheduling.gang_queue import JointTurns

            self._together = JointTurns(
                self.workspace, self.plugins, policy, limits, evicting=preempt is not None
            )
            self._turns = self._together.turns(self._turns, self._table)
        self._turn: Pod | Job | None = None
        self._helpless: tuple[object, ...] | None = None
        """What is known of the last pod that no eviction helped: nobody of whom the same holds is helped."""

    def turns(self) -> Iterator[Pod | Job]:
        """Give the units of the queue, pods and gang groups; each is decided by :meth:`decide`."""
        for turn in self._turns:
            self._turn = turn
            yield turn

    def decide(self) -> list[PodDecision]:
        """Decide about the unit whose turn it is; gives one decision per pod of it."""
        turn = self._turn
        assert turn is not None, "nobody has the turn"
        found = self._decide_pod(turn) if isinstance(turn, Pod) else self._decide_group(turn)
        if self.plugins.nominated.exist:
            self.plugins.nominated.decided(found)
            if self._preemptor is not None:
                self._preemptor.withdraw(found, self._names())
        self.decisions += found
        return found

    def _names(self) -> frozenset[str]:
        """Give the names under which others may have been evicted for the unit whose turn it is."""
        turn = self._turn
        whole = () if turn is None or isinstance(turn, Pod) else (turn.name, ",".join(sorted(turn.members)))
        return frozenset((*whole, *(str(pod.key) for pod in self._unit())))

    def _unit(self) -> Sequence[Pod]:
        """Give the pods of the unit whose turn it is."""
        turn = self._turn
        return () if turn is None else (turn,) if isinstance(turn, Pod) else turn.pods

    def vacate(self) -> Mapping[PodKey, Kept]:
        """Take whoever has the turn off the places that are kept; gives who may have which again first."""
        return NOBODY if self._holds is None else self._holds.release(self._unit())

    def about(self, key: PodKey) -> Pod | None:
        """Give a pod where :meth:`decide` is about to decide about it; what its unit keeps is vacated."""
        if any(pod.key == key for pod in self._unit()):
            self.vacate()
        ahead = () if self._together is None else self._together.ahead
        return next((pod for pod in (*self._unit(), *ahead) if pod.key == key), None)

    def _decide_pod(self, pod: Pod) -> list[PodDecision]:
        own = again(self.workspace, self.plugins, pod, kept) if (kept := self.vacate()) else None
        decision = place_pod(self.workspace, self.plugins, pod) if own is None else own
        self.workspace.commit()
        if self._table is not None and isinstance(decision, Bound):
            self._table.placed(pod.key)
        if self._preemptor is None or not isinstance(decision, Unschedulable):
            return [decision]
        if self._helpless is not None and self._helpless == self._standing(pod):
            return [decision]
        with self.plugins.nominated.assumed(pod):
            nominated = self._preemptor.for_pod(pod)
        self._helpless = self._standing(pod) if nominated is None else None
        return [decision] if nominated is None else [*nominated]

    def _standing(self, pod: Pod) -> tuple[object, ...] | None:
        """Give all that says whether evictions help a pod; ``None`` for a member of a gang and the like."""
        own = self.plugins.class_of(pod)
        alone = pod.scheduling_group is None and not gang_name(pod.labels, pod.annotations)
        if isinstance(own, Refusal) or self.plugins.nominated.exist or not alone:
            return None
        rank = (pod.priority, pod.preemption_policy, pod.namespace)
        return (own, len(self.workspace.journal), *rank, pod.labels, pod.annotations)

    def _decide_group(self, job: Job) -> list[PodDecision]:
        # Gangs bring the solver's adapter and more; a call without any should not pay for them.
        from koordcore.scheduling.gang import place_job

        own = [pod.key for pod in job.pods]
        settled = None if self._together is None else self._together.settled(job)
        kept = self.vacate()
        least = min(job.pods, key=lambda pod: (pod.priority, pod.key))
        with self.plugins.nominated.assumed(least, besides=own):
            members, plan = settled or place_job(self.workspace, self.plugins, job, self._limits, kept)
            if self._preemptor is not None and not plan.held and not plan.malformed and not job.stopped:
                from koordcore.scheduling.outcomes import with_nominations

                members = with_nominations(members, self._preemptor.for_job(job, members))
        self._plans.append(plan)
        assert self._table is not None, "jobs come from it"
        self._table.started(job, members)
        return members

    def close(self) -> ClusterSnapshot:
        """Leave what was learnt to later calls; gives the cluster. The cycle must not be used any more."""
        if self._preemptor is not None:
            self._preemptor.release()
        end = self.workspace.freeze()
        if self._lasting and self.workspace.snapshot is end:
            hand_back(self.workspace, self.plugins, self.policy)
        return end

    def finish(self) -> ScheduleResult:
        """Give what was decided, and the cluster afterwards; the cycle must not be used any more."""
        nodes = len(self.workspace.layout.names)  # what is handed back goes on with whoever asks next
        end = self.close()
        if self._preemptor is not None:
            from koordcore.scheduling.outcomes import nominate

            end = nominate(end, self.decisions, self._preemptor.withdrawn)
            end = with_victims_leaving(end, self._preemptor.plans)
        for kind in kinds_with(self.policy, "closed", self._start):
            end = kind.closed(self._start, end, self.decisions, self._now)
        strangers = [NotOurs(pod=pod.key, scheduler_name=pod.scheduler_name) for pod in self._strangers]
        kinds = Counter(map(type, self.decisions))
        counts = {
            "pods": self._asked,
            "bound": kinds[Bound],
            "unschedulable": kinds[Unschedulable],
            **({"nominated": kinds[Nominated]} if self._preemptor else {}),
            "waiting": kinds[Waiting],
            **({"not_ours": len(strangers)} if strangers else {}),
            "nodes": nodes,
        }
        return ScheduleResult(
            decisions=(*self.decisions, *strangers),
            snapshot=end,
            jobs=tuple(self._plans),
            together=() if self._together is None else tuple(self._together.plans),
            preemptions=tuple(self._preemptor.plans) if self._preemptor is not None else (),
            withdrawn=tuple(sorted(self._preemptor.withdrawn)) if self._preemptor is not None else (),
            policy=self.policy,
            stats=counts,
        )


def opened(snapshot: ClusterSnapshot, policy: Policy) -> ClusterSnapshot:
    """Give the cluster as the policy's plugins are to see it."""
    for kind in kinds_with(policy, "opened", snapshot):
        snapshot = kind.opened(snapshot)
    return snapshot


def open_workspace(snapshot: ClusterSnapshot, policy: Policy, now: datetime | None = None) -> Workspace:
    """Make a workspace on the cluster as the policy's plugins see it.

    Parameters
    ----------
    snapshot
        As the caller knows it.
    policy
        Whose plugins will be asked.
    """
    return Workspace(opened(snapshot, policy), now)


def _take_in(snapshot: ClusterSnapshot, pods: list[Pod]) -> ClusterSnapshot:
    seen: set[PodKey] = set()
    for pod in pods:
        key = pod.key
        if key in seen:
            raise ModelError(f"pod {key} stands twice")
        if pod.node_name is not None or key in snapshot.location:
            raise ModelError(f"pod {key} is bound to {pod.node_name or snapshot.location[key]} already")
        seen.add(key)
    if {*map(id, pods)} <= {*map(id, snapshot.pending)}:
        return snapshot
    pending = {pod.key: pod for pod in snapshot.pending}
    strangers = [pod for pod in pods if (known := pending.get(pod.key)) is not pod and known != pod]
    return with_waiting(snapshot, strangers) if strangers else snapshot


_LONGEST, _SHORTEST, _EACH = 200_000, 4000, 25
"""Entries of the journal after which a state is built anew: at most, at least, more for each node."""
_FARTHEST: Final = 2
"""For each node so many that changed are followed; beyond that it costs less to build anew."""


class _Warm(NamedTuple):
    """What a call has learnt, which goes with its result: the next call on the line goes on with it.

    A workspace with its plugins, classes, masks and scores. It stands on one snapshot; a call on another one
    of the line leads it there by the pods that came and left, and by nodes and records that changed. A plugin
    that cannot follow is made anew. It may be dropped at any time; that changes no answer.
    """

    workspace: Workspace
    plugins: PluginSet


def take_warm(
    snapshot: ClusterSnapshot, policy: Policy, now: datetime | None
) -> tuple[Workspace, PluginSet] | None:
    """Take what an earlier call has learnt, led to a snapshot; ``None`` where there is nothing of use."""
    found: _Warm | None = snapshot.place.line.pool.take(policy)
    if found is None:
        return None
    workspace, plugins = found
    deltas = steps_between(workspace.snapshot, snapshot)
    if not near(deltas, _FARTHEST * (len(workspace.layout.names) + _FARTHEST), workspace.running):
        return None
    known, index = workspace.layout.resources, snapshot.layout.index
    wider = snapshot.layout.resources != known
    if wider and any(name not in index for name in known):
        return None  # it is of a fork in which fewer have been named
    moved = wider or any(delta.moves for delta in deltas)
    changes = _with_rows(workspace, plugins, snapshot, deltas) if moved else changes_between(deltas)
    if not workspace.advance(snapshot, changes, plugins.removed, plugins.placed):
        return None
    workspace.now = now
    plugins.follow(changes, moved=moved)
    return workspace, plugins


def _with_rows(
    workspace: Workspace, plugins: PluginSet, snapshot: ClusterSnapshot, deltas: Sequence[Delta]
) -> ClusterChanges:
    """Give a state the rows of a snapshot, where nodes joined or left or resources came in.

    Gives what else changed.
    """
    between = departures_between(deltas, workspace.layout, snapshot.layout, len(workspace.journal))
    for row, state in between.left.items():
        for pod in state.pods:
            workspace.evict(pod.key, row)
            plugins.removed(pod, row)
    workspace.move(snapshot.layout, between)
    plugins.move(between.moves)
    return between.changes


def hand_back(workspace: Workspace, plugins: PluginSet, policy: Policy) -> None:
    """Leave what a call has learnt with the snapshot that its workspace stands on."""
    if len(workspace.journal) <= min(_LONGEST, _SHORTEST + _EACH * len(workspace.layout.names)):
        workspace.settle()
        workspace.snapshot.place.line.pool.put(policy, _Warm(workspace, plugins))
