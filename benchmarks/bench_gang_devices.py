"""Gangs whose members take each other's cards: how soon they are placed, and how many member by member loses.

Nodes have eight cards and four NICs on four switches, in use at random. ``Fragmented`` is one gang of 32 pods
with eight cards and four NICs each on 512 such nodes; ``Jointly`` plans it under a network, on nodes that
would hold two, beside members of another kind, and where no block is free enough. ``Lost`` draws small
clusters and gangs of three kinds of pods: of those that start, so many would not if every member took what
looks best for it alone.
"""

from __future__ import annotations

import json
import random
from typing import Any

import attrs

from koordcore import ClusterSnapshot, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.certificates import CertificateStatus
from koordcore.result import ScheduleResult

CARD = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory": "80Gi",
    "koordinator.sh/gpu-memory-ratio": "100",
}
GANG = "gang.scheduling.koordinator.sh/"
HELD = "scheduling.koordinator.sh/device-allocated"
JOINT = "scheduling.koordinator.sh/device-joint-allocate"
SAME = json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})
KINDS = ((100, 100, True), (200, 100, True), (100, 0, False), (200, 0, False), (0, 100, False))
"""Percent of cards, percent of NICs, and whether both have to be on one switch."""


def node(
    name: str, *, cards: float, nics: float, draw: random.Random, per: int = 2, switches: int = 4
) -> list[Any]:
    """A node with its devices, of which such shares are in use."""
    places = [{"nodeID": switch * 2 // switches, "pcieID": f"p{switch}"} for switch in range(switches)]
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"g{minor}",
            "health": True,
            "resources": CARD,
            "topology": places[minor // per],
        }
        for minor in range(per * switches)
    ]
    devices += [
        {
            "type": "rdma",
            "minor": minor,
            "id": f"r{minor}",
            "health": True,
            "resources": {"koordinator.sh/rdma": "100"},
            "topology": place,
        }
        for minor, place in enumerate(places)
    ]
    held: dict[str, list[Any]] = {}
    for device in devices:
        if draw.random() < (cards if device["type"] == "gpu" else nics):
            held.setdefault(str(device["type"]), []).append(
                {"minor": device["minor"], "resources": device["resources"]}
            )
    total = str(100 * per * switches)
    amounts = {
        "cpu": "128",
        "memory": "2Ti",
        "pods": "110",
        "koordinator.sh/gpu-core": total,
        "koordinator.sh/gpu-memory-ratio": total,
    }
    amounts |= {
        "koordinator.sh/gpu-memory": f"{80 * per * switches}Gi",
        "koordinator.sh/rdma": str(100 * switches),
        "koordinator.sh/gpu": total,
    }
    objects: list[Any] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": amounts}},
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": name},
            "spec": {"devices": devices},
        },
    ]
    if held:
        meta = {"name": f"{name}-busy", "annotations": {HELD: json.dumps(held)}}
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": meta,
                "spec": {"nodeName": name, "containers": [{"name": "c"}]},
            }
        )
    return objects


