"""Laws of claims on small nodes with every feature.

* The exact answer is found exactly where trying everything finds one, and its alternatives are the best.
* What is found is legal by the checker's own reading.
* First fit finds what is legal, and only where something fits; what it finds does not depend on memory.
* Requests that are named as a conflict do not fit together, and do without any one of them. What is said to
  be free of a request that has too little is the most that it could have at once.
"""

from __future__ import annotations

import attrs
from hypothesis import given, settings, strategies as st

from koordcore.allocators.claims import (
    ALL_FEATURES,
    AllocationMode,
    CelCompiler,
    ClaimError,
    ClaimsAllocated,
    ClaimsRefused,
    DevicesInUse,
    DeviceTable,
    NodeView,
    Room,
    SliceIndex,
    allocate_claims,
    gather_pools,
    room_of,
)
from koordcore.allocators.claims.exact.conflict import smallest_conflict
from koordcore.allocators.claims.exact.program import solve_question
from koordcore.allocators.claims.exact.question import Answer, make_question
from koordcore.allocators.claims.exact.search import answer_question
from koordcore.allocators.claims.requests import read_claims
from koordcore.checking.claim_pools import CheckedNode
from koordcore.checking.claims import ClaimChecker
from koordcore.model.certificates import Limits
from koordcore.model.claims import (
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
    DeviceId,
    DeviceTaint,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.quantity import NANO
from tests.conformance.adapters.claims import places
from tests.conformance.claim_objects import Expressions
from tests.reference.claims_brute import best_places

DRIVER = "d.example.com"
COMPILER = CelCompiler()
CLASSES = {
    "any": DeviceClass(name="any", selectors=(f"device.driver == '{DRIVER}'",)),
    "low": DeviceClass(
        name="low",
        selectors=(f"'x' in device.attributes['{DRIVER}'] && device.attributes['{DRIVER}'].x.includes(0)",),
    ),
}

values = st.one_of(
    st.integers(0, 2).map(lambda one: AttributeValue(AttributeKind.INT, (one,))),
    st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True).map(
        lambda many: AttributeValue(AttributeKind.INT, tuple(many), True)
    ),
)
attributes = st.fixed_dictionaries({}, optional={"x": values, "y": values})
policies = st.sampled_from(
    [
        None,
        CapacityPolicy(NANO, (NANO, 2 * NANO, 4 * NANO)),
        CapacityPolicy(NANO, (), CapacityRange(NANO, 4 * NANO, NANO)),
    ]
)
consumptions = st.lists(
    st.builds(
        CounterConsumption,
        st.sampled_from(["s0", "s1"]),
        st.fixed_dictionaries({"c": st.integers(1, 3)}, optional={"e": st.integers(1, 2)}),
        st.lists(st.sampled_from(["g", "h"]), max_size=2, unique=True).map(tuple),
    ),
    max_size=2,
    unique_by=lambda one: one.counter_set,
).map(tuple)
taints = st.sampled_from([(), (), (), (DeviceTaint("t", "", "NoSchedule"),)])


@st.composite
def devices(draw: st.DrawFn) -> tuple[SliceDevice, ...]:
    found = []
    for number in range(draw(st.integers(1, 6))):
        shared = draw(st.booleans())
        capacity = (
            {"m": DeviceCapacity(draw(st.integers(1, 4)) * NANO, draw(policies) if shared else None)}
            if draw(st.booleans())
            else {}
        )
        found.append(
            SliceDevice(
                name=f"d{number}",
                attributes=draw(attributes),
                capacity=capacity,
                consumes_counters=draw(consumptions) if draw(st.booleans()) else (),
                taints=draw(taints),
                binding_conditions=("ready",) if draw(st.integers(0, 5)) == 5 else (),
                allow_multiple_allocations=shared,
            )
        )
    return tuple(found)


