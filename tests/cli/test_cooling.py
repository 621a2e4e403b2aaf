"""Hot nodes are relieved as far as it goes, every limit of migration holds, and what binds is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node

ROOM = {"cpu": "16", "memory": "64Gi", "pods": "50"}


def replica_set(name: str, replicas: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}},
    }


def running(
    name: str, on: str, owner: str = "web", namespace: str = "default", **spec: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": owner},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": owner,
                    "uid": f"uid-{owner}",
                    "controller": True,
                }
            ],
        },
        "spec": {
            "nodeName": on,
            "schedulerName": "koord-scheduler",
            "containers": [container(requests={"cpu": "2"})],
            **spec,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def report(name: str, usage: dict[str, str], namespace: str = "default") -> dict[str, Any]:
    pods = [
        {"name": pod, "namespace": namespace, "podUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}}
        for pod, cpu in usage.items()
    ]
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        "status": {
            "updateTime": "2026-01-01T00:00:00Z",
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}},
            "podsMetric": pods,
        },
    }


def written(path: Path, *objects: Any) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(path)


def six(size: int = 6) -> list[dict[str, Any]]:
    """Six pods of 2.5 cores on a node of 16: 93.8 %; a cool node beside it."""
    names = [f"web-{one}" for one in range(6)]
    return [
        node("hot", ROOM),
        node("cool", ROOM),
        replica_set("web", size),
        *(running(name, "hot") for name in names),
        report("hot", dict.fromkeys(names, "2500m")),
        report("cool", {}),
    ]


def plan(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["rebalance", *words, "-o", "json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_two_moves_that_cool_most_of_the_way_are_better_than_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three moves are needed and two of six replicas may be away: 93.8 % becomes 62.5 %."""
    dump = written(tmp_path / "d.json", *six())
    found = plan(capsys, dump, "--high", "cpu=60")
    assert (len(found["moves"]), found["hotAfter"]) == (2, ["hot"])
    assert found["why"] == {"hot": ["4 pods: ReplicaSet default/web lets 2 of 6 move"]}
    assert found["certificate"]["objective"][:3] == [1, 25, 2]
    assert found["certificate"]["bound"] == found["certificate"]["objective"]
    assert main(["rebalance", dump, "--high", "cpu=60"]) == 1
    out = capsys.readouterr().out
    assert "hot stays hot: 4 pods: ReplicaSet default/web lets 2 of 6 move" in out
    plan_file = tmp_path / "p.json"
    plan_file.write_text(json.dumps(found))
    assert main(["verify", dump, "--plan", str(plan_file)]) == 0


@pytest.mark.parametrize(
    ("limits", "moves", "binds"),
    [
        ({"maxNoOfPodsToEvictTotal": 2}, 2, "maxNoOfPodsToEvictTotal lets 2 of 6 move"),
        (
            {"objectLimiters": {"workload": {"duration": "5m", "maxMigrating": 1}}},
            1,
            "objectLimiters[workload] of ReplicaSet default/web lets 1 of 6 move",
        ),
        (
            {"objectLimiters": {"namespace": {"duration": "5m", "maxMigrating": 2}}},
            2,
            "objectLimiters[namespace] of default lets 2 of 6 move",
        ),
        ({"objectLimiters": {"workload": {"duration": "0s", "maxMigrating": 1}}}, 3, ""),
    ],
)
def test_every_limit_of_migration_holds_and_the_one_that_binds_is_named(
    limits: dict[str, Any], moves: int, binds: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wide = {"maxMigratingPerWorkload": "50%", "maxUnavailablePerWorkload": "50%"}
    migration = tmp_path / "m.json"
    migration.write_text(json.dumps({**wide, **limits}))
    dump = written(tmp_path / "d.json", *six())
    found = plan(capsys, dump, "--high", "cpu=60", "--migration", str(migration))
    assert len(found["moves"]) == moves
    assert binds in json.dumps(found.get("why", ""))
    wider = plan(capsys, dump, "--high", "cpu=60", "--migration", written_json(tmp_path, wide))
    forged = tmp_path / "forged.json"
    forged.write_text(json.dumps(wider))
    code = main(["verify", dump, "--plan", str(forged), "--migration", str(migration)])
    assert code == int(moves < len(wider["moves"]))


def written_json(folder: Path, value: Any) -> str:
    path = folder / "wide.json"
    path.write_text(json.dumps({**value, "objectLimiters": {}}))
    return str(path)


def test_a_pod_that_fits_nowhere_is_said_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [one for one in six() if one["kind"] != "Pod"]
    pods = [running(f"web-{one}", "hot", nodeSelector={"pool": "x"}) for one in range(6)]
    found = plan(capsys, written(tmp_path / "d.json", *objects, *pods), "--high", "cpu=60")
    assert found["moves"] == []
    assert found["why"] == {"hot": ["6 pods: may run on no other node that takes pods"]}
    full = [one for one in six() if one["metadata"]["name"] != "cool"]
    small = [node("cool", {"cpu": "1", "memory": "1Gi", "pods": "50"}), report("cool", {})]
    found = plan(capsys, written(tmp_path / "e.json", *full, *small), "--high", "cpu=60")
    assert found["why"] == {"hot": ["6 pods: no node that it may run on has room for it and stays cool"]}


# --- room for cards, in whatever spelling ---------------------------------------------------------------

PARTS = ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio")


def gpu_node(name: str) -> list[dict[str, Any]]:
    parts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    cards = [
        {"type": "gpu", "minor": minor, "health": True, "id": f"{name}-{minor}", "resources": parts}
        for minor in range(8)
    ]
    device = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": name},
        "spec": {"devices": cards},
    }
    return [node(name, {**ROOM, "nvidia.com/gpu": "8", **dict.fromkeys(PARTS, "800")}), device]


