"""The quotas of a job's members, for who plans evictions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from koordcore._arrays import BoolVector
from koordcore._record import record
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import QuotaPod
from koordcore.model.resources import Resources
from koordcore.preemption.problem import Pool, PreemptionProblem
from koordcore.preemption.running import Leaving
from koordcore.quota.admission import limit_of
from koordcore.quota.device_classes import quota_reader
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.lenders import chain_of, staying_charged
from koordcore.scheduling.plugins.quota_pools import Returns, quota_pools, tight_limits
from koordcore.scheduling.plugins.quota_reclaim import entitled, givers, lent, quotas_of_victims
from koordcore.snapshot import ClusterSnapshot


@record(eq=False)
class QuotaBudget:
    """Quotas as an :class:`~koordcore.scheduling.eviction_budget.EvictionBudget`.

    Parameters
    ----------
    ledger
        Use and limits as they stand.
    snapshot
        The cluster that the call started from.
    """

    ledger: QuotaLedger
    snapshot: ClusterSnapshot

    def pools(
        self, problem: PreemptionProblem, members: Mapping[str, Pod], *, widest: bool
    ) -> tuple[Pool, ...]:
        """Give what the quotas still allow, and what victims give back to them.

        Evictions from the built-in quotas, and of use that is guaranteed, raise the limits of others.
        """
        raised = self.ledger
        if widest:
            raised = Returns(
                self.ledger, problem, self.snapshot, _asked(self.snapshot, members.values())
            ).all_gone()
        return quota_pools(self.ledger, problem, members, self.snapshot, partial(_limit_in, raised))

    def left(self, members: Mapping[str, Pod]) -> list[tuple[Mapping[str, int], int]]:
        read = quota_reader(self.snapshot)
        asked = {key: read(pod) for key, pod in members.items()}
        return [
            ({key: pod.request.get(name, 0) for key, pod in tight.own.items()}, left)
            for tight in tight_limits(self.ledger, asked, limit_of)
            for name, left in tight.room.items()
        ]

    def charged(self, leaving: Collection[Pod], members: Collection[Pod]) -> frozenset[PodKey]:
        """Give the victims within a guaranteed min: nobody may borrow more because they leave."""
        asked = _asked(self.snapshot, members)
        wanted = sorted({name for pod in asked for name in pod.request})
        chains = {chain_of(self.ledger, pod) for pod in asked}
        return staying_charged(self.ledger, _asked(self.snapshot, leaving), chains, wanted)

    def entitled(self, members: Sequence[Pod]) -> bool:
        return entitled(self.snapshot, self.ledger, members)

    def givers(self, members: Sequence[Pod]) -> frozenset[str] | None:
        return givers(self.snapshot, self.ledger, members)

    def lent(
        self,
        members: Sequence[Pod],
        priority: int,
        below: frozenset[str] | None,
        gone: Collection[Leaving],
    ) -> tuple[BoolVector, BoolVector]:
        return lent(self.snapshot, self.ledger, members, priority, below, gone)

    def borrowers(self, gone: Mapping[PodKey, Pod]) -> tuple[str, ...]:
        return quotas_of_victims(self.ledger, gone)

    def giving(self, problem: PreemptionProblem, members: Collection[Pod]) -> BoolVector:
        """Tell who may leave for the sake of the members' quotas, shape (V,)."""
        returns = Returns(self.ledger, problem, self.snapshot, _asked(self.snapshot, members))
        return returns.giving


def _asked(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> list[QuotaPod]:
    read = quota_reader(snapshot)
    return [read(pod) for pod in pods]


def _limit_in(raised: QuotaLedger, ledger: QuotaLedger, quota: str) -> Resources:
    return limit_of(raised, quota)
