"""CPUs that a Node keeps back and its NodeResourceTopology does not know of yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koordcore._record import record
from koordcore.errors import Problem
from koordcore.manifests.cross_checks import Remark
from koordcore.model.nodes import Node
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.records import ClusterRecord
from koordcore.protocol.numa_nodes import reserving
from koordcore.protocol.reserved_on_node import NODE_RESERVATION
from koordcore.topology.cpu import format_cpulist


@record
class Reserved:
    """Records as they stand when the node's agent has been there, and what that changed."""

    records: list[ClusterRecord]
    remarks: list[Remark]


def sync_reservations(nodes: Iterable[Node], records: Sequence[ClusterRecord]) -> Reserved:
    """Keep CPUs back that only the annotation of a Node reserves.

    The agent copies the annotation to the NodeResourceTopology, out of which CPUs are handed out; a dump that
    lacks the copy would give them away.
    """
    said = {one.name: one.annotations for one in nodes if NODE_RESERVATION in one.annotations}
    done: list[ClusterRecord] = []
    remarks: list[Remark] = []
    for one in records:
        if not isinstance(one, NodeResourceTopology) or one.name not in said:
            done.append(one)
            continue
        kept = reserving(one, said[one.name])
        done.append(kept)
        if kept is not one:
            cpus = format_cpulist(kept.reserved_cpus & ~one.reserved_cpus)
            message = f"CPUs {cpus} of its Node are reserved here too, as the agent does"
            path = f"metadata.annotations[{NODE_RESERVATION}]"
            key = ("topology.node.k8s.io", "NodeResourceTopology", "", one.name)
            remarks.append((key, Problem(path, message)))
    return Reserved(done, remarks)
