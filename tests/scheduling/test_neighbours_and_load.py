"""Spread, inter-pod affinity, images and load inside the loop."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import attrs
import pytest

from koordcore import named_policy
from koordcore.checking import verify
from koordcore.explaining.pod import explain
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from koordcore.model.cluster import RawObject, Workload
from koordcore.model.containers import Container
from koordcore.model.decisions import Bound, Nominated, PodDecision, Unschedulable
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric, measured_of
from koordcore.model.nodes import Node
from koordcore.model.pods import OwnerReference, Pod
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.model.selectors import LabelSelector
from koordcore.scheduling import schedule
from koordcore.scheduling.plugins.spread import TopologySpread, default_selector
from koordcore.snapshot import ClusterSnapshot

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
STAMP = int(NOW.timestamp()) * 10**9
GIB = 2**30
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
WEB = LabelSelector({"app": "web"})


def nodes(number: int = 6) -> list[Node]:
    return [
        Node(
            name=f"n{index}",
            labels={HOST: f"n{index}", ZONE: f"z{index % 3}"},
            allocatable={"cpu": 8000, "memory": 16 * GIB, "pods": 20},
        )
        for index in range(number)
    ]


def web(number: int, **fields: object) -> list[Pod]:
    made = Pod(name="x", labels={"app": "web"}, requests={"cpu": 100, "memory": GIB})
    return [attrs.evolve(made, name=f"p{index}", **fields) for index in range(number)]  # type: ignore[arg-type]


def places(decisions: tuple[PodDecision, ...]) -> list[str]:
    return [one.node if isinstance(one, Bound) else "" for one in decisions]


def test_a_hard_spread_fills_zones_evenly_and_then_says_no() -> None:
    constraint = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, selector=WEB)
    result = schedule(ClusterSnapshot(nodes=nodes()), web(7, spread_constraints=(constraint,)))
    zones = Counter(int(one[1:]) % 3 for one in places(result.decisions))
    assert sorted(zones.values()) == [2, 2, 3]
    only_host = TopologySpreadConstraint(max_skew=1, topology_key="rack", selector=WEB)
    (refused,) = schedule(ClusterSnapshot(nodes=nodes()), web(1, spread_constraints=(only_host,))).decisions
    assert isinstance(refused, Unschedulable)
    assert refused.message == (
        "0/6 nodes are available: 6 node(s) didn't match pod topology spread constraints "
        "(missing required label)."
    )
    assert not refused.rejections[0].resolvable


def test_an_empty_selector_spreads_over_all_pods_of_the_namespace() -> None:
    """Unlike upstream, where it counts nobody; pods of other namespaces count for nobody here either."""
    constraint = TopologySpreadConstraint(max_skew=1, topology_key=ZONE, selector=LabelSelector())
    (pod,) = web(1, spread_constraints=(constraint,))
    large, small = nodes(2)
    full = attrs.evolve(small, allocatable={"cpu": 0, "pods": 20})
    there = Pod(name="there", labels={"any": "label"}, node_name="n0")
    for space, allowed in (("default", False), ("elsewhere", True)):
        before = ClusterSnapshot(nodes=[large, full]).assume(attrs.evolve(there, namespace=space))
        result = schedule(before, [pod])
        assert places(result.decisions) == (["n0"] if allowed else [""])
        bound = attrs.evolve(pod, node_name="n0")
        forged = attrs.evolve(
            result, decisions=(Bound(pod=pod.key, node="n0"),), snapshot=before.assume(bound)
        )
        assert (verify(before, forged) == ()) is allowed


def test_the_built_in_constraints_spread_the_pods_of_a_workload_or_service() -> None:
    owner = OwnerReference("ReplicaSet", "rs", controller=True)
    workload = Workload(kind="ReplicaSet", name="rs", selector=WEB)
    service = RawObject(
        kind="Service", name="s", namespace="default", text='{"spec": {"selector": {"app": "web"}}}'
    )
    broken = RawObject(kind="Service", name="t", namespace="default", text="{")
    for records, owners in (((workload,), (owner,)), ((service, broken), ())):
        snapshot = ClusterSnapshot(nodes=nodes(), records=records)
        pods = web(6, owners=owners)
        assert default_selector(snapshot, pods[0]) == WEB
        assert len(set(places(schedule(snapshot, pods).decisions))) == 6
    assert default_selector(ClusterSnapshot(), web(1)[0]) is None


def test_a_controller_of_another_api_lends_its_pods_no_selector() -> None:
    """Nor does the StatefulSet of Kubernetes that happens to have its name, nor a Service of another API."""
    own, other = "apps/v1", "apps.kruise.io/v1beta1"
    sets = {
        said: Workload(kind="StatefulSet", name="db", api_version=said, selector=WEB)
        for said in ("", own, other)
    }
    for said, there, found in (
        (own, own, WEB),
        ("", "", WEB),
        (own, other, None),
        (other, own, None),
        (other, other, None),
    ):
        owner = OwnerReference("StatefulSet", "db", api_version=said, controller=True)
        (pod,) = web(1, owners=(owner,))
        assert default_selector(ClusterSnapshot(records=[sets[there]]), pod) == found
    text = '{"spec": {"selector": {"app": "web"}}}'
    for said, found in (("v1", WEB), ("serving.knative.dev/v1", None)):
        service = RawObject(kind="Service", name="s", namespace="default", api_version=said, text=text)
        assert default_selector(ClusterSnapshot(records=[service]), web(1)[0]) == found
    # The plugin asks once for all pods of one owner.
    snapshot = ClusterSnapshot(nodes=nodes(), records=[sets[own]])
    asked = [
        web(1, owners=(OwnerReference("StatefulSet", "db", api_version=said, controller=True),))[0]
        for said in (other, own)
    ]
    plugin = TopologySpread(Workspace(snapshot))
    assert [plugin.request_of(one) is not None for one in asked] == [False, True]


def test_nodes_without_a_zone_are_one_zone_more_for_the_built_in_constraints() -> None:
    """Three zones weigh ln 5, four hosts ln 6: 13, 9 and 9, and without a zone that is judged 2."""
    service = RawObject(
        kind="Service", name="s", namespace="default", text='{"spec": {"selector": {"app": "web"}}}'
    )
    zones: list[dict[str, str]] = [{ZONE: "a"}, {ZONE: "a"}, {ZONE: "b"}, {}]
    cluster = [
        attrs.evolve(one, labels={HOST: one.name, **zone}) for one, zone in zip(nodes(4), zones, strict=True)
    ]
    first, second, third, pod = web(4)
    snapshot = ClusterSnapshot(nodes=cluster, records=[service], pending=[pod])
    for one, node in ((first, "n0"), (second, "n0"), (third, "n2")):
        snapshot = snapshot.assume(attrs.evolve(one, node_name=node))
    verdicts = explain(snapshot, pod, policy=named_policy("stock")).verdicts
    scores = {one.node: one.scores["PodTopologySpread"] for one in verdicts}
    assert scores == {"n0": 15, "n1": 46, "n2": 46, "n3": 100}


def test_anti_affinity_takes_a_host_each_and_holds_against_later_pods() -> None:
    anti = Affinity(anti=PodAffinity(required=(PodAffinityTerm(HOST, WEB),)))
    result = schedule(ClusterSnapshot(nodes=nodes(3)), web(4, affinity=anti))
    assert sorted(places(result.decisions)) == ["", "n0", "n1", "n2"]
    (late,) = schedule(
        result.snapshot.forget(*[one.key for one in result.snapshot.pending]),
        [attrs.evolve(web(1)[0], name="late")],
    ).decisions
    assert isinstance(late, Unschedulable)
    assert "3 node(s) didn't satisfy existing pods anti-affinity rules" in late.message


def test_affinity_lets_the_first_pod_of_a_series_in_and_gathers_the_others() -> None:
    near = Affinity(pod=PodAffinity(required=(PodAffinityTerm(ZONE, WEB),)))
    found = places(schedule(ClusterSnapshot(nodes=nodes()), web(4, affinity=near)).decisions)
    assert len({int(one[1:]) % 3 for one in found}) == 1
    stranger = Affinity(pod=PodAffinity(required=(PodAffinityTerm(ZONE, LabelSelector({"app": "db"})),)))
    (refused,) = schedule(ClusterSnapshot(nodes=nodes(2)), web(1, affinity=stranger)).decisions
    assert isinstance(refused, Unschedulable)
    assert refused.message == "0/2 nodes are available: 2 node(s) didn't match pod affinity rules."


def test_preferred_neighbours_draw() -> None:
    wish = PodAffinity(preferred=(WeightedPodAffinityTerm(100, PodAffinityTerm(HOST, WEB)),))
    snapshot = ClusterSnapshot(nodes=nodes(3)).assume(web(1)[0].at("n2"))
    (fan,) = schedule(snapshot, [Pod(name="fan", affinity=Affinity(pod=wish))]).decisions
    assert places((fan,)) == ["n2"]


def test_images_draw() -> None:
    holder = attrs.evolve(nodes(3)[2], images={"big:1": 900 * 2**20})
    snapshot = ClusterSnapshot(nodes=[*nodes(2), holder])
    pod = Pod(name="p", containers=(Container(image="big:1"),))
    assert places(schedule(snapshot, [pod]).decisions) == ["n2"]


def loaded(*percent: int) -> ClusterSnapshot:
    metrics = [
        NodeMetric(
            node=f"n{index}", update_time=STAMP, node_usage=measured_of({"cpu": 80 * one, "memory": 0})
        )
        for index, one in enumerate(percent)
    ]
    return ClusterSnapshot(nodes=nodes(len(percent)), records=metrics)


LOAD = Policy().with_plugin(PluginSetting(name="LoadAwareScheduling", weight=10))


def test_hot_nodes_are_refused_and_idle_ones_preferred() -> None:
    snapshot = loaded(66, 50, 10)
    (one,) = schedule(snapshot, web(1), policy=LOAD, now=NOW).decisions
    assert places((one,)) == ["n2"]
    (two,) = schedule(loaded(66, 70), web(1), policy=LOAD, now=NOW).decisions
    assert isinstance(two, Unschedulable)
    assert two.message == "0/2 nodes are available: 2 node(s) cpu usage exceed threshold."
    assert two.nearest is not None
    assert two.nearest.shortfalls[0].requested == 85


def test_placed_pods_weigh_at_once() -> None:
    found = places(schedule(loaded(10, 10), web(4), policy=LOAD, now=NOW).decisions)
    assert Counter(found) == {"n0": 2, "n1": 2}


@pytest.mark.parametrize(("age", "fits"), [(179, True), (180, False)])
def test_the_clock_is_an_argument(age: int, fits: bool) -> None:
    later = datetime.fromtimestamp(NOW.timestamp() + age, UTC)
    (one,) = schedule(loaded(10), web(1), policy=LOAD, now=later).decisions
    assert isinstance(one, Bound) is fits
    (unsaid,) = schedule(loaded(10), web(1), policy=LOAD).decisions
    assert isinstance(unsaid, Bound)


def test_one_snapshot_answers_at_several_moments() -> None:
    """What was compiled for one moment or policy is not taken for another, and a call leaves no traces."""
    snapshot = loaded(10, 20)
    late = datetime.fromtimestamp(NOW.timestamp() + 999, UTC)
    heavy = LOAD.with_plugin(
        PluginSetting(name="LoadAwareScheduling", args=LoadAwareArgs(usage_thresholds={"cpu": 15}))
    )
    first = schedule(snapshot, web(4), policy=LOAD, now=NOW)
    assert len(first.bound) == 4
    assert not schedule(snapshot, web(4), policy=LOAD, now=late).bound
    assert {one.node for one in schedule(snapshot, web(4), policy=heavy, now=NOW).bound} == {"n0"}
    assert schedule(snapshot, web(4), policy=LOAD, now=NOW).decisions == first.decisions
    after = schedule(first.snapshot, web(8)[4:], policy=LOAD, now=NOW)
    fresh = ClusterSnapshot(nodes=first.snapshot.nodes, records=first.snapshot.records)
    assert after.decisions == schedule(fresh, web(8)[4:], policy=LOAD, now=NOW).decisions


def test_arguments_of_the_policy_count() -> None:
    args = LoadAwareArgs(usage_thresholds={"cpu": 0})
    policy = Policy().with_plugin(PluginSetting(name="LoadAwareScheduling", args=args))
    (one,) = schedule(loaded(99), web(1), policy=policy, now=NOW).decisions
    assert isinstance(one, Bound)


def test_what_a_node_keeps_back_is_not_offered() -> None:
    kept = {"node.koordinator.sh/reservation": '{"reservedCPUs": "0-5"}'}
    node = attrs.evolve(nodes(1)[0], annotations=kept)
    (refused,) = schedule(ClusterSnapshot(nodes=[node]), [Pod(name="p", requests={"cpu": 3000})]).decisions
    assert isinstance(refused, Unschedulable)
    assert refused.message == "0/1 nodes are available: 1 Insufficient cpu."
    (bound,) = schedule(ClusterSnapshot(nodes=[node]), [Pod(name="p", requests={"cpu": 2000})]).decisions
    assert isinstance(bound, Bound)


def test_labels_that_nobody_looks_at_do_not_tell_pods_apart() -> None:
    """A job's pods share one class, although each has an index of its own."""
    keeper = attrs.evolve(
        web(1)[0], name="keeper", affinity=Affinity(anti=PodAffinity(required=(PodAffinityTerm(HOST, WEB),)))
    )
    snapshot = ClusterSnapshot(nodes=nodes(3)).assume(keeper.at("n1"))
    plugins = PluginSet(Workspace(snapshot), Policy())
    first, second = (attrs.evolve(one, labels={"app": "web", "index": one.name}) for one in web(2))
    stranger = attrs.evolve(web(1)[0], labels={"app": "db", "index": "x"})
    assert plugins.class_of(first) is plugins.class_of(second)
    assert plugins.class_of(first) is not plugins.class_of(stranger)
    assert sorted(places(schedule(snapshot, [first, second]).decisions)) == ["n0", "n2"]


