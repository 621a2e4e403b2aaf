"""``koordcore quota``: the quota tree as a table, and one quota's share worked out step by step."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from koordcore.cli.idle_options import need_use_of
from koordcore.cli.inputs import add_paths, load_paths
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import NAME, add_output, for_programs, print_record
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.quota_evictions import print_reclaims, print_revokes
from koordcore.cli.selection import add_selection, need_use, selection_of
from koordcore.cli.tables import amount, say, show
from koordcore.cli.words import near
from koordcore.errors import ModelError
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.quota import QuotaLedger, explain_runtime, format_waterfall, quota_table
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.table import QuotaRow
from koordcore.result.left_out import quota_trees

_PLUGIN: Final = "ElasticQuota"
_QUESTIONS: Final = ("revoke", "reclaim")
EPILOG: Final = """\
examples:
  koordcore quota cluster.yaml                    min, max, used, borrowed
  koordcore quota cluster.yaml --quota research   how its runtime came about
  koordcore quota cluster.yaml --quota research --resource cpu
  koordcore quota cluster.yaml --policy scheduler-config.yaml
  koordcore quota revoke cluster.yaml             who is over their runtime
  koordcore quota reclaim cluster.yaml            who leaves for pods within min
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Show the quota tree of a dump, how one quota's share came about, or, as `quota revoke` and "
        "`quota reclaim`, who leaves because a quota uses more than its share."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    add_policy(parser, gangs=False)
    parser.add_argument("--tree", metavar="ID", help="which tree; the default one when left out")
    parser.add_argument("--quota", metavar="NAME", help="explain this quota's runtime")
    parser.add_argument("--resource", metavar="NAME", help="only this resource")
    add_output(parser, "patches", watch=True)
    add_selection(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the tree, or one quota's waterfalls."""
    question = arguments.paths.pop(0) if arguments.paths[:1] in ([one] for one in _QUESTIONS) else ""
    selection = selection_of(arguments)
    need_use(
        arguments,
        namespace="who leaves is told for the whole tree" if question else "",
        labels="quotas have no labels here; -n, --tree and --quota choose them",
    )
    if question:
        need_use_of(arguments, "who leaves is told for all quotas", "--tree", "--quota", "--resource")
    if arguments.quota is not None:
        why = "it is about rows of the table, and --quota is about one quota"
        need_use(arguments, namespace=why)
        need_use_of(arguments, why, "--sort-by")
    if question and not arguments.paths and not arguments.live:
        raise ModelError(f"quota {question}: which dump?")
    snapshot = load_paths(arguments).snapshot
    policy = _with_quotas(arguments, read_policy(arguments))
    args = _quota_policy(policy)
    for one in () if arguments.quiet else quota_trees(snapshot, policy):
        print(f"not looked at: {one}", file=sys.stderr)
    if question == "revoke":
        return print_revokes(snapshot, args, arguments)
    if question:
        return print_reclaims(snapshot, policy, arguments)
    if arguments.output == "patches":
        raise ModelError("-o patches: a table changes nothing; see `quota revoke` and `quota reclaim`")
    if not snapshot.of(ElasticQuota):
        raise ModelError("no ElasticQuota in the dump: nobody is limited, and nobody lends")
    ledger = cluster_ledger(snapshot, policy=args)
    tree: str = arguments.tree or ""
    if tree not in ledger.trees:
        raise ModelError(_no_tree(ledger, tree))
    if arguments.quota is None:
        spaces = {one.name: one.namespace for one in snapshot.of(ElasticQuota)}
        table = quota_table(ledger, tree)
        _check_resource(arguments, {row.resource for row in table})
        rows = [
            row
            for row in table
            if selection.named(spaces.get(row.quota, ""))
            and (not arguments.resource or row.resource == arguments.resource)
        ]
        if for_programs(arguments):
            print_record(arguments, {"quotas": [attrs.asdict(row) for row in rows]})
        else:
            others = () if tree else tuple(one for one in ledger.trees if one)
            show(_table(rows, others))
        return 0
    if arguments.quota not in ledger.quotas:
        raise ModelError(f"no quota {arguments.quota} in the dump{near(arguments.quota, ledger.quotas)}")
    if tree and tree != ledger.tree_of(arguments.quota):
        raise ModelError(f"--tree: quota {arguments.quota} is not in tree {tree}")
    _check_resource(arguments, ledger.max_of(arguments.quota))
    names = [arguments.resource] if arguments.resource else sorted(ledger.max_of(arguments.quota))
    waterfalls = [explain_runtime(ledger, arguments.quota, name) for name in names]
    if for_programs(arguments):
        print_record(arguments, {"waterfalls": [attrs.asdict(one) for one in waterfalls]})
    elif arguments.output == NAME:
        print(arguments.quota)
    else:
        say("\n\n".join(map(format_waterfall, waterfalls)))
    return 0


def _check_resource(arguments: argparse.Namespace, known: Collection[str]) -> None:
    asked = arguments.resource
    if asked and asked not in known:
        there = ", ".join(sorted(known))
        raise ModelError(f"--resource: no quota limits {asked}{near(asked, known) or f'; there are {there}'}")


def _table(rows: Sequence[QuotaRow], others: Sequence[str]) -> Table:
    """Write the rows of a tree, children under their parent, and name trees that are not shown."""
    cells = []
    for row in rows:
        amounts = [
            "-" if value is None else amount(row.resource, value)
            for value in (row.used, row.min, row.max, row.request, row.runtime, row.borrowed)
        ]
        cells.append(("  " * row.depth + row.quota, row.resource, *amounts, ", ".join(row.lenders)))
    heads = ("USED", "MIN", "MAX", "REQUEST", "RUNTIME", "BORROWED")
    columns = (
        Column("QUOTA", tone=Tone.NAME),
        Column("RESOURCE"),
        *(Column(head, number=True, rank=rank) for head, rank in zip(heads, (0, 0, 0, 3, 2, 1), strict=True)),
        Column("FROM", text=True, rank=4),
    )
    note = f"not shown (--tree ID): {', '.join(others)}" if others else ""
    return Table(title="Quotas", columns=columns, rows=cells, note=note)


def _with_quotas(arguments: argparse.Namespace, policy: Policy) -> Policy:
    """Give the policy with ElasticQuota; where it has none, say so and take the defaults."""
    if policy.plugin(_PLUGIN) is not None:
        return policy
    if not arguments.quiet:
        print(f"warning: --policy: {policy.name} has no {_PLUGIN}: it limits nobody", file=sys.stderr)
    return policy.with_plugin(PluginSetting(name=_PLUGIN, scores=False))


def _quota_policy(policy: Policy) -> QuotaPolicy:
    """Give how the policy enforces quotas."""
    setting = policy.plugin(_PLUGIN)
    args = None if setting is None else setting.args
    return args if isinstance(args, QuotaPolicy) else QuotaPolicy()


def _no_tree(ledger: QuotaLedger, tree: str) -> str:
    message = f'no quota tree "{tree}"'
    if not ledger.policy.multi_quota_tree:
        return f"{message}: trees are told apart with --feature-gates MultiQuotaTree=true, or such a --policy"
    known = ", ".join(one for one in ledger.trees if one)
    return f"{message}; the dump has {known}" if known else f"{message}: no quota has a tree-id"
