"""What a hand slips on: names that are nowhere, and a path where a number may stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node, obj, pod

EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "defalt"], "-n: nothing is in namespace defalt; did you mean default?"),
        (["-l", "app=nobody"], "-l: no pod and no node has such labels"),
    ],
)
def test_who_chooses_nobody_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", EXAMPLE, *words]) == 0
    assert told in capsys.readouterr().err
    main(["inspect", EXAMPLE, "-n", "default", "-l", "app=urgent"])
    assert capsys.readouterr().err == ""


def test_a_resource_that_no_quota_limits_is_no_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    for quota in ([], ["--quota", "students"]):
        assert main(["quota", EXAMPLE, "--resource", "nvidia.com/gp", *quota]) == 2
        told = "koordcore: --resource: no quota limits nvidia.com/gp; did you mean nvidia.com/gpu?\n"
        assert capsys.readouterr().err == told


def test_a_path_may_follow_a_flag_whose_number_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["defrag", "--empty", EXAMPLE, "-o", "json"]) == 0
    before = capsys.readouterr().out
    assert main(["defrag", EXAMPLE, "--empty", "-o", "json"]) == 0
    assert capsys.readouterr().out == before
    assert main(["defrag", "--empty", "two", EXAMPLE]) == 2
    assert "--empty: invalid int value: 'two'" in capsys.readouterr().err


def test_violations_of_one_namespace_are_shown_and_all_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["schedule", EXAMPLE, "-o", "json"])
    plan = json.loads(capsys.readouterr().out)
    for one in plan["decisions"]:
        if one["pod"] in ("default/thesis-0", "default/web-0"):
            one["node"] = "gpu-s1b2-1"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    assert main(["verify", EXAMPLE, "--plan", str(path), "-l", "app=web"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("Not legal: ")
    assert shown[0].endswith(f", {len(shown[2:-1])} of them shown")
    assert {line.split()[1] for line in shown[2:-1]} <= {"default/web-0", "students"}


def test_a_gang_that_finds_no_place_is_one_row_with_one_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Members that fit fall with the one that does not; their message quotes its own."""
    room = {"cpu": "64", "memory": "64Gi", "pods": "99", "nvidia.com/gpu": "8"}
    named = {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}
    cards = [container(limits={"nvidia.com/gpu": "8"})]
    members = [pod(f"g-{place}", metadata=named, containers=cards) for place in range(3)]
    group = obj("PodGroup", "g", "scheduling.sigs.k8s.io/v1alpha1", spec={"minMember": 3})
    path = tmp_path / "c.json"
    path.write_text(json.dumps([node("a", room), node("b", room), group, *members]))
    assert main(["schedule", str(path)]) == 1
    shown = capsys.readouterr().out.partition("Not placed\n")[2].partition("\n\n")[0].splitlines()
    reason = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert [line.split(maxsplit=1)[0] for line in shown] == ["WORKLOAD", "default/g"]
    assert shown[1].endswith(reason)
    main(["schedule", str(path), "-o", "json"])
    assert "gets rejected due to member Pod" in capsys.readouterr().out
