"""What a gang asks of the cluster, and what it gets: the records that placement takes and returns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Final, TypeAlias

import attrs
import numpy as np
from immutabledict import immutabledict
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.certificates import Certificate
from koordcore.model.checks import names_its_fields
from koordcore.model.gangs import GangFit, NetworkTopologySpec
from koordcore.model.naming import natural_key
from koordcore.topology.network import NetworkTopology

IntVector: TypeAlias = NDArray[np.int64]
IntMatrix: TypeAlias = NDArray[np.int64]

ANYWHERE: Final = NetworkTopologySpec()
NO_DOMAINS: Final[immutabledict[str, int]] = immutabledict()


@names_its_fields
@record
class Member:
    """One pod to be placed.

    Parameters
    ----------
    key
        ``namespace/name``.
    shape
        Index of its shape among the demand's shapes.
    rank
        Its index in the job; None for none. Members with a rank come before those without.
    """

    key: str
    shape: int = 0
    rank: int | None = None


def rank_order(members: Iterable[Member]) -> list[Member]:
    """Sort members by rank, then by natural name; those without a rank last."""
    return sorted(
        members, key=lambda m: (m.rank is None, m.rank if m.rank is not None else 0, natural_key(m.key))
    )


def _no_count() -> IntVector:
    return np.zeros(0, dtype=np.int64)


@names_its_fields
@record(kw_only=True)
class Role:
    """A gang of the group, or a sub-group of a gang: members that need a minimum of their own.

    Parameters
    ----------
    name
        Gang id or sub-group name.
    members
        Its pending members.
    min_available
        How many of them must be placed at least (bound members already subtracted).
    must_layer
        Layer of which the role's members share one domain; empty for no wish of its own.
    unit
        Position of the unit that it is part of; -1 for none: then its minimum always binds.
    started
        Its minimum runs already, so that it counts as a success of its unit whoever else comes.
    home
        Domain of every node, -1 where no member may go, shape (nodes,): all members share one of them,
        whatever the layers are. Empty for anywhere.
    fixed
        Domain of ``home`` that running members are in; -1 for none.
    multiples
        Members of the role per domain come in multiples of so many, by layer.
    bound
        Running members of the role per node, shape (nodes,); they count for ``must_layer`` and
        ``multiples``. Empty for none.
    """

    name: str
    members: tuple[Member, ...]
    min_available: int
    must_layer: str = ""
    unit: int = -1
    started: bool = False
    home: IntVector = attrs.field(factory=_no_count, eq=False)
    fixed: int = -1
    multiples: immutabledict[str, int] = NO_DOMAINS
    bound: IntVector = attrs.field(factory=_no_count, eq=False)


@record(eq=False, kw_only=True)
class Unit:
    """A group of groups: enough of its parts succeed, or none of them starts.

    Parameters
    ----------
    name
        Of the group.
    least
        How many of the roles and units directly below must succeed.
    parent
        Position of the unit that it is part of, an earlier one; -1 for the topmost, of which there is one.
    home, fixed, multiples, bound
        As of a role; for all roles below.
    """

    name: str
    least: int
    parent: int = -1
    home: IntVector = attrs.field(factory=_no_count)
    fixed: int = -1
    multiples: immutabledict[str, int] = NO_DOMAINS
    bound: IntVector = attrs.field(factory=_no_count)

    @property
    def binds(self) -> bool:
        """It says where the roles below may be."""
        return bool(len(self.home) or self.multiples)


@record(kw_only=True)
class Quorum:
    """Roles that place so many members together, beside the minimum of each.

    Parameters
    ----------
    roles
        Positions of the roles.
    least
        Members of all of them that must be placed.
    unit
        Position of the unit without which nobody is needed; -1 for none.
    """

    roles: tuple[int, ...]
    least: int
    unit: int = -1


@names_its_fields
@record(eq=False, kw_only=True)
class Shape:
    """Members that are interchangeable for every filter.

    Parameters
    ----------
    slots
        Most members of this shape that each node of the tree takes by itself, shape (nodes,): the answer of
        filters and allocators, 0 where it may not run.
    request
        Amounts of the countable resources, shape (R,); needed where several shapes compete.
    scores
        What a member is worth on each node before any of them is there, shape (nodes,); settles what is equal
        otherwise. Empty for no preference.
    """

    slots: IntVector
    request: IntVector = attrs.field(factory=_no_count)
    scores: IntVector = attrs.field(factory=_no_count)


@names_its_fields
@record
class Limit:
    """Something beside the nodes that members use up together, such as a quota.

    Parameters
    ----------
    uses
        What one member of each shape takes.
    room
        What is left.
    """

    uses: tuple[int, ...]
    room: int

    def holds(self, counts: Sequence[int]) -> bool:
        """Tell whether so many members of each shape go."""
        return sum(map(int.__mul__, self.uses, counts)) <= self.room


@record(eq=False, kw_only=True)
class GangDemand:
    """A whole gang (or gang group) to be placed at once; arrays over the nodes follow ``tree.nodes``.

    Parameters
    ----------
    roles
        Gangs of the group; usually one.
    shapes
        Shapes that the members refer to.
    free
        What each node has left, shape (R, nodes); may be empty for a single shape.
    spec
        How the members want to be gathered.
    bound
        Members that run already, per node; empty for none. A domain that they use costs nothing.
    near
        Other pods that the members want to be near to, per node; empty for none.
    min_roles
        How many roles must reach their minimum; None for all. A role that does not gets nothing.
    resources
        Names of the rows of ``free``, for the texts of a failure.
    conflicts
        Pairs of node position and members per shape that the node does not take together, nor with more.
    units
        Groups of the roles, parents first; empty where every role has to reach its minimum. With units the
        number of roles that start comes before the number of members.
    quorums
        Members that several roles need together.
    fit
        What comes first on nodes of unequal size.
    limits
        What all members share beside the nodes.

    Raises
    ------
    ModelError
        When the parts do not fit together.
    """

    roles: tuple[Role, ...]
    shapes: tuple[Shape, ...]
    free: IntMatrix = attrs.field(factory=lambda: np.zeros((0, 0), dtype=np.int64))
    spec: NetworkTopologySpec = ANYWHERE
    bound: IntVector = attrs.field(factory=_no_count)
    near: IntVector = attrs.field(factory=_no_count)
    min_roles: int | None = None
    resources: tuple[str, ...] = ()
    conflicts: tuple[tuple[int, tuple[int, ...]], ...] = ()
    units: tuple[Unit, ...] = ()
    quorums: tuple[Quorum, ...] = ()
    fit: GangFit = GangFit.FEWEST_NODES
    limits: tuple[Limit, ...] = ()

    def __attrs_post_init__(self) -> None:
        keys = [member.key for role in self.roles for member in role.members]
        if len(set(keys)) != len(keys):
            raise ModelError("a member occurs twice in one gang")
        for role in self.roles:
            for member in role.members:
                if not 0 <= member.shape < len(self.shapes):
                    raise ModelError(f"{member.key}: there is no shape {member.shape}")
        if len(self.shapes) > 1:
            rows = {len(shape.request) for shape in self.shapes} | {self.free.shape[0]}
            if len(rows) != 1:
                raise ModelError("several shapes need one request amount per row of free")
        if self.min_roles is not None and not 0 <= self.min_roles <= len(self.roles):
            raise ModelError(f"min_roles: expected 0 up to {len(self.roles)}, got {self.min_roles}")

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """All members in rank order."""
        return tuple(rank_order(member for role in self.roles for member in role.members))

    @property
    def size(self) -> int:
        """Number of members to be placed."""
        return sum(len(role.members) for role in self.roles)

    @property
    def least(self) -> int:
        """Members that must be placed at least: of every role that has to take part, its minimum."""
        if self.units:
            return max(1, self._least_of(0), *(one.least for one in self.quorums if one.unit <= 0))
        minimums = sorted(max(0, role.min_available) for role in self.roles)
        least = sum(minimums if self.min_roles is None else minimums[: self.min_roles])
        return max(least, *(one.least for one in self.quorums)) if self.quorums else least

    def _least_of(self, unit: int) -> int:
        parts = [
            0 if role.started else max(1, role.min_available) for role in self.roles if role.unit == unit
        ]
        parts += [self._least_of(number) for number, below in enumerate(self.units) if below.parent == unit]
        return sum(sorted(parts)[: self.units[unit].least])

    def above(self, role: int) -> tuple[int, ...]:
        """List the units that a role is part of, from the nearest up."""
        found, unit = [], self.roles[role].unit
        while unit >= 0:
            found.append(unit)
            unit = self.units[unit].parent
        return tuple(found)

    def below(self, unit: int) -> frozenset[int]:
        """List the roles that are part of a unit, at whatever level."""
        return frozenset(role for role in range(len(self.roles)) if unit in self.above(role))

    @cached_property
    def apart(self) -> tuple[bool, ...]:
        """Which roles have a wish of their own, so that their members are told from those of others."""
        return tuple(
            bool(
                role.must_layer
                or role.multiples
                or len(role.home)
                or any(self.units[unit].binds for unit in self.above(number))
            )
            for number, role in enumerate(self.roles)
        )

    @cached_property
    def alike(self) -> tuple[int, ...]:
        """For each role the first that only names tell from it: whole ones that share a layer, without units'
        homes and multiples, and running members; itself for others.
        """  # noqa: D205 - one thought
        first: dict[object, int] = {}
        found = []
        for number, role in enumerate(self.roles):
            # A role that needs more members than it has cannot start: none that can is like it.
            whole = role.must_layer and role.members and role.min_available == len(role.members)
            alone = not len(role.home) and not any(self.units[unit].binds for unit in self.above(number))
            alone = alone and not role.multiples and not role.bound.any()
            shapes = tuple(sorted(member.shape for member in role.members))
            together = tuple(position for position, one in enumerate(self.quorums) if number in one.roles)
            kind = (
                (role.must_layer, role.unit, shapes, together)
                if whole and alone and not role.started
                else number
            )
            found.append(first.setdefault(kind, number))
        return tuple(found)

    @cached_property
    def copies(self) -> tuple[int, ...]:
        """How many roles each role stands for: those that it is the first of."""
        return tuple(self.alike.count(number) for number in range(len(self.roles)))

    @property
    def uniform(self) -> bool:
        """All members are interchangeable and no role has a wish of its own."""
        return (
            len({member.shape for role in self.roles for member in role.members}) <= 1
            and not any(self.apart)
            and not self.units
            and not self.quorums
            and not self.limits
            and self.min_roles in (None, len(self.roles))
        )


@record(kw_only=True)
class GangPlacement:
    """Where the members go.

    Parameters
    ----------
    nodes
        Node of every member that is placed, in rank order.
    left_out
        Members beyond the minimum that found no place, in rank order.
    certificate
        The objective: with units the roles that start (negated), then members placed (negated), then domains
        opened per layer of ``objective_layers``, then how far the used domains are from the pods to be near
        to, then the offer slots of the used domains, both from the nodes up, then for interchangeable members
        the sum of their scores (negated) where scores tell nodes apart.
    objective_layers
        Layers in the order in which their domains are counted.
    domains
        Domains used per layer, from the top down to the nodes.
    """

    nodes: immutabledict[str, str]
    left_out: tuple[str, ...] = ()
    certificate: Certificate
    objective_layers: tuple[str, ...] = ()
    domains: immutabledict[str, int] = NO_DOMAINS


@record(kw_only=True)
class GangShortfall:
    """Why a gang has no place.

    Parameters
    ----------
    message
        Upstream's text, for conditions and events.
    detail
        The smallest reason in plain words, with numbers.
    desired
        Members that had to be placed at least.
    placeable
        Most members that could be placed under the same rules; -1 when that is not known.
    certificate
        Proven infeasible, or nothing known because the budget ran out.
    """

    message: str
    detail: str
    desired: int
    placeable: int
    certificate: Certificate


def deal(
    tree: NetworkTopology, demand: GangDemand, counts: Sequence[tuple[int, int]], *, total: int
) -> tuple[immutabledict[str, str], tuple[str, ...]]:
    """Hand the places of one shape out: consecutive ranks to neighbouring places.

    When not all members can be placed every role first gets its minimum, then the lowest ranks win.

    Parameters
    ----------
    counts
        Pairs of node position and number of places, neighbours next to each other.
    total
        Number of places.
    """
    members = demand.members
    chosen = [member.key for member in members]
    if total < len(members):
        needed = {
            member.key
            for role in demand.roles
            for member in rank_order(role.members)[: max(0, role.min_available)]
        }
        spare = (key for key in chosen if key not in needed)
        kept = needed | set(islice(spare, total - len(needed)))
        chosen = [key for key in chosen if key in kept]
    names = tree.nodes
    places = [names[node] for node, count in counts for _ in range(count)]
    placed = immutabledict(zip(chosen, places, strict=True))
    return placed, tuple(member.key for member in members if member.key not in placed)
