"""Placement of gangs: the spec's worked examples and the edges."""

from __future__ import annotations

import attrs
import numpy as np
import pytest

from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import (
    GangDemand,
    GangPlacement,
    GangShortfall,
    Member,
    Role,
    Shape,
    rank_order,
)
from koordcore.allocators.gang.planner import place_gang
from koordcore.allocators.gang.slots import shared_slots
from koordcore.errors import ModelError
from koordcore.model.certificates import CertificateStatus, Limits
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.model.naming import natural_key
from koordcore.topology.network import LayerSpec, NetworkTopology, build_tree
from tests.property.gang_strategies import tree_of
from tests.reference.fit_errors import insufficient
from tests.reference.gang_slots import offer_slots


def tree(**blocks: tuple[str, list[str]]) -> NetworkTopology:
    """Blocks by name: their spine and their nodes."""
    return tree_of(tuple((spine, name, node) for name, (spine, nodes) in blocks.items() for node in nodes))


EIGHT = tree(
    b1=("s1", ["node-1", "node-8"]),
    b2=("s1", ["node-2", "node-7"]),
    b3=("s2", ["node-3", "node-6"]),
    b4=("s2", ["node-4", "node-5"]),
)


def uniform(
    network: NetworkTopology,
    slots: dict[str, int] | int,
    size: int,
    *rules: GatherRule,
    least: int | None = None,
    bound: dict[str, int] | None = None,
    names: tuple[str, ...] = (),
) -> GangDemand:
    offered = [slots if isinstance(slots, int) else slots.get(node, 0) for node in network.nodes]
    members = tuple(Member(f"d/{name}") for name in names or [f"w-{number}" for number in range(size)])
    return GangDemand(
        roles=(Role(name="g", members=members, min_available=size if least is None else least),),
        shapes=(Shape(slots=np.array(offered, dtype=np.int64)),),
        spec=NetworkTopologySpec(rules),
        bound=np.array([(bound or {}).get(node, 0) for node in network.nodes], dtype=np.int64),
    )


def placed(network: NetworkTopology, demand: GangDemand) -> GangPlacement:
    answer = place_gang(network, demand)
    assert isinstance(answer, GangPlacement), answer
    assert placement_violations(network, demand, answer.nodes) == ()
    return answer


def test_four_members_fill_one_spine_in_name_order() -> None:
    nodes = placed(EIGHT, uniform(EIGHT, 1, 4)).nodes
    assert list(nodes.values()) == ["node-1", "node-8", "node-2", "node-7"]


def test_one_node_beats_a_block() -> None:
    answer = placed(EIGHT, uniform(EIGHT, 2, 2))
    assert set(answer.nodes.values()) == {"node-1"}
    assert answer.domains == {"SpineLayer": 1, "BlockLayer": 1, "NodeTopologyLayer": 1}


def test_a_spine_too_small_is_explained() -> None:
    slots = dict.fromkeys(EIGHT.nodes, 1) | {"node-1": 0, "node-6": 0}
    answer = place_gang(
        EIGHT, uniform(EIGHT, slots, 4, GatherRule("SpineLayer", "MustGather")), fit_error="E."
    )
    assert isinstance(answer, GangShortfall)
    assert answer.message == (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 4, "
        "topology topologyNode SpineLayer/s1: 3;topology topologyNode SpineLayer/s2: 3, E."
    )
    assert answer.detail == "the best SpineLayer, s1, has 3 of 4 slots; 1 more would do"
    assert (answer.desired, answer.placeable) == (4, 3)
    assert answer.certificate.status is CertificateStatus.INFEASIBLE


def test_what_a_node_does_not_take_holds_for_equal_members_too() -> None:
    """Both nodes offer two slots, and neither takes two."""
    pair = tree(x=("s", ["a", "b"]))
    demand = attrs.evolve(uniform(pair, 2, 2), conflicts=((0, (2,)), (1, (2,))))
    assert sorted(placed(pair, demand).nodes.values()) == ["a", "b"]


