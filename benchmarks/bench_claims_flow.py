"""Claims in the flow: pods through ``schedule``, a filter over many nodes, and a stream of partitions.

The stream has a quality beside its time: the share of arrivals that find no partition. A bound from below is
:func:`offline_bound`: what no policy avoids that knows the whole stream and may cut cards up at will.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from benchmarks.claims_data import (
    CLASSES,
    PROFILES,
    claim,
    mig_cards,
    pairs,
    request,
    table_of,
    whole_gpus,
)
from koordcore import Bound, ClusterSnapshot, Node, Pod, Policy, schedule
from koordcore._arrays import IntVector
from koordcore.allocators.claims import AllocationMode
from koordcore.allocators.claims.allocate import choose_devices
from koordcore.allocators.claims.room import make_room
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.claims import ResourceClaimTemplate
from koordcore.model.pods import PodResourceClaim
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.one_pod import place_pod
from koordcore.scheduling.plugins.claims import DynamicResources

CARDS = 8
MIX = {"1g.10gb": 30, "1g.20gb": 10, "2g.20gb": 20, "3g.40gb": 20, "4g.40gb": 10, "7g.80gb": 10}
"""Of a hundred arrivals so many ask for each profile."""


def node(name: str) -> Node:
    return Node(name=name, allocatable={"cpu": 128_000, "memory": 2**40, "pods": 250})


def pod(name: str, template: str) -> Pod:
    entry = PodResourceClaim("c", template=template)
    return Pod(name=name, uid=name, requests={"cpu": 1000, "memory": 2**30}, resource_claims=(entry,))


def cluster(nodes: int, pods: Sequence[Pod]) -> ClusterSnapshot:
    """Nodes with eight GPUs and four NICs."""
    names = [f"n{number:04}" for number in range(nodes)]
    specs = {"pair": pairs(1).spec, "one": claim("c", [request("gpu", "gpu")]).spec}
    return ClusterSnapshot(
        nodes=[node(name) for name in names],
        pending=pods,
        records=[
            *CLASSES.values(),
            *(ResourceClaimTemplate(name=name, spec=spec) for name, spec in specs.items()),
            *(part for name in names for part in whole_gpus(name, 8, nics=(0, 1, 2, 3))),
        ],
    )


class ThroughSchedule:
    """5000 pods, every other one with a GPU and a NIC on one PCIe root, on 1000 nodes."""

    def setup(self) -> None:
        pods = [pod(f"p{number:05}", "pair" if number % 2 else "one") for number in range(5000)]
        self.snapshot = cluster(1000, pods)

    def time_schedule(self) -> None:
        assert len(schedule(self.snapshot).bound) == 5000


def used_cluster(nodes: int, pods: int) -> ClusterSnapshot:
    """Nodes in many states: a third of the pods that came have gone, in no order."""
    draw = random.Random(3)
    filling = [pod(f"f{number:05}", draw.choice(["pair", "one"])) for number in range(pods)]
    snapshot = schedule(cluster(nodes, filling)).snapshot
    gone = [one.key for one in snapshot.bound_pods() if draw.random() < 1 / 3]
    return snapshot.forget(*gone)


def in_states(snapshot: ClusterSnapshot, most: int) -> ClusterSnapshot:
    """Empty all nodes but those in the first states, so that so many are left."""
    plugin = claims_plugin(PluginSet(open_workspace(snapshot, Policy()), Policy()))
    kept = {int(plugin.ledger.states.empty[0])}
    gone = []
    for state, number in zip(snapshot.nodes, plugin.ledger.numbers.tolist(), strict=True):
        if len(kept) < most:
            kept.add(number)
        if number not in kept:
            gone += [one.key for one in state.pods]
    return snapshot.forget(*gone)


def claims_plugin(plugins: PluginSet) -> DynamicResources:
    """Give the plugin that looks at claims."""
    found = next(one for one in plugins.plugins if one.name == "DynamicResources")
    assert isinstance(found, DynamicResources)
    return found


class Filter:
    """One kind of pods with a GPU and a NIC on one PCIe root, on 5000 nodes in 200 states.

    ``cold``: nothing is known of the kind; ``next``: a pod of it came meanwhile. The plugin's filter alone;
    with ``call`` the whole of a call that places one such pod, the second of its line.
    """

    number = 1
    repeat = 1
    params = ("cold", "next", "call")

    def setup(self, which: str) -> None:
        snapshot = in_states(used_cluster(5000, 12_000), 200)
        self.pod = pod("a", "pair")
        if which == "call":
            self.asked = schedule(snapshot.with_pending(self.pod)).snapshot.with_pending(pod("b", "pair"))
            return
        self.workspace = open_workspace(snapshot, Policy())
        self.plugins = PluginSet(self.workspace, Policy())
        plugin = claims_plugin(self.plugins)
        assert len(set(plugin.ledger.numbers.tolist())) == 200
        self.evaluator = plugin.evaluator(self.pod, plugin.request_of(self.pod))
        self.rows: slice | IntVector = slice(None)
        if which == "next":
            self.time_filter(which)
            found = place_pod(self.workspace, self.plugins, self.pod)
            assert isinstance(found, Bound)
            self.rows = np.array([self.workspace.layout.row_of[found.node]])

    def time_filter(self, which: str) -> None:
        if which == "call":
            schedule(self.asked)
        else:
            self.evaluator.fits(NodeView(self.workspace, self.rows))


class Arrival(NamedTuple):
    """A pod that wants one partition for a while."""

    starts: float
    profile: str
    ends: float


def stream(arrivals: int, load: float) -> list[Arrival]:
    """Pods that arrive at random, ``load`` of them in the time that one of them runs on average."""
    draw = random.Random(7)
    found, now = [], 0.0
    for _ in range(arrivals):
        now += draw.expovariate(load)
        (profile,) = draw.choices(list(MIX), list(MIX.values()))
        found.append(Arrival(now, profile, now + draw.expovariate(1.0)))
    return found


def refused(arrivals: Sequence[Arrival], mode: AllocationMode) -> float:
    """Share of the arrivals that find no partition on a node with eight cards."""
    table = table_of(mig_cards("n1", CARDS))
    claims = {name: [claim("c", [request("r", "mig", 1, name)])] for name in PROFILES}
    known: dict[tuple[str, int], int] = {}
    held = lost = 0
    ends: list[tuple[float, int]] = []
    for one in arrivals:
        while ends and ends[0][0] <= one.starts:
            held &= ~(1 << heappop(ends)[1])
        key = (one.profile, held)
        if key not in known:
            room = make_room(table, held, (), {})
            chosen = choose_devices(room, claims[one.profile], CLASSES, mode=mode)
            known[key] = chosen[0].taken[0].device if isinstance(chosen, tuple) else -1
        device = known[key]
        if device < 0:
            lost += 1
        else:
            held |= 1 << device
            heappush(ends, (one.ends, device))
    return lost / len(arrivals)


def offline_bound(arrivals: Sequence[Arrival]) -> float:
    """Share that is refused at least, whoever knows the future and moves partitions as they like.

    A linear program: at every arrival the memory slices and the compute slices in use are at most those of
    all cards.
    """
    from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

    solver = pywraplp.Solver.CreateSolver("GLOP")
    taken = [solver.NumVar(0, 1, "") for _ in arrivals]
    running: list[int] = []
    for number, one in enumerate(arrivals):
        running = [other for other in running if arrivals[other].ends > one.starts] + [number]
        for kind, most in ((0, 7), (1, 8)):
            total = sum(PROFILES[arrivals[other].profile][kind] * taken[other] for other in running)
            solver.Add(total <= most * CARDS)
    solver.Maximize(sum(taken))
    solver.Solve()
    return 1 - float(solver.Objective().Value()) / len(arrivals)


class Stream:
    """30,000 arrivals of single partitions on eight cards."""

    params = tuple(AllocationMode)
    timeout = 600

    def setup(self, mode: AllocationMode) -> None:
        self.arrivals = stream(30_000, 15.0)

    def time_stream(self, mode: AllocationMode) -> None:
        refused(self.arrivals, mode)

    def track_refused(self, mode: AllocationMode) -> float:
        return refused(self.arrivals, mode)

    def track_bound(self, mode: AllocationMode) -> float:
        return offline_bound(self.arrivals[:6000])
