"""What a hand slips on: names that are nowhere, and a path where a number may stand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from koordcore.cli import main
from tests.manifests.builders import container, node, obj, pod

VIEW = "/apis/v1/nodes/cpu-1"
EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-n", "defalt"], "-n: nothing is in namespace defalt; did you mean default?"),
        (
            ["-n", "nope"],
            "-n: nothing is in namespace nope; what is decided is the whole cluster's all the same",
        ),
        (
            ["-l", "app=nobody"],
            "-l: no pod and no node has such labels; what is decided is the whole cluster's",
        ),
    ],
)
def test_who_chooses_nobody_is_told(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", EXAMPLE, *words]) == 0
    assert told in capsys.readouterr().err
    main(["inspect", EXAMPLE, "-n", "default", "-l", "app=urgent"])
    assert capsys.readouterr().err == ""


def test_sums_say_of_how_many_pods_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    for words, shown in (
        (["-n", "nope"], "0 of 20 pods shown; in the whole cluster 15 of 20 pods placed on 16 nodes"),
        (["-l", "app=urgent"], "2 of 20 pods shown; in the whole cluster 15 of 20 pods placed on 16 nodes"),
        ([], "15 of 20 pods placed on 16 nodes"),
    ):
        assert main(["schedule", EXAMPLE, *words]) == 1
        assert capsys.readouterr().out.splitlines()[-1].startswith(shown)


@pytest.mark.parametrize("words", [["when", "--all", EXAMPLE], ["quota", EXAMPLE], ["rebalance", EXAMPLE]])
def test_a_table_of_nobody_says_none_instead_of_its_headings(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main([*words, "-n", "nope"])
    lines = capsys.readouterr().out.splitlines()
    place = lines.index("  none")
    assert lines[place - 1] in ("The queue, served whenever somebody leaves", "Quotas", "Moves")


def test_who_is_in_one_of_two_dumps_is_no_slip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = {"apiVersion": "v1", "kind": "List", "items": [pod("late", metadata={"namespace": "new"})]}
    later = tmp_path / "later.json"
    later.write_text(json.dumps(dump))
    main(["diff", EXAMPLE, str(later), "-n", "new"])
    assert "nothing is in namespace" not in capsys.readouterr().err
    main(["diff", EXAMPLE, str(later), "-n", "nope"])
    assert capsys.readouterr().err.count("nothing is in namespace nope") == 1


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("job/thesis", "; did you mean thesis?"),
        ("job/default/thesi", "; did you mean thesis?"),
        ("job/ml/thesis", "; did you mean default/thesis?"),
    ],
)
def test_who_takes_a_workload_for_a_job_is_told_its_name(
    name: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", name, EXAMPLE]) == 2
    job = name.rpartition("/")[2]
    assert capsys.readouterr().err == f"koordcore: no pod of Job {job} in the dump{hint}\n"


def test_two_plans_stand_side_by_side_with_why_below(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    later = tmp_path / "later.yaml"
    later.write_text(Path(EXAMPLE).read_text().replace("unschedulable: true", "unschedulable: false"))
    assert main(["diff", EXAMPLE, str(later)]) == 1
    rows = {
        line.split()[0]: line.split(maxsplit=3)[1:] for line in capsys.readouterr().out.splitlines() if line
    }
    assert rows["POD"] == ["FIRST", "SECOND", "BECAUSE"]
    assert rows["default/web-1"] == ["cpu-3", "cpu-4", "cpu-4 is cordoned in the first"]
    first, second, why = rows["default/report"]
    assert (first, second) == ("–", "–")
    assert why.startswith("first: 0/16 nodes are available: ")
    assert "; second: 0/16 nodes are available: 12 node(s) had untolerated" in why


def test_a_resource_that_no_quota_limits_is_no_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    for quota in ([], ["--quota", "students"]):
        assert main(["quota", EXAMPLE, "--resource", "nvidia.com/gp", *quota]) == 2
        told = "koordcore: --resource: no quota limits nvidia.com/gp; did you mean nvidia.com/gpu?\n"
        assert capsys.readouterr().err == told


def test_a_path_may_follow_a_flag_whose_number_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["defrag", "--empty", EXAMPLE, "-o", "json"]) == 0
    before = capsys.readouterr().out
    assert main(["defrag", EXAMPLE, "--empty", "-o", "json"]) == 0
    assert capsys.readouterr().out == before
    assert main(["defrag", "--empty", "two", EXAMPLE]) == 2
    assert "--empty: invalid int value: 'two'" in capsys.readouterr().err


def test_violations_of_one_namespace_are_shown_and_all_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["schedule", EXAMPLE, "-o", "json"])
    plan = json.loads(capsys.readouterr().out)
    for one in plan["decisions"]:
        if one["pod"] in ("default/thesis-0", "default/web-0"):
            one["node"] = "gpu-s1b2-1"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    assert main(["verify", EXAMPLE, "--plan", str(path), "-l", "app=web"]) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("Not legal: ")
    assert shown[0].endswith(f", {len(shown[2:-1])} of them shown")
    assert {line.split()[1] for line in shown[2:-1]} <= {"default/web-0", "students"}


def test_a_gang_that_finds_no_place_is_one_row_with_one_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Members that fit fall with the one that does not; their message quotes its own."""
    room = {"cpu": "64", "memory": "64Gi", "pods": "99", "nvidia.com/gpu": "8"}
    named = {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}
    cards = [container(limits={"nvidia.com/gpu": "8"})]
    members = [pod(f"g-{place}", metadata=named, containers=cards) for place in range(3)]
    group = obj("PodGroup", "g", "scheduling.sigs.k8s.io/v1alpha1", spec={"minMember": 3})
    path = tmp_path / "c.json"
    path.write_text(json.dumps([node("a", room), node("b", room), group, *members]))
    assert main(["schedule", str(path)]) == 1
    shown = capsys.readouterr().out.partition("Not placed\n")[2].partition("\n\n")[0].splitlines()
    reason = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."
    assert [line.split(maxsplit=1)[0] for line in shown] == ["WORKLOAD", "default/g"]
    assert shown[1].endswith(reason)
    main(["schedule", str(path), "-o", "json"])
    assert "gets rejected due to member Pod" in capsys.readouterr().out


