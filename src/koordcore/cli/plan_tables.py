"""The tables of a plan: gangs, who goes where with what, who waits and why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from koordcore._record import record
from koordcore.cli.evictions import preemption_table, victims_table
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.selection import ALL, Selection
from koordcore.cli.tables import amount, say, show
from koordcore.explaining.incomplete_gangs import lacking
from koordcore.explaining.network import used_domains
from koordcore.explaining.workloads import by_workload, stand_in_names
from koordcore.model.decisions import Bound, JobPlan, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod, PodKey
from koordcore.model.preemption import PreemptionPlan
from koordcore.model.reservations import Reservation
from koordcore.result import ScheduleResult
from koordcore.result.networks import network_used
from koordcore.scheduling.plugins.exact.plugin import NO_CARD
from koordcore.snapshot import ClusterSnapshot

_NAMED: Final = 3
"""Domains of a layer that are named in a gang's row."""
_NODES: Final = 4
"""Nodes that are named in a workload's row."""
_FELL_WITH: Final = re.compile(
    r'0/\d+ nodes are available: GangGroup ".+?" gets rejected due to member Pod ".+?" is unschedulable '
    r'with reason "(?P<why>.+)"\.'
)
_SHAPES: Final = 3
"""Different sets of devices that are named in a workload's row."""


@record
class Rows:
    """Which rows are shown.

    Parameters
    ----------
    limit
        Per table; 0 for all.
    expand
        A row for each pod instead of one for each workload.
    selection
        Of whom.
    """

    limit: int = 0
    expand: bool = False
    selection: Selection = ALL


def print_tables(result: ScheduleResult, rows: Rows) -> None:
    """Print where each workload goes, why the others wait, and a last line with the sums."""
    asked = _asked(result)
    names = stand_in_names(result.snapshot)
    shown = [one for one in result.decisions if rows.selection.pod(asked[one.pod])]
    names |= {} if rows.expand else by_workload(asked[one.pod] for one in shown if one.pod not in names)
    tables = []
    if rows.selection.all:
        tables += [jobs_table(result, result.jobs)] if result.jobs else []
        tables += [_joint_table(result)] if result.together else []
    placed = [one for one in shown if isinstance(one, Bound)]
    if placed:
        made = _placed_pods if rows.expand else _placed_workloads
        tables.append(made(placed, asked, names))
    plans = [one for one in result.preemptions if rows.selection.all or _concerns(one, asked, rows.selection)]
    if plans:
        chosen = attrs.evolve(result, preemptions=tuple(plans))
        tables += [preemption_table(chosen), victims_table(chosen)]
    waiting = [one for one in shown if not isinstance(one, Bound | Nominated | NotOurs)]
    if waiting:
        tables.append(_waiting_table(waiting, names, result.snapshot))
    strangers = Counter(one.scheduler_name for one in shown if isinstance(one, NotOurs))
    if strangers:
        tables.append(_strangers_table(strangers))
    show(*(cut(one, rows.limit) for one in tables))
    part = f"{len(shown)} of {len(result.decisions)} pods shown; in the whole cluster "
    say(part * (not rows.selection.all) + summary_line(result))
    if result.withdrawn:
        some = ", ".join(map(str, result.withdrawn[:3])) + ", …" * (len(result.withdrawn) > 3)
        say(f"room is kept no longer for {some}: nominated before, and no node takes them now")


def _concerns(plan: PreemptionPlan, pods: Mapping[PodKey, Pod], selection: Selection) -> bool:
    """Tell whether one of some pods gets room by a plan, or leaves for it."""
    named = (*map(PodKey.of, plan.nominations), *(victim.pod for victim in plan.victims))
    return any(selection.pod(pods[key]) for key in named if key in pods)


def _asked(result: ScheduleResult) -> dict[PodKey, Pod]:
    """Give the pods that were decided about; for a reservation, what it holds room for."""
    pods = {pod.key: pod for pod in (*result.snapshot.bound_pods(), *result.snapshot.pending)}
    for one in result.snapshot.of(Reservation):
        pods[one.pod_key] = one.template or Pod(name=one.name)
    return pods


