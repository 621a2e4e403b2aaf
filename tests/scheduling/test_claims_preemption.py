"""Evictions for pods with claims on fifty nodes with eight cards each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from benchmarks.claims_data import mig_cards, whole_gpus
from koordcore import ClusterSnapshot, Pod, PodKey, PreemptionRules, ScheduleResult, schedule, verify
from koordcore.manifests import snapshot_from_objects
from tests.scheduling.test_claims_gangs import GANG, cluster, member

NODES = 50


def running(kind: str) -> ClusterSnapshot:
    """Fifty nodes that less important pods fill: two partitions on each card, or one pod on each GPU."""
    build, wish, count = (mig_cards, "3g-40gb", 16) if kind == "mig" else (whole_gpus, "gpu", 8)
    slices = [build(f"n{number:02}", 8) for number in range(NODES)]
    pods = [
        attrs.evolve(member(f"low-{n:04}", wish, least=1), annotations={}, priority=1 + n % 7)
        for n in range(NODES * count)
    ]
    placed = schedule(cluster(slices, pods))
    assert len(placed.bound) == NODES * count
    return placed.snapshot


def high(count: int, wish: str) -> list[Pod]:
    notes = {f"{GANG}name": "g", f"{GANG}min-available": str(count)} if count > 1 else {}
    ones = [member(f"high-{number}", wish, least=count) for number in range(count)]
    return [attrs.evolve(one, annotations=notes, priority=100) for one in ones]


def evicting(snapshot: ClusterSnapshot, pods: Sequence[Pod]) -> ScheduleResult:
    asked = snapshot.with_pending(*pods)
    result = schedule(asked, preempt=PreemptionRules())
    assert verify(asked, result) == ()
    return result


@pytest.mark.parametrize("wish", ["7g-80gb", "gpu"])
def test_one_pod(wish: str) -> None:
    """A whole card has its two partitions leave; nobody is named whose card would not be free then."""
    (plan,) = evicting(running("mig"), high(1, wish)).preemptions
    assert len({one.node for one in plan.victims}) == 1
    assert len(plan.victims) == 2
    assert plan.certificate.proven


def test_a_gang_that_wants_whole_nodes() -> None:
    (plan,) = evicting(running("whole"), high(2, "eight")).preemptions
    assert len(plan.victims) == 16
    assert len(plan.nominations) == 2
    assert plan.certificate.proven


def test_nobody_leaves_for_what_no_node_has() -> None:
    result = evicting(running("whole"), high(1, "pair"))
    assert not result.preemptions


DRIVER, GROUP = "gpu.example.com", "resource.k8s.io/v1"


def claim(name: str, count: int, holder: str = "") -> dict[str, Any]:
    """A claim for some devices; with a holder it has the first device of ``n``."""
    asked = {"name": "q", "exactly": {"deviceClassName": "any", "count": count}}
    made: dict[str, Any] = {
        "apiVersion": GROUP,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": f"u-{name}"},
        "spec": {"devices": {"requests": [asked]}},
    }
    if holder:
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
        made["status"] = {
            "allocation": {
                "devices": {"results": [{"request": "q", "driver": DRIVER, "pool": "n", "device": "d0"}]},
                "nodeSelector": {"nodeSelectorTerms": [here]},
            },
            "reservedFor": [{"resource": "pods", "name": holder, "uid": holder}],
        }
    return made


def claiming(name: str, named: str, priority: int, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "priority": priority,
            "resourceClaims": [{"name": "x", "resourceClaimName": named}],
            "containers": [{"name": "c", "resources": {"claims": [{"name": "x"}]}}],
            **spec,
        },
    }


def one_node(*objects: dict[str, Any]) -> ClusterSnapshot:
    """A node of two devices, of which ``low`` has the first."""
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "8", "pods": "9"}},
    }
    devices = [{"name": name} for name in ("d0", "d1")]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "n", "pool": pool, "devices": devices}
    some = {"apiVersion": GROUP, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    anything = {"apiVersion": GROUP, "kind": "DeviceClass", "metadata": {"name": "any"}, "spec": {}}
    low = claiming("low", "of-low", 0, nodeName="n")
    loaded = snapshot_from_objects([node, some, anything, claim("of-low", 1, "low"), low, *objects])
    assert loaded.problems == ()
    return loaded.snapshot


@pytest.mark.parametrize("shared", [False, True])
def test_devices_that_a_plan_counts_on_are_kept_until_its_victims_have_gone(shared: bool) -> None:
    """In the call that made it and in later ones; who shares the claim does not have it before either."""
    other = claiming("other", "of-top" if shared else "of-other", 10)
    snapshot = one_node(claim("of-top", 2), claim("of-other", 1), claiming("top", "of-top", 100), other)
    for expected in ([PodKey("default", "low")], [], []):
        result = schedule(snapshot, preempt=PreemptionRules())
        assert verify(snapshot, result) == ()
        assert [one.pod for plan in result.preemptions for one in plan.victims] == expected
        assert not result.bound
        snapshot = result.snapshot
    freed = snapshot.forget("default/low")
    bound = schedule(freed, preempt=PreemptionRules()).bound
    assert [one.pod.name for one in bound] == (["top", "other"] if shared else ["top"])


def test_who_is_more_important_takes_devices_that_are_kept_for_a_nominated_pod() -> None:
    snapshot = one_node(claim("of-top", 2), claim("of-boss", 1), claiming("top", "of-top", 100))
    nominated = schedule(snapshot, preempt=PreemptionRules()).snapshot
    boss = snapshot_from_objects([claiming("boss", "of-boss", 200)]).snapshot.pending
    assert [one.pod.name for one in schedule(nominated, boss).bound] == ["boss"]
