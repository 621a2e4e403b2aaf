"""Budgets, workloads and limits as groups of a plan."""

from __future__ import annotations

import attrs

from koordcore.descheduling.budgets import migrating_groups, move_groups
from koordcore.descheduling.checked_moves import limits_of
from koordcore.descheduling.migration.filter import MigrationFilter
from koordcore.descheduling.moves import Group, Host, Movable, MoveProblem
from koordcore.descheduling.plan import plan_rebalance
from koordcore.model.cluster import PodDisruptionBudget, Workload
from koordcore.model.migration import JobPhase, PodMigrationJob
from koordcore.model.nodes import Node
from koordcore.model.pods import OwnerReference, Pod, PodKey
from koordcore.model.rebalance import EvictionLimits, MigrationControllerArgs, ObjectLimiter
from koordcore.model.resources import make_resources
from koordcore.model.selectors import EVERYTHING
from koordcore.protocol.migration import ANNOTATION_EVICT
from koordcore.snapshot import ClusterSnapshot


def pods(count: int, ready: int) -> list[Pod]:
    owner = (OwnerReference("ReplicaSet", "w", "w", controller=True),)
    return [Pod(name=f"p{index}", owners=owner, node_name="n", ready=index < ready) for index in range(count)]


def test_a_budget_covers_what_it_selects() -> None:
    """One more may go, whatever the namespace next door does."""
    budget = PodDisruptionBudget(name="b", selector=EVERYTHING, disruptions_allowed=1)
    (group,) = move_groups([*pods(3, 3), Pod(name="q", namespace="other", node_name="n")], budgets=[budget])
    assert group.most == 1
    assert group.pods == tuple(PodKey("default", f"p{index}") for index in range(3))


def test_a_pod_that_is_not_ready_takes_nothing_of_what_a_budget_lets_go() -> None:
    """It is away already. Where nothing is left, or nobody has to stay ready, it counts like the others."""
    budget = PodDisruptionBudget(name="b", selector=EVERYTHING)

    def told(allowed: int) -> tuple[int, int]:
        (group,) = move_groups(pods(5, 3), budgets=[attrs.evolve(budget, disruptions_allowed=allowed)])
        return group.most, len(group.pods)

    assert [told(allowed) for allowed in range(4)] == [(0, 5), (1, 3), (2, 3), (3, 5)]


def test_those_away_already_count() -> None:
    """Two of eight may be away and one is."""
    eight = Workload(kind="ReplicaSet", name="w", uid="w", replicas=8)
    _, group = move_groups(pods(8, 7), workloads=[eight])
    assert (group.most, len(group.pods)) == (1, 7)


def test_pods_that_are_not_ready_do_not_migrate() -> None:
    """Only what may be unavailable counts them; a first migration is let go, however small the share."""
    eight = Workload(kind="ReplicaSet", name="w", uid="w", replicas=8)
    for migrating, unavailable, most in ((1, 5, 1), (3, 5, 3), (4, 5, 3), (-1, 5, 1), (3, 2, 0)):
        args = MigrationControllerArgs(
            max_migrating_per_workload=migrating, max_unavailable_per_workload=unavailable
        )
        limits = {one.name: one.most for one in move_groups(pods(8, 6), workloads=[eight], args=args)}
        assert min(limits.values()) == most


def test_a_pod_that_is_not_ready_and_moves_is_away_once() -> None:
    """Of eight two may be away and one is: it may go beside one more. Where two are, nobody goes."""
    eight = Workload(kind="ReplicaSet", name="w", uid="w", replicas=8)
    own = pods(8, 7)
    ready, every = tuple(one.key for one in own[:7]), tuple(one.key for one in own)
    groups = move_groups(own, workloads=[eight])
    assert [(one.name, one.pods, one.most) for one in groups] == [
        ("maxMigratingPerWorkload of ReplicaSet default/w", every, 2),
        ("maxUnavailablePerWorkload of ReplicaSet default/w", ready, 1),
    ]
    (group,) = move_groups(pods(8, 6), workloads=[eight])
    assert (group.name, group.pods, group.most) == ("ReplicaSet default/w", every, 0)


