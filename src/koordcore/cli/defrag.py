"""``koordcore defrag``: the fewest moves after which a wanted shape fits."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final

from koordcore.cli.finding import find_subject
from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import add_now, add_paths, as_of, load_paths, need_folder
from koordcore.cli.layout import Column, Table
from koordcore.cli.moves import (
    CARD_AIMS,
    EMPTY_AIMS,
    add_plan_options,
    add_rules,
    budget_of,
    certificate_text,
    chosen,
    moves_table,
    print_plan,
    read_rules,
    waves_table,
)
from koordcore.cli.progress import working
from koordcore.cli.resource_names import meant, offered_names
from koordcore.cli.selection import ONE_POD, need_tables, need_use
from koordcore.cli.tables import say, show
from koordcore.cli.words import many
from koordcore.descheduling.card_amounts import WHOLE_CARDS, asked_by_parts
from koordcore.descheduling.card_moves import fragmented_milli, fragments_of, plan_less_fragmentation
from koordcore.descheduling.checked_moves import refused_shape
from koordcore.descheduling.claim_moves import claims_of, nodes_without_others, plan_room_for
from koordcore.descheduling.defrag import DefragmentationPlan
from koordcore.descheduling.plans import MoveRules, plan_empty_nodes, plan_room
from koordcore.descheduling.wanted import Wanted
from koordcore.descheduling.who_stays import who_stays
from koordcore.errors import ModelError
from koordcore.explaining.remedies import beyond_any
from koordcore.manifests import load
from koordcore.manifests.aliases import canonical_names
from koordcore.model.affinity import TaintEffect
from koordcore.model.moves import Move
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.resources import PODS, Resources, make_resources, parse_resources
from koordcore.protocol.gang_names import gang_name
from koordcore.scheduling.plugins.gpu_share import mix_of
from koordcore.scoring.gpu_share import CARD
from koordcore.snapshot import ClusterSnapshot

EPILOG: Final = """\
examples:
  koordcore defrag cluster.yaml --want 4x:nvidia.com/gpu=8,cpu=32
  koordcore defrag cluster.yaml --want 2x:nvidia.com/gpu=8 --per-node 1 \\
      --block topology.kubernetes.io/zone
  koordcore defrag cluster.yaml --want nvidia.com/gpu=8 -o patches
  koordcore defrag cluster.yaml --for default/thesis-2
  koordcore defrag cluster.yaml --empty 3
  koordcore defrag cluster.yaml --fragments --worth 0.5 --most 20
