"""Adapter of ``podgroup.schedule``: bind, evict, wait for the evicted, and again, until nothing changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from koordcore import ClusterSnapshot, Policy, PreemptionRules, schedule, verify
from koordcore.allocators.gang.group_table import group_table
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.group_patches import group_conditions
from koordcore.model.decisions import Bound, Nominated
from koordcore.model.pods import Pod
from koordcore.model.scheduling_groups import leaf_id
from koordcore.snapshot.following import once
from tests.conformance import Case, Verdict, subject

_CYCLES = 12


@attrs.define
class Settled:
    """What has happened until nothing changes any more."""

    snapshot: ClusterSnapshot
    victims: list[Pod]
    texts: dict[str, str]
    broken: list[str]
    conditions: dict[str, dict[str, str]] = attrs.Factory(dict)


def settle(snapshot: ClusterSnapshot, policy: Policy) -> Settled:
    """Schedule again and again; who is evicted or terminates is gone the next time."""
    done = Settled(snapshot, [], {}, [])
    for _ in range(_CYCLES):
        result = schedule(done.snapshot, policy=policy, preempt=PreemptionRules())
        done.broken += [f"{one.kind} {one.subject}: {one.message}" for one in verify(done.snapshot, result)]
        for group, condition in group_conditions(result):
            told = {condition.type: condition.status, "reason": condition.reason}
            done.conditions[group.name] = told
        for decision in result.decisions:
            message = getattr(decision, "message", "") or getattr(decision, "reason", "")
            done.texts[decision.pod.name] = message
        evicted = [one.pod for plan in result.preemptions for one in plan.victims]
        leaving = [pod.key for state in result.snapshot.nodes for pod in state.pods if pod.terminating]
        for key in evicted:
            pod = result.snapshot.pod(key)
            if pod is not None and not pod.terminating:
                done.victims.append(pod)
        gone = {*evicted, *leaving}
        done.snapshot = result.snapshot.forget(*(key for key in gone if result.snapshot.pod(key) is not None))
        if not gone and not any(isinstance(one, Bound | Nominated) for one in result.decisions):
            break
    return done


def policy_of(options: Mapping[str, Any]) -> Policy:
    """Take the gate and the profiles that a case sets; the other gates are always on here."""
    gate = bool(options.get("podGroupPreemptionPolicy", False))
    return Policy(scheduler_names=options.get("profiles"), group_preemption=gate)


def judged(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Apply the pass rules to a settled state."""
    start, end = answer
    return Judge(case, start, end).verdict()


@subject("podgroup.schedule", judge=judged)
def podgroup_schedule(case: Case) -> tuple[ClusterSnapshot, Settled]:
    """Let a cluster settle."""
    start = snapshot_from_objects(case.input["objects"], strict=True).snapshot
    return start, settle(start, policy_of(case.input.get("options", {})))


