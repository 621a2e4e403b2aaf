"""Plans step by step: what leaves, what comes, and how the cards of the nodes stand after each step."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from koordcore._record import record
from koordcore.descheduling.load_problem import resource_of
from koordcore.descheduling.moves import MoveProblem
from koordcore.descheduling.plan import RebalancePlan
from koordcore.descheduling.plans import Moving
from koordcore.model.certificates import Certificate
from koordcore.model.moves import Move
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import NO_PRIORITY, Damage, PreemptionPlan
from koordcore.reporting.cards import Card, cards_of
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.scheduling.reset import unbound
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.cluster import bind

_PERMILLE: Final = 1000


@record
class Change:
    """One pod in one step: where it was and where it is then; empty for nowhere."""

    pod: str
    source: str
    target: str
    what: str


@record
class Load:
    """How much of a resource a node uses and may use, in thousandths of what it has."""

    resource: str
    used: int
    limit: int


@record(kw_only=True)
class Step:
    """What happens in one step, and how the nodes that the plan touches stand after it."""

    label: str
    changes: tuple[Change, ...] = ()
    cards: Mapping[str, tuple[Card, ...]]
    loads: Mapping[str, tuple[Load, ...]] = attrs.field(factory=dict)


@record(kw_only=True)
class Story:
    """A plan from before to after.

    Parameters
    ----------
    title, kind
        What it is for, and ``preemption`` or ``moves``.
    certificate
        How good the plan is known to be.
    facts
        Pairs of label and text.
    steps
        The first is how things stand before.
    """

    title: str
    kind: str
    certificate: Certificate
    facts: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]


def _frame(snapshot: ClusterSnapshot, nodes: Iterable[str]) -> dict[str, tuple[Card, ...]]:
    there = snapshot.layout.row_of
    return {name: cards_of(snapshot, snapshot.node(name)) for name in sorted(nodes) if name in there}


# --- preemption -------------------------------------------------------------------------------------------


def preemption_stories(result: ScheduleResult) -> Iterator[Story]:
    """Tell each preemption of a result: as it is, once the victims have left, once the job runs."""
    for plan in result.preemptions:
        yield _preemption(result, plan)


def _preemption(result: ScheduleResult, plan: PreemptionPlan) -> Story:
    before = result.snapshot
    going = {one.pod: one for one in (*plan.victims, *plan.leaving) if before.pod(one.pod) is not None}
    elsewhere = {move.victim.pod: move.node for move in plan.moves}
    nodes = {one.node for one in going.values()} | {*plan.nominations.values(), *elsewhere.values()}
    gone = before.forget(*going)
    moved = [
        attrs.evolve(unbound(pod), nominated_node=elsewhere[pod.key]) for pod in _pods(before, elsewhere)
    ]
    members = _pods(before, map(PodKey.parse, plan.nominations))
    after = schedule(gone, (*moved, *members), policy=result.policy)
    placed = {one.pod: one.node for one in after.bound}
    anyhow = {one.pod for one in plan.leaving}
    leave = tuple(
        Change(str(key), one.node, "", _leaving(key, anyhow, elsewhere)) for key, one in sorted(going.items())
    )
    start = tuple(
        Change(str(pod.key), "", placed.get(pod.key, elsewhere.get(pod.key, "")), "runs on elsewhere")
        for pod in moved
    ) + tuple(Change(str(pod.key), "", plan.nominations[str(pod.key)], "starts") for pod in members)
    return Story(
        title=f"Room for {plan.job}" if plan.job else "Preemption",
        kind="preemption",
        certificate=plan.certificate,
        facts=tuple(_damage(plan)),
        steps=(
            Step(label="now", cards=_frame(before, nodes)),
            Step(label="victims have left", changes=leave, cards=_frame(gone, nodes)),
            Step(label="the job runs", changes=start, cards=_frame(after.snapshot, nodes)),
        ),
    )


def _pods(snapshot: ClusterSnapshot, keys: Iterable[PodKey]) -> list[Pod]:
    return [pod for key in sorted(keys) if (pod := snapshot.pod(key)) is not None]


def _leaving(key: PodKey, anyhow: set[PodKey], elsewhere: Mapping[PodKey, str]) -> str:
    return "leaves anyhow" if key in anyhow else "moves" if key in elsewhere else "is evicted"


def _damage(plan: PreemptionPlan) -> Iterator[tuple[str, str]]:
    cost = plan.damage
    yield "evicted", _damage_text(cost)
    if cost.moves:
        yield "moved", _count(cost.moves, "pod")
    if plan.stopped:
        yield "gangs that stop", ", ".join(plan.stopped)
    if plan.borrowers:
        yield "quotas that give back", ", ".join(plan.borrowers)
    if plan.domain:
        yield "gathered in", f"{plan.layer} {plan.domain}"
    if plan.left_out:
        yield "members without a place", ", ".join(plan.left_out)
    if plan.alternative is not None:
        yield "next best", f"{plan.alternative.where}: {_damage_text(plan.alternative.damage)}"


def _damage_text(cost: Damage) -> str:
    """Say what evictions cost, in the order in which costs are compared."""
    parts = [f"{_count(cost.violations, 'pod')} beyond disruption budgets"] if cost.violations else []
    if cost.highest != NO_PRIORITY:
        parts.append(f"priority {cost.highest} at most")
    return ", ".join((*parts, f"{_count(cost.jobs, 'job')} lost", _count(cost.pods, "pod")))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


# --- moves ------------------------------------------------------------------------------------------------


def moves_story(title: str, moving: Moving[Any]) -> Story:
    """Tell a plan of moves wave by wave."""
    moves: Sequence[Move] = moving.plan.moves
    nodes = {name for move in moves for name in (move.source, move.target)}
    plan = moving.plan
    if isinstance(plan, RebalancePlan):
        nodes |= {*plan.before}
    steps = [Step(label="now", cards=_frame(moving.snapshot, nodes), loads=_loads(moving, nodes, ()))]
    decided = {one.pod: one for one in moving.checked.bound}
    snapshot = moving.snapshot
    for wave in range(1 + max((max(move.leaves, move.arrives) for move in moves), default=-1)):
        leaving = [move for move in moves if move.leaves == wave]
        arriving = [move for move in moves if move.arrives == wave]
        pods = {move.pod: moving.snapshot.pod(move.pod) for move in arriving}
        snapshot = snapshot.forget(*(move.pod for move in leaving)).assume(
            *(bind(unbound(pod), decided[key]) for key, pod in pods.items() if pod and key in decided)
        )
        done = [move for move in moves if move.arrives <= wave]
        down = [move for move in leaving if move.arrives != wave]
        changes = [Change(str(one.pod), one.source, one.target, "moves") for one in arriving]
        changes += [Change(str(one.pod), one.source, "", "is down for a while") for one in down]
        steps.append(
            Step(
                label=f"wave {wave + 1}",
                changes=tuple(changes),
                cards=_frame(snapshot, nodes),
                loads=_loads(moving, nodes, done),
            )
        )
    return Story(
        title=title,
        kind="moves",
        certificate=plan.certificate,
        facts=tuple(_won(moving)),
        steps=tuple(steps),
    )


def _won(moving: Moving[Any]) -> Iterator[tuple[str, str]]:
    plan = moving.plan
    yield "moves", str(len(plan.moves))
    if isinstance(plan, RebalancePlan):
        yield "hot nodes", f"{len(plan.before)} before, {len(plan.after)} after"
        for node, reasons in sorted(plan.why.items()):
            yield f"{node} stays hot", "; ".join(reasons)
        if plan.leaving:
            yield "on their way", f"{_count(len(plan.leaving), 'pod')}, counted as gone"
        if plan.unmeasured:
            yield "not looked at", f"{_count(len(plan.unmeasured), 'node')} without a fresh report"
    if moving.checked.refused is not None:
        pod, node = moving.checked.refused
        yield "not to be carried out", f"{pod} is refused on {node}"


def _share(part: int, whole: int) -> int:
    """Give a part in thousandths, rounded: a limit of 80 % was cut to a whole amount before."""
    return (_PERMILLE * part + whole // 2) // whole


def _loads(moving: Moving[Any], nodes: Iterable[str], done: Sequence[Move]) -> dict[str, tuple[Load, ...]]:
    """Say how much the nodes use after some moves, where the plan is about that."""
    if not isinstance(moving.plan, RebalancePlan):
        return {}
    problem: MoveProblem = moving.problem
    usage = {one.pod: one.usage for one in problem.movable}
    hosts = {host.name: host for host in problem.hosts if host.name in set(nodes)}
    used = {name: dict(host.usage) for name, host in hosts.items()}
    for move in done:
        for node, sign in ((move.source, -1), (move.target, 1)):
            if node in used:
                for name, amount in usage[move.pod].items():
                    used[node][name] = used[node].get(name, 0) + sign * amount
    return {
        node: tuple(
            Load(name, _share(used[node].get(name, 0), room), _share(limit, room))
            for name, limit in sorted(host.high.items())
            if (room := host.allocatable.get(resource_of(name), 0))
        )
        for node, host in sorted(hosts.items())
    }
