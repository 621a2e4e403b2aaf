"""Several pods to several reservations at once.

Taken one after another, a pod that two reservations would serve may take the only one that serves another.
Here all are matched together: as many pods as possible, those of higher priority first, then the reservations
that are first in line, then the least that is left unused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import attrs
import numpy as np
from immutabledict import immutabledict
from numpy.typing import NDArray

from koordcore._certify import certified, certify
from koordcore._cpsat import Program, Stage, solve
from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, CertificateStatus, Limits
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.model.proofs import Leaf, LinearEvidence, LinearProblem, LinearRow, LinearStage, ProofTree
from koordcore.model.resources import PODS
from koordcore.protocol.reservation import ReservationWish, reservation_order, reservation_wish
from koordcore.reservations.hungarian import assign_rows
from koordcore.reservations.match import judge_match
from koordcore.reservations.state import ReservationState

BoolMatrix: TypeAlias = NDArray[np.bool_]
BoolVector: TypeAlias = NDArray[np.bool_]
IntMatrix: TypeAlias = NDArray[np.int64]
IntVector: TypeAlias = NDArray[np.int64]

_SHARE: Final = 1000
"""Unused shares are counted in thousandths."""
_MOST: Final = 2**60
_EVIDENT: Final = 100_000
"""Pairs of pod and reservation up to which the question is written down with the prices as evidence."""


@record(kw_only=True)
class ReservationAssignment:
    """Which pod uses which reservation.

    Parameters
    ----------
    reservations
        Name of the reservation by pod, for those that got one.
    unassigned
        The others, in the order given.
    certificate
        Objective where each reservation serves one pod: pods left over, each counting 1 or, where priorities
        differ, the place of its priority from below; sum of the places in line (1 for the smallest order,
        after all orders those without one); unused thousandths of the reservations taken. Otherwise: pods
        left over of each priority, the highest first; the places in line.
    """

    reservations: immutabledict[PodKey, str] = attrs.field(converter=immutabledict)
    unassigned: tuple[PodKey, ...] = ()
    certificate: Certificate


def eligible_pairs(
    pods: Sequence[Pod], states: Sequence[ReservationState], nodes: Mapping[str, Node]
) -> BoolMatrix:
    """Tell which pods may use which reservations and find room there: ``(pods, reservations)``.

    A pod finds room where everything that it asks for is left in the reservation itself.

    Raises
    ------
    ManifestError
        When a pod's wishes cannot be read.
    """
    found = _with_room(pods, states)
    by_reference = any(term.object is not None for one in states for term in one.reservation.owners)
    groups: dict[tuple[bool, bool], _Groups] = {}
    verdicts: dict[tuple[object, ...], BoolVector] = {}
    for row, pod in enumerate(pods):
        own = (pod.name, pod.uid) if by_reference else ()
        key = (pod.namespace, pod.labels, pod.owners, pod.annotations, pod.requests, *own)
        if key not in verdicts:
            wish = reservation_wish(pod.labels, pod.annotations)
            kind = bool(wish.exact), wish.affinity is not None
            if kind not in groups:
                groups[kind] = _Groups(states, nodes, *kind)
            verdicts[key] = groups[kind].judge(pod, wish)
        found[row] &= verdicts[key]
    return found


def _with_room(pods: Sequence[Pod], states: Sequence[ReservationState]) -> BoolMatrix:
    """Tell in which reservations all that a pod asks for is left."""
    names = sorted({name for pod in pods for name in pod.requests if name != PODS})
    asked = np.array([[pod.requests.get(name, 0) for name in names] for pod in pods], np.int64)
    left = np.array([[one.available.get(name, 0) for name in names] for one in states], np.int64)
    found: BoolMatrix = np.ones((len(pods), len(states)), bool)
    if not found.size:
        return found
    for column in range(len(names)):
        found &= asked[:, column, None] <= left[None, :, column]
    return found


class _Groups:
    """Reservations that look alike to pods of one kind; each group is judged once.

    Parameters
    ----------
    exact, by_name
        Whether the pods compare amounts, and whether they look at names and labels.
    """

    def __init__(
        self, states: Sequence[ReservationState], nodes: Mapping[str, Node], exact: bool, by_name: bool
    ) -> None:
        self._nodes = nodes
        self._first: list[ReservationState] = []
        known: dict[object, int] = {}
        numbers = []
        for one in states:
            there = one.reservation
            node = nodes.get(there.status.node_name)
            usable = node is not None and one.matchable
            alike = (
                usable,
                there.owners,
                there.taints,
                there.admits_nobody,
                one.allocatable if exact else None,
                (there.name, there.labels, node.labels if node else None) if by_name else None,
            )
            number = known.setdefault(alike, len(known))
            if number == len(self._first):
                self._first.append(one)
            numbers.append(number)
        self._numbers = np.array(numbers, np.int64)

    def judge(self, pod: Pod, wish: ReservationWish) -> BoolVector:
        """Tell which reservations a pod may use."""
        verdicts = []
        for one in self._first:
            node = self._nodes.get(one.reservation.status.node_name)
            usable = node is not None and one.matchable
            verdicts.append(usable and judge_match(pod, wish, one, node.labels if node else {}).matched)
        return np.array(verdicts, bool)[self._numbers]


def _places(states: Sequence[ReservationState]) -> list[int]:
    """Give each reservation's place in line, from 1; those without an order come last, all alike."""
    orders = [reservation_order(one.reservation.labels) for one in states]
    ranked = {order: place for place, order in enumerate(sorted({one for one in orders if one}), 1)}
    return [ranked.get(order, len(ranked) + 1) for order in orders]


