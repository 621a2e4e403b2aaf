"""Who runs where, by groups of pods that selectors and affinity terms cannot tell apart.

Spread constraints and affinity between pods ask how many pods of some kind each topology domain holds. A
:class:`TopologyTally` keeps such sums; it reads the placements since it was last asked, so a pod that is
placed costs each tally that is asked again one look-up, not a walk over the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import BoolVector, ClusterLayout, IntVector
from koordcore.model.affinity import PodAffinity
from koordcore.model.pods import Pod

__all__ = ["Domains", "PodGroup", "PodGroups", "TopologyTally", "Weights"]

Weights: TypeAlias = Sequence[tuple[str, int]]
"""Topology keys with what one pod of a group adds to its domain; a key may stand more than once."""


@attrs.frozen(eq=False)
class Domains:
    """The values of one node label.

    Parameters
    ----------
    ids
        ``(N,)``: number of the node's domain, -1 where the label is absent.
    number
        How many domains there are.
    present
        ``(N,)``: the node has the label.
    """

    ids: IntVector
    number: int
    present: BoolVector


@attrs.frozen
class PodGroup:
    """What selectors and terms can see of a pod.

    Parameters
    ----------
    namespace, labels
        What selectors match.
    affinity, anti
        The pod's own terms towards others; ``None`` where it has none.
    terminating
        It is being deleted.
    """

    namespace: str
    labels: immutabledict[str, str]
    affinity: PodAffinity | None
    anti: PodAffinity | None
    terminating: bool


class PodGroups:
    """The pods of a cluster by group, with every placement since in order.

    Attributes
    ----------
    layout
        The nodes.
    groups
        Groups in the order in which they were met; their place is their number.
    events
        ``(group, row, +1 or -1)`` for each pod that came or went; the first ones are those of the start.
    affine
        Numbers of the groups that have terms of their own.
    """

    def __init__(self, layout: ClusterLayout, pods: Iterable[tuple[Pod, int]] = ()) -> None:
        self.layout = layout
        self.groups: list[PodGroup] = []
        self.events: list[tuple[int, int, int]] = []
        self.affine: list[int] = []
        self._number: dict[PodGroup, int] = {}
        self._quick: dict[tuple[str, immutabledict[str, str]], int] = {}
        self._domains: dict[str, Domains] = {}
        for pod, row in pods:
            self.place(pod, row)

    def group_of(self, pod: Pod) -> int:
        """Give the number of a pod's group."""
        plain = pod.affinity is None and pod.deleted is None
        if plain:
            known = self._quick.get((pod.namespace, pod.labels))
            if known is not None:
                return known
        affinity = pod.affinity.pod if pod.affinity else None
        anti = pod.affinity.anti if pod.affinity else None
        group = PodGroup(pod.namespace, pod.labels, affinity, anti, pod.deleted is not None)
        number = self._number.setdefault(group, len(self.groups))
        if number == len(self.groups):
            self.groups.append(group)
            if affinity is not None or anti is not None:
                self.affine.append(number)
        if plain:
            self._quick[pod.namespace, pod.labels] = number
        return number

    def place(self, pod: Pod, row: int) -> None:
        """Take note of a pod on a node."""
        self.events.append((self.group_of(pod), row, 1))

    def remove(self, pod: Pod, row: int) -> None:
        """Take note that a pod has left its node."""
        self.events.append((self.group_of(pod), row, -1))

    def domains(self, key: str) -> Domains:
        """Give the domains of a topology key."""
        found = self._domains.get(key)
        if found is None:
            layout = self.layout
            numbers: dict[str, int] = {}
            by_class = []
            for row in layout.class_rows:
                value = layout.nodes[row].labels.get(key)
                by_class.append(-1 if value is None else numbers.setdefault(value, len(numbers)))
            ids = np.array(by_class, np.int64)[layout.constraint_class] if by_class else np.zeros(0, np.int64)
            found = self._domains[key] = Domains(ids, len(numbers), ids >= 0)
        return found


class TopologyTally:
    """How much the pods of some groups add up to in each domain, kept up to date.

    Parameters
    ----------
    groups
        Where pods are.
    weigh
        What one pod of a group adds, by topology key; nothing for groups that do not count.
    eligible
        Nodes whose pods count; ``None`` for all.
    """

    def __init__(
        self,
        groups: PodGroups,
        weigh: Callable[[PodGroup], Weights],
        eligible: BoolVector | None = None,
    ) -> None:
        self._groups = groups
        self._weigh = weigh
        self._eligible = eligible
        self._weights: list[Weights] = []
        self._sums: dict[str, IntVector] = {}
        self._read = 0
        self.entries = 0
        """How many times a pod counts for a domain now."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Topology keys that were met so far, in the order in which they were."""
        return tuple(self._sums)

    def update(self) -> None:
        """Read the placements since the last call."""
        events = self._groups.events
        end = len(events)
        if self._read == end:
            return
        weights = self._weights
        for group in self._groups.groups[len(weights) :]:
            weights.append(self._weigh(group))
        for number, row, sign in events[self._read : end]:
            counted = weights[number]
            if counted and (self._eligible is None or self._eligible[row]):
                self._count(counted, row, sign)
        self._read = end

    def _count(self, weights: Weights, row: int, sign: int) -> None:
        for key, weight in weights:
            domain = int(self._groups.domains(key).ids[row])
            if domain >= 0:
                self.sums(key)[domain] += sign * weight
                self.entries += sign

    def sums(self, key: str) -> IntVector:
        """Give the sum of each domain of a key, and a last 0 that stands for nodes without the label."""
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = np.zeros(self._groups.domains(key).number + 1, np.int64)
        return found

    def per_node(self, key: str) -> IntVector:
        """Give each node the sum of its domain, 0 where the label is absent: ``(N,)``."""
        values: IntVector = self.sums(key)[self._groups.domains(key).ids]
        return values
