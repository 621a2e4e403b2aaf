"""``koordcore defrag``: the fewest moves after which a wanted shape fits."""

from __future__ import annotations

import argparse
import re
import sys
from difflib import get_close_matches
from typing import Final

from koordcore.cli.inputs import add_paths, find_pod, load_paths
from koordcore.cli.moves import (
    add_plan_options,
    add_rules,
    certificate_text,
    moves_table,
    print_plan,
    read_rules,
    waves_table,
)
from koordcore.cli.tables import Column, Table, Tone, show, working
from koordcore.descheduling.card_amounts import WHOLE_CARDS, asked_by_parts
from koordcore.descheduling.card_moves import fragmented_milli, fragments_of, plan_less_fragmentation
from koordcore.descheduling.checked_moves import refused_shape
from koordcore.descheduling.claim_moves import claims_of, plan_room_for
from koordcore.descheduling.defrag import DefragmentationPlan, Wanted
from koordcore.descheduling.plans import MoveRules, plan_empty_nodes, plan_room
from koordcore.errors import ModelError
from koordcore.manifests import load
from koordcore.model.certificates import Limits
from koordcore.model.policy import Policy
from koordcore.model.resources import PODS, Resources, make_resources, parse_resources
from koordcore.scheduling.plugins.gpu_share import mix_of
from koordcore.scoring.gpu_share import CARD
from koordcore.snapshot import ClusterSnapshot