def forms(name: str) -> st.SearchStrategy[DeviceSubRequest]:
    return st.builds(
        DeviceSubRequest,
        class_name=st.sampled_from(["any", "any", "low"]),
        name=st.just(name),
        mode=st.sampled_from(["ExactCount", "ExactCount", "ExactCount", "All"]),
        count=st.integers(1, 3),
        tolerations=st.sampled_from([(), (DeviceToleration(operator="Exists"),)]),
        capacity=st.sampled_from([{}, {}, {"m": NANO}, {"m": 2 * NANO}]),
    )


@st.composite
def requests(draw: st.DrawFn, name: str) -> ClaimRequest:
    if draw(st.booleans()):
        many = draw(st.integers(1, 3))
        return ClaimRequest(name, tuple(draw(forms(f"s{number}")) for number in range(many)), True)
    form = draw(forms(""))
    if draw(st.integers(0, 5)) == 5:
        form = DeviceSubRequest(
            class_name=form.class_name, mode=form.mode, count=form.count, admin_access=True
        )
    return ClaimRequest(name, (form,))


@st.composite
def constraints(draw: st.DrawFn, names: tuple[str, ...]) -> DeviceConstraint:
    attribute = f"{DRIVER}/{draw(st.sampled_from('xy'))}"
    touched = tuple(name for name in names if draw(st.booleans()))
    if draw(st.booleans()):
        return DeviceConstraint(touched, match_attribute=attribute)
    return DeviceConstraint(touched, distinct_attribute=attribute)


@st.composite
def claim_lists(draw: st.DrawFn) -> list[ResourceClaim]:
    found = []
    for number in range(draw(st.integers(1, 2))):
        names = tuple(f"r{place}" for place in range(draw(st.integers(1, 2))))
        spec = ClaimSpec(
            tuple(draw(requests(name)) for name in names),
            tuple(draw(constraints(names)) for _ in range(draw(st.integers(0, 2)))),
        )
        found.append(ResourceClaim(name=f"c{number}", spec=spec))
    return found


@st.composite
def rooms(draw: st.DrawFn) -> tuple[Room, ClaimChecker]:
    mine = draw(devices())
    slices = (
        ResourceSlice(name="a", driver=DRIVER, pool="p", slice_count=2, node_name="n1", devices=mine),
        ResourceSlice(
            name="b",
            driver=DRIVER,
            pool="p",
            slice_count=2,
            node_name="n1",
            shared_counters=(
                CounterSet("s0", {"c": draw(st.integers(2, 6)), "e": 3}),
                CounterSet("s1", {"c": draw(st.integers(2, 6)), "e": 2}),
            ),
        ),
    )
    held = {DeviceId(DRIVER, "p", one.name) for one in mine if draw(st.integers(0, 4)) == 4}
    table = DeviceTable(gather_pools(SliceIndex(slices), NodeView("n1")), COMPILER)
    expressions = Expressions(COMPILER)
    checker = ClaimChecker(
        slices,
        CLASSES.values(),
        expressions.selects,
        expressions.derives,
        COMPILER.driver,
        frozenset(map(str, ALL_FEATURES)),
    )
    checker.hold(DeviceResult(**one._asdict(), request="held") for one in held)
    return room_of(table, DevicesInUse(frozenset(held))), checker


@given(rooms(), claim_lists())
def test_claims_fit_exactly_where_trying_everything_fits(
    made: tuple[Room, ClaimChecker], claims: list[ResourceClaim]
) -> None:
    room, checker = made
    node = CheckedNode("n1")
    outcome = allocate_claims(room, claims, CLASSES)
    best = best_places(checker, node, claims)
    if isinstance(outcome, ClaimsAllocated):
        assert checker.check(node, list(zip(claims, outcome.allocations, strict=True))) == []
        assert best == tuple(places(claims, outcome.allocations))
    else:
        assert isinstance(outcome, ClaimsRefused)
        assert best is None


