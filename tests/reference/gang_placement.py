"""Placement of gangs by trying everything: short, slow, and sharing nothing with the planner."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import attrs


@attrs.frozen(kw_only=True)
class Instance:
    """A tiny placement problem in plain values.

    ``paths`` names the domains of every node from the top layer down to the node itself; ``free`` and
    ``requests`` are per resource; ``slots`` per shape and node; ``roles`` are (members per shape, minimum,
    own must depth); depths count from 1 for the top layer, 0 is the cluster. ``scores`` are what a member is
    worth on each node; they come last in the objective, negated. Over the domains of ``even_depths`` members
    lie evenly: the squares of their numbers count behind the domains opened. Where it is ``snug``,
    nodes opened count behind the offers of the used domains, unless a rule names the nodes.
    """

    paths: tuple[tuple[str, ...], ...]
    free: tuple[tuple[int, ...], ...]
    requests: tuple[tuple[int, ...], ...]
    slots: tuple[tuple[int, ...], ...]
    roles: tuple[tuple[tuple[int, ...], int, int], ...]
    must_depth: int = 0
    prefer_depths: tuple[int, ...] = ()
    multiples: tuple[int, ...]
    bound: tuple[int, ...]
    near: tuple[int, ...]
    min_roles: int | None = None
    scores: tuple[int, ...] = ()
    even_depths: tuple[int, ...] = ()
    snug: bool = False


def best_objective(problem: Instance) -> tuple[int, ...] | None:
    """The best objective over all legal placements; None when there is none."""
    offers = _offers(problem)
    values = [_value(problem, counts, offers) for counts in _assignments(problem) if _legal(problem, counts)]
    return min(values, default=None)


def _assignments(problem: Instance) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Counts per node of every (role, shape) class, within slots and amounts."""
    classes = _classes(problem)
    limits = [limit for _, _, limit in classes]

    def fits(node: int, counts: tuple[int, ...]) -> bool:
        per_shape = [0] * len(problem.slots)
        for count, (_, shape, _) in zip(counts, classes, strict=True):
            per_shape[shape] += count
        if any(n > problem.slots[shape][node] for shape, n in enumerate(per_shape)):
            return False
        return all(
            sum(n * problem.requests[shape][row] for shape, n in enumerate(per_shape)) <= free[node]
            for row, free in enumerate(problem.free)
        )

    def extend(node: int, left: list[int]) -> Iterator[tuple[tuple[int, ...], ...]]:
        if node == len(problem.paths):
            yield ()
            return
        for counts in itertools.product(*(range(limit + 1) for limit in left)):
            if fits(node, counts):
                rest = [limit - count for limit, count in zip(left, counts, strict=True)]
                for tail in extend(node + 1, rest):
                    yield (counts, *tail)

    yield from extend(0, limits)


def _classes(problem: Instance) -> list[tuple[int, int, int]]:
    return [
        (role, shape, count)
        for role, (members, _, _) in enumerate(problem.roles)
        for shape, count in enumerate(members)
    ]


def _legal(problem: Instance, assignment: tuple[tuple[int, ...], ...]) -> bool:
    classes = _classes(problem)
    reached = 0
    for role, (_, least, own_depth) in enumerate(problem.roles):
        where = [
            node
            for node, counts in enumerate(assignment)
            for count, (of, _, _) in zip(counts, classes, strict=True)
            if of == role and count
        ]
        total = sum(
            count
            for counts in assignment
            for count, (of, _, _) in zip(counts, classes, strict=True)
            if of == role
        )
        if len({problem.paths[node][:own_depth] for node in where}) > 1:
            return False
        if total >= least:
            reached += 1
        elif total or problem.min_roles is None:
            return False
    if problem.min_roles is not None and reached < problem.min_roles:
        return False
    per_node = [sum(counts) for counts in assignment]
    used = {path[: problem.must_depth] for path, n in zip(problem.paths, per_node, strict=True) if n}
    held = {path[: problem.must_depth] for path, n in zip(problem.paths, problem.bound, strict=True) if n}
    if len(used) > 1 or (held and not used <= held):
        return False
    for depth, multiple in enumerate(problem.multiples):
        totals: dict[tuple[str, ...], int] = {}
        for path, fresh, before in zip(problem.paths, per_node, problem.bound, strict=True):
            totals[path[:depth]] = totals.get(path[:depth], 0) + fresh + before
        if any(total % multiple for total in totals.values()):
            return False
    return True


def _offers(problem: Instance) -> dict[tuple[str, ...], int]:
    """Offer slots of every domain: the shapes' slots together, rounded to what the multiples allow."""
    depth = len(problem.paths[0])
    wanted = [sum(members[shape] for members, _, _ in problem.roles) for shape in range(len(problem.slots))]
    offers = {
        path: sum(
            slots[node] if problem.snug and wanted[shape] else min(slots[node], wanted[shape])
            for shape, slots in enumerate(problem.slots)
        )
        for node, path in enumerate(problem.paths)
    }
    bound = dict(zip(problem.paths, problem.bound, strict=True))
    while True:
        multiple = problem.multiples[depth]
        for path, offer in list(offers.items()):
            if len(path) == depth:
                held = sum(n for node, n in bound.items() if node[:depth] == path)
                offers[path] = max(0, offer - (offer + held) % multiple)
        if depth == 0:
            return offers
        for path, offer in list(offers.items()):
            if len(path) == depth:
                offers[path[:-1]] = offers.get(path[:-1], 0) + offer
        depth -= 1


def _value(
    problem: Instance, assignment: tuple[tuple[int, ...], ...], offers: dict[tuple[str, ...], int]
) -> tuple[int, ...]:
    per_node = [sum(counts) for counts in assignment]
    depths = range(1, len(problem.paths[0]) + 1)
    order = [*problem.prefer_depths, *(depth for depth in depths if depth not in problem.prefer_depths)]

    def used(depth: int) -> set[tuple[str, ...]]:
        return {path[:depth] for path, n in zip(problem.paths, per_node, strict=True) if n}

    def total(amounts: tuple[int, ...], domain: tuple[str, ...]) -> int:
        return sum(n for path, n in zip(problem.paths, amounts, strict=True) if path[: len(domain)] == domain)

    opened = []
    for depth in order:
        opened.append(sum(total(problem.bound, domain) == 0 for domain in used(depth)))
        if depth in problem.even_depths:
            pairs = [(total(tuple(per_node), one), total(problem.bound, one)) for one in used(depth)]
            opened.append(sum((new + old) ** 2 - old**2 for new, old in pairs))
    last = [opened.pop()] if problem.snug and len(problem.paths[0]) not in problem.prefer_depths else []
    near = []
    if any(problem.near):
        for depth in reversed(depths):
            most = max(total(problem.near, path[:depth]) for path in problem.paths)
            near.append(sum(most - total(problem.near, domain) for domain in used(depth)))
    tight = [sum(offers[domain] for domain in used(depth)) for depth in reversed(depths)]
    worth = (
        [-sum(n * score for n, score in zip(per_node, problem.scores, strict=True))] if problem.scores else []
    )
    return (-sum(per_node), *opened, *near, *tight, *last, *worth)
