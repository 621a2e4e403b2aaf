"""The question as arrays: members that want room, pods that could give it, jobs that tie them together."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntMatrix, IntVector
from koordcore._record import record
from koordcore.allocators.gang.demand import Member, Role
from koordcore.errors import ModelError
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.preemption.parties import (
    BoolMatrix,
    ByNode,
    Candidates,
    Jobs,
    MemberShape,
    few_distinct,
    no_counts,
)
from koordcore.preemption.shares import Shares
from koordcore.topology.network import NetworkTopology

ANYWHERE: Final = NetworkTopologySpec()


@record(eq=False, kw_only=True)
class Pool:
    """Something beside the nodes that members use up together, such as a quota.

    Parameters
    ----------
    room
        What is left of each of its resources, shape (Q,); may be negative.
    uses
        What one member of each shape takes, then one pod of each kind that moves, shape (S + K, Q). Only
        resources that somebody asks for bind.
    gives
        What every candidate gives back, shape (Q, V).
    strict
        Shapes of which nobody comes while there is too little of anything, asked for or not.
    """

    room: IntVector
    uses: IntMatrix
    gives: IntMatrix
    strict: frozenset[int] = frozenset()

    def binds_like(self, other: Pool) -> bool:
        """Tell whether another leaves as much, and is used up by the same."""
        return np.array_equal(self.room, other.room) and np.array_equal(self.uses, other.uses)


@record(eq=False)
class Refuges:
    """Where candidates may run on instead of being evicted.

    Parameters
    ----------
    kind
        Kind of each candidate, -1 for those that cannot move, shape (V,). Those of one kind are
        interchangeable for every filter.
    shapes
        Of each kind; K of them. They are numbered on from the members' shapes.
    """

    kind: IntVector
    shapes: tuple[MemberShape, ...]


@record(eq=False)
class Conflict:
    """Something that a dry run found out: more has to leave a node than the amounts alone say.

    Parameters
    ----------
    node
        Row of the node; -1 where somebody else has to leave, wherever that is.
    counts
        Members per shape, and pods per kind that moves, that did not fit there together, shape (S + K,).
    gone
        Candidates that had left it, shape (V,).
    elsewhere
        A filter had a say that looks at other nodes, too.
    unnamed
        And it does not tell who is in the way from there: whoever comes or leaves may make a difference.
    ways
        Candidates on the node, in sets: those members fit there only if one of the sets has left; ``None``
        where that is not known.
    others
        The same of other nodes that were asked as well.
    beside
        Rows of other nodes, with the members per shape that were there then, where those, and who had not
        left anywhere, may have been in the way. Empty where they make no difference.
    """

    node: int
    counts: IntVector
    gone: BoolVector
    elsewhere: bool = False
    ways: tuple[frozenset[int], ...] | None = None
    others: tuple[Conflict, ...] = ()
    beside: tuple[tuple[int, IntVector], ...] = ()
    unnamed: bool = False


@record(eq=False)
class Domains:
    """Sets of nodes, one of which has to hold all members.

    Parameters
    ----------
    home
        Number of the domain of every node, -1 for none, shape (N,).
    count
        How many there are.
    """

    home: IntVector
    count: int

    def mask(self, number: int) -> BoolVector:
        """Nodes of a domain, shape (N,)."""
        nodes: BoolVector = self.home == number
        return nodes

    def only(self, kept: BoolVector) -> Domains:
        """Keep some of the domains, shape (count,), numbered anew in the same order."""
        number = np.where(kept, np.cumsum(kept) - 1, -1)
        home = np.where(self.home >= 0, number[np.maximum(self.home, 0)], -1) if self.count else self.home
        return Domains(home, int(kept.sum()))


@record(eq=False)
class Multiple:
    """Members of some roles come in multiples per domain.

    Parameters
    ----------
    roles
        Positions of the roles.
    home
        Domain of every node, -1 where none of them may go, shape (N,).
    size
        What their number in a domain is a multiple of.
    held
        How many run in a domain already.
    """

    roles: frozenset[int]
    home: IntVector
    size: int
    held: Mapping[int, int]

    def holds(self, per_node: IntVector) -> bool:
        """Tell whether so many members may go to each node, shape (N,); all that run have to be multiples."""
        inside: dict[int, int] = {}
        for row in np.flatnonzero(per_node).tolist():
            home = int(self.home[row])
            inside[home] = inside.get(home, 0) + int(per_node[row])
        return not inside or all(
            home >= 0 and (inside.get(home, 0) + self.held.get(home, 0)) % self.size == 0
            for home in {**inside, **self.held}
        )


def _nobody() -> BoolVector:
    return np.zeros(0, dtype=np.bool_)


@record(eq=False, kw_only=True)
class PreemptionProblem:
    """One job that wants room.

    Parameters
    ----------
    nodes
        Names, N of them.
    free
        What each has left now, shape (R, N); negative where a node is overcommitted, which matters only if a
        member is placed there.
    shapes
        Shapes that the members refer to.
    roles
        Gangs of the job with their pending members; ``min_available`` is what each still needs.
    candidates, jobs
        Who may leave.
    budgets
        Evictions that each disruption budget still allows, shape (B,).
    tree, spec
        The network and the wish for gathering; no tree for a job that does not care.
    bound
        Members that run or wait already per node, shape (N,); they count for gathering. Empty for none.
    homes
        Domains one of which has to hold all members, where no network says so; earlier ones are preferred.
    gathers
        Pairs of some of the roles, by position, and the domains one of which has to hold all their members.
    multiples
        What binds some of the roles beside ``spec``.
    pools
        What members use up together beside the nodes.
    refuges
        Where candidates may move; None where whoever leaves is evicted.
    shares
        Which roles may start instead of those whose minimum is asked for; None where it is these.
    reaches
        Candidates who may be in the way of members on other nodes than their own, shape (V,), such as by
        devices of several nodes. Empty for none.

    Raises
    ------
    ModelError
        When the parts do not fit together.
    """

    nodes: tuple[str, ...]
    free: IntMatrix
    shapes: tuple[MemberShape, ...]
    roles: tuple[Role, ...]
    candidates: Candidates
    jobs: Jobs
    budgets: IntVector = attrs.field(factory=no_counts)
    tree: NetworkTopology | None = None
    spec: NetworkTopologySpec = ANYWHERE
    bound: IntVector = attrs.field(factory=no_counts)
    homes: Domains | None = None
    gathers: tuple[tuple[frozenset[int], Domains], ...] = ()
    multiples: tuple[Multiple, ...] = ()
    pools: tuple[Pool, ...] = ()
    refuges: Refuges | None = None
    shares: Shares | None = None
    reaches: BoolVector = attrs.field(factory=_nobody)

    def __attrs_post_init__(self) -> None:
        if self.free.shape[1] != len(self.nodes):
            raise ModelError(f"free: expected {len(self.nodes)} nodes, got {self.free.shape[1]}")
        keys = [member.key for role in self.roles for member in role.members]
        if len(set(keys)) != len(keys):
            raise ModelError("a member occurs twice in one job")
        if any(not 0 <= member.shape < len(self.shapes) for role in self.roles for member in role.members):
            raise ModelError("a member refers to a shape that does not exist")

    @cached_property
    def classes(self) -> tuple[tuple[int, int], ...]:
        """Pairs of role and shape that occur: members of one are interchangeable."""
        pairs = {(number, member.shape) for number, role in enumerate(self.roles) for member in role.members}
        return tuple(sorted(pairs))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Members of each class."""
        return tuple(
            sum(member.shape == shape for member in self.roles[role].members) for role, shape in self.classes
        )

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """All members, role by role."""
        return tuple(member for role in self.roles for member in role.members)

    @cached_property
    def all_shapes(self) -> tuple[MemberShape, ...]:
        """Shapes of the members, then of the kinds that may move; S + K of them."""
        return self.shapes if self.refuges is None else (*self.shapes, *self.refuges.shapes)

    @cached_property
    def requests(self) -> IntMatrix:
        """Amounts of each of them, shape (S + K, R)."""
        if not self.all_shapes:
            return np.zeros((0, self.free.shape[0]), dtype=np.int64)
        return np.stack([shape.request for shape in self.all_shapes])

    @cached_property
    def shape_of_kind(self) -> IntVector:
        """Number of the shape that each candidate moves as, -1 for none, shape (V,)."""
        if self.refuges is None:
            return np.full(len(self.candidates), -1, dtype=np.int64)
        return np.where(self.refuges.kind >= 0, self.refuges.kind + len(self.shapes), -1)

    @cached_property
    def by_job(self) -> tuple[IntVector, IntVector]:
        """Candidates ordered by job, and where each job's begin, shape (J + 1,)."""
        order = np.argsort(self.candidates.job, kind="stable")
        starts = np.searchsorted(self.candidates.job[order], np.arange(len(self.jobs.names) + 1))
        return order, starts.astype(np.int64)

    def of_job(self, job: int) -> IntVector:
        """Give the candidates of a job."""
        order, starts = self.by_job
        return order[starts[job] : starts[job + 1]]

    @cached_property
    def order(self) -> IntVector | None:
        """Candidates in the order of their nodes, shape (V,); ``None`` where they are."""
        return None if self.ordered else np.argsort(self.candidates.node, kind="stable")

    @cached_property
    def by_node(self) -> ByNode:
        """What the candidates on each node come to, in the order of the nodes."""
        table, order = self.candidates, self.order
        if table.by_node is not None:
            return table.by_node
        if order is None:
            return ByNode(table.node, table.amounts, len(self.nodes))
        return ByNode(table.node[order], np.ascontiguousarray(table.amounts[:, order]), len(self.nodes))

    def on_node(self, row: int) -> IntVector:
        """Give the candidates on a node."""
        first, end = self.by_node.starts[row : row + 2].tolist()
        return np.arange(first, end) if self.order is None else self.order[first:end]

    @cached_property
    def reaching(self) -> BoolVector:
        """Tell which candidates that may leave are in the way on other nodes, too, shape (V,)."""
        return self.reaches & self.usable if len(self.reaches) else np.zeros_like(self.usable)

    def near(self, row: int) -> IntVector:
        """Give the candidates that may leave for a member on a node: those on it, and who reaches it."""
        here = self.on_node(row)
        here = here[self.usable[here]]
        if not len(self.reaches):
            return here
        return np.union1d(here, np.flatnonzero(self.reaching))

    @cached_property
    def restart(self) -> IntVector:
        """Restart cost of every candidate, shape (V,), to be read only."""
        given = self.candidates.restart
        return given if len(given) else np.broadcast_to(np.int64(0), len(self.candidates))

    @cached_property
    def covered(self) -> BoolMatrix:
        """Budgets that select every candidate, shape (B, V)."""
        none = np.zeros((0, len(self.candidates)), dtype=np.bool_)
        return self.candidates.covered if len(self.budgets) else none

    @cached_property
    def usable(self) -> BoolVector:
        """Who may leave at all, shape (V,): alone, as what a gang can spare, or with the whole gang."""
        able = self.jobs.breakable | self.jobs.spares
        usable: BoolVector = (
            np.ones_like(able, shape=len(self.candidates)) if able.all() else able[self.candidates.job]
        )
        return usable

    @cached_property
    def heights(self) -> IntVector:
        """The least priority up to which evictions have to go for each candidate to leave, shape (V,)."""
        table, jobs = self.candidates, self.jobs
        whole = jobs.several & ~jobs.spares
        if not whole.any():
            return table.priority
        heights = table.priority.copy()
        tight = np.flatnonzero(whole[table.job])
        if len(tight):
            highest = np.full(len(jobs.slack), np.iinfo(np.int64).min, dtype=np.int64)
            np.maximum.at(highest, table.job[tight], table.priority[tight])
            heights[tight] = highest[table.job[tight]]
        return heights

    @cached_property
    def levels(self) -> list[int]:
        """The heights that occur among those who may leave, ascending."""
        return few_distinct(self.heights if self.usable.all() else self.heights[self.usable])

    @cached_property
    def priorities(self) -> list[int]:
        """The priorities that occur among the candidates, ascending."""
        return few_distinct(self.candidates.priority)

    def budgets_of(self, one: int) -> tuple[int, ...]:
        """Give the budgets that select a candidate."""
        if not len(self.budgets):
            return ()
        return tuple(np.flatnonzero(self.covered[:, one]).tolist())

    @cached_property
    def place(self) -> IntVector:
        """Position of every node in the tree, -1 outside, shape (N,)."""
        if self.tree is None:
            return np.full(len(self.nodes), -1, dtype=np.int64)
        index = self.tree.node_index
        return np.array([index.get(name, -1) for name in self.nodes], dtype=np.int64)

    @cached_property
    def ordered(self) -> bool:
        """The candidates are in the order of their nodes."""
        node = self.candidates.node
        return self.candidates.by_node is not None or bool((node[1:] >= node[:-1]).all())

    def gathered(self, counts: IntMatrix) -> bool:
        """Tell whether members of some roles lie together, and in multiples, as they have to.

        ``counts`` has shape (C, N).
        """
        for roles, domains in self.gathers:
            rows = [row for row, (role, _) in zip(counts, self.classes, strict=True) if role in roles]
            used = np.unique(domains.home[np.sum(rows, axis=0) > 0]) if rows else np.zeros(0)
            if len(used) > 1 or (len(used) and used[0] < 0):
                return False
        for one in self.multiples:
            rows = [row for row, (role, _) in zip(counts, self.classes, strict=True) if role in one.roles]
            if rows and not one.holds(np.sum(rows, axis=0)):
                return False
        return True

    def pools_hold(self, counts: IntMatrix, chosen: BoolVector) -> bool:
        """Tell whether a plan keeps within the pools; ``counts`` has shape (C, N)."""
        placed = np.zeros(len(self.all_shapes), dtype=np.int64)
        for (_, shape), row in zip(self.classes, counts, strict=True):
            placed[shape] += row.sum()
        for pool in self.pools:
            used = placed @ pool.uses
            room = pool.room + pool.gives[:, chosen].sum(axis=1)
            if (used > room)[(used > 0) | any(placed[one] for one in pool.strict)].any():
                return False
        return True

    def given(self, resource: int, chosen: BoolVector) -> IntVector:
        """Give how much of a resource the chosen candidates give back on each node, shape (N,)."""
        if chosen.all():
            return self.by_node.sums(resource)
        return self.by_node.added(self.by_node.amounts[resource] * self._in_order(chosen))

    def counted(self, chosen: BoolVector) -> IntVector:
        """Count the chosen candidates on each node, shape (N,)."""
        if chosen.all():
            return np.diff(self.by_node.starts)
        return self.by_node.added(self._in_order(chosen).astype(np.int64))

    def in_order(self, chosen: BoolVector) -> IntVector:
        """List the chosen candidates by node."""
        found = np.flatnonzero(self._in_order(chosen))
        return found if self.order is None else self.order[found]

    def _in_order(self, chosen: BoolVector) -> BoolVector:
        return chosen if self.order is None else chosen[self.order]

    def freed(self, chosen: BoolVector) -> IntMatrix:
        """Give what the nodes have left once the chosen candidates have gone, shape (R, N)."""
        if not chosen.any():
            return self.free.copy()
        amounts = self.by_node.amounts
        given = amounts if chosen.all() else amounts * self._in_order(chosen)
        return self.free + self.by_node.added(given)
