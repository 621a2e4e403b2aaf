"""The network as plain node labels tell it: which labels are known, and several networks in one tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from koordcore._record import record
from koordcore.errors import Problem
from koordcore.topology.network import (
    NODE_LAYER,
    LayerSpec,
    NetworkTopology,
    assemble,
    build_tree,
    order_layers,
)


@record
class LabelFamily:
    """Labels that one system writes on nodes, from the top down, each with the name of its layer.

    Parameters
    ----------
    name
        Of the system.
    labels
        Pairs of label and layer.
    """

    name: str
    labels: tuple[tuple[str, str], ...]


_NVIDIA: Final = "network.topology.nvidia.com/"
_GOOGLE: Final = "cloud.google.com/gce-topology-"
_AMAZON: Final = "topology.k8s.aws/network-node-layer-"
_PLAIN: Final = "topology.kubernetes.io/"
_PLACES: Final = ((f"{_PLAIN}region", "RegionLayer"), (f"{_PLAIN}zone", "ZoneLayer"))

FAMILIES: Final = (
    LabelFamily(
        "topograph",
        tuple(
            (f"{_NVIDIA}{part}", f"{part.capitalize()}Layer")
            for part in ("datacenter", "spine", "block", "accelerator")
        ),
    ),
    LabelFamily(
        "GKE",
        tuple((f"{_GOOGLE}{part}", f"{part.capitalize()}Layer") for part in ("block", "subblock", "host")),
    ),
    LabelFamily("EKS", tuple((f"{_AMAZON}{number}", f"NetworkLayer{number}") for number in (1, 2, 3))),
    LabelFamily("Kubernetes", (*_PLACES, (f"{_PLAIN}block", "BlockLayer"), (f"{_PLAIN}rack", "RackLayer"))),
)
"""In this order a node is asked which of them it has; region and zone alone come last."""
_KNOWN: Final = {label: layer for family in FAMILIES for label, layer in family.labels}


@record(kw_only=True)
class LabelledPool:
    """Nodes under one description of the network.

    Parameters
    ----------
    name
        Of the description.
    layers
        From the top to the nodes.
    nodes
        Whom it is about.
    """

    name: str
    layers: tuple[LayerSpec, ...]
    nodes: tuple[str, ...]


def layer_of_label(label: str) -> str:
    """Name the layer of a label: as known, else the last part of the label."""
    return _KNOWN.get(label, label.rpartition("/")[2])


def chained(named: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[LayerSpec, ...]:
    """Make layers of pairs of name and labels, from the top down; the nodes come below them."""
    layers: list[LayerSpec] = []
    for name, keys in named:
        layers.append(LayerSpec(name, keys, layers[-1].layer if layers else ""))
    return (*layers, LayerSpec(NODE_LAYER, (), layers[-1].layer if layers else ""))


def pools_of(node_labels: Mapping[str, Mapping[str, str]]) -> tuple[LabelledPool, ...]:
    """Find the networks that known labels describe, a node in the first family that it has a label of."""
    members: dict[str, list[str]] = {}
    for node in sorted(node_labels):
        labels = node_labels[node]
        for family in FAMILIES:
            if any(labels.get(label) for label, _ in family.labels):
                members.setdefault(family.name, []).append(node)
                break
    pools = []
    for family in FAMILIES:
        nodes = members.get(family.name, ())
        used = [
            (layer, label)
            for label, layer in family.labels
            if any(node_labels[node].get(label) for node in nodes)
        ]
        if not used:
            continue
        if family.labels[0] != _PLACES[0]:
            above = [
                (layer, label) for label, layer in _PLACES if _nests(nodes, node_labels, label, used[0][1])
            ]
            used = [*above, *used]
        pools.append(
            LabelledPool(
                name=family.name,
                layers=chained((layer, (label,)) for layer, label in used),
                nodes=tuple(nodes),
            )
        )
    return tuple(pools)


def _nests(
    nodes: Sequence[str], node_labels: Mapping[str, Mapping[str, str]], above: str, below: str
) -> bool:
    """Tell whether all nodes have a label, and each domain of another one lies in one domain of it."""
    found: dict[str, str] = {}
    for node in nodes:
        value = node_labels[node].get(above)
        if not value or found.setdefault(node_labels[node].get(below, ""), value) != value:
            return False
    return True


def build_forest(
    pools: Sequence[LabelledPool], node_labels: Mapping[str, Mapping[str, str]]
) -> NetworkTopology:
    """Build one tree of several networks.

    Layers of one name are one layer. A node whose network lacks a layer is near nobody there: above its own
    layers each of its highest domains lies alone, below them each node does. Domains of two networks that are
    called alike are told apart by the networks' names.
    """
    if len(pools) == 1:
        (pool,) = pools
        return build_tree(pool.layers, {node: node_labels[node] for node in pool.nodes})
    order = _merged([[spec.layer for spec in pool.layers] for pool in pools])
    if order is None:
        renamed = tuple(attrs.evolve(pool, layers=_prefixed(pool)) for pool in pools)
        return build_forest(renamed, node_labels)
    problems: list[Problem] = []
    paths: list[tuple[tuple[str, bool], ...]] = []
    shared = _shared_names(pools, node_labels)
    for pool in pools:
        specs = {spec.layer: spec for spec in pool.layers}
        for node in pool.nodes:
            labels = node_labels[node]
            names = [_domain(specs.get(layer), labels) for layer in order[:-1]]
            last = max((n for n, layer in enumerate(order[:-1]) if layer in specs), default=-1)
            lacking = [n for n, layer in enumerate(order[:last]) if layer in specs and not names[n]]
            if lacking:
                keys = " or ".join(specs[order[lacking[0]]].label_keys)
                message = f"no label {keys}: the node is outside the network topology"
                problems.append(Problem("metadata.labels", message, f"Node {node}"))
                continue
            path: list[tuple[str, bool]] = [(node, False)]
            below = node
            for position in range(len(order) - 2, -1, -1):
                name = names[position]
                if name:
                    below = f"{name}@{pool.name}" if (order[position], name) in shared else name
                path.append((below, not name))
            paths.append(tuple(reversed(path)))
    every: dict[str, tuple[str, ...]] = {}
    for pool in pools:
        for spec in pool.layers:
            every[spec.layer] = (*every.get(spec.layer, ()), *spec.label_keys)
    specs_of = [LayerSpec(layer, every.get(layer, ())) for layer in order]
    return assemble(specs_of, sorted(paths, key=lambda path: path[-1][0]), problems)


def _domain(spec: LayerSpec | None, labels: Mapping[str, str]) -> str:
    return "" if spec is None else next((labels[key] for key in spec.label_keys if labels.get(key)), "")


def _shared_names(
    pools: Sequence[LabelledPool], node_labels: Mapping[str, Mapping[str, str]]
) -> frozenset[tuple[str, str]]:
    """Give the domains, by layer and name, that more than one network has."""
    counts: Counter[tuple[str, str]] = Counter()
    for pool in pools:
        counts.update(
            {
                (spec.layer, name)
                for spec in pool.layers[:-1]
                for node in pool.nodes
                if (name := _domain(spec, node_labels[node]))
            }
        )
    return frozenset(key for key, count in counts.items() if count > 1)


def _merged(chains: Sequence[Sequence[str]]) -> list[str] | None:
    """Order the layers of all networks so that each keeps its own order; ``None`` where they contradict."""
    left = [list(chain) for chain in chains]
    order: list[str] = []
    while any(left):
        free = [chain[0] for chain in left if chain and not any(chain[0] in other[1:] for other in left)]
        if not free:
            return None
        order.append(free[0])
        left = [chain[1:] if chain and chain[0] == free[0] else chain for chain in left]
    return order


def _prefixed(pool: LabelledPool) -> tuple[LayerSpec, ...]:
    specs = order_layers(pool.layers)
    return chained([(f"{pool.name}/{spec.layer}", spec.label_keys) for spec in specs[:-1]])
