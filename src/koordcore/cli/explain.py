"""``koordcore explain``: why here, why not there, what would help."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Final

import attrs

from koordcore.cli.inputs import (
    add_lend,
    add_now,
    add_paths,
    as_of,
    find_member,
    find_pod,
    lent,
    load_paths,
    read_now,
)
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.queues import decide, in_queue, said
from koordcore.cli.schedule import describe_requests, short_amount
from koordcore.cli.tables import Column, Table, Tone, amount, show
from koordcore.controlplane.workload_pods import workload_of
from koordcore.explaining import Explanation, NodeVerdict, explain
from koordcore.explaining.groups import explain_group
from koordcore.explaining.post_filter import failure_event
from koordcore.explaining.schedule_explanation import schedule_explanation
from koordcore.manifests.front_doors import DOORS
from koordcore.model.decisions import Bound, NotOurs, Shortfall, Unschedulable, Waiting
from koordcore.model.metrics import NodeMetric
from koordcore.model.pods import Pod
from koordcore.snapshot import ClusterSnapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPILOG: Final = """\
examples:
  koordcore explain default/trainer-0 cluster.yaml
  koordcore explain trainer-0 cluster.yaml --nodes 50
  koordcore explain jobset/train cluster.yaml train.yaml      what would become of it if it were submitted
  koordcore explain trainer-0 cluster.yaml --event
  koordcore explain trainer-0 cluster.yaml -o object     as a ScheduleExplanation, for its whole job
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Say why a pod goes where it goes, why not elsewhere, and what would help."
    parser.epilog = EPILOG
    parser.add_argument(
        "pod",
        metavar="POD",
        help="namespace/name, a name that is unambiguous, or a job or group "
        "such as job/train or podgroup/ml/train",
    )
    add_paths(parser)
    add_policy(parser)
    add_now(parser, "the newest metric's")
    add_lend(parser)
    parser.add_argument(
        "--event",
        action="store_true",
        help="also the FailedScheduling event as the reference writes it, with why no reservation and no "
        "eviction helps; takes a while in a large cluster",
    )
    parser.add_argument("--nodes", type=int, default=10, metavar="N", help="how many nodes to show (10)")
    parser.add_argument("-o", "--output", choices=("table", "json", "object"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain one pod; 1 when no node can take it."""
    arguments.as_gangs = arguments.as_gangs or arguments.pod.partition("/")[0].lower() in DOORS
    snapshot, now = lent(arguments, as_of(arguments, load_paths(arguments).snapshot)), read_now(arguments)
    pod = find_member(snapshot, arguments.pod) or find_pod(snapshot, arguments.pod)
    policy = read_policy(arguments)
    queued = ""
    if in_queue(snapshot, pod):
        decided = decide(snapshot, policy, now, as_gangs=True)
        queued = said(next(one for one in decided.workloads if one.workload == workload_of(pod)))
        snapshot = decided.before
        pod = snapshot.pod(pod.key) or pod
    if arguments.output == "object":
        answer = schedule_explanation(snapshot, pod, now=now or _moment(snapshot), policy=policy)
        print(json.dumps(answer, indent=2))
        return 0 if answer["status"].get("schedulable") else 1
    explanation = explain(snapshot, pod, policy=policy, now=now)
    asked = arguments.event and explanation.best is None and pod.node_name is None
    event = failure_event(snapshot, pod, policy=policy, now=now) if asked else ""
    if arguments.output == "json":
        print(json.dumps(_record(explanation) | ({"event": event} if event else {}), indent=2))
    else:
        if queued:
            print(queued)
        print_explanation(snapshot, pod, explanation, arguments.nodes)
        waits = pod.node_name is None and snapshot.pod(pod.key) is not None
        for line in explain_group(snapshot, pod, policy=policy) if waits else ():
            print(line)
        if event:
            print(f"Event: {event}")
    return 0 if explanation.best is not None else 1


def _moment(snapshot: ClusterSnapshot) -> datetime:
    """Give the time of the dump: that of its newest metric or pod."""
    metrics = [one.update_time // 1000 for one in snapshot.of(NodeMetric) if one.update_time is not None]
    pods = chain(snapshot.pending, snapshot.bound_pods())
    times = [_EPOCH + timedelta(microseconds=one) for one in metrics]
    times += [time for pod in pods for time in (pod.created, pod.scheduled) if time is not None]
    return max(times, default=_EPOCH)


def _record(explanation: Explanation) -> dict[str, object]:
    record: dict[str, object] = attrs.asdict(
        explanation, value_serializer=lambda _, __, value: dict(value) if hasattr(value, "items") else value
    )
    record["pod"] = str(explanation.pod)
    record["best"] = explanation.best
    return record


def print_explanation(snapshot: ClusterSnapshot, pod: Pod, explanation: Explanation, most: int) -> None:
    """Print one pod's tables."""
    where = f"bound to {explanation.bound_to}" if explanation.bound_to else "pending"
    print(f"{pod.key}: {where}, priority {pod.priority}, asks for {describe_requests(pod)}")
    if pod.gated:
        print(f"gated by {', '.join(pod.gates)}")
    if explanation.refusal:
        print(f"refused before any node is asked: {explanation.refusal}")
        return
    outcome = _outcome(explanation)
    if outcome:
        print(outcome)
    print()
    fitting = [one for one in explanation.verdicts if one.fits]
    refusing = [one for one in explanation.verdicts if not one.fits]
    if fitting:
        show(_fitting_table(fitting, most))
    if refusing:
        show(_refusing_table(refusing, most))
    if explanation.help:
        show(_help_table(explanation))
        for one in explanation.help:
            for line in one.details:
                print(f"{one.nearest}: {line}")


def _outcome(explanation: Explanation) -> str:
    """Say what is decided in the pod's turn, where the nodes by themselves do not tell."""
    match explanation.decision:
        case Bound() as bound:
            return f"goes to {bound.node} in its turn"
        case Waiting() as waiting:
            return f"waits in its turn: {waiting.reason}"
        case Unschedulable() as refused if explanation.fitting:
            return f"refused in its turn: {refused.refusal or refused.message}"
        case NotOurs() as other:
            return f"waits for the scheduler {other.scheduler_name}, which no profile of the policy names"
        case _:
            return ""


def _help_table(explanation: Explanation) -> Table:
    columns = (
        Column("NODES", number=True),
        Column("REFUSED BY"),
        Column("NEAREST", tone=Tone.NAME),
        Column("WOULD TAKE IT WITH"),
    )
    rows = [
        (
            str(one.nodes),
            ", ".join(one.plugins),
            one.nearest,
            "; ".join(dict.fromkeys(map(_change, one.shortfalls))),
        )
        for one in explanation.help
    ]
    return Table(title="What would help", columns=columns, rows=rows)


def _change(shortfall: Shortfall) -> str:
    if shortfall.resource and shortfall.lacking:
        return f"{short_amount(shortfall.resource, shortfall.lacking)} more"
    if shortfall.resource and shortfall.requested:
        return f"{short_amount(shortfall.resource, shortfall.requested)} that go together"
    return f"lift: {shortfall.reason}"


def _fitting_table(fitting: list[NodeVerdict], most: int) -> Table:
    names = sorted({name for one in fitting for name in one.scores})
    columns = [Column("NODE", tone=Tone.GOOD), Column("TOTAL", number=True)]
    columns += [Column(name, number=True) for name in names]
    rows = [
        (one.node, str(one.total), *(str(one.scores.get(name, 0)) for name in names))
        for one in fitting[:most]
    ]
    more = len(fitting) - len(rows)
    return Table(
        title=f"Fits on {len(fitting)} node{'s' * (len(fitting) != 1)}; scores before weights, best first",
        columns=tuple(columns),
        rows=rows,
        note=f"… and {more} more" if more else "",
    )


def _refusing_table(refusing: list[NodeVerdict], most: int) -> Table:
    rows = [(one.node, one.plugin, _lacks(one)) for one in refusing[:most]]
    more = len(refusing) - len(rows)
    return Table(
        title=f"Does not fit on {len(refusing)} node{'s' * (len(refusing) != 1)}",
        columns=(Column("NODE", tone=Tone.BAD), Column("REFUSED BY"), Column("BECAUSE")),
        rows=rows,
        note=f"… and {more} more" if more else "",
    )


def _lacks(verdict: NodeVerdict) -> str:
    parts = []
    for one in verdict.shortfalls:
        text = one.reason
        if one.resource:
            asked, free = amount(one.resource, one.requested), amount(one.resource, one.available)
            text += f" ({asked} asked, {free} free)"
        parts.append(text)
    return "; ".join(parts)
