"""Plans of moves that take too much of something away are refused, by the very number that is passed."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore import ViolationKind
from koordcore.model.cluster import PodDisruptionBudget, Workload
from koordcore.model.gangs import PodGroup
from koordcore.model.migration import PodMigrationJob
from koordcore.model.pods import OwnerReference, Pod, PodKey
from koordcore.model.rebalance import EvictionLimits, EvictorArgs, MigrationControllerArgs, ObjectLimiter
from koordcore.model.selectors import EVERYTHING, LabelSelector
from koordcore.protocol.migration import ANNOTATION_EVICT
from tests.checking.test_moves import found, go, pod, world

FREE = MigrationControllerArgs(max_migrating_per_node=0)
BARE = EvictorArgs(evict_all_bare_pods=True)
GANG = {"pod-group.scheduling.sigs.k8s.io": "g"}


def owned(kind: str, name: str, **fields: Any) -> tuple[OwnerReference, ...]:
    return (OwnerReference(kind, name, f"uid-{name}", controller=True, **fields),)


def workload(kind: str, name: str, replicas: int | None, **fields: Any) -> Workload:
    return Workload(kind=kind, name=name, uid=f"uid-{name}", replicas=replicas, **fields)


def away(kind: str, count: int, allowed: int, *, name: str = "w") -> tuple[ViolationKind, str, str]:
    return ViolationKind.BUDGET, f"{kind} default/{name}", f"wave 1: {count} away, {allowed} allowed"


def test_pods_of_a_deployment_are_counted_over_all_its_replica_sets() -> None:
    above = workload("Deployment", "d", 4)
    sets = [workload("ReplicaSet", name, 2, owners=owned("Deployment", "d")) for name in ("old", "new")]
    pods = [pod(f"{of}{n}", "a", 1, owners=owned("ReplicaSet", of)) for of in ("old", "new") for n in "12"]
    snapshot = world(*pods, records=[above, *sets])
    moves = [go(one.name, "a", "b") for one in pods]
    assert found(snapshot, *moves[:2], args=FREE) == []
    assert found(snapshot, *moves[:3], args=FREE) == [away("Deployment", 3, 2, name="d")]


@pytest.mark.parametrize(
    ("kind", "replicas", "counts"),
    [
        ("StatefulSet", 2, True),
        ("CloneSet", 2, True),
        ("Job", 2, False),
        ("GameServerSet", 2, True),
        ("GameServerSet", None, False),
    ],
)
def test_which_owners_keep_enough_pods(kind: str, replicas: int | None, counts: bool) -> None:
    pods = [pod(name, "a", 1, owners=owned(kind, "w")) for name in "pq"]
    snapshot = world(*pods, records=[workload(kind, "w", replicas)])
    wrong = found(snapshot, go("p", "a", "b"), go("q", "a", "b"), args=FREE)
    assert wrong == ([away(kind, 2, 1)] if counts else [])


def test_an_owner_with_another_uid_is_another_object() -> None:
    pods = [pod(name, "a", 1, owners=owned("StatefulSet", "w")) for name in "pq"]
    gone = attrs.evolve(workload("StatefulSet", "w", 2), uid="another")
    assert found(world(*pods, records=[gone]), go("p", "a", "b"), go("q", "a", "b"), args=FREE) == []


def test_whoever_migrates_already_counts_as_away_and_does_not_move_again() -> None:
    pods = [pod(name, "a", 1, owners=owned("StatefulSet", "w")) for name in "pqrs"]
    job = PodMigrationJob(name="j", pod=PodKey("default", "s"))
    snapshot = world(*pods, records=[workload("StatefulSet", "w", 4), job])
    assert found(snapshot, go("p", "a", "b"), args=FREE) == []
    assert found(snapshot, go("p", "a", "b"), go("q", "a", "b"), args=FREE) == [away("StatefulSet", 3, 2)]
    assert (ViolationKind.LIMIT, "default/s", "has an active PodMigrationJob") in found(
        snapshot, go("s", "a", "b"), args=FREE
    )
    per_node = MigrationControllerArgs(max_migrating_per_node=1)
    assert found(snapshot, go("p", "a", "b"), args=per_node) == [
        (ViolationKind.LIMIT, "node a", "wave 1: 2 away, 1 allowed")
    ]


def test_whoever_is_not_ready_counts_as_unavailable_and_not_as_migrating() -> None:
    pods = [pod(name, "a", 1, owners=owned("StatefulSet", "w"), ready=name < "s") for name in "pqrst"]
    snapshot = world(*pods, records=[workload("StatefulSet", "w", 8)])
    moves = [go(name, "a", "b") for name in "pq"]

    def told(migrating: int, unavailable: int, count: int) -> list[tuple[ViolationKind, str, str]]:
        args = attrs.evolve(
            FREE, max_migrating_per_workload=migrating, max_unavailable_per_workload=unavailable
        )
        return found(snapshot, *moves[:count], args=args)

    assert told(1, 5, 1) == []
    assert told(1, 5, 2) == [away("StatefulSet", 2, 1)]
    assert told(2, 4, 2) == []
    assert told(2, 3, 2) == [away("StatefulSet", 4, 3)]
    # One migrates at a time, whatever share of the workload is named.
    assert told(-1, 5, 1) == []
    assert told(-1, 5, 2) == [away("StatefulSet", 2, 1)]


def test_whoever_is_not_ready_is_away_once_and_goes_only_where_one_more_might() -> None:
    pods = [pod(name, "a", 1, owners=owned("StatefulSet", "w"), ready=name < "r") for name in "pqrs"]
    moves = [go(one.name, "a", "b") for one in pods]
    args = attrs.evolve(FREE, max_migrating_per_workload=4)

    def told(*leaving: int, replicas: int = 30) -> list[tuple[ViolationKind, str, str]]:
        snapshot = world(*pods, records=[workload("StatefulSet", "w", replicas)])
        return found(snapshot, *(moves[one] for one in leaving), args=args)

    assert told(0, 2, 3) == []
    assert told(0, 1, 2, 3) == [away("StatefulSet", 4, 3)]
    wrong = (ViolationKind.BUDGET, "StatefulSet default/w", "wave 1: 2 away already, 2 allowed")
    assert told(2, replicas=20) == [wrong]


def test_whoever_says_that_it_may_be_evicted_is_held_by_no_limit_of_migration_but_the_limiter() -> None:
    asks = {ANNOTATION_EVICT: "false"}
    own = owned("StatefulSet", "w")
    pods = [pod(name, "a", 1, owners=own, annotations=asks if name < "s" else {}) for name in "pqrs"]
    absent = pod("t", "c", 1, owners=own, ready=False)
    snapshot = world(*pods, absent, records=[workload("StatefulSet", "w", 3)])
    one = MigrationControllerArgs(
        max_migrating_globally=1, max_migrating_per_namespace=1, max_migrating_per_node=1
    )
    assert found(snapshot, go("p", "a", "b"), args=one) == []
    assert found(snapshot, go("p", "a", "b"), go("q", "a", "b"), args=one) == [
        (ViolationKind.LIMIT, "StatefulSet default/w", "2 moves, objectLimiters[workload] lets 1 go")
    ]
    free = attrs.evolve(one, limiters={"workload": ObjectLimiter()})
    assert found(snapshot, *(go(name, "a", "b") for name in "pqr"), args=free) == []
    assert found(snapshot, go("p", "a", "b"), go("s", "a", "b"), args=free) == [away("StatefulSet", 2, 1)]


def test_a_job_whose_pod_is_gone_takes_its_part_in_all_and_in_its_namespace() -> None:
    snapshot = world(pod("p", "a", 1), records=[PodMigrationJob(name="j", pod=PodKey("default", "gone"))])

    def told(**limits: Any) -> list[tuple[ViolationKind, str, str]]:
        return found(snapshot, go("p", "a", "b"), args=MigrationControllerArgs(**limits))

    passed = "wave 1: 2 away, 1 allowed"
    assert told(max_migrating_globally=1) == [(ViolationKind.LIMIT, "all nodes", passed)]
    assert told(max_migrating_per_namespace=1) == [(ViolationKind.LIMIT, "namespace default", passed)]
    assert told(max_migrating_globally=2, max_migrating_per_namespace=2, max_migrating_per_node=1) == []


@pytest.mark.parametrize(("replicas", "most"), [(3, 1), (4, 2), (10, 2), (20, 2), (30, 3)])
def test_without_a_share_larger_workloads_may_miss_more_pods(replicas: int, most: int) -> None:
    pods = [pod(f"p{number}", "a", 0, owners=owned("StatefulSet", "w")) for number in range(4)]
    snapshot = world(*pods, records=[workload("StatefulSet", "w", replicas)])
    moves = [go(one.name, "a", "b") for one in pods]
    assert found(snapshot, *moves[:most], args=FREE) == []
    assert found(snapshot, *moves[: most + 1], args=FREE) == [away("StatefulSet", most + 1, most)]


def test_members_that_leave_anyhow_keep_no_gang_going() -> None:
    from datetime import UTC, datetime

    group = PodGroup(namespace="default", name="g", min_member=2)
    leaving = pod("r", "a", 1, labels=GANG, deleted=datetime(2026, 1, 1, tzinfo=UTC))
    snapshot = world(*(pod(name, "a", 1, labels=GANG) for name in "pq"), leaving, records=[group])
    assert found(snapshot, go("p", "a", "b"), args=FREE) == [
        (ViolationKind.GANG, "default/g", "wave 1: 1 away, 0 allowed")
    ]


def test_a_budget_protects_the_pods_that_it_selects_in_its_namespace() -> None:
    pods = [pod("p", "a", 1, labels={"app": "db"}), pod("q", "a", 1, labels={"app": "web"})]
    none = PodDisruptionBudget(name="b", selector=LabelSelector({"app": "db"}), disruptions_allowed=0)
    snapshot = world(*pods, records=[none])
    assert found(snapshot, go("q", "a", "b")) == []
    refused = [(ViolationKind.BUDGET, "default/b", "wave 1: 1 away, 0 allowed")]
    assert found(snapshot, go("p", "a", "b")) == refused
    assert found(snapshot, go("p", "a", "b"), go("q", "a", "b")) == refused
    elsewhere = PodDisruptionBudget(name="b", namespace="x", selector=EVERYTHING, disruptions_allowed=0)
    assert found(world(*pods, records=[elsewhere]), go("p", "a", "b")) == []
    overdrawn = attrs.evolve(none, disruptions_allowed=-2)
    assert found(world(*pods, records=[overdrawn]), go("p", "a", "b")) == refused


def test_a_pod_that_is_not_ready_leaves_beside_what_its_budget_lets_go() -> None:
    pods = [pod("p", "a", 1), pod("q", "a", 1), pod("r", "a", 1, ready=False)]
    moves = [go(name, "a", "b") for name in "rpq"]

    def told(allowed: int, count: int) -> list[str]:
        budget = PodDisruptionBudget(name="b", selector=EVERYTHING, disruptions_allowed=allowed)
        wrong = found(world(*pods, records=[budget]), *moves[:count], args=FREE)
        return [text for _, _, text in wrong]

    assert told(1, 2) == []
    assert told(1, 3) == ["wave 1: 2 away, 1 allowed"]
    assert told(0, 1) == ["wave 1: 1 away, 0 allowed"]
    # Nobody has to stay ready: then it counts like the others.
    assert told(2, 3) == ["wave 1: 3 away, 2 allowed"]


def test_a_pod_is_away_from_the_wave_in_which_it_leaves_to_that_in_which_it_arrives() -> None:
    budget = PodDisruptionBudget(name="b", selector=EVERYTHING, disruptions_allowed=1)
    snapshot = world(pod("p", "a", 1), pod("q", "a", 1), records=[budget])
    assert found(snapshot, go("p", "a", "b", 0, 1), go("q", "a", "b", 2)) == []
    assert found(snapshot, go("p", "a", "b", 0, 1), go("q", "a", "b", 1)) == [
        (ViolationKind.BUDGET, "default/b", "wave 2: 2 away, 1 allowed")
    ]


@pytest.mark.parametrize("limit", ["total", "per_node", "per_namespace"])
def test_a_limit_of_evictions_is_reached_and_not_passed(limit: str) -> None:
    snapshot = world(*(pod(name, "a", 1) for name in "pq"))
    moves = [go(name, "a", "b", wave) for wave, name in enumerate("pq")]
    assert found(snapshot, *moves, limits=EvictionLimits(**{limit: 2})) == []
    (wrong,) = found(snapshot, *moves, limits=EvictionLimits(**{limit: 1}))
    assert wrong[2] == "2 evictions, 1 allowed"
    (none,) = found(snapshot, moves[0], limits=EvictionLimits(**{limit: 0}))
    assert none[2] == "1 evictions, 0 allowed"


def limited(kind: str, **fields: Any) -> MigrationControllerArgs:
    return attrs.evolve(FREE, limiters={kind: ObjectLimiter(**fields)})


def test_an_object_limiter_lets_so_many_pods_of_a_workload_go() -> None:
    pods = [pod(f"p{number}", "a", 0, owners=owned("Job", "w")) for number in range(4)]
    moves = [go(one.name, "a", "b", wave) for wave, one in enumerate(pods)]
    snapshot = world(*pods, records=[workload("Job", "w", 20)])

    def told(args: MigrationControllerArgs, count: int) -> list[str]:
        return [
            text for _, name, text in found(snapshot, *moves[:count], args=args) if name == "Job default/w"
        ]

    second = 10**9
    two = limited("workload", duration=second, max_migrating=2)
    assert told(two, 2) == []
    assert told(two, 3) == ["3 moves, objectLimiters[workload] lets 2 go"]
    assert told(limited("workload", duration=second, max_migrating="10%"), 2) == []
    assert told(limited("workload", duration=second, max_migrating="10%"), 3) == [
        "3 moves, objectLimiters[workload] lets 2 go"
    ]
    assert told(limited("workload", duration=second, max_migrating=1, burst=3), 3) == []
    assert told(limited("workload", duration=0, max_migrating=1), 3) == []
    bare = world(*(attrs.evolve(one, owners=()) for one in pods))
    assert found(bare, *moves[:3], args=attrs.evolve(two, evictor=BARE)) == []


def test_an_object_limiter_of_a_replica_set_goes_by_its_deployment() -> None:
    pods = [pod(f"p{number}", "a", 0, owners=owned("ReplicaSet", "s")) for number in range(4)]
    records = [
        workload("Deployment", "d", 30),
        workload("ReplicaSet", "s", 4, owners=owned("Deployment", "d")),
    ]
    snapshot = world(*pods, records=records)
    moves = [go(one.name, "a", "b", wave) for wave, one in enumerate(pods)]
    args = limited("workload", duration=10**9, max_migrating="10%")
    assert found(snapshot, *moves[:3], args=args) == []
    assert [text for _, _, text in found(snapshot, *moves, args=args)] == [
        "4 moves, objectLimiters[workload] lets 3 go"
    ]


def test_a_workload_that_wants_no_pods_has_none_to_let_go_by_a_share() -> None:
    pods = [pod(f"p{number}", "a", 0, owners=owned("Job", "w")) for number in range(2)]
    moves = [go(one.name, "a", "b", wave) for wave, one in enumerate(pods)]
    args = limited("workload", duration=10**9, max_migrating="50%")
    # A share of nothing is no limit that counts; of one it is one.
    assert found(world(*pods, records=[workload("Job", "w", 0)]), *moves, args=args) == []
    assert found(world(*pods, records=[workload("Job", "w", None)]), *moves, args=args) == []
    assert len(found(world(*pods, records=[workload("Job", "w", 1)]), *moves, args=args)) == 1


def test_an_object_limiter_lets_so_many_pods_of_a_namespace_go() -> None:
    snapshot = world(pod("p", "a", 1), pod("q", "a", 1), pod("x", "a", 1, namespace="other"))
    args = limited("namespace", duration=10**9, max_migrating=1)
    moves = [go("p", "a", "b", 0), attrs.evolve(go("x", "a", "b", 1), pod=PodKey("other", "x"))]
    assert found(snapshot, *moves, args=args) == []
    assert [(name, text) for _, name, text in found(snapshot, go("q", "a", "b", 2), *moves, args=args)] == [
        ("default", "2 moves, objectLimiters[namespace] lets 1 go")
    ]


def test_pods_without_an_owner_count_with_nobody_where_they_may_go() -> None:
    snapshot = world(Pod(name="lone", node_name="a", requests={"cpu": 1}))
    assert found(snapshot, go("lone", "a", "b"), args=MigrationControllerArgs(evictor=BARE)) == []