@pytest.mark.parametrize(
    ("size", "rules", "slots", "detail"),
    [
        (
            4,
            {"BlockLayer": 4},
            (3, 3),
            "the cluster has 6 slots, room for 0 of 4 members {}; 1 more would do",
        ),
        (
            8,
            {"BlockLayer": 4},
            (3, 6),
            "the cluster has 9 slots, room for 4 of 8 members {}; 1 more would do",
        ),
        (
            8,
            {"BlockLayer": 4},
            (2, 5),
            "the cluster has 7 slots, room for 4 of 8 members {}; 2 more would do",
        ),
        (
            6,
            {"BlockLayer": 4},
            (9, 9),
            "the cluster has 12 slots, yet at most 4 of 6 members fit together {}",
        ),
        (
            4,
            {"BlockLayer": 4, "NodeTopologyLayer": 2},
            (3, 1),
            "the cluster has 4 slots, room for 0 of 4 members {}; 1 more would do",
        ),
    ],
)
def test_a_refusal_under_a_multiple_says_what_is_there_and_what_mends_it(
    size: int, rules: dict[str, int], slots: tuple[int, int], detail: str
) -> None:
    """Raw slots, the multiple by name, and the fewest further slots."""
    blocks = tree(x=("s", ["x1"]), y=("s", ["y1"]))
    given = [GatherRule(layer, "PreferGather", multiple) for layer, multiple in rules.items()]
    answer = place_gang(blocks, uniform(blocks, dict(zip(("x1", "y1"), slots, strict=True)), size, *given))
    assert isinstance(answer, GangShortfall)
    told = "with podCountMultiple " + ", ".join(f"{layer}={m}" for layer, m in sorted(rules.items()))
    assert answer.detail == detail.format(told)


def test_an_undeclared_layer_never_gathers() -> None:
    answer = place_gang(EIGHT, uniform(EIGHT, 1, 1, GatherRule("Rack", "MustGather")))
    assert isinstance(answer, GangShortfall)
    assert answer.detail == "the network topology has no layer Rack"


def test_fewest_blocks_even_where_best_fit_takes_more() -> None:
    sizes = {"s1/a1": 2, "s1/a2": 2, "s1/a3": 2, "s1/a4": 2, "s2/c1": 6, "s2/c2": 3}
    network = tree_of(
        tuple((*path.split("/"), f"{path[3:]}-{n}") for path, count in sizes.items() for n in range(count))
    )
    assert placed(network, uniform(network, 1, 8)).certificate.objective[:4] == (-8, 1, 2, 8)


def test_the_remainder_takes_the_tightest_block() -> None:
    network = tree_of(
        tuple(
            ("s", block, f"{block}-{n}")
            for block, count in (("x", 6), ("y", 5), ("z", 2))
            for n in range(count)
        )
    )
    nodes = placed(network, uniform(network, 1, 8)).nodes.values()
    assert {node[0] for node in nodes} == {"x", "z"}


def test_preferences_come_in_their_order() -> None:
    network = tree_of(
        (("s1", "a", "a0"), ("s1", "b", "b0"), ("s1", "c", "c0"), ("s2", "d", "d0"), ("s2", "d", "d1"),
         ("s3", "e", "e0"))
    )  # fmt: skip
    spines_first = placed(network, uniform(network, 1, 3))
    blocks_first = placed(network, uniform(network, 1, 3, GatherRule("BlockLayer")))
    assert spines_first.domains["SpineLayer"] == 1
    assert blocks_first.domains == {"SpineLayer": 2, "BlockLayer": 2, "NodeTopologyLayer": 3}
    assert blocks_first.objective_layers[0] == "BlockLayer"


def test_multiples_hold_above_the_chosen_domain() -> None:
    rule = GatherRule("BlockLayer", "PreferGather", 4)
    answer = place_gang(EIGHT, uniform(EIGHT, 2, 2, rule))
    assert isinstance(answer, GangShortfall)
    assert answer.detail.endswith("at most 0 of 2 members fit together with podCountMultiple BlockLayer=4")
    assert placed(EIGHT, uniform(EIGHT, 2, 4, rule)).domains["BlockLayer"] == 1


def test_the_minimum_is_placed_and_as_many_more_as_fit() -> None:
    answer = placed(EIGHT, uniform(EIGHT, 1, 12, least=5))
    assert (len(answer.nodes), len(answer.left_out)) == (8, 4)
    assert list(answer.nodes) == [f"d/w-{number}" for number in range(8)]
    assert isinstance(place_gang(EIGHT, uniform(EIGHT, 1, 12, least=9)), GangShortfall)


def test_every_role_keeps_its_minimum_when_not_all_fit() -> None:
    early = tuple(Member(f"d/a-{n}", 0, n) for n in range(6))
    late = tuple(Member(f"d/b-{n}", 0, 10 + n) for n in range(6))
    demand = attrs.evolve(
        uniform(EIGHT, 1, 1),
        roles=(
            Role(name="a", members=early, min_available=1),
            Role(name="b", members=late, min_available=4),
        ),
    )
    answer = placed(EIGHT, demand)
    assert [key for key in answer.nodes if "b-" in key] == [f"d/b-{n}" for n in range(4)]


