"""Why a quota may use what it may use: the sharing told level by level and round by round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.quotas import ROOT_QUOTA
from koordcore.protocol.exact import exact_of
from koordcore.quota.distribution import Round, share_out
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.rollup import TreeState
from koordcore.quota.tree import TOP


class Bound(StrEnum):
    """What keeps a quota from getting more."""

    SATISFIED = "it gets all that it asks for"
    MAX = "its max"
    SCALED = "more is promised than there is, so promises are scaled down"
    FLOORS = "what others are promised takes up everything"
    WEIGHT = "its weight is zero"
    COMPETITION = "others compete for the rest"
    NOTHING = "its parent has nothing to hand out"


@record(kw_only=True)
class MemberShare:
    """One sibling in the sharing of one resource.

    Parameters
    ----------
    quota
        Its name.
    min, scaled_min
        What it is promised, and what is left of that where promises exceed what there is.
    floor
        What it may have without competing: ``scaled_min``, or its guarantee where that is larger.
    asks, need
        What it asks for, and that clipped by ``max``.
    weight, lends
        How it competes, and whether others may use what it does not need.
    base
        What it had before anything was dealt out.
    runtime
        What it got.
    """

    quota: str
    min: int
    scaled_min: int
    floor: int
    asks: int
    need: int
    weight: int
    lends: bool
    base: int
    runtime: int

    @property
    def borrowed(self) -> int:
        """What it got beyond its floor."""
        return max(0, self.runtime - self.floor)

    @property
    def lent(self) -> int:
        """What it left of its floor to others."""
        return max(0, self.floor - self.runtime)

    @property
    def lacking(self) -> int:
        """What it needs and did not get."""
        return max(0, self.need - self.runtime)


@record(kw_only=True)
class DealtRound:
    """One round of dealing out by weight.

    Parameters
    ----------
    left, weight_sum
        What was there, and the weights of those who still borrowed.
    granted
        Quota and what the round gave it, rounding included.
    rounded_up
        Quotas that got a unit of the rounding residue, largest remainder first.
    returned
        Quota that had enough now, and what it handed back.
    """

    left: int
    weight_sum: int
    granted: tuple[tuple[str, int], ...]
    rounded_up: tuple[str, ...]
    returned: tuple[tuple[str, int], ...]


@record(kw_only=True)
class FamilyShare:
    """How one parent's amount was shared among its children.

    Parameters
    ----------
    parent
        The parent; the root quota for the first level.
    available
        What it had to share.
    on_path
        The child that leads to the quota in question.
    members
        All children, by name.
    rounds
        The rounds, in order; none where bases took up everything or nobody borrowed.
    undealt
        What was left in the end, because nobody could take it.
    """

    parent: str
    available: int
    on_path: str
    members: tuple[MemberShare, ...]
    rounds: tuple[DealtRound, ...]
    undealt: int

    @property
    def promised(self) -> int:
        """Sum of the mins."""
        return sum(member.min for member in self.members)

    @property
    def member(self) -> MemberShare:
        """The child that leads to the quota in question."""
        return next(member for member in self.members if member.quota == self.on_path)


@record(kw_only=True)
class Waterfall:
    """Where the runtime of one quota in one resource comes from.

    Parameters
    ----------
    quota, resource
        The question.
    max, used
        Its limit (``None`` without one), and what it uses.
    families
        The sharing on every level, from the root down to the quota.
    bound
        What keeps it from more.
    at
        The quota at which that happens: itself, or one above it.
    holders
        Who has, on that level, what it could have, the largest first: what they got beyond their floor or
        keep without need; where nothing was left to compete for, all that they have.
    """

    quota: str
    resource: str
    max: int | None
    used: int
    families: tuple[FamilyShare, ...]
    bound: Bound
    at: str
    holders: tuple[tuple[str, int], ...]

    @property
    def runtime(self) -> int:
        """What it may use."""
        return self.families[-1].member.runtime


def explain_runtime(ledger: QuotaLedger, quota: str, resource: str) -> Waterfall:
    """Tell where a quota's runtime comes from.

    Parameters
    ----------
    ledger
        The quotas with what is used of them.
    quota, resource
        Names.

    Raises
    ------
    ModelError
        When the quota is no ordinary one, hangs below no root, or does not count the resource.
    """
    found = ledger.find(quota)
    if found is None:
        raise ModelError(f"no elastic quota {quota} with a runtime")
    state, row = found
    tree = state.tree
    column = tree.column_of.get(resource)
    if column is None or not tree.binding[row][column]:
        raise ModelError(f"elastic quota {quota} has no runtime in {resource}")
    if not tree.attached(row):
        raise ModelError(f"the parents of elastic quota {quota} do not reach the root")
    families = tuple(_family(state, at, column) for at in reversed(tree.path(row)))
    bound, at = _bound(families)
    family = next(one for one in families if one.on_path == at)
    return Waterfall(
        quota=quota,
        resource=resource,
        max=tree.quotas[row].max.get(resource),
        used=state.tally(row).used[column],
        families=families,
        bound=bound,
        at=at,
        holders=() if bound in (Bound.SATISFIED, Bound.MAX, Bound.NOTHING) else _holders(family, bound),
    )


def _family(state: TreeState, row: int, column: int) -> FamilyShare:
    """Share one resource out among the siblings of a row once more, and keep the account."""
    tree, group = state.tree, state.tree.group_of[row]
    shares = state.shares(group)
    members = tree.groups[group]
    names = [tree.quotas[member].name for member in members]
    guarantee = state.policy.guarantee_usage
    tallies = [state.tally(member) for member in members]
    scaled = [] if shares is None else list(map(int, shares.scaled[column]))
    floors = [
        max(least, tally.guaranteed[column]) if guarantee else least
        for least, tally in zip(scaled, tallies, strict=True)
    ]
    needs = [tally.limit[column] for tally in tallies]
    weights = [tree.weight[member][column] for member in members]
    lends = [tree.lends[member] for member in members]
    available, parent = state.pool.amounts[column], ROOT_QUOTA
    if group != TOP:
        above = tree.parent_of_group[group]
        parent = tree.quotas[above].name
        runtime = state.runtime(above)
        available = 0 if runtime is None else runtime[column]
    trace: list[Round] = []
    got = share_out(available, floors, needs, weights, lends, trace=trace)
    bases = [
        floor if need > floor or not lent else need
        for floor, need, lent in zip(floors, needs, lends, strict=True)
    ]
    return FamilyShare(
        parent=parent,
        available=available,
        on_path=tree.quotas[row].name,
        members=tuple(
            MemberShare(
                quota=names[place],
                min=tree.min[member][column],
                scaled_min=scaled[place],
                floor=floors[place],
                asks=tallies[place].request[column],
                need=needs[place],
                weight=weights[place],
                lends=lends[place],
                base=bases[place],
                runtime=got[place],
            )
            for place, member in enumerate(members)
        ),
        rounds=tuple(_named(one, names) for one in trace),
        undealt=max(0, available - sum(got)),
    )


def _named(one: Round, names: Sequence[str]) -> DealtRound:
    return DealtRound(
        left=one.left,
        weight_sum=one.weight_sum,
        granted=tuple((names[place], amount) for place, amount in one.granted),
        rounded_up=tuple(names[place] for place in one.extra),
        returned=tuple((names[place], amount) for place, amount in one.returned),
    )


def _bound(families: Sequence[FamilyShare]) -> tuple[Bound, str]:
    """Find what binds: the quota's own max or content, else the highest level that is short."""
    last = families[-1].member
    if not last.lacking:
        return (Bound.MAX if last.asks > last.need else Bound.SATISFIED), last.quota
    family = next(one for one in families if one.member.lacking)
    member = family.member
    if member.scaled_min < member.min and member.runtime < member.min:
        return Bound.SCALED, member.quota
    if member.weight <= 0:
        return Bound.WEIGHT, member.quota
    if family.available <= 0:
        return Bound.NOTHING, member.quota
    return (Bound.COMPETITION if family.rounds else Bound.FLOORS), member.quota


