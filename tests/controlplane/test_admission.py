"""Kueue's Workloads: quota and places decided as one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from koordcore import schedule, verify
from koordcore.controlplane import admit_workloads
from koordcore.controlplane.admission import AdmissionPlan, WorkloadDecision
from koordcore.explaining.network import used_domains
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.records import result_from_record, result_record
from tests.manifests.kueue_builders import (
    GPU,
    RACK,
    TOPOLOGY,
    Object,
    admitted,
    flavor,
    local,
    made,
    node,
    pod_set,
    queue,
    running,
    workload,
)

FLAVORS = [flavor("a100"), flavor("h100"), TOPOLOGY]
NODES = [node(f"a{n}", f"r{n // 2}") for n in range(4)] + [
    node(f"h{n}", f"s{n // 2}", "h100") for n in range(4)
]


def planned(*objects: Object, **words: Any) -> AdmissionPlan:
    """Decide, and have it verified."""
    snapshot = snapshot_from_objects([*FLAVORS, *objects], as_gangs=True).snapshot
    assert not schedule(snapshot, [pod for pod in snapshot.pending if pod.gated]).bound, "gates are closed"
    plan = admit_workloads(snapshot, **words)
    assert verify(plan.before, plan.result) == ()
    if not words.get("by_quota_alone"):
        assert verify(snapshot, plan.result) == ()
        read = result_from_record(snapshot, result_record(plan.result))
        assert verify(snapshot, read) == ()
        assert read.admitted == plan.result.admitted
    assert {one.pod for one in plan.result.decisions} == {pod.key for pod in snapshot.pending}
    return plan


def about(plan: AdmissionPlan, name: str) -> WorkloadDecision:
    (found,) = [one for one in plan.workloads if one.workload == f"ml/{name}"]
    return found


def racks(plan: AdmissionPlan, start: str = "") -> list[str]:
    """Racks of the pods whose names start so, in the order of their names."""
    nodes = plan.before
    bound = sorted((one.pod.name, one.node) for one in plan.result.bound)
    return [nodes.node(where).node.labels[RACK] for name, where in bound if name.startswith(start)]


def test_the_next_flavor_is_taken_where_the_first_has_quota_and_no_nodes() -> None:
    objects = [
        *NODES,
        running("x", "a0", 4),
        running("y", "a2", 4),
        queue("team", {"a100": 32, "h100": 32}),
        local("q", "team"),
        workload("train", pod_set("main", 2, 8, required=RACK)),
    ]
    found = about(planned(*objects), "train")
    assert found.admitted
    assert dict(found.flavors) == {f"main/{GPU}": "h100"}
    assert found.passed_over == ("on a100: the best rack, r0, has 1 of 2 slots; 1 more would do",)
    by_quota = about(planned(*objects, by_quota_alone=True), "train")
    assert not by_quota.admitted
    assert by_quota.reason == "on a100: the best rack, r0, has 1 of 2 slots; 1 more would do"


def test_a_queue_borrows_what_its_cohort_lends_and_no_more() -> None:
    def taken(**limits: Any) -> WorkloadDecision:
        lender = queue("lender", {"a100": 16}, "all", limits=limits)
        work = workload("w", pod_set("main", 3, 8))
        return about(
            planned(*NODES, queue("team", {"a100": 8}, "all"), lender, local("q", "team"), work), "w"
        )

    assert taken().borrows
    assert taken(lendingLimit=16).admitted
    lacking = taken(lendingLimit=15)
    assert not lacking.admitted
    assert lacking.reason == "Cohort all: 24 nvidia.com/gpu of flavor a100 asked, 1 of 24 used or kept"
    own = queue("team", {"a100": 8}, "all", limits={"borrowingLimit": 15})
    found = planned(
        *NODES,
        own,
        queue("lender", {"a100": 16}, "all"),
        local("q", "team"),
        workload("w", pod_set("main", 3, 8)),
    )
    told = "ClusterQueue team: 24 nvidia.com/gpu of flavor a100 asked, 0 of 23 used"
    assert about(found, "w").reason == told


def test_cohorts_share_along_their_tree() -> None:
    objects = [
        *NODES,
        queue("team", {"a100": 0}, "left"),
        queue("other", {"a100": 16}, "right"),
        local("q", "team"),
        workload("w", pod_set("main", 2, 8)),
    ]
    assert not about(planned(*objects), "w").admitted
    tree = [made("Cohort", name, {"parentName": "top"}) for name in ("left", "right")]
    assert about(planned(*objects, *tree), "w").borrows
    cycle = [made("Cohort", "left", {"parentName": "up"}), made("Cohort", "up", {"parentName": "left"})]
    assert about(planned(*objects, *cycle), "w").reason == "its cohorts form a cycle: left -> up -> left"


def test_flavors_are_found_beyond_the_first_combinations_of_many_pod_sets() -> None:
    """Of 3^8 combinations quota is there where one pod set takes the first flavor, all others the last."""
    quotas = {"spot": 2, "sold": 0, "rest": 14}
    many = workload("many", *(pod_set(f"p{number}", 1, 2) for number in range(8)))
    nodes = [node("s1", "a", "spot"), node("r1", "a", "rest"), node("r2", "a", "rest")]
    plan = planned(
        *nodes,
        *(flavor(name, "") for name in quotas),
        queue("team", quotas),
        local("q", "team"),
        many,
    )
    found = about(plan, "many")
    assert found.admitted
    assert sorted(found.flavors.values()) == ["rest"] * 7 + ["spot"]


def test_fewer_pods_start_beyond_the_first_combinations_of_many_pod_sets() -> None:
    """Of 17 * 17 combinations those with the last flavor for the first pod set come after the first 256."""
    quotas = {f"f{number:02}": 0 for number in range(15)} | {"f15": 1, "f16": 6}
    objects = [
        *(node(f"n-{name}", "a", name) for name in quotas),
        *(flavor(name, "") for name in quotas),
        local("q", "team"),
        workload("w", pod_set("main", 1, 1), pod_set("work", 8, 1, least=2)),
    ]
    assert about(planned(*objects, queue("team", {**quotas, "f15": 0})), "w").pods == 6
    found = about(planned(*objects, queue("team", quotas)), "w")
    assert (found.admitted, found.pods) == (True, 7)
    assert dict(found.flavors) == {f"main/{GPU}": "f15", f"work/{GPU}": "f16"}
    last = {**quotas, "f15": 0, "f16": 2}
    assert not about(planned(*objects, queue("team", last)), "w").admitted


def test_what_runs_already_counts() -> None:
    objects = [*NODES, queue("team", {"a100": 16}), local("q", "team")]
    runs = workload("runs", pod_set("main", 2, 8))
    waits = workload("waits", pod_set("main", 1, 8), hour=1)
    flavors = {GPU: "a100"}
    assert not about(planned(*objects, admitted(runs, "team", flavors, 16), waits), "waits").admitted
    half = admitted(runs, "team", flavors, 16)
    half["status"]["reclaimablePods"] = [{"name": "main", "count": 1}]
    assert about(planned(*objects, half, waits), "waits").admitted
    over = admitted(runs, "team", flavors, 16)
    over["status"]["conditions"] = [{"type": "Finished", "status": "True"}]
    assert about(planned(*objects, over, waits), "waits").admitted


def test_pods_that_have_ended_count_against_those_that_were_admitted() -> None:
    """Of ten pods four were admitted; eight have ended, so two hold quota. Who waits asks for the rest."""

    def waiting(ended: int, admitted_pods: int | None) -> tuple[bool, int]:
        words = {} if admitted_pods is None else {"count": admitted_pods}
        runs = admitted(workload("runs", pod_set("main", 10, 4, 1)), "team", {GPU: "a100"}, 40, **words)
        runs["status"]["reclaimablePods"] = [{"name": "main", "count": ended}]
        work = workload("w", pod_set("main", 4, 1), hour=1)
        plan = planned(*NODES, queue("team", {"a100": 22}), local("q", "team"), runs, work)
        return about(plan, "w").admitted, about(plan, "w").pods

    assert waiting(8, 4) == (False, 0), "2 of 4 pods of 10 cards each"
    assert waiting(9, 4) == (True, 4)
    assert waiting(5, 4) == waiting(5, None) == (False, 0)
    assert waiting(6, None) == (True, 4), "4 of 10 pods of 4 cards each"


def test_a_workload_that_waits_asks_for_the_pods_that_have_not_ended() -> None:
    work = workload("w", pod_set("main", 4, 8), pod_set("rest", 1, 8))
    work["status"] = {"reclaimablePods": [{"name": "main", "count": 3}, {"name": "rest", "count": 1}]}
    plan = planned(*NODES, queue("team", {"a100": 8}), local("q", "team"), work)
    assert (about(plan, "w").admitted, about(plan, "w").pods, about(plan, "w").asked) == (True, 1, 1)


@pytest.mark.parametrize(
    ("requeued", "until", "now", "why"),
    [
        ("", "", None, ""),
        ("True", "2026-01-02T00:00:00Z", None, ""),
        ("False", "", None, "it was evicted and is not queued again yet (Requeued is False)"),
        ("False", "2026-01-02T00:00:00Z", None, "2026-01-02T00:00:00Z (requeueAt)"),
        ("False", "2026-01-02T00:00:00Z", 1, "2026-01-02T00:00:00Z (requeueAt)"),
        ("False", "2026-01-02T00:00:00Z", 2, ""),
        ("", "2026-01-02T00:00:00Z", 1, "2026-01-02T00:00:00Z (requeueAt)"),
    ],
)
def test_who_was_evicted_waits_until_it_is_queued_again(
    requeued: str, until: str, now: int | None, why: str
) -> None:
    work = workload("w", pod_set("main", 1, 8))
    stated = [{"type": "Requeued", "status": requeued, "reason": "PodsReadyTimeout"}] if requeued else []
    state = {"requeueState": {"count": 3, "requeueAt": until}} if until else {}
    work["status"] = {"conditions": stated, **state}
    moment = None if now is None else datetime(2026, 1, now, tzinfo=UTC)
    found = about(planned(*NODES, queue("team", {"a100": 8}), local("q", "team"), work, now=moment), "w")
    assert found.admitted == (not why)
    assert why in found.reason


def test_topology_requests_are_kept_exactly() -> None:
    objects = [*NODES, queue("team", {"a100": 64}), local("q", "team")]
    apart = planned(*objects, workload("w", pod_set("main", 3, 8, required=RACK)))
    assert not about(apart, "w").admitted
    preferred = planned(*objects, workload("w", pod_set("main", 3, 8, preferred=RACK)))
    assert len(set(racks(preferred))) == 2
    together = planned(*objects, workload("w", pod_set("main", 2, 8, preferred=RACK)))
    assert len(set(racks(together))) == 1
    slices: Object = {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2}
    sliced = planned(*objects, running("x", "a0", 8), workload("w", pod_set("main", 2, 8, **slices)))
    assert racks(sliced) == ["r1", "r1"]
    assert not about(
        planned(
            *objects,
            running("x", "a0", 8),
            running("y", "a2", 8),
            workload("w", pod_set("main", 2, 8, **slices)),
        ),
        "w",
    ).admitted


def test_pod_sets_of_one_group_lie_together_and_take_one_flavor() -> None:
    wish: Object = {"required": RACK, "podSetGroupName": "all"}
    objects = [
        *NODES,
        running("x", "a0", 4),
        queue("team", {"a100": 64, "h100": 64}),
        local("q", "team"),
        workload("w", pod_set("leader", 1, 4, **wish), pod_set("workers", 1, 8, **wish)),
    ]
    plan = planned(*objects)
    assert set(racks(plan)) == {"r0"}
    alone = planned(
        *objects[:-1], workload("w", pod_set("leader", 1, 8), pod_set("rest", 2, 8, required=RACK))
    )
    assert len(set(racks(alone, "w-rest"))) == 1


def test_a_leader_that_asks_for_nothing_takes_the_flavor_of_its_group() -> None:
    wish: Object = {"required": RACK, "podSetGroupName": "all"}
    objects = [*NODES, queue("team", {"h100": 64}), local("q", "team")]
    plan = planned(*objects, workload("w", pod_set("leader", 1, 0, **wish), pod_set("workers", 2, 8, **wish)))
    assert len(set(racks(plan))) == 1
    assert {one.node[0] for one in plan.result.bound} == {"h"}


def test_a_node_without_a_label_of_the_topology_is_in_no_domain() -> None:
    objects = [node("bare", ""), queue("team", {"a100": 64}), local("q", "team")]
    asking = planned(*objects, node("a0", "r0", cards=1), workload("w", pod_set("main", 1, 8, required=RACK)))
    assert not about(asking, "w").admitted
    anyone = workload("w", pod_set("main", 1, 8))
    assert not about(planned(*objects, node("a0", "r0", cards=1), anyone), "w").admitted
    plain = [made("ResourceFlavor", "flat", {}), queue("other", {"flat": 64}), local("p", "other")]
    flat = planned(*objects[:1], *plain, workload("w", pod_set("main", 1, 8), into="p"))
    assert about(flat, "w").admitted


def test_a_flavor_with_a_topology_is_for_those_who_ask_unless_all_flavors_have_one() -> None:
    flat = made("ResourceFlavor", "flat", {"nodeLabels": {"gpu": "h100"}})
    objects = [*NODES, flat, queue("team", {"a100": 64, "flat": 64}), local("q", "team")]
    found = about(planned(*objects, workload("w", pod_set("main", 1, 8))), "w")
    assert found.flavors[f"main/{GPU}"] == "flat"
    asking = about(planned(*objects, workload("w", pod_set("main", 1, 8, unconstrained=True))), "w")
    assert asking.flavors[f"main/{GPU}"] == "a100"


@pytest.mark.parametrize("hosts", ["", "hosts"])
def test_pod_sets_take_flavors_with_a_topology_and_others_side_by_side(hosts: str) -> None:
    """The others have no Topology, or one of hosts alone, in which nobody is near anybody."""
    alone = made("Topology", "hosts", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]})
    objects = [
        node("a0", "r0", "gpu", 4),
        node("a1", "r0", "gpu", 4),
        node("c0", "", "plain", 4),
        node("no", "", "none", 8),
        TOPOLOGY,
        alone,
        flavor("gpu"),
        flavor("plain", hosts),
        queue("team", {"gpu": 8, "plain": 4}),
        local("q", "team"),
    ]
    wish: dict[str, Any] = {"required": "kubernetes.io/hostname"} if hosts else {}
    both = workload("both", pod_set("launcher", 1, 1, **wish), pod_set("main", 4, 2, required=RACK))
    plan = planned(*objects, both)
    assert about(plan, "both").admitted
    assert {one.node for one in plan.result.bound} == {"a0", "a1", "c0"}
    assert used_domains(plan.result) == {"ml/both": {"rack": ["r0"]}}
    # None of them is in a rack.
    assert about(planned(*objects, workload("one", pod_set("main", 2, 2, required=RACK))), "one").admitted
    many = workload("many", pod_set("main", 6, 2, required=RACK))
    assert not about(planned(*objects, many), "many").admitted


def test_quota_alone_starts_parts_of_a_workload_where_no_topology_is_asked_for() -> None:
    flat = made("ResourceFlavor", "flat", {})
    objects = [flat, queue("team", {"flat": 64}), local("q", "team")]
    objects += [node("a0", "r0"), node("a1", "r0", cards=4)]
    objects += [workload("w", pod_set("main", 2, 8)), workload("v", pod_set("main", 1, 8), hour=1)]
    ours, theirs = planned(*objects), planned(*objects, by_quota_alone=True)
    assert (about(ours, "w").admitted, about(ours, "v").admitted) == (False, True)
    found = about(theirs, "w")
    assert (found.admitted, found.pods, found.asked) == (True, 1, 2)
    assert found.reason == "1 of its pods find no nodes, and its quota is used"
    assert about(theirs, "v").pods == 0


def test_a_queue_that_is_over_in_one_flavor_starts_what_asks_for_others() -> None:
    """Its quota of the first flavor was lowered after somebody had started on it."""
    plan = planned(
        *NODES,
        running("old", "a0", 6),
        queue("team", {"a100": 4, "h100": 8}),
        local("q", "team"),
        admitted(workload("old", pod_set("main", 1, 6)), "team", {GPU: "a100"}, 6),
        workload("new", pod_set("main", 1, 4)),
        workload("empty", pod_set("main", 1, 0)),
    )
    assert dict(about(plan, "new").flavors) == {f"main/{GPU}": "h100"}
    assert about(plan, "empty").admitted


def test_the_order_of_a_queue() -> None:
    def starts(**spec: Any) -> list[str]:
        objects = [
            *NODES,
            queue("team", {"a100": 16}, **spec),
            local("q", "team"),
            workload("old", pod_set("main", 3, 8), hour=1),
            workload("new", pod_set("main", 1, 8), hour=2),
            workload("high", pod_set("main", 1, 8), hour=3, priority=7),
        ]
        return [one.workload.removeprefix("ml/") for one in planned(*objects).workloads if one.admitted]

    assert starts() == ["high", "new"]
    assert starts(queueingStrategy="StrictFIFO") == ["high"]
    assert starts(stopPolicy="Hold") == []


@pytest.mark.parametrize("strict", [True, False])
def test_who_may_take_no_flavor_stops_a_strict_queue_like_others_that_cannot_start(strict: bool) -> None:
    elsewhere = workload("elsewhere", pod_set("main", 1, 8), hour=2)
    elsewhere["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"gpu": "none"}
    plan = planned(
        *NODES,
        queue("team", {"a100": 24}, **({"queueingStrategy": "StrictFIFO"} if strict else {})),
        queue("other", {"a100": 8}),
        local("q", "team"),
        local("p", "other"),
        workload("first", pod_set("main", 1, 8), hour=1),
        elsewhere,
        workload("last", pod_set("main", 1, 8), hour=3),
        workload("beside", pod_set("main", 1, 8), into="p", hour=4),
    )
    last = about(plan, "last")
    assert about(plan, "first").admitted
    assert about(plan, "beside").admitted
    assert last.admitted is not strict
    assert last.reason == ("behind ml/elsewhere, which cannot start (StrictFIFO)" if strict else "")


def test_fewer_pods_start_where_the_workload_allows_it() -> None:
    objects = [*NODES, queue("team", {"a100": 24}), local("q", "team")]
    found = about(planned(*objects, workload("w", pod_set("main", 4, 8, least=2))), "w")
    assert (found.admitted, found.pods, found.asked) == (True, 3, 4)
    busy = [running(f"x{n}", f"a{n}", 8) for n in range(2)]
    found = about(planned(*objects, *busy, workload("w", pod_set("main", 4, 8, least=2))), "w")
    assert (found.admitted, found.pods) == (True, 2)
    assert not about(planned(*objects, workload("w", pod_set("main", 5, 8, least=4))), "w").admitted


@pytest.mark.parametrize(
    ("wants", "given"),
    [
        ([{"key": "gpu", "operator": "In", "values": ["h100"]}], "h100"),
        (
            [{"key": "gpu", "operator": "NotIn", "values": ["a100"]}, {"key": RACK, "operator": "Exists"}],
            "h100",
        ),
        ([{"key": RACK, "operator": "In", "values": ["r0"]}], "a100"),
    ],
)
def test_required_node_affinity_is_held_against_the_labels_of_a_flavor(
    wants: list[Object], given: str
) -> None:
    """Its own labels alone: what is said of others is a matter of nodes."""
    found = pod_set("main", 1, 8)
    terms = {"nodeSelectorTerms": [{"matchExpressions": wants}]}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    found["template"]["spec"]["affinity"] = required
    objects = [*NODES, queue("team", {"a100": 8, "h100": 8}), local("q", "team"), workload("w", found)]
    for by_quota_alone in (False, True):
        plan = planned(*objects, by_quota_alone=by_quota_alone)
        assert about(plan, "w").flavors[f"main/{GPU}"] == given
        assert about(plan, "w").pods == 1


def test_a_node_selector_is_held_against_the_labels_that_a_flavor_has() -> None:
    """As Kueue does since its pull request 12449: what other flavors are told apart by does not count."""
    found = pod_set("main", 1, 8)
    found["template"]["spec"]["nodeSelector"] = {"gpu": "h100"}
    bare = flavor("bare", topology="", nodeLabels={})
    quotas = queue("team", {"a100": 8, "bare": 8, "h100": 8})
    plan = planned(*NODES, bare, quotas, local("q", "team"), workload("w", found))
    assert about(plan, "w").flavors[f"main/{GPU}"] == "bare"
    assert [one.node[0] for one in plan.result.bound] == ["h"]
    assert about(plan, "w").passed_over == ()


def test_the_flavor_on_which_most_pods_start_is_taken_before_fewer_start_on_an_earlier_one() -> None:
    def started(quotas: dict[str, int], *busy: Object, least: int = 1, **words: Any) -> tuple[int, str]:
        work = workload("w", pod_set("main", 4, 4, least=least))
        found = about(planned(*NODES, *busy, queue("team", quotas), local("q", "team"), work, **words), "w")
        return found.pods, found.flavors.get(f"main/{GPU}", "")

    full = [running(f"x{n}", f"a{n}", 8) for n in range(4)]
    assert started({"a100": 8, "h100": 16}) == (4, "h100")
    assert started({"a100": 8, "h100": 16}, by_quota_alone=True) == (4, "h100")
    assert started({"a100": 4, "h100": 12}) == (3, "h100")
    assert started({"a100": 8, "h100": 8}) == (2, "a100"), "the first of those with as many"
    assert started({"a100": 16, "h100": 12}, *full[:3]) == (3, "h100"), "nodes count, too"
    assert started({"a100": 16, "h100": 4}, *full[:3]) == (2, "a100")
    assert started({"a100": 16, "h100": 4}, *full) == (1, "h100")
    assert started({"a100": 8, "h100": 4}, least=3) == (0, "")


def test_no_pod_set_of_a_group_stands_in_for_another() -> None:
    sets = [pod_set("lead", 1, 16, podSetGroupName="g"), pod_set("work", 4, 1, 1, podSetGroupName="g")]
    found = about(planned(*NODES, queue("team", {"a100": 32}), local("q", "team"), workload("w", *sets)), "w")
    assert (found.admitted, found.pods) == (False, 0)


def test_a_flavor_without_borrowing_comes_first_where_the_queue_says_so() -> None:
    def given(**spec: Any) -> str:
        other = queue("other", {"a100": 64, "h100": 64}, "all")
        own = queue("team", {"a100": 4, "h100": 16}, "all", **spec)
        work = workload("w", pod_set("main", 1, 8))
        return about(planned(*NODES, own, other, local("q", "team"), work), "w").flavors[f"main/{GPU}"]

    assert given() == "a100"
    assert given(flavorFungibility={"whenCanBorrow": "TryNextFlavor"}) == "h100"


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([], "there is no LocalQueue q in namespace ml"),
        ([local("q", "gone")], "there is no ClusterQueue gone"),
        ([local("q", "team", stopPolicy="Hold"), queue("team", {"a100": 8})], "LocalQueue q is stopped"),
        (
            [local("q", "team"), queue("team", {"a100": 8}, namespaceSelector=None)],
            "ClusterQueue team does not select namespace ml",
        ),
        (
            [local("q", "team"), made("ClusterQueue", "team", {"namespaceSelector": {}})],
            "main: ClusterQueue team has no nvidia.com/gpu",
        ),
        (
            [local("q", "team"), queue("team", {"v5": 8})],
            "ClusterQueue team is not active: there is no ResourceFlavor v5",
        ),
        (
            [local("q", "team"), queue("team", {"a100": 8, "v5": 8})],
            "ClusterQueue team is not active: there is no ResourceFlavor v5",
        ),
        (
            [local("q", "team"), queue("team", {"a100": 8, "v5": 8}), flavor("v5", topology="nope")],
            "ClusterQueue team is not active: there is no Topology nope, which ResourceFlavor v5 names",
        ),
        (
            [
                local("q", "team"),
                queue("team", {"spot": 8}),
                flavor("spot", nodeTaints=[{"key": "spot", "effect": "NoSchedule"}]),
            ],
            "main does not tolerate taint spot of flavor spot",
        ),
        (
            [local("q", "team"), queue("team", {"flat": 8}), flavor("flat", topology="")],
            f"flavor flat has no topology level {RACK}, which main names",
        ),
    ],
)
def test_who_has_no_queue_or_flavor_is_told_which(objects: Sequence[Object], why: str) -> None:
    found = about(planned(*NODES, *objects, workload("w", pod_set("main", 1, 8, required=RACK))), "w")
    assert (found.admitted, found.reason) == (False, why)


def test_pods_of_no_workload_come_first_and_the_order_of_objects_does_not_matter() -> None:
    plain = running("plain", "", 8)
    del plain["spec"]["nodeName"]
    objects = [
        *NODES,
        plain,
        queue("team", {"a100": 64}),
        local("q", "team"),
        workload("w", pod_set("main", 4, 8)),
        workload("v", pod_set("main", 2, 8), hour=2),
    ]
    first = planned(*objects)
    assert first.result.decision("ml/plain") in first.result.bound
    for seed in range(3):
        shuffled = random.Random(seed).sample(objects, len(objects))
        assert planned(*shuffled).result.decisions == first.result.decisions
