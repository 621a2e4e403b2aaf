"""CPUs and NUMA nodes: taking CPUs, filtering many nodes, placing many pods, wrong refusals.

The NUMA workload: nodes of 2 sockets x 1 NUMA node x 32 cores x 2 threads with 64 CPUs and 256Gi per NUMA
node, policy Restricted; node *i* has state *i mod 200*, each with 0..4 cpuset pods of 4, 8, 12 or 16 CPUs per
NUMA node, 2Gi per CPU.
"""

from __future__ import annotations

import random
from itertools import combinations
from typing import ClassVar

from benchmarks.devices_data import request as cards_of, states as device_states
from koordcore.allocators.cpu_wish import CPUWish
from koordcore.allocators.cpuset import available_cpus, take_cpus
from koordcore.allocators.node import NodeAllocation, NodeOffer
from koordcore.allocators.node_batch import NodeVerdicts, node_table
from koordcore.allocators.node_request import NodeRequest
from koordcore.allocators.numa import NodeAmounts, NUMAAllocation
from koordcore.allocators.numa_request import CPURequest, NUMARefusal, demand_on
from koordcore.allocators.numa_state import NUMANode, NUMAState
from koordcore.model.numa import (
    CPUAllocation,
    CPUBindPolicy,
    CPUExclusivePolicy,
    CPUHoldings,
    NUMANodeResource,
)
from koordcore.model.resources import make_resources
from koordcore.topology.cpu import CPUSet, CPUTopology, cpuset_of
from koordcore.topology.numa import NUMATopologyPolicy, exclusive_allows, mask_of
from tests.numa.worlds import World
from tests.reference.numa_placement import StaticResult
from tests.reference.numa_score import fit_numa

GIB = 2**30
TOPOLOGY = CPUTopology.of(
    (n * 64 + c * 2 + t, c, n, n) for n in range(2) for c in range(32) for t in range(2)
)
ZONES = tuple(
    NUMANodeResource(numa, make_resources({"cpu": 64_000, "memory": 256 * GIB})) for numa in range(2)
)
NODE = NUMANode(topology=TOPOLOGY, zones=ZONES, policy=NUMATopologyPolicy.RESTRICTED)


def request_of(cpus: int, gib: int) -> CPURequest:
    """An LSR pod with the default bind policy."""
    amounts = make_resources({"cpu": 1000 * cpus, "memory": gib * GIB})
    return CPURequest(requests=amounts, bind=True, preferred=CPUBindPolicy.FULL_PCPUS)


POD = request_of(16, 32)


def _held(numa: int, start: int, count: int, uid: str) -> CPUAllocation:
    amounts = make_resources({"cpu": 1000 * count, "memory": 2 * count * GIB})
    cpus = range(64 * numa + start, 64 * numa + start + count)
    return CPUAllocation(uid=uid, cpuset=cpuset_of(cpus), numa_resources=(NUMANodeResource(numa, amounts),))


def state_of(seed: int) -> NUMAState:
    """One of the states of the workload."""
    draw = random.Random(seed)
    holders = []
    for numa in range(2):
        start = 0
        for index in range(draw.randint(0, 4)):
            count = draw.choice((4, 8, 12, 16))
            holders.append(_held(numa, start, count, f"{numa}-{index}"))
            start += count
    return NUMAState.of(NODE, holders)


class Take:
    """Take CPUs of 256 on 4 NUMA nodes, half of them held at random."""

    params: ClassVar = [["FullPCPUs", "SpreadByPCPUs"], [2, 16, 32]]
    param_names: ClassVar = ["policy", "count"]

    def setup(self, policy: str, count: int) -> None:
        rows = [
            (s * 128 + n * 64 + c * 2 + t, n * 32 + c, s * 2 + n, s)
            for s in range(2)
            for n in range(2)
            for c in range(32)
            for t in range(2)
        ]
        self.topology = CPUTopology.of(rows)
        draw = random.Random(7)
        held = cpuset_of(cpu for cpu in range(256) if draw.random() < 0.5)
        self.holdings = CPUHoldings().taking(held, CPUExclusivePolicy.NONE)
        self.free = available_cpus(self.topology, self.holdings)
        self.wish = CPUWish(bind_policy=CPUBindPolicy(policy))
        taken = self._take(count)
        assert taken.bit_count() == count
        assert not taken & held

    def _take(self, count: int) -> CPUSet:
        taken = take_cpus(self.topology, self.free, count, self.wish, self.holdings)
        assert isinstance(taken, int)
        return taken

    def time_take(self, policy: str, count: int) -> None:
        self._take(count)


