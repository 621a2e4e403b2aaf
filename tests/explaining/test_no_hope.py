"""Where a node says that no eviction would help there, and where one might."""

from __future__ import annotations

from datetime import UTC, datetime

from koordcore import ClusterSnapshot, Pod, Policy
from koordcore.explaining.diagnosis import diagnose
from koordcore.model.policy import DEFAULT_POLICY
from koordcore.model.reservations import AllocatePolicy
from koordcore.protocol.reservation import OPERATING_MODE
from tests.reservations import worlds
from tests.scheduling.test_claims import cluster, legal, pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def hopeful(snapshot: ClusterSnapshot, asks: Pod, policy: Policy = DEFAULT_POLICY) -> dict[str, bool]:
    """Whether preemption might help, by node."""
    found = diagnose(snapshot, asks, now=NOW, policy=policy).schedule
    return {name: one.preempt_might_help for one in found.node_failed_details for name in one.failed_nodes}


def test_devices_that_a_node_never_has_are_no_reason_to_evict_and_those_in_use_are() -> None:
    held = legal(cluster({"a": 2, "b": 1}, pending=[pod("p", "two"), pod("q")])).snapshot
    assert hopeful(held, pod("r", "two")) == {"a": True, "b": False}
    assert hopeful(held, pod("r")) == {"a": True, "b": True}


def test_reservations_that_do_not_go_with_each_other_are_no_reason_to_evict() -> None:
    """Who acts as a reservation does not come beside one of another policy; the full node may be freed."""
    nodes = [worlds.node("a"), worlds.node("b", 2)]
    full = worlds.pod("full", 2, node_name="b")
    start = ClusterSnapshot(
        nodes=nodes, records=(worlds.reservation("r", 2, "a", policy=AllocatePolicy.DEFAULT),)
    ).assume(full)
    acts = worlds.pod("acts", 1, "a", labels={OPERATING_MODE: "Reservation"})
    assert hopeful(start, acts, worlds.POLICY) == {"a": False, "b": True}
