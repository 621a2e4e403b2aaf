"""Starts ahead and what may run before them: what others in the cluster say holds there as it does now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    Pod,
    PodKey,
    backfill,
    earliest_start,
    named_policy,
    schedule,
    verify,
)
from koordcore.model.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    TaintEffect,
    TopologySpreadConstraint,
    UnsatisfiableAction,
)
from koordcore.model.cluster import Workload
from koordcore.model.plugin_args import SpreadArgs, SpreadDefaulting
from koordcore.model.pods import PodPhase
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.quotas import ElasticQuota
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.reservation import OPERATING_MODE, RESERVATION_OWNERS
from koordcore.scheduling.backfilling import EarliestStart, NoStart
from tests.reservations.worlds import must, node, pod, reservation
from tests.scheduling.test_gangs import members

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
QUOTA = "quota.scheduling.koordinator.sh/name"
OWN = {QUOTA: "q"}
GANG = "gang"


def key(name: str) -> PodKey:
    return PodKey("default", name)


def in_zone(name: str, zone: str, cpu: int) -> Node:
    return attrs.evolve(node(name, cpu=cpu), labels={"zone": zone})


# -- the first moment ----------------------------------------------------------------------------------------


def spreading(action: UnsatisfiableAction) -> Policy:
    constraint = TopologySpreadConstraint(max_skew=1, topology_key="zone", when_unsatisfiable=action)
    args = SpreadArgs(defaulting=SpreadDefaulting.LIST, default_constraints=(constraint,))
    return Policy().with_plugin(PluginSetting(name="PodTopologySpread", args=args))


@pytest.mark.parametrize("action", list(UnsatisfiableAction))
def test_a_start_is_found_before_somebody_leaves_whom_the_policys_spreading_counts(
    action: UnsatisfiableAction,
) -> None:
    """When the pod in the other zone has left as well, one here is one too many."""
    service = Workload(kind="Service", name="s", selector=LabelSelector({"app": "x"}))
    running = [
        pod("big", 4, node_name="a"),
        pod("here", 2, "x", node_name="a"),
        pod("there", 2, "x", node_name="b"),
    ]
    snapshot = ClusterSnapshot(
        nodes=[in_zone("a", "za", 6), in_zone("b", "zb", 2)], pending=[pod("p", 4, "x")], records=[service]
    ).assume(*running)
    ends = {key("big"): NOW + HOUR, key("there"): NOW + 2 * HOUR}
    found = earliest_start(snapshot, ["default/p"], ends, now=NOW, policy=spreading(action))
    assert isinstance(found, EarliestStart)
    assert (found.start, dict(found.nodes)) == (NOW + HOUR, {key("p"): "a"})


def test_several_pods_that_differ_start_before_the_better_node_for_one_leaves_the_other_none() -> None:
    """Once the larger node is empty the small one goes there, and the large one fits nowhere else."""
    running = [pod("one", 7, node_name="a"), pod("late", 1, node_name="b")]
    asked = [pod("small", 2, priority=1), pod("large", 8, node_selector={"zone": "zb"})]
    nodes = [in_zone("a", "za", 8), in_zone("b", "zb", 9)]
    snapshot = ClusterSnapshot(nodes=nodes, pending=asked).assume(*running)
    ends = {key("one"): NOW + HOUR, key("late"): NOW + 2 * HOUR}
    policy = named_policy("stock")
    assert len(schedule(snapshot.forget(*ends), asked, policy=policy).bound) == 1
    found = earliest_start(snapshot, asked, ends, now=NOW, policy=policy)
    assert isinstance(found, EarliestStart)
    assert (found.start, dict(found.nodes)) == (NOW + HOUR, {key("small"): "a", key("large"): "b"})


def test_of_pods_of_one_template_few_moments_are_looked_at() -> None:
    """Replicas of a stateful set differ in their names and numbers alone."""
    label = "apps.kubernetes.io/pod-index"
    asked = [pod(f"web-{row}", 1, labels={label: str(row)}) for row in range(2)]
    running = [pod(f"r{row}", 1, node_name="a") for row in range(32)]
    snapshot = ClusterSnapshot(nodes=[node("a", 32)], pending=asked).assume(*running)
    ends = {one.key: NOW + row * HOUR for row, one in enumerate(running, 1)}
    found = earliest_start(snapshot, asked, ends, now=NOW)
    assert isinstance(found, EarliestStart)
    assert found.start == NOW + 2 * HOUR
    assert found.probes < 10


def test_who_needs_what_a_running_pod_lends_starts_before_that_one_ends() -> None:
    owners = '[{"labelSelector":{"matchLabels":{"app":"x"}}}]'
    lender = pod(
        "lender",
        4,
        labels={OPERATING_MODE: "Reservation"},
        annotations={RESERVATION_OWNERS: owners},
        node_name="a",
        phase=PodPhase.RUNNING,
        ready=True,
    )
    asks = pod("p", 8, "x", annotations=must())
    snapshot = ClusterSnapshot(nodes=[node("a")], pending=[asks]).assume(lender, pod("big", 4, node_name="a"))
    ends = {key("big"): NOW + HOUR, lender.key: NOW + 2 * HOUR}
    policy = named_policy("koordinator")
    assert schedule(snapshot.forget(key("big")), policy=policy, now=NOW).bound
    found = earliest_start(snapshot, [asks], ends, now=NOW, policy=policy)
    assert isinstance(found, EarliestStart)
    assert found.start == NOW + HOUR


def quotas() -> list[ElasticQuota]:
    return [ElasticQuota(name=name, min={"cpu": 0}, max={"cpu": 8000}) for name in ("q", "r")]


def test_what_others_ask_for_counts_in_quotas_while_they_wait() -> None:
    """Two quotas share nine CPUs: six of them are nobody's where the other waits for all."""
    asks, other = pod("p", 6, labels=OWN), pod("b", 9, labels={QUOTA: "r"})
    policy = named_policy("koordinator")
    snapshot = ClusterSnapshot(nodes=[node("a", cpu=9)], pending=[asks, other], records=quotas()).assume(
        pod("big", 1, node_name="a")
    )
    ends = {key("big"): NOW + HOUR}
    assert not schedule(snapshot, policy=policy).bound
    assert isinstance(earliest_start(snapshot, [asks], ends, now=NOW, policy=policy), NoStart)
    alone = attrs.evolve(snapshot, pending=(asks,))
    assert isinstance(earliest_start(alone, [asks], ends, now=NOW, policy=policy), EarliestStart)


