"""``koordcore compare``: several policies on one dump."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from koordcore.cli.inputs import add_paths, load_paths
from koordcore.cli.policies import KNOWN_POLICIES, read_policies
from koordcore.cli.tables import Column, Table, Tone, show, working
from koordcore.model.decisions import Unschedulable
from koordcore.model.resources import CPU, MEMORY
from koordcore.scoring.gpu_share import CARD
from koordcore.simulate.cluster import ClusterFragmentation
from koordcore.simulate.compare import Comparison, PolicyOutcome, ResourceUse, compare_policies
from koordcore.verify import verify

__all__ = ["register", "run"]

FORMAT: Final = "koordcore/comparison/v1"
EPILOG: Final = """\
examples:
  koordcore compare cluster.yaml                              stock Kubernetes and Koordinator's profile
  koordcore compare cluster.yaml --policy ours.yaml           stock Kubernetes and every profile of the file
  koordcore compare cluster.yaml --policy bestfit --policy fgd --policy foresight
  koordcore compare cluster.yaml --policy now.yaml --policy next.yaml -o json
"""


def register(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Describe the verb."""
    parser = verbs.add_parser(
        "compare",
        help="try several policies on one dump",
        description="Place the pending pods under several policies: who lands elsewhere, and what that "
        "costs in fragmentation, balance and domains.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_paths(parser)
    parser.add_argument(
        "--policy",
        action="append",
        metavar="POLICY",
        help="a KubeSchedulerConfiguration, all profiles of which take part, or one of "
        f"{', '.join(KNOWN_POLICIES)}; repeat it; the first one is what the others are compared with",
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument(
        "--limit", type=int, default=40, metavar="N", help="rows per table (40); 0 shows all of them"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare, verify every plan, print; 1 when a plan is not legal."""
    policies = read_policies(arguments.policy or ())
    snapshot = load_paths(arguments).snapshot
    with working(f"placing {len(snapshot.pending)} pods under {len(policies)} policies"):
        found = compare_policies(snapshot, policies)
        violations = [(one.name, what) for one in found.outcomes for what in verify(snapshot, one.result)]
    for name, violation in violations:
        # The library promises that this cannot happen; if it does, nobody should act on the figures.
        print(f"koordcore: {name}: the plan is not legal: {violation}", file=sys.stderr)
    if violations:
        return 1
    if arguments.output == "json":
        print(json.dumps(_record(found), indent=2))
    else:
        _print_tables(found, arguments.limit)
    return 0


def _print_tables(found: Comparison, limit: int) -> None:
    first = found.outcomes[0].name
    show(_measures(found))
    if found.elsewhere:
        rows = [(str(one.pod), *(node or "–" for node in one.nodes)) for one in found.elsewhere]
        more = len(rows) - limit
        show(
            Table(
                title="Landing elsewhere",
                columns=(
                    Column("POD", tone=Tone.NAME),
                    *(Column(one.name.upper()) for one in found.outcomes),
                ),
                rows=rows[:limit] if 0 < limit < len(rows) else rows,
                note=f"… and {more} more rows; --limit 0 shows all" if 0 < limit < len(rows) else "",
            )
        )
    pods = len(found.outcomes[0].result.decisions)
    moved = ", ".join(f"{found.moved(one.name)} under {one.name}" for one in found.outcomes[1:])
    print(f"{pods} pods · landing elsewhere than under {first}: {moved} · verified")


def _measures(found: Comparison) -> Table:
    """One row per measure, one column per policy."""
    outcomes = found.outcomes
    rows = [
        ("placed", *(str(one.bound) for one in outcomes)),
        ("unschedulable", *(str(one.unschedulable) for one in outcomes)),
        ("waiting", *(str(one.waiting) for one in outcomes)),
        ("landing elsewhere", *(str(found.moved(one.name)) for one in outcomes)),
    ]
    rows += _layer_rows("with new pods", [one.domains for one in outcomes])
    rows += _layer_rows("over all gangs", [one.gang_domains for one in outcomes])
    for name in (CPU, MEMORY):
        uses = [one.resources[name] for one in outcomes if name in one.resources]
        if uses:
            rows.append((f"{name} requested, mean ± std", *map(_spread, uses)))
            rows.append((f"{name} on the fullest node", *(_percent(use.highest) for use in uses)))
            rows.append((f"free {name} out of reach", *(_percent(use.stranded) for use in uses)))
    cards = [one.fragmentation for one in outcomes if one.fragmentation is not None]
    if cards:
        rows += [(what, *map(cell, cards)) for what, cell in _CARDS.items()]
    names = (Column(one.name.upper(), number=True) for one in outcomes)
    return Table(
        title="Policies",
        columns=(Column("", tone=Tone.NAME), *names),
        rows=rows,
        note="requested: percent of a node's room; out of reach: no use to a pod drawn from the work",
    )


def _layer_rows(what: str, tables: Sequence[Mapping[str, int]]) -> list[tuple[str, ...]]:
    layers = dict.fromkeys(layer for table in tables for layer in table)
    return [(f"{layer}s {what}", *(str(table.get(layer, 0)) for table in tables)) for layer in layers]


def _percent(share: int) -> str:
    return f"{share // 100}.{share % 100 // 10} %"


def _spread(use: ResourceUse) -> str:
    return f"{_percent(use.mean)} ± {_percent(use.deviation).removesuffix(' %')}"


_CARDS: Final[dict[str, Callable[[ClusterFragmentation], str]]] = {
    "idle cards": lambda cards: f"{cards.idle / CARD:.1f}",
    "of these fragmented (FGD)": lambda cards: f"{cards.fragmented / CARD:.1f}",
    "of these without CPU": lambda cards: f"{cards.starved / CARD:.1f}",
    "wholly free cards": lambda cards: str(cards.free),
    "of these in whole blocks": lambda cards: str(cards.blocks),
}


def _record(found: Comparison) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "policies": [_outcome_record(found, one) for one in found.outcomes],
        "elsewhere": [
            {
                "pod": str(one.pod),
                "nodes": {
                    outcome.name: node for outcome, node in zip(found.outcomes, one.nodes, strict=True)
                },
            }
            for one in found.elsewhere
        ],
    }


def _outcome_record(found: Comparison, one: PolicyOutcome) -> dict[str, Any]:
    record: dict[str, Any] = {
        "policy": one.name,
        "placed": one.bound,
        "unschedulable": one.unschedulable,
        "waiting": one.waiting,
        "elsewhere": found.moved(one.name),
        "domains": dict(one.domains),
        "gangDomains": dict(one.gang_domains),
        "resources": {name: attrs.asdict(use) for name, use in one.resources.items()},
    }
    if one.fragmentation is not None:
        record["fragmentation"] = attrs.asdict(one.fragmentation)
    record["refused"] = {
        str(decision.pod): decision.message
        for decision in one.result.decisions
        if isinstance(decision, Unschedulable)
    }
    return record