@pytest.mark.parametrize(("chosen", "told"), [("app=urgent", True), ("app=eval", True), ("app=web", False)])
def test_whose_pods_preempt_or_leave_sees_it(
    capsys: pytest.CaptureFixture[str], chosen: str, told: bool
) -> None:
    main(["schedule", EXAMPLE, "--preempt", "-l", chosen])
    text = capsys.readouterr().out
    assert ("default/urgent-1" in text and "default/eval-1" in text) is told


def test_a_node_says_what_reservations_keep_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", EXAMPLE, "--node", "gpu-s2b1-3"]) == 0
    told = "  reservation nightly-build: 32 cpu, 256Gi, 4 gpu, used by nobody"
    assert told in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["defrag", EXAMPLE, "--empty", "-1"], "--empty: must be at least 0, got -1"),
        (["defrag", EXAMPLE, "--fragments", "--most", "-1"], "--most: must be at least 0, got -1"),
        (
            ["defrag", EXAMPLE, "--fragments", "--worth", "nan"],
            "--worth: expected a number of cards, got nan",
        ),
        (
            ["defrag", EXAMPLE, "--fragments", "--worth", "inf"],
            "--worth: expected a number of cards, got inf",
        ),
        (["rebalance", EXAMPLE, "--high", "CPU=65"], "--high: no node has CPU; did you mean cpu?"),
        (
            ["rebalance", EXAMPLE, "--high", "gpu=5"],
            "--high: no node has gpu; did you mean nvidia.com/gpu?",
        ),
        (["rebalance", EXAMPLE, "--prod-high", "memori=5"], "; did you mean memory?"),
        (["report", EXAMPLE, "--rebalance", "--high", "gpu=5", "-o", "-"], "--high: no node has gpu"),
        (["rebalance", EXAMPLE, "--high", "=5"], '--high: expected NAME=PERCENT, got "=5"'),
        (["rebalance", EXAMPLE, "--high", ""], '--high: expected NAME=PERCENT, got ""'),
        (["rebalance", EXAMPLE, "--high", "cpu=65,cpu=90"], "--high: cpu stands there twice"),
        (["explain", "default/", EXAMPLE], 'expected a name, or namespace/name, got "default/"'),
    ],
    ids=lambda one: " ".join(one[:1] + one[2:]) if isinstance(one, list) else "",
)
def test_options_that_mean_nothing_are_refused(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("empty", [["--empty"], ["--empty", "0"]])
def test_no_number_of_nodes_to_be_emptied_is_as_many_as_possible(
    empty: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["defrag", EXAMPLE, *empty]) == 0
    assert "2 nodes emptied" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("rebalance", EXAMPLE, "-n", "default", "-o", "patches"), "a plan is written whole"),
        (("rebalance", EXAMPLE, "-l", "a=b", "-o", "json"), "a plan is written whole"),
        (("defrag", EXAMPLE, "--empty", "-n", "default", "-o", "yaml"), "a plan is written whole"),
        (("schedule", EXAMPLE, "-n", "default", "-o", "patches"), "a plan is written whole"),
        (("colocation", EXAMPLE, "-l", "a=b", "-o", "patches"), "a plan is written whole"),
        (("colocation", EXAMPLE, "-n", "default"), "-n: what nodes lend is of no namespace"),
        (("colocation", EXAMPLE, "--node", "cpu-1", "-l", "a=b"), "about one node"),
        (("quota", EXAMPLE, "-l", "a=b"), "-l: quotas have no labels here"),
        (("quota", "reclaim", EXAMPLE, "-n", "default"), "-n: who leaves is told for the whole tree"),
        (("topology", EXAMPLE, "-l", "a=b"), "-l: it chooses nodes, which --nodes lists"),
        (("explain", "pretrain-0", EXAMPLE, "-l", "a=b"), "about one pod"),
        (("when", "pretrain-0", EXAMPLE, "-l", "a=b"), "about one pod"),
        (("defrag", EXAMPLE, "--for", "pretrain-0", "-l", "a=b"), "about one pod"),
        (("inspect", "cpu-1", EXAMPLE, "-l", "a=b"), "about one node"),
        (("inspect", "cpu-1", EXAMPLE, "-n", "default", "-o", "json"), "about one node"),
        (("inspect", EXAMPLE, "--view", VIEW, "-n", "default"), "-n: it is about nodes or rows"),
        (("quota", EXAMPLE, "--quota", "research", "-n", "default"), "--quota is about one quota"),
        (("verify", EXAMPLE, "--plan", "none.json", "-n", "default", "-o", "json"), "is written whole"),
    ],
)
def test_a_selection_that_would_choose_nothing_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who looked at a table of one namespace applies no plan for all of them."""
    assert main([*words, "-q"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, said in shown.err) == ("", True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("inspect", "cpu-1", EXAMPLE, "--nodes"), "--nodes: it is about rows of tables, and this is about"),
        (("inspect", "cpu-1", EXAMPLE, "--sort-by", "node"), "--sort-by: it is about rows of tables"),
        (("inspect", EXAMPLE, "--view", VIEW, "--nodes"), "--nodes: it is about nodes or rows of tables"),
        (("inspect", EXAMPLE, "--view", VIEW, "--node", "cpu-1"), "--node: it is about nodes or rows"),
        (("inspect", EXAMPLE, "--view", VIEW, "--sort-by", "zzz"), "--sort-by: it is about nodes or rows"),
        (("inspect", EXAMPLE, "--view", VIEW, "-o", "name"), "-o name: --view prints"),
        (
            ("inspect", EXAMPLE, "-o", "json", "--sort-by", "node"),
            "it orders rows of tables, and -o json has",
        ),
        (("schedule", EXAMPLE, "-o", "patches", "--sort-by", "pod"), "and -o patches has none"),
        (("topology", EXAMPLE, "-o", "yaml", "--sort-by", "zzz"), "and -o yaml has none"),
        (("quota", EXAMPLE, "--quota", "research", "--sort-by", "used"), "--quota is about one quota"),
        (("colocation", EXAMPLE, "--node", "cpu-1", "--sort-by", "node"), "about one node"),
        (("explain", "report", EXAMPLE, "-o", "json", "--nodes", "3"), "--nodes: it is about rows of tables"),
        (("explain", "report", EXAMPLE, "-o", "name", "--nodes", "3"), "--nodes: it is about rows of tables"),
        (("explain", "--diff", "a.json", "b.json", EXAMPLE, "--nodes", "3"), "--diff compares two plans"),
    ],
)
def test_an_option_that_would_change_nothing_beside_others_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "-q"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, said in shown.err) == ("", True)


def test_pods_of_one_namespace_are_counted_where_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = {"rack": "r1"}
    asks = [container(requests={"cpu": "1"})]
    items = [
        node("n1", metadata={"labels": layers}),
        node("n2", metadata={"labels": layers}),
        *(
            pod(f"p{number}", metadata={"namespace": name}, containers=asks, nodeName="n1")
            for number, name in enumerate(("ml", "ml", "web"))
        ),
    ]
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for space, pods in ((["-n", "ml"], 2), (["-n", "web"], 1), ([], 3)):
        assert main(["topology", str(path), "--layers", "rack=rack", "--nodes", "-o", "json", *space]) == 0
        rows = {one["name"]: one for one in json.loads(capsys.readouterr().out)["domains"]}
        # Whether a node is empty is no question of whose pods run there.
        assert [rows[name]["pods"] for name in ("cluster", "n1", "n2")] == [pods, pods, 0]
        assert [rows[name]["empty"] for name in ("cluster", "n1", "n2")] == [1, 0, 1]
        assert main(["inspect", str(path), "--nodes", *space]) == 0
        shown = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert [row[-1] for row in shown if row[:1] == ["n1"]] == [str(pods)]


def test_a_plan_is_checked_whole_whoever_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["schedule", EXAMPLE, "-o", "json"])
    path = tmp_path / "plan.json"
    path.write_text(capsys.readouterr().out)
    assert main(["verify", EXAMPLE, "--plan", str(path), "-n", "default"]) == 0
    assert "-n, -l: they choose rows of what is wrong; the plan is checked whole" in capsys.readouterr().err


def test_migration_jobs_are_chosen_by_their_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    moving = tmp_path / "jobs.jsonl"
    main(["rebalance", EXAMPLE, "--high", "cpu=65", "-o", "patches", "-q"])
    moving.write_text(capsys.readouterr().out)
    words = ["rebalance", EXAMPLE, str(moving), "--jobs", "-q"]
    main([*words, "-n", "default"])
    assert "move-default.search-0" in capsys.readouterr().out
    main([*words, "-l", "app=nobody"])
    assert "move-default.search-0" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("pretrain", "-n", "zz"), "pretrain in namespace zz of the dump; did you mean default/pretrain?"),
        (("pretran", "-n", "default"), "pretran in namespace default of the dump; did you mean pretrain?"),
        (("default/nope",), "default/nope in the dump"),
        (("default/pretran",), "default/pretran in the dump; did you mean default/pretrain?"),
        (("defalt/pretrain",), "defalt/pretrain in the dump; did you mean default/pretrain?"),
        (("defalt/pretran",), "defalt/pretran in the dump; did you mean default/pretrain?"),
    ],
)
def test_a_hint_names_somebody_there_is(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", words[0], EXAMPLE, *words[1:], "-q"]) == 2
    assert f"koordcore: no pod {said}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("defrag", EXAMPLE, "--empty", "--most", "0"), "--most: is about --fragments"),
        (("defrag", EXAMPLE, "--want", "cpu=1", "--worth", "1"), "--worth: is about --fragments"),
        (("defrag", EXAMPLE, "--for", "pretrain-0", "--mix", "x"), "--mix: is about --fragments"),
        (("defrag", EXAMPLE, "--fragments", "--per-node", "1"), "--per-node: is about --want"),
        (("defrag", EXAMPLE, "--empty", "--block", "zone"), "--block: is about --want"),
        (("rebalance", EXAMPLE, "--jobs", "--high", "cpu=1"), "--high: is about hot nodes"),
        (("rebalance", EXAMPLE, "--jobs", "--effort", "3"), "--effort: is about hot nodes"),
        (("rebalance", EXAMPLE, "--jobs", "--compare"), "--compare: is about hot nodes"),
        (("rebalance", EXAMPLE, "--jobs", "--policy", "stock"), "--policy: is about where pods go"),
        (("rebalance", EXAMPLE, "--jobs", "--joint-gangs"), "--joint-gangs: is about where pods go"),
        (("rebalance", EXAMPLE, "--jobs", "--args", "ARGS"), "--args: is about hot nodes"),
        (("rebalance", EXAMPLE, "--jobs", "--args", "ARGS", "--migration", "ARGS"), "--args: is about hot"),
        (("rebalance", EXAMPLE, "--args", "ARGS", "--prod-high", "cpu=1"), "thresholds stand in --args"),
        (("report", EXAMPLE, "--high", "cpu=1"), "--high: is about --rebalance"),
        (("quota", "revoke", EXAMPLE, "--quota", "research"), "--quota: who leaves is told for all quotas"),
        (("quota", "revoke", EXAMPLE, "--tree", "x"), "--tree: who leaves is told for all quotas"),
        (("quota", "reclaim", EXAMPLE, "--resource", "cpu"), "--resource: who leaves is told for all quotas"),
        (("simulate", EXAMPLE, "--clock", "fill"), "--clock: is about traces"),
        (("simulate", EXAMPLE, "--trace", "x"), "--trace: is about traces"),
        (("simulate", EXAMPLE, "--compress", "9"), "--compress: is about traces"),
        (("simulate", EXAMPLE, "--seed", "1", "--seed", "2"), "--seed: a dump is played once"),
    ],
)
def test_an_option_of_another_question_is_refused(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever types a limit relies on it."""
    args = tmp_path / "args.json"
    args.write_text("{}")
    assert main([str(args) if one == "ARGS" else one for one in words]) == 2
    shown = capsys.readouterr()
    assert (shown.out, said in shown.err) == ("", True)


