"""What a reservation keeps, cards that it does not name included, is not free, and its keeper is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli.main import main

RESERVATION = ("scheduling.koordinator.sh/v1alpha1", "Reservation")


def _object(kind: tuple[str, str], name: str, **rest: Any) -> dict[str, Any]:
    said = {"name": name, "uid": name, **rest.pop("metadata", {})}
    return {"apiVersion": kind[0], "kind": kind[1], "metadata": said, **rest}


def _dump(folder: Path, *, named: bool = False, phase: str = "Available", once: bool = False) -> str:
    """Two nodes of 8 cards; on the first somebody holds 2, and one of 4 reserved cards is in use."""
    room = {"cpu": "64", "pods": "110", "nvidia.com/gpu": "8"}
    asks = {"cpu": "8", "nvidia.com/gpu": "4"}
    held = {"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}]}
    written = {"scheduling.koordinator.sh/device-allocated": json.dumps(held)} if named else {}
    spec = {
        "allocateOnce": once,
        "owners": [{"labelSelector": {"matchLabels": {"app": "training"}}}],
        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": asks}}]}},
    }
    status = {"phase": phase, "nodeName": "n1", "allocatable": asks}
    used = {"scheduling.koordinator.sh/reservation-allocated": '{"name": "training", "uid": "training"}'}

    def pod(name: str, cards: int, annotations: dict[str, str]) -> dict[str, Any]:
        amounts = {"cpu": "1", "nvidia.com/gpu": str(cards)}
        containers = [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]
        about = {"namespace": "default", "annotations": annotations}
        placed = {"nodeName": "n1", "containers": containers}
        return _object(("v1", "Pod"), name, metadata=about, spec=placed, status={"phase": "Running"})

    items = [_object(("v1", "Node"), name, status={"allocatable": room}) for name in ("n1", "n2")]
    items.append(
        _object(RESERVATION, "training", metadata={"annotations": written}, spec=spec, status=status)
    )
    items += [pod("web", 2, {}), pod("trainer", 1, used)]
    path = folder / "dump.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}), encoding="utf-8")
    return str(path)


def test_kept_cards_are_counted_by_model_by_node_and_on_the_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dump = _dump(tmp_path)
    assert main(["inspect", dump]) == 0
    lines = capsys.readouterr().out.splitlines()
    heads = next(line for line in lines if "KEPT" in line).split()
    row = next(line for line in lines if line.split()[:2] == ["unknown", "16"]).split()
    assert dict(zip(heads[:6], row[:6], strict=True)) == {
        "MODEL": "unknown",
        "CARDS": "16",
        "HELD": "3",
        "SHARED": "0",
        "KEPT": "3",
        "FREE": "10",
    }
    assert "  kept without saying which cards, by reservation training (3)" in lines
    assert main(["inspect", "--nodes", dump]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["n1", "mixed", "2/8", "3"] in [row[:4] for row in rows]
    assert ["n2", "empty", "8/8"] in [row[:3] for row in rows]
    assert main(["inspect", "n1", dump]) == 0
    assert "cards: 3 of 8 held, 3 kept by training\n" in capsys.readouterr().out
    assert main(["inspect", dump, "-o", "json"]) == 0
    cards = json.loads(capsys.readouterr().out)["nodes"][0]["cards"]
    assert (cards["free"], cards["keptMilli"]) == (2, {"training": 3000})


@pytest.mark.parametrize("said", [{"named": True}, {"phase": "Succeeded"}, {"once": True}])
def test_nothing_is_kept_beside_what_is_named_over_or_used_up(
    said: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", _dump(tmp_path, **said), "-q"]) == 0
    out = capsys.readouterr().out
    assert "kept" not in out
    cards = out.partition("\nRoom\n")[0]
    assert "KEPT" not in cards


def _room(out: str) -> dict[str, dict[str, str]]:
    """Read the table of room: by resource, each column."""
    table = out.partition("\nRoom\n")[2].partition("\n\n")[0]
    head, *rows = table.splitlines()
    names = ("RESOURCE", "ALLOCATABLE", "REQUESTED", "KEPT", "FREE", "MOST ON ONE")
    ends = {name: head.index(name) + len(name) for name in names if name in head}
    return {
        row.split()[0]: {name: row[:end].rpartition(" ")[2] for name, end in ends.items()} for row in rows
    }


def test_room_that_reservations_keep_is_not_free(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = _dump(tmp_path)
    assert main(["inspect", dump, "-q", "-o", "wide"]) == 0
    out = capsys.readouterr().out
    room = _room(out)
    # Of the 8 cores reserved the trainer uses 1, and web holds 1 beside them.
    assert [room["cpu"][name] for name in ("REQUESTED", "KEPT", "FREE", "MOST ON ONE")] == [
        "2",
        "7",
        "119",
        "64",
    ]
    assert [room["pods"][name] for name in ("REQUESTED", "KEPT", "FREE")] == ["2", "1", "217"]
    assert "  room that reservation training still keeps is not free" in out.splitlines()
    assert main(["inspect", "--nodes", "-q", dump]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["n1", "mixed", "2/8", "3", "55"] in [row[:5] for row in rows]
    assert main(["inspect", "n1", "-q", dump]) == 0
    assert "cpu: 2 of 64, 7 kept\n" in capsys.readouterr().out
    assert main(["inspect", "n1", dump, "-q", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"] == {"cpu": 7000, "nvidia.com/gpu": 3, "pods": 1}


@pytest.mark.parametrize("said", [{"phase": "Succeeded"}, {"once": True}])
def test_no_room_is_kept_by_a_reservation_that_is_over_or_used_up(
    said: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", _dump(tmp_path, **said), "-q", "-o", "wide"]) == 0
    out = capsys.readouterr().out
    assert "keep" not in out
    assert _room(out)["cpu"]["FREE"] == "126"


def test_a_pod_that_acts_as_a_reservation_keeps_what_its_user_leaves_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owners = '[{"labelSelector": {"matchLabels": {"app": "training"}}}]'
    domain = "scheduling.koordinator.sh"
    acting = {
        "namespace": "default",
        "labels": {f"{domain}/operating-mode": "Reservation"},
        "annotations": {f"{domain}/reservation-owners": owners},
    }
    uses = {
        "namespace": "default",
        "annotations": {f"{domain}/reservation-allocated": '{"name": "lender", "uid": "lender"}'},
    }

    def asking(cpu: str) -> dict[str, Any]:
        return {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}

    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    items = [
        _object(("v1", "Node"), "n1", status={"allocatable": {"cpu": "16", "pods": "110"}}),
        _object(("v1", "Pod"), "lender", metadata=acting, spec=asking("8"), status=ready),
        _object(("v1", "Pod"), "user", metadata=uses, spec=asking("3"), status={"phase": "Running"}),
    ]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}), encoding="utf-8")
    assert main(["inspect", str(path), "-q", "-o", "wide"]) == 0
    room = _room(capsys.readouterr().out)
    assert [room["cpu"][name] for name in ("REQUESTED", "KEPT", "FREE")] == ["3", "5", "8"]
    assert [room["pods"][name] for name in ("REQUESTED", "FREE")] == ["2", "108"]
