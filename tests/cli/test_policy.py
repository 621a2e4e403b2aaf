"""``koordcore policy``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore import ManifestError, PluginSetting, Policy
from koordcore.cli.main import main
from koordcore.manifests.plugins import KOORDINATOR_CONFIGURATION
from koordcore.manifests.policy_manifest import configuration_manifest
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model import ClaimArgs


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


def test_a_file_without_a_version_is_refused_as_by_schedule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"kind": "KubeSchedulerConfiguration"}', encoding="utf-8")
    assert main(["policy", str(path)]) == 2
    assert 'apiVersion: required (such as "kubescheduler.config.k8s.io/v1")' in capsys.readouterr().err


@pytest.mark.parametrize("output", ["wide", "json", "config"])
def test_two_documents_with_one_profile_are_refused_as_by_schedule(
    shipped: str, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shipped)
    text = path.read_text(encoding="utf-8")
    path.with_suffix(".yaml").write_text(f"{text}\n---\n{text}", encoding="utf-8")
    assert main(["policy", str(path.with_suffix(".yaml")), "-o", output]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "2 scheduler profiles are called koord-scheduler" in said.err


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
    claims = policy.plugin("DynamicResources")
    assert claims is not None
    assert claims.args == ClaimArgs(packed=False)


def test_what_no_other_scheduler_reads_of_it_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for name, ours in (("spread", 2), ("default", 1), ("stock", 0)):
        assert main(["policy", name, "-o", "config"]) == 0
        assert capsys.readouterr().err.count("koordcore alone reads it") == ours
    assert main(["policy", "spread", "-o", "config", "-q"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "args",
    [ClaimArgs(), ClaimArgs(mode="first-fit"), ClaimArgs(await_claims=True, packed=False)],
)
def test_arguments_of_claims_are_written_and_read(args: ClaimArgs) -> None:
    policy = Policy().with_plugin(PluginSetting(name="DynamicResources", weight=2, args=args))
    (again,) = policies_from_manifest(configuration_manifest(policy))
    known = again.plugin("DynamicResources")
    assert known is not None
    assert (known.args or ClaimArgs()) == args


def test_arguments_of_claims_that_do_not_exist_are_refused() -> None:
    for field, value in (
        ("allocationMode", "best"),
        ("scoringStrategy", {"type": "RequestedToCapacityRatio"}),
    ):
        written = configuration_manifest(Policy().with_plugin(PluginSetting(name="DynamicResources")))
        args = {"name": "DynamicResources", "args": {field: value}}
        written["profiles"][0]["pluginConfig"] = [args]
        with pytest.raises(ManifestError, match="Unsupported value"):
            policies_from_manifest(written)
