"""The accumulator hands out the reference's CPUs (worked examples of upstream's table tests)."""

from __future__ import annotations

import pytest

from koordcore.allocators.cpu_wish import CPUShortage, CPUWish
from koordcore.allocators.cpuset import (
    allocate_cpus,
    available_cpus,
    satisfies_bind_policy,
    suitable_cpus,
    take_cpus,
)
from koordcore.errors import ManifestError
from koordcore.model.numa import (
    CPUBindPolicy,
    CPUExclusivePolicy,
    CPUHoldings,
    NUMAAllocateStrategy,
)
from koordcore.topology.cpu import format_cpulist, parse_cpulist
from tests.numa.worlds import topology

FULL, SPREAD = CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS
MOST, LEAST = NUMAAllocateStrategy.MOST_ALLOCATED, NUMAAllocateStrategy.LEAST_ALLOCATED
EVEN = NUMAAllocateStrategy.DISTRIBUTE_EVENLY
NONE, PCPU, NUMA = CPUExclusivePolicy

Shape = tuple[int, int, int, int]


def take(
    shape: Shape,
    taken: str,
    count: int,
    policy: CPUBindPolicy,
    strategy: NUMAAllocateStrategy = MOST,
    *,
    exclusive: CPUExclusivePolicy = NONE,
    required: bool = False,
    held_as: CPUExclusivePolicy = NONE,
    preferred: str = "",
) -> str:
    holdings = CPUHoldings().taking(parse_cpulist(taken), held_as)
    wish = CPUWish(bind_policy=policy, strategy=strategy, exclusive=exclusive, required=required)
    found = allocate_cpus(topology(*shape), holdings, count, wish, preferred=parse_cpulist(preferred))
    return str(found) if isinstance(found, CPUShortage) else format_cpulist(found)


WORKED: list[tuple[str, Shape, str, int, CPUBindPolicy, NUMAAllocateStrategy, str]] = [
    ("equal nodes go by their socket, most", (2, 2, 4, 2), "0-5,16-23", 6, FULL, MOST, "24-29"),
    ("equal nodes go by their socket, least", (2, 2, 4, 2), "0-5,16-23", 6, FULL, LEAST, "8-13"),
    ("largest socket whole, rest core by core", (2, 2, 4, 2), "0-5,16-23", 12, FULL, MOST, "6-15,24-25"),
    ("fullest node", (2, 2, 4, 2), "0-3,8-11", 4, FULL, MOST, "4-7"),
    ("emptiest node", (2, 2, 4, 2), "0-3,8-11", 4, FULL, LEAST, "16-19"),
    ("two complete cores on one socket", (2, 2, 2, 2), "0,2,4,8,12", 4, FULL, MOST, "10-11,14-15"),
    ("tail from the fullest node", (2, 2, 2, 2), "0,2,4,8,10,12", 6, FULL, MOST, "5-7,13-15"),
    ("tail from the emptiest node", (2, 2, 2, 2), "0,2,4,8,10,12", 6, FULL, LEAST, "1,3,6-7,14-15"),
    ("spread fills the fuller node", (2, 1, 4, 2), "0,2", 4, SPREAD, MOST, "1,3-4,6"),
    ("spread takes the empty node", (2, 1, 4, 2), "0,2", 4, SPREAD, LEAST, "8,10,12,14"),
    ("siblings inside the node", (2, 1, 4, 2), "0,2", 6, SPREAD, MOST, "1,3-7"),
    ("perfect spread elsewhere", (2, 1, 4, 2), "0-3", 4, SPREAD, MOST, "8,10,12,14"),
    ("odd count splits one core", (1, 1, 4, 2), "", 3, FULL, MOST, "0-2"),
    ("an odd rest on a third socket is not doubled", (3, 1, 4, 2), "", 13, FULL, MOST, "0-12"),
    ("complete cores beat nearness", (2, 1, 4, 2), "0,2,8,10", 6, FULL, MOST, "4-7,12-13"),
    ("the second node round wins", (1, 2, 2, 2), "", 4, SPREAD, MOST, "0-3"),
    ("one thread per core: both start with cores", (2, 1, 4, 1), "0", 6, SPREAD, MOST, "1-2,4-7"),
    ("distribute evenly orders as least", (2, 1, 4, 2), "0-1", 4, FULL, EVEN, "8-11"),
    ("fullest socket", (2, 2, 2, 2), "0-1", 6, FULL, MOST, "2-7"),
    ("emptiest socket", (2, 2, 2, 2), "0-1", 6, FULL, LEAST, "8-13"),
    ("a whole socket before parts of two", (2, 2, 2, 2), "0", 8, SPREAD, MOST, "8-15"),
    ("tail alternates sockets", (2, 1, 4, 2), "0,8", 10, SPREAD, MOST, "1-6,9-10,12,14"),
]


@pytest.mark.parametrize("row", WORKED, ids=[row[0] for row in WORKED])
def test_worked_examples(
    row: tuple[str, Shape, str, int, CPUBindPolicy, NUMAAllocateStrategy, str],
) -> None:
    """The ids of the reference, but for the odd rest."""
    _, shape, taken, count, policy, strategy, expected = row
    assert take(shape, taken, count, policy, strategy) == expected


