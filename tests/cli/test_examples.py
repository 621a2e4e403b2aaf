"""Every example of every help text runs, on the example cluster."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from koordcore.cli import main
from koordcore.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[2]
NOT_HERE = ("kubectl ", "--live", "| source", "eval ", "openb")
"""Examples that need a cluster, a shell, or the traces."""
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "koord-scheduler"}],
}
JOBSET = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: train, namespace: default}
spec:
  replicatedJobs:
  - name: workers
    replicas: 1
    template:
      spec:
        parallelism: 2
        completions: 2
        template:
          spec:
            tolerations: [{key: nvidia.com/gpu, operator: Exists}]
            containers: [{name: c, image: i, resources: {requests: {cpu: "1", nvidia.com/gpu: "1"}}}]
"""


def examples(verb: str) -> list[str]:
    """Give the lines of a verb's epilog that are commands, without what is said about them."""
    text = import_module(f"koordcore.cli.{verb}").EPILOG.replace("\\\n      ", " ")
    lines = re.findall(r"^  ((?:koordcore|eval|kubectl) .*)$", text, re.MULTILINE)
    return [re.split(r"\s{2,}", line)[0] for line in lines]


def put(folder: Path) -> None:
    """Lay down the files that the examples name."""
    cluster = (ROOT / "examples" / "gpu-cluster.yaml").read_text(encoding="utf-8")
    for name in ("cluster.yaml", "monday.yaml"):
        (folder / name).write_text(cluster, encoding="utf-8")
    later = cluster.replace("unschedulable: true", "unschedulable: false")
    (folder / "tuesday.yaml").write_text(later, encoding="utf-8")
    (folder / "train.yaml").write_text(JOBSET, encoding="utf-8")
    (folder / "scheduler-config.yaml").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
    thresholds = {"highThresholds": {"cpu": 65}, "lowThresholds": {"cpu": 30}}
    (folder / "lownodeload.json").write_text(json.dumps(thresholds), encoding="utf-8")
    (folder / "migration.json").write_text("{}", encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_run(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ends with an answer (0 or 1), never with a complaint; one at least is there."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path)
    for plan, policy in (("a.json", "default"), ("b.json", "spread"), ("plan.json", "default")):
        main(["schedule", "cluster.yaml", "--policy", policy, "-o", "json", "-q", "--record", "call.json"])
        (tmp_path / plan).write_text(capsys.readouterr().out, encoding="utf-8")
    found = [line for line in examples(verb) if not any(word in line for word in NOT_HERE)]
    assert found or verb == "completion"
    for line in found:
        command, _, target = line.partition(" > ")
        program, *words = shlex.split(command)
        assert program == "koordcore"
        code = main(words)
        said = capsys.readouterr()
        assert code in (0, 1), f"{line}: {said.err}"
        if target:
            (tmp_path / target.strip()).write_text(said.out, encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_80_columns(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= 80, line
