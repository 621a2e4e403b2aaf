"""Small preemption problems."""

from __future__ import annotations

import random
from collections.abc import Sequence

import attrs
import numpy as np

from koordcore.allocators.gang.demand import Member, Role
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.preemption.parties import Candidates, Jobs, MemberShape
from koordcore.preemption.problem import ANYWHERE, Pool, PreemptionProblem, Refuges
from koordcore.topology.network import LayerSpec, build_tree

__all__ = ["gang_problem", "one_member", "pooled", "problem_of", "random_problem", "with_refuges"]

LAYERS = (LayerSpec("BlockLayer", ("block",)), LayerSpec("NodeTopologyLayer", (), "BlockLayer"))


def problem_of(
    free: Sequence[Sequence[int]],
    victims: Sequence[tuple[int, tuple[int, ...], int, str]],
    members: Sequence[tuple[int, ...]],
    *,
    minimums: dict[str, int] | None = None,
    least: int | None = None,
    protected: dict[str, int] | None = None,
    budgets: Sequence[tuple[int, Sequence[int]]] = (),
    blocks: Sequence[str] | None = None,
    rules: Sequence[GatherRule] = (),
    allowed: Sequence[Sequence[bool]] | None = None,
) -> PreemptionProblem:
    """Write a problem down.

    Parameters
    ----------
    free
        What every node has left.
    victims
        Node, amounts, priority and gang (empty for none) of everybody who may leave.
    members
        Request of each member.
    protected
        Members of a gang that may not leave.
    budgets
        Evictions that a budget allows, and whom it covers.
    """
    nodes = [f"n{number + 1}" for number in range(len(free))]
    minimums = minimums or {}
    names = [gang or f"default/v{number}" for number, (*_, gang) in enumerate(victims)]
    jobs = sorted(set(names))
    kept = protected or {}
    shapes = sorted(set(members))
    covered = np.zeros((len(budgets), len(victims)), dtype=np.bool_)
    for row, (_, ones) in enumerate(budgets):
        covered[row, list(ones)] = True
    tree = None
    if blocks is not None:
        tree = build_tree(LAYERS, {name: {"block": block} for name, block in zip(nodes, blocks, strict=True)})
    size = len(free[0])
    return PreemptionProblem(
        nodes=tuple(nodes),
        free=np.array(free, dtype=np.int64).T.reshape(size, len(free)),
        shapes=tuple(
            MemberShape(
                request=np.array(shape, dtype=np.int64),
                allowed=np.array(allowed[number] if allowed else [True] * len(nodes), dtype=np.bool_),
            )
            for number, shape in enumerate(shapes)
        ),
        roles=(
            Role(
                name="default/big",
                members=tuple(
                    Member(f"default/m{number}", shapes.index(shape), number)
                    for number, shape in enumerate(members)
                ),
                min_available=len(members) if least is None else least,
            ),
        ),
        candidates=Candidates(
            keys=tuple(f"default/v{number}" for number in range(len(victims))),
            node=np.array([node for node, *_ in victims], dtype=np.int64),
            amounts=np.array([amounts for _, amounts, *_ in victims], dtype=np.int64).T.reshape(
                size, len(victims)
            ),
            priority=np.array([priority for _, _, priority, _ in victims], dtype=np.int64),
            job=np.array([jobs.index(name) for name in names], dtype=np.int64),
            covered=covered,
        ),
        jobs=Jobs(
            names=tuple(jobs),
            least=np.array([minimums.get(job, 1) for job in jobs], dtype=np.int64),
            running=np.array([names.count(job) + kept.get(job, 0) for job in jobs], dtype=np.int64),
            protected=np.array([kept.get(job, 0) for job in jobs], dtype=np.int64),
            gang=np.array([job in minimums for job in jobs], dtype=np.bool_),
        ),
        budgets=np.array([allows for allows, _ in budgets], dtype=np.int64),
        tree=tree,
        spec=NetworkTopologySpec(tuple(rules)),
    )


