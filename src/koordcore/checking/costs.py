"""What a preemption plan costs by its own victims: a proof about another damage proves nothing of it."""

from __future__ import annotations

from collections.abc import Iterator

from koordcore.checking.groups import group_priorities
from koordcore.model.preemption import NO_PRIORITY, PreemptionPlan
from koordcore.snapshot import ClusterSnapshot


def cost_fault(snapshot: ClusterSnapshot, plan: PreemptionPlan) -> str:
    """Say why what is proven of a damage is not proven of a plan; empty where it is.

    What restarts cost the caller says, and what budgets allow and which jobs break is not counted here.

    Parameters
    ----------
    snapshot
        The cluster before.
    plan
        With its victims, its damage and the certificate.
    """
    return next(_faults(snapshot, plan), "")


def _faults(snapshot: ClusterSnapshot, plan: PreemptionPlan) -> Iterator[str]:
    running = {pod.key: pod for state in snapshot.nodes for pod in state.pods}
    priorities = group_priorities(snapshot, running.values())
    for victim in plan.victims:
        pod = running.get(victim.pod)
        if pod is not None and victim.priority not in (pod.priority, priorities[pod.key]):
            yield f"{victim.pod} has priority {pod.priority}, and not {victim.priority}"
    moved = {move.victim.pod for move in plan.moves}
    evicted = [victim.priority for victim in plan.victims if victim.pod not in moved]
    told = plan.damage
    for name, said, found in (
        ("highest", told.highest, max(evicted, default=NO_PRIORITY)),
        ("pods", told.pods, len(evicted)),
        ("priorities", told.priorities, sum(evicted)),
        ("moves", told.moves, len(plan.victims) - len(evicted)),
    ):
        if said != found:
            yield f"the plan's damage says {name} {said}, its victims make {found}"
    if plan.certificate.objective[-len(told.vector) :] != told.vector:
        yield f"it is about a damage of {plan.certificate.objective}, and not of {told.vector}"
