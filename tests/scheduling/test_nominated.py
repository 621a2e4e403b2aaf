"""Pods that are nominated count where they are nominated, and nowhere else."""

from __future__ import annotations

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    Nominated,
    Pod,
    PreemptionRules,
    Unschedulable,
    Waiting,
    schedule,
    verify,
)
from koordcore.explaining import explain
from koordcore.explaining.cycle import explain_cycle
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from koordcore.model.pods import PreemptionPolicy
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.gang import ANNOTATION_MIN_AVAILABLE, ANNOTATION_MODE
from koordcore.protocol.gang_names import ANNOTATION_GANG_NAME
from tests.reservations.worlds import POLICY, must, node, pod, reservation

FAR = Affinity(anti=PodAffinity(required=(PodAffinityTerm("zone", LabelSelector({"app": "b"})),)))


def zone(name: str, where: str) -> Node:
    return Node(name=name, labels={"zone": where}, allocatable={"cpu": 4000, "pods": 9})


def test_the_anti_affinity_of_a_nominated_pod_counts() -> None:
    """On its own node; another node of the zone is looked at as if it were not nominated anywhere."""
    waits = Pod(name="waits", priority=9, nominated_node="n1", affinity=FAR)
    asks = Pod(name="asks", labels={"app": "b"}, requests={"cpu": 1000})
    snapshot = ClusterSnapshot(nodes=[zone("n1", "z"), zone("n2", "z")], pending=[waits, asks])
    cycle = explain_cycle(snapshot, asks)
    assert [(one, cycle.filters[one].plugin) for one in ("n1", "n2")] == [
        ("n1", "InterPodAffinity"),
        ("n2", ""),
    ]
    (bound,) = schedule(snapshot, [asks]).bound
    assert bound.node == "n2"
    assert {one.node: one.plugin for one in explain(snapshot, asks).verdicts}["n1"] == "InterPodAffinity"


def test_each_node_is_counted_beside_its_own_nominated_pods() -> None:
    """The room of ``n1`` is taken by who waits for it; ``n2`` refuses for a reason of its own."""
    waits = Pod(name="waits", priority=9, nominated_node="n1", requests={"cpu": 4000}, affinity=FAR)
    asks = Pod(name="asks", labels={"app": "b"}, requests={"cpu": 3000})
    busy = Pod(name="busy", requests={"cpu": 2000}, node_name="n2")
    snapshot = ClusterSnapshot(nodes=[zone("n1", "z"), zone("n2", "z")], pending=[waits, asks]).assume(busy)
    (refused,) = schedule(snapshot, [asks]).decisions
    assert isinstance(refused, Unschedulable)
    # Were both counted beside all that is nominated, the anti-affinity would refuse on both.
    assert refused.message == "0/2 nodes are available: 2 Insufficient cpu."


def test_the_nominated_node_is_looked_at_whatever_narrows_the_search() -> None:
    owner = pod("o", 1, "a", annotations=must(), nominated_node="n2")
    snapshot = ClusterSnapshot(nodes=[node("n1"), node("n2")], records=[reservation("r", 2, "n1")])
    cycle = explain_cycle(snapshot.with_pending(owner), owner, policy=POLICY)
    assert cycle.allowed == ("n1",)
    assert cycle.filters["n2"].reasons == ("node(s) no reservations match reservation affinity",)
    assert cycle.decision is not None
    assert cycle.decision.node == "n1"


def test_who_is_nominated_in_this_call_helps_nobody_elsewhere() -> None:
    """Until the victim has gone the app has one pod in all; a second beside it would be a skew of two."""
    rule = TopologySpreadConstraint(max_skew=1, topology_key="zone", selector=LabelSelector({"app": "x"}))
    low = Pod(name="low", requests={"cpu": 4000}, node_name="n1")
    there = Pod(name="there", labels={"app": "x"}, node_name="n2")
    high = Pod(name="high", labels={"app": "x"}, requests={"cpu": 4000}, priority=9)
    spread = Pod(
        name="spread", labels={"app": "x"}, requests={"cpu": 2000}, priority=-1, spread_constraints=(rule,)
    )
    busy = Pod(name="busy", requests={"cpu": 1000}, node_name="n2", priority=9)
    nodes = [zone("n1", "a"), zone("n2", "b")]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[high, spread]).assume(low, there, busy)
    result = schedule(snapshot, preempt=PreemptionRules())
    first, second = result.decisions
    assert isinstance(first, Nominated)
    # It waits on its node for the victim of the other.
    assert isinstance(second, Nominated)
    assert (second.node, second.victims) == ("n2", ())
    assert verify(snapshot, result) == ()


def test_who_was_nominated_before_is_no_neighbour_of_a_gang_yet() -> None:
    """A member that needs him beside it waits for him, as a pod of its own does."""
    near = PodAffinityTerm(topology_key="zone", selector=LabelSelector({"app": "y"}))
    gang = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "1",
    }
    member = Pod(name="g-0", annotations=gang, affinity=Affinity(pod=PodAffinity(required=(near,))))
    promised = Pod(name="p", labels={"app": "y"}, node_selector={"disk": "b"}, nominated_node="n1")
    snapshot = ClusterSnapshot(nodes=[zone("n1", "a")], pending=[member, promised])
    result = schedule(snapshot)
    assert result.bound == ()
    assert verify(snapshot, result) == ()


