"""The gangs of a snapshot, followed family by family, are those that one event after the other gives."""

from __future__ import annotations

import json
import random

import pytest
from immutabledict import immutabledict

from koordcore.allocators.gang.events import add_pod, add_pod_group
from koordcore.allocators.gang.state import GangState
from koordcore.model.gangs import PodGroup
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.protocol.gang import gang_from_pod_group, gang_name, parse_gang_pod
from koordcore.scheduling.gang_states import gang_state
from koordcore.snapshot import ClusterSnapshot

GROUP = "pod-group.scheduling.sigs.k8s.io"
PREFIX = "gang.scheduling.koordinator.sh/"


def one_by_one(snapshot: ClusterSnapshot) -> GangState:
    state = GangState()
    for group in snapshot.of(PodGroup):
        state = add_pod_group(state, gang_from_pod_group(group).gang).state
    for pod in sorted((*snapshot.bound_pods(), *snapshot.pending), key=lambda one: one.key):
        if gang_name(pod.labels, pod.annotations):
            seen = parse_gang_pod(
                namespace=pod.namespace,
                name=pod.name,
                uid=str(pod.key),
                labels=pod.labels,
                annotations=pod.annotations,
                node_name=pod.node_name or "",
            ).pod
            state = add_pod(state, seen).state
    return state


def random_gangs(seed: int) -> ClusterSnapshot:
    rng = random.Random(seed)
    names = [f"g{number}" for number in range(rng.randint(1, 6))]

    def together() -> immutabledict[str, str]:
        some = rng.sample([*names, "unknown"], rng.randint(1, min(3, len(names))))
        ids = [f"default/{name}" for name in some]
        return immutabledict({} if rng.random() < 0.5 else {PREFIX + "groups": json.dumps(ids)})

    records = [
        PodGroup(namespace="default", name=name, min_member=rng.randint(0, 3), annotations=together())
        for name in names
        if rng.random() < 0.6
    ]
    pods = []
    for number in range(rng.randint(0, 12)):
        gang, node = rng.choice(names), rng.choice([None, "n1"])
        if rng.random() < 0.5:
            pods.append(Pod(name=f"p{number}", labels={GROUP: gang}, node_name=node))
            continue
        told = {PREFIX + "name": gang, PREFIX + "min-available": str(rng.randint(0, 3)), **together()}
        pods.append(Pod(name=f"p{number}", annotations=told, node_name=node))
    there = NodeState(Node(name="n1", allocatable={"pods": 99}), tuple(pod for pod in pods if pod.node_name))
    return ClusterSnapshot(nodes=[there], pending=[pod for pod in pods if not pod.node_name], records=records)


@pytest.mark.parametrize("seed", range(60))
def test_families_apart_are_what_they_are_together(seed: int) -> None:
    snapshot = random_gangs(seed)
    assert gang_state(snapshot) == one_by_one(snapshot)