def summary_line(result: ScheduleResult) -> str:
    """Write the sums of a plan on one line."""
    stats = result.stats
    others = f" waiting · {stats['not_ours']} not ours" if stats.get("not_ours") else " waiting"
    nominated = f" · {stats['nominated']} nominated" if stats.get("nominated") else ""
    nodes = f"{stats['nodes']} node{'s' * (stats['nodes'] != 1)}"
    return (
        f"{stats['bound']} of {stats['pods']} pods placed on {nodes}"
        f"{nominated} · {stats['unschedulable']} unschedulable · {stats['waiting']}{others} · verified"
    )


def cut(table: Table, limit: int) -> Table:
    """Leave out the rows beyond a limit, and say how many these are; 0 for all rows."""
    more = len(table.rows) - limit
    if limit <= 0 or more <= 0:
        return table
    return attrs.evolve(table, rows=table.rows[:limit], note=f"… and {more} more rows; --limit 0 shows all")


def _placed_pods(placed: Sequence[Bound], pods: Mapping[PodKey, Pod], names: Mapping[PodKey, str]) -> Table:
    columns = (
        Column("POD", tone=Tone.NAME),
        Column("NODE", tone=Tone.GOOD),
        Column("ASKS FOR", text=True, rank=2),
        Column("SCORE", number=True, rank=3),
        Column("GETS", text=True, rank=1),
    )
    rows: list[tuple[str, ...]] = [
        (
            names.get(one.pod, str(one.pod)),
            one.node,
            describe_requests(pods[one.pod]),
            str(one.score),
            _gets(one),
        )
        for one in placed
    ]
    rows, note = _cards_said_once(rows)
    return Table(title="Placed", columns=columns, rows=rows, note=note)


def _placed_workloads(
    placed: Sequence[Bound], pods: Mapping[PodKey, Pod], names: Mapping[PodKey, str]
) -> Table:
    columns = (
        Column("WORKLOAD", tone=Tone.NAME),
        Column("PODS", number=True),
        Column("NODES", tone=Tone.GOOD, text=True),
        Column("EACH ASKS FOR", text=True, rank=2),
        Column("GETS", text=True, rank=1),
    )
    groups: dict[tuple[str, str], list[Bound]] = {}
    for one in placed:
        groups.setdefault((names[one.pod], describe_requests(pods[one.pod])), []).append(one)
    joined = len(groups) < len(placed)
    whole = Counter(names.values())
    rows: list[tuple[str, ...]] = [
        (
            name,
            _part(len(members), whole[name]) if joined else "",
            counted((one.node for one in members), _NODES),
            asks,
            _get_what(members),
        )
        for (name, asks), members in groups.items()
    ]
    rows, note = _cards_said_once(rows)
    notes = "\n".join(filter(None, (note, "--expand shows each pod" * joined)))
    return Table(title="Placed", columns=columns, rows=rows, note=notes)


def _cards_said_once(rows: list[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], str]:
    """Say below the table that nobody got a card by number, where that is all that there is to say."""
    if {row[-1] for row in rows} - {""} != {NO_CARD} or len(rows) == 1:
        return rows, ""
    return [(*row[:-1], "") for row in rows], "no cards chosen: the nodes have no Device objects"


def _part(some: int, whole: int) -> str:
    """Write how many of a workload's pods a row is about.

    >>> _part(3, 3), _part(1, 2)
    ('3', '1/2')
    """
    return str(some) if some == whole else f"{some}/{whole}"


def counted(names: Iterable[str], most: int) -> str:
    """List names in their order, each with how often it stands there.

    >>> counted(["n1", "n2", "n2", "n3"], 2)
    'n1, n2 (2) and 1 more'
    """
    counts = Counter(names)
    shown = [f"{name} ({count})" if count > 1 else name for name, count in list(counts.items())[:most]]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _get_what(members: Sequence[Bound]) -> str:
    found = list(dict.fromkeys(filter(None, map(_gets, members))))
    more = len(found) - _SHAPES
    return "; ".join(found[:_SHAPES]) + (f" and {more} more" if more > 0 else "")


