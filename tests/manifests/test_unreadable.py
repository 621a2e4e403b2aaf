"""What one object says wrongly hurts that object alone: all others are decided (ruling 25)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from koordcore import ClusterSnapshot, NodeState, PreemptionRules, schedule, verify
from koordcore.cli import main
from koordcore.errors import ManifestError
from koordcore.explaining import explain
from koordcore.manifests import load, snapshot_from_objects
from koordcore.model.cluster import Unreadable
from koordcore.model.decisions import Bound, Unschedulable
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.snapshot.changes import NodeAdded, NodeRemoved, PodBound, PodEnded
from tests.manifests.builders import container, node, obj, pod

QUOTAS = "scheduling.sigs.k8s.io/v1alpha1"
ROOM = {"cpu": "8", "memory": "32Gi", "pods": "10"}
MANY = "spec.containers[0].resources.requests[cpu]: expected a quantity, got "


def asking(name: str, cpu: Any, **rest: Any) -> dict[str, Any]:
    return pod(name, containers=[container(requests={"cpu": cpu, "memory": "1Gi"})], **rest)


def places(*objects: Any, **settings: Any) -> dict[str, str]:
    result = schedule(snapshot_from_objects(objects).snapshot, **settings)
    return {
        str(one.pod): one.node if isinstance(one, Bound) else getattr(one, "message", "")
        for one in result.decisions
    }


@pytest.mark.parametrize(
    ("broken", "named", "text"),
    [
        (asking("bad", "lots"), "default/bad", f'{MANY}"lots"'),
        (obj("Pod", "bad", spec=7), "default/bad", "spec: expected object, got 7"),
        (pod("bad", metadata={"namespace": 5}), "5/bad", "metadata.namespace: expected string, got 5"),
        ({**pod(), "metadata": {"name": 7}}, "default/7", "metadata.name: expected string, got 7"),
        (pod("a\x1b["), "default/a\\x1b[", "metadata.name: a name has no control characters"),
        ({"kind": "Pod", "metadata": {"name": "bad"}}, "default/bad", 'apiVersion: required (such as "v1")'),
        ({"apiVersion": "v1", "kind": "Pod", "metadata": 3}, "default/object-2", "metadata: expected object"),
        (pod("bad", priority="high"), "default/bad", 'spec.priority: expected int, got "high"'),
    ],
)
def test_a_waiting_pod_that_cannot_be_read_is_unschedulable_with_the_text(
    broken: Any, named: str, text: str
) -> None:
    loaded = snapshot_from_objects([node("n1", ROOM), broken, asking("good", "1")])
    result = schedule(loaded.snapshot)
    own, good = result.decision(named), result.decision("default/good")
    assert isinstance(good, Bound)
    assert isinstance(own, Unschedulable)
    assert own.message.startswith(f"0/1 nodes are available: the pod cannot be read: {text}")
    assert text in str(loaded.problems[0])
    assert str(loaded.problems[0]).startswith("object 2: ")
    assert text in str(explain(loaded.snapshot, loaded.snapshot.pod(named) or named))
    assert verify(loaded.snapshot, result) == ()


def test_a_node_that_cannot_be_read_is_left_out_and_what_it_holds_with_it() -> None:
    loaded = snapshot_from_objects(
        [
            node("n1", {**ROOM, "cpu": "-8"}),
            asking("there", "1", nodeName="n1"),
            asking("p", "1"),
            node("n2", ROOM),
        ]
    )
    result = schedule(loaded.snapshot)
    assert [one.node for one in result.bound] == ["n2"]
    told = "status.allocatable[cpu]: must not be negative, got -8000"
    assert [str(one) for one in loaded.problems] == [f"object 1: Node n1: {told}"]
    assert loaded.snapshot.of(Unreadable) == (Unreadable(kind="Node", name="n1", why=told),)
    assert [str(one) for one in result.not_looked_at] == [f"Node n1 (cannot be read: {told})"]
    assert [one.name for one in loaded.snapshot.of(Pod)] == ["there"]


def test_nobody_joins_a_running_pod_that_cannot_be_read() -> None:
    bad = asking("bad", "2", nodeName="n1", affinity=5)
    objects = [
        node("n1", ROOM),
        node("n2", {**ROOM, "cpu": "1"}),
        bad,
        asking("small", "1"),
        asking("big", "4"),
    ]
    found = places(*objects)
    assert found["default/small"] == "n2"
    assert found["default/big"] == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) held a pod that cannot be read: default/bad."
    )
    loaded = snapshot_from_objects(objects)
    (held,) = loaded.snapshot.bound_pods()
    assert held.requests["cpu"] == 2000
    (told,) = schedule(loaded.snapshot).not_looked_at
    assert str(told) == (
        "Pod default/bad (cannot be read: spec.affinity: expected object, got 5; n1 takes no other pod)"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": {"startTime": "yesterday"}},
        {"status": {"phase": "Strange"}},
        {"status": {"conditions": [{"type": "Initialized", "status": "True", "lastTransitionTime": 4}]}},
        {"metadata": {"creationTimestamp": 5}},
        {"tolerations": 5},
        {"priority": "x"},
    ],
    ids=str,
)
def test_what_says_nothing_of_what_a_running_pod_holds_is_only_named(wrong: dict[str, Any]) -> None:
    bad = asking("bad", "5", nodeName="n1", **wrong)
    high = asking("high", "6", priority=100)
    loaded = snapshot_from_objects([node("n1", ROOM), bad, asking("small", "3"), high])
    result = schedule(loaded.snapshot, preempt=PreemptionRules())
    assert [str(one.pod) for one in result.bound] == ["default/small"]
    assert not result.preemptions  # nobody knows all that the pod is worth
    (told,) = result.not_looked_at
    assert str(told).startswith("Pod default/bad (cannot be read: ")
    assert "takes no other pod" not in str(told)
    assert verify(loaded.snapshot, result) == ()


def test_what_can_be_read_of_a_running_pod_counts() -> None:
    half = pod(
        "half",
        nodeName="n1",
        containers=[container(requests={"cpu": "x", "memory": "2Gi"}), container("b", requests={"cpu": "3"})],
    )
    huge = asking("huge", 2**60, nodeName="n1")
    loaded = snapshot_from_objects([node("n1", ROOM), half, huge])
    amounts = {one.name: dict(one.requests) for one in loaded.snapshot.bound_pods()}
    assert amounts == {"half": {"cpu": 3000, "memory": 2 << 30}, "huge": {"memory": 1 << 30}}
    assert "at most 70368744177664 can be counted" in str(loaded.problems[1])


def test_nobody_has_to_leave_a_node_where_something_cannot_be_read() -> None:
    low = asking("low", "3", nodeName="n1", priority=1)
    bad = asking("bad", "3", nodeName="n1", overhead="x")
    high = asking("high", "6", priority=100)
    assert places(node("n1", ROOM), low, high, preempt=PreemptionRules())["default/high"] == ""  # nominated
    found = places(node("n1", ROOM), low, bad, high, preempt=PreemptionRules())
    assert "node(s) held a pod that cannot be read: default/bad" in found["default/high"]


@pytest.mark.parametrize("together", [False, True])
def test_a_gang_starts_without_the_member_that_cannot_be_read_where_it_may(together: bool) -> None:
    names = {"gang.scheduling.koordinator.sh/name": "g", "gang.scheduling.koordinator.sh/min-available": "2"}
    spec = {"gang.scheduling.koordinator.sh/network-topology-spec": '{"gatherStrategy":[]}'}
    notes = {"annotations": {**names, **(spec if together else {})}}
    members = [asking(f"g-{number}", "1" if number else "1x", metadata=notes) for number in range(3)]
    rack = node("n1", ROOM, metadata={"labels": {"topology.kubernetes.io/rack": "r"}})
    found = places(rack, *members)
    assert found["default/g-1"] == found["default/g-2"] == "n1"
    assert f'the pod cannot be read: {MANY}"1x"' in found["default/g-0"]
    found = places(rack, *members[:2])
    assert found["default/g-1"] != "n1"
    assert f'the pod cannot be read: {MANY}"1x"' in found["default/g-0"]


def test_what_cannot_be_read_of_other_kinds_is_left_out_and_named() -> None:
    group = obj("PodGroup", "g", "scheduling.sigs.k8s.io/v1alpha1", spec={"minMember": "two"})
    objects: list[Any] = [node("n1", ROOM), group, 5, {"apiVersion": "v1"}, asking("p", "1")]
    loaded = snapshot_from_objects(objects)
    assert [str(one) for one in loaded.problems] == [
        'object 2: PodGroup g: spec.minMember: expected int, got "two"',
        "object 3: expected object, got 5",
        "object 4: kind: required",
    ]
    assert [str(one.pod) for one in schedule(loaded.snapshot).bound] == ["default/p"]
    assert sum(loaded.counts.values()) == 3


def test_a_configuration_that_cannot_be_read_is_refused() -> None:
    config = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    with pytest.raises(ManifestError, match="KubeSchedulerConfiguration: profiles: expected list"):
        snapshot_from_objects([node("n1"), {**config, "profiles": 3}])


def test_strict_refuses_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"kind": "List", "items": [node("n1", ROOM), asking("bad", "x")]}))
    with pytest.raises(ManifestError, match=r"dump.json \(item 2\): Pod bad: spec.containers"):
        load(file, strict=True)
    assert main(["schedule", "--strict", str(file)]) == 2


def test_a_pod_of_thousands_of_problems_is_told_of_in_short() -> None:
    bad = pod("bad", containers=[container(f"c{number}", requests={"cpu": "x"}) for number in range(2000)])
    loaded = snapshot_from_objects([node("n1", ROOM), bad])
    assert len(loaded.problems) == 101
    assert loaded.problems[-1].message == "and 1900 more problems"
    assert loaded.snapshot.pending[0].unreadable.endswith("; and 1997 more")


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_the_command_line_names_what_is_left_out_whatever_it_prints(
    quiet: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, plan = tmp_path / "dump.json", tmp_path / "plan.json"
    items = [node("n1", ROOM), node("n2", {"cpu": "?"}), asking("p", "1")]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    told = f'{file} (item 2): Node n2: status.allocatable[cpu]: expected a quantity, got "?"'
    for verb in (["schedule"], ["inspect"], ["explain", "default/p"]):
        assert main([*verb, str(file), *quiet]) == 1
        assert f"1 object cannot be read; all others count:\n  {told}\n" in capsys.readouterr().err
    assert main(["schedule", *quiet, str(file), "-o", "json"]) == 1
    plan.write_text(capsys.readouterr().out)
    record = json.loads(plan.read_text())
    assert record["unreadable"] == [told]
    assert [one["what"] for one in record["notLookedAt"]] == ["Node n2"]
    assert main(["verify", *quiet, str(file), "--plan", str(plan)]) == 1
    out, err = capsys.readouterr()
    assert "legal: 1 decision checked" in out
    assert told in err


def test_verify_refuses_a_place_beside_what_cannot_be_read() -> None:
    bad = Pod(name="bad", unreadable="spec.x: wrong").at("n1")
    room = Node(name="n1", allocatable={"cpu": 4000, "pods": 9})
    good, lost = Pod(name="good"), Pod(name="lost", unreadable="spec.y: wrong")
    told = ClusterSnapshot(nodes=[NodeState(room, (bad,))], pending=[good, lost])
    plain = ClusterSnapshot(nodes=[room], pending=[good, Pod(name="lost")])
    found = {str(one) for one in verify(told, schedule(plain))}
    assert "unreadable: default/good: is put on n1 beside default/bad, which cannot be read" in found
    assert "unreadable: default/lost: is placed, and says spec.y: wrong" in found


def test_what_runs_unreadably_is_heeded_as_soon_as_it_is_known_and_while_it_is_there() -> None:
    """From call to call on one line of snapshots: it comes, with its node or later, and goes."""
    room = Node(name="n1", allocatable={"cpu": 4000, "pods": 9})
    asks = Pod(name="asks", requests={"cpu": 1000})

    def place_of(snapshot: ClusterSnapshot) -> str:
        (one,) = schedule(snapshot.with_pending(asks), [asks]).decisions
        return one.node if isinstance(one, Bound) else "nowhere"

    line = ClusterSnapshot(nodes=[room])
    assert place_of(line) == "n1"
    bad = Pod(name="bad", unreadable="spec.x: wrong")
    shut = line.apply(PodBound(bad.at("n1")))
    assert place_of(shut) == "nowhere"
    wider = shut.apply(NodeAdded(attrs.evolve(room, name="a0")))
    assert place_of(wider) == "a0"
    worse = wider.apply(PodBound(attrs.evolve(bad, name="too").at("a0")))
    assert place_of(worse) == "nowhere"
    again = worse.apply(PodEnded(bad.key))
    assert place_of(again) == "n1"
    assert place_of(again.apply(NodeRemoved("a0"))) == "n1"


def test_explain_says_that_what_a_pod_asks_for_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": [node("n1", ROOM), asking("bad", "1x")]}))
    main(["explain", "bad", str(dump)])
    assert "asks for nothing that can be read" in capsys.readouterr().out


@pytest.mark.parametrize(
    "verb",
    [
        ["schedule"],
        ["explain", "default/p"],
        ["when", "p"],
        ["when", "--all"],
        ["inspect"],
        ["topology"],
        ["compare"],
        ["rebalance", "--high", "cpu=90"],
        ["rebalance", "--jobs"],
        ["defrag", "--want", "cpu=1"],
        ["quota"],
        ["quota", "--quota", "team"],
        ["quota", "revoke"],
        ["quota", "reclaim"],
        ["colocation"],
        ["colocation", "--node", "n1"],
    ],
    ids=" ".join,
)
def test_every_verb_that_reads_a_dump_names_for_programs_what_cannot_be_read(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labelled = node("n1", ROOM, metadata={"labels": {"topology.kubernetes.io/zone": "z"}})
    quota = obj("ElasticQuota", "team", QUOTAS, spec={"min": {"cpu": "1"}, "max": {"cpu": "2"}})
    metric = obj(
        "NodeMetric",
        "n1",
        "slo.koordinator.sh/v1alpha1",
        status={
            "updateTime": "2026-01-01T00:00:00Z",
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}},
        },
    )
    file = tmp_path / "dump.json"
    made = {"creationTimestamp": "2026-01-01T00:00:00Z"}
    items = [labelled, node("n2", {"cpu": "?"}), asking("p", "1", metadata=made), quota, metric]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    assert main([*verb, str(file), "-q", "-o", "json"]) == 1
    told = f'{file} (item 2): Node n2: status.allocatable[cpu]: expected a quantity, got "?"'
    assert json.loads(capsys.readouterr().out)["unreadable"] == [told]


def reservation(**changes: Any) -> dict[str, Any]:
    """A reservation of six cores on n1 for ``app=o``."""
    spec = {
        "owners": [{"labelSelector": {"matchLabels": {"app": "o"}}}],
        "template": {"spec": {"containers": [container(requests={"cpu": "6"})]}},
        "ttl": "1h",
    }
    status = {"phase": "Available", "nodeName": "n1", "allocatable": {"cpu": "6"}}
    made = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", **changes.pop("metadata", {})}
    return obj(
        "Reservation",
        "held",
        "scheduling.koordinator.sh/v1alpha1",
        metadata=made,
        spec={**spec, **changes.pop("spec", {})},
        status={**status, **changes},
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec": {"ttl": "soon"}},
        {"spec": {"owners": 5}},
        {"spec": {"template": {"spec": {"containers": [container(requests={"cpu": "x"})]}}}},
        {"spec": {"allocatePolicy": "Odd"}},
        {"allocatable": {"cpu": "?"}},
        {"phase": "Odd"},
        {"conditions": 3},
        {"metadata": {"creationTimestamp": "x"}},
    ],
    ids=str,
)
def test_a_reservation_that_cannot_be_read_holds_what_it_is_known_to_hold(wrong: dict[str, Any]) -> None:
    owner = asking("owner", "5", metadata={"labels": {"app": "o"}})
    loaded = snapshot_from_objects([node("n1", ROOM), reservation(**wrong), owner, asking("small", "2")])
    result = schedule(loaded.snapshot)
    assert [str(one.pod) for one in result.bound] == ["default/small"]
    (told,) = result.not_looked_at
    assert str(told).startswith("Reservation held (cannot be read: ")
    assert str(told).endswith("; what it is known to hold on n1 stays held)")
    assert len(loaded.problems) == 1
    assert verify(loaded.snapshot, result) == ()


def test_who_uses_a_reservation_that_cannot_be_read_goes_on_in_it() -> None:
    used = {"scheduling.koordinator.sh/reservation-allocated": json.dumps({"name": "held", "uid": "u"})}
    user = asking("user", "5", nodeName="n1", metadata={"annotations": used})
    held = reservation(spec={"ttl": "soon", "allocateOnce": False})
    loaded = snapshot_from_objects([node("n1", ROOM), held, user, asking("small", "2"), asking("one", "1")])
    assert [str(one.pod) for one in schedule(loaded.snapshot).bound] == ["default/one"]


@pytest.mark.parametrize("wrong", [{"nodeName": 5}, {"nodeName": ""}, {"phase": "Failed"}], ids=str)
def test_a_reservation_of_which_no_node_is_known_is_only_named(wrong: dict[str, Any]) -> None:
    broken = reservation(spec={"ttl": "soon"}, **wrong)
    loaded = snapshot_from_objects([node("n1", ROOM), broken, asking("big", "8")])
    result = schedule(loaded.snapshot)
    assert [str(one.pod) for one in result.bound] == ["default/big"]
    assert [one.what for one in result.not_looked_at] == ["Reservation held"]
