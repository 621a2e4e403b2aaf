"""How many of the answers that are proven come with a proof that anybody can repeat, kind by kind.

``python -m benchmarks.bench_proofs [KIND ...]`` prints the table of ``docs/reliability.md``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Final

import attrs
import numpy as np

from benchmarks.bench_claims import QUESTIONS
from benchmarks.bench_gangs import (
    IN_BLOCK,
    IN_SPINE,
    SPREAD,
    free_nodes,
    network,
    queue,
    three_roles,
    uniform,
)
from benchmarks.bench_preemption import domains_problem, flat_problem, quality_problem
from benchmarks.bench_rebalance import Defragmentation, cards, cluster, plan
from benchmarks.bench_reservations import some_node, some_reservation
from benchmarks.claims_data import CLASSES, empty_room
from koordcore.allocators.claims import ClaimsAllocated, allocate_claims
from koordcore.allocators.gang.demand import GangDemand, Member, Role, Shape
from koordcore.allocators.gang.planner import place_gang
from koordcore.allocators.gang.queue import plan_queue
from koordcore.checking import check_certificate
from koordcore.descheduling.defrag import Wanted, plan_defragmentation
from koordcore.descheduling.emptying import plan_emptying
from koordcore.descheduling.fragments import plan_fragments
from koordcore.descheduling.moves import Host, Movable, MoveProblem
from koordcore.model.certificates import Certificate, Limits
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import make_resources
from koordcore.preemption.plan import plan_preemption
from koordcore.reservations.assign import assign_reservations
from koordcore.reservations.state import reservation_state

GIB: Final = 2**30
QUICK: Final = Limits(1.0)


def equal_members() -> Iterator[Certificate | None]:
    """Gangs of equal members on 512 to 5120 nodes, with and without scores."""
    for seed in range(4):
        for tree, size in ((network(2, 8, 32), 64), (network(10, 16, 32), 512)):
            slots = free_nodes(tree, seed)
            rng = np.random.default_rng(seed)
            many = slots * rng.integers(1, 9, size=len(slots))
            for spec in (SPREAD, IN_SPINE, IN_BLOCK):
                for offered in (slots, many):
                    demand = uniform(tree, size, spec, offered)
                    yield place_gang(tree, demand).certificate
                    (shape,) = demand.shapes
                    scores = rng.integers(0, 900, size=len(slots))
                    scored = attrs.evolve(demand, shapes=(attrs.evolve(shape, scores=scores),))
                    yield place_gang(tree, scored).certificate


def shapes() -> Iterator[Certificate | None]:
    """Gangs of three shapes on 32 to 2048 nodes, scaled to their networks."""
    for spines, blocks, nodes in ((1, 2, 16), (2, 4, 8), (2, 4, 16), (2, 8, 16), (4, 8, 16), (4, 16, 32)):
        for seed in range(1 if nodes == 32 else 4):
            tree = network(spines, blocks, nodes)
            demand = three_roles(tree, seed)
            share = len(tree.nodes) / 2048
            roles = tuple(_fewer(role, max(1, int(len(role.members) * share))) for role in demand.roles)
            yield place_gang(tree, attrs.evolve(demand, roles=roles), limits=QUICK).certificate


def _fewer(role: Role, most: int) -> Role:
    return attrs.evolve(role, members=role.members[:most], min_available=most)


def slices() -> Iterator[Certificate | None]:
    """Slices of eight, each in a block, and a leader, on 32 to 2048 nodes."""
    for spines, blocks, nodes, count in (
        (1, 2, 16, 3),
        (2, 4, 8, 6),
        (2, 4, 16, 12),
        (4, 8, 16, 32),
        (4, 16, 32, 128),
    ):
        tree = network(spines, blocks, nodes)
        for seed in range(3):
            slots = free_nodes(tree, seed, 0.7, 1.0)
            yield place_gang(tree, _sliced(slots, count), limits=QUICK).certificate


def _sliced(slots: np.ndarray, count: int) -> GangDemand:
    ones = [
        Role(
            name=f"s{number}",
            members=tuple(Member(f"d/s{number}-{rank}", 0, number * 8 + rank) for rank in range(8)),
            min_available=8,
            must_layer="BlockLayer",
        )
        for number in range(count)
    ]
    leader = Role(name="leader", members=(Member("d/leader", 1),), min_available=1)
    worker = Shape(slots=slots, request=np.array([2], np.int64))
    other = Shape(slots=slots, request=np.array([1], np.int64))
    return GangDemand(roles=(leader, *ones), shapes=(worker, other), free=2 * slots[None, :], spec=SPREAD)


def queues() -> Iterator[Certificate | None]:
    """4 to 50 gangs on 32 to 1024 nodes."""
    for spines, blocks, nodes, gangs in ((1, 2, 16, 4), (2, 2, 16, 6), (2, 4, 16, 10), (4, 8, 32, 50)):
        for seed in range(3):
            tree = network(spines, blocks, nodes)
            yield plan_queue(tree, queue(tree, seed, gangs), limits=QUICK).certificate


def single_preemptors() -> Iterator[Certificate | None]:
    """One pod on 20 to 5000 full nodes of 8 pods; one to eight of them have to leave."""
    for nodes in (20, 50, 200, 1000, 5000):
        for gpus in (1, 2, 4, 6, 8):
            yield plan_preemption(flat_problem(nodes, 1, gpus)).certificate


def gang_preemptors() -> Iterator[Certificate | None]:
    """Gangs: small clusters of mixed pods, 500 nodes without a network, 10,240 in domains."""
    for seed in range(60):
        yield plan_preemption(quality_problem(seed)).certificate
    for nodes, members in ((20, 4), (50, 4), (50, 8), (200, 8), (500, 8)):
        for gpus in (2, 4, 6):
            yield plan_preemption(flat_problem(nodes, members, gpus), limits=QUICK).certificate
    yield plan_preemption(domains_problem(), limits=QUICK).certificate


def rebalancing() -> Iterator[Certificate | None]:
    """Hot nodes among 4 to 60, as in the benchmark of their quality, and 200 of 5000."""
    for seed in range(0, 200, 5):
        nodes = 4 + seed * 56 // 199
        hot = max(1, nodes * (10 + seed * 7 % 40) // 100)
        yield plan(cluster(nodes, nodes * (3 + seed % 6), hot, seed, idle=(0.3, 0.62)), 0.25).certificate
    yield plan(cluster(5000, 50_000, 200, 1)).certificate


def defragmentation() -> Iterator[Certificate | None]:
    """Whole nodes wanted among 8 to 1024."""
    large = Defragmentation()
    large.setup()
    yield plan_defragmentation(large.problem, large.wanted, limits=QUICK).certificate
    for nodes in (8, 16, 32, 64, 128, 256):
        for seed in range(3):
            problem, _ = cards(nodes, seed)
            wanted = Wanted(requests=make_resources({"cpu": 100_000}), count=max(1, nodes // 8), per_node=1)
            yield plan_defragmentation(problem, wanted, limits=QUICK).certificate


def fragments() -> Iterator[Certificate | None]:
    """Cards idle in vain on 2 to 1024 nodes."""
    for nodes in (2, 3, 4, 6, 8, 16, 64, 1024):
        for seed in range(1 if nodes > 100 else 3):
            yield plan_fragments(*cards(nodes, seed), limits=QUICK).certificate


def emptying() -> Iterator[Certificate | None]:
    """Nodes to be emptied among 4 to 1024, half full."""
    for nodes in (4, 8, 16, 64, 256, 1024):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            pods = [(f"n{row:04}", int(rng.integers(1, 4))) for row in range(nodes) for _ in range(2)]
            used = {name: sum(size for at, size in pods if at == name) for name, _ in pods}
            hosts = tuple(
                Host(name=name, requested={"cpu": 1000 * cpu}, allocatable={"cpu": 8000})
                for name, cpu in used.items()
            )
            movable = tuple(
                Movable(
                    pod=PodKey("d", f"p{number}"), node=name, requests=make_resources({"cpu": 1000 * size})
                )
                for number, (name, size) in enumerate(pods)
            )
            yield plan_emptying(MoveProblem(hosts=hosts, movable=movable)).certificate


def reservations() -> Iterator[Certificate | None]:
    """Owners and reservations, 10 to 1000 of each, used once or by several."""
    nodes = {f"n{number}": some_node(f"n{number}") for number in range(100)}
    for count in (10, 30, 100, 300, 1000):
        for once in (True, False):
            for seed in range(1 if count > 500 else 3):
                rng = np.random.default_rng(seed)
                kinds = max(1, count // 50)
                states = [
                    reservation_state(
                        some_reservation(
                            f"r{number}",
                            f"n{number % 100}",
                            int(rng.integers(1, 33)),
                            f"a{rng.integers(kinds)}",
                            once=once,
                        )
                    )
                    for number in range(count)
                ]
                pods = [
                    Pod(
                        name=f"p{number}",
                        labels={"app": f"a{rng.integers(kinds)}"},
                        requests={"cpu": 1000 * int(rng.integers(1, 33)), "memory": GIB},
                    )
                    for number in range(count)
                ]
                yield assign_reservations(pods, states, nodes, limits=QUICK).certificate


def claims() -> Iterator[Certificate | None]:
    """Devices of one node for claims; who is refused is refused without a certificate."""
    for held, asked, _ in QUESTIONS.values():
        answer = allocate_claims(empty_room(held), asked, CLASSES)
        yield answer.certificate if isinstance(answer, ClaimsAllocated) else None


KINDS: Final[dict[str, Callable[[], Iterator[Certificate | None]]]] = {
    "gang, equal members": equal_members,
    "gang, several shapes": shapes,
    "gang, slices": slices,
    "queue of gangs": queues,
    "preemption, one pod": single_preemptors,
    "preemption, gang": gang_preemptors,
    "rebalance": rebalancing,
    "defragmentation": defragmentation,
    "fragments": fragments,
    "emptying": emptying,
    "reservations": reservations,
    "claims": claims,
}


@attrs.frozen
class Counted:
    """Answers of a kind, those that are proven, those repeated; seconds of planning and of checking."""

    answers: int
    proven: int
    checked: int
    planning: float
    checking: float


def counted(kind: str) -> Counted:
    """Plan and check every instance of a kind."""
    answers = proven = checked = 0
    planning = checking = 0.0
    asked = KINDS[kind]()
    while True:
        start = time.perf_counter()
        try:
            one = next(asked)
        except StopIteration:
            return Counted(answers, proven, checked, planning, checking)
        planning += time.perf_counter() - start
        if one is None:
            continue
        start = time.perf_counter()
        answers, proven = answers + 1, proven + one.proven
        found = check_certificate(one.problem, one)
        assert found.outcome != "Rejected", found.reason
        checked += found.accepted
        checking += time.perf_counter() - start


class Share:
    """Percent of the proven answers whose proof is repeated."""

    params = tuple(KINDS)
    timeout = 900

    def track_checked(self, kind: str) -> float:
        found = counted(kind)
        return round(100 * found.checked / max(1, found.proven), 1)

    track_checked.unit = "%"  # type: ignore[attr-defined]  # asv reads it


def main(kinds: list[str]) -> None:
    """Print the table."""
    write = sys.stdout.write
    write("| kind | answers | proven | repeated | share | planning s | checking s |\n" + "|---" * 7 + "|\n")
    checked = proven = 0
    for kind in kinds or KINDS:
        one = counted(kind)
        checked, proven = checked + one.checked, proven + one.proven
        times = f"{one.planning:.1f} | {one.checking:.1f}"
        share = _percent(one.checked, one.proven)
        row = f"{kind} | {one.answers} | {one.proven} | {one.checked} | {share} | {times}"
        write(f"| {row} |\n")
        sys.stdout.flush()
    write(f"| all | | {proven} | {checked} | {_percent(checked, proven)} | | |\n")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.0f} %"


if __name__ == "__main__":
    main(sys.argv[1:])