def pod(name: str, cards: int, nics: int, same: bool, size: int) -> Any:
    """A member of the gang ``g`` of so many."""
    asked = {"koordinator.sh/gpu": str(cards)} if cards else {}
    asked |= {"koordinator.sh/rdma": str(nics)} if nics else {}
    notes = {f"{GANG}name": "g", f"{GANG}min-available": str(size), **({JOINT: SAME} if same else {})}
    spec = {"containers": [{"name": "c", "resources": {"requests": asked, "limits": asked}}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


def small(seed: int) -> ClusterSnapshot:
    """Two or three nodes of two switches each, and a gang that asks for about what is free."""
    draw = random.Random(seed)
    objects = []
    for number in range(draw.randint(1, 3)):
        objects += node(f"n{number}", cards=0.3, nics=0.2, draw=draw, switches=2)
    size = draw.randint(2, 6)
    kinds = draw.sample(KINDS, draw.randint(1, 3))
    objects += [pod(f"p{number}", *draw.choice(kinds), size) for number in range(size)]
    return snapshot_from_objects(objects).snapshot


def alone(snapshot: ClusterSnapshot) -> bool:
    """Tell whether all members find a place one after another, as pods of their own."""
    single = [
        attrs.evolve(one, annotations={k: v for k, v in one.annotations.items() if GANG not in k})
        for one in snapshot.pending
    ]
    return len(schedule(attrs.evolve(snapshot, pending=tuple(single))).bound) == len(single)


class Fragmented:
    """Seconds for 32 pods of eight cards and four NICs on 512 nodes of which few are empty."""

    number, repeat, timeout = 1, 3, 300

    def setup(self) -> None:
        draw = random.Random(1)
        objects = []
        for number in range(512):
            busy = 0.0 if number % 12 == 0 else 0.4
            objects += node(f"n{number:03}", cards=busy, nics=busy / 2, draw=draw)
        objects += [pod(f"p{number:02}", 800, 400, True, 32) for number in range(32)]
        self.snapshot = snapshot_from_objects(objects).snapshot
        assert verify(self.snapshot, self.place()) == ()

    def place(self) -> ScheduleResult:
        return schedule(self.snapshot)

    def time_place(self) -> None:
        assert len(self.place().bound) == 32


def gathered(rule: str) -> str:
    """Write a wish for few blocks and racks, or for a single block."""
    rules = [{"layer": "Block", "strategy": rule}]
    rules += [] if rule == "MustGather" else [{"layer": "Rack", "strategy": rule}]
    return json.dumps({"gatherStrategy": rules})


def network() -> Any:
    """Racks in blocks, by node labels."""
    layers = [
        {"labelKey": ["block"], "topologyLayer": "Block"},
        {"labelKey": ["rack"], "topologyLayer": "Rack", "parentTopologyLayer": "Block"},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "Rack"},
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "ClusterNetworkTopology",
        "metadata": {"name": "default"},
        "spec": {"networkTopologySpec": layers},
    }


class Jointly:
    """Seconds for members, nodes, cards and NICs in one proven plan; 16 racks of 32 nodes in 4 blocks."""

    params = ("one kind", "two kinds", "no room")
    param_names = ("gang",)
    number, repeat, timeout = 1, 3, 300

    def setup(self, gang: str) -> None:
        draw = random.Random(1)
        objects: list[Any] = [network()]
        for number in range(512):
            # Sixteen cards and eight NICs on eight switches: room for one or two pods, or none.
            busy = 0.6 if gang == "no room" else 0.25
            made = node(f"n{number:03}", cards=busy, nics=busy * 0.6, draw=draw, switches=8)
            labels = {"rack": f"r{number // 32:02}", "block": f"b{number // 128}"}
            made[0]["metadata"]["labels"] = labels
            objects += made
        size = 64 if gang == "two kinds" else 32
        pods = [pod(f"p{number:02}", 800, 400, True, size) for number in range(32)]
        if gang == "two kinds":
            pods += [pod(f"a{number:02}", 100, 100, True, size) for number in range(32)]
        for one in pods:
            rule = gathered("MustGather" if gang == "no room" else "PreferGather")
            one["metadata"]["annotations"][f"{GANG}network-topology-spec"] = rule
        self.snapshot = snapshot_from_objects(objects + pods).snapshot
        assert verify(self.snapshot, schedule(self.snapshot)) == ()

    def time_place(self, gang: str) -> None:
        result = schedule(self.snapshot)
        (plan,) = result.jobs
        assert plan.certificate is not None
        assert plan.certificate.proven or plan.certificate.status is CertificateStatus.INFEASIBLE
        assert len(result.bound) == (0 if gang == "no room" else len(self.snapshot.pending))


class Lost:
    """Gangs of a thousand that start together and would not one by one, in percent; and the reverse."""

    params = ("one by one", "together")
    param_names = ("lost by",)
    timeout = 600

    def track_share(self, how: str) -> float:
        started = lost = 0
        for seed in range(1000):
            snapshot = small(seed)
            together, single = len(schedule(snapshot).bound) == len(snapshot.pending), alone(snapshot)
            started += together or single
            lost += (together and not single) if how == "one by one" else (single and not together)
        return 100 * lost / started
