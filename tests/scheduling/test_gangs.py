"""Gangs in the flow: all or nothing, gathered, and bindable as planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Nominated,
    Pod,
    PreemptionRules,
    Unschedulable,
    ViolationKind,
    Waiting,
    schedule,
    verify,
)
from koordcore.model.affinity import Affinity, NodeAffinity, PreferredNodeTerm
from koordcore.model.certificates import CertificateStatus
from koordcore.model.gangs import PodGroup
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.pods import HostPort, PodPhase
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import make_resources
from koordcore.model.selectors import NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.topology.network import NODE_LAYER, LayerSpec

NAME = "gang.scheduling.koordinator.sh/name"
LEAST = "gang.scheduling.koordinator.sh/min-available"
MODE = "gang.scheduling.koordinator.sh/mode"
GROUPS = "gang.scheduling.koordinator.sh/groups"
WAIT = "gang.scheduling.koordinator.sh/waiting-time"
POLICY = "gang.scheduling.koordinator.sh/match-policy"
SPEC = "gang.scheduling.koordinator.sh/network-topology-spec"
MUST = '{"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]}'

TIERS = (("a", "old"), ("b", "new"))
NETWORK = ClusterNetworkTopology(
    "default",
    (LayerSpec("BlockLayer", ("block",)), LayerSpec(NODE_LAYER, (), "BlockLayer")),
)


def node(name: str, cpu: int, block: str = "") -> Node:
    return Node(name=name, labels={"block": block} if block else {}, allocatable={"cpu": cpu, "pods": 10})


def members(gang: str, count: int, cpu: int, least: int, *, first: int = 0, **annotations: str) -> list[Pod]:
    named = {"mode": MODE, "groups": GROUPS, "spec": SPEC}
    extra = {named[key]: value for key, value in annotations.items()}
    return [
        Pod(
            name=f"{gang}-{number}",
            requests={"cpu": cpu},
            annotations={NAME: gang, LEAST: str(least), **extra},
        )
        for number in range(first, first + count)
    ]


def placed(snapshot: ClusterSnapshot) -> dict[str, str]:
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return {one.pod.name: one.node for one in result.bound}


def cluster(nodes: Sequence[Node | NodeState], pods: list[Pod], *records: ClusterRecord) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=nodes, pending=pods, records=records)


def test_all_or_nothing() -> None:
    """Three of four fit, so none is placed; a pod of its own may then use the room."""
    gang = members("g", 4, 1000, 4)
    snapshot = cluster([node("n", 3000)], [*gang, Pod(name="alone", requests={"cpu": 3000}, priority=-1)])
    result = schedule(snapshot)
    assert {one.pod.name for one in result.bound} == {"alone"}
    refused = [one for one in result.decisions if isinstance(one, Unschedulable)]
    assert len(refused) == 4
    assert any("gets rejected due to member Pod" in one.refusal for one in refused)
    assert verify(snapshot, result) == ()


def test_more_than_the_minimum_when_there_is_room() -> None:
    """Two have to start, three fit, the fourth waits."""
    assert len(placed(cluster([node("n", 3000)], members("g", 4, 1000, 2)))) == 3


def test_running_members_count_towards_the_minimum() -> None:
    """One runs already, so one more is enough."""
    first, *others = members("g", 3, 1000, 2)
    snapshot = cluster([node("n", 2000)], [first, *others]).assume(first.at("n"))
    assert len(placed(snapshot)) == 1


def test_too_few_members_do_not_start() -> None:
    """The reference's words for a gang whose members have not all been created."""
    result = schedule(cluster([node("n", 9000)], members("g", 2, 1000, 3)))
    assert not result.bound
    first = result.decisions[0]
    assert isinstance(first, Unschedulable)
    assert "child pod not collect enough" in first.refusal


def test_non_strict_keeps_what_it_has() -> None:
    """Who found a place keeps it while the others wait (ruling 8), and the checker agrees."""
    snapshot = cluster([node("n", 2000)], members("g", 3, 1000, 3, mode="NonStrict"))
    result = schedule(snapshot)
    held = [one for one in result.decisions if isinstance(one, Waiting)]
    assert [one.held.node for one in held if one.held] == ["n", "n"]
    assert verify(snapshot, result) == ()
    more = result.snapshot.with_nodes(node("m", 1000))
    assert placed(more) == {"g-0": "n", "g-1": "n", "g-2": "m"}  # all of them start now


