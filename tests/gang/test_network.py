"""The layered tree, hints, nearness, and PodGroup phases."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from koordcore.allocators.gang.nearness import nearness_positions, nearness_scores
from koordcore.allocators.gang.podgroup import MemberPhase, examined, next_status
from koordcore.errors import ManifestError, ModelError
from koordcore.model.gangs import PodGroup, PodGroupStatus
from koordcore.protocol.hints import SchedulingHint, parse_scheduling_hint
from koordcore.protocol.network_topology import parse_cluster_network_topology
from koordcore.topology.network import (
    CLUSTER_LAYER,
    NODE_LAYER,
    LayerSpec,
    build_tree,
    order_layers,
    tree_status,
)
from tests.property.gang_strategies import networks, tree_of
from tests.reference.fit_errors import fit_error
from tests.reference.network_layers import is_ancestor
from tests.reference.scheduling_hints import apply_hint, merge_node_sets, preferred_nodes

LAYERS = [
    LayerSpec("SpineLayer", ("spine",)),
    LayerSpec("BlockLayer", ("block", "rack"), "SpineLayer"),
    LayerSpec(NODE_LAYER, (), "BlockLayer"),
]


def test_layers_are_ordered_by_their_parents() -> None:
    assert [layer.layer for layer in order_layers(LAYERS[::-1])] == ["SpineLayer", "BlockLayer", NODE_LAYER]
    with pytest.raises(ModelError, match='topology layer "BlockLayer" not found in spec'):
        order_layers(LAYERS[2:] + LAYERS[:1])
    looped = [LayerSpec("A", (), "B"), LayerSpec("B", (), "A"), LayerSpec(NODE_LAYER, (), "A")]
    with pytest.raises(ModelError, match="cycle: A > B > A"):
        order_layers(looped)


def test_label_defects_are_reported() -> None:
    labels = {
        "n1": {"spine": "s1", "block": "b1"},
        "n2": {"spine": "s2", "block": "b1"},
        "n3": {"spine": "s1", "block": "", "rack": "r1"},
        "n4": {"spine": "s1"},
        "n5": {"block": "b1"},
    }
    tree = build_tree(order_layers(LAYERS), labels)
    assert tree.nodes == ("n1", "n4", "n3", "n2")
    assert [tree.label(d) for d in tree.path(tree.first_node + tree.node_index["n3"])] == [
        "SpineLayer/s1", "BlockLayer/r1", f"{NODE_LAYER}/n3"
    ]  # fmt: skip
    assert [str(problem) for problem in tree.problems] == [
        "Node n4: metadata.labels: no label block or rack: the node is a BlockLayer of its own",
        "Node n5: metadata.labels: no label spine: the node is outside the network topology",
        "metadata.labels: BlockLayer b1 occurs in s1, s2: they are told apart",
    ]


def test_a_virtual_block_never_merges_with_a_real_one() -> None:
    labels = {"n1": {"spine": "s", "block": "n2"}, "n2": {"spine": "s"}}
    tree = build_tree(order_layers(LAYERS), labels)
    assert len(tree.domains_at(2)) == 2
    assert tree.virtual.sum() == 1


@given(networks(6))
def test_flat_arrays_say_what_the_paths_say(paths: tuple[tuple[str, ...], ...]) -> None:
    tree = tree_of(paths)
    assert sorted(tree.nodes) == sorted(path[-1] for path in paths)
    by_name = {path[-1]: path for path in paths}
    for position, node in enumerate(tree.nodes):
        path = tree.path(tree.first_node + position)
        assert tuple(tree.names[domain] for domain in path) == by_name[node]
        assert tree.ancestors[1:, position].tolist() == list(path)
    ones = np.ones(len(tree.nodes), dtype=np.int64)
    totals = tree.sum_up(ones)
    for domain in range(len(tree)):
        if domain < tree.first_node:
            assert totals[domain] == sum(totals[child] for child in tree.children(domain))
        for child in tree.children(domain):
            assert tree.parent[child] == domain
    status = tree_status(tree)
    assert status[0].node_count == len(paths)
    assert len(status) == tree.first_node


def test_unknown_layers_count_as_topmost() -> None:
    layers = ("S", "B", "N")
    assert is_ancestor(layers, "S", "N")
    assert is_ancestor(layers, CLUSTER_LAYER, "B")
    assert not is_ancestor(layers, CLUSTER_LAYER, "S")


def test_a_scalar_label_key_is_an_error_with_its_path() -> None:
    raw = {"spec": {"networkTopologySpec": [{"topologyLayer": "S", "labelKey": "spine"}]}}
    with pytest.raises(ManifestError, match=r"spec.networkTopologySpec\[0\].labelKey: expected list"):
        parse_cluster_network_topology(raw)


def test_a_root_without_layers() -> None:
    tree = build_tree((), {"n": {}})
    assert (len(tree), tree.nodes, tree_status(tree)[0].node_count) == (1, (), 0)


def test_hints_restrict_first_and_prefer_then() -> None:
    hint = SchedulingHint(node_names=("n1", "n2"), preferred_node_names=("n3", "n2"))
    outcome = apply_hint(hint, {"Other": None}, known={"n1", "n2", "n3"}, fits=lambda _: True)
    assert outcome.nodes == ("n2",)
    nobody = apply_hint(hint, {"Other": None}, known={"n1", "n2"}, fits=lambda _: False)
    assert nobody.nodes == ("n1", "n2")
    clash = apply_hint(hint, {"Other": ["n9"]}, known={"n1"}, fits=lambda _: True)
    assert clash.message == "node(s) didn't satisfy plugin(s) [Other SchedulingHint] simultaneously"
    assert preferred_nodes(hint, None, limit=1) == ("n3",)
    assert merge_node_sets({}).nodes is None


def test_illegal_hints_are_errors_and_empty_ones_none() -> None:
    key = "internal.scheduling.koordinator.sh/scheduling-hint"
    assert parse_scheduling_hint({key: ""}) is None
    assert parse_scheduling_hint({key: "null"}) == SchedulingHint()
    with pytest.raises(ManifestError, match="expected list"):
        parse_scheduling_hint({key: '{"nodeNames":"n1"}'})


def test_near_nodes_score_higher_and_strangers_come_last() -> None:
    tree = tree_of((("s1", "b1", "n1"), ("s1", "b2", "n2"), ("s2", "b3", "n3")))
    positions = nearness_positions(tree, ["n3", "n1", "out", "n2"], {"n2": 1, "elsewhere": 9})
    assert positions == {"n2": 0, "n1": 1, "n3": 2, "out": 3}
    assert nearness_scores(positions) == {"n2": 100, "n1": 67, "n3": 34, "out": 0}
    assert set(nearness_scores(nearness_positions(None, ["a", "b"], {})).values()) == {100}
    assert nearness_positions(tree, ["out"], {}) == {"out": 0}


def test_fit_errors_count_every_reason() -> None:
    assert fit_error(3, {"a": ["X", "Y"], "b": ["X"]}) == "0/3 nodes are available: 1 Y, 2 X."
    assert fit_error(0, {}) == "0/0 nodes are available:"


def phase_of(status: PodGroupStatus, members: list[MemberPhase], least: int = 2) -> str | None:
    group = PodGroup(namespace="a", name="g", min_member=least, status=status)
    after = next_status(group, members, now="2024-01-01T00:00:00Z")
    return None if after is None else after.phase


def test_phases() -> None:
    two = [MemberPhase(key=f"a/p{n}", phase="Running", bound=True, owners=("a/job",)) for n in range(2)]
    assert phase_of(PodGroupStatus(), two) == "Pending"
    assert phase_of(PodGroupStatus(phase="Pending"), two) == "PreScheduling"
    assert phase_of(PodGroupStatus(phase="Pending"), two, least=0) == "Pending"
    assert phase_of(PodGroupStatus(phase="PreScheduling"), two) == "Running"
    assert phase_of(PodGroupStatus(phase="Running"), []) == "Pending"
    assert phase_of(PodGroupStatus(phase="Finished"), two) is None
    late = PodGroupStatus(phase="Scheduled", scheduled=2, schedule_start_time="2024-01-03T00:00:01Z")
    stale = PodGroup(namespace="a", name="g", min_member=2, created="2024-01-01T00:00:00Z", status=late)
    assert not examined(stale)


@pytest.mark.parametrize(
    ("created", "started", "left"),
    [
        ("2024-01-01T00:00:00Z", "2024-01-03T00:00:00Z", False),
        ("2024-01-01T00:00:00Z", "2024-01-03T08:00:00+08:00", False),
        ("2024-01-01T00:00:00+08:00", "2024-01-03T00:00:00Z", True),
        ("2024-01-01T00:00:00", "2024-01-03T00:00:00Z", False),
        ("2024-01-01T00:00:00", "2024-01-03T00:00:01+00:00", True),
    ],
)
def test_two_days_are_counted_across_time_zones(created: str, started: str, left: bool) -> None:
    """A time without a zone is UTC; after two days to the second the group is not looked at again."""
    status = PodGroupStatus(phase="Scheduled", scheduled=2, schedule_start_time=started)
    group = PodGroup(namespace="a", name="g", min_member=2, created=created, status=status)
    assert examined(group) is not left
