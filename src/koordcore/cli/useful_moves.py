"""Whether moving running pods would make room for pods that wait."""

from __future__ import annotations

from typing import Final

import attrs

from koordcore.descheduling.claim_moves import nodes_without_others
from koordcore.descheduling.plans import MoveRules, plan_room
from koordcore.descheduling.wanted import Wanted
from koordcore.errors import KoordcoreError
from koordcore.explaining.advice import Advice
from koordcore.explaining.remedy import Remedy, RemedyKind
from koordcore.model.certificates import Limits
from koordcore.model.policy import Policy
from koordcore.model.resources import PODS, make_resources
from koordcore.snapshot.changes import PodEnded

_EFFORT: Final = 2.0
"""Solver budget of the question; `koordcore defrag` takes more."""
_NAMED: Final = 3


def _without_quotas(policy: Policy) -> Policy:
    """Let quotas aside: a pod that moves uses after as much as before."""
    return attrs.evolve(policy, plugins=tuple(one for one in policy.plugins if one.name != "ElasticQuota"))


def with_moves(advice: Advice, policy: Policy) -> Advice:
    """Add the fewest moves that make room, where moves help; the pods were tried out afterwards."""
    if advice.settled or not advice.remedies or advice.never:
        return advice
    snapshot = advice.at_turn
    members = tuple(pod for key in advice.members if (pod := snapshot.pod(key)) is not None)
    shapes = {pod.requests for pod in members}
    if len(shapes) != 1:
        return advice
    requests = make_resources({PODS: 1, **members[0].requests})
    cleared = snapshot.apply(*(PodEnded(pod.key) for pod in members))
    rules = MoveRules(policy=_without_quotas(policy))
    try:
        nodes = nodes_without_others(cleared, members, rules)
        if not nodes:
            return advice
        wanted = Wanted(requests=requests, count=len(members), nodes=nodes)
        moving = plan_room(cleared, wanted, rules=rules, budget=Limits(_EFFORT))
    except KoordcoreError:
        return advice  # what cannot be asked of the planner has no answer here
    moves = moving.plan.moves
    if not moves or not moving.legal or moving.plan.missing:
        return advice
    attempts = attrs.evolve(advice.attempts, snapshot=snapshot, least=len(members))
    if not attempts.fits(snapshot=moving.checked.snapshot):
        return advice
    shown = "; ".join(f"{one.pod} from {one.source} to {one.target}" for one in moves[:_NAMED])
    more = f"; and {len(moves) - _NAMED} more" if len(moves) > _NAMED else ""
    remedy = Remedy(
        kind=RemedyKind.MOVE,
        text=f"{len(moves)} move{'s' * (len(moves) != 1)}: {shown}{more}",
        pods=tuple(one.pod for one in moves),
    )
    order = list(RemedyKind)
    found = sorted((*advice.remedies, remedy), key=lambda one: order.index(one.kind))
    return attrs.evolve(advice, remedies=tuple(found))
