"""Between a snapshot and a replay: nodes and arrivals out of one, the end of the other back into one."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.devices import GPU_COUNT
from koordcore.model.kueue import WORKLOAD_ANNOTATION
from koordcore.model.pods import Pod
from koordcore.model.scheduling_groups import SchedulingPodGroup, SchedulingWorkload, leaf_id
from koordcore.protocol.gang_names import gang_name
from koordcore.scheduling.plain_cards import plain_cards
from koordcore.scheduling.plugins.gpu_share import GPU_INDEX, GPU_MILLI, demand_of, gpu_node
from koordcore.scoring.foresight import MILLI, largest_aligned_block, starved_cards
from koordcore.scoring.fragmentation import FragmentationMeasure, WorkloadMix
from koordcore.scoring.gpu_share import CARD, GpuNode
from koordcore.simulate.course import Replay
from koordcore.simulate.events import Arrival, Event, GangArrival, Task
from koordcore.snapshot import ClusterSnapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@record(kw_only=True)
class ClusterFragmentation:
    """How useful the idle cards of a cluster are.

    Parameters
    ----------
    idle
        Idle card milli.
    fragmented
        Of these, what a task of the mix cannot use, as an expectation (the FGD measure).
    starved
        Of these, what finds no CPU on its node at the mix's mean rate.
    free
        Wholly free cards.
    blocks
        Of these, cards within the largest aligned free block of their node: what jobs of many cards can get.
    """

    idle: int
    fragmented: float
    starved: float
    free: int
    blocks: int


def nodes_of(snapshot: ClusterSnapshot) -> tuple[GpuNode, ...]:
    """Give the nodes as a replay starts from them, with what their pods leave.

    Nodes without a Device object have the cards that they count.
    """
    found = ((state, gpu_node(snapshot, state)) for state in snapshot.nodes)
    return tuple(
        node if node.cards else attrs.evolve(node, cards=plain_cards(state)) for state, node in found
    )


def fragmentation_of(snapshot: ClusterSnapshot, mix: WorkloadMix) -> ClusterFragmentation:
    """Measure the idle cards of a snapshot against the work to be expected.

    Parameters
    ----------
    snapshot
        The cluster.
    mix
        All the work; its typical shapes count.
    """
    typical = mix.typical()
    measure = FragmentationMeasure(typical)
    nodes = nodes_of(snapshot)
    return ClusterFragmentation(
        idle=sum(node.idle for node in nodes),
        fragmented=sum(measure.weighted(node) for node in nodes) / typical.kept,
        starved=sum(starved_cards(node.idle, node.cpu, typical) for node in nodes) / MILLI,
        free=sum(node.cards.count(CARD) for node in nodes),
        blocks=sum(largest_aligned_block(node.cards) for node in nodes),
    )


def arrivals_of(
    pods: Iterable[Pod], groups: Iterable[SchedulingPodGroup | SchedulingWorkload] = ()
) -> tuple[Event, ...]:
    """Let pods arrive when they were created, a gang when its last member was; none of them ever ends.

    The pods of one Workload of Kueue are a gang.

    Times are seconds since 1970; a pod without a creation time comes first. Tasks are called by the pods'
    keys (``namespace/name``).

    Parameters
    ----------
    pods
        Who arrives.
    groups
        Kubernetes' own groups, and Workloads that hold some (v1alpha1); those with a ``minCount`` are gangs
        of all their pods.
    """
    minimum = set[str]()
    for group in groups:
        if isinstance(group, SchedulingPodGroup):
            minimum |= {group.id} if group.min_count is not None else set()
        else:
            gangs_of = (name for name, least in group.pod_groups.items() if least is not None)
            minimum |= {f"workload:{group.namespace}/{group.name}/{name}" for name in gangs_of}
    singles: list[Pod] = []
    gangs: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (_second(pod), pod.namespace, pod.name)):
        name = gang_name(pod.labels, pod.annotations) or pod.annotations.get(WORKLOAD_ANNOTATION)
        if name:
            gangs.setdefault(f"{pod.namespace}/{name}", []).append(pod)
        elif pod.scheduling_group is not None and _group_of(pod) in minimum:
            gangs.setdefault(leaf_id(pod), []).append(pod)
        else:
            singles.append(pod)
    events: list[tuple[int, str, Event]] = []
    for pod in singles:
        task = Task(name=str(pod.key), demand=demand_of(pod))
        events.append((_second(pod), task.name, Arrival(_second(pod), task)))
    for gang, members in gangs.items():
        tasks = tuple(Task(name=str(pod.key), demand=demand_of(pod)) for pod in members)
        time = max(map(_second, members))
        events.append((time, gang, GangArrival(time, gang, tasks)))
    return tuple(event for _, _, event in sorted(events, key=lambda entry: entry[:2]))


def _group_of(pod: Pod) -> str:
    """Name the group that says of a pod how many start together; replicas of one are gangs of their own."""
    leaf = leaf_id(pod)
    return leaf.rpartition("/")[0] if leaf.startswith("workload:") else leaf


def _second(pod: Pod) -> int:
    return (pod.created - _EPOCH) // timedelta(seconds=1) if pod.created else 0


def final_snapshot(snapshot: ClusterSnapshot, replay: Replay) -> ClusterSnapshot:
    """Bind the snapshot's pending pods where a replay of them left them running.

    Cards asked for in Alibaba's convention are written on the pod; for others the cards remain open.

    Raises
    ------
    ModelError
        When a task is no pending pod of the snapshot, or sits on a node that the snapshot does not have.
    """
    pods = {str(pod.key): pod for pod in snapshot.pending}
    bound = []
    for placement in replay.running:
        pod = pods.get(placement.task)
        if pod is None:
            raise ModelError(f"task {placement.task} is no pending pod of the snapshot")
        snapshot.node(placement.node)
        annotations = dict(pod.annotations)
        if placement.slots and (GPU_MILLI in annotations or GPU_COUNT in annotations):
            annotations[GPU_INDEX] = "-".join(map(str, placement.slots))
        bound.append(attrs.evolve(pod, node_name=placement.node, annotations=immutabledict(annotations)))
    return snapshot.assume(*bound)