def random_problem(seed: int, *, most: int = 8) -> PreemptionProblem:
    """Make a problem of at most four nodes and ``most`` victims."""
    rng = random.Random(seed)
    size = rng.choice([1, 2])
    nodes = rng.randint(1, 4)
    gangs = [f"default/g{number}" for number in range(rng.randint(0, 3))]
    victims = [
        (
            rng.randrange(nodes),
            tuple(rng.randint(1, 4) for _ in range(size)),
            rng.choice([-5, 0, 0, 1, 10]),
            rng.choice([*gangs, "", ""]),
        )
        for _ in range(rng.randint(0, most))
    ]
    members = [tuple(rng.randint(0, 5) for _ in range(size)) for _ in range(rng.randint(1, 2))]
    members = [rng.choice(members) for _ in range(rng.randint(1, 3))]
    blocks = [rng.choice(["a", "b"]) for _ in range(nodes)] if rng.random() < 0.4 else None
    rules = []
    if blocks is not None:
        strategy = rng.choice(["MustGather", "PreferGather"])
        rules.append(GatherRule("BlockLayer", strategy, rng.choice([0, 0, 2])))
    budgets = [
        (rng.randint(0, 2), [one for one in range(len(victims)) if rng.random() < 0.4])
        for _ in range(rng.randint(0, 2))
    ]
    problem = problem_of(
        [[rng.randint(-1, 3) for _ in range(size)] for _ in range(nodes)],
        victims,
        members,
        minimums={gang: rng.randint(0, 4) for gang in gangs},
        least=rng.choice([None, None, rng.randint(0, len(members))]),
        protected={gang: 1 for gang in gangs if rng.random() < 0.2},
        budgets=budgets,
        blocks=blocks,
        rules=rules,
        allowed=[[rng.random() < 0.9 for _ in range(nodes)] for _ in range(len(set(members)))],
    )
    if rng.random() < 0.6:
        return problem
    costs = np.array([rng.choice([0, 0, 3, 7]) for _ in victims], dtype=np.int64)
    return attrs.evolve(problem, candidates=attrs.evolve(problem.candidates, restart=costs))


def gang_problem(seed: int) -> PreemptionProblem:
    """Make a problem of two or three nodes with seven pods of two gangs."""
    rng = random.Random(seed)
    nodes, gangs = rng.randint(2, 3), ("default/g", "default/h")
    victims = [
        (rng.randrange(nodes), (rng.randint(1, 3),), rng.choice((0, 0, 0, 2)), rng.choice(gangs))
        for _ in range(7)
    ]
    members = [(rng.randint(2, 5),)] * rng.randint(1, 2)
    return problem_of(
        [[rng.randint(0, 2)] for _ in range(nodes)],
        victims,
        members,
        minimums={gang: rng.randint(1, 4) for gang in gangs},
        budgets=[(rng.randint(0, 2), range(rng.randint(0, 7)))],
        allowed=[[rng.random() < 0.8 for _ in range(nodes)]],
    )


def with_refuges(problem: PreemptionProblem, seed: int) -> PreemptionProblem:
    """Let most candidates move to some of the nodes."""
    rng = random.Random(seed)
    table = problem.candidates
    kinds = sorted({tuple(column) for column in table.amounts.T.tolist()})
    shapes = tuple(
        MemberShape(
            request=np.array(kind, dtype=np.int64),
            allowed=np.array([rng.random() < 0.7 for _ in problem.nodes], dtype=np.bool_),
        )
        for kind in kinds
    )
    kind = [kinds.index(tuple(column)) if rng.random() < 0.8 else -1 for column in table.amounts.T.tolist()]
    refuges = Refuges(np.array(kind, dtype=np.int64), shapes)
    return attrs.evolve(problem, refuges=refuges)


def one_member(seed: int) -> PreemptionProblem:
    """Give a problem of one member without a network."""
    problem = random_problem(seed, most=7)
    role = problem.roles[0]
    member = attrs.evolve(role.members[0], shape=0)
    return attrs.evolve(
        problem,
        roles=(attrs.evolve(role, members=(member,), min_available=1),),
        shapes=(problem.shapes[role.members[0].shape],),
        tree=None,
        spec=ANYWHERE,
    )


def pooled(problem: PreemptionProblem, seed: int) -> PreemptionProblem:
    """Let the member take of a quota to which some candidates, wherever they are, give something back."""
    rng = random.Random(seed)
    gives = [[rng.choice([0, 0, 1, 2, 3]) for _ in range(len(problem.candidates))] for _ in range(2)]
    pool = Pool(
        room=np.array([rng.randint(-2, 4), rng.randint(0, 4)], dtype=np.int64),
        uses=np.array([[rng.randint(0, 3), rng.randint(0, 3)]], dtype=np.int64),
        gives=np.array(gives, dtype=np.int64).reshape(2, -1),
    )
    return attrs.evolve(problem, pools=(pool,))
