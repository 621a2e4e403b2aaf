"""What an operator types, and what comes out."""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from koordcore.cli import main
from koordcore.cli.main import VERBS
from tests.cli.screens import screen
from tests.manifests.builders import container, node, obj, pod

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = str(ROOT / "examples" / "gpu-cluster.yaml")


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    out = capsys.readouterr()
    return code, out.out, out.err


def test_schedule_prints_what_the_readme_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The picture in the README is the command's output on a terminal of 80 columns, to the letter."""
    code, out = screen(capsys, monkeypatch, 80, "schedule", EXAMPLE, "--quiet")
    assert code == 1
    assert out.strip() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_plan_written_as_json_is_verified(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What ``schedule -o json`` prints, ``verify`` takes; a forged line is found."""
    _, out, _ = run(capsys, "schedule", EXAMPLE, "-o", "json")
    plan = tmp_path / "plan.json"
    plan.write_text(out, encoding="utf-8")
    code, said, _ = run(capsys, "verify", EXAMPLE, "--plan", str(plan))
    assert (code, said.startswith("legal: ")) == (0, True)
    record = json.loads(out)
    bound = next(one for one in record["decisions"] if one["decision"] == "Bound")
    bound["node"] = "cpu-4"
    plan.write_text(json.dumps(record), encoding="utf-8")
    code, said, _ = run(capsys, "verify", EXAMPLE, "--plan", str(plan))
    assert code == 1
    assert "cordon" in said


def test_yaml_and_patches(capsys: pytest.CaptureFixture[str]) -> None:
    """The other outputs can be read by programs too."""
    _, patches, _ = run(capsys, "schedule", EXAMPLE, "-o", "patches")
    calls = [json.loads(line) for line in patches.splitlines()]
    assert {call["path"].rpartition("/")[2] for call in calls} >= {"binding", "status"}
    _, out, _ = run(capsys, "schedule", EXAMPLE, "-o", "yaml")
    assert out.startswith("format: koordcore/plan/v1")


def test_explain_says_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    """A pod that asks for more cards than any node has: every node's reason, and the nearest one."""
    code, out, _ = run(capsys, "explain", "render-16", EXAMPLE)
    assert code == 1
    assert "Insufficient nvidia.com/gpu (16 asked, " in out
    assert "What would help" in out


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "-q", "default/urgent-1", EXAMPLE),
        ("explain", "default/urgent-1", "-q", EXAMPLE),
        ("explain", EXAMPLE, "default/urgent-1", "-q"),
        ("-q", "explain", "default/urgent-1", EXAMPLE),
    ],
)
def test_options_stand_anywhere(capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    """Only before the verb there is nobody yet whose option it could be."""
    code, out, err = run(capsys, *words)
    assert (code == 2) == (words[0] == "-q"), err
    if code != 2:
        assert out.startswith("default/urgent-1: ")


def test_explain_a_running_pod(capsys: pytest.CaptureFixture[str]) -> None:
    """It is judged as if it were not there yet."""
    code, out, _ = run(capsys, "explain", "default/eval-1", EXAMPLE, "-o", "json")
    record = json.loads(out)
    assert code == 0
    assert record["bound_to"] == "gpu-s2b1-1"
    assert record["best"]


def test_inspect_counts_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes by shape, room, pending pods, kinds."""
    code, out, _ = run(capsys, "inspect", EXAMPLE)
    assert code == 0
    for part in ("16 nodes", "20 pending pods", "NVIDIA-H100-80GB-HBM3", "PodGroup"):
        assert part in out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["schedule", "/nowhere.yaml"], "/nowhere.yaml"),
        (["explain", "nobody", EXAMPLE], "no pod nobody in the dump"),
        (["explain", "kube-system/nobody", EXAMPLE], "no pod kube-system/nobody in the dump"),
        (["schedule"], "the following arguments are required: PATH"),
        (["fly", EXAMPLE], "invalid choice"),
    ],
    ids=["no file", "no pod", "no pod in namespace", "no path", "no such command"],
)
def test_a_users_mistake_is_one_message(
    capsys: pytest.CaptureFixture[str], argv: list[str], said: str
) -> None:
    """Exit code 2, a line that says what is wrong, and no traceback."""
    code, out, err = run(capsys, *argv)
    assert (code, out) == (2, "")
    assert said in err
    assert "Traceback" not in err


def test_every_problem_of_the_input_is_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """File, object and path of each."""
    path = tmp_path / "bad.json"
    path.write_text(
        json.dumps(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": "n"},
                    "status": {"allocatable": {"cpu": "x"}},
                },
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"priority": "high"}},
            ]
        ),
        encoding="utf-8",
    )
    for strict, expected in ((["--strict"], 2), ([], 1)):
        code, _, err = run(capsys, "schedule", str(path), *strict)
        assert code == expected
        assert "cpu" in err
        assert "spec.priority" in err
        assert "bad.json" in err


def test_standard_input_and_compressed_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``-`` reads a pipe; ``.gz`` is unpacked on the way."""
    text = Path(EXAMPLE).read_text(encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    _, piped, _ = run(capsys, "inspect", "-")
    packed = tmp_path / "cluster.yaml.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    _, unpacked, _ = run(capsys, "inspect", str(packed))
    assert piped == unpacked


def test_a_reader_that_has_seen_enough() -> None:
    """``koordcore … | head -1`` ends quietly."""
    command = [sys.executable, "-m", "koordcore", "inspect", EXAMPLE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
        assert done.stdout is not None
        assert done.stderr is not None
        done.stdout.readline()
        done.stdout.close()
        assert done.stderr.read() == ""


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    """Each verb's help shows how to use it."""
    assert main(["--help"]) == 0
    assert "exit codes:" in capsys.readouterr().out
    for verb in VERBS:
        assert main([verb, "--help"]) == 0
        out = capsys.readouterr().out
        assert out.startswith(f"usage: koordcore {verb} [-h] ")
        assert "examples:" in out


def test_every_verb_is_in_the_list() -> None:
    """A module that describes a verb is found under its name."""
    modules = {path.stem for path in (ROOT / "src" / "koordcore" / "cli").glob("*.py")}
    describing = {
        name for name in modules - {"__init__"} if hasattr(import_module(f"koordcore.cli.{name}"), "describe")
    }
    assert describing == set(VERBS)


def test_help_reads_no_room() -> None:
    """The list of verbs costs no more than the parser; a verb reads what it needs when it is asked for."""
    code = "import sys; from koordcore.cli import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded.isdisjoint(
        ("numpy", "attrs", "koordcore.errors", "koordcore.model", "koordcore.cli.schedule")
    )


def test_quota_shows_the_tree_and_one_share(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The tree as a table; one quota's runtime step by step; a wrong name is the user's mistake."""
    path = tmp_path / "quota.json"
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "team", "namespace": "default"},
        "spec": {"min": {"cpu": "2"}, "max": {"cpu": "4"}},
    }
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "8", "pods": "9"}},
    }
    path.write_text(json.dumps([quota, node]), encoding="utf-8")
    code, out, _ = run(capsys, "quota", str(path))
    assert (code, "team" in out, "RUNTIME" in out) == (0, True, True)
    code, out, _ = run(capsys, "quota", str(path), "--quota", "team")
    assert (code, out.startswith("team, cpu: runtime ")) == (0, True)
    code, _, err = run(capsys, "quota", str(path), "--quota", "nobody")
    assert (code, "no quota nobody" in err) == (2, True)


def test_inspect_draws_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    """Cards with their holders, free partitions; the node's name may stand before the paths."""
    code, out, _ = run(capsys, "inspect", "gpu-s1b1-1", EXAMPLE)
    assert code == 0
    assert "gpu 0    ██████████ 100%  default/llama-serve-1" in out
    assert "of 4: 1 of 2 free  {4,5,6,7}" in out
    assert run(capsys, "inspect", EXAMPLE, "--node", "gpu-s1b1-1")[1] == out
    assert run(capsys, "inspect", EXAMPLE, "--node", "nowhere")[0] == 2


def test_inspect_draws_cpus_by_core(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each core with who holds its CPUs, sockets, and cores in several hands on lines of their own."""
    detail = [{"id": cpu, "core": cpu // 2, "node": cpu // 8, "socket": cpu // 8} for cpu in range(16)]
    key = "scheduling.koordinator.sh/resource-status"

    def pod(name: str, cpus: str) -> dict[str, object]:
        meta = {"name": name, "uid": name, "annotations": {key: json.dumps({"cpuset": cpus})}}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": meta,
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        }

    objects = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "16"}},
        },
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": "n",
                "annotations": {
                    "node.koordinator.sh/cpu-topology": json.dumps({"detail": detail}),
                    "kubelet.koordinator.sh/cpu-manager-policy": json.dumps({"reservedCPUs": "14-15"}),
                },
            },
            "zones": [],
        },
        pod("a", "0-4"),
        pod("b", "5,100"),
    ]
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    code, out, _ = run(capsys, "inspect", "n", str(path))
    assert code == 0
    drawn = [" ".join(line.split()) for line in out[out.index("CPUs") :].splitlines()]
    assert drawn[:9] == [
        "CPUs",
        "NUMA 0 (socket 0): cpus 0-7, 4 cores, 2 cpus free",
        "core 0-1 cpu 0-3 default/a",
        "core 2 cpu 4-5 4 default/a, 5 default/b",
        "core 3 cpu 6-7 free",
        "NUMA 1 (socket 1): cpus 8-15, 4 cores, 6 cpus free",
        "core 4-6 cpu 8-13 free",
        "core 7 cpu 14-15 reserved",
        "not on the node: cpu 100 default/b",
    ]


def test_inspect_tells_conflicts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Pods that hold more of a card than there is are named."""
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    key = "scheduling.koordinator.sh/device-allocated"
    held = json.dumps({"gpu": [{"minor": 0, "resources": amounts}]})
    objects: list[dict[str, object]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {}}},
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": "n"},
            "spec": {"devices": [{"type": "gpu", "minor": 0, "health": True, "resources": amounts}]},
        },
    ]
    objects += [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": {key: held}},
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
        }
        for name in ("a", "b")
    ]
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    code, out, _ = run(capsys, "inspect", "n", str(path))
    assert code == 0
    assert "conflict: gpu 0: koordinator.sh/gpu-core: 200 of 100 held by default/a, default/b" in out


