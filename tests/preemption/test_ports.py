"""What is worked out about nodes for the first time while victims are tried out."""

from __future__ import annotations

from koordcore import ClusterSnapshot, Node, NodeState, Pod, PreemptionRules, schedule, verify
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.pods import HostPort, PodPhase
from koordcore.model.selectors import LabelSelector


def test_ports_that_are_first_asked_for_while_a_victim_is_away_are_its_own_again_afterwards() -> None:
    """The victim's own place is looked for, to move it, when it has left in a trial that is taken back."""
    victim = Pod(
        name="v",
        node_name="n",
        labels={"app": "x"},
        requests={"cpu": 1_000},
        host_ports=(HostPort(80),),
        phase=PodPhase.RUNNING,
    )
    term = PodAffinityTerm("kubernetes.io/hostname", LabelSelector({"app": "x"}))
    comes = Pod(
        name="p",
        labels={"app": "x"},
        requests={"cpu": 4_000},
        priority=100,
        affinity=Affinity(anti=PodAffinity(required=(term,))),
    )
    node = Node(name="n", labels={"kubernetes.io/hostname": "n"}, allocatable={"cpu": 8_000, "pods": 20})
    snapshot = ClusterSnapshot(nodes=[NodeState(node, (victim,))], pending=[comes])
    result = schedule(snapshot, preempt=PreemptionRules(relocation="first"))
    assert [str(one.pod) for plan in result.preemptions for one in plan.victims] == ["default/v"]
    assert verify(snapshot, result) == ()
