"""Which network a cluster has: what is declared, else what node labels tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from koordcore._record import record
from koordcore.model.gangs import Gang, GatherRule, NetworkTopologySpec
from koordcore.model.network import (
    DEFAULT_NETWORK_TOPOLOGY,
    ClusterNetworkTopology,
    KueueTopology,
    ResourceFlavor,
)
from koordcore.topology.labelled import LabelledPool, build_forest, chained, layer_of_label, pools_of
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree, order_layers


@record(eq=False, kw_only=True)
class Network:
    """A cluster's network.

    Parameters
    ----------
    tree
        All of it.
    source
        What it was read from, in words.
    """

    tree: NetworkTopology
    source: str


def network_of(
    declared: Sequence[ClusterNetworkTopology],
    topologies: Sequence[KueueTopology],
    flavors: Sequence[ResourceFlavor],
    node_labels: Mapping[str, Mapping[str, str]],
) -> Network | None:
    """Read the network: ClusterNetworkTopology objects, else Kueue's, else labels that are known.

    Raises
    ------
    ModelError
        When declared layers do not lead from the top down to the nodes.
    """
    if declared:
        first = sorted(declared, key=lambda one: (one.name != DEFAULT_NETWORK_TOPOLOGY, one.name))
        if len(first) == 1:
            layers = order_layers(first[0].layers)
            return Network(tree=build_tree(layers, node_labels), source=_said(_named(first[0]), layers))
        parts = [(one.name, order_layers(one.layers), dict[str, str]()) for one in first]
        pools = _dealt(parts, node_labels)
        source = "; ".join(_said(f"ClusterNetworkTopology {one.name}", one.layers) for one in pools)
        return Network(tree=build_forest(pools, node_labels), source=source)
    if topologies:
        pools = _dealt(list(_of_kueue(topologies, flavors)), node_labels)
        source = "; ".join(_said(f"Kueue's Topology {one.name}", one.layers) for one in pools)
        pools = (*pools, *_beside(pools, topologies, flavors, node_labels))
    else:
        pools = pools_of(node_labels)
        source = "; ".join(_said(f"{one.name}'s node labels", one.layers) for one in pools)
    if not pools:
        return None
    return Network(tree=build_forest(pools, node_labels), source=source)


def _named(one: ClusterNetworkTopology) -> str:
    return f"ClusterNetworkTopology {one.name}"


def _said(what: str, layers: Sequence[LayerSpec]) -> str:
    named = [(spec.layer, spec.label_keys) for spec in layers if spec.layer != NODE_LAYER]
    texts = [f"{layer} = {' or '.join(keys)}" for layer, keys in named]
    return f"{what} ({', '.join(texts)})"


def _of_kueue(
    topologies: Sequence[KueueTopology], flavors: Sequence[ResourceFlavor]
) -> Iterable[tuple[str, tuple[LayerSpec, ...], dict[str, str]]]:
    """Give name, layers and node labels: of every flavor with a Topology, then of Topologies without any."""
    for one in sorted(topologies, key=lambda one: one.name):
        levels = _levels(one)
        names = [layer_of_label(level) for level in levels]
        twice = len(set(names)) < len(names)
        layers = chained(
            (level if twice else name, (level,)) for name, level in zip(names, levels, strict=True)
        )
        mine = [flavor for flavor in flavors if flavor.topology == one.name]
        for flavor in sorted(mine, key=lambda flavor: flavor.name):
            yield one.name, layers, dict(flavor.node_labels)
        if not mine:
            yield one.name, layers, {}


def _levels(topology: KueueTopology) -> list[str]:
    return [level for level in topology.levels if level != "kubernetes.io/hostname"]


def _beside(
    pools: Sequence[LabelledPool],
    topologies: Sequence[KueueTopology],
    flavors: Sequence[ResourceFlavor],
    node_labels: Mapping[str, Mapping[str, str]],
) -> Iterable[LabelledPool]:
    """Give the other nodes of flavors without a Topology, or with one of hosts alone: each is near nobody.

    A Workload may have pods there beside those that lie in a Topology.
    """
    layered = {one.name for one in topologies if _levels(one)}
    wanted = [one.node_labels.items() for one in flavors if one.topology not in layered]
    dealt = {node for pool in pools for node in pool.nodes}
    nodes = [
        node
        for node, labels in sorted(node_labels.items())
        if node not in dealt and any(labels.items() >= each for each in wanted)
    ]
    if pools and nodes:
        yield LabelledPool(name="others", layers=chained(()), nodes=tuple(nodes))


def _dealt(
    parts: Sequence[tuple[str, tuple[LayerSpec, ...], Mapping[str, str]]],
    node_labels: Mapping[str, Mapping[str, str]],
) -> tuple[LabelledPool, ...]:
    """Give every node to the first network that has a name for it on each layer but the lowest."""
    members: dict[int, list[str]] = {}
    for node in sorted(node_labels):
        labels = node_labels[node]
        for number, (_, layers, wanted) in enumerate(parts):
            named = [any(labels.get(key) for key in spec.label_keys) for spec in layers[:-1]]
            if any(named) and all(named[:-1]) and all(labels.get(k) == v for k, v in wanted.items()):
                members.setdefault(number, []).append(node)
                break
    found: dict[tuple[str, tuple[LayerSpec, ...]], list[str]] = {}
    for number, nodes in sorted(members.items()):
        found.setdefault(parts[number][:2], []).extend(nodes)
    return tuple(
        LabelledPool(name=name, layers=layers, nodes=tuple(nodes)) for (name, layers), nodes in found.items()
    )


def spelt(gang: Gang, tree: NetworkTopology) -> Gang:
    """Write the layers that a gang names as the network has them."""
    spec, groups = gang.topology_spec, gang.sub_groups
    if spec is not None:
        spec = _spelt(spec, tree)
    if groups is not None:
        entries = tuple(attrs.evolve(entry, spec=_spelt(entry.spec, tree)) for entry in groups.entries)
        groups = attrs.evolve(groups, entries=entries)
    return attrs.evolve(gang, topology_spec=spec, sub_groups=groups)


def _spelt(spec: NetworkTopologySpec, tree: NetworkTopology) -> NetworkTopologySpec:
    return NetworkTopologySpec(
        tuple(
            GatherRule(tree.layer_named(rule.layer), rule.strategy, rule.pod_count_multiple)
            for rule in spec.gather_strategy
        )
    )
