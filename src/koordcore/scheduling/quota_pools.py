"""What the quotas of a job still give, for the planner of evictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import QuotaPod
from koordcore.model.resources import Resources, total
from koordcore.preemption.problem import Pool, PreemptionProblem
from koordcore.protocol.quota import quota_pod_of
from koordcore.quota.admission import limit_of
from koordcore.quota.ledger import QuotaLedger
from koordcore.snapshot import ClusterSnapshot

__all__ = ["quota_pools"]


def quota_pools(
    ledger: QuotaLedger,
    problem: PreemptionProblem,
    members: Mapping[str, Pod],
    snapshot: ClusterSnapshot,
    limit_for: Callable[[QuotaLedger, str], Resources] = limit_of,
) -> tuple[Pool, ...]:
    """Write the limits of the members' quotas as pools.

    Parameters
    ----------
    ledger
        Use and limits now.
    members
        Pods of the job, by ``namespace/name``.
    limit_for
        What a quota may use: what it may use now, or at most.

    Notes
    -----
    Runtime quotas move with what is asked for, so whoever uses this tries the plan in the end.
    """
    shape_of = {member.key: member.shape for member in problem.members}
    chains = {key: _chain(ledger, quota_pod_of(pod)) for key, pod in members.items()}
    leaving = [snapshot.pod(PodKey(*key.split("/", 1))) for key in problem.candidates.keys]
    given = [(quota_pod_of(pod), pod) if pod is not None else None for pod in leaving]
    homes = [_chain(ledger, one[0], whole=True) if one is not None else () for one in given]
    pools = []
    for quota in sorted({name for chain in chains.values() for name in chain}):
        room = _tight_room(ledger, quota, chains, members, limit_for(ledger, quota))
        names = sorted(room)
        if not names:
            continue
        uses = np.zeros((len(problem.all_shapes), len(names)), dtype=np.int64)
        for key, chain in chains.items():
            if quota in chain:
                request = quota_pod_of(members[key]).request
                uses[shape_of[key]] = [request.get(name, 0) for name in names]
        gives = np.zeros((len(names), len(leaving)), dtype=np.int64)
        for number, (one, home) in enumerate(zip(given, homes, strict=True)):
            if one is not None and quota in home:
                gives[:, number] = [one[0].request.get(name, 0) for name in names]
        moving = np.flatnonzero(problem.shape_of_kind >= 0)
        uses[problem.shape_of_kind[moving]] = gives[:, moving].T  # who moves takes what it gave back
        left = np.array([room[name] for name in names], dtype=np.int64)
        pools.append(Pool(room=left, uses=uses, gives=gives))
    return tuple(pools)


def _tight_room(
    ledger: QuotaLedger,
    quota: str,
    chains: Mapping[str, tuple[str, ...]],
    members: Mapping[str, Pod],
    limit: Resources,
) -> dict[str, int]:
    """Give what a quota has left of each resource of which all members together want more than that.

    The others cannot bind. Those without a bound, as upstream's default quota writes it, pass what columns
    hold; a limit that binds never does.
    """
    used = ledger.used_of(quota)
    own = [quota_pod_of(members[key]).request for key, chain in chains.items() if quota in chain]
    asked = total(own)
    room = {name: limit[name] - used.get(name, 0) for name in limit}
    return {name: amount for name, amount in room.items() if asked.get(name, 0) > amount}


def _chain(ledger: QuotaLedger, pod: QuotaPod, *, whole: bool = False) -> tuple[str, ...]:
    """The quota of a pod and, where they are asked (or always), those above it."""
    name = ledger.resolve(pod)
    if name is None:
        return ()
    chain = [name]
    while (whole or ledger.policy.enable_check_parent_quota) and name in ledger.quotas:
        name = ledger.quotas[name].parent
        if name in chain or name not in ledger.quotas:
            break
        chain.append(name)
    return tuple(chain)
