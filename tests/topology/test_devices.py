"""Where devices sit: switches, NUMA nodes, scopes."""

from __future__ import annotations

from koordcore.topology.devices import HOPPER_PARTITIONS, DeviceLayout, TopologyScope, bits, lowest

STD8 = DeviceLayout([(minor, (minor // 4, str(minor // 2))) for minor in range(8)])


def test_switches_come_by_numa_node_and_then_by_pcie_id_as_text() -> None:
    """``10`` is before ``2``; one PCIe id under two NUMA nodes is two switches."""
    layout = DeviceLayout([(0, (0, "2")), (1, (0, "10")), (2, (1, "2")), (3, (-1, "x"))])
    assert [(one.numa, one.pcie) for one in layout.switches] == [(-1, "x"), (0, "10"), (0, "2"), (1, "2")]
    assert layout.pcie_masks["2"] == 0b101
    assert layout.numa_nodes(-1) == 0b11


def test_spread_and_scopes() -> None:
    """Two cards of one switch, of one socket, of two sockets."""
    assert STD8.spread(0b11) == (1, 1)
    assert STD8.spread(0b101) == (1, 2)
    assert STD8.spread(0b10001) == (2, 2)
    assert STD8.within(0b11, TopologyScope.PCIE)
    assert not STD8.within(0b101, TopologyScope.PCIE)
    assert STD8.within(0b101, TopologyScope.NUMA_NODE)
    assert not STD8.within(0b10001, TopologyScope.NUMA_NODE)
    assert STD8.within(0b10001, TopologyScope.NODE)
    assert STD8.within(0b1, TopologyScope.DEVICE)
    assert not STD8.within(0b11, TopologyScope.DEVICE)


def test_affinity_admits_unknown_numa_nodes_but_no_unknown_place() -> None:
    """Upstream's filter."""
    layout = DeviceLayout([(0, (0, "0")), (1, (1, "1")), (2, (-1, "2")), (3, None)])
    assert layout.numa_filter(0b10) == 0b110
    assert not layout.complete
    assert STD8.complete
    assert not DeviceLayout([]).complete


def test_unknown_words_ask_for_a_known_topology_only() -> None:
    """Level by word."""
    assert TopologyScope.of("NUMANode") is TopologyScope.NUMA_NODE
    assert TopologyScope.of("Rack") is TopologyScope.NODE


def test_bits() -> None:
    """Lowest first."""
    assert list(bits(0b10110)) == [1, 2, 4]
    assert lowest(0b10110, 2) == 0b110
    assert lowest(0b1, 0) == 0


def test_hopper_partitions_cover_the_board() -> None:
    """Every size covers eight cards once."""
    for size, groups in HOPPER_PARTITIONS.items():
        assert sorted(minor for group in groups for minor in group) == list(range(8))
        assert all(len(group) == size for group in groups)
