"""Which nodes come into question, and what is said when none of them helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import BoolVector, ClusterLayout, IntMatrix, IntVector
from koordcore.allocators.gang.demand import Member, rank_order
from koordcore.allocators.gang.objective import floored_slots
from koordcore.allocators.gang.shortfall import no_candidate_message
from koordcore.model.pods import Pod
from koordcore.model.resources import PODS, counted
from koordcore.model.selectors import NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.preemption.eligible import UNRESOLVABLE
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.running import amounts_of
from koordcore.scoring.labels import fit_selector, fit_taints, fit_term, fit_unschedulable
from koordcore.topology.network import CLUSTER_LAYER
from tests.reference.fit_errors import fit_error, insufficient

__all__ = [
    "NOT_HELPFUL_HERE",
    "NO_VICTIMS",
    "PLAN_INVALID",
    "Failure",
    "NodeRefusal",
    "Refuse",
    "candidate_nodes",
    "explain_invalid",
    "explain_not_tried",
    "explain_plain",
    "explain_planned",
    "nodes_with_victims",
    "plain_refusals",
]

NOT_HELPFUL_HERE: Final = "Preemption is not helpful for scheduling"
NO_VICTIMS: Final = "no potential victims"
UNSCHEDULABLE: Final = "Unschedulable"
PLAN_INVALID: Final = "plan become invalid, wait for the next round"


@attrs.frozen
class NodeRefusal:
    """Why one node does not take a member.

    Parameters
    ----------
    reasons
        In upstream's words.
    resolvable
        Evicting pods may help.
    """

    reasons: tuple[str, ...]
    resolvable: bool = True

    @property
    def code(self) -> str:
        """The filter's verdict in upstream's spelling."""
        return UNSCHEDULABLE if self.resolvable else UNRESOLVABLE


Refuse: TypeAlias = Callable[[str, int, IntVector], NodeRefusal | None]
"""Why a member (by key) does not fit a node (by row) with so much left, shape (R,); None where it fits."""


NO_STATUSES: Final[immutabledict[str, NodeRefusal]] = immutabledict()


@attrs.frozen(kw_only=True)
class Failure:
    """Why nothing helps.

    Parameters
    ----------
    message
        Upstream's text.
    mode
        ``Pod`` or ``Job``; empty where nothing was tried.
    statuses
        What the nodes said that were tried, by node.
    unschedulable
        Members without a place, by key.
    slots
        Members that each node takes once everybody has left, in the order in which they are tried; only
        where the job is planned over a network.
    """

    message: str
    mode: str = ""
    statuses: immutabledict[str, NodeRefusal] = NO_STATUSES
    unschedulable: tuple[str, ...] = ()
    slots: immutabledict[str, int] | None = None


def candidate_nodes(statuses: Mapping[str, str]) -> tuple[str, ...]:
    """List the nodes that evictions may mend, by name; a node without a status is none of them."""
    return tuple(sorted(node for node, code in statuses.items() if code == UNSCHEDULABLE))


def nodes_with_victims(problem: PreemptionProblem, nodes: Sequence[str]) -> tuple[str, ...]:
    """Those of the nodes on which somebody may leave."""
    some = {problem.nodes[row] for row in np.unique(problem.candidates.node).tolist()}
    return tuple(node for node in nodes if node in some)


def explain_not_tried(problem: PreemptionProblem, nodes: Sequence[str]) -> Failure | None:
    """Say that there is nothing to try; None where there is.

    Parameters
    ----------
    nodes
        The candidate nodes.
    """
    total = len(problem.nodes)
    if not nodes:
        reasons = dict.fromkeys(problem.nodes, (NOT_HELPFUL_HERE,))
        return Failure(message=fit_error(total, reasons))
    if not nodes_with_victims(problem, nodes):
        return Failure(message=fit_error(total, dict.fromkeys(nodes, (NO_VICTIMS,))))
    return None


def _emptied(problem: PreemptionProblem, nodes: Sequence[str]) -> tuple[list[int], IntMatrix]:
    """Rows of the candidate nodes, and what the nodes have left without their possible victims."""
    row_of = {name: row for row, name in enumerate(problem.nodes)}
    rows = [row_of[name] for name in nodes if name in row_of]
    open_rows = np.zeros(len(problem.nodes), dtype=bool)
    open_rows[rows] = True
    return rows, problem.freed(open_rows[problem.candidates.node])


def explain_plain(
    problem: PreemptionProblem, nodes: Sequence[str], order: Sequence[Member], refuse: Refuse
) -> Failure:
    """Try the members on the candidate nodes without their possible victims.

    First each alone: a member that no node takes even then is what has to be told. If all have a place alone,
    one after another, each counted before the next.
    """
    rows, room = _emptied(problem, nodes)
    for together in (False, True):
        failed = _try_members(problem, rows, room.copy(), order, refuse, together=together)
        if failed is not None:
            return failed
    return Failure(
        message=fit_error(len(problem.nodes), {}), mode="Pod", unschedulable=tuple(m.key for m in order)
    )


def explain_invalid() -> Failure:
    """Say that a later member failed at its planned node; the next cycle plans again, without evictions."""
    return Failure(message=PLAN_INVALID, mode="Job")


def _texts(statuses: Mapping[str, NodeRefusal]) -> dict[str, tuple[str, ...]]:
    return {node: refused.reasons for node, refused in statuses.items()}


def _try_members(
    problem: PreemptionProblem,
    rows: Sequence[int],
    room: IntMatrix,
    order: Sequence[Member],
    refuse: Refuse,
    *,
    together: bool,
) -> Failure | None:
    statuses: dict[str, NodeRefusal] = {}
    feasible = list(rows)
    for number, member in enumerate(order):
        fitting = []
        for row in rows if together else feasible:
            refused = refuse(member.key, row, room[:, row])
            if refused is not None:
                statuses[problem.nodes[row]] = refused
            else:
                fitting.append(row)
        if not fitting:
            return Failure(
                message=fit_error(len(problem.nodes), _texts(statuses)),
                mode="Pod",
                statuses=immutabledict(statuses),
                unschedulable=tuple(one.key for one in order[number:]),
            )
        feasible = fitting
        if together:
            room[:, fitting[0]] -= problem.shapes[member.shape].request
    return None


def explain_planned(problem: PreemptionProblem, nodes: Sequence[str], refuse: Refuse) -> Failure:
    """Count what each candidate node offers without its possible victims, and say what every domain has."""
    tree = problem.tree
    rows, room = _emptied(problem, nodes)
    order = rank_order(problem.members)
    statuses: dict[str, NodeRefusal] = {}
    slots = dict.fromkeys(nodes, 0)
    for row in rows:
        left = room[:, row].copy()
        for member in order:
            refused = refuse(member.key, row, left)
            if refused is not None:
                statuses[problem.nodes[row]] = refused
                break
            left -= problem.shapes[member.shape].request
            slots[problem.nodes[row]] += 1
    # Upstream leaves its sentence open where every node takes all members and the multiples alone refuse.
    fit = fit_error(len(rows), _texts(statuses)) if statuses else f"0/{len(rows)} nodes are available:"
    if tree is None:
        message = fit
    else:
        offers = np.array([slots.get(name, 0) for name in tree.nodes], dtype=np.int64)
        multiples = problem.spec.multiples
        factors = [multiples.get(layer, 1) for layer in (CLUSTER_LAYER, *tree.layers)]
        nobody = np.zeros(len(tree), dtype=np.int64)
        message = no_candidate_message(
            tree,
            desired=len(order),
            must_layer=problem.spec.must_layer(tree.layers),
            multiples=multiples,
            slots=floored_slots(tree, offers, nobody, factors),
            fit_error=fit,
        )
    return Failure(
        message=message,
        mode="Job",
        statuses=immutabledict(statuses),
        slots=immutabledict(slots),
    )


def plain_refusals(layout: ClusterLayout, pods: Iterable[Pod]) -> Refuse:
    """Say why a member does not fit a node, by the plain filters in their order.

    Parameters
    ----------
    pods
        Every member that may be asked about.
    """
    known = {str(pod.key): pod for pod in pods}
    order = [PODS, *(name for name in layout.resources if name != PODS)]

    def refuse(key: str, row: int, left: IntVector) -> NodeRefusal | None:
        pod = known[key]
        if not fit_unschedulable(layout, pod.tolerations)[row]:
            return NodeRefusal(("node(s) were unschedulable",), resolvable=False)
        if not fit_taints(layout, pod.tolerations)[row]:
            return NodeRefusal(("node(s) had untolerated taint(s)",), resolvable=False)
        if not _fit_labels(layout, pod)[row]:
            return NodeRefusal(("node(s) didn't match Pod's node affinity/selector",), resolvable=False)
        asked = _asked(layout, order, pod)
        reasons = insufficient(_along(layout, order, left), asked, order)
        absent = sorted(
            name
            for name, amount in pod.requests.items()
            if amount > 0 and name not in layout.index and counted(name)
        )
        reasons += tuple(f"Insufficient {name}" for name in absent)
        whole = _along(layout, order, layout.allocatable[:, row])
        # A number of pods that is too small for one more is never called hopeless.
        hopeless = bool(absent) or bool((asked[1:] > whole[1:]).any())
        return NodeRefusal(reasons, resolvable=not hopeless) if reasons else None

    return refuse


def _along(layout: ClusterLayout, order: Sequence[str], amounts: IntVector) -> IntVector:
    return amounts[[layout.index[name] for name in order]]


def _asked(layout: ClusterLayout, order: Sequence[str], pod: Pod) -> IntVector:
    return _along(layout, order, amounts_of(layout, pod))


def _fit_labels(layout: ClusterLayout, pod: Pod) -> BoolVector:
    required = None if pod.affinity is None or pod.affinity.node is None else pod.affinity.node.required
    mask = np.ones(len(layout.names), dtype=np.bool_) if required is None else fit_selector(layout, required)
    for key, value in sorted(pod.node_selector.items()):
        mask = mask & fit_term(layout, NodeSelectorTerm((Requirement(key, SelectorOperator.IN, (value,)),)))
    return mask
