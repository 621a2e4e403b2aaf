"""Plans that evict the wrong pods, or too many, are refused: rights, gangs, room, moves and quotas."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from immutabledict import immutabledict

from koordcore import ClusterSnapshot, Node, NodeState, Nominated, Pod, Policy, ScheduleResult
from koordcore.checking.quota_chains import QuotaChains
from koordcore.checking.quota_sums import QuotaSums, quota_of, specs_in
from koordcore.checking.reclaims import check_reclaims
from koordcore.checking.room import overflow
from koordcore.checking.victims import check_victims
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.decisions import Victim
from koordcore.model.gangs import PodGroup
from koordcore.model.plugin_args import FitArgs
from koordcore.model.pods import PodResourceClaim
from koordcore.model.preemption import Move, PreemptionPlan
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.records import ClusterRecord

GANG = "pod-group.scheduling.sigs.k8s.io"
QUOTA = "quota.scheduling.koordinator.sh/name"


def pod(name: str, cpu: int = 1000, priority: int = 0, **fields: Any) -> Pod:
    return attrs.evolve(Pod(name=name, requests={"cpu": cpu}, priority=priority), **fields)


def of(quota: str, name: str, cpu: int = 1000, priority: int = 0) -> Pod:
    return pod(name, cpu, priority, labels={QUOTA: quota})


def cluster(*pending: Pod, records: tuple[ClusterRecord, ...] = (), **running: list[Pod]) -> ClusterSnapshot:
    """Nodes n0 to n2 with 4 CPUs each; who runs is given by node."""
    room = {"cpu": 4000, "pods": 9}
    states = [
        NodeState(
            Node(name=f"n{number}", allocatable=room),
            tuple(one.at(f"n{number}") for one in running.get(f"n{number}", [])),
        )
        for number in range(3)
    ]
    return ClusterSnapshot(nodes=states, pending=pending, records=records)


def victims(snapshot: ClusterSnapshot, *names: str) -> tuple[Victim, ...]:
    running = {one.name: one for one in snapshot.bound_pods()}

    def job(one: Pod) -> str:
        return f"default/{one.labels[GANG]}" if GANG in one.labels else str(one.key)

    return tuple(
        Victim(running[name].key, str(running[name].node_name), running[name].priority, job(running[name]))
        for name in names
    )


def told(
    snapshot: ClusterSnapshot,
    node: str,
    *names: str,
    moves: dict[str, str] | None = None,
    planned: bool = True,
    **plan: Any,
) -> list[str]:
    """What is wrong with evicting some for the first pod that waits, which then goes to a node."""
    coming = snapshot.pending[0]
    leaving = victims(snapshot, *names)
    going = tuple(Move(victims(snapshot, name)[0], to) for name, to in (moves or {}).items())
    made = PreemptionPlan(
        nominations=immutabledict({str(coming.key): node}),
        victims=leaving,
        moves=going,
        job=str(coming.key),
        certificate=Certificate(CertificateStatus.HEURISTIC, (0,)),
        **plan,
    )
    decision = Nominated(pod=coming.key, node=node, victims=leaving)
    result = ScheduleResult(
        decisions=(decision,), snapshot=snapshot, preemptions=(made,) if planned else (), policy=Policy()
    )
    found = check_victims(snapshot, result, everywhere=snapshot.nodes)
    return [f"{one.subject} {one.message}" for one in found]


def test_whoever_is_less_important_makes_room() -> None:
    snapshot = cluster(pod("p", 3000, 5), n0=[pod("a", 3000), pod("b", 3000, 5)], n1=[pod("c", 4000, 4)])
    assert told(snapshot, "n1", "c") == []
    assert "default/b has priority 5 and would leave for 5" in told(snapshot, "n0", "a", "b")
    assert told(snapshot, "n1") == ["n1 cpu: 7000 once the victims have gone, 4000 allocatable"]


def test_nobody_leaves_a_node_to_which_nobody_comes() -> None:
    snapshot = cluster(pod("p", 3000, 5), n0=[pod("a", 3000)], n1=[pod("c", 3000)])
    assert told(snapshot, "n0", "a", planned=False) == []
    assert told(snapshot, "n0", "a", "c", planned=False) == ["default/c nobody is nominated to n1"]
    assert told(snapshot, "n0", "a", "c") == ["default/c could stay: default/p fits all the same"]
    # With quotas a victim anywhere may give back what is missing.
    records = (ElasticQuota(name="q", max={"cpu": 9000}),)
    lent = cluster(pod("p", 3000, 5), records=records, n0=[pod("a", 3000)], n1=[pod("c", 3000)])
    assert told(lent, "n0", "a", "c", planned=False) == []


def test_nobody_leaves_for_a_member_of_his_own_gang() -> None:
    running = [pod("a", 4000, labels={GANG: "g"})]
    snapshot = cluster(pod("p", 3000, 5, labels={GANG: "g"}), records=(gang(0),), n0=running)
    wrong = "default/a would leave for members of its own gang default/g"
    assert wrong in told(snapshot, "n0", "a")
    stranger = cluster(pod("p", 3000, 5, labels={GANG: "h"}), records=(gang(0),), n0=running)
    assert told(stranger, "n0", "a") == []


def gang(least: int) -> PodGroup:
    return PodGroup(namespace="default", name="g", min_member=least)


def test_a_gang_leaves_within_what_it_can_spare_or_whole() -> None:
    members = [pod(name, 2000, labels={GANG: "g"}) for name in "abc"]
    for least, names, wrong in (
        (2, "a", []),
        (3, "abc", []),
        (3, "a", ["default/g 2 of at least 3 members would be left to hold room in vain"]),
        (3, "ab", ["default/g 1 of at least 3 members would be left to hold room in vain"]),
    ):
        full = [members[0], pod("x", 2000, 9)]
        snapshot = cluster(pod("p", 2000, 5), records=(gang(least),), n0=full, n1=members[1:])
        assert told(snapshot, "n0", *names, planned=False) == wrong


def test_moves_end_on_other_nodes_that_are_there() -> None:
    snapshot = cluster(pod("p", 3000, 5), n0=[pod("a", 3000)], n1=[pod("b", 1000, 9)])
    assert told(snapshot, "n0", "a", moves={"a": "n1"}) == []
    assert "default/a moves to n0, where it is" in told(snapshot, "n0", "a", moves={"a": "n0"})
    assert "default/a no node n9" in told(snapshot, "n0", "a", moves={"a": "n9"})
    picky = cluster(pod("p", 3000, 5), n0=[pod("a", 3000, node_selector={"disk": "ssd"})])
    assert told(picky, "n0", "a", moves={"a": "n1"}) == ["default/a wants disk=ssd, n1 has None"]


def test_members_of_a_gang_that_breaks_may_come_back_where_they_were() -> None:
    """The gang is made anew as a whole: that one of it stays on its node is a move as well."""
    members = [pod("a", 3000, labels={GANG: "g"}), pod("b", 1000, labels={GANG: "g"})]
    snapshot = cluster(pod("p", 3000, 5), records=(gang(2),), n0=members[:1], n1=members[1:])
    back = {"b": "n1", "a": "n2"}
    assert told(snapshot, "n0", "a", "b", moves=back, broken=("default/g",)) == []
    assert "default/b moves to n1, where it is" in told(snapshot, "n0", "a", "b", moves=back)


def test_plans_and_decisions_name_the_same_nodes_and_pods() -> None:
    snapshot = cluster(pod("p", 3000, 5), n0=[pod("a", 3000)], n1=[pod("c", 3000)])
    (coming,) = snapshot.pending
    plan = PreemptionPlan(
        nominations=immutabledict({"default/p": "n0"}),
        victims=victims(snapshot, "a"),
        certificate=Certificate(CertificateStatus.HEURISTIC, (0,)),
    )
    for node, names, wrong in (
        ("n0", "a", []),
        ("n1", "a", ["default/p the plan says n0, the decision n1"]),
        ("n0", "ac", ["default/c is not in both, the plan and the decisions"]),
    ):
        decision = Nominated(pod=coming.key, node=node, victims=victims(snapshot, *names))
        result = ScheduleResult(
            decisions=(decision,), snapshot=snapshot, preemptions=(plan,), policy=Policy()
        )
        found = [
            f"{one.subject} {one.message}"
            for one in check_victims(snapshot, result, everywhere=snapshot.nodes)
        ]
        assert [text for text in found if "plan" in text] == wrong


def test_where_the_doubt_lies_a_victim_is_not_said_to_be_needless() -> None:
    claims = (PodResourceClaim("gpu", claim="c"),)
    for back, coming, named in (((), claims, True), (claims, (), True), (claims, claims, False)):
        needless = [pod("a", 1000, resource_claims=back)]
        snapshot = cluster(pod("p", 1000, 5, resource_claims=coming), n0=needless)
        expected = ["default/a could stay: default/p fits all the same"] if named else []
        assert told(snapshot, "n0", "a") == expected


def test_a_gang_that_could_spare_enough_need_not_break() -> None:
    members = [pod(name, 2000, labels={GANG: "g"}) for name in "abcd"]
    for least, wrong in ((3, ["default/g need not break: 1 have to leave, it can spare 1"]), (4, [])):
        snapshot = cluster(
            pod("p", 2000, 5),
            records=(gang(least),),
            n0=[members[0], pod("x", 2000, 9)],
            n1=members[1:3],
            n2=members[3:],
        )
        assert told(snapshot, "n0", *"abcd", broken=("default/g",)) == wrong


# -- quotas -----------------------------------------


def test_whoever_leaves_from_another_quotas_promise_gives_nobody_more() -> None:
    """``a`` lies within what its quota is promised: that it leaves does not help ``p`` of another one."""
    records = (
        ElasticQuota(name="mine", max={"cpu": 4000}, min={"cpu": 4000}),
        ElasticQuota(name="theirs", max={"cpu": 4000}, min={"cpu": 2000}),
    )
    snapshot = cluster(of("mine", "p", 1000, 5), records=records, n0=[of("theirs", "a")])
    assert told(snapshot, "n0", "a") == ["default/a could stay: default/p fits all the same"]
    full = cluster(of("mine", "p", 1000, 5), records=records, n0=[of("mine", "a", 4000)])
    assert told(full, "n1", "a") == []


def test_a_quota_within_its_promise_admits_in_any_case() -> None:
    team = ElasticQuota(name="team", max={"cpu": 9000}, min={"cpu": 3000})
    for cpu, sure in ((1000, True), (3000, False)):
        snapshot = cluster(
            of("team", "p", 1000, 5), records=(team,), n0=[of("team", "a", cpu), of("team", "b")]
        )
        assert bool(told(snapshot, "n1", "a")) == sure


def test_what_a_quota_keeps_is_what_its_siblings_leave_of_the_cluster() -> None:
    """Promises are scaled down where all of them together are more than there is outside of other pods."""
    states = cluster().nodes  # 12 CPUs
    quotas = {
        name: ElasticQuota(name=name, max={"cpu": 90_000}, min={"cpu": amount})
        for name, amount in (("a", 5000), ("b", 6000))
    }
    tree = QuotaChains.of(quotas, QuotaPolicy(), states)
    assert tree.kept("a", "cpu", {})
    assert tree.kept("a", "cpu", {"koordinator-default-quota": {"cpu": 1000}, "a": {"cpu": 9000}})
    assert not tree.kept("a", "cpu", {"koordinator-default-quota": {"cpu": 1001}})
    small = QuotaChains.of(quotas, QuotaPolicy(enable_min_quota_scale=False), states[:1])
    assert small.kept("a", "cpu", {})
    below = {**quotas, "c": ElasticQuota(name="c", parent="a", min={"cpu": 5001}, max={"cpu": 9000})}
    assert not QuotaChains.of(below, QuotaPolicy(), states).kept("c", "cpu", {})
    fits = {**quotas, "c": ElasticQuota(name="c", parent="a", min={"cpu": 5000}, max={"cpu": 9000})}
    assert QuotaChains.of(fits, QuotaPolicy(), states).kept("c", "cpu", {})
    rooted = {**quotas, "t": ElasticQuota(name="t", is_root=True)}
    assert not QuotaChains.of(rooted, QuotaPolicy(), states).kept("a", "cpu", {})


def test_quotas_of_pods_by_label_namespace_and_listed_namespace() -> None:
    quotas = {
        "team": ElasticQuota(name="team", namespace="x"),
        "own": ElasticQuota(name="own", namespace="own"),
        "lists": ElasticQuota(name="lists", namespaces=("listed",)),
    }
    spaces = {"listed": "lists"}
    for one, name in (
        (of("team", "a"), "team"),
        (of("nobody", "a"), "koordinator-default-quota"),
        (pod("a", namespace="own"), "own"),
        (pod("a", namespace="team"), "koordinator-default-quota"),
        (pod("a", namespace="listed"), "lists"),
        (pod("a"), "koordinator-default-quota"),
    ):
        assert quota_of(one, quotas, spaces) == name


def test_what_a_pod_counts_with_in_its_quota_and_those_above() -> None:
    names = {f"koordinator.sh/{name}": 999 for name in ("gpu-core", "gpu-memory-ratio", "gpu.shared")}
    quotas = {
        "low": ElasticQuota(name="low", parent="top", max=names),
        "top": ElasticQuota(name="top"),
        "loop": ElasticQuota(name="loop", parent="ring"),
        "ring": ElasticQuota(name="ring", parent="loop"),
    }
    sums = QuotaSums(quotas)
    half = pod("half", labels={QUOTA: "low"}, requests={"koordinator.sh/gpu": 50})
    whole = pod("whole", labels={QUOTA: "low"}, requests={"koordinator.sh/gpu": 250})
    assert sums.chain(half) == ("low", "top", "koordinator-root-quota")
    assert sums.chain(of("loop", "a")) == ("loop", "ring")
    sums.count(half)
    assert (
        sums.whole["low"]["koordinator.sh/gpu-core"]
        == sums.whole["top"]["koordinator.sh/gpu-memory-ratio"]
        == 50
    )
    assert sums.whole["low"]["koordinator.sh/gpu.shared"] == 1
    sums.count(whole)
    assert sums.whole["low"]["koordinator.sh/gpu.shared"] == 3
    sums.count(whole, -1)
    sums.count(half, -1)
    assert not any(sums.whole["low"].values())
    assert not any(sums.whole["top"].values())
    assert not sums.guarded
    sums.count(attrs.evolve(half, annotations={"scheduling.koordinator.sh/reserve-pod": "true"}))
    assert not any(sums.whole["low"].values())


def test_devices_of_claims_count_by_their_class() -> None:
    forms = (
        DeviceSubRequest(class_name="gpu", name="many", count=3),
        DeviceSubRequest(class_name="gpu", name="few", count=2),
    )
    named = ResourceClaim(
        name="mine", spec=ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="nic"),)),))
    )
    made = ResourceClaimTemplate(name="made", spec=ClaimSpec((ClaimRequest("r", forms, True),)))
    snapshot = cluster(records=(named, made))
    entries = (PodResourceClaim("a", template="made"), PodResourceClaim("b", claim="mine"))
    names = {"cpu": 9000, **{f"{name}.deviceclass.resource.k8s.io/devices": 9 for name in ("gpu", "nic")}}
    sums = QuotaSums({"team": ElasticQuota(name="team", max=names)}, specs_in(snapshot))
    sums.count(attrs.evolve(of("team", "p"), resource_claims=entries))
    assert dict(sums.whole["team"]) == {
        "cpu": 1000,
        "gpu.deviceclass.resource.k8s.io/devices": 3,
        "nic.deviceclass.resource.k8s.io/devices": 1,
    }


def reclaiming(
    snapshot: ClusterSnapshot, *names: str, borrowers: tuple[str, ...] = ("lent",), guarantee: bool = False
) -> list[str]:
    coming = snapshot.pending[0]
    plan = PreemptionPlan(
        nominations=immutabledict({str(coming.key): "n0"}),
        victims=victims(snapshot, *names),
        job=str(coming.key),
        borrowers=borrowers,
        certificate=Certificate(CertificateStatus.HEURISTIC, (0,)),
    )
    decision = Nominated(pod=coming.key, node="n0", victims=plan.victims)
    policy = Policy()
    setting = policy.plugin("ElasticQuota")
    if guarantee and setting is not None:
        policy = policy.with_plugin(attrs.evolve(setting, args=QuotaPolicy(guarantee_usage=True)))
    result = ScheduleResult(decisions=(decision,), snapshot=snapshot, preemptions=(plan,), policy=policy)
    return [f"{one.subject} {one.message}" for one in check_reclaims(snapshot, result)]


def lending(
    mine: int, theirs: int, running: list[Pod], *more: ClusterRecord, asks: int = 1000
) -> ClusterSnapshot:
    records = (
        ElasticQuota(name="mine", max={"cpu": 9000}, min={"cpu": mine}),
        ElasticQuota(name="lent", max={"cpu": 9000}, min={"cpu": theirs}),
        *more,
    )
    return cluster(of("mine", "p", asks), records=records, n0=running)


def test_a_quota_reclaims_within_its_promise_from_who_is_beyond_theirs() -> None:
    running = [of("lent", "a"), of("lent", "b")]
    assert reclaiming(lending(1000, 1000, running), "a") == []
    assert reclaiming(lending(1000, 2000, running), "a") == [
        "lent is within its min before the last of its victims leaves for default/p"
    ]
    assert reclaiming(lending(1000, 1000, running), "a", "b") == [
        "lent is within its min before the last of its victims leaves for default/p"
    ]
    assert reclaiming(lending(1000, 0, running), "a", "b") == []
    too_much = "mine reclaims for default/p and would use 1000 of cpu, 999 promised"
    assert reclaiming(lending(999, 1000, running), "a") == [too_much]
    assert reclaiming(lending(999, 1000, running), "a", guarantee=True) == []
    assert reclaiming(lending(1000, 1000, running), "a", borrowers=("other",)) == [
        "lent gives back to default/p and is no borrower of it"
    ]


def test_what_the_own_quota_uses_already_counts_at_the_turn() -> None:
    running = [of("lent", "a"), of("lent", "b"), of("mine", "c", 500)]
    assert reclaiming(lending(1500, 1000, running), "a") == []
    assert reclaiming(lending(1499, 1000, running), "a") == [
        "mine reclaims for default/p and would use 1500 of cpu, 1499 promised"
    ]


def test_nobody_gives_back_what_the_quota_does_not_name() -> None:
    """The maximum of ``mine`` names no CPU: nothing of it is promised, and nothing counted against it."""
    records = (
        ElasticQuota(name="mine", max={"memory": 9000}, min={"memory": 9000}),
        ElasticQuota(name="lent", max={"cpu": 9000}, min={"cpu": 0}),
    )
    snapshot = cluster(of("mine", "p"), records=records, n0=[of("lent", "a")])
    assert reclaiming(snapshot, "a") == [
        "lent is within its min before the last of its victims leaves for default/p"
    ]


def test_who_leaves_anyhow_is_not_counted_twice() -> None:
    from datetime import UTC, datetime

    gone = attrs.evolve(of("mine", "c", 500, -1), deleted=datetime(2026, 1, 1, tzinfo=UTC))
    running = [of("lent", "a"), of("lent", "b"), gone]
    assert reclaiming(lending(1000, 1000, running), "a") == []
    later = attrs.evolve(gone, priority=1)
    assert reclaiming(lending(1000, 1000, [*running[:2], later]), "a") == [
        "mine reclaims for default/p and would use 1500 of cpu, 1000 promised"
    ]
    theirs = attrs.evolve(of("lent", "d"), deleted=datetime(2026, 1, 1, tzinfo=UTC))
    assert reclaiming(lending(1000, 2000, [*running[:2], theirs]), "a") == [
        "lent is within its min before the last of its victims leaves for default/p"
    ]


# -- room -----------------------------------------


@pytest.mark.parametrize(
    ("ignored", "found"),
    [((), ["cpu", "example.com/x"]), (("example.com/x",), ["cpu"]), (("cpu",), ["cpu", "example.com/x"])],
)
def test_resources_that_the_policy_ignores_do_not_overflow(
    ignored: tuple[str, ...], found: list[str]
) -> None:
    policy = Policy()
    setting = policy.plugin("NodeResourcesFit")
    assert setting is not None
    told_to = policy.with_plugin(attrs.evolve(setting, args=FitArgs(ignored=ignored)))
    node = Node(name="n", allocatable={"cpu": 1000, "example.com/x": 1, "pods": 2})
    coming = [pod("p", requests={"cpu": 1001, "example.com/x": 2})]
    assert [name for name, _, _ in overflow(node, [], coming, told_to)] == found
    assert [name for name, _, _ in overflow(node, [pod("a", 0), pod("b", 0)], coming, told_to)] == [
        *found,
        "pods",
    ]
    assert list(overflow(node, [], coming, told_to, classes={"example.com/x": "x"})) != []
    bare = Node(name="n", allocatable={"cpu": 2000, "pods": 2})
    assert list(overflow(bare, [], coming, policy, classes={"example.com/x": "x"})) == []
