"""What the quotas of a job still give, for the planner of evictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property

import attrs
import numpy as np

from koordcore._arrays import PODS_ROW, BoolVector, IntMatrix, IntVector
from koordcore._record import record
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import QuotaPod
from koordcore.model.resources import Resources, make_resources, total
from koordcore.preemption.problem import Pool, PreemptionProblem
from koordcore.preemption.running import running_on
from koordcore.quota.admission import limit_of
from koordcore.quota.device_classes import DEVICES_OF_CLASS, counted_classes, quota_reader
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.lenders import chain_of, checked_chain, lent_by
from koordcore.snapshot import ClusterSnapshot


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
    read = quota_reader(snapshot)
    asked = {key: read(pod) for key, pod in members.items()}
    pools = []
    returns: Returns | None = None
    for tight in tight_limits(ledger, asked, limit_for):
        if tight.guaranteed:  # those who use it now are protected and give nothing back
            gives = np.zeros((len(tight.room), len(problem.candidates)), dtype=np.int64)
        else:
            returns = returns or Returns(ledger, problem, snapshot, asked.values())
            gives = np.stack([returns.amounts(name, tight.quota) for name in tight.room])
        pools.append(_pool(problem, tight, gives))
    return tuple(pools)


@record
class Tight:
    """A quota that does not have room for all pods that want something of it.

    Parameters
    ----------
    quota
        Its name.
    guaranteed
        Its min is meant, of which pods that are never evicted have to stay within.
    own
        Who wants something of it, by ``namespace/name``.
    room
        What is left of each resource of which there is not enough.
    members
        Those whose quota it is, and not one above it: each needs it within its limits in all that it names.
    """

    quota: str
    guaranteed: bool
    own: Mapping[str, QuotaPod]
    room: Mapping[str, int]
    members: frozenset[str]


def tight_limits(
    ledger: QuotaLedger,
    asked: Mapping[str, QuotaPod],
    limit_for: Callable[[QuotaLedger, str], Resources],
) -> Iterator[Tight]:
    """List the limits that bind some pods: of guaranteed mins first, then of quotas and those above them."""
    chains = {key: checked_chain(ledger, pod) for key, pod in asked.items()}
    guarded = {key: pod for key, pod in asked.items() if not pod.preemptible}
    for quota in sorted({chains[key][0] for key in guarded if chains[key]}):
        own = {key: pod for key, pod in guarded.items() if quota in chains[key][:1]}
        room = _tight(ledger.min_of(quota), ledger.held_of(quota), own)
        if room:
            yield Tight(quota, True, own, room, frozenset(own))
    for quota in sorted({name for chain in chains.values() for name in chain}):
        own = {key: pod for key, pod in asked.items() if quota in chains[key]}
        room = _tight(limit_for(ledger, quota), ledger.used_of(quota), own)
        if room:
            members = frozenset(key for key in own if chains[key][0] == quota)
            yield Tight(quota, False, own, room, members)


class Returns:
    """What the candidates give back to quotas by leaving.

    Parameters
    ----------
    ledger
        Use and limits of the quotas.
    asked
        The pods that come.
    """

    def __init__(
        self,
        ledger: QuotaLedger,
        problem: PreemptionProblem,
        snapshot: ClusterSnapshot,
        asked: Iterable[QuotaPod],
    ) -> None:
        coming = list(asked)
        mine = {chain_of(ledger, pod) for pod in coming}
        wanted = sorted({name for pod in coming for name in pod.request})
        running = running_on(snapshot)
        self._index, self._table = snapshot.layout.index, problem.candidates.amounts
        self._team = running.team[problem.candidates.source]
        self._ledger = ledger
        self._running = [running.pods[one] for one in problem.candidates.source.tolist()]
        self._read = quota_reader(snapshot)
        self._devices = [f"{name}{DEVICES_OF_CLASS}" for name in sorted(counted_classes(snapshot))]
        self._representatives = [
            QuotaPod(key=PodKey(namespace, "-"), quota=quota) for quota, namespace in running.teams
        ]
        self._chains = [chain_of(ledger, pod) for pod in self._representatives]
        self._lent = [lent_by(ledger, chain, mine, wanted) for chain in self._chains]

    def amounts(self, name: str, quota: str) -> IntVector:
        """Give how much of a resource each candidate gives back to a quota, shape (V,)."""
        held = self._held(name)
        if held is None or self._index.get(name) == PODS_ROW:
            return np.zeros(len(self._team), dtype=np.int64)
        here = np.array([quota in chain for chain in self._chains], dtype=np.bool_)
        return np.where(here[self._team] & self.giving, held, 0)

    def _held(self, name: str) -> IntVector | None:
        """Give what each candidate uses of a resource, shape (V,); ``None`` for one that nobody knows."""
        row = self._index.get(name)
        if row is not None:
            found: IntVector = self._table[row]
            return found
        if name not in self._devices:
            return None
        return np.array([self._read(pod).request.get(name, 0) for pod in self._running], np.int64)

    def all_gone(self) -> QuotaLedger:
        """Give the ledger without the use of everybody who may leave; they ask all the same."""
        ledger, giving = self._ledger, np.flatnonzero(self.giving)
        if not len(giving):
            return ledger
        # The amounts of each team stand together, so that they are added up in one go.
        order = giving[np.argsort(self._team[giving], kind="stable")]
        teams, starts = np.unique(self._team[order], return_index=True)
        names = [name for name in sorted(self._index) if self._index[name] != PODS_ROW]
        held = [self._table[self._index[name]] for name in names]
        for name in self._devices:
            devices = self._held(name)
            if devices is not None:
                names.append(name)
                held.append(devices)
        sums = [np.add.reduceat(one[order], starts).tolist() for one in held]
        for at, team in enumerate(teams.tolist()):
            used = {name: amounts[at] for name, amounts in zip(names, sums, strict=True)}
            pod = attrs.evolve(self._representatives[team], request=make_resources(used))
            ledger = ledger.forget(pod)
        return ledger

    @cached_property
    def giving(self) -> BoolVector:
        """Whose leaving may count at all, shape (V,)."""
        every = np.array([lent is None for lent in self._lent], dtype=np.bool_)
        giving: BoolVector = every[self._team]
        for name in sorted({name for lent in self._lent for name in lent or ()}):
            held = self._held(name)
            if held is not None:
                some = np.array([name in (lent or ()) for lent in self._lent], dtype=np.bool_)
                giving = giving | (some[self._team] & (held > 0))
        return giving


def _tight(limit: Resources, used: Resources, own: Mapping[str, QuotaPod]) -> dict[str, int]:
    """Give what is left of each resource of which the members together want more than that.

    The others cannot bind. Those without a bound, as upstream's default quota writes it, pass what columns
    hold; a limit that binds never does.
    """
    asked = total(pod.request for pod in own.values())
    room = {name: limit[name] - used.get(name, 0) for name in sorted(limit)}
    return {name: left for name, left in room.items() if asked.get(name, 0) > left}


def _pool(problem: PreemptionProblem, tight: Tight, gives: IntMatrix) -> Pool:
    room = tight.room
    shape_of = {member.key: member.shape for member in problem.members}
    uses = np.zeros((len(problem.all_shapes), len(room)), dtype=np.int64)
    for key, pod in tight.own.items():
        uses[shape_of[key]] = [pod.request.get(name, 0) for name in room]
    moving = np.flatnonzero(problem.shape_of_kind >= 0)
    uses[problem.shape_of_kind[moving]] = gives[:, moving].T  # who moves takes what it gave back
    strict = frozenset(shape_of[key] for key in tight.members)
    left = np.array(list(room.values()), dtype=np.int64)
    return Pool(room=left, uses=uses, gives=gives, strict=strict)
