"""Workloads of Kueue that a plan admits: their queue, their flavors, and quota for all of them together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from koordcore.checking.permits import as_placed
from koordcore.checking.queue_room import Kind, QueueRoom
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.affinity import TaintEffect, Tolerances
from koordcore.model.cluster import Namespace
from koordcore.model.decisions import Bound
from koordcore.model.kueue import (
    PODS,
    AdmittedWorkload,
    ClusterQueue,
    Cohort,
    KueueWorkload,
    LocalQueue,
    PodSet,
)
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.protocol.exact import exact_of
from koordcore.protocol.workload_pods import HOSTNAME, pod_set_of, workload_of
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_NAME: Final = "kubernetes.io/metadata.name"


def check_workloads(
    snapshot: ClusterSnapshot, result: ScheduleResult, now: datetime | None = None
) -> Iterator[Violation]:
    """Every admitted Workload waits in a queue that gives it its flavors, and quota is there for all."""
    if not result.admitted:
        return
    for name, times in sorted(Counter(one.workload for one in result.admitted).items()):
        if times > 1:
            yield Violation(ViolationKind.DECIDED_TWICE, _named(name), "is admitted more than once")
    book = _Book(snapshot, result, now)
    for one in sorted(result.admitted, key=lambda one: one.workload):
        for message in book.wrong(one):
            yield Violation(ViolationKind.QUOTA, _named(one.workload), message)
    yield from book.short()


def _named(key: str) -> str:
    return f"Workload {key}"


class _Book:
    """What the cluster says about its queues, and what the Workloads of a plan use of them."""

    def __init__(self, snapshot: ClusterSnapshot, result: ScheduleResult, now: datetime | None) -> None:
        self._snapshot, self._now = snapshot, now
        self._workloads = {one.key: one for one in snapshot.of(KueueWorkload)}
        self._queues = {one.name: one for one in snapshot.of(ClusterQueue)}
        self._flavors = {one.name: one for one in snapshot.of(ResourceFlavor)}
        self._topologies = {one.name: one for one in snapshot.of(KueueTopology)}
        self._room = QueueRoom(self._queues.values(), snapshot.of(Cohort), self._workloads.values())
        nodes = {state.name: state.node for state in snapshot.nodes}
        decided = (one for one in as_placed(result).decisions if isinstance(one, Bound))
        self._places = {one.pod: nodes[one.node] for one in decided if one.node in nodes}
        self._members: dict[str, list[Pod]] = {one.workload: [] for one in result.admitted}
        for pod in snapshot.pending:
            if (name := workload_of(pod)) in self._members:
                self._members[name].append(pod)
        self._taken: dict[str, Counter[Kind]] = {}

    def wrong(self, one: AdmittedWorkload) -> Iterator[str]:
        """Say what of an admission is not right, and count what it uses."""
        workload, queue = self._workloads.get(one.workload), self._queues.get(one.queue)
        why = self._out_of_line(one, workload, queue)
        if why or workload is None or queue is None:
            yield why
            return
        pods: dict[str, list[Pod]] = {each.name: [] for each in workload.pod_sets}
        for pod in self._members[one.workload]:
            pods[pod_set_of(pod, workload)].append(pod)
        there = [each for each in workload.pod_sets if pods[each.name]]
        yield from self._numbers(there, pods)
        for each in there:
            yield from self._flavored(one, queue, each, pods[each.name][0])
        yield from self._apart(one, there, pods)
        for each in there:
            yield from self._misplaced(one, there, each, pods[each.name])
            self._count(one, each, pods[each.name])

    def short(self) -> Iterator[Violation]:
        """Name the quota that is not there for all that is admitted together."""
        for queue, amounts in sorted(self._taken.items()):
            self._room.use(queue, amounts)
        for queue, amounts in sorted(self._taken.items()):
            for kind in sorted(name for name, amount in amounts.items() if amount > 0):
                left = self._room.left(queue, kind)
                if left < 0:
                    used = self._room.used(queue, kind)
                    flavor, resource = kind
                    words = [
                        str(exact_of({resource: each})[resource]) for each in (used, max(0, used + left))
                    ]
                    message = f"{words[0]} {resource} of flavor {flavor} used, {words[1]} allowed"
                    yield Violation(ViolationKind.QUOTA, f"ClusterQueue {queue}", message)

    def _out_of_line(
        self, one: AdmittedWorkload, workload: KueueWorkload | None, queue: ClusterQueue | None
    ) -> str:
        """Say why a Workload may not get quota of a queue, whatever is left of it."""
        if workload is None:
            return "is not in the cluster"
        if workload.finished or workload.admitted_by:
            return "does not wait for quota"
        if not workload.active:
            return "is not active"
        until = workload.requeue_at
        # Without a moment nobody knows whether the time has come.
        early = workload.held_back if until is None else self._now is not None and self._now < until
        if early:
            return "was evicted and is not queued again"
        local = self._snapshot.find(LocalQueue, workload.queue, workload.namespace)
        if local is None or local.cluster_queue != one.queue:
            return f"waits in no queue of ClusterQueue {one.queue}"
        if queue is None:
            return f"there is no ClusterQueue {one.queue}"
        if local.stopped or queue.stopped:
            return "its queue is stopped"
        space = self._snapshot.find(Namespace, workload.namespace)
        labels = dict(space.labels) if space is not None else {}
        if not queue.namespace_selector.matches({_NAME: workload.namespace, **labels}):
            return f"ClusterQueue {one.queue} does not select its namespace"
        flavors = [quota.flavor for group in queue.groups for quota in group.flavors]
        missing = [name for name in flavors if name not in self._flavors]
        names = (self._flavors[name].topology for name in flavors if name in self._flavors)
        missing += [name for name in names if name and name not in self._topologies]
        if missing:
            return f"ClusterQueue {one.queue} is not active without {missing[0]}"
        if self._room.round_in_circles(one.queue):
            return f"the cohorts above ClusterQueue {one.queue} form a cycle"
        return ""

    def _numbers(self, there: Sequence[PodSet], pods: Mapping[str, Sequence[Pod]]) -> Iterator[str]:
        """Of every pod set as many pods start as are enough."""
        for each in there:
            placed = sum(pod.key in self._places for pod in pods[each.name])
            whole = len(pods[each.name])
            if placed < min(each.least, whole) or not placed:
                yield f"{placed} of the pods of {each.name} start, {min(each.least, whole)} have to"

    def _flavored(self, one: AdmittedWorkload, queue: ClusterQueue, each: PodSet, pod: Pod) -> Iterator[str]:
        """The queue gives what the pods ask for, one flavor to the resources of a group, for such pods."""
        asked = {name for name, amount in pod.requests.items() if amount}
        covered = {name for group in queue.groups for name in group.resources}
        for name in sorted(asked - covered):
            yield f"{each.name}: ClusterQueue {queue.name} has no {name}"
        for group in queue.groups:
            wanted = [name for name in group.resources if name in asked or name == PODS]
            given = {name: one.flavors.get(f"{each.name}/{name}", "") for name in wanted}
            offered = {quota.flavor for quota in group.flavors}
            for name, flavor in given.items():
                if flavor not in offered:
                    what = f"flavor {flavor}" if flavor else "a flavor"
                    yield f"{each.name}: ClusterQueue {queue.name} does not give {name} of {what}"
            if len(set(given.values())) > 1:
                yield f"{each.name}: {', '.join(wanted)} have one flavor, not {', '.join(given.values())}"
            for name in sorted(set(given.values()) & offered):
                why = self._unfit(name, each, pod)
                if why:
                    yield f"{each.name}: {why}"

    def _unfit(self, name: str, each: PodSet, pod: Pod) -> str:
        """Say why a flavor is not for a pod set; empty where it is."""
        flavor = self._flavors[name]
        allowed = Tolerances((*pod.tolerations, *flavor.tolerations))
        for taint in flavor.taints:
            if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE and not allowed.cover(taint):
                return f"does not tolerate {taint} of flavor {name}"
        for key, value in flavor.node_labels.items():
            if pod.node_selector.get(key, value) != value:
                return f"wants {key}={pod.node_selector[key]}, which flavor {name} has not"
        if _elsewhere(pod, flavor):
            return f"requires labels that flavor {name} has not"
        levels = self._levels([flavor])
        wish = each.topology
        for level in (wish.required, wish.preferred, wish.slice_level):
            if level and level not in levels:
                return f"flavor {name} has no topology level {level}"
        return ""

    def _apart(
        self, one: AdmittedWorkload, there: Sequence[PodSet], pods: Mapping[str, Sequence[Pod]]
    ) -> Iterator[str]:
        """Pod sets of one group take one flavor, and lie in one domain where one is required."""
        groups: dict[str, list[PodSet]] = {}
        for each in there:
            groups.setdefault(each.topology.group or f"/{each.name}", []).append(each)
        for group in groups.values():
            names = [each.name for each in group]
            resources = {key.partition("/")[2] for key in one.flavors}
            for resource in sorted(resources):
                found = {one.flavors.get(f"{name}/{resource}", "") for name in names} - {""}
                if len(found) > 1:
                    yield f"{', '.join(names)}: flavors {', '.join(sorted(found))} in one group of pod sets"
            levels = self._levels(self._given(one, there, group[0]))
            for level in dict.fromkeys(each.topology.required for each in group):
                if level not in levels:
                    continue
                path = levels[: levels.index(level) + 1]
                nodes = [self._places.get(pod.key) for name in names for pod in pods[name]]
                domains = {tuple(_label(node, key) for key in path) for node in nodes if node is not None}
                if len(domains) > 1:
                    yield f"{', '.join(names)}: in {len(domains)} domains of {level}, one is required"

    def _misplaced(
        self, one: AdmittedWorkload, there: Sequence[PodSet], each: PodSet, pods: Sequence[Pod]
    ) -> Iterator[str]:
        """Every pod is on a node of its flavors, and in a domain of each level of their topology."""
        given = self._given(one, there, each)
        labels = {pair for flavor in given for pair in flavor.node_labels.items()}
        levels = self._levels(given)
        for pod in pods:
            node = self._places.get(pod.key)
            if node is None:
                continue
            strange = sorted(key for key, value in labels if node.labels.get(key) != value)
            if strange:
                names = ", ".join(flavor.name for flavor in given)
                yield f"{pod.name} is on {node.name}, which is not of flavor {names} by {strange[0]}"
            for level in levels:
                if not _label(node, level):
                    yield f"{pod.name} is on {node.name}, which is in no domain of {level}"

    def _given(self, one: AdmittedWorkload, there: Sequence[PodSet], each: PodSet) -> list[ResourceFlavor]:
        """List the flavors of a pod set; those of its group where it asks for nothing that has one."""

        def of(names: Sequence[str]) -> list[str]:
            return [flavor for key, flavor in one.flavors.items() if key.partition("/")[0] in names]

        group = each.topology.group
        alike = [other.name for other in there if group and other.topology.group == group]
        named = dict.fromkeys(of([each.name]) or of(alike))
        return [self._flavors[name] for name in named if name in self._flavors]

    def _levels(self, flavors: Sequence[ResourceFlavor]) -> tuple[str, ...]:
        found = (self._topologies[one.topology].levels for one in flavors if one.topology in self._topologies)
        return next(found, ())

    def _count(self, one: AdmittedWorkload, each: PodSet, pods: Sequence[Pod]) -> None:
        """Count what the pods of a pod set that start use; the first tells what each of them asks for."""
        number = sum(pod.key in self._places for pod in pods)
        taken = self._taken.setdefault(one.queue, Counter())
        for key, flavor in one.flavors.items():
            name, _, resource = key.partition("/")
            if name == each.name:
                amount = 1 if resource == PODS else pods[0].requests.get(resource, 0)
                taken[flavor, resource] += number * amount


def _elsewhere(pod: Pod, flavor: ResourceFlavor) -> bool:
    """Tell whether all that a pod's required node affinity allows speaks against a flavor's labels."""
    own = pod.affinity.node if pod.affinity else None
    terms = own.required.terms if own and own.required else ()
    labels = flavor.node_labels
    return bool(terms) and all(
        any(each.key in labels and not each.matches(labels) for each in term.expressions) for term in terms
    )


def _label(node: Node, level: str) -> str:
    return node.name if level == HOSTNAME else node.labels.get(level, "")
