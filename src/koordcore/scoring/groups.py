"""Who runs where, by groups of pods that selectors and affinity terms cannot tell apart.

Spread constraints and affinity between pods ask how many pods of some kind each topology domain holds. A
:class:`TopologyTally` keeps such sums; it reads the placements since it was last asked, so a pod that is
placed costs each tally that is asked again one look-up, not a walk over the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import BoolVector, ClusterLayout, IntVector
from koordcore._moved_rows import moved_rows
from koordcore._record import record
from koordcore._vector import Splice
from koordcore.model.affinity import PodAffinity
from koordcore.model.pods import Pod
from koordcore.model.selectors import LabelSelector, SelectorOperator

_MOST_WEIGHED: Final = 256
"""Kinds of pods of which it is known who counts for them."""
_FEW_GROUPS: Final = 64
"""So many groups that came are asked about one by one, all that may count are not looked up for them."""

Weights: TypeAlias = tuple[tuple[str, int], ...]
"""Topology keys with what one pod of a group adds to its domain; a key may stand more than once."""


_FAR: Final = 1024
"""Placements that have come since; beyond that it is sooner counted anew where pods of some groups are."""
_MOST_CELLS: Final = 2**22
"""Counts by slot that are kept for all kinds together, eight bytes each."""


@record(eq=False)
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
    empty
        Number of the domain of the empty value, -1 where no node has it.
    """

    ids: IntVector
    number: int
    present: BoolVector
    empty: int


@record
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

    def selectors(self) -> Iterable[LabelSelector | None]:
        """Give the selector of each of the pod's own terms."""
        for affinity in (self.affinity, self.anti):
            if affinity is not None:
                yield from (term.selector for term in affinity.required)
                yield from (one.term.selector for one in affinity.preferred)


def label_keys(selector: LabelSelector | None) -> Iterable[str]:
    """Give the labels that a selector looks at."""
    if selector is not None:
        yield from selector.match_labels
        yield from (one.key for one in selector.requirements)


def _tokens(selector: LabelSelector | None) -> Sequence[tuple[str, str]] | None:
    """Give labels of which a pod must have one to be matched; ``None`` where no such list is known."""
    if selector is None:
        return ()
    for pair in selector.match_labels.items():
        return (pair,)
    for one in selector.requirements:
        if one.operator is SelectorOperator.IN:
            return [(one.key, value) for value in one.values]
    return None


class CountedGroups:
    """Groups that weigh the same for somebody, and where their pods were when it was last asked.

    Attributes
    ----------
    numbers
        Which groups; others may follow.
    counts
        Their pods by slot; ``None`` where nobody has asked yet.
    known
        How many of the groups are in the counts.
    read
        How many of the placements are.
    """

    __slots__ = ("counts", "known", "numbers", "read")

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.counts: IntVector | None = None
        self.known = self.read = 0

    def add(self, number: int) -> None:
        """Take a group in."""
        self.numbers[number] = len(self.numbers)


