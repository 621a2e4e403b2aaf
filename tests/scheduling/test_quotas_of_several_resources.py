"""Who preempts beyond what his own quota is promised, where quotas count several resources."""

from __future__ import annotations

import random
from typing import Any

import attrs
import numpy as np
import pytest

from koordcore import ClusterSnapshot, Node, Pod, PreemptionRules, schedule, verify
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.quotas import ElasticQuota, QuotaPolicy
from koordcore.model.resources import make_resources
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.running import running_on
from koordcore.preemption.victims import collect_candidates
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.device_classes import quota_reader
from koordcore.quota.lenders import chain_of, gives_back
from koordcore.scheduling.plugins.quota_budget import QuotaBudget

GIB = 1 << 30
TEAM = "quota.scheduling.koordinator.sh/name"

POLICY = Policy().with_plugin(
    PluginSetting(name="ElasticQuota", scores=False, args=QuotaPolicy(enable_runtime_quota=False))
)
"""A quota may use its max, whatever others leave at the moment."""


def quota(name: str, least: dict[str, int], most: dict[str, int]) -> ElasticQuota:
    return ElasticQuota(name=name, min=make_resources(least), max=make_resources(most))


def work(name: str, team: str, cpu: int, memory: int, **fields: Any) -> Pod:
    return Pod(name=name, labels={TEAM: team}, requests={"cpu": cpu, "memory": memory * GIB}, **fields)


def leaving(room: Node, quotas: list[ElasticQuota], asks: Pod, *there: Pod) -> list[str]:
    """Who is evicted for a pod."""
    snapshot = ClusterSnapshot(nodes=[room], records=quotas, pending=[asks])
    snapshot = snapshot.assume(*(one.at(room.name) for one in there))
    result = schedule(snapshot, policy=POLICY, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    return [victim.pod.name for plan in result.preemptions for victim in plan.victims]


@pytest.mark.parametrize(("least", "leaves"), [(4000, ["t1"]), (6000, [])])
def test_one_resource_of_which_a_quota_keeps_its_min_is_enough_to_give_back_all(
    least: int, leaves: list[str]
) -> None:
    """Without one of its pods the other quota is at its min of CPUs, or below, and below that of memory."""
    most = {"cpu": 20000, "memory": 64 * GIB}
    quotas = [quota("mine", {}, most), quota("theirs", {"cpu": least, "memory": 4 * GIB}, most)]
    room = Node(name="n", allocatable={"cpu": 8000, "memory": 8 * GIB, "pods": 9})
    there = [work(name, "theirs", 4000, 3, priority=1, uid=name) for name in ("t0", "t1")]
    assert leaving(room, quotas, work("asks", "mine", 4000, 3, priority=9), *there) == leaves


@pytest.mark.parametrize(("least", "leaves"), [(0, ["fat"]), (6, [])])
def test_what_the_own_quota_does_not_count_is_had_from_a_quota_that_uses_more_of_it_than_promised(
    least: int, leaves: list[str]
) -> None:
    """The quota of who asks counts CPUs alone, the other one memory alone, and memory is what is short."""
    quotas = [
        quota("mine", {}, {"cpu": 20000}),
        quota("theirs", {"memory": least * GIB}, {"memory": 64 * GIB}),
    ]
    room = Node(name="n", allocatable={"cpu": 8000, "memory": 8 * GIB, "pods": 9})
    fat = work("fat", "theirs", 0, 6, priority=1)
    assert leaving(room, quotas, work("asks", "mine", 1000, 4, priority=9), fat) == leaves


def crowded(seed: int) -> ClusterSnapshot:
    """A quota with two below it, one beside it and pods without any, which ask for one resource or both."""
    chance = random.Random(seed)
    parents = {"top": "", "first": "top", "second": "top", "other": ""}
    most = make_resources({"cpu": 99000, "memory": 99 * GIB})
    quotas = []
    for name, parent in parents.items():
        least = make_resources({"cpu": 1000 * chance.randint(0, 5), "memory": GIB * chance.randint(0, 5)})
        quotas.append(ElasticQuota(name=name, parent=parent, min=least, max=most, is_parent=name == "top"))
    teams = chance.choices(("first", "second", "other", ""), k=8)
    there = [
        work(f"p{number}", team, *chance.choice(((2000, 0), (0, 2), (1000, 1)))).at("n")
        for number, team in enumerate(teams)
    ]
    room = Node(name="n", allocatable={"cpu": 16000, "memory": 16 * GIB, "pods": 99})
    return ClusterSnapshot(nodes=[room], records=quotas).assume(*there)


@pytest.mark.parametrize("names", [("cpu",), ("memory",), ("cpu", "memory")])
def test_who_may_leave_for_a_quota_is_told_of_all_at_once_as_of_each_alone(names: tuple[str, ...]) -> None:
    """Whoever holds something that all quotas between him and who comes use beyond their mins."""
    asks = Pod(name="asks", labels={TEAM: "first"}, requests=dict.fromkeys(names, 1))
    told = set()
    for seed in range(40):
        snapshot = crowded(seed)
        ledger, read = cluster_ledger(snapshot), quota_reader(snapshot)
        candidates, jobs = collect_candidates(
            running_on(snapshot), attrs.evolve(asks, priority=9), minimums={}
        )
        problem = PreemptionProblem(
            nodes=("n",),
            free=np.zeros((4, 1), np.int64),
            shapes=(),
            roles=(),
            candidates=candidates,
            jobs=jobs,
        )
        mine = [chain_of(ledger, read(asks))]
        giving = QuotaBudget(ledger, snapshot).giving(problem, [asks]).tolist()
        for pod, gives in zip(snapshot.bound_pods(), giving, strict=True):
            assert gives == gives_back(ledger, read(pod), mine, names), (seed, pod.name)
            told.add((pod.labels[TEAM], gives))
    assert told >= {(team, gives) for team in ("second", "other") for gives in (True, False)}