@pytest.mark.parametrize(("minutes", "held"), [(9, 2), (10, 0), (60, 0)])
def test_a_non_strict_gang_does_not_hold_its_places_for_ever(minutes: int, held: int) -> None:
    """Ten minutes after its members were made the places go to who can use them."""
    made = datetime(2026, 1, 1, tzinfo=UTC)
    gang = [
        attrs.evolve(pod, created=made, annotations={**pod.annotations, WAIT: "10m"})
        for pod in members("g", 3, 1000, 3, mode="NonStrict")
    ]
    snapshot = cluster([node("n", 2000)], [*gang, Pod(name="later", requests={"cpu": 1000}, priority=-1)])
    result = schedule(snapshot, now=made + timedelta(minutes=minutes))
    assert sum(isinstance(one, Waiting) for one in result.decisions) == held
    assert [one.pod.name for one in result.bound] == ([] if held else ["later"])
    assert verify(snapshot, result) == ()


def test_places_that_are_kept_from_call_to_call_end() -> None:
    """The end is told when the wait begins: later calls on the result give the places to who can use them."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    gang = [
        attrs.evolve(pod, annotations={**pod.annotations, WAIT: "10m"})
        for pod in members("g", 3, 1000, 3, mode="NonStrict")
    ]
    line = schedule(cluster([node("n", 2000)], gang), now=at).snapshot
    line = line.with_pending(Pod(name="later", requests={"cpu": 1000}, priority=9))
    for minutes in (1, 9):
        result = schedule(line, now=at + timedelta(minutes=minutes))
        held = [one.pod.name for one in result.decisions if isinstance(one, Waiting)]
        assert (held, result.bound) == (["g-0", "g-1"], ())
        assert verify(line, result) == ()
        line = result.snapshot
    asked = [Pod(name="later", requests={"cpu": 1000}, priority=9)]
    for minutes, number in ((9, 0), (10, 1)):  # also where somebody else is asked about
        result = schedule(line, asked, now=at + timedelta(minutes=minutes))
        assert len(result.bound) == number
        assert verify(line, result) == ()
    result = schedule(line, now=at + timedelta(minutes=10))
    assert [one.pod.name for one in result.bound] == ["later"]
    assert {pod.name for pod in result.snapshot.pending} == {"g-0", "g-1", "g-2"}
    assert verify(line, result) == ()


def test_who_keeps_a_place_starts_with_the_others() -> None:
    """The call that completes the gang binds all of it, and nothing of the wait is left."""
    pods = members("g", 3, 1000, 3, mode="NonStrict")
    line = schedule(cluster([node("n", 2000)], pods)).snapshot.with_nodes(node("m", 1000))
    result = schedule(line)
    assert {one.pod.name: one.node for one in result.bound} == {"g-0": "n", "g-1": "n", "g-2": "m"}
    assert verify(line, result) == ()
    assert not [pod for pod in result.snapshot.bound_pods() if WAITS_AT_PERMIT in pod.annotations]
    assert schedule(result.snapshot).decisions == ()
    (plan,) = result.jobs
    assert (plan.placed, plan.members, plan.held) == (3, 3, 0)


def test_a_place_that_is_kept_is_lost_with_its_node_and_nobody_is_evicted_from_it() -> None:
    pods = members("g", 3, 1000, 3, mode="NonStrict")
    line = schedule(cluster([node("m", 1000), node("n", 1000)], pods)).snapshot
    urgent = Pod(name="urgent", requests={"cpu": 1000}, priority=99)
    result = schedule(line.with_pending(urgent), preempt=PreemptionRules())
    assert (result.preemptions, result.bound) == ((), ())
    assert verify(line.with_pending(urgent), result) == ()
    gone = line.without_nodes("m").with_nodes(node("o", 2000)).with_pending(*pods[:1])
    again = schedule(gone)
    assert {one.pod.name: one.node for one in again.bound} == {"g-0": "o", "g-1": "n", "g-2": "o"}
    assert verify(gone, again) == ()


def test_gang_groups_start_together() -> None:
    """The second gang does not fit, so the first does not start either."""
    both = '["default/a", "default/b"]'
    pods = [*members("a", 2, 1000, 2, groups=both), *members("b", 2, 2000, 2, groups=both)]
    assert placed(cluster([node("n", 5000)], pods)) == {}
    assert len(placed(cluster([node("n", 6000)], pods))) == 4


def test_must_gather_takes_the_block_that_holds_all() -> None:
    """The emptier-looking block is passed over for the one with room for everybody."""
    nodes = [node("a1", 4000, "a"), node("b1", 2000, "b"), node("b2", 3000, "b")]
    snapshot = cluster(nodes, members("g", 5, 1000, 5, spec=MUST), NETWORK)
    assert set(placed(snapshot).values()) == {"b1", "b2"}
    plan = schedule(snapshot).jobs[0]
    assert dict(plan.domains) == {"BlockLayer": 1, NODE_LAYER: 2}
    assert plan.certificate is not None
    assert plan.certificate.proven


def test_must_gather_refuses_with_the_smallest_reason() -> None:
    """No block holds six; the plan says what the best one offers."""
    nodes = [node("a1", 4000, "a"), node("b1", 2000, "b"), node("b2", 3000, "b")]
    result = schedule(cluster(nodes, members("g", 6, 1000, 6, spec=MUST), NETWORK))
    assert not result.bound
    plan = result.jobs[0]
    assert plan.certificate is not None
    assert plan.certificate.status is CertificateStatus.INFEASIBLE
    assert "5" in plan.detail
    assert "no candidate topology nodes can accommodate job" in plan.message


def test_offers_that_do_not_hold_are_taken_back() -> None:
    """Host ports leave one member per node, whatever the resources say; the plan that comes out is bound."""
    pods = [attrs.evolve(one, host_ports=(HostPort(80),)) for one in members("g", 2, 1000, 2, spec=MUST)]
    nodes = [node("a1", 4000, "a"), node("b1", 1000, "b"), node("b2", 1000, "b")]
    assert set(placed(cluster(nodes, pods, NETWORK)).values()) == {"b1", "b2"}


def test_unequal_members_that_a_greedy_order_would_lose() -> None:
    """Small members first would fill the node that only the large one needs; the plan finds the fit."""
    small, large = members("g", 2, 1000, 3), members("g", 1, 3000, 3, first=2)
    got = placed(cluster([node("a", 3000), node("b", 2000)], [*small, *large]))
    assert got == {"g-0": "b", "g-1": "b", "g-2": "a"}


def test_pod_group_configures_the_gang() -> None:
    """The label names it, the object says how many."""
    pods = [
        Pod(name=f"w-{number}", requests={"cpu": 1000}, labels={"pod-group.scheduling.sigs.k8s.io": "job"})
        for number in range(2)
    ]
    group = PodGroup(namespace="default", name="job", min_member=2)
    assert placed(cluster([node("n", 1000)], pods, group)) == {}
    assert len(placed(cluster([node("n", 2000)], pods, group))) == 2


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_the_checker_finds_a_torn_gang(gone: int) -> None:
    """A plan that leaves members out is not legal."""
    snapshot = cluster([node("n", 9000)], members("g", 4, 1000, 4))
    result = schedule(snapshot)
    lost = [one.pod for one in result.bound[:gone]]
    torn = attrs.evolve(
        result,
        decisions=tuple(Unschedulable(pod=one.pod) if one.pod in lost else one for one in result.decisions),
        snapshot=result.snapshot.forget(*lost).with_pending(*(p for p in snapshot.pending if p.key in lost)),
    )
    assert {violation.kind for violation in verify(snapshot, torn)} == {ViolationKind.GANG}


def test_the_checker_finds_a_scattered_gang() -> None:
    """MustGather is checked anew from the labels."""
    nodes = [node("a1", 4000, "a"), node("b1", 4000, "b")]
    snapshot = cluster(nodes, members("g", 2, 1000, 2, spec=MUST), NETWORK)
    result = schedule(snapshot)
    first = result.bound[0]
    pod = result.snapshot.pod(first.pod)
    assert pod is not None
    other = "b1" if first.node == "a1" else "a1"
    scattered = attrs.evolve(
        result,
        decisions=tuple(
            attrs.evolve(one, node=other) if one == first and isinstance(one, Bound) else one
            for one in result.decisions
        ),
        snapshot=result.snapshot.forget(pod.key).assume(pod.at(other)),
    )
    assert {violation.kind for violation in verify(snapshot, scattered)} == {ViolationKind.GANG}


def test_members_that_start_together_say_so() -> None:
    """Their annotations name the group and its number; a lone one has none."""
    snapshot = cluster([node("n", 3000)], members("g", 2, 1000, 2))
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    for one in result.bound:
        pod = result.snapshot.pod(one.pod)
        assert pod is not None
        assert one.annotations["scheduling.koordinator.sh/bind-gang-member-count"] == "2"
        assert pod.annotations["scheduling.koordinator.sh/bind-gang-group-id"] == "default/g"
    assert not schedule(cluster([node("n", 3000)], members("g", 1, 1000, 1))).bound[0].annotations


def test_a_quota_that_admits_only_some_members_refuses_the_gang() -> None:
    """The plan fits the nodes; the quota's message is what the gang is told."""
    quota = ElasticQuota(name="q", max=make_resources({"cpu": 1000}), min=make_resources({"cpu": 1000}))
    label = {"quota.scheduling.koordinator.sh/name": "q"}
    pods = [attrs.evolve(one, labels=label) for one in members("g", 2, 1000, 2, spec=MUST)]
    result = schedule(cluster([node("a1", 9000, "a")], pods, NETWORK, quota))
    assert not result.bound
    assert "Insufficient quotas" in result.jobs[0].message


