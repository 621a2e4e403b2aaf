"""Plans of gangs hold: what the planner answers has been bound with devices, CPUs, quota and reservations.

Small clusters with cards and NUMA nodes, half used, some of it reserved; gangs whose members want shares of a
card, whole cards, or bound CPUs.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, Pod, ScheduleResult, Unschedulable, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.policy import GangTurns
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources
from tests.reservations.worlds import POLICY, reservation
from tests.scheduling.test_gangs import LEAST, MUST, NAME, NETWORK, SPEC
from tests.scheduling.test_numa import node

pytestmark = pytest.mark.solver

CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
HINT = "internal.scheduling.koordinator.sh/scheduling-hint"
SHAPES: dict[str, tuple[dict[str, int], dict[str, str]]] = {
    "cpu": ({"cpu": 2000}, {}),
    "half": ({"cpu": 1000, CORE: 50, RATIO: 50}, {}),
    "card": ({"cpu": 1000, CORE: 100, RATIO: 100}, {}),
    "pair": ({"cpu": 2000, CORE: 200, RATIO: 200}, {}),
    "bound": (
        {"cpu": 4000, "memory": 2**30},
        {"scheduling.koordinator.sh/resource-spec": json.dumps({"preferredCPUBindPolicy": "FullPCPUs"})},
    ),
}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ClusterSnapshot, list[Pod]]:
    """Draw a cluster and the members of one gang."""
    objects: list[dict[str, Any]] = []
    names = [f"n{number}" for number in range(draw(st.integers(1, 3)))]
    for name in names:
        policy = draw(st.sampled_from(("", "", "BestEffort", "Restricted", "SingleNUMANode")))
        cards = draw(st.sampled_from(((), (0, 1), (0, 1), (0, 0, 1))))
        made = node(name, policy=policy, cards=cards)
        made[0]["metadata"]["labels"]["block"] = draw(st.sampled_from(("a", "b")))
        objects += made
    records: list[Any] = [NETWORK]
    if draw(st.booleans()):
        held = draw(st.sampled_from(names))
        records.append(reservation("held", 4, held, app="job"))
    if draw(st.integers(0, 3)) == 0:
        most = make_resources({"cpu": draw(st.integers(1, 8)) * 1000})
        records.append(ElasticQuota(name="team", min=most, max=most))
    snapshot = snapshot_from_objects(objects).snapshot.with_records(*records)
    quota = (
        {"quota.scheduling.koordinator.sh/name": "team"}
        if any(isinstance(one, ElasticQuota) for one in records)
        else {}
    )
    busy = [
        _pod(f"busy-{number}", draw(st.sampled_from(("cpu", "half", "card"))))
        for number in range(draw(st.integers(0, 2)))
    ]
    snapshot = schedule(snapshot, busy, policy=POLICY).snapshot
    shapes = [draw(st.sampled_from(tuple(SHAPES))) for _ in range(draw(st.integers(1, 4)))]
    shapes.sort()
    gather = {SPEC: MUST} if draw(st.booleans()) else {SPEC: '{"gatherStrategy": []}'}
    asked = {NAME: "g", LEAST: str(len(shapes)), **gather}
    return snapshot, [
        _pod(f"g-{number}", shape, labels={"app": "job", **quota}, annotations=asked)
        for number, shape in enumerate(shapes)
    ]


def _pod(name: str, shape: str, **fields: Any) -> Pod:
    requests, annotations = SHAPES[shape]
    extra = {"priority": 9500, "labels": {}, **fields}
    labels = {**extra.pop("labels"), **({"koordinator.sh/qosClass": "LSR"} if shape == "bound" else {})}
    both = {**annotations, **extra.pop("annotations", {})}
    return Pod(name=name, uid=name, requests=requests, labels=labels, annotations=both, **extra)


def holds(snapshot: ClusterSnapshot, result: ScheduleResult) -> None:
    """All or nothing, and the checker agrees."""
    assert verify(snapshot, result) == ()
    kinds = Counter(type(one) for one in result.decisions)
    assert kinds[Bound] in (0, len(result.decisions))
    for one in result.decisions:
        if isinstance(one, Unschedulable):
            assert "no plan was found whose members can all be bound" not in one.refusal


def test_cards_that_one_numa_node_has_are_left_to_who_needs_both() -> None:
    """Half a card and two cards of one NUMA node fit together only when the pair comes first."""
    made = node("n", policy="SingleNUMANode", cards=(0, 0, 1))
    made[0]["metadata"]["labels"]["block"] = "a"
    snapshot = snapshot_from_objects(made).snapshot.with_records(NETWORK)
    asked = {NAME: "g", LEAST: "2", SPEC: MUST}
    gang = [_pod(f"g-{number}", shape, annotations=asked) for number, shape in enumerate(("half", "pair"))]
    result = schedule(snapshot, gang, policy=POLICY)
    assert len(result.bound) == 2
    holds(snapshot, result)


def test_members_that_a_node_does_not_take_together_are_parted() -> None:
    """Two halves and a pair are too much for one node in any order; the halves go elsewhere."""
    objects = []
    for name, cards in (("n", (0, 0)), ("o", (0,))):
        made = node(name, policy="SingleNUMANode", cards=cards)
        made[0]["metadata"]["labels"]["block"] = "a"
        made[0]["status"]["allocatable"] |= {CORE: "400", RATIO: "400"}
        objects += made
    snapshot = snapshot_from_objects(objects).snapshot.with_records(NETWORK)
    asked = {NAME: "g", LEAST: "3", SPEC: MUST}
    shapes = ("half", "half", "pair")
    gang = [_pod(f"g-{number}", shape, annotations=asked) for number, shape in enumerate(shapes)]
    result = schedule(snapshot, gang, policy=POLICY)
    assert {one.pod.name: one.node for one in result.bound} == {"g-0": "o", "g-1": "o", "g-2": "n"}
    holds(snapshot, result)


def test_members_of_two_shapes_share_a_node_and_its_reservation() -> None:
    """Four CPUs are lent and two are free beside them: exactly what the two members ask for."""
    made = node("n")
    made[0]["metadata"]["labels"]["block"] = "a"
    snapshot = snapshot_from_objects(made).snapshot.with_records(
        NETWORK, reservation("held", 4, "n", app="job")
    )
    snapshot = schedule(snapshot, [_pod("busy", "cpu")], policy=POLICY).snapshot
    fields: dict[str, Any] = {
        "labels": {"app": "job"},
        "annotations": {NAME: "g", LEAST: "2", SPEC: '{"gatherStrategy": []}'},
    }
    result = schedule(snapshot, [_pod("g-0", "bound", **fields), _pod("g-1", "cpu", **fields)], policy=POLICY)
    assert len(result.bound) == 2
    holds(snapshot, result)


@settings(max_examples=17, deadline=None)
@given(worlds())
def test_a_plan_that_is_returned_is_bound(world: tuple[ClusterSnapshot, list[Pod]]) -> None:
    snapshot, gang = world
    holds(snapshot, schedule(snapshot, gang, policy=POLICY))


@settings(max_examples=10, deadline=None)
@given(worlds())
def test_plans_of_two_gangs_together_are_bound(world: tuple[ClusterSnapshot, list[Pod]]) -> None:
    snapshot, gang = world
    half = len(gang) // 2
    pods = [
        attrs.evolve(pod, annotations={**pod.annotations, NAME: name, LEAST: str(size)})
        for name, part, size in (("g", gang[:half], half), ("h", gang[half:], len(gang) - half))
        for pod in part
    ]
    result = schedule(snapshot, pods, policy=attrs.evolve(POLICY, gangs=GangTurns.TOGETHER))
    assert verify(snapshot, result) == ()
    assert all(plan.placed in (0, plan.members) for plan in result.jobs)
    alone = schedule(snapshot, pods, policy=POLICY)
    assert sum(bool(plan.placed) for plan in result.jobs) >= sum(bool(plan.placed) for plan in alone.jobs)


@settings(max_examples=10, deadline=None)
@given(worlds())
def test_a_gang_that_could_be_bound_is_not_missed(world: tuple[ClusterSnapshot, list[Pod]]) -> None:
    snapshot, gang = world
    result = schedule(snapshot, gang, policy=POLICY)
    if result.bound:
        return
    gathers = MUST in gang[0].annotations.values()
    blocks = {state.name: state.node.labels["block"] for state in snapshot.nodes}
    for nodes in itertools.product(sorted(blocks), repeat=len(gang)):
        if gathers and len({blocks[name] for name in nodes}) > 1:
            continue
        alone = [_alone(pod, name) for pod, name in zip(gang, nodes, strict=True)]
        assert len(schedule(snapshot, alone, policy=POLICY).bound) < len(gang), nodes


def _alone(pod: Pod, name: str) -> Pod:
    """The same pod without a gang, on a node that is given."""
    kept = {key: value for key, value in pod.annotations.items() if key not in (NAME, LEAST, SPEC)}
    return attrs.evolve(pod, annotations={**kept, HINT: json.dumps({"nodeNames": [name]})})
