"""Network topology: the tree, the job's spec, topology-aware scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from koordcore.allocators.gang.nearness import nearness_positions, nearness_scores
from koordcore.errors import ManifestError, ModelError
from koordcore.protocol.gang import ANNOTATION_TOPOLOGY_SPEC
from koordcore.protocol.gang_names import topology_selector
from koordcore.protocol.gathering import parse_topology_spec
from koordcore.protocol.network_topology import format_detail_status, parse_cluster_network_topology
from koordcore.topology.network import CLUSTER_LAYER, NetworkTopology, build_tree, order_layers, tree_status
from tests.conformance.core import Case, subject
from tests.reference.formats import format_topology_spec
from tests.reference.network_layers import is_ancestor


def expand(sets: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any], int | None]]:
    """Give name, template and index of every object of a list of sets."""
    for entry in sets:
        indexes = entry.get("indexes") or [None] * len(entry["names"])
        for name, index in zip(entry["names"], indexes, strict=True):
            yield name, entry["template"], index


def node_labels(sets: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, str]]:
    return {name: template.get("metadata", {}).get("labels") or {} for name, template, _ in expand(sets)}


def read_tree(raw: Any, nodes: Sequence[Mapping[str, Any]]) -> NetworkTopology:
    return build_tree(order_layers(parse_cluster_network_topology(raw)), node_labels(nodes))


@subject("topology.tree")
def topology_tree(case: Case) -> Any:
    try:
        tree = read_tree(case.input["topology"], case.input["nodes"])
    except ModelError as error:
        return {"error": str(error)}
    answer: dict[str, Any] = {
        "layers": list(tree.layers),
        "nodes": {
            node: [tree.label(domain) for domain in tree.path(tree.first_node + position)[:-1]]
            for position, node in enumerate(tree.nodes)
        },
        "detailStatus": format_detail_status(tree_status(tree)),
    }
    if "isAncestor" in case.raw.get("expect", {}):
        known = [*tree.layers, CLUSTER_LAYER, "NoSuchLayer"] if tree.layers else []
        pairs = [(a, b) for a in known for b in known if is_ancestor(tree.layers, a, b)]
        answer["isAncestor"] = sorted(f"{a}>{b}" for a, b in pairs)
    return answer


@subject("topology.spec")
def topology_spec(case: Case) -> Any:
    annotations = case.input["object"]["metadata"].get("annotations") or {}
    try:
        spec = parse_topology_spec(annotations.get(ANNOTATION_TOPOLOGY_SPEC, ""))
    except ManifestError:
        return {"error": True}
    if spec is None:
        return {"spec": None}
    answer: dict[str, Any] = {"spec": format_topology_spec(spec), "multiples": dict(spec.multiples)}
    if case.input.get("topology") is not None:
        layers = order_layers(parse_cluster_network_topology(case.input["topology"]))
        answer["mustLayer"] = spec.must_layer([layer.layer for layer in layers])
    return answer


@subject("topology.score")
def topology_score(case: Case) -> Any:
    selector = topology_selector(case.input["pod"]["metadata"].get("annotations") or {})
    if not selector:
        return {"code": "Skip", "message": ""}
    topology = case.input["topology"]
    tree = read_tree(topology, case.input["nodes"]) if topology is not None else None
    existing = Counter(
        template["spec"]["nodeName"]
        for _, template, _ in expand(case.input["existingPods"])
        if topology_selector(template["metadata"].get("annotations") or {}) == selector
    )
    positions = nearness_positions(tree, case.input["candidates"], existing)
    return {"code": "Success", "position": positions, "score": nearness_scores(positions)}
