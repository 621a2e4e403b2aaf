"""Long lines of watch events: the cluster that followed them, and what is decided there, has no past."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from math import inf
from typing import Any, Final
from unittest.mock import patch

from campaigns.case import Case, Failure, Figures, Object, crash
from campaigns.laws import made_anew
from campaigns.native import with_calls, with_native
from campaigns.plans import outcomes, policy_of
from campaigns.worlds import draw_world
from koordcore import (
    Bound,
    ClusterSnapshot,
    Nominated,
    Pod,
    PreemptionRules,
    ScheduleResult,
    Unschedulable,
    _line,
    schedule,
    verify,
)
from koordcore.controlplane import Backoff, SchedulingQueue
from koordcore.manifests import EventReader, patches
from koordcore.manifests.calls import Call
from koordcore.model.pods import PodKey
from koordcore.scheduling.cycle import opened

__all__ = ["Lines"]

Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""
KINDS: Final = (
    *("metric", "metric", "metric", "amounts", "lists", "label", "zone", "cordon", "taint", "policy"),
    *("keeps",),
    *("arrives", "arrives", "arrives", "binds", "binds", "ends", "ends", "leaves", "returns", "returns"),
    *("record", "record", "gone", "nothing", "moves", "moves"),
)
_ASKED: Final = 3
"""Every so many changes pods are asked about, at most so many."""


class Lines:
    """The campaign; see the module. A step is a kind and a number that chooses among what is there."""

    name = "lines"
    laws: tuple[str, ...] = ("answers", "contents", "anew", "verified", "woken", "read")
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a world and what happens to it."""
        line = [[chance.choice(KINDS), chance.randrange(10_000)] for _ in range(chance.randint(20, 60))]
        world = with_native(draw_world(chance), chance)
        # A line that forgets its steps at once has those who come from further back compare.
        return {**world, "line": line, "forgets": chance.random() < 0.3}

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Follow the line; ask on it and in clusters without a past."""
        kept = 1 if case.get("forgets") else _line.KEPT
        with patch.object(_line, "KEPT", kept):
            return self._follow(case, frozenset(laws), figures)

    def _follow(self, case: Case, wanted: Collection[str], figures: Figures) -> list[Failure]:
        line = _Line(case)
        try:
            for step, (kind, number) in enumerate(case["line"]):
                count = line.happen(kind, number)
                figures["change", kind] += count
                if count:
                    figures["outcome", "changes"] += count
                found = [one for one in line.faults(step, number, figures) if one.law in wanted]
                if found:
                    return found
            return [one for one in line.read_anew() if one.law in wanted]
        except Exception as error:
            return [crash("answers", error)]


_AT_ONCE: Final = Backoff(initial=0, longest=0, forgotten=inf)
"""Nobody pauses, nor is asked again because time has passed."""


class _Line:
    """A cluster as its objects, and as the snapshot that followed them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.reader = EventReader()
        self.objects: dict[Key, Object] = {}
        self.gone: list[Object] = []
        self.version = 0
        self.snapshot = ClusterSnapshot()
        self.result: ScheduleResult | None = None
        self.queue = SchedulingQueue(policy_of(case["policy"]), limit=10**6, backoff=_AT_ONCE)
        self.refused = set[PodKey]()
        for one in case["objects"]:
            self._event("ADDED", copy.deepcopy(one))

    def _event(self, what: str, one: Object) -> int:
        self.version += 1
        one["metadata"]["resourceVersion"] = str(self.version)
        one["metadata"].setdefault("uid", f"u-{self.version}")
        if what == "DELETED":
            del self.objects[_key(one)]
            self.gone.append(one)
        else:
            self.objects[_key(one)] = one
        changes = self.reader.event(what, copy.deepcopy(one))
        self.snapshot = self.snapshot.apply(*changes)
        self.queue.notice(changes, now=0)
        return len(changes)

    def _some(self, number: int, *kinds: str, where: Callable[[Object], bool] = bool) -> Object | None:
        """Choose an object of some kinds."""
        fitting = [one for key, one in sorted(self.objects.items()) if key[0] in kinds and where(one)]
        return copy.deepcopy(fitting[number % len(fitting)]) if fitting else None

    # -- what happens ------------------------------------------------------------------------------------

    def happen(self, kind: str, number: int) -> int:
        """Let something happen; the number of changes that came of it."""
        if kind in _NODE_EDITS:
            node = self._some(number, "Node")
            if node is None:
                return 0
            _NODE_EDITS[kind](node, number // 7)
            return self._event("MODIFIED", node)
        return int(getattr(self, f"_{kind}")(number))

    def _nothing(self, number: int) -> int:
        return 0

    def _metric(self, number: int) -> int:
        node = self._some(number, "Node")
        if node is None:
            return 0
        name, share = node["metadata"]["name"], (10, 40, 60, 80, 97)[number % 5]
        moment = datetime.fromisoformat(self.case["now"]) - timedelta(seconds=(5, 60, 200, -30)[number % 4])
        made: Object = {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": name},
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
            "status": {
                "nodeMetric": {
                    "nodeUsage": {"resources": {"cpu": f"{80 * share}m", "memory": f"{share}00Mi"}}
                },
                "updateTime": moment.isoformat().replace("+00:00", "Z"),
            },
        }
        return self._put(made)

    def _put(self, one: Object) -> int:
        known = self.objects.get(_key(one))
        if known is not None:
            one["metadata"]["uid"] = known["metadata"]["uid"]
        return self._event("ADDED" if known is None else "MODIFIED", one)

    def _arrives(self, number: int) -> int:
        """A waiting pod comes once more, under another name."""
        pod = self._some(number, "Pod", where=_waits)
        if pod is None:
            return 0
        pod["metadata"] = {**pod["metadata"], "name": f"a{self.version}", "uid": f"u-a{self.version}"}
        pod.pop("status", None)
        if not number % 9:
            first = pod["spec"]["containers"][0].setdefault("resources", {})
            for side in ("requests", "limits"):
                first.setdefault(side, {})[f"example.com/kind-{number % 5}"] = "1"
        return self._event("ADDED", pod)

    def _binds(self, number: int) -> int:
        """What was decided last comes true, call by call; or but a beginning of it."""
        calls = () if self.result is None else patches(self.result)
        done = 0
        for call in calls[: len(calls) if number % 3 else number % 7]:
            done += self._carry_out(call)
        self.result = None
        return done

    def _carry_out(self, call: Call) -> int:
        kind, name = "Pod", call.pod.name
        for other, called in (
            ("Reservation", call.reservation),
            ("ResourceClaim", call.claim),
            ("Node", call.node),
        ):
            if called:
                kind, name = other, called
        if call.pod_group:
            kind = "PodGroup"
        namespace = "default" if kind in ("Reservation", "Node") else call.pod.namespace
        one = copy.deepcopy(self.objects.get((kind, namespace, name)))
        if one is None:
            return 0
        if call.subresource == "binding":
            if not _waits(one):
                return 0
            one["spec"]["nodeName"] = call.body["target"]["name"]
        elif call.subresource == "eviction":
            if len(name) % 2:
                return self._event("DELETED", one)
            one["metadata"]["deletionTimestamp"] = self.case["now"]
        else:
            with_calls(one, copy.deepcopy(call.body))
        return self._event("MODIFIED", one)

    def _ends(self, number: int) -> int:
        pod = self._some(number, "Pod", where=(lambda one: not _waits(one)) if number % 5 else bool)
        return 0 if pod is None else self._event("DELETED", pod)

    def _leaves(self, number: int) -> int:
        node = self._some(number, "Node")
        return 0 if node is None else self._event("DELETED", node)

    def _gone(self, number: int) -> int:
        one = self._some(number, *_RECORDS, "NodeMetric", "ClusterNetworkTopology")
        return 0 if one is None else self._event("DELETED", one)

    def _returns(self, number: int) -> int:
        """Something that was deleted is made again."""
        if not self.gone:
            return 0
        one = copy.deepcopy(self.gone.pop(number % len(self.gone)))
        if _key(one) in self.objects:
            return 0
        one["metadata"]["uid"] = f"u-{self.version}"
        return self._event("ADDED", one)

    def _moves(self, number: int) -> int:
        """A pod is made anew on another node, or a reservation is there now, and a node changes as well."""
        one = self._some(number, "Pod", "Reservation", where=lambda one: bool(_place(one)))
        node = self._some(number // 3, "Node")
        if one is None or node is None:
            return 0
        name = node["metadata"]["name"]
        if one["kind"] == "Reservation":
            one["status"]["nodeName"] = name
            count = self._event("MODIFIED", one)
        else:
            count = self._event("DELETED", one)
            one = copy.deepcopy(one)
            one["spec"]["nodeName"] = name
            one["metadata"]["uid"] = f"u-{self.version}"
            count += self._event("ADDED", one)
        edits = sorted(_NODE_EDITS)
        if number % 2:
            _NODE_EDITS[edits[number % len(edits)]](node, number // 7)
            count += self._event("MODIFIED", node)
        return count

    def _record(self, number: int) -> int:
        one = self._some(number, *_RECORDS)
        if one is None:
            return 0
        _RECORDS[one["kind"]](one, number // 7)
        return self._event("MODIFIED", one)

    # -- what holds --------------------------------------------------------------------------------------

    def faults(self, step: int, number: int, figures: Figures) -> Iterator[Failure]:
        """Compare with a cluster that has no past."""
        fresh = made_anew(self.snapshot)
        if fresh != self.snapshot:
            yield Failure("contents", "the line's snapshot is not the cluster that it stands for")
        for one in (self.snapshot, opened(self.snapshot, policy_of(self.case["policy"]))):
            for pod in (*one.pending, *one.bound_pods()):
                if one.pod(pod.key) is not pod or one.location.get(pod.key) != pod.node_name:
                    yield Failure("contents", f"{pod.key} is not found where it is")
        if step % _ASKED or not self.snapshot.pending:
            return
        waiting = self.snapshot.pending
        pods = [waiting[(number + more) % len(waiting)] for more in range(min(_ASKED, len(waiting)))]
        self.result = self._asked(step, self.snapshot, pods)
        again = self._asked(step, fresh, pods)
        figures["outcome", "decisions"] += len(pods)
        if again != self.result:
            mine, theirs = outcomes(self.result), outcomes(again)
            differ = [key for key in mine if mine[key] != theirs.get(key)]
            yield Failure("anew", f"without a past, {differ or 'reasons'} differ: {mine} is {theirs}")
        for fault in verify(self.snapshot, self.result):
            yield Failure("verified", str(fault))
        yield from self._unwoken()

    def _unwoken(self) -> Iterator[Failure]:
        """Tell of pods for whose refusal nothing has changed that could help, and that have a place now."""
        policy = policy_of(self.case["policy"])
        now = datetime.fromisoformat(self.case["now"])
        preempt = None if self.case["preempt"] is None else PreemptionRules(**self.case["preempt"])
        asked = {pod.key: pod for pod in self.queue.take(self.snapshot, now=0)}
        decisions = {
            pod.key: schedule(self.snapshot, [pod], policy=policy, now=now, preempt=preempt).decisions[0]
            for pod in self.snapshot.pending
        }
        # Where somebody has to go, the load may have kept a pod off besides, without being named.
        loaded = policy.filters("LoadAwareScheduling")
        for key in sorted(self.refused & decisions.keys() - asked.keys()):
            if isinstance(decisions[key], Bound if loaded else Bound | Nominated):
                yield Failure("woken", f"{key} sleeps, and now: {decisions[key]}")
        told = {key: one for key, one in decisions.items() if key in asked}
        self.queue.done(told.values(), now=0)
        self.refused -= told.keys()
        self.refused |= {key for key, one in told.items() if isinstance(one, Unschedulable)}

    def _asked(self, step: int, snapshot: ClusterSnapshot, pods: list[Pod]) -> ScheduleResult:
        rules = self.case["preempt"] if step % 2 else None
        now = datetime.fromisoformat(self.case["now"]) + timedelta(seconds=step)
        return schedule(
            snapshot,
            pods,
            policy=policy_of(self.case["policy"]),
            now=now,
            preempt=None if rules is None else PreemptionRules(**rules),
        )

    def read_anew(self) -> Iterator[Failure]:
        """What all events led to is what a late reader is led to that meets the objects backwards."""
        reader, late = EventReader(), ClusterSnapshot()
        for one in reversed([*self.objects.values()]):
            late = late.apply(*reader.event("ADDED", copy.deepcopy(one)))
        if late != self.snapshot:
            yield Failure("read", "; ".join(_parts(late, self.snapshot)) or "they differ")


def _parts(late: ClusterSnapshot, followed: ClusterSnapshot) -> Iterator[str]:
    nodes = {one.name: one for one in late.nodes}, {one.name: one for one in followed.nodes}
    for name in {**nodes[0], **nodes[1]}:
        if nodes[0].get(name) != nodes[1].get(name):
            yield f"node {name}: {nodes[0].get(name)!r} is {nodes[1].get(name)!r}"
    if late.pending != followed.pending:
        waiting = ([str(one.key) for one in snapshot.pending] for snapshot in (late, followed))
        yield "pending: {} is {}".format(*waiting)
    for one in late.records:
        if one not in followed.records:
            yield f"late only: {one!r}"
    for one in followed.records:
        if one not in late.records:
            yield f"line only: {one!r}"


def _key(one: Object) -> Key:
    return one["kind"], one["metadata"].get("namespace", "default"), one["metadata"]["name"]


def _place(one: Object) -> str:
    """Give the node that a pod or reservation is on."""
    said = one["spec"] if one["kind"] == "Pod" else one.get("status") or {}
    return str(said.get("nodeName") or "")


def _waits(pod: Object) -> bool:
    return not pod["spec"].get("nodeName")


# -- edits: each changes an object in place as the number says ---------------------------------------------


def _amounts(node: Object, number: int) -> None:
    node.setdefault("status", {}).setdefault("allocatable", {})["cpu"] = ("2", "4", "8", "16")[number % 4]


def _lists(node: Object, number: int) -> None:
    """A node lists a resource that nobody may have named before, or no longer does."""
    there = node.setdefault("status", {}).setdefault("allocatable", {})
    name = f"example.com/kind-{number % 5}"
    if there.pop(name, None) is None:
        there[name] = str(number % 3)


def _label(node: Object, number: int) -> None:
    node["metadata"].setdefault("labels", {})["disk"] = "ab"[number % 2]


def _zone(node: Object, number: int) -> None:
    node["metadata"].setdefault("labels", {})["zone"] = "abc"[number % 3]


def _cordon(node: Object, number: int) -> None:
    node["spec"]["unschedulable"] = not node["spec"].get("unschedulable", False)


def _taint(node: Object, number: int) -> None:
    effect = ("NoSchedule", "PreferNoSchedule", "NoExecute")[number % 3]
    taint = {"key": "only", "value": "ab"[number % 2], "effect": effect}
    node["spec"]["taints"] = [] if node["spec"].get("taints") else [taint]


def _policy(node: Object, number: int) -> None:
    policy = ("", "BestEffort", "Restricted", "SingleNUMANode")[number % 4]
    node["metadata"].setdefault("labels", {})["node.koordinator.sh/numa-topology-policy"] = policy


def _keeps(node: Object, number: int) -> None:
    text = json.dumps({"resources": {"cpu": f"{number % 3}"}})
    node["metadata"].setdefault("annotations", {})["node.koordinator.sh/reservation"] = text


def _device(one: Object, number: int) -> None:
    cards = one["spec"]["devices"]
    card = cards[number % len(cards)]
    card["health"] = not card["health"]


def _quota(one: Object, number: int) -> None:
    one["spec"].setdefault("max", {})["cpu"] = str(1 + number % 6)


def _group(one: Object, number: int) -> None:
    if "schedulingPolicy" in one["spec"]:
        one["spec"]["schedulingPolicy"] = {"gang": {"minCount": 1 + number % 4}}
    else:
        one["spec"]["minMember"] = 1 + number % 4


def _slice(one: Object, number: int) -> None:
    """A device is tainted or no longer; or one more comes, as another generation of the pool."""
    devices = one["spec"]["devices"]
    if number % 2:
        taint = {"key": "t", "value": "1", "effect": ("NoSchedule", "NoExecute")[number % 4 // 2]}
        device = devices[number % len(devices)]
        device["taints"] = [] if device.get("taints") else [taint]
    else:
        devices.append(
            {"name": f"d{len(devices)}", "attributes": {"i": {"int": 0}, "x": {"int": number % 3}}}
        )
        one["spec"]["pool"]["generation"] += 1


def _claim(one: Object, number: int) -> None:
    """A claim is given back."""
    one["status"] = {}


def _budget(one: Object, number: int) -> None:
    one["status"]["disruptionsAllowed"] = number % 3


def _reservation(one: Object, number: int) -> None:
    one["spec"]["allocateOnce"] = not one["spec"]["allocateOnce"]


def _table(one: Object, number: int) -> None:
    zones = one["zones"]
    for resource in zones[number % len(zones)]["resources"]:
        if resource["name"] == "cpu":
            resource["allocatable"] = resource["available"] = str(1 + number % 4)


_NODE_EDITS: Final[dict[str, Callable[[Any, int], None]]] = {
    "amounts": _amounts,
    "lists": _lists,
    "label": _label,
    "zone": _zone,
    "cordon": _cordon,
    "taint": _taint,
    "policy": _policy,
    "keeps": _keeps,
}
_RECORDS: Final[dict[str, Callable[[Any, int], None]]] = {
    "Device": _device,
    "ElasticQuota": _quota,
    "PodGroup": _group,
    "PodDisruptionBudget": _budget,
    "Reservation": _reservation,
    "NodeResourceTopology": _table,
    "ResourceSlice": _slice,
    "ResourceClaim": _claim,
}
