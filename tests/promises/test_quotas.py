"""Quotas: gates, trees, who gets back what was lent, and what the webhooks would refuse or fill in."""

from __future__ import annotations

import pytest

from tests.promises.door import KOORD, QUOTA, Door, Object, node, obj, pod, quota

POOL = {"cpu": "100"}


def config(door: Door, *, gates: dict[str, bool] | None = None, args: Object | None = None) -> str:
    """A configuration with ElasticQuota in its profile."""
    profile: Object = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "ElasticQuota"}]}},
    }
    if args is not None:
        profile["pluginConfig"] = [{"name": "ElasticQuota", "args": args}]
    one = obj("KubeSchedulerConfiguration", "", profiles=[profile], featureGates=gates or {})
    del one["metadata"]
    return door.file(one)


def trees() -> list[Object]:
    """A tree of 30 CPUs beside a quota of no tree, and pods that would fill both."""
    root = quota(
        "top",
        {"cpu": 30},
        {"cpu": 30},
        tree="t1",
        inner="true",
        labels={QUOTA + "is-root": "true"},
        annotations={QUOTA + "total-resource": {"cpu": "30"}},
    )
    inside = quota("inside", {"cpu": 99}, {"cpu": 0}, tree="t1", parent="top")
    beside = quota("beside", {"cpu": 99}, {"cpu": 0})
    return [root, inside, beside]


@pytest.mark.parametrize("how", ["configuration", "option"])
def test_a_gate_tells_the_trees_apart(door: Door, how: str) -> None:
    gate = ("--feature-gates", "MultiQuotaTree=true")
    words = gate if how == "option" else ("--policy", config(door, gates={"MultiQuotaTree": True}))
    dump = door.file(node("n", amounts=POOL), trees())
    known = door.ask("quota", dump, "--tree", "t1", *words)
    assert known.code == 0
    assert "inside" in known.out
    assert "beside" not in known.out
    pods = [pod(f"p{one}", {"cpu": 10}, labels={QUOTA + "name": "inside"}) for one in range(5)]
    assert len(door.schedule(node("n", amounts=POOL), trees(), pods, say=words).bound) == 3


def test_trees_that_nobody_tells_apart_are_named(door: Door) -> None:
    dump = door.file(node("n", amounts=POOL), trees())
    lost = door.ask("quota", dump, "--tree", "t1")
    assert lost.code == 2
    assert "MultiQuotaTree" in lost.err
    assert "not looked at: 2 tree ids of ElasticQuotas" in door.ask("schedule", dump).err


@pytest.mark.parametrize("gate", ["ElasticQuotaGuaranteeUsage", "DisableDefaultQuota"])
def test_gates_are_no_unknown_field(door: Door, gate: str) -> None:
    found = door.ask("policy", config(door, gates={gate: True}), "-o", "json")
    assert "unknown" not in found.out
    done = door.schedule(node("n"), pod("p", {"cpu": 1}), say=("--policy", config(door, gates={gate: True})))
    assert done.node_of("p") == "n"
    assert gate not in done.err


def test_hooks_of_a_configuration_are_named(door: Door) -> None:
    plugin = {"key": "mine", "factoryKey": "f"}
    found = door.ask("policy", config(door, args={"hookPlugins": [plugin]}), "-o", "json")
    assert "hookPlugins" in found.out


def lent() -> list[Object]:
    """``lab`` runs on all that ``prod`` is promised."""
    quotas = [quota("prod", {"cpu": 100}, {"cpu": 60}), quota("lab", {"cpu": 100}, {"cpu": 20})]
    runs = [
        pod(f"lab{one}", {"cpu": 20}, on="n", labels={QUOTA + "name": "lab"}, priority=7) for one in range(5)
    ]
    waits = [pod(f"prod{one}", {"cpu": 20}, labels={QUOTA + "name": "prod"}, priority=7) for one in range(3)]
    return [node("n", amounts=POOL), *quotas, *runs, *waits]


def test_what_was_lent_comes_back_to_whoever_is_within_its_min(door: Door) -> None:
    dump = door.file(lent())
    told = door.ask("schedule", dump).out
    assert "within the min of quota prod; beyond theirs: lab (cpu)" in told
    plans = door.ask("schedule", dump, "--preempt", "-o", "json").json["preemptions"]
    assert sum(len(plan["victims"]) for plan in plans) == 3
    assert {one for plan in plans for one in plan["borrowers"]} == {"lab"}
    assert "reclaimed from lab" in door.ask("quota", "reclaim", dump).out
    assert "lab" in door.ask("quota", "revoke", dump).out
    assert "FROM" in door.ask("quota", dump).out


