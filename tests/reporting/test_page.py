"""What stands in the file: everything that it needs, nothing that asks elsewhere, and not too much."""

from __future__ import annotations

import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    MissingExtraError,
    Node,
    Pod,
    PodKey,
    Unschedulable,
    load,
    plan_room,
    report,
    schedule,
)
from koordcore.cli import main
from koordcore.descheduling.defrag import Wanted
from koordcore.descheduling.plans import plan_cooling
from koordcore.explaining.groups import turns_of
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.pods import OwnerReference
from koordcore.model.rebalance import LowNodeLoadArgs, NodePool, Thresholds
from koordcore.protocol.expectations import EXPECTED_DURATION
from tests.reporting.clusters import HOSTILE, example, large, preempted, scattered

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml"


def values_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    values: dict[str, Any] = json.loads(found.group(1))
    return values


def test_the_page_names_no_other_place() -> None:
    """No address, no import, no picture: what is not in the file is not asked for."""
    page = report(example(), title="my cluster")
    style_and_script = page.replace(re.search(r'<script id="data".*?</script>', page, re.DOTALL)[0], "")  # type: ignore[index]
    assert not re.search(
        r"https?:|//[a-z]|@import|url\(|\bsrc=|<link|\bfetch\(|XMLHttpRequest", style_and_script
    )
    assert "default-src 'none'" in page


def test_no_text_of_a_cluster_ends_the_element_that_holds_it() -> None:
    page = report(preempted(), title=HOSTILE)
    assert HOSTILE not in page
    assert values_of(page)["title"] == HOSTILE


def test_a_thousand_nodes_with_ten_thousand_pods_weigh_less_than_five_megabytes() -> None:
    page = report(large())
    values = values_of(page)
    assert (len(values["nodes"]), len(values["pods"])) == (1000, 10_000)
    assert len(page.encode()) < 5_000_000


def test_the_same_result_gives_the_same_page() -> None:
    assert report(example()) == report(example())


def test_the_queue_says_why_each_pod_waits_and_when_it_starts() -> None:
    refused = [one for one in example().decisions if isinstance(one, Unschedulable)]
    values = values_of(report(example(), starts={refused[0].pod: None}))
    row = values["queue"][example().decisions.index(refused[0])]
    assert values["texts"][row["w"]] == refused[0].message
    assert (row["o"], row["s"]) == ("no place", "")
    assert "s" not in values["queue"][0]


def test_turns_are_counted_as_explain_counts_them() -> None:
    """The gang of three has the first; urgent-1 is the third of eighteen."""
    before = load([EXAMPLE]).snapshot
    result = schedule(before)
    turns = [one["t"] for one in values_of(report(result))["queue"]]
    assert turns[:5] == [1, 1, 1, 2, 3]
    assert turns[-1] == max(turns) == 18
    assert turns == [turn for turn, _ in turns_of(before)]


def test_a_preemption_is_told_from_the_victim_to_the_job() -> None:
    values = values_of(report(preempted()))
    (plan,) = values["plans"]
    holders = [
        {values["pods"][use[0]][1] for _, cards in step["cards"] for card in cards for use in card[5:]}
        for step in plan["steps"]
    ]
    assert holders == [{"old"}, set(), {"new"}]
    assert [len(step["changes"]) for step in plan["steps"]] == [0, 1, 1]


def test_a_plan_of_moves_is_told_wave_by_wave() -> None:
    """After the last wave the cards stand as the checked plan says."""
    snapshot = scattered()
    moving = plan_room(snapshot, Wanted(requests={"nvidia.com/gpu": 8, "pods": 1}, count=1))
    assert moving.plan.moves
    values = values_of(report(snapshot, plans={"room": moving}))
    (plan,) = values["plans"]
    assert len(plan["steps"]) == 1 + max(move.arrives for move in moving.plan.moves) + 1
    names = [node["n"] for node in values["nodes"]]
    last = {
        names[row]: {use[0] for card in cards for use in card[5:]}
        for row, cards in plan["steps"][-1]["cards"]
    }
    for move in moving.plan.moves:
        pod = next(place for place, one in enumerate(values["pods"]) if one[1] == move.pod.name)
        assert pod not in last[move.source]
        assert pod in last[move.target]