"""
REASON: Final = "defragmentation"
_NOT_ROOM: Final = "it fits on no node even when all who may move have left: `koordcore explain` says why"
_WORTH: Final = 0.1
"""Cards that a move must win where nobody says how many."""
_WANT: Final = re.compile(r"(?:([1-9][0-9]{0,5})x:)?(.+)\Z", re.DOTALL)


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Plan moves of running pods: room for a shape, empty nodes, fewer idle cards in vain."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    add_rules(parser)
    aim = parser.add_mutually_exclusive_group(required=True)
    aim.add_argument(
        "--want",
        metavar="SLOTS",
        help="how many of which size, whatever taints nodes have: [Nx:]NAME=AMOUNT,…",
    )
    aim.add_argument("--for", dest="pod", metavar="POD", help="room for a pod that waits")
    aim.add_argument(
        "--empty",
        type=int,
        nargs="?",
        const=0,
        metavar="N",
        help="empty N nodes; as many as possible where N is 0 or left out",
    )
    aim.add_argument(
        "--fragments", action="store_true", help="fewer idle cards that the expected work cannot use"
    )
    parser.add_argument(
        "--worth",
        type=float,
        metavar="CARDS",
        help="with --fragments: what a move must win (0.1 cards)",
    )
    parser.add_argument("--most", type=int, metavar="N", help="with --fragments: moves at most")
    parser.add_argument(
        "--mix", metavar="PATH", help="with --fragments: pods to be expected (those of the dump)"
    )
    parser.add_argument("--per-node", type=int, metavar="N", help="slots on one node at most")
    parser.add_argument(
        "--block", metavar="LABEL", help="all slots on nodes with the same value of this label"
    )
    add_now(parser, "that of the dump")
    add_plan_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan, check, print; 1 when the shape does not fit whatever moves."""
    need_folder(arguments.proofs, "--proofs")
    _check_numbers(arguments)
    if arguments.pod is None:
        need_tables(arguments)
    else:
        need_use(arguments, labels=ONE_POD)
    snapshot = as_of(arguments, load_paths(arguments).snapshot)
    rules = read_rules(arguments, snapshot)
    if arguments.empty is not None:
        return _empty(arguments, snapshot, rules)
    if arguments.fragments:
        return _fragments(arguments, snapshot, rules)
    if arguments.pod is not None:
        return _for_pod(arguments, snapshot, rules)
    wanted = read_wanted(arguments, snapshot, rules.policy)
    with working(f"making room on {len(snapshot.nodes)} nodes, in steps") as step:
        budget = budget_of(arguments)
        moving = plan_room(snapshot, wanted, rules=rules, budget=budget, progress=step)
    done = moving.plan
    kept: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    taints = _tolerating(wanted, snapshot, [name for name, _ in done.places])
    if done.missing:
        never = _never(wanted, snapshot)
        moved = [move.pod for move in done.moves]
        kept = who_stays(moving.problem, snapshot.bound_pods(), moved, rules.evictor)
    print_plan(
        arguments,
        snapshot,
        moving,
        rules,
        won={
            **({"staying": list(kept)} if kept else {}),
            **({"never": list(never)} if never else {}),
            **({"tolerating": {name: list(those) for name, those in taints.items()}} if taints else {}),
            "missing": done.missing,
            "places": dict(done.places),
            "gains": list(done.gains),
            "prices": list(done.prices),
        },
        tables=lambda: _print_tables(
            wanted, done, chosen(arguments, snapshot, done.moves), kept, never, taints
        ),
        reason=REASON,
    )
    return 1 if done.missing else 0


def _check_numbers(arguments: argparse.Namespace) -> None:
    """Refuse numbers that mean nothing before the work."""
    for flag in ("empty", "most"):
        number = getattr(arguments, flag)
        if number is not None and number < 0:
            raise ModelError(f"--{flag}: must be at least 0, got {number}")
    if not arguments.fragments:
        need_use_of(arguments, "is about --fragments", "--worth", "--most", "--mix")
    if arguments.want is None:
        need_use_of(arguments, "is about --want", "--per-node", "--block")
    if arguments.worth is not None and not isfinite(arguments.worth):
        raise ModelError(f"--worth: expected a number of cards, got {arguments.worth}")


def _for_pod(arguments: argparse.Namespace, snapshot: ClusterSnapshot, rules: MoveRules) -> int:
    """Plan room for one pod; 1 when no moves were found after which it fits."""
    subject = find_subject(snapshot, arguments.pod, arguments.namespace or "")
    if subject.kind != "pod":
        raise ModelError(f"--for {arguments.pod}: is a {subject.kind}; name one of its pods")
    pod = subject.pods[0]
    if pod.node_name is not None:
        raise ModelError(f"{pod.key} runs on {pod.node_name} already")
    with working(f"making room for {pod.key}, in steps") as step:
        budget = budget_of(arguments)
        moving = plan_room_for(snapshot, pod, rules=rules, budget=budget, progress=step)
    done = moving.plan
    devices = [] if done.place is None else claims_of(done.place)
    kept: tuple[str, ...] = ()
    nowhere = done.place is None and not nodes_without_others(snapshot, [pod], rules)
    if done.place is None:
        kept = who_stays(moving.problem, snapshot.bound_pods(), (), rules.evictor)
    gang = _gang_of(pod)

    def tables() -> None:
        if done.moves:
            text = certificate_text(done.certificate, "makes room with fewer moves")
            given = {one.pod: ", ".join(claims_of(one)) for one in moving.checked.bound if one.claims}
            show(moves_table(done.moves, text, given))
        if done.place is None:
            proven = done.certificate.proven
            print(f"{pod.key} fits nowhere, whoever moves" if proven else f"no moves found for {pod.key}")
            if nowhere:
                say(_NOT_ROOM)
            if kept:
                say(f"who stays: {'; '.join(kept)}")
        else:
            gets = devices or done.place.notes
            print(": ".join((f"{pod.key} fits on {done.place.node}", *filter(None, [", ".join(gets)]))))
        if gang:
            say(f"by itself: `koordcore explain {gang}` is about all of its gang")

    won = {
        **({"staying": list(kept)} if kept else {}),
        "place": None if done.place is None else done.place.node,
        "devices": devices,
    }
    print_plan(arguments, snapshot, moving, rules, won=won, tables=tables, reason=REASON)
    return 0 if done.place is not None else 1