def test_what_is_promised_to_others_is_theirs_while_they_wait() -> None:
    promised = pod("n", 6, nominated_node="a", priority=9)
    snapshot = ClusterSnapshot(nodes=[node("a")], pending=[promised, pod("p", 6)]).assume(
        pod("big", 2, node_name="a")
    )
    found = earliest_start(snapshot, ["default/p"], {key("big"): NOW + HOUR}, now=NOW)
    assert isinstance(found, NoStart)


# -- what may run before -------------------------------------------------------------------------------------


def planned(*others: Pod, running: tuple[Pod, ...], **rest: list[ElasticQuota]) -> ClusterSnapshot:
    """A job that gets the larger node when its pod has ended, and others that wait."""
    return ClusterSnapshot(
        nodes=[in_zone("a", "z", 8), in_zone("b", "z", 4)], pending=[pod("p", 7, priority=1), *others], **rest
    ).assume(pod("big", 6, node_name="a"), *running)


def before(snapshot: ClusterSnapshot, policy: Policy = Policy()) -> list[str]:
    """Give who may run before the job; none of them may be illegal in the cluster as it is."""
    ends = {key("big"): NOW + HOUR}
    plan = earliest_start(snapshot, ["default/p"], ends, now=NOW, policy=policy)
    assert isinstance(plan, EarliestStart)
    found = backfill(snapshot, plan, ends, {}, now=NOW, policy=policy)
    chosen = {pod: at for job in found.jobs for pod, at in job.pods.items()}
    current = snapshot
    for name, at in chosen.items():
        waiting = current.pod(name)
        assert waiting is not None
        kept = attrs.evolve(waiting, node_selector={"at": at})
        nodes = [
            attrs.evolve(one, node=attrs.evolve(one.node, labels={**one.node.labels, "at": one.name}))
            for one in current.nodes
        ]
        result = schedule(current.with_nodes(*nodes), [kept], policy=policy, now=NOW)
        assert result.bound, name
        assert not verify(current.with_nodes(*nodes), result)
        current = current.assume(waiting.at(at))
    return sorted(name.name for name in chosen)