class Judge:
    """The pass rules of the vectors' README, one method each."""

    def __init__(self, case: Case, start: ClusterSnapshot, end: Settled) -> None:
        self.expect: Mapping[str, Any] = case.raw["expect"]
        self.derived = case.raw.get("derived", {})
        self.start, self.end = start, end
        self.where = {pod.name: str(pod.node_name) for pod in end.snapshot.bound_pods()}
        self.better = self.ruled = False
        self.wrong: list[str] = []

    def verdict(self) -> tuple[Verdict, str]:
        """Apply all rules."""
        self.wrong += self.end.broken
        self._who()
        self._domains()
        self._victims()
        self._refused()
        for name, wanted in self.expect.get("groups", {}).items():
            if self.end.conditions.get(name) != wanted:
                self.wrong.append(f"{name} has {self.end.conditions.get(name)}, not {wanted}")
        told = [
            *self.wrong,
            f"victims: {sorted(pod.name for pod in self.end.victims)}",
            *(
                f"{pod.name}: {self.where.get(pod.name, self.end.texts.get(pod.name))}"
                for pod in self.start.pending
            ),
        ]
        if self.wrong:
            return Verdict.WRONG, "\n".join(told)
        if self.ruled:
            return Verdict.RULED, "\n".join(told)
        return (Verdict.BETTER if self.better else Verdict.EQUAL), ""

    def _who(self) -> None:
        for name in self.expect.get("start", ()):
            if name not in self.where:
                self.wrong.append(f"{name} does not start")
        for name in self.expect.get("wait", ()):
            if name in self.where:
                self.wrong.append(f"{name} starts")
        count = self.expect.get("count")
        if count is not None:
            number = sum(name in self.where for name in count["pods"])
            if number != count["start"]:
                self.wrong.append(f"{number} of {count['pods']} start, not {count['start']}")

    def _domains(self) -> None:
        labels = {state.name: state.node.labels for state in self.start.nodes}
        for one in self.expect.get("oneDomain", ()):
            values = {labels[self.where[name]].get(one["key"]) for name in one["pods"] if name in self.where}
            if len(values) > 1:
                self.wrong.append(f"{one['pods']} lie in {sorted(map(str, values))} of {one['key']}")
        for one in self.expect.get("within", ()):
            used = {self.where.get(name, "nowhere") for name in one["pods"]}
            if used <= set(one["nodes"]):
                continue
            fewer = len(self.end.victims) < len(self.expect.get("victims", ()))
            if one["by"] == "score" and (fewer or self._as_full(used, one["nodes"])):
                self.better |= fewer
                continue
            self.wrong.append(f"{one['pods']} lie on {sorted(used)}, not within {one['nodes']}")

    def _as_full(self, used: set[str], nodes: Sequence[str]) -> bool:
        """Compare the placement scores of two domains: 6.3 of the specification, cpu and memory."""
        keys = [
            key
            for key, value in self.start.node(min(used)).node.labels.items()
            if all(self.start.node(node).node.labels.get(key) == value for node in used)
            and all(self.start.node(node).node.labels.get(key) != value for node in nodes)
        ]
        if not keys:
            return False
        own = self.start.node(min(used)).node.labels[keys[0]]
        mine = [state.name for state in self.start.nodes if state.node.labels.get(keys[0]) == own]
        return self._fullness(mine) == self._fullness(nodes)

    def _fullness(self, nodes: Sequence[str]) -> int:
        gone = {pod.key for pod in self.end.victims}
        placed = [pod for pod in self.end.snapshot.bound_pods() if self.start.pod(pod.key) is not None]
        fresh = [pod for pod in placed if pod.key not in self.start.location]
        parts = []
        for name in ("cpu", "memory"):
            whole = sum(self.start.node(node).node.allocatable.get(name, 0) for node in nodes)
            there = [p for node in nodes for p in self.start.node(node).pods if p.key not in gone]
            used = sum(pod.requests.get(name, 0) for pod in (*there, *fresh))
            if whole:
                parts.append(100 * used / whole)
        return int(sum(parts) / len(parts)) if parts else 0

    def _victims(self) -> None:
        own = [pod for pod in self.end.victims if not pod.terminating]
        names = sorted(pod.name for pod in own)
        for name in self.expect.get("stay", ()):
            if name in names and not self._cheaper(own):
                self.wrong.append(f"{name} is evicted")
        most = self.expect.get("victimsAtMost")
        if most is not None:
            if len(own) > most:
                self.wrong.append(f"{names} are evicted, {most} would do")
            return
        listed = self.expect.get("victims")
        if listed is None or names == sorted(listed):
            return
        theirs = self._priorities(self._pod(name) for name in listed)
        mine = self._priorities(own)
        if mine == theirs and len(own) <= len(listed):
            return
        if len(own) <= len(listed) and mine < theirs:
            self.better = True
        elif mine < theirs:
            self.ruled = True
        else:
            self.wrong.append(f"{names} are evicted, not {sorted(listed)}")

    def _cheaper(self, own: Sequence[Pod]) -> bool:
        listed = [self._pod(name) for name in self.expect.get("victims", ())]
        return len(own) <= len(listed) and self._priorities(own) <= self._priorities(listed)

    def _pod(self, name: str) -> Pod:
        return next(pod for pod in self.start.bound_pods() if pod.name == name)

    def _priorities(self, pods: Any) -> list[int]:
        """Priorities from the highest down; the group's counts where there is one."""
        table = once(self.start, group_table)
        found = []
        for pod in pods:
            above = table.chain(leaf_id(pod)) if pod.scheduling_group is not None else ()
            own = above[-1].priority if above else None
            found.append(pod.priority if own is None else own)
        return sorted(found, reverse=True)

    def _refused(self) -> None:
        if "reject" in self.expect and any(self.expect["wait"][0] == name for name in self.where):
            self.wrong.append("the group is not refused")
        text = self.expect.get("message")
        if text is not None:
            pattern = ".*".join(re.escape(part) for part in re.split(r"\{[^}]*\}", text))
            told = [self.end.texts.get(name, "") for name in self.expect["wait"]]
            if not any(re.search(pattern, one) for one in told):
                self.wrong.append(f"nobody says: {text}")