def test_who_is_nominated_in_this_call_keeps_his_room_from_who_spreads_anyhow() -> None:
    """A wish for spreading refuses nobody; until ``low`` has gone there would be room for one more."""
    wish = TopologySpreadConstraint(
        max_skew=1,
        topology_key="zone",
        when_unsatisfiable="ScheduleAnyway",
        selector=LabelSelector({"app": "x"}),
    )
    low = Pod(name="low", requests={"cpu": 2000}, node_name="n1")
    high = Pod(name="high", requests={"cpu": 4000}, priority=9)
    asks = Pod(name="asks", requests={"cpu": 2000}, spread_constraints=(wish,))
    snapshot = ClusterSnapshot(nodes=[zone("n1", "a")], pending=[high, asks]).assume(low)
    result = schedule(snapshot, preempt=PreemptionRules())
    first, second = result.decisions
    assert isinstance(first, Nominated)
    assert isinstance(second, Unschedulable)
    assert verify(snapshot, result) == ()


def test_a_nominated_member_that_waits_where_it_has_a_place_counts_there_once() -> None:
    held_back = {ANNOTATION_GANG_NAME: "g", ANNOTATION_MIN_AVAILABLE: "2", ANNOTATION_MODE: "NonStrict"}
    first = Pod(name="g-0", priority=9, nominated_node="n1", requests={"cpu": 2000}, annotations=held_back)
    second = Pod(name="g-1", priority=9, requests={"cpu": 9000}, annotations=held_back)
    after = Pod(name="after", requests={"cpu": 2000})
    snapshot = ClusterSnapshot(nodes=[zone("n1", "z")], pending=[first, second, after])
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert [type(one) for one in result.decisions] == [Waiting, Unschedulable, Bound]
    # Nor is any of it left behind for a later call that asks about one of them.
    assert isinstance(schedule(snapshot, [after]).decisions[0], Bound)


def test_a_node_that_is_full_only_beside_those_of_this_call_and_of_earlier_ones_says_so() -> None:
    """One is nominated in this call, one was before; both fit beside who asks, but not together."""
    only = Node(name="n", labels={"zone": "z"}, allocatable={"cpu": 4000, "pods": 4})
    runs = Pod(name="runs", requests={"cpu": 4000}, node_name="n")
    before = Pod(name="before", priority=9, nominated_node="n", gates=("wait",))
    now = Pod(name="now", priority=9, requests={"cpu": 1000})
    last = Pod(name="last", affinity=FAR, preemption_policy=PreemptionPolicy.NEVER)
    start = ClusterSnapshot(nodes=[only], pending=[before, now, last]).assume(
        runs, Pod(name="stays", priority=99, node_name="n")
    )
    result = schedule(start, preempt=PreemptionRules())
    assert verify(start, result) == ()
    told = {one.pod.name: one for one in result.decisions}
    assert isinstance(told["now"], Nominated)
    refused = told["last"]
    assert isinstance(refused, Unschedulable)
    assert refused.message == "0/1 nodes are available: 1 Too many pods."


def test_who_is_nominated_in_this_call_is_no_company_yet_beside_one_of_an_earlier_call_either() -> None:
    """``asks`` needs ``comes``, who has no place before ``low`` has left; ``waits`` counts there, too."""
    near = Affinity(pod=PodAffinity(required=(PodAffinityTerm("zone", LabelSelector({"app": "y"})),)))
    low = Pod(name="low", requests={"cpu": 4000}, node_name="n1")
    comes = Pod(name="comes", labels={"app": "y"}, requests={"cpu": 1000}, priority=9)
    asks = Pod(name="asks", priority=5, affinity=near)
    waits = Pod(name="waits", priority=5, nominated_node="n1", requests={"memory": 1})
    empty = ClusterSnapshot(nodes=[zone("n1", "z")], pending=[comes, asks, waits])
    snapshot = empty.assume(low)
    result = schedule(snapshot, [comes, asks], preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert not result.bound
    assert [one.node for one in schedule(empty, [comes, asks]).bound] == ["n1", "n1"]


def test_of_nodes_that_refuse_beside_nominated_pods_the_closest_is_named() -> None:
    waits = [
        Pod(name=f"w{number}", requests={"cpu": cpu}, nominated_node=f"n{number}", priority=9)
        for number, cpu in enumerate((4000, 2000, 3000))
    ]
    asks = Pod(name="asks", requests={"cpu": 3000})
    snapshot = ClusterSnapshot(nodes=[zone(f"n{number}", "z") for number in range(3)], pending=[*waits, asks])
    (decision,) = schedule(snapshot, [asks]).decisions
    assert isinstance(decision, Unschedulable)
    assert decision.nearest is not None
    assert decision.nearest.node == "n1"