def _unused(pods: Sequence[Pod], states: Sequence[ReservationState], eligible: BoolMatrix) -> IntMatrix:
    """Give what would be left of each reservation with each pod in it, in thousandths."""
    names = sorted({name for one in states for name in one.allocatable})
    capacity = np.array([[one.allocatable.get(name, 0) for name in names] for one in states], np.float64)
    used = np.array([[one.allocated.get(name, 0) for name in names] for one in states], np.float64)
    asked = np.array([[pod.requests.get(name, 0) for name in names] for pod in pods], np.float64)
    total: NDArray[np.float64] = np.zeros(eligible.shape)
    for column in range(len(names)):
        there = capacity[:, column] > 0
        room = np.where(there, capacity[:, column], 1.0)
        share = (used[None, :, column] + asked[:, column, None]) / room
        total += np.where(there & (share <= 1.0), share, 0.0)
    number = np.maximum((capacity > 0).sum(axis=1), 1)
    left: IntMatrix = _SHARE - np.floor(_SHARE * total / number).astype(np.int64)
    return np.where(eligible, left, 0)


def assign_reservations(
    pods: Sequence[Pod],
    states: Sequence[ReservationState],
    nodes: Mapping[str, Node],
    *,
    eligible: BoolMatrix | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> ReservationAssignment:
    """Match pods with reservations, all together.

    Where every reservation serves one pod at most, the cheapest assignment is found and proven by its prices;
    where some serve several, an integer program packs them, one variable for each kind of pod and each
    reservation.

    Parameters
    ----------
    pods, states
        Who asks, and what there is; names and keys are unique.
    nodes
        By name; a reservation without a known node serves nobody.
    eligible
        ``(pods, reservations)`` in the order given: which reservation would serve which pod; left out,
        :func:`eligible_pairs` says so. Reservations that serve several pods serve only those for which they
        have everything left.
    limits
        Budget of the program.

    Raises
    ------
    ModelError
        When a pod or a reservation stands twice.
    ManifestError
        When a pod's wishes cannot be read.
    """
    for what, names in (
        ("pod", [str(pod.key) for pod in pods]),
        ("reservation", [one.reservation.name for one in states]),
    ):
        if len(set(names)) != len(names):
            raise ModelError(f"a {what} stands twice")
    ranked = sorted(range(len(pods)), key=lambda at: pods[at].key)
    ordered = [pods[at] for at in ranked]
    places = sorted(range(len(states)), key=lambda at: states[at].reservation.name)
    stock = [states[at] for at in places]
    if not ordered:
        eligible = np.zeros((0, len(stock)), bool)
    elif eligible is None:
        eligible = eligible_pairs(ordered, stock, nodes)
    else:
        eligible = eligible[np.ix_(ranked, places)]
        eligible &= np.array([one.reservation.allocate_once for one in stock], bool) | _with_room(
            ordered, stock
        )
    if all(one.reservation.allocate_once for one in stock):
        chosen, certificate = _one_each(ordered, stock, eligible, limits)
    else:
        chosen, certificate = _packed(ordered, stock, eligible, limits)
    return ReservationAssignment(
        reservations={ordered[row].key: stock[column].reservation.name for row, column in sorted(chosen)},
        unassigned=tuple(pod.key for pod in pods if pod.key not in {ordered[row].key for row, _ in chosen}),
        certificate=certificate,
    )


def _weights(pods: Sequence[Pod]) -> IntVector:
    """Give the place of each pod's priority from below, from 1."""
    priorities = sorted({pod.priority for pod in pods})
    place = {priority: at for at, priority in enumerate(priorities, 1)}
    return np.array([place[pod.priority] for pod in pods], np.int64)


def _one_each(
    pods: Sequence[Pod], states: Sequence[ReservationState], eligible: BoolMatrix, limits: Limits
) -> tuple[list[tuple[int, int]], Certificate]:
    rows, columns = eligible.shape
    if not eligible.any():
        nobody = Stage((), int(_weights(pods).sum()))
        return [], certified(Program().problem((nobody, Stage(()), Stage(()))), (), limits)
    unused = _unused(pods, states, eligible)
    places = np.array(_places(states), np.int64)
    per_place = _SHARE * rows + 1
    edge = places[None, :] * per_place + unused
    left_over = (int(edge.max(initial=0)) + 1) * rows + 1
    # Sets of pods that can be served together are a matroid: what is best for any weights that rise with the
    # priority serves the most pods, and of these sets the one with the most pods of each priority from above.
    weights = _weights(pods)
    most = left_over * (int(weights.max()) + 1)
    if most * rows >= _MOST:
        raise ModelError(f"{rows} pods and {columns} reservations are too many to be assigned at once")
    # A column of its own for each pod that stays without; what is not eligible costs more than that.
    costs = np.full((rows, columns + rows), most, np.int64)
    costs[:, :columns][eligible] = edge[eligible]
    costs[:, columns:] = left_over * weights[:, None]
    found = assign_rows(costs)
    chosen = [(row, column) for row, column in enumerate(found.columns.tolist()) if column < columns]
    served = [row for row, _ in chosen]
    objective = (
        int(weights.sum() - weights[served].sum()),
        int(sum(places[column] for _, column in chosen)),
        int(sum(unused[row, column] for row, column in chosen)),
    )
    if found.cost != found.bound:
        return chosen, Certificate(CertificateStatus.HEURISTIC, objective)
    if np.count_nonzero(eligible) > _EVIDENT:
        return chosen, Certificate.make_proven(objective)
    problem, edges = _question(eligible, weights, places, unused)
    values = [0] * len(edges)
    for pair in chosen:
        values[edges[pair]] = 1
    # What each row and column adds at most to the sum; who stays without pays for himself.
    dear = [*(left_over * weights - found.row_price).tolist(), *(-found.column_price[:columns]).tolist()]
    trees = _sums(dear, rows, left_over, per_place, int(edge.max(initial=0)), int(unused.max(initial=0)))
    return chosen, Certificate.make_proven(objective, problem, LinearEvidence(tuple(values), trees))


def _question(
    eligible: BoolMatrix, weights: IntVector, places: IntVector, unused: IntMatrix
) -> tuple[LinearProblem, dict[tuple[int, int], int]]:
    """Write the assignment as rows of at most one: those of the pods, then those of the reservations."""
    pairs = [(row, column) for row, column in np.argwhere(eligible).tolist()]
    edges = {pair: number for number, pair in enumerate(pairs)}
    lines: list[list[int]] = [[] for _ in range(sum(eligible.shape))]
    for (row, column), number in edges.items():
        lines[row].append(number)
        lines[len(eligible) + column].append(number)
    stages = (
        LinearStage(
            tuple((number, -int(weights[row])) for (row, _), number in edges.items()), int(weights.sum())
        ),
        LinearStage(tuple((number, int(places[column])) for (_, column), number in edges.items())),
        LinearStage(tuple((number, int(unused[pair])) for pair, number in edges.items())),
    )
    ranges = (0,) * len(edges), (1,) * len(edges)
    rows = tuple(LinearRow(tuple(line), (1,) * len(line), None, 1) for line in lines)
    return LinearProblem(lower=ranges[0], upper=ranges[1], rows=rows, stages=stages), edges


def _sums(
    dear: Sequence[int], pods: int, left_over: int, per_place: int, dearest: int, emptiest: int
) -> tuple[ProofTree, ...]:
    """Turn prices of the one sum of all parts into a proof for each part.

    Later parts are bounded by the most that one pod can add to them, which the rows of the pods say; earlier
    ones are kept at their optimum, which is what follows the rows in a proof.
    """
    kept = [(len(dear), left_over), (len(dear) + 1, per_place)]

    def leaf(more: int, earlier: int, scale: int) -> Leaf:
        weights = [(one, price + (more if one < pods else 0)) for one, price in enumerate(dear)]
        return Leaf(tuple((one, weight) for one, weight in [*weights, *kept[:earlier]] if weight > 0), scale)

    return leaf(dearest, 0, left_over), leaf(emptiest, 1, per_place), leaf(0, 2, 1)


def _packed(
    pods: Sequence[Pod], states: Sequence[ReservationState], eligible: BoolMatrix, limits: Limits
) -> tuple[list[tuple[int, int]], Certificate]:
    kinds: dict[tuple[int, object, bytes], list[int]] = {}
    weights = _weights(pods)
    for row, pod in enumerate(pods):
        kinds.setdefault((pod.priority, pod.requests, eligible[row].tobytes()), []).append(row)
    places = _places(states)
    program = Program()
    variables: dict[tuple[int, int], int] = {}
    members = list(kinds.values())
    for kind, rows in enumerate(members):
        for column in np.flatnonzero(eligible[rows[0]]).tolist():
            variables[kind, column] = program.integer(0, len(rows))
        program.require(
            [(variable, 1) for (of, _), variable in variables.items() if of == kind], at_most=len(rows)
        )
    for column, one in enumerate(states):
        here = [(kind, variable) for (kind, at), variable in variables.items() if at == column]
        slots = one.allocatable.get(PODS)
        if one.reservation.allocate_once:
            program.require([(variable, 1) for _, variable in here], at_most=1)
        elif slots is not None:
            program.require(
                [(variable, 1) for _, variable in here], at_most=max(0, slots - len(one.assigned))
            )
        names = {name for kind, _ in here for name in pods[members[kind][0]].requests if name != PODS}
        for name in sorted(names):
            terms = [(variable, pods[members[kind][0]].requests.get(name, 0)) for kind, variable in here]
            program.require(terms, at_most=one.available.get(name, 0))
    stages = (
        *(
            Stage(
                [(one, -1) for (kind, _), one in variables.items() if weights[members[kind][0]] == weight],
                int((weights == weight).sum()),
            )
            for weight in sorted(set(weights.tolist()), reverse=True)
        ),
        Stage([(variable, places[column]) for (_, column), variable in variables.items()]),
    )
    outcome = solve(program, stages, limits=limits)
    if not outcome.solved:
        return [], Certificate(CertificateStatus.HEURISTIC, (len(pods), 0))
    chosen = []
    for (kind, column), variable in sorted(variables.items()):
        for _ in range(outcome.values[variable]):
            chosen.append((members[kind].pop(0), column))
    return chosen, certify(program.problem(stages), outcome, limits)
