"""``koordcore schedule``: place the pending pods of a dump."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from koordcore.checking import verify
from koordcore.cli.evictions import preemption_table, victims_table
from koordcore.cli.inputs import (
    add_lend,
    add_now,
    add_paths,
    as_of,
    lent,
    load_paths,
    read_now,
    say_left_out,
    say_podless,
)
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.queues import Decided, decide, workload_record, workloads_table
from koordcore.cli.tables import Column, Table, Tone, amount, need_yaml, show, working
from koordcore.explaining.network import used_domains
from koordcore.manifests.plan_patches import patches
from koordcore.manifests.proof_records import certificates_of, proofs_record
from koordcore.manifests.records import network_used, result_record
from koordcore.model.decisions import Bound, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.pods import Pod
from koordcore.model.policy import GangTurns
from koordcore.model.preemption import PreemptionRules, Relocation
from koordcore.model.reservations import Reservation
from koordcore.result import ScheduleResult
from koordcore.simulate.record import write_record

_NAMED: Final = 3
"""Domains of a layer that are named in a gang's row."""

EPILOG: Final = """\
examples:
  koordcore schedule cluster.yaml                 a table of where each pending pod goes
  koordcore schedule - -o json < dump.json        for programs
  koordcore schedule cluster.yaml -o patches      what a controller would send, a call per line
  koordcore schedule cluster.yaml --policy conf.yaml
  koordcore schedule cluster.yaml --layers block=LABEL,rack=LABEL     the network by plain node labels
  koordcore schedule cluster.yaml jobset.yaml --as-gangs    a job before its pods and groups are made
  koordcore schedule cluster.yaml --joint-gangs   gangs of the queue together instead of one by one
  koordcore schedule cluster.yaml --preempt       also who would have to go for whoever finds no place
  koordcore schedule cluster.yaml --preempt --relocate    and who of them could move instead
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Place the pending pods of a cluster dump and check the plan."
    parser.epilog = EPILOG
    add_paths(parser)
    add_policy(parser)
    add_now(parser, "the newest metric's")
    add_lend(parser)
    parser.add_argument(
        "--preempt",
        action="store_true",
        help="plan who has to go for jobs that find no place, and show whose job it is and what it costs",
    )
    parser.add_argument(
        "--joint-gangs",
        action="store_true",
        help="plan gangs that follow each other in the queue as one, so that most of them start",
    )
    parser.add_argument(
        "--relocate",
        action="store_true",
        help="with --preempt: move pods that fit elsewhere instead, and prefer those who can move",
    )
    parser.add_argument("-o", "--output", choices=(*PRINTERS, "patches"), default="table")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write the call down, for `koordcore simulate FILE`"
    )
    parser.add_argument(
        "--proofs",
        type=Path,
        metavar="FILE",
        help="write down why nothing better exists, for `koordcore verify --proofs FILE`",
    )
    parser.add_argument(
        "--limit", type=int, default=40, metavar="N", help="rows per table (40); 0 shows all of them"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Schedule, verify, print; 1 when a pod found no node."""
    if arguments.relocate and not arguments.preempt:
        print("koordcore: --relocate: pods move only for a job that preempts; add --preempt", file=sys.stderr)
        return 2
    if arguments.as_gangs and arguments.output == "patches":
        print(
            "koordcore: --as-gangs: pods that nobody has made cannot be bound; -o json plans", file=sys.stderr
        )
        return 2
    loaded = load_paths(arguments)
    policy = read_policy(arguments)
    if arguments.joint_gangs:
        policy = attrs.evolve(policy, gangs=GangTurns.TOGETHER)
    snapshot, now = lent(arguments, as_of(arguments, loaded.snapshot)), read_now(arguments)
    relocation = Relocation.FIRST if arguments.relocate else Relocation.NEVER
    rules = PreemptionRules(relocation=relocation) if arguments.preempt else None
    with working(f"placing {len(snapshot.pending)} pods on {len(snapshot.nodes)} nodes"):
        decided = decide(snapshot, policy, now, rules, as_gangs=arguments.as_gangs)
        result = decided.result
        violations = verify(decided.before, result)
    if violations:
        # The library promises that this cannot happen; if it does, nobody should act on the plan.
        for violation in violations:
            print(f"koordcore: the plan is not legal: {violation}", file=sys.stderr)
        return 1
    if arguments.record and decided.workloads:
        print("koordcore: --record: a call with Workloads of Kueue cannot be written down", file=sys.stderr)
        return 2
    if arguments.record:
        record = write_record(snapshot, None, result, policy=policy, now=now, preempt=rules)
        arguments.record.write_text(record, encoding="utf-8")
    if arguments.proofs:
        proofs = proofs_record(certificates_of(result))
        arguments.proofs.write_text(json.dumps(proofs) + "\n", encoding="utf-8")
    say_left_out(result, quiet=arguments.quiet)
    say_podless(arguments, loaded)
    if arguments.output == "patches":
        print_patches(result, now)
        if arguments.lend:
            _print_settings(result)
    else:
        PRINTERS[arguments.output](decided, arguments.limit)
    left = any(not one.admitted for one in decided.workloads)
    return 1 if left or any(isinstance(one, Unschedulable) for one in result.decisions) else 0


