"""The batch queue as a scheduler of a cluster in a bottle: ``python -m examples.batch_queue.bottled``.

The queue is a value, and so it is made anew out of what the watches have shown whenever somebody may start:
who runs, who waits, who still leaves. What it decides becomes requests; nothing is decided until they are
seen done, or until none of them can arrive any more. It writes nothing down: it is not made to be killed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

import attrs

from examples.batch_queue.queue import Job, Queue, Run, What, dispatch
from koordcore import ClusterSnapshot, Pod, PodKey
from koordcore.controlplane import Feed, Moment, Request
from koordcore.simulate.world import (
    Act,
    Answered,
    Books,
    Listed,
    News,
    Post,
    Rang,
    SetBell,
    Watched,
    named_profile,
    run_world,
)

GANG: Final = "pod-group.scheduling.sigs.k8s.io"
LIMIT: Final = 60
"""Seconds that a workload may run, as far as backfilling is concerned."""
LEAVING: Final = 30
"""Seconds that a pod may take to go."""
_LEAST: Final = -(1 << 31)
HALF: Final = 10
"""Seconds after which the running part of a gang that does not find room for the rest is given up."""
LATEST: Final = 12.0
"""Seconds after which a request cannot arrive any more."""


@attrs.frozen(kw_only=True)
class Workload(Job):
    """A job whose pods others have made: a gang, or one pod."""

    members: tuple[Pod, ...]

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Its pods, without the nodes on which they are."""
        return tuple(attrs.evolve(pod, node_name=None) for pod in self.members)

    @property
    def keys(self) -> tuple[PodKey, ...]:
        """Names of its pods."""
        return tuple(pod.key for pod in self.members)


