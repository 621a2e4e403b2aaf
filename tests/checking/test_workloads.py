"""Plans that admit Workloads of Kueue: judged by the dump alone, and what is planted in them is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from koordcore import verify
from koordcore.cli import main
from koordcore.controlplane import admit_workloads
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.records import result_from_record, result_record
from koordcore.model.kueue import AdmittedWorkload
from koordcore.snapshot import ClusterSnapshot
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
    workload,
)

NODES = [node(f"a{n}", f"r{n // 2}") for n in range(4)] + [node(f"h{n}", "s0", "h100") for n in range(2)]
FLAVORS = [flavor("a100"), flavor("h100"), flavor("odd", nodeLabels={"gpu": "b200"}), TOPOLOGY]
QUEUE = queue("team", {"a100": 16, "h100": 16, "odd": 16}, "all")
LENDER = queue("lender", {"a100": 8}, "all")
TRAIN = workload("train", pod_set("main", 2, 8, required=RACK))
SWEEP = workload("sweep", pod_set("main", 1, 8, least=1), hour=1)
ROOM = [*NODES, *FLAVORS, local("q", "team")]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kueue.yaml"


def cluster(*objects: Object) -> ClusterSnapshot:
    """A cluster of those objects, with the pods of Workloads still to be made."""
    return snapshot_from_objects([*ROOM, *objects], as_gangs=True).snapshot


def written(*objects: Object) -> dict[str, Any]:
    """The plan for a cluster, as it is printed."""
    return result_record(admit_workloads(cluster(*objects)).result)


def named(snapshot: ClusterSnapshot, plan: dict[str, Any]) -> set[str]:
    """What is wrong with a plan."""
    return {str(one) for one in verify(snapshot, result_from_record(snapshot, plan))}


def test_a_plan_for_workloads_is_legal_by_the_dump_it_was_made_from(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    assert main(["schedule", str(EXAMPLE), "--as-gangs", "-o", "json", "-q"]) == 1  # one Workload waits
    plan.write_text(capsys.readouterr().out)
    assert main(["verify", str(EXAMPLE), "--as-gangs", "--plan", str(plan), "-q"]) == 0
    assert capsys.readouterr().out.startswith("legal: 6 decisions checked")


def test_workloads_that_borrow_along_their_cohort_are_legal_from_every_door() -> None:
    snapshot = cluster(QUEUE, LENDER, TRAIN, SWEEP)
    plan = admit_workloads(snapshot)
    assert sum(one.admitted for one in plan.workloads) == 2
    assert verify(snapshot, plan.result) == verify(plan.before, plan.result) == ()
    assert named(snapshot, json.loads(json.dumps(result_record(plan.result)))) == set()


HELD = admitted(workload("held", pod_set("main", 1, 1)), "lender", {GPU: "a100"}, 8)
LESS = queue("team", {"a100": 8, "h100": 16}, "all")
FULL = "quota: ClusterQueue team: 24 nvidia.com/gpu of flavor a100 used, "


@pytest.mark.parametrize(
    ("objects", "found"),
    [
        ([queue("team", {"a100": 12, "h100": 16})], FULL + "12 allowed"),
        ([LESS, LENDER], FULL + "16 allowed"),
        ([QUEUE, queue("lender", {"a100": 8}, "all", limits={"lendingLimit": 7})], FULL + "23 allowed"),
        ([QUEUE, LENDER, HELD], FULL + "16 allowed"),
        ([queue("team", {"a100": 16}, "all", limits={"borrowingLimit": 3}), LENDER], FULL + "19 allowed"),
        ([queue("team", {"h100": 16})], "quota: Workload ml/train: main: ClusterQueue team does not give "),
        ([queue("team", {"a100": 24}, stopPolicy="Hold")], "quota: Workload ml/train: its queue is stopped"),
        (
            [queue("team", {"a100": 24, "v5": 8})],
            "quota: Workload ml/train: ClusterQueue team is not active without v5",
        ),
        (
            [queue("team", {"a100": 24, "v5": 8}), flavor("v5", topology="nope")],
            "quota: Workload ml/train: ClusterQueue team is not active without nope",
        ),
        (
            [queue("team", {"a100": 24}, namespaceSelector=None)],
            "quota: Workload ml/train: ClusterQueue team does not select its namespace",
        ),
        (
            [queue("team", {"a100": 24}, "x"), made("Cohort", "x", {"parentName": "x"})],
            "quota: Workload ml/train: the cohorts above ClusterQueue team form a cycle",
        ),
    ],
)
def test_quota_that_is_not_there_for_a_plan_is_named(objects: list[Object], found: str) -> None:
    """The plan needs 24 cards of one flavor."""
    busy = [made("ClusterQueue", "x", {}), TRAIN, SWEEP]
    plan = written(queue("team", {"a100": 24}), TRAIN, SWEEP)
    assert named(cluster(queue("team", {"a100": 24}), TRAIN, SWEEP), plan) == set()
    wrong = named(cluster(*objects, *busy), plan)
    assert any(one.startswith(found) for one in wrong), wrong


@pytest.mark.parametrize(
    ("spec", "topology", "found"),
    [
        ({"nodeSelector": {"gpu": "h100"}}, {}, "main: wants gpu=h100, which flavor a100 has not"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "gpu", "operator": "NotIn", "values": ["a100"]}
                                    ]
                                }
                            ]
                        }
                    }
                }
            },
            {},
            "main: requires labels that flavor a100 has not",
        ),
        ({}, {"required": "cloud/block"}, "main: flavor a100 has no topology level cloud/block"),
    ],
)
def test_a_flavor_that_is_not_for_the_pods_of_a_workload_is_named(
    spec: Object, topology: Object, found: str
) -> None:
    """The plan was made before the Workload asked for that."""
    plan = written(QUEUE, workload("w", pod_set("main", 1, 8)))
    asks = pod_set("main", 1, 8, **topology)
    asks["template"]["spec"] |= spec
    assert f"quota: Workload ml/w: {found}" in named(cluster(QUEUE, workload("w", asks)), plan)


@pytest.mark.parametrize(
    ("until", "day", "found"),
    [
        (None, None, {"quota: Workload ml/w: was evicted and is not queued again"}),
        ("2026-01-02T00:00:00Z", 1, {"quota: Workload ml/w: was evicted and is not queued again"}),
        ("2026-01-02T00:00:00Z", 2, set()),
        ("2026-01-02T00:00:00Z", None, set()),
    ],
)
def test_a_workload_that_is_not_queued_again_yet_is_named(
    until: str | None, day: int | None, found: set[str]
) -> None:
    work = workload("w", pod_set("main", 1, 8))
    plan = written(QUEUE, work)
    work["status"] = {
        "conditions": [{"type": "Requeued", "status": "False"}],
        "requeueState": {"requeueAt": until} if until else {},
    }
    snapshot = cluster(QUEUE, work)
    now = None if day is None else datetime(2026, 1, day, tzinfo=UTC)
    told = verify(snapshot, result_from_record(snapshot, plan), now=now)
    assert set(map(str, told)) == found


def moved(plan: dict[str, Any], where: str) -> None:
    """Put the last pod of train elsewhere."""
    (*_, last) = [one for one in plan["decisions"] if one["pod"].startswith("ml/train")]
    last["node"] = where


def lost(plan: dict[str, Any]) -> None:
    """Leave the last pod of train out."""
    (*_, last) = [one for one in plan["decisions"] if one["pod"].startswith("ml/train")]
    plan["decisions"][plan["decisions"].index(last)] = {
        "pod": last["pod"],
        "decision": "Waiting",
        "reason": "",
    }


def given(plan: dict[str, Any], name: str) -> None:
    """Give train another flavor."""
    plan["workloads"][0]["flavors"][f"main/{GPU}"] = name


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda plan: moved(plan, "a2"), "Workload ml/train: main: in 2 domains of cloud/rack"),
        (lambda plan: moved(plan, "h0"), "train-main-1 is on h0, which is not of flavor a100 by gpu"),
        (lost, "Workload ml/train: 1 of the pods of main start, 2 have to"),
        (lambda plan: given(plan, "h100"), "which is not of flavor h100 by gpu"),
        (lambda plan: given(plan, "v5"), "ClusterQueue team does not give nvidia.com/gpu of flavor v5"),
        (lambda plan: plan["workloads"][0].pop("flavors"), "does not give nvidia.com/gpu of a flavor"),
        (lambda plan: plan["workloads"].pop(0), "gated: ml/train-main-0: is held by gate kueue.x-k8s.io"),
        (lambda plan: plan["workloads"].append(plan["workloads"][0]), "is admitted more than once"),
        (lambda plan: plan["workloads"][0].update(workload="ml/gone"), "ml/gone: is not in the cluster"),
        (lambda plan: plan["workloads"][0].update(clusterQueue="x"), "in no queue of ClusterQueue x"),
    ],
)
def test_an_admission_that_is_not_as_the_cluster_says_is_named(
    spoil: Callable[[dict[str, Any]], object], found: str
) -> None:
    snapshot = cluster(QUEUE, LENDER, TRAIN, SWEEP)
    plan = result_record(admit_workloads(snapshot).result)
    assert named(snapshot, plan) == set()
    spoil(plan)
    wrong = named(snapshot, plan)
    assert any(found in one for one in wrong), wrong


def test_workloads_of_a_plan_that_are_spoilt_in_the_result_are_named_from_both_doors() -> None:
    snapshot = cluster(QUEUE, LENDER, TRAIN, SWEEP)
    plan = admit_workloads(snapshot)
    other = AdmittedWorkload(workload="ml/train", queue="team", flavors={f"main/{GPU}": "h100"})
    spoilt = attrs.evolve(plan.result, admitted=(other, *plan.result.admitted[1:]))
    for before in (snapshot, plan.before):
        assert any("not of flavor h100" in one.message for one in verify(before, spoilt))


@pytest.mark.parametrize("resource", [GPU, "cpu"])
def test_a_node_is_of_every_flavor_that_its_pod_is_given(resource: str) -> None:
    """Flavors that contradict each other have no nodes, whichever of them a plan names last."""
    groups = [
        {
            "coveredResources": [one],
            "flavors": [
                {"name": name, "resources": [{"name": one, "nominalQuota": 16}]} for name in ("a100", "h100")
            ],
        }
        for one in ("cpu", GPU)
    ]
    pods = pod_set("main", 1, 8, required=RACK)
    pods["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    both = made("ClusterQueue", "team", {"namespaceSelector": {}, "resourceGroups": groups})
    snapshot = cluster(both, workload("train", pods))
    plan = admit_workloads(snapshot)
    (one,) = plan.result.admitted
    assert dict(one.flavors) == {"main/cpu": "a100", f"main/{GPU}": "a100"}
    other = attrs.evolve(one, flavors={**one.flavors, f"main/{resource}": "h100"})
    spoilt = attrs.evolve(plan.result, admitted=(other,))
    wrong = [each.message for each in verify(snapshot, spoilt)]
    assert any(text.startswith("train-main-0 is on a0, which is not of flavor") for text in wrong), wrong
