"""Reservations that wait for room may have less important pods leave, like pods."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from koordcore.checking import verify
from koordcore.cli.main import main
from koordcore.manifests.plan_patches import patches
from koordcore.manifests.policy_manifest import configuration_manifest
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model.decisions import Bound, Nominated, Unschedulable
from koordcore.model.pods import PreemptionPolicy
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.model.reservations import AllocatePolicy, Reservation, ReservationArgs
from koordcore.protocol.preemption import DISABLE_PREEMPTIBLE
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.worlds import POLICY, must, node, pod, reservation, uses

RULES = PreemptionRules()
PRIORITY = "koordinator.sh/priority"


def waiting(cpu: int = 6, priority: str = "100", **more: object) -> Reservation:
    labels = {PRIORITY: priority} if priority else {}
    return reservation("r1", cpu, labels=labels, **more)  # type: ignore[arg-type]


def run(snapshot: ClusterSnapshot, policy: Policy = POLICY) -> ScheduleResult:
    result = schedule(snapshot, policy=policy, preempt=RULES)
    assert verify(snapshot, result) == ()
    return result


def victims(result: ScheduleResult) -> list[str]:
    return sorted(victim.pod.name for plan in result.preemptions for victim in plan.victims)


def crowded(*records: Reservation, pending: tuple[object, ...] = ()) -> ClusterSnapshot:
    """Two full nodes; the cheapest pod that makes room for 6 cpu is the 6 cpu pod on n2."""
    running = [
        pod("a", 4, node_name="n1"),
        pod("b", 4, node_name="n1"),
        pod("c", 6, node_name="n2"),
        pod("d", 2, node_name="n2"),
    ]
    nodes = [node("n1"), node("n2")]
    return ClusterSnapshot(nodes=nodes, records=records, pending=pending).assume(*running)  # type: ignore[arg-type]


def test_a_reservation_names_who_has_to_leave_and_is_placed_once_they_have() -> None:
    snapshot = crowded(waiting())
    result = run(snapshot)
    (decision,) = result.decisions
    assert isinstance(decision, Nominated)
    assert decision.node == "n2"
    assert victims(result) == ["c"]
    assert result.preemptions[0].certificate.proven
    held = result.snapshot.find(Reservation, "r1")
    assert held is not None
    assert held.pending
    later = schedule(result.snapshot.forget(*(one.pod for one in decision.victims)), policy=POLICY)
    (placed,) = later.decisions
    assert isinstance(placed, Bound)
    assert placed.node == "n2"


def test_planning_again_preempts_nobody_more() -> None:
    first = run(crowded(waiting()))
    again = run(first.snapshot)
    assert victims(again) == []
    assert again.snapshot == first.snapshot


def test_its_room_is_kept_until_it_is_placed() -> None:
    """Two plans: when all victims have gone, the first reservation does not take the second one's node."""
    more = reservation("r2", 7, labels={PRIORITY: "50"})
    first = run(crowded(waiting(), more))
    nodes = {one.pod.name: one.node for one in first.decisions if isinstance(one, Nominated)}
    assert nodes == {"uid-r1": "n2", "uid-r2": "n1"}
    gone = [victim.pod for plan in first.preemptions for victim in plan.victims]
    later = schedule(first.snapshot.forget(*gone), policy=POLICY)
    assert {one.pod.name: one.node for one in later.bound} == nodes


def test_its_owners_wait_as_long_as_its_victims_are_there() -> None:
    result = run(crowded(waiting(), pending=(pod("owner", 6, "a", annotations=must()),)))
    assert victims(result) == ["c"]
    (decision,) = [one for one in result.decisions if one.pod.name == "owner"]
    assert isinstance(decision, Unschedulable)


def test_one_without_a_priority_preempts_only_where_the_policy_says_so() -> None:
    """It would rank above everything otherwise."""
    snapshot = crowded(waiting(priority=""))
    assert run(snapshot).preemptions == ()
    told = PluginSetting(name="Reservation", weight=5000, args=ReservationArgs(enable_preemption=True))
    assert victims(run(snapshot, Policy().with_plugin(told))) == ["c"]


