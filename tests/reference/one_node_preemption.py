"""Preemption for one pod on one node: the stock algorithm, as reserve pods of reservations use it too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeAlias

import attrs

from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.pods import Pod, PreemptionPolicy
from koordcore.preemption.eligible import NEVER, UNRESOLVABLE
from koordcore.preemption.running import covers
from koordcore.protocol.preemption import PREEMPTED_REASON, preemption_disabled
from tests.reference.fit_errors import fit_error
from tests.reference.preemption_refusals import NOT_HELPFUL_HERE, NodeRefusal, candidate_nodes

__all__ = [
    "NO_VICTIMS_FOUND",
    "NodeVictims",
    "PodPreemption",
    "importance",
    "may_evict_any",
    "may_evict_for_reservation",
    "pick_node",
    "preempt_for_pod",
    "select_on_node",
]

NO_VICTIMS_FOUND: Final = "No preemption victims found for incoming pod"
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
_OFFSET: Final = 2**31
"""Added to every priority so that more victims always weigh more."""
_LATEST: Final = datetime(9999, 12, 31, tzinfo=UTC)
"""Stands for the start of a pod that has not started: later than all others."""

MayEvict: TypeAlias = Callable[[Pod, Pod], bool]
"""Whether a preemptor may have a pod evicted."""
RefuseBeside: TypeAlias = Callable[[Sequence[Pod]], NodeRefusal | None]
"""Why the preemptor does not fit a node beside some pods; None where it fits."""


def may_evict_any(preemptor: Pod, pod: Pod) -> bool:
    """Stock rule: strictly less important."""
    return pod.priority < preemptor.priority


def may_evict_for_reservation(preemptor: Pod, pod: Pod) -> bool:
    """Rule of the Reservation plugin: strictly less important, and preemption is not disabled for it.

    The quota's mark of a pod as non-preemptible does not protect here.
    """
    return pod.priority < preemptor.priority and not preemption_disabled(pod.labels)


@attrs.frozen(kw_only=True)
class NodeVictims:
    """What selecting victims on one node came to.

    Parameters
    ----------
    victims
        Who leaves: those whose eviction breaks a budget first, the more important first in each part.
    violations
        How many of them break a budget.
    refusal
        Why evictions do not help; None where they do.
    """

    victims: tuple[Pod, ...] = ()
    violations: int = 0
    refusal: NodeRefusal | None = None


def importance(pod: Pod) -> tuple[int, datetime]:
    """Sort key that puts the more important pod first: priority, then the earlier start.

    Pods that are equal in both keep the order of their node.
    """
    return (-pod.priority, pod.started or _LATEST)


def _split(pods: Iterable[Pod], budgets: Sequence[PodDisruptionBudget]) -> tuple[list[Pod], list[Pod]]:
    """Part pods into those whose eviction breaks a budget and the others; budgets are spent in order."""
    left = [budget.disruptions_allowed for budget in budgets]
    violating: list[Pod] = []
    others: list[Pod] = []
    for pod in pods:
        breaks = False
        for number, budget in enumerate(budgets):
            if pod.labels and covers(budget, pod):
                left[number] -= 1
                breaks = breaks or left[number] < 0
        (violating if breaks else others).append(pod)
    return violating, others


def select_on_node(
    preemptor: Pod,
    on_node: Sequence[Pod],
    *,
    may_evict: MayEvict,
    budgets: Sequence[PodDisruptionBudget] = (),
    refuse: RefuseBeside,
) -> NodeVictims:
    """Take everybody off a node who may go, and put back whoever need not (``SelectVictimsOnNode``).

    Put back are first those whose eviction breaks a budget, then the others; the more important, then the
    earlier started first.
    """
    possible = sorted((pod for pod in on_node if may_evict(preemptor, pod)), key=importance)
    if not possible:
        return NodeVictims(refusal=NodeRefusal((NO_VICTIMS_FOUND,), resolvable=False))
    gone = {pod.key for pod in possible}

    def kept() -> list[Pod]:
        return [pod for pod in on_node if pod.key not in gone]

    refusal = refuse(kept())
    if refusal is not None:
        return NodeVictims(refusal=refusal)
    violating, others = _split(possible, budgets)
    victims: list[Pod] = []
    violations = 0
    for number, pod in enumerate((*violating, *others)):
        gone.discard(pod.key)
        if refuse(kept()) is None:
            continue
        gone.add(pod.key)
        victims.append(pod)
        violations += number < len(violating)
    return NodeVictims(victims=tuple(victims), violations=violations)


def pick_node(found: Mapping[str, NodeVictims]) -> str:
    """Pick the node that loses least (``pickOneNodeForPreemption``).

    Fewest budget violations, lowest highest victim priority, smallest sum of priorities, fewest victims,
    latest start of the earliest started victim of the highest priority; then the smallest name.
    """

    def loss(name: str) -> tuple[object, ...]:
        one = found[name]
        if not one.victims:
            return (0, -_OFFSET, 0, 0, 0.0, name)
        top = max(pod.priority for pod in one.victims)
        first = min(pod.started or _LATEST for pod in one.victims if pod.priority == top)
        return (
            one.violations,
            top,
            sum(pod.priority + _OFFSET for pod in one.victims),
            len(one.victims),
            -first.timestamp(),
            name,
        )

    return min(found, key=loss)


@attrs.frozen(kw_only=True)
class PodPreemption:
    """What preemption for one pod came to.

    Parameters
    ----------
    message
        Why nobody leaves, in upstream's words; empty where somebody does.
    node
        The node to nominate; empty where evictions do not help, None where none were tried.
    victims
        Who leaves.
    cleared
        Less important pods that lose their nomination to that node.
    """

    message: str = ""
    node: str | None = None
    victims: tuple[Pod, ...] = ()
    cleared: tuple[Pod, ...] = ()


def preempt_for_pod(
    preemptor: Pod,
    *,
    on_node: Mapping[str, Sequence[Pod]],
    statuses: Mapping[str, str],
    may_evict: MayEvict,
    budgets: Sequence[PodDisruptionBudget] = (),
    nominated: Iterable[Pod] = (),
    refuse: Callable[[str, Sequence[Pod]], NodeRefusal | None],
) -> PodPreemption:
    """Make room for one pod on the node where that costs least.

    Parameters
    ----------
    preemptor
        The pod, or the reserve pod of a reservation.
    on_node
        Pods of every node.
    statuses
        What the filters said, by node; evictions are tried where they said ``Unschedulable``.
    may_evict
        Who may be evicted.
    nominated
        Pods of others that are nominated somewhere.
    refuse
        Why the preemptor does not fit a node beside some of its pods.
    """
    if preemptor.preemption_policy is PreemptionPolicy.NEVER:
        return PodPreemption(message=NEVER)
    here = preemptor.nominated_node or ""
    if statuses.get(here, UNRESOLVABLE) != UNRESOLVABLE and any(
        pod.terminating and pod.disruption == PREEMPTED_REASON and may_evict(preemptor, pod)
        for pod in on_node.get(here, ())
    ):
        return PodPreemption(message=TERMINATING)
    tried = {
        name: select_on_node(
            preemptor,
            on_node.get(name, ()),
            may_evict=may_evict,
            budgets=budgets,
            refuse=partial(refuse, name),
        )
        for name in candidate_nodes(statuses)
    }
    helped = {name: one for name, one in tried.items() if one.refusal is None}
    if not helped:
        reasons: dict[str, tuple[str, ...]] = dict.fromkeys(on_node, (NOT_HELPFUL_HERE,))
        for name, one in tried.items():
            if one.refusal is not None:
                reasons[name] = one.refusal.reasons
        return PodPreemption(message=fit_error(len(on_node), reasons), node="")
    node = pick_node(helped)
    cleared = tuple(
        pod for pod in nominated if pod.nominated_node == node and pod.priority < preemptor.priority
    )
    return PodPreemption(node=node, victims=helped[node].victims, cleared=cleared)
