"""What a legal placement of one pod on one node's CPUs and NUMA nodes is: slow, obvious, counted afresh.

Nothing of the allocators is used but the records; availability, shapes and feasibility are worked out from
the holders one CPU at a time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from koordcore.allocators.numa_request import CPUDemand
from koordcore.allocators.numa_state import NUMANode
from koordcore.model.numa import CPUAllocation, CPUBindPolicy, NUMANodeResource
from koordcore.topology.numa import NUMATopologyPolicy

Amounts = dict[int, dict[str, int]]


def _bits(mask: int) -> list[int]:
    return [index for index in range(max(mask, 0).bit_length()) if mask >> index & 1]


class StaticResult:
    """A node with its holders, as plain dictionaries."""

    def __init__(self, node: NUMANode, holders: Sequence[CPUAllocation], demand: CPUDemand) -> None:
        self.node = node
        self.demand = demand
        self.place = {info.cpu: info for info in node.topology.cpus}
        self.holders = holders
        references: dict[int, int] = {}
        for holder in holders:
            for cpu in _bits(holder.cpuset):
                references[cpu] = references.get(cpu, 0) + 1
        self.held = references
        reserved = set(_bits(node.reserved_cpus))
        self.free = {
            cpu for cpu in self.place if references.get(cpu, 0) < node.max_ref_count and cpu not in reserved
        }
        if demand.required:
            self.free = self._suitable()
        self.available = self._available()

    def _cores(self, cpus: set[int]) -> dict[int, list[int]]:
        cores: dict[int, list[int]] = {}
        for cpu in sorted(cpus):
            cores.setdefault(self.place[cpu].core, []).append(cpu)
        return cores

    def _suitable(self) -> set[int]:
        per_core = self.node.topology.cpus_per_core
        found: set[int] = set()
        for cpus in self._cores(self.free).values():
            if self.demand.bind_policy is CPUBindPolicy.FULL_PCPUS:
                if len(cpus) == per_core:
                    found.update(cpus)
            elif self.demand.bind_policy is CPUBindPolicy.SPREAD_BY_PCPUS:
                found.add(cpus[0])
            else:
                found.update(cpus)
        return found

    def _available(self) -> Amounts:
        ratio = self.node.zone_cpu_ratio
        available: Amounts = {zone.node: dict(zone.resources) for zone in self.node.zones}
        recorded: Amounts = {}
        for holder in self.holders:
            for entry in holder.numa_resources:
                here = recorded.setdefault(entry.node, {})
                for name, amount in entry.resources.items():
                    here[name] = here.get(name, 0) + amount
        for numa, amounts in recorded.items():
            if numa not in available:
                continue
            cpus = [cpu for cpu in self.held if self._numa(cpu) == numa]
            if ratio > 1:
                amounts["cpu"] = (
                    amounts.get("cpu", 0) - 1000 * len(cpus) + math.ceil(1000.0 * len(cpus) * ratio)
                )
            for name, amount in amounts.items():
                available[numa][name] = available[numa].get(name, 0) - max(0, amount)
        for numa, amounts in available.items():
            for name in amounts:
                amounts[name] = max(0, amounts[name])
            if self.demand.bind and self.demand.required and "cpu" in amounts:
                amounts["cpu"] = min(amounts["cpu"], 1000 * len(self._free_on(numa)))
        return available

    def _numa(self, cpu: int) -> int:
        return self.place[cpu].numa if cpu in self.place else 0

    def _free_on(self, numa: int) -> set[int]:
        return {cpu for cpu in self.free if self.place[cpu].numa == numa}

    def violations(self, cpuset: int, amounts: Sequence[NUMANodeResource], *, aligned: bool) -> list[str]:
        """What is wrong with a placement; ``aligned`` where amounts per NUMA node must be recorded."""
        demand, request = self.demand, self.demand.request
        cpus = set(_bits(cpuset))
        wrong = []
        if cpus - self.free:
            wrong.append(f"cpus {sorted(cpus - self.free)} are not free")
        if demand.bind and len(cpus) != request.cpus_needed:
            wrong.append(f"{len(cpus)} cpus for {request.cpus_needed}")
        if not demand.bind and cpus:
            wrong.append("cpus for a pod that is not bound")
        if demand.required:
            sizes = {len(group) for group in self._cores(cpus).values()}
            full = demand.bind_policy is CPUBindPolicy.FULL_PCPUS
            if sizes - {self.node.topology.cpus_per_core if full else 1}:
                wrong.append(f"cores of {sorted(sizes)} cpus under {demand.bind_policy}")
        if not aligned:
            return wrong
        known = {name for here in self.available.values() for name in here}
        for name in known & set(request.requests):
            given = sum(entry.resources.get(name, 0) for entry in amounts)
            if given != request.requests[name]:
                wrong.append(f"{given} of {name} for {request.requests[name]}")
        for entry in amounts:
            here = self.available.get(entry.node, {})
            for name, amount in entry.resources.items():
                if amount > here.get(name, 0):
                    wrong.append(f"{amount} of {name} on {entry.node}, where {here.get(name, 0)} is free")
        if demand.bind and amounts:
            for numa in self.available:
                told = next((one.resources.get("cpu", 0) for one in amounts if one.node == numa), 0)
                taken = sum(self.place[cpu].numa == numa for cpu in cpus & set(self.place))
                if told != 1000 * taken:
                    wrong.append(f"{told}m on {numa} with {taken} cpus")
        used = [entry.node for entry in amounts]
        if demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE and len(used) > 1:
            wrong.append(f"several NUMA nodes {used}")
        return wrong

    def exists(self, mask: Sequence[int]) -> bool:
        """Tell whether a placement exists on these NUMA nodes, by trying every split of the CPUs."""
        requests = self.demand.request.requests
        known = {name for here in self.available.values() for name in here}
        for name in known & set(requests):
            if name == "cpu" and self.demand.bind:
                continue
            if sum(self.available[numa].get(name, 0) for numa in mask) < requests[name]:
                return False
        if not self.demand.bind:
            return True
        if "cpu" not in known:
            return not known & set(requests) and len(self.free) >= self.demand.request.cpus_needed
        return any(True for _ in self.cpu_splits(mask))

    def cpu_splits(self, mask: Sequence[int]) -> Iterator[Mapping[int, int]]:
        """Every way to divide the CPUs of a bound pod over NUMA nodes."""
        need = self.demand.request.cpus_needed
        full = self.demand.required and self.demand.bind_policy is CPUBindPolicy.FULL_PCPUS
        step = self.node.topology.cpus_per_core if full else 1
        ranges = []
        for numa in mask:
            most = min(self.available[numa].get("cpu", 0) // 1000, len(self._free_on(numa)))
            ranges.append(range(0, most + 1, step))
        for counts in itertools.product(*ranges):
            if sum(counts) == need:
                yield dict(zip(mask, counts, strict=True))
