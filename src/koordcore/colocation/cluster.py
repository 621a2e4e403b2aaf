"""A whole snapshot: what every node can lend, and the snapshot in which it is lent.

Nodes come from the snapshot, measurements from its NodeMetric records, NUMA nodes from its
NodeResourceTopology records and the strategy from its ConfigMap, or from the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.colocation.amounts import MILLI_CORE
from koordcore.colocation.batch import Batch, batch_of_node
from koordcore.colocation.columns import (
    ClusterLending,
    Outcome,
    compile_strategies,
    lend_cluster,
)
from koordcore.colocation.config import CONFIG_KEY, ConfigState, effective_strategy, is_disabled
from koordcore.colocation.normalization import as_reported
from koordcore.colocation.sync import NodeResource, NodeStatus, amplified_batch_cpu, prepare_node
from koordcore.colocation.uncounted import counted_loads
from koordcore.errors import ManifestError
from koordcore.model.cluster import ConfigMap
from koordcore.model.colocation import ColocationConfig, ColocationStrategy, NodeLoad, PodLoad, ZoneLoad
from koordcore.model.mappings import EMPTY
from koordcore.model.metrics import NOTHING_MEASURED, Measured, NodeMetric, measured_of, rounded
from koordcore.model.nodes import Node, NodeState
from koordcore.model.numa import NodeResourceTopology, NUMANodeResource
from koordcore.model.pods import Pod
from koordcore.model.quantity import NANO
from koordcore.model.resources import (
    BATCH_CPU,
    BATCH_MEMORY,
    CPU,
    MEMORY,
    MID_CPU,
    MID_MEMORY,
    NO_RESOURCES,
    Resources,
    make_resources,
)
from koordcore.protocol.colocation import numa_nodes_of
from koordcore.protocol.normalization import (
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_NORMALIZATION_RATIO,
)
from koordcore.protocol.pod_class import pod_priority_class
from koordcore.protocol.qos import qos_class_of
from koordcore.protocol.reserved_on_node import reserved_exactly
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import node_values, per_node

_CONFIG_MAP: Final = ("koordinator-system", "slo-controller-config")
_RATIOS: Final = (ANNOTATION_NORMALIZATION_RATIO, ANNOTATION_AMPLIFICATION_RATIO)
_LENT: Final = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)
_NOTES: Final = {
    Outcome.LENT: "",
    Outcome.DEGRADED: "the last report is missing or too old",
    Outcome.FAILED: "the report or the node's allocatable is empty",
    Outcome.DISABLED: "colocation is off",
}


def config_of_snapshot(snapshot: ClusterSnapshot) -> ColocationConfig:
    """Read the configuration from the ConfigMap ``koordinator-system/slo-controller-config``.

    Returns
    -------
    ColocationConfig
        Completed with the defaults; without the ConfigMap the defaults, which lend nothing.

    Raises
    ------
    ManifestError
        When the ConfigMap cannot be read or its strategy is out of range.
    """
    namespace, name = _CONFIG_MAP
    stored = snapshot.find(ConfigMap, name, namespace)
    if stored is None:
        return ColocationConfig()
    state = ConfigState().after(stored.data.get(CONFIG_KEY))
    if not state.available:
        where = f"ConfigMap {namespace}/{name}: data[{CONFIG_KEY}]"
        raise ManifestError.at(where, "no strategy, or one with a value out of its range")
    return state.config


def latest_report(snapshot: ClusterSnapshot) -> int | None:
    """Give the moment of the newest NodeMetric, nanoseconds since 1970: the natural ``now`` of a dump."""
    times = [metric.update_time for metric in snapshot.of(NodeMetric) if metric.update_time is not None]
    return max(times, default=None)


def _pod_load(pod: Pod) -> PodLoad:
    try:
        numa_nodes = numa_nodes_of(pod.annotations)
    except ManifestError:
        numa_nodes = ()
    return PodLoad(
        namespace=pod.namespace,
        name=pod.name,
        request=_exact_pair(pod.requests),
        priority_class=pod_priority_class(pod),
        # Only a labelled LSE counts; the class of an unlabelled pod is never LSE.
        qos=qos_class_of(pod.labels),
        phase=str(pod.phase),
        numa_nodes=numa_nodes,
    )


def _exact_pair(amounts: Resources) -> Measured:
    cpu, memory = amounts.get(CPU, 0), amounts.get(MEMORY, 0)
    return immutabledict({CPU: cpu * MILLI_CORE, MEMORY: memory * NANO})


def _zone_loads(topology: NodeResourceTopology | None) -> tuple[ZoneLoad, ...]:
    """Give the zones with their reserved cpus, as overcommit counts them."""
    if topology is None:
        return ()
    loads = []
    for zone in topology.zones:
        amounts = dict(zone.resources)
        if amounts.get(CPU):
            held = topology.reserved_cpus & topology.topology.on_node(zone.node)
            amounts[CPU] += 1000 * held.bit_count()
        loads.append(ZoneLoad(f"node-{zone.node}", measured_of(amounts)))
    known = any(CPU in one.allocatable or MEMORY in one.allocatable for one in loads)
    return tuple(loads) if known else ()


@per_node(NodeMetric, NodeResourceTopology)
def node_load_of(snapshot: ClusterSnapshot, state: NodeState) -> NodeLoad:
    """Give a node of a snapshot as overcommit sees it.

    A node without capacity, as one made by hand may be, is taken to have its allocatable. One whose
    allocatable the webhook has multiplied keeps back what its kubelet does.
    """
    node = state.node
    offered = as_reported(_exact_pair(node.allocatable), node.annotations)
    try:
        reserved = reserved_exactly(node.annotations)
    except ManifestError:
        reserved = NOTHING_MEASURED
    return NodeLoad(
        name=node.name,
        capacity=_exact_pair(node.capacity) if node.capacity else offered,
        allocatable=offered if node.allocatable else None,
        reserved=reserved,
        pods=tuple(map(_pod_load, state.pods)),
        metric=snapshot.find(NodeMetric, node.name),
        zones=_zone_loads(snapshot.find(NodeResourceTopology, node.name)),
    )


def cluster_loads(snapshot: ClusterSnapshot) -> tuple[NodeLoad, ...]:
    """Give every node of a snapshot as overcommit sees it, by name."""
    return tuple(node_values(snapshot, node_load_of))


@record(kw_only=True)
class LendingRow:
    """What one node lends, and the waterfall of its batch part.

    Parameters
    ----------
    node
        Name of the node.
    batch, mid
        Milli-cores and bytes as published: amplified, and less what third parties hold.
    capacity, margin, taken, pods
        Milli-cores and bytes: ``capacity - margin - taken - pods`` is what batch gets before amplification.
    batch_note, mid_note
        Why nothing is lent; empty where something may be.
    """

    node: str
    batch: tuple[int, int]
    mid: tuple[int, int]
    capacity: tuple[int, int]
    margin: tuple[int, int]
    taken: tuple[int, int]
    pods: tuple[int, int]
    batch_note: str = ""
    mid_note: str = ""


@record
class LendingTable:
    """What every node lends, by name, and in total.

    Parameters
    ----------
    rows
        By name of the node.
    problems
        Node to what of it cannot be counted, with object and path: it lends nothing.
    """

    rows: tuple[LendingRow, ...]
    problems: immutabledict[str, str] = attrs.field(default=EMPTY, converter=immutabledict)

    @property
    def total(self) -> LendingRow:
        """Sum over all nodes."""

        def summed(field: str) -> tuple[int, int]:
            pairs = [getattr(row, field) for row in self.rows]
            return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)

        return LendingRow(
            node="total",
            batch=summed("batch"),
            mid=summed("mid"),
            capacity=summed("capacity"),
            margin=summed("margin"),
            taken=summed("taken"),
            pods=summed("pods"),
        )


@record
class _Prepared:
    lending: ClusterLending
    strategies: tuple[ColocationStrategy, ...]
    statuses: tuple[NodeStatus, ...]
    ratios: tuple[Mapping[str, str], ...]
    problems: Mapping[str, str]


def _prepare(snapshot: ClusterSnapshot, config: ColocationConfig, now: int) -> _Prepared:
    loads = cluster_loads(snapshot)
    strategies = tuple(
        effective_strategy(config, state.node.labels, state.node.annotations) for state in snapshot.nodes
    )
    columns = compile_strategies(strategies, enabled=[not is_disabled(config, one) for one in strategies])
    counted, problems = counted_loads(loads)
    lending = lend_cluster(counted, columns, now)
    statuses, ratios = [], []
    for row, state in enumerate(snapshot.nodes):
        amounts: dict[str, int] = {}
        if lending.batch_outcome[row] == Outcome.LENT:
            amounts |= zip((BATCH_CPU, BATCH_MEMORY), lending.batch[:, row].tolist(), strict=True)
        if lending.mid_outcome[row] == Outcome.LENT:
            amounts |= zip((MID_CPU, MID_MEMORY), lending.mid[:, row].tolist(), strict=True)
        notes = state.node.annotations
        ratio = {key: text for key, text in notes.items() if key in _RATIOS}
        resource = NodeResource(
            resources=immutabledict({name: amount * NANO for name, amount in amounts.items()}),
            annotations=immutabledict(ratio),
        )
        before = NodeStatus(
            capacity=measured_of(state.node.capacity),
            allocatable=measured_of(state.node.allocatable) if state.node.allocatable else None,
            annotations=notes or None,
        )
        statuses.append(prepare_node(before, resource))
        ratios.append(ratio)
    return _Prepared(lending, strategies, tuple(statuses), tuple(ratios), problems)


def lending_table(snapshot: ClusterSnapshot, config: ColocationConfig, *, now: int) -> LendingTable:
    """Compute what every node lends, with the waterfall behind it.

    Parameters
    ----------
    snapshot
        The cluster with its NodeMetric records.
    config
        Completed configuration (:func:`config_of_snapshot`).
    now
        Moment of the decision, nanoseconds since 1970.
    """
    prepared = _prepare(snapshot, config, now)
    lending = prepared.lending

    def pair(column: str, row: int) -> tuple[int, int]:
        cpu, memory = getattr(lending, column)[:, row].tolist()
        return cpu, memory

    rows = []
    for row, (name, status) in enumerate(zip(lending.names, prepared.statuses, strict=True)):
        published = status.allocatable or NOTHING_MEASURED
        amounts = [published.get(resource, 0) // NANO for resource in _LENT]
        problem = prepared.problems.get(name, "")
        rows.append(
            LendingRow(
                node=name,
                batch=(amounts[0], amounts[1]),
                mid=(amounts[2], amounts[3]),
                capacity=pair("capacity", row),
                margin=pair("margin", row),
                taken=pair("taken", row),
                pods=pair("pods", row),
                batch_note=problem or _NOTES[Outcome(lending.batch_outcome[row])],
                mid_note=problem or _NOTES[Outcome(lending.mid_outcome[row])],
            )
        )
    return LendingTable(tuple(rows), prepared.problems)


@record
class LendingCluster:
    """A cluster whose nodes offer what they can lend.

    Parameters
    ----------
    snapshot
        The cluster.
    problems
        As in :class:`LendingTable`.
    """

    snapshot: ClusterSnapshot
    problems: immutabledict[str, str]


def lend(snapshot: ClusterSnapshot, config: ColocationConfig, *, now: int) -> ClusterSnapshot:
    """Give the snapshot of :func:`lending`.

    Parameters
    ----------
    snapshot, config, now
        As there.
    """
    return lending(snapshot, config, now=now).snapshot


def lending(snapshot: ClusterSnapshot, config: ColocationConfig, *, now: int) -> LendingCluster:
    """Give the snapshot in which every node offers what it can lend, ready to place batch and mid pods.

    What was lent before is replaced, or withdrawn where nothing is lent now; NUMA nodes follow where the
    topology is known. A stored normalization ratio amplifies batch cpu.

    Parameters
    ----------
    snapshot
        The cluster with its NodeMetric records.
    config
        Completed configuration (:func:`config_of_snapshot`).
    now
        Moment of the decision, nanoseconds since 1970.
    """
    prepared = _prepare(snapshot, config, now)
    states = [
        NodeState(_with_status(state.node, status), state.pods)
        for state, status in zip(snapshot.nodes, prepared.statuses, strict=True)
    ]
    topologies = []
    for row, load in enumerate(cluster_loads(snapshot)):
        topology = snapshot.find(NodeResourceTopology, load.name)
        if topology is not None and load.zones:
            batch = None
            if prepared.lending.batch_outcome[row] == Outcome.LENT:
                outcome = batch_of_node(load, prepared.strategies[row], now)
                batch = outcome if isinstance(outcome, Batch) else None
            topologies.append(_with_zones(topology, batch, prepared.ratios[row]))
    after = snapshot.with_nodes(*states).with_records(*topologies)
    return LendingCluster(after, immutabledict(prepared.problems))


def _with_status(node: Node, status: NodeStatus) -> Node:
    annotations = node.annotations if status.annotations is None else status.annotations
    return attrs.evolve(
        node,
        allocatable=rounded(status.allocatable or NOTHING_MEASURED),
        # A node made by hand, without capacity, stays without: half a capacity would count as the whole.
        capacity=rounded(status.capacity) if node.capacity else node.capacity,
        annotations=annotations,
    )


def _with_zones(
    topology: NodeResourceTopology, batch: Batch | None, ratio: Mapping[str, str]
) -> NodeResourceTopology:
    zones = []
    for zone in topology.zones:
        # What was lent to a zone before and is not now becomes zero, as the topology object shows it.
        amounts = {
            name: 0 if name in (BATCH_CPU, BATCH_MEMORY) else amount
            for name, amount in zone.resources.items()
        }
        fresh = dict(batch.zones.get(f"node-{zone.node}", NO_RESOURCES)) if batch else {}
        if BATCH_CPU in fresh:
            fresh[BATCH_CPU] = amplified_batch_cpu(fresh[BATCH_CPU], ratio)
        zones.append(NUMANodeResource(zone.node, make_resources({**amounts, **fresh})))
    return attrs.evolve(topology, zones=tuple(zones))