def test_bound_members_cost_nothing_and_hold_the_gang_together() -> None:
    free = placed(EIGHT, uniform(EIGHT, 1, 1, bound={"node-6": 1}))
    assert list(free.nodes.values()) == ["node-6"]
    assert free.certificate.objective[:4] == (-1, 0, 0, 0)
    must = GatherRule("BlockLayer", "MustGather")
    assert isinstance(place_gang(EIGHT, uniform(EIGHT, 1, 3, must, bound={"node-6": 1})), GangShortfall)
    held = placed(EIGHT, uniform(EIGHT, {"node-1": 9, "node-3": 3}, 3, must, bound={"node-6": 1}))
    assert set(held.nodes.values()) == {"node-3"}


def test_consecutive_ranks_lie_together_and_names_compare_naturally() -> None:
    network = tree(b1=("s1", ["n1", "n2", "n3"]))
    names = tuple(f"w-{number}" for number in range(12))
    nodes = placed(network, uniform(network, 4, 12, names=tuple(reversed(names)))).nodes
    assert [nodes[f"d/w-{n}"] for n in range(12)] == ["n1"] * 4 + ["n2"] * 4 + ["n3"] * 4


def test_rank_order() -> None:
    members = [Member("a/w-10"), Member("a/w-2"), Member("a/x", 0, 3), Member("a/y", 0, 1)]
    assert [member.key for member in rank_order(members)] == ["a/y", "a/x", "a/w-2", "a/w-10"]
    assert natural_key("w-02") != natural_key("w-2")
    assert sorted(["1", "a", "", "a1b", "a1", "01"], key=natural_key) == ["", "01", "1", "a", "a1", "a1b"]


@pytest.mark.solver
def test_mixed_members_that_the_prefix_count_misses() -> None:
    network = tree(b1=("s1", ["n1", "n2"]))
    members = (Member("d/a-big", 0), Member("d/b-small", 1), Member("d/c-small", 1))
    demand = GangDemand(
        roles=(Role(name="g", members=members, min_available=3),),
        shapes=(
            Shape(slots=np.array([0, 1]), request=np.array([8])),
            Shape(slots=np.array([2, 2]), request=np.array([1])),
        ),
        free=np.array([[7, 8]]),
        spec=NetworkTopologySpec((GatherRule("BlockLayer", "MustGather"),)),
    )
    assert dict(placed(network, demand).nodes) == {"d/a-big": "n2", "d/b-small": "n1", "d/c-small": "n1"}


@pytest.mark.solver
@pytest.mark.parametrize("own", ["", "NodeTopologyLayer"])
def test_what_a_node_does_not_take_together_is_parted(own: str) -> None:
    network = tree(b1=("s1", ["n1", "n2"]))
    demand = GangDemand(
        roles=(
            Role(name="g", members=(Member("d/a", 0), Member("d/b", 1)), min_available=2),
            Role(name="h", members=(Member("d/c", 1, 9),), min_available=1, must_layer=own),
        ),
        shapes=tuple(Shape(slots=np.array([9, 9]), request=np.array([1])) for _ in range(2)),
        free=np.array([[8, 8]]),
    )
    assert len(set(placed(network, demand).nodes.values())) == 1
    parted = attrs.evolve(demand, conflicts=((0, (1, 1)), (1, (1, 2))))
    assert len(set(placed(network, parted).nodes.values())) == 2
    nowhere = attrs.evolve(demand, conflicts=((0, (1, 0)), (1, (1, 0))))
    assert isinstance(place_gang(network, nowhere), GangShortfall)
    assert placement_violations(network, parted, dict.fromkeys(("d/a", "d/b", "d/c"), "n1"))


def replicas(count: int, each: int, *, free: int, needed: int | None) -> GangDemand:
    """Replicas that gather in a block each, on nodes with one slot; ``free`` nodes per block."""
    offered = [int(int(node.split("-")[1]) <= 2 * free) for node in EIGHT.nodes]
    roles = tuple(
        Role(
            name=f"r{number}",
            members=tuple(Member(f"d/r{number}-{rank}", 0, rank) for rank in range(each)),
            min_available=each,
            must_layer="BlockLayer",
        )
        for number in range(count)
    )
    return GangDemand(
        roles=roles,
        shapes=(Shape(slots=np.array(offered), request=np.array([1])),),
        free=np.array([offered]),
        min_roles=needed,
    )


