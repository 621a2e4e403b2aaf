"""What ``rebalance`` and ``defrag`` print of a plan of moves: tables, JSON, or objects to apply."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import attrs

from koordcore.checking.moves import HELD
from koordcore.cli.descheduler_files import MIGRATING, read_plugin_file, say_idle
from koordcore.cli.idle_arguments import idle_migration
from koordcore.cli.inputs import read_now
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import add_output, for_programs, print_record
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.selection import add_selection, selection_of
from koordcore.descheduling.args import limiter_problems, migration_controller_problems
from koordcore.descheduling.checked_moves import Plan
from koordcore.descheduling.migration.filter import LOOKUP_ERRORS, MigrationFilter
from koordcore.descheduling.migration.workloads import UnknownScale
from koordcore.descheduling.plans import MoveRules, Moving
from koordcore.errors import ModelError
from koordcore.manifests.encode import pod_manifest
from koordcore.manifests.move_records import moves_record
from koordcore.manifests.pods import BUILT_IN_PRIORITIES
from koordcore.manifests.proof_records import claim_record, proofs_record
from koordcore.model.certificates import DEFAULT_LIMITS, Certificate, Limits
from koordcore.model.cluster import PriorityClass, Workload
from koordcore.model.migration import JobMode, JobPhase, PodMigrationJob
from koordcore.model.moves import Move
from koordcore.model.pods import Pod, PodKey
from koordcore.model.rebalance import MigrationControllerArgs
from koordcore.protocol.migration import ANNOTATION_EVICT, ANNOTATION_EVICT_REASON, format_job
from koordcore.protocol.rebalance import (
    default_migration_controller,
    migration_controller_args,
)
from koordcore.snapshot import ClusterSnapshot

P = TypeVar("P", bound=Plan)

ROOM_AIMS: Final = ("slots that do not fit", "moves", "price")
EMPTY_AIMS: Final = ("nodes emptied", "moves", "price")
CARD_AIMS: Final = ("idle cards in vain and moves, in thousandths", "moves")
_RESERVED: Final = (
    "schedulerName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "tolerations",
    "overhead",
    "resources",
    "initContainers",
    "containers",
)
"""What a Reservation says of the pod that it is for; its node is chosen, and volumes stay where they are."""
COOLING_AIMS: Final = ("hot nodes", "excess in permille", "moves", "price")


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add ``--policy`` and ``--migration``."""
    add_policy(parser)
    parser.add_argument(
        "--migration",
        type=Path,
        metavar="FILE",
        help="MigrationControllerArgs, with maxNoOfPodsToEvict… of the descheduler beside them, or its whole "
        "configuration, as JSON or YAML",
    )


def read_rules(arguments: argparse.Namespace, snapshot: ClusterSnapshot) -> MoveRules:
    """Read what every plan has to keep to.

    Parameters
    ----------
    arguments
        As they were typed.
    snapshot
        With the PriorityClasses that a file may name.

    Raises
    ------
    ManifestError
        With what cannot be read, or what upstream's validation says.
    """
    policy = read_policy(arguments)
    if arguments.migration is None:
        return MoveRules(policy=policy, now=read_now(arguments))
    same = arguments.migration == getattr(arguments, "args", None)
    option = "--args" if same else "--migration"
    read = read_plugin_file(option, arguments.migration, MIGRATING)
    read.refuse(migration_controller_problems(read.read(default_migration_controller)))
    priorities = {**BUILT_IN_PRIORITIES, **{one.name: one.value for one in snapshot.of(PriorityClass)}}
    migration = read.read(partial(migration_controller_args, priorities=priorities))
    read.refuse(limiter_problems(migration))
    if not same:
        say_idle(arguments, option, read)
    plans = not getattr(arguments, "jobs", False)
    for line in () if arguments.quiet else idle_migration(read.args, migration, option, plans=plans):
        print(f"warning: {line}", file=sys.stderr)
    if read.nodes is not None:
        migration = attrs.evolve(migration, node_selectors=(*migration.node_selectors, read.nodes))
    return MoveRules(policy=policy, migration=migration, limits=read.limits(), now=read_now(arguments))


def budget_of(arguments: argparse.Namespace) -> Limits:
    """Read ``--effort``."""
    if arguments.effort is None:
        return DEFAULT_LIMITS
    try:
        return Limits(arguments.effort)
    except ModelError as error:
        raise ModelError(f"--effort: {str(error).partition(': ')[2]}") from None


