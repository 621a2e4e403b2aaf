"""Calls on a line where nodes join and leave go on with what earlier ones learnt, and decide as new ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, Node, Pod, Policy, ScheduleResult, _line, schedule
from koordcore.framework.plugin import Plugin
from koordcore.framework.registry import known_plugins
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.metrics import NodeMetric, measured_of
from koordcore.model.plugin_args import FitArgs
from koordcore.model.policy import PluginSetting
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import Reservation, ReservationOwner, ReservationPhase, ReservationStatus
from koordcore.model.resources import make_resources
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.times import moment_of
from koordcore.scheduling import cycle
from koordcore.scheduling.plugins.resources import FitEvaluator
from koordcore.snapshot import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    PodBound,
    PodEnded,
    RecordAdded,
    RecordReplaced,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOM = {"cpu": 8000, "memory": 2**34, "pods": 20}
POLICY = koordinator_policy(known_plugins())
RATING = POLICY.with_plugin(PluginSetting(name="NodeResourcesFitPlus")).with_plugin(
    PluginSetting(name="ScarceResourceAvoidance")
)
"""With the scores that Koordinator offers beside those of its shipped configuration."""
MANY = tuple(f"n{number:02}" for number in range(0, 80, 2))


def node(name: str, **labels: str) -> Node:
    return Node(name=name, labels={"kubernetes.io/hostname": name, **labels}, allocatable=ROOM)


def pod(name: str, cpu: int = 1000, **fields: Any) -> Pod:
    return Pod(name=name, requests={"cpu": cpu, "memory": 2**30}, priority=9500, **fields)


def metric(name: str, cpu: int) -> NodeMetric:
    return NodeMetric(
        node=name,
        update_time=moment_of(NOW),
        report_interval=60 * 10**9,
        node_usage=measured_of({"cpu": cpu, "memory": 2**30}),
    )


def held(name: str, on: str) -> Reservation:
    amounts = {"cpu": 4000}
    return Reservation(
        name=name,
        uid=f"uid-{name}",
        template=Pod(name=name, requests=amounts),
        owners=(ReservationOwner(selector=LabelSelector({"app": name})),),
        allocate_once=False,
        status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name=on, allocatable=amounts),
    )


def cluster(*records: Any) -> ClusterSnapshot:
    metrics = [metric(name, 500) for name in MANY]
    return ClusterSnapshot(nodes=[node(name) for name in MANY], records=[*metrics, *records])


def anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same contents without a past."""
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


def decided(snapshot: ClusterSnapshot, *pods: Pod, policy: Policy = POLICY) -> ScheduleResult:
    """Decide, and compare with what a cluster of the same contents without a past gives."""
    warm = schedule(snapshot, pods, policy=policy, now=NOW)
    assert warm == schedule(anew(snapshot), pods, policy=policy, now=NOW)
    return warm


CHANGES: tuple[tuple[Change, ...], ...] = (
    (NodeAdded(node("n01")),),
    (NodeRemoved("n04"),),
    (NodeAdded(node("a")), NodeRemoved("n78"), NodeReplaced(node("n10", zone="x"))),
    (NodeAdded(node("n05")), RecordAdded(metric("n05", 7000))),
    (NodeRemoved("n01"), NodeAdded(node("n01", zone="y"))),
    (NodeAdded(node("b")), NodeReplaced(node("n10", zone="z")), NodeRemoved("b")),
)


@pytest.mark.parametrize("records", [(), (held("r1", "n02"), held("r2", "n04"), held("r3", "n05"))])
def test_every_call_decides_as_a_new_one(records: tuple[Any, ...]) -> None:
    """Where the best node joins in the middle, and where nodes with pods and reservations leave."""
    after = decided(cluster(*records), *(pod(f"first-{number}") for number in range(6))).snapshot
    for step, changes in enumerate(CHANGES):
        owner = pod(f"owner-{step}", labels={"app": f"r{step % 3 + 1}"})
        after = decided(after.apply(*changes), pod(f"next-{step}"), owner).snapshot


def offering(name: str, **amounts: int) -> Node:
    """A node that offers resources which nobody has named before."""
    more = {f"example.com/{one}": amount for one, amount in amounts.items()}
    return Node(name=name, labels={"kubernetes.io/hostname": name}, allocatable={**ROOM, **more})


def asking(name: str, **amounts: int) -> Pod:
    more = {f"example.com/{one}": amount for one, amount in amounts.items()}
    requests = {"cpu": 1000, "memory": 2**30, **more}
    return Pod(name=name, requests=requests, priority=9500)


NAMED: tuple[tuple[Change, ...], ...] = (
    (NodeReplaced(offering("n10", kind=4)),),
    (NodeAdded(offering("n11", kind=2, above=3)),),
    (PodBound(attrs.evolve(asking("runs", beside=1), node_name="n20")),),
    (NodeReplaced(offering("n22", before=8)), NodeRemoved("n10")),
)
"""Resources that come in before and behind others that are known, with a node, a new node, and a pod."""
_WEIGHTS = tuple((name, 1) for name in ("cpu", "memory", "example.com/kind", "example.com/before"))
SCARCE = POLICY.with_plugin(
    PluginSetting(name="NodeResourcesFit", args=FitArgs(resources=_WEIGHTS))
).with_plugin(PluginSetting(name="NodeResourcesFitPlus"))
"""Scores that look at them as well."""


