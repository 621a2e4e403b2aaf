"""``koordcore compare``: several policies on one dump."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from koordcore._record import record
from koordcore.checking import verify
from koordcore.cli.inputs import add_now, add_paths, as_of, load_paths, need_one_reader, read_now
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import add_limit, add_output, for_programs, print_record
from koordcore.cli.policies import KNOWN_POLICIES, read_policies
from koordcore.cli.progress import working
from koordcore.cli.queues import compare_queues, comparison_record, comparison_tables
from koordcore.cli.selection import add_selection, selection_of
from koordcore.cli.tables import say, show
from koordcore.cli.words import many
from koordcore.explaining.workloads import stand_in_names
from koordcore.model.decisions import Unschedulable
from koordcore.model.kueue import KueueWorkload
from koordcore.model.preemption import PreemptionRules
from koordcore.model.resources import CPU, MEMORY
from koordcore.scoring.gpu_share import CARD
from koordcore.simulate.cluster import ClusterFragmentation
from koordcore.simulate.compare import Comparison, Landing, PolicyOutcome, compare_policies

FORMAT: Final = "koordcore/comparison/v1"
_SIDE_BY_SIDE: Final = 4
EPILOG: Final = """\
examples:
  koordcore compare cluster.yaml             stock Kubernetes and Koordinator
  koordcore compare cluster.yaml --policy default --policy spread
  koordcore compare cluster.yaml --policy bestfit --policy fgd -o json
  koordcore compare cluster.yaml --as-gangs  Kueue's own rule beside ours
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Place the pending pods under several policies: who lands elsewhere, and what that "
        "costs in fragmentation, balance and domains."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    parser.add_argument(
        "--policy",
        action="append",
        metavar="POLICY",
        help="a KubeSchedulerConfiguration, all profiles of which take part, or one of "
        f"{', '.join(KNOWN_POLICIES)}; repeat it; the first one is what the others are compared with",
    )
    parser.add_argument(
        "--preempt", action="store_true", help="let more important pods evict, and count what that costs"
    )
    parser.add_argument(
        "--all-schedulers",
        action="store_true",
        help="decide about the pods of schedulers that no policy names, too",
    )
    add_now(parser, "the newest metric's")
    add_output(parser, watch=True)
    add_selection(parser)
    add_limit(parser, 40, "rows per table (40); 0 shows all of them")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare, verify every plan, print; 1 when a plan is not legal."""
    selection = selection_of(arguments)
    need_one_reader(arguments)
    policies = read_policies(
        arguments.policy or (), all_schedulers=arguments.all_schedulers, quiet=arguments.quiet
    )
    snapshot, now = as_of(arguments, load_paths(arguments).snapshot), read_now(arguments)
    queues = None
    what = f"placing {len(snapshot.pending)} pods under {len(policies)} policies"
    with working(what, len(policies)) as step:
        if arguments.as_gangs and snapshot.has(KueueWorkload):
            queues = compare_queues(snapshot, next(iter(policies.values())), now)
            # The policies are asked about the pods as their admission makes them.
            snapshot = queues.ours.before
        found = compare_policies(
            snapshot,
            policies,
            now=now,
            preempt=PreemptionRules() if arguments.preempt else None,
            progress=step,
        )
        violations = [
            (one.name, what) for one in found.outcomes for what in verify(snapshot, one.result, now=now)
        ]
    for name, violation in violations:
        # The library promises that this cannot happen; if it does, nobody should act on the figures.
        print(f"koordcore: {name}: the plan is not legal: {violation}", file=sys.stderr)
    if violations:
        return 1
    if not selection.all:
        pods = {pod.key: pod for pod in snapshot.pending}
        shown = (one for one in found.elsewhere if one.pod in pods and selection.pod(pods[one.pod]))
        found = attrs.evolve(found, elsewhere=tuple(shown))
    if for_programs(arguments):
        queue_part = {} if queues is None else {"kueue": comparison_record(queues)}
        print_record(arguments, _record(found) | queue_part)
    else:
        for table in () if queues is None else comparison_tables(queues):
            show(table)
        _print_tables(found, arguments.limit)
    return 0


def _print_tables(found: Comparison, limit: int) -> None:
    first = found.outcomes[0].name
    wide = len(found.outcomes) > _SIDE_BY_SIDE
    landings = [_landings(found, limit, wide=wide)] if found.elsewhere else []
    show(_by_policy(found) if wide else _by_measure(found), *landings)
    strangers = found.outcomes[0].not_ours
    pods = len(found.outcomes[0].result.decisions) - strangers
    moved = ", ".join(f"{found.moved(one.name)} under {one.name}" for one in found.outcomes[1:])
    note = f" · landing elsewhere than under {first}: {moved}" if moved else ""
    others = f" · {strangers} not ours (see --all-schedulers)" if strangers else ""
    say(f"{many(pods, 'pod')}{note}{others} · verified")


def _landings(found: Comparison, limit: int, *, wide: bool) -> Table:
    """Where each pod lands that does not land the same everywhere: a column per policy, or all in one."""
    names = [one.name for one in found.outcomes]
    known = stand_in_names(found.outcomes[0].result.snapshot)
    shown = found.elsewhere[:limit] if limit > 0 else found.elsewhere
    rows: list[tuple[str, ...]]
    columns = [Column("POD", tone=Tone.NAME)]
    if wide:
        columns.append(Column("WHERE", text=True))
        rows = [(known.get(one.pod, str(one.pod)), _landing_text(one, names)) for one in shown]
    else:
        columns += [Column(name.upper(), text=True) for name in names]
        rows = [(known.get(one.pod, str(one.pod)), *(node or "–" for node in one.nodes)) for one in shown]
    more = len(found.elsewhere) - len(shown)
    note = f"… and {more} more rows; --limit 0 shows all" if more else ""
    return Table(title="Landing elsewhere", columns=tuple(columns), rows=rows, note=note)


def _landing_text(landing: Landing, names: Sequence[str]) -> str:
    by_node: dict[str, list[str]] = {}
    for node, name in zip(landing.nodes, names, strict=True):
        by_node.setdefault(node, []).append(name)
    return " · ".join(f"{node or 'nowhere'}: {', '.join(names)}" for node, names in by_node.items())


@record
class _Measure:
    """One figure of each policy; ``short`` heads a column where policies are rows, empty for none."""

    name: str
    short: str
    cells: tuple[str, ...]


def _measures(found: Comparison) -> list[_Measure]:
    outcomes = found.outcomes

    def measure(name: str, short: str, cell: Callable[[PolicyOutcome], object]) -> _Measure:
        return _Measure(name, short, tuple(str(cell(one)) for one in outcomes))

    kept = [
        measure("placed", "PLACED", lambda one: one.bound),
        measure("unschedulable", "REFUSED", lambda one: one.unschedulable),
        measure("waiting", "WAITING", lambda one: one.waiting),
    ]
    if any(one.nominated for one in outcomes):
        kept.append(measure("nominated", "NOMINATED", lambda one: one.nominated))
    if len(outcomes) > 1:
        kept.append(measure("landing elsewhere", "MOVED", lambda one: found.moved(one.name)))
    if any(one.evicted for one in outcomes):
        kept.append(measure("evicted", "EVICTED", lambda one: one.evicted))
        kept.append(
            measure(
                "evictions for each started card",
                "EACH",
                lambda one: "–" if one.disruption is None else f"{one.disruption:.2f}",
            )
        )
    kept += _layers("with new pods", "", [one.domains for one in outcomes])
    kept += _layers("over all gangs", "GANG ", [one.gang_domains for one in outcomes])
    for name in (CPU, MEMORY):
        uses = [one.resources[name] for one in outcomes if name in one.resources]
        if uses:
            short = "CPU" if name == CPU else "MEM"
            shares = (
                (f"{name} requested, mean", f"{short} MEAN", [use.mean for use in uses]),
                (f"{name} requested, std", f"{short} STD", [use.deviation for use in uses]),
                (f"{name} on the fullest node", f"{short} MOST", [use.highest for use in uses]),
                (f"free {name} out of reach", "", [use.stranded for use in uses]),
            )
            kept += [_Measure(one, head, tuple(map(_percent, cells))) for one, head, cells in shares]
    cards = [one.fragmentation for one in outcomes if one.fragmentation is not None]
    if cards:
        kept += [_Measure(name, short, tuple(map(cell, cards))) for (name, short), cell in _CARDS.items()]
    return kept


def _by_measure(found: Comparison) -> Table:
    names = (Column(one.name.upper(), number=True) for one in found.outcomes)
    return Table(
        title="Policies",
        columns=(Column(""), *names),
        rows=[(one.name, *one.cells) for one in _measures(found)],
        note="shares of a node's room, over nodes; out of reach: no use to a pod drawn from the work",
    )


def _by_policy(found: Comparison) -> Table:
    """Many policies are rows; what is the same under all of them is said once."""
    measures = _measures(found)
    shown = [one for one in measures if one.short and len(set(one.cells)) > 1]
    same = [f"{one.name} {one.cells[0]}" for one in measures if len(set(one.cells)) == 1]
    rows = [
        (outcome.name, *(one.cells[place] for one in shown)) for place, outcome in enumerate(found.outcomes)
    ]
    return Table(
        title="Policies",
        columns=(
            Column("POLICY"),
            *(Column(one.short, number=True, rank=rank) for rank, one in enumerate(shown)),
        ),
        rows=rows,
        note=f"the same under all: {' · '.join(same)}" if same else "",
    )


def _layers(what: str, head: str, tables: Sequence[Mapping[str, int]]) -> list[_Measure]:
    layers = dict.fromkeys(layer for table in tables for layer in table)
    return [
        _Measure(
            f"{layer}s {what}",
            f"{head}{layer.upper()}S",
            tuple(str(table.get(layer, 0)) for table in tables),
        )
        for layer in layers
    ]


def _percent(share: int) -> str:
    return f"{share // 100}.{share % 100 // 10} %"


_CARDS: Final[dict[tuple[str, str], Callable[[ClusterFragmentation], str]]] = {
    ("idle cards", "IDLE"): lambda cards: f"{cards.idle / CARD:.1f}",
    ("of these fragmented (FGD)", "FGD"): lambda cards: f"{cards.fragmented / CARD:.1f}",
    ("of these without CPU", "STARVED"): lambda cards: f"{cards.starved / CARD:.1f}",
    ("wholly free cards", "FREE"): lambda cards: str(cards.free),
    ("of these in whole blocks", "WHOLE"): lambda cards: str(cards.blocks),
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
        "nominated": one.nominated,
        "notOurs": one.not_ours,
        "elsewhere": found.moved(one.name),
        "evicted": one.evicted,
        "startedMilliCards": one.started,
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
