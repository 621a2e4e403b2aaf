"""Small random gangs on small random networks."""

from __future__ import annotations

import attrs
import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from koordcore.allocators.gang.demand import GangDemand, Member, Role, Shape
from koordcore.model.gangs import GangFit, GatherRule, NetworkTopologySpec
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree, order_layers
from tests.reference.gang_placement import Instance

LAYERS = ("SpineLayer", "BlockLayer", NODE_LAYER)
OPEN_NODES = Instance(
    paths=(("n0",), ("n1",)),
    free=(),
    requests=((),),
    slots=((2, 2),),
    roles=(((2,), 0, 0),),
    must_depth=0,
    prefer_depths=(1,),
    multiples=(1, 1),
    bound=(1, 1),
    near=(0, 0),
    even_depths=(1,),
)
"""Two members for two nodes that have one each: one node would be as few, one each is even."""


def tree_of(paths: tuple[tuple[str, ...], ...]) -> NetworkTopology:
    """Build the tree whose nodes have these paths."""
    names = LAYERS[-len(paths[0]) :]
    specs = [
        LayerSpec(name, (name,) if name != NODE_LAYER else (), names[position - 1] if position else "")
        for position, name in enumerate(names)
    ]
    labels = {path[-1]: dict(zip(names[:-1], path[:-1], strict=True)) for path in paths}
    return build_tree(order_layers(specs), labels)


def demand_of(problem: Instance, tree: NetworkTopology) -> GangDemand:
    """Write an instance as the planner's demand."""
    layers = ("ClusterTopologyLayer", *tree.layers)
    words = {
        d: "BalancedGather" if d in problem.even_depths else "PreferGather" for d in problem.prefer_depths
    }
    rules = [GatherRule(layers[d], words[d], problem.multiples[d]) for d in problem.prefer_depths]
    must = problem.must_depth
    if must:
        multiple = 0 if must in problem.prefer_depths else problem.multiples[must]
        rules.append(GatherRule(layers[must], "MustGather", multiple))
    rules.append(GatherRule(layers[0], "PreferGather", problem.multiples[0]))
    spec = NetworkTopologySpec(tuple(rules))
    roles, number = [], 0
    for position, (members, least, own) in enumerate(problem.roles):
        named = []
        for shape, count in enumerate(members):
            for _ in range(count):
                named.append(Member(f"d/w-{number}", shape, number))
                number += 1
        layer = layers[own] if own else ""
        roles.append(Role(name=f"r{position}", members=tuple(named), min_available=least, must_layer=layer))
    where = [[path[-1] for path in problem.paths].index(node) for node in tree.nodes]
    return GangDemand(
        roles=tuple(roles),
        shapes=tuple(
            Shape(
                slots=np.array(slots, dtype=np.int64)[where],
                request=np.array(request, dtype=np.int64),
                scores=np.array(problem.scores, dtype=np.int64)[where] if problem.scores else no_scores(),
            )
            for slots, request in zip(problem.slots, problem.requests, strict=True)
        ),
        free=np.array(problem.free, dtype=np.int64).reshape(len(problem.free), len(where))[:, where],
        spec=spec,
        bound=np.array(problem.bound, dtype=np.int64)[where],
        near=np.array(problem.near, dtype=np.int64)[where],
        min_roles=problem.min_roles,
        fit=GangFit.TIGHTEST_FIT if problem.snug else GangFit.FEWEST_NODES,
    )


def no_scores() -> NDArray[np.int64]:
    """Scores that say nothing."""
    return np.zeros(0, dtype=np.int64)


@st.composite
def scored_instances(draw: st.DrawFn) -> Instance:
    """Draw interchangeable members that are worth more on some nodes."""
    problem = draw(uniform_instances())
    scores = tuple(draw(st.integers(0, 3)) for _ in problem.paths)
    return attrs.evolve(problem, scores=scores)


@st.composite
def even_instances(draw: st.DrawFn) -> Instance:
    """Draw interchangeable members that are to lie evenly over the domains of some layers."""
    problem = draw(uniform_instances())
    even = tuple(depth for depth in problem.prefer_depths if draw(st.booleans()))
    must = problem.must_depth if problem.must_depth not in even else 0
    return attrs.evolve(problem, even_depths=even, must_depth=must)


@st.composite
def snug_instances(draw: st.DrawFn) -> Instance:
    """Draw members that are to take nodes of which the least is left over, before few nodes."""
    problem = draw(scored_instances() | mixed_instances() | sliced_instances())
    return attrs.evolve(problem, snug=True)


@st.composite
def networks(draw: st.DrawFn, nodes: int) -> tuple[tuple[str, ...], ...]:
    """Draw nodes with their paths; one to three layers."""
    count = draw(st.integers(1, nodes))
    depth = draw(st.integers(1, 3))
    paths = []
    for number in range(count):
        spine, block = draw(st.integers(0, 1)), draw(st.integers(0, 1))
        full = (f"s{spine}", f"s{spine}b{block}", f"n{number}")
        paths.append(full[3 - depth :])
    return tuple(paths)


