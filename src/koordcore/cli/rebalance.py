"""``koordcore rebalance``: cool the hot nodes of a dump with the fewest moves."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from koordcore.cli.inputs import add_paths, load_paths
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.tables import Column, Table, Tone, show, working
from koordcore.errors import ManifestError, ModelError
from koordcore.manifests import load
from koordcore.model.certificates import Certificate, Limits
from koordcore.model.cluster import PodDisruptionBudget, Workload
from koordcore.model.metrics import NodeMetric
from koordcore.model.migration import JobMode, JobPhase, PodMigrationJob
from koordcore.model.pods import Pod
from koordcore.model.rebalance import EvictorArgs, LowNodeLoadArgs
from koordcore.model.resources import format_resources
from koordcore.protocol.migration import ANNOTATION_EVICT_REASON, format_job
from koordcore.protocol.rebalance import default_low_node_load, low_node_load_args
from koordcore.rebalance.args import low_node_load_problems
from koordcore.rebalance.budgets import move_groups
from koordcore.rebalance.evict import CycleEvictor
from koordcore.rebalance.load_problem import problem_of_load
from koordcore.rebalance.moves import Allows, Move, MoveProblem
from koordcore.rebalance.plan import RebalancePlan, plan_rebalance
from koordcore.schedule.rebalance import checked_plan
from koordcore.snapshot import ClusterSnapshot

__all__ = ["certificate_text", "move_objects", "moves_table", "register", "run"]

EPILOG: Final = """\
examples:
  koordcore rebalance cluster.yaml --high cpu=65,memory=80
  koordcore rebalance cluster.yaml --args lownodeload.json -o json
  koordcore rebalance cluster.yaml --metrics nodemetrics.yaml -o patches