def _holders(family: FamilyShare, bound: Bound) -> tuple[tuple[str, int], ...]:
    others = [member for member in family.members if member.quota != family.on_path]
    if bound in (Bound.FLOORS, Bound.SCALED):
        amounts = [(member.quota, member.runtime) for member in others]
    else:
        amounts = [
            (member.quota, member.borrowed or max(0, member.runtime - member.need)) for member in others
        ]
    return tuple(sorted((pair for pair in amounts if pair[1]), key=lambda pair: (-pair[1], pair[0])))


# --- as text ----------------------------------------------------------------------------------------------


def format_waterfall(waterfall: Waterfall) -> str:
    """Write a waterfall as plain text, one fact a line; odd numbers of bytes are rounded, after a ``~``."""
    bytes_of = waterfall.resource == "memory" or waterfall.resource.endswith("-storage")

    def amount(value: int) -> str:
        text = str(exact_of({waterfall.resource: value})[waterfall.resource])
        return f"~{value / (1 << 30):.2f}Gi" if bytes_of and text.isdigit() and value >= 1 << 30 else text

    def pairs(items: Iterable[tuple[str, int]]) -> str:
        return ", ".join(f"{name} {amount(value)}" for name, value in items) or "nobody"

    most = "none" if waterfall.max is None else amount(waterfall.max)
    head = f"{waterfall.quota}, {waterfall.resource}: runtime {amount(waterfall.runtime)}"
    lines = [f"{head}, used {amount(waterfall.used)}, max {most}"]
    for family in waterfall.families:
        scaled = any(member.scaled_min != member.min for member in family.members)
        lines.append(
            f"{family.parent} has {amount(family.available)} to share; mins add up to"
            f" {amount(family.promised)}{' and are scaled down' if scaled else ''}"
        )
        for member in family.members:
            mark = ">" if member.quota == family.on_path else " "
            lines.append(f" {mark} {member.quota}: {_member_text(member, amount)}")
        for number, one in enumerate(family.rounds, start=1):
            lines.append(f"   round {number} deals {amount(one.left)} by weight: {pairs(one.granted)}")
            if one.returned:
                lines.append(f"   handed back: {pairs(one.returned)}")
        if family.undealt:
            lines.append(f"   nobody can take {amount(family.undealt)}")
    where = "" if waterfall.at == waterfall.quota else f" (of {waterfall.at})"
    lines.append(f"what binds: {waterfall.bound}{where}")
    if waterfall.holders:
        lines.append(f"who has it: {pairs(waterfall.holders)}")
    return "\n".join(lines)


def _member_text(member: MemberShare, amount: Callable[[int], str]) -> str:
    parts = [f"min {amount(member.min)}"]
    if member.floor != member.min:
        parts.append(f"floor {amount(member.floor)}")
    parts.append(f"asks for {amount(member.asks)}")
    if member.need != member.asks:
        parts.append(f"at most {amount(member.need)}")
    parts += [f"weight {amount(member.weight)}", f"gets {amount(member.runtime)}"]
    if member.borrowed:
        parts.append(f"{amount(member.borrowed)} of it borrowed")
    if member.lent:
        parts.append(f"lends {amount(member.lent)}")
    if not member.lends:
        parts.append("does not lend")
    return ", ".join(parts)
