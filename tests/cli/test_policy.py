"""``koordcore policy``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore.cli.main import main
from koordcore.manifests.plugins import KOORDINATOR_CONFIGURATION
from koordcore.manifests.scheduler_config import policies_from_manifest


@pytest.fixture
def shipped(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dict(KOORDINATOR_CONFIGURATION)), encoding="utf-8")
    return str(path)


def test_the_shipped_profile_is_explained(shipped: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", shipped]) == 1
    out = capsys.readouterr().out
    assert "koord-scheduler: all nodes" in out
    assert "Reservation" in out
    assert "all thresholds are 0" in out


def test_findings_are_json_on_request(shipped: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", shipped, "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {"profile", "plugin", "message"} == set(found[0])


def test_the_configuration_is_written_back(shipped: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", shipped, "-o", "config"]) == 0
    (policy,) = policies_from_manifest(json.loads(capsys.readouterr().out))
    assert policy.name == "koord-scheduler"


def test_a_file_without_configuration_is_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"kind": "Pod", "metadata": {"name": "p"}}', encoding="utf-8")
    assert main(["policy", str(path)]) == 2


@pytest.mark.parametrize(("name", "said"), [("binpack", "MostAllocated"), ("bestfit", "GpuShare")])
def test_a_known_name_is_shown_without_a_file(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["policy", name]) == 0
    assert said in capsys.readouterr().out


def test_the_shipped_profile_is_linted_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "koordinator"]) == 1
    assert "all thresholds are 0" in capsys.readouterr().out


def test_a_misspelt_name_is_told_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "binpak"]) == 2
    assert "did you mean binpack?" in capsys.readouterr().err


def test_a_known_policy_is_written_as_a_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policy", "spread", "-o", "config"]) == 0
    (policy,) = policies_from_manifest(json.loads(capsys.readouterr().out))
    assert policy.plugin("DeviceShare") is not None
