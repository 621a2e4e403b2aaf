"""``koordcore explain``: why here, why not there, what would help."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final

import attrs

from koordcore.cli.diff import compare_plans, read_plan
from koordcore.cli.explain_tables import (
    advice_record,
    explanation_tables,
    members_table,
    say_advice,
    say_head,
)
from koordcore.cli.finding import RESERVATION, Subject, find_subject, is_of_jobs, job_named, name_and_paths
from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import add_lend, add_now, add_paths, as_of, lent, load_paths, read_now
from koordcore.cli.layout import Table
from koordcore.cli.output import NAME, add_limit, add_output, for_programs, natural, print_record
from koordcore.cli.placing import place
from koordcore.cli.plan_tables import jobs_table
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.progress import working
from koordcore.cli.queues import decide, in_queue, said, workload_record
from koordcore.cli.selection import ONE_POD, add_selection, need_use
from koordcore.cli.tables import check_heading, say, show
from koordcore.cli.useful_moves import with_moves
from koordcore.errors import ModelError
from koordcore.explaining import Explanation, explain
from koordcore.explaining.advice import Advice, advise
from koordcore.explaining.groups import job_states
from koordcore.explaining.post_filter import failure_event
from koordcore.explaining.schedule_explanation import schedule_explanation
from koordcore.explaining.verdicts import NodeVerdicts
from koordcore.model.decisions import Bound, Nominated, PodDecision, Unschedulable, Waiting
from koordcore.model.metrics import NodeMetric
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.protocol.workload_pods import workload_of
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NODES: Final = 10
_OBJECT: Final = "object"
"""The form of a ScheduleExplanation."""
_COUNTED: Final = "can serve"
"""How a line ends that says what the table of nodes says in amounts."""
EPILOG: Final = """\
What would help is tried out before it is said, with whoever waits before it
in the queue served first, and listed from what costs least: wait, change the
pod, ask for less, move others, evict, more nodes.

