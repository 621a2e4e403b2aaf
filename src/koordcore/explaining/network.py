"""The network tree with what is free in each domain, and which jobs lie where."""

from __future__ import annotations

from collections import Counter

import numpy as np

from koordcore._record import record
from koordcore.model.pods import Pod
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.scheduling.network_trees import network_tree
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once
from koordcore.topology.network import NetworkTopology


@record
class DomainRow:
    """One domain of the network.

    Parameters
    ----------
    name, layer, depth
        What it is; depth 1 is the topmost layer.
    nodes, empty
        Nodes below it, and those of them that run no pod.
    pods
        Pods on them, of the namespace that was asked for.
    jobs
        Gangs with members there, by name, with their number.
    """

    name: str
    layer: str
    depth: int
    nodes: int
    empty: int
    pods: int
    jobs: tuple[tuple[str, int], ...]


def job_of(pod: Pod) -> str:
    """Name the gang of a pod as ``namespace/name``; empty for none."""
    name = gang_name(pod.labels, pod.annotations)
    return f"{pod.namespace}/{name}" if name else ""


def jobs_by_node(snapshot: ClusterSnapshot, namespace: str = "") -> dict[str, Counter[str]]:
    """Count the members of each gang on each node; of one namespace where one is named."""
    found: dict[str, Counter[str]] = {}
    for state in snapshot.nodes:
        pods = (pod for pod in state.pods if namespace in ("", pod.namespace))
        jobs = Counter(job for pod in pods if (job := job_of(pod)))
        if jobs:
            found[state.name] = jobs
    return found


def used_domains(result: ScheduleResult) -> dict[str, dict[str, list[str]]]:
    """Name the domains above the nodes in which each job's members were placed, by job and layer."""
    tree = once(result.snapshot, network_tree)
    if tree is None or not result.jobs:
        return {}
    plans = {gang: plan.job for plan in result.jobs for gang in plan.job.split(",")}
    placed = {one.pod for one in result.bound}
    used: dict[str, set[int]] = {}
    for pod in result.snapshot.bound_pods():
        job = plans.get(job_of(pod))
        if job is not None and pod.key in placed and str(pod.node_name) in tree.node_index:
            leaf = tree.first_node + tree.node_index[str(pod.node_name)]
            used.setdefault(job, set()).update(tree.path(leaf)[:-1])
    found: dict[str, dict[str, list[str]]] = {}
    for job, domains in used.items():
        for domain in sorted(domains):
            if not tree.virtual[domain]:  # a node that lies in none of that layer
                found.setdefault(job, {}).setdefault(tree.layer_of(domain), []).append(tree.names[domain])
    return found


def domain_rows(
    snapshot: ClusterSnapshot, namespace: str = ""
) -> tuple[NetworkTopology, tuple[DomainRow, ...]] | None:
    """Describe every domain, each parent before its children; ``None`` without a network topology.

    Parameters
    ----------
    snapshot
        The cluster.
    namespace
        Whose pods and gangs are counted; those of all when left out. A node is empty of all pods.
    """
    tree = once(snapshot, network_tree)
    if tree is None:
        return None
    pods = {state.name: len(state.pods) for state in snapshot.nodes}
    counts = np.array([pods.get(name, 0) for name in tree.nodes], np.int64)
    chosen = {
        state.name: sum(namespace in ("", pod.namespace) for pod in state.pods) for state in snapshot.nodes
    }
    own = np.array([chosen.get(name, 0) for name in tree.nodes], np.int64)
    total = tree.sum_up(np.ones(len(tree.nodes), np.int64))
    empty, held = tree.sum_up((counts == 0).astype(np.int64)), tree.sum_up(own)
    jobs: list[Counter[str]] = [Counter() for _ in range(len(tree))]
    for node, members in jobs_by_node(snapshot, namespace).items():
        domain = tree.first_node + tree.node_index[node] if node in tree.node_index else -1
        while domain >= 0:
            jobs[domain].update(members)
            domain = int(tree.parent[domain])
    rows: list[DomainRow] = []
    stack = [0]
    while stack:
        domain = stack.pop()
        stack.extend(reversed(tree.children(domain)))
        rows.append(
            DomainRow(
                name=tree.names[domain] or "cluster",
                layer=tree.layer_of(domain),
                depth=int(tree.depth[domain]),
                nodes=int(total[domain]),
                empty=int(empty[domain]),
                pods=int(held[domain]),
                jobs=tuple(sorted(jobs[domain].items())),
            )
        )
    return tree, tuple(rows)
