"""Device claims in ``koordcore inspect``, and in plans that are written and checked."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from koordcore.cli import main
from koordcore.manifests import snapshot_from_objects

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "claims.yaml")
GUIDE = (ROOT / "docs" / "guides" / "claims.md").read_text(encoding="utf-8")


def run(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert main(argv) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_the_guide_shows_parts_of_what_the_commands_print(capsys: pytest.CaptureFixture[str]) -> None:
    """What it shows in full is held to a terminal's width with all other pages."""
    blocks = re.findall(r"^```console\n\$ koordcore ([^\n]*)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for command, shown in blocks:
        out = run(capsys, *command.replace("examples/claims.yaml", EXAMPLE).split())
        for part in shown.split("…\n"):
            assert part.strip() in out


@pytest.mark.parametrize("node", ["mig-1", "mig-2", "gpu-1"])
def test_pictures_fit_a_terminal(capsys: pytest.CaptureFixture[str], node: str) -> None:
    out = run(capsys, "inspect", "--node", node, EXAMPLE)
    assert max(map(len, out.splitlines())) <= 80
    assert "devices of drivers" in out


@pytest.mark.parametrize(
    ("expressions", "told"),
    [
        (
            ["device.attributes['d'].memory > 4"],
            "a selector errs on 2 devices: CEL runtime error:",
        ),
        (["device.attributes['d'].model == 'x'", "device.attributes['d'].memory > 4"], "errs on 1 device:"),
        (["device.attributes['d'].model == 'z'", "device.attributes['d'].memory > 4"], ""),
    ],
)
def test_a_class_whose_selector_errs_says_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, expressions: list[str], told: str
) -> None:
    """A device that an earlier selector leaves out is not asked about."""
    devices = [{"name": name, "attributes": {"model": {"string": name}}} for name in ("x", "y")]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    selectors = [{"cel": {"expression": one}} for one in expressions]
    objects = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {}}},
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "s"},
            "spec": {"driver": "d", "nodeName": "n", "pool": pool, "devices": devices},
        },
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "c"},
            "spec": {"selectors": selectors},
        },
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert main(["inspect", str(dump), "-q"]) == 0
    out = capsys.readouterr().out
    assert told in out
    assert bool(told) == ("errs" in out)


def test_schedule_warns_of_selectors_that_err(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = Path(EXAMPLE).read_text(encoding="utf-8")
    odd = text.replace("device.attributes['gpu.nvidia.com'].type == 'mig'", "device.attributes.x.y == 1")
    assert odd != text
    dump = tmp_path / "dump.yaml"
    dump.write_text(odd)
    main(["schedule", str(dump)])
    assert (
        "warning: DeviceClass mig: selector #0 errs on 60 devices, left out, such as"
        in capsys.readouterr().err
    )
    main(["schedule", "-q", str(dump)])
    assert capsys.readouterr().err == ""


def test_a_node_shows_who_holds_and_shares_what(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "inspect", "--node", "gpu-1", EXAMPLE)
    assert "gpu-0  ██████████ team-a/train-0" in out
    assert "nic-0  ████······ left: bandwidth 60G of 100G\n           team-a/train-0: bandwidth 40G" in out
    assert "gpu-3  ·········· free  gpu\n           tainted: gpu.nvidia.com/xid" in out
    full = run(capsys, "inspect", "--node", "mig-2", EXAMPLE)
    assert "gpu-0  aaaaaaaa\n      left: memory-slice 0 of 8" in full
    assert "a  7g.80gb  team-a/tune-0\n      fits: nothing" in full
    assert "claim team-a/old-run, used by nobody" in full


def test_what_is_wrong_with_classes_and_pools_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "dump.yaml").write_text(
        """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "1", pods: "1"}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec: {driver: d, nodeName: n1, pool: {name: n1, generation: 1, resourceSliceCount: 2}, devices: [{name: x}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: c}
spec: {selectors: [{cel: {expression: "device.nosuch"}}]}
""",
        encoding="utf-8",
    )
    out = run(capsys, "inspect", str(tmp_path))
    assert re.search(r"d +n1 +incomplete: slices are missing", out)
    assert re.search(r"c +0 +0 +0 +0 +0", out)


def test_a_dump_without_drivers_says_nothing_of_claims(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "inspect", str(ROOT / "examples" / "gpu-cluster.yaml"))
    assert "Device classes" not in out
    assert "resource claim" not in out
    assert snapshot_from_objects([]).warnings == ()


def test_a_plan_with_claims_is_legal_when_it_is_read_back(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(run(capsys, "schedule", EXAMPLE, "-o", "json", code=1), encoding="utf-8")
    assert "legal: 4 decisions" in run(capsys, "verify", EXAMPLE, "--plan", str(plan))
    told = plan.read_text(encoding="utf-8")
    assert "gpu-0-mig-4g-40gb-0" in told
    # Somebody else's partition is no plan: the devices in the file are what is checked.
    plan.write_text(told.replace("gpu-0-mig-4g-40gb-0", "gpu-0-mig-3g-40gb-0"), encoding="utf-8")
    assert "claim  team-a/large" in run(capsys, "verify", EXAMPLE, "--plan", str(plan), code=1)
