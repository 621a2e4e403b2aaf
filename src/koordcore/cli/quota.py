"""``koordcore quota``: the quota tree as a table, and one quota's share worked out step by step."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Final

import attrs

from koordcore.cli.inputs import add_paths, load_paths
from koordcore.cli.policies import add_policy, read_policy
from koordcore.cli.quota_evictions import print_reclaims, print_revokes
from koordcore.errors import ModelError
from koordcore.model.policy import PluginSetting
from koordcore.model.quotas import QuotaPolicy
from koordcore.quota import QuotaLedger, cluster_ledger, explain_runtime, format_waterfall, quota_table
from koordcore.quota.table import format_table

_PLUGIN: Final = "ElasticQuota"
_QUESTIONS: Final = ("revoke", "reclaim")
EPILOG: Final = """\
examples:
  koordcore quota cluster.yaml                           min, max, request, runtime, used, borrowed
  koordcore quota cluster.yaml --quota team-a            how the runtime of each resource came about
  koordcore quota cluster.yaml --quota team-a --resource cpu
  koordcore quota cluster.yaml --feature-gates MultiQuotaTree=true --tree gpu
  koordcore quota cluster.yaml --policy scheduler-config.yaml
  koordcore quota revoke cluster.yaml                    who is evicted from quotas over their runtime
  koordcore quota reclaim cluster.yaml -o patches        who leaves for pods within their quota's min
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Show the quota tree of a dump, how one quota's share came about, or, as `quota revoke` and "
        "`quota reclaim`, who leaves because a quota uses more than its share."
    )
    parser.epilog = EPILOG
    add_paths(parser)
    add_policy(parser)
    parser.add_argument("--tree", default="", metavar="ID", help="which tree; the default one when left out")
    parser.add_argument("--quota", metavar="NAME", help="explain this quota's runtime")
    parser.add_argument("--resource", metavar="NAME", help="only this resource")
    parser.add_argument("-o", "--output", choices=("table", "json", "patches"), default="table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the tree, or one quota's waterfalls."""
    question = arguments.paths.pop(0) if arguments.paths[0] in _QUESTIONS else ""
    if question and not arguments.paths:
        raise ModelError(f"quota {question}: which dump?")
    snapshot = load_paths(arguments).snapshot
    args = _quota_policy(arguments)
    if question == "revoke":
        return print_revokes(snapshot, args, arguments.output)
    if question:
        return print_reclaims(snapshot, read_policy(arguments), args, arguments.output)
    if arguments.output == "patches":
        raise ModelError("-o patches: a table changes nothing; see `quota revoke` and `quota reclaim`")
    ledger = cluster_ledger(snapshot, policy=args)
    if arguments.tree not in ledger.trees:
        raise ModelError(_no_tree(ledger, arguments.tree))
    if arguments.quota is None:
        rows = quota_table(ledger, arguments.tree)
        if arguments.output == "json":
            print(json.dumps([attrs.asdict(row) for row in rows], indent=2, default=dict))
        else:
            print(format_table(rows))
        return 0
    if arguments.quota not in ledger.quotas:
        raise ModelError(f"no quota {arguments.quota} in the dump")
    names = [arguments.resource] if arguments.resource else sorted(ledger.max_of(arguments.quota))
    waterfalls = [explain_runtime(ledger, arguments.quota, name) for name in names]
    if arguments.output == "json":
        print(json.dumps([attrs.asdict(one) for one in waterfalls], indent=2, default=str))
    else:
        print("\n\n".join(map(format_waterfall, waterfalls)))
    return 0


def _quota_policy(arguments: argparse.Namespace) -> QuotaPolicy:
    """Read how the policy enforces quotas; where it has no ElasticQuota, say so and take the defaults."""
    policy = read_policy(arguments)
    if policy.plugin(_PLUGIN) is None:
        if not arguments.quiet:
            print(f"warning: --policy: {policy.name} has no {_PLUGIN}: it limits nobody", file=sys.stderr)
        policy = policy.with_plugin(PluginSetting(name=_PLUGIN, scores=False))
    setting = policy.plugin(_PLUGIN)
    args = None if setting is None else setting.args
    return args if isinstance(args, QuotaPolicy) else QuotaPolicy()


def _no_tree(ledger: QuotaLedger, tree: str) -> str:
    told = f'no quota tree "{tree}"'
    if not ledger.policy.multi_quota_tree:
        return f"{told}: trees are told apart with --feature-gates MultiQuotaTree=true, or such a --policy"
    known = ", ".join(one for one in ledger.trees if one)
    return f"{told}; the dump has {known}" if known else f"{told}: no quota has a tree-id"