def training(name: str, on: str, cards: int) -> list[dict[str, Any]]:
    held = [{"minor": one, "resources": dict.fromkeys(PARTS, "100")} for one in range(cards)]
    made = running(name, on, owner=name)
    made["metadata"]["annotations"] = {
        "scheduling.koordinator.sh/device-allocated": json.dumps({"gpu": held})
    }
    made["spec"]["containers"] = [container(requests=dict.fromkeys(PARTS, str(cards * 100)))]
    return [made, replica_set(name, 4)]


@pytest.fixture
def cards(tmp_path: Path) -> str:
    nodes = [one for name in "abc" for one in gpu_node(name)]
    held = [
        one for name, cards in (("a", 2), ("b", 5), ("c", 4)) for one in training(f"p{name}", name, cards)
    ]
    return written(tmp_path / "cards.json", *nodes, *held)


@pytest.mark.parametrize(
    "want",
    ["nvidia.com/gpu=8", "koordinator.sh/gpu=800", ",".join(f"{part}=800" for part in PARTS)],
)
def test_cards_are_compared_by_what_they_mean(
    want: str, cards: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["defrag", cards, "--want", want, "-o", "json"]) == 0
    (move,) = json.loads(capsys.readouterr().out)["moves"]
    assert (move["pod"], move["from"]) == ("default/pa", "a")


@pytest.mark.parametrize(
    ("want", "told"),
    [
        ("koordinator.sh/gpu-core=800", "invalid resource device requests: [koordinator.sh/gpu-core]"),
        ("koordinator.sh/gpu=150", "invalid resource unit koordinator.sh/gpu: 150"),
        ("nvidia.com/gpus=8", "no node offers nvidia.com/gpus; did you mean nvidia.com/gpu?"),
        ("example.com/x=1", "no node offers example.com/x"),
    ],
)
def test_shapes_that_can_never_be_are_refused_with_the_reason(
    want: str, told: str, cards: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["defrag", cards, "--want", want]) == 2
    assert told in capsys.readouterr().err


# --- jobs that wait --------------------------------------------------------------------------------------


