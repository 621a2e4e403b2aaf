"""``koordcore when``: the earliest start of a pod or gang, its place in the queue, what may run before."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import datetime

import attrs

from koordcore.cli.finding import RESERVATION, find_subject, is_of_jobs, job_named, name_and_paths
from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import add_now, add_paths, as_of, load_paths, read_now, say_podless
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import NAME, add_output, for_programs, print_record
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.progress import working
from koordcore.cli.queue_starts import never, place_lines, place_of, place_record, queue_record, show_queue
from koordcore.cli.queues import decide, in_queue, said, waiting_members, workload_record, workload_starts
from koordcore.cli.selection import ONE_POD, add_selection, need_use, selection_of
from koordcore.cli.tables import check_heading, say, show
from koordcore.errors import ModelError
from koordcore.explaining.ends import expectations, newest_start
from koordcore.explaining.groups import job_of, waiting_jobs
from koordcore.explaining.workloads import stand_in_names
from koordcore.manifests import Loaded
from koordcore.manifests.encode import pod_manifest
from koordcore.model.durations import format_duration
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.reservations import Reservation
from koordcore.protocol.expectations import EXPECTED_DURATION, EXPECTED_END
from koordcore.protocol.times import format_time
from koordcore.protocol.workload_pods import workload_of
from koordcore.scheduling.backfilling import (
    BackfillPlan,
    EarliestStart,
    NoStart,
    backfill,
    earliest_start,
)
from koordcore.scheduling.reservations_ahead import future_reservations
from koordcore.scheduling.serving import MOST_ROUNDS, queue_starts, queue_units
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded

EPILOG = f"""\
Running pods say when they will be gone with the annotation
{EXPECTED_END} (an RFC 3339 time) or, counted from their start,
{EXPECTED_DURATION} (such as 1h30m); pods that wait say with the latter
how long they will run. Nobody runs beyond the activeDeadlineSeconds of a
pod or its Job. A pod that has none of these stays for ever.

