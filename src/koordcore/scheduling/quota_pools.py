"""What the quotas of a job still give, for the planner of evictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from koordcore._arrays import IntMatrix
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import QuotaPod
from koordcore.model.resources import Resources, total
from koordcore.preemption.problem import Pool, PreemptionProblem
from koordcore.protocol.quota import quota_pod_of
from koordcore.quota.admission import limit_of
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.lenders import chain_of, gives_back
from koordcore.snapshot import ClusterSnapshot

__all__ = ["quota_pools"]


def quota_pools(
    ledger: QuotaLedger,
    problem: PreemptionProblem,
    members: Mapping[str, Pod],
    snapshot: ClusterSnapshot,
    limit_for: Callable[[QuotaLedger, str], Resources] = limit_of,
) -> tuple[Pool, ...]:
    """Write the limits of the members' quotas as pools; limits that cannot bind are left out.

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
    asked = {key: quota_pod_of(pod) for key, pod in members.items()}
    chains = {key: _checked(ledger, pod) for key, pod in asked.items()}
    pools = []
    guarded = {key: pod for key, pod in asked.items() if not pod.preemptible}
    for quota in sorted({chains[key][0] for key in guarded if chains[key]}):
        own = {key: pod for key, pod in guarded.items() if quota in chains[key][:1]}
        room = _tight(ledger.min_of(quota), ledger.held_of(quota), own)
        if room:  # those who use it now are protected and give nothing back
            gives = np.zeros((len(room), len(problem.candidates)), dtype=np.int64)
            pools.append(_pool(problem, room, own, gives))
    leaving: list[tuple[QuotaPod, Sequence[str]] | None] = []
    for quota in sorted({name for chain in chains.values() for name in chain}):
        own = {key: pod for key, pod in asked.items() if quota in chains[key]}
        room = _tight(limit_for(ledger, quota), ledger.used_of(quota), own)
        if not room:
            continue
        leaving = leaving or _leaving(ledger, problem, asked, snapshot)
        gives = np.zeros((len(room), len(leaving)), dtype=np.int64)
        for number, one in enumerate(leaving):
            if one is not None and quota in one[1]:
                gives[:, number] = [one[0].request.get(name, 0) for name in room]
        pools.append(_pool(problem, room, own, gives))
    return tuple(pools)


def _checked(ledger: QuotaLedger, pod: QuotaPod) -> tuple[str, ...]:
    """The quota of a pod and, where they are asked, those above it."""
    chain = chain_of(ledger, pod)
    return chain if ledger.policy.enable_check_parent_quota else chain[:1]


def _tight(limit: Resources, used: Resources, own: Mapping[str, QuotaPod]) -> dict[str, int]:
    """Give what is left of each resource of which the members together want more than that.

    The others cannot bind. Those without a bound, as upstream's default quota writes it, pass what columns
    hold; a limit that binds never does.
    """
    asked = total(pod.request for pod in own.values())
    room = {name: limit[name] - used.get(name, 0) for name in sorted(limit)}
    return {name: left for name, left in room.items() if asked.get(name, 0) > left}


def _leaving(
    ledger: QuotaLedger, problem: PreemptionProblem, asked: Mapping[str, QuotaPod], snapshot: ClusterSnapshot
) -> list[tuple[QuotaPod, Sequence[str]] | None]:
    """Give each candidate with the quotas that it gives its request back to; None where it gives none."""
    mine = {chain_of(ledger, pod) for pod in asked.values()}
    wanted = sorted({name for pod in asked.values() for name in pod.request})
    found: list[tuple[QuotaPod, Sequence[str]] | None] = []
    for key in problem.candidates.keys:
        pod = snapshot.pod(PodKey(*key.split("/", 1)))
        one = None if pod is None else quota_pod_of(pod)
        counts = one is not None and gives_back(ledger, one, mine, wanted)
        found.append((one, chain_of(ledger, one)) if one is not None and counts else None)
    return found


def _pool(
    problem: PreemptionProblem, room: Mapping[str, int], own: Mapping[str, QuotaPod], gives: IntMatrix
) -> Pool:
    shape_of = {member.key: member.shape for member in problem.members}
    uses = np.zeros((len(problem.all_shapes), len(room)), dtype=np.int64)
    for key, pod in own.items():
        uses[shape_of[key]] = [pod.request.get(name, 0) for name in room]
    moving = np.flatnonzero(problem.shape_of_kind >= 0)
    uses[problem.shape_of_kind[moving]] = gives[:, moving].T  # who moves takes what it gave back
    return Pool(room=np.array(list(room.values()), dtype=np.int64), uses=uses, gives=gives)
