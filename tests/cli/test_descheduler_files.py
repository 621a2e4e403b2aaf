"""Whatever a file for the descheduler says holds or is named; what is wrong is told with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from koordcore.cli.main import main
from tests.cli.test_configurations import DESCHEDULER, config_map, hot_cluster, written
from tests.manifests.builders import obj

Capture = pytest.CaptureFixture[str]
CLASS: Final = obj("PriorityClass", "steady", "scheduling.k8s.io/v1", value=-5)


def errors(tmp_path: Path, capsys: Capture, option: str, told: Any) -> str:
    given = written(tmp_path / "given.yaml", told)
    assert main(["rebalance", hot_cluster(tmp_path), option, given]) == 2
    return capsys.readouterr().err.replace(given, "FILE")


def warnings(
    tmp_path: Path, capsys: Capture, told: Any, *words: str, option: str = "--migration"
) -> list[str]:
    given = written(tmp_path / "given.yaml", told)
    main(["rebalance", hot_cluster(tmp_path, CLASS), option, given, *words])
    return [line for line in capsys.readouterr().err.splitlines() if "has no effect" in line]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"maxNoOfPodsToEvictPerNod": 0}, 'FILE: unknown field "maxNoOfPodsToEvictPerNod"'),
        ({"maxNoOfPodsToEvictTotal": "x"}, 'FILE: maxNoOfPodsToEvictTotal: expected int, got "x"'),
        ({"maxNoOfPodsToEvictPerNode": -1}, "FILE: maxNoOfPodsToEvictPerNode: must not be negative, got -1"),
        ({"maxMigratingPerNode": -1}, "FILE: maxMigratingPerNode: Invalid value: -1: "),
        ({"labelSelector": {"matchLabels": {"a": 1}}}, "FILE: labelSelector.matchLabels[a]: expected string"),
        (
            {"objectLimiters": {"workload": {"duration": "5m", "maxMigrating": "many"}}},
            'FILE: objectLimiters[workload].maxMigrating: Invalid value: "many": ',
        ),
        ([1], "FILE (item 1): expected object, got 1"),
    ],
)
def test_a_wrong_value_of_the_migration_controller_is_told_with_its_file(
    told: Any, said: str, tmp_path: Path, capsys: Capture
) -> None:
    assert f"--migration: {said}" in errors(tmp_path, capsys, "--migration", told)


def whole(low: dict[str, Any], migrating: dict[str, Any], **more: Any) -> dict[str, Any]:
    listed = [{"name": "MigrationController", "args": migrating}, {"name": "LowNodeLoad", "args": low}]
    return {"kind": "DeschedulerConfiguration", "profiles": [{"name": "a", "pluginConfig": listed}], **more}


PLACE: Final = "profiles[0].pluginConfig"


@pytest.mark.parametrize("in_a_map", [False, True])
@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            whole({"highThresholds": {"cpu": "x"}}, {}),
            f'{PLACE}[1].args.highThresholds[cpu]: expected a number, got "x"',
        ),
        (
            whole({"highThresholds": {"cpu": 60}, "lowThresholds": {"cpu": 70}}, {}),
            f"{PLACE}[1].args.lowThresholds[cpu]: Invalid value: 70: low percentage",
        ),
        (
            whole({"nodePools": [{"name": "p", "highThresholds": {"cpu": -1}}]}, {}),
            f"{PLACE}[1].args.nodePools[0].highThresholds[cpu]: Invalid value: -1: ",
        ),
        (whole({}, {"evictBurst": 0}), f"{PLACE}[0].args.evictBurst: Invalid value: 0: "),
        (whole({}, {"kind": "LowNodeLoadArgs"}), f"{PLACE}[0].args.kind: expected MigrationControllerArgs"),
        (whole({}, {}, maxNoOfPodsToEvictTotal=1.5), "maxNoOfPodsToEvictTotal: expected int, got 1.5"),
    ],
)
def test_a_wrong_value_of_a_whole_configuration_is_told_with_file_and_place(
    told: Any, said: str, in_a_map: bool, tmp_path: Path, capsys: Capture
) -> None:
    error = errors(tmp_path, capsys, "--args", config_map("d", told) if in_a_map else told)
    assert f"--args: FILE: {'data[d]: ' if in_a_map else ''}{said}" in error


def test_thresholds_that_are_typed_are_told_as_they_are_typed(tmp_path: Path, capsys: Capture) -> None:
    assert main(["rebalance", hot_cluster(tmp_path), "--high", "cpu=-5"]) == 2
    assert "  highThresholds[cpu]: Invalid value: -5: " in capsys.readouterr().err


@pytest.mark.parametrize("threshold", [{"name": "steady"}, {"name": "x", "value": -5}, {"value": 0}])
def test_a_priority_threshold_holds_by_name_and_by_value(
    threshold: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    given = written(tmp_path / "given.yaml", {"priorityThreshold": threshold})
    cluster = hot_cluster(tmp_path, CLASS)
    assert main(["rebalance", cluster, "--high", "cpu=65", "--migration", given]) == 1
    assert "hot stays hot: no pod on it may be evicted" in capsys.readouterr().out
    free = written(tmp_path / "free.yaml", {"priorityThreshold": {"name": "system-cluster-critical"}})
    assert main(["rebalance", cluster, "--high", "cpu=65", "--migration", free]) == 0


def test_a_priority_threshold_of_a_class_that_is_not_there_is_refused(
    tmp_path: Path, capsys: Capture
) -> None:
    told = {"priorityThreshold": {"name": "prod"}}
    said = "--migration: FILE: priorityThreshold.name: there is no PriorityClass prod; give its value instead"
    assert said in errors(tmp_path, capsys, "--migration", told)


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({"priorityThreshold": {"name": "x", "value": 9}}, "priorityThreshold.name"),
        ({"priorityThreshold": {"value": 9}, "evictSystemCriticalPods": True}, "priorityThreshold"),
        (
            {"priorityThreshold": {"name": "steady"}, "skipEvictionGates": ["SystemCritical"]},
            "priorityThreshold",
        ),
        ({"objectLimiters": {"foo": {"duration": "5m", "maxMigrating": 1}}}, "objectLimiters[foo]"),
        (
            {"objectLimiters": {"namespace": {"duration": "5m", "maxMigrating": "50%"}}},
            "objectLimiters[namespace]",
        ),
        ({"objectLimiters": {"namespace": {"duration": "5m"}}}, "objectLimiters[namespace]"),
        ({"objectLimiters": {"workload": {"maxMigrating": 1}}}, "objectLimiters[workload]"),
        (
            {"objectLimiters": {"workload": {"duration": "5m", "maxMigrating": -1}}},
            "objectLimiters[workload]",
        ),
        ({"skipEvictionGates": ["PVC", "MaxMigratingPerNode"]}, "skipEvictionGates[1]"),
        ({"schedulerNames": ["x"], "defaultJobMode": "EvictDirectly"}, "schedulerNames"),
    ],
)
def test_limits_that_do_not_hold_are_named(
    told: dict[str, Any], named: str, tmp_path: Path, capsys: Capture
) -> None:
    (line,) = warnings(tmp_path, capsys, told)
    assert line.startswith(f"warning: --migration: {named} has no effect: ")


@pytest.mark.parametrize(
    "told",
    [
        {"priorityThreshold": {"value": 9}},
        {"objectLimiters": {"workload": {"duration": "0s"}}},
        {"objectLimiters": {"workload": {"duration": "5m", "maxMigrating": "10%"}}},
        {"objectLimiters": {"namespace": {"duration": "5m", "maxMigrating": 2}}},
        {"skipEvictionGates": ["PVC"]},
        {"schedulerNames": ["default-scheduler"]},
    ],
)
def test_limits_that_hold_or_are_switched_off_are_not(
    told: dict[str, Any], tmp_path: Path, capsys: Capture
) -> None:
    assert warnings(tmp_path, capsys, told) == []


def test_arbitration_leaves_out_the_checks_that_it_is_told_to(tmp_path: Path, capsys: Capture) -> None:
    told = {"skipEvictionGates": ["MaxMigratingPerNode"]}
    assert warnings(tmp_path, capsys, told, "--jobs") == []


def test_low_thresholds_count_for_the_reference_alone(tmp_path: Path, capsys: Capture) -> None:
    told = {"highThresholds": {"cpu": 65}, "lowThresholds": {"cpu": 40}}
    why = "a node takes pods up to its high thresholds"
    line = f"warning: --args: lowThresholds has no effect: {why}"
    assert warnings(tmp_path, capsys, told, option="--args") == [line]
    assert warnings(tmp_path, capsys, told, "--compare", option="--args") == []


DEVIATION = {"useDeviationThresholds": True, "highThresholds": {"cpu": 10}}
ZERO = "by deviation 0 stands for no threshold"
UP_TO = "a node takes pods up to its high thresholds"


@pytest.mark.parametrize(
    ("told", "named"),
    [
        ({**DEVIATION, "lowThresholds": {"cpu": 10}}, [f"lowThresholds has no effect: {UP_TO}"]),
        ({**DEVIATION, "lowThresholds": {"cpu": 0}}, [f"highThresholds[cpu] has no effect: {ZERO}"]),
        ({**DEVIATION, "highThresholds": {"cpu": 0}}, [f"highThresholds[cpu] has no effect: {ZERO}"]),
        (
            {**DEVIATION, "prodHighThresholds": {"cpu": 9}, "prodLowThresholds": {"cpu": 0}},
            [f"prodHighThresholds[cpu] has no effect: {ZERO}"],
        ),
        ({"highThresholds": {"memory": 90}, "lowThresholds": {"cpu": 40}}, []),
        (
            {"highThresholds": {"cpu": 90}, "lowThresholds": {"cpu": 40, "nvidia.com/gpu": 40}},
            [f"lowThresholds[cpu] has no effect: {UP_TO}"],
        ),
        (
            {"highThresholds": {"cpu": 90}, "lowThresholds": {"cpu": 40, "pods": 40}},
            [f"lowThresholds[cpu] has no effect: {UP_TO}"],
        ),
        # The map at the top is that of the pool, too, where 0 is no deviation but a threshold.
        ({**DEVIATION, "lowThresholds": {"cpu": 0}, "nodePools": [{"name": "p"}]}, []),
        (
            {**DEVIATION, "nodePools": [{"name": "p", "lowThresholds": {"cpu": 5}}]},
            [f"nodePools[0].lowThresholds has no effect: {UP_TO}"],
        ),
    ],
)
def test_thresholds_are_called_idle_only_where_a_plan_is_the_same_without_them(
    told: dict[str, Any], named: list[str], tmp_path: Path, capsys: Capture
) -> None:
    lines = warnings(tmp_path, capsys, told, option="--args")
    assert lines == [f"warning: --args: {one}" for one in named]


def test_what_one_file_says_is_named_with_the_option_that_was_typed(tmp_path: Path, capsys: Capture) -> None:
    lines = warnings(tmp_path, capsys, DESCHEDULER, option="--args")
    assert [line for line in lines if "--migration" in line] == []
    assert any(line.startswith("warning: --args: evictQPS has no effect") for line in lines)