@pytest.mark.solver
def test_replicas_gather_each_in_a_block_of_its_own() -> None:
    answer = placed(EIGHT, replicas(3, 2, free=4, needed=None))
    blocks = {key[:4]: set() for key in answer.nodes}  # type: ignore[var-annotated]  # filled below
    paths = dict(zip(EIGHT.nodes, EIGHT.ancestors[2].tolist(), strict=True))
    for key, node in answer.nodes.items():
        blocks[key[:4]].add(paths[node])
    assert all(len(used) == 1 for used in blocks.values())


@pytest.mark.solver
def test_k_of_n_replicas_are_enough() -> None:
    assert isinstance(place_gang(EIGHT, replicas(5, 2, free=4, needed=None)), GangShortfall)
    answer = placed(EIGHT, replicas(5, 2, free=4, needed=3))
    assert len(answer.nodes) == 8
    assert isinstance(place_gang(EIGHT, replicas(5, 2, free=4, needed=5)), GangShortfall)


def three_blocks(big: int, small: int, *, free: int = 8, own: str = "") -> GangDemand:
    """Members of 8 and of 2 cards; the big ones may have to share a domain of their own."""
    network = EIGHT
    cards = np.array([free] * 8)
    members = tuple(Member(f"d/big-{n}", 0, n) for n in range(big))
    others = tuple(Member(f"d/small-{n}", 1, n) for n in range(small))
    return GangDemand(
        roles=(
            Role(name="train", members=members, min_available=big, must_layer=own),
            Role(name="load", members=others, min_available=small),
        ),
        shapes=tuple(
            Shape(slots=offer_slots(cards[None, :], np.array([size]), most=99), request=np.array([size]))
            for size in (8, 2)
        ),
        free=np.tile(cards, (1, 1)).reshape(1, len(network.nodes)),
        resources=("nvidia.com/gpu",),
        spec=NetworkTopologySpec(() if own else (GatherRule("BlockLayer", "MustGather"),)),
    )


@pytest.mark.solver
@pytest.mark.parametrize(
    ("demand", "detail"),
    [
        (three_blocks(1, 6), "the best BlockLayer, b1, has 16 of 20 nvidia.com/gpu; 4 more needed"),
        (
            three_blocks(1, 1, free=6),
            "the best BlockLayer, b1, has 0 of 1 slots for members like d/big-0; 1 more needed",
        ),
        (
            three_blocks(3, 1, own="BlockLayer"),
            "train: the best BlockLayer, b1, has 16 of 24 nvidia.com/gpu; 8 more needed",
        ),
        (three_blocks(1, 1, own="Rack"), "train: the network topology has no layer Rack"),
        (
            replicas(5, 3, free=4, needed=3),
            (
                "0 of at least 3 roles can be placed; "
                "r0: the best BlockLayer, b1, has 2 of 3 slots for members like d/r0-0; 1 more needed"
            ),
        ),
    ],
)
def test_the_smallest_reason_of_a_mixed_gang(demand: GangDemand, detail: str) -> None:
    answer = place_gang(EIGHT, demand)
    assert isinstance(answer, GangShortfall)
    assert answer.detail == detail


def test_who_must_join_bound_members_is_told_about_their_block() -> None:
    must = GatherRule("BlockLayer", "MustGather")
    answer = place_gang(EIGHT, uniform(EIGHT, {"node-1": 9, "node-6": 1}, 3, must, bound={"node-6": 1}))
    assert isinstance(answer, GangShortfall)
    assert answer.detail == "the best BlockLayer, b3, has 1 of 3 slots; 2 more would do"


@pytest.mark.solver
def test_the_same_question_gets_the_same_bytes() -> None:
    demand = replicas(4, 2, free=4, needed=2)
    assert repr(place_gang(EIGHT, demand)) == repr(place_gang(EIGHT, demand))


@pytest.mark.solver
def test_a_spent_budget_is_said() -> None:
    answer = place_gang(EIGHT, replicas(4, 2, free=4, needed=None), limits=Limits(1e-9))
    if isinstance(answer, GangPlacement):
        assert answer.certificate.bound <= answer.certificate.objective
    else:
        assert answer.certificate.status is CertificateStatus.HEURISTIC


def test_no_tree_no_place() -> None:
    empty = tree_of((("only",),))
    answer = place_gang(empty, uniform(empty, 0, 1))
    assert isinstance(answer, GangShortfall)
    assert placed(empty, uniform(empty, 0, 1, least=0)).left_out == ("d/w-0",)


