"""Every example of every help text runs, on the example cluster."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
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
LESS = {"world": ("--set", "seconds=10")}
"""What makes a verb's examples shorter; what they show is tested elsewhere."""
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
    shutil.copy(ROOT / "examples" / "claims.yaml", folder / "claims.yaml")
    (folder / "train.yaml").write_text(JOBSET, encoding="utf-8")
    (folder / "scheduler-config.yaml").write_text(json.dumps(CONFIGURATION), encoding="utf-8")
    thresholds = {"highThresholds": {"cpu": 65}, "lowThresholds": {"cpu": 30}}
    (folder / "lownodeload.json").write_text(json.dumps(thresholds), encoding="utf-8")
    (folder / "migration.json").write_text("{}", encoding="utf-8")


@pytest.fixture(scope="module")
def laid_down(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the files, two plans and a recorded call."""
    folder = tmp_path_factory.mktemp("examples")
    put(folder)
    for plan, policy in (("b.json", "spread"), ("a.json", "default")):
        words = ["--policy", policy, "-o", "json", "-q", "--record", str(folder / "call.json")]
        with redirect_stdout(StringIO()) as out:
            assert main(["schedule", str(folder / "cluster.yaml"), *words]) in (0, 1)
        (folder / plan).write_text(out.getvalue(), encoding="utf-8")
    shutil.copy(folder / "a.json", folder / "plan.json")
    return folder


@pytest.mark.parametrize("verb", VERBS)
def test_the_examples_run(
    verb: str,
    laid_down: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each ends with an answer (0 or 1), never with a complaint; one at least is there."""
    shutil.copytree(laid_down, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    found = [line for line in examples(verb) if not any(word in line for word in NOT_HERE)]
    assert found or verb == "completion"
    for line in found:
        command, _, target = line.partition(" > ")
        program, *words = shlex.split(command)
        assert program == "koordcore"
        code = main([*words, *LESS.get(verb, ())])
        said = capsys.readouterr()
        assert code in (0, 1), f"{line}: {said.err}"
        if target:
            (tmp_path / target.strip()).write_text(said.out, encoding="utf-8")


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_80_columns(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= 80, line
