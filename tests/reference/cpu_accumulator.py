"""The accumulator on plain lists, stage by stage as the specification words it: slow and obvious."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from koordcore.topology.cpu import CPUInfo

Held = Mapping[int, tuple[int, str]]
"""CPU to the number of its holders and the exclusive policy of the last one."""


class Accumulator:
    """One request: whole cores (``full``) or spread, ``sign`` +1 for most allocated first."""

    def __init__(
        self, cpus: Sequence[CPUInfo], counts: tuple[int, int, int], available: Iterable[int], held: Held
    ) -> None:
        self.at = {info.cpu: info for info in cpus}
        self.per_core, self.per_node, self.per_socket = (len(cpus) // count for count in counts)
        self.free = set(available)
        self.held = held
        self.result: list[int] = []
        self.exclusive_cores: set[int] = set()
        self.exclusive_nodes: set[int] = set()

    def take(self, need: int, *, full: bool, sign: int, exclusive: str, shared: bool) -> list[int] | None:
        """Choose; ``None`` where there are too few."""
        self.full, self.sign, self.exclusive, self.shared = full, sign, exclusive, shared
        if need < 1:
            return []
        if need > len(self.free):
            return None
        for cpu, (_, policy) in self.held.items():
            if policy == exclusive:
                self._mark(cpu)
        self.need = need
        if full or self.per_core == 1:
            self._stage_f()
        if self.need and not full:
            self._stage_s()
        if self.need:
            self._tail()
        return None if self.need else sorted(self.result)

    def _mark(self, cpu: int) -> None:
        info = self.at.get(cpu, CPUInfo(cpu, 0, 0, 0))
        if self.exclusive == "PCPULevel":
            self.exclusive_cores.add(info.core)
        if self.exclusive == "NUMANodeLevel":
            self.exclusive_nodes.add(info.numa)

    def _accept(self, cpus: Iterable[int]) -> None:
        for cpu in list(cpus):
            self.result.append(cpu)
            self.free.discard(cpu)
            self.need -= 1
            self._mark(cpu)

    def _ref(self, cpus: Iterable[int]) -> int:
        return sum(self.held.get(cpu, (0, ""))[0] for cpu in cpus) if self.shared else 0

    def _cores(self, cpus: Iterable[int]) -> dict[int, list[int]]:
        cores: dict[int, list[int]] = {}
        for cpu in sorted(cpus):
            cores.setdefault(self.at[cpu].core, []).append(cpu)
        return cores

    def _visible(self, *, cores: bool, nodes: bool) -> list[int]:
        return [
            cpu
            for cpu in sorted(self.free)
            if not (cores and self.at[cpu].core in self.exclusive_cores)
            and not (nodes and self.at[cpu].numa in self.exclusive_nodes)
        ]

    def _full_groups(self, visible: Iterable[int], key: str) -> dict[int, list[int]]:
        """Complete cores by NUMA node or socket, least referenced cores first."""
        groups: dict[int, list[list[int]]] = {}
        for cpus in self._cores(visible).values():
            if len(cpus) == self.per_core:
                groups.setdefault(getattr(self.at[cpus[0]], key), []).append(cpus)
        return {
            group: [
                cpu
                for core in sorted(cores, key=lambda core: (self._ref(core), self.at[core[0]].core))
                for cpu in core
            ]
            for group, cores in groups.items()
        }

    def _by_node(self, groups: Mapping[int, Sequence[int]], visible: Sequence[int]) -> list[int]:
        """NUMA nodes by the size of their group, what is visible on their socket, id."""

        def order(numa: int) -> tuple[int, int, int]:
            socket = self.at[groups[numa][0]].socket
            there = sum(self.at[cpu].socket == socket for cpu in visible)
            return self.sign * len(groups[numa]), self.sign * there, numa

        return sorted(groups, key=order)

    def _stage_f(self) -> None:
        if self.need <= self.per_node:
            for hiding in (True, False):
                visible = self._visible(cores=False, nodes=hiding)
                groups = self._full_groups(visible, "numa")
                for numa in self._by_node(groups, visible):
                    if len(groups[numa]) >= self.need:
                        return self._accept(groups[numa][: self.need])
        if self.need <= self.per_socket:
            groups = self._full_groups(self.free, "socket")
            for socket in sorted(groups, key=lambda one: (self.sign * len(groups[one]), one)):
                if len(groups[socket]) >= self.need:
                    return self._accept(groups[socket][: self.need])
        groups = self._full_groups(self.free, "socket")
        aside = []
        for socket in sorted(groups, key=lambda one: (-len(groups[one]), one)):
            if len(groups[socket]) <= self.need:
                self._accept(groups[socket])
            else:
                aside.append(groups[socket])
        for cpus in sorted(aside, key=len):
            start = 0
            while self.need >= self.per_core and start < len(cpus):
                self._accept(cpus[start : start + self.per_core])
                start += self.per_core
        return None

    def _spread(self, cpus: list[int]) -> list[int]:
        if len(cpus) <= self.per_core:
            return cpus
        ordered: list[int] = []
        left = list(cpus)
        while left:
            seen: set[int] = set()
            later = []
            for cpu in left:
                if self.at[cpu].core in seen:
                    later.append(cpu)
                else:
                    seen.add(self.at[cpu].core)
                    ordered.append(cpu)
            left = later
        return ordered

    def _listed(self, cpus: Iterable[int], *, first_of_core: bool) -> list[int]:
        ordered = sorted(cpus, key=lambda cpu: (self._ref([cpu]), cpu))
        if not first_of_core:
            return ordered
        seen: set[int] = set()
        kept = []
        for cpu in ordered:
            if self.at[cpu].core not in seen:
                seen.add(self.at[cpu].core)
                kept.append(cpu)
        return kept

    def _stage_s(self) -> None:
        if self.need <= self.per_node:
            for hiding in (True, False):
                visible = self._visible(cores=hiding, nodes=hiding)
                nodes: dict[int, list[int]] = {}
                for cpu in visible:
                    nodes.setdefault(self.at[cpu].numa, []).append(cpu)
                for numa in self._by_node(nodes, visible):
                    listed = self._listed(nodes[numa], first_of_core=hiding)
                    if len(listed) >= self.need:
                        return self._accept(self._spread(listed)[: self.need])
        if self.need <= self.per_socket:
            for hiding in (True, False):
                sockets: dict[int, list[int]] = {}
                for cpu in self._visible(cores=hiding, nodes=False):
                    sockets.setdefault(self.at[cpu].socket, []).append(cpu)
                lists = {socket: self._listed(cpus, first_of_core=hiding) for socket, cpus in sockets.items()}
                for socket in sorted(lists, key=lambda one: (self.sign * len(lists[one]), one)):
                    if len(lists[socket]) >= self.need:
                        return self._accept(self._spread(lists[socket])[: self.need])
        return None

    def _tail(self) -> None:
        for hiding in (True, False):
            visible = self._visible(cores=hiding, nodes=hiding)
            cores = self._cores(visible)

            flat = [
                cpu
                for core in self._by_core(cores, visible)
                for cpu in sorted(cores[core], key=lambda cpu: (self._ref([cpu]), cpu))
            ]
            self._accept(self._spread(flat)[: self.need])
            if not self.need:
                return

    def _by_core(self, cores: Mapping[int, Sequence[int]], visible: Sequence[int]) -> list[int]:
        """Cores near to what is taken first, then by room on socket and NUMA node, broken ones first."""

        def order(core: int) -> tuple[int, ...]:
            info = self.at[cores[core][0]]
            return (
                -sum(self.at[cpu].socket == info.socket for cpu in self.result),
                self.sign * sum(self.at[cpu].socket == info.socket for cpu in visible),
                self.sign * sum(self.at[cpu].numa == info.numa for cpu in visible),
                len(cores[core]),
                info.socket,
                self._ref(cores[core]),
                core,
            )

        return sorted(cores, key=order)
