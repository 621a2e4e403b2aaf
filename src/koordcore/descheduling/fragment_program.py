"""Fragments of whole cards as an integer program: which state each node ends in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordcore._certify import certify
from koordcore._cpsat import Program, Stage, solve
from koordcore.descheduling.cards import Fragments
from koordcore.descheduling.moves import MoveProblem
from koordcore.descheduling.program import add_pairs, bind_amounts
from koordcore.model.certificates import Certificate, Limits
from koordcore.model.pods import PodKey
from koordcore.scoring.fragmentation import FragmentationMeasure
from koordcore.scoring.gpu_share import CARD, GpuNode

_WHOLE: Final = 1_000
"""Pairs of pod and target up to which the program covers everything."""
_MOST_STATES: Final = 6_000
"""States of all nodes together up to which it does."""


def best_by_program(
    problem: MoveProblem,
    aim: Fragments,
    measure: FragmentationMeasure,
    limits: Limits,
) -> tuple[dict[PodKey, str], Certificate] | None:
    """Decide exactly where cards are idle or taken as wholes and the problem is small.

    Returns
    -------
    targets, certificate
        The best moves found, and how good they are known to be; ``None`` where the problem is another, or
        nothing was found within the budget.
    """
    receiving = [host.name for host in problem.hosts if host.receives]
    steps = sorted({shape.cpu for shape, _ in aim.mix.shapes})
    states = sum((len(node.cards) + 1) * (len(steps) + 1) for node in aim.nodes)
    if len(problem.movable) * len(receiving) > _WHOLE or states > _MOST_STATES:
        return None
    if any(left not in (0, CARD) for node in aim.nodes for left in node.cards):
        return None
    if any(aim.demands[one.pod].shared for one in problem.movable):
        return None
    program = Program()
    pairs = add_pairs(program, problem, problem.movable, receiving)
    bind_amounts(program, problem, problem.movable, pairs)
    if aim.most is not None:
        program.require([(variable, 1) for variable in pairs.values()], at_most=aim.most)
    movable = {one.pod: one for one in problem.movable}
    leaving: dict[str, list[tuple[PodKey, int]]] = {}
    coming: dict[str, list[tuple[PodKey, int]]] = {}
    for (pod, target), variable in pairs.items():
        leaving.setdefault(movable[pod].node, []).append((pod, variable))
        coming.setdefault(target, []).append((pod, variable))
    price = aim.worth * aim.mix.kept
    fragments: list[tuple[int, int]] = []
    for node in aim.nodes:
        out, into = leaving.get(node.name, []), coming.get(node.name, [])
        fragments += _bind_state(program, aim, measure, node, out, into, steps)
    priced = [(variable, price * movable[pod].cost) for (pod, _), variable in pairs.items()]
    stages = (Stage([*fragments, *priced]), Stage([(variable, 1) for variable in pairs.values()]))
    outcome = solve(program, stages, limits=limits)
    if not outcome.solved:
        return None
    targets = {pod: target for (pod, target), variable in pairs.items() if outcome.values[variable]}
    return targets, certify(program.problem(stages), outcome, limits)


def _bind_state(
    program: Program,
    aim: Fragments,
    measure: FragmentationMeasure,
    node: GpuNode,
    out: Sequence[tuple[PodKey, int]],
    into: Sequence[tuple[PodKey, int]],
    steps: Sequence[int],
) -> list[tuple[int, int]]:
    """Choose the state that a node ends in: free cards, and how many CPU requests of the mix still fit."""
    free = node.cards.count(CARD)
    size = len(node.cards)
    cards = [(variable, aim.demands[pod].gpus) for pod, variable in out]
    cards += [(variable, -aim.demands[pod].gpus) for pod, variable in into]
    cpus = [(variable, aim.demands[pod].cpu) for pod, variable in out]
    cpus += [(variable, -aim.demands[pod].cpu) for pod, variable in into]
    least, greatest = program.span(cpus, node.cpu)
    lower = [least, *steps]
    upper = [*(step - 1 for step in steps), greatest]
    chosen: list[tuple[int, int, int]] = []
    for count in range(size + 1):
        for step in range(len(steps) + 1):
            if lower[step] <= greatest and upper[step] >= least:
                chosen.append((program.boolean(), count, step))
    program.require([(variable, 1) for variable, _, _ in chosen], equal=1)
    program.require(
        [*cards, *((variable, -count) for variable, count, _ in chosen)],
        equal=-free,
    )
    program.require(
        [*cpus, *((variable, -max(least, lower[step])) for variable, _, step in chosen)],
        at_least=-node.cpu,
    )
    program.require(
        [*cpus, *((variable, -min(greatest, upper[step])) for variable, _, step in chosen)],
        at_most=-node.cpu,
    )
    return [
        (
            variable,
            measure.of_state((CARD,) * count + (0,) * (size - count), step, node.model)[1],
        )
        for variable, count, step in chosen
    ]