@pytest.mark.parametrize(
    ("policy", "pending", "room", "expected"),
    [
        ("once-satisfied", 1, 9, 1),
        ("once-satisfied", 2, 1, 1),
        ("waiting-and-running", 2, 9, 0),
        ("waiting-and-running", 3, 9, 3),
        ("only-waiting", 3, 9, 0),
    ],
)
def test_a_gang_that_has_started_is_repaired(policy: str, pending: int, room: int, expected: int) -> None:
    """Once a member ran, a once-satisfied gang takes members like ordinary pods; others wait."""
    first, *others = [
        attrs.evolve(pod, annotations={**pod.annotations, POLICY: policy})
        for pod in members("g", 1 + pending, 1000, 4)
    ]
    snapshot = cluster([node("n", 1000 + room * 1000)], [first, *others]).assume(first.at("n"))
    assert len(placed(snapshot)) == expected
    for one in schedule(snapshot).decisions:
        assert not isinstance(one, Unschedulable) or one.rejections or one.refusal


@pytest.mark.parametrize(("policy", "expected"), [("once-satisfied", 1), ("waiting-and-running", 1)])
def test_members_that_ran_to_their_end_count_as_bound(policy: str, expected: int) -> None:
    """Three of four succeeded; the last one starts (GANG-20)."""
    pods = [
        attrs.evolve(pod, annotations={**pod.annotations, POLICY: policy}) for pod in members("g", 4, 1000, 4)
    ]
    done = [attrs.evolve(pod.at("n"), phase=PodPhase.SUCCEEDED) for pod in pods[:3]]
    assert len(placed(cluster([node("n", 1000)], pods[3:], *done))) == expected


