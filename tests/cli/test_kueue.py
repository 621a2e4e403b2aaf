"""Kueue's queues at the command line: jobs of every kind in a queue, and what explain says of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore import snapshot_from_objects
from koordcore.cli import main
from koordcore.controlplane import admit_workloads
from koordcore.model.kueue import KueueWorkload
from tests.cli.test_front_doors import (
    JOB,
    JOB_SET,
    LWS,
    MPI,
    RAY,
    RUNTIME,
    TORCH,
    TRAIN,
    made,
    placed,
    planned,
)
from tests.manifests.kueue_builders import (
    GPU,
    RACK,
    TOPOLOGY,
    Object,
    admitted,
    flavor,
    local,
    node,
    pod_set,
    queue,
    running,
    template,
    workload,
)

NODES = [node(f"a{number}", f"r{number // 3}") for number in range(9)]
for _one in NODES:
    _one["metadata"]["labels"]["topology.kubernetes.io/rack"] = _one["metadata"]["labels"][RACK]
QUEUES = [flavor("a100"), TOPOLOGY, queue("team", {"a100": 64}), local("q", "team")]


def queued(job: Object, **spec: object) -> Object:
    """The job in queue q."""
    meta = {**job["metadata"], "labels": {"kueue.x-k8s.io/queue-name": "q"}}
    return {**job, "metadata": meta, "spec": {**job["spec"], **spec}}


def least_of(job: Object, text: str) -> Object:
    """The job in queue q, whose annotation says with how many pods it may start."""
    job = queued(job, suspend=True)
    notes = {"kueue.x-k8s.io/job-min-parallelism": text}
    return {**job, "metadata": {**job["metadata"], "annotations": notes}}


@pytest.mark.parametrize(
    ("job", "pods", "workloads"),
    [
        ([JOB], 3, 1),
        ([JOB_SET], 5, 1),
        ([LWS], 6, 2),
        ([RAY], 4, 1),
        ([MPI], 4, 1),
        ([TORCH], 3, 1),
        ([TRAIN, RUNTIME], 3, 1),
    ],
    ids=lambda value: value[0]["kind"] if isinstance(value, list) else None,
)
def test_a_job_in_a_queue_needs_quota_as_well_as_nodes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, job: list[Object], pods: int, workloads: int
) -> None:
    job = [queued(job[0], suspend=True), *job[1:]]
    plan, told = planned(capsys, tmp_path, [*NODES, *QUEUES, *job], "--as-gangs")
    assert len(placed(plan)) == pods
    assert [one["admitted"] for one in plan["workloads"]] == [True] * workloads
    assert "in queue q" in told
    few = [flavor("a100"), TOPOLOGY, queue("team", {"a100": 1}), local("q", "team")]
    plan, told = planned(capsys, tmp_path, [*NODES, *few, *job], "--as-gangs")
    if "TrainJob" not in {one["kind"] for one in job}:  # its pods ask for no cards
        assert not placed(plan)
        assert all("of flavor a100 asked" in one["reason"] for one in plan["workloads"])
    plan, told = planned(capsys, tmp_path, [*NODES, *job], "--as-gangs")
    assert len(placed(plan)) == pods
    assert "its quota in queue q: there is no ClusterQueue" in told


def test_annotations_of_a_template_are_its_topology_request(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    wish = {"kueue.x-k8s.io/podset-required-topology": RACK}
    job = queued(JOB, suspend=True, parallelism=4, completions=4, template=template(8, **wish))
    plan, _ = planned(capsys, tmp_path, [*NODES, *QUEUES, job], "--as-gangs")
    (one,) = plan["workloads"]
    assert one["reason"] == "on a100: the best rack, r0, has 3 of 4 slots; 1 more would do"


def test_a_job_starts_with_fewer_pods_where_it_says_how_many_are_enough(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    few = [flavor("a100"), TOPOLOGY, queue("team", {"a100": 16}), local("q", "team")]
    for job, pods in (
        (least_of(JOB, "2"), 2),
        (least_of(JOB, "3"), 0),
        ({**least_of(JOB, "3"), "status": {"succeeded": 1}}, 2),  # no more are left
        (least_of(JOB_SET, "1"), 0),  # it is a word of batch Jobs
    ):
        plan, _ = planned(capsys, tmp_path, [*NODES, *few, job], "--as-gangs")
        assert len(placed(plan)) == pods, job["kind"]


@pytest.mark.parametrize("text", ["two", "-1", "9" * 5000])
def test_a_job_whose_least_number_of_pods_is_none_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    dump = tmp_path / "dump.json"
    items = [*NODES, *QUEUES, least_of(JOB, text)]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["schedule", str(dump), "--as-gangs"]) == 1
    assert "spec.podSets[0].minCount" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("leader", "pod_sets"), [({}, {"main"}), ({"leaderTemplate": template(8)}, {"leader", "worker"})]
)
def test_only_a_leader_with_a_template_of_its_own_is_a_pod_set(leader: Object, pod_sets: set[str]) -> None:
    body = {"size": 3, "workerTemplate": template(8), **leader}
    job = queued(LWS, replicas=1, leaderWorkerTemplate=body)
    flavors = [flavor("a", "", nodeLabels={}), flavor("b", "", nodeLabels={})]
    flavors += [queue("team", {"a": 8, "b": 16}), local("q", "team")]
    snapshot = snapshot_from_objects([*NODES, *flavors, job], as_gangs=True).snapshot
    (found,) = admit_workloads(snapshot).workloads
    assert found.admitted == bool(leader)  # neither flavor has quota for all three
    (made,) = snapshot.of(KueueWorkload)
    assert {one.name for one in made.pod_sets} == pod_sets


def of_class(*names: str) -> Object:
    """A JobSet in queue q, each of whose jobs names a PriorityClass, or none."""
    jobs = []
    for number, name in enumerate(names):
        pod = {**template(1)["spec"], **({"priorityClassName": name} if name else {})}
        jobs.append({"name": f"j{number}", "template": {"spec": {"template": {"spec": pod}}}})
    return queued(JOB_SET, replicatedJobs=jobs)


@pytest.mark.parametrize(
    ("names", "default", "priority"),
    [
        (("", "low", "high"), True, 500),
        (("high", "low"), False, 900),
        (("", "system-node-critical"), True, 2_000_001_000),
        (("", ""), True, 100),
        (("", ""), False, 0),
        (("gone",), True, 0),
    ],
)
def test_a_job_has_the_priority_of_the_first_template_that_names_a_class_or_the_default(
    names: tuple[str, ...], default: bool, priority: int
) -> None:
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "globalDefault": default and name.startswith("default"),
        }
        for name, value in {"low": 500, "high": 900, "default-a": 1000, "default-b": 100}.items()
    ]
    loaded = snapshot_from_objects([*NODES, *QUEUES, *classes, of_class(*names)], as_gangs=True)
    (made,) = loaded.snapshot.of(KueueWorkload)
    assert made.priority == priority


@pytest.mark.parametrize(
    ("of_all", "classes", "of_workloads", "priority"),
    [
        ("high", ("low", "mid"), "", 900),
        ("", ("", "mid"), "", 700),
        ("", ("low", "high"), "", 500),
        ("gone", ("low", "mid"), "", 0),
        ("high", ("low", "mid"), "urgent", 30),
    ],
)
@pytest.mark.parametrize(("kind", "first"), [("MPI", "Launcher"), ("PyTorch", "Master")])
def test_a_job_of_kubeflow_has_the_priority_of_its_policy_or_of_its_first_role_with_a_class(
    kind: str, first: str, of_all: str, classes: tuple[str, str], of_workloads: str, priority: int
) -> None:
    """As Kueue has it; the roles are asked in their order, whatever the order in which they are written."""
    replicas = {
        role: {"replicas": 1, "template": {"spec": {**template(1)["spec"], "priorityClassName": name}}}
        for role, name in reversed([(first, classes[0]), ("Worker", classes[1])])
    }
    version = "v2beta1" if kind == "MPI" else "v1"
    policy = {"schedulingPolicy": {"priorityClass": of_all}}
    spec = {"runPolicy": policy, f"{kind.lower()}ReplicaSpecs": replicas}
    job = queued(made(f"kubeflow.org/{version}", f"{kind}Job", spec))
    if of_workloads:
        job["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = of_workloads
    values: list[Object] = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in {"low": 500, "mid": 700, "high": 900}.items()
    ]
    values.append(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": "urgent"},
            "value": 30,
        }
    )
    loaded = snapshot_from_objects([*NODES, *QUEUES, *values, job], as_gangs=True)
    (found,) = loaded.snapshot.of(KueueWorkload)
    assert found.priority == priority
    assert not [one for one in loaded.warnings if "priorityClass (schedulingPolicy)" in one.message]


def test_a_job_with_a_workload_is_shown_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    work = workload("job-train", pod_set("main", 3, 8))
    work["metadata"]["ownerReferences"] = [
        {"kind": "Job", "name": "train", "apiVersion": "batch/v1", "uid": "u"}
    ]
    plan, _ = planned(capsys, tmp_path, [*NODES, *QUEUES, queued(JOB, suspend=True), work], "--as-gangs")
    assert sorted(placed(plan)) == ["job-train-main-0", "job-train-main-1", "job-train-main-2"]
    dump = str(tmp_path / "dump.json")
    assert main(["explain", "job/train", dump]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Workload ml/job-train starts in ClusterQueue team on a100\n")
    assert "3 of 3 members get nodes" in told


def test_gated_pods_of_a_workload_are_its_members(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    gate = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number}", "namespace": "ml"},
            "spec": {**template(8)["spec"], **gate},
        }
        for number in range(2)
    ]
    work = workload("group", pod_set("main", 2, 8))
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{number}", "uid": "u"} for number in range(2)]
    work["metadata"]["ownerReferences"] = owners
    plan, told = planned(capsys, tmp_path, [*NODES, *QUEUES, *pods, work], "--as-gangs")
    assert sorted(placed(plan)) == ["p0", "p1"]
    assert "shown as gang of 2, of which 2 are there, in queue q" in told
    plan, told = planned(capsys, tmp_path, [*NODES, *QUEUES, *pods, work])
    assert not placed(plan)
    assert "not looked at: 1 Workloads of Kueue that wait for quota" in told


def test_the_table_names_flavors_and_what_is_missing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    dump = tmp_path / "dump.json"
    objects = [
        *NODES,
        *QUEUES,
        workload("a", pod_set("main", 4, 8)),
        workload("b", pod_set("main", 5, 8), hour=1),
    ]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert main(["schedule", str(dump), "--as-gangs"]) == 1
    told = capsys.readouterr().out
    assert "ml/a      team    4/4  starts   a100" in told
    assert "ClusterQueue team: 40 nvidia.com/gpu of flavor a100 asked, 32 of 64 used" in told
    assert main(["schedule", str(dump), "--as-gangs", "--record", str(tmp_path / "r")]) == 2
    assert "cannot be written down" in capsys.readouterr().err


def test_compare_shows_where_kueues_rule_is_worse(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Quota alone takes the first flavor, whose racks are too full; and what runs lies in two racks."""
    spare = [node(f"h{number}", "s0", "h100") for number in range(4)]
    busy = [running(f"busy{number}", f"a{number}", 4) for number in (0, 3, 6)]
    names = {"annotations": {"kueue.x-k8s.io/workload": "runs"}, "labels": {"kueue.x-k8s.io/podset": "main"}}
    pods = [running(f"runs{number}", where, 4) for number, where in enumerate(("a0", "a3"))]
    for one in pods:
        one["metadata"] |= names
    runs = workload("runs", pod_set("main", 2, 4, preferred=RACK))
    runs = admitted(runs, "team", {GPU: "a100"}, 8)
    quotas = queue("team", {"a100": 99, "h100": 32})
    wide = workload("wide", pod_set("main", 3, 8, required=RACK), hour=1)
    queues = [flavor("a100"), flavor("h100"), TOPOLOGY, quotas, local("q", "team")]
    objects = [*NODES, *spare, *busy, *pods, runs, *queues, wide]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert main(["compare", str(dump), "--as-gangs", "-q", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["kueue"]
    (pair,) = found["workloads"]
    assert (pair["here"]["admitted"], pair["byKueuesRule"]["admitted"]) == (True, False)
    assert pair["here"]["flavors"] == {f"main/{GPU}": "h100"}
    (lies,) = found["admitted"]
    assert lies["now"] == {RACK: 2, "node": 2}
    assert lies["best"] == {RACK: 1, "node": 1}
    assert main(["compare", str(dump), "--as-gangs", "-q"]) == 0
    told = capsys.readouterr().out
    assert "whole Workloads: 0 by Kueue's rule (flavors by quota alone), 1 here" in told
    assert "1 of 1 lie in more domains than they need" in told


def test_a_page_and_the_queue_know_who_has_quota(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of two jobs of 24 cards each the queue has quota for one."""
    first = queued(JOB, suspend=True)
    second = {**first, "metadata": {**first["metadata"], "name": "after"}}
    small = [flavor("a100"), TOPOLOGY, queue("team", {"a100": 24}), local("q", "team")]
    dump = tmp_path / "dump.json"
    items = [*NODES, *small, first, second]
    dump.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert main(["report", str(dump), "--as-gangs", "-q", "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "Workload ml/train: ClusterQueue team: 24 nvidia.com/gpu of flavor a100 asked, 24 of 24" in page
    capsys.readouterr()
    words = ["when", "--all", str(dump), "--as-gangs", "-q", "--now", "2026-01-02T00:00:00Z", "-o", "json"]
    assert main(words) == 1
    starts = {one["name"]: one for one in json.loads(capsys.readouterr().out)["queue"]}
    assert starts["workload/ml/after"]["expectedStart"] == "2026-01-02T00:00:00Z"
    assert len(starts["workload/ml/after"]["nodes"]) == 3
    assert starts["workload/ml/train"]["expectedStart"] is None
    assert starts["workload/ml/train"]["message"].startswith("now ClusterQueue team: 24 nvidia.com/gpu")


def test_a_workload_is_found_by_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    """``workload/sweep`` needs no ``--as-gangs``; where a pod is sought, the message says how to ask."""
    example = str(Path(__file__).resolve().parents[2] / "examples" / "kueue.yaml")
    for verb in ("explain", "when"):
        moment = ["--now", "2026-11-01T09:00:00Z"] if verb == "when" else []
        assert main([verb, "workload/sweep", example, "-q", "-o", "json", *moment]) == 1
        told = json.loads(capsys.readouterr().out)["queued"]
        assert (told["workload"], told["admitted"], told["asked"]) == ("ml/sweep", False, 3)
        assert main([verb, "ml/sweep", example, "-q", *moment]) == 2
        assert "the Workload of Kueue is workload/ml/sweep" in capsys.readouterr().err
    assert main(["explain", "workload/sweep", example, "-q"]) == 1
    assert capsys.readouterr().out.startswith("Workload ml/sweep waits in ClusterQueue team: 18 nvidia.com")


def test_that_no_cards_are_chosen_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    example = str(Path(__file__).resolve().parents[2] / "examples" / "kueue.yaml")
    main(["schedule", example, "--as-gangs", "-q", "--expand"])
    out = capsys.readouterr().out
    assert out.count("no card") == 1
    assert "GETS" not in out


def test_when_names_all_pods_of_a_workload_and_holds_no_start_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its start hangs on quota: what was written for a file of Reservations was a sentence."""
    example = str(Path(__file__).resolve().parents[2] / "examples" / "kueue.yaml")
    words = ["when", "workload/train", example, "-q", "--now", "2026-11-01T09:00:00Z"]
    members = ["ml/train-main-0", "ml/train-main-1"]
    assert main([*words, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["pods"] == members
    assert main([*words, "-o", "name"]) == 0
    assert capsys.readouterr().out.splitlines() == members
    for more, why in (
        (("-o", "reservations"), "-o reservations: Workload ml/train waits for quota, and no start of it"),
        (("--sort-by", "pod"), "--sort-by: it orders rows of tables, and Workload ml/train waits"),
    ):
        assert main([*words, *more]) == 2
        shown = capsys.readouterr()
        assert (shown.out, why in shown.err) == ("", True)