def test_without_metrics_load_says_nothing() -> None:
    snapshot = ClusterSnapshot(nodes=nodes(3))
    with_load = schedule(snapshot, web(4), policy=LOAD, now=NOW)
    assert places(with_load.decisions) == places(schedule(snapshot, web(4)).decisions)


def test_whom_others_preempt_beside_is_no_load_before_it_is_there() -> None:
    """The dry run for the second pod takes the first one off and puts it back: it stays no load."""
    policy = Policy(
        name="load",
        plugins=(
            PluginSetting(name="NodeResourcesFit"),
            PluginSetting(name="LoadAwareScheduling", args=LoadAwareArgs(usage_thresholds={"cpu": 98})),
        ),
    )
    metric = NodeMetric(
        node="n0", update_time=STAMP, report_interval=60 * 10**9, node_usage=measured_of({"cpu": 1000})
    )
    running = [Pod(name=f"r{number}", requests={"cpu": 4000}, priority=1).at("n0") for number in range(2)]
    waiting = [Pod(name=f"w{number}", requests={"cpu": 1000}, priority=9) for number in range(2)]
    start = ClusterSnapshot(nodes=nodes(1), pending=waiting, records=[metric]).assume(*running)
    first = schedule(start, policy=policy, now=NOW, preempt=PreemptionRules())
    assert [type(one) for one in first.decisions] == [Nominated, Nominated]
    after = start.with_pending(Pod(name="x", requests={"memory": GIB}))
    anew = ClusterSnapshot(nodes=after.nodes, pending=after.pending, records=after.records)
    asked = [after.pending[-1]]
    warm, cold = (schedule(one, asked, policy=policy, now=NOW) for one in (after, anew))
    assert warm == cold
    (refused,) = warm.decisions
    assert isinstance(refused, Unschedulable)
    assert refused.nearest is not None
    assert [one.available for one in refused.nearest.shortfalls] == [79]