class RestrictedFilter:
    """Filter of one 16-CPU, 32Gi pod over 5000 nodes."""

    params: ClassVar = [[200, 5000]]
    param_names: ClassVar = ["states"]
    # One call per setup: states remember what they have available, and a cold call must not find that.
    number = 1
    warmup_time = 0

    def setup(self, states: int) -> None:
        if states == 200:
            distinct = [state_of(seed) for seed in range(200)]
        else:
            # All different: one more holder of an amount that no other node has.
            distinct = [
                state_of(seed).adding(
                    CPUAllocation(
                        uid="odd", numa_resources=(NUMANodeResource(0, make_resources({"memory": seed + 1})),)
                    )
                )
                for seed in range(states)
            ]
        self.table = node_table(NodeOffer(distinct[row % len(distinct)]) for row in range(5000))
        self.verdicts = NodeVerdicts(self.table, NodeRequest(cpu=POD))
        assert self.verdicts.fits().all()
        assert self.verdicts.asked == len(self.table.states)
        fresh = [NUMAState.of(NODE, state.allocations) for state in distinct]
        self.fresh = node_table(NodeOffer(fresh[row % len(fresh)]) for row in range(5000))

    def time_cold(self, states: int) -> None:
        NodeVerdicts(self.fresh, NodeRequest(cpu=POD)).fits()

    def time_next_equal_pod(self, states: int) -> None:
        self.verdicts.fits()

    def time_group_nodes(self, states: int) -> None:
        node_table(self.table.rows)


class RestrictedFilterWithCards:
    """Filter of one 16-CPU, 32Gi pod with 2 GPUs over 5000 nodes in 200 states of CPUs and cards."""

    def setup(self) -> None:
        self.request = NodeRequest(cpu=POD, devices=cards_of(joint=False, gpu=200))
        cards = device_states(200)
        states = [state_of(seed) for seed in range(200)]
        self.table = node_table(NodeOffer(states[row % 200], cards[row % 200]) for row in range(5000))
        self.verdicts = NodeVerdicts(self.table, self.request)
        self.fitting = int(self.verdicts.fits().sum())
        assert 0 < self.fitting < 5000
        assert self.verdicts.asked == len(self.table.states) == 200

    def time_cold(self) -> None:
        NodeVerdicts(self.table, self.request).fits()

    def time_next_equal_pod(self) -> None:
        self.verdicts.fits()

    def track_fitting_nodes(self) -> int:
        return self.fitting

    track_fitting_nodes.unit = "nodes"  # type: ignore[attr-defined]


class PlaceMany:
    """5000 cpuset pods on 1000 nodes, the best score first, one after another."""

    timeout = 120

    def setup(self) -> None:
        self.placed = 0

    def _place(self) -> int:
        table = node_table([NodeOffer(NUMAState.of(NODE))] * 1000)
        kinds = [request_of(cpus, 2 * cpus) for cpus in (4, 8, 12, 16)]
        verdicts = [NodeVerdicts(table, NodeRequest(cpu=kind)) for kind in kinds]
        placed = 0
        for index in range(5000):
            kind = index % 4
            fits = verdicts[kind].fits()
            if not fits.any():
                continue
            scores = verdicts[kind].scores()
            scores[~fits] = -1
            row = int(scores.argmax())
            given = verdicts[kind].answer(row)
            assert isinstance(given, NodeAllocation)
            holder = CPUAllocation(
                uid=f"p{index}",
                cpuset=given.numa.status.cpuset,
                numa_resources=given.numa.status.numa_node_resources,
            )
            table.put(row, NodeOffer(table.rows[row].numa.adding(holder)))
            placed += 1
        return placed

    def time_place(self) -> None:
        assert self._place() == 5000

    def track_placed(self) -> int:
        return self._place()

    track_placed.unit = "pods"  # type: ignore[attr-defined]


class OneNode:
    """Fit of one pod on one half full node."""

    def setup(self) -> None:
        self.state = state_of(11)
        assert isinstance(fit_numa(self.state, POD), NUMAAllocation)

    def time_fit(self) -> None:
        fit_numa(self.state, POD)

    def time_bind_and_release(self) -> None:
        held = _held(1, 60, 4, "new")
        self.state.adding(held).removing("new")


class WrongRefusals:
    """Pods under Restricted refused although the slow reference finds a placement, on 10,000 random nodes."""

    timeout = 300

    def _counts(self) -> tuple[int, int]:
        feasible = refused = 0
        roomy = NodeAmounts(make_resources({"cpu": 10**9}))
        for seed in range(10_000):
            world = World(seed)
            demand = demand_on(world.request, world.node)
            if isinstance(demand, NUMARefusal) or demand.policy is not NUMATopologyPolicy.RESTRICTED:
                continue
            given = fit_numa(world.state, world.request, roomy)
            if isinstance(given, NUMARefusal) and not given.resolvable:
                continue
            ground = StaticResult(world.node, world.state.allocations, demand)
            exclusive, status = world.request.exclusive_here, world.state.usage.status
            ids = world.node.zone_ids
            masks = [mask for size in range(1, len(ids) + 1) for mask in combinations(ids, size)]
            if any(
                exclusive_allows(mask_of(mask), exclusive, status) and ground.exists(mask) for mask in masks
            ):
                feasible += 1
                refused += isinstance(given, NUMARefusal)
        return feasible, refused

    def track_refused(self) -> int:
        feasible, refused = self._counts()
        assert feasible > 1000
        return refused

    track_refused.unit = "pods"  # type: ignore[attr-defined]
