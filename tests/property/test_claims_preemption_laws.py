"""Evictions for pods that ask for devices by claims: as cheap as trying every set of victims finds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import attrs
from hypothesis import given, settings, strategies as st

from benchmarks.claims_data import CLASSES, NUMA, claim, mig_cards, pairs, request, whole_gpus
from koordcore import ClusterSnapshot, Node, Pod, PreemptionRules, ResourceSlice, schedule, verify
from koordcore.model.claims import ResourceClaimTemplate
from koordcore.model.pods import PodResourceClaim

GANG = "gang.scheduling.koordinator.sh/"
SPECS = {
    "one": claim("c", [request("gpu", "gpu")]).spec,
    "two": claim("c", [request("gpu", "gpu", 2)]).spec,
    "near": claim("c", [request("gpu", "gpu", 2)], [(NUMA, ())]).spec,
    "pair": pairs(1).spec,
    "1g": claim("c", [request("r", "mig", 1, "1g.10gb")]).spec,
    "2g": claim("c", [request("r", "mig", 1, "2g.20gb")]).spec,
    "3g": claim("c", [request("r", "mig", 1, "3g.40gb")]).spec,
    "7g": claim("c", [request("r", "mig", 1, "7g.80gb")]).spec,
}
KINDS = {"whole": ["one", "two", "near", "pair"], "mig": ["1g", "2g", "3g", "7g"]}


def pod(name: str, template: str, priority: int) -> Pod:
    entry = PodResourceClaim("c", template=template)
    return Pod(name=name, uid=name, requests={"cpu": 1}, priority=priority, resource_claims=(entry,))


def node_with(kind: str, name: str) -> list[ResourceSlice]:
    return whole_gpus(name, 4, nics=(0,)) if kind == "whole" else mig_cards(name, 1)


@st.composite
def cases(draw: st.DrawFn) -> tuple[ClusterSnapshot, tuple[Pod, ...]]:
    """Nodes full of less important pods, and one pod or a gang of two that want in."""
    kind = draw(st.sampled_from(["whole", "mig"]))
    names = ["a", "b"][: draw(st.integers(1, 2))]
    snapshot = ClusterSnapshot(
        nodes=[Node(name=name, allocatable={"cpu": 100, "pods": 99}) for name in names],
        records=[
            *CLASSES.values(),
            *(ResourceClaimTemplate(name=name, spec=spec) for name, spec in SPECS.items()),
            *(part for name in names for part in node_with(kind, name)),
        ],
    )
    wishes = st.sampled_from(KINDS[kind])
    many = draw(st.lists(st.tuples(wishes, st.integers(1, 3)), min_size=1, max_size=6))
    low = [pod(f"low-{number}", *one) for number, one in enumerate(many)]
    filled = schedule(snapshot.with_pending(*low)).snapshot
    filled = filled.forget(*(one.key for one in filled.pending)) if filled.pending else filled
    wish = draw(wishes)
    size = draw(st.integers(1, 2))
    members = tuple(pod(f"high-{number}", wish, 9) for number in range(size))
    if size > 1:
        notes = {f"{GANG}name": "g", f"{GANG}min-available": str(size)}
        members = tuple(attrs.evolve(one, annotations=notes) for one in members)
    return filled, members


def fits(snapshot: ClusterSnapshot, members: Sequence[Pod], leaving: Sequence[Pod]) -> bool:
    rest = snapshot.forget(*(one.key for one in leaving)) if leaving else snapshot
    return len(schedule(rest.with_pending(*members)).bound) == len(members)


def least_damage(snapshot: ClusterSnapshot, members: Sequence[Pod]) -> tuple[int, int, int] | None:
    """Highest priority, number and sum of the priorities of the cheapest victims, by trying all sets."""
    running = list(snapshot.bound_pods())
    costs = [
        (max(one.priority for one in leaving), size, sum(one.priority for one in leaving))
        for size in range(1, len(running) + 1)
        for leaving in combinations(running, size)
        if fits(snapshot, members, leaving)
    ]
    return min(costs, default=None)


@settings(max_examples=10)
@given(cases())
def test_victims_are_the_cheapest_that_help(case: tuple[ClusterSnapshot, tuple[Pod, ...]]) -> None:
    snapshot, members = case
    asked = snapshot.with_pending(*members)
    result = schedule(asked, preempt=PreemptionRules())
    assert verify(asked, result) == ()
    if len(result.bound) == len(members):
        return
    best = least_damage(snapshot, members)
    victims = [one for plan in result.preemptions for one in plan.victims]
    if best is None:
        assert not victims
        return
    (plan,) = result.preemptions
    priorities = [one.priority for one in victims]
    assert (max(priorities), len(priorities), sum(priorities)) == best
    assert plan.certificate.proven
