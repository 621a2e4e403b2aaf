"""Workloads of Kueue that wait: with what, in which order, and why one is in no queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from koordcore._record import record
from koordcore.controlplane.flavors import FlavorChoice, Options
from koordcore.model.cluster import Namespace
from koordcore.model.kueue import ClusterQueue, KueueWorkload, LocalQueue
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.model.pods import Pod
from koordcore.protocol.times import format_time
from koordcore.protocol.workload_pods import pod_set_of
from koordcore.snapshot import ClusterSnapshot

_EARLIEST: Final = datetime(1, 1, 1, tzinfo=UTC)
_NAME_LABEL: Final = "kubernetes.io/metadata.name"


@record
class Entry:
    """A Workload that waits, with its queue and pods, and the flavors that it may have.

    Parameters
    ----------
    choices
        The first assignments of all that ``options`` leave.
    """

    workload: KueueWorkload
    queue: ClusterQueue
    pods: tuple[Pod, ...]
    choices: tuple[FlavorChoice, ...] = ()
    options: Options = ()

    def one_of_each(self) -> dict[str, Pod]:
        """Give one pod of every pod set."""
        return {pod_set_of(pod, self.workload): pod for pod in reversed(self.pods)}

    def counts(self) -> dict[str, int]:
        """Count the pods of each pod set."""
        found = {one.name: 0 for one in self.workload.pod_sets}
        for pod in self.pods:
            found[pod_set_of(pod, self.workload)] += 1
        return found

    @property
    def asked(self) -> dict[str, Mapping[str, int]]:
        """What one pod of every pod set asks for."""
        return {name: pod.requests for name, pod in self.one_of_each().items()}


def rank(one: KueueWorkload) -> tuple[int, datetime, str]:
    """Give what Workloads of a queue are ordered by: priority, age and name."""
    return -one.priority, one.created or _EARLIEST, one.key


def behind(first: KueueWorkload) -> str:
    """Say why a Workload waits behind one of a ``StrictFIFO`` queue."""
    return f"behind {first.key}, which cannot start (StrictFIFO)"


def why_in_no_queue(
    workload: KueueWorkload,
    local: LocalQueue | None,
    queue: ClusterQueue | None,
    snapshot: ClusterSnapshot,
    now: datetime | None,
) -> str:
    """Say why a Workload is in no line; empty where it is."""
    if not workload.active:
        return "it is not active"
    if why := _why_held_back(workload, now):
        return why
    if local is None:
        named = f"LocalQueue {workload.queue}" if workload.queue else "queue named"
        return f"there is no {named} in namespace {workload.namespace}"
    if queue is None:
        return f"there is no ClusterQueue {local.cluster_queue}"
    if local.stopped or queue.stopped:
        return f"{'LocalQueue ' + local.name if local.stopped else 'ClusterQueue ' + queue.name} is stopped"
    if why := _why_inactive(queue, snapshot):
        return f"ClusterQueue {queue.name} is not active: {why}"
    known = snapshot.find(Namespace, workload.namespace)
    labels = {_NAME_LABEL: workload.namespace, **({} if known is None else known.labels)}
    if not queue.namespace_selector.matches(labels):
        return f"ClusterQueue {queue.name} does not select namespace {workload.namespace}"
    return ""


def _why_inactive(queue: ClusterQueue, snapshot: ClusterSnapshot) -> str:
    """Say which object a queue refers to is not there; without it Kueue admits nobody."""
    for name in dict.fromkeys(one.flavor for group in queue.groups for one in group.flavors):
        flavor = snapshot.find(ResourceFlavor, name)
        if flavor is None:
            return f"there is no ResourceFlavor {name}"
        if flavor.topology and snapshot.find(KueueTopology, flavor.topology) is None:
            return f"there is no Topology {flavor.topology}, which ResourceFlavor {name} names"
    return ""


def _why_held_back(workload: KueueWorkload, now: datetime | None) -> str:
    """Say why a Workload is not queued again after its eviction; empty where it is, or was never evicted."""
    until = workload.requeue_at
    if until is None:
        return "it was evicted and is not queued again yet (Requeued is False)" if workload.held_back else ""
    # Once the time has come Kueue says that it is queued again.
    if (now is None and workload.held_back) or (now is not None and now < until):
        return f"it was evicted and is not queued again before {format_time(until)} (requeueAt)"
    return ""


def first_pods(entry: Entry, counts: Mapping[str, int]) -> Iterator[Pod]:
    """Give the first pods of every pod set, so many of each."""
    left = dict(counts)
    for pod in entry.pods:
        name = pod_set_of(pod, entry.workload)
        left[name] -= 1
        if left[name] >= 0:
            yield pod
