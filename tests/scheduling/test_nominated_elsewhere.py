"""A pod that was promised room on a node that is gone counts nowhere, whatever it wants of its neighbours."""

from __future__ import annotations

from koordcore import ClusterSnapshot, Node, Pod, Policy, schedule
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.gangs import PodGroup
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.gang_names import LABEL_POD_GROUP


def test_a_gang_is_told_the_same_before_and_after_such_a_pod_was_asked_about() -> None:
    """Members that want nothing of neighbours are placed one by one; no plan says that there is no room."""
    term = PodAffinityTerm(selector=LabelSelector({"app": "x"}), topology_key="kubernetes.io/hostname")
    apart = Affinity(anti=PodAffinity(required=(term,)))
    promised = Pod(name="p", requests={"cpu": 9000}, affinity=apart, nominated_node="gone")
    gang = [Pod(name=f"g-{k}", requests={"cpu": 9000}, labels={LABEL_POD_GROUP: "g"}) for k in range(2)]
    cluster = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"cpu": 4000, "pods": 9})],
        pending=[promised, *gang],
        records=[PodGroup(namespace="default", name="g", min_member=2)],
    )
    policy = Policy()
    first = schedule(cluster, gang, policy=policy)
    later = schedule(schedule(cluster, [promised], policy=policy).snapshot, gang, policy=policy)
    assert later == first
    (plan,) = first.jobs
    assert plan.certificate is None
