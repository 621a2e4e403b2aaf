"""Gangs: repaired once started, held for a time, one layer each, settled by scores, told in true figures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.door import GANG, GROUP, QUOTA, Door, Object, gang, members, node, obj, pod, quota

SPEC, PARTS = GANG + "network-topology-spec", GANG + "sub-groups"


def network(*layers: tuple[str, str], name: str = "default") -> Object:
    """A ClusterNetworkTopology of layers and their labels, from the top down."""
    spec: list[Object] = []
    for number, (layer, label) in enumerate((*layers, ("NodeTopologyLayer", ""))):
        above = {"parentTopologyLayer": layers[number - 1][0]} if number else {}
        spec.append({"topologyLayer": layer, **({"labelKey": [label]} if label else {}), **above})
    return obj("ClusterNetworkTopology", name, spec={"networkTopologySpec": spec})


TREE = network(("BlockLayer", "dc/block"), ("RackLayer", "dc/rack"))


def seat(name: str, rack: str, cpu: int, **labels: str) -> Object:
    return node(name, labels={"dc/block": rack[0], "dc/rack": rack, **labels}, amounts={"cpu": str(cpu)})


def rule(layer: str, strategy: str = "MustGather", multiple: int | None = None) -> dict[str, Any]:
    own: dict[str, Any] = {"layer": layer, "strategy": strategy}
    return {SPEC: {"gatherStrategy": [own if multiple is None else {**own, "podCountMultiple": multiple}]}}


# --- who starts ---------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["PodGroup", "annotations"])
@pytest.mark.parametrize(("phase", "policy", "starts"), [
    ("Running", None, True),
    ("Running", "once-satisfied", True),
    ("Running", "waiting-and-running", False),
    ("Running", "only-waiting", False),
    ("Succeeded", None, True),
])  # fmt: skip
def test_a_gang_that_has_started_is_repaired_member_by_member(
    door: Door, by: str, phase: str, policy: str | None, starts: bool
) -> None:
    said = {} if policy is None else {GANG + "match-policy": policy}
    told: dict[str, Any] = {"labels": {GROUP: "g"}}
    if by == "annotations":
        told = {"annotations": {GANG + "name": "g", GANG + "min-available": "5", **said}}
    record = [gang("g", 5, annotations=said)] if by == "PodGroup" else []
    old = pod("old", {"cpu": 2}, on="n", status={"phase": phase}, **told)
    pods = [pod(f"new{one}", {"cpu": 2}, **told) for one in range(2)]
    done = door.schedule(node("n", amounts={"cpu": "4"}), record, old, pods)
    room = 2 if phase == "Succeeded" else 1
    assert len(done.bound) == (room if starts else 0)
    if not starts:
        assert "child pod not collect enough" in done.why("new0")


def test_a_member_that_runs_lets_the_whole_group_be_repaired(door: Door) -> None:
    together = {GANG + "groups": ["default/a", "default/b"]}
    groups = [gang(name, 3, annotations=together) for name in "ab"]
    runs = pod("a-0", {"cpu": 1}, on="n", labels={GROUP: "a"})
    assert door.schedule(node("n"), groups, runs, members("b", 1, {"cpu": 1})).node_of("b-0")


def test_members_that_are_missing_are_counted_for_whoever_looks(door: Door) -> None:
    done = door.ask("schedule", door.file(node("n"), gang("g", 4), members("g", 3, {"cpu": 1})))
    assert "1 more pod of default/g: 3 of at least 4 exist" in done.out


@pytest.mark.parametrize("by", ["PodGroup", "annotations"])
def test_places_of_a_gang_that_is_not_strict_are_kept_for_its_time(door: Door, by: str) -> None:
    made = {"creationTimestamp": "2026-05-01T08:00:00Z"}
    said = {GANG + "mode": "NonStrict"}
    pods = members("g", 5, {"cpu": 2}, meta=made)
    record = [gang("g", 5, annotations=said, spec={"scheduleTimeoutSeconds": 90})]
    if by == "annotations":
        own = {GANG + "name": "g", GANG + "min-available": "5", GANG + "waiting-time": "90s", **said}
        pods = [pod(f"g-{one}", {"cpu": 2}, annotations=own, meta=made) for one in range(5)]
        record = []
    late = pod("late", {"cpu": 2}, meta={"creationTimestamp": "2026-05-01T08:00:10Z"})
    cluster = [node("n", amounts={"cpu": "8"}), record, pods, late]
    before = door.schedule(cluster, say=("--now", "2026-05-01T08:01:00Z"))
    assert before.decision("g-0")["decision"] == "Waiting"
    assert not before.bound
    after = door.schedule(cluster, say=("--now", "2026-05-01T08:01:31Z"))
    assert after.bound == {"late": "n"}
    assert "until 2026-05-01T08:01:30Z" in after.why("g-0")


def test_minimums_of_a_group_come_before_anybodys_further_members(door: Door) -> None:
    together = {GANG + "groups": ["default/a", "default/b", "default/c"]}
    groups = [gang(name, 1, annotations=together) for name in "abc"]
    pods = [members(name, 3, {"example.com/chip": 1}) for name in "abc"]
    done = door.schedule(node("n", amounts={"example.com/chip": "4"}), groups, pods)
    assert {name[0] for name in done.bound} == {"a", "b", "c"}
    assert len(done.bound) == 4


# --- where --------------------------------------------------------------------------------


def prefers(label: str, value: str) -> Object:
    match = {"key": label, "operator": "In", "values": [value]}
    term = {"weight": 40, "preference": {"matchExpressions": [match]}}
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize("strategy", ["PreferGather", "MustGather"])
@pytest.mark.parametrize("what", ["affinity", "taint", "usage"])
def test_equal_domains_are_settled_by_what_single_pods_would_like(
    door: Door, strategy: str, what: str
) -> None:
    machines = [seat("a", "b1", 8, gen="old"), seat("b", "b2", 8, gen="new")]
    asked: Any = {"spec": prefers("gen", "new")} if what == "affinity" else {}
    others: list[Object] = []
    if what == "taint":
        machines[0]["spec"] = {"taints": [{"key": "spot", "effect": "PreferNoSchedule"}]}
    words: tuple[str, ...] = ()
    if what == "usage":
        used = {"a": "7", "b": "1"}
        others = [
            obj(
                "NodeMetric",
                name,
                status={
                    "updateTime": "2026-01-01T00:00:00Z",
                    "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}},
                },
            )
            for name, cpu in used.items()
        ]
        enabled = [{"name": "LoadAwareScheduling", "weight": 4}, {"name": "Coscheduling"}]
        profile = {
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": enabled}},
        }
        config = obj("KubeSchedulerConfiguration", "c", profiles=[profile])
        del config["metadata"]
        words = ("--policy", door.file(config))
    group = gang("g", 2, annotations=rule("RackLayer", strategy))
    done = door.schedule(TREE, machines, others, group, members("g", 2, {"cpu": 2}, **asked), say=words)
    assert set(done.bound.values()) == {"b"}


def test_a_layer_binds_the_gang_that_names_it_and_all_where_all_name_it(door: Door) -> None:
    together = {GANG + "groups": json.dumps(["default/a", "default/b"])}
    racks = [seat(f"n{one}", f"b{one}", 5) for one in range(3)]

    def started(first: dict[str, Any], size: int) -> int:
        groups = [
            gang("a", 2, annotations={**together, **first}),
            gang("b", 2, annotations={**together, **rule("RackLayer")}),
        ]
        pods = [members("a", 2, {"cpu": 1}), members("b", 2, {"cpu": size})]
        return len(door.schedule(TREE, racks, groups, pods).bound)

    assert started({SPEC: {"gatherStrategy": []}}, 2) == 4
    assert started({}, 3) == 0  # two of three CPUs lie in no rack
    assert started(rule("RackLayer"), 2) == 0  # six CPUs in one rack of five
    assert started(rule("BlockLayer"), 2) == 4


@pytest.mark.parametrize(
    ("sizes", "strategy", "words"),
    [
        ((3, 3), "PreferGather", "the cluster has 6 slots, room for 0 of 4 members"),
        ((3, 3), "MustGather", "has 3 slots, room for 0 of 4 members"),
    ],
)
def test_a_refusal_under_a_multiple_counts_what_is_there(
    door: Door, sizes: tuple[int, ...], strategy: str, words: str
) -> None:
    racks = [seat(f"n{one}", f"b{one}", size) for one, size in enumerate(sizes)]
    group = gang("g", 4, annotations=rule("RackLayer", strategy, 4))
    told = door.ask("schedule", door.file(TREE, racks, group, members("g", 4, {"cpu": 1}))).out
    assert f"{words} with podCountMultiple RackLayer=4; 1 more would do" in told
    assert ", , " not in told


def test_a_layer_that_is_not_there_is_the_reason(door: Door) -> None:
    cluster = [TREE, seat("n", "b1", 8), gang("g", 1, annotations=rule("Rakk")), members("g", 1, {"cpu": 1})]
    why = door.schedule(cluster).why("g-0")
    assert "the network topology has no layer Rakk" in why
    assert ", , " not in why


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (rule("Rakk"), '"Rakk" is none of'),
        (rule("RackLayer", "mustgather"), '"mustgather" is none of'),
        (rule("RackLayer", "MustGather", -4), "-4 is below zero"),
        ({SPEC: {"gatherStrategy": [{"layer": "RackLayer", "strat": "MustGather"}]}}, "strat: unknown field"),
        ({SPEC: "{"}, "not JSON"),
        (rule("rack"), '"rack" is read as RackLayer'),
    ],
)
def test_rules_that_are_misspelt_are_told(door: Door, spec: dict[str, Any], words: str) -> None:
    cluster = [TREE, seat("n", "b1", 8), gang("g", 1, annotations=spec), members("g", 1, {"cpu": 1})]
    assert words in door.schedule(cluster).err


def test_slices_lie_each_in_a_rack_and_the_leader_where_it_likes(door: Door) -> None:
    racks = [seat(f"n{one}", f"b{one // 2}", 8) for one in range(4)] + [seat("lone", "b9", 8)]
    slices = {"name": "w", "size": 2, "gatherStrategy": [{"layer": "RackLayer", "strategy": "MustGather"}]}
    group = gang("g", 5, annotations={PARTS: {"subGroups": [{"name": "l"}, slices]}})
    part = GANG + "sub-group"
    pods = [pod("l", {"cpu": 8}, labels={GROUP: "g", part: "l"})]
    pods += [pod(f"w-{one}", {"cpu": 8}, labels={GROUP: "g", part: "w"}) for one in range(4)]
    done = door.schedule(TREE, racks, group, pods)
    assert done.node_of("l") == "lone"
    for first in (0, 2):
        assert len({int(done.node_of(f"w-{one}")[1]) // 2 for one in (first, first + 1)}) == 1


def test_a_leader_beside_a_hundred_equal_slices_is_planned_and_proven(door: Door) -> None:
    racks = [seat(f"n{one:03}", f"b{one // 8:02}", 8) for one in range(128)]
    slices = {"name": "w", "size": 4, "gatherStrategy": [{"layer": "RackLayer", "strategy": "MustGather"}]}
    group = gang("g", 65, annotations={PARTS: {"subGroups": [{"name": "l"}, slices]}})
    part = GANG + "sub-group"
    pods = [pod("l", {"cpu": 8}, labels={GROUP: "g", part: "l"})]
    pods += [pod(f"w-{one}", {"cpu": 8}, labels={GROUP: "g", part: "w"}) for one in range(64)]
    done = door.ask("schedule", door.file(TREE, racks, group, pods))
    assert "65/65" in done.out
    assert "proven" in done.out


def test_any_two_of_three_gangs_are_enough_where_the_group_says_so(door: Door) -> None:
    together = {GANG + "groups": ["default/a", "default/b", "default/c"], GANG + "min-groups": "2"}
    groups = [gang(name, 2, annotations=together) for name in "abc"]
    pods = [members(name, 2, {"cpu": 4}) for name in "abc"]
    done = door.schedule(node("n", amounts={"cpu": "18"}), groups, pods)
    assert sorted({name[0] for name in done.bound}) == ["a", "b"]


def test_members_are_spread_evenly_over_no_more_racks_than_they_need(door: Door) -> None:
    racks = [seat(f"n{one}", f"b{one // 5}", 4) for one in range(15)]
    group = gang("g", 8, annotations=rule("RackLayer", "BalancedGather"))
    done = door.schedule(TREE, racks, group, members("g", 8, {"cpu": 4}))
    rack = [int(place[1:]) // 5 for place in done.bound.values()]
    assert sorted(map(rack.count, set(rack))) == [4, 4]


@pytest.mark.parametrize("strategy", ["MustGather", "PreferGather"])
def test_who_replaces_a_member_comes_to_the_others(door: Door, strategy: str) -> None:
    racks = [seat(f"n{one}", f"b{one // 2}", 4) for one in range(6)]
    group = gang("g", 2, annotations=rule("RackLayer", strategy))
    stays = pod("g-0", {"cpu": 4}, on="n4", labels={GROUP: "g"})
    fresh = pod("g-1", {"cpu": 4}, labels={GROUP: "g"})
    assert door.schedule(TREE, racks, group, stays, fresh).node_of("g-1") == "n5"


@pytest.mark.parametrize(
    "label",
    [
        "network.topology.nvidia.com/accelerator",
        "network.topology.nvidia.com/spine",
        "topology.kubernetes.io/block",
        "cloud.google.com/gce-topology-subblock",
        "topology.k8s.aws/network-node-layer-3",
        "my.lab/row",
    ],
)
def test_labels_of_nodes_are_a_network_without_any_object(door: Door, label: str) -> None:
    machines = [node(f"n{one}", labels={label: f"d{one % 3}"}, amounts={"cpu": "4"}) for one in range(6)]
    own = label.startswith("my.")
    group = gang("g", 2, annotations=rule("row" if own else label))
    words = ("--layers", f"row={label}") if own else ()
    done = door.schedule(machines, group, members("g", 2, {"cpu": 3}), say=words)
    first, second = (int(place[1:]) % 3 for place in done.bound.values())
    assert first == second


def test_pools_with_networks_of_their_own_stand_side_by_side(door: Door) -> None:
    other = network(("SpineLayer", "hpc/spine"), name="hpc")
    spines = [node(f"s{one}", labels={"hpc/spine": f"s{one // 2}"}, amounts={"cpu": "9"}) for one in range(4)]
    racks = [seat(f"n{one}", f"b{one // 2}", 4) for one in range(4)]
    group = gang("g", 2, annotations=rule("SpineLayer"))
    done = door.schedule(TREE, other, racks, spines, group, members("g", 2, {"cpu": 9}))
    first, second = (int(place[1:]) // 2 for place in done.bound.values())
    assert first == second
    assert {place[0] for place in done.bound.values()} == {"s"}


# --- what else the page about gangs found ---------------------------------------------------


def test_what_is_bound_under_the_check_of_parents_is_legal(door: Door) -> None:
    """Ancestors' min is not asked of a pod that may not be preempted."""
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "ElasticQuota"}]}},
        "pluginConfig": [{"name": "ElasticQuota", "args": {"enableCheckParentQuota": True}}],
    }
    config = obj("KubeSchedulerConfiguration", "c", profiles=[profile])
    quotas = [
        quota("above", {"cpu": 10}, {"cpu": 1}, inner="true"),
        quota("below", {"cpu": 10}, {"cpu": 3}, parent="above"),
    ]
    labels = {QUOTA + "name": "below", QUOTA + "preemptible": "false"}
    done = door.schedule(
        node("n"), quotas, pod("p", {"cpu": 3}, labels=labels), say=("--policy", door.file(config))
    )
    assert done.node_of("p") == "n"