def test_waiting_jobs_are_arbitrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of a workload passes, the next waits for the limit, a pod that may not be evicted fails."""

    def job(name: str, pod: str, **extra: Any) -> dict[str, Any]:
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "PodMigrationJob",
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"podRef": {"namespace": "default", "name": pod}, **extra},
        }

    system = running("sys", "hot", owner="sys", priority=2_000_000_000)
    jobs = [job("j1", "web-0"), job("j2", "web-1"), job("j3", "sys"), job("j4", "web-2", paused=True)]
    dump = written(tmp_path / "d.json", *six(), replica_set("sys", 6), system, *jobs)
    migration = tmp_path / "m.json"
    migration.write_text(json.dumps({"maxMigratingPerWorkload": 1, "maxUnavailablePerWorkload": 1}))
    words = ["rebalance", dump, "--jobs", "--migration", str(migration)]
    assert main([*words, "-o", "json"]) == 1
    found = {one["job"]: one for one in json.loads(capsys.readouterr().out)["jobs"]}
    assert {name: one["outcome"] for name, one in found.items()} == {
        "j1": "passes",
        "j2": "waits",
        "j3": "fails",
        "j4": "waits",
    }
    assert (found["j2"]["why"], found["j4"]["why"]) == ("maxMigratingPerWorkload", "is paused")
    main([*words, "-o", "patches"])
    paths = [json.loads(line)["path"].rpartition("jobs/")[2] for line in capsys.readouterr().out.splitlines()]
    assert sorted(paths) == ["j1", "j3/status"]


def job(pod: str, phase: str = "Running") -> dict[str, Any]:
    spec = {"podRef": {"namespace": "default", "name": pod}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": f"job-{pod}"},
        "spec": spec,
        "status": {"phase": phase},
    }


def test_jobs_that_are_under_way_take_their_part_of_every_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three of six may be away, one is on its way: two go, one after the other as two per node may be."""
    half = tmp_path / "half.json"
    half.write_text('{"maxMigratingPerWorkload": "50%", "maxUnavailablePerWorkload": "50%"}')
    words = ("--high", "cpu=60", "--migration", str(half))
    free = plan(capsys, written(tmp_path / "free.json", *six(), job("web-5", "Succeeded")), *words)
    assert [(one["pod"], one["arrives"]) for one in free["moves"]] == [
        ("default/web-0", 0),
        ("default/web-1", 0),
        ("default/web-2", 1),
    ]
    busy = written(tmp_path / "busy.json", *six(), job("web-5"))
    found = plan(capsys, busy, *words)
    assert [(one["pod"], one["arrives"]) for one in found["moves"]] == [
        ("default/web-0", 0),
        ("default/web-1", 1),
    ]
    moves = tmp_path / "moves.json"
    for record, code in ((found, 0), (free, 1)):
        moves.write_text(json.dumps(record))
        assert main(["verify", busy, "--plan", str(moves), "--migration", str(half)]) == code
    capsys.readouterr()


def test_what_a_job_will_take_of_a_budget_is_left_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two may go: one by its job, one by a plan. Once the job has evicted its pod, the budget knows."""
    half = tmp_path / "half.json"
    half.write_text('{"maxMigratingPerWorkload": "50%", "maxUnavailablePerWorkload": "50%"}')
    words = ("--high", "cpu=60", "--migration", str(half))
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 2},
    }
    free = plan(capsys, written(tmp_path / "free.json", *six(), budget), *words)
    assert len(free["moves"]) == 2
    busy = written(tmp_path / "busy.json", *six(), budget, job("web-5"))
    found = plan(capsys, busy, *words)
    assert len(found["moves"]) == 1
    moves = tmp_path / "moves.json"
    for record, code in ((found, 0), (free, 1)):
        moves.write_text(json.dumps(record))
        assert main(["verify", busy, "--plan", str(moves), "--migration", str(half)]) == code
    assert "default/web" in capsys.readouterr().out
    objects = six()
    going = next(one for one in objects if one["metadata"]["name"] == "web-5")["metadata"]
    going["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    evicted = written(tmp_path / "evicted.json", *objects, budget, job("web-5"))
    assert len(plan(capsys, evicted, *words)["moves"]) == 2


def test_where_jobs_take_up_a_limit_nothing_moves_and_the_limit_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    half = tmp_path / "half.json"
    half.write_text('{"maxMigratingPerWorkload": "50%", "maxUnavailablePerWorkload": "50%"}')
    dump = written(tmp_path / "d.json", *six(), job("web-5"), job("web-4", ""))
    found = plan(capsys, dump, "--high", "cpu=60", "--migration", str(half))
    assert found["moves"] == []
    assert (
        "maxMigratingPerNode of hot, beside 2 active PodMigrationJobs, lets 0 of 6 move"
        in found["why"]["hot"][0]
    )


def test_pods_that_are_on_their_way_are_counted_as_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who writes the objects of a plan into the cluster and asks again gets no second plan for the same."""
    first = written(tmp_path / "first.json", *six())
    assert main(["rebalance", first, "--high", "cpu=80", "-o", "patches"]) == 0
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["kind"] for one in made] == ["Reservation", "PodMigrationJob"]
    dump = written(tmp_path / "again.json", *six(), *made)
    assert main(["rebalance", dump, "--high", "cpu=80"]) == 0
    assert "reservationOptions" not in capsys.readouterr().err
    again = plan(capsys, dump, "--high", "cpu=80")
    assert (again["moves"], again["hotBefore"], again["leaving"]) == ([], [], ["default/web-0"])
    held = {**made[1], "spec": {**made[1]["spec"], "paused": True}}
    paused = plan(capsys, written(tmp_path / "paused.json", *six(), held), "--high", "cpu=80")
    assert ([one["pod"] for one in paused["moves"]], "leaving" in paused) == (["default/web-1"], False)
    other = {**made[1], "spec": {**made[1]["spec"], "podRef": {**made[1]["spec"]["podRef"], "uid": "old"}}}
    come = [*six(), other]
    next(one for one in come if one["metadata"]["name"] == "web-0")["metadata"]["uid"] = "new"
    came = plan(capsys, written(tmp_path / "came.json", *come), "--high", "cpu=80")
    assert ([one["pod"] for one in came["moves"]], "leaving" in came) == (["default/web-1"], False)


