"""Reservations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.plan_patches import patches
from koordcore.manifests.reservations import reservation_from_manifest
from koordcore.model.reservations import Reservation
from koordcore.protocol.reservation import reservation_wish
from koordcore.protocol.reservation_args import parse_reservation_args
from koordcore.reservations.lifecycle import made_available, needs_expiration
from koordcore.reservations.match import judge_match
from koordcore.reservations.state import reservation_state
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.worlds import DAY, POLICY, node, pod, reservation


def manifest(**spec: object) -> dict[str, object]:
    """A reservation of four CPUs for everybody."""
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r1"},
        "spec": {"owners": [{}], "template": template, **spec},
    }


def test_manifest_without_uid_has_the_default_ttl() -> None:
    assert reservation_from_manifest(manifest()).ttl == DAY
    stored = {**manifest(), "metadata": {"name": "r1", "uid": "u"}}
    assert reservation_from_manifest(stored).problem == "the reservation misses the expiration spec"


def test_limits_of_a_template_are_no_requests() -> None:
    template = {"spec": {"containers": [{"resources": {"limits": {"cpu": "4"}}}]}}
    assert reservation_from_manifest(manifest(template=template)).requests == {}


def test_problems_name_their_place() -> None:
    template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}
    with pytest.raises(ManifestError) as caught:
        reservation_from_manifest(manifest(template=template, ttl="soon"))
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"spec.template.spec.containers[0].resources.requests[cpu]", "spec.ttl"}


def test_owners_that_cannot_be_read_match_nobody_and_are_told() -> None:
    bad = {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}
    loaded = snapshot_from_objects([manifest(owners=[{}, bad])])
    (one,) = loaded.snapshot.of(Reservation)
    assert one.owners_error.endswith('"Near" is not a valid label selector operator')
    assert any("matches nobody" in str(warning) for warning in loaded.warnings)
    assert reservation_state(one).unreadable


def test_keys_of_the_affinity_match_without_case() -> None:
    (one,) = snapshot_from_objects([manifest()]).snapshot.of(Reservation)
    there = made_available(one, "n1", None)
    wish = reservation_wish({}, {"scheduling.koordinator.sh/reservation-affinity": '{"NAME":"r1"}'})
    assert judge_match(pod("p", 1), wish, reservation_state(there), {}).matched


def test_a_clock_decides_about_the_end() -> None:
    one = reservation_from_manifest(manifest(expires="2026-01-01T00:00:00Z"))
    assert not needs_expiration(one, datetime(2026, 1, 1, tzinfo=UTC))
    assert needs_expiration(one, datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC))


def test_arguments_are_checked_in_upstreams_words() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_reservation_args({"minCandidateNodesPercentage": 101, "ignoredResources": ["cpu"]})
    assert [problem.path for problem in caught.value.problems] == [
        "minCandidateNodesPercentage",
        "ignoredResources[0]",
    ]


def test_a_placed_reservation_is_patched_and_no_pod_is_bound_for_it() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1", 4)], records=[reservation("r1", 3), reservation("r2", 3)])
    result = schedule(snapshot, policy=POLICY)
    calls = [call.to_json() for call in patches(result, now=datetime(2026, 1, 1, tzinfo=UTC))]
    base = "/apis/scheduling.koordinator.sh/v1alpha1/reservations/"
    assert [call["path"] for call in calls] == [f"{base}r1/status", f"{base}r2/status"]
    status = calls[0]["body"]["status"]
    assert (status["phase"], status["nodeName"], status["allocatable"]) == ("Available", "n1", {"cpu": "3"})
    assert calls[1]["body"]["status"]["conditions"][0]["reason"] == "Unschedulable"


def test_a_reservation_that_still_fits_nowhere_has_not_passed_over() -> None:
    """The message may be another one; the condition is false since it became so, and was probed now."""
    since = "2025-12-31T00:00:00Z"
    said = {"type": "Scheduled", "status": "False", "message": "full", "lastTransitionTime": since}
    loaded = snapshot_from_objects([{**manifest(), "status": {"conditions": [said]}}])
    snapshot = ClusterSnapshot(nodes=[node("n1", 3)], records=loaded.snapshot.of(Reservation))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    (call,) = patches(schedule(snapshot, policy=POLICY), now=now)
    (condition,) = call.body["status"]["conditions"]
    assert condition["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    assert condition["lastTransitionTime"] == since
    assert condition["lastProbeTime"] == "2026-01-01T00:00:00Z"
