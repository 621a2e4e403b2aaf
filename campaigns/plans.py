"""Random clusters through ``schedule``: what comes out is legal, complete, and the same however one asks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Final

import attrs

from campaigns.case import Case, Failure, Figures, Object, check_laws
from campaigns.judge import Judge
from campaigns.policies import PLUGINS, reordered
from campaigns.vain import refused_in_vain
from campaigns.worlds import THEMES, draw_world
from koordcore import (
    Bound,
    ClusterSnapshot,
    Nominated,
    Pod,
    PodDecision,
    Policy,
    PreemptionRules,
    ScheduleResult,
    Unschedulable,
    Waiting,
    schedule,
    verify,
)
from koordcore.explaining import explain
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model.quotas import ElasticQuota
from koordcore.simulate import replay_record, write_record

__all__ = ["Crowds", "Plans", "asked", "outcome", "outcomes", "policy_of"]

LAWS: Final[tuple[str, ...]] = (
    "answers",
    "legal",
    "verified",
    "complete",
    "told",
    "ordered",
    "kept",
    "standing",
    "plugin-order",
    "explained",
    "nominated",
    "recorded",
)


def policy_of(drawn: Object | None) -> Policy:
    """Read a drawn policy; asked about again and again, it is read once."""
    return Policy() if drawn is None else _policy_of(json.dumps(drawn))


@lru_cache(maxsize=8)
def _policy_of(text: str) -> Policy:
    drawn = json.loads(text)
    profile = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": drawn["plugins"], "disabled": [{"name": "*"}]}},
        "pluginConfig": drawn["args"],
    }
    (policy,) = policies_from_manifest(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [profile],
        }
    )
    return attrs.evolve(policy, gangs=drawn["turns"])


def asked(case: Case, snapshot: ClusterSnapshot, pods: Iterable[Pod] | None = None) -> ScheduleResult:
    """Ask as the case says."""
    rules = None if case["preempt"] is None else PreemptionRules(**case["preempt"])
    now = datetime.fromisoformat(case["now"])
    return schedule(snapshot, pods, policy=policy_of(case["policy"]), now=now, preempt=rules)


def outcome(decision: PodDecision) -> tuple[str, str]:
    """Tell what became of a pod: the kind of decision, and the node."""
    where = decision.node if isinstance(decision, Bound | Nominated) else ""
    return type(decision).__name__, where


def outcomes(result: ScheduleResult) -> dict[str, tuple[str, str]]:
    """Tell what became of every pod."""
    return {str(one.pod): outcome(one) for one in result.decisions}


class Plans:
    """The campaign; see the module."""

    name = "plans"
    laws = LAWS
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a world."""
        world = {**draw_world(chance), "seed": chance.randrange(2**32)}
        # Asking again costs as much as asking: one case in four shows what depends on the order.
        return {**world, "shuffled": chance.random() < 0.25}

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Ask once, judge, and ask in other ways."""
        loaded = snapshot_from_objects(case["objects"], strict=True)
        snapshot = loaded.snapshot
        result = asked(case, snapshot)
        _count(case, result, figures)
        judge = Judge(case, result)
        every: dict[str, Callable[[], Iterable[str]]] = {
            "legal": judge.faults,
            "verified": lambda: (str(one) for one in verify(snapshot, result)),
            "complete": lambda: refused_in_vain(judge),
            "told": lambda: _untold(result),
            "ordered": lambda: self._ordered(case, result),
            "kept": lambda: self._kept(case, result),
            "standing": lambda: self._standing(case, snapshot, result),
            "plugin-order": lambda: self._plugin_order(case, snapshot, result),
            "explained": lambda: self._explained(case, snapshot, result),
            "nominated": lambda: self._nominated(case, snapshot),
            "recorded": lambda: self._recorded(case, snapshot, result),
        }
        return check_laws(every, laws)

    def _recorded(self, case: Case, snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[str]:
        """A call that was written down can be made again from what was written, and comes out the same."""
        if not case.get("shuffled", True):
            return
        rules = None if case["preempt"] is None else PreemptionRules(**case["preempt"])
        policy, now = policy_of(case["policy"]), datetime.fromisoformat(case["now"])
        again = replay_record(write_record(snapshot, None, result, policy=policy, now=now, preempt=rules))
        if not again.same:
            yield f"replayed: {again.difference}"

    def _ordered(self, case: Case, result: ScheduleResult) -> Iterator[str]:
        """The same objects in another order give the same bytes."""
        if not case.get("shuffled", True):
            return
        objects = list(case["objects"])
        random.Random(case["seed"]).shuffle(objects)
        again = asked(case, snapshot_from_objects(objects, strict=True).snapshot)
        if again != result:
            yield from _differences(result, again, "in another order of the objects")

    def _kept(self, case: Case, result: ScheduleResult) -> Iterator[str]:
        """Who keeps a place while its gang waits has it, or is bound there, when asked again at once."""
        held = {one.pod: one.held for one in result.decisions if isinstance(one, Waiting) and one.held}
        if not held:
            return
        again, now = asked(case, result.snapshot), datetime.fromisoformat(case["now"])
        for one in again.decisions:
            had = held.get(one.pod)
            has = one.held if isinstance(one, Waiting) else one
            if had is not None and getattr(has, "node", None) != had.node:
                yield f"{one.pod} kept {had.node}, and again: {one}"
            if had is not None and case["preempt"] is None:
                told = explain(result.snapshot, one.pod, policy=policy_of(case["policy"]), now=now).decision
                if told is None or outcome(told) != outcome(one):
                    yield f"{one.pod}: explained as {told}, decided as {one}"
        yield from (f"asked again: {one}" for one in verify(result.snapshot, again))

    def _standing(self, case: Case, snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[str]:
        """A cluster in order as it stands is so afterwards."""
        policy = policy_of(case["policy"])
        if case.get("shuffled", True) and not verify(snapshot, policy=policy):
            yield from (str(one) for one in verify(result.snapshot, policy=policy))

    def _plugin_order(self, case: Case, snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[str]:
        """The order of a policy's plugins changes reasons at most."""
        if case["policy"] is None:
            return
        policy = reordered(case["policy"], random.Random(case["seed"]))
        again = asked({**case, "policy": policy}, snapshot)
        names = ", ".join(one["name"] for one in policy["plugins"])
        yield from _differences(result, again, f"with the plugins in the order {names}")

    def _explained(self, case: Case, snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[str]:
        """``explain`` says of each pod in the queue what ``schedule`` does with it there."""
        policy, now = policy_of(case["policy"]), datetime.fromisoformat(case["now"])
        if case["preempt"] is not None:
            result = asked({**case, "preempt": None}, snapshot)
        for pod in snapshot.pending[:6]:
            taken = result.decision(pod.key)
            told = explain(snapshot, pod, policy=policy, now=now)
            if told.decision != taken:
                yield f"{pod.key}: decided as {taken}, explained as {told.decision}"
            elif isinstance(taken, Bound) and taken.node not in told.fitting:
                yield f"{pod.key} goes to {taken.node}, which is not told to fit it"
            elif isinstance(taken, Unschedulable) and not result.jobs and told.fitting:
                yield f"{pod.key} goes nowhere ({taken.message}), and {told.fitting} are told to fit it"
            again = explain(result, pod.key, now=now).decision
            if again != taken:
                yield f"{pod.key}: decided as {taken}, explained from the result as {again}"

    def _nominated(self, case: Case, snapshot: ClusterSnapshot) -> Iterator[str]:
        """Whoever is asked about alone leaves the room of a more important nominated pod.

        How evenly a nominated pod is to be spread is nobody's concern but its own, as upstream has it, and so
        is whose company it needs: it may be the first of its kind until another one is placed elsewhere.
        """
        if snapshot.has(ElasticQuota):
            return  # who stays within its min is more important than who borrows, whatever their priorities
        special = [pod for pod in snapshot.pending if pod.nominated_node and not pod.annotations]
        for pod in special[:2]:
            wishes = None if pod.affinity is None else pod.affinity.pod
            company = wishes is not None and wishes.required
            if pod.spread_constraints or company or any("/" in name for name in pod.requests):
                continue  # which cards a nominated pod will get is not chosen before it gets them
            without = attrs.evolve(snapshot, pending=[one for one in snapshot.pending if one is not pod])
            there = asked({**case, "preempt": None}, snapshot, [pod])
            if outcome(there.decisions[0]) != ("Bound", pod.nominated_node):
                continue
            for other in without.pending:
                if other.annotations or other.priority > pod.priority:
                    continue
                first = asked({**case, "preempt": None}, snapshot, [other])
                # Whom a pod keeps away from its own node is asked there alone, as upstream has it.
                away = other.affinity is not None and other.affinity.anti is not None
                if not first.bound or (away and first.bound[0].node != pod.nominated_node):
                    continue
                then = asked({**case, "preempt": None}, first.snapshot, [pod])
                if outcome(then.decisions[0]) != ("Bound", pod.nominated_node):
                    yield f"{other.key} takes the room that {pod.key} was nominated for"


class Crowds(Plans):
    """The same worlds many times as large: most decisions for the time, and sums where they are large."""

    name = "crowds"
    laws = ("answers", "legal", "verified", "complete", "told")

    def draw(self, chance: random.Random) -> Case:
        """Draw a large world; in few of them somebody is evicted."""
        themes = {**THEMES, "gangs": 0.15, "numa": 0.2, "cards": 0.3, "neighbours": 0.1, "spread": 0.1}
        world = draw_world(chance, themes, scale=chance.choice((20, 40, 80)))
        preempt: dict[str, str] | None = {} if chance.random() < 0.05 else None
        return {**world, "preempt": preempt, "seed": chance.randrange(2**32)}


def _untold(result: ScheduleResult) -> Iterator[str]:
    """Every node that refuses a pod says why."""
    for one in result.decisions:
        if isinstance(one, Unschedulable) and not one.refusal:
            told = sum(rejection.nodes for rejection in one.rejections)
            if told < max(1, one.nodes):
                yield f"{one.pod}: {told} reasons of {one.nodes} nodes: {one.message}"


def _differences(one: ScheduleResult, other: ScheduleResult, where: str) -> Iterator[str]:
    mine, theirs = outcomes(one), outcomes(other)
    if mine.keys() != theirs.keys():
        yield f"other pods are decided {where}"
    different = [key for key in mine if mine[key] != theirs.get(key)]
    for key in different[:1]:
        yield f"{key}: {mine[key]}, {where} {theirs.get(key)}"


def _count(case: Case, result: ScheduleResult, figures: Figures) -> None:
    for theme in case.get("themes", ()):
        figures["theme", theme] += 1
    policy = case["policy"]
    figures["policy", "the library's" if policy is None else policy["turns"]] += 1
    for plugin in policy["plugins"] if policy else ():
        figures["plugin", plugin["name"]] += 1
    for name in PLUGINS:
        figures["plugin", name] += 0
    for one in result.decisions:
        figures["outcome", type(one).__name__] += 1
        if isinstance(one, Unschedulable):
            for rejection in one.rejections:
                figures["refused by", rejection.plugin] += 1
                figures["reason", rejection.reason] += 1
            if one.refusal:
                figures["refused by", "before any node"] += 1
    for plan in result.jobs:
        status = plan.certificate.status.value if plan.certificate else "none"
        figures["certificate of a gang", status] += 1
    for preemption in result.preemptions:
        figures["certificate of a preemption", preemption.certificate.status.value] += 1
