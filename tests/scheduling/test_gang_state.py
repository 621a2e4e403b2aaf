"""The gangs of a snapshot, followed family by family, are those that one event after the other gives."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.allocators.gang.events import add_pod, add_pod_group
from koordcore.allocators.gang.state import GangState
from koordcore.model.gangs import DEFAULT_ARGS, PodGroup
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.protocol.gang import gang_from_pod_group, parse_gang_pod
from koordcore.protocol.gang_names import gang_name
from koordcore.scheduling.gang_book import gang_book
from koordcore.scheduling.gang_states import gang_state
from koordcore.snapshot import (
    Change,
    ClusterSnapshot,
    PodBound,
    PodEnded,
    PodPending,
    PodUpdated,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
)

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


def random_gangs(seed: int, size: int = 6) -> ClusterSnapshot:
    rng = random.Random(seed)
    names = [f"g{number}" for number in range(rng.randint(1, size))]

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
    pods.append(Pod(name=f"alone{seed}", node_name=("n1", None)[seed % 2]))  # who belongs to no gang
    there = NodeState(Node(name="n1", allocatable={"pods": 99}), tuple(pod for pod in pods if pod.node_name))
    return ClusterSnapshot(nodes=[there], pending=[pod for pod in pods if not pod.node_name], records=records)


@pytest.mark.parametrize("seed", range(60))
def test_families_apart_are_what_they_are_together(seed: int) -> None:
    snapshot = random_gangs(seed)
    assert gang_state(snapshot) == one_by_one(snapshot)


def step(start: ClusterSnapshot, other: ClusterSnapshot, rng: random.Random) -> ClusterSnapshot:
    """Some of what there is goes or begins to leave; some of what is elsewhere comes."""
    changes: list[Change] = []
    there, here = {pod.key: pod for pod in other.bound_pods()}, {pod.key: pod for pod in start.bound_pods()}
    for pod in start.pending:
        if rng.random() < 0.3:
            changes.append(PodEnded(pod.key))
    for key, pod in here.items():
        if rng.random() < 0.5:
            continue
        if rng.random() < 0.3:
            changes.append(PodUpdated(attrs.evolve(pod, deleted=datetime(2026, 1, 1, tzinfo=UTC))))
        else:
            changes.append(PodEnded(key))
    after = start.apply(*changes)
    known = {*after.location, *(pod.key for pod in after.pending)}
    came: list[Change] = [PodBound(pod) for key, pod in there.items() if key not in known]
    came += [PodPending(pod) for pod in other.pending if pod.key not in known | there.keys()]
    groups, others = ({one.name: one for one in two.of(PodGroup)} for two in (after, other))
    for name in sorted(groups.keys() | others.keys()):
        if rng.random() < 0.5:
            if name not in groups:
                came.append(RecordAdded(others[name]))
            else:
                came.append(RecordReplaced(others[name]) if name in others else RecordRemoved(groups[name]))
    return after.apply(*came)


@pytest.mark.parametrize("seed", range(60))
def test_gangs_follow_what_changes(seed: int) -> None:
    """Members and PodGroups come, leave and say something else; what is known is what is found anew."""
    rng = random.Random(seed)
    snapshot = random_gangs(seed, 3)
    for number in range(1, 7):
        snapshot = step(snapshot, random_gangs(1000 * number + seed, 3), rng)
        fresh = ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)
        book, anew = gang_book(snapshot, DEFAULT_ARGS), gang_book(fresh, DEFAULT_ARGS)
        assert book.state == anew.state
        assert (book.gone, book.half, book.leaving) == (anew.gone, anew.half, anew.leaving)
        assert (book.members, book.records) == (anew.members, anew.records)
        assert {*book.families.values()} == {*anew.families.values()}
        assert book.gone or book.state == one_by_one(snapshot)
