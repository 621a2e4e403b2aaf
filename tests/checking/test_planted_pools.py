"""Pools of devices that are not sound, and allocations that do not say what follows from their devices."""

from __future__ import annotations

import attrs
import pytest

from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    ConfigSource,
    DeviceClass,
    DeviceConfig,
    DeviceSubRequest,
    DeviceToleration,
    ResourceClaim,
)
from koordcore.model.device_slices import ResourceSlice
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from tests.checking.test_planted_claims import (
    CARD,
    TIED,
    checker,
    claim,
    device,
    drawing,
    given,
    got,
    pool,
    told,
    wish,
)

WITH_CONFIG = DeviceClass(name="gpu", config=(DeviceConfig((), "d", "{}"),))


@pytest.mark.parametrize(
    ("slices", "wrong"),
    [
        ((pool(device("a"), generation=2), pool(device("z"), name="t", generation=1)), ""),
        ((pool(device("a"), slice_count=2), pool(device("b"), name="t", slice_count=2)), ""),
        ((pool(device("a"), slice_count=2),), "the pool has 1 of 2 slices"),
        (
            (pool(device("a"), slice_count=2), pool(device("b"), name="t", slice_count=2, generation=7)),
            "the pool has 1 of 2 slices",
        ),
        (
            (
                pool(device("a"), slice_count=2),
                pool(device("b"), name="t", node_name="other", slice_count=2, generation=7),
            ),
            "the pool has a newer generation",
        ),
        (
            (pool(device("a"), slice_count=2), pool(device("b"), name="t", node_name="other", slice_count=2)),
            "",
        ),
        (
            (
                pool(device("a"), slice_count=2, generation=3),
                pool(device("b"), name="t", node_name="other", slice_count=2, generation=1),
            ),
            "the pool has 1 of 2 slices",
        ),
        ((pool(device("a"), device("a")),), "a device name occurs twice in the pool"),
        ((pool(device("a"), shared_counters=CARD + CARD),), "a counter set occurs twice in the pool"),
        ((pool(drawing("a", 1)),), "device a consumes counters that the pool has not"),
        ((pool(device("a"), node_name="other"),), "no slice of the pool reaches the node"),
    ],
)
def test_pools_are_sound_complete_and_the_newest(slices: tuple[ResourceSlice, ...], wrong: str) -> None:
    found = told(checker(*slices), (claim(wish()), given(got("a"))))
    assert found == ([f"d/p/a: {wrong}", "request r0 is served in 0 of its forms"] if wrong else [])


def test_what_other_slices_of_the_generation_hold_of_a_card_counts_whatever_number_they_tell() -> None:
    """As many slices as the first one tells reach the node; those on others have devices of it, too."""
    own = pool(drawing("a", 3), shared_counters=CARD)
    others = (
        pool(drawing("b", 2), name="t", node_name="other", slice_count=2),
        # A name that the node has is that of its own device, and another card is none of its.
        pool(drawing("a", 1), name="u", node_name="third", slice_count=2, shared_counters=CARD),
    )
    judge = checker(own, *others)
    assert told(judge, (claim(wish()), given(got("a")))) == []
    judge.hold([got("b")])
    assert told(judge, (claim(wish()), given(got("a")))) == ["pool d/p: counter card/slices is exceeded by 1"]


def selector(**labels: str) -> NodeSelector:
    rules = tuple(Requirement(key, SelectorOperator.IN, (text,)) for key, text in labels.items())
    return NodeSelector((NodeSelectorTerm(expressions=rules),))


