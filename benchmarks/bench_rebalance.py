"""Rebalancing: classification, the heuristic and the plan; how many nodes either of them cools."""

from __future__ import annotations

import random
from functools import cache
from typing import Final, TypeAlias

import attrs

from koordcore.descheduling.compare import EvictionOutcome, outcome_of
from koordcore.descheduling.defrag import Wanted, plan_defragmentation
from koordcore.descheduling.evict import CycleEvictor, balance_low_node_load
from koordcore.descheduling.fragments import Fragments, plan_fragments
from koordcore.descheduling.load_problem import problem_of_load
from koordcore.descheduling.moves import Group, Host, Movable, MoveProblem
from koordcore.descheduling.plan import RebalancePlan, plan_rebalance
from koordcore.model.certificates import Limits
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import Node
from koordcore.model.pods import OwnerReference, Pod, PodKey, PodPhase
from koordcore.model.rebalance import AnomalyCondition, EvictorArgs, LowNodeLoadArgs, NodePool, Thresholds
from koordcore.model.resources import make_resources
from koordcore.scoring.fragmentation import workload_mix
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode
from tests.reference.rebalance_moves import fewest_to_cool

GIB: Final = 2**30
NOW: Final = 1_800_000_000 * 10**9
OWNER: Final = (OwnerReference("ReplicaSet", "rs", "rs", controller=True),)

Cluster: TypeAlias = tuple[list[Node], list[Pod], dict[str, NodeMetric], LowNodeLoadArgs]


def args() -> LowNodeLoadArgs:
    pool = NodePool(
        high=Thresholds({"cpu": 65.0, "memory": 80.0}),
        low=Thresholds({"cpu": 45.0, "memory": 60.0}),
        anomaly=AnomalyCondition(consecutive_abnormalities=1),
    )
    return LowNodeLoadArgs(pools=(pool,))


def cluster(nodes: int, pods: int, hot: int, seed: int, *, idle: tuple[float, float] = (0.2, 0.6)) -> Cluster:
    """Make nodes of 32 cores and 128 GiB; the first ``hot`` use too much, the others a share of ``idle``."""
    chance = random.Random(seed)
    made, placed, metrics = [], [], {}
    for index in range(nodes):
        name = f"n{index:05d}"
        made.append(
            Node(name=name, allocatable=make_resources({"cpu": 32000, "memory": 128 * GIB, "pods": 110}))
        )
        count = pods // nodes
        share = chance.uniform(0.68, 0.85) if index < hot else chance.uniform(*idle)
        parts = [chance.uniform(0.3, 1.7) for _ in range(count)]
        total = sum(parts) or 1.0
        reports = []
        for number, part in enumerate(parts):
            cpu = int(32000 * share * part / total)
            memory = int(128 * GIB * share * chance.uniform(0.5, 1.1) / count)
            pod = Pod(
                name=f"p{index:05d}-{number:03d}",
                owners=OWNER,
                requests=make_resources({"cpu": int(cpu * 1.1), "memory": memory}),
                priority=chance.choice((5500, 7500, 9500)),
                node_name=name,
                phase=PodPhase.RUNNING,
            )
            placed.append(pod)
            used = measured_of({"cpu": cpu, "memory": memory})
            reports.append(PodMetric(namespace=pod.namespace, name=pod.name, usage=used))
        metrics[name] = NodeMetric(
            node=name, update_time=NOW, node_usage=measured_of({}), pods=tuple(reports)
        )
    return made, placed, metrics, args()


def problem(made: Cluster) -> MoveProblem:
    nodes, pods, metrics, given = made
    return problem_of_load(nodes, pods, metrics, given, now=NOW, evictor=CycleEvictor(EvictorArgs()))


def plan(made: Cluster, budget: float = 1.0) -> RebalancePlan:
    done = plan_rebalance(problem(made), limits=Limits(budget))
    assert done.before
    return done


def heuristic(made: Cluster) -> EvictionOutcome:
    """Run the reference's round, and give its evicted pods the tightest places."""
    nodes, pods, metrics, given = made
    evicted, _ = balance_low_node_load(
        nodes, pods, metrics, given, now=NOW, evictor=CycleEvictor(EvictorArgs())
    )
    return outcome_of(problem(made), (one.pod.key for one in evicted))


@attrs.frozen
class Compared:
    """One cluster balanced twice: hot nodes left and pods moved by plan, and the same by the heuristic."""

    left: int
    moves: int
    proven: bool
    bound: int
    other: EvictionOutcome