def test_nobody_within_a_guaranteed_min_leaves_so_that_others_borrow(door: Door) -> None:
    cluster = lent()
    for one in cluster:
        if one["metadata"]["name"].startswith("prod") and one["kind"] == "Pod":
            one["metadata"]["labels"][QUOTA + "name"] = "lab"
            one["spec"]["priority"] = 9
        elif one["kind"] == "Pod":
            one["metadata"]["labels"][QUOTA + "name"] = "prod"
    # prod runs on 100 with a min of 60; lab, more important, has a min of 20 to claim.
    told = door.ask("schedule", door.file(cluster), "--preempt", "-o", "json").json
    gone = [one for plan in told["preemptions"] for one in plan["victims"]]
    assert len(gone) <= 2  # what prod has beyond its 60


WRONG = {
    "children": (
        [
            quota("up", {"cpu": 9}, {"cpu": 4}, inner="true"),
            quota("l", {"cpu": 9}, {"cpu": 3}, parent="up"),
            quota("r", {"cpu": 9}, {"cpu": 3}, parent="up"),
        ],
        "checkMinQuotaSum",
    ),
    "min above max": ([quota("q", {"cpu": 2}, {"cpu": 3})], "min 3 > max 2"),
    "negative": ([quota("q", {"memory": "-1Gi"})], "'s value < 0"),
    "no parent": ([quota("q", {"cpu": 2}, parent="gone")], "parentName gone"),
    "twice": (
        [quota("q", {"cpu": 2}), {**quota("q", {"cpu": 3}), "metadata": {"name": "q", "namespace": "other"}}],
        "names tell quotas apart",
    ),
    "unknown quota": (
        [quota("q", {"cpu": 2}), pod("p", {"cpu": 1}, labels={QUOTA + "name": "z"})],
        'no ElasticQuota "z"',
    ),
    "inner quota": (
        [
            quota("up", {"cpu": 9}, {"cpu": 9}, inner="true"),
            quota("q", {"cpu": 2}, parent="up"),
            pod("p", {"cpu": 1}, labels={QUOTA + "name": "up"}),
        ],
        "can not be linked to a parentQuotaGroup",
    ),
    "class": ([pod("p", {"cpu": 1}, labels={KOORD + "qosClass": "LSR"}, priority=5500)], "LSR together with"),
    "whole CPUs": (
        [pod("p", {"cpu": "500m"}, labels={KOORD + "qosClass": "LSR"}, priority=9500)],
        "LSR without whole CPUs",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("verb", ["schedule", "quota", "inspect"])
def test_what_the_webhooks_refuse_is_warned_of_by_every_verb(door: Door, wrong: str, verb: str) -> None:
    objects, words = WRONG[wrong]
    assert words in door.ask(verb, door.file(node("n"), objects)).err


def test_profiles_are_applied_where_asked_for_and_named_where_not(door: Door) -> None:
    profile = obj(
        "ClusterColocationProfile",
        "to-batch",
        spec={
            "selector": {"matchLabels": {"kind": "batch"}},
            "qosClass": "BE",
            "priorityClassName": "koord-batch",
        },
    )
    grade = obj("PriorityClass", "koord-batch", value=5555)
    cluster = [
        node("n", amounts={"kubernetes.io/batch-cpu": "9000", "kubernetes.io/batch-memory": "9Gi"}),
        profile,
        grade,
        pod("p", {"cpu": 2, "memory": "1Gi"}, labels={"kind": "batch"}),
    ]
    plain = door.ask("schedule", door.file(cluster))
    assert "2 cpu" in plain.out
    assert "is not applied to 1 waiting pod (--admit)" in plain.err
    admitted = door.ask("schedule", door.file(cluster), "--admit")
    assert "2000m batch-cpu" in admitted.out
    assert "admitted: ClusterColocationProfile to-batch applied to 1 pod" in admitted.err
    spec = {
        "quotaName": "pool-a",
        "quotaLabels": {QUOTA + "is-root": "true"},
        "nodeSelector": {"matchLabels": {"pool": "a"}},
    }
    tree = obj("ElasticQuotaProfile", "a", namespace="kube-system", spec=spec)
    dump = door.file(node("n", labels={"pool": "a"}), tree)
    assert "not applied" in door.ask("quota", dump).err
    assert "pool-a" in door.ask("quota", dump, "--admit").out
