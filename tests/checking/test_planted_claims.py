"""Allocations of claims that are wrong in one way each: the checker says in which."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.checking.claim_pools import CheckedNode
from koordcore.checking.claims import ClaimChecker
from koordcore.model.claims import (
    ClaimAllocation,
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceConstraint,
    DeviceResult,
    DeviceSubRequest,
    DeviceToleration,
    ResourceClaim,
)
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    CapacityPolicy,
    CapacityRange,
    CounterConsumption,
    CounterSet,
    DeviceCapacity,
    DeviceTaint,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator

GPU = DeviceClass(name="gpu")
UNIT = 10**9
"""One, in billionths."""
ON = frozenset(
    {
        "DRABindingConditions",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceCompatibilityGroups",
        "DRADeviceTaints",
        "DRAFractionalCapacityRange",
        "DRAListTypeAttributes",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevices",
    }
)
N = CheckedNode("n", immutabledict(zone="z"))
TIED = NodeSelector((NodeSelectorTerm(fields=(Requirement("metadata.name", SelectorOperator.IN, ("n",)),)),))


def pool(*devices: SliceDevice, **fields: Any) -> ResourceSlice:
    return ResourceSlice(
        **{"name": "s", "driver": "d", "pool": "p", "node_name": "n", "devices": devices, **fields}
    )


def device(name: str, **fields: Any) -> SliceDevice:
    return SliceDevice(name=name, **fields)


def checker(*slices: ResourceSlice, on: frozenset[str] = ON, gpu: DeviceClass = GPU) -> ClaimChecker:
    """A checker for which the expression "never" selects nothing, and every other one everything."""
    return ClaimChecker(
        slices, [gpu], lambda text, _, __: text != "never", lambda *_: None, lambda _: None, on
    )


def claim(*forms: DeviceSubRequest, name: str = "c", **spec: Any) -> ResourceClaim:
    """A claim with one request for each form: r0, r1 and so on."""
    requests = tuple(ClaimRequest(f"r{number}", (form,)) for number, form in enumerate(forms))
    return ResourceClaim(name=name, spec=ClaimSpec(requests, **spec))


def wish(count: int = 1, **fields: Any) -> DeviceSubRequest:
    return DeviceSubRequest(class_name="gpu", count=count, **fields)


def got(name: str, request: str = "r0", **fields: Any) -> DeviceResult:
    return DeviceResult(request=request, driver="d", pool="p", device=name, **fields)


def given(*results: DeviceResult, selector: NodeSelector | None = TIED, **fields: Any) -> ClaimAllocation:
    return ClaimAllocation(results=results, node_selector=selector, **fields)


def told(
    judge: ClaimChecker, *attempt: tuple[ResourceClaim, ClaimAllocation], node: CheckedNode = N
) -> list[str]:
    return [text.removeprefix("claim c: ") for text in judge.check(node, attempt)]


def test_as_many_devices_as_asked_for_each_once() -> None:
    two = checker(pool(device("a"), device("b"), device("e")))
    assert told(two, (claim(wish(2)), given(got("a"), got("b")))) == []
    assert told(two, (claim(wish(2)), given(got("a")))) == ["request r0 has 1 of 2 devices"]
    assert told(two, (claim(wish()), given(got("a"), got("b")))) == ["request r0 has 2 of 1 devices"]
    assert told(two, (claim(wish(2)), given(got("a"), got("a")))) == [
        "request r0 has a device twice",
        "d/p/a is taken 2 times",
    ]
    assert told(two, (claim(wish(), wish()), given(got("a"), got("b", "r1")))) == []
    assert told(two, (claim(wish(), wish()), given(got("a"), got("a", "r1")))) == ["d/p/a is taken 2 times"]
    assert told(two, (claim(wish()), given(selector=None))) == ["request r0 is served in 0 of its forms"]


def test_devices_and_requests_that_do_not_exist() -> None:
    one = checker(pool(device("a")))
    assert told(one, (claim(wish()), given(got("z")))) == [
        "d/p/z: no such device is published",
        "request r0 is served in 0 of its forms",
    ]
    assert told(one, (claim(wish()), given(got("a"), got("a", "r7")))) == [
        "d/p/a is for request r7, which is not there"
    ]


def test_no_more_than_thirty_two_devices() -> None:
    many = checker(pool(*(device(f"a{number}") for number in range(33))))
    for number, wrong in ((32, []), (33, ["33 devices, at most 32 are allowed"])):
        results = [got(f"a{one}") for one in range(number)]
        assert told(many, (claim(wish(number)), given(*results))) == wrong


def test_all_devices_are_all_that_the_request_means() -> None:
    every = claim(wish(mode="All"))
    two = checker(pool(device("a"), device("b")))
    assert told(two, (every, given(got("a"), got("b")))) == []
    assert told(two, (every, given(got("a")))) == ["request r0 has 1 devices, not all 2"]
    half = checker(pool(device("a")), pool(device("x"), name="t", pool="q", slice_count=2))
    assert told(half, (every, given(got("a")))) == [
        "request r0 asks for all devices, but d/q: the pool has 1 of 2 slices"
    ]


def test_a_device_is_one_that_class_and_request_mean() -> None:
    not_meant = "d/p/a for r0: the request does not mean the device, or asks for more than it has"
    assert told(checker(pool(device("a"))), (claim(wish(selectors=("never",))), given(got("a")))) == [
        not_meant
    ]
    choosy = DeviceClass(name="gpu", selectors=("never",))
    assert told(checker(pool(device("a")), gpu=choosy), (claim(wish()), given(got("a")))) == [not_meant]
    binding = checker(pool(device("a", binding_conditions=("Ready",))), on=frozenset())
    assert not_meant in told(binding, (claim(wish()), given(got("a", binding_conditions=("Ready",)))))


@pytest.mark.parametrize(
    ("toleration", "fine"),
    [
        (DeviceToleration("bad", "Equal", "v"), True),
        (DeviceToleration("bad", "Equal", "w"), False),
        (DeviceToleration("bad", "Exists"), True),
        (DeviceToleration("", "Exists"), True),
        (DeviceToleration("other", "Exists"), False),
        (DeviceToleration("bad", "Exists", effect="NoSchedule"), True),
        (DeviceToleration("bad", "Exists", effect="NoExecute"), False),
        (None, False),
    ],
)
def test_taints_of_devices_are_tolerated(toleration: DeviceToleration | None, fine: bool) -> None:
    tainted = pool(
        device("a", taints=(DeviceTaint("bad", "v", "NoSchedule"), DeviceTaint("soft", effect="None")))
    )
    mine = () if toleration is None else (toleration,)
    found = told(checker(tainted), (claim(wish(tolerations=mine)), given(got("a", tolerations=mine))))
    assert found == ([] if fine else ["d/p/a for r0: taint bad is not tolerated"])
    assert told(checker(tainted, on=frozenset()), (claim(wish()), given(got("a")))) == []


def test_features_that_are_switched_off_take_devices_away() -> None:
    skipping = pool(device("a"), skip_node_operations=("Prepare",))
    mine = (claim(wish()), given(got("a", skip_node_operations=("Prepare",))))
    able = CheckedNode("n", features=("DRAOptionalNodeOperations",))
    cannot = ["d/p/a for r0: the node cannot leave node operations out"]
    assert told(checker(skipping), mine, node=able) == []
    assert told(checker(skipping), mine) == cannot
    assert told(checker(skipping, on=frozenset()), mine, node=able) == cannot
    drawing = pool(device("a", consumes_counters=(CounterConsumption("s", {"m": 1}),)))
    off = told(checker(drawing, on=frozenset()), (claim(wish()), given(got("a"))))
    assert off == ["d/p/a for r0: partitionable devices are switched off"]


def test_admin_access_is_as_asked_for_and_takes_nothing() -> None:
    one = checker(pool(device("a")))
    admin = (claim(wish(admin_access=True)), given(got("a", admin_access=True)))
    assert told(one, (claim(wish()), given(got("a", admin_access=True)))) == [
        "d/p/a for r0: admin access is True"
    ]
    one.hold([got("a")])
    assert told(one, admin) == []
    assert told(one, (claim(wish()), given(got("a")))) == ["d/p/a is held by another claim"]
    one.hold([got("a")], -1)
    one.hold([got("a", admin_access=True)])
    assert told(one, (claim(wish()), given(got("a")))) == []


def test_claims_of_one_pod_take_devices_one_after_the_other() -> None:
    one = checker(pool(device("a"), device("b")))
    first, second = claim(wish()), claim(wish(), name="e")
    assert told(one, (first, given(got("a"))), (second, given(got("b")))) == []
    taken = "d/p/a is taken by an earlier claim of the pod"
    assert told(one, (first, given(got("a"))), (second, given(got("a")))) == [taken]


def value(text: str) -> AttributeValue:
    return AttributeValue(AttributeKind.STRING, (text,))


def test_constraints_on_attributes() -> None:
    places = {"a": "x", "b": "x", "e": "y"}
    devices = [device(name, attributes={"place": value(text)}) for name, text in places.items()]
    judge = checker(pool(*devices, device("bare")))
    same: dict[str, Any] = {"constraints": (DeviceConstraint((), match_attribute="d/place"),)}
    apart: dict[str, Any] = {"constraints": (DeviceConstraint((), distinct_attribute="d/place"),)}
    first_only: dict[str, Any] = {"constraints": (DeviceConstraint(("r0",), match_attribute="d/place"),)}
    assert told(judge, (claim(wish(2), **same), given(got("a"), got("b")))) == []
    assert told(judge, (claim(wish(2), **same), given(got("a"), got("e")))) == [
        "devices do not agree in d/place"
    ]
    assert told(judge, (claim(wish(2), **apart), given(got("a"), got("e")))) == []
    assert told(judge, (claim(wish(2), **apart), given(got("a"), got("b")))) == [
        "devices are not distinct in d/place"
    ]
    for rule in (same, apart):
        assert told(judge, (claim(wish(), **rule), given(got("a")))) == []
        assert told(judge, (claim(wish(2), **rule), given(got("a"), got("bare")))) == [
            "a device has no attribute d/place"
        ]
    # A constraint on some requests leaves the others alone.
    assert told(judge, (claim(wish(), wish(), **first_only), given(got("a"), got("e", "r1")))) == []
    foreign: dict[str, Any] = {"constraints": (DeviceConstraint((), match_attribute="x/place"),)}
    assert told(judge, (claim(wish(), **foreign), given(got("a")))) == ["a device has no attribute x/place"]


def drawing(name: str, amount: int, *groups: str) -> SliceDevice:
    return device(name, consumes_counters=(CounterConsumption("card", {"slices": amount * UNIT}, groups),))


CARD = (CounterSet("card", {"slices": 4 * UNIT}),)


def test_parts_of_a_card_draw_on_what_it_has() -> None:
    parts = pool(drawing("a", 2), drawing("b", 2), drawing("e", 3), shared_counters=CARD)
    judge = checker(parts)
    over = "pool d/p: counter card/slices is exceeded by 1"
    assert told(judge, (claim(wish(2)), given(got("a"), got("b")))) == []
    assert told(judge, (claim(wish(2)), given(got("a"), got("e")))) == [over]
    judge.hold([got("a")])
    assert told(judge, (claim(wish()), given(got("b")))) == []
    assert told(judge, (claim(wish()), given(got("e")))) == [over]


@pytest.mark.parametrize(
    ("first", "second", "fine"),
    [
        (("x",), ("x",), True),
        (("x",), ("y",), False),
        (("x", "y"), ("y",), True),
        ((), (), True),
        ((), ("x",), False),
    ],
)
def test_parts_of_a_card_have_a_compatibility_group_in_common(
    first: tuple[str, ...], second: tuple[str, ...], fine: bool
) -> None:
    parts = pool(drawing("a", 1, *first), drawing("b", 1, *second), shared_counters=CARD)
    wrong = [] if fine else ["d/p/b: no compatibility group is common to its counter set"]
    assert told(checker(parts), (claim(wish(2)), given(got("a"), got("b")))) == wrong
    held = checker(parts)
    held.hold([got("a")])
    assert told(held, (claim(wish()), given(got("b")))) == wrong
    off = checker(parts, on=ON - {"DRADeviceCompatibilityGroups"})
    if not (first or second):
        assert told(off, (claim(wish(2)), given(got("a"), got("b")))) == []
    else:
        found = told(off, (claim(wish(2)), given(got("a"), got("b"))))
        assert "d/p/a: no slice of the pool reaches the node" in found


def memory(value: int, policy: CapacityPolicy | None = None) -> dict[str, DeviceCapacity]:
    return {"memory": DeviceCapacity(value * UNIT, policy)}


def share(name: str, amount: int, number: str = "one", request: str = "r0") -> DeviceResult:
    return got(name, request, share_id=number, consumed_capacity={"memory": amount})


def test_shares_of_a_device_take_what_was_asked_for_and_no_more_than_there_is() -> None:
    def judge() -> ClaimChecker:
        return checker(pool(device("a", capacity=memory(8), allow_multiple_allocations=True)))

    five = claim(wish(capacity={"memory": 5 * UNIT}))
    assert told(judge(), (five, given(share("a", 5 * UNIT)))) == []
    (wrong,) = told(judge(), (five, given(share("a", 4 * UNIT))))
    assert wrong == f"d/p/a for r0: consumes {{'memory': {4 * UNIT}}}, not {{'memory': {5 * UNIT}}}"
    assert told(judge(), (five, given(got("a", consumed_capacity={"memory": 5 * UNIT})))) == [
        "d/p/a is shared, and its result has no shareID"
    ]
    both = claim(wish(capacity={"memory": 5 * UNIT}), wish(capacity={"memory": 3 * UNIT}))
    results = share("a", 5 * UNIT), share("a", 3 * UNIT, "two", "r1")
    assert told(judge(), (both, given(*results))) == []
    assert told(judge(), (both, given(results[0], attrs.evolve(results[1], share_id="one")))) == [
        "two shares have one shareID"
    ]
    held = judge()
    held.hold([share("a", 4 * UNIT)])
    assert told(held, (five, given(share("a", 5 * UNIT, "two")))) == [
        "d/p/a: capacity memory is exceeded by 1"
    ]
    held.hold([share("a", 4 * UNIT)], -1)
    assert told(held, (five, given(share("a", 5 * UNIT, "two")))) == []


def test_a_share_has_an_id_of_its_own_and_what_is_held_whole_has_none() -> None:
    """Who reads a shareID counts a share, and would give the device to somebody else as well."""
    judge = checker(pool(device("a"), device("b", capacity=memory(8), allow_multiple_allocations=True)))
    whole = got("a", share_id="one")
    assert told(judge, (claim(wish()), given(whole))) == ["d/p/a is not shared, and its result has a shareID"]
    judge.hold([share("b", UNIT)])
    asks = claim(wish(capacity={"memory": UNIT}))
    assert told(judge, (asks, given(share("b", UNIT, "two")))) == []
    assert told(judge, (asks, given(share("b", UNIT)))) == ["another claim has shareID one of d/p/b"]


def test_a_share_of_a_part_of_a_card_draws_on_it_once() -> None:
    part = attrs.evolve(drawing("a", 3), capacity=memory(8), allow_multiple_allocations=True)
    judge = checker(pool(part, drawing("b", 1), drawing("e", 2), shared_counters=CARD))
    two = claim(*[wish(capacity={"memory": UNIT})] * 2)
    assert told(judge, (two, given(share("a", UNIT), share("a", UNIT, "two", "r1")))) == []
    judge.hold([share("a", UNIT)])
    one = claim(wish(capacity={"memory": UNIT}))
    assert told(judge, (one, given(share("a", UNIT, "two")))) == []
    assert told(judge, (claim(wish()), given(got("b")))) == []
    assert told(judge, (claim(wish()), given(got("e")))) == ["pool d/p: counter card/slices is exceeded by 1"]


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        (None, 3 * UNIT, 3 * UNIT),
        (None, None, 8 * UNIT),
        (CapacityPolicy(default=2 * UNIT), None, 2 * UNIT),
        (CapacityPolicy(valid_values=(2 * UNIT, 4 * UNIT)), UNIT, 2 * UNIT),
        (CapacityPolicy(valid_values=(2 * UNIT, 4 * UNIT)), 3 * UNIT, 4 * UNIT),
        (CapacityPolicy(valid_values=(2 * UNIT, 4 * UNIT)), 5 * UNIT, None),
        (CapacityPolicy(valid_range=CapacityRange(min=2 * UNIT)), UNIT, 2 * UNIT),
        (CapacityPolicy(valid_range=CapacityRange(min=UNIT, step=2 * UNIT)), 2 * UNIT, 3 * UNIT),
        (CapacityPolicy(valid_range=CapacityRange(min=UNIT, step=2 * UNIT)), 3 * UNIT, 3 * UNIT),
        (CapacityPolicy(valid_range=CapacityRange(min=UNIT, max=4 * UNIT)), 5 * UNIT, None),
        (
            CapacityPolicy(default=5 * UNIT, valid_range=CapacityRange(min=UNIT, max=4 * UNIT)),
            5 * UNIT,
            5 * UNIT,
        ),
        (CapacityPolicy(valid_range=CapacityRange(min=UNIT, max=4 * UNIT)), 4 * UNIT, 4 * UNIT),
        (
            CapacityPolicy(valid_range=CapacityRange(min=UNIT // 2, step=UNIT // 2)),
            UNIT * 6 // 5,
            UNIT * 3 // 2,
        ),
        (CapacityPolicy(valid_range=CapacityRange(min=UNIT // 2, step=UNIT // 2)), UNIT + 1, None),
        (None, 9 * UNIT, None),
    ],
)
def test_what_a_share_takes_follows_the_policy_of_the_capacity(
    policy: CapacityPolicy | None, asked: int | None, taken: int | None
) -> None:
    judge = checker(pool(device("a", capacity=memory(8, policy), allow_multiple_allocations=True)))
    one = claim(wish(capacity={} if asked is None else {"memory": asked}))
    found = told(judge, (one, given(share("a", taken or 0))))
    assert any("asks for more than it has" in text for text in found) == (taken is None)
    assert taken is None or found == []


def test_whole_steps_are_counted_in_units_where_fractions_are_switched_off() -> None:
    policy = CapacityPolicy(valid_range=CapacityRange(min=UNIT, step=2 * UNIT))
    shared = pool(device("a", capacity=memory(8, policy), allow_multiple_allocations=True))
    judge = checker(shared, on=ON - {"DRAFractionalCapacityRange"})
    for asked, taken in ((2 * UNIT, 3 * UNIT), (3 * UNIT + 1, 5 * UNIT)):
        one = claim(wish(capacity={"memory": asked}))
        assert told(judge, (one, given(share("a", taken)))) == []


def test_a_capacity_that_the_device_lacks_cannot_be_asked_for() -> None:
    judge = checker(pool(device("a", capacity=memory(8))))
    found = told(judge, (claim(wish(capacity={"threads": UNIT})), given(got("a"))))
    assert any("asks for more than it has" in text for text in found)


def test_a_share_that_is_given_back_draws_on_the_card_no_longer() -> None:
    """As when a reservation that held it is over: the other parts of the card are free again."""
    part = attrs.evolve(drawing("a", 3), capacity=memory(8), allow_multiple_allocations=True)
    judge = checker(pool(part, drawing("e", 2), shared_counters=CARD))
    judge.hold([share("a", UNIT)])
    assert told(judge, (claim(wish()), given(got("e")))) == ["pool d/p: counter card/slices is exceeded by 1"]
    judge.hold([share("a", UNIT)], -1)
    assert told(judge, (claim(wish()), given(got("e")))) == []
    # Whoever takes a share of it then draws on the card anew.
    judge.hold([got("e")])
    again = claim(wish(capacity={"memory": UNIT}))
    assert told(judge, (again, given(share("a", UNIT)))) == ["pool d/p: counter card/slices is exceeded by 1"]