def test_topology_shows_domains_and_draws_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The tree as a table, and as a picture that is the same each time."""
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    code, out, _ = run(capsys, "topology", EXAMPLE, "--plot", str(first))
    assert code == 0
    assert "s1b2" in out
    assert "cluster" in out
    run(capsys, "topology", EXAMPLE, "--plot", str(second))
    assert first.read_text(encoding="utf-8").count("<path") > 12
    assert "s2b1" in run(capsys, "topology", EXAMPLE, "--nodes")[1]


def test_colocation_shows_what_can_be_lent(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The node of the guide: 16 cores, of which prod uses 3; the table, one waterfall, and the mistakes."""
    page = (ROOT / "docs" / "guides" / "colocation.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[:2]:
        exec(block, names)
    cluster = names["cluster"]
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster), encoding="utf-8")
    code, out, _ = run(capsys, "colocation", str(path))
    assert code == 0
    assert "node-1" in out
    assert "total" in out
    code, out, _ = run(capsys, "colocation", str(path), "--node", "node-1")
    assert (code, "safety margin" in out or "colocation is off" in out) == (0, True)
    assert run(capsys, "colocation", str(path), "--now", "yesterday")[0] == 2
    assert run(capsys, "colocation", str(path), "--node", "nowhere")[0] == 2
    assert run(capsys, "colocation", EXAMPLE)[0] == 0


