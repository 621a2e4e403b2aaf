"""Trees of groups, topology keys and evictions where members take devices: against trying everything.

The trees are those of ``test_group_flow_laws``; what was an amount of cpu there is a kind of devices here. A
node has one or two switches with two cards and a NIC each, in use at random, by Device objects or by claims.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Sequence
from functools import lru_cache

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st

from benchmarks.bench_gang_devices import HELD, JOINT, SAME, node as with_devices, published
from benchmarks.claims_data import CLASSES, ROOT, claim, request
from koordcore import Bound, ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.manifests import snapshot_from_objects
from koordcore.model.claims import ResourceClaimTemplate
from koordcore.model.nodes import NodeState
from koordcore.model.pods import PodResourceClaim
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup
from tests.property import test_group_flow_laws as trees
from tests.property.test_group_preemption_laws import OURS, RULES
from tests.property.test_victim_unit_laws import holds
from tests.reference.group_units import Composite, Group, best_where

KINDS = ((1, 1, True), (2, 0, False), (1, 0, False), (0, 1, False), (2, 1, True))
"""Cards, NICs, and whether they have to be on one switch."""
Switches = tuple[tuple[int, int], ...]
"""Free cards and NICs of every switch of a node."""

DEVICES = pytest.mark.parametrize("devices", ["cards", "claims"])


@lru_cache(maxsize=100_000)
def takes(switches: Switches, kinds: tuple[int, ...]) -> bool:
    """Whether a node has devices for pods of these kinds together."""
    if not kinds:
        return True
    cards, nics, same = KINDS[kinds[0]]
    sides = range(len(switches))
    for first in itertools.product(range(cards + 1), repeat=len(switches)):
        for second in itertools.product(range(nics + 1), repeat=len(switches)):
            if (sum(first), sum(second)) != (cards, nics):
                continue
            if same and len({side for side in sides if first[side] or second[side]}) > 1:
                continue
            left = tuple((switches[one][0] - first[one], switches[one][1] - second[one]) for one in sides)
            if min(map(min, left)) >= 0 and takes(left, kinds[1:]):
                return True
    return False


def pod_of(pod: Pod, kind: int, devices: str) -> Pod:
    """The pod, asking for devices and for nothing else."""
    cards, nics, same = KINDS[kind]
    if devices == "claims":
        entry = PodResourceClaim("c", template=f"kind-{kind}")
        return attrs.evolve(pod, uid=pod.name, requests={}, resource_claims=(entry,))
    asked = {"koordinator.sh/gpu": 100 * cards, "koordinator.sh/rdma": 100 * nics}
    asked = {name: amount for name, amount in asked.items() if amount}
    return attrs.evolve(pod, requests=asked, limits=asked, annotations={JOINT: SAME} if same else {})


def templates() -> Iterable[ResourceClaimTemplate]:
    for number, (cards, nics, same) in enumerate(KINDS):
        asked = [request("gpu", "gpu", cards)] if cards else []
        asked += [request("nic", "nic", nics)] if nics else []
        spec = claim("c", asked, [(ROOT, ())] if same else []).spec
        yield ResourceClaimTemplate(name=f"kind-{number}", spec=spec)


def empty(switches: Sequence[int], labels: Sequence[dict[str, str]], devices: str) -> ClusterSnapshot:
    """Nodes with so many switches, on which nothing runs."""
    draw = random.Random(0)
    if devices == "cards":
        objects = [
            part
            for number, count in enumerate(switches)
            for part in with_devices(f"n{number}", cards=0, nics=0, draw=draw, switches=count)
        ]
        found = snapshot_from_objects(objects).snapshot
        nodes = [attrs.evolve(s.node, labels=labels[int(s.name[1:])]) for s in found.nodes]
        return attrs.evolve(found, nodes=tuple(NodeState(one) for one in nodes))
    parts = [
        part
        for number, count in enumerate(switches)
        for part in published(f"n{number}", cards=0, nics=0, draw=draw, switches=count)
    ]
    nodes = [attrs.evolve(one, labels=labels[int(one.name[1:])]) for one in parts if isinstance(one, Node)]
    records = [one for one in parts if not isinstance(one, Node)]
    return ClusterSnapshot(nodes=nodes, records=[*CLASSES.values(), *templates(), *records])


def held_by(pod: Pod, devices: str) -> list[tuple[int, int]]:
    """What a running pod has: pairs of the switch, and 0 for a card or 1 for a NIC."""
    if devices == "cards":
        found = json.loads(pod.annotations.get(HELD, "{}"))
        cards, nics = ([one["minor"] for one in found.get(kind, [])] for kind in ("gpu", "rdma"))
    else:
        names = [one.device for held in pod.held_claims for one in held.allocation.results]
        cards = [int(name.removeprefix("gpu-")) for name in names if name.startswith("gpu-")]
        nics = [int(name.removeprefix("nic-")) for name in names if name.startswith("nic-")]
    return [*((minor // 2, 0) for minor in cards), *((minor, 1) for minor in nics)]


@attrs.frozen(kw_only=True)
class World:
    """A tree of groups that waits, nodes in use, and the same in plain values."""

    snapshot: ClusterSnapshot
    root: Group
    switches: tuple[int, ...]
    running: tuple[Pod, ...]
    devices: str

    def free(self, gone: Sequence[Pod] = ()) -> list[Switches]:
        """What is free on every node once some have left."""
        found = [[[2, 1] for _ in range(count)] for count in self.switches]
        left = {pod.key for pod in gone}
        for pod in self.running:
            for side, kind in held_by(pod, self.devices) if pod.key not in left else ():
                found[int(str(pod.node_name)[1:])][side][kind] -= 1
        return [tuple((cards, nics) for cards, nics in node) for node in found]

    def starts(self, gone: Sequence[Pod] = ()) -> tuple[int, int]:
        """Groups and members that can start once some have left."""
        free = self.free(gone)
        return best_where(
            self.root, len(free), lambda node, kinds: takes(free[node], tuple(sorted(kinds)))
        ) or (0, 0)


def of_kinds(group: Group, kinds: Sequence[int]) -> Group:
    """The tree with kinds of devices for sizes."""
    if isinstance(group, Composite):
        return attrs.evolve(group, parts=tuple(of_kinds(part, kinds) for part in group.parts))
    return attrs.evolve(group, sizes=tuple(kinds[size - 1] for size in group.sizes))


def world(seed: int, devices: str, *, most: int, least: int = 0) -> World | None:
    """Draw a cluster; at most so many pods hold devices, which are less important than so much."""
    base, root, room = trees.world(seed)
    if not base.pending or not trees.ready(root):
        return None
    rng = random.Random(seed + 11)
    switches = tuple(rng.randint(1, 2) for _ in room)
    kinds = rng.sample(range(len(KINDS)), 2)
    bare = empty(switches, [dict(state.node.labels) for state in base.nodes], devices)
    filling = [
        pod_of(Pod(name=f"v{one}", priority=rng.randint(0, 11)), rng.randrange(len(KINDS)), devices)
        for one in range(rng.randint(least, least + 3 * sum(switches)))
    ]
    filled = schedule(bare.with_pending(*filling)).snapshot
    there = [pod.key for pod in filled.bound_pods()]
    gone = rng.sample(there, max(0, len(there) - most))
    filled = filled.forget(*gone, *(pod.key for pod in filled.pending))
    ours = {state.name: tuple(attrs.evolve(pod, priority=OURS) for pod in state.pods) for state in base.nodes}
    snapshot = attrs.evolve(
        filled,
        nodes=tuple(attrs.evolve(s, pods=(*s.pods, *ours[s.name])) for s in filled.nodes),
        pending=tuple(
            pod_of(attrs.evolve(pod, priority=OURS), kinds[pod.requests["cpu"] // 1000 - 1], devices)
            for pod in base.pending
        ),
        records=(
            *filled.records,
            *(attrs.evolve(one, priority=OURS) for one in base.of(SchedulingPodGroup)),
            *(attrs.evolve(one, priority=OURS) for one in base.of(CompositePodGroup)),
        ),
    )
    return World(
        snapshot=snapshot,
        root=of_kinds(root, kinds),
        switches=switches,
        running=tuple(filled.bound_pods()),
        devices=devices,
    )


def agrees(seed: int, devices: str) -> None:
    """Compare who starts with trying everything."""
    drawn = world(seed, devices, most=5)
    if drawn is None:
        return
    result = schedule(drawn.snapshot)
    assert verify(drawn.snapshot, result) == ()
    names = [one.pod.name.partition("-")[0] for one in result.decisions if isinstance(one, Bound)]
    members = drawn.starts()
    assert len(names) == members[1]
    (plan,) = result.jobs
    assert plan.certificate is None or plan.certificate.proven


def agrees_on_room(seed: int, devices: str) -> None:
    """Compare who makes room with trying every set of victims."""
    drawn = world(seed, devices, most=5, least=4)
    if drawn is None:
        return
    now = drawn.starts()
    lower = [pod for pod in drawn.running if pod.priority < OURS]
    sets = [each for size in range(len(lower) + 1) for each in itertools.combinations(lower, size)]
    found = {gone: drawn.starts(gone) for gone in sets} if not now[1] else {}
    most = max(found.values(), default=now)
    if now[1] or not most[1]:
        holds(drawn.snapshot, most[1], None)
        return
    enough = [[pod.priority for pod in gone] for gone, value in found.items() if gone and value >= most]
    holds(drawn.snapshot, most[1], min((max(one), len(one), len(one), sum(one)) for one in enough))
    planned = schedule(drawn.snapshot, preempt=RULES)
    victims = [one.pod for one in planned.preemptions[0].victims]
    after = schedule(planned.snapshot.forget(*victims), preempt=RULES)
    assert (len(after.bound), after.preemptions) == (most[1], ())


@pytest.mark.solver
@DEVICES
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_tree_starts_with_as_many_as_find_devices_together(devices: str, seed: int) -> None:
    agrees(seed, devices)


@pytest.mark.solver
@DEVICES
@settings(max_examples=17, deadline=None)
@example(seed=23)
@given(seed=st.integers(0, 10**6))
def test_no_evictions_that_free_devices_for_a_tree_are_cheaper(devices: str, seed: int) -> None:
    """Of 23, a member once took both cards of a switch in the dry run, which the others need one each of."""
    agrees_on_room(seed, devices)
