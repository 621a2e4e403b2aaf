"""A job as the planner takes it, and a plan as the loop binds it.

Offer slots come from the features' own filters. A plan is bound member by member as pods of their own would
be; a node that takes fewer members than it offered is named, so that whoever plans can take that offer away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from koordcore._arrays import IntMatrix, IntVector
from koordcore._workspace import Workspace
from koordcore.allocators.gang.demand import GangDemand, Member, Role, Shape, rank_order
from koordcore.model.decisions import PodDecision, Unschedulable
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.gang import topology_selector
from koordcore.schedule.classes import FeatureSet, PodClass
from koordcore.schedule.feature import Refusal
from koordcore.schedule.features.network import Coscheduling
from koordcore.schedule.jobs import Job, rank_of
from koordcore.schedule.place import place_there
from koordcore.topology.network import NetworkTopology

__all__ = ["Outline", "bind_plan", "demand_of", "fit_error", "offers_of", "outline_of"]


@attrs.frozen(eq=False)
class Outline:
    """A job as the planner takes it, apart from the offers of the nodes."""

    members: tuple[Pod, ...]
    classes: tuple[PodClass, ...]
    shape_of: Mapping[str, int]
    rows: IntVector
    """Row of each node of the tree."""


def outline_of(
    workspace: Workspace, features: FeatureSet, pods: Sequence[Pod], tree: NetworkTopology
) -> Outline | Unschedulable:
    """Sort pods by shape; or say which of them needs no node to be refused."""
    classes: dict[int, PodClass] = {}
    numbers: dict[int, int] = {}
    shape_of: dict[str, int] = {}
    nodes = len(workspace.layout.names)
    for pod in pods:
        pod_class = features.class_of(pod)
        if isinstance(pod_class, Refusal):
            return Unschedulable(pod=pod.key, nodes=nodes, refusal=pod_class.reason)
        refused = pod_class.refuse()
        if refused is not None:
            return Unschedulable(pod=pod.key, nodes=nodes, refusal=refused[1].reason)
        shape_of[str(pod.key)] = numbers.setdefault(id(pod_class), len(numbers))
        classes[id(pod_class)] = pod_class
    rows = np.array([workspace.layout.row_of[name] for name in tree.nodes], np.int64)
    return Outline(tuple(pods), tuple(classes.values()), shape_of, rows)


def offers_of(outline: Outline) -> IntMatrix:
    """How many members of each shape every node of the tree takes: ``(shapes, nodes)``."""
    most = len(outline.members)
    return np.stack([one.slots(most)[outline.rows] for one in outline.classes])


def demand_of(
    workspace: Workspace,
    job: Job,
    spec: NetworkTopologySpec,
    tree: NetworkTopology,
    outline: Outline,
    offers: IntMatrix,
) -> GangDemand:
    """Write what a job asks of the tree; the outline may know pods of further jobs."""
    roles = tuple(
        Role(
            name=name,
            members=tuple(Member(str(pod.key), outline.shape_of[str(pod.key)], rank_of(pod)) for pod in pods),
            min_available=job.least(name),
        )
        for name, pods in job.members.items()
    )
    requests = [_amounts(workspace, pod_class) for pod_class in outline.classes]
    bound = np.zeros(len(tree.nodes), np.int64)
    for nodes in job.bound.values():
        for node in nodes:
            if node in tree.node_index:
                bound[tree.node_index[node]] += 1
    # What reservations lend comes on top of what is free; binding finds out where two shapes want the same.
    free = workspace.free[:, outline.rows]
    for slots, request in zip(offers, requests, strict=True):
        free = np.maximum(free, request[:, None] * slots[None, :])
    return GangDemand(
        roles=roles,
        shapes=tuple(
            Shape(slots=slots, request=request) for slots, request in zip(offers, requests, strict=True)
        ),
        free=free,
        spec=spec,
        bound=bound,
        near=_near(workspace, job, tree),
        resources=tuple(workspace.layout.resources),
    )


def _amounts(workspace: Workspace, pod_class: PodClass) -> IntVector:
    index = workspace.layout.index
    request = np.zeros(len(workspace.layout.resources), np.int64)
    for name, amount in pod_class.pod.requests.items():
        if name in index:
            request[index[name]] = amount
    request[index["pods"]] = 1
    return request


def _near(workspace: Workspace, job: Job, tree: NetworkTopology) -> IntVector:
    """Count the pods that share the first member's network-topology selector, per node of the tree."""
    near = np.zeros(len(tree.nodes), np.int64)
    by_key = {str(pod.key): pod for pod in job.pods}
    first = rank_order(Member(key, 0, rank_of(pod)) for key, pod in by_key.items())[0]
    selector = topology_selector(by_key[first.key].annotations)
    counts = Coscheduling(workspace).counts(selector) if selector else {}
    for node, count in counts.items():
        if node in tree.node_index:
            near[tree.node_index[node]] = count
    return near


def fit_error(outline: Outline) -> str:
    """What the filters say about the first member over all nodes."""
    pod_class = outline.classes[0]
    return "" if pod_class.feasible().all() else pod_class.failure(outline.members[0]).message


def bind_plan(
    workspace: Workspace, features: FeatureSet, outline: Outline, nodes: Mapping[str, str]
) -> dict[PodKey, PodDecision] | Unschedulable | tuple[int, int, int]:
    """Bind the plan member by member.

    Or say which offer did not hold (shape, position in the tree, members taken there), or which member is
    refused wherever it would go, such as by its quota.
    """
    by_key = {str(pod.key): pod for pod in outline.members}
    taken: dict[tuple[int, int], int] = {}
    decisions: dict[PodKey, PodDecision] = {}
    positions = {int(row): position for position, row in enumerate(outline.rows)}
    for key, node in nodes.items():
        pod, row = by_key[key], workspace.layout.row_of[node]
        place = (outline.shape_of[key], positions[row])
        refused = outline.classes[place[0]].refuse()
        if refused is not None:
            number = len(workspace.layout.names)
            return Unschedulable(pod=pod.key, nodes=number, refusal=refused[1].reason)
        decision = place_there(workspace, features, pod, row)
        if decision is None:
            return (*place, taken.get(place, 0))
        taken[place] = taken.get(place, 0) + 1
        decisions[pod.key] = decision
    return decisions
