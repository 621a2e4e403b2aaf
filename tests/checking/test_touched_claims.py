"""With claims, too, what a result touches tells what the whole cluster tells."""

from __future__ import annotations

from random import Random

import attrs
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, Pod, ScheduleResult, named_policy, schedule, verify
from koordcore.checking.check import check_result
from koordcore.model.claims import ClaimAllocation, ClaimConsumer, DeviceResult, HeldClaim, ResourceClaim
from koordcore.model.device_slices import ResourceSlice, SliceDevice
from koordcore.model.records import ClusterRecord
from tests.scheduling.test_claims import DRIVER, GPU, ONE, TEMPLATES, TWO, gpus, node, pod

NAMES = ("a", "b", "c", "d", "e")
POLICIES = (None, named_policy("koordinator"))


def world(rng: Random) -> ClusterSnapshot:
    """Nodes with cards of their own and some that all may use, and claims of which some are allocated."""
    shared = tuple(SliceDevice(name=f"x-{number}") for number in range(3))
    records: list[ClusterRecord] = [GPU, *TEMPLATES, *(gpus(name, 2) for name in NAMES)]
    if rng.random() < 0.6:
        records.append(ResourceSlice(name="net", driver=DRIVER, pool="net", all_nodes=True, devices=shared))
    for number in range(3):
        records.append(ResourceClaim(name=f"own-{number}", spec=rng.choice((ONE, TWO))))
    pending = [waiting(rng, f"p{number}") for number in range(4)]
    return ClusterSnapshot(nodes=[node(name) for name in NAMES], pending=pending, records=records)


def waiting(rng: Random, name: str) -> Pod:
    if rng.random() < 0.4:
        return pod(name, claim=f"own-{rng.randrange(4)}")
    return pod(name, rng.choice(("one", "two")))


def moved_on(rng: Random, snapshot: ClusterSnapshot, step: int) -> ClusterSnapshot:
    """A pod ends, a node says something else, and others come."""
    bound = [one.key for one in snapshot.bound_pods()]
    if bound and rng.random() < 0.5:
        snapshot = snapshot.forget(rng.choice(bound))
    if rng.random() < 0.3:
        state = rng.choice(snapshot.nodes)
        snapshot = snapshot.with_nodes(attrs.evolve(state, node=attrs.evolve(state.node, labels={"a": "b"})))
    if rng.random() < 0.3:
        snapshot = snapshot.with_records(gpus(rng.choice(NAMES), rng.randrange(3)))
    return snapshot.with_pending(*(waiting(rng, f"late-{step}-{number}") for number in range(2)))


def corrupted(rng: Random, result: ScheduleResult) -> ScheduleResult:
    """One pod has another device, none, or one on another node; and a claim tells of other users."""
    decisions = list(result.decisions)
    bound = [at for at, one in enumerate(decisions) if isinstance(one, Bound) and one.claims]
    after = result.snapshot
    if bound:
        at = rng.choice(bound)
        one = decisions[at]
        assert isinstance(one, Bound)
        held = rng.choice(one.claims)
        pool, name = rng.choice((*NAMES, "net")), rng.choice(("gpu-0", "gpu-1", "x-0", "x-1"))
        wrong = DeviceResult(request="gpu", driver=DRIVER, pool=pool, device=name)
        other = attrs.evolve(held.allocation, results=(wrong, *held.allocation.results[1:]))
        claims = rng.choice(((), (attrs.evolve(held, allocation=other),)))
        decisions[at] = attrs.evolve(one, claims=claims)
        if rng.random() < 0.5:
            there = after.pod(one.pod)
            if there is not None:
                after = after.forget(one.pod).assume(attrs.evolve(there, held_claims=claims))
    claims_after = after.of(ResourceClaim)
    if claims_after and rng.random() < 0.4:
        claim = rng.choice(claims_after)
        users = (ClaimConsumer(name=rng.choice(("p0", "nobody")), uid="uid-p0"),)
        after = after.with_records(attrs.evolve(claim, reserved_for=users))
    return attrs.evolve(result, snapshot=after, decisions=tuple(decisions))


@settings(max_examples=25)
@given(st.integers(0, 2**32))
def test_of_claims_what_is_touched_tells_what_the_whole_tells(seed: int) -> None:
    rng = Random(seed)
    snapshot, policy = world(rng), rng.choice(POLICIES)
    for step in range(4):
        result = schedule(snapshot, policy=policy)
        assert verify(snapshot, result) == ()
        for number in range(3):
            spoilt = corrupted(rng, result)
            assert verify(snapshot, spoilt) == check_result(snapshot, spoilt), (seed, step, number)
        snapshot = moved_on(rng, result.snapshot, step)


def test_a_card_that_is_held_far_away_is_held() -> None:
    """Who holds what is in the same pool is found, wherever it runs."""
    shared = ResourceSlice(
        name="net", driver=DRIVER, pool="net", all_nodes=True, devices=(SliceDevice(name="x"),)
    )
    everywhere = ClaimAllocation(
        results=(DeviceResult(request="gpu", driver=DRIVER, pool="net", device="x"),)
    )
    user = attrs.evolve(
        pod("user", claim="theirs"),
        node_name="e",
        held_claims=(HeldClaim(name="theirs", allocation=everywhere, entry="gpu"),),
    )
    snapshot = ClusterSnapshot(
        nodes=[node(name) for name in NAMES],
        pending=[pod("p")],
        records=[GPU, *TEMPLATES, gpus("a", 1), shared],
    ).assume(user)
    result = schedule(snapshot)
    (one,) = result.decisions
    assert isinstance(one, Bound)
    assert verify(snapshot, result) == ()
    (held,) = one.claims
    stolen = attrs.evolve(held, allocation=attrs.evolve(held.allocation, results=everywhere.results))
    spoilt = attrs.evolve(result, decisions=(attrs.evolve(one, claims=(stolen,)),))
    found = verify(snapshot, spoilt)
    assert found == check_result(snapshot, spoilt)
    assert any("net/x" in violation.message for violation in found), found
