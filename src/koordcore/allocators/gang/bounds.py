"""What can be said of a gang's placement before anything is searched.

Every shape and every resource gives a covering problem of its own: so many slots, or so much of an amount,
have to come from the domains that are used. Each alone asks for less than all of them together, so what it
says is a proof: how many domains are needed at least, and which nodes no placement with so few can use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.allocators.gang.demand import IntVector
from koordcore.allocators.gang.objective import Terms

BoolVector: TypeAlias = NDArray[np.bool_]

_MOST_STEPS: Final = 1024
"""Nodes opened beyond which blocks are judged without looking at how many of their nodes are used."""
_NOTHING: Final = -(1 << 60)


@record(eq=False)
class Need:
    """What a placement of all members must gather: ``asked``, from ``per_node`` shape (nodes,)."""

    per_node: IntVector
    asked: int


def needs_of(terms: Terms) -> list[Need]:
    """List the slots per shape and the amounts per resource that all members ask for."""
    demand = terms.demand
    wanted = np.zeros(len(demand.shapes), dtype=np.int64)
    for role in demand.roles:
        for member in role.members:
            wanted[member.shape] += 1
    usable = np.stack([shape.slots > 0 for shape in demand.shapes]).any(axis=0)
    needs = [
        Need(np.minimum(shape.slots, count), int(count))
        for shape, count in zip(demand.shapes, wanted, strict=True)
    ]
    for row in range(demand.free.shape[0]):
        asked = sum(int(count) * int(s.request[row]) for count, s in zip(wanted, demand.shapes, strict=True))
        needs.append(Need(np.maximum(demand.free[row], 0) * usable, asked))
    return needs


def fewest_domains(terms: Terms, depth: int) -> int:
    """Bound from below how many domains of a depth all members need, bound ones being free.

    Counted per shape and per resource: the largest domains first until the demand is covered.
    """
    tree = terms.tree
    span = slice(tree.layer_start[depth], tree.layer_start[depth + 1])
    held = terms.bound[span] > 0
    fewest = 0
    for need in needs_of(terms):
        amounts = tree.sum_up(need.per_node)[span]
        asked = need.asked - int(amounts[held].sum())
        if asked > 0:
            covered = np.cumsum(np.sort(amounts[~held])[::-1])
            fewest = max(fewest, int(np.searchsorted(covered, asked)) + 1)
    return fewest


def useful_nodes(terms: Terms, most: Mapping[int, int]) -> BoolVector:
    """Mark the nodes that a placement of all members may use when few domains may be opened.

    Parameters
    ----------
    most
        Most domains to be opened, by depth; a depth that is left out has no limit.

    Returns
    -------
    BoolVector
        Shape (nodes,). A node that is not marked occurs in no such placement; none is marked when there is no
        such placement. Nodes below a domain with bound members are judged by the limits of their own depth
        only, since what they use costs nothing.
    """
    tree, leaf = terms.tree, len(terms.tree.layers)
    needs = needs_of(terms)
    usable = np.zeros(len(tree.nodes), dtype=np.bool_)
    for shape in terms.demand.shapes:
        usable |= shape.slots > 0
    before = -1
    while np.count_nonzero(usable) not in (0, before):
        before = int(np.count_nonzero(usable))
        for depth in sorted(most):
            useful = _useful(terms, needs, usable, depth, most)
            usable &= useful[tree.ancestors[depth] - tree.layer_start[depth]]
        if leaf > 1 and leaf in most and not terms.bound[0] and most[leaf] <= _MOST_STEPS:
            useful = _useful_parents(terms, needs, usable, most)
            usable &= useful[tree.ancestors[leaf - 1] - tree.layer_start[leaf - 1]]
    return usable


def _group_depth(terms: Terms, depth: int, most: Mapping[int, int]) -> int:
    """Give the deepest depth above of which a single domain may be used; 0 for the cluster."""
    if terms.bound[0]:
        return 0
    return max((upper for upper, number in most.items() if upper < depth and number == 1), default=0)


def _groups(terms: Terms, depth: int, above: int) -> IntVector:
    """Number the domains of ``depth`` by their ancestor at depth ``above``, from 0."""
    tree = terms.tree
    ancestor = np.arange(tree.layer_start[depth], tree.layer_start[depth + 1], dtype=np.int64)
    for _ in range(depth - above):
        ancestor = tree.parent[ancestor]
    return ancestor - tree.layer_start[above]


def _useful(
    terms: Terms, needs: Sequence[Need], usable: BoolVector, depth: int, most: Mapping[int, int]
) -> BoolVector:
    """Mark the domains of one depth that cover every need together with the best others beside them."""
    tree = terms.tree
    above = _group_depth(terms, depth, most)
    group = _groups(terms, depth, above)
    span = slice(tree.layer_start[depth], tree.layer_start[depth + 1])
    held = terms.bound[span] > 0
    useful = np.ones(len(group), dtype=np.bool_)
    for need in needs:
        amounts = tree.sum_up(need.per_node * usable)[span]
        asked = need.asked - int(amounts[held].sum())
        fresh = np.where(held, 0, amounts)
        number = most[depth]
        all_best = _largest(fresh, group, number, tree.layer_start[above + 1] - tree.layer_start[above])
        enough = all_best[group] >= asked
        if number > 0:
            others = _largest(fresh, group, number - 1, tree.layer_start[above + 1] - tree.layer_start[above])
            useful &= enough & (held | (fresh >= asked - others[group]))
        else:
            useful &= enough & held
    return useful


def _largest(amounts: IntVector, group: IntVector, number: int, groups: int) -> IntVector:
    """Sum the ``number`` largest amounts of every group, shape (groups,)."""
    sums = np.zeros(groups, dtype=np.int64)
    order = np.lexsort((-amounts, group))
    ordered = group[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    np.add.at(sums, ordered[rank < number], amounts[order][rank < number])
    return sums


def _useful_parents(
    terms: Terms, needs: Sequence[Need], usable: BoolVector, most: Mapping[int, int]
) -> BoolVector:
    """Mark the domains above the nodes whose best nodes, with the best ones of few others, are enough."""
    tree, depth = terms.tree, len(terms.tree.layers) - 1
    above = _group_depth(terms, depth, most)
    group, steps = _groups(terms, depth, above), most[depth + 1]
    parents = tree.layer_start[depth + 1] - tree.layer_start[depth]
    useful = np.ones(parents, dtype=np.bool_)
    for need in needs:
        curves = _curves(
            need.per_node * usable, tree.ancestors[depth] - tree.layer_start[depth], parents, steps
        )
        for number in np.unique(group):
            inside = np.flatnonzero((group == number) & useful)
            others = _others(curves[inside], most.get(depth, parents) - 1)
            best = (curves[inside] + others[::-1]).max(axis=1, initial=_NOTHING)
            useful[inside] = best >= need.asked
    return useful


def _curves(amounts: IntVector, parent: IntVector, parents: int, steps: int) -> NDArray[np.int64]:
    """Sum the k largest amounts below every parent, k = 0 .. steps, shape (parents, steps + 1)."""
    order = np.lexsort((-amounts, parent))
    ordered = parent[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    curves = np.zeros((parents, steps + 1), dtype=np.int64)
    kept = rank < steps
    curves[ordered[kept], rank[kept] + 1] = amounts[order][kept]
    summed: NDArray[np.int64] = np.cumsum(curves, axis=1)
    return summed


def _others(curves: NDArray[np.int64], number: int) -> IntVector:
    """Bound what the k best nodes of ``number`` further parents give, k = 0 .. steps."""
    steps = curves.shape[1]
    most = int(curves[:, -1].max(initial=0)) * max(0, number)
    if number <= 0 or not len(curves):
        return np.zeros(steps, dtype=np.int64)
    # The best nodes anywhere, at most what so many of the best parents have; exact for a single one.
    single: IntVector = curves.max(axis=0)
    if number == 1:
        return single
    increments = np.sort(np.diff(curves, axis=1).ravel())[::-1][: steps - 1]
    anywhere = np.concatenate(([0], np.cumsum(increments)))
    anywhere = np.concatenate((anywhere, np.full(steps - len(anywhere), anywhere[-1])))
    capped: IntVector = np.minimum(anywhere, most)
    return capped