def add_plan_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--effort``, ``--output`` and ``--proofs``."""
    parser.add_argument("--effort", type=float, metavar="UNITS", help="solver budget (10)")
    add_output(parser, "patches", watch=True)
    add_selection(parser)
    parser.add_argument(
        "--proofs",
        type=Path,
        metavar="FILE",
        help="write down why nothing better exists, for `koordcore verify --proofs FILE`",
    )


def print_plan(
    arguments: argparse.Namespace,
    snapshot: ClusterSnapshot,
    moving: Moving[P],
    rules: MoveRules,
    *,
    won: Mapping[str, Any],
    tables: Callable[[], None],
    reason: str,
) -> None:
    """Print a plan in the form that was asked for.

    Parameters
    ----------
    arguments
        With ``output`` and ``proofs``.
    snapshot, moving, rules
        The cluster, the plan with what the plugins say of its moves, and what it kept to.
    won
        What the plan reaches, for JSON.
    tables
        Prints it for people.
    reason
        Why pods are evicted, for the objects.

    Raises
    ------
    ModelError
        Where a plugin or the checker refuses a move: nothing of such a plan is printed.
    """
    moves, checked = moving.plan.moves, moving.checked
    if checked.refused is not None:
        raise ModelError(f"no legal plan was found: {checked.refused[0]} is refused on {checked.refused[1]}")
    if arguments.proofs:
        proofs = proofs_record({"moves": moving.plan.certificate})
        arguments.proofs.write_text(json.dumps(proofs) + "\n", encoding="utf-8")
    if for_programs(arguments):
        claim = claim_record(moving.plan.certificate)
        print_record(arguments, {**moves_record(moves, checked.bound), **won, "certificate": claim})
    elif arguments.output == "patches":
        for one in move_objects(snapshot, moves, reason):
            print(json.dumps(one))
        for line in () if arguments.quiet else _never_migrated(snapshot, moves, rules.migration):
            print(f"warning: {line}", file=sys.stderr)
    else:
        tables()


def _never_migrated(
    snapshot: ClusterSnapshot, moves: Sequence[Move], args: MigrationControllerArgs
) -> Iterator[str]:
    """Name the moves whose PodMigrationJobs fail because nobody tells how large the workload is."""
    controller = MigrationFilter(args, snapshot.bound_pods(), snapshot.of(Workload))
    by_kind: dict[str, list[str]] = {}
    for move in moves:
        pod = snapshot.pod(move.pod)
        workload = None if pod is None else controller.workloads.of(pod)
        if pod is not None and isinstance(workload, UnknownScale):
            refusal = controller.permanent(pod) or controller.retryable(pod)
            if refusal is not None and refusal.rule in LOOKUP_ERRORS:
                by_kind.setdefault(workload.kind, []).append(str(pod.key))
    for kind, pods in sorted(by_kind.items()):
        yield (
            f"the migration controller lets no pod of a {kind} go, for it tells no number of replicas: "
            f"evict {', '.join(pods)} by hand, annotate with {ANNOTATION_EVICT}, or skip the gates "
            "ExpectedReplicas, MaxMigratingPerWorkload and MaxUnavailablePerWorkload"
        )


def certificate_text(certificate: Certificate, what: str, aims: Sequence[str] = ROOM_AIMS) -> str:
    """Say in a line how good the plan is known to be.

    Parameters
    ----------
    what
        What no plan does that is better, where that is proven.
    aims
        What the parts of the objective count, the most important first.
    """
    if certificate.proven:
        return f"{certificate.status.text}: no plan {what}"
    parts = zip(aims, certificate.objective, certificate.bound, strict=False)
    gap = next((f"{aim} {abs(own)}, bound {abs(bound)}" for aim, own, bound in parts if own != bound), "")
    return f"not proven: perhaps a plan {what}" + (f" ({gap})" if gap else "")


def chosen(
    arguments: argparse.Namespace, snapshot: ClusterSnapshot, moves: Sequence[Move]
) -> tuple[Move, ...]:
    """Give the moves of the pods that ``-n`` and ``-l`` choose."""
    selection = selection_of(arguments)
    return tuple(move for move in moves if (pod := snapshot.pod(move.pod)) is not None and selection.pod(pod))


def moves_table(
    moves: tuple[Move, ...], note: str, gets: Mapping[PodKey, str] = MappingProxyType({})
) -> Table:
    """Show moves by wave, with what some pods get where they go."""
    columns = (
        Column("POD", tone=Tone.NAME),
        Column("WAVE", number=True),
        Column("FROM"),
        Column("TO", tone=Tone.GOOD),
        Column("NOTE", tone=Tone.DIM, rank=1),
    )
    rows = [
        (
            str(move.pod),
            str(move.arrives + 1),
            move.source,
            move.target,
            "; ".join(_notes(move, gets)),
        )
        for move in moves
    ]
    return Table(title="Moves", columns=columns, rows=rows, note=note)


def _notes(move: Move, gets: Mapping[PodKey, str]) -> Iterator[str]:
    if move.pod in gets:
        yield f"gets {gets[move.pod]}"
    if move.leaves != move.arrives:
        yield f"down from wave {move.leaves + 1}"


def waves_table(moves: Sequence[Move], prices: Sequence[int], heading: str, gains: Sequence[str]) -> Table:
    """Show what each wave costs, and what is won once it is over."""
    columns = (
        Column("WAVE", number=True),
        Column("MOVES", number=True),
        Column("PRICE", number=True),
        Column(heading, number=True),
    )
    rows = [
        (str(wave + 1), str(sum(move.arrives == wave for move in moves)), str(price), gain)
        for wave, (price, gain) in enumerate(zip(prices, gains, strict=True))
    ]
    return Table(title="Waves", columns=columns, rows=rows)


def move_objects(snapshot: ClusterSnapshot, moves: tuple[Move, ...], reason: str) -> list[dict[str, Any]]:
    """Make a Reservation at the target and a PodMigrationJob of each move, in the order of the waves."""
    made: list[dict[str, Any]] = []
    for move in moves:
        pod = snapshot.pod(move.pod)
        if pod is None:
            continue
        # No namespace has a dot in its name: pods of two namespaces never share one.
        name = f"move-{move.pod.namespace}.{move.pod.name}"
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
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/created-by": "koord-descheduler"}},
        "spec": {
            "allocateOnce": True,
            "ttl": "5m0s",
            "owners": [reference],
            "template": _template(pod, target),
        },
    }


def _template(pod: Pod, target: str) -> dict[str, Any]:
    """Ask for what the pod asks for on its new node; nothing of what it holds goes along."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [target]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    written = pod_manifest(pod)
    spec = {name: written["spec"][name] for name in _RESERVED if name in written["spec"]}
    notes = {name: text for name, text in pod.annotations.items() if name not in HELD}
    metadata = {"namespace": pod.namespace, "labels": dict(pod.labels)}
    return {
        "metadata": metadata | ({"annotations": notes} if notes else {}),
        "spec": {"affinity": {"nodeAffinity": required}, **spec},
    }
