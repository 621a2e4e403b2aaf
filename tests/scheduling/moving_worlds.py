"""Random small clusters with everything that can forbid a move."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import attrs

from koordcore.descheduling.plans import MoveRules
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, Taint, TaintEffect
from koordcore.model.cluster import PodDisruptionBudget, Workload
from koordcore.model.devices import GPU_CORE, GPU_MEMORY_RATIO, Device, DeviceObject, DeviceType
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import Node
from koordcore.model.pods import HostPort, OwnerReference, Pod, PodPhase
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.rebalance import (
    EvictionLimits,
    LowNodeLoadArgs,
    MigrationControllerArgs,
    NodePool,
    Thresholds,
)
from koordcore.model.selectors import LabelSelector
from koordcore.scheduling import schedule
from koordcore.snapshot import ClusterSnapshot
from tests.reservations.worlds import reservation

NOW: Final = 10**18
GANG: Final = "pod-group.scheduling.sigs.k8s.io"
CARD: Final = {GPU_CORE: 100, GPU_MEMORY_RATIO: 100}
POLICY: Final = Policy().with_plugin(PluginSetting(name="DeviceShare"))
HOT: Final = LowNodeLoadArgs(
    pools=(NodePool(high=Thresholds({"cpu": 50.0}), prod_high=Thresholds({"cpu": 40.0})),)
)


def random_world(seed: int) -> tuple[ClusterSnapshot, MoveRules]:
    """Make three to six nodes of two cards with pods that were really scheduled there, and limits."""
    chance = random.Random(seed)
    names = [f"n{index}" for index in range(chance.randint(3, 6))]
    nodes = [_node(name, chance) for name in names]
    devices = [
        DeviceObject(
            name=name,
            devices=tuple(Device(type=DeviceType.GPU, minor=minor, resources=CARD) for minor in range(2)),
        )
        for name in names
    ]
    pods = [_pod(index, chance) for index in range(chance.randint(5, 15))]
    empty = ClusterSnapshot(nodes=nodes).with_records(*devices)
    placed = schedule(empty, pods, policy=POLICY).snapshot
    running = [_started(pod, chance) for pod in placed.bound_pods()]
    if chance.random() < 0.3:
        empty = empty.with_records(reservation("r", chance.randint(1, 3), chance.choice(names), "web"))
    snapshot = empty.assume(*running).with_records(
        *_records(running, chance), *_metrics(running, names, chance)
    )
    return snapshot, _rules(chance)


def _node(name: str, chance: random.Random) -> Node:
    return Node(
        name=name,
        labels={"kubernetes.io/hostname": name, "zone": chance.choice("xy")},
        allocatable={"cpu": 10_000, "memory": 2**34, "pods": 8, GPU_CORE: 200, GPU_MEMORY_RATIO: 200},
        unschedulable=chance.random() < 0.1,
        taints=(Taint("dedicated", "x", TaintEffect.NO_SCHEDULE),) if chance.random() < 0.1 else (),
    )


def _pod(index: int, chance: random.Random) -> Pod:
    app = chance.choice(("web", "job", "db"))
    asked = {"cpu": chance.choice((500, 1500, 2500, 3500)), "memory": 2**30}
    share = chance.choice((0, 0, 50, 100))
    if share:
        asked |= {GPU_CORE: share, GPU_MEMORY_RATIO: share}
    apart = PodAffinity(
        required=(
            PodAffinityTerm(chance.choice(("kubernetes.io/hostname", "zone")), LabelSelector({"app": app})),
        )
    )
    return Pod(
        name=f"p{index:02d}",
        uid=f"u{index}",
        labels={"app": app},
        owners=(OwnerReference("ReplicaSet", app, app, controller=True),),
        requests=asked,
        priority=chance.choice((5500, 9500)),
        affinity=Affinity(anti=apart) if chance.random() < 0.15 else None,
        node_selector={"zone": chance.choice("xy")} if chance.random() < 0.15 else {},
        host_ports=(HostPort(8080),) if chance.random() < 0.15 else (),
    )


def _started(pod: Pod, chance: random.Random) -> Pod:
    labels = {**pod.labels, GANG: "g"} if chance.random() < 0.25 else pod.labels
    return attrs.evolve(pod, labels=labels, ready=chance.random() < 0.9, phase=PodPhase.RUNNING)


def _records(pods: Sequence[Pod], chance: random.Random) -> list[PodDisruptionBudget | Workload | PodGroup]:
    made: list[PodDisruptionBudget | Workload | PodGroup] = []
    for app in ("web", "job", "db"):
        if chance.random() < 0.3:
            selector = LabelSelector({"app": app})
            made.append(
                PodDisruptionBudget(name=app, selector=selector, disruptions_allowed=chance.randint(0, 2))
            )
        if chance.random() < 0.15:
            replicas = sum(pod.labels["app"] == app for pod in pods)
            made.append(Workload(kind="ReplicaSet", name=app, uid=app, replicas=replicas))
    members = sum(GANG in pod.labels for pod in pods)
    if members:
        made.append(PodGroup(name="g", namespace="default", min_member=chance.randint(1, members)))
    return made


def _metrics(pods: Sequence[Pod], names: Sequence[str], chance: random.Random) -> list[NodeMetric]:
    return [
        NodeMetric(
            node=name,
            update_time=NOW,
            node_usage=measured_of({}),
            pods=tuple(
                PodMetric(
                    namespace=pod.namespace,
                    name=pod.name,
                    usage=measured_of({"cpu": pod.requests["cpu"] * chance.randint(50, 110) // 100}),
                )
                for pod in pods
                if pod.node_name == name
            ),
        )
        for name in names
    ]


def _rules(chance: random.Random) -> MoveRules:
    return MoveRules(
        policy=POLICY,
        migration=MigrationControllerArgs(
            max_migrating_globally=chance.choice((None, None, 1, 2)),
            max_migrating_per_node=chance.choice((2, 1, 0)),
            max_unavailable_per_workload=chance.choice((None, "50%", 2)),
            max_migrating_per_workload=chance.choice((None, 1)),
        ),
        limits=EvictionLimits(
            total=chance.choice((None, None, None, 3)), per_node=chance.choice((None, None, 1))
        ),
    )