def _gang_of(pod: Pod) -> str:
    """Name the gang of a pod with its namespace; empty where it has none."""
    name = gang_name(pod.labels, pod.annotations)
    return f"{pod.namespace}/{name}" if name else ""


def _empty(arguments: argparse.Namespace, snapshot: ClusterSnapshot, rules: MoveRules) -> int:
    """Plan to empty nodes; 1 when none, or fewer than asked for, can be emptied."""
    with working(f"emptying nodes of {len(snapshot.nodes)}, in steps") as step:
        moving = plan_empty_nodes(snapshot, most=arguments.empty or None, rules=rules, progress=step)
    done = moving.plan

    def tables() -> None:
        if done.moves:
            text = certificate_text(done.certificate, "empties more with fewer moves", EMPTY_AIMS)
            won = [str(one) for one in done.gains]
            show(
                moves_table(chosen(arguments, snapshot, done.moves), text),
                waves_table(done.moves, done.prices, "NODES EMPTIED", won),
            )
        say(f"{many(len(done.emptied), 'node')} emptied: {', '.join(done.emptied) or 'none'}")

    won = {"emptied": list(done.emptied), "gains": list(done.gains), "prices": list(done.prices)}
    print_plan(arguments, snapshot, moving, rules, won=won, tables=tables, reason=REASON)
    return 0 if len(done.emptied) >= max(1, arguments.empty) else 1


def _fragments(arguments: argparse.Namespace, snapshot: ClusterSnapshot, rules: MoveRules) -> int:
    """Plan to lower fragmentation."""
    expected = load([arguments.mix], sys.stdin, strict=True).snapshot if arguments.mix else snapshot
    if not (expected.pending or any(expected.bound_pods()) or arguments.mix is None):
        raise ModelError(f"--mix: no pod in {arguments.mix} says what work is to be expected")
    worth = int((_WORTH if arguments.worth is None else arguments.worth) * CARD)
    aim = fragments_of(snapshot, mix=mix_of(expected), worth=worth, most=arguments.most)
    if not aim.nodes:
        raise ModelError("no node of the dump has cards")
    with working(f"looking for pods to move on {len(aim.nodes)} nodes") as step:
        budget = budget_of(arguments)
        moving = plan_less_fragmentation(snapshot, aim, rules=rules, budget=budget, progress=step)
    done = moving.plan
    left = fragmented_milli(moving.checked.snapshot, aim.mix)

    def tables() -> None:
        if done.moves:
            text = certificate_text(done.certificate, "is worth more for its price", CARD_AIMS)
            won = [f"{one / CARD:.2f}" for one in done.gains]
            show(
                moves_table(chosen(arguments, snapshot, done.moves), text),
                waves_table(done.moves, done.prices, "CARDS WON", won),
            )
        shown = f"{done.before / CARD:.2f} idle cards in vain before, {left / CARD:.2f} after"
        say(f"{shown}, {many(len(done.moves), 'move')}")

    won = {
        "fragmentedMilli": {"before": done.before, "planned": done.after, "after": left},
        "gains": list(done.gains),
        "prices": list(done.prices),
    }
    print_plan(arguments, snapshot, moving, rules, won=won, tables=tables, reason=REASON)
    return 0


def read_wanted(arguments: argparse.Namespace, snapshot: ClusterSnapshot, policy: Policy) -> Wanted:
    """Read the shape of ``--want``, and refuse what no node can ever have.

    Raises
    ------
    ModelError
        When the text cannot be read, or names what nobody offers.
    """
    wanted = _wanted(arguments, snapshot)
    _check_names(wanted, snapshot)
    refused = refused_shape(snapshot, wanted.requests, policy)
    if refused:
        raise ModelError(f"--want {arguments.want}: {refused}")
    return wanted


