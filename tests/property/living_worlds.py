"""Small clusters with everything in them, and streams of what happens there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs
from hypothesis import strategies as st

from koordcore import ClusterSnapshot, Node, Pod
from koordcore.manifests import snapshot_from_objects
from koordcore.model.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from koordcore.model.devices import DeviceObject
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.model.resources import make_resources
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.times import moment_of
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)
from tests.reservations.worlds import must, reservation
from tests.scheduling.test_numa import node as node_objects, pod as pod_object

GIB = 2**30
START = datetime(2026, 1, 1, tzinfo=UTC)
HOST = "kubernetes.io/hostname"
QUOTA = "quota.scheduling.koordinator.sh/name"
EDITS = ("label", "zone", "policy", "reserves", "thresholds", "note", "taints", "cordon", "images", "offers")
NAMES = ("n1", "n3", "n5")
LATE = ("n0", "n2", "n4")
KINDS = ("plain", "plain", "cpus", "gpu", "spread", "near", "far", "selects")
OTHERS = ("owner", "must", "quota", "gang")


def machine(name: str) -> tuple[Node, list[ClusterRecord]]:
    """A node with NUMA nodes and two cards, and its objects."""
    objects = node_objects(name, policy="" if name in ("n1", "n2") else "Restricted", cards=(0, 1))
    found = snapshot_from_objects(objects).snapshot
    node = found.nodes[0].node
    return attrs.evolve(node, labels={**node.labels, HOST: name, "zone": "ab"[int(name[1]) % 2]}), [
        *found.records
    ]


@st.composite
def node_versions(draw: st.DrawFn, name: str) -> Node:
    """A node that says something else."""
    node, _ = machine(name)
    labels = {**node.labels, "zone": draw(st.sampled_from("abc"))}
    if draw(st.booleans()):
        del labels["zone"]
    cpu = draw(st.sampled_from([8000, 8000, 3000]))
    taints = draw(st.sampled_from([(), (), (Taint("t", "x"),)]))
    return attrs.evolve(
        node,
        labels=labels,
        taints=taints,
        unschedulable=draw(st.sampled_from([False, False, True])),
        allocatable={**node.allocatable, "cpu": cpu},
    )


@st.composite
def node_edits(draw: st.DrawFn, node: Node) -> Node:
    """A node that says one thing else."""
    match draw(st.sampled_from(EDITS)):
        case "label":
            return attrs.evolve(node, labels={**node.labels, "other": draw(st.sampled_from("ab"))})
        case "zone":
            return attrs.evolve(node, labels={**node.labels, "zone": draw(st.sampled_from("abc"))})
        case "policy":
            policy = draw(st.sampled_from(["", "Restricted"]))
            labels = {**node.labels, "node.koordinator.sh/numa-topology-policy": policy}
            return attrs.evolve(node, labels=labels)
        case "reserves":
            text = draw(st.sampled_from(['{"resources":{"cpu":"2"}}', "{}"]))
            annotations = {**node.annotations, "node.koordinator.sh/reservation": text}
            return attrs.evolve(node, annotations=annotations)
        case "thresholds":
            text = draw(st.sampled_from(['{"usageThresholds":{"cpu":30}}', "{}"]))
            annotations = {**node.annotations, "scheduling.koordinator.sh/usage-thresholds": text}
            return attrs.evolve(node, annotations=annotations)
        case "note":
            return attrs.evolve(node, annotations={**node.annotations, "x": draw(st.sampled_from("ab"))})
        case "taints":
            return attrs.evolve(node, taints=() if node.taints else (Taint("t", "x"),))
        case "cordon":
            return attrs.evolve(node, unschedulable=not node.unschedulable)
        case "images":
            return attrs.evolve(node, images={} if node.images else {"i:1": 500 * 2**20})
        case _:
            cpu = draw(st.sampled_from([8000, 3000, 12_000]))
            return attrs.evolve(node, allocatable={**node.allocatable, "cpu": cpu})


@st.composite
def metrics(draw: st.DrawFn, name: str, pods: tuple[Pod, ...]) -> NodeMetric:
    """What was measured on a node, long ago, lately or in the future."""
    age = draw(st.sampled_from([-30, 5, 10, 100, 400]))
    seen = [pod for pod in pods if draw(st.booleans())]
    return NodeMetric(
        node=name,
        update_time=moment_of(START - timedelta(seconds=age)),
        report_interval=60 * 10**9,
        node_usage=measured_of({"cpu": draw(st.integers(0, 8)) * 1000, "memory": 4 * GIB}),
        pods=tuple(
            PodMetric(
                namespace=pod.namespace,
                name=pod.name,
                priority=draw(st.sampled_from(["koord-prod", ""])),
                usage=measured_of({"cpu": 300, "memory": GIB}),
            )
            for pod in seen
        ),
    )


@st.composite
def waiting_pods(draw: st.DrawFn, name: str) -> Pod:
    """A pod of one of many kinds."""
    kind = draw(st.sampled_from(KINDS + OTHERS))
    app = draw(st.sampled_from("ab"))
    cpu = draw(st.integers(1, 3))
    made = pod_object(name, cpu, gpus=1 if kind == "gpu" else 0, bound=kind == "cpus")
    found = snapshot_from_objects([made]).snapshot.pending[0]
    labels = {**found.labels, "app": app}
    annotations: dict[str, str] = {}
    selector = LabelSelector({"app": app})
    affinity, wanted, image = None, dict[str, str](), draw(st.sampled_from(["", "i:1"]))
    constraints: tuple[TopologySpreadConstraint, ...] = ()
    term = PodAffinityTerm(selector=selector, topology_key=draw(st.sampled_from(["zone", HOST])))
    match kind:
        case "spread":
            hard = draw(st.sampled_from(UnsatisfiableAction))
            one = TopologySpreadConstraint(
                max_skew=1, topology_key=term.topology_key, when_unsatisfiable=hard, selector=selector
            )
            constraints = (one,)
        case "near":
            affinity = Affinity(pod=PodAffinity(preferred=(WeightedPodAffinityTerm(50, term),)))
        case "far":
            affinity = Affinity(anti=PodAffinity(required=(term,)))
        case "selects":
            wanted = {"zone": draw(st.sampled_from("ab"))}
        case "owner":
            labels["app"] = "r"
        case "must":
            labels["app"], annotations = "r", must()
        case "quota":
            labels[QUOTA] = draw(st.sampled_from(["q1", "q2"]))
        case "gang":
            labels["pod-group.scheduling.sigs.k8s.io"] = "g1"
        case _:
            pass  # amounts, CPUs or cards only
    return attrs.evolve(
        found,
        labels=labels,
        annotations={**found.annotations, **annotations},
        affinity=affinity,
        spread_constraints=constraints,
        node_selector=wanted,
        containers=tuple(attrs.evolve(one, image=image) for one in found.containers),
        priority=draw(st.sampled_from([9000, 9500])),
    )


@st.composite
def quotas(draw: st.DrawFn, name: str) -> ElasticQuota:
    return ElasticQuota(
        name=name,
        max=make_resources({"cpu": draw(st.integers(1, 6)) * 1000}),
        min=make_resources({"cpu": draw(st.integers(0, 2)) * 1000}),
    )


@st.composite
def worlds(draw: st.DrawFn, *, reserving: bool = False) -> ClusterSnapshot:
    """Three machines with metrics, and some of quotas, gangs and reservations."""
    nodes, records = [], list[ClusterRecord]()
    exact = draw(st.booleans())
    for name in NAMES:
        node, objects = machine(name)
        nodes.append(node)
        records += objects if exact else []
        if draw(st.sampled_from([True, True, False])):
            records.append(draw(metrics(name, ())))
    if draw(st.booleans()):
        records += [draw(quotas("q1")), draw(quotas("q2"))]
    if draw(st.booleans()):
        records.append(PodGroup(name="g1", namespace="default", min_member=2))
    if reserving:
        for number in range(draw(st.integers(1, 3))):
            on = draw(st.sampled_from(("", *NAMES)))
            records.append(reservation(f"r{number}", 2, on, "r"))
    return ClusterSnapshot(nodes=nodes, records=records)


@st.composite
def record_changes(draw: st.DrawFn, snapshot: ClusterSnapshot) -> Change | None:
    """A record that is added, replaced or removed."""
    kinds: tuple[type[ClusterRecord], ...]
    kinds = (NodeMetric, ElasticQuota, PodGroup, DeviceObject, NodeResourceTopology, Reservation)
    kind = draw(st.sampled_from(kinds))
    found: tuple[ClusterRecord, ...] = snapshot.of(kind)
    if kind is ElasticQuota and draw(st.booleans()):
        added = draw(quotas(draw(st.sampled_from(["q1", "q2"]))))
        there = any(one.name == added.name for one in found)
        return RecordReplaced(added) if there else RecordAdded(added)
    if not found:
        return None
    one = draw(st.sampled_from(found))
    if draw(st.booleans()):
        return RecordRemoved(one)
    match one:
        case DeviceObject():
            return RecordReplaced(attrs.evolve(one, devices=one.devices[draw(st.integers(0, 1)) :]))
        case PodGroup():
            return RecordReplaced(attrs.evolve(one, min_member=draw(st.integers(1, 3))))
        case Reservation():
            return RecordReplaced(attrs.evolve(one, labels={"x": draw(st.sampled_from("ab"))}))
        case _:
            return RecordRemoved(one)


@st.composite
def happenings(draw: st.DrawFn, snapshot: ClusterSnapshot, number: int) -> Change | None:
    """One thing that happens in a cluster."""
    kind = draw(
        st.sampled_from(
            ["metric"] * 3 + ["arrives", "ends", "node", "node", "joins", "leaves", "record", "bound"]
        )
    )
    names = [state.name for state in snapshot.nodes]
    running = [pod.key for pod in snapshot.bound_pods()]
    match kind:
        case "metric" if names:
            name = draw(st.sampled_from(names))
            made = draw(metrics(name, snapshot.node(name).pods))
            known = snapshot.find(NodeMetric, name) is not None
            return RecordReplaced(made) if known else RecordAdded(made)
        case "arrives":
            return PodPending(draw(waiting_pods(f"p{number}")))
        case "ends" if running:
            return PodEnded(draw(st.sampled_from(running)))
        case "bound" if names:
            pod = draw(waiting_pods(f"b{number}"))
            return PodBound(pod.at(draw(st.sampled_from(names))))
        case "node" if names:
            name = draw(st.sampled_from(names))
            one_thing = draw(st.sampled_from([True, True, False]))
            edit = node_edits(snapshot.node(name).node) if one_thing else node_versions(name)
            return NodeReplaced(draw(edit))
        case "joins":
            name = draw(st.sampled_from(LATE))
            return None if name in names else NodeAdded(draw(node_versions(name)))
        case "leaves" if len(names) > 1:
            return NodeRemoved(draw(st.sampled_from(names)))
        case "record":
            return draw(record_changes(snapshot))
        case _:
            return None