def test_explain_names_whose_leaving_would_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Eight cards in one block: which cards are held on the nearest node, and by whom."""
    path = tmp_path / "pod.json"
    card = {"koordinator.sh/gpu-core": "800", "koordinator.sh/gpu-memory-ratio": "800"}
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "eight"},
                "spec": {
                    "tolerations": [{"operator": "Exists"}],
                    "nodeSelector": {"kubernetes.io/hostname": "gpu-s1b1-1"},
                    "containers": [{"name": "c", "resources": {"requests": card}}],
                },
            }
        ),
        encoding="utf-8",
    )
    code, out, _ = run(capsys, "explain", "eight", EXAMPLE, str(path), "--policy", "spread")
    assert code == 1
    assert "gpu-s1b1-1: without default/llama-serve-1 it would do" in out


def test_a_member_has_the_event_of_its_gang(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each member fits by itself; one is refused beside the other, and that one for its gang."""
    labels = {"pod-group.scheduling.sigs.k8s.io": "g"}
    api = "scheduling.sigs.k8s.io/v1alpha1"

    def member(name: str) -> dict[str, object]:
        return pod(name, metadata={"labels": labels}, containers=[container(requests={"cpu": "3"})])

    items = [
        node("n1", {"cpu": "4", "pods": "9"}),
        obj("PodGroup", "g", api, spec={"minMember": 2}),
        member("g-0"),
        member("g-1"),
    ]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    refused = "0/1 nodes are available: 1 Insufficient cpu."
    gang = (
        '0/1 nodes are available: GangGroup "default/g" gets rejected due to member Pod "default/g-1" is '
        f'unschedulable with reason "{refused}".'
    )
    for name, event in (("g", gang), ("g-0", gang), ("g-1", refused)):
        code, out, _ = run(capsys, "explain", name, str(path), "--event")
        assert (code, out.splitlines()[-1]) == (1, f"Event: {event}")
        _, out, _ = run(capsys, "explain", name, str(path), "--event", "-o", "json")
        assert json.loads(out)["event"] == event


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("web-0", "it gets cpu-3"),
        ("approval", "it waits: Scheduling is blocked due to non-empty scheduling gates"),
        ("llama-serve-1", "it runs on gpu-s1b1-1"),
    ],
)
def test_who_gets_no_event_is_told_so(name: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "explain", name, EXAMPLE, "--event")
    assert out.splitlines()[-1] == f"Event: none: {why}"
    _, out, _ = run(capsys, "explain", name, EXAMPLE, "--event", "-o", "json")
    assert json.loads(out)["event"] == ""