def _gets(decision: Bound) -> str:
    devices = [result.device for held in decision.claims for result in held.allocation.results]
    return ", ".join((*devices, *decision.notes))


def _waiting_table(
    waiting: Sequence[PodDecision], names: Mapping[PodKey, str], snapshot: ClusterSnapshot
) -> Table:
    """Pods of a workload that wait for the same reason are one row."""
    rows_of = [(one.pod, *_waiting_row(one)) for one in waiting]
    named = [
        (names.get(key, name), _promised(snapshot, key) or near, why) for key, name, near, why in rows_of
    ]
    groups = Counter(_once_each_gang(named))
    columns = (
        Column("WORKLOAD", tone=Tone.NAME),
        Column("PODS", number=True),
        Column("NEAREST", text=True, rank=1),
        Column("WHY", text=True, tone=Tone.BAD),
    )
    whole = Counter(names.values())
    alone = all(whole[name] <= 1 for name, _, _ in groups)
    rows = [
        (name, "" if alone else _part(count, max(whole[name], 1)), near, why)
        for (name, near, why), count in groups.items()
    ]
    return Table(title="Not placed", columns=columns, rows=rows)


def _once_each_gang(rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Let members that fell with their gang say what the member says that failed: its reason is in theirs."""
    own = {(name, why): near for name, near, why in reversed(rows)}
    found = []
    for name, near, why in rows:
        quoted = _FELL_WITH.match(why)
        first = quoted["why"] if quoted else why
        found.append(
            (name, own[name, first], first) if quoted and (name, first) in own else (name, near, why)
        )
    return found


def _promised(snapshot: ClusterSnapshot, key: PodKey) -> str:
    """Say for whose leaving a nominated pod waits; empty where it waits for nobody."""
    pod = snapshot.pod(key)
    place = None if pod is None else pod.nominated_node
    if pod is None or not place or place not in snapshot.layout.row_of:
        return ""
    going = [str(one.key) for one in snapshot.node(place).pods if one.leaving and one.priority < pod.priority]
    return f"{place}: waits until {', '.join(going)} left" if going else ""


def _strangers_table(strangers: Mapping[str, int]) -> Table:
    rows = [(name, str(strangers[name])) for name in sorted(strangers)]
    note = "no profile of the policy has these names; --all-schedulers decides about them, too"
    columns = (Column("SCHEDULER"), Column("PODS", number=True))
    return Table(title="Not ours", columns=columns, rows=rows, note=note)


def jobs_table(result: ScheduleResult, plans: Sequence[JobPlan]) -> Table:
    """One row per gang group: how much of it runs, over what it spreads, and what is known of the plan."""
    rows: list[tuple[str, ...]] = []
    preempting = {one.job for one in result.preemptions}
    names = used_domains(result)
    short = {} if all(one.placed or one.detail for one in plans) else lacking(result.snapshot, result.policy)
    for plan in plans:
        domains = ", ".join(
            _domains_text(layer, count, names.get(plan.job, {}).get(layer, ()))
            for layer, count in plan.domains.items()
        )
        nowhere = "preempts" if plan.job in preempting else "no place"
        outcome = "placed" if plan.placed else "waits" if plan.held else nowhere
        known = plan.certificate.status.text if plan.certificate else ""
        known = "all placed" if plan.only_counted else known
        members = f"{plan.placed or plan.held}/{plan.members}"
        why = plan.detail or short.get(plan.job) or plan.message
        rows.append((plan.job, members, str(plan.least), outcome, domains, known, why))
    columns = (
        Column("GANG"),
        Column("MEMBERS", number=True),
        Column("AT LEAST", number=True, rank=3),
        Column("OUTCOME"),
        Column("OVER", text=True, rank=1),
        Column("CERTIFICATE", rank=2),
        Column("WHY NOT", text=True, rank=1),
    )
    source = network_used(result)
    return Table(title="Gangs", columns=columns, rows=rows, note=f"network: {source}" if source else "")


def _domains_text(layer: str, count: int, names: Sequence[str]) -> str:
    """Name the domains of one layer where they are few, and count them where they are many or nodes.

    >>> _domains_text("BlockLayer", 2, ["b1", "b2"]), _domains_text("NodeTopologyLayer", 1, [])
    ('blocks b1 b2', '1 node')
    """
    kind = layer.removesuffix("Layer").removesuffix("Topology").lower() + "s" * (count != 1)
    return f"{kind} {' '.join(names)}" if 0 < len(names) <= _NAMED else f"{count} {kind}"


def _joint_table(result: ScheduleResult) -> Table:
    """One row per run of gangs that were planned as one: what that brings, and what is known of it."""
    columns = (
        Column("GANGS", text=True),
        Column("START", number=True, tone=Tone.GOOD),
        Column("ONE BY ONE", number=True),
        Column("OBJECTIVE", text=True, rank=2),
        Column("BOUND", text=True, rank=3),
        Column("CERTIFICATE", rank=1),
    )
    rows = []
    for plan in result.together:
        known = plan.certificate
        objective, bound = (" ".join(map(str, part)) for part in (known.objective, known.bound))
        names = f"{plan.jobs[0]} to {plan.jobs[-1]}, {len(plan.jobs)}"
        rows.append(
            (names, str(len(plan.started)), str(plan.one_by_one), objective, bound, known.status.text)
        )
    note = "gangs per priority and members (negated), then domains per layer from the top down"
    return Table(title="Planned together", columns=columns, rows=rows, note=note)


def describe_requests(pod: Pod) -> str:
    """Write what a pod asks for on one line: cpu and memory first, then names without domain, then claims."""
    first = ("cpu", "memory")
    names = [name for name in (*first, *sorted(pod.requests.keys() - set(first))) if pod.requests.get(name)]
    amounts = [short_amount(name, pod.requests[name]) for name in names]
    nothing = "nothing that can be read" if pod.unreadable else "nothing"
    return ", ".join((*amounts, *(f"claim {one.name}" for one in pod.resource_claims))) or nothing


def short_amount(name: str, value: int) -> str:
    """Write one amount with the short name of its resource.

    >>> short_amount("memory", 2**30), short_amount("nvidia.com/gpu", 8), short_amount("cpu", 500)
    ('1Gi', '8 gpu', '0.5 cpu')
    """
    return amount(name, value) if name == "memory" else f"{amount(name, value)} {name.rpartition('/')[2]}"


def _waiting_row(decision: PodDecision) -> tuple[str, str, str]:
    match decision:
        case Unschedulable():
            return (str(decision.pod), nearest_text(decision), decision.message)
        case Waiting():
            return (str(decision.pod), decision.held.node if decision.held else "", decision.reason)
        case Nominated():
            victims = ", ".join(str(one.pod) for one in decision.victims)
            return (str(decision.pod), decision.node, f"nominated, once {victims} left")
        case Bound():
            return (str(decision.pod), decision.node, "bound")
        case NotOurs():
            return (str(decision.pod), "", f"waits for the scheduler {decision.scheduler_name}")


def nearest_text(decision: Unschedulable) -> str:
    """Write which node came closest and what it lacks."""
    near = decision.nearest
    if near is None:
        return ""
    parts = []
    for one in near.short:
        if one.resource and one.lacking:
            parts.append(f"lacks {short_amount(one.resource, one.lacking)}")
        elif one.resource and one.requested:
            parts.append(f"lacks {short_amount(one.resource, one.requested)} that go together")
        else:
            parts.append(one.reason)
    return f"{near.node}: {'; '.join((*parts, *near.remarks))}"
