"""Taking CPUs of one topology step by step: whole groups first, then single CPUs, as a strategy says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from koordcore.allocators.cpu_wish import CPUShortage, CPUWish
from koordcore.model.numa import (
    CPUBindPolicy,
    CPUExclusivePolicy,
    CPUHoldings,
    NUMAAllocateStrategy,
)
from koordcore.topology.cpu import NO_CPUS, CPUGroup, CPUSet, CPUTopology, lowest_cpus

_Ordered = Sequence[CPUSet]
"""Disjoint sets; a member of an earlier one comes first, inside a set the smaller id."""


_HIDDEN_FIRST: Final = (True, False)


class CPUAccumulator:
    """The scratch of one call of :func:`take_cpus`."""

    def __init__(
        self, topology: CPUTopology, available: CPUSet, count: int, wish: CPUWish, holdings: CPUHoldings
    ) -> None:
        self.topology = topology
        self.free = available
        self.need = count
        self.taken = NO_CPUS
        self.whole_cores = wish.bind_policy is CPUBindPolicy.FULL_PCPUS
        self.sign = 1 if wish.strategy is NUMAAllocateStrategy.MOST_ALLOCATED else -1
        # Reference counts decide nothing unless CPUs are shared.
        self.levels = holdings.levels if wish.max_ref_count > 1 else ()
        self.exclusive = wish.exclusive
        self.taboo_cores = self.taboo_nodes = NO_CPUS
        self._avoid(
            holdings.pcpu_level
            if wish.exclusive is CPUExclusivePolicy.PCPU_LEVEL
            else holdings.numa_node_level
        )

    def take(self) -> CPUSet | CPUShortage:
        """Go through the stages until there are enough."""
        if self.whole_cores or self.topology.cpus_per_core == 1:
            self._cores_of_one_node()
            self._cores_of_one_socket()
            self._cores_of_sockets()
        if not self.whole_cores:
            self._cpus_of_one_node()
            self._cpus_of_one_socket()
        self._cpus_anywhere()
        return CPUShortage.FAILED if self.need else self.taken

    def _accept(self, cpus: CPUSet) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.need -= cpus.bit_count()
        self._avoid(cpus)

    def _avoid(self, cpus: CPUSet) -> None:
        """Hide the neighbours of exclusively held CPUs, own picks included; later rounds show them again."""
        if not cpus:
            return
        if self.exclusive is CPUExclusivePolicy.PCPU_LEVEL:
            self.taboo_cores |= _touched(self.topology, self.topology.cores, cpus)
        elif self.exclusive is CPUExclusivePolicy.NUMA_NODE_LEVEL:
            self.taboo_nodes |= _touched(self.topology, self.topology.nodes, cpus)

    # Whole cores

    def _cores_of_one_node(self) -> None:
        """Stage F1: the complete cores of one NUMA node are enough."""
        if not self.need or self.need > self.topology.cpus_per_node:
            return
        for taboo in dict.fromkeys((self.taboo_nodes, NO_CPUS)):
            visible = self.free & ~taboo
            complete = self.topology.complete_cores(visible)
            in_socket = {group.id: (visible & group.cpus).bit_count() for group in self.topology.sockets}
            groups = [
                (self.sign * size, self.sign * in_socket[node.socket], node.id)
                for node in self.topology.nodes
                if (size := (complete & node.cpus).bit_count()) >= self.need
            ]
            if groups:
                chosen = min(groups)[2]
                self._accept(self._first_cores(self.topology.cores_of_node[chosen], complete, self.need))
                return

    def _cores_of_one_socket(self) -> None:
        """Stage F2: the complete cores of one socket are enough."""
        if not self.need or self.need > self.topology.cpus_per_socket:
            return
        complete = self.topology.complete_cores(self.free)
        groups = [
            (self.sign * size, socket.id)
            for socket in self.topology.sockets
            if (size := (complete & socket.cpus).bit_count()) >= self.need
        ]
        if groups:
            chosen = min(groups)[1]
            self._accept(self._first_cores(self.topology.cores_of_socket[chosen], complete, self.need))

    def _cores_of_sockets(self) -> None:
        """Stages F3 and F4: whole sockets from the largest down, then core by core from the smallest up."""
        if not self.need:
            return
        complete = self.topology.complete_cores(self.free)
        sized = sorted(
            (
                (size, socket.id, socket.cpus)
                for socket in self.topology.sockets
                if (size := (complete & socket.cpus).bit_count())
            ),
            key=lambda entry: (-entry[0], entry[1]),
        )
        aside = []
        for size, socket, cpus in sized:
            if size <= self.need:
                self._accept(complete & cpus)
            else:
                aside.append((size, socket))
        for _, socket in sorted(aside):
            # Upstream looks at the rest only after a core is taken and so takes one CPU too many where an
            # odd rest meets a second socket.
            whole = self.need - self.need % self.topology.cpus_per_core
            if not whole:
                return
            self._accept(self._first_cores(self.topology.cores_of_socket[socket], complete, whole))

    def _first_cores(self, cores: Sequence[CPUGroup], complete: CPUSet, count: int) -> CPUSet:
        """The first ``count`` CPUs of complete cores, least referenced cores first; the last may be split."""
        offered = [(core.id, cpus) for core in cores if (cpus := core.cpus & complete)]
        if self.levels:
            offered.sort(key=lambda entry: (self._references(entry[1]), entry[0]))
        found = NO_CPUS
        for _, cpus in offered:
            part = lowest_cpus(cpus, count)
            found |= part
            count -= part.bit_count()
            if not count:
                break
        return found

    def _references(self, cpus: CPUSet) -> int:
        return sum((cpus & level).bit_count() for level in self.levels)

    # Single CPUs

    def _by_references(self, cpus: CPUSet) -> _Ordered:
        """Order CPUs by reference count, then id."""
        ordered = []
        for level in reversed(self.levels):
            ordered.append(cpus & level)
            cpus &= ~level
        ordered.append(cpus)
        return [part for part in reversed(ordered) if part]

    def _first_of_cores(self, cores: Sequence[CPUGroup], ordered: _Ordered) -> list[CPUSet]:
        """Keep the first CPU of each core."""
        kept = []
        covered = NO_CPUS
        for part in ordered:
            found = NO_CPUS
            for core in cores:
                offered = core.cpus & part
                if offered and not core.cpus & covered:
                    found |= offered & -offered
            covered |= found
            kept.append(found)
        return kept

    def _spread(self, cores: Sequence[CPUGroup], ordered: _Ordered, count: int) -> CPUSet:
        """The first ``count`` CPUs, one of each core in turn; a list of one core's length stays as it is."""
        if sum(part.bit_count() for part in ordered) <= self.topology.cpus_per_core:
            return _first(ordered, count)
        found = NO_CPUS
        while count:
            sweep = self._first_of_cores(cores, ordered)
            part = _first(sweep, count)
            found |= part
            count -= part.bit_count()
            ordered = [left & ~swept for left, swept in zip(ordered, sweep, strict=True)]
        return found

    def _cpus_of_one_node(self) -> None:
        """Stage S1: one NUMA node has enough, first with one CPU of each core, then with siblings."""
        if not self.need or self.need > self.topology.cpus_per_node:
            return
        for hiding in _HIDDEN_FIRST:
            visible = self.free & ~(self.taboo_cores | self.taboo_nodes) if hiding else self.free
            in_socket = {group.id: (visible & group.cpus).bit_count() for group in self.topology.sockets}
            groups = sorted(
                (self.sign * size, self.sign * in_socket[node.socket], node.id, node.cpus)
                for node in self.topology.nodes
                if (size := (visible & node.cpus).bit_count()) >= self.need
            )
            for _, _, node, cpus in groups:
                cores = self.topology.cores_of_node[node]
                ordered = self._by_references(visible & cpus)
                if hiding:
                    ordered = self._first_of_cores(cores, ordered)
                if sum(part.bit_count() for part in ordered) >= self.need:
                    self._accept(self._spread(cores, ordered, self.need))
                    return

    def _cpus_of_one_socket(self) -> None:
        """Stage S2: the same on one socket."""
        if not self.need or self.need > self.topology.cpus_per_socket:
            return
        for hiding in _HIDDEN_FIRST:
            visible = self.free & ~self.taboo_cores if hiding else self.free
            groups = []
            for socket in self.topology.sockets:
                ordered = self._by_references(visible & socket.cpus)
                if hiding:
                    ordered = self._first_of_cores(self.topology.cores_of_socket[socket.id], ordered)
                size = sum(part.bit_count() for part in ordered)
                if size >= self.need:
                    groups.append((self.sign * size, socket.id, ordered))
            if groups:
                _, chosen, ordered = min(groups, key=lambda group: group[:2])
                self._accept(self._spread(self.topology.cores_of_socket[chosen], ordered, self.need))
                return

    # Anything

    def _cpus_anywhere(self) -> None:
        """Stage T: whatever is there, near to what is taken and from cores that are already broken."""
        taboo = self.taboo_cores | self.taboo_nodes
        for hidden in dict.fromkeys((taboo, NO_CPUS)):
            visible = self.free & ~hidden
            if not self.need or not visible:
                continue
            count = min(self.need, visible.bit_count())
            if visible.bit_count() <= self.topology.cpus_per_core:
                self._accept(self._first_listed(visible, count))
            else:
                self._accept(self._first_swept(visible, count))

    def _first_listed(self, visible: CPUSet, count: int) -> CPUSet:
        found = NO_CPUS
        for cpus in self._cores_in_order(visible):
            part = _first(self._by_references(cpus), count)
            found |= part
            count -= part.bit_count()
            if not count:
                break
        return found

    def _first_swept(self, visible: CPUSet, count: int) -> CPUSet:
        """One CPU of each core in turn, in the order of the cores."""
        found = NO_CPUS
        cores: Iterable[CPUSet] = self._cores_in_order(visible)
        while True:
            left = []
            for cpus in cores:
                first = _first(self._by_references(cpus), 1) if self.levels else cpus & -cpus
                found |= first
                count -= 1
                if not count:
                    return found
                if cpus != first:
                    left.append(cpus ^ first)
            cores = left

    def _cores_in_order(self, visible: CPUSet) -> Iterator[CPUSet]:
        """The visible CPUs core by core.

        Order: CPUs taken on the socket (more first), available on the socket, available on the NUMA node
        (by the strategy), available on the core (fewer first), socket, references, core.
        """
        sign, taken = self.sign, self.taken
        on_socket = {
            socket.id: (-(taken & socket.cpus).bit_count(), sign * (visible & socket.cpus).bit_count())
            for socket in self.topology.sockets
        }
        groups: dict[tuple[int, int, int], list[int]] = {}
        for node in self.topology.nodes:
            key = (*on_socket[node.socket], sign * (visible & node.cpus).bit_count())
            groups.setdefault(key, []).append(node.id)
        for key in sorted(groups):
            entries = []
            for node_id in groups[key]:
                for core in self.topology.home_cores[node_id]:
                    cpus = core.cpus & visible
                    if cpus:
                        references = self._references(cpus) if self.levels else 0
                        entries.append((cpus.bit_count(), core.socket, references, core.id, cpus))
            entries.sort()
            for entry in entries:
                yield entry[4]


def _touched(topology: CPUTopology, groups: Iterable[CPUGroup], cpus: CPUSet) -> CPUSet:
    """All CPUs of the groups that have a member in a set; a CPU that the topology lacks counts in group 0."""
    found = NO_CPUS
    unknown = cpus & ~topology.all_cpus
    for group in groups:
        if group.cpus & cpus or (unknown and not group.id):
            found |= group.cpus
    return found


def _first(ordered: _Ordered, count: int) -> CPUSet:
    """The first CPUs of an ordered list."""
    found = NO_CPUS
    for part in ordered:
        if not count:
            break
        taken = lowest_cpus(part, count)
        found |= taken
        count -= taken.bit_count()
    return found
