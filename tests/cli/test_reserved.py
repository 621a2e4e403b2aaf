"""Why a reservation does not serve the pod that owns it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node, obj, pod

AFFINITY = "scheduling.koordinator.sh/reservation-affinity"


def reservation(spec: dict[str, Any], **meta: Any) -> dict[str, Any]:
    amount = {"cpu": "6"}
    return obj(
        "Reservation",
        "r",
        "scheduling.koordinator.sh/v1alpha1",
        metadata={"uid": "uid-r", "labels": {"pool": "a"}, **meta},
        spec={
            "ttl": "24h",
            "template": {"spec": {"containers": [container(requests=amount)]}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "o"}}}],
            **spec,
        },
        status={"phase": "Available", "nodeName": "n1", "allocatable": amount},
    )


def choosing(pool: str) -> dict[str, str]:
    one = {"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [one]}}
    return {AFFINITY: json.dumps(terms)}


@pytest.mark.parametrize(
    ("spec", "notes", "why"),
    [
        ({"unschedulable": True}, {}, "which takes no new owner: it is unschedulable"),
        ({"unschedulable": True}, choosing("a"), "which takes no new owner: it is unschedulable"),
        ({}, choosing("b"), "which the pod's reservation affinity does not choose"),
        (
            {"taints": [{"key": "t", "value": "v", "effect": "NoSchedule"}]},
            choosing("a"),
            "whose taint {t: v} the pod's reservation affinity does not tolerate",
        ),
    ],
)
def test_an_owner_is_told_what_keeps_it_out(
    spec: dict[str, Any],
    notes: dict[str, str],
    why: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    asks = pod("p", containers=[container(requests={"cpu": "4"})])
    asks["metadata"] |= {"labels": {"app": "o"}, "annotations": notes}
    file = tmp_path / "dump.json"
    items = [node("n1", {"cpu": "8", "memory": "8Gi", "pods": "9"}), reservation(spec), asks]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    assert main(["explain", "default/p", str(file)]) == 1
    out = capsys.readouterr().out
    assert why in out
    assert "belongs to" not in out


def test_a_reservation_that_is_being_deleted_takes_nobody(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asks = pod("p", containers=[container(requests={"cpu": "4"})], metadata={"labels": {"app": "o"}})
    gone = datetime(2026, 11, 1, tzinfo=UTC).isoformat()
    file = tmp_path / "dump.json"
    items = [
        node("n1", {"cpu": "8", "memory": "8Gi", "pods": "9"}),
        reservation({}, deletionTimestamp=gone),
        asks,
    ]
    file.write_text(json.dumps({"kind": "List", "items": items}))
    assert main(["explain", "default/p", str(file)]) == 1
    assert (
        "fits only inside reservation r, which takes no new owner: it is being deleted"
        in capsys.readouterr().out
    )


def test_a_reservation_that_two_plans_decide_differently_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    waiting = reservation({})
    del waiting["status"]
    file = tmp_path / "dump.json"
    items = [node(name, {"cpu": "8", "memory": "8Gi", "pods": "9"}) for name in ("n1", "n2")]
    file.write_text(json.dumps({"kind": "List", "items": [*items, waiting]}))
    assert main(["schedule", str(file), "-o", "json"]) == 0
    text = capsys.readouterr().out
    plans = [json.loads(text), json.loads(text)]
    (decision,) = plans[1]["decisions"]
    assert (decision["pod"], decision["standsFor"]) == ("default/uid-r", "reservation/r")
    decision["node"] = {"n1": "n2", "n2": "n1"}[decision["node"]]
    paths = [tmp_path / name for name in ("first.json", "second.json")]
    for path, plan in zip(paths, plans, strict=True):
        path.write_text(json.dumps(plan))
    words = ["diff", *map(str, paths), str(file)]
    assert main(words) == 1
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in shown if row[1:3] in (["n1", "n2"], ["n2", "n1"])] == ["reservation/r"]
    assert main([*words, "-o", "json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)["decisions"]
    assert (found["pod"], found["standsFor"]) == ("default/uid-r", "reservation/r")


@pytest.mark.parametrize("form", ["dumps", "plans"])
def test_diff_takes_reservations_whose_time_is_up_for_gone(
    form: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """``--now`` made no difference to what ``schedule`` makes of either dump, nor to two plans."""
    room = {"cpu": "8", "memory": "8Gi", "pods": "9"}
    items = [node("n1", room), pod("p", containers=[container(requests={"cpu": "6"})])]
    kept = reservation({"ttl": "1h"}, creationTimestamp="2026-11-01T10:00:00Z")
    paths = [tmp_path / "first.json", tmp_path / "second.json"]
    for path, more in zip(paths, ([kept], []), strict=True):
        path.write_text(json.dumps({"kind": "List", "items": [*items, *more]}))
    words = list(map(str, paths))
    if form == "plans":
        plan = tmp_path / "plan.json"
        assert main(["schedule", words[1], "-o", "json"]) == 0
        plan.write_text(capsys.readouterr().out)
        words = [str(plan), str(plan), words[0]]
    for moment, differently in (("10:30", form == "dumps"), ("12:00", False)):
        main(["diff", *words, "--now", f"2026-11-01T{moment}:00Z"])
        shown = capsys.readouterr()
        assert f"{int(differently)} pod{'s' * (not differently)} decided differently" in shown.out
        assert ("no longer available: reservation r" in shown.err) == (moment == "12:00")
