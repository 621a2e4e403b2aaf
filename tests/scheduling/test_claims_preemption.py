"""Evictions for pods with claims on fifty nodes with eight cards each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from benchmarks.claims_data import mig_cards, whole_gpus
from koordcore import ClusterSnapshot, Pod, PodKey, PreemptionRules, ScheduleResult, schedule, verify
from koordcore.manifests import snapshot_from_objects
from tests.scheduling import test_claims_on_nodes as on_nodes, test_claims_shared as shared
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


# --- devices that several nodes reach -------------------------------------------------------------------


def beside(*asked: str, node: str = "") -> ScheduleResult:
    """A pod that wants in on two nodes; ``r0`` on ``n0`` has the one device of all nodes, of kind ``a``.

    Each node has a device of its own of kind ``b``; the more important ``r1`` uses that of ``n0``.
    """
    pools = [on_nodes.pool("net", "a"), on_nodes.pool("l0", "b", "n0"), on_nodes.pool("l1", "b", "n1")]
    running = [on_nodes.member("r0", "a", node="n0"), on_nodes.member("r1", "b", node="n0")]
    wanting, template = on_nodes.member("w", *asked, node=node)
    made = on_nodes.cluster({"n0": 8, "n1": 8}, pools, [*running, (wanting, template)])
    low = [attrs.evolve(pod, annotations={}, priority=place) for place, (pod, _) in enumerate(running)]
    filled = schedule(ClusterSnapshot(nodes=made.nodes, pending=low, records=made.records)).snapshot
    return evicting(filled, [attrs.evolve(wanting, priority=100)])


@pytest.mark.parametrize(
    ("asked", "node", "goes"),
    [(("a",), "n0", "n0"), (("a",), "n1", "n1"), (("a", "b"), "n1", "n1"), (("a", "b"), "", "n1")],
)
def test_who_holds_a_device_of_all_nodes_leaves_for_a_pod_on_any_node(
    asked: tuple[str, ...], node: str, goes: str
) -> None:
    """Beside ``r1`` on ``n0`` two would have to leave, on ``n1`` one who runs elsewhere."""
    (plan,) = beside(*asked, node=node).preemptions
    assert dict(plan.nominations) == {"default/w": goes}
    assert [str(one.pod) for one in plan.victims] == ["default/r0"]
    assert plan.certificate.proven


def test_who_holds_a_device_of_another_node_stays() -> None:
    """All that ``n0`` lacks is its own device; nobody leaves for what the pod does not ask for."""
    (plan,) = beside("b", node="n0").preemptions
    assert [str(one.pod) for one in plan.victims] == ["default/r1"]
    assert not beside("a", "a").preemptions


@pytest.mark.parametrize("net", ["anet", "net"])
def test_members_on_different_nodes_are_made_room_for_together(net: str) -> None:
    """Each node alone takes its member once one has left; together they need both devices."""
    pools = [on_nodes.pool("l0", "b", "n0"), on_nodes.pool(net, "b")]
    running = [on_nodes.member("r0", "b", node="n0"), on_nodes.member("r1", "b", node="n1")]
    wanting = [on_nodes.member("w0", "any", node="n0"), on_nodes.member("w1", "any", node="n1")]
    made = on_nodes.cluster({"n0": 8, "n1": 8}, pools, [*wanting, *running])
    # The more important one has its turn first.
    low = [attrs.evolve(pod, annotations={}, priority=1 + place) for place, (pod, _) in enumerate(running)]
    filled = schedule(ClusterSnapshot(nodes=made.nodes, pending=low, records=made.records)).snapshot
    assert len(list(filled.bound_pods())) == 2
    members = [attrs.evolve(one, priority=9) for one in shared.gang(*(pod for pod, _ in wanting))]
    (plan,) = evicting(filled, members).preemptions
    assert {str(one.pod) for one in plan.victims} == {"default/r0", "default/r1"}
    assert dict(plan.nominations) == {"default/w0": "n0", "default/w1": "n1"}
