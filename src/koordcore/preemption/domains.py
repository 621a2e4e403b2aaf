"""Domains of the network that may hold a job's members."""

from __future__ import annotations

import numpy as np

from koordcore.preemption.problem import Domains, PreemptionProblem


def depths_of(problem: PreemptionProblem) -> tuple[int, ...]:
    """Layers in which all members may be gathered, deepest first; 0 is the whole cluster."""
    tree = problem.tree
    if tree is None:
        return (0,)
    must = problem.spec.must_layer(tree.layers)
    top = tree.depth_of(must) if must else 0
    if top is None:
        return ()
    return tuple(range(len(tree.layers), top - 1, -1))


def domains_at(problem: PreemptionProblem, depth: int) -> Domains:
    """Domains of a depth that may hold the members beside those that run.

    Where these lie in several, members gather with all of them further up, or in one that has some of them
    where nothing further up will do.
    """
    tree = problem.tree
    if tree is None:
        return problem.homes or Domains(np.zeros(len(problem.nodes), dtype=np.int64), 1)
    if not tree.nodes:
        return Domains(np.full(len(problem.nodes), -1, dtype=np.int64), 0)
    first, count = tree.layer_start[depth], len(tree.domains_at(depth))
    inside = problem.place >= 0
    home = np.where(inside, tree.ancestors[depth][np.maximum(problem.place, 0)] - first, -1)
    domains = Domains(home, count)
    if not len(problem.bound):
        return domains
    held = np.unique(home[(problem.bound > 0) & inside])
    kept = np.ones(count, dtype=bool)
    if len(held):
        kept[:] = False
        kept[held] = len(held) == 1 or depth == depths_of(problem)[-1]
    return domains.only(kept)