def test_replacements_stay_in_the_domain_of_those_that_run() -> None:
    """Two of four are to be replaced; the block has room for one, the other block for both."""
    pods = members("g", 4, 1000, 4, spec=MUST)
    nodes = [node("a1", 3000, "a"), node("b1", 9000, "b")]
    snapshot = cluster(nodes, pods, NETWORK).assume(*(pod.at("a1") for pod in pods[:2]))
    assert placed(snapshot) == {"g-2": "a1"}
    full = snapshot.assume(pods[2].at("a1"))
    result = schedule(full)
    (refused,) = result.decisions
    assert isinstance(refused, Unschedulable)
    assert "desiredOfferSlot: 1" in refused.refusal
    assert result.jobs[0].detail == "the best BlockLayer, a, has 0 of 1 slots; 1 more would do"


def test_extra_members_of_one_gang_leave_the_minimum_of_the_other() -> None:
    """Two elastic gangs of a group on two cards: one member of each, not two of the first."""
    both = '["default/a", "default/b"]'
    pods = [*members("a", 2, 1000, 1, groups=both), *members("b", 2, 1000, 1, groups=both)]
    assert set(placed(cluster([node("n", 2000)], pods))) == {"a-0", "b-0"}


def test_equal_domains_are_settled_by_the_scores_of_their_nodes() -> None:
    """Of two equal nodes the members prefer the newer one; a wish for gathering does not change that."""
    term = PreferredNodeTerm(100, NodeSelectorTerm((Requirement("tier", SelectorOperator.IN, ("new",)),)))
    wish = Affinity(node=NodeAffinity(preferred=(term,)))
    nodes = [attrs.evolve(node(name, 8000, "r"), labels={"block": "r", "tier": tier}) for name, tier in TIERS]
    prefer = MUST.replace("MustGather", "PreferGather")
    for rule in ("", prefer, MUST):
        pods = [attrs.evolve(pod, affinity=wish) for pod in members("g", 2, 1000, 2, spec=rule)]
        assert set(placed(cluster(nodes, pods, NETWORK)).values()) == {"b"}


