"""The accumulator on bit sets takes the very CPUs that the one on lists takes."""

from __future__ import annotations

import random

from hypothesis import given, settings, strategies as st

from koordcore.allocators.cpu_wish import CPUShortage, CPUWish
from koordcore.allocators.cpuset import available_cpus, take_cpus
from koordcore.model.numa import (
    CPUBindPolicy,
    CPUExclusivePolicy,
    CPUHoldings,
    NUMAAllocateStrategy,
)
from koordcore.topology.cpu import CPUTopology, cpuset_of
from tests.numa.worlds import topology
from tests.reference.cpu_accumulator import Accumulator
from tests.reference.cpu_masks import cpu_ids


def _machine(draw: random.Random) -> CPUTopology:
    """Up to three sockets, NUMA nodes and five cores each, one to four threads, some threads offline."""
    shape = draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 5), draw.choice([1, 2, 2, 4])
    whole = topology(*shape, interleaved=draw.random() < 0.5)
    offline = draw.random() < 0.3
    rows = [
        (info.cpu, info.core & 0xFFFF, info.numa, info.socket)
        for info in whole
        if info.cpu == 0 or not offline or draw.random() < 0.85
    ]
    return CPUTopology.of(rows)


@settings(max_examples=57, deadline=None)
@given(st.integers(0, 2**32))
def test_same_cpus_as_on_lists(seed: int) -> None:
    draw = random.Random(seed)
    machine = _machine(draw)
    beyond = machine.cpus[-1].cpu + 2  # one CPU that the topology does not know
    holdings = CPUHoldings()
    held: dict[int, tuple[int, str]] = {}
    for _ in range(draw.randint(0, 5)):
        cpus = draw.sample(range(beyond), draw.randint(1, min(6, beyond)))
        exclusive = draw.choice(list(CPUExclusivePolicy))
        holdings = holdings.taking(cpuset_of(cpus), exclusive)
        for cpu in cpus:
            held[cpu] = held.get(cpu, (0, ""))[0] + 1, exclusive
    often = draw.choice([1, 1, 2, 3])
    free = available_cpus(machine, holdings, max_ref_count=often)
    count = draw.randint(0, free.bit_count() + 1)
    wish = CPUWish(
        bind_policy=draw.choice([CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS]),
        exclusive=draw.choice(list(CPUExclusivePolicy)),
        strategy=draw.choice(list(NUMAAllocateStrategy)),
        max_ref_count=often,
    )
    taken = take_cpus(machine, free, count, wish, holdings)
    counts = machine.num_cores, machine.num_nodes, machine.num_sockets
    expected = Accumulator(machine.cpus, counts, cpu_ids(free), held).take(
        count,
        full=wish.bind_policy is CPUBindPolicy.FULL_PCPUS,
        sign=1 if wish.strategy is NUMAAllocateStrategy.MOST_ALLOCATED else -1,
        exclusive="" if wish.exclusive is CPUExclusivePolicy.NONE else wish.exclusive,
        shared=often > 1,
    )
    assert (None if isinstance(taken, CPUShortage) else list(cpu_ids(taken))) == expected