def test_a_pod_that_terminates_is_counted_as_gone_and_moves_nowhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = six()
    going = next(one for one in objects if one["metadata"]["name"] == "web-3")["metadata"]
    going["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    going["annotations"] = {"descheduler.alpha.kubernetes.io/evict": "true"}
    dump = written(tmp_path / "d.json", *objects)
    found = plan(capsys, dump, "--high", "cpu=80")
    assert (found["moves"], found["hotBefore"], found["leaving"]) == ([], [], ["default/web-3"])
    found = plan(capsys, dump, "--high", "cpu=70")
    assert (len(found["moves"]), found["hotBefore"], found["hotAfter"]) == (1, ["hot"], [])


def test_what_comes_to_a_node_where_room_is_kept_counts_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Near has 11 of 12.8 cores once the pod of a job has come: the one of 2.5 cores has to go farther."""
    near, far = (node(name, ROOM, labels={"kubernetes.io/hostname": name}) for name in ("near", "zfar"))
    used = {f"near-{one}": "2" for one in range(4)}
    pods = [running(name, "near", "own") for name in used]
    third = [
        node("third", ROOM, spec={"unschedulable": True}),
        running("away", "third", "own"),
        report("third", {"away": "3"}),
    ]
    moving = job("away")
    moving["spec"]["reservationOptions"] = {"reservationRef": {"name": "kept"}}
    kept = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "kept"},
        "spec": {
            "owners": [{"controller": {"kind": "ReplicaSet", "name": "own", "namespace": "default"}}],
            "template": {"spec": {"containers": [container(requests={"cpu": "2"})]}},
        },
        "status": {"phase": "Available", "nodeName": "near"},
    }
    base = [one for one in six() if one["metadata"]["name"] != "cool"]
    objects = [*base, near, far, *pods, report("near", used), report("zfar", {}), *third]
    (move,) = plan(capsys, written(tmp_path / "a.json", *objects, moving), "--high", "cpu=80")["moves"]
    assert move["to"] == "near"
    (move,) = plan(capsys, written(tmp_path / "b.json", *objects, moving, kept), "--high", "cpu=80")["moves"]
    assert move["to"] == "zfar"
    # The controller calls it by the uid of the job that made it.
    own = {**job("away"), "metadata": {"name": "job-away", "uid": "kept"}}
    (move,) = plan(capsys, written(tmp_path / "c.json", *objects, own, kept), "--high", "cpu=80")["moves"]
    assert move["to"] == "zfar"


def test_nodes_that_are_hot_by_the_average_after_the_moves_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 90, 65 and 10 percent the average is 55; it is 31 once small has given its pod to the big node."""
    sizes = {"small": "10", "mid": "10", "big": "100"}
    used = {"small": {"s-0": "8", "s-1": "1"}, "mid": {"m-0": "6500m"}, "big": {"b-0": "10"}}
    objects = [node(name, {**ROOM, "cpu": cpu}) for name, cpu in sizes.items()]
    for name, pods in used.items():
        objects += [*(running(one, name) for one in pods), report(name, pods)]
    dump = written(tmp_path / "d.json", *objects, replica_set("web", 8))
    args = tmp_path / "args.json"
    args.write_text(json.dumps({"useDeviationThresholds": True, "highThresholds": {"cpu": 10}}))
    assert main(["rebalance", dump, "--args", str(args)]) == 0
    told = capsys.readouterr().out
    assert "1 hot node before, 0 after, 1 move" in told
    assert "hot again by the average after these moves: mid" in told
    assert plan(capsys, dump, "--args", str(args))["hotAgain"] == ["mid"]
    args.write_text(json.dumps({"highThresholds": {"cpu": 65}}))
    assert "hotAgain" not in plan(capsys, dump, "--args", str(args))


def of_job(name: str, on: str) -> dict[str, Any]:
    """A pod whose owner tells no number of replicas."""
    pod = running(name, on, "train")
    pod["metadata"]["ownerReferences"][0] |= {"apiVersion": "batch/v1", "kind": "Job"}
    return pod


def test_moves_that_the_controller_refuses_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Job tells no number of replicas: its pods' PodMigrationJobs fail, unless the gates are skipped."""
    objects = [node("hot", ROOM), node("cool", ROOM), report("cool", {})]
    objects += [of_job("train-0", "hot"), report("hot", {"train-0": "8", "gone": "4"})]
    words = ["rebalance", written(tmp_path / "d.json", *objects), "--high", "cpu=70", "-o", "patches"]
    assert main(words) == 0
    shown = capsys.readouterr()
    assert [json.loads(line)["kind"] for line in shown.out.splitlines()] == ["Reservation", "PodMigrationJob"]
    assert "lets no pod of a Job go" in shown.err
    assert "evict default/train-0 by hand" in shown.err
    gates = ["ExpectedReplicas", "MaxMigratingPerWorkload", "MaxUnavailablePerWorkload"]
    migration = tmp_path / "m.json"
    migration.write_text(json.dumps({"skipEvictionGates": gates}))
    assert main([*words, "--migration", str(migration)]) == 0
    assert "lets no pod" not in capsys.readouterr().err


def test_no_pod_of_a_workload_as_large_as_its_limit_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The controller would refuse its PodMigrationJob; the node stays hot, and it is said why."""
    objects = [node("hot", ROOM), node("cool", ROOM), replica_set("web", 2), report("cool", {"web-1": "1"})]
    objects += [running("web-0", "hot"), running("web-1", "cool"), report("hot", {"web-0": "8", "gone": "4"})]
    dump = written(tmp_path / "d.json", *objects)
    limits = tmp_path / "m.json"
    limits.write_text(json.dumps({"maxUnavailablePerWorkload": 2}))
    found = plan(capsys, dump, "--high", "cpu=70", "--migration", str(limits))
    assert (found["moves"], found["certificate"]["status"]) == ([], "Proven")
    why = "1 pod: ReplicaSet default/web, whose limit equals its size, lets 0 of 2 move"
    assert found["why"] == {"hot": [why]}
    assert len(plan(capsys, dump, "--high", "cpu=70")["moves"]) == 1


def test_nodes_whose_usage_nobody_knows_are_not_called_cool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One report is missing and one too old; where all are, it is no success that no node is hot."""
    dump = written(tmp_path / "d.json", *six(), node("new", ROOM))
    found = plan(capsys, dump, "--high", "cpu=95")
    assert (found["hotBefore"], found["unmeasured"]) == ([], ["new"])
    assert main(["rebalance", dump, "--high", "cpu=95"]) == 0
    assert "not looked at: 1 node without a NodeMetric: new\n" in capsys.readouterr().err
    later = ["rebalance", dump, "--high", "cpu=60", "--now", "2026-01-01T01:00:00Z"]
    assert main(later) == 1
    shown = capsys.readouterr()
    assert "0 hot nodes before" in shown.out
    assert "2 nodes whose NodeMetric tells no usage or is 180 s old or older: cool, hot\n" in shown.err
    assert main([*later, "-q"]) == 1
    assert capsys.readouterr().err == ""


def test_nodes_that_no_threshold_is_about_are_not_missed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without thresholds at the top, one pool selects one node; the others need no report."""
    objects = [node(name, ROOM) for name in ("in", "out")]
    objects[0]["metadata"]["labels"] = {"pool": "a"}
    args = tmp_path / "args.json"
    pool = {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "highThresholds": {"cpu": 60}}
    args.write_text(json.dumps({"nodePools": [pool | {"lowThresholds": {"cpu": 30}}]}))
    found = plan(capsys, written(tmp_path / "d.json", *objects, report("gone", {})), "--args", str(args))
    assert found["unmeasured"] == ["in"]


@pytest.mark.parametrize(("top", "pool"), [(60, 95), (95, 60)])
def test_a_node_of_two_pools_is_held_to_the_lower_threshold(
    top: int, pool: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The top of the file is a first pool of all nodes; any pool evicts from what it finds hot."""
    objects = six()
    for one in objects[:2]:
        one["metadata"]["labels"] = {"pool": "a"}
    args = tmp_path / "args.json"
    own = {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "highThresholds": {"cpu": pool}}
    low = {"lowThresholds": {"cpu": 30}, "anomalyCondition": {"consecutiveAbnormalities": 1}}
    args.write_text(json.dumps({"highThresholds": {"cpu": top}, **low, "nodePools": [own | low]}))
    found = plan(capsys, written(tmp_path / "d.json", *objects), "--args", str(args), "--compare")
    assert (found["hotBefore"], len(found["moves"])) == (["hot"], 2)
    assert found["reference"]["evictions"] > 0


def test_what_a_move_reserves_is_what_its_pod_needs_at_its_target(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a node with a taint the Reservation gets its place, by the pod's own scheduler and priority."""
    cool = node("cool", ROOM, spec={"taints": [{"key": "gpu", "value": "a", "effect": "NoSchedule"}]})
    names = [f"web-{one}" for one in range(6)]
    own: dict[str, Any] = {
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "priority": 7500,
        "initContainers": [container("first", requests={"cpu": "3"})],
    }
    pods = [running(name, "hot", **own) for name in names]
    for one in pods:
        one["metadata"]["annotations"] = {
            "scheduling.koordinator.sh/resource-spec": '{"preferredCPUBindPolicy": "SpreadByPCPUs"}',
            "scheduling.koordinator.sh/resource-status": '{"cpuset": "0-1"}',
        }
    room = {**ROOM, "cpu": "20"}
    objects = [node("hot", room), cool, replica_set("web", 6), *pods]
    objects += [report("hot", dict.fromkeys(names, "2500m")), report("cool", {})]
    main(["rebalance", written(tmp_path / "d.json", *objects), "--high", "cpu=70", "-o", "patches"])
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["kind"] for one in made] == ["Reservation", "PodMigrationJob"]
    template = made[0]["spec"]["template"]
    assert [*template["metadata"]["annotations"]] == ["scheduling.koordinator.sh/resource-spec"]
    assert (template["spec"]["schedulerName"], template["spec"]["priority"]) == ("koord-scheduler", 7500)
    after = written(tmp_path / "after.json", *objects, *made)
    assert main(["schedule", after, "--policy", "koordinator", "-q", "-o", "json"]) == 0
    (decided,) = json.loads(capsys.readouterr().out)["decisions"]
    assert (decided["standsFor"], decided["node"]) == ("reservation/move-default.web-0", "cool")


def test_jobs_of_pods_that_have_failed_are_arbitrated_like_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod without an owner may go once it has failed where the file says so, and else not; it is there."""
    failed = running("bare", "hot")
    del failed["metadata"]["ownerReferences"]
    failed["status"] = {"phase": "Failed"}
    request = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": {"name": "j", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"podRef": {"namespace": "default", "name": "bare"}},
    }
    dump, rules = written(tmp_path / "d.json", *six(), failed, request), tmp_path / "m.json"
    for switched, outcome in ((True, "passes"), (False, "fails")):
        rules.write_text(json.dumps({"evictFailedBarePods": switched}))
        main(["rebalance", dump, "--jobs", "--migration", str(rules), "-o", "json"])
        (found,) = json.loads(capsys.readouterr().out)["jobs"]
        assert found["outcome"] == outcome
        assert "no such pod" not in found["why"]
    rules.write_text(json.dumps({"evictFailedBarePods": True}))
    main(["rebalance", dump, "--high", "cpu=60", "--migration", str(rules)])
    assert "evictFailedBarePods has no effect" in capsys.readouterr().err


def test_moves_of_pods_whose_names_run_together_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``b-c`` of ``a`` and ``c`` of ``a-b`` move at once: both get a Reservation and a job of their own."""
    pods = [running("b-c", "hot", "one", "a"), running("c", "hot", "two", "a-b")]
    heat, more = report("hot", {"b-c": "6"}, "a"), report("hot", {"c": "6"}, "a-b")
    heat["status"]["podsMetric"] += more["status"]["podsMetric"]
    cool = node("cool", {**ROOM, "cpu": "64"})
    dump = written(tmp_path / "d.json", node("hot", ROOM), cool, *pods, heat, report("cool", {}))
    assert main(["rebalance", dump, "--high", "cpu=20", "-o", "patches"]) == 0
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [one["metadata"]["name"] for one in made if one["kind"] == "Reservation"]
    assert names == ["move-a.b-c", "move-a-b.c"]