class PodGroups:
    """The pods of a cluster by group, with every placement since in order.

    Attributes
    ----------
    layout
        The nodes.
    groups
        Groups in the order in which they were met; their place is their number.
    events
        ``(group, row, +1 or -1, slot)`` for each pod that came or went, the first ones those of the start. A
        node keeps its slot when rows move.
    term_keys
        Labels that the terms of any group look at.
    """

    def __init__(self, layout: ClusterLayout, pods: Iterable[tuple[Pod, int]] = (), *, read: int = 0) -> None:
        self.layout = layout
        self.groups: list[PodGroup] = []
        # For each group the number of its pods by the slot of their node, which it keeps when rows move.
        self._counts: list[dict[int, int]] = []
        self._number_of_slots = len(layout.names)
        self._slot_of: IntVector = np.arange(self._number_of_slots)
        self._slots: list[int] | range = range(self._number_of_slots)
        self._sizes: list[int] = []
        self.events: list[tuple[int, int, int, int]] = []
        self._number: dict[PodGroup, int] = {}
        self._quick: dict[tuple[str, immutabledict[str, str]], int] = {}
        self._by_label: dict[tuple[str, str], list[int]] = {}
        self._by_term: dict[tuple[str, str], list[int]] = {}
        self._any_term: list[int] = []
        self.term_keys: set[str] = set()
        self._domains: dict[str, Domains] = {}
        self._weighed: dict[Hashable, tuple[dict[Weights, CountedGroups], int]] = {}
        self._counting: list[CountedGroups] = []
        self._read = read
        for pod, row in pods:
            self.place(pod, row)

    def follow(self, layout: ClusterLayout, *, labels: bool) -> None:
        """Take note that nodes say something else; where their labels do, tallies of before are void."""
        self.layout = layout
        if labels:
            self._domains.clear()

    def move(self, layout: ClusterLayout, edits: Sequence[Splice], came: Sequence[int]) -> None:
        """Let nodes join and leave, those without pods, these after their pods; tallies of before are void.

        Parameters
        ----------
        edits
            Rows that were taken out and put in, one after another.
        came
            The rows of those that joined, as rows are afterwards.
        """
        self.follow(layout, labels=True)
        fresh = range(self._number_of_slots, self._number_of_slots + len(came))
        self._number_of_slots += len(came)
        self._slot_of, slots = moved_rows(self._slot_of, edits), [*self._slots]
        for at, gone, come in edits:
            slots[at : at + gone] = [0] * come
        for row, slot in zip(came, fresh, strict=True):
            self._slot_of[row] = slots[row] = slot
        self._slots = slots

    def rows(self, counted: CountedGroups) -> tuple[IntVector, IntVector]:
        """Give the rows of the nodes where pods of some groups are, ascending, and how many."""
        end, events, number = len(self.events), self.events, self._number_of_slots
        counts, new = counted.counts, [*counted.numbers][counted.known :]
        if counts is None or end - counted.read > _FAR:
            if counts is None:
                self._counting.append(counted)
            counts, new = np.zeros(number, np.int64), [*counted.numbers]
        else:
            if len(counts) < number:
                counts = np.concatenate([counts, np.zeros(number - len(counts), np.int64)])
            for group, _, sign, slot in events[counted.read :]:
                if counted.numbers.get(group, counted.known) < counted.known:
                    counts[slot] += sign
        found = [self._counts[group] for group in new]
        slots = np.array([*chain.from_iterable(found)], np.int64)
        np.add.at(counts, slots, np.array([*chain.from_iterable(map(dict.values, found))], np.int64))
        counted.counts, counted.known, counted.read = counts, len(counted.numbers), end
        if len(self._counting) * number > _MOST_CELLS:
            for one in self._counting:
                one.counts = None
            self._counting.clear()
        by_row = counts[self._slot_of]
        rows = by_row.nonzero()[0]
        return rows, by_row[rows]

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
            self._add(group, number)
        if plain:
            self._quick[pod.namespace, pod.labels] = number
        return number

    def _add(self, group: PodGroup, number: int) -> None:
        self.groups.append(group)
        self._counts.append({})
        self._sizes.append(0)
        for pair in group.labels.items():
            self._by_label.setdefault(pair, []).append(number)
        tokens: set[tuple[str, str]] = set()
        for selector in group.selectors():
            self.term_keys.update(label_keys(selector))
            wanted = _tokens(selector)
            if wanted is None:
                self._any_term.append(number)
            else:
                tokens.update(wanted)
        for token in sorted(tokens):
            self._by_term.setdefault(token, []).append(number)

    def matching(self, selectors: Iterable[LabelSelector | None]) -> Sequence[int]:
        """Give the groups that one of the selectors may match, ascending; the others it surely does not."""
        tokens: set[tuple[str, str]] = set()
        for selector in selectors:
            wanted = _tokens(selector)
            if wanted is None:
                return range(len(self.groups))
            tokens.update(wanted)
        return sorted({number for token in tokens for number in self._by_label.get(token, ())})

    def weighed(
        self, key: Hashable, weigh: Callable[[PodGroup], Weights], candidates: Callable[[], Iterable[int]]
    ) -> Mapping[Weights, CountedGroups]:
        """Give the groups that weigh anything, by what they weigh; each is asked about once.

        Parameters
        ----------
        key
            Tells apart who asks: equal keys weigh alike.
        weigh
            Gives what one pod of a group adds, by topology key.
        candidates
            Gives all groups that may weigh anything at present, and maybe others.
        """
        known, seen = self._weighed.get(key, ({}, 0))
        end = len(self.groups)
        if seen < end:
            few = 0 < end - seen <= _FEW_GROUPS
            for number in range(seen, end) if few else candidates():
                if number >= seen and (weights := weigh(self.groups[number])):
                    known.setdefault(weights, CountedGroups()).add(number)
            if key not in self._weighed and len(self._weighed) >= _MOST_WEIGHED:
                self.weigh_anew()
            self._weighed[key] = known, end
        return known

    def weigh_anew(self) -> None:
        """Forget what groups weigh: what it hangs on beside them is something else now."""
        self._weighed.clear()
        self._counting.clear()

    def concerned(self, labels: Mapping[str, str]) -> Sequence[int]:
        """Give the groups of which a term may mean a pod of these labels, ascending."""
        found = {number for pair in labels.items() for number in self._by_term.get(pair, ())}
        return sorted(found.union(self._any_term))

    def concern_now(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a term of somebody who runs may mean a pod of these labels."""
        return any(self._sizes[number] for number in self.concerned(labels))

    def _note(self, number: int, row: int, sign: int) -> None:
        counts, slot = self._counts[number], self._slots[row]
        counts[slot] = counts.get(slot, 0) + sign
        self._sizes[number] += sign
        self.events.append((number, row, sign, slot))

    def place(self, pod: Pod, row: int) -> None:
        """Take note of a pod on a node."""
        self._note(self.group_of(pod), row, 1)

    def remove(self, pod: Pod, row: int) -> None:
        """Take note that a pod has left its node."""
        self._note(self.group_of(pod), row, -1)

    def read(self, journal: Sequence[tuple[Pod, int, int]]) -> None:
        """Take note of what was added to an append-only list of changes since the last call."""
        end = len(journal)
        if self._read != end:
            for pod, row, sign in journal[self._read : end]:
                self._note(self.group_of(pod), row, sign)
            self._read = end

    def domains(self, key: str) -> Domains:
        """Give the domains of a topology key."""
        found = self._domains.get(key)
        if found is None:
            column = self.layout.kinds.label(key)
            present = column.ids != column.number.get(None, -1)
            found = self._domains[key] = Domains(
                np.where(present, column.ids, -1), len(column.values), present, column.number.get("", -1)
            )
        return found


class TopologyTally:
    """How much the pods of some groups add up to in each domain, kept up to date.

    Parameters
    ----------
    groups
        Where pods are.
    weigh
        What one pod of a group adds, by topology key; nothing for groups that do not count.
    weighed
        Groups that count at present, by what they weigh (:meth:`PodGroups.weighed`).
    eligible
        Nodes whose pods count; ``None`` for all.
    unlabelled
        Pods on nodes without the label are summed up as well.
    """

    def __init__(
        self,
        groups: PodGroups,
        weigh: Callable[[PodGroup], Weights],
        weighed: Mapping[Weights, CountedGroups],
        eligible: BoolVector | None = None,
        *,
        unlabelled: bool = False,
    ) -> None:
        self._groups = groups
        self._weigh = weigh
        self._eligible = eligible
        self._weights: dict[int, Weights] = {}
        self._unlabelled = unlabelled
        self._sums: dict[str, IntVector] = {}
        self._read = len(groups.events)
        self.entries = 0
        """How many times a pod counts for a domain now."""
        for weights, counted in weighed.items():
            self._count_all(weights, *groups.rows(counted))

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
        for number, row, sign, _ in events[self._read : end]:
            counted = self._weights.get(number)
            if counted is None:
                counted = self._weights[number] = self._weigh(self._groups.groups[number])
            if counted and (self._eligible is None or self._eligible[row]):
                self._count(counted, row, sign)
        self._read = end

    def _count_all(self, weights: Weights, rows: IntVector, counts: IntVector) -> None:
        """Count pods on many nodes: these, with how many."""
        if self._eligible is not None:
            among = self._eligible[rows]
            rows, counts = rows[among], counts[among]
        if not len(rows):
            return
        for key, weight in weights:
            domains, numbers = self._groups.domains(key).ids[rows], counts
            if not self._unlabelled:
                labelled = domains >= 0
                domains, numbers = domains[labelled], counts[labelled]
            if len(domains):
                np.add.at(self.sums(key), domains, numbers * weight)
                self.entries += int(numbers.sum())

    def _count(self, weights: Weights, row: int, number: int) -> None:
        for key, weight in weights:
            domain = int(self._groups.domains(key).ids[row])
            if domain >= 0 or self._unlabelled:
                self.sums(key)[domain] += number * weight
                self.entries += number

    def sums(self, key: str) -> IntVector:
        """Give the sum of each domain of a key, and last that of nodes without the label, 0 if not wanted."""
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = np.zeros(self._groups.domains(key).number + 1, np.int64)
        return found

    def per_node(self, key: str) -> IntVector:
        """Give each node the sum of its domain, 0 where the label is absent: ``(N,)``."""
        values: IntVector = self.sums(key)[self._groups.domains(key).ids]
        return values