@cache
def compared() -> tuple[Compared, ...]:
    """Balance 200 clusters of 4 to 60 nodes, a tenth to a half of them hot, the others at 30 to 62 %."""
    results = []
    for seed in range(200):
        nodes = 4 + seed * 56 // 199
        hot = max(1, nodes * (10 + seed * 7 % 40) // 100)
        made = cluster(nodes, nodes * (3 + seed % 6), hot, seed, idle=(0.3, 0.62))
        done = plan(made, 0.25)
        certificate = done.certificate
        results.append(
            Compared(
                len(done.after),
                len(done.moves),
                certificate.proven,
                certificate.bound[0],
                heuristic(made),
            )
        )
    return tuple(results)


class Large:
    """5000 nodes, 50,000 pods, 200 hot nodes."""

    timeout = 300

    def setup(self) -> None:
        self.made = cluster(5000, 50_000, 200, 1)

    def time_plan(self) -> None:
        plan(self.made)

    def time_heuristic(self) -> None:
        nodes, pods, metrics, given = self.made
        balance_low_node_load(nodes, pods, metrics, given, now=NOW, evictor=CycleEvictor(EvictorArgs()))

    def track_hot_left(self) -> int:
        return len(plan(self.made).after)

    def track_moves_above_bound(self) -> int:
        certificate = plan(self.made).certificate
        return certificate.objective[1] - certificate.bound[1]


class Quality:
    """200 generated clusters of 4 to 60 nodes: the plan against the heuristic."""

    timeout = 900

    def setup(self) -> None:
        self.results = compared()
        self.curable = [one for one in self.results if not one.left]
        self.both = [one for one in self.curable if not one.other.waiting and not one.other.after]

    def track_cured_by_plan(self) -> int:
        return len(self.curable)

    def track_neither_cured_nor_shown_incurable(self) -> int:
        return sum(one.left > 0 and one.bound < one.left for one in self.results)

    def track_proven(self) -> int:
        return sum(one.proven for one in self.results)

    def track_cured_by_heuristic(self) -> int:
        return len(self.both)

    def track_heuristic_evicts_nothing(self) -> int:
        """Count curable clusters that the heuristic leaves alone."""
        return sum(not one.other.evictions for one in self.curable)

    def track_evictions_of_heuristic_where_both_cure(self) -> int:
        return sum(one.other.evictions for one in self.both)

    def track_moves_of_plan_where_both_cure(self) -> int:
        return sum(one.moves for one in self.both)

    def track_hot_left_by_plan(self) -> int:
        return sum(one.left for one in self.results)

    def track_hot_left_by_heuristic(self) -> int:
        return sum(len(one.other.after) for one in self.results)


Large.track_hot_left.unit = "nodes"  # type: ignore[attr-defined]
Large.track_moves_above_bound.unit = "moves"  # type: ignore[attr-defined]
for _name, _unit in (
    ("cured_by_plan", "clusters"),
    ("neither_cured_nor_shown_incurable", "clusters"),
    ("proven", "clusters"),
    ("cured_by_heuristic", "clusters"),
    ("heuristic_evicts_nothing", "clusters"),
    ("evictions_of_heuristic_where_both_cure", "evictions"),
    ("moves_of_plan_where_both_cure", "moves"),
    ("hot_left_by_plan", "nodes"),
    ("hot_left_by_heuristic", "nodes"),
):
    getattr(Quality, f"track_{_name}").unit = _unit


class Defragmentation:
    """Room for 32 whole nodes in one of eight blocks: 1024 nodes of 8 cards, some 4000 pods."""

    timeout = 300

    def setup(self) -> None:
        chance = random.Random(1)
        cards = {
            f"n{index:04d}": [chance.choice((1, 1, 1, 2, 2)) for _ in range(chance.choice((3, 4, 4, 5)))]
            for index in range(1024)
        }
        self.problem = MoveProblem(
            hosts=tuple(
                Host(
                    name=name,
                    requested=make_resources({"nvidia.com/gpu": sum(sizes)}),
                    allocatable=make_resources({"nvidia.com/gpu": 8}),
                )
                for name, sizes in cards.items()
            ),
            movable=tuple(
                Movable(
                    pod=PodKey("d", f"{name}-{index}"),
                    node=name,
                    requests=make_resources({"nvidia.com/gpu": size}),
                )
                for name, sizes in cards.items()
                for index, size in enumerate(sizes)
            ),
        )
        self.wanted = Wanted(
            requests=make_resources({"nvidia.com/gpu": 8}),
            count=32,
            per_node=1,
            blocks={name: f"b{int(name[1:]) // 128}" for name in cards},
        )

    def time_plan(self) -> None:
        assert not plan_defragmentation(self.problem, self.wanted).missing

    def track_moves_above_bound(self) -> int:
        certificate = plan_defragmentation(self.problem, self.wanted).certificate
        return certificate.objective[1] - certificate.bound[1]


Defragmentation.track_moves_above_bound.unit = "moves"  # type: ignore[attr-defined]


def cards(nodes: int, seed: int) -> tuple[MoveProblem, Fragments]:
    """Make nodes of 8 cards and 128 cores with pods of whole cards, a third of them of a share of one."""
    chance = random.Random(seed)

    def demand() -> GpuDemand:
        if chance.random() < 0.3:
            return GpuDemand(cpu=4000, gpus=1, milli=chance.choice((250, 500, 750)))
        gpus = chance.choice((1, 1, 1, 2, 2, 4, 8))
        return GpuDemand(cpu=gpus * 8000, gpus=gpus)

    hosts, movable, made = [], [], []
    demands, slots = {}, {}
    for index in range(nodes):
        name, idle, cpu = f"n{index:04d}", [CARD] * 8, 128_000
        for number in range(chance.choice((3, 4, 4, 5))):
            one = demand()
            held = [slot for slot, left in enumerate(idle) if left >= one.milli][: one.gpus]
            if len(held) < one.gpus or cpu < one.cpu:
                continue
            for slot in held:
                idle[slot] -= one.milli
            cpu -= one.cpu
            key = PodKey("d", f"{name}-{number}")
            demands[key], slots[key] = one, tuple(held)
            movable.append(Movable(pod=key, node=name, requests=make_resources({"cpu": one.cpu})))
        hosts.append(Host(name=name, requested={"cpu": 128_000 - cpu}, allocatable={"cpu": 128_000}))
        made.append(GpuNode(name=name, cpu=cpu, memory=0, cards=tuple(idle)))
    mix = workload_mix(demand() for _ in range(2000)).typical()
    aim = Fragments(mix=mix, nodes=tuple(made), demands=demands, slots=slots, worth=CARD // 2)
    return MoveProblem(hosts=tuple(hosts), movable=tuple(movable)), aim


class LessFragmentation:
    """Fewer idle cards in vain: 1024 nodes of 8 cards, some 3400 pods, half a card for a move."""

    timeout = 300

    def setup(self) -> None:
        self.problem, self.aim = cards(1024, 1)

    def time_plan(self) -> None:
        assert plan_fragments(self.problem, self.aim).moves

    def track_fall(self) -> float:
        done = plan_fragments(self.problem, self.aim)
        return round(100 * (done.before - done.after) / done.before, 1)

    def track_moves(self) -> int:
        return len(plan_fragments(self.problem, self.aim).moves)


LessFragmentation.track_fall.unit = "percent"  # type: ignore[attr-defined]
LessFragmentation.track_moves.unit = "moves"  # type: ignore[attr-defined]


def small_problem(seed: int) -> MoveProblem:
    """Make two to four nodes with up to six pods, most of them on the first node, often tight."""
    chance = random.Random(seed)
    count = chance.randint(2, 4)

    def two(most: int, least: int = 0) -> dict[str, int]:
        return {"cpu": chance.randint(least, most), "memory": chance.randint(least, most)}

    movable = tuple(
        Movable(
            pod=PodKey("d", f"p{index}"),
            node="n0" if chance.random() < 0.6 else f"n{chance.randrange(count)}",
            requests=make_resources(two(5)),
            usage=make_resources(two(5)),
            cost=chance.randint(1, 3),
        )
        for index in range(chance.randint(2, 6 if count < 4 else 5))
    )
    hosts = []
    for index in range(count):
        own = [one for one in movable if one.node == f"n{index}"]
        asked, used = two(2), two(2)
        for one in own:
            asked = {name: amount + one.requests[name] for name, amount in asked.items()}
            used = {name: amount + one.usage[name] for name, amount in used.items()}
        hosts.append(
            Host(
                name=f"n{index}",
                requested=asked,
                usage=used,
                allocatable=two(14, 8),
                high=two(8, 4),
                receives=chance.random() < 0.9,
            )
        )
    keys = tuple(one.pod for one in movable)
    limited = Group("some", keys[: chance.randint(1, len(keys))], chance.randint(0, 3))
    groups = (limited,) if chance.random() < 0.3 else ()
    return MoveProblem(hosts=tuple(hosts), movable=movable, groups=groups)


@cache
def against_brute_force() -> tuple[tuple[bool, bool, bool], ...]:
    """Solve 2000 random problems: hot before, worse than trying everything, proven."""
    results = []
    for seed in range(2000):
        asked = small_problem(seed)
        done, best = plan_rebalance(asked, limits=Limits(1.0)), fewest_to_cool(asked)
        worse = done.certificate.objective > best or done.certificate.bound > best
        results.append((bool(done.before), worse, done.certificate.proven))
    return tuple(results)


class BruteForce:
    """2000 random problems against every assignment of pods to nodes."""

    timeout = 900

    def setup(self) -> None:
        self.results = against_brute_force()

    def track_hot(self) -> int:
        return sum(hot for hot, _, _ in self.results)

    def track_worse(self) -> int:
        return sum(worse for _, worse, _ in self.results)

    def track_proven(self) -> int:
        return sum(proven for _, _, proven in self.results)


for _name in ("hot", "worse", "proven"):
    getattr(BruteForce, f"track_{_name}").unit = "problems"