def test_exclusive_cores_are_avoided_while_others_remain() -> None:
    """PCPULevel keeps off cores held with the same wish, not off plain neighbours."""
    assert take((2, 1, 8, 2), "0,2", 4, SPREAD, MOST, exclusive=PCPU, held_as=PCPU) == "4,6,8,10"
    assert take((2, 1, 8, 2), "0,2", 4, SPREAD, MOST, held_as=PCPU) == "1,3-4,6"
    assert take((1, 1, 4, 2), "0,2,4,6", 2, SPREAD, MOST, exclusive=PCPU, held_as=PCPU) == "1,3"


def test_exclusive_nodes_are_avoided_while_others_remain() -> None:
    """NUMANodeLevel keeps off NUMA nodes held with the same wish."""
    assert take((2, 1, 4, 2), "0,2", 4, FULL, MOST, exclusive=NUMA, held_as=NUMA) == "8-11"
    assert take((2, 1, 4, 2), "0,2", 4, FULL, MOST, held_as=NUMA) == "4-7"


def test_least_referenced_cores_come_first() -> None:
    """A CPU with two holders allowed: Full 4, Full 5, Full 4 in turn."""
    machine = topology(1, 1, 4, 2)
    holdings = CPUHoldings()
    wish = CPUWish(max_ref_count=2, strategy=MOST)
    given = []
    for count in (4, 5, 4):
        free = available_cpus(machine, holdings, max_ref_count=2)
        cpus = take_cpus(machine, free, count, wish, holdings)
        assert not isinstance(cpus, CPUShortage)
        holdings = holdings.taking(cpus, NONE)
        given.append(format_cpulist(cpus))
    assert given == ["0-3", "0,4-7", "2-5"]
    assert holdings.giving_back(parse_cpulist("0-3")).held_by(2) == parse_cpulist("4-5")


def test_required_policies() -> None:
    """Only what has the shape is offered, and the answer has it."""
    short = "not enough cpus available to satisfy request"
    assert take((1, 2, 2, 2), "", 4, SPREAD, MOST, required=True) == "0,2,4,6"
    assert take((1, 1, 4, 2), "0,2,4", 4, FULL, MOST, required=True) == short
    assert take((1, 1, 4, 2), "0", 4, FULL, MOST, required=True) == "2-5"


def test_an_odd_count_of_whole_cores_has_not_the_shape() -> None:
    """Filter refuses it beforehand; here the shape does."""
    assert take((1, 1, 4, 2), "", 3, FULL, required=True) == CPUShortage.FULL_PCPUS


def test_preferred_cpus_come_first() -> None:
    """Preferred CPUs beat whole cores; the rest knows nothing of where they are."""
    assert take((1, 1, 4, 2), "", 2, FULL, preferred="1,3") == "1,3"
    assert take((1, 1, 4, 2), "", 2, FULL, preferred="1-3") == "2-3"
    assert take((2, 1, 4, 2), "12-15", 4, FULL, preferred="0-1") == "0-1,8-9"


def test_per_node_counts_bind() -> None:
    """As many CPUs on each NUMA node as were asked for there, or none."""
    machine = topology(2, 1, 4, 2)
    wish = CPUWish()
    assert allocate_cpus(machine, CPUHoldings(), 4, wish, per_node=[(0, 2), (1, 2)]) == parse_cpulist(
        "0-1,8-9"
    )
    held = CPUHoldings().taking(parse_cpulist("0-6"), NONE)
    assert allocate_cpus(machine, held, 4, wish, per_node=[(0, 2), (1, 2)]) is CPUShortage.NOT_ENOUGH


def test_shapes() -> None:
    """Whole cores, one CPU of each, or anything."""
    machine = topology(1, 1, 4, 2)
    assert satisfies_bind_policy(machine, 0b1111, FULL)
    assert not satisfies_bind_policy(machine, 0b0111, FULL)
    assert satisfies_bind_policy(machine, 0b0101, SPREAD)
    assert not satisfies_bind_policy(machine, 0b0011, SPREAD)
    assert satisfies_bind_policy(machine, 0b0111, CPUBindPolicy.DEFAULT)
    assert suitable_cpus(machine, 0b0111, CPUBindPolicy.DEFAULT) == 0b0111


def test_nothing_wanted_nothing_given() -> None:
    """Zero CPUs are no shortage; more than there are is one."""
    machine = topology(1, 1, 1, 2)
    assert take_cpus(machine, 0b11, 0, CPUWish()) == 0
    assert take_cpus(machine, 0b11, 3, CPUWish()) is CPUShortage.NOT_ENOUGH


@pytest.mark.parametrize("text", ["+1", "0-+3", "-1", "\u0663", "1_0"])
def test_numbers_of_a_cpu_list_have_digits_only(text: str) -> None:
    """A sign, which an integer parser would take, is a typing error here."""
    with pytest.raises(ManifestError, match="expected a number"):
        parse_cpulist(text)
