"""What preemption says of a pod that no eviction helps."""

from __future__ import annotations

from immutabledict import immutabledict

from koordcore import ClusterSnapshot, Node, NodeState, Pod
from koordcore.explaining.cycle import Cycle, FilterVerdict, explain_cycle
from koordcore.explaining.post_filter import failure_event, preemption_refusals
from koordcore.model.pods import PreemptionPolicy
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import (
    Reservation,
    ReservationArgs,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.selectors import LabelSelector

ROOM = {"cpu": 4_000, "memory": 8 << 30, "pods": 110}


def refusals(pod: Pod, *running: Pod) -> tuple[str, ...]:
    """Ask about a pod on one node with others on it, next to a node that is closed."""
    nodes = [
        NodeState(node=Node(name="a", allocatable=ROOM), pods=running),
        NodeState(node=Node(name="b", allocatable=ROOM, unschedulable=True)),
    ]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[pod])
    return preemption_refusals(snapshot, pod, explain_cycle(snapshot, pod))


def test_without_lower_priorities_nobody_can_leave() -> None:
    """Each rule names its own kind of nobody; the closed node is not tried."""
    pod = Pod(name="late", requests={"cpu": 3_000}, priority=5)
    other = Pod(name="early", requests={"cpu": 3_000}, priority=5, node_name="a")
    quota, priority = refusals(pod, other)
    closed = "1 Preemption is not helpful for scheduling"
    assert quota == (
        f"preemption: 0/2 nodes are available: 1 No victims found on node a for preemptor pod late, {closed}."
    )
    assert priority == (
        f"preemption: 0/2 nodes are available: 1 No preemption victims found for incoming pod, {closed}."
    )


def test_evictions_that_do_not_suffice_leave_the_nodes_reason() -> None:
    """The node is asked again without its lower priorities, and still refuses."""
    pod = Pod(name="late", requests={"cpu": 3_000}, priority=5)
    stays = Pod(name="stays", requests={"cpu": 2_000}, priority=9, node_name="a")
    leaves = Pod(name="leaves", requests={"cpu": 1_000}, priority=1, node_name="a")
    assert "1 Insufficient cpu" in refusals(pod, stays, leaves)[1]


def test_an_eviction_that_helps_is_no_refusal() -> None:
    """Nothing is said where preemption would go ahead."""
    pod = Pod(name="late", requests={"cpu": 3_000}, priority=5)
    leaves = Pod(name="leaves", requests={"cpu": 3_000}, priority=1, node_name="a")
    assert refusals(pod, leaves) == ()


def test_a_pod_that_never_preempts_says_so() -> None:
    """Its own policy ends the question."""
    pod = Pod(name="late", requests={"cpu": 9_000}, preemption_policy=PreemptionPolicy.NEVER)
    assert set(refusals(pod)) == {"preemption: not eligible due to preemptionPolicy=Never."}


def test_nodes_that_are_not_looked_at_for_a_pod_still_refuse_it() -> None:
    """Evicting does not bring a pod to a node that has no reservation for it."""
    affinity = "scheduling.koordinator.sh/reservation-affinity"
    other = Pod(name="early", requests={"cpu": 3_000}, priority=1, node_name="a")
    reserved = Reservation(
        name="held",
        template=Pod(name="held", requests={"cpu": 1_000}),
        owners=(ReservationOwner(selector=LabelSelector({"app": "web"})),),
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="b", allocatable={"cpu": 1_000}),
    )
    pod = Pod(
        name="late", requests={"cpu": 1_000}, priority=5, labels={"app": "web"}, annotations={affinity: "{}"}
    )
    nodes = [
        NodeState(node=Node(name="a", allocatable=ROOM), pods=(other,)),
        NodeState(node=Node(name="b", allocatable=ROOM)),
    ]
    refused = Cycle(nodes=2, admission=FilterVerdict("ElasticQuota", ("Insufficient quotas",)))
    for objects in ([reserved], []):
        snapshot = ClusterSnapshot(nodes=nodes, pending=[pod], records=objects)
        told = preemption_refusals(snapshot, pod, refused)
        assert "1 node(s) no reservations match reservation affinity" in told[1]


def test_the_event_is_whole() -> None:
    """Refusals by node first, then what reservations and preemption say; nothing for a pod that fits."""
    pod = Pod(name="late", requests={"cpu": 9_000}, preemption_policy=PreemptionPolicy.NEVER)
    snapshot = ClusterSnapshot(nodes=[Node(name="a", allocatable=ROOM)], pending=[pod])
    never = "preemption: not eligible due to preemptionPolicy=Never."
    assert failure_event(snapshot, pod) == (f"0/1 nodes are available: 1 Insufficient cpu. {never}, {never}")
    wishing = Pod(
        name="wish",
        requests={"cpu": 1_000},
        annotations={"scheduling.koordinator.sh/reservation-affinity": "{}"},
        preemption_policy=PreemptionPolicy.NEVER,
    )
    assert failure_event(snapshot, wishing) == (
        "0/1 nodes are available: node(s) no reservations match reservation affinity. "
        f"0 Reservation(s) matched owner total, {never}, {never}"
    )
    assert failure_event(snapshot, Pod(name="small", requests={"cpu": 1_000})) == ""


def _quota_refuses(*running: Pod) -> str:
    """A pod that may not be preempted wants five CPUs of a quota that promises two; the node has room."""
    quota = ElasticQuota(
        name="lab", namespace="default", min=immutabledict(cpu=2000), max=immutabledict(cpu=99_000)
    )
    there = Node(name="n", allocatable={"cpu": 20_000, "memory": 2**34, "pods": 10})
    asked = Pod(
        name="p",
        requests={"cpu": 5000},
        priority=10,
        labels={
            "quota.scheduling.koordinator.sh/name": "lab",
            "quota.scheduling.koordinator.sh/preemptible": "false",
        },
    )
    pods = tuple(pod.at("n") for pod in running)
    return failure_event(
        ClusterSnapshot(nodes=[NodeState(there, pods)], pending=[asked], records=[quota]), asked
    )


def test_evictions_that_leave_the_refusal_of_admission_standing_do_not_help() -> None:
    """Whoever leaves the node, the quota refuses as before (ruling 33)."""
    told = _quota_refuses(Pod(name="low", requests={"memory": 2**30}))
    hopeless = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    assert told.endswith(f"exceedDimensions: [cpu]. {hopeless}, {hopeless}")


def test_preemption_by_the_reservation_plugin_has_a_line_of_its_own() -> None:
    setting = PluginSetting(name="Reservation", args=ReservationArgs(enable_preemption=True))
    asked = Pod(name="p", requests={"cpu": 5000}, priority=10)
    there = Node(name="n", allocatable={"cpu": 2000, "pods": 10})
    snapshot = ClusterSnapshot(nodes=[there], pending=[asked])
    event = failure_event(snapshot, asked, policy=Policy().with_plugin(setting))
    hopeless = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    assert event.count(hopeless) == 3
