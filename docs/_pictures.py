"""Draw the pictures of the book with the library's own plots: ``python docs/_pictures.py``."""

from __future__ import annotations

import json
from pathlib import Path

from koordcore import ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.cli.topology import draw_topology
from koordcore.explaining.network import domain_rows
from koordcore.model.network import ClusterNetworkTopology
from koordcore.protocol.gang import ANNOTATION_GANG_NAME, ANNOTATION_MIN_AVAILABLE, ANNOTATION_TOPOLOGY_SPEC
from koordcore.topology.network import LayerSpec

IMAGES = Path(__file__).parent / "images"
SPINE, BLOCK = "example.com/spine", "example.com/block"
LAYERS = (
    LayerSpec("SpineLayer", (SPINE,)),
    LayerSpec("BlockLayer", (BLOCK,), "SpineLayer"),
    LayerSpec("NodeTopologyLayer", (), "BlockLayer"),
)


def cluster() -> ClusterSnapshot:
    """Two spines, three blocks each, nine nodes of eight cards in a block; seven single pods run."""
    room = {"cpu": 96_000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}
    nodes = [
        Node(
            name=f"n{spine}{block}{number}",
            labels={SPINE: f"s{spine}", BLOCK: f"s{spine}b{block}"},
            allocatable=room,
        )
        for spine in (1, 2)
        for block in (1, 2, 3)
        for number in range(1, 10)
    ]
    busy = ("n111", "n112", "n124", "n131", "n213", "n215", "n231")
    singles = [Pod(name=f"single-{node}", requests={"nvidia.com/gpu": 2}, node_name=node) for node in busy]
    topology = ClusterNetworkTopology(name="default", layers=LAYERS)
    return ClusterSnapshot(nodes=nodes, records=[topology]).assume(*singles)


def gang(name: str, size: int, age: int, gather: bool) -> list[Pod]:
    """Members that want a whole node each, near each other or wherever there is room."""
    layers = ("SpineLayer", "BlockLayer") if gather else ()
    rules = [{"layer": layer, "strategy": "PreferGather"} for layer in layers]
    said = {ANNOTATION_GANG_NAME: name, ANNOTATION_MIN_AVAILABLE: str(size)}
    if rules:
        said[ANNOTATION_TOPOLOGY_SPEC] = json.dumps({"gatherStrategy": rules})
    return [
        Pod(name=f"{name}-{rank}", requests={"nvidia.com/gpu": 8}, annotations=said, priority=-age)
        for rank in range(size)
    ]


def draw(name: str, *, gather: bool) -> None:
    """Place five gangs one after another and draw where they lie."""
    before = cluster()
    sizes = (("pretrain", 9), ("finetune", 7), ("eval", 3), ("rlhf", 8), ("sweep", 4))
    pods = [pod for age, (job, size) in enumerate(sizes) for pod in gang(job, size, age, gather)]
    result = schedule(before, pods)
    assert verify(before, result) == ()
    found = domain_rows(result.snapshot)
    assert found is not None
    draw_topology(result.snapshot, found[0], str(IMAGES / f"{name}.png"))


if __name__ == "__main__":
    draw("gangs-scattered", gather=False)
    draw("gangs-gathered", gather=True)
