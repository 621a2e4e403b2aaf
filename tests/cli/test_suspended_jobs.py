"""Jobs that their owners stopped: in no plan, and shown as if resumed where they are asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordcore.cli import main
from tests.cli.test_front_doors import (
    JOB,
    JOB_SET,
    MPI,
    RAY,
    RAY_JOB,
    RUNTIME,
    TORCH,
    TRAIN,
    Object,
    nodes,
    planned,
)


def suspended(raw: Object, place: str = "") -> Object:
    """The job as its owner stopped it, in its specification or in a part of that."""
    spec = {"suspend": True} if not place else {place: {"suspend": True}}
    return {**raw, "spec": {**raw["spec"], **spec}}


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        ([suspended(JOB)], 3),
        ([suspended(JOB_SET)], 5),
        ([suspended(RAY)], 4),
        ([suspended(RAY_JOB)], 4),
        ([suspended(MPI, "runPolicy")], 4),
        ([suspended(TORCH, "runPolicy")], 3),
        ([suspended(TRAIN), RUNTIME], 3),
    ],
    ids=lambda value: value[0]["kind"] if isinstance(value, list) else None,
)
def test_a_suspended_job_is_in_no_plan_and_shown_as_if_resumed_where_it_is_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: list[Object], pods: int
) -> None:
    """Nobody makes its pods, so it takes no room from those that are made."""
    kind = job[0]["kind"]
    plan, told = planned(capsys, tmp_path, [*nodes(3, 3), *job])
    assert plan["decisions"] == []
    assert "not looked at" not in told
    plan, told = planned(capsys, tmp_path, [*nodes(3, 3), *job], "--as-gangs")
    assert plan["decisions"] == []
    assert f"{kind} ml/train: suspended, so nobody makes its pods: it is in no plan" in told
    dump = str(tmp_path / "dump.json")
    assert main(["explain", f"{kind.lower()}/train", dump]) == 0
    shown = capsys.readouterr()
    assert f"{pods} of {pods} members get nodes" in shown.out
    assert f"{kind} ml/train: suspended: it is shown as if somebody had resumed it" in shown.err
    assert main(["when", f"{kind.lower()}/ml/train", dump, "--now", "2026-01-01T00:00:00Z"]) == 0
    assert "can start now" in capsys.readouterr().out
    assert main(["when", "--all", "--as-gangs", dump, "--now", "2026-01-01T00:00:00Z"]) == 0
    assert "nobody waits" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("job", "place"), [(JOB, ""), (JOB_SET, ""), (MPI, "runPolicy")], ids=("Job", "JobSet", "MPIJob")
)
def test_a_job_that_another_controller_manages_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: Object, place: str
) -> None:
    told = {"managedBy": "kueue.x-k8s.io/multikueue"}
    spec = {**job["spec"], **({place: told} if place else told)}
    _, err = planned(capsys, tmp_path, [*nodes(4), {**job, "spec": spec}], "--as-gangs")
    assert "not said by a gang: where kueue.x-k8s.io/multikueue makes its pods (managedBy)" in err
