"""What makes one placement of a gang better than another, as numbers.

In this order, smaller is better in each part:

1. members placed, negated (the minimum is a constraint);
2. domains opened on the layers with a PreferGather rule, in the order of the rules, then on the other layers
   from the top down, nodes last; a domain with bound members of the gang costs nothing. Behind a layer with a
   BalancedGather rule comes how unevenly interchangeable members lie there: the squares of their numbers per
   domain, bound ones included, summed;
3. nearness: how far the used domains stay behind the domain with most pods of the same selector, summed,
   from the nodes up (absent without such pods);
4. tightness: offer slots of the used domains, summed, from the nodes up: what is left stays whole for the
   next job;
5. what the members are worth on their nodes, negated, where the demand says what: scores of the nodes before
   any member is there, summed. Of interchangeable members the best sum is taken; of several shapes only alike
   nodes are settled so, and the sum is no part of the objective;
6. names: among equal ones the placement that fills the first nodes of the leaf order most. In the leaf order
   domains with more bound members, then more near pods, then more slots, then the smaller name come first.

Where the demand asks for the tightest fit, and no rule names the nodes, the number of opened nodes comes
behind the tightness. Offer slots are counted whole then, and not only as far as members could take them: of
two nodes that hold everybody the smaller one is tighter.

Consecutive ranks are dealt along the leaf order, so neighbours part only where a domain ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.gang.demand import GangDemand, IntVector
from koordcore.model.gangs import GangFit
from koordcore.model.proofs import TreeProblem
from koordcore.topology.network import CLUSTER_LAYER, NetworkTopology


def objective_order(tree: NetworkTopology, demand: GangDemand) -> tuple[int, ...]:
    """Order the depths 1.. in which opened domains are counted."""
    layers = tree.layers
    preferred = [layers.index(layer) + 1 for layer in demand.spec.prefer_layers(layers)]
    return (*preferred, *(depth for depth in range(1, len(layers) + 1) if depth not in preferred))


@record(eq=False, kw_only=True)
class Terms:
    """The objective's coefficients per domain, and the constraints per depth.

    Parameters
    ----------
    tree, demand
        What they were made from.
    slots
        Offer slots of every domain after rounding down to the multiples, shape (T,).
    offered
        The same before.
    bound, near
        Bound members and near pods of every domain, shape (T,).
    multiples
        Pod-count multiple per depth, 1 where none binds; the root's first.
    must_depth
        Depth of which one domain only may be used, 0 for none; None when it can never be met.
    order
        Depths in the order in which opened domains are counted.
    even
        Depths over whose domains members are spread evenly.
    """

    tree: NetworkTopology
    demand: GangDemand
    slots: IntVector
    offered: IntVector
    bound: IntVector
    near: IntVector
    multiples: tuple[int, ...]
    must_depth: int | None
    order: tuple[int, ...]
    even: tuple[int, ...] = ()

    @property
    def snug(self) -> bool:
        """How tight the used domains are counts before how many nodes they are."""
        leaf = len(self.tree.layers)
        wished = self.demand.spec.prefer_layers(self.tree.layers)
        return self.demand.fit is GangFit.TIGHTEST_FIT and self.tree.layers[leaf - 1] not in wished

    @property
    def upwards(self) -> range:
        """Depths from the nodes up."""
        return range(len(self.tree.layers), 0, -1)

    @cached_property
    def nearest(self) -> tuple[int, ...]:
        """Most near pods of one domain, per depth."""
        starts = self.tree.layer_start
        return tuple(
            int(self.near[starts[depth] : starts[depth + 1]].max(initial=0))
            for depth in range(len(self.tree.layers) + 1)
        )

    @property
    def has_near(self) -> bool:
        """There are pods to be near to."""
        return self.nearest[0] > 0

    @cached_property
    def _ordered(self) -> tuple[IntVector, IntVector]:
        """Domains with slots, by parent and then in leaf order; and where each parent's begin."""
        open_ones = np.flatnonzero(self.slots > 0)
        open_ones = open_ones[open_ones > 0]
        keys = (
            open_ones,
            -self.slots[open_ones],
            -self.near[open_ones],
            -self.bound[open_ones],
            self.tree.parent[open_ones],
        )
        ordered = open_ones[np.lexsort(keys)]
        starts = np.searchsorted(self.tree.parent[ordered], np.arange(len(self.tree) + 1))
        return ordered, starts

    def child_order(self, domain: int) -> IntVector:
        """Give the children of a domain in leaf order; those without slots are left out."""
        ordered, starts = self._ordered
        return ordered[starts[domain] : starts[domain + 1]]

    @cached_property
    def scores(self) -> IntVector:
        """What a member is worth on each node, shape (nodes,); empty where that tells no nodes apart."""
        shapes = {member.shape for role in self.demand.roles for member in role.members}
        scores = self.demand.shapes[min(shapes)].scores if len(shapes) == 1 else np.zeros(0, dtype=np.int64)
        worth = scores[self.slots[self.tree.first_node :] > 0] if len(scores) else scores
        uneven = len(worth) and worth.min() < worth.max()
        # Members that lie evenly over nodes are not put where they score best.
        return scores if uneven and len(self.tree.layers) not in self.even else np.zeros(0, dtype=np.int64)

    @cached_property
    def penalties(self) -> IntVector:
        """How far each node's score stays behind the best, shape (nodes,); empty like ``scores``."""
        if not len(self.scores):
            return self.scores
        best = int(self.scores[self.slots[self.tree.first_node :] > 0].max())
        behind: IntVector = np.maximum(0, best - self.scores)
        return behind

    def scored(self, counts: IntVector) -> tuple[int, ...]:
        """What members per node are worth, negated: the last part of the objective, if scores count."""
        return (-int((self.scores * counts).sum()),) if len(self.scores) else ()

    def evaluate(self, counts: IntVector, summed: IntVector | None = None) -> tuple[int, ...]:
        """Compute the objective of member counts per node, shape (nodes,); their sums may be known, (T,)."""
        totals = self.tree.sum_up(counts) if summed is None else summed
        starts = self.tree.layer_start
        used = {
            depth: np.flatnonzero(totals[starts[depth] : starts[depth + 1]]) + starts[depth]
            for depth in range(1, len(self.tree.layers) + 1)
        }
        opened: list[int] = []
        for depth in self.order:
            opened.append(int((self.bound[used[depth]] == 0).sum()))
            if depth in self.even:
                there = self.bound[used[depth]]
                opened.append(int(((totals[used[depth]] + there) ** 2 - there**2).sum()))
        last = [opened.pop()] if self.snug else []
        near = [
            int(self.nearest[depth] * len(used[depth]) - self.near[used[depth]].sum())
            for depth in self.upwards
            if self.has_near
        ]
        tight = [int(self.slots[used[depth]].sum()) for depth in self.upwards]
        return (-int(counts.sum()), *opened, *near, *tight, *last)