examples:
  koordcore when default/urgent-1 cluster.yaml
  koordcore when --all cluster.yaml            everybody who waits, in order
  koordcore when jobset/train cluster.yaml train.yaml
  koordcore when pretrain cluster.yaml --now 2026-11-01T10:00:00Z -o json
  koordcore when pretrain cluster.yaml -o reservations > held.json
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Say when a pod or a gang can start at the earliest, who is before it in the queue and when its turn "
        "brings it a place, and what may run before. POD|GANG is namespace/name of a pod or gang that "
        "waits, or a job or group such as job/train or podgroup/ml/train."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    parser.usage = (
        "%(prog)s [-h] [options] POD|GANG PATH [PATH ...]\n       %(prog)s --all [options] PATH [PATH ...]"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="everybody who waits instead of one POD|GANG: the queue served whenever a running pod leaves",
    )
    add_policy(parser)
    add_now(parser, "the newest start of a running pod, else the newest pod's creation,")
    add_output(parser, "reservations", watch=True)
    add_selection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Answer for one pod or gang, or for the whole queue; 1 when there is no start."""
    name = "" if arguments.all else _first_of(arguments)
    need_use(arguments, labels="" if arguments.all else ONE_POD)
    arguments.as_gangs = arguments.as_gangs or is_of_jobs(name)
    arguments.job = job_named(name, arguments.namespace or "")
    loaded = load_paths(arguments)
    snapshot = loaded.snapshot
    say_podless(arguments, loaded)
    if arguments.all and not snapshot.pending and not snapshot.of(Reservation):
        if for_programs(arguments):
            print_record(arguments, {"queue": []})
        else:
            say("nobody waits")
        return 0
    snapshot = as_of(arguments, snapshot)
    now, policy = read_now(arguments) or _moment(snapshot), read_policy(arguments)
    if arguments.all:
        return _show_everybody(arguments, snapshot, policy, now)
    pods = _asked(arguments, loaded, name)
    if in_queue(snapshot, pods[0]):
        return _show_queued(arguments, snapshot, policy, now, pods)
    return _show_one(arguments, snapshot, policy, now, name, pods)


def _show_everybody(
    arguments: argparse.Namespace, snapshot: ClusterSnapshot, policy: Policy, now: datetime
) -> int:
    """Serve the whole queue, and show when everybody starts."""
    if arguments.output == "reservations":
        raise ModelError("-o reservations: holds the start of one POD|GANG, not of --all")
    ends, durations = expectations(snapshot, now)
    queued = waiting_members(snapshot) if arguments.as_gangs else ()
    others = snapshot.apply(*map(PodEnded, queued)) if queued else snapshot
    with working("serving the queue", min(MOST_ROUNDS, 1 + len(set(ends.values())))) as step:
        units = queue_starts(others, ends, durations, now=now, policy=policy, progress=step)
    if queued:
        units = (*units, *workload_starts(decide(snapshot, policy, now, as_gangs=True), now))
    selection = selection_of(arguments)
    held = {str(key): name for key, name in stand_in_names(snapshot).items()}
    shown = [
        (turn, attrs.evolve(unit, name=held.get(unit.name, unit.name)))
        for turn, unit in enumerate(units, 1)
        if selection.all
        or any((pod := snapshot.pod(key)) is not None and selection.pod(pod) for key in unit.pods)
    ]
    if for_programs(arguments):
        print_record(arguments, {"queue": queue_record(shown)})
    else:
        show_queue(shown, now)
    return 0 if all(unit.start is not None for unit in units) else 1


def _show_queued(
    arguments: argparse.Namespace,
    snapshot: ClusterSnapshot,
    policy: Policy,
    now: datetime,
    pods: Sequence[Pod],
) -> int:
    """Say what quota says of pods whose Workload waits in a queue."""
    why = f"Workload {workload_of(pods[0])} waits for quota"
    if arguments.output == "reservations":
        raise ModelError(f"-o reservations: {why}, and no start of it is foreseen that could be held")
    need_use_of(arguments, f"it orders rows of tables, and {why}", "--sort-by")
    decided = decide(snapshot, policy, now, as_gangs=True)
    entry = next(one for one in decided.workloads if one.workload == workload_of(pods[0]))
    members = [str(pod.key) for pod in decided.before.pending if workload_of(pod) == entry.workload]
    if for_programs(arguments):
        print_record(arguments, {"pods": members, "queued": workload_record(entry)})
    elif arguments.output == NAME:
        for member in members if entry.admitted else ():
            print(member)
    else:
        say(f"{said(entry)}\nquota that others give back later is not foreseen")
    return 0 if entry.admitted else 1


def _show_one(
    arguments: argparse.Namespace,
    snapshot: ClusterSnapshot,
    policy: Policy,
    now: datetime,
    name: str,
    pods: Sequence[Pod],
) -> int:
    """Say when one pod or gang starts, what may run before, and where it stands in the queue."""
    ends, durations = expectations(snapshot, now)
    with working("looking ahead", min(MOST_ROUNDS, 1 + len(set(ends.values())))) as step:
        plan = earliest_start(snapshot, pods, ends, now=now, policy=policy)
        between = None
        if isinstance(plan, EarliestStart) and plan.start > now:
            between = backfill(snapshot, plan, ends, durations, now=now, policy=policy)
        place = place_of(queue_units(snapshot, policy), pods)
        start, message = plan.start if isinstance(plan, EarliestStart) else None, ""
        if place is not None and len(place.units) > 1 and arguments.output != "reservations":
            units = queue_starts(
                snapshot, ends, durations, now=now, policy=policy, until=place.unit.name, progress=step
            )
            served = units[place.index]
            start, message = served.start, never(served)
    if arguments.output == "reservations":
        made = () if isinstance(plan, NoStart) else future_reservations(plan)
        items = [_reservation_manifest(one) for one in made]
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=2))
    elif for_programs(arguments):
        queue = place_record(place, start, message)
        print_record(arguments, {**_record(plan, between), "queue": queue})
    else:
        earliest = plan.start if isinstance(plan, EarliestStart) else None
        if isinstance(plan, NoStart) and message == plan.message:
            message = ""  # said already
        _print(name, plan, between, now, place_lines(place, start, message, now=now, earliest=earliest))
    return 0 if isinstance(plan, EarliestStart) else 1


def _first_of(arguments: argparse.Namespace) -> str:
    """Take the name off the positional arguments, which argparse gives as one list."""
    if not arguments.paths:
        raise ModelError("the following arguments are required: POD|GANG, or --all, and PATH, or --live")
    name, paths = name_and_paths(arguments.paths)
    if not name or not (paths or arguments.live):
        given = ", ".join(arguments.paths)
        raise ModelError(f"expected POD|GANG and PATH, got {given} alone; --all is about the whole queue")
    arguments.paths = paths
    return name


def _moment(snapshot: ClusterSnapshot) -> datetime:
    found = newest_start(snapshot)
    if found is None:
        raise ModelError("--now: no pod says when it started or was made; give the time of the dump")
    return found


def _asked(arguments: argparse.Namespace, loaded: Loaded, name: str) -> list[Pod]:
    """Give the pending members of the gang, group or job of that name, else the pod of that name."""
    snapshot, space = loaded.snapshot, arguments.namespace or ""
    jobs = waiting_jobs(snapshot, f"{space}/{name}" if space and "/" not in name else name)
    if len(jobs) > 1:
        raise ModelError(f"several gangs are called {name}: {', '.join(job.name for job in jobs)}")
    if jobs:
        return list(jobs[0].pods)
    subject = find_subject(snapshot, name, space, loaded.warnings)
    if subject.kind == RESERVATION:
        raise ModelError(f"{name} is no pod: `when --all` tells when its turn comes")
    pod = subject.pods[0]
    if len(subject.gangs) > 1:
        first, *others = subject.gangs
        pod = subject.gangs[first][0]
        if not arguments.quiet:
            rest = f"{', '.join(others[:3])}{' …' * (len(others) > 3)}"
            print(f"warning: {name}: this is about gang {first}; ask for {rest} likewise", file=sys.stderr)
    if pod.key in snapshot.location:
        raise ModelError(f"pod {pod.key} runs already, on {snapshot.location[pod.key]}")
    job = job_of(snapshot, pod)
    return [pod] if job is None else list(job.pods)


def _record(plan: EarliestStart | NoStart, between: BackfillPlan | None) -> dict[str, object]:
    pods = [str(pod.key) for pod in plan.pods]
    if isinstance(plan, NoStart):
        return {"pods": pods, "start": None, "message": plan.message}
    record: dict[str, object] = {
        "pods": pods,
        "start": format_time(plan.start),
        "nodes": {str(key): plan.nodes[key] for key in sorted(plan.nodes)},
        "waitsFor": [str(key) for key in plan.waits_for],
        **({"reservationsEnd": list(plan.expired)} if plan.expired else {}),
        "tooEarly": plan.too_early and format_time(plan.too_early),
        "proven": plan.proven,
    }
    if between is not None:
        record["before"] = [
            {
                "pods": {str(key): job.pods[key] for key in sorted(job.pods)},
                "end": job.end and format_time(job.end),
            }
            for job in between.jobs
        ]
        record["heldBack"] = [str(key) for key in between.held_back]
        record["withoutRoom"] = [str(key) for key in between.without_room]
        record["startRecomputed"] = format_time(between.recomputed)
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


def _print(
    name: str,
    plan: EarliestStart | NoStart,
    between: BackfillPlan | None,
    now: datetime,
    queue: Sequence[str],
) -> None:
    if isinstance(plan, NoStart):
        say(f"{name}: no start is in sight, even when everybody whose end is known has left")
        say(f"  {plan.message}")
        say("\n".join(queue))
        return
    rows = [(str(key), plan.nodes[key]) for key in sorted(plan.nodes)]
    columns = (Column("POD", tone=Tone.NAME), Column("NODE", tone=Tone.GOOD))
    some = f" of {len(rows)} of {len(plan.pods)}" if len(rows) < len(plan.pods) else ""
    places = Table(title=f"Places{some}", columns=columns, rows=rows)
    check_heading(places)
    if plan.start == now:
        say(f"{name}: can start now" + (" where the others keep waiting" if len(queue) > 1 else ""))
    else:
        say(f"{name}: starts at {format_time(plan.start)}, in {plan.start - now}")
        say(f"  at {plan.too_early and format_time(plan.too_early)} it does not fit yet")
        waited = [*map(str, plan.waits_for), *(f"the end of reservation {one}" for one in plan.expired)]
        say(f"  waits for {', '.join(waited)}")
    for line in queue:
        say(line)
    show(places)
    if between is None:
        return
    jobs = [
        (str(key), job.pods[key], format_time(job.end) if job.end else "not known")
        for job in between.jobs
        for key in sorted(job.pods)
    ]
    if jobs:
        show(Table(title="May start now without delaying it", columns=(*columns, Column("ENDS")), rows=jobs))
    for title, keys in (
        ("would delay it", between.held_back),
        ("no room now", between.without_room),
    ):
        if keys:
            say(f"{title}: {', '.join(map(str, keys))}")
    say(f"start recomputed with them running: {format_time(between.recomputed)}")