"""


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the verb."""
    parser = verbs.add_parser(
        "rebalance",
        help="cool hot nodes with the fewest moves",
        description="Plan the fewest moves that cool every hot node without heating another.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_paths(parser)
    add_policy(parser)
    parser.add_argument("--metrics", metavar="FILE", help="NodeMetric objects, where the dump has none")
    parser.add_argument("--args", type=Path, metavar="FILE", help="LowNodeLoadArgs as JSON")
    parser.add_argument(
        "--high", default="cpu=65,memory=80", metavar="PERCENTS", help="thresholds where --args is left out"
    )
    parser.add_argument("--effort", type=float, default=10.0, metavar="UNITS", help="solver budget (10)")
    parser.add_argument("-o", "--output", choices=("table", "json", "patches"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan, check, print; 1 when a node stays hot or the plan could not be confirmed."""
    snapshot = load_paths(arguments).snapshot
    metrics = {one.node: one for one in snapshot.of(NodeMetric)}
    if arguments.metrics:
        extra = load([arguments.metrics], sys.stdin).snapshot
        metrics |= {one.node: one for one in extra.of(NodeMetric)}
    if not metrics:
        raise ModelError("no NodeMetric in the dump; give them with --metrics")
    args = read_args(arguments)
    # A dump is judged by its own clock: the latest report is taken to be of now.
    now = max((one.update_time or 0 for one in metrics.values()), default=0)
    pods = tuple(snapshot.bound_pods())
    nodes = [state.node for state in snapshot.nodes]
    evictor = CycleEvictor(EvictorArgs())
    groups = move_groups(pods, budgets=snapshot.of(PodDisruptionBudget), workloads=snapshot.of(Workload))
    asked = problem_of_load(nodes, pods, metrics, args, now=now, evictor=evictor, groups=groups)

    def plan(allows: Allows) -> RebalancePlan:
        return plan_rebalance(attrs.evolve(asked, allows=allows), limits=Limits(arguments.effort))

    with working(f"balancing {len(nodes)} nodes"):
        done, checked = checked_plan(snapshot, plan, policy=read_policy(arguments))
    if arguments.output == "json":
        print(json.dumps(_record(done), indent=2))
    elif arguments.output == "patches":
        for one in move_objects(snapshot, done.moves, "node is overutilized"):
            print(json.dumps(one))
    else:
        _print_tables(asked, done)
    if checked.refused is not None:
        print(f"koordcore: {checked.refused[0]} is refused on {checked.refused[1]}", file=sys.stderr)
    return 1 if done.after or checked.refused is not None else 0


def read_args(arguments: argparse.Namespace) -> LowNodeLoadArgs:
    """Read thresholds from a file or from the command line.

    Raises
    ------
    ManifestError
        With what cannot be read.
    ModelError
        With what upstream's validation says.
    """
    raw: Any
    if arguments.args is None:
        raw = {"highThresholds": _percents(arguments.high)}
    else:
        try:
            raw = json.loads(arguments.args.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ManifestError.at(str(arguments.args), f"not JSON: {error}") from None
        if isinstance(raw, Mapping):
            raw = {key: one for key, one in raw.items() if key not in ("apiVersion", "kind")}
    problems = low_node_load_problems(default_low_node_load(raw))
    if problems:
        raise ModelError("; ".join(problems))
    return low_node_load_args(raw)


def _percents(text: str) -> dict[str, float]:
    percents = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            percents[name.strip()] = float(value)
        except ValueError:
            raise ModelError(f'--high: expected NAME=PERCENT, got "{part}"') from None
    return percents


def certificate_text(certificate: Certificate, what: str) -> str:
    """Say in a line how good the plan is known to be."""
    if certificate.proven:
        return f"proven: no plan {what}"
    return f"not proven: objective {list(certificate.objective)}, bound {list(certificate.bound)}"


def moves_table(moves: tuple[Move, ...], note: str) -> Table:
    """Show moves by wave."""
    columns = (
        Column("WAVE", number=True),
        Column("POD", tone=Tone.NAME),
        Column("FROM"),
        Column("TO", tone=Tone.GOOD),
        Column("NOTE", tone=Tone.DIM),
    )
    rows = [
        (
            str(move.arrives + 1),
            str(move.pod),
            move.source,
            move.target,
            f"down from wave {move.leaves + 1}" if move.leaves != move.arrives else "",
        )
        for move in moves
    ]
    return Table(title="Moves", columns=columns, rows=rows, note=note)


def _print_tables(problem: MoveProblem, plan: RebalancePlan) -> None:
    names = [host for host in problem.hosts if host.name in plan.before]
    away: dict[str, dict[str, int]] = {}
    movable = {one.pod: one for one in problem.movable}
    for move in plan.moves:
        for name, amount in movable[move.pod].usage.items():
            for node, sign in ((move.source, -1), (move.target, 1)):
                change = away.setdefault(node, {})
                change[name] = change.get(name, 0) + sign * amount
    rows = []
    for host in names:
        for name, limit in sorted(host.high.items()):
            room = host.allocatable.get(name, 0)
            used = host.usage.get(name, 0)
            after = used + away.get(host.name, {}).get(name, 0)
            if room:
                shares = [f"{value * 100 / room:.1f}%" for value in (used, after, limit)]
                rows.append((host.name, name, *shares))
    columns = (
        Column("NODE", tone=Tone.NAME),
        Column("RESOURCE"),
        Column("BEFORE", number=True),
        Column("AFTER", number=True),
        Column("LIMIT", number=True),
    )
    show(Table(title="Hot nodes", columns=columns, rows=rows))
    if plan.moves:
        show(moves_table(plan.moves, certificate_text(plan.certificate, "cools more with fewer moves")))
    print(
        f"{len(plan.before)} hot nodes before, {len(plan.after)} after, {len(plan.moves)} moves"
        + (f"; still hot: {', '.join(plan.after)}" if plan.after else "")
    )


def _record(plan: RebalancePlan) -> dict[str, Any]:
    return {
        "hotBefore": list(plan.before),
        "hotAfter": list(plan.after),
        "moves": [move_record(move) for move in plan.moves],
        "certificate": {
            "status": str(plan.certificate.status),
            "objective": list(plan.certificate.objective),
            "bound": list(plan.certificate.bound),
        },
    }


def move_record(move: Move) -> dict[str, Any]:
    """Write a move as JSON."""
    return {
        "pod": str(move.pod),
        "from": move.source,
        "to": move.target,
        "leaves": move.leaves,
        "arrives": move.arrives,
    }


def move_objects(snapshot: ClusterSnapshot, moves: tuple[Move, ...], reason: str) -> list[dict[str, Any]]:
    """Make a Reservation at the target and a PodMigrationJob of each move, in the order of the waves."""
    made: list[dict[str, Any]] = []
    for move in moves:
        pod = snapshot.pod(move.pod)
        if pod is None:
            continue
        name = f"move-{move.pod.namespace}-{move.pod.name}"
        made.append(_reservation(pod, name, move.target))
        job = PodMigrationJob(
            name=name,
            annotations={ANNOTATION_EVICT_REASON: reason},
            pod=move.pod,
            pod_uid=pod.uid,
            mode=JobMode.RESERVATION_FIRST,
            ttl=300 * 10**9,
            phase=JobPhase.PENDING,
        )
        written = format_job(job)
        spec = dict(written["spec"])  # type: ignore[call-overload]  # a mapping by construction
        spec["reservationOptions"] = {"reservationRef": {"name": name}}
        made.append({**written, "spec": spec})
    return made


def _reservation(pod: Pod, name: str, target: str) -> dict[str, Any]:
    owner = pod.controller
    reference: dict[str, Any] = {"object": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}}
    if owner is not None:
        controller = {"kind": owner.kind, "name": owner.name, "uid": owner.uid, "controller": True}
        reference = {"controller": {"namespace": pod.namespace, **controller}}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [target]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    containers = [
        {"name": one.name or f"c{index}", "resources": {"requests": _quantities(one.requests)}}
        for index, one in enumerate(pod.containers)
    ] or [{"name": "c0", "resources": {"requests": _quantities(pod.requests)}}]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/created-by": "koord-descheduler"}},
        "spec": {
            "allocateOnce": True,
            "ttl": "5m0s",
            "owners": [reference],
            "template": {
                "metadata": {"namespace": pod.namespace, "labels": dict(pod.labels)},
                "spec": {"affinity": {"nodeAffinity": required}, "containers": containers},
            },
        },
    }


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return dict(format_resources(amounts))