def floored_slots(
    tree: NetworkTopology, slots: IntVector, bound: IntVector, multiples: Sequence[int]
) -> IntVector:
    """Sum offer slots over the domains, rounding each down so that the multiple of its layer can be met.

    ``slots`` has shape (nodes,), ``bound`` counts the bound members of every domain, shape (T,).
    """
    totals = np.zeros(len(tree), dtype=np.int64)
    totals[tree.first_node :] = slots
    for depth in range(len(tree.layers), -1, -1):
        span = slice(tree.layer_start[depth], tree.layer_start[depth + 1])
        totals[span] = np.maximum(0, totals[span] - (totals[span] + bound[span]) % multiples[depth])
        if depth:
            np.add.at(totals, tree.parent[span], totals[span])
    return totals


def terms_of(tree: NetworkTopology, demand: GangDemand, slots: IntVector) -> Terms:
    """Collect coefficients and constraints for offer slots per node (all shapes together)."""
    given = demand.spec.multiples
    multiples = tuple(given.get(layer, 1) for layer in (CLUSTER_LAYER, *tree.layers))
    whole = all(multiple == 1 for multiple in multiples)
    must_layer = demand.spec.must_layer(tree.layers)
    nobody = np.zeros(len(tree), dtype=np.int64)
    bound = tree.sum_up(demand.bound) if demand.bound.any() else nobody
    offered = tree.sum_up(slots)
    return Terms(
        tree=tree,
        demand=demand,
        slots=offered if whole else floored_slots(tree, slots, bound, multiples),
        offered=offered,
        bound=bound,
        near=tree.sum_up(demand.near) if demand.near.any() else nobody,
        multiples=multiples,
        must_depth=tree.depth_of(must_layer) if must_layer else 0,
        order=objective_order(tree, demand),
        even=even_depths(tree, demand) if demand.uniform else (),
    )


def even_depths(tree: NetworkTopology, demand: GangDemand) -> tuple[int, ...]:
    """List the depths over whose domains members are spread evenly."""
    return tuple(tree.layers.index(layer) + 1 for layer in demand.spec.balanced_layers(tree.layers))


def gathering_problem(terms: Terms, slots: IntVector) -> TreeProblem:
    """State what is asked for members that are all alike, for a proof of the answer.

    ``slots`` are the offers per node as :func:`terms_of` got them, shape (nodes,).
    """
    tree, demand = terms.tree, terms.demand
    zeros = np.zeros(len(tree.nodes), dtype=np.int64)
    return TreeProblem(
        parent=tree.parent,
        depth=tree.depth,
        slots=slots,
        bound=demand.bound if len(demand.bound) else zeros,
        near=demand.near if len(demand.near) else zeros,
        multiples=terms.multiples,
        must_depth=-1 if terms.must_depth is None else terms.must_depth,
        order=terms.order,
        # A layer that is not there refuses even a gang that asks for nobody.
        least=max(demand.least, 1) if terms.must_depth is None else demand.least,
        size=demand.size,
        even=tuple(depth for depth in terms.order if depth in terms.even),
        worth=terms.scores if len(terms.scores) else None,
        snug=terms.snug,
    )


def domains_used(
    tree: NetworkTopology, counts: IntVector, summed: IntVector | None = None
) -> immutabledict[str, int]:
    """Count the domains with members, per layer from the top down; the sums of counts may be known."""
    totals = tree.sum_up(counts) if summed is None else summed
    return immutabledict(
        (layer, int(np.count_nonzero(totals[start:end])))
        for layer, (start, end) in zip(tree.layers, pairwise(tree.layer_start[1:]), strict=True)
    )