def test_pods_that_leave_hot_nodes_anyhow_are_told() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    pods = [Pod(name=f"p{one}", requests={"cpu": 1000}, deleted=when if one else None) for one in range(2)]
    usage = tuple(
        PodMetric(namespace=pod.namespace, name=pod.name, usage=measured_of({"cpu": 5000})) for pod in pods
    )
    reported = NodeMetric(node="n", update_time=0, node_usage=measured_of({}), pods=usage)
    snapshot = ClusterSnapshot(nodes=[Node(name="n", allocatable={"cpu": 10_000, "pods": 10})]).assume(
        *(attrs.evolve(pod, node_name="n") for pod in pods)
    )
    args = LowNodeLoadArgs(pools=(NodePool(high=Thresholds(cpu=60)),))
    moving = plan_cooling(snapshot, args, now=0, metrics={"n": reported})
    (plan,) = values_of(report(snapshot, plans={"cooling": moving}))["plans"]
    assert ["on their way", "1 pod, counted as gone"] in plan["facts"]


def test_every_quota_has_its_waterfall() -> None:
    (tree,) = values_of(report(preempted()))["quotas"]
    assert {row["quota"] for row in tree["rows"]} == {"a", HOSTILE}
    assert all(tree["families"][row["path"][-1]]["parent"] for row in tree["rows"])


def test_without_the_extra_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingExtraError, match=r"koordcore\[report\]"):
        report(example())


def test_the_verb_writes_the_page_and_says_how_large_it_is(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    assert main(["report", str(EXAMPLE), "-o", str(target), "--fragments"]) == 0
    assert values_of(target.read_text(encoding="utf-8"))["plans"][0]["title"] == "Fewer cards idle in vain"
    assert re.fullmatch(rf"{re.escape(str(target))}: \d+ kB, \d+ nodes\n", capsys.readouterr().out)


def test_the_verb_says_when_a_job_starts_that_waits_for_another(tmp_path: Any) -> None:
    """One node, taken for an hour by a pod that says so."""
    room = {"cpu": "8", "pods": "9"}
    started = "2026-01-01T10:00:00Z"
    items = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}},
        pod_manifest(
            "runs", {"nodeName": "n"}, {EXPECTED_DURATION: "1h"}, {"phase": "Running", "startTime": started}
        ),
        pod_manifest("waits", {}, {}, {"phase": "Pending"}),
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}), encoding="utf-8")
    assert main(["report", str(dump), "-o", str(tmp_path / "r.html"), "-q"]) == 0
    (row,) = values_of((tmp_path / "r.html").read_text(encoding="utf-8"))["queue"]
    assert (row["o"], row["s"]) == ("no place", "2026-01-01T11:00:00Z")


def pod_manifest(name: str, spec: Any, annotations: Any, status: Any) -> Any:
    container = {"name": "c", "resources": {"requests": {"cpu": "6"}}}
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec},
        "status": status,
    }  # fmt: skip


def test_a_folder_that_is_not_there_is_said_before_the_work(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path / "no-such-dump.json"), "-o", str(tmp_path / "no" / "r.html")]) == 2
    assert "--output: no folder" in capsys.readouterr().err


def test_who_has_no_start_in_sight_is_not_in_the_way_of_others() -> None:
    """Keys of pods that the queue does not know say nothing."""
    assert "2030" not in report(example(), starts={PodKey("default", "nobody"): None})


def test_pods_are_one_workload_where_the_command_line_says_so_and_never_over_two_namespaces() -> None:
    owner = OwnerReference(kind="ReplicaSet", name="api-5f", uid="u", controller=True)
    pods = [Pod(name=f"web-{number}", requests={"cpu": 1000}) for number in range(3)]
    pods += [Pod(name="alone-0", requests={"cpu": 1000})]
    for space in ("a", "b"):
        labels = {"pod-template-hash": "5f"}
        pods += [Pod(name=f"api-5f-{n}", namespace=space, labels=labels, owners=(owner,)) for n in "xy"]
    node = Node(name="n1", allocatable={"cpu": 64_000, "pods": 20})
    data = values_of(report(schedule(ClusterSnapshot(nodes=[node], pending=pods))))
    named = {row[1]: row[3] for row in data["pods"]}
    jobs = {one: None if place < 0 else data["jobs"][place][1] for one, place in named.items()}
    assert {jobs[f"web-{number}"] for number in range(3)} == {"default/web"}
    assert jobs["alone-0"] is None
    assert sorted(name for _, name in data["jobs"]) == ["a/api", "b/api", "default/web"]
