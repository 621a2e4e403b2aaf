"""Small random nodes with holders, and pods that want room on them: one seed, one world."""

from __future__ import annotations

import random

from koordcore.allocators.numa_request import CPURequest
from koordcore.allocators.numa_state import NUMANode, NUMAState
from koordcore.model.numa import (
    CPUAllocation,
    CPUBindPolicy,
    CPUExclusivePolicy,
    NodeCPUBindPolicy,
    NUMAAllocateStrategy,
    NUMANodeResource,
)
from koordcore.model.resources import make_resources
from koordcore.topology.cpu import CPUTopology, cpuset_of
from koordcore.topology.numa import NUMAExclusive, NUMATopologyPolicy

GIB = 2**30


def topology(sockets: int, nodes: int, cores: int, threads: int, *, interleaved: bool = False) -> CPUTopology:
    """Sockets of NUMA nodes of cores of threads; siblings side by side, or the second threads at the end."""
    total = sockets * nodes * cores
    rows = []
    for index in range(total):
        socket, numa = index // (nodes * cores), index // cores
        for thread in range(threads):
            cpu = index + thread * total if interleaved else index * threads + thread
            rows.append((cpu, index % (nodes * cores), numa, socket))
    return CPUTopology.of(rows)


class World:
    """A node, its holders in order, and a request."""

    def __init__(self, seed: int) -> None:
        self.draw = draw = random.Random(seed)
        shape = draw.choice([(1, 1), (2, 1), (1, 2), (1, 3), (2, 2)])
        threads = draw.choice([1, 2, 2])
        self.topology = topology(*shape, draw.randint(1, 3), threads, interleaved=draw.random() < 0.5)
        count = shape[0] * shape[1]
        per_node = self.topology.num_cpus // count
        self.ratio = draw.choice([1.0, 1.0, 1.5])
        zones = []
        for numa in range(count):
            amounts = {"cpu": int(per_node * 1000 * self.ratio), "memory": draw.choice([0, 4, 8]) * GIB}
            if draw.random() < 0.3:
                amounts["hugepages-2Mi"] = draw.choice([0, 64, 128]) * 2**20
            zones.append(NUMANodeResource(numa, make_resources(amounts)))
        self.node = NUMANode(
            topology=self.topology,
            zones=tuple(zones),
            policy=draw.choice(list(NUMATopologyPolicy)),
            bind_policy=draw.choice([NodeCPUBindPolicy.NONE] * 4 + list(NodeCPUBindPolicy)),
            strategy=draw.choice(list(NUMAAllocateStrategy)),
            reserved_cpus=1 if draw.random() < 0.2 else 0,
            cpu_ratio=self.ratio,
            zone_cpu_ratio=self.ratio,
        )
        self.holders = tuple(self._holder(index, count) for index in range(draw.randint(0, 4)))
        self.state = NUMAState.of(self.node, self.holders)
        self.request = self.make_request()

    def _holder(self, index: int, count: int) -> CPUAllocation:
        draw = self.draw
        cpus = draw.sample(range(self.topology.num_cpus), draw.randint(0, min(3, self.topology.num_cpus)))
        amounts: dict[int, dict[str, int]] = {}
        if draw.random() < 0.8:
            for cpu in cpus:
                here = amounts.setdefault(self.topology.cpus[cpu].numa, {})
                here["cpu"] = here.get("cpu", 0) + 1000
        if draw.random() < 0.5:
            here = amounts.setdefault(draw.randrange(count), {})
            here["cpu"] = here.get("cpu", 0) + draw.choice([500, 1000, 1500])
            here["memory"] = draw.choice([1, 2, 4]) * GIB
        return CPUAllocation(
            uid=f"u{index}",
            name=f"p{index}",
            namespace="default",
            cpuset=cpuset_of(cpus),
            exclusive=draw.choice(list(CPUExclusivePolicy)),
            numa_resources=tuple(
                NUMANodeResource(numa, make_resources(amounts[numa])) for numa in sorted(amounts)
            ),
        )

    def make_request(self) -> CPURequest:
        """Another pod for the same node; its policy never stands against the node's."""
        draw = self.draw
        bind = draw.random() < 0.6
        whole = self.topology.cpus_per_core
        cpu = 1000 * draw.randint(1, self.topology.num_cpus)
        if not bind and self.node.bind_policy is NodeCPUBindPolicy.NONE:
            cpu = draw.choice([cpu, cpu - 500, 0])
        amounts = {"cpu": cpu, "memory": draw.choice([0, 1, 3, 6]) * GIB}
        if draw.random() < 0.2:
            amounts["hugepages-2Mi"] = draw.choice([64, 128]) * 2**20
        if draw.random() < 0.1:
            amounts["example.com/unknown"] = 1
        policy = draw.choice([CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS])
        required = bind and draw.random() < 0.4
        if required and policy is CPUBindPolicy.FULL_PCPUS and draw.random() < 0.8:
            amounts["cpu"] = max(1000 * whole, cpu - cpu % (1000 * whole))
        own = self.node.policy or draw.choice([NUMATopologyPolicy.NONE, NUMATopologyPolicy.RESTRICTED])
        bind = bind and amounts["cpu"] > 0
        return CPURequest(
            requests=make_resources({name: amount for name, amount in amounts.items() if amount}),
            bind=bind,
            required=policy if required and bind else None,
            preferred=policy if bind else None,
            exclusive=draw.choice(list(CPUExclusivePolicy)),
            numa_policy=own if draw.random() < 0.5 else "",
            numa_exclusive=draw.choice(["", NUMAExclusive.PREFERRED, NUMAExclusive.REQUIRED]),
        )
