"""What speaks against a plan is found wherever it is: also on nodes and in records that it leaves alone."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    Policy,
    ScheduleResult,
    ViolationKind,
    verify,
)
from koordcore.checking.check import check_result
from koordcore.checking.differences import difference
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from koordcore.model.gangs import PodGroup
from koordcore.model.pods import SchedulingGroup
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import (
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup
from koordcore.model.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorOperator,
)
from koordcore.model.volumes import (
    NO_PROVISIONER,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koordcore.snapshot import RecordRemoved

ZONE = "zone"
GANG = "pod-group.scheduling.sigs.k8s.io"
QUOTA = "quota.scheduling.koordinator.sh/name"
WEB = LabelSelector({"app": "web"})
ONE_OF = LabelSelector(requirements=(Requirement("app", SelectorOperator.IN, ("web", "api")),))
NOT_DB = LabelSelector(requirements=(Requirement("app", SelectorOperator.NOT_IN, ("db",)),))
NEAR = PodAffinityTerm(ZONE, WEB)
SHUNS = Affinity(anti=PodAffinity(required=(NEAR,)))
NEEDS = Affinity(pod=PodAffinity(required=(NEAR,)))
EVEN = (TopologySpreadConstraint(max_skew=1, topology_key=ZONE, selector=WEB),)
PLAIN = {"app": "web"}


def node(number: int) -> Node:
    labels = {ZONE: f"z{number % 2}"}
    return Node(name=f"n{number}", labels=labels, allocatable={"cpu": 9000, "pods": 20})


def pod(name: str, **fields: Any) -> Pod:
    return attrs.evolve(Pod(name=name, requests={"cpu": 100}), **fields)


def cluster(*pods: Pod, records: tuple[Any, ...] = (), **running: Pod) -> ClusterSnapshot:
    """Nodes n0 to n3 in the zones z0, z1, z0 and z1; pods that run are given by their node."""
    states = [
        NodeState(
            node(number),
            tuple(running[f"n{number}"].at(f"n{number}") for _ in "x" if f"n{number}" in running),
        )
        for number in range(4)
    ]
    return ClusterSnapshot(nodes=states, pending=pods, records=records)


def forced(snapshot: ClusterSnapshot, **places: str) -> ScheduleResult:
    pods = {one.name: one for one in snapshot.pending}
    decisions = tuple(Bound(pod=pods[name].key, node=at) for name, at in places.items())
    after = snapshot.assume(*(pods[name].at(at) for name, at in places.items()))
    return ScheduleResult(decisions=decisions, snapshot=after, policy=Policy())


def told(snapshot: ClusterSnapshot, **places: str) -> list[str]:
    """What is wrong with a plan; the same whether all is looked at or what it touches."""
    result = forced(snapshot, **places)
    found = verify(snapshot, result)
    assert found == check_result(snapshot, result)
    return [f"{one.subject} {one.message}" for one in found]


def test_who_is_shunned_may_run_on_another_node_of_the_zone() -> None:
    snapshot = cluster(pod("p", affinity=SHUNS), n2=pod("old", labels=PLAIN))
    assert told(snapshot, p="n0") == ["default/p shuns 1 pods in zone=z0"]
    assert told(snapshot, p="n1") == []


@pytest.mark.parametrize("selector", [ONE_OF, NOT_DB])
def test_who_is_shunned_is_told_by_any_kind_of_selector(selector: LabelSelector) -> None:
    shuns = Affinity(anti=PodAffinity(required=(PodAffinityTerm(ZONE, selector),)))
    mine = pod("p", affinity=shuns, labels={"app": "db"})
    assert told(cluster(mine, n2=pod("old", labels=PLAIN)), p="n0") == ["default/p shuns 1 pods in zone=z0"]
    assert told(cluster(mine, n2=pod("old", labels={"app": "db"})), p="n0") == []


def test_who_shuns_may_run_on_another_node_of_the_zone() -> None:
    snapshot = cluster(pod("p", labels=PLAIN), n2=pod("old", affinity=SHUNS))
    assert told(snapshot, p="n0") == ["default/p default/old shuns it in zone=z0"]
    assert told(snapshot, p="n1") == []


def test_who_is_needed_may_run_on_another_node_of_the_zone() -> None:
    snapshot = cluster(pod("p", affinity=NEEDS), n2=pod("old", labels=PLAIN))
    assert told(snapshot, p="n0") == []
    assert told(snapshot, p="n1") == ["default/p nobody whom it needs is in zone=z1"]


def test_pods_of_other_nodes_count_in_the_spread() -> None:
    snapshot = cluster(pod("p", labels=PLAIN, spread_constraints=EVEN), n2=pod("old", labels=PLAIN))
    assert told(snapshot, p="n0") == ["default/p skew 2 over zone, at most 1 allowed"]
    assert told(snapshot, p="n1") == []


def test_pods_of_another_namespace_do_not_count_in_the_spread() -> None:
    there = pod("old", labels=PLAIN, namespace="other")
    snapshot = cluster(pod("p", labels=PLAIN, spread_constraints=EVEN), n2=there)
    assert told(snapshot, p="n0") == []


def test_the_revision_of_a_pod_is_counted_apart() -> None:
    """``matchLabelKeys``: pods with another value of the label are none of those that are spread."""
    keyed = (attrs.evolve(EVEN[0], match_label_keys=("revision", "absent")),)
    mine = pod("p", labels={**PLAIN, "revision": "2"}, spread_constraints=keyed)
    for revision, skewed in (("1", False), ("2", True)):
        old = pod("old", labels={**PLAIN, "revision": revision})
        assert bool(told(cluster(mine, n2=old), p="n0")) == skewed


def test_terms_mean_pods_of_the_namespaces_that_they_name() -> None:
    wide = attrs.evolve(NEAR, namespaces=("other",))
    mine = pod("p", affinity=Affinity(anti=PodAffinity(required=(wide,))))
    for space, found in (("other", ["default/p shuns 1 pods in zone=z0"]), ("default", []), ("third", [])):
        assert told(cluster(mine, n2=pod("old", labels=PLAIN, namespace=space)), p="n0") == found


def reservation(name: str, at: str, **template: Any) -> Reservation:
    held = {"cpu": 1000}
    return Reservation(
        name=name,
        uid=f"uid-{name}",
        template=pod(f"template-{name}", requests=held, **template),
        owners=(ReservationOwner(selector=LabelSelector({"owner": name})),),
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=at, allocatable=held),
    )


def test_what_holds_room_for_others_may_shun_and_be_shunned_from_another_node() -> None:
    shunning = cluster(pod("p", labels=PLAIN), records=(reservation("r", "n2", affinity=SHUNS),))
    assert told(shunning, p="n0") == ["default/p default/uid-r shuns it in zone=z0"]
    assert told(shunning, p="n1") == []
    shunned = cluster(pod("p", affinity=SHUNS), records=(reservation("r", "n2", labels=PLAIN),))
    assert told(shunned, p="n0") == ["default/p shuns 1 pods in zone=z0"]
    assert told(shunned, p="n1") == []


def test_members_of_a_gang_count_wherever_they_run() -> None:
    gang = PodGroup(namespace="default", name="g", min_member=2)
    labels = {GANG: "g"}
    strict = attrs.evolve(
        gang, annotations={"gang.scheduling.koordinator.sh/match-policy": "waiting-and-running"}
    )
    for record in (gang, strict):
        snapshot = cluster(pod("p", labels=labels), records=(record,), n2=pod("old", labels=labels))
        assert told(snapshot, p="n0") == []
        lone = cluster(pod("p", labels=labels), records=(record,))
        assert told(lone, p="n0") == ["default/g 1 of at least 2 members of default/g have a node"]


def test_groups_above_and_beside_are_asked_wherever_their_members_run() -> None:
    top = CompositePodGroup(name="top", min_groups=1)
    middle = CompositePodGroup(name="middle", min_groups=2, parent="top")
    leaves = tuple(SchedulingPodGroup(name=name, parent="middle") for name in "ab")
    mine = pod("p", scheduling_group=SchedulingGroup("a"))
    beside = pod("old", scheduling_group=SchedulingGroup("b"))
    assert told(cluster(mine, records=(top, middle, *leaves), n2=beside), p="n0") == []
    assert told(cluster(mine, records=(top, middle, *leaves)), p="n0") == [
        "default/middle somebody starts below its minimum of 2",
        "default/top somebody starts below its minimum of 1",
    ]
    # Members of a group that lies below another group above.
    cousin = SchedulingPodGroup(name="c", parent="side")
    side = CompositePodGroup(name="side", parent="top")
    wide = attrs.evolve(top, min_groups=2)
    near = (wide, attrs.evolve(middle, min_groups=1), side, *leaves, cousin)
    there = pod("old", scheduling_group=SchedulingGroup("c"))
    assert told(cluster(mine, records=near, n2=there), p="n0") == []
    assert told(cluster(mine, records=near), p="n0") == ["default/top somebody starts below its minimum of 2"]


def test_a_reservation_that_waits_as_a_member_of_a_group_agrees_with_it() -> None:
    group = SchedulingPodGroup(name="a")
    waits = attrs.evolve(
        reservation("r", "n2", scheduling_group=SchedulingGroup("a")), status=ReservationStatus()
    )
    mine = pod("p", scheduling_group=SchedulingGroup("a"))
    for priority, found in (
        (0, []),
        (5, ["default/a starts although its pods have several priorities: ['0', '5']"]),
    ):
        records = (group, attrs.evolve(waits, template_priority=priority))
        assert told(cluster(mine, records=records), p="n0") == found


def test_a_claim_for_one_pod_may_be_used_on_another_node() -> None:
    claim = PersistentVolumeClaim(name="v", volume="pv", one_pod=True)
    records = (claim, PersistentVolume(name="pv", driver="disk", handle="h"))
    (found,) = told(cluster(pod("p", claims=("v",)), records=records, n2=pod("old", claims=("v",))), p="n0")
    assert "default/p" in found


def test_a_volume_that_is_yet_to_be_made_is_attached_by_the_driver_of_its_class() -> None:
    claim = PersistentVolumeClaim(name="v", storage_class="fast")
    made_by = StorageClass(name="fast", provisioner="disk", immediate=False)
    for limit, found in ((1, []), (0, ["default/p 1 volumes of disk on n0, which attaches 0"])):
        records = (claim, made_by, CSINode(name="n0", limits={"disk": limit}))
        assert told(cluster(pod("p", claims=("v",)), records=records), p="n0") == found


def test_a_volume_that_is_yet_to_come_can_be_made_or_found_on_the_node() -> None:
    """By the very node that was chosen, by what a class allows, or by one that is there and would serve."""
    expected = ["default/p no volume for v can be made or found on n0"]
    claim = PersistentVolumeClaim(name="v", storage_class="fast", request=2, access_modes=("ReadWriteOnce",))

    def on_n0(*records: Any, **fields: Any) -> list[str]:
        wanted = attrs.evolve(claim, **fields)
        return told(cluster(pod("p", claims=("v",)), records=(wanted, *records)), p="n0")

    n0, n1 = (
        NodeSelector(
            (NodeSelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, (name,)),)),)
        )
        for name in ("n0", "n1")
    )
    assert on_n0(selected_node="n1") == expected
    assert on_n0(selected_node="n0") == []
    makes = StorageClass(name="fast", provisioner="disk", immediate=False)
    assert on_n0(makes) == []
    assert on_n0(attrs.evolve(makes, topologies=n0)) == []
    elsewhere = attrs.evolve(makes, topologies=n1)
    assert on_n0(elsewhere) == on_n0(elsewhere, selected_node="n0") == expected
    by_hand = attrs.evolve(makes, provisioner=NO_PROVISIONER)
    assert on_n0(by_hand) == []
    free = PersistentVolume(
        name="pv", storage_class="fast", capacity=2, access_modes=("ReadWriteOnce",), labels={"kind": "ssd"}
    )
    ssd, hdd = (LabelSelector(match_labels={"kind": kind}) for kind in ("ssd", "hdd"))
    assert on_n0(by_hand, free) == on_n0(elsewhere, free) == on_n0(by_hand, free, selector=ssd) == []
    assert on_n0(by_hand, attrs.evolve(free, node_affinity=n0)) == []
    assert on_n0(by_hand, attrs.evolve(free, claim="default/v", storage_class="", access_modes=())) == []
    for fields in (
        {"node_affinity": n1},
        {"available": False},
        {"capacity": 1},
        {"block": True},
        {"access_modes": ("ReadOnlyMany",)},
        {"storage_class": "slow"},
        {"claim": "default/w"},
        {"claim": "default/v", "capacity": 1},
    ):
        assert on_n0(by_hand, attrs.evolve(free, **fields)) == expected
    assert on_n0(by_hand, free, selector=hdd) == expected


def test_a_claim_is_there_and_so_is_its_volume_unless_its_class_waits_for_pods() -> None:
    """Where nothing is shown of claims at all, or nothing of their class, they are not looked at."""
    volume = PersistentVolume(name="pv")
    waits, at_once = (StorageClass(name="fast", provisioner="disk", immediate=now) for now in (False, True))
    fast = PersistentVolumeClaim(name="v", storage_class="fast")
    for found, *records in (
        ("", PersistentVolumeClaim(name="v", volume="pv"), volume),
        ("volume pv of claim v does not exist", PersistentVolumeClaim(name="v", volume="pv")),
        ("", fast, waits),
        ("", fast),
        ("claim v has no volume, and its class fast does not wait for pods", fast, at_once),
        ("claim v does not exist", PersistentVolumeClaim(name="w")),
        ("claim v does not exist", PersistentVolumeClaim(name="v", namespace="other")),
        ("", volume),
    ):
        expected = [f"default/p {found}"] if found else []
        assert told(cluster(pod("p", claims=("v",)), records=tuple(records)), p="n0") == expected
    shown = cluster(records=(PersistentVolumeClaim(name="w"),), n0=pod("runs", claims=("v",)))
    assert verify(shown) == ()


def test_what_runs_elsewhere_counts_in_the_quota_and_in_those_above_no_pod_twice() -> None:
    labels = {QUOTA: "team"}
    team = ElasticQuota(name="team", max={"cpu": 200}, min={"cpu": 200})
    for held, full in ((100, False), (101, True)):
        old = pod("old", labels=labels, requests={"cpu": held})
        snapshot = cluster(pod("p", labels=labels), records=(team,), n2=old)
        expected = ["team cpu: 201 used, max is 200"] if full else []
        assert told(snapshot, p="n0") == expected
        assert told(snapshot, p="n2") == expected


def test_pods_that_nobody_may_evict_stay_within_the_min_wherever_they_run() -> None:
    labels = {QUOTA: "team", "quota.scheduling.koordinator.sh/preemptible": "false"}
    team = ElasticQuota(name="team", max={"cpu": 900}, min={"cpu": 150})
    mine = pod("p", labels=labels)
    guarded = cluster(mine, records=(team,), n2=pod("old", labels=labels))
    assert told(guarded, p="n0") == ["team cpu: 200 used, min for non-preemptible pods is 150"]
    open_to_all = {**labels, "quota.scheduling.koordinator.sh/preemptible": "true"}
    assert told(cluster(mine, records=(team,), n2=pod("old", labels=open_to_all)), p="n0") == []
    assert told(cluster(mine, records=(team,), n2=pod("old", labels={QUOTA: "team"})), p="n0") == []


# -- on a line of snapshots that goes on -----------------------------------------


def on(snapshot: ClusterSnapshot, *pods: Pod, **places: str) -> tuple[list[str], ClusterSnapshot]:
    """Take more pods in, put them somewhere, and say what is wrong with that."""
    before = snapshot.with_pending(*pods)
    result = forced(before, **places)
    found = verify(before, result)
    assert found == check_result(before, result)
    return [f"{one.subject} {one.message}" for one in found], result.snapshot


def test_whoever_has_gone_shuns_nobody_any_more() -> None:
    first, now = on(cluster(n2=pod("old", affinity=SHUNS)), pod("a"), a="n1")
    assert first == []
    alone, _ = on(now.forget(pod("old").key), pod("b", labels=PLAIN), b="n0")
    assert alone == []
    without, _ = on(now.without_nodes("n2"), pod("b", labels=PLAIN), b="n0")
    assert without == []
    still, _ = on(now, pod("b", labels=PLAIN), b="n0")
    assert still == ["default/b default/old shuns it in zone=z0"]


def test_whoever_was_placed_in_an_earlier_call_counts_in_the_next() -> None:
    first, now = on(cluster(), pod("old", labels=PLAIN), pod("shy", affinity=SHUNS), old="n2", shy="n1")
    assert first == []
    assert on(now, pod("b", affinity=SHUNS), b="n0")[0] == ["default/b shuns 1 pods in zone=z0"]
    second, now = on(now, pod("c", affinity=SHUNS), c="n3")
    assert second == []
    third, _ = on(now, pod("d", labels=PLAIN), d="n1")
    assert len(third) == 1
    assert "shuns it in zone=z1" in third[0]


def test_a_node_that_changes_its_zone_takes_its_pods_and_reservations_along() -> None:
    records = (reservation("r", "n2", affinity=SHUNS),)
    first, now = on(cluster(records=records, n3=pod("old", affinity=SHUNS)), pod("a"), a="n1")
    assert first == []
    assert on(now, pod("b", labels=PLAIN), b="n0")[0] == ["default/b default/uid-r shuns it in zone=z0"]
    for number in (2, 3):
        state = now.node(f"n{number}")
        moved = attrs.evolve(state.node, labels={ZONE: "z9"})
        now = now.with_nodes(NodeState(moved, state.pods))
    for place in ("n0", "n1"):
        assert on(now, pod("b", labels=PLAIN), b=place)[0] == []
    assert len(on(now, pod("b", labels=PLAIN), b="n2")[0]) == 1


def test_a_quota_that_changes_and_pods_of_lost_nodes_count_as_they_are_now() -> None:
    labels = {QUOTA: "team"}
    team = ElasticQuota(name="team", max={"cpu": 300}, min={"cpu": 300})
    lost = pod("lost", labels=labels, requests={"cpu": 200}, node_name="gone")
    first, now = on(cluster(records=(team, lost)), pod("a", labels=labels), a="n1")
    assert first == []
    assert on(now, pod("b", labels=labels), b="n0")[0] == ["team cpu: 400 used, max is 300"]

    freed = now.apply(RecordRemoved(lost))
    second, freed = on(freed, pod("b", labels=labels), pod("c", labels=labels), b="n0", c="n0")
    assert second == []
    assert on(freed, pod("d", labels=labels), d="n0")[0] == ["team cpu: 400 used, max is 300"]
    wider = freed.with_records(attrs.evolve(team, max={"cpu": 400}))
    assert on(wider, pod("d", labels=labels), d="n0")[0] == []


def test_a_reservation_that_ends_holds_room_for_nobody() -> None:
    held = reservation("r", "n2")
    held = attrs.evolve(held, status=attrs.evolve(held.status, allocatable={"cpu": 8950}))
    snapshot = cluster(records=(held,))
    full, _ = on(snapshot, pod("a"), a="n2")
    assert any("9050 requested, 9000 allocatable" in one for one in full)
    first, now = on(snapshot, pod("b"), b="n0")
    assert first == []
    over = attrs.evolve(held, status=attrs.evolve(held.status, phase=ReservationPhase.FAILED))
    assert on(now.with_records(over), pod("a"), a="n2")[0] == []


@pytest.mark.parametrize(
    ("before", "after", "gone", "come"),
    [
        ("abc", "abc", "", ""),
        ("abc", "abd", "c", "d"),
        ("abc", "ac", "b", ""),
        ("ac", "abc", "", "b"),
        ("abc", "", "abc", ""),
        ("", "ab", "", "ab"),
        ("aab", "ab", "a", ""),
        ("abcd", "xd", "abc", "x"),
        ("abc", "bcd", "a", "d"),
        ("ab", "ba", "", ""),
        ("a", "ba", "", "b"),
    ],
)
def test_what_only_one_of_two_sequences_holds(before: str, after: str, gone: str, come: str) -> None:
    """Objects are told apart by themselves; whoever is in both counts as unchanged."""
    known = {name: object() for name in "abcdx"}
    names = {id(one): name for name, one in known.items()}
    if before == "aab":
        left = [object(), known["a"], known["b"]]
        names[id(left[0])] = "a"
    else:
        left = [known[name] for name in before]
    lost, new = difference(left, [known[name] for name in after])
    assert "".join(sorted(names[id(one)] for one in lost)) == gone
    assert "".join(sorted(names[id(one)] for one in new)) == come


def test_a_wrong_plan_is_named_for_its_neighbours_only() -> None:
    snapshot = cluster(pod("p", affinity=SHUNS), n0=pod("old", labels=PLAIN))
    assert {one.kind for one in verify(snapshot, forced(snapshot, p="n0"))} == {ViolationKind.POD_AFFINITY}
