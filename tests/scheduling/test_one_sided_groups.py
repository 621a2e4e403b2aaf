"""A gang group that only one of its gangs names."""

from __future__ import annotations

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    PodGroup,
    PreemptionRules,
    schedule,
    verify,
)
from koordcore.model.affinity import TopologySpreadConstraint, UnsatisfiableAction
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.pods import PodPhase
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.sub_groups import ANNOTATION_MIN_GROUPS
from koordcore.topology.network import NODE_LAYER, LayerSpec

GROUPS = {"gang.scheduling.koordinator.sh/groups": '["default/g1", "default/g2"]'}


def member(name: str, gang: str, cpu: int = 1000) -> Pod:
    return Pod(name=name, labels={"pod-group.scheduling.sigs.k8s.io": gang}, requests={"cpu": cpu})


@pytest.mark.parametrize("preempt", [None, PreemptionRules()])
@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a")])
def test_nobody_has_two_turns(names: tuple[str, ...], preempt: PreemptionRules | None) -> None:
    """``g1`` starts for itself; ``g2`` asks for both, and finds that ``g1`` has started."""
    first, second, third = names
    pods = [member(first, "g1"), member(second, "g1"), member(third, "g2")]
    records = (PodGroup(name="g1", min_member=2), PodGroup(name="g2", min_member=1, annotations=GROUPS))
    node = Node(name="n", allocatable={"cpu": 3000, "pods": 9})
    snapshot = ClusterSnapshot(nodes=[node], pending=pods, records=records)
    result = schedule(snapshot, preempt=preempt)
    assert verify(snapshot, result) == ()
    assert [type(one) for one in result.decisions] == [Bound] * 3
    small = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 1000, "pods": 9})], pending=pods, records=records
    )
    result = schedule(small, preempt=preempt)
    assert verify(small, result) == ()
    assert len({one.pod for one in result.decisions}) == len(result.decisions) == 3
    assert not result.bound


NETWORK = ClusterNetworkTopology(
    "default", (LayerSpec("SpineLayer", ("net/spine",)), LayerSpec(NODE_LAYER, (), "SpineLayer"))
)
GATHERED = {
    "gang.scheduling.koordinator.sh/network-topology-spec": (
        '{"gatherStrategy": [{"layer": "SpineLayer", "strategy": "MustGather"}]}'
    )
}


@pytest.mark.parametrize("gathers", ["g1", "g2"])
@pytest.mark.parametrize("configured", [True, False])
def test_a_gang_that_does_not_name_the_one_that_has_started_starts_for_itself(
    gathers: str, configured: bool
) -> None:
    """``g2`` names both and runs; ``g1`` names itself alone, and lacks two of its members."""
    own = {name: GATHERED if name == gathers else {} for name in ("g1", "g2")}
    records: list[ClusterRecord] = [
        PodGroup(name="g2", min_member=1, annotations={**GROUPS, **own["g2"]}),
        NETWORK,
    ]
    records += [PodGroup(name="g1", min_member=3, annotations=own["g1"])] if configured else []
    nodes = [
        Node(name=name, labels={"net/spine": "s"}, allocatable={"cpu": 8000, "pods": 9}) for name in "ab"
    ]
    states = [NodeState(nodes[0], (member("runs", "g2").at("a"),)), NodeState(nodes[1])]
    pending = [member("half", "g1"), attrs.evolve(member("more", "g2"), priority=100)]
    snapshot = ClusterSnapshot(nodes=states, pending=pending, records=records)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    assert [one.pod.name for one in result.bound] == ["more"]


@pytest.mark.parametrize("ended", [False, True])
def test_a_gang_that_counts_waiting_members_only_holds_its_group_up(ended: bool) -> None:
    """``g1`` was satisfied once, but each gang has to permit a start, and of ``g2`` nobody waits."""
    waiting = {"gang.scheduling.koordinator.sh/match-policy": "only-waiting"}
    records = [
        PodGroup(name="g1", min_member=1, annotations=GROUPS),
        PodGroup(name="g2", min_member=1, annotations={**GROUPS, **waiting}),
    ]
    old = attrs.evolve(member("old", "g2").at("n"), phase=PodPhase.SUCCEEDED if ended else PodPhase.RUNNING)
    node = Node(name="n", allocatable={"cpu": 8000, "pods": 9})
    snapshot = ClusterSnapshot(
        nodes=[NodeState(node, (old,))], pending=[member("new", "g1")], records=records
    )
    result = schedule(snapshot)
    assert not result.bound
    assert verify(snapshot, result) == ()


def test_a_gang_that_is_refused_beforehand_stops_nobody_else() -> None:
    """Nobody of ``g1`` is asked about on any node; ``g2`` has to be gathered, and spreads."""
    records = (
        PodGroup(name="g1", min_member=2, annotations=GROUPS),
        PodGroup(name="g2", min_member=2, annotations={**GROUPS, **GATHERED}),
        NETWORK,
        ElasticQuota(name="nothing", max={"cpu": 0}, min={"cpu": 0}),
    )
    spread = TopologySpreadConstraint(
        topology_key="zone",
        max_skew=1,
        when_unsatisfiable=UnsatisfiableAction.DO_NOT_SCHEDULE,
        selector=LabelSelector({"app": "x"}),
    )
    without = {"quota.scheduling.koordinator.sh/name": "nothing"}
    pods = [member(f"p1-{number}", "g1") for number in range(2)]
    pods = [attrs.evolve(pod, labels={**pod.labels, **without}) for pod in pods]
    pods += [
        attrs.evolve(pod, labels={**pod.labels, "app": "x"}, spread_constraints=(spread,))
        for pod in (member(f"p2-{number}", "g2") for number in range(2))
    ]
    node = Node(name="n", labels={"zone": "z", "net/spine": "s"}, allocatable={"cpu": 8000, "pods": 9})
    snapshot = ClusterSnapshot(
        nodes=[node], pending=[*pods, Pod(name="other", requests={"cpu": 1000})], records=records
    )
    for rules in (None, PreemptionRules()):
        result = schedule(snapshot, preempt=rules)
        assert [one.pod.name for one in result.bound] == ["other"]
        assert verify(snapshot, result) == ()


def test_room_is_made_for_the_gangs_that_are_needed() -> None:
    """One of two gangs is enough; the one that counts least is none of those for which others may leave."""
    groups = '["default/g1", "default/g2"]'
    notes = {"gang.scheduling.koordinator.sh/groups": groups, ANNOTATION_MIN_GROUPS: "1"}
    records = [PodGroup(name=name, min_member=2, annotations=notes) for name in ("g1", "g2")]
    low = Pod(name="low", requests={"cpu": 2000}, priority=0).at("n")
    pods = [
        attrs.evolve(member(f"{gang}-{number}", gang), priority=priority)
        for gang, priority in (("g1", 100), ("g2", 50))
        for number in range(2)
    ]
    node = Node(name="n", allocatable={"cpu": 2000, "pods": 9})
    snapshot = ClusterSnapshot(nodes=[NodeState(node, (low,))], pending=pods, records=records)
    result = schedule(snapshot, preempt=PreemptionRules())
    assert len(result.decisions) == 4
    assert verify(snapshot, result) == ()
