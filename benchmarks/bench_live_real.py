"""What one change costs where objects say what they say in people's clusters.

As in ``bench_live.py``: a call after each change, the shipped policy, ``now`` moving in every call. Nodes
hold images, pods are those of controllers and services, have labels of their own and keep away from their
like; each tenth has a volume, and nodes can attach so many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import attrs

from benchmarks.bench_live import GIB, HOST, START, ZONE, _Line, metric_of
from koordcore import ClusterSnapshot, Node, NodeState, Pod
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from koordcore.model.cluster import RawObject, Workload
from koordcore.model.containers import Container
from koordcore.model.pods import OwnerReference
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import LabelSelector
from koordcore.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from koordcore.snapshot import Change, NodeAdded, NodeReplaced, PodEnded, RecordAdded

APPS, IMAGES = 50, 60
DRIVER = "ebs.csi.aws.com"


def node(name: str, row: int) -> Node:
    """A node with forty images, ten of which all nodes have."""
    images = {f"reg/img{k if k < 10 else (row + k) % IMAGES}:v1": (200 << 20) + k for k in range(40)}
    labels = {ZONE: f"z{row % 3}", HOST: name, "node.kubernetes.io/instance-type": "m5"}
    room = {"cpu": 64_000, "memory": 256 * GIB, "pods": 110}
    return Node(name=name, labels=labels, allocatable=room, images=images)


def pod(name: str, app: int, claims: Sequence[str] = ()) -> Pod:
    """One of a workload, with a label that no other pod has; each third workload shuns its own kind."""
    away = None
    if app % 3 == 0:
        term = PodAffinityTerm(selector=LabelSelector({"app": f"a{app}"}), topology_key=HOST)
        away = Affinity(anti=PodAffinity(preferred=(WeightedPodAffinityTerm(100, term),)))
    return Pod(
        name=name,
        labels={"app": f"a{app}", "pod-template-hash": f"h{app}", "apps.kubernetes.io/pod-index": name},
        owners=(OwnerReference("ReplicaSet", f"a{app}", "", "apps/v1", controller=True),),
        containers=(Container(image=f"reg/img{app}:v1"), Container(image="reg/img3:v1")),
        requests={"cpu": 1000, "memory": GIB},
        priority=9500,
        affinity=away,
        claims=tuple(claims),
    )


def _beside() -> Iterator[ClusterRecord]:
    yield StorageClass(name="gp3", provisioner=DRIVER, immediate=False)
    for app in range(APPS):
        wanted = LabelSelector({"app": f"a{app}", "pod-template-hash": f"h{app}"})
        yield Workload(kind="ReplicaSet", api_version="apps/v1", name=f"a{app}", selector=wanted)
        text = f'{{"spec":{{"selector":{{"app":"a{app}"}}}}}}'
        yield RawObject(kind="Service", api_version="v1", namespace="default", name=f"s{app}", text=text)


@lru_cache(maxsize=4)
def real(number: int) -> ClusterSnapshot:
    """Ten pods on each node, of ten workloads; the first has a volume."""
    states, records = [], [*_beside()]
    for row in range(number):
        name = f"n{row:05}"
        claim = f"c{row}"
        pods = [pod(f"p{row}-{k}", (row + k) % APPS, [claim] if k == 0 else []) for k in range(10)]
        states.append(NodeState(node(name, row), tuple(one.at(name) for one in pods)))
        records += [
            PersistentVolumeClaim(name=claim, volume=f"v{row}", storage_class="gp3"),
            PersistentVolume(name=f"v{row}", driver=DRIVER, handle=f"h{row}", storage_class="gp3"),
            CSINode(name=name, limits={DRIVER: 25}),
        ]
    return ClusterSnapshot(nodes=states, records=[*records, *(metric_of(one, START) for one in states)])


class RealDecision(_Line):
    """One decision in a call of its own."""

    def world(self, number: int) -> ClusterSnapshot:
        return real(number)

    def pod(self, name: str, **fields: Any) -> Pod:
        return attrs.evolve(pod(name, self.step % 4), **fields)


class RealEnds(RealDecision):
    """One pod ends, one decision."""

    def happen(self) -> Sequence[Change]:
        return [PodEnded(self.state().pods[0].key)]


class RealLabels(RealDecision):
    """One node's labels change, one decision."""

    def happen(self) -> Sequence[Change]:
        said = self.state().node
        return [NodeReplaced(attrs.evolve(said, labels={**said.labels, "step": str(self.step)}))]


class RealPulls(RealDecision):
    """A node pulls an image that no other one has, and drops one, one decision."""

    def happen(self) -> Sequence[Change]:
        said = self.state().node
        images = dict(sorted(said.images.items())[1:]) | {f"reg/new{self.step}:v1": 300 << 20}
        return [NodeReplaced(attrs.evolve(said, images=images))]


class RealJoins(RealDecision):
    """One node joins, one decision."""

    def happen(self) -> Sequence[Change]:
        return [NodeAdded(node(f"{self.state().name}-{self.step}", self.step))]


class RealWorkload(RealDecision):
    """A workload comes, and its first pod is decided."""

    def happen(self) -> Sequence[Change]:
        app = f"w{self.step}"
        wanted = LabelSelector({"app": app})
        return [RecordAdded(Workload(kind="ReplicaSet", api_version="apps/v1", name=app, selector=wanted))]

    def pod(self, name: str, **fields: Any) -> Pod:
        app = f"w{self.step}"
        owner = OwnerReference("ReplicaSet", app, "", "apps/v1", controller=True)
        return attrs.evolve(pod(name, 1), labels={"app": app}, owners=(owner,), **fields)


class RealVolume(RealDecision):
    """A claim comes, and the pod that will have its volume is decided."""

    def happen(self) -> Sequence[Change]:
        return [RecordAdded(PersistentVolumeClaim(name=f"new-{self.step}", storage_class="gp3"))]

    def pod(self, name: str, **fields: Any) -> Pod:
        return super().pod(name, claims=(f"new-{self.step}",), **fields)


ROWS: tuple[type[_Line], ...] = (
    RealDecision,
    RealEnds,
    RealLabels,
    RealPulls,
    RealJoins,
    RealWorkload,
    RealVolume,
)
"""All of them, for a table."""