def _wanted(arguments: argparse.Namespace, snapshot: ClusterSnapshot) -> Wanted:
    found = _WANT.match(arguments.want)
    count, text = (found.group(1), found.group(2)) if found else (None, arguments.want)
    blocks = {}
    if arguments.block:
        for state in snapshot.nodes:
            if arguments.block in state.node.labels:
                blocks[state.name] = state.node.labels[arguments.block]
        if not blocks:
            raise ModelError(f"--block: no node has the label {arguments.block}")
    return Wanted(requests=_requests(text), count=int(count or 1), per_node=arguments.per_node, blocks=blocks)


def _check_names(wanted: Wanted, snapshot: ClusterSnapshot) -> None:
    """Refuse what no node offers under any name."""
    offered = offered_names(snapshot)
    known = {*offered, PODS, *asked_by_parts(dict.fromkeys(offered, 1))}
    if known & asked_by_parts(dict.fromkeys(WHOLE_CARDS, 1)).keys():
        known |= WHOLE_CARDS.keys()
    for name, amount in wanted.requests.items():
        if amount and name not in known and not asked_by_parts({name: 1}).keys() <= known:
            raise ModelError(f"--want: no node offers {name}{meant(name, offered) or meant(name, known)}")


def _never(wanted: Wanted, snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Name what one slot asks for and no node has so much of, whoever leaves."""
    offered = offered_names(snapshot)
    asked = sorted(wanted.requests.keys() & offered)
    return tuple(text for name in asked for text in beyond_any(snapshot.nodes, name, wanted.requests[name]))


def _tolerating(
    wanted: Wanted, snapshot: ClusterSnapshot, names: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Name the taints that keep pods off nodes unless they tolerate them, as slots do.

    A taint that is called like a resource of the slot is left out: admission lets such pods tolerate it.
    """
    asked = asked_by_parts(wanted.requests).keys()
    found = {}
    for name in names:
        hard = (
            f"{one.key}{f'={one.value}' if one.value else ''}:{one.effect.value}"
            for one in snapshot.node(name).node.taints
            if one.effect is not TaintEffect.PREFER_NO_SCHEDULE
            and not asked_by_parts({one.key: 1}).keys() <= asked
        )
        if taints := tuple(hard):
            found[name] = taints
    return found


def _requests(text: str) -> Resources:
    raw = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ModelError(f'--want: expected NAME=AMOUNT, got "{part}"')
        raw[name.strip()] = value.strip()
    return make_resources({PODS: 1, **parse_resources(canonical_names(raw)[0])})


def _print_tables(
    wanted: Wanted,
    plan: DefragmentationPlan,
    shown: tuple[Move, ...],
    kept: tuple[str, ...],
    never: tuple[str, ...],
    taints: Mapping[str, tuple[str, ...]],
) -> None:
    tables = []
    if plan.moves:
        tables.append(
            moves_table(shown, certificate_text(plan.certificate, "makes more room with fewer moves"))
        )
        slots = [f"{one}/{wanted.count}" for one in plan.gains]
        tables.append(waves_table(plan.moves, plan.prices, "SLOTS FREE", slots))
    if plan.places:
        heads = (Column("NODE"), Column("SLOTS", number=True), Column("FOR WHO TOLERATES", text=True))
        places = [(name, str(slots), ", ".join(taints.get(name, ()))) for name, slots in plan.places]
        tables.append(Table(title="Room", columns=heads, rows=places))
    show(*tables)
    if plan.missing:
        text = certificate_text(plan.certificate, "makes more room")
        verb = "does" if plan.missing == 1 else "do"
        say(f"{plan.missing} of {many(wanted.count, 'slot')} {verb} not fit; {text}")
        for one in never:
            say(f"never: {one}")
        if kept:
            say(f"who stays: {'; '.join(kept)}")
    else:
        say(
            f"{many(wanted.count, 'slot')} fit{'s' * (wanted.count == 1)} "
            + (f"after {many(len(plan.moves), 'move')}" if plan.moves else "as it is: nobody has to move")
        )
