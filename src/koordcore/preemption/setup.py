"""From a snapshot to the arrays of a preemption problem."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from koordcore._arrays import BoolVector, ClusterLayout, IntMatrix, IntVector
from koordcore.allocators.gang.demand import Member, Role
from koordcore.errors import ManifestError
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import counted
from koordcore.model.selectors import NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.preemption.parties import MemberShape
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.running import Leaving, amounts_of, running_on
from koordcore.preemption.victims import collect_candidates, given_up
from koordcore.protocol.gang import parse_topology_index
from koordcore.scoring.labels import fit_selector, fit_taints, fit_term, fit_unschedulable
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.network import NetworkTopology


class Wanted(NamedTuple):
    """What a pod asks of nodes.

    Parameters
    ----------
    kind
        Tells shapes apart: pods of one kind are alike in all else.
    allowed
        Where evictions could make room for it, shape (N,).
    request
        What counts against a node's amounts, shape (R,).
    """

    kind: Hashable
    allowed: BoolVector
    request: IntVector


def plain_mask(layout: ClusterLayout, pod: Pod) -> BoolVector:
    """Tell which nodes a pod may ever run on: cordons, taints, node selector and required node affinity."""
    mask = fit_unschedulable(layout, pod.tolerations) & fit_taints(layout, pod.tolerations)
    mask &= _fit_labels(layout, pod)
    absent = any(
        amount > 0 and name not in layout.index and counted(name) for name, amount in pod.requests.items()
    )
    return np.zeros_like(mask) if absent else mask


def _fit_labels(layout: ClusterLayout, pod: Pod) -> BoolVector:
    """Tell which nodes satisfy the node selector and the required node affinity."""
    mask = np.ones(len(layout.names), dtype=np.bool_)
    if pod.node_selector:
        wanted = sorted(pod.node_selector.items())
        terms = tuple(Requirement(key, SelectorOperator.IN, (value,)) for key, value in wanted)
        mask &= fit_term(layout, NodeSelectorTerm(terms))
    required = None if pod.affinity is None or pod.affinity.node is None else pod.affinity.node.required
    if required is not None:
        mask &= fit_selector(layout, required)
    return mask


def _plainly(layout: ClusterLayout, pods: Iterable[Pod]) -> dict[PodKey, Wanted]:
    found = {}
    for pod in pods:
        kind = (pod.requests, pod.node_selector, pod.affinity, pod.tolerations)
        found[pod.key] = Wanted(kind, plain_mask(layout, pod), amounts_of(layout, pod))
    return found


def _rank(pod: Pod) -> int | None:
    try:
        return parse_topology_index(pod.annotations)
    except ManifestError:
        return None


def leaving_pods(
    snapshot: ClusterSnapshot, preemptor: Pod, gone: Collection[Leaving] = ()
) -> tuple[Pod, ...]:
    """List the pods of a snapshot that leave anyhow and whose room a preemptor may count on.

    Parameters
    ----------
    snapshot
        The cluster.
    preemptor
        For whom room is made; who is less important counts, and who was evicted for whatever job.
    gone
        Who is to leave by earlier plans of the same call.
    """
    return given_up(running_on(snapshot), preemptor, gone)


def make_problem(
    snapshot: ClusterSnapshot,
    preemptor: Pod,
    pending: Mapping[str, tuple[Sequence[Pod], int]],
    *,
    minimums: Mapping[str, int],
    own: Collection[Leaving] = (),
    gone: Collection[Leaving] = (),
    leaving: Sequence[Pod] | None = None,
    tree: NetworkTopology | None = None,
    spec: NetworkTopologySpec | None = None,
    bound: Sequence[str] = (),
    wanted: Mapping[PodKey, Wanted] | None = None,
    free: IntMatrix | None = None,
    nominated: Iterable[Pod] | None = None,
    restart: Callable[[Pod], int] | None = None,
    whom: BoolVector | None = None,
) -> PreemptionProblem:
    """Set the question up for a job of a snapshot.

    Parameters
    ----------
    snapshot
        The cluster, whose bound pods are the candidates.
    preemptor
        The member whose priority counts.
    pending
        Per gang, its waiting members and how many of them are needed; a pod without a gang comes under its
        own key.
    minimums
        Minimum of every gang of the cluster, by id.
    own
        Bound pods that are no victims whatever their priority: members of the job that wait at Permit; with
        the rows of their nodes.
    gone
        Bound pods that have left as far as this question goes, likewise; ``free`` counts their room already.
    leaving
        Bound pods that leave anyhow and whose room counts as free; :func:`leaving_pods` when left out.
    tree, spec
        The network and the job's wish for gathering; both or none.
    bound
        Node of every member that has one already.
    wanted
        What each member asks of nodes; what the plain filters say when left out.
    free
        What the nodes have left, shape (R, N), before nominations are counted; the snapshot's when left out.
    nominated
        Pods of others that may be nominated somewhere; the snapshot's pending ones when left out.
    restart
        What restarting a pod costs.
    whom
        Running pods that may leave whatever their priority, shape (V,); the less important when left out.

    Notes
    -----
    Pods of others that are nominated to a node and at least as important count as if they ran there. The room
    of pods that are leaving already and that the preemptor might evict counts as free (ruling 29).
    """
    layout = snapshot.layout
    if wanted is None:
        wanted = _plainly(layout, (pod for pods, _ in pending.values() for pod in pods))
    roles, shapes = _roles(pending, wanted)
    room = (layout.allocatable - snapshot.columns.requested) if free is None else free.copy()
    mine = {pod.key for pods, _ in pending.values() for pod in pods}
    for pod in snapshot.pending if nominated is None else nominated:
        row = layout.row_of.get(pod.nominated_node or "")
        if row is not None and pod.key not in mine and pod.priority >= preemptor.priority:
            room[:, row] -= amounts_of(layout, pod)
    budgets = snapshot.of(PodDisruptionBudget)
    for pod in leaving_pods(snapshot, preemptor, gone) if leaving is None else leaving:
        room[:, layout.row_of[str(pod.node_name)]] += amounts_of(layout, pod)
    candidates, jobs = collect_candidates(
        running_on(snapshot),
        preemptor,
        minimums=minimums,
        budgets=budgets,
        protected=own,
        gone=gone,
        restart=restart,
        whom=whom,
    )
    gathered = tree is not None and spec is not None
    if gathered and tree is not None:
        # A node that the network does not name is in no domain, so no gathered member may go there.
        inside = np.array([name in tree.node_index for name in layout.names], dtype=np.bool_)
        shapes = [MemberShape(request=one.request, allowed=one.allowed & inside) for one in shapes]
    return PreemptionProblem(
        nodes=tuple(layout.names),
        free=room,
        shapes=tuple(shapes),
        roles=tuple(roles),
        candidates=candidates,
        jobs=jobs,
        budgets=np.array([budget.disruptions_allowed for budget in budgets], dtype=np.int64),
        tree=tree if gathered else None,
        spec=spec if gathered and spec is not None else NetworkTopologySpec(),
        bound=_counted(bound, layout),
    )


def _roles(
    pending: Mapping[str, tuple[Sequence[Pod], int]], wanted: Mapping[PodKey, Wanted]
) -> tuple[list[Role], list[MemberShape]]:
    """Give the gangs with their members by name, and what members ask for, each once."""
    shapes: dict[Hashable, tuple[int, MemberShape]] = {}
    roles = []
    for name in sorted(pending):
        pods, least = pending[name]
        members = []
        for pod in pods:
            key, allowed, request = wanted[pod.key]
            if key not in shapes:
                shapes[key] = (len(shapes), MemberShape(request=request, allowed=allowed))
            members.append(Member(str(pod.key), shapes[key][0], _rank(pod)))
        roles.append(Role(name=name, members=tuple(members), min_available=max(0, least)))
    return roles, [shape for _, shape in shapes.values()]


def _counted(bound: Sequence[str], layout: ClusterLayout) -> IntVector:
    """Count the members that run already by row, ``(N,)``; empty where none does."""
    held = np.zeros(len(layout.names) if bound else 0, dtype=np.int64)
    for node in bound:
        if node in layout.row_of:
            held[layout.row_of[node]] += 1
    return held