EPILOG: Final = """\
examples:
  koordcore defrag cluster.yaml --want 4x:nvidia.com/gpu=8,cpu=32
  koordcore defrag cluster.yaml --want 32x:nvidia.com/gpu=8 --per-node 1 --block example.com/block
  koordcore defrag cluster.yaml --want nvidia.com/gpu=4 -o patches
  koordcore defrag cluster.yaml --for team-a/large
  koordcore defrag cluster.yaml --empty 3
  koordcore defrag cluster.yaml --fragments --worth 0.5 --most 20
"""
REASON: Final = "defragmentation"
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
    aim.add_argument("--want", metavar="[Nx:]NAME=AMOUNT,…", help="how many slots of which size")
    aim.add_argument("--for", dest="pod", metavar="POD", help="room for a pod that waits, with its claims")
    aim.add_argument(
        "--empty", type=int, nargs="?", const=0, metavar="N", help="empty N nodes, or as many as possible"
    )
    aim.add_argument(
        "--fragments", action="store_true", help="fewer idle cards that the expected work cannot use"
    )
    parser.add_argument(
        "--worth",
        type=float,
        default=0.1,
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
    add_plan_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Plan, check, print; 1 when the shape does not fit whatever moves."""
    snapshot = load_paths(arguments).snapshot
    rules = read_rules(arguments)
    if arguments.empty is not None:
        return _empty(arguments, snapshot, rules)
    if arguments.fragments:
        return _fragments(arguments, snapshot, rules)
    if arguments.pod is not None:
        return _for_pod(arguments, snapshot, rules)
    wanted = read_wanted(arguments, snapshot, rules.policy)
    with working(f"making room on {len(snapshot.nodes)} nodes"):
        moving = plan_room(snapshot, wanted, rules=rules, budget=Limits(arguments.effort))
    done = moving.plan
    print_plan(
        arguments,
        snapshot,
        moving,
        won={
            "missing": done.missing,
            "places": dict(done.places),
            "gains": list(done.gains),
            "prices": list(done.prices),
        },
        tables=lambda: _print_tables(wanted, done),
        reason=REASON,
    )
    return 0 if moving.legal and not done.missing else 1


def _for_pod(arguments: argparse.Namespace, snapshot: ClusterSnapshot, rules: MoveRules) -> int:
    """Plan room for one pod; 1 when no moves were found after which it fits."""
    pod = find_pod(snapshot, arguments.pod)
    if pod.node_name is not None:
        raise ModelError(f"{pod.key} runs on {pod.node_name} already")
    with working(f"making room for {pod.key}"):
        moving = plan_room_for(snapshot, pod, rules=rules)
    done = moving.plan
    devices = [] if done.place is None else claims_of(done.place)

    def tables() -> None:
        if done.moves:
            show(moves_table(done.moves, certificate_text(done.certificate, "makes room with fewer moves")))
        if done.place is None:
            proven = done.certificate.proven
            print(f"{pod.key} fits nowhere, whoever moves" if proven else f"no moves found for {pod.key}")
        else:
            print(f"{pod.key} fits on {done.place.node}: {', '.join(devices) or 'no devices'}")

    won = {"place": None if done.place is None else done.place.node, "devices": devices}
    print_plan(arguments, snapshot, moving, won=won, tables=tables, reason=REASON)
    return 0 if done.place is not None else 1


def _empty(arguments: argparse.Namespace, snapshot: ClusterSnapshot, rules: MoveRules) -> int:
    """Plan to empty nodes; 1 when none, or fewer than asked for, can be emptied."""
    with working(f"emptying nodes of {len(snapshot.nodes)}"):
        moving = plan_empty_nodes(snapshot, most=arguments.empty or None, rules=rules)
    done = moving.plan

    def tables() -> None:
        if done.moves:
            text = certificate_text(done.certificate, "empties more with fewer moves")
            show(moves_table(done.moves, text))
            show(waves_table(done.moves, done.prices, "NODES EMPTY", [str(one) for one in done.gains]))
        print(f"{len(done.emptied)} nodes emptied: {', '.join(done.emptied) or 'none'}")

    won = {"emptied": list(done.emptied), "gains": list(done.gains), "prices": list(done.prices)}
    print_plan(arguments, snapshot, moving, won=won, tables=tables, reason=REASON)
    return 0 if moving.legal and len(done.emptied) >= max(1, arguments.empty) else 1


def _fragments(arguments: argparse.Namespace, snapshot: ClusterSnapshot, rules: MoveRules) -> int:
    """Plan to lower fragmentation; 1 only when the plan could not be confirmed."""
    expected = load([arguments.mix], sys.stdin).snapshot if arguments.mix else snapshot
    aim = fragments_of(snapshot, mix=mix_of(expected), worth=int(arguments.worth * CARD), most=arguments.most)
    if not aim.nodes:
        raise ModelError("no node of the dump has cards")
    with working(f"tidying {len(aim.nodes)} nodes"):
        moving = plan_less_fragmentation(snapshot, aim, rules=rules, budget=Limits(arguments.effort))
    done = moving.plan
    left = fragmented_milli(moving.checked.snapshot, aim.mix)

    def tables() -> None:
        if done.moves:
            text = certificate_text(done.certificate, "is worth more for its price")
            show(moves_table(done.moves, text))
            show(
                waves_table(done.moves, done.prices, "CARDS WON", [f"{one / CARD:.2f}" for one in done.gains])
            )
        shown = f"{done.before / CARD:.2f} idle cards in vain before, {left / CARD:.2f} after"
        print(f"{shown}, {len(done.moves)} moves")

    won = {
        "fragmentedMilli": {"before": done.before, "planned": done.after, "after": left},
        "gains": list(done.gains),
        "prices": list(done.prices),
    }
    print_plan(arguments, snapshot, moving, won=won, tables=tables, reason=REASON)
    return 0 if moving.legal else 1


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
    offered = {name for state in snapshot.nodes for name in state.node.allocatable}
    known = {*offered, PODS, *asked_by_parts(dict.fromkeys(offered, 1))}
    if known & asked_by_parts(dict.fromkeys(WHOLE_CARDS, 1)).keys():
        known |= WHOLE_CARDS.keys()
    for name, amount in wanted.requests.items():
        if amount and name not in known and not asked_by_parts({name: 1}).keys() <= known:
            near = get_close_matches(name, sorted(known), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ModelError(f"--want: no node offers {name}{hint}")


def _requests(text: str) -> Resources:
    raw = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise ModelError(f'--want: expected NAME=AMOUNT, got "{part}"')
        raw[name.strip()] = value.strip()
    return make_resources({PODS: 1, **parse_resources(raw)})


def _print_tables(wanted: Wanted, plan: DefragmentationPlan) -> None:
    if plan.moves:
        show(moves_table(plan.moves, certificate_text(plan.certificate, "makes more room with fewer moves")))
        slots = [f"{one}/{wanted.count}" for one in plan.gains]
        show(waves_table(plan.moves, plan.prices, "SLOTS FREE", slots))
    if plan.places:
        heads = (Column("NODE", tone=Tone.NAME), Column("SLOTS", number=True))
        show(Table(title="Room", columns=heads, rows=[(name, str(slots)) for name, slots in plan.places]))
    if plan.missing:
        text = certificate_text(plan.certificate, "makes more room")
        print(f"{plan.missing} of {wanted.count} slots do not fit; {text}")
    else:
        print(f"{wanted.count} slots fit after {len(plan.moves)} moves")
