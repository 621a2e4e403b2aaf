"""Every front door, and every dialect of groups, through every verb that speaks of gangs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore.cli import main
from tests.cli.test_front_doors import (
    JOB,
    JOB_SET,
    LWS,
    MPI,
    RAY,
    RAY_JOB,
    RUNTIME,
    TORCH,
    TRAIN,
    Object,
    nodes,
    template,
)

NOW = ("--now", "2026-01-01T00:00:00Z")
K8S = "scheduling.k8s.io/"


def dumped(path: Path, *objects: Object) -> str:
    dump = path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(dump)


@pytest.mark.parametrize(
    ("job", "pods"),
    [
        ([JOB], 3),
        ([JOB_SET], 5),
        ([LWS], 6),
        ([RAY], 4),
        ([RAY_JOB], 4),
        ([MPI], 4),
        ([TORCH], 3),
        ([TRAIN, RUNTIME], 3),
    ],
    ids=lambda value: value[0]["kind"] if isinstance(value, list) else None,
)
def test_every_verb_knows_a_job_without_pods(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: list[Object], pods: int
) -> None:
    dump, asked = dumped(tmp_path, *nodes(4, 4), *job), f"{job[0]['kind'].lower()}/train"
    plan = tmp_path / "plan.json"
    assert main(["schedule", dump, "--as-gangs", "-o", "json"]) == 0
    plan.write_text(capsys.readouterr().out)
    assert main(["verify", "--plan", str(plan), dump, "--as-gangs"]) == 0
    assert f"{pods} of {pods} pods placed" in _printed(capsys, "schedule", dump, "--as-gangs")
    assert "members get nodes" in _printed(capsys, "explain", asked, dump)
    assert f"{asked}: can start now" in _printed(capsys, "when", asked, dump, *NOW)
    assert "train" in _printed(capsys, "when", "--all", "--as-gangs", dump, *NOW)
    assert f"{pods} pending pods" in _printed(capsys, "inspect", dump, "--as-gangs")
    assert f"{pods} pods · verified" in _printed(capsys, "compare", dump, "--as-gangs", "--policy", "stock")
    arrived = json.loads(_printed(capsys, "simulate", dump, "--as-gangs", "--policy", "fgd", "-o", "json"))
    assert arrived
    assert main(["simulate", dump]) == 2
    assert "--as-gangs takes 1 job without pods for gangs" in capsys.readouterr().err


def _printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "-q"] if words[0] != "simulate" else list(words)) == 0
    return capsys.readouterr().out


def _member(name: str, **spec: object) -> Object:
    meta = {"name": name, "namespace": "ml"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**template()["spec"], **spec}}


def _named(kind: str, version: str, spec: Object) -> Object:
    meta = {"name": "train", "namespace": "ml"}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


_GANG = {"gang": {"minCount": 2}}
_REFERENCE = {"workloadRef": {"name": "train", "podGroup": "w", "podGroupReplicaKey": "0"}}
_NAMED = {"schedulingGroup": {"podGroupName": "train"}}
DIALECTS = {
    "v1alpha1": (
        _named("Workload", f"{K8S}v1alpha1", {"podGroups": [{"name": "w", "policy": _GANG}]}),
        _REFERENCE,
    ),
    **{
        version: (_named("PodGroup", K8S + version, {"schedulingPolicy": _GANG}), _NAMED)
        for version in ("v1alpha2", "v1alpha3", "v1beta1")
    },
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_verb_knows_a_group(capsys: pytest.CaptureFixture[str], tmp_path: Path, dialect: str) -> None:
    group, named = DIALECTS[dialect]
    dump = dumped(tmp_path, *nodes(2), group, *(_member(f"train-{n}", **named) for n in range(2)))
    shown = "workload:ml/train/w/0" if dialect == "v1alpha1" else "podgroup:ml/train"
    plan = tmp_path / "plan.json"
    assert main(["schedule", dump, "-o", "json"]) == 0
    plan.write_text(capsys.readouterr().out)
    assert main(["verify", "--plan", str(plan), dump]) == 0
    assert shown in _printed(capsys, "schedule", dump)
    assert "2 of 2 members get nodes" in _printed(capsys, "explain", shown, dump)
    assert f"{shown}: can start now" in _printed(capsys, "when", shown, dump, *NOW)
    assert shown in _printed(capsys, "inspect", dump)
    assert "2 pods · verified" in _printed(capsys, "compare", dump, "--policy", "stock")
    patches = map(json.loads, _printed(capsys, "schedule", dump, "-o", "patches").splitlines())
    told = [one for one in map(json.dumps, patches) if "/podgroups/train/status" in one]
    if dialect == "v1alpha1":
        assert told == []
    else:
        kind = "PodGroupScheduled" if dialect == "v1alpha2" else "PodGroupInitiallyScheduled"
        assert len(told) == 1
        assert f'"type": "{kind}", "status": "True"' in told[0]
    arrived = json.loads(_printed(capsys, "simulate", dump, "--policy", "fgd", "-o", "json"))
    assert arrived