@pytest.mark.parametrize("policy", [POLICY, SCARCE], ids=["shipped", "scoring them"])
@pytest.mark.parametrize("kept", [False, True], ids=["no reservations", "reservations"])
def test_resources_come_in(policy: Policy, kept: bool) -> None:
    """Who asks for one is refused until somebody offers it; all others go where they would have gone."""
    records = [
        attrs.evolve(
            held("r1", "n10"),
            status=ReservationStatus(
                phase=ReservationPhase.AVAILABLE,
                node_name="n10",
                allocatable={"cpu": 4000, "example.com/kind": 2},
            ),
        ),
        held("r2", "n04"),
    ]
    after = cluster(*records if kept else ())
    seen = set()
    for step, changes in enumerate(((), *NAMED)):
        owner = pod(f"owner-{step}", labels={"app": "r1"})
        wants = [asking(f"{one}-{step}", **{one: 1}) for one in ("kind", "above", "before", "beside")]
        same = [pod(f"same-{step}-{number}") for number in range(2)]
        result = decided(after.apply(*changes), *wants, owner, *same, policy=policy)
        seen |= {one.pod.name for one in result.decisions if isinstance(one, Bound)}
        after = without_names(result.snapshot, "kind", "above", "before", "beside")
    assert {"kind-1", "above-2", "before-4"} <= seen
    assert not seen & {"kind-0", "above-1", "before-3", "beside-4"}


def without_names(snapshot: ClusterSnapshot, *prefixes: str) -> ClusterSnapshot:
    """Let who got one of the resources end."""
    gone = [one for one in snapshot.location if one.name.split("-")[0] in prefixes]
    return snapshot.apply(*map(PodEnded, gone))


@pytest.mark.parametrize("to", ["n04", "n05", "n20"], ids=["replaced", "new", "as it was"])
def test_a_pod_moves_beside_a_reservation(to: str) -> None:
    """It ends and is made anew elsewhere between two calls, and nodes change as well."""
    start = cluster(held("r1", "n02"), held("r2", "n04")).apply(PodBound(pod("db-0").at("n02")))
    after = decided(start, pod("first")).snapshot
    changes = (
        PodEnded("default/db-0"),
        NodeReplaced(node("n04", step="1")),
        NodeAdded(node("n05")),
        PodBound(pod("db-0").at(to)),
        RecordReplaced(held("r2", "n02")),
    )
    after = decided(after.apply(*changes), pod("second")).snapshot
    back = (NodeRemoved(to), PodBound(pod("db-0").at("n02")), RecordReplaced(held("r2", "n04")))
    decided(after.apply(*back), pod("third"))


def none_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no call build plugins from here on."""

    def made(*arguments: object) -> None:
        raise AssertionError("plugins were made anew")

    monkeypatch.setattr(cycle, "PluginSet", made)
    monkeypatch.setattr(Plugin, "__init__", made)


@pytest.mark.parametrize("policy", [POLICY, RATING], ids=["shipped", "rating"])
def test_no_plugin_is_made_anew(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    after = schedule(cluster(), [pod("first")], policy=policy, now=NOW).snapshot
    none_made_anew(monkeypatch)
    for step, changes in enumerate((*CHANGES, *NAMED)):
        after = schedule(after.apply(*changes), [pod(f"next-{step}")], policy=policy, now=NOW).snapshot


def test_a_call_follows_steps_that_the_line_has_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a long time without a pod to decide about, what differs is found by comparing."""
    monkeypatch.setattr(_line, "KEPT", 1)
    after = schedule(cluster(), [pod("first")], policy=POLICY, now=NOW).snapshot
    cold = []
    with monkeypatch.context() as patch:
        none_made_anew(patch)
        for step, changes in enumerate(CHANGES):
            before = after
            for number in range(5):
                after = after.apply(RecordReplaced(metric(MANY[number], 100 * step)))
            after = after.apply(*changes).apply(NodeReplaced(node("n12", step=str(step))))
            assert before.place.path(after.place) is None
            result = schedule(after, [pod(f"next-{step}")], policy=POLICY, now=NOW)
            cold.append((after, result))
            after = result.snapshot
    for step, (snapshot, result) in enumerate(cold):
        assert decided(anew(snapshot), pod(f"next-{step}")) == result


def test_a_call_follows_where_every_node_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    after = schedule(cluster(), [pod("first")], policy=POLICY, now=NOW).snapshot
    after = after.apply(*(NodeReplaced(node(name, step="1")) for name in MANY))
    after = after.apply(*(RecordReplaced(metric(name, 300)) for name in MANY))
    expected = schedule(anew(after), [pod("next")], policy=POLICY, now=NOW)
    none_made_anew(monkeypatch)
    assert schedule(after, [pod("next")], policy=POLICY, now=NOW) == expected


def test_pods_of_other_quotas_are_asked_about_where_something_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a quota says concerns no node, so what is known of nodes serves the pods of all quotas."""
    most = make_resources({"cpu": 10**6, "memory": 2**40})
    after = cluster(*(ElasticQuota(name=f"q{number}", max=most) for number in range(6)))
    asked: list[int] = []
    scores = FitEvaluator.scores

    def counted(self: FitEvaluator, view: Any) -> Any:
        asked.append(len(view.numbers))
        return scores(self, view)

    for number in range(6):
        if number == 2:  # the first is the only one of its class; the second has all nodes asked for good
            monkeypatch.setattr(FitEvaluator, "scores", counted)
        labels = {"quota.scheduling.koordinator.sh/name": f"q{number}"}
        after = schedule(after, [pod(f"p{number}", labels=labels)], policy=POLICY, now=NOW).snapshot
    assert asked
    assert max(asked) < len(MANY), "at most one node, and what it will be like with more such pods"
