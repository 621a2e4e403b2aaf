"""``koordcore quota revoke`` and ``koordcore quota reclaim``: who leaves because a quota uses too much."""

from __future__ import annotations

import argparse
import json
from typing import Any

import attrs

from koordcore.checking import verify
from koordcore.cli.evictions import preemption_table, victims_table
from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import for_programs, print_record
from koordcore.cli.tables import amount, say, show
from koordcore.cli.words import many
from koordcore.manifests.plan_patches import eviction, patches
from koordcore.manifests.preemption_records import preemption_record
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.model.quotas import QuotaPod, QuotaPolicy
from koordcore.quota import plan_revoke
from koordcore.quota.admission import limit_of
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.device_classes import quota_reader
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.overuse import OveruseMonitor, monitored_quotas, over_used
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot


def print_revokes(snapshot: ClusterSnapshot, policy: QuotaPolicy, arguments: argparse.Namespace) -> int:
    """Show who is evicted from quotas that use more than their runtime; 1 where somebody is.

    Every quota counts as monitored, and as over its runtime for longer than ``delayEvictTime``.
    """
    watching = attrs.evolve(policy, monitor_all_quotas=True, enable_runtime_quota=True)
    ledger = cluster_ledger(snapshot, policy=watching)
    long_ago = {name: OveruseMonitor(0) for name in monitored_quotas(ledger)}
    pods = list(map(quota_reader(snapshot), snapshot.bound_pods()))
    plan = plan_revoke(ledger, pods, long_ago, now=watching.delay_evict + 1)
    leaving = [(name, pod) for name, victims in sorted(plan.victims.items()) for pod in victims]
    if for_programs(arguments):
        record = [_revoked(name, ledger, victims) for name, victims in sorted(plan.victims.items())]
        print_record(arguments, {"revokes": record})
    elif arguments.output == "patches":
        for _, pod in leaving:
            print(json.dumps(eviction(pod.key).to_json()))
    else:
        _show_revokes(ledger, leaving)
        over = (
            f"{many(len(plan.victims), 'quota')} over {'its' if len(plan.victims) == 1 else 'their'} runtime"
        )
        say(f"{over} · {many(len(leaving), 'pod')} to evict")
    return 1 if leaving else 0


def _show_revokes(ledger: QuotaLedger, leaving: list[tuple[str, QuotaPod]]) -> None:
    columns = (
        Column("POD", tone=Tone.NAME),
        Column("QUOTA"),
        Column("OVER", tone=Tone.BAD, text=True, rank=1),
        Column("NODE", rank=2),
        Column("PRIORITY", number=True, rank=3),
    )
    rows = [(str(pod.key), name, _over(ledger, name), pod.node, str(pod.priority)) for name, pod in leaving]
    if rows:
        show(Table(title="Revoked", columns=columns, rows=rows))


def _over(ledger: QuotaLedger, name: str) -> str:
    used, limit = ledger.used_of(name), limit_of(ledger, name)
    return ", ".join(
        f"{amount(one, used[one])} of {amount(one, limit[one])} {one}" for one in over_used(used, limit)
    )


def _revoked(name: str, ledger: QuotaLedger, victims: tuple[QuotaPod, ...]) -> dict[str, Any]:
    return {
        "quota": name,
        "used": dict(ledger.used_of(name)),
        "runtime": dict(limit_of(ledger, name)),
        "evict": [str(pod.key) for pod in victims],
    }


def print_reclaims(snapshot: ClusterSnapshot, policy: Policy, arguments: argparse.Namespace) -> int:
    """Show who leaves so that pending pods within their quota's min get it back; 1 where somebody does.

    The whole queue takes its turn, as with ``koordcore schedule --preempt``; evictions for priority are
    left out of what is shown.
    """
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    violations = verify(snapshot, result)
    plans = tuple(plan for plan in result.preemptions if plan.borrowers and not violations)
    shown = attrs.evolve(result, preemptions=plans)
    if for_programs(arguments):
        print_record(arguments, {"preemptions": [preemption_record(plan) for plan in plans]})
    elif arguments.output == "patches":
        asked = {key for plan in plans for key in plan.nominations}
        coming = tuple(one for one in result.decisions if str(one.pod) in asked)
        for call in patches(attrs.evolve(shown, decisions=coming)):
            print(json.dumps(call.to_json()))
    else:
        if plans:
            show(preemption_table(shown), victims_table(shown))
        victims = sum(len(plan.victims) for plan in plans)
        one = len(plans) == 1
        back = "gets back what its quota has lent" if one else "get back what their quotas have lent"
        say(f"{many(len(plans), 'job')} {back} · {many(victims, 'pod')} to evict")
    return 1 if plans else 0
