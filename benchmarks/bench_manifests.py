"""Objects in: reading, decoding and compiling dumps.

The cluster has the size and shape of the public trace ``openb`` (1213 nodes, 8152 pods that wait); the large
one has 10,000 nodes that run ten pods each, with everything that a live cluster writes on them.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from typing import Any

from koordcore.manifests import Loaded, load, snapshot_from_objects
from koordcore.manifests.encode import pod_manifest
from koordcore.manifests.sources import read_json, read_yaml

NODES, PODS = 1213, 8152
MODELS = ("P100", "T4", "V100M16", "V100M32", "G2", "G3", "A10", "")
SHAPES = (
    (12_000, 16_384, 1, 1000),
    (6_000, 12_288, 1, 460),
    (4_000, 8_192, 0, 0),
    (96_000, 524_288, 8, 1000),
)


def trace_nodes() -> Iterator[dict[str, Any]]:
    for number in range(NODES):
        cards = (2, 4, 8, 0)[number % 4]
        amounts = {
            "cpu": f"{(64, 96, 128)[number % 3]}000m",
            "memory": f"{(262144, 393216, 786432)[number % 3]}Mi",
            "pods": "1001",
            **({"alibabacloud.com/gpu-count": str(cards)} if cards else {}),
        }
        labels = {
            "kubernetes.io/hostname": f"node-{number:04}",
            "kubernetes.io/os": "linux",
            "alibabacloud.com/gpu-card-model": MODELS[number % len(MODELS)],
        }
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{number:04}", "labels": labels},
            "status": {"allocatable": amounts, "capacity": amounts},
        }


def trace_pods() -> Iterator[dict[str, Any]]:
    for number in range(PODS):
        cpu, memory, cards, share = SHAPES[number % len(SHAPES)]
        resources = {
            "cpu": f"{cpu + number % 40 * 100}m",
            "memory": f"{memory}Mi",
            **({"alibabacloud.com/gpu-milli": str(cards * share)} if cards else {}),
        }
        container = {
            "name": "main",
            "image": "busybox",
            "resources": {"requests": resources, "limits": resources},
        }
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"pod-{number:04}",
                "namespace": "default",
                "labels": {"qos": ("LS", "BE", "Burstable")[number % 3]},
            },
            "spec": {"containers": [container]},
        }


def as_list(objects: Iterator[dict[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=1)


def live_objects(nodes: int, pods_per_node: int) -> Iterator[dict[str, Any]]:
    """Nodes with bound pods as a live cluster stores them."""
    for number in range(nodes):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"node-{number:05}",
                "uid": f"node-uid-{number}",
                "creationTimestamp": "2024-05-01T10:00:00Z",
                "labels": {
                    "kubernetes.io/hostname": f"node-{number:05}",
                    "topology.kubernetes.io/zone": f"zone-{number % 10}",
                },
            },
            "status": {
                "allocatable": {"cpu": "63800m", "memory": "250Gi", "pods": "110"},
                "capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    for number in range(nodes * pods_per_node):
        yield live_pod(number, f"node-{number % nodes:05}")


def live_pod(number: int, node: str) -> dict[str, Any]:
    app = number % 2000
    requests = {"cpu": f"{100 + app % 7 * 100}m", "memory": "1Gi"}
    unreachable = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"app-{app}-{number:06}",
            "namespace": f"team-{app % 50}",
            "uid": f"8c1f9f2e-0000-4000-8000-{number:012}",
            "creationTimestamp": f"2024-05-01T10:{number % 60:02}:{number // 60 % 60:02}Z",
            "labels": {"app": f"app-{app}", "pod-template-hash": f"{app:08x}"},
            "annotations": {"cni/address": f"10.{number % 256}.{number // 256 % 256}.1"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{app}", "controller": True}
            ],
        },
        "spec": {
            "nodeName": node,
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [
                {"key": f"node.kubernetes.io/{key}", **unreachable} for key in ("not-ready", "unreachable")
            ],
            "containers": [
                {
                    "name": "main",
                    "image": f"registry.example/app-{app}:v1",
                    "env": [{"name": f"VARIABLE_{one}", "value": "x" * 20} for one in range(5)],
                    "resources": {"requests": requests, "limits": requests},
                }
            ],
            "volumes": [{"name": f"kube-api-access-{number:06}", "projected": {"sources": []}}],
        },
        "status": {
            "phase": "Running",
            "startTime": f"2024-05-01T10:{number % 60:02}:00Z",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-05-01T10:00:00Z"},
                {"type": "Ready", "status": "True"},
            ],
            "containerStatuses": [{"name": "main", "resources": {"requests": requests}}],
        },
    }


class Trace:
    """The trace's cluster, from text to columns."""

    def setup(self) -> None:
        self.text = as_list(itertools.chain(trace_nodes(), trace_pods()))
        self.yaml = "".join(f"---\n{json.dumps(one)}\n" for one in trace_nodes())
        self.objects = [*trace_nodes(), *trace_pods()]
        loaded = self._load()
        assert len(loaded.snapshot.nodes) == NODES
        assert len(loaded.snapshot.pending) == PODS
        assert not loaded.warnings
        self.pods = loaded.snapshot.pending

    def _load(self) -> Loaded:
        loaded = load(["-"], io.StringIO(self.text))
        assert loaded.snapshot.columns.requested.shape[1] == NODES
        return loaded

    def time_read_decode_compile(self) -> None:
        """Text in, columns out: the figure to reach is 2 s."""
        self._load()

    def time_read_json(self) -> None:
        for _ in read_json(self.text, "pods.json"):
            pass

    def time_read_yaml_nodes(self) -> None:
        for _ in read_yaml(self.yaml, "nodes.yaml"):
            pass

    def time_decode(self) -> None:
        snapshot_from_objects(self.objects)

    def time_encode_pods(self) -> None:
        for pod in self.pods:
            pod_manifest(pod)

    def track_different_requests(self) -> int:
        """Equal requests are one object in memory: this many are left of 8152."""
        return len({id(pod.requests) for pod in self.pods})

    track_different_requests.unit = "objects"  # type: ignore[attr-defined]  # read by asv


class Live:
    """A large live cluster."""

    timeout = 300

    def setup(self) -> None:
        self.objects = list(live_objects(1000, 10))
        snapshot = snapshot_from_objects(self.objects).snapshot
        assert sum(1 for _ in snapshot.bound_pods()) == 10_000

    def time_decode_and_compile_10_000_bound_pods(self) -> None:
        _ = snapshot_from_objects(self.objects).snapshot.columns


class LiveMemory:
    """Memory of 10,000 nodes with 100,000 bound pods; the figure to reach is 1 GiB."""

    timeout = 600

    def peakmem_100_000_bound_pods(self) -> None:
        snapshot = snapshot_from_objects(live_objects(10_000, 10)).snapshot
        assert snapshot.columns.requested[3].sum() == 100_000