@pytest.mark.parametrize("form", ["name", "object"])
def test_an_event_is_refused_where_there_is_no_place_for_it(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, "explain", "report", EXAMPLE, "--event", "-o", form)
    assert (code, err) == (2, f"koordcore: --event: -o {form} has no place for an event\n")


def test_the_event_and_the_views_of_debug_endpoints(capsys: pytest.CaptureFixture[str]) -> None:
    """``explain --event`` adds what preemption says, ``inspect --view`` prints what an endpoint answers."""
    code, out, _ = run(capsys, "explain", "report", EXAMPLE, "--event")
    assert code == 1
    assert out.splitlines()[-1].startswith("Event: 0/16 nodes are available: ")
    assert "preemption: 0/16 nodes are available: 16 Preemption is not helpful for scheduling." in out
    _, out, _ = run(capsys, "explain", "report", EXAMPLE, "--event", "-o", "json")
    assert json.loads(out)["event"].startswith("0/16 nodes are available: ")
    # It fits the dump as it is; the event is about its turn, when others have taken the node.
    _, out, _ = run(capsys, "explain", "urgent-1", EXAMPLE, "--event")
    refused = " ".join(out.split()).partition("in its turn: ")[2].partition(" fits now")[0]
    assert refused
    assert f"Event: {refused}" in " ".join(out.split())
    code, out, _ = run(capsys, "explain", "report", EXAMPLE, "-o", "object")
    assert (code, json.loads(out)["kind"]) == (1, "ScheduleExplanation")
    code, out, _ = run(capsys, "inspect", EXAMPLE, "--view", "/apis/v1/nodes/cpu-1")
    assert (code, json.loads(out)["node"]) == (0, "cpu-1")
    code, _, err = run(capsys, "inspect", EXAMPLE, "--view", "/apis/v1/gangs")
    assert code == 2
    assert "no endpoint /apis/v1/gangs" in err