@given(rooms(), claim_lists())
def test_first_fit_is_legal_and_refuses_what_does_not_fit(
    made: tuple[Room, ClaimChecker], claims: list[ResourceClaim]
) -> None:
    room, checker = made
    node = CheckedNode("n1")
    exact = allocate_claims(room, claims, CLASSES)
    outcome = allocate_claims(room, claims, CLASSES, mode=AllocationMode.FIRST_FIT)
    if isinstance(outcome, ClaimsAllocated):
        assert isinstance(exact, ClaimsAllocated)
        assert checker.check(node, list(zip(claims, outcome.allocations, strict=True))) == []
        assert places(claims, exact.allocations) <= places(claims, outcome.allocations)
    elif isinstance(outcome, ClaimsRefused):
        assert isinstance(exact, ClaimsRefused)
    else:
        assert outcome.kind.value == "all-constraint"


@settings(max_examples=10)
@given(rooms(), claim_lists())
def test_counting_and_the_integer_program_agree(
    made: tuple[Room, ClaimChecker], claims: list[ResourceClaim]
) -> None:
    room, _ = made
    forms_read = read_claims(room.table, claims, CLASSES)
    assert not isinstance(forms_read, ClaimError)
    solved = solve_question(make_question(room, forms_read), Limits())
    outcome = allocate_claims(room, claims, CLASSES)
    assert isinstance(solved, Answer) == isinstance(outcome, ClaimsAllocated)
    if isinstance(solved, Answer) and isinstance(outcome, ClaimsAllocated):
        mine = [
            wish.form.index
            for wish, wishes in zip(solved.wishes, _requests(room, claims), strict=True)
            if wishes
        ]
        assert mine == places(claims, outcome.allocations)


def _requests(room: Room, claims: list[ResourceClaim]) -> list[bool]:
    return [request.prioritized for claim in claims for request in claim.spec.requests]


@st.composite
def alike(draw: st.DrawFn) -> list[ResourceClaim]:
    """Some claims, some of them several times."""
    found = draw(claim_lists())
    copies = [one for one in found for _ in range(draw(st.integers(1, 3)))]
    return [attrs.evolve(one, name=f"c{number}") for number, one in enumerate(copies)]


@given(rooms(), alike())
def test_a_conflict_does_not_fit_and_does_without_any_one_of_it(
    made: tuple[Room, ClaimChecker], claims: list[ResourceClaim]
) -> None:
    room, _ = made
    forms_read = read_claims(room.table, claims, CLASSES)
    assert not isinstance(forms_read, ClaimError)
    question = make_question(room, forms_read)

    def fits(places: list[int]) -> bool:
        part = attrs.evolve(
            question,
            requests=tuple(question.requests[one] for one in places),
            claims=tuple(question.claims[one] for one in places),
        )
        return isinstance(answer_question(part, Limits()), Answer)

    if fits(list(range(len(question.requests)))):
        return
    found = smallest_conflict(question, Limits())
    assert not fits(found)
    for place in found:
        assert fits([one for one in found if one != place])


@given(rooms(), st.data())
def test_what_is_said_to_be_free_is_the_most_that_a_request_could_have(
    made: tuple[Room, ClaimChecker], data: st.DataObject
) -> None:
    room, _ = made
    form = attrs.evolve(data.draw(forms("")), mode="ExactCount", count=data.draw(st.integers(1, 5)))
    bonds = (data.draw(constraints(("r",))),) if data.draw(st.booleans()) else ()

    def asked(count: int) -> ResourceClaim:
        wanted = ClaimRequest("r", (attrs.evolve(form, count=count),))
        return ResourceClaim(name="c", spec=ClaimSpec((wanted,), bonds))

    outcome = allocate_claims(room, [asked(form.count)], CLASSES)
    if not isinstance(outcome, ClaimsRefused):
        return
    (lack,) = outcome.shortfalls
    fitting = [
        count
        for count in range(1, form.count)
        if isinstance(allocate_claims(room, [asked(count)], CLASSES), ClaimsAllocated)
    ]
    assert lack.free == max(fitting, default=0)