def _slots(
    draw: st.DrawFn, free: tuple[tuple[int, ...], ...], requests: tuple[tuple[int, ...], ...]
) -> tuple[tuple[int, ...], ...]:
    """Draw what each node takes of each shape by itself, which is never more than its amounts let it."""
    return tuple(
        tuple(
            min(
                (
                    draw(st.sampled_from((9, 9, 1, 0))),
                    *(amounts[node] // want for amounts, want in zip(free, request, strict=True) if want),
                )
            )
            for node in range(len(free[0]))
        )
        for request in requests
    )


def _multiples(draw: st.DrawFn, depth: int, ruled: tuple[int, ...]) -> tuple[int, ...]:
    if draw(st.booleans()):
        return (1,) * (depth + 1)
    return tuple(
        draw(st.sampled_from((1, 1, 2, 3))) if level in ruled or level == 0 else 1
        for level in range(depth + 1)
    )


@st.composite
def uniform_instances(draw: st.DrawFn) -> Instance:
    """Draw interchangeable members, bound and near pods, multiples and preferences."""
    paths = draw(networks(6))
    depth, nodes = len(paths[0]), len(paths)
    slots = tuple(draw(st.integers(0, 3)) for _ in paths)
    size = draw(st.integers(1, 6))
    prefer = tuple(draw(st.permutations(range(1, depth + 1))))[: draw(st.integers(0, depth))]
    some = st.integers(0, 2)
    bound = tuple(draw(some) for _ in paths) if draw(st.integers(0, 3)) == 0 else (0,) * nodes
    near = tuple(draw(some) for _ in paths) if draw(st.integers(0, 3)) == 0 else (0,) * nodes
    must = draw(st.integers(0, depth))
    return Instance(
        paths=paths,
        free=(),
        requests=((),),
        slots=(slots,),
        roles=(((size,), draw(st.integers(0, size)), 0),),
        must_depth=must,
        prefer_depths=prefer,
        multiples=_multiples(draw, depth, (*prefer, must)),
        bound=bound,
        near=near,
    )


@st.composite
def mixed_instances(draw: st.DrawFn) -> Instance:
    """Draw two or three shapes in one or two roles that compete for one or two resources."""
    paths = draw(networks(4))
    depth, nodes = len(paths[0]), len(paths)
    shapes, rows = draw(st.integers(2, 3)), draw(st.integers(1, 2))
    requests = tuple(tuple(draw(st.integers(0, 4)) for _ in range(rows)) for _ in range(shapes))
    roles: list[tuple[tuple[int, ...], int, int]] = []
    for _ in range(draw(st.integers(1, 2)) if shapes == 2 else 1):
        members = tuple(draw(st.integers(0, 2)) for _ in range(shapes))
        if not roles and not any(members):
            members = (1, *members[1:])  # nobody is no gang
        roles.append((members, draw(st.integers(0, sum(members))), draw(st.sampled_from((0, 0, depth, 1)))))
    prefer = tuple(draw(st.permutations(range(1, depth + 1))))[: draw(st.integers(0, depth))]
    one = st.integers(0, 1)
    must = draw(st.sampled_from((0, 0, *range(1, depth + 1))))
    free = tuple(tuple(draw(st.integers(0, 8)) for _ in paths) for _ in range(rows))
    return Instance(
        paths=paths,
        free=free,
        requests=requests,
        slots=_slots(draw, free, requests),
        roles=tuple(roles),
        must_depth=must,
        prefer_depths=prefer,
        multiples=_multiples(draw, depth, (*prefer, must)),
        bound=tuple(draw(one) for _ in paths) if draw(st.integers(0, 4)) == 0 else (0,) * nodes,
        near=tuple(draw(one) for _ in paths) if draw(st.integers(0, 4)) == 0 else (0,) * nodes,
        min_roles=draw(st.sampled_from((None, 1))) if len(roles) > 1 else None,
    )


@st.composite
def sliced_instances(draw: st.DrawFn) -> Instance:
    """Draw equal slices, each in one domain of a layer, and a few members that are free."""
    paths = draw(networks(4))
    depth, nodes = len(paths[0]), len(paths)
    slices, size, free = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
    own = draw(st.integers(1, depth))
    same = draw(st.booleans())
    roles = [((size, 0), size, own)] * slices
    roles += [((free, 0) if same else (0, free), free, 0)] * bool(free)
    amounts = (tuple(draw(st.integers(0, 8)) for _ in paths),)
    requests = ((draw(st.integers(1, 4)),), (draw(st.integers(0, 4)),))
    return Instance(
        paths=paths,
        free=amounts,
        requests=requests,
        slots=_slots(draw, amounts, requests),
        roles=tuple(roles),
        must_depth=draw(st.sampled_from((0, 0, *range(1, depth + 1)))),
        prefer_depths=tuple(draw(st.permutations(range(1, depth + 1))))[: draw(st.integers(0, depth))],
        multiples=(1,) * (depth + 1),
        bound=(0,) * nodes,
        near=tuple(draw(st.integers(0, 1)) for _ in paths) if draw(st.booleans()) else (0,) * nodes,
    )