def test_where_devices_can_be_used_is_said_by_the_allocation() -> None:
    mine = claim(wish())
    network = pool(device("a"), node_name="", node_selector=selector(zone="z"))
    assert told(checker(network), (mine, given(got("a"), selector=selector(zone="z")))) == []
    for said in (None, TIED, selector(zone="y")):
        (wrong,) = told(checker(network), (mine, given(got("a"), selector=said)))
        assert wrong.startswith("the node selector is ")
    anywhere = pool(device("a"), node_name="", all_nodes=True)
    assert told(checker(anywhere), (mine, given(got("a"), selector=None))) == []
    assert len(told(checker(anywhere), (mine, given(got("a"))))) == 1
    tying = pool(device("a", binds_to_node=True), node_name="", all_nodes=True)
    assert told(checker(tying), (mine, given(got("a")))) == []
    by_name = pool(device("a"), node_name="", node_selector=TIED)
    assert told(checker(by_name), (mine, given(got("a")))) == []
    assert len(told(checker(by_name), (mine, given(got("a"), selector=None)))) == 1
    doubled = NodeSelector((*TIED.terms, *TIED.terms))
    assert len(told(checker(pool(device("a"))), (mine, given(got("a"), selector=doubled)))) == 1
    own = pool(
        device("a", node_name="n"), device("b", node_name="m"), node_name="", per_device_node_selection=True
    )
    assert told(checker(own), (mine, given(got("a")))) == []
    assert told(checker(own), (mine, given(got("b"))))[0] == "d/p/b: the device does not reach the node"


def test_results_say_what_requests_and_devices_say() -> None:
    conditions = device("a", binding_conditions=("Ready",), binding_failure_conditions=("Failed",))
    right = got("a", binding_conditions=("Ready",), binding_failure_conditions=("Failed",))
    judge = checker(pool(conditions))
    assert told(judge, (claim(wish()), given(right))) == []
    for change, what in (
        ({"binding_conditions": ()}, "binding conditions"),
        ({"binding_failure_conditions": ()}, "failure conditions"),
        ({"tolerations": (DeviceToleration("x"),)}, "tolerations"),
        ({"skip_node_operations": ("x",)}, "node operations"),
    ):
        (wrong,) = told(judge, (claim(wish()), given(attrs.evolve(right, **change))))
        assert wrong.startswith(f"d/p/a: {what} are ")


def test_the_configuration_is_that_of_classes_and_of_the_claim() -> None:
    judge = checker(pool(device("a"), device("b")), gpu=WITH_CONFIG)
    own = (DeviceConfig(("r0",), "d", "1"), DeviceConfig((), "d", "2"), DeviceConfig(("other",), "d", "3"))
    two = claim(wish(), wish(), config=own)
    of_class = DeviceConfig((), "d", "{}", ConfigSource.CLASS)
    said = (
        of_class,
        DeviceConfig(("r0",), "d", "1", ConfigSource.CLAIM),
        DeviceConfig((), "d", "2", ConfigSource.CLAIM),
    )
    results = got("a"), got("b", "r1")
    assert told(judge, (two, given(*results, config=said))) == []
    for wrong in (
        said[1:],
        said[:2],
        (*said, said[2]),
        (of_class, attrs.evolve(said[1], requests=()), said[2]),
    ):
        (text,) = told(judge, (two, given(*results, config=wrong)))
        assert text.startswith("the configuration is ")
    # What is for every request that was served is written as being for all.
    lone = claim(wish(), config=own)
    short = (of_class, DeviceConfig((), "d", "1", ConfigSource.CLAIM), said[2])
    assert told(judge, (lone, given(got("a"), config=short))) == []


def test_a_request_is_served_in_one_of_its_alternatives() -> None:
    forms = (
        DeviceSubRequest(class_name="gpu", name="two", count=2),
        DeviceSubRequest(class_name="gpu", name="one"),
    )
    config = (
        DeviceConfig(("r",), "d", "1"),
        DeviceConfig(("r/two",), "d", "2"),
        DeviceConfig(("r/one",), "d", "3"),
    )
    either = ResourceClaim(name="c", spec=ClaimSpec((ClaimRequest("r", forms, True),), config=config))
    judge = checker(pool(device("a"), device("b"), device("e")))
    right = (DeviceConfig((), "d", "1", ConfigSource.CLAIM), DeviceConfig((), "d", "3", ConfigSource.CLAIM))
    assert told(judge, (either, given(got("a", "r/one"), config=right))) == []
    mixed = told(judge, (either, given(got("a", "r/one"), got("b", "r/two"), got("e", "r/two"))))
    assert mixed[0] == "request r is served in 2 of its forms"
