"""The network as a layered tree: which nodes share a rack, a block, a spine.

The tree is built from the declared layers and the nodes' labels. It is kept as flat arrays: domains are
numbered layer by layer from the root, the children of a domain are neighbours, and the nodes are the domains
of the last layer. A domain's identity is its path: two racks of one name under different spines are two
racks (each such repetition is reported).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
from immutabledict import immutabledict
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.errors import ModelError, Problem

CLUSTER_LAYER: Final = "ClusterTopologyLayer"
NODE_LAYER: Final = "NodeTopologyLayer"

IntVector: TypeAlias = NDArray[np.int64]
NO_ALIASES: Final[Mapping[str, str]] = immutabledict()


@record
class LayerSpec:
    """One declared layer.

    Parameters
    ----------
    layer
        Its name; the nodes' own layer is ``NodeTopologyLayer``.
    label_keys
        Node labels that name the domain, the first non-empty one counts.
    parent
        The layer above; that of the topmost layer is not looked up.
    """

    layer: str
    label_keys: tuple[str, ...] = ()
    parent: str = ""


def order_layers(specs: Sequence[LayerSpec]) -> tuple[LayerSpec, ...]:
    """Order the declared layers from the top down to the nodes by following the parents.

    Raises
    ------
    ModelError
        When a layer on the way is not declared (upstream's text), which includes entries that no chain can
        reach, or when the parents form a cycle, which is named.
    """
    by_name = {spec.layer: spec for spec in specs}
    chain: list[LayerSpec] = []
    wanted = NODE_LAYER
    for _ in specs:
        if wanted not in by_name:
            raise ModelError(f'topology layer "{wanted}" not found in spec')
        chain.append(by_name[wanted])
        wanted = chain[-1].parent
        if by_name.get(wanted) in chain:
            start = chain.index(by_name[wanted])
            loop = [*(link.layer for link in chain[start:]), wanted]
            raise ModelError("topology layers form a cycle: " + " > ".join(loop))
    return tuple(reversed(chain))


def _frozen(values: Iterable[int]) -> IntVector:
    array = np.array(list(values), dtype=np.int64)
    array.flags.writeable = False
    return array


@record(eq=False, kw_only=True)
class NetworkTopology:
    """The tree as arrays; T domains, the root first, the nodes last.

    Parameters
    ----------
    layers
        Names of the layers below the root, from the top to the nodes; empty for a root without children.
    names
        Name of every domain; the root's is empty.
    depth
        Layer of every domain, shape (T,): 0 for the root, ``k`` for ``layers[k - 1]``.
    parent
        Parent of every domain, shape (T,); -1 for the root.
    virtual
        Domains made for a node without a label of that layer, shape (T,).
    problems
        Every label defect met while building.
    aliases
        Other names of the layers.
    """

    layers: tuple[str, ...]
    names: tuple[str, ...]
    depth: IntVector
    parent: IntVector
    virtual: NDArray[np.bool_]
    problems: tuple[Problem, ...] = ()
    aliases: Mapping[str, str] = NO_ALIASES

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def layer_start(self) -> tuple[int, ...]:
        """First domain of every depth, and the number of domains as the last entry."""
        counts = np.bincount(self.depth, minlength=len(self.layers) + 1)
        return (0, *(int(end) for end in np.cumsum(counts)))

    @cached_property
    def child_start(self) -> IntVector:
        """First child of every domain, shape (T + 1,): the children of d are ``child_start[d]`` up to
        ``child_start[d + 1]``.
        """  # noqa: D205 - one thought
        counts = np.bincount(self.parent[1:], minlength=len(self))
        return _frozen(1 + np.concatenate(([0], np.cumsum(counts))))

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, in the order of their domains."""
        return self.names[self.first_node :] if self.layers else ()

    @cached_property
    def first_node(self) -> int:
        """Number of the first node's domain."""
        return self.layer_start[-2] if self.layers else 1

    @cached_property
    def node_index(self) -> Mapping[str, int]:
        """Position of each node among :attr:`nodes`."""
        return {name: position for position, name in enumerate(self.nodes)}

    def children(self, domain: int) -> range:
        """Give the children of a domain, ordered by name."""
        return range(int(self.child_start[domain]), int(self.child_start[domain + 1]))

    def layer_of(self, domain: int) -> str:
        """Name the layer of a domain."""
        depth = int(self.depth[domain])
        return self.layers[depth - 1] if depth else CLUSTER_LAYER

    def label(self, domain: int) -> str:
        """Write a domain as ``Layer/name``."""
        return f"{self.layer_of(domain)}/{self.names[domain]}"

    def layer_named(self, text: str) -> str:
        """Give the layer that a text means; the text itself where it means none."""
        if text in self.layers or text == CLUSTER_LAYER:
            return text
        return self.aliases.get(text) or self.aliases.get(_short(text), text)

    def depth_of(self, layer: str) -> int | None:
        """Give the depth of a layer, 0 for the cluster; None when it is not declared."""
        if layer in self.layers:
            return self.layers.index(layer) + 1
        return 0 if layer == CLUSTER_LAYER else None

    def domains_at(self, depth: int) -> range:
        """Give the domains of one depth."""
        return range(self.layer_start[depth], self.layer_start[depth + 1])

    def path(self, domain: int) -> tuple[int, ...]:
        """List a domain and its ancestors from below the root down to it."""
        path = []
        while domain > 0:
            path.append(domain)
            domain = int(self.parent[domain])
        return tuple(reversed(path))

    @cached_property
    def ancestors(self) -> NDArray[np.int64]:
        """Domain of every node at every depth, shape (len(layers) + 1, nodes)."""
        rows = [np.arange(self.first_node, len(self), dtype=np.int64)]
        for _ in self.layers:
            rows.append(self.parent[rows[-1]])
        return np.stack(rows[::-1])

    def sum_up(self, per_node: IntVector) -> IntVector:
        """Sum values of the nodes over every domain; from shape (nodes,) to shape (T,)."""
        totals = np.zeros(len(self), dtype=np.int64)
        totals[self.first_node :] = per_node
        for depth in range(len(self.layers) - 1, 0, -1):
            # The children of neighbours are neighbours: a domain has what has been counted up to its last.
            start, end = self.layer_start[depth], self.layer_start[depth + 1]
            first = self.layer_start[depth + 1]
            running = np.concatenate(([0], np.cumsum(totals[first : self.layer_start[depth + 2]])))
            children = self.child_start[start : end + 1] - first
            totals[start:end] = running[children[1:]] - running[children[:-1]]
        if self.layers:
            totals[0] = totals[1 : self.layer_start[2]].sum()
        return totals


def build_tree(layers: Sequence[LayerSpec], node_labels: Mapping[str, Mapping[str, str]]) -> NetworkTopology:
    """Build the tree.

    A node without a name for the layer directly above the nodes gets a domain of its own there; a node
    without a name for a higher layer is left out. Both are reported, as is a name that occurs under several
    parents.

    Parameters
    ----------
    layers
        Layers from the top to the nodes, as :func:`order_layers` gives them.
    node_labels
        Labels of every node, by node name.
    """
    paths: list[tuple[tuple[str, bool], ...]] = []
    problems: list[Problem] = []
    for node in sorted(node_labels):
        path = _node_path(layers, node, node_labels[node], problems)
        if path is not None:
            paths.append(path)
    return assemble(layers, paths, problems)


def assemble(
    layers: Sequence[LayerSpec],
    paths: Sequence[tuple[tuple[str, bool], ...]],
    problems: Sequence[Problem],
) -> NetworkTopology:
    """Make the arrays of a tree.

    Parameters
    ----------
    layers
        From the top to the nodes.
    paths
        Domains of every node, from the top down to itself: the name, and whether it was made for the node.
    problems
        What was wrong with the labels.
    """
    names = tuple(spec.layer for spec in layers)
    found_problems = list(problems)
    numbers: list[dict[tuple[tuple[str, bool], ...], int]] = [{(): 0}]
    domain_names, depth, parent, virtual = [""], [0], [-1], [False]
    for level in range(1, len(names) + 1):
        found = sorted({path[:level] for path in paths})
        numbers.append({prefix: len(domain_names) + offset for offset, prefix in enumerate(found)})
        for prefix in found:
            domain_names.append(prefix[-1][0])
            depth.append(level)
            parent.append(numbers[level - 1][prefix[:-1]])
            virtual.append(prefix[-1][1])
        found_problems.extend(_repeated_names(names[level - 1], found))
    return NetworkTopology(
        layers=names,
        names=tuple(domain_names),
        depth=_frozen(depth),
        parent=_frozen(parent),
        virtual=np.array(virtual, dtype=np.bool_),
        problems=tuple(found_problems),
        aliases=_aliases(layers),
    )


def _aliases(layers: Sequence[LayerSpec]) -> Mapping[str, str]:
    """Give what people call the layers: without ``Layer``, in any case, by their labels."""
    names = {spec.layer for spec in layers}
    found: dict[str, set[str]] = {}
    for spec in layers:
        for text in (_short(spec.layer), *spec.label_keys):
            found.setdefault(text, set()).add(spec.layer)
    if NODE_LAYER in names:
        for text in ("node", "host", "hostname", "kubernetes.io/hostname"):
            found.setdefault(text, {NODE_LAYER})
    return {text: next(iter(ones)) for text, ones in found.items() if len(ones) == 1}


def _short(layer: str) -> str:
    return layer.casefold().removesuffix("layer").removesuffix("topology")


def _node_path(
    layers: Sequence[LayerSpec], node: str, labels: Mapping[str, str], problems: list[Problem]
) -> tuple[tuple[str, bool], ...] | None:
    """Name the domain of a node on every layer; None when it has no place in the tree."""
    if not layers:
        return None
    path: list[tuple[str, bool]] = []
    for position, spec in enumerate(layers[:-1]):
        name = next((labels[key] for key in spec.label_keys if labels.get(key)), "")
        if name:
            path.append((name, False))
            continue
        keys = " or ".join(spec.label_keys) or "(no label key declared)"
        if position < len(layers) - 2:
            message = f"no label {keys}: the node is outside the network topology"
            problems.append(Problem("metadata.labels", message, f"Node {node}"))
            return None
        message = f"no label {keys}: the node is a {spec.layer} of its own"
        problems.append(Problem("metadata.labels", message, f"Node {node}"))
        path.append((node, True))
    return (*path, (node, False))


def _repeated_names(layer: str, prefixes: Sequence[tuple[tuple[str, bool], ...]]) -> list[Problem]:
    parents: dict[str, list[str]] = {}
    for prefix in prefixes:
        above = "/".join(name for name, _ in prefix[:-1])
        own = " (a node without label)" if prefix[-1][1] else ""
        parents.setdefault(prefix[-1][0], []).append(f"{above or 'the cluster'}{own}")
    return [
        Problem("metadata.labels", f"{layer} {name} occurs in {', '.join(found)}: they are told apart")
        for name, found in sorted(parents.items())
        if len(found) > 1
    ]


@record
class DomainStatus:
    """One entry of ``status.detailStatus``; the root has no parent."""

    layer: str
    name: str
    parent: tuple[str, str] | None
    child_layer: str
    child_names: tuple[str, ...]
    node_count: int


def tree_status(tree: NetworkTopology) -> tuple[DomainStatus, ...]:
    """Describe every domain above the nodes, in pre-order with children by name."""
    counts = tree.sum_up(np.ones(len(tree.nodes), dtype=np.int64)) if tree.layers else np.zeros(1, np.int64)
    entries: list[DomainStatus] = []
    stack = [0]
    while stack:
        domain = stack.pop()
        children = tree.children(domain)
        depth = int(tree.depth[domain])
        above = int(tree.parent[domain])
        leaf_parent = depth == len(tree.layers) - 1
        entries.append(
            DomainStatus(
                layer=tree.layer_of(domain),
                name=tree.names[domain],
                parent=None if domain == 0 else (tree.layer_of(above), tree.names[above]),
                child_layer=tree.layers[depth] if len(children) else "",
                child_names=() if leaf_parent else tuple(tree.names[child] for child in children),
                node_count=int(counts[domain]),
            )
        )
        if not leaf_parent:
            stack.extend(reversed(children))
    return tuple(entries)
