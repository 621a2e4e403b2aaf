"""Twenty nodes with eight cards in partitions, as a dump: what each command says of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from koordcore.cli import main

DRIVER: Final = "gpu.nvidia.com"
PROFILES: Final = {
    "1g.10gb": (1, 1, range(7)),
    "2g.20gb": (2, 2, (0, 2, 4)),
    "3g.40gb": (3, 4, (0, 4)),
    "4g.40gb": (4, 4, (0,)),
    "7g.80gb": (7, 8, (0,)),
}
NODES, CARDS = 20, 8


def resource(kind: str, name: str, spec: Any, **rest: Any) -> dict[str, Any]:
    meta = {"name": name} if kind in {"DeviceClass", "ResourceSlice"} else {"name": name, "namespace": "a"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec, **rest}


def drawn(card: int, compute: int, places: Sequence[int]) -> dict[str, Any]:
    slices = {f"memory-slice-{place}": {"value": "1"} for place in places}
    return {"counterSet": f"gpu-{card}", "counters": {"compute": {"value": str(compute)}, **slices}}


def partitions(card: int) -> list[dict[str, Any]]:
    return [
        {
            "name": f"gpu-{card}-{profile.replace('.', '-')}-{start}",
            "attributes": {"profile": {"string": profile}},
            "consumesCounters": [drawn(card, compute, range(start, start + memory))],
        }
        for profile, (compute, memory, starts) in PROFILES.items()
        for start in starts
    ]


def wanting(profile: str) -> dict[str, Any]:
    selector = {"cel": {"expression": f"device.attributes['{DRIVER}'].profile == '{profile}'"}}
    form = {"deviceClassName": "mig", "selectors": [selector]}
    return {"devices": {"requests": [{"name": "part", "exactly": form}]}}


def pod(name: str, node: str = "", template: str = "", **meta: Any) -> dict[str, Any]:
    source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": name}
    container = {"name": "m", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}", **meta},
        "spec": {
            "priority": 0 if node else 10,
            "resourceClaims": [{"name": "dev", **source}],
            "containers": [container],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


LARGE: Final = pod("large", template="7g-80gb", annotations={"koordcore.io/expected-duration": "30m"})


def running(name: str, node: str, card: int) -> Iterator[dict[str, Any]]:
    """One 3g partition at the end of a card, and the pod that has it; a ReplicaSet would make it anew."""
    result = {"request": "part", "driver": DRIVER, "pool": node, "device": f"gpu-{card}-3g-40gb-4"}
    only = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    status = {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [only]},
        },
        "reservedFor": [{"resource": "pods", "name": name, "uid": f"uid-{name}"}],
    }
    yield resource("ResourceClaim", name, wanting("3g.40gb"), status=status)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "set", "controller": True}
    ends = {"koordcore.io/expected-end": f"2026-11-21T{13 + card % 3}:{int(node[1:]):02}:00Z"}
    yield pod(name, node, ownerReferences=[owner], annotations=ends)


def objects() -> Iterator[dict[str, Any]]:
    yield resource(
        "DeviceClass", "mig", {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]}
    )
    for profile in PROFILES:
        yield resource("ResourceClaimTemplate", profile.replace(".", "-"), {"spec": wanting(profile)})
    for number in range(NODES):
        node = f"n{number:02}"
        offers = {"cpu": "128", "memory": "1Ti", "pods": "250"}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node},
            "status": {"allocatable": offers},
        }
        pool = {"name": node, "generation": 1, "resourceSliceCount": CARDS + 1}
        common = {"driver": DRIVER, "nodeName": node, "pool": pool}
        whole = [drawn(card, 7, range(8)) for card in range(CARDS)]
        sets = [{"name": one["counterSet"], "counters": one["counters"]} for one in whole]
        yield resource("ResourceSlice", f"{node}-counters", {**common, "sharedCounters": sets})
        for card in range(CARDS):
            yield resource("ResourceSlice", f"{node}-card-{card}", {**common, "devices": partitions(card)})
            yield from running(f"run-{number:02}-{card}", node, card)


def written(folder: Path, *pods: dict[str, Any]) -> Path:
    path = folder / "dump.json"
    items = [*objects(), *pods]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every card has half of it in use; 120 pods want the other half of one, and one a card."""
    small = [pod(f"p{number:03}", template="4g-40gb") for number in range(120)]
    return written(tmp_path_factory.mktemp("many"), LARGE, *small)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, and only the pod waits that wants a card."""
    return written(tmp_path_factory.mktemp("one"), LARGE)


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    main([str(word) for word in words])
    return capsys.readouterr().out


def test_a_plan_is_checked_by_another_reading_of_the_rules(
    capsys: pytest.CaptureFixture[str], dump: Path, tmp_path: Path
) -> None:
    plan = said(capsys, "schedule", dump, "-o", "json")
    path = tmp_path / "plan.json"
    path.write_text(plan, encoding="utf-8")
    assert "legal: 121 decisions checked" in said(capsys, "verify", "--plan", path, dump)
    # Somebody writes down the other card of the node, which the next pod has already.
    path.write_text(plan.replace("gpu-0-4g-40gb-0", "gpu-1-4g-40gb-0"), encoding="utf-8")
    assert "counter gpu-1/memory-slice-0 is exceeded by 1\n" in said(capsys, "verify", "--plan", path, dump)


def test_patches_write_claims_before_bindings(capsys: pytest.CaptureFixture[str], dump: Path) -> None:
    calls = [json.loads(line) for line in said(capsys, "schedule", dump, "-o", "patches").splitlines()]
    mine = [one for one in calls if "p007" in json.dumps(one)]
    ends = ("/resourceclaims", "/status", "/pods/p007/status", "/pods/p007/binding")
    assert [one["path"].endswith(end) for one, end in zip(mine, ends, strict=True)] == [True] * 4
    allocation = mine[1]["body"]["status"]["allocation"]
    (result,) = allocation["devices"]["results"]
    (term,) = allocation["nodeSelector"]["nodeSelectorTerms"]
    assert term["matchFields"][0]["values"] == [result["pool"]]
    assert mine[1]["body"]["status"]["reservedFor"][0]["name"] == "p007"
    assert mine[2]["body"]["status"]["resourceClaimStatuses"][0]["name"] == "dev"


def test_inspect_tells_holders_counters_and_what_still_fits(
    capsys: pytest.CaptureFixture[str], dump: Path
) -> None:
    assert "mig       2240   160        640     20           32" in said(capsys, "inspect", dump)
    shown = said(capsys, "inspect", "--node", "n07", dump)
    card = shown[shown.index("    gpu-3 ") : shown.index("    gpu-4 ")]
    assert card.splitlines() == [
        "    gpu-3  ····aaaa",
        "      left: compute 4 of 7, memory-slice 4 of 8",
        "      a  3g.40gb  a/run-07-3",
        "      fits: 4 x 1g.10gb, 2 x 2g.20gb, 1 x 3g.40gb, 1 x 4g.40gb (one of these)",
    ]


def test_explain_says_what_is_lacking_and_who_is_in_the_way(
    capsys: pytest.CaptureFixture[str], dump: Path
) -> None:
    shown = said(capsys, "explain", "a/large", dump)
    said_in_full = " ".join(shown.split())
    assert "0 of 1 devices can be had (8 suit: 8 short of counters)" in said_in_full
    assert "; counters of gpu-0, gpu-1, gpu-2 and 5 more allow " in said_in_full
    assert "n00: without a/run-00-0 it would do" in shown
    assert "a/run-00-0 (priority 0): the cheapest, proven" in shown


def test_when_a_whole_card_is_free(capsys: pytest.CaptureFixture[str], alone: Path) -> None:
    shown = said(capsys, "when", "a/large", alone, "--now", "2026-11-21T12:00:00Z")
    assert "starts at 2026-11-21T13:00:00Z" in shown
    assert "a/large  n00" in shown


def test_a_partition_moves_so_that_a_large_profile_fits(
    capsys: pytest.CaptureFixture[str], alone: Path
) -> None:
    shown = said(capsys, "defrag", "--for", "a/large", alone)
    assert "gets gpu.nvidia.com/n00/gpu-1-3g-40gb-0" in shown
    assert "proven by solver: no plan makes room with fewer moves" in shown
    assert "a/large fits on n00: gpu.nvidia.com/n00/gpu-0-7g-80gb-0" in shown


def test_simulate_plays_claims_that_are_freed_when_pods_end(
    capsys: pytest.CaptureFixture[str], alone: Path
) -> None:
    """Of 160 cards half of each is in use; the first to be free is that of run-00-0, at one o'clock."""
    (run,) = json.loads(said(capsys, "simulate", alone, "--policy", "default", "-o", "json"))
    assert (run["tasks"], run["refused"], run["peak"]) == (1, 0, 50.0)
    waiting = dict(zip(run["time"], run["pending"], strict=True))
    used = dict(zip(run["time"], run["used"], strict=True))
    one_o_clock = 1795266000
    assert [waiting[second] for second in sorted(waiting)[:2]] == [1, 0]
    assert sorted(waiting)[:2] == [0, one_o_clock]
    assert used[max(used)] == 0.0
    assert used[one_o_clock] == round(100 * (80 - 3 / 2 + 1) / 160, 2)  # three halves go, and one card comes


def test_a_policy_of_cards_alone_says_that_it_looks_at_no_claims(
    capsys: pytest.CaptureFixture[str], alone: Path
) -> None:
    main(["simulate", str(alone), "--policy", "bestfit"])
    told = capsys.readouterr().err
    assert "1 of 1 pods that wait ask for devices by claims" in told
    assert "--policy default, " in told
    assert main(["simulate", str(alone), "--policy", "bestfit", "--policy", "default"]) == 2
    assert "is not comparable" in capsys.readouterr().err
    assert main(["simulate", str(alone), "-o", "csv"]) == 2
    assert "by percent arrived" in capsys.readouterr().err
