"""ElasticQuota: a pod is placed only while its quota allows it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from koordcore.framework.evaluator import Evaluator, Refusal
from koordcore.framework.hints import ROOM, ChangeKind
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.pods import Pod
from koordcore.model.quotas import ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, once

# What counts quotas is read in clusters that have some.
if TYPE_CHECKING:
    from koordcore.quota.ledger import QuotaLedger
    from koordcore.scheduling.eviction_budget import EvictionBudget
    from koordcore.scheduling.plugins.quota_ranks import QuotaRanks


def snapshot_ledger(snapshot: ClusterSnapshot, policy: QuotaPolicy) -> QuotaLedger:
    """Open the ledger of a whole snapshot, once for it and the policy."""
    from koordcore.quota.cluster import cluster_ledger

    return cluster_ledger(snapshot, policy=policy)


class QuotaEvaluator(Evaluator):
    """Admission of one kind of pods; it looks at no node."""

    def __init__(self, plugin: QuotaPlugin, pod: QuotaPod) -> None:
        self._plugin = plugin
        self._pod = pod

    def refuse(self) -> Refusal | None:
        from koordcore.quota.admission import QuotaRefusal, admit

        verdict = admit(self._plugin.ledger, self._pod)
        if isinstance(verdict, QuotaRefusal):
            return Refusal(verdict.message, resolvable=verdict.resolvable)
        return None


class QuotaPlugin(Plugin):
    """The quota tree of the cluster; silent where there are no quotas.

    The arguments are a :class:`~koordcore.model.quotas.QuotaPolicy`.
    """

    name = "ElasticQuota"
    needs = frozenset((ElasticQuota,))
    reads = frozenset((ElasticQuota,))
    keeps_rows = False
    only_refuses = True
    looks_at = frozenset[str]()
    arguments = QuotaPolicy
    refuses_at = 5
    # Who comes to wait or to run takes a share, and leaves none: a quota that asks for more than it gets is
    # held by what others ask for, not by its own request.
    helped_by = ROOM | {
        *(ChangeKind.POD_WITHDRAWN, ChangeKind.NODE_REMOVED),
        *("ElasticQuota", "ResourceClaim", "ResourceClaimTemplate"),
    }

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        snapshot = workspace.snapshot
        self._active = snapshot.has(ElasticQuota)
        self._policy = args or QuotaPolicy()
        self._ledger = once(snapshot, snapshot_ledger, self._policy) if self._active else None
        self._ranks: QuotaRanks | None = None

    @property
    def ledger(self) -> QuotaLedger:
        """The quotas with what their pods ask for and have, now."""
        if self._ledger is None:
            from koordcore.quota.opening import open_ledger

            self._ledger = open_ledger((), total={}, policy=self._policy)
        return self._ledger

    @classmethod
    def helped_with(cls, args: Any) -> frozenset[str] | None:
        """Rules of one's own may be lifted by anything."""
        return None if args is not None and args.checks else cls.helped_by

    def follow(self, changes: ClusterChanges) -> bool:
        if self._active != self.workspace.snapshot.has(ElasticQuota):
            return False
        if self._active:  # who waits asks for quota, too
            self._ledger = once(self.workspace.snapshot, snapshot_ledger, self._policy)
        return True

    def request_of(self, pod: Pod) -> Hashable | None:
        if not self._active:
            return None
        asked = self._read(pod)
        quota = self.ledger.resolve(asked)
        if quota is not None and self._policy.checks:
            return asked  # rules of one's own may look at all of it
        # Messages may name the quota and the amounts, and nothing else of the pod.
        return None if quota is None else (quota, tuple(asked.request.items()), asked.preemptible)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return QuotaEvaluator(self, self._read(pod))

    def remarks(self, pod: Pod, row: int) -> tuple[str, ...]:
        """Name who has borrowed what a pod within its quota's min lacks."""
        if not self._active:
            return ()
        from koordcore.quota.reclaim import borrowers, entitled_to_reclaim

        asked = self._read(pod)
        quota = self.ledger.resolve(asked)
        if quota is None or entitled_to_reclaim(self.ledger, asked):
            return ()
        named = self.ledger.max_of(quota)
        wanted = [name for name, amount in sorted(asked.request.items()) if amount and name in named]
        borrowed = ", ".join(
            f"{name} ({', '.join(over)})" for name, over in borrowers(self.ledger, quota, wanted)
        )
        return (f"within the min of quota {quota}; beyond theirs: {borrowed}",) if borrowed else ()

    def placed(self, pod: Pod, row: int) -> None:
        # What a holder keeps is used by nobody yet: once it is placed, its users count.
        holds = is_reserve_pod(pod)
        self._change(lambda: (self.ledger.untrack if holds else self.ledger.assume)(self._tracked(pod)))

    def removed(self, pod: Pod, row: int) -> None:
        # A pod that leaves the cluster asks for nothing any more, which moves the runtimes.
        if not is_reserve_pod(pod):
            self._change(lambda: self.ledger.untrack(self._read(pod)))

    def budget(self) -> EvictionBudget | None:
        if not self._active:
            return None
        # Only who evicts pays for reading how quotas are asked about then.
        from koordcore.scheduling.plugins.quota_budget import QuotaBudget

        return QuotaBudget(self.ledger, self.workspace.snapshot)

    def outranks(self, waiting: Pod, pod: Pod) -> bool:
        """Tell whether one has a part of what its quota is promised, and the other has none."""
        if not self._active:
            return False
        if self._ranks is None:
            from koordcore.scheduling.plugins.quota_ranks import QuotaRanks

            self._ranks = QuotaRanks(self.workspace, self._read)
        ledger, ranks = self.ledger, self._ranks
        return ranks.promised(ledger, waiting, pod) and not ranks.promised(ledger, pod, waiting)

    def refuse_beside(self, pod: Pod, promised: Sequence[Pod]) -> Refusal | None:
        """Refuse what a quota has promised to others, who would evict once more.

        Who is more important and waits for nobody to go needs no such care: it is his turn before.
        """
        if not (self._active and promised):
            return None
        from koordcore.quota.lenders import checked_chain

        asked, ledger, read = self._read(pod), self.ledger, self._tracked
        mine = {*checked_chain(ledger, asked)}
        going = self._going()
        nodes = {one.node_name for one in going}
        late = any(not mine.isdisjoint(checked_chain(ledger, read(one))) for one in going)
        claims = [
            read(one)
            for one in promised
            if late or one.nominated_node in nodes or one.priority <= pod.priority
        ]
        claims = [one for one in claims if not mine.isdisjoint(checked_chain(ledger, one))]
        if not claims:
            return None
        from koordcore.quota.admission import QuotaRefusal, admit

        for gone in map(read, going):  # by the time the others are there
            ledger = ledger.forget(gone)
        for one in claims:
            ledger = ledger.assume(one)
        verdict = admit(ledger, asked)
        if isinstance(verdict, QuotaRefusal):
            return Refusal(verdict.message, resolvable=verdict.resolvable)
        return None

    def _going(self) -> list[Pod]:
        """List who has to go and still holds his room and quota."""
        from koordcore.preemption.running import running_on

        running, workspace = running_on(self.workspace.snapshot), self.workspace
        pods = [running.pods[number] for number in np.flatnonzero(running.leaving).tolist()]
        row_of = workspace.layout.row_of
        return [pod for pod in pods if pod.key in workspace.pods_on(row_of[str(pod.node_name)])]

    def evicted(self, pod: Pod, *, charged: bool) -> None:
        def again() -> QuotaLedger:
            return self.ledger.track(self._read(pod) if charged else self._tracked(pod))

        if not is_reserve_pod(pod):
            self._change(again)

    def promised(self, pod: Pod, row: int) -> None:
        """Count a pod that is nominated as if it ran."""
        if is_reserve_pod(pod):
            return
        self._change(lambda: self.ledger.assume(self._tracked(pod)))

    def withdrawn(self, pod: Pod, row: int) -> None:
        """Take a promise back; the pod still asks."""
        if is_reserve_pod(pod):
            return
        self._change(lambda: self.ledger.forget(self._tracked(pod)))

    def _change(self, changed: Callable[[], QuotaLedger]) -> None:
        if not self._active:
            return
        before = self.ledger
        self._ledger = changed()

        def undo() -> None:
            self._ledger = before

        if self._ledger is not before:
            self.workspace.log(undo)

    def _read(self, pod: Pod) -> QuotaPod:
        from koordcore.quota.device_classes import quota_reader

        return quota_reader(self.workspace.snapshot)(pod)

    def _tracked(self, pod: Pod) -> QuotaPod:
        return attrs.evolve(self._read(pod), node="")
