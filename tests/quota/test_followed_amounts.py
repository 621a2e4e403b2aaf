"""Quotas that get other amounts on a line: the ledger follows, and is that of a cluster made anew."""

from __future__ import annotations

import sys
from types import FrameType

import attrs
from hypothesis import given, settings, strategies as st
from immutabledict import immutabledict

from koordcore import ClusterSnapshot, Node, Pod, schedule
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.records import ClusterRecord
from koordcore.protocol.quota import PREFIX
from koordcore.quota.cluster import cluster_ledger
from koordcore.snapshot import (
    Change,
    PodBound,
    PodEnded,
    PodPending,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)

NAMES = ("top", "left", "right", "leaf", "other")
PARENTS = {"left": "top", "right": "top", "leaf": "left"}
POLICIES = (QuotaPolicy(), QuotaPolicy(guarantee_usage=True), QuotaPolicy(enable_check_parent_quota=True))
AMOUNTS = st.fixed_dictionaries({"cpu": st.integers(0, 9)}, optional={"memory": st.integers(0, 9)})


@st.composite
def quotas(draw: st.DrawFn, name: str) -> ElasticQuota:
    """A quota at its place in a tree of three levels."""
    return ElasticQuota(
        name=name,
        namespace=draw(st.sampled_from(("", "", "default"))),
        parent=PARENTS.get(name, ""),
        is_parent=name in PARENTS.values(),
        max=draw(AMOUNTS),
        min=draw(AMOUNTS),
        shared_weight=draw(st.one_of(st.none(), AMOUNTS)),
        allow_lent=draw(st.booleans()),
    )


@st.composite
def changes(draw: st.DrawFn, snapshot: ClusterSnapshot, step: int) -> list[Change]:
    """A quota gets other amounts, comes or goes, or a pod does."""
    what = draw(st.sampled_from(("amounts", "amounts", "amounts", "quota", "pod", "ends")))
    there = snapshot.of(ElasticQuota)
    if what == "ends":
        bound = sorted(one.key for one in snapshot.bound_pods())
        return [PodEnded(draw(st.sampled_from(bound)))] if bound else []
    if what == "pod":
        label = {f"{PREFIX}name": draw(st.sampled_from(NAMES))}
        request = {"cpu": draw(st.integers(0, 5)), "memory": draw(st.integers(0, 5))}
        pod = Pod(name=f"p{step}", labels=label, requests=request)
        return [PodPending(pod) if draw(st.booleans()) else PodBound(pod.at("n"))]
    if what == "quota" or not there:
        one = draw(quotas(draw(st.sampled_from(NAMES))))
        same = [other for other in there if (other.namespace, other.name) == (one.namespace, one.name)]
        if not same:
            return [RecordAdded(one)]
        return [RecordRemoved(same[0])] if draw(st.booleans()) else [RecordReplaced(one)]
    one = draw(st.sampled_from(there))
    least, most = ({key: draw(st.integers(0, 9)) for key in told} for told in (one.min, one.max))
    return [RecordReplaced(attrs.evolve(one, min=least, max=most))]


@given(st.data())
@settings(max_examples=80)
def test_a_ledger_follows_other_amounts(data: st.DataObject) -> None:
    policy = data.draw(st.sampled_from(POLICIES))
    node = Node(name="n", allocatable={"cpu": 20, "memory": 20, "pods": 110})
    start: list[ClusterRecord] = [data.draw(quotas(name)) for name in NAMES]
    line = ClusterSnapshot(nodes=[node], records=start)
    for step in range(data.draw(st.integers(2, 8))):
        line = line.apply(*data.draw(changes(line, step)))
        fresh = ClusterSnapshot(nodes=line.nodes, pending=line.pending, records=line.records)
        known, anew = cluster_ledger(line, policy=policy), cluster_ledger(fresh, policy=policy)
        assert known.statuses() == anew.statuses()
        assert {name: known.handed_to(name) for name in NAMES} == {
            name: anew.handed_to(name) for name in NAMES
        }


def calls(number: int) -> int:
    """Count the calls of one decision after one of so many quotas got another min."""
    node = Node(name="n", allocatable={"cpu": 10**6, "pods": 1000})
    records: list[ClusterRecord] = [
        ElasticQuota(name=f"t{row}", namespace="x", is_parent=True, max={"cpu": 10**6}, min={"cpu": 100})
        for row in range(4)
    ]
    records += [
        ElasticQuota(
            name=f"q{row:04}", namespace="x", parent=f"t{row % 4}", max={"cpu": 10**5}, min={"cpu": 1}
        )
        for row in range(number)
    ]
    line = ClusterSnapshot(nodes=[node], records=records)
    counted = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    for step in range(4):
        known = line.find(ElasticQuota, f"q{step:04}", "x")
        assert known is not None
        other = attrs.evolve(known, min={"cpu": 2 + step}, written_min=immutabledict(cpu=f"{2 + step}m"))
        asked = Pod(name=f"p{step}", labels={f"{PREFIX}name": "t0"}, requests={"cpu": 1})
        line = line.apply(RecordReplaced(other))
        counted = 0
        sys.setprofile(note)
        try:
            result = schedule(line, [asked])
        finally:
            sys.setprofile(None)
        assert len(result.bound) == 1
        line = result.snapshot
    return counted


def test_another_min_costs_as_much_among_four_times_as_many_quotas() -> None:
    few, many = calls(60), calls(240)
    assert many < 1.5 * few, (few, many)
