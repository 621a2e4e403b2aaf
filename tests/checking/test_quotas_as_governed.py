"""The checker governs pods by the quotas that admission governs them by."""

from __future__ import annotations

import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    PluginSetting,
    Pod,
    Policy,
    PreemptionRules,
    schedule,
    verify,
)
from koordcore.model.quotas import ElasticQuota, QuotaPolicy

LABEL = "quota.scheduling.koordinator.sh/name"


def under(**arguments: object) -> Policy:
    """Give the default policy with such arguments of ElasticQuota."""
    return Policy().with_plugin(
        PluginSetting(name="ElasticQuota", args=QuotaPolicy(**arguments))  # type: ignore[arg-type]
    )


def node() -> Node:
    return Node(name="n", allocatable={"cpu": 32_000, "pods": 20})


@pytest.mark.parametrize("bound", [0, 1])
def test_without_a_default_quota_only_labels_govern(bound: int) -> None:
    """A quota that lists the namespace of pods is not theirs then, be they bound now or before."""
    team = ElasticQuota(name="team", max={"cpu": 1000}, min={"cpu": 1000}, namespaces=("dev",))
    pods = [Pod(name=f"p{number}", namespace="dev", requests={"cpu": 2000}) for number in range(3)]
    named = Pod(name="own", namespace="dev", labels={LABEL: "team"}, requests={"cpu": 1000})
    snapshot = ClusterSnapshot(nodes=[node()], records=[team], pending=[*pods[bound:], named])
    snapshot = snapshot.assume(*[pod.at("n") for pod in pods[:bound]])
    result = schedule(snapshot, policy=under(disable_default_quota=True))
    assert all(isinstance(one, Bound) for one in result.decisions)
    assert verify(snapshot, result) == ()


def test_a_parent_says_itself_that_quotas_stand_below_it() -> None:
    """Where what is used is guaranteed, its ``max`` is not its limit, though those below hold nothing."""
    quotas = [ElasticQuota(name="dept", max={"cpu": 10_000}, min={"cpu": 10_000}, is_parent=True)]
    quotas += [
        ElasticQuota(name=name, parent="dept", max={"cpu": 10_000}, min={"cpu": 5000}) for name in ("a", "b")
    ]
    pods = [Pod(name=f"p{n}", labels={LABEL: "dept"}, requests={"cpu": 4000}) for n in range(5)]
    snapshot = ClusterSnapshot(nodes=[node()], records=quotas, pending=pods)
    result = schedule(snapshot, policy=under(guarantee_usage=True))
    assert len(result.bound) == 5
    assert verify(snapshot, result) == ()


@pytest.mark.parametrize("arguments", [{}, {"checks": {"any": lambda _ledger, _quota, _pod: ""}}])
def test_a_check_that_refuses_nobody_changes_nothing(arguments: dict[str, object]) -> None:
    """Below a parent that is not there nothing limits, whatever the quota between names."""
    quotas = [
        ElasticQuota(name="mid", max={"memory": 100}, parent="nobody", is_parent=True),
        ElasticQuota(name="leaf", max={"cpu": 1000}, min={"cpu": 1000}, parent="mid"),
    ]
    pod = Pod(name="p", labels={LABEL: "leaf"}, requests={"cpu": 2000})
    snapshot = ClusterSnapshot(nodes=[node()], records=quotas, pending=[pod])
    assert len(schedule(snapshot, policy=under(**arguments)).bound) == 1


def test_a_parent_in_another_tree_is_not_there() -> None:
    """Where there are several trees, a quota whose parent is in another one is handed nothing."""
    quotas = [
        ElasticQuota(name="dept", max={"cpu": 9000}, min={"cpu": 9000}, is_parent=True),
        ElasticQuota(name="leaf", max={"cpu": 1000}, parent="dept", tree="t1"),
    ]
    pod = Pod(name="p", labels={LABEL: "leaf"}, requests={"cpu": 2000})
    snapshot = ClusterSnapshot(nodes=[node()], records=quotas, pending=[pod])
    for several in (True, False):
        result = schedule(snapshot, policy=under(multi_quota_tree=several))
        assert bool(result.bound) is several
        assert verify(snapshot, result) == ()


def test_who_reclaims_is_charged_with_pods_by_label_alone() -> None:
    """A pod of the namespace that a quota lists holds nothing of it without a default quota."""
    quotas = [
        ElasticQuota(name="team", max={"cpu": 4000}, min={"cpu": 1000}, namespaces=("dev",)),
        ElasticQuota(name="other", max={"cpu": 4000}, min={"cpu": 1000}),
    ]
    small = Node(name="n", allocatable={"cpu": 3000, "pods": 20})
    others = [Pod(name=f"o{number}", labels={LABEL: "other"}, requests={"cpu": 1000}) for number in range(2)]
    stranger = Pod(name="stranger", namespace="dev", requests={"cpu": 1000}, priority=10)
    own = Pod(name="own", namespace="dev", labels={LABEL: "team"}, requests={"cpu": 1000})
    snapshot = ClusterSnapshot(nodes=[small], records=quotas, pending=[own])
    snapshot = snapshot.assume(*[pod.at("n") for pod in (*others, stranger)])
    policy = under(disable_default_quota=True, enable_runtime_quota=False)
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
    (plan,) = result.preemptions
    assert plan.borrowers == ("other",)
    assert verify(snapshot, result) == ()


@pytest.mark.parametrize("second", ["", "z"])
def test_of_two_quotas_that_list_a_namespace_the_first_governs_it(second: str) -> None:
    """The first by namespace and name, whatever the other would allow."""
    quotas = [
        ElasticQuota(name="b", namespace=second, max={"cpu": 1000}, min={}, namespaces=("dev",)),
        ElasticQuota(name="a" if not second else "c", max={"cpu": 3000}, min={}, namespaces=("dev",)),
    ]
    pods = [Pod(name=f"p{number}", namespace="dev", requests={"cpu": 1000}) for number in range(4)]
    snapshot = ClusterSnapshot(nodes=[node()], records=quotas, pending=pods)
    result = schedule(snapshot, policy=under())
    assert len(result.bound) == 3
    assert verify(snapshot, result) == ()


def test_the_first_of_two_quotas_of_one_name_governs_and_none_that_is_being_deleted() -> None:
    """Names tell quotas apart: the first by namespace counts, as admission has it."""
    quotas = [
        ElasticQuota(name="team", namespace="y", max={"cpu": 1000}, min={}),
        ElasticQuota(name="team", namespace="x", max={"cpu": 3000}, min={}),
        ElasticQuota(name="team", namespace="w", max={"cpu": 1000}, min={}, deleting=True),
    ]
    pods = [Pod(name=f"p{number}", labels={LABEL: "team"}, requests={"cpu": 1000}) for number in range(4)]
    snapshot = ClusterSnapshot(nodes=[node()], records=quotas, pending=pods)
    result = schedule(snapshot, policy=under())
    assert len(result.bound) == 3
    assert verify(snapshot, result) == ()
    (gone,) = [one for one in quotas if one.deleting]
    alone = ClusterSnapshot(nodes=[node()], records=[gone], pending=pods)
    result = schedule(alone, policy=under())
    assert len(result.bound) == 4
    assert verify(alone, result) == ()
