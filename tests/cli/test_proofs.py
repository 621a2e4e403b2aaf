"""Proofs that are written down, read back and repeated on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from campaigns.plans import asked
from campaigns.worlds import THEMES, draw_world
from koordcore.checking import check_certificate
from koordcore.cli import main
from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.proof_records import certificates_of, proofs_from_record, proofs_record
from koordcore.model.certificates import CertificateStatus
from tests.cli.test_rebalance import dump

pytestmark = pytest.mark.solver

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpu-cluster.yaml"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("proofs")
    plan, proofs = folder / "plan.json", folder / "proofs.json"
    with pytest.MonkeyPatch.context() as patch:
        written: list[str] = []
        patch.setattr("builtins.print", lambda *parts, **_: written.append(" ".join(map(str, parts))))
        main(["schedule", str(EXAMPLE), "-q", "-o", "json", "--proofs", str(proofs)])
    plan.write_text("\n".join(written))
    return plan, proofs


def verified(plan: Path, proofs: Path | None, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    extra = [] if proofs is None else ["--proofs", str(proofs)]
    status = main(["verify", str(EXAMPLE), "--plan", str(plan), *extra])
    return status, capsys.readouterr().out


def test_verify_says_which_proofs_it_has_repeated(
    planned: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plan, proofs = planned
    status, told = verified(plan, proofs, capsys)
    assert status == 0
    assert "Proofs: 1 of 1 repeated here" in told
    status, told = verified(plan, None, capsys)
    assert status == 0
    assert "Proofs: 0 of 1 repeated here" in told


def test_a_forged_question_is_rejected(
    planned: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More room than the plan was made for would allow a tighter gathering."""
    plan, proofs = planned
    record = json.loads(proofs.read_text())
    (proof,) = record["proofs"].values()
    proof["problem"]["slots"][0] = 9
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(record))
    status, told = verified(plan, forged, capsys)
    assert status == 1
    assert "REJECTED" in told
    proof["objective"] = proof["bound"] = [-2, *proof["objective"][1:]]
    forged.write_text(json.dumps(record))
    status, told = verified(plan, forged, capsys)
    assert (status, "another claim" in told) == (1, True)


def test_moves_come_with_proofs_as_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = dump(tmp_path / "c.json", cores={"a": [4, 2], "b": [4, 2], "c": [7]})
    plan, proofs = tmp_path / "moves.json", tmp_path / "proofs.json"
    assert main(["defrag", str(cluster), "--want", "cpu=6", "-o", "json", "--proofs", str(proofs)]) == 0
    plan.write_text(capsys.readouterr().out)
    assert main(["verify", str(cluster), "--plan", str(plan), "--proofs", str(proofs)]) == 0
    assert "Proofs: 1 of 1 repeated here" in capsys.readouterr().out


def worlds() -> list[dict[str, Any]]:
    import random

    themes = {**dict.fromkeys(THEMES, 0.0), "gangs": 1.0, "network": 1.0, "cards": 0.5}
    return [{**draw_world(random.Random(f"proofs {seed}"), themes), "preempt": {}} for seed in range(12)]


def test_what_is_written_is_read_back_and_proves_the_same() -> None:
    seen = 0
    for case in worlds():
        certificates = certificates_of(asked(case, snapshot_from_objects(case["objects"]).snapshot))
        record = json.loads(json.dumps(proofs_record(certificates)))
        again = proofs_from_record(record)
        assert again == certificates
        for name, one in again.items():
            assert check_certificate(one.problem, one) == check_certificate(
                certificates[name].problem, certificates[name]
            )
            seen += one.status is CertificateStatus.PROVEN
    assert seen > 5


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"status": "Sure"}, "proofs.g.status"),
        ({"problem": {"kind": "Other"}}, "proofs.g.problem.kind"),
        ({"problem": {"kind": "Linear", "lower": [0], "upper": [], "rows": [], "stages": []}}, "upper"),
        ({"evidence": {"values": [], "trees": [{"at": 1}]}}, "proofs.g.evidence.trees[0].variable"),
        ({"problem": {"kind": "Tree", "parent": [2**70]}}, "proofs.g.problem.parent"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(change: dict[str, Any], path: str) -> None:
    proof = {"status": "Proven", "objective": [1], "bound": [1], **change}
    with pytest.raises(ManifestError) as caught:
        proofs_from_record({"format": "koordcore/proofs/v1", "proofs": {"g": proof}})
    assert path in str(caught.value)


def test_an_absurd_question_is_rejected_and_not_an_error() -> None:
    tree: dict[str, Any] = {
        "kind": "Tree",
        "parent": [-1, 7],
        "depth": [0, 1],
        "slots": [1],
        "bound": [0],
        "near": [0],
    }
    tree |= {"multiples": [1], "must_depth": 0, "order": [1], "least": 1, "size": 1}
    proof = {"status": "Proven", "objective": [1], "bound": [1], "problem": tree}
    (one,) = proofs_from_record({"format": "koordcore/proofs/v1", "proofs": {"g": proof}}).values()
    assert not check_certificate(one.problem, one).accepted


@pytest.mark.parametrize(
    ("text", "said"), [(None, "no such file"), ("{", "not JSON"), ("\udcff", "not JSON")], ids=str
)
@pytest.mark.parametrize("option", ["--plan", "--proofs"])
def test_a_file_that_cannot_be_read_is_named_with_its_option(
    option: str,
    text: str | None,
    said: str,
    planned: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = tmp_path / "wrong.json"
    if text is not None:
        wrong.write_bytes(text.encode("utf-8", "surrogateescape"))
    files = {"--plan": str(planned[0]), "--proofs": str(planned[1]), option: str(wrong)}
    words = [word for pair in files.items() for word in pair]
    assert main(["verify", str(EXAMPLE), *words]) == 2
    assert f"{option}: {wrong}: {said}" in capsys.readouterr().err
