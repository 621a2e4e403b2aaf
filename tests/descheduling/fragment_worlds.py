"""Small clusters of cards with running pods."""

from __future__ import annotations

import random

from koordcore.descheduling.fragments import Fragments
from koordcore.descheduling.moves import Group, Host, Movable, MoveProblem
from koordcore.model.pods import PodKey
from koordcore.model.resources import make_resources
from koordcore.scoring.fragmentation import WorkloadMix, workload_mix
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode


def cluster(
    pods: dict[str, list[GpuDemand]],
    mix: WorkloadMix,
    *,
    size: int = 4,
    cpu: int = 16_000,
    worth: int = 100,
    most: int | None = None,
    groups: tuple[Group, ...] = (),
) -> tuple[MoveProblem, Fragments]:
    """Give nodes of so many cards, with pods on the lowest free cards."""
    hosts, movable, nodes = [], [], []
    demands, slots = {}, {}
    for name, own in sorted(pods.items()):
        cards = [CARD] * size
        for index, demand in enumerate(own):
            key = PodKey("d", f"{name}-{index}")
            held = [slot for slot, left in enumerate(cards) if left >= demand.milli][: demand.gpus]
            for slot in held:
                cards[slot] -= demand.milli
            demands[key], slots[key] = demand, tuple(held)
            movable.append(Movable(pod=key, node=name, requests=make_resources({"cpu": demand.cpu})))
        used = sum(demand.cpu for demand in own)
        hosts.append(Host(name=name, requested={"cpu": used}, allocatable={"cpu": cpu}))
        nodes.append(GpuNode(name=name, cpu=cpu - used, memory=0, cards=tuple(cards)))
    problem = MoveProblem(hosts=tuple(hosts), movable=tuple(movable), groups=groups)
    aim = Fragments(mix=mix, nodes=tuple(nodes), demands=demands, slots=slots, worth=worth, most=most)
    return problem, aim


def random_cards(seed: int, *, shares: bool) -> tuple[MoveProblem, Fragments]:
    """Two or three nodes with up to five pods, with shares of cards or without."""
    chance = random.Random(seed)

    def demand() -> GpuDemand:
        gpus = chance.choice((0, 1, 1, 2, 3))
        cpu = chance.choice((0, 1000, 4000))
        milli = chance.choice((250, 500, CARD)) if shares and gpus == 1 else CARD
        return GpuDemand(cpu=cpu, gpus=gpus, milli=milli)

    pods: dict[str, list[GpuDemand]] = {}
    for index in range(chance.randint(2, 3)):
        own: list[GpuDemand] = []
        for _ in range(chance.randint(0, 3)):
            one = demand()
            if sum(other.gpus for other in own) + one.gpus <= 4:
                own.append(one)
        pods[f"n{index}"] = own[: max(0, 5 - sum(map(len, pods.values())))]
    mix = workload_mix([demand() for _ in range(chance.randint(1, 6))])
    problem, aim = cluster(
        pods,
        mix,
        cpu=chance.choice((6000, 12_000)),
        worth=chance.choice((1, 100, 400)),
        most=chance.choice((None, None, 1, 2)),
    )
    keys = tuple(one.pod for one in problem.movable)
    if keys and chance.random() < 0.3:
        group = Group("some", keys[: chance.randint(1, len(keys))], chance.randint(0, 2))
        problem = MoveProblem(hosts=problem.hosts, movable=problem.movable, groups=(group,))
    return problem, aim
