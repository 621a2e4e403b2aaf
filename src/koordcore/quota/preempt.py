"""Making room inside one quota: which pods on a node leave so that a more important one of it fits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.quotas import DEFAULT_QUOTA, QuotaPod
from koordcore.model.selectors import EVERYTHING
from koordcore.quota.admission import QuotaRefusal, admit
from koordcore.quota.ledger import QuotaLedger

NodeFilter: TypeAlias = Callable[[Collection[QuotaPod]], str]
"""Asked whether the node can take the preemptor beside these pods; answers with the reason why not, or
empty."""

_NEVER_MESSAGE: Final = "not eligible due to preemptionPolicy=Never."
_TERMINATING_MESSAGE: Final = "not eligible due to a terminating pod on the nominated node."


@record(kw_only=True)
class QuotaVictims:
    """Pods to evict from one node.

    Parameters
    ----------
    victims
        In the order in which they failed to be spared: those whose eviction breaks a disruption budget
        first, the most important first in each part. Empty where nobody has to leave.
    violating
        How many of them break a budget.
    """

    victims: tuple[QuotaPod, ...]
    violating: int = 0


@record(kw_only=True)
class NoVictims:
    """Evictions on this node do not help.

    Parameters
    ----------
    message
        Why: upstream's text, the node filter's reason, or the quota's refusal.
    resolvable
        ``False`` where the node has nobody to evict (upstream's UnschedulableAndUnresolvable).
    """

    message: str
    resolvable: bool = True


def can_preempt(ledger: QuotaLedger, pod: QuotaPod, victim: QuotaPod) -> bool:
    """Tell whether one pod may take the place of another for quota reasons.

    The victim is preemptible, less important and in the same quota; victims in the default quota only if
    the policy allows it.

    Parameters
    ----------
    ledger
        The quotas and their policy.
    pod
        Who would come.
    victim
        Who would leave.
    """
    if not victim.preemptible or pod.priority <= victim.priority:
        return False
    quota = ledger.resolve(victim)
    if quota == DEFAULT_QUOTA and ledger.policy.disable_default_quota_preemption:
        return False
    return ledger.resolve(pod) == quota


def importance(pod: QuotaPod) -> tuple[int, bool, int, str, str]:
    """Sort key that puts the more important pod first: priority, then the earlier start, then the name."""
    start = 0 if pod.start is None else pod.start
    return (-pod.priority, pod.start is None, start, pod.key.namespace, pod.key.name)


def split_by_budgets(
    pods: Iterable[QuotaPod], budgets: Sequence[PodDisruptionBudget]
) -> tuple[tuple[QuotaPod, ...], tuple[QuotaPod, ...]]:
    """Part pods into those whose eviction breaks a disruption budget and the others, order kept.

    Every pod spends one of each budget that selects it, in the given order. A budget with an empty
    selector selects nothing here, nor does any budget a pod without labels or one that is already on its
    way out.
    """
    left = [budget.disruptions_allowed for budget in budgets]
    violating: list[QuotaPod] = []
    others: list[QuotaPod] = []
    for pod in pods:
        breaks = False
        for index, budget in enumerate(budgets):
            if _covers(budget, pod):
                left[index] -= 1
                breaks = breaks or left[index] < 0
        (violating if breaks else others).append(pod)
    return tuple(violating), tuple(others)


def _covers(budget: PodDisruptionBudget, pod: QuotaPod) -> bool:
    return (
        bool(pod.labels)
        and budget.namespace == pod.namespace
        and budget.selector != EVERYTHING
        and budget.selector.matches(pod.labels)
        and pod.key.name not in budget.disrupted_pods
    )


def select_victims(
    ledger: QuotaLedger,
    pod: QuotaPod,
    *,
    node: str,
    on_node: Iterable[QuotaPod],
    budgets: Sequence[PodDisruptionBudget] = (),
    refuse: NodeFilter,
) -> QuotaVictims | NoVictims:
    """Find the least damage on one node that lets a pod in, under its quota and under the node's filters.

    Parameters
    ----------
    ledger
        With the preemptor tracked and every pod counted that uses something.
    node
        Name of the node, for messages.
    on_node
        Pods on the node.
    budgets
        Disruption budgets of the cluster.
    refuse
        The node's filters.

    Returns
    -------
    QuotaVictims or NoVictims
        Victims are named only if the pod is admitted afterwards in every respect (rulings 9 and 22).

    Notes
    -----
    After ``preempt.go: SelectVictimsOnNode``: all candidates go, then they come back one by one, first
    those whose eviction breaks a budget, the most important first, for as long as the pod still fits.
    """
    residents = sorted(on_node, key=importance)
    candidates = [other for other in residents if can_preempt(ledger, pod, other)]
    if not candidates:
        return NoVictims(
            message=f"No victims found on node {node} for preemptor pod {pod.key.name}", resolvable=False
        )
    gone = {other.key for other in candidates}
    for other in candidates:
        ledger = ledger.forget(other)
    reason = refuse([other for other in residents if other.key not in gone])
    if reason:
        return NoVictims(message=reason)
    outcome = admit(ledger, pod)
    if isinstance(outcome, QuotaRefusal):
        return NoVictims(message=outcome.message)
    breaking, others = split_by_budgets(candidates, budgets)
    victims: list[QuotaPod] = []
    for other in (*breaking, *others):
        back = ledger.assume(other)
        gone.discard(other.key)
        kept = [each for each in residents if each.key not in gone]
        if refuse(kept) or isinstance(admit(back, pod), QuotaRefusal):
            gone.add(other.key)
            victims.append(other)
        else:
            ledger = back
    broken, _ = split_by_budgets(victims, budgets)
    return QuotaVictims(victims=tuple(victims), violating=len(broken))
