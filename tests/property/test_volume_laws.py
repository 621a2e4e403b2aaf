"""Attach limits: what the loop lets in is legal, and whom it turns away no node could take.

Nobody leaves within a call, so a pod that was refused for its volumes has no node at the end either.
"""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, NodeState, Pod, schedule, verify
from koordcore.model.decisions import Bound
from koordcore.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim

NUMBER = 5
DRIVERS = ("a.example.com", "b.example.com")


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    """A few nodes with limits, volumes of two drivers, and pods that share some of them."""
    volumes = [
        PersistentVolume(name=f"v{number}", driver=draw(st.sampled_from(DRIVERS)), handle=f"h{number}")
        for number in range(NUMBER)
    ]
    claims = [
        PersistentVolumeClaim(name=f"c{number}", volume=f"v{number}", one_pod=draw(st.booleans()))
        for number in range(NUMBER)
    ]
    names = st.lists(st.integers(0, NUMBER - 1), unique=True, max_size=3)

    def pod(name: str, node: str | None = None) -> Pod:
        return Pod(name=name, node_name=node, claims=tuple(f"c{number}" for number in draw(names)))

    nodes = []
    limits = []
    for number in range(draw(st.integers(1, 3))):
        name = f"n{number}"
        running = tuple(pod(f"r{number}-{index}", name) for index in range(draw(st.integers(0, 2))))
        nodes.append(NodeState(Node(name=name, allocatable={"cpu": 1000, "pods": 20}), running))
        told = draw(st.dictionaries(st.sampled_from(DRIVERS), st.integers(0, 3)))
        limits.append(CSINode(name=name, limits=told))
    pending = [pod(f"p{number}") for number in range(draw(st.integers(1, 5)))]
    return ClusterSnapshot(nodes=nodes, pending=pending, records=[*volumes, *claims, *limits])


def takes(snapshot: ClusterSnapshot, state: NodeState, pod: Pod) -> bool:
    """The rule, node by node and volume by volume."""

    def claim(name: str) -> PersistentVolumeClaim:
        found = snapshot.find(PersistentVolumeClaim, name, "default")
        assert found is not None
        return found

    def driver(name: str) -> str:
        found = snapshot.find(PersistentVolume, claim(name).volume)
        assert found is not None
        return found.driver

    everywhere = {name for one in snapshot.bound_pods() for name in one.claims}
    if any(claim(name).one_pod and name in everywhere for name in pod.claims):
        return False
    there = {name for one in state.pods for name in one.claims}
    told = snapshot.find(CSINode, state.name)
    for one, limit in () if told is None else told.limits.items():
        new = {name for name in pod.claims if driver(name) == one} - there
        if new and len({name for name in there if driver(name) == one} | new) > limit:
            return False
    return True


@given(clusters())
@settings(max_examples=10)
def test_volumes_are_let_in_as_far_as_they_go(snapshot: ClusterSnapshot) -> None:
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    pods = {pod.key: pod for pod in snapshot.pending}
    for one in result.decisions:
        if not isinstance(one, Bound):
            end = result.snapshot
            assert not any(takes(end, state, pods[one.pod]) for state in end.nodes)