def _print_settings(result: ScheduleResult) -> None:
    """Print what the agents of their nodes set for the pods that were placed."""
    from koordcore.colocation.agent import pod_settings

    placed = {one.pod: one.node for one in result.bound}
    for one in pod_settings(result.snapshot, set(placed.values())):
        if one.pod in placed:
            print(json.dumps(one.record()))


def print_json(decided: Decided, limit: int) -> None:
    """Print all decisions as JSON."""
    del limit
    print(json.dumps(_record(decided), indent=2))


def _record(decided: Decided) -> dict[str, object]:
    record = result_record(decided.result)
    return record | (
        {"workloads": [workload_record(one) for one in decided.workloads]} if decided.workloads else {}
    )


def print_patches(result: ScheduleResult, now: datetime | None = None) -> None:
    """Print what a controller would send to the API server, one JSON object per line, in that order."""
    # The command line alone may look at a clock; device plugins find new pods by the time of their binding.
    for call in patches(result, now=now, bound_at=now or datetime.now(UTC)):
        print(json.dumps(call.to_json()))


def print_yaml(decided: Decided, limit: int) -> None:
    """Print all decisions as YAML."""
    del limit
    need_yaml("output as YAML")
    import yaml  # optional: only this output needs it

    print(yaml.safe_dump(_record(decided), sort_keys=False, allow_unicode=True), end="")


def print_plan(decided: Decided, limit: int) -> None:
    """Print what became of Workloads, and the tables of the plan."""
    if decided.workloads:
        show(_cut(workloads_table(decided.workloads), limit))
    print_tables(decided.result, limit)


def print_tables(result: ScheduleResult, limit: int) -> None:
    """Print where each pod goes, why the others wait, and a last line with the sums."""
    pods = {pod.key: pod for pod in (*result.snapshot.bound_pods(), *result.snapshot.pending)}
    reservations = {one.pod_key: one for one in result.snapshot.of(Reservation)}
    placed = []
    for one in result.decisions:
        if isinstance(one, Bound):
            held = reservations.get(one.pod)
            row = _placed_row(one, pods[one.pod] if held is None else held.template or Pod(name=held.name))
            placed.append(row if held is None else (f"reservation/{held.name}", *row[1:]))
    if result.jobs:
        show(_cut(_jobs_table(result), limit))
    if result.together:
        show(_cut(_joint_table(result), limit))
    if placed:
        extra = any(row[4] for row in placed)
        columns = [
            Column("POD", tone=Tone.NAME),
            Column("NODE", tone=Tone.GOOD),
            Column("ASKS FOR"),
            Column("SCORE", number=True),
            *([Column("GETS")] if extra else []),
        ]
        rows = [row if extra else row[:4] for row in placed]
        show(_cut(Table(title="Placed", columns=tuple(columns), rows=rows), limit))
    if result.preemptions:
        show(_cut(preemption_table(result), limit))
        show(_cut(victims_table(result), limit))
    waiting = _merged(
        [
            (f"reservation/{reservations[one.pod].name}", *_waiting_row(one)[1:])
            if one.pod in reservations
            else _waiting_row(one)
            for one in result.decisions
            if not isinstance(one, Bound | Nominated | NotOurs)
        ]
    )
    if waiting:
        columns = [Column("POD", tone=Tone.NAME), Column("NEAREST"), Column("WHY", tone=Tone.BAD)]
        show(_cut(Table(title="Not placed", columns=tuple(columns), rows=waiting), limit))
    strangers = Counter(one.scheduler_name for one in result.decisions if isinstance(one, NotOurs))
    if strangers:
        rows = [(name, str(strangers[name])) for name in sorted(strangers)]
        columns = [Column("SCHEDULER", tone=Tone.NAME), Column("PODS", number=True)]
        note = "no profile of the policy has these names; --all-schedulers decides about them, too"
        table = Table(title="Not ours", columns=tuple(columns), rows=rows, note=note)
        show(_cut(table, limit))
    stats = result.stats
    others = f" waiting · {stats['not_ours']} not ours" if stats.get("not_ours") else " waiting"
    nominated = f" · {stats['nominated']} nominated" if stats.get("nominated") else ""
    print(
        f"{stats['bound']} of {stats['pods']} pods placed on {stats['nodes']} nodes"
        f"{nominated} · {stats['unschedulable']} unschedulable · {stats['waiting']}{others} · verified"
    )