def test_pods_that_wait_for_a_node_are_away() -> None:
    """Two of four may be away, and of those that wait there are two; a stranger's do not count."""
    four = Workload(kind="ReplicaSet", name="w", uid="w", replicas=4)
    own = pods(4, 4)
    waiting = [attrs.evolve(one, node_name=None) for one in own[2:]]
    (group,) = move_groups(own[:2], pending=waiting, workloads=[four])
    assert (group.pods, group.most) == ((own[0].key, own[1].key), 0)
    strangers = [attrs.evolve(one, owners=()) for one in waiting]
    assert move_groups(own[:2], pending=strangers, workloads=[four]) == ()
    cluster = ClusterSnapshot(nodes=[Node(name="n")], pending=waiting).with_records(four).assume(*own[:2])
    groups, _ = limits_of(cluster)
    assert [(one.name, one.most) for one in groups] == [("ReplicaSet default/w", 0)]


def test_a_single_pod_stays() -> None:
    """A workload of one is not moved."""
    (group,) = move_groups(pods(1, 1), workloads=[Workload(kind="ReplicaSet", name="w", uid="w", replicas=1)])
    assert group.most == 0


def test_a_workload_as_large_as_its_limit_stays() -> None:
    """The limit of two lets none of two move; one that says that it may be evicted may."""
    two = Workload(kind="ReplicaSet", name="w", uid="w", replicas=2)
    first, second = pods(2, 2)
    willing = attrs.evolve(second, annotations={ANNOTATION_EVICT: ""})
    for args in (
        MigrationControllerArgs(max_unavailable_per_workload=2),
        MigrationControllerArgs(max_migrating_per_workload=2),
    ):
        groups = move_groups([first, willing], workloads=[two], args=args)
        stays = [one for one in groups if one.most == 0]
        assert [(one.name, one.pods) for one in stays] == [
            ("ReplicaSet default/w, whose limit equals its size,", (first.key,))
        ]
        skipping = attrs.evolve(args, skip_check_expected_replicas=True)
        assert all(one.most for one in move_groups([first, willing], workloads=[two], args=skipping))


def test_a_pod_that_says_that_it_may_be_evicted_passes_the_limits_of_migration() -> None:
    """Neither those of its workload nor those of node, namespace and all hold it; the limiter does."""
    eight = Workload(kind="ReplicaSet", name="w", uid="w", replicas=8)
    own = [
        attrs.evolve(one, annotations={ANNOTATION_EVICT: ""} if number % 2 else {})
        for number, one in enumerate(pods(8, 6))
    ]
    plain, every = tuple(one.key for one in own[::2]), tuple(one.key for one in own)
    args = MigrationControllerArgs(
        max_migrating_globally=1, max_migrating_per_namespace=1, max_migrating_per_node=1
    )
    assert [(one.name, one.pods, one.most) for one in move_groups(own, workloads=[eight], args=args)] == [
        ("ReplicaSet default/w", plain, 0),
        ("objectLimiters[workload] of ReplicaSet default/w", every, 2),
    ]
    unlimited = attrs.evolve(args, limiters={"workload": ObjectLimiter()})
    assert len(move_groups(own, workloads=[eight], args=unlimited)) == 1
    assert {one.pods for one in migrating_groups(own, args=args)} == {plain}
    job = PodMigrationJob(name="j", pod=every[1])
    assert {one.most for one in migrating_groups(own, args=args, jobs=[job])} == {0}
    budget = PodDisruptionBudget(name="b", selector=EVERYTHING, disruptions_allowed=0)
    assert move_groups(own, budgets=[budget])[0].pods == every


