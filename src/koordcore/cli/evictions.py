"""Tables of a preemption plan: who goes, whose job it is, what is won, how sure that is."""

from __future__ import annotations

from collections import Counter

from koordcore.cli.layout import Column, Table, Tone
from koordcore.explaining.workloads import stand_in_names
from koordcore.model.preemption import Damage, PreemptionPlan
from koordcore.result import ScheduleResult


def describe_damage(damage: Damage) -> str:
    """Write a damage on one line.

    >>> describe_damage(Damage(jobs=1, pods=2, highest=100))
    '2 pods of 1 job, up to priority 100'
    """
    parts = []
    if damage.pods:
        parts.append(
            f"{damage.pods} pod{'s' * (damage.pods != 1)} of {damage.jobs} job{'s' * (damage.jobs != 1)}"
        )
        parts.append(f"up to priority {damage.highest}")
    if damage.moves:
        parts.append(f"{damage.moves} move{'s' * (damage.moves != 1)}")
    if damage.violations:
        parts.append(f"{damage.violations} beyond disruption budgets")
    if damage.restarts:
        parts.append(f"restart cost {damage.restarts}")
    return ", ".join(parts) or "nobody leaves"


def preemption_table(result: ScheduleResult) -> Table:
    """One row per job that preempts: what it wins and costs, and the cheapest plan that was not taken."""
    rows = []
    names = {str(key): name for key, name in stand_in_names(result.snapshot).items()}
    for plan in result.preemptions:
        nodes = Counter(plan.nominations.values())
        places = [f"{node} ({count})" if count > 1 else node for node, count in sorted(nodes.items())]
        where = f"{plan.domain}: " if plan.domain and plan.domain not in nodes else ""
        shown = ", ".join(places[:4]) + (f" and {len(places) - 4} more" if len(places) > 4 else "")
        other = plan.alternative
        rows.append(
            (
                names.get(plan.job, plan.job),
                str(len(plan.nominations)),
                where + shown,
                _costs(plan),
                plan.certificate.status.text,
                f"{other.where}: {describe_damage(other.damage)}" if other else "none found",
            )
        )
    columns = (
        Column("JOB"),
        Column("MEMBERS", number=True, rank=2),
        Column("GET", text=True),
        Column("COSTS", text=True),
        Column("CERTIFICATE", rank=1),
        Column("CHEAPEST ELSEWHERE", text=True, rank=3),
    )
    return Table(title="Preempting", columns=columns, rows=rows)


def _costs(plan: PreemptionPlan) -> str:
    """Write what a plan costs, and whose quota gives back what it has borrowed."""
    text = describe_damage(plan.damage)
    return f"{text}; reclaimed from {', '.join(plan.borrowers)}" if plan.borrowers else text


def victims_table(result: ScheduleResult) -> Table:
    """One row per victim: its node, its job, and for whom it leaves."""
    rows = []
    names = {str(key): name for key, name in stand_in_names(result.snapshot).items()}
    for plan in result.preemptions:
        moved = {move.victim.pod: move.node for move in plan.moves}
        stopped = plan.stopped
        for victim in plan.victims:
            lost = "breaks" if victim.job in stopped else ""
            goes = f"moves to {moved[victim.pod]}" if victim.pod in moved else lost
            job = victim.job if victim.job != str(victim.pod) else ""
            rows.append(
                (str(victim.pod), victim.node, str(victim.priority), job, goes, names.get(plan.job, plan.job))
            )
        for other in plan.leaving:
            leaving = "leaves anyhow"
            job = other.job if other.job != str(other.pod) else ""
            rows.append(
                (str(other.pod), other.node, str(other.priority), job, leaving, names.get(plan.job, plan.job))
            )
    columns = (
        Column("POD", tone=Tone.NAME),
        Column("NODE"),
        Column("PRIORITY", number=True, rank=3),
        Column("GANG", rank=2),
        Column("WHICH", rank=1),
        Column("LEAVES FOR"),
    )
    return Table(title="Leaving", columns=columns, rows=rows)
