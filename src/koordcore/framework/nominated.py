"""Pods that wait for the room that was made for them: they count against all who are no more important.

More important is who has the higher priority, unless a plugin says otherwise (:meth:`Plugin.outranks`): the
room that was reclaimed for a promise is not lent again to who had borrowed it, and nobody has to leave what
he was promised to who only borrows.

As upstream (``RunFilterPluginsWithNominatedPods``): a node takes a pod only if it does so both with and
without the pods of higher or equal priority that are nominated there. Scores look at the cluster as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector
from koordcore.framework.evaluator import Refusal
from koordcore.framework.extended_resources import asks_by_claims, served_by_classes
from koordcore.framework.plugin import Plugin
from koordcore.framework.promised_amounts import PromisedAmounts, by_amounts
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.claims import HeldClaim
from koordcore.model.decisions import Bound, Nominated, PodDecision, Waiting
from koordcore.model.pods import Pod, PodKey

if TYPE_CHECKING:
    from koordcore.framework.plugin_set import PluginSet


def assume_nominated(
    workspace: Workspace, plugins: PluginSet, pod: Pod, node: str, claims: tuple[HeldClaim, ...] = ()
) -> Pod:
    """Count a pod on a node as if it ran there, ports, neighbours and quota included; cards are not chosen.

    The node may be overcommitted by it: whoever has to leave is still there. Devices of its ``claims`` are
    kept for it.
    """
    assumed = pod.at(node, claims=claims)
    row = workspace.layout.row_of[node]
    workspace.bind(assumed, row)
    for plugin in plugins.promising:
        plugin.promised(assumed, row)
    return assumed


def forget_nominated(workspace: Workspace, plugins: PluginSet, assumed: Pod) -> None:
    """Take back what :func:`assume_nominated` did; the pod still asks for its quota."""
    row = workspace.layout.row_of[str(assumed.node_name)]
    workspace.evict(assumed.key, row)
    for plugin in plugins.promising:
        plugin.withdrawn(assumed, row)


class NominatedPods:
    """The nominated pods of a cluster by node, whoever of them a call asks about.

    Parameters
    ----------
    workspace, plugins
        The state of the call.
    pods
        Pods that wait; those without a nominated node, or with one that is not there, are passed over.
    """

    def __init__(self, workspace: Workspace, plugins: PluginSet, pods: Iterable[Pod]) -> None:
        self._workspace, self._plugins = workspace, plugins
        self._on: dict[int, list[Pod]] = {}
        self._row: dict[PodKey, int] = {}
        self.claimed: list[Pod] = []
        """Pods that were nominated in this call, as they are counted on their nodes."""
        self.claims: Mapping[PodKey, tuple[HeldClaim, ...]] = {}
        """What is kept for those who have claims."""
        self._held: list[Pod] = []
        self._rest: dict[int, list[Pod]] = {}
        self.fewer = False
        """Within :meth:`only_against`: somebody does not count who did."""
        self._limiting: list[Plugin] | None = None
        self._all = self._on
        self._promised: PromisedAmounts | None = None
        self._priorities: Counter[int] = Counter()
        row_of = workspace.layout.row_of
        named = [pod for pod in pods if pod.nominated_node]
        for pod in sorted(named, key=attrgetter("key")):
            row = row_of.get(pod.nominated_node or "")
            if row is not None:
                self._on.setdefault(row, []).append(pod)
                self._row[pod.key] = row
                self._priorities[pod.priority] += 1
                plugins.wake(pod)  # it counts as if it ran

    @property
    def exist(self) -> bool:
        """Anybody is nominated at all."""
        return bool(self._row)

    def of(self, keys: Iterable[PodKey]) -> list[tuple[Pod, int]]:
        """Give those of some pods that are nominated, each with the row of its node."""
        rows = [(key, self._row[key]) for key in keys if key in self._row]
        return [(pod, row) for key, row in rows for pod in self._on[row] if pod.key == key]

    def claiming(self) -> list[tuple[Pod, int]]:
        """Give those that have claims, or will get one, each with the row of its node."""
        if not self._on:
            return []
        served = served_by_classes(self._workspace.snapshot)
        return [(pod, row) for row, there in self._on.items() for pod in there if asks_by_claims(pod, served)]

    def forget(self, keys: Iterable[PodKey]) -> None:
        """Take note of pods that wait no longer, or wait for another node."""
        for key in keys:
            row = self._row.pop(key, None)
            if row is not None:
                (gone,) = (one for one in self._on[row] if one.key == key)
                self._on[row] = [one for one in self._on[row] if one is not gone]
                self._priorities[gone.priority] -= 1
                if self._promised is not None:
                    self._promised.forget(gone, row)

    def decided(self, decisions: Iterable[PodDecision]) -> None:
        """Take note of who got a place, if only to wait there, or is nominated anew: each counts as that."""
        self.forget(
            one.pod
            for one in decisions
            if isinstance(one, Bound | Nominated) or (isinstance(one, Waiting) and one.held is not None)
        )

    def against(self, pod: Pod, row: int) -> list[Pod]:
        """Give the pods that count on a node when a pod asks for it, by name."""
        return [one for one in self._on.get(row, ()) if one.key != pod.key and self.counts(one, pod)]

    def counts(self, waiting: Pod, pod: Pod) -> bool:
        """Tell whether a pod has to leave a nominated one its room."""
        ranking = self._plugins.ranking
        if any(plugin.outranks(pod, waiting) for plugin in ranking):
            return False
        return waiting.priority >= pod.priority or any(plugin.outranks(waiting, pod) for plugin in ranking)

    def concern(self, pod: Pod) -> bool:
        """Tell whether any nominated pod counts against one."""
        if not self._on:
            return False
        if self._by_priority:
            more = sum(number for priority, number in self._priorities.items() if priority >= pod.priority)
            return more > (pod.key in self._row)
        return any(self.against(pod, row) for row in self._on)

    def heeded_by(self, pod: Pod) -> int | PodKey | None:
        """Tell pods apart by who counts against them: by priority, each alone, or ``None`` for nobody."""
        if not self.concern(pod):
            return None
        return pod.priority if self._by_priority and pod.key not in self._row else pod.key

    @property
    def _by_priority(self) -> bool:
        """Nothing but priority says who counts against whom."""
        return self._on is self._all and all(one.asleep for one in self._plugins.ranking)

    def refusal(self, pod: Pod) -> Refusal | None:
        """Say why a pod is refused on whatever node as long as those who count against it have no place."""
        if self._on and self._limiting is None:
            everyone = (plugin for plugin, _ in self._plugins.everyone)
            self._limiting = [one for one in everyone if type(one).refuse_beside is not Plugin.refuse_beside]
        if not self._on or not self._limiting or all(one.asleep for one in self._limiting):
            return None
        promised = [one for row in sorted(self._on) for one in self.against(pod, row)]
        found = (one.refuse_beside(pod, promised) for one in self._limiting) if promised else ()
        return next((one for one in found if one is not None), None)

    def narrow(
        self, scheduling_class: SchedulingClass, pod: Pod, feasible: BoolVector, row: int | None = None
    ) -> BoolVector:
        """Leave out the nodes that do not take the pod beside those that are nominated there: ``(N,)``.

        With a ``row`` no other node is asked.
        """
        if not (self._on or self.claimed or self._held):
            return feasible
        narrowed = feasible
        if self.may_mislead(scheduling_class):
            with self.lifted():
                narrowed = feasible & scheduling_class.feasible()
        asked = feasible
        if row is not None:
            asked = np.zeros_like(feasible)
            asked[row] = feasible[row]
        for rows, fits in self._beside(scheduling_class, pod, asked):
            narrowed = feasible.copy() if narrowed is feasible else narrowed
            narrowed[rows] &= fits
        if narrowed is not feasible:
            scheduling_class.update()  # scores look at the nodes without them
        return narrowed

    def _beside(
        self, scheduling_class: SchedulingClass, pod: Pod, among: BoolVector
    ) -> Iterator[tuple[Sequence[int] | IntVector, BoolVector]]:
        """Tell of nodes where pods count against one whether they take it beside these, some at a time."""
        if self._on and self._by_priority and by_amounts(scheduling_class, self._plugins.everyone):
            if self._promised is None:
                self._promised = PromisedAmounts(self._workspace, self._all)
            yield self._promised.beside(scheduling_class, pod, self._row.get(pod.key), among)
            return
        for some in self.together(scheduling_class, pod, among):
            yield some, scheduling_class.feasible()[some]

    def together(
        self, scheduling_class: SchedulingClass, pod: Pod, among: BoolVector
    ) -> Iterator[Sequence[int]]:
        """Do what :meth:`one_by_one` does, on all nodes at once where no filter looks at other nodes."""
        if scheduling_class.looks_elsewhere:
            yield from ([row] for row in self.one_by_one(pod, among))
            return
        against = {row: self.against(pod, row) for row in sorted(self._on) if among[row]}
        rows = [row for row, there in against.items() if there]
        if rows:
            with self._assumed([*chain.from_iterable(against.values())]):
                yield rows

    def may_mislead(self, scheduling_class: SchedulingClass) -> bool:
        """Tell whether who only counts as if he ran may help a pod, by affinity, spreading or a volume."""
        if not (self.claimed or self._held):
            return False
        return scheduling_class.looks_elsewhere or scheduling_class.shares

    @contextmanager
    def lifted(self) -> Iterator[None]:
        """Do not count those who were nominated, neither in this call nor, within :meth:`assumed`, before."""
        held, self.claimed = self.claimed, []
        for pod in reversed(held):
            forget_nominated(self._workspace, self._plugins, pod)
        try:
            with self.set_aside():
                yield
        finally:
            for pod in held:
                self._again(pod)
            self.claimed = held

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Let those who were nominated in this call count as pods like others: somebody places them."""
        held, self.claimed = self.claimed, []
        try:
            yield
        finally:
            self.claimed = held

    def one_by_one(self, pod: Pod, among: BoolVector) -> Iterator[int]:
        """Go through the nodes of a mask, ``(N,)``, where pods count against one, and count them at each.

        One node at a time: who is nominated elsewhere neither helps nor harms here, by affinity or spreading.
        """
        for row in [row for row in sorted(self._on) if among[row] and self.against(pod, row)]:
            with self._assumed(self.against(pod, row)):
                yield row

    @contextmanager
    def assumed(self, pod: Pod, *, besides: Collection[PodKey] = ()) -> Iterator[None]:
        """Count all pods that count against one, but for some, as if they ran; within, nobody else counts.

        Parameters
        ----------
        besides
            Pods that are decided together with it.
        """
        found = [one for row in sorted(self._on) for one in self.against(pod, row) if one.key not in besides]
        settled = {pod.key, *besides, *(one.key for one in found)}
        before = self._rest
        self._rest = {
            row: [one for one in there if one.key not in settled] for row, there in self._on.items()
        }
        try:
            with self._assumed(found):
                yield
        finally:
            self._rest = before

    @contextmanager
    def for_others(self) -> Iterator[None]:
        """Within :meth:`assumed`, let those count again who do not count against whom that is about.

        A pod that moves to make room may be less important than they are.
        """
        kept, self._on = self._on, self._on or self._rest
        try:
            yield
        finally:
            self._on = kept

    def others_against(self, pod: Pod) -> tuple[PodKey, ...]:
        """Name, for :meth:`for_others`, those who count against a pod anywhere."""
        rest = self._on or self._rest
        return tuple(one.key for row in sorted(rest) for one in rest[row] if self.counts(one, pod))

    @contextmanager
    def _assumed(self, pods: list[Pod]) -> Iterator[None]:
        # One may be opened within another, for pods that move to make room.
        kept, self._on, before = self._on, {}, self._held
        more = [
            assume_nominated(
                self._workspace,
                self._plugins,
                pod,
                str(pod.nominated_node),
                self.claims.get(pod.key, ()),
            )
            for pod in pods
        ]
        self._held = [*before, *more]
        try:
            yield
        finally:
            for pod in reversed(more):
                forget_nominated(self._workspace, self._plugins, pod)
            self._on, self._held = kept, before

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """Within :meth:`assumed`, count nobody who does not run: nobody owes what he does not hold."""
        held, self._held = self._held, []
        for pod in reversed(held):
            forget_nominated(self._workspace, self._plugins, pod)
        try:
            yield
        finally:
            self._held = [self._again(pod) for pod in held]

    @contextmanager
    def only_against(self, pod: Pod) -> Iterator[None]:
        """Within :meth:`assumed` for a less important pod, count only who counts against this one as well."""
        count = [one for one in self._held if self.counts(one, pod)]
        if len(count) == len(self._held):
            yield
            return
        keys, before = {one.key for one in count}, self._rest
        others = [one for one in self._held if one.key not in keys]
        fewer = {one.key: attrs.evolve(one.at(None), nominated_node=one.node_name) for one in others}
        self._rest = {
            row: [*there, *(one for key, one in fewer.items() if self._row.get(key) == row)]
            for row, there in before.items()
        }
        with self.set_aside():
            self._held, self.fewer = [self._again(one) for one in count], True
            try:
                yield
            finally:
                for one in reversed(self._held):
                    forget_nominated(self._workspace, self._plugins, one)
                self._rest, self.fewer = before, False

    @contextmanager
    def nobody(self) -> Iterator[None]:
        """Count nobody who was nominated before the call: somebody places them."""
        kept, self._on = self._on, {}
        try:
            yield
        finally:
            self._on = kept

    def _again(self, pod: Pod) -> Pod:
        """Count one again as it was counted."""
        return assume_nominated(
            self._workspace, self._plugins, pod.at(None), str(pod.node_name), pod.held_claims
        )