def test_demands_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ModelError, match="twice"):
        uniform(EIGHT, 1, 2, names=("x", "x"))
    with pytest.raises(ModelError, match="no shape 3"):
        GangDemand(roles=(Role(name="g", members=(Member("d/x", 3),), min_available=1),), shapes=())
    with pytest.raises(ModelError, match="min_roles"):
        attrs.evolve(uniform(EIGHT, 1, 2), min_roles=4)


def test_violations_are_told() -> None:
    demand = uniform(EIGHT, 1, 2, GatherRule("SpineLayer", "MustGather", 2))
    assert placement_violations(EIGHT, demand, {"d/w-0": "node-1", "d/w-1": "node-1"}) == (
        "node node-1 takes 1 members of shape 0, not 2",
    )
    spread = placement_violations(EIGHT, demand, {"d/w-0": "node-1", "d/w-1": "node-3"})
    assert spread[0] == "the members are spread over SpineLayer/s1, SpineLayer/s2"
    assert spread[1] == "SpineLayer/s1 holds 1 members, no multiple of 2"
    assert placement_violations(EIGHT, demand, {"d/x": "node-1"}) == ("d/x is no member",)
    assert placement_violations(EIGHT, demand, {"d/w-0": "nowhere"}) == (
        "node nowhere has no place in the network topology",
    )
    assert placement_violations(EIGHT, demand, {})[0] == "g has 0 members of at least 2"


def test_slots_are_the_tightest_resource() -> None:
    free = np.array([[32, 16, -4], [8, 1, 8]])
    assert offer_slots(free, np.array([8, 2]), most=9).tolist() == [4, 0, 0]
    assert offer_slots(free, np.array([0, 0]), most=9).tolist() == [9, 9, 9]
    assert insufficient(np.array([1, 0, 5]), np.array([2, 1, 0]), ("cpu", "pods", "gpu")) == (
        "Insufficient cpu",
        "Too many pods",
    )


def test_shared_slots_stop_at_the_first_that_does_not_fit() -> None:
    members = [Member("d/a", 0), Member("d/b", 1), Member("d/c", 1)]
    requests = [np.array([8]), np.array([1])]
    slots = [np.array([0, 1]), np.array([2, 2])]
    assert shared_slots(members, requests, slots, np.array([[7, 8]])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("conflicts", "nodes"),
    [
        (((0, (2,)),), {"w-0": "b", "w-1": "b"}),
        (((0, (2,)), (1, (2,))), {"w-0": "a", "w-1": "b"}),
        (((0, (0,)),), {"w-0": "b", "w-1": "b"}),
        (((0, (2, 1)),), {"w-0": "a", "w-1": "a"}),
    ],
)
def test_members_of_one_shape_keep_to_what_nodes_are_barred_from(
    conflicts: tuple[tuple[int, tuple[int, ...]], ...], nodes: dict[str, str]
) -> None:
    """A bar that counts members of a shape nobody has is never met; one of nothing bars the node."""
    tree = build_tree([LayerSpec("NodeTopologyLayer")], {"a": {}, "b": {}})
    members = tuple(Member(f"w-{number}") for number in range(2))
    shape = Shape(slots=np.array([2, 2]), request=np.array([1]))
    demand = GangDemand(
        roles=(Role(name="w", members=members, min_available=2),),
        shapes=(shape, shape),
        free=np.array([[2, 2]]),
        conflicts=conflicts,
    )
    placed = place_gang(tree, demand)
    assert isinstance(placed, GangPlacement)
    assert dict(placed.nodes) == nodes
    assert placement_violations(tree, demand, placed.nodes) == ()


@pytest.mark.parametrize("others", [0, 3], ids=["alone", "beside a role that has enough"])
def test_a_role_of_fewer_members_than_it_needs_does_not_start(others: int) -> None:
    """However many places there are, and although the other role has as many more."""
    roles = [Role(name="few", members=(Member("d/one", 0, 0),), min_available=2)]
    if others:
        rest = tuple(Member(f"d/m{number}", 0, number) for number in range(1, others + 1))
        roles.append(Role(name="rest", members=rest, min_available=1))
    found = place_gang(EIGHT, GangDemand(roles=tuple(roles), shapes=(Shape(slots=np.full(8, 9)),)))
    assert isinstance(found, GangShortfall)
    assert "role few needs 2 members and has 1" in found.detail
