"""The end of the FailedScheduling event: why no reservation and no eviction helps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from immutabledict import immutabledict

from koordcore.explaining.cycle import Cycle, admission_of, explain_cycle, verdict_on
from koordcore.explaining.reservation_events import ReservationCounts, reservation_reasons
from koordcore.model.pods import Pod, PreemptionPolicy
from koordcore.model.policy import Policy
from koordcore.model.quotas import QuotaPolicy
from koordcore.model.reservations import Reservation, ReservationArgs
from koordcore.protocol.preemption import preemption_disabled
from koordcore.protocol.reservation import reservation_wish
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.device_classes import quota_reader
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.lenders import chain_of, staying_charged
from koordcore.quota.preempt import can_preempt
from koordcore.reservations.match import MatchReason, judge_match, screened_nodes
from koordcore.reservations.state import owners_of, reservation_state, used_reservations
from koordcore.snapshot import ClusterSnapshot

_NEVER: Final = "not eligible due to preemptionPolicy=Never."
_HOPELESS: Final = "Preemption is not helpful for scheduling"
_NOBODY_OF_QUOTA: Final = "No victims found on node {} for preemptor pod {}"
_NOBODY: Final = "No preemption victims found for incoming pod"

_Rule: TypeAlias = tuple[Callable[[Pod], bool], str]
"""Whom a plugin may evict, and what it says of a node without any of them."""


def failure_event(
    snapshot: ClusterSnapshot,
    pod: Pod,
    *,
    policy: Policy = Policy(),
    now: datetime | None = None,
    once: bool = False,
) -> str:
    """Write the FailedScheduling event of a pod as the reference does; empty where some node takes it.

    First the refusals counted over the nodes, then why no reservation serves, why no preemption inside the
    quota helps, and why none by priority does. The nodes are asked again one by one without their lower
    priorities, which takes a while in a large cluster.

    Parameters
    ----------
    snapshot
        The cluster.
    pod
        A pending pod.
    policy, now
        As for :func:`koordcore.schedule`.
    once
        What several plugins that evict say alike is said once, as by Kubernetes, which has one of them.

    Raises
    ------
    ManifestError
        When what the pod says about reservations cannot be read.
    """
    cycle = explain_cycle(snapshot, pod, policy=policy, now=now)
    if cycle.decision is not None:
        return ""
    reserved = () if policy.plugin("Reservation") is None else reservation_refusals(snapshot, pod, cycle)
    evicting = preemption_refusals(snapshot, pod, cycle, policy=policy, now=now)
    if once:
        evicting = tuple(dict.fromkeys(evicting))
    after = ", ".join([*reserved, *evicting])
    return f"{cycle.message} {after}" if after else cycle.message


def reservation_refusals(snapshot: ClusterSnapshot, pod: Pod, cycle: Cycle) -> tuple[str, ...]:
    """Say why no reservation serves a pod.

    Parameters
    ----------
    snapshot
        The cluster in which the cycle ran.
    pod
        Who was refused.
    cycle
        What :func:`~koordcore.explaining.cycle.explain_cycle` found for it.

    Returns
    -------
    tuple of str
        Texts of :func:`~koordcore.explaining.reservation_events.reservation_reasons`; empty where no
        reservation concerns the pod.

    Raises
    ------
    ManifestError
        When what the pod says about reservations cannot be read.
    """
    wish = reservation_wish(pod.labels, pod.annotations)
    users = used_reservations(snapshot.bound_pods())
    nodes = {state.name: state.node for state in snapshot.nodes}
    screened = screened_nodes(pod, nodes) or frozenset()
    counts: dict[str, Counter[MatchReason]] = {}
    taints: dict[str, Counter[str]] = {}
    known = snapshot.of(Reservation)
    if wish.affinity is not None and wish.affinity.name:
        # Who names one is held against the reservations on its node, and against no others.
        screened &= {one.status.node_name for one in known if one.name == wish.affinity.name}
    for one in known:
        state = reservation_state(one, owners_of(one, users))
        node = one.status.node_name
        if not one.active or not state.matchable or node not in screened:
            continue
        match = judge_match(pod, wish, state, nodes[node].labels)
        if match.reason in (MatchReason.OWNER_UNMATCHED, MatchReason.IGNORED):
            continue
        counts.setdefault(node, Counter())[match.reason] += 1
        if match.reason is MatchReason.TAINTS_UNMATCHED:
            taints.setdefault(node, Counter())[match.taint] += 1
    by_node = {
        node: ReservationCounts(
            owner_matched=found.total(),
            name_matched=found[MatchReason.NAME_MATCHED],
            name_unmatched=found[MatchReason.NAME_UNMATCHED],
            affinity_unmatched=found[MatchReason.AFFINITY_UNMATCHED],
            is_unschedulable_unmatched=found[MatchReason.UNSCHEDULABLE],
            not_exact_matched=found[MatchReason.NOT_EXACT],
            taints_unmatched=immutabledict(taints.get(node, {})),
            node_reasons=_said_of(cycle, node),
        )
        for node, found in counts.items()
    }
    return reservation_reasons(by_node, has_affinity=wish.affinity is not None)


def _said_of(cycle: Cycle, node: str) -> tuple[str, ...]:
    if not cycle.admission.passed:
        return () if cycle.admission.plugin == "Reservation" else cycle.admission.reasons
    return cycle.filters[node].reasons if node in cycle.filters else ()


def preemption_refusals(
    snapshot: ClusterSnapshot,
    pod: Pod,
    cycle: Cycle,
    *,
    policy: Policy = Policy(),
    now: datetime | None = None,
) -> tuple[str, ...]:
    """Say why neither preemption inside the quota nor that by priority helps.

    Parameters
    ----------
    snapshot
        The cluster in which the cycle ran.
    pod
        Who was refused.
    cycle
        What :func:`~koordcore.explaining.cycle.explain_cycle` found for it.
    policy, now
        As for that cycle.

    Returns
    -------
    tuple of str
        That of the Reservation plugin first where its ``enablePreemption`` is set, then quota preemption.
        Empty where the eviction of lower priorities from some node would help.

    Notes
    -----
    After ``elasticquota/preempt.go`` and Kubernetes' ``preemption.go``: only nodes whose refusal an eviction
    can mend are tried; all candidates leave at once, and the node's filters are asked again.
    """
    rules = _rules(snapshot, pod, policy)
    if pod.preemption_policy is PreemptionPolicy.NEVER:
        return (f"preemption: {_NEVER}",) * len(rules)
    # Admission is not asked again on the nodes; whether it stands is asked once they are free.
    filters_only = policy.without_plugin("ElasticQuota")
    names = [state.name for state in snapshot.nodes]
    if cycle.admission.passed:
        tried = [name for name, one in cycle.filters.items() if not one.passed and one.resolvable]
    else:
        tried = names if cycle.admission.resolvable else []

    def lifts(victims: Sequence[Pod]) -> bool:
        leaving = _given_back(snapshot, pod, victims, policy)
        without = snapshot.forget(*(other.key for other in leaving))
        return admission_of(without, pod, policy=policy, now=now).passed

    messages = []
    for may_evict, nobody in rules:
        counts = Counter({_HOPELESS: len(names) - len(tried)})
        for name in tried:
            victims = [other for other in snapshot.node(name).pods if may_evict(other)]
            if not victims:
                counts[nobody.format(name, pod.name)] += 1
                continue
            without = snapshot.forget(*(other.key for other in victims))
            verdict = verdict_on(without, pod, name, policy=filters_only, now=now)
            if not verdict.passed:
                counts.update(verdict.reasons)
            elif cycle.admission.passed or lifts(victims):
                return ()
            else:
                # No node is at fault, and none will do as long as the refusal stands (ruling 33).
                return (_said(len(names), Counter({_HOPELESS: len(names)})),) * len(rules)
        messages.append(_said(len(names), counts))
    return tuple(messages)


def _rules(snapshot: ClusterSnapshot, pod: Pod, policy: Policy) -> list[_Rule]:
    """Whom each plugin that preempts may evict, in the order in which they are asked."""
    read = quota_reader(snapshot)
    ledger, mine = _ledger(snapshot, policy), read(pod)
    rules: list[_Rule] = [
        (lambda other: can_preempt(ledger, mine, read(other)), _NOBODY_OF_QUOTA),
        (lambda other: other.priority < pod.priority, _NOBODY),
    ]
    reserving = policy.plugin("Reservation")
    args = None if reserving is None else reserving.args
    if isinstance(args, ReservationArgs) and args.enable_preemption:
        rules.insert(
            0,
            (lambda other: other.priority < pod.priority and not preemption_disabled(other.labels), _NOBODY),
        )
    return rules


def _ledger(snapshot: ClusterSnapshot, policy: Policy) -> QuotaLedger:
    setting = policy.plugin("ElasticQuota")
    args = None if setting is None else setting.args
    return cluster_ledger(snapshot, policy=args or QuotaPolicy())


def _given_back(snapshot: ClusterSnapshot, pod: Pod, victims: Sequence[Pod], policy: Policy) -> list[Pod]:
    """Leave out the victims within a guaranteed min of another quota: they count on (ruling 26)."""
    read = quota_reader(snapshot)
    ledger, mine = _ledger(snapshot, policy), read(pod)
    chains = {chain_of(ledger, mine)}
    charged = staying_charged(ledger, map(read, victims), chains, sorted(mine.request))
    return [other for other in victims if other.key not in charged]


def _said(nodes: int, counts: Counter[str]) -> str:
    listed = sorted(f"{count} {reason}" for reason, count in counts.items() if count)
    return f"preemption: 0/{nodes} nodes are available: {', '.join(listed)}."