class BottledQueue:
    """One process of the queue."""

    def __init__(self) -> None:
        self.feed, self.snapshot = Feed(), ClusterSnapshot()
        self._first: dict[str, int] = {}
        """When each job was first seen, by the uid of its first pod."""
        self._due: dict[PodKey, str] = {}
        """Pods about which something is under way, with their uids."""
        self._going: set[PodKey] = set()
        self._half: dict[str, tuple[int, tuple[PodKey, ...]]] = {}
        """Gangs that run in part: since when, and who runs."""
        self._then: dict[int, Request] = {}
        """What is sent once something else was done, by the ticket of that."""
        self._tickets = self._bell = 0

    def books(self) -> Books:
        """Give the cluster as it stands in the feed."""
        return Books(self.snapshot.apply(*self.feed.pending), self.feed.mirror)

    def hear(self, news: News, moment: Moment) -> Iterator[Act]:
        """Take in the news; decide where nothing is under way."""
        match news:
            case Listed(kind, items, version):
                self.feed.listed(kind, items, version)
            case Watched(kind, what, item):
                self.feed.watched(kind, what, item)
            case Rang(bell) if bell == self._bell:
                self._due.clear()
            case Answered(ticket, answer):
                then = self._then.pop(ticket, None)
                if then is not None and answer.done:
                    yield self._post(then)
                return
            case Rang():
                return
        self._due = {key: uid for key, uid in self._due.items() if not self._seen(key, uid)}
        if self.feed.mirror.whole and not self._due:
            yield from self._decide(int(moment.now))

    def _seen(self, key: PodKey, uid: str) -> bool:
        """Tell whether the mirror shows that a pod was bound or told to go, or that it is another one."""
        pod = self.feed.mirror.find("Pod", key.name, key.namespace)
        if pod is None or pod["metadata"]["uid"] != uid or "deletionTimestamp" in pod["metadata"]:
            return True
        return key not in self._going and "nodeName" in pod["spec"]

    def _decide(self, now: int) -> Iterator[Act]:
        self.snapshot = self.snapshot.apply(*self.feed.take()[0])
        queue = dispatch(self._queue(now), now)
        jobs = {job.name: job for job in (*queue.waiting, *(run.job for run in queue.running))}
        preempted = [one.job for one in queue.diary if one.what is What.PREEMPTED]
        # Who leaves takes his time: whoever comes after the first of them in this round waits for it.
        at = next((number for number, one in enumerate(queue.diary) if one.what is What.PREEMPTED), None)
        started = [one.job for one in queue.diary[:at]]
        after = queue.diary[len(queue.diary) if at is None else at :]
        reason = next((one.job for one in after if one.what is not What.PREEMPTED), "")
        going = [jobs[name] for name in preempted if reason and jobs[name].priority > _LEAST]
        self._going = {key for job in going for key in job.keys}
        for key in sorted(self._going):
            told, evicted = self._evict(key, reason)
            yield self._post(told)
            self._then[self._tickets] = evicted
        overdue = [keys for since, keys in self._half.values() if now - since > HALF]
        for key in sorted(key for keys in overdue for key in keys if key not in self._going):
            self._going.add(key)
            yield self._post(self._evict(key, "")[1])
        for name in started:
            for key in jobs[name].keys:
                yield self._post(self._bind(key, queue.cluster))
        if self._due:
            self._bell += 1
            yield SetBell(self._bell, LATEST)

    def _queue(self, now: int) -> Queue:
        """Make the queue of what the cluster looks like."""
        groups: dict[str, list[Pod]] = {}
        for pod in (*self.snapshot.bound_pods(), *self.snapshot.pending):
            groups.setdefault(pod.labels.get(GANG) or pod.name, []).append(pod)
        half: dict[str, tuple[int, tuple[PodKey, ...]]] = {}
        running: list[Run] = []
        waiting: list[Job] = []
        for name, pods in sorted(groups.items()):
            there = [pod for pod in pods if pod.node_name and pod.deleted is None]
            coming = [pod for pod in pods if not pod.node_name and pod.deleted is None]
            leaving = [pod for pod in pods if pod.node_name and pod.deleted is not None]
            if leaving:  # their room is to be had, if not yet: they give way to everybody
                gone = attrs.evolve(self._job(f"{name} leaving", leaving, now), priority=_LEAST)
                running.append(Run(gone, now, now + LEAVING))
            if there:
                job = self._job(name if not coming else f"{name} running", there, now)
                running.append(Run(job, job.submitted, job.submitted + LIMIT))
            if there and coming and GANG in there[0].labels:
                half[name] = self._half.get(name, (now,))[0], tuple(pod.key for pod in there)
            if coming and self._whole(name, [*there, *coming]):
                waiting.append(self._job(name, coming, now))
        self._half = half
        return Queue(cluster=self.snapshot, running=tuple(running), waiting=tuple(waiting))

    def _job(self, name: str, pods: list[Pod], now: int) -> Workload:
        return Workload(
            name=name,
            submitted=self._first.setdefault(min(pod.uid for pod in pods), now),
            limit=LIMIT,
            width=len(pods),
            priority=pods[0].priority,
            requests=pods[0].requests,
            members=tuple(pods),
        )

    def _whole(self, name: str, pods: list[Pod]) -> bool:
        group = self.feed.mirror.find("PodGroup", name, "default")
        if GANG not in pods[0].labels:
            return True
        return group is not None and len(pods) >= group["spec"]["minMember"]

    def _bind(self, key: PodKey, cluster: ClusterSnapshot) -> Request:
        uid = self._uid(key)
        self._due[key] = uid
        body: dict[str, Any] = {"metadata": {"name": key.name, "uid": uid}}
        body["target"] = {"kind": "Node", "name": cluster.location[key]}
        return Request(method="POST", path=f"{_path(key)}/binding", body=body)

    def _post(self, request: Request) -> Post:
        self._tickets += 1
        return Post(self._tickets, request)

    def _evict(self, key: PodKey, job: str) -> tuple[Request, Request]:
        """Say for whom a pod leaves, and have it evicted then."""
        uid = self._uid(key)
        self._due[key] = uid
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        # The loader reads for whom a pod leaves out of such a message.
        condition["message"] = f"koordcore: preempting to accommodate default/{job}"
        said = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        body = {"metadata": {"name": key.name}, "deleteOptions": {"preconditions": {"uid": uid}}}
        return (
            Request(method="PATCH", path=f"{_path(key)}/status", body=said),
            Request(method="POST", path=f"{_path(key)}/eviction", body=body),
        )

    def _uid(self, key: PodKey) -> str:
        pod = self.feed.mirror.find("Pod", key.name, key.namespace)
        assert pod is not None
        return str(pod["metadata"]["uid"])


def _path(key: PodKey) -> str:
    return f"/api/v1/namespaces/{key.namespace}/pods/{key.name}"


def main() -> int:
    """Let the queue live through some worlds."""
    plain: dict[str, Any] = {"cards": 0, "quotas": 0, "budgets": 0, "nodes": 3, "arrival": 800, "most": 15}
    for name in ("calm", "nodes", "network"):
        run = run_world(1, attrs.evolve(named_profile(name), **plain), lambda seat: BottledQueue())
        print(
            f"{name}: {run.events} events, {run.counts['begin']} starts, {run.counts['evictions']} evictions"
        )
        for breach in run.breaches:
            print(f"  {breach.rule.value} at {breach.time / 1000:.0f} s: {breach.what}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
