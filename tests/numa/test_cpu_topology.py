"""CPU lists and where CPUs sit."""

from __future__ import annotations

import pytest

from koordcore.errors import ManifestError
from koordcore.topology.cpu import (
    NO_TOPOLOGY,
    CPUTopology,
    cpuset_of,
    format_cpulist,
    lowest_cpus,
    parse_cpulist,
)
from tests.numa.worlds import topology
from tests.reference.cpu_masks import cpu_ids


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("", ""), ("3,1,2", "1-3"), ("007", "7"), ("0-3,2-6", "0-6"), ("5-2", ""), ("8-8,10", "8,10")],
)
def test_a_list_is_written_in_canonical_form(text: str, canonical: str) -> None:
    """Ascending, runs merged; a reversed range holds nothing."""
    assert format_cpulist(parse_cpulist(text)) == canonical


@pytest.mark.parametrize("text", ["1,", " 1", "1, 2", "0x1", "1-3-4", "-1", "a", "1.5", "²", "1-"])
def test_what_is_no_list_is_refused(text: str) -> None:
    """Blanks, empty items, hex, foreign digits and open ranges are errors."""
    with pytest.raises(ManifestError):
        parse_cpulist(text)


def test_ranges_end_at_4096_and_numbers_at_a_million() -> None:
    """The reference bounds ranges only; a number is bounded so that a set stays small."""
    assert parse_cpulist("4097") == 1 << 4097
    assert parse_cpulist("0-4096").bit_count() == 4097
    with pytest.raises(ManifestError, match="4096"):
        parse_cpulist("0-4097")
    with pytest.raises(ManifestError, match="out of range"):
        parse_cpulist("99999999999")


def test_sets_are_integers() -> None:
    """Members, and the first few of them."""
    cpus = cpuset_of([9, 2, 5])
    assert cpu_ids(cpus) == (2, 5, 9)
    assert lowest_cpus(cpus, 2) == cpuset_of([2, 5])
    assert lowest_cpus(cpus, 7) == cpus
    assert lowest_cpus(cpus, 0) == 0


def test_averages_of_an_even_machine() -> None:
    """Two sockets of two NUMA nodes of four cores of two threads."""
    machine = topology(2, 2, 4, 2)
    assert (machine.num_cpus, machine.num_cores, machine.num_nodes, machine.num_sockets) == (32, 16, 4, 2)
    assert (machine.cpus_per_core, machine.cpus_per_node, machine.cpus_per_socket) == (2, 8, 16)
    assert machine.on_node(1) == parse_cpulist("8-15")
    assert machine.valid


def test_core_ids_count_within_their_socket() -> None:
    """Both sockets report core 0; they are two cores."""
    machine = CPUTopology.of([(0, 0, 0, 0), (1, 0, 1, 1)])
    assert machine.num_cores == 2
    assert machine.complete_cores(0b11) == 0b11


def test_a_core_id_reported_on_two_numa_nodes_is_never_complete() -> None:
    """It counts as two cores and is one by identity."""
    machine = CPUTopology.of([(0, 0, 0, 0), (1, 0, 0, 0), (2, 0, 1, 0), (3, 0, 1, 0)])
    assert machine.num_cores == 2
    assert machine.complete_cores(0b1111) == 0


def test_offline_threads_lower_the_average() -> None:
    """With three CPUs on two cores a core is complete with exactly one."""
    machine = CPUTopology.of([(0, 0, 0, 0), (1, 0, 0, 0), (2, 1, 0, 0)])
    assert machine.cpus_per_core == 1
    assert machine.complete_cores(0b111) == 0b100
    assert machine.first_of_each_core(0b110) == 0b110


def test_no_topology_is_not_valid() -> None:
    """Nothing can be handed out, and averages are 0."""
    assert not NO_TOPOLOGY.valid
    assert NO_TOPOLOGY.cpus_per_core == 0
    assert NO_TOPOLOGY.all_cpus == 0


def test_more_cores_than_cpus_are_no_topology() -> None:
    """Two rows of one CPU that name different cores: nobody is told how many CPUs a core has."""
    machine = CPUTopology.of([(0, 0, 0, 0), (0, 0, 1, 1)])
    assert (machine.num_cpus, machine.num_cores) == (1, 2)
    assert not machine.valid


def test_equal_topologies_are_equal_values() -> None:
    """Whatever the order of the rows."""
    rows = [(0, 0, 0, 0), (1, 1, 0, 0), (2, 2, 1, 1)]
    assert CPUTopology.of(rows) == CPUTopology.of(rows[::-1])
    assert hash(CPUTopology.of(rows)) == hash(CPUTopology.of(rows[::-1]))
    assert repr(CPUTopology.of(rows)) == "CPUTopology(3 cpus, 3 cores, 2 NUMA nodes, 2 sockets)"
    assert [info.cpu for info in CPUTopology.of(rows)] == [0, 1, 2]