def _jobs_table(result: ScheduleResult) -> Table:
    """One row per gang group: how much of it runs, over what it spreads, and what is known of the plan."""
    rows: list[tuple[str, ...]] = []
    preempting = {one.job for one in result.preemptions}
    names = used_domains(result)
    for plan in result.jobs:
        domains = ", ".join(
            _domains_text(layer, count, names.get(plan.job, {}).get(layer, ()))
            for layer, count in plan.domains.items()
        )
        nowhere = "preempts" if plan.job in preempting else "no place"
        outcome = "placed" if plan.placed else "waits" if plan.held else nowhere
        known = plan.certificate.status.text if plan.certificate else ""
        why = plan.detail or plan.message
        rows.append(
            (
                plan.job,
                f"{plan.placed or plan.held}/{plan.members}",
                str(plan.least),
                outcome,
                domains,
                known,
                why,
            )
        )
    titles = ("GANG", "MEMBERS", "AT LEAST", "OUTCOME", "OVER", "CERTIFICATE", "WHY NOT")
    columns = [Column(name, number=name in ("MEMBERS", "AT LEAST")) for name in titles]
    if not any(row[-1] for row in rows):
        columns.pop()
        rows = [row[:-1] for row in rows]
    return Table(title="Gangs", columns=tuple(columns), rows=rows, note=_network_note(result))


def _network_note(result: ScheduleResult) -> str:
    """Say which network the gangs were gathered in, where one was looked at."""
    source = network_used(result)
    return f"network: {source}" if source else ""


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
        Column("GANGS", tone=Tone.NAME),
        Column("START", number=True, tone=Tone.GOOD),
        Column("ONE BY ONE", number=True),
        Column("OBJECTIVE"),
        Column("BOUND"),
        Column("CERTIFICATE"),
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


def _cut(table: Table, limit: int) -> Table:
    more = len(table.rows) - limit
    if limit <= 0 or more <= 0:
        return table
    return attrs.evolve(table, rows=table.rows[:limit], note=f"… and {more} more rows; --limit 0 shows all")


def _merged(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Join pods that wait for the same reason into one row."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, *why in rows:
        names.setdefault(tuple(why), []).append(name)
    return [
        (same[0] if len(same) == 1 else f"{same[0]} and {len(same) - 1} more", *why)
        for why, same in names.items()
    ]


def describe_requests(pod: Pod) -> str:
    """Write what a pod asks for on one line: cpu and memory first, then names without domain, then claims."""
    first = ("cpu", "memory")
    names = [name for name in (*first, *sorted(pod.requests.keys() - set(first))) if pod.requests.get(name)]
    amounts = [short_amount(name, pod.requests[name]) for name in names]
    return ", ".join((*amounts, *(f"claim {one.name}" for one in pod.resource_claims))) or "nothing"


def short_amount(name: str, value: int) -> str:
    """Write one amount with the short name of its resource.

    >>> short_amount("memory", 2**30), short_amount("nvidia.com/gpu", 8), short_amount("cpu", 500)
    ('1Gi', '8 gpu', '0.5 cpu')
    """
    return amount(name, value) if name == "memory" else f"{amount(name, value)} {name.rpartition('/')[2]}"


def _placed_row(decision: Bound, pod: Pod) -> tuple[str, ...]:
    devices = [result.device for held in decision.claims for result in held.allocation.results]
    gets = ", ".join((*devices, *decision.notes))
    return (str(decision.pod), decision.node, describe_requests(pod), str(decision.score), gets)


def _waiting_row(decision: PodDecision) -> tuple[str, ...]:
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
    for one in near.shortfalls:
        if one.resource and one.lacking:
            parts.append(f"lacks {short_amount(one.resource, one.lacking)}")
        elif one.resource and one.requested:
            parts.append(f"lacks {short_amount(one.resource, one.requested)} that go together")
        else:
            parts.append(one.reason)
    return f"{near.node}: {'; '.join((*parts, *near.remarks))}"


PRINTERS: Final[dict[str, Callable[[Decided, int], None]]] = {
    "table": print_plan,
    "json": print_json,
    "yaml": print_yaml,
}
