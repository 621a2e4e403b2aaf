"""``koordcore when``: the earliest start of a pod or a gang, and what may run before."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timedelta

from koordcore.cli.finding import find_pod
from koordcore.cli.inputs import add_now, add_paths, load_paths, read_now
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.progress import working
from koordcore.cli.tables import show
from koordcore.errors import ManifestError, ModelError
from koordcore.manifests.encode import pod_manifest
from koordcore.model.durations import format_duration
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.protocol.expectations import EXPECTED_DURATION, EXPECTED_END, expected_duration, expected_end
from koordcore.protocol.gang import gang_name
from koordcore.scheduling.backfilling import (
    BackfillPlan,
    EarliestStart,
    NoStart,
    backfill,
    earliest_start,
    future_reservations,
)
from koordcore.snapshot import ClusterSnapshot

EPILOG = f"""\
Running pods say when they will be gone with the annotation
{EXPECTED_END} (an RFC 3339 time) or, counted from their start,
{EXPECTED_DURATION} (such as 1h30m); pods that wait say with the latter
how long they will run. A pod that says neither stays for ever.

examples:
  koordcore when default/urgent-1 cluster.yaml
  koordcore when default/pretrain cluster.yaml --now 2026-11-01T10:00:00Z
  koordcore when default/pretrain cluster.yaml -o reservations > held.json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Say when a pod or a gang can start at the earliest, and what may run before."
    parser.epilog = EPILOG
    parser.add_argument("name", metavar="POD|GANG", help="namespace/name of a pod or a gang that waits")
    add_paths(parser)
    add_policy(parser)
    add_now(parser, "the newest start of a running pod")
    parser.add_argument("-o", "--output", choices=("table", "json", "reservations"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Answer for one pod or gang; 1 when there is no start."""
    snapshot = load_paths(arguments).snapshot
    now = read_now(arguments) or _newest_start(snapshot)
    pods = _asked(snapshot, arguments.name)
    policy = read_policy(arguments)
    ends, durations = _expectations(snapshot)
    with working("looking ahead"):
        plan = earliest_start(snapshot, pods, ends, now=now, policy=policy)
        between = None
        if isinstance(plan, EarliestStart) and plan.start > now:
            between = backfill(snapshot, plan, ends, durations, now=now, policy=policy)
    if arguments.output == "reservations":
        made = () if isinstance(plan, NoStart) else future_reservations(plan)
        items = [_reservation_manifest(one) for one in made]
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
    elif arguments.output == "json":
        print(json.dumps(_record(plan, between), indent=2))
    else:
        _print(arguments.name, plan, between, now)
    return 0 if isinstance(plan, EarliestStart) else 1


def _newest_start(snapshot: ClusterSnapshot) -> datetime:
    times = [pod.started or pod.scheduled for pod in snapshot.bound_pods()]
    known = [one for one in times if one is not None]
    if not known:
        raise ModelError("--now: no running pod says when it started; give the time of the dump")
    return max(known)


def _asked(snapshot: ClusterSnapshot, name: str) -> list[Pod]:
    """Give the pending members of the gang of that name, else the pod of that name."""
    namespace, _, short = name.rpartition("/")
    members = [
        pod
        for pod in snapshot.pending
        if gang_name(pod.labels, pod.annotations) == short and namespace in ("", pod.namespace)
    ]
    if len({pod.namespace for pod in members}) > 1:
        raise ModelError(f"several namespaces have a gang {short}; say which")
    if members:
        return members
    pod = find_pod(snapshot, name)
    if pod.key in snapshot.location:
        raise ModelError(f"pod {pod.key} runs already, on {snapshot.location[pod.key]}")
    gang = gang_name(pod.labels, pod.annotations)
    return _asked(snapshot, f"{pod.namespace}/{gang}") if gang else [pod]


def _expectations(snapshot: ClusterSnapshot) -> tuple[dict[PodKey, datetime], dict[PodKey, timedelta]]:
    ends: dict[PodKey, datetime] = {}
    durations: dict[PodKey, timedelta] = {}
    for pod in (*snapshot.bound_pods(), *snapshot.pending):
        try:
            end = expected_end(pod) if pod.node_name is not None else None
            duration = expected_duration(pod) if pod.node_name is None else None
        except ManifestError as error:
            raise error.within(f"Pod {pod.key}") from None
        if end is not None:
            ends[pod.key] = end
        if duration is not None:
            durations[pod.key] = duration
    return ends, durations


def _record(plan: EarliestStart | NoStart, between: BackfillPlan | None) -> dict[str, object]:
    pods = [str(pod.key) for pod in plan.pods]
    if isinstance(plan, NoStart):
        return {"pods": pods, "start": None, "message": plan.message}
    record: dict[str, object] = {
        "pods": pods,
        "start": plan.start.isoformat(),
        "nodes": {str(key): plan.nodes[key] for key in sorted(plan.nodes)},
        "waitsFor": [str(key) for key in plan.waits_for],
        "tooEarly": plan.too_early and plan.too_early.isoformat(),
        "proven": plan.proven,
    }
    if between is not None:
        record["before"] = [
            {
                "pods": {str(key): job.pods[key] for key in sorted(job.pods)},
                "end": job.end and job.end.isoformat(),
            }
            for job in between.jobs
        ]
        record["heldBack"] = [str(key) for key in between.held_back]
        record["withoutRoom"] = [str(key) for key in between.without_room]
        record["startRecomputed"] = between.recomputed.isoformat()
    return record


def _reservation_manifest(one: Reservation) -> dict[str, object]:
    """Write a reservation that holds a start, with all that is not a default."""
    assert one.template is not None
    template = pod_manifest(one.template)
    named = template["metadata"]
    metadata = {key: named[key] for key in ("labels", "annotations") if key in named}
    owners = [
        {"object": {"namespace": each.object.namespace, "name": each.object.name, "uid": each.object.uid}}
        for each in one.owners
        if each.object is not None
    ]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": one.name},
        "spec": {
            "template": {"metadata": metadata, "spec": template["spec"]},
            "owners": owners,
            "ttl": format_duration(one.ttl or 0),
            "allocateOnce": one.allocate_once,
            "allocatePolicy": str(one.allocate_policy),
        },
    }


def _print(name: str, plan: EarliestStart | NoStart, between: BackfillPlan | None, now: datetime) -> None:
    if isinstance(plan, NoStart):
        print(f"{name}: no start is in sight, even when everybody whose end is known has left")
        print(f"  {plan.message}")
        return
    if plan.start == now:
        print(f"{name}: can start now")
    else:
        print(f"{name}: starts at {plan.start.isoformat()}, in {plan.start - now}")
        print(f"  at {plan.too_early and plan.too_early.isoformat()} it does not fit yet")
        print(f"  waits for {', '.join(map(str, plan.waits_for))}")
    rows = [(str(key), plan.nodes[key]) for key in sorted(plan.nodes)]
    columns = (Column("POD", tone=Tone.NAME), Column("NODE", tone=Tone.GOOD))
    show(Table(title=f"Places of {len(rows)} of {len(plan.pods)}", columns=columns, rows=rows))
    if between is None:
        return
    jobs = [
        (str(key), job.pods[key], job.end.isoformat() if job.end else "not known")
        for job in between.jobs
        for key in sorted(job.pods)
    ]
    show(Table(title="May start now without delaying it", columns=(*columns, Column("ENDS")), rows=jobs))
    for title, keys in (
        ("would delay it", between.held_back),
        ("no room now", between.without_room),
    ):
        if keys:
            print(f"{title}: {', '.join(map(str, keys))}")
    print(f"start recomputed with them running: {between.recomputed.isoformat()}")
