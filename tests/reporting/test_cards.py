"""Cards are read from every convention, and each says who holds how much of it."""

from __future__ import annotations

from koordcore import ClusterSnapshot, Node, Pod
from koordcore.reporting.cards import Card, CardUse, cards_of
from tests.reporting.clusters import example


def cards_on(node: Node, *pods: Pod) -> tuple[Card, ...]:
    snapshot = ClusterSnapshot(nodes=[node]).assume(*pods)
    return cards_of(snapshot, snapshot.node(node.name))


def test_counted_cards_go_to_their_pods_and_are_marked_as_not_known() -> None:
    node = Node(name="n", allocatable={"pods": 9, "nvidia.com/gpu": 4})
    pods = [
        Pod(name=name, node_name="n", requests={"nvidia.com/gpu": count})
        for name, count in (("a", 1), ("b", 2))
    ]
    held = [one.uses for one in cards_on(node, *pods)]
    assert held == [
        (CardUse("default/a", 1000, exact=False),),
        (CardUse("default/b", 1000, exact=False),),
        (CardUse("default/b", 1000, exact=False),),
        (),
    ]


def test_a_pod_that_asks_for_more_cards_than_are_left_holds_none_of_them() -> None:
    """What is drawn is what can be; the sums of the node say the rest."""
    node = Node(name="n", allocatable={"pods": 9, "nvidia.com/gpu": 2})
    pods = [Pod(name=name, node_name="n", requests={"nvidia.com/gpu": 2}) for name in "ab"]
    assert [use.holder for card in cards_on(node, *pods) for use in card.uses] == ["default/a", "default/a"]


def test_shares_of_one_card_are_thousandths_of_it() -> None:
    """Alibaba's annotations name the card and the share."""
    node = Node(name="n", allocatable={"pods": 9, "alibabacloud.com/gpu-count": 2})
    said = {
        "alibabacloud.com/gpu-index": "1",
        "alibabacloud.com/gpu-milli": "300",
        "alibabacloud.com/gpu-count": "1",
    }
    first, second = cards_on(node, Pod(name="a", node_name="n", annotations=said))
    assert (first.uses, second.uses) == ((), (CardUse("default/a", 300),))
    assert (first.idle, second.idle) == (1000, 700)


def test_partitions_that_a_device_plugin_counts_are_cards_of_their_own() -> None:
    node = Node(name="n", allocatable={"pods": 9, "nvidia.com/mig-1g.10gb": 7})
    found = cards_on(node, Pod(name="a", node_name="n", requests={"nvidia.com/mig-1g.10gb": 2}))
    assert [one.kind for one in found] == ["mig-1g.10gb"] * 7
    assert {one.parts for one in found} == {"partition"}
    assert [bool(one.uses) for one in found] == [True, True, *[False] * 5]


def test_devices_say_where_they_sit_and_who_has_which_of_them() -> None:
    """The example's notebooks share cards, and its NICs stand beside the cards."""
    snapshot = example().snapshot
    found = cards_of(snapshot, snapshot.node("gpu-b1-1"))
    assert [one.kind for one in found] == ["gpu"] * 8 + ["rdma"] * 2
    assert [one.numa for one in found[:8]] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found[0].uses == (CardUse("default/notebook-0", 500), CardUse("default/notebook-1", 500))
    assert found[1].uses == (CardUse("default/notebook-2", 500),)
