"""Draw the pictures of the book with the library's own plots: ``python docs/_pictures.py``."""

from __future__ import annotations

import json
from pathlib import Path

from koordcore import ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.cli.topology import draw_topology
from koordcore.explaining import pool_views
from koordcore.explaining.network import domain_rows
from koordcore.manifests import load
from koordcore.model.network import ClusterNetworkTopology
from koordcore.protocol.gang import ANNOTATION_MIN_AVAILABLE, ANNOTATION_TOPOLOGY_SPEC
from koordcore.protocol.gang_names import ANNOTATION_GANG_NAME
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


def draw_partitions(name: str, nodes: tuple[str, ...]) -> None:
    """Draw the cards of some nodes slice by slice: who has which, and what still fits."""
    from matplotlib import pyplot

    snapshot = load([IMAGES.parents[1] / "examples" / "claims.yaml"]).snapshot
    cards = [
        (f"{node}/{card.name}", card)
        for node in nodes
        for pool in pool_views(snapshot, snapshot.node(node))
        for card in pool.cards
    ]
    figure, axes = pyplot.subplots(figsize=(8.4, 0.75 * len(cards) + 0.5))
    colours = ["#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756"]
    for row, (label, card) in enumerate(reversed(cards)):
        for place, owner in enumerate(card.strip):
            shade = "#eeeeee" if owner is None else "#bbbbbb" if owner < 0 else colours[owner % len(colours)]
            axes.barh(row, 0.94, left=place, height=0.62, color=shade)
        for number, one in enumerate(card.held):
            mine = [place for place, owner in enumerate(card.strip) if owner == number]
            who = one.holders[0].pods[0] if one.holders[0].pods else one.holders[0].claim
            text = f"{one.kind}\n{who.rpartition('/')[2]}"
            axes.text(mine[0] + len(mine) / 2, row, text, ha="center", va="center", fontsize=7, color="white")
        fits = ", ".join(f"{count} x {kind}" for kind, count in card.fits) or "nothing"
        axes.text(len(card.strip) + 0.15, row, f"fits: {fits}", va="center", fontsize=7)
        axes.text(-0.15, row, label, va="center", ha="right", fontsize=8)
    axes.set_xlim(-1.6, 14.5)
    axes.axis("off")
    figure.tight_layout()
    figure.savefig(IMAGES / name, dpi=130, metadata={"Software": None})


if __name__ == "__main__":
    draw_partitions("claims-partitions.png", ("mig-1", "mig-2"))
    draw("gangs-scattered", gather=False)
    draw("gangs-gathered", gather=True)
