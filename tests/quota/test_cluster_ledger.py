"""The ledger of a snapshot follows what happens to the cluster, as if it had been opened anew."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from koordcore.model.claims import (
    ALL_DEVICES,
    MAX_DEVICES,
    ClaimRequest,
    ClaimSpec,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodResourceClaim
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.resources import Resources, make_resources
from koordcore.protocol.reserve_pod import RESERVE_POD
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.ledger import QuotaLedger
from koordcore.snapshot import (
    ClusterSnapshot,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    PodPending,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)

NAME = "quota.scheduling.koordinator.sh/name"
DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
TEAM = ElasticQuota(name="team", namespace="q", max={"cpu": 90}, min={"cpu": 10})
OTHER = ElasticQuota(name="other", namespace="q", max={"cpu": 90})


def cpu(amount: int) -> Resources:
    return make_resources({"cpu": amount})


def node(name: str, cores: int, **more: int) -> Node:
    return Node(name=name, allocatable={"cpu": cores, "pods": 9, **more})


def pod(name: str, owner: str, cores: int, **fields: Any) -> Pod:
    return Pod(name=name, uid=name, labels={NAME: owner}, requests={"cpu": cores}, **fields)


START = ClusterSnapshot(
    nodes=(
        NodeState(node("n1", 40), (pod("run", "team", 20, node_name="n1"),)),
        NodeState(node("n2", 30), ()),
    ),
    pending=(pod("wait", "team", 90), pod("want", "other", 90)),
    records=(TEAM,),
)


def anew(snapshot: ClusterSnapshot) -> QuotaLedger:
    """Open the ledger of a snapshot that has no past."""
    records: list[ElasticQuota | Pod] = [*snapshot.of(ElasticQuota), *snapshot.of(Pod)]
    fresh = ClusterSnapshot(
        nodes=tuple(snapshot.nodes),
        pending=tuple(snapshot.pending),
        records=tuple(records),
    )
    return cluster_ledger(fresh)


def told(ledger: QuotaLedger) -> tuple[object, ...]:
    return ledger.total, ledger.statuses(), ledger.pool_of(), ledger.own_of("koordinator-default-quota")


def test_a_quota_that_comes_changes_or_leaves_makes_another_tree() -> None:
    assert cluster_ledger(START).runtime_of("team") == cpu(70)
    assert "other" not in cluster_ledger(START).quotas
    both = START.apply(RecordAdded(OTHER))
    ledger = cluster_ledger(both)
    assert (ledger.runtime_of("team"), ledger.runtime_of("other")) == (cpu(40), cpu(30))
    assert told(ledger) == told(anew(both))
    raised = both.apply(RecordReplaced(attrs.evolve(OTHER, min={"cpu": 50})))
    assert cluster_ledger(raised).runtime_of("other") == cpu(55)
    alone = raised.apply(RecordRemoved(OTHER))
    assert told(cluster_ledger(alone)) == told(cluster_ledger(START))


@pytest.mark.parametrize(
    ("change", "total"),
    [
        (NodeReplaced(node("n1", 60)), 90),
        (NodeReplaced(node("n1", 5)), 35),
        (NodeReplaced(NodeState(node("n2", 31), (pod("more", "team", 4, node_name="n2"),))), 71),
        (NodeAdded(node("n3", 8)), 78),
        (NodeRemoved("n2"), 40),
        (NodeRemoved("n1"), 30),
    ],
)
def test_what_nodes_offer_is_shared_from_then_on(change: Any, total: int) -> None:
    cluster_ledger(START)
    later = START.apply(change)
    ledger = cluster_ledger(later)
    assert ledger.total["cpu"] == total
    assert ledger.runtime_of("team") == cpu(total)
    assert told(ledger) == told(anew(later))


def test_a_node_that_offers_something_new_is_counted_with_it() -> None:
    cluster_ledger(START)
    later = START.apply(NodeReplaced(node("n1", 40, **{"nvidia.com/gpu": 8})))
    assert cluster_ledger(later).total == {"cpu": 70, "pods": 18, "nvidia.com/gpu": 8}


@pytest.mark.parametrize(
    "change",
    [
        PodBound(pod("wait", "team", 90, node_name="n2")),
        PodBound(pod("new", "team", 7, node_name="n2")),
        PodBound(pod("stray", "", 7, node_name="n2")),
        PodPending(pod("new", "team", 7)),
        PodPending(pod("wait", "team", 3)),
        PodEnded("default/run"),
        PodEnded("default/wait"),
        RecordAdded(pod("away", "team", 6, node_name="gone")),
    ],
)
def test_pods_are_counted_as_they_come_and_go(change: Any) -> None:
    cluster_ledger(START)
    later = START.apply(change)
    ledger = cluster_ledger(later)
    assert told(ledger) == told(anew(later))
    assert ledger.status("team") != cluster_ledger(START).status("team") or ledger.pool_of() != {"cpu": 70}


def test_a_reserve_pod_asks_for_room_and_uses_none() -> None:
    """While it waits it counts like a pod; on its node its users count."""
    notes = {RESERVE_POD: "true"}
    cluster_ledger(START)
    waits = START.apply(PodPending(pod("asking", "team", 5, annotations=notes)))
    assert cluster_ledger(waits).status("team").request == {"cpu": 115}
    holds = START.apply(PodBound(pod("held", "team", 5, node_name="n2", annotations=notes)))
    status = cluster_ledger(holds).status("team")
    assert (status.request, status.used) == (cpu(110), cpu(20))
    assert told(cluster_ledger(holds)) == told(anew(holds))


def test_each_policy_has_its_own_ledger() -> None:
    fixed = QuotaPolicy(enable_runtime_quota=False)
    assert cluster_ledger(START, policy=fixed).policy is fixed
    assert cluster_ledger(START) is cluster_ledger(START)
    assert cluster_ledger(START).policy == QuotaPolicy()


# --- devices of Kubernetes' drivers -----------------------------------------------------------------------


def spec(*forms: tuple[str, int | None]) -> ClaimSpec:
    """One request with alternatives; no number stands for all devices."""
    made = tuple(
        DeviceSubRequest(name=f"f{place}", class_name=kind, mode=ALL_DEVICES)
        if count is None
        else DeviceSubRequest(name=f"f{place}", class_name=kind, count=count)
        for place, (kind, count) in enumerate(forms)
    )
    return ClaimSpec(requests=(ClaimRequest("r", forms=made, prioritized=len(made) > 1),))


def claiming(name: str, **entry: str) -> Pod:
    return attrs.evolve(pod(name, "cards", 1), resource_claims=(PodResourceClaim("c", **entry),))


def cards(*pods: Pod, records: tuple[Any, ...] = ()) -> ClusterSnapshot:
    quota = ElasticQuota(name="cards", namespace="q", max={"cpu": 9, DEVICES: 500})
    return ClusterSnapshot(nodes=(node("n", 9),), pending=pods, records=(quota, *records))


def devices(snapshot: ClusterSnapshot) -> int:
    return cluster_ledger(snapshot).status("cards").request.get(DEVICES, 0)


def test_devices_count_that_claims_by_name_and_from_templates_ask_for() -> None:
    own = ResourceClaim(name="mine", spec=spec(("gpu", 3)))
    pattern = ResourceClaimTemplate(name="two", spec=spec(("gpu", 2)))
    both = (own, pattern)
    assert devices(cards(claiming("a", claim="mine"), records=both)) == 3
    assert devices(cards(claiming("a", template="two"), records=both)) == 2
    assert devices(cards(claiming("a", claim="mine"), claiming("b", template="two"), records=both)) == 5
    assert devices(cards(claiming("a", claim="nobody's"), claiming("b", template="none"), records=both)) == 0
    assert devices(cards(claiming("a", claim="mine", template="gone"), records=both)) == 3


def test_of_alternatives_the_largest_counts_and_all_is_as_many_as_a_claim_may_have() -> None:
    for forms, expected in (
        ((("gpu", 1), ("gpu", 4), ("gpu", 2)), 4),
        ((("gpu", None),), MAX_DEVICES),
        ((("nic", 4),), 0),
    ):
        own = ResourceClaim(name="mine", spec=spec(*forms))
        assert devices(cards(claiming("a", claim="mine"), records=(own,))) == expected


def test_a_changed_template_is_counted_anew_where_a_quota_counts_devices() -> None:
    first = ResourceClaimTemplate(name="two", spec=spec(("gpu", 2)))
    start = cards(claiming("a", template="two"), records=(first,))
    assert devices(start) == 2
    later = start.apply(RecordReplaced(attrs.evolve(first, spec=spec(("gpu", 7)))))
    assert devices(later) == 7
    assert devices(later.apply(RecordRemoved(first))) == 0
    assert devices(later.apply(PodPending(claiming("b", template="two")))) == 14


def test_a_claim_that_stands_by_itself_counts_from_when_it_is_there() -> None:
    """Whoever names it may have come before; what claims of pods are allocated changes nothing."""
    own = ResourceClaim(name="mine", spec=spec(("gpu", 3)))
    start = cards(claiming("a", claim="mine"))
    assert devices(start) == 0
    later = start.apply(RecordAdded(own))
    assert devices(later) == 3
    ledger = cluster_ledger(later)
    noted = later.apply(RecordReplaced(attrs.evolve(own, labels={"seen": "true"})))
    assert cluster_ledger(noted) is ledger
    assert devices(noted) == 3
    assert devices(noted.apply(PodEnded("default/a"))) == 0
    assert devices(noted.apply(RecordRemoved(own))) == 0


# --- over streams -----------------------------------------------------------------------------------------


def _quota(owner: str, most: int, least: int, **fields: Any) -> ElasticQuota:
    return ElasticQuota(
        name=owner, namespace="q", max={"cpu": most, "pods": 50}, min={"cpu": least}, **fields
    )


@st.composite
def _one_change(draw: st.DrawFn, snapshot: ClusterSnapshot, step: int) -> Any:
    there = [one.name for one in snapshot.of(ElasticQuota)]
    bound = sorted(str(one.key) for one in snapshot.bound_pods())
    nodes = [state.name for state in snapshot.nodes]
    owner = draw(st.sampled_from(["team", "other", "kid", "", "nobody"]))
    cores = draw(st.integers(0, 20))
    kind = draw(st.sampled_from(["bound", "pending", "ended", "node", "leaves", "quota", "quota", "gone"]))
    if kind == "bound" and nodes:
        space = "space" if draw(st.booleans()) else "default"
        return PodBound(
            pod(f"b{step}", owner, cores, node_name=draw(st.sampled_from(nodes)), namespace=space)
        )
    if kind == "ended" and bound:
        return PodEnded(draw(st.sampled_from(bound)))
    if kind == "node":
        name = draw(st.sampled_from(["n1", "n2", "n3"]))
        offered = node(
            name, draw(st.integers(0, 60)), **({"example.com/x": 1} if draw(st.booleans()) else {})
        )
        return NodeReplaced(offered) if name in nodes else NodeAdded(offered)
    if kind == "leaves" and nodes:
        return NodeRemoved(draw(st.sampled_from(nodes)))
    if kind == "quota":
        name = draw(st.sampled_from(["team", "other", "kid"]))
        fields: dict[str, Any] = {"parent": "team"} if name == "kid" and "team" in there else {}
        if draw(st.booleans()):
            fields["namespaces"] = ("space",)
        one = _quota(name, draw(st.integers(0, 99)), draw(st.integers(0, 40)), **fields)
        return RecordReplaced(one) if name in there else RecordAdded(one)
    if kind == "gone" and there:
        return RecordRemoved(_quota(draw(st.sampled_from(there)), 1, 1))
    return PodPending(pod(f"w{step}", owner, cores))


@given(data=st.data())
def test_a_ledger_that_followed_is_one_that_was_opened_anew(data: st.DataObject) -> None:
    """Quotas come, change and leave between pods and nodes that do; not every step is asked about."""
    snapshot = START
    cluster_ledger(snapshot)
    for step in range(data.draw(st.integers(1, 8))):
        snapshot = snapshot.apply(data.draw(_one_change(snapshot, step)))
        if data.draw(st.booleans()):
            assert told(cluster_ledger(snapshot)) == told(anew(snapshot))
    ledger, fresh = cluster_ledger(snapshot), anew(snapshot)
    assert told(ledger) == told(fresh)
    for name in (*ledger.quotas, "koordinator-default-quota"):
        assert (ledger.runtime_of(name), ledger.held_of(name)) == (
            fresh.runtime_of(name),
            fresh.held_of(name),
        )
