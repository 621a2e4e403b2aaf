"""Gangs whose members take each other's cards: how soon they are placed, and how many member by member loses.

Nodes have eight cards and four NICs on four switches, in use at random. ``Fragmented`` is one gang of 32 pods
with eight cards and four NICs each on 512 such nodes; ``Jointly`` plans it under a network, on nodes that
would hold two, beside members of another kind, and where no block is free enough. ``Lost`` draws small
clusters and gangs of three kinds of pods: of those that start, so many would not if every member took what
looks best for it alone. A gang is Koordinator's or one of Kubernetes' own groups, and its devices are those
of Device objects or, with claims, of ResourceSlices.
"""

from __future__ import annotations

import json
import random
from typing import Any

import attrs

from benchmarks.claims_data import CLASSES, NIC, ROOT, claim, request, whole_gpus
from koordcore import ClusterSnapshot, Node, Pod, check_certificate, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.certificates import CertificateStatus
from koordcore.model.claims import ResourceClaimTemplate
from koordcore.model.pods import PodResourceClaim, SchedulingGroup
from koordcore.model.scheduling_groups import SchedulingPodGroup

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


def pod(name: str, cards: int, nics: int, same: bool, size: int, gang: str = "koordinator") -> Any:
    """A member of the gang ``g`` of so many."""
    asked = {"koordinator.sh/gpu": str(cards)} if cards else {}
    asked |= {"koordinator.sh/rdma": str(nics)} if nics else {}
    notes = {JOINT: SAME} if same else {}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": asked, "limits": asked}}]}
    if gang == "kubernetes":
        spec["schedulingGroup"] = {"podGroupName": "g"}
    else:
        notes |= {f"{GANG}name": "g", f"{GANG}min-available": str(size)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


def group(size: int) -> Any:
    """Kubernetes' own group ``g`` of so many."""
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": size}}},
    }


def published(name: str, *, cards: float, nics: float, draw: random.Random, switches: int) -> list[Any]:
    """The same node with slices of what is not in use, drawn as :func:`node` draws it."""
    free = []
    for part in whole_gpus(name, 2 * switches, nics=range(switches)):
        share = nics if part.driver == NIC else cards
        free.append(attrs.evolve(part, devices=tuple(one for one in part.devices if draw.random() >= share)))
    return [
        Node(name=name, allocatable={"cpu": 128_000, "pods": 110}),
        *(part for part in free if part.devices),
    ]


def claimed(objects: list[Any], wanted: list[tuple[int, int, bool]], gang: str) -> ClusterSnapshot:
    """The gang ``g`` with a claim for each member, on nodes that publish their devices."""
    kinds = sorted(set(wanted))
    templates = []
    for number, (cards, nics, same) in enumerate(kinds):
        asked = [request("gpu", "gpu", cards // 100)] if cards else []
        asked += [request("nic", "nic", nics // 100)] if nics else []
        spec = claim("c", asked, [(ROOT, ())] if same else []).spec
        templates.append(ResourceClaimTemplate(name=f"kind-{number}", spec=spec))
    records = [one for one in objects if not isinstance(one, Node)]
    if gang == "kubernetes":
        records.append(SchedulingPodGroup(name="g", min_count=len(wanted)))
    notes = {f"{GANG}name": "g", f"{GANG}min-available": str(len(wanted))} if gang == "koordinator" else {}
    pods = [
        Pod(
            name=f"p{number:02}",
            uid=f"p{number:02}",
            resource_claims=(PodResourceClaim("c", template=f"kind-{kinds.index(kind)}"),),
            annotations=notes,
            scheduling_group=SchedulingGroup("g") if gang == "kubernetes" else None,
        )
        for number, kind in enumerate(wanted)
    ]
    nodes = [one for one in objects if isinstance(one, Node)]
    return ClusterSnapshot(nodes=nodes, pending=pods, records=[*CLASSES.values(), *templates, *records])


def drawn(
    wanted: list[tuple[int, int, bool]], objects: list[Any], gang: str, devices: str
) -> ClusterSnapshot:
    """A gang of the kinds wanted."""
    if devices == "claims":
        return claimed(objects, wanted, gang)
    objects += [group(len(wanted))] if gang == "kubernetes" else []
    objects += [pod(f"p{number:02}", *kind, len(wanted), gang) for number, kind in enumerate(wanted)]
    return snapshot_from_objects(objects).snapshot


def small(seed: int, gang: str = "koordinator", devices: str = "cards") -> ClusterSnapshot:
    """Two or three nodes of two switches each, and a gang that asks for about what is free."""
    draw = random.Random(seed)
    make = published if devices == "claims" else node
    objects: list[Any] = []
    for number in range(draw.randint(1, 3)):
        objects += make(f"n{number}", cards=0.3, nics=0.2, draw=draw, switches=2)
    size = draw.randint(2, 6)
    kinds = draw.sample(KINDS, draw.randint(1, 3))
    return drawn([draw.choice(kinds) for _ in range(size)], objects, gang, devices)


def alone(snapshot: ClusterSnapshot) -> bool:
    """Tell whether all members find a place one after another, as pods of their own."""
    single = [
        attrs.evolve(
            one,
            annotations={k: v for k, v in one.annotations.items() if GANG not in k},
            scheduling_group=None,
        )
        for one in snapshot.pending
    ]
    return len(schedule(attrs.evolve(snapshot, pending=tuple(single))).bound) == len(single)


class Fragmented:
    """Seconds for 32 pods of eight cards and four NICs on 512 nodes of which few are empty, proven.

    What is measured is the first call, with nothing known of the cluster but its objects.
    """

    params = (("koordinator", "kubernetes"), ("cards", "claims"))
    param_names = ("gang", "devices")
    number, repeat, rounds, warmup_time, timeout = 1, 3, 1, 0, 300

    def setup(self, gang: str, devices: str) -> None:
        draw = random.Random(1)
        make = published if devices == "claims" else node
        objects: list[Any] = []
        for number in range(512):
            busy = 0.0 if number % 12 == 0 else 0.4
            objects += make(f"n{number:03}", cards=busy, nics=busy / 2, draw=draw, switches=4)
        wanted = [(800, 400, devices == "cards")] * 32
        self.snapshot = drawn(wanted, objects, gang, devices)

    def time_place(self, gang: str, devices: str) -> None:
        result = schedule(self.snapshot)
        (plan,) = result.jobs
        assert plan.certificate is not None
        assert check_certificate(plan.certificate.problem, plan.certificate).accepted
        assert len(result.bound) == 32


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

    params = (("one by one", "together"), ("koordinator", "kubernetes"), ("cards", "claims"))
    param_names = ("lost by", "gang", "devices")
    timeout = 600

    def track_share(self, how: str, gang: str, devices: str) -> float:
        started = lost = 0
        for seed in range(1000):
            snapshot = small(seed, gang, devices)
            together, single = len(schedule(snapshot).bound) == len(snapshot.pending), alone(snapshot)
            started += together or single
            lost += (together and not single) if how == "one by one" else (single and not together)
        return 100 * lost / started