def test_a_quota_of_another_tree_is_not_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quotas = [
        obj(
            "ElasticQuota",
            name,
            "scheduling.sigs.k8s.io/v1alpha1",
            metadata={"labels": {"quota.scheduling.koordinator.sh/tree-id": tree}},
            spec={"min": {"cpu": "1"}, "max": {"cpu": "2"}},
        )
        for name, tree in (("a", "x"), ("b", "y"))
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": [node("n", {"cpu": "8", "pods": "9"}), *quotas]}))
    words = ["quota", str(dump), "--feature-gates", "MultiQuotaTree=true", "--quota", "a"]
    assert main([*words, "--tree", "y"]) == 2
    assert "--tree: quota a is not in tree y" in capsys.readouterr().err
    assert main([*words, "--tree", "x"]) == main(words) == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("volcano-4947", "--set", "kept=all"),
            "--set kept=all: kept: expected one of nobody, less-important, ",
        ),
        (("volcano-4947", "--set", "revoke"), "--set revoke: revoke: expected true or false, got ''"),
        (("nowhere.json",), "--loops: nowhere.json: no such file"),
        ((EXAMPLE,), f"--loops: there is no KubeSchedulerConfiguration in {EXAMPLE}"),
        (("nothing",), "--loops: no rules nothing; there are koordcore, koordcore-spread, "),
    ],
)
def test_rules_that_are_none_are_told_with_what_there_is(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--loops", *words]) == 2
    assert capsys.readouterr().err.startswith(f"koordcore: {told}")


def test_one_of_a_thing_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    label = "quota.scheduling.koordinator.sh/name"
    room = {"cpu": "8", "memory": "8Gi", "pods": "9"}
    quotas = [
        obj(
            "ElasticQuota",
            name,
            "scheduling.sigs.k8s.io/v1alpha1",
            spec={"min": {"cpu": least}, "max": {"cpu": "8"}},
        )
        for name, least in (("a", "2"), ("b", "6"))
    ]
    pods = [
        pod(
            name,
            metadata={"labels": {label: quota}},
            containers=[container(requests={"cpu": cpu})],
            **({"nodeName": "n"} if quota == "a" else {}),
        )
        for name, quota, cpu in (("p", "a", "2"), ("q", "a", "2"), ("r", "b", "6"))
    ]
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": [node("n", room), *quotas, *pods]}))
    for question, told in (
        ("revoke", "1 quota over its runtime · 1 pod to evict"),
        ("reclaim", "1 job gets back what its quota has lent · 1 pod to evict"),
    ):
        assert main(["quota", question, str(dump), "-q"]) == 1
        assert told in capsys.readouterr().out
    assert main(["audit", "--loops", "koordcore", "--pods", "1", "--nodes", "1"]) == 0
    assert "worlds of up to 1 pod, 1 node and 2 quotas" in capsys.readouterr().out


def test_limits_of_moves_are_refused_beside_a_plan_that_moves_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schedule", EXAMPLE, "-q", "-o", "json"]) == 1
    plan, limits = tmp_path / "plan.json", tmp_path / "limits.json"
    plan.write_text(capsys.readouterr().out)
    limits.write_text('{"maxMigratingPerNode": 1}')
    words = ["verify", EXAMPLE, "-q", "--plan", str(plan)]
    assert main([*words, "--migration", str(limits)]) == 2
    assert "--migration: it limits moves, and this plan has none" in capsys.readouterr().err
    assert main(words) == 0


def test_a_recorded_call_takes_no_other_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = tmp_path / "call.json"
    main(["schedule", EXAMPLE, "--record", str(call), "-q"])
    capsys.readouterr()
    assert main(["simulate", str(call), "--policy", "fgd"]) == 2
    assert "--policy: a recorded call is made again as it was" in capsys.readouterr().err
    assert main(["simulate", str(call)]) == 0