def test_moving_one_member_is_cheaper_than_losing_the_gang(door: Door) -> None:
    chips = {"example.com/chip": "2"}
    machines = [node(name, amounts=chips) for name in ("a", "b")]
    labels = {GROUP: "g"}
    pods = [pod(f"g-{one}", {"example.com/chip": 1}, on="a", labels=labels, priority=5) for one in range(2)]
    other = pod("other", {"example.com/chip": 1}, on="b", priority=900)
    wants = pod("wants", {"example.com/chip": 2}, priority=90)
    dump = door.file(machines, gang("g", 1), pods, other, wants)
    told = door.ask("schedule", dump, "--preempt", "--relocate").out
    assert "1 pod of 0 jobs" in told
    assert "moves to b" in told
    assert "breaks" not in told
    alone = door.ask("schedule", dump, "--preempt").out
    assert "2 pods of 1 job" in alone
    assert "breaks" in alone


def test_labels_and_annotations_may_name_a_gang(door: Door) -> None:
    """Prefix of an annotation, or the label of the PodGroup, in any namespace."""
    space = {"namespace": "ml"}
    group = gang("g", 2, namespace="ml")
    by_label = [pod(f"l{one}", {"cpu": 1}, labels={GROUP: "g"}, **space) for one in range(2)]
    assert len(door.schedule(node("n"), group, by_label).bound) == 2
    assert not door.schedule(node("n"), group, by_label[0]).bound
    own = {GANG + "name": "h", GANG + "min-available": "2"}
    by_annotation = [pod(f"a{one}", {"cpu": 1}, annotations=own, **space) for one in range(2)]
    assert len(door.schedule(node("n"), by_annotation).bound) == 2
    assert not door.schedule(node("n"), by_annotation[0]).bound