@pytest.mark.parametrize("why", ["never", "protected", "priority"])
def test_nobody_leaves_who_may_not(why: str) -> None:
    one = waiting(priority="0" if why == "priority" else "100")
    if why == "never":
        assert one.template is not None
        one = attrs.evolve(one, template=attrs.evolve(one.template, preemption_policy=PreemptionPolicy.NEVER))
    snapshot = crowded(one)
    if why == "protected":
        labels = {DISABLE_PREEMPTIBLE: "true"}
        running = [attrs.evolve(each, labels=labels) for each in snapshot.bound_pods()]
        snapshot = ClusterSnapshot(nodes=[node("n1"), node("n2")], records=[one]).assume(*running)
    result = run(snapshot)
    assert result.preemptions == ()
    assert isinstance(result.decisions[0], Unschedulable)


def test_a_victim_that_is_as_important_as_the_reservation_is_found_out() -> None:
    snapshot = crowded(waiting())
    result = run(snapshot)
    lower = attrs.evolve(waiting(), labels={PRIORITY: "0"})
    kinds = {one.message for one in verify(crowded(lower), attrs.evolve(result, snapshot=crowded(lower)))}
    assert "has priority 0 and would leave for 0" in kinds


def test_an_owner_has_whoever_uses_its_reservation_leave() -> None:
    user = pod("user", 4, "a", node_name="n1", annotations=uses("r1"))
    held = reservation("r1", 6, "n1", policy=AllocatePolicy.RESTRICTED)
    owner = pod("owner", 6, "a", annotations=must(), priority=5)
    snapshot = ClusterSnapshot(nodes=[node("n1")], records=[held], pending=[owner]).assume(user)
    result = run(snapshot)
    assert victims(result) == ["user"]
    later = schedule(result.snapshot.forget(user.key), policy=POLICY)
    assert [(one.node, one.reservation) for one in later.bound] == [("n1", "r1")]


def test_the_controller_is_told_to_evict() -> None:
    condition, eviction, nomination = patches(run(crowded(waiting())))
    assert (str(condition.pod), condition.subresource) == ("default/c", "status")
    assert (str(eviction.pod), eviction.subresource) == ("default/c", "eviction")
    assert nomination.reservation == "r1"
    assert nomination.body == {"metadata": {"annotations": {"koordcore.io/nominated-node": "n2"}}}


def test_the_command_line_shows_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def running(name: str, cpu: str) -> dict[str, object]:
        containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": containers, "nodeName": "n1"},
        }

    hold = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "demo", "labels": {PRIORITY: "9"}},
        "spec": {
            "ttl": "24h",
            "owners": [{"labelSelector": {"matchLabels": {"app": "demo"}}}],
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "6"}}}]}},
        },
    }
    there = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"}},
    }
    path, plan = tmp_path / "dump.json", tmp_path / "plan.json"
    items = [there, hold, running("small", "2"), running("large", "6")]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "utf-8")
    assert main(["schedule", str(path), "--preempt"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("reservation/demo") == 2
    assert "default/large" in shown
    assert "default/small" not in shown
    assert main(["schedule", str(path), "--preempt", "-o", "json"]) == 0
    plan.write_text(capsys.readouterr().out, "utf-8")
    assert main(["verify", str(path), "--plan", str(plan)]) == 0


AT_POST_FILTER = {
    "apiVersion": "kubescheduler.config.k8s.io/v1beta3",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "pluginConfig": [{"name": "Reservation", "args": {"enablePreemption": True}}],
            "plugins": {
                "postFilter": {
                    "disabled": [{"name": "DefaultPreemption"}],
                    "enabled": [{"name": "Reservation"}],
                }
            },
        }
    ],
}


def one_policy(manifest: Mapping[str, object]) -> Policy:
    (policy,) = policies_from_manifest(manifest)
    return policy


def test_a_plugin_that_is_enabled_at_post_filter_only_takes_part_there() -> None:
    """As the release notes print it: a reservation without a priority preempts, and its room is held."""
    loaded = one_policy(AT_POST_FILTER)
    setting = loaded.plugin("Reservation")
    assert setting is not None
    assert (setting.filters, setting.scores) == (True, False)
    assert one_policy(configuration_manifest(loaded)) == loaded
    snapshot = crowded(waiting(priority=""))
    first = run(snapshot, loaded)
    assert victims(first) == ["c"]
    gone = [victim.pod for plan in first.preemptions for victim in plan.victims]
    later = run(first.snapshot.forget(*gone), loaded)
    assert [one.pod.name for one in later.bound] == ["uid-r1"]
    owner = pod("owner", 6, "a")
    assert [one.reservation for one in schedule(later.snapshot, [owner], policy=loaded).bound] == ["r1"]
