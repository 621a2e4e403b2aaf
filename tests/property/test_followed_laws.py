"""What is followed of images, volumes, services, metrics and so on: a line decides as one made anew."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, Pod, Policy, schedule, verify
from koordcore.manifests import patches
from koordcore.model.cluster import RawObject, Workload
from koordcore.model.containers import Container
from koordcore.model.metrics import NodeMetric
from koordcore.model.pods import OwnerReference
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import LabelSelector
from koordcore.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from koordcore.scheduling.plugins.load import newest
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)
from koordcore.snapshot.changes import record_key
from koordcore.snapshot.free_volumes import free_volumes

NODES = ("a", "b", "c", "d")
IMAGES = ("i:1", "j:1", "k:1")
DRIVERS = ("x.example.com", "y.example.com")
NUMBERS = st.integers(0, 2)
POLICY = Policy()
KINDS = ("limits", "limits", "claim", "claim", "volume", "volume", "class", "service", "owner")
EVENTS = (*["record"] * 5, "record goes", "node", "node", "node goes", "ends", "binds")
BEGIN: tuple[ClusterRecord, ...] = (
    StorageClass(name="fast", provisioner=DRIVERS[0], immediate=False),
    *(PersistentVolumeClaim(name=f"c{number}", volume=f"v{number}") for number in range(3)),
    *(PersistentVolume(name=f"v{number}", driver=DRIVERS[0], handle=f"h{number}") for number in range(3)),
    *(CSINode(name=name, limits={DRIVERS[0]: 1}) for name in NODES),
)
"""Three volumes that all nodes reach, each of which attaches one of them."""
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    """A node of one of two zones with some images."""
    images = draw(st.dictionaries(st.sampled_from(IMAGES), st.sampled_from([1, 2**28, 2**29])))
    labels = {HOST: name, ZONE: draw(st.sampled_from("yz"))}
    return Node(name=name, labels=labels, images=images, allocatable={"cpu": 4000, "pods": 20})


@st.composite
def pods(draw: st.DrawFn, name: str) -> Pod:
    """A pod of some controller, with an image and claims."""
    owner = OwnerReference(
        api_version="apps/v1", kind="ReplicaSet", name=f"s{draw(NUMBERS)}", uid="u", controller=True
    )
    claims = draw(st.sampled_from([(), (0,), (1,), (2,), (0, 1)]))
    return Pod(
        name=name,
        labels={"app": draw(st.sampled_from("pq")), "tier": draw(st.sampled_from("mn"))},
        owners=(owner,) if draw(st.booleans()) else (),
        containers=(Container(image=draw(st.sampled_from((*IMAGES, "none:1")))),),
        requests={"cpu": draw(st.sampled_from([100, 1000]))},
        claims=tuple(f"c{number}" for number in claims),
    )


@st.composite
def objects(draw: st.DrawFn) -> ClusterRecord:
    """One of a few objects, whatever it says."""
    number = draw(NUMBERS)
    match draw(
        st.sampled_from(
            ["limits", "limits", "claim", "claim", "volume", "class", "service", "owner", "metric"]
        )
    ):
        case "limits":
            told = draw(st.dictionaries(st.sampled_from(DRIVERS), st.integers(0, 2)))
            return CSINode(name=draw(st.sampled_from(NODES)), limits=told)
        case "claim":
            volume, kind = draw(st.sampled_from(["", "v0", "v1", "v2"])), "fast"
            return PersistentVolumeClaim(name=f"c{number}", volume=volume, storage_class=kind)
        case "volume":
            driver, handle = draw(st.sampled_from(DRIVERS)), draw(st.sampled_from(["h", f"h{number}"]))
            free = draw(st.booleans())
            return PersistentVolume(name=f"v{number}", driver=driver, handle=handle, available=free)
        case "class":
            return StorageClass(name="fast", provisioner=draw(st.sampled_from(DRIVERS)), immediate=False)
        case "metric":
            update = draw(st.one_of(st.none(), st.integers(-1, 3)))
            return NodeMetric(node=draw(st.sampled_from(NODES)), update_time=update)
        case "service":
            key, value = draw(st.sampled_from([("app", "p"), ("tier", "m"), ("app", "q")]))
            text = f'{{"spec":{{"selector":{{"{key}":"{value}"}}}}}}' if draw(st.booleans()) else "{}"
            return RawObject(
                kind="Service", api_version="v1", namespace="default", name=f"w{number}", text=text
            )
        case _:
            wanted = LabelSelector({"app": draw(st.sampled_from("pq"))})
            version = draw(st.sampled_from(["apps/v1", "apps/v1", ""]))
            return Workload(kind="ReplicaSet", name=f"s{number}", api_version=version, selector=wanted)


@st.composite
def changes(draw: st.DrawFn, snapshot: ClusterSnapshot, step: int) -> list[Change]:
    """One thing that happens; nothing, where it cannot."""
    there, name = {one.name for one in snapshot.nodes}, draw(st.sampled_from(NODES))
    what = draw(
        st.sampled_from(["record"] * 4 + ["record goes", "node", "node", "node goes", "ends", "binds"])
    )
    if what == "node":
        node = draw(nodes(name))
        return [NodeReplaced(node) if name in there else NodeAdded(node)]
    if what == "node goes":
        return [NodeRemoved(name)] if name in there else []
    if what == "binds":
        pod = draw(pods(f"b{step}"))
        return [PodBound(pod.at(name))] if name in there and snapshot.pod(pod.key) is None else []
    if what == "ends":
        running = sorted(one.key for one in snapshot.bound_pods())
        return [PodEnded(draw(st.sampled_from(running)))] if running else []
    one = draw(objects())
    known = {record_key(other): other for other in snapshot.records}.get(record_key(one))
    if what == "record goes":
        return [] if known is None else [RecordRemoved(known)]
    return [RecordAdded(one) if known is None else RecordReplaced(one)]


@given(st.data())
@settings(max_examples=60)
def test_a_line_decides_as_a_cluster_made_anew(data: st.DataObject) -> None:
    begin = [data.draw(nodes(name)) for name in NODES[:3]]
    told = NODES if data.draw(st.booleans()) else NODES[3:]  # of the last alone, which is yet to join
    records = [one for one in BEGIN if not isinstance(one, CSINode) or one.name in told]
    line = ClusterSnapshot(nodes=begin, records=records)
    line = schedule(line, [data.draw(pods("first"))]).snapshot
    lines = [line]
    for step in range(data.draw(st.integers(1, 8))):
        line = data.draw(st.sampled_from([lines[-1]] * 3 + lines))  # mostly on, at times back to a fork
        for _ in range(data.draw(st.integers(0, 2))):
            line = line.apply(*data.draw(changes(line, step)))
        asked = [data.draw(pods(f"p{step}-{number}")) for number in range(data.draw(st.integers(1, 2)))]
        fresh = ClusterSnapshot(nodes=line.nodes, pending=line.pending, records=line.records)
        result, anew = schedule(line, asked, policy=POLICY), schedule(fresh, asked, policy=POLICY)
        assert result.decisions == anew.decisions
        assert verify(line, result) == ()
        assert patches(result) == patches(anew)
        assert dict(free_volumes(line)) == dict(free_volumes(fresh))
        assert newest(line) == newest(fresh)
        lines.append(result.snapshot)