examples:
  koordcore explain urgent-1 cluster.yaml
  koordcore explain pretrain cluster.yaml              a gang, or a workload
  koordcore explain report cluster.yaml --nodes 50
  koordcore explain jobset/train cluster.yaml train.yaml  before submitting
  koordcore explain report cluster.yaml --event
  koordcore explain web-0 cluster.yaml -o name         nodes on which it fits
  koordcore explain pretrain-0 cluster.yaml -o object  as a ScheduleExplanation
  koordcore explain --diff a.json b.json cluster.yaml  why two plans differ
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Say why a pod or a gang goes where it goes in its turn, why not elsewhere, and what would help."
    )
    parser.epilog = EPILOG
    parser.add_argument(
        "pod",
        metavar="NAME",
        help="a pod, gang or workload, as name or namespace/name, or a job or group such as job/train or "
        "podgroup/ml/train",
    )
    add_paths(parser)
    add_policy(parser)
    add_now(parser, "the newest metric's")
    add_lend(parser)
    parser.add_argument(
        "--diff", nargs=2, metavar=("PLAN", "PLAN"), help="say why two plans of the dump differ, in its place"
    )
    parser.add_argument(
        "--event",
        action="store_true",
        help="also the FailedScheduling event as the reference writes it, with why no reservation and no "
        "eviction helps; takes a while in a large cluster",
    )
    parser.add_argument(
        "--nodes", type=natural, metavar="N", help=f"how many rows of nodes to show ({_NODES}); 0: none"
    )
    add_limit(parser, 40, "rows of members, and of tables with --diff (40)")
    add_selection(parser)
    add_output(parser, _OBJECT, watch=True)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain one pod or gang; 1 when it gets no node."""
    if arguments.diff:
        return _compare(arguments)
    _need_use(arguments)
    arguments.nodes = _NODES if arguments.nodes is None else arguments.nodes
    arguments.pod, arguments.paths = _name_first(arguments)
    arguments.as_gangs = arguments.as_gangs or is_of_jobs(arguments.pod)
    arguments.job = job_named(arguments.pod, arguments.namespace or "")
    loaded = load_paths(arguments)
    snapshot, now = lent(arguments, as_of(arguments, loaded.snapshot)), read_now(arguments)
    subject = find_subject(snapshot, arguments.pod, arguments.namespace or "", loaded.warnings)
    pod, policy = subject.pods[0], read_policy(arguments)
    if subject.kind == RESERVATION and arguments.event:
        raise ModelError(f"--event: {subject.name} is no pod")
    queued = None
    if in_queue(snapshot, pod):
        decided = decide(snapshot, policy, now, as_gangs=True)
        queued = next(one for one in decided.workloads if one.workload == workload_of(pod))
        snapshot = decided.before
        subject = attrs.evolve(subject, pods=tuple(snapshot.pod(one.key) or one for one in subject.pods))
        pod = subject.pods[0]
    if arguments.output == _OBJECT:
        answer = schedule_explanation(snapshot, pod, now=now or _moment(snapshot), policy=policy)
        print(json.dumps(answer, indent=2))
        return 0 if answer["status"].get("schedulable") else 1
    if pod.node_name is not None or subject.kind == RESERVATION:
        return _alone(arguments, snapshot, subject, policy, now)
    result = place(snapshot, policy, now)
    pod = _who(subject, {one.pod for one in result.decisions}, {one.pod for one in result.bound})
    advice, explanation = _looked_into(snapshot, result, pod, policy, now)
    decision = result.decision(pod.key) or explanation.decision
    explanation = attrs.evolve(explanation, decision=decision)
    event = _event(arguments, advice.at_turn, pod, explanation, policy)
    if for_programs(arguments):
        extra: dict[str, object] = {"event": event} if arguments.event else {}
        extra |= {} if queued is None else {"queued": workload_record(queued)}
        print_record(arguments, _record(explanation) | {"advice": advice_record(advice)} | extra)
        return 0 if advice.settled else 1
    if arguments.output == NAME:
        _print_fitting(explanation)
        return 0 if advice.settled else 1
    together = advice.members if len(advice.members) > 1 else tuple(one.key for one in subject.pods)
    tables = _tables(arguments, subject, result, explanation, together)
    check_heading(*tables)
    if queued is not None:
        say(said(queued))
    say_head(pod, subject, advice)
    if len(advice.members) > 1 or pod.scheduling_group is not None:
        _say_groups(snapshot, pod, policy)
    say_advice(advice, str(pod.key) if len(together) > len(advice.members) else "")
    show(*tables)
    _say_details(explanation)
    if "reservation affinity" in explanation.refusal:
        # Only who asks for a reservation pays for reading how they match.
        from koordcore.reservations.occupants import unserving

        say("\n".join(unserving(snapshot, pod)))
    if arguments.event:
        say(f"Event: {event or f'none: {_no_event(decision)}'}")
    return 0 if advice.settled else 1


def _compare(arguments: argparse.Namespace) -> int:
    """Compare two plans by what they say of a pod."""
    if arguments.watch is not None:
        raise ModelError("--watch: two plans do not change; it is about a pod or a gang")
    need_use_of(arguments, "it is about a pod or a gang, and --diff compares two plans", "--event", "--nodes")
    arguments.paths.insert(0, arguments.pod)
    first, second = (read_plan(one, "--diff") for one in arguments.diff)
    return compare_plans(arguments, first, second)


def _need_use(arguments: argparse.Namespace) -> None:
    """Refuse what the form of the answer has no place for."""
    need_use(arguments, labels=ONE_POD)
    if for_programs(arguments) or arguments.output in (NAME, _OBJECT):
        need_use_of(arguments, f"it is about rows of tables, and -o {arguments.output} has none", "--nodes")
    if arguments.output in (NAME, _OBJECT):
        need_use_of(arguments, f"-o {arguments.output} has no place for an event", "--event")


def _looked_into(
    snapshot: ClusterSnapshot, result: ScheduleResult, pod: Pod, policy: Policy, now: datetime | None
) -> tuple[Advice, Explanation]:
    """Find out what would help a pod, and what each node says to it in its turn."""
    with working("looking for what would help") as step:
        # Moves are tried out last.
        advice = advise(snapshot, result, pod, now=now, progress=lambda done, total: step(done, total + 1))
        advice = with_moves(advice, policy)
        # Where the search for it begins hangs on those before it.
        sampled = any(one.percentage_of_nodes < 100 for one in policy.profiles)
        return advice, explain(snapshot if sampled else advice.at_turn, pod, policy=policy, now=now)


def _tables(
    arguments: argparse.Namespace,
    subject: Subject,
    result: ScheduleResult,
    explanation: Explanation,
    together: Sequence[PodKey],
) -> list[Table]:
    """Put the jobs and members that are decided together before what is said of one pod."""
    tables = explanation_tables(explanation, arguments.nodes)
    if len(together) > 1:
        tables.insert(0, members_table(result, together, arguments.limit))
    several = [plan for plan in result.jobs if not subject.gangs.keys().isdisjoint(plan.job.split(","))]
    if len(several) > 1:
        tables.insert(0, jobs_table(result, several))
    return tables


def _say_groups(snapshot: ClusterSnapshot, pod: Pod, policy: Policy) -> None:
    """Say where the group of a pod stands, and each of its parts."""
    for one in job_states(snapshot, pod, policy):
        where = f", in {one.where}" if one.where else ""
        counts = f"at least {one.least}, {one.running} run, {one.waiting} wait"
        say(f"  {'  ' * one.level}{one.name}: {counts}{where}")


def _name_first(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    """Tell the name from the paths, whichever comes first."""
    name, paths = name_and_paths([arguments.pod, *arguments.paths])
    if not name:
        raise ModelError(f"expected NAME and PATH, got {', '.join(paths)} alone")
    return name, paths


def _who(subject: Subject, decided: set[Any], bound: set[Any]) -> Pod:
    """Choose the member to show the nodes of: one that gets none, where there is one."""
    waiting = [pod for pod in subject.pods if pod.key in decided]
    return next((pod for pod in waiting if pod.key not in bound), waiting[0] if waiting else subject.pods[0])


def _alone(
    arguments: argparse.Namespace,
    snapshot: ClusterSnapshot,
    subject: Subject,
    policy: Policy,
    now: datetime | None,
) -> int:
    """Judge a pod that runs as if it were not there yet, or a reservation in its turn."""
    pod = subject.pods[0]
    explanation = explain(snapshot, pod, policy=policy, now=now)
    if for_programs(arguments):
        print_record(arguments, _record(explanation) | ({"event": ""} if arguments.event else {}))
    elif arguments.output == NAME:
        _print_fitting(explanation)
    else:
        say_head(pod, subject, None)
        if isinstance(explanation.decision, Unschedulable) and pod.node_name is None:
            say(explanation.decision.message)
        say("")
        show(*explanation_tables(explanation, arguments.nodes))
        _say_details(explanation)
        if arguments.event:
            say(f"Event: none: it runs on {pod.node_name}")
    return 0 if explanation.best is not None else 1


def _print_fitting(explanation: Explanation) -> None:
    for node in explanation.fitting:
        print(node)


def _event(
    arguments: argparse.Namespace,
    snapshot: ClusterSnapshot,
    pod: Pod,
    explanation: Explanation,
    policy: Policy,
) -> str:
    if not arguments.event or explanation.best is not None:
        return ""
    # Only Koordinator's own profile has several plugins that evict.
    once = policy.plugin("Coscheduling") is None
    event = failure_event(snapshot, pod, policy=policy, now=read_now(arguments), once=once)
    decision = explanation.decision
    # Nodes that take a member by itself have nothing to say; it is refused for what became of its gang.
    return event or (decision.message if isinstance(decision, Unschedulable) else "")


def _no_event(decision: PodDecision | None) -> str:
    """Say why nobody writes a FailedScheduling event."""
    match decision:
        case Waiting():
            return f"it waits: {decision.reason}"
        case Bound() | Nominated():
            return f"it gets {decision.node}"
        case _:
            return "its scheduler decides"


def _say_details(explanation: Explanation) -> None:
    for one in explanation.help:
        amounts = any(lack.resource and lack.lacking for lack in one.shortfalls)
        for line in one.details:
            if not (amounts and line.endswith(_COUNTED)):
                say(f"{one.nearest}: {line}")


def _moment(snapshot: ClusterSnapshot) -> datetime:
    """Give the time of the dump: that of its newest metric or pod."""
    metrics = [one.update_time // 1000 for one in snapshot.of(NodeMetric) if one.update_time is not None]
    pods = chain(snapshot.pending, snapshot.bound_pods())
    times = [_EPOCH + timedelta(microseconds=one) for one in metrics]
    times += [time for pod in pods for time in (pod.created, pod.scheduled) if time is not None]
    return max(times, default=_EPOCH)


def _record(explanation: Explanation) -> dict[str, Any]:
    record: dict[str, Any] = attrs.asdict(explanation, value_serializer=lambda _, __, value: _plain(value))
    record["pod"] = str(explanation.pod)
    record["best"] = explanation.best
    return record


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return tuple(value) if isinstance(value, NodeVerdicts) else value
