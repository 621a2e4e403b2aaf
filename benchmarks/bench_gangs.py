"""Placement of gangs onto spines, blocks and nodes.

The reference, greedy and unproven, plans 512 members on 5120 nodes in 4.0 ms on two cores (5.1 on one) from
known slots, in 35 (68) ms with the slots counted by its filters. Here the slots are part of the input, every
answer is proven best, tightness for the next job included, and the time covers ranking and dealing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore import ClusterSnapshot, Node, Pod, Policy, schedule
from koordcore.allocators.gang.check import placement_violations
from koordcore.allocators.gang.demand import GangDemand, GangPlacement, IntVector, Member, Role, Shape
from koordcore.allocators.gang.planner import place_gang
from koordcore.allocators.gang.queue import QueuedGang, plan_in_order, plan_queue
from koordcore.allocators.gang.slots import shared_slots
from koordcore.model.certificates import Limits
from koordcore.model.gangs import GangFit, GatherRule, NetworkTopologySpec, PodGroup
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.policy import GangTurns
from koordcore.protocol.gang import ANNOTATION_TOPOLOGY_SPEC
from koordcore.protocol.gang_names import LABEL_POD_GROUP
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree, order_layers
from tests.property.gang_strategies import demand_of, tree_of
from tests.reference.gang_best_fit import best_fit
from tests.reference.gang_placement import Instance, best_objective
from tests.reference.gang_slots import offer_slots

LAYERS = (
    LayerSpec("SpineLayer", ("spine",)),
    LayerSpec("BlockLayer", ("block",), "SpineLayer"),
    LayerSpec(NODE_LAYER, (), "BlockLayer"),
)
LABELS = ((1, "spine"), (2, "block"))
TOGETHER = Policy(gangs=GangTurns.TOGETHER)

Totals: TypeAlias = Mapping[tuple[str, str], Mapping[str, float]]

SPREAD = NetworkTopologySpec((GatherRule("SpineLayer"), GatherRule("BlockLayer")))
IN_SPINE = NetworkTopologySpec((GatherRule("SpineLayer", "MustGather"),))
IN_BLOCK = NetworkTopologySpec((GatherRule("BlockLayer", "MustGather"),))
BUDGET = Limits(0.5)


@cache
def network(spines: int, blocks: int, nodes: int) -> NetworkTopology:
    """A tree of spines, blocks and nodes."""
    layers = order_layers(LAYERS)
    labels = {
        f"n{s:02}-{b:02}-{n:02}": {"spine": f"s{s:02}", "block": f"s{s:02}b{b:02}"}
        for s in range(spines)
        for b in range(blocks)
        for n in range(nodes)
    }
    return build_tree(layers, labels)


def free_nodes(tree: NetworkTopology, seed: int, low: float = 0.2, high: float = 0.9) -> IntVector:
    """One slot on every free node; each block has its own share of free nodes."""
    rng = np.random.default_rng(seed)
    blocks = tree.domains_at(2)
    share = rng.uniform(low, high, size=len(blocks))[tree.ancestors[2] - blocks.start]
    free: IntVector = (rng.random(len(tree.nodes)) < share).astype(np.int64)
    return free


def uniform(tree: NetworkTopology, size: int, spec: NetworkTopologySpec, slots: IntVector) -> GangDemand:
    """A gang of equal members, all of them needed."""
    members = tuple(Member(f"job/worker-{rank}", 0, rank) for rank in range(size))
    shape = Shape(slots=slots, request=np.array([1], dtype=np.int64))
    role = Role(name="job", members=members, min_available=size)
    return GangDemand(roles=(role,), shapes=(shape,), free=slots[None, :], spec=spec)


def three_roles(tree: NetworkTopology, seed: int) -> GangDemand:
    """24 whole-node workers, 200 one-GPU workers and 32 CPU-only ones on partly used 8-GPU nodes."""
    rng = np.random.default_rng(seed)
    used = np.where(free_nodes(tree, seed) == 1, 0, rng.integers(1, 9, size=len(tree.nodes)))
    free = np.stack([128_000 - used * 12_000, 1024 - used * 100, 8 - used, 110 - used])
    wanted = {"trainer": (24, (96_000, 800, 8, 1)), "sampler": (200, (8_000, 64, 1, 1)),
              "loader": (32, (16_000, 32, 0, 1))}  # fmt: skip
    shapes, roles = [], []
    for number, (name, (count, amounts)) in enumerate(wanted.items()):
        request = np.array(amounts, dtype=np.int64)
        shapes.append(Shape(slots=offer_slots(free, request, most=count), request=request))
        members = tuple(Member(f"job/{name}-{rank}", number, rank) for rank in range(count))
        roles.append(Role(name=name, members=members, min_available=count))
    return GangDemand(roles=tuple(roles), shapes=tuple(shapes), free=free, spec=SPREAD)


def queue(tree: NetworkTopology, seed: int, gangs: int) -> list[QueuedGang]:
    """Gangs of 4 to 32 nodes, most of which must lie in one block, for slightly too few free nodes."""
    rng = np.random.default_rng(seed)
    slots = free_nodes(tree, seed, 0.5, 0.95)
    waiting = []
    for number in range(gangs):
        size = int(rng.choice([4, 8, 12, 16, 24, 32]))
        spec = IN_BLOCK if size <= 24 and rng.random() < 0.8 else SPREAD
        members = tuple(Member(f"g{number:02}/w-{rank}", 0, rank) for rank in range(size))
        role = Role(name="job", members=members, min_available=size)
        shape = Shape(slots=slots, request=np.array([1], dtype=np.int64))
        demand = GangDemand(roles=(role,), shapes=(shape,), free=slots[None, :], spec=spec)
        waiting.append(QueuedGang(name=f"g{number:02}", demand=demand))
    return waiting


class EqualMembers:
    """One gang of equal members, from known slots to named members, proven."""

    params = ("512 on 5120", "256 in one spine of 5120", "512 on 5120, 1 to 8 slots", "64 on 512")

    def setup(self, work: str) -> None:
        self.tree = network(2, 8, 32) if "64 on" in work else network(10, 16, 32)
        slots = free_nodes(self.tree, 1)
        if "slots" in work:
            slots = slots * np.random.default_rng(2).integers(1, 9, size=len(slots))
        self.size = int(work.split(maxsplit=1)[0])
        self.spec = IN_SPINE if "spine" in work else SPREAD
        self.slots = slots
        placed = place_gang(self.tree, self.demand())
        assert isinstance(placed, GangPlacement)
        assert placed.certificate.proven
        assert len(placed.nodes) == self.size

    def demand(self) -> GangDemand:
        return uniform(self.tree, self.size, self.spec, self.slots)

    def time_place(self, work: str) -> None:
        place_gang(self.tree, self.demand())


class ThreeRoles:
    """256 members of three shapes on 2048 nodes, proven by the solver."""

    timeout = 120

    def setup(self) -> None:
        self.tree = network(4, 16, 32)
        self.demand = three_roles(self.tree, 1)
        placed = place_gang(self.tree, self.demand)
        assert placed.certificate.proven

    def time_place(self) -> None:
        place_gang(self.tree, self.demand)


class Queue:
    """50 gangs on 1024 nodes, together against one by one."""

    timeout = 240
    params = (0, 1, 2)

    def setup(self, seed: int) -> None:
        self.tree = network(4, 8, 32)
        self.waiting = queue(self.tree, seed, 50)

    def time_in_order(self, seed: int) -> None:
        plan_in_order(self.tree, self.waiting)

    def time_together(self, seed: int) -> None:
        plan_queue(self.tree, self.waiting, limits=BUDGET)

    def track_gangs_in_order(self, seed: int) -> int:
        return len(plan_in_order(self.tree, self.waiting).placements)

    def track_gangs_together(self, seed: int) -> int:
        return len(plan_queue(self.tree, self.waiting, limits=BUDGET).placements)

    def track_blocks_together(self, seed: int) -> int:
        return plan_queue(self.tree, self.waiting, limits=BUDGET).certificate.objective[-1]

    def track_spines_above_bound(self, seed: int) -> int:
        certificate = plan_queue(self.tree, self.waiting, limits=BUDGET).certificate
        assert certificate.bound[:2] == certificate.objective[:2]
        return certificate.objective[2] - certificate.bound[2]

    track_blocks_together.unit = "blocks"  # type: ignore[attr-defined]  # asv reads it
    track_spines_above_bound.unit = "spines"  # type: ignore[attr-defined]  # asv reads it
    track_gangs_in_order.unit = track_gangs_together.unit = "gangs"  # type: ignore[attr-defined]  # asv reads it


class QueueInSchedule:
    """The same queue as pods of a cluster, through ``schedule``: filters, plan, binding."""

    timeout = 240

    def setup(self) -> None:
        tree = network(4, 8, 32)
        gangs = queue(tree, 0, 50)
        free = gangs[0].demand.shapes[0].slots
        nodes = [
            Node(
                name=name,
                labels={layer: tree.names[tree.ancestors[depth, row]] for depth, layer in LABELS},
                allocatable={"cpu": 8000, "memory": 1 << 36, "pods": 110},
            )
            for row, name in enumerate(tree.nodes)
        ]
        busy = [
            Pod(name=f"busy-{name}", requests={"cpu": 4000}).at(name)
            for name, slots in zip(tree.nodes, free.tolist(), strict=True)
            if not slots
        ]
        groups, pods = [], []
        for gang in gangs:
            rules = gang.demand.spec.gather_strategy
            wishes = [{"layer": rule.layer, "strategy": rule.strategy} for rule in rules]
            wish = immutabledict({ANNOTATION_TOPOLOGY_SPEC: json.dumps({"gatherStrategy": wishes})})
            groups.append(
                PodGroup(namespace="q", name=gang.name, min_member=gang.demand.size, annotations=wish)
            )
            pods += [
                Pod(
                    namespace="q",
                    name=f"{gang.name}-{member.rank}",
                    labels={LABEL_POD_GROUP: gang.name},
                    requests={"cpu": 8000},
                )
                for member in gang.demand.members
            ]
        declared = ClusterNetworkTopology("default", LAYERS)
        snapshot = ClusterSnapshot(nodes=nodes, pending=pods, records=[declared, *groups])
        self.snapshot = snapshot.assume(*busy)

    def time_one_by_one(self) -> None:
        schedule(self.snapshot)

    def time_together(self) -> None:
        (plan,) = schedule(self.snapshot, policy=TOGETHER).together
        assert len(plan.started) > plan.one_by_one


class Fragments:
    """The same 200 queues placed for good on 512 nodes, by our objective and by the reference's rule.

    Gangs come, and now and then an earlier one goes, so that the network is nearly full from the middle on.
    Counted are the gangs that start, the domains that each of them uses, and the largest block still whole,
    on average over the second half.
    """

    params = (
        ("ours", "ours, tightest fit", "reference's rule"),
        ("one slot", "two slots", "one to four slots"),
    )
    param_names = ("rule", "nodes")
    timeout = 1800
    queues = 200
    steps = 100

    def setup_cache(self) -> dict[tuple[str, str], dict[str, float]]:
        rules, kinds = self.params
        return {(rule, nodes): self.totals(rule, nodes, self.queues) for rule in rules for nodes in kinds}

    def totals(self, rule: str, nodes: str, queues: int) -> dict[str, float]:
        """Average over the queues."""
        runs = [self.queue(seed, rule, nodes) for seed in range(queues)]
        gangs = sum(run["gangs"] for run in runs)
        per_gang = {key: sum(run[key] for run in runs) / gangs for key in ("spines", "blocks", "nodes")}
        whole = sum(run["whole"] for run in runs) / len(runs) / (self.steps // 2)
        return {"gangs": gangs / len(runs), **per_gang, "whole": whole}

    def queue(self, seed: int, rule: str, nodes: str) -> dict[str, int]:
        """Place one queue."""
        tree = network(4, 8, 16)
        span = tree.domains_at(2)
        rng = np.random.default_rng(seed)
        low, high = {"one slot": (1, 1), "two slots": (2, 2), "one to four slots": (1, 4)}[nodes]
        slots = rng.integers(low, high + 1, size=len(tree.nodes))
        running: list[IntVector] = []
        seen = dict.fromkeys(("gangs", "spines", "blocks", "nodes", "whole"), 0)
        for step in range(self.steps):
            size = int(rng.choice([3, 6, 8, 12, 16, 24, 40, 64]))
            leaves, which = rng.random() < 0.35, rng.random()
            if leaves and running:
                slots = slots + running.pop(int(which * len(running)))
            counts = self.counts(tree, slots, size, rule)
            if counts.any():
                slots = slots - counts
                running.append(counts)
                seen["gangs"] += 1
                for depth, layer in enumerate(("spines", "blocks", "nodes"), start=1):
                    seen[layer] += len(np.unique(tree.ancestors[depth, counts > 0]))
            if step >= self.steps // 2:
                seen["whole"] += int(tree.sum_up(slots)[span.start : span.stop].max())
        return seen

    def counts(self, tree: NetworkTopology, slots: IntVector, size: int, rule: str) -> IntVector:
        """Members per node, all 0 when there is no place."""
        counts = np.zeros(len(slots), dtype=np.int64)
        if rule == "reference's rule":
            for node, count in best_fit(tree, slots, size).items():
                counts[node] = count
            return counts
        fit = GangFit.FEWEST_NODES if rule == "ours" else GangFit.TIGHTEST_FIT
        placed = place_gang(tree, attrs.evolve(uniform(tree, size, SPREAD, slots), fit=fit))
        if isinstance(placed, GangPlacement):
            assert placed.certificate.proven
            for name in placed.nodes.values():
                counts[tree.node_index[name]] += 1
        return counts

    def track_gangs(self, totals: Totals, rule: str, nodes: str) -> float:
        return totals[rule, nodes]["gangs"]

    def track_spines_per_gang(self, totals: Totals, rule: str, nodes: str) -> float:
        return totals[rule, nodes]["spines"]

    def track_blocks_per_gang(self, totals: Totals, rule: str, nodes: str) -> float:
        return totals[rule, nodes]["blocks"]

    def track_nodes_per_gang(self, totals: Totals, rule: str, nodes: str) -> float:
        return totals[rule, nodes]["nodes"]

    def track_largest_block_left(self, totals: Totals, rule: str, nodes: str) -> float:
        return totals[rule, nodes]["whole"]

    track_gangs.unit = "gangs"  # type: ignore[attr-defined]  # asv reads it
    track_spines_per_gang.unit = "spines"  # type: ignore[attr-defined]  # asv reads it
    track_blocks_per_gang.unit = "blocks"  # type: ignore[attr-defined]  # asv reads it
    track_nodes_per_gang.unit = "nodes"  # type: ignore[attr-defined]  # asv reads it
    track_largest_block_left.unit = "slots"  # type: ignore[attr-defined]  # asv reads it


class Missed:
    """5,000 small mixed gangs against trying everything, and against the reference's rule.

    The rule counts the members that fit one after the other on each node by itself, and deals them out by
    name: some feasible gangs are rejected, and some plans do not pass its own filter. Shares of the feasible.
    """

    instances = 5000
    timeout = 1800

    def setup_cache(self) -> dict[str, float]:
        rng = np.random.default_rng(0)
        found = dict.fromkeys(("feasible", "missed", "refused", "worse", "rule missed", "rule refused"), 0)
        for _ in range(self.instances):
            problem = self.instance(rng)
            for key, yes in self.judge(problem).items():
                found[key] += yes
        feasible = found.pop("feasible")
        return {key: 100.0 * number / feasible for key, number in found.items()}

    def instance(self, rng: np.random.Generator) -> Instance:
        """Draw two to six members of two or three sizes for up to five nodes; all of them are needed."""
        depth, shapes = int(rng.integers(1, 4)), int(rng.integers(2, 4))
        nodes = int(rng.integers(2, 6))
        paths = []
        for number in range(nodes):
            spine, block = rng.integers(0, 2, size=2)
            paths.append((f"s{spine}", f"s{spine}b{block}", f"n{number}")[3 - depth :])
        sizes = rng.choice([1, 2, 3, 4, 5, 8], size=shapes, replace=False)
        counts = tuple(int(n) for n in rng.integers(1, 3, size=shapes))
        none = (0,) * nodes
        return Instance(
            paths=tuple(paths),
            free=(tuple(int(n) for n in rng.integers(0, 9, size=nodes)),),
            requests=tuple((int(size),) for size in sizes),
            slots=((9,) * nodes,) * shapes,
            roles=((counts, sum(counts), 0),),
            must_depth=int(rng.integers(0, depth + 1)),
            multiples=(1,) * (depth + 1),
            bound=none,
            near=none,
        )

    def judge(self, problem: Instance) -> dict[str, bool]:
        """Compare one instance."""
        best = best_objective(problem)
        tree = tree_of(problem.paths)
        demand = demand_of(problem, tree)
        placed = place_gang(tree, demand)
        legal = isinstance(placed, GangPlacement) and not placement_violations(tree, demand, placed.nodes)
        members = sorted(demand.members, key=lambda member: member.key)
        offers = shared_slots(
            members,
            [shape.request for shape in demand.shapes],
            [shape.slots for shape in demand.shapes],
            demand.free,
        )
        rule = best_fit(tree, offers, len(members), problem.must_depth)
        places = [tree.nodes[node] for node, count in rule.items() for _ in range(count)]
        dealt = {member.key: node for member, node in zip(members, places, strict=False)}
        return {
            "feasible": best is not None,
            "missed": best is not None and not isinstance(placed, GangPlacement),
            "refused": isinstance(placed, GangPlacement) and not legal,
            "worse": isinstance(placed, GangPlacement) and placed.certificate.objective != best,
            "rule missed": best is not None and not rule,
            "rule refused": best is not None
            and bool(rule)
            and bool(placement_violations(tree, demand, dealt)),
        }

    def track_missed(self, shares: dict[str, float]) -> float:
        return shares["missed"]

    def track_refused(self, shares: dict[str, float]) -> float:
        return shares["refused"]

    def track_worse_than_the_best(self, shares: dict[str, float]) -> float:
        return shares["worse"]

    def track_missed_by_the_rule(self, shares: dict[str, float]) -> float:
        return shares["rule missed"]

    def track_refused_of_the_rule(self, shares: dict[str, float]) -> float:
        return shares["rule refused"]

    track_missed.unit = track_refused.unit = "%"  # type: ignore[attr-defined]  # asv reads it
    track_worse_than_the_best.unit = "%"  # type: ignore[attr-defined]  # asv reads it
    track_missed_by_the_rule.unit = "%"  # type: ignore[attr-defined]  # asv reads it
    track_refused_of_the_rule.unit = "%"  # type: ignore[attr-defined]  # asv reads it
