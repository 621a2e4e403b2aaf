"""A job within its quota's min gets back what was lent; embedders' rules for admission reach the flow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from koordcore import ClusterSnapshot, ModelError, Policy, Unschedulable, schedule, verify
from koordcore.cli import main
from koordcore.manifests import snapshot_from_objects
from koordcore.model.policy import PluginSetting
from koordcore.model.preemption import PreemptionRules, Relocation
from koordcore.model.quotas import NamedCheck, QuotaPod, QuotaPolicy
from koordcore.result import ScheduleResult
from tests.manifests.builders import container, node, pod

QUOTA = "quota.scheduling.koordinator.sh/"
GANG = "gang.scheduling.koordinator.sh/"


def quota(name: str, least: int, most: int, **labels: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "q", "labels": {f"{QUOTA}{key}": text for key, text in labels.items()}}
    spec = {"min": {"cpu": str(least)}, "max": {"cpu": str(most)}}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": meta,
        "spec": spec,
    }


def work(
    name: str,
    cpu: int,
    team: str,
    *,
    on: str = "",
    priority: int = 0,
    gang: str = "",
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    annotations = {f"{GANG}name": gang, f"{GANG}min-available": "2"} if gang else {}
    meta = {"labels": {f"{QUOTA}name": team, **(labels or {})}, "annotations": annotations}
    spec = {"priority": priority, **({"nodeName": on} if on else {})}
    made: dict[str, Any] = pod(
        name, metadata=meta, containers=[container(requests={"cpu": str(cpu)})], **spec
    )
    return {**made, "status": {"phase": "Running" if on else "Pending"}}


def cluster(*objects: dict[str, Any], cpu: int = 100) -> ClusterSnapshot:
    return snapshot_from_objects(
        [node("n1", {"cpu": str(cpu), "memory": "9Gi", "pods": "99"}), *objects]
    ).snapshot


def evictions(result: ScheduleResult) -> dict[str, list[str]]:
    return {plan.job: [victim.pod.name for victim in plan.victims] for plan in result.preemptions}


BORROWED = (
    quota("lender", 50, 100),
    quota("borrower", 10, 100),
    *(work(f"r{one}", 10, "borrower", on="n1", priority=100 + one) for one in range(10)),
)


def test_a_pod_within_its_min_gets_back_what_was_lent_whatever_the_priorities() -> None:
    snapshot = cluster(*BORROWED, *(work(f"w{one}", 20, "lender") for one in range(3)))
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    # Two of three stay within 50 cores; the least important leave first.
    assert evictions(result) == {"default/w0": ["r0", "r1"], "default/w1": ["r2", "r3"]}
    assert {plan.borrowers for plan in result.preemptions} == {("borrower",)}
    told = next(one for one in result.decisions if one.pod.name == "w2")
    assert "insufficient" in str(getattr(told, "message", "")).lower()
    without = schedule(snapshot, preempt=PreemptionRules(reclaim=False))
    assert evictions(without) == {}


def test_nobody_within_a_min_leaves() -> None:
    """The borrower gives back until it is at its own promise, and no further."""
    objects = (
        quota("lender", 90, 100),
        quota("borrower", 30, 100),
        *(work(f"r{one}", 30, "borrower", on="n1") for one in range(3)),
        *(work(f"w{one}", 30, "lender") for one in range(3)),
    )
    snapshot = cluster(*objects, cpu=120)
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert sum(len(one) for one in evictions(result).values()) == 2
    protected = cluster(
        *objects[:2], work("r", 90, "borrower", on="n1", labels={f"{QUOTA}preemptible": "false"}), objects[-1]
    )
    assert evictions(schedule(protected, preempt=PreemptionRules())) == {}


def test_who_reclaims_beside_a_pod_that_waits_for_its_victims_takes_back_no_more_than_it_lacks() -> None:
    """`first` is counted as if it ran, and so whoever leaves for it as if he had left."""
    snapshot = cluster(
        quota("lender", 4, 6),
        quota("borrower", 2, 6),
        *(work(f"r{one}", 1, "borrower", on="n1", priority=5) for one in range(5)),
        work("own", 1, "lender", on="n1", priority=5),
        work("first", 1, "lender", priority=5),
        cpu=6,
    )
    result = schedule(snapshot, preempt=PreemptionRules())
    assert [len(one) for one in evictions(result).values()] == [1]
    later = [work("second", 1, "lender"), work("third", 1, "lender")]
    asked = result.snapshot.with_pending(*snapshot_from_objects(later).snapshot.pending)
    again = schedule(asked, preempt=PreemptionRules())
    assert verify(asked, again) == ()
    assert {job: len(some) for job, some in evictions(again).items()} == {
        "default/second": 1,
        "default/third": 1,
    }


def test_a_less_important_pod_leaves_before_a_borrower_does() -> None:
    objects = [*BORROWED[:-1], work("own", 10, "lender", on="n1", priority=-5)]
    snapshot = cluster(*objects, work("w", 10, "lender", priority=5))
    result = schedule(snapshot, preempt=PreemptionRules())
    assert evictions(result) == {"default/w": ["own"]}
    assert result.preemptions[0].borrowers == ()


def test_gangs_reclaim_and_give_back_whole() -> None:
    snapshot = cluster(
        quota("lender", 40, 100),
        quota("borrower", 10, 100),
        *(work(f"a{one}", 25, "borrower", on="n1", gang="a") for one in range(2)),
        *(work(f"b{one}", 25, "borrower", on="n1", gang="b", priority=9) for one in range(2)),
        *(work(f"w{one}", 20, "lender", gang="w") for one in range(2)),
    )
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert evictions(result) == {"default/w": ["a0", "a1"]}
    assert result.preemptions[0].broken == ("default/a",)


def test_the_checker_knows_who_may_be_reclaimed_from() -> None:
    snapshot = cluster(*BORROWED, work("w", 20, "lender"))
    result = schedule(snapshot, preempt=PreemptionRules())
    (plan,) = result.preemptions
    forged = attrs.evolve(result, preemptions=(attrs.evolve(plan, borrowers=("other",)),))
    assert any("is no borrower" in one.message for one in verify(snapshot, forged))
    plain = attrs.evolve(result, preemptions=(attrs.evolve(plan, borrowers=()),))
    assert any("has priority 100" in one.message for one in verify(snapshot, plain))
    poor = cluster(quota("lender", 10, 100), *BORROWED[1:], work("w", 20, "lender"))
    assert any("10000 promised" in one.message for one in verify(poor, result))
    rich = cluster(BORROWED[0], quota("borrower", 95, 100), *BORROWED[2:], work("w", 20, "lender"))
    assert any("within its min" in one.message for one in verify(rich, result))


# --- by the door -----------------------------------------------------------------------------------------


def written(path: Path, *objects: Any) -> str:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(path)


@pytest.fixture
def dump(tmp_path: Path) -> str:
    room = node("n1", {"cpu": "100", "memory": "9Gi", "pods": "99"})
    return written(tmp_path / "d.json", room, *BORROWED, work("w", 20, "lender"))


def test_what_no_quota_counts_keeps_nobody_from_reclaiming() -> None:
    """The quotas name CPUs alone: memory is neither promised nor limited, and the checker knows."""
    lender, borrower = quota("lender", 6, 10), quota("borrower", 0, 10)
    wants = work("w", 4, "lender")
    wants["spec"]["containers"] = [container(requests={"cpu": "4", "memory": "1Gi"})]
    busy = [work(f"b{one}", 3, "borrower", on="n1", priority=9) for one in range(3)]
    there = cluster(lender, borrower, wants, *busy, cpu=10)
    result = schedule(there, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert plan.borrowers == ("borrower",)
    assert verify(there, result) == ()
    counted = cluster(
        {**lender, "spec": {"min": {"cpu": "6"}, "max": {"cpu": "10", "memory": "4Gi"}}},
        borrower,
        wants,
        *busy,
        cpu=10,
    )
    assert schedule(counted, preempt=PreemptionRules()).preemptions == ()


def test_a_refusal_names_who_borrowed_and_the_table_who_lends(
    dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["schedule", dump])
    assert "within the min of quota lender; beyond theirs: borrower (cpu)" in capsys.readouterr().out
    main(["quota", dump])
    row = next(one for one in capsys.readouterr().out.splitlines() if one.split()[:1] == ["borrower"])
    assert row.split()[-2:] == ["90", "lender"]


@pytest.mark.parametrize(
    ("asks", "named", "borrowed"),
    [
        ({"memory": "1Gi"}, True, "cpu, memory"),
        ({"memory": "0"}, True, "cpu"),
        ({}, True, "cpu"),
        ({"memory": "1Gi"}, False, "cpu"),
    ],
)
def test_of_what_was_borrowed_only_that_is_named_which_the_pod_asks_for_and_its_quota_counts(
    asks: dict[str, str], named: bool, borrowed: str
) -> None:
    lender, borrower = quota("lender", 50, 100), quota("borrower", 10, 100)
    for one, least in ((lender, "4Gi"), (borrower, "1Gi")):
        if named or one is borrower:
            one["spec"]["min"]["memory"] = least
            one["spec"]["max"]["memory"] = "9Gi"
    busy = [work(f"r{number}", 50, "borrower", on="n1", priority=9) for number in range(2)]
    for one in busy:
        one["spec"]["containers"] = [container(requests={"cpu": "50", "memory": "4Gi"})]
    waits = work("w", 10, "lender")
    waits["spec"]["containers"] = [container(requests={"cpu": "10", **asks})]
    (refused,) = schedule(cluster(lender, borrower, *busy, waits)).decisions
    assert isinstance(refused, Unschedulable)
    assert refused.nearest is not None
    assert refused.nearest.remarks == (
        f"within the min of quota lender; beyond theirs: borrower ({borrowed})",
    )


def test_revoke_and_reclaim_are_verbs(dump: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quota", "reclaim", dump, "-o", "json"]) == 1
    (plan,) = json.loads(capsys.readouterr().out)["preemptions"]
    assert ([one["pod"] for one in plan["victims"]], plan["borrowers"]) == (
        ["default/r0", "default/r1"],
        ["borrower"],
    )
    main(["quota", "reclaim", dump, "-o", "patches"])
    paths = [json.loads(line)["path"].rpartition("pods/")[2] for line in capsys.readouterr().out.splitlines()]
    assert paths == ["r0/status", "r0/eviction", "r1/status", "r1/eviction", "w/status"]
    # The borrower's runtime is 80 once the lender asks for 20: two of its pods are too many.
    assert main(["quota", "revoke", dump, "-o", "json"]) == 1
    (revoked,) = json.loads(capsys.readouterr().out)["revokes"]
    assert (revoked["quota"], revoked["evict"]) == ("borrower", ["default/r1", "default/r0"])
    main(["quota", "revoke", dump, "-o", "patches"])
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["quota", "revoke"]) == 2
    assert main(["quota", dump, "-o", "patches"]) == 2


# --- rules of one's own ----------------------------------------------------------------------------------


def no_small(ledger: Any, quota: str, pod: QuotaPod) -> str:
    """Refuse pods of less than ten cores."""
    return "" if pod.request.get("cpu", 0) >= 10_000 else f"{quota} is for large pods"


class Closed:
    """A rule as an object."""

    key = "closed"

    def check_pod(self, ledger: Any, quota: str, pod: QuotaPod) -> str:
        return "closed" if pod.labels.get("late") else ""


def governed(checks: Any) -> Policy:
    args = QuotaPolicy(checks=checks)
    return Policy().with_plugin(PluginSetting(name="ElasticQuota", scores=False, args=args))


@pytest.mark.parametrize("checks", [(no_small,), {"no_small": no_small}, (NamedCheck("no_small", no_small),)])
def test_rules_of_ones_own_refuse_in_the_flow(checks: Any) -> None:
    snapshot = cluster(quota("t", 0, 100), work("large", 10, "t"), work("small", 1, "t"))
    result = schedule(snapshot, policy=governed(checks))
    assert verify(snapshot, result) == ()
    assert [one.pod.name for one in result.bound] == ["large"]
    told = next(one for one in result.decisions if one.pod.name == "small")
    assert getattr(told, "message", "").endswith(
        "CheckPod failed for hook plugin no_small, err: t is for large pods."
    )


def test_rules_see_the_whole_pod_and_gangs_heed_them() -> None:
    snapshot = cluster(
        quota("t", 0, 100),
        work("a", 10, "t", labels={"late": "yes"}),
        work("b", 10, "t"),
        *(work(f"g{one}", 10, "t", gang="g", labels={"late": "yes"} if one else {}) for one in range(2)),
    )
    result = schedule(snapshot, policy=governed((Closed(), no_small)))
    assert [one.pod.name for one in result.bound] == ["b"]


def test_rules_are_told_apart_by_their_names() -> None:
    assert QuotaPolicy(checks=(no_small,)) == QuotaPolicy(checks={"no_small": Closed().check_pod})
    assert hash(QuotaPolicy(checks=(no_small,))) == hash(QuotaPolicy(checks={"no_small": no_small}))
    with pytest.raises(ModelError, match="two rules have the same name"):
        QuotaPolicy(checks=(no_small, no_small))
    with pytest.raises(ModelError, match="with a name"):
        QuotaPolicy(checks=(lambda ledger, quota, pod: "",))


def test_nobody_borrows_by_what_is_only_promised_to_a_pod_that_waits() -> None:
    """``big`` waits for room on n2 and holds none of it: its quota runs within its min, and keeps its pod."""
    big = work("big", 50, "first", priority=1000)
    big["status"]["nominatedNodeName"] = "n2"
    room = {"cpu": "100", "memory": "9Gi", "pods": "99"}
    snapshot = cluster(
        *(node(name, room) for name in ("n2", "n3")),
        quota("first", 25, 100),
        quota("second", 25, 100),
        work("small", 25, "first", on="n1"),
        *(
            work(f"other{number}", cpu, "none", on=f"n{number}", priority=2000)
            for number, cpu in ((1, 65), (2, 90), (3, 95))
        ),
        big,
        work("late", 25, "second"),
    )
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert evictions(result) == {}


@pytest.mark.parametrize(("stays", "placed"), [("false", False), ("true", True)])
def test_who_may_not_leave_has_its_part_of_a_min_before_the_more_important(stays: str, placed: bool) -> None:
    """``fixed`` and ``first`` fill the min of 7: ``next`` would come in the room that was made for ``back``.

    It would be reclaimed from at once, as nobody else can leave, then come back when ``first`` goes.
    """
    room = {"cpu": "5", "memory": "9Gi", "pods": "99"}
    back = work("back", 5, "lender")
    back["status"]["nominatedNodeName"] = "n2"
    snapshot = cluster(
        node("n2", room),
        quota("lender", 7, 20),
        quota("team", 7, 20),
        work("fixed", 5, "team", on="n1", labels={f"{QUOTA}preemptible": stays}),
        work("first", 5, "team", on="n1", priority=9),
        work("next", 5, "team", priority=9),
        back,
        cpu=10,
    )
    by_max = PluginSetting(name="ElasticQuota", scores=False, args=QuotaPolicy(enable_runtime_quota=False))
    policy = Policy().with_plugin(by_max)
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert {one.pod.name for one in result.bound} == ({"next"} if placed else {"back"})


def test_who_was_promised_room_before_may_use_the_min_of_a_quota() -> None:
    """``high`` uses more than the min of its quota once ``low`` has gone: ``lent`` lies beyond it by then."""
    parent = {"parent": "root-team", "tree-id": ""}
    snapshot = cluster(
        quota("root-team", 9, 9, **{"is-parent": "true"}),
        quota("ours", 6, 12, **parent),
        quota("theirs", 3, 19, **parent),
        work("low", 3, "theirs", on="n1", priority=5),
        work("lent", 1, "theirs", on="n1"),
        work("stays", 2, "ours", on="n1", priority=9),
        work("high", 5, "theirs", priority=9),
        work("one", 1, "ours"),
        work("two", 1, "ours"),
    )
    by_max = QuotaPolicy(enable_runtime_quota=False, enable_check_parent_quota=True)
    policy = Policy().with_plugin(PluginSetting(name="ElasticQuota", scores=False, args=by_max))
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert evictions(result) == {"default/high": ["low"], "default/one": [], "default/two": ["lent"]}


@pytest.mark.parametrize(("promised", "started"), [(10, ["g-0"]), (20, ["g-0", "g-1"])])
def test_nobody_gives_back_more_than_is_promised_to_a_gang(promised: int, started: list[str]) -> None:
    """One member is enough; the other fits beside it once the borrower has gone, and borrows itself."""
    members = [work(f"g-{one}", 10, "lender", gang="g") for one in range(2)]
    for one in members:
        one["metadata"]["annotations"][f"{GANG}min-available"] = "1"
    snapshot = cluster(
        quota("lender", promised, 100),
        quota("borrower", 0, 100),
        work("r", 90, "borrower", on="n1", priority=100),
        *members,
        cpu=95,
    )
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert evictions(result) == {"default/g": ["r"]}
    assert [key.split("/")[1] for key in result.preemptions[0].nominations] == started


def test_who_moves_for_one_job_counts_once_when_another_one_reclaims() -> None:
    """The quota of ``r1`` uses 3 of 4 cores before and after ``r2`` has moved to the other node."""
    closed = node("n2", {"cpu": "9", "memory": "9Gi", "pods": "9"})
    closed["spec"] = {"taints": [{"key": "closed", "effect": "NoSchedule"}]}
    moving = work("r2", 2, "theirs", on="n1")
    moving["spec"]["tolerations"] = [{"operator": "Exists"}]
    snapshot = cluster(
        closed,
        quota("ours", 3, 9),
        quota("theirs", 4, 9),
        work("r1", 1, "theirs", on="n1", priority=10),
        moving,
        work("one", 2, "ours", priority=10),
        work("two", 1, "ours"),
        cpu=3,
    )
    result = schedule(snapshot, preempt=PreemptionRules(relocation=Relocation.FIRST))
    assert verify(snapshot, result) == ()
    assert evictions(result) == {"default/one": ["r2"]}
    assert [move.node for plan in result.preemptions for move in plan.moves] == ["n2"]
