"""The moves that lower fragmentation most for what they cost: FGD's measure, applied to running pods.

Idle card shares that the expected work cannot use are fragments
(:class:`~koordcore.scoring.fragmentation.FragmentationMeasure`). Every move has a price, given as the card
milli that it must win, so a plan is judged by one number: fragments that stay plus the price of the moves.
The greedy takes the move with the largest fall per cost until none is worth its price, then several pods of
one node that are worth it only together. Small clusters of whole cards are then decided by an integer
program; a bound holds for all others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from koordcore._record import record
from koordcore.descheduling.cards import Fragments
from koordcore.descheduling.fragment_program import best_by_program
from koordcore.descheduling.fragment_search import FragmentSearch
from koordcore.descheduling.moves import Allows, Host, MoveProblem
from koordcore.descheduling.waves import in_waves, wave_prices
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, Limits
from koordcore.model.moves import Move
from koordcore.model.pods import PodKey
from koordcore.scoring.fragmentation import FragmentationMeasure
from koordcore.scoring.gpu_share import CARD

__all__ = ["Fragments", "FragmentsPlan", "plan_fragments"]

_MILLI: Final = "card milli"


@record(kw_only=True)
class FragmentsPlan:
    """Who moves where so that fewer card shares are idle in vain.

    Parameters
    ----------
    moves
        By wave.
    before, after
        Fragmented card milli, rounded down.
    gains
        Card milli won after each wave, counted from the start.
    prices
        Cost of the moves that arrive in each wave.
    certificate
        Objective: fragments that stay and the price of the moves, in card milli times the tasks of the mix;
        then the number of moves.
    """

    moves: tuple[Move, ...]
    before: int
    after: int
    gains: tuple[int, ...]
    prices: tuple[int, ...]
    certificate: Certificate


def plan_fragments(
    problem: MoveProblem,
    aim: Fragments,
    *,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> FragmentsPlan:
    """Plan the moves after which fragments and the price of the moves are least together.

    Parameters
    ----------
    problem
        Hosts, movable pods, limits, and where pods may run.
    aim
        The cards, and what counts as a fragment.
    limits
        Budget of the solver.
    progress
        Called before each move with how many pods are no longer worth one, and how many were.

    Returns
    -------
    FragmentsPlan
        Proven when the objective meets its bound. Planning on the result finds no move that is worth its
        price, unless ``most`` stopped the plan.
    """
    known = {node.name for node in aim.nodes}
    movable = tuple(one for one in problem.movable if one.pod in aim.demands and one.node in known)
    problem = _with_cards(attrs.evolve(problem, movable=movable, allows=_on_cards(problem, aim)), aim)
    search = FragmentSearch(problem, aim)
    first = search.run(again=False, progress=progress)
    targets = search.run(again=True)
    bound = _bound(problem, aim, search.measure)
    objective = search.objective(targets)
    best: Certificate | None = None
    if objective != bound:
        # Close to the best after a fraction of the work that a proof takes.
        quarter = attrs.evolve(limits, deterministic_time=limits.deterministic_time / 4)
        solved = best_by_program(problem, aim, search.measure, quarter)
        if solved is not None:
            found, best = solved
            bound = max(bound, best.bound)
            if search.objective(found) < objective:
                targets, objective = found, search.objective(found)
    moves = in_waves(problem, targets)
    if moves is None:
        # A ring that the limits forbid; these moves can be carried out one by one.
        targets, objective = first, search.objective(first)
        moves = in_waves(problem, first) or ()
    before, gains = search.gains(moves)
    return FragmentsPlan(
        moves=moves,
        before=before,
        after=before - gains[-1] if gains else before,
        gains=gains,
        prices=wave_prices(problem, moves),
        certificate=(
            best
            if best is not None and best.proven and best.objective == objective
            else Certificate.make_bounded(objective, bound)
        ),
    )


def _on_cards(problem: MoveProblem, aim: Fragments) -> Allows:
    """Where a pod may run, and what kind of card it may get there."""
    models = {node.name: node.model for node in aim.nodes}

    def allows(pod: PodKey, node: str) -> bool:
        wanted = aim.demands[pod].models
        return node in models and (not wanted or models[node] in wanted) and problem.allows(pod, node)

    return allows


def _with_cards(problem: MoveProblem, aim: Fragments) -> MoveProblem:
    """Count card milli as an amount like any other, whatever the cards are called in requests."""
    cards = {node.name: node for node in aim.nodes}

    def host(one: Host) -> Host:
        node = cards.get(one.name)
        if node is None:
            return one
        size = len(node.cards) * CARD
        return attrs.evolve(
            one,
            requested={**one.requested, _MILLI: size - node.idle},
            allocatable={**one.allocatable, _MILLI: size},
        )

    movable = tuple(
        attrs.evolve(one, requests={**one.requests, _MILLI: aim.demands[one.pod].total})
        for one in problem.movable
    )
    return attrs.evolve(problem, hosts=tuple(map(host, problem.hosts)), movable=movable)


def _bound(problem: MoveProblem, aim: Fragments, measure: FragmentationMeasure) -> tuple[int, ...]:
    """Bound every plan: a node changes only by moves, and each move touches two nodes.

    Idle shares are all in vain for the part of the mix without cards, wherever they are; moves do not change
    their sum. Of the rest a node keeps all, or at least one move pays half its price there.
    """
    idle_anyhow = sum(count for shape, count in aim.mix.shapes if not shape.gpus)
    hosts = {host.name: host for host in problem.hosts}
    sources = {one.node for one in problem.movable}
    cheapest = min((one.cost for one in problem.movable), default=0)
    half = aim.worth * aim.mix.kept * cheapest // 2
    total = 0
    for node in aim.nodes:
        anyhow = node.idle * idle_anyhow
        rest = measure.weighted(node) - anyhow
        host = hosts.get(node.name)
        changes = node.name in sources or (host is not None and host.receives)
        total += anyhow + (min(rest, half) if changes and problem.movable else rest)
    return total, 0
