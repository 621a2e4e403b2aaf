"""What a plan of evictions decides for each pod: where it is nominated, and who leaves for it."""

from __future__ import annotations

from collections.abc import Sequence

from koordcore.model.decisions import Nominated, Victim
from koordcore.model.pods import Pod
from koordcore.model.preemption import PreemptionPlan
from koordcore.scheduling.freeing import key_of


def counted_on(plan: PreemptionPlan, leaving: Sequence[Pod]) -> tuple[Victim, ...]:
    """Name who leaves anyhow from the nodes that members are nominated to, or victims move to."""
    nodes = {*plan.nominations.values(), *(move.node for move in plan.moves)}
    there = (pod for pod in leaving if pod.node_name in nodes)
    named = (Victim(pod.key, str(pod.node_name), pod.priority, str(pod.key)) for pod in there)
    return tuple(sorted(named, key=lambda victim: (victim.node, victim.pod)))


def nominated_by(plan: PreemptionPlan) -> list[Nominated]:
    """One decision per member; each victim is named once, if possible by a member that takes its node."""
    first: dict[str, str] = {}
    for key, node in plan.nominations.items():
        first.setdefault(node, key)
    somebody = next(iter(plan.nominations))
    by_member: dict[str, list[Victim]] = {}
    for victim in plan.victims:
        by_member.setdefault(first.get(victim.node, somebody), []).append(victim)
    return [
        Nominated(pod=key_of(key), node=node, victims=tuple(by_member.get(key, ())))
        for key, node in plan.nominations.items()
    ]