def test_an_emptier_node_is_settled_by_its_score() -> None:
    """Equal slots on both, and nothing but the load tells the nodes apart."""
    nodes = [attrs.evolve(node(name, 8000, "r")) for name, _ in TIERS]
    pods = members("g", 2, 1000, 2, spec=MUST)
    big = Pod(name="big", requests={"cpu": 2000})
    snapshot = cluster(nodes, [*pods, big], NETWORK).assume(big.at("a"))
    assert set(placed(snapshot).values()) == {"b"}


def test_members_are_balanced_over_the_domains_that_they_need() -> None:
    """Eleven members: one block holds eight, two are needed, and they share the members evenly."""
    nodes = [node(f"{block}{one}", 4000, block) for block in "abc" for one in range(2)]
    wishes = {
        strategy: f'{{"gatherStrategy": [{{"layer": "BlockLayer", "strategy": "{strategy}"}}]}}'
        for strategy in ("PreferGather", "BalancedGather")
    }
    found = {}
    for strategy, spec in wishes.items():
        there = placed(cluster(nodes, members("g", 11, 1000, 11, spec=spec), NETWORK))
        found[strategy] = sorted(Counter(name[0] for name in there.values()).values())
    assert found == {"PreferGather": [3, 8], "BalancedGather": [5, 6]}


def test_a_group_that_lacks_waiting_members_says_how_many() -> None:
    """Nobody failed, and still too few wait: the reason is never empty."""
    labels = {"pod-group.scheduling.sigs.k8s.io": "job"}
    group = PodGroup(namespace="default", name="job", min_member=4)
    running = Pod(name="job-0", labels=labels, requests={"cpu": 1}).at("n")
    node = NodeState(Node(name="n", allocatable={"cpu": 1000, "pods": 10}), (running,))
    waiting = [Pod(name="job-1", labels=labels, requests={"cpu": 1})]
    snapshot = ClusterSnapshot(nodes=[node], pending=waiting, records=[group])
    for decision in schedule(snapshot).decisions:
        if isinstance(decision, Unschedulable):
            assert len(decision.message) > len("0/1 nodes are available.")


def two_gangs(first: str, second: str) -> list[Pod]:
    """A gang of two small members and one of two large ones that start together."""
    both = '["default/a", "default/b"]'
    return [
        *members("a", 2, 1000, 2, groups=both, spec=first),
        *members("b", 2, 2000, 2, groups=both, spec=second),
    ]


BLOCKS = [("n0", "x"), ("n1", "y"), ("n2", "z")]


def test_a_layer_of_one_gang_binds_its_own_members() -> None:
    """Only the large members must share a block; the group as a whole would fit in none."""
    nodes = [node(name, 4500, block) for name, block in BLOCKS]
    free = '{"gatherStrategy": []}'
    got = placed(cluster(nodes, two_gangs(free, MUST), NETWORK))
    assert len({got["b-0"], got["b-1"]}) == 1
    assert len(got) == 4


def test_a_layer_in_every_spec_binds_the_group() -> None:
    """Two specs that say the same mean one block for all."""
    nodes = [node(name, 4500, block) for name, block in BLOCKS]
    assert placed(cluster(nodes, two_gangs(MUST, MUST), NETWORK)) == {}
    roomy = [*nodes[:2], node("n2", 6000, "z")]
    assert set(placed(cluster(roomy, two_gangs(MUST, MUST), NETWORK)).values()) == {"n2"}


def test_a_multiple_of_one_gang_counts_its_own_members() -> None:
    """Pairs of the large gang per block; the small one may split."""
    pairs = '{"gatherStrategy": [{"layer": "BlockLayer", "strategy": "PreferGather", "podCountMultiple": 2}]}'
    nodes = [node("n0", 3000, "x"), node("n1", 5000, "y")]
    got = placed(cluster(nodes, two_gangs('{"gatherStrategy": []}', pairs), NETWORK))
    assert {got["b-0"], got["b-1"]} == {"n1"}


def test_room_is_made_for_a_gang_with_a_layer_of_its_own() -> None:
    """Cheaper victims in two blocks do not help the members that need one."""
    low = [Pod(name=f"low-{name}", requests={"cpu": 4500}, priority=-5) for name, _ in BLOCKS]
    nodes = [
        NodeState(node(name, 4500, block), (pod.at(name),))
        for (name, block), pod in zip(BLOCKS, low, strict=True)
    ]
    snapshot = cluster(nodes, two_gangs('{"gatherStrategy": []}', MUST), NETWORK)
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    where = {one.pod.name: one.node for one in result.decisions if isinstance(one, Nominated)}
    assert where["b-0"] == where["b-1"]
    assert len(result.preemptions[0].victims) == 2