def test_pods_whose_workload_tells_no_size_move() -> None:
    """A workload that the dump lacks limits nothing, nor does a Job; the controller refuses both."""
    owner = (OwnerReference("Job", "w", "w", controller=True),)
    of_job = [attrs.evolve(one, owners=owner) for one in pods(2, 2)]
    job = Workload(kind="Job", name="w", uid="w", replicas=2)
    for own, records in ((of_job, [job]), (pods(2, 2), [])):
        assert move_groups(own, workloads=records) == ()
        controller = MigrationFilter(MigrationControllerArgs(), own, records)
        assert controller.permanent(own[0]) is not None


def test_a_gang_keeps_its_minimum() -> None:
    """Of five members three are needed: two may go; a gang at its minimum stays where it is."""
    label = {"pod-group.scheduling.sigs.k8s.io": "g"}
    members = [Pod(name=f"m{index}", labels=label, node_name="n") for index in range(5)]
    (group,) = move_groups(members, minimums={"default/g": 3, "default/other": 1})
    assert (group.name, group.most, len(group.pods)) == ("gang default/g", 2, 5)
    assert move_groups(members[:3], minimums={"default/g": 3})[0].most == 0
    assert move_groups(members[:2], minimums={"default/g": 3})[0].most == 0


def test_what_may_be_on_its_way_at_once() -> None:
    """Two per node unless said otherwise; no limit in all; 0 is none."""
    (group,) = migrating_groups(pods(4, 4))
    assert (group.name, group.most) == ("maxMigratingPerNode of n", 2)
    args = MigrationControllerArgs(max_migrating_per_node=0, max_migrating_globally=3)
    (group,) = migrating_groups(pods(4, 4), args=args)
    assert (group.name, group.most) == ("maxMigratingGlobally", 3)


def test_a_job_whose_pod_is_gone_is_under_way_in_all_and_in_its_namespace() -> None:
    """It leaves no node; one that is over counts nowhere."""
    args = MigrationControllerArgs(max_migrating_globally=2, max_migrating_per_namespace=2)
    own = pods(4, 4)
    gone = PodMigrationJob(name="j", pod=PodKey("default", "gone"))
    assert [one.most for one in migrating_groups(own, args=args, jobs=[gone])] == [2, 1, 1]
    stranger = attrs.evolve(gone, pod=PodKey("other", "gone"))
    assert [one.most for one in migrating_groups(own, args=args, jobs=[stranger])] == [2, 2, 1]
    there = attrs.evolve(gone, name="k", pod=own[0].key)
    assert [one.most for one in migrating_groups(own, args=args, jobs=[gone, there])] == [1, 0, 0]
    over = attrs.evolve(gone, phase=JobPhase.SUCCEEDED)
    assert [one.most for one in migrating_groups(own, args=args, jobs=[over])] == [2, 2, 2]
    cluster = ClusterSnapshot(nodes=[Node(name="n")]).with_records(gone, there).assume(*own)
    names = [one.name for one in limits_of(cluster, args=args)[0]]
    assert "maxMigratingGlobally, beside 2 active PodMigrationJobs," in names


def test_limits_of_a_cycle() -> None:
    """Per node, per namespace, in all."""
    groups = move_groups(pods(4, 4), limits=EvictionLimits(per_node=2, per_namespace=3, total=1))
    assert [group.most for group in groups] == [2, 3, 1]


def test_the_plan_takes_another_pod_where_a_budget_forbids_the_best() -> None:
    """One pod would do, but it must stay; two others go."""
    amounts = {"a": 4, "b": 2, "c": 2}
    movable = tuple(
        Movable(pod=PodKey("d", name), node="n", usage=make_resources({"cpu": cpu}))
        for name, cpu in amounts.items()
    )
    hosts = (
        Host(name="n", usage=make_resources({"cpu": 8}), high=make_resources({"cpu": 4})),
        Host(name="t", high=make_resources({"cpu": 4})),
    )
    free = MoveProblem(hosts=hosts, movable=movable)
    assert [move.pod.name for move in plan_rebalance(free).moves] == ["a"]
    bound = MoveProblem(hosts=hosts, movable=movable, groups=(Group("pdb", (PodKey("d", "a"),), 0),))
    assert [move.pod.name for move in plan_rebalance(bound).moves] == ["b", "c"]