def test_a_job_is_kept_away_by_who_runs_on_the_planned_nodes() -> None:
    term = PodAffinityTerm(topology_key="zone", selector=LabelSelector({"app": "b"}))
    shy = pod("x", 1, node_name="a", affinity=Affinity(anti=PodAffinity(required=(term,))))
    assert before(planned(pod("b", 2, "b"), pod("c", 1), running=(shy,))) == ["c"]


def test_a_job_finds_company_on_the_planned_nodes() -> None:
    term = PodAffinityTerm(topology_key="zone", selector=LabelSelector({"app": "x"}))
    company = Affinity(pod=PodAffinity(required=(term,)))
    running = (pod("x", 1, "x", node_name="a"),)
    assert before(planned(pod("b", 2, affinity=company), running=running)) == ["b"]


def test_a_job_has_what_those_on_the_planned_nodes_leave_of_its_quota() -> None:
    quota = ElasticQuota(name="q", min={"cpu": 2000}, max={"cpu": 2000})
    used = pod("x", 1, node_name="a", labels=OWN)
    waiting = pod("b", 2, labels=OWN), pod("c", 1, labels=OWN)
    cluster = planned(*waiting, running=(used,), records=[quota])
    assert before(cluster, named_policy("koordinator")) == ["c"]


def test_pods_of_other_schedulers_are_no_jobs_to_start() -> None:
    waiting = pod("b", 2, scheduler_name="volcano"), pod("c", 1)
    snapshot = planned(*waiting, running=())
    assert before(snapshot) == ["c"]
    assert before(snapshot, Policy(scheduler_names=None)) == ["b", "c"]


def test_a_job_that_ends_in_time_does_not_use_up_a_reservation_that_the_plan_needs() -> None:
    once = reservation("r", 4, on="a", allocate_once=True)
    asks, short, other = pod("p", 8, "a", annotations=must()), pod("b", 2, "a"), pod("c", 1)
    policy = named_policy("koordinator")
    snapshot = ClusterSnapshot(nodes=[node("a", 9)], pending=[asks, short, other], records=[once]).assume(
        pod("big", 4, node_name="a")
    )
    ends, lasts = {key("big"): NOW + HOUR}, {key("b"): HOUR / 6, key("c"): HOUR / 6}
    plan = earliest_start(snapshot, [asks], ends, now=NOW, policy=policy)
    assert isinstance(plan, EarliestStart)
    found = backfill(snapshot, plan, ends, lasts, now=NOW, policy=policy)
    assert [dict(job.pods) for job in found.jobs] == [{other.key: "a"}]
    assert (found.held_back, found.recomputed) == ((short.key,), plan.start)


def test_a_gang_that_delays_the_plan_on_one_of_its_nodes_starts_on_others() -> None:
    """Of the first two nodes only one is needed by the plan, and the fourth serves one member."""
    apart = PodAffinityTerm(
        topology_key="kubernetes.io/hostname", selector=LabelSelector({GANG: "default/g"})
    )
    gang = members("g", 2, 4000, 2)
    gang = [
        attrs.evolve(
            one,
            labels={**one.labels, GANG: "default/g"},
            affinity=Affinity(anti=PodAffinity(required=(apart,))),
        )
        for one in gang
    ]
    asked = [
        attrs.evolve(one, node_selector={"only": name} if name else {})
        for one, name in zip(members("p", 2, 8000, 2), ("a1", ""), strict=True)
    ]
    taint = Taint("t", "", TaintEffect.PREFER_NO_SCHEDULE)
    nodes = [
        attrs.evolve(node(name), labels={"only": name, "kubernetes.io/hostname": name})
        for name in ("a1", "a2", "a3")
    ]
    last = attrs.evolve(node("b", 4), labels={"kubernetes.io/hostname": "b"}, taints=(taint,))
    snapshot = ClusterSnapshot(nodes=[*nodes, last], pending=[*asked, *gang]).assume(
        pod("big", 4, node_name="a1"), pod("x", 8, node_name="a3")
    )
    ends = {key("big"): NOW + HOUR, key("x"): NOW + HOUR}
    plan = earliest_start(snapshot, asked, ends, now=NOW)
    assert isinstance(plan, EarliestStart)
    found = backfill(snapshot, plan, ends, {}, now=NOW)
    assert [set(job.pods.values()) for job in found.jobs] == [{"a2", "b"}]
    assert (found.held_back, found.recomputed) == ((), plan.start)
