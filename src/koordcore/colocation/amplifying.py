"""CPUs and memory of a whole snapshot as the ratios of the ConfigMap, or of the nodes, show them.

In a cluster the manager writes the ratios on each node and the webhook of nodes multiplies what the kubelet
reports; a dump that was taken by hand has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.colocation.batch import Failed
from koordcore.colocation.config import effective_strategy, is_disabled
from koordcore.colocation.normalization import amplification_ratios, amplify_node, as_reported, normalized
from koordcore.errors import ManifestError
from koordcore.model.cluster import ConfigMap
from koordcore.model.colocation import ColocationConfig
from koordcore.model.metrics import measured_of, rounded
from koordcore.model.nodes import Node, NodeState
from koordcore.model.numa import NodeResourceTopology
from koordcore.protocol.fields import Json, load_json
from koordcore.protocol.normalization import (
    AMPLIFICATION_KEY,
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_NORMALIZATION_RATIO,
    ANNOTATION_RAW_ALLOCATABLE,
    NORMALIZATION_KEY,
    AmplificationConfig,
    CPUBasicInfo,
    NormalizationConfig,
    format_amplification,
    parse_amplification_config,
    parse_normalization_config,
)
from koordcore.snapshot import ClusterSnapshot

C = TypeVar("C")

_CONFIG_MAP: Final = ("koordinator-system", "slo-controller-config")


@record
class Ratios:
    """The two configurations of a ConfigMap; ``None`` where it does not hold one that can be read."""

    normalization: NormalizationConfig | None
    amplification: AmplificationConfig | None


@record
class AmplifiedCluster:
    """A cluster whose nodes offer amplified amounts.

    Parameters
    ----------
    snapshot
        The cluster.
    changed
        Nodes whose amounts are others than before, by name.
    problems
        Node to why a ratio of it could not be worked out, or what it says is not read; what else multiplies
        it counts.
    """

    snapshot: ClusterSnapshot
    changed: tuple[str, ...]
    problems: immutabledict[str, str]


def ratios_of(data: Mapping[str, str]) -> Ratios:
    """Read the two configurations out of the data of ``slo-controller-config``."""
    return Ratios(
        _read(data.get(NORMALIZATION_KEY), parse_normalization_config),
        _read(data.get(AMPLIFICATION_KEY), parse_amplification_config),
    )


def _read(text: str | None, parse: Callable[[Json], C]) -> C | None:
    try:
        return parse(load_json(text)) if text else None
    except ManifestError:
        return None  # said when it was loaded


def amplified(snapshot: ClusterSnapshot, config: ColocationConfig) -> AmplifiedCluster:
    """Give the cluster after manager and webhook of nodes.

    A ratio is worked out anew where the ConfigMap configures it and the node takes part in colocation, as
    upstream does; any other that stands on a node stays. Normalization counts at once, where upstream is one
    cycle behind. Amounts that are amplified already (``raw-allocatable`` tells) are taken from the raw ones.

    Parameters
    ----------
    snapshot
        The cluster with its ConfigMap and NodeResourceTopologies.
    config
        Who takes part (:func:`~koordcore.colocation.config_of_snapshot`).
    """
    namespace, name = _CONFIG_MAP
    stored = snapshot.find(ConfigMap, name, namespace)
    ratios = ratios_of({} if stored is None else stored.data)
    states: list[NodeState] = []
    problems: dict[str, str] = {}
    for state in snapshot.nodes:
        topology = snapshot.find(NodeResourceTopology, state.name)
        node, problem = _with_ratios(state.node, topology, ratios, config)
        own = as_reported(measured_of(node.allocatable), node.annotations)
        done = amplify_node(own, node.annotations)
        if problem or done.problem:
            problems[state.name] = problem or done.problem
        if ANNOTATION_AMPLIFICATION_RATIO in node.annotations and not done.problem:
            node = attrs.evolve(
                node,
                allocatable=rounded(done.allocatable or measured_of({})),
                # Whoever has no capacity was made by hand: what it offers by itself is that.
                capacity=node.capacity or rounded(own),
                annotations=done.annotations,
            )
        if node != state.node:
            states.append(NodeState(node, state.pods))
    changed = sorted(
        one.name for one in states if one.node.allocatable != snapshot.node(one.name).node.allocatable
    )
    after = snapshot.with_nodes(*states) if states else snapshot
    return AmplifiedCluster(after, tuple(changed), immutabledict(problems))


def _with_ratios(
    node: Node, topology: NodeResourceTopology | None, ratios: Ratios, config: ColocationConfig
) -> tuple[Node, str]:
    """Write the ratios on a node; say what could not be worked out."""
    if is_disabled(config, effective_strategy(config, node.labels, node.annotations)):
        return node, ""
    notes, problem = dict(node.annotations), ""
    if ratios.normalization is not None:
        unit = normalized(ratios.normalization, node.labels, lambda: _info(topology))
        if isinstance(unit, Failed):
            problem = unit.message
        else:
            notes[ANNOTATION_NORMALIZATION_RATIO] = f"{unit:.2f}"
    if ratios.normalization is not None or ratios.amplification is not None:
        asked = ratios.amplification or AmplificationConfig()
        factors = amplification_ratios(asked, node.name, node.labels, notes)
        if isinstance(factors, Failed):
            problem = factors.message
        elif factors:
            notes[ANNOTATION_AMPLIFICATION_RATIO] = format_amplification(factors)
        elif ratios.amplification is not None:
            notes.pop(ANNOTATION_AMPLIFICATION_RATIO, None)
    if notes == node.annotations:
        return node, problem
    if ANNOTATION_AMPLIFICATION_RATIO not in notes:
        # Its kubelet reports it anew once nothing is amplified any more.
        own = as_reported(measured_of(node.allocatable), node.annotations)
        node = attrs.evolve(node, allocatable=rounded(own))
        notes.pop(ANNOTATION_RAW_ALLOCATABLE, None)
    return attrs.evolve(node, annotations=notes), problem


def _info(topology: NodeResourceTopology | None) -> CPUBasicInfo | Failed:
    if topology is None:
        return Failed("it has no NodeResourceTopology, which says what its CPU is")
    if topology.cpu_model is None:
        return Failed("its NodeResourceTopology does not say what its CPU is (cpu-basic-info)")
    return CPUBasicInfo(topology.cpu_model, topology.hyper_threads, topology.turbo)
