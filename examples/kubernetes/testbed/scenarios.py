"""What is tried: each scenario brings pods, says what has to become of them, and gives what it found."""

from __future__ import annotations

import json
import random  # noqa: TID251  # seeded; a tool for people, not the library
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final

import attrs

from examples.kubernetes.api import Object
from examples.kubernetes.testbed.bed import Bed, Process
from examples.kubernetes.testbed.check import check
from examples.kubernetes.testbed.cutting import CuttingProxy
from examples.kubernetes.testbed.live import Traffic
from examples.kubernetes.testbed.world import (
    CARDS,
    GPU,
    GROUPS,
    NIC,
    drivers,
    gang,
    group,
    paired,
    pod,
    quota,
    tree,
)

__all__ = ["SCENARIOS", "Outcome", "Plan"]

_QUOTA: Final = "quota.scheduling.koordinator.sh/name"
_A_SECOND: Final = 100
"""Pods that come, and end, in a live cluster."""
_PLENTY: Final = 300.0
"""Seconds after which something that should happen has not."""


def _size(default: int, what: str) -> int:
    made: int = attrs.field(default=default, metadata={"what": what})
    return made


@attrs.frozen(kw_only=True)
class Plan:
    """How large to make it; the command's options."""

    nodes: int = _size(500, "nodes of the cluster")
    gpu_nodes: int = _size(64, "those of them with cards")
    burst: int = _size(500, "pods of each of the four bursts")
    kills: int = _size(30, "how often the scheduler is killed")
    seed: int = _size(1, "of the moments of the kills, and of those at which connections are cut")
    running: int = _size(10, "pods that run on each node of a live cluster")
    arrivals: int = _size(2000, "pods that come there, a hundred a second; as many end")


@attrs.define
class Outcome:
    """What came of a scenario; figures are those of the scheduler that was not killed."""

    name: str
    bound: int = 0
    seconds: float = 0.0
    kills: int = 0
    note: str = ""
    wrong: list[str] = attrs.Factory(list)
    cycles: list[dict[str, Any]] = attrs.Factory(list)

    def expect(self, holds: bool, what: str) -> None:
        """Note what does not hold."""
        if not holds:
            self.wrong.append(what)

    def booked(self, *names: str) -> float:
        """Seconds that the scheduler spent so."""
        return sum(float(cycle[name]) for cycle in self.cycles for name in names)


def _cards(count: int, nics: int = 0) -> dict[str, str]:
    wanted = {"cpu": str(4 * count), "memory": f"{16 * count}Gi", GPU: str(100 * count)}
    return wanted | ({NIC: str(100 * nics)} if nics else {})


def _timed(bed: Bed, outcome: Outcome, pods: Iterable[tuple[str, Object]], wanted: int, prefix: str) -> None:
    """Bring pods and wait until so many of them have a node; the time counts from the first of them on."""
    begin = time.monotonic()
    bed.create(pods)
    bed.until(pods=wanted, prefix=prefix, seconds=_PLENTY)
    time.sleep(1.0)  # so that too much is seen as well as too little
    found = bed.running(prefix)
    outcome.expect(found == wanted, f"{found} of {wanted} {prefix}* run")
    outcome.bound += found
    outcome.seconds += bed.kubelets.last_bind - begin


def bursts(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """Four bursts of pods without and with cards."""
    with bed.scheduler() as scheduler:
        for number in range(4):
            cards = plan.gpu_nodes * CARDS // 5
            pods = [pod(f"burst{number}-gpu-{one}", _cards(1)) for one in range(cards)]
            for one in range(plan.burst - cards):
                size = one % 4 + 1
                pods.append(pod(f"burst{number}-cpu-{one}", {"cpu": str(size), "memory": f"{2 * size}Gi"}))
            _timed(bed, outcome, pods, plan.burst, f"burst{number}-")
    outcome.cycles = scheduler.cycles


def gangs(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """Gangs of eight that must not leave their block; all blocks are full before the last one's turn."""
    fit = plan.gpu_nodes // 4
    with bed.scheduler() as scheduler:
        pods = [
            one
            for number in range(fit + 1)
            for one in gang(f"gang{number}", 8, _cards(4), gather="BlockLayer")
        ]
        _timed(bed, outcome, pods, 8 * fit, "gang")
    for number in range(fit + 1):
        blocks = {int(item["spec"]["nodeName"][4:]) // 8 for item in bed.kubelets.running(f"gang{number}-")}
        outcome.expect(len(blocks) <= 1, f"gang{number} lies in blocks {sorted(blocks)}")
    outcome.cycles = scheduler.cycles
    outcome.note = f"{fit} gangs in one block each, one waits"


def joint(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """Pods that want two cards and a function of the NIC on their switch, until nothing is left."""
    fit = plan.gpu_nodes * CARDS // 2
    with bed.scheduler() as scheduler:
        _timed(bed, outcome, [pod(f"joint-{one}", _cards(2, 1)) for one in range(fit)], fit, "joint-")
    apart = 0
    for item in bed.kubelets.running("joint-"):
        given = json.loads(item["metadata"]["annotations"]["scheduling.koordinator.sh/device-allocated"])
        # World: cards 2k and 2k+1 and NIC k are on switch k.
        apart += {one["minor"] // 2 for one in given["gpu"]} != {one["minor"] for one in given["rdma"]}
    outcome.expect(not apart, f"{apart} pods have cards and NIC on different switches")
    outcome.cycles = scheduler.cycles
    outcome.note = "each NIC on the switch of its cards"


def quotas(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """A team uses three quarters of the cards, half of which are promised to another, which comes then."""
    cards = plan.gpu_nodes * CARDS
    half, all_of_it = {GPU: str(50 * cards)}, {GPU: str(100 * cards)}
    bed.create(quota(team, least=half, most=all_of_it) for team in ("team-a", "team-b"))
    with bed.scheduler(revoke=2.0, retry=5.0) as scheduler:
        borrower = [pod(f"a-{one}", _cards(4), labels={_QUOTA: "team-a"}) for one in range(cards * 3 // 16)]
        _timed(bed, outcome, borrower, len(borrower), "a-")
        owner = [pod(f"b-{one}", _cards(4), labels={_QUOTA: "team-b"}) for one in range(cards // 8)]
        _timed(bed, outcome, owner, len(owner), "b-")
        kept = bed.running("a-")
        outcome.expect(kept == cards // 8, f"{kept} pods of the borrower are left, {cards // 8} should be")
    outcome.cycles = scheduler.cycles
    outcome.note = f"{len(borrower) - kept} borrowed places given back"


def _full_of_gangs(bed: Bed, plan: Plan, outcome: Outcome) -> Process:
    """Fill every block with a gang of its own."""
    fit = plan.gpu_nodes // 8
    low = [one for number in range(fit) for one in gang(f"low{number}", 8, _cards(8), gather="BlockLayer")]
    with bed.scheduler() as scheduler:
        _timed(bed, outcome, low, 8 * fit, "low")
    return scheduler


def _one_gang_gone(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    fit = plan.gpu_nodes // 8
    left = [bed.running(f"low{number}-") for number in range(fit)]
    outcome.expect(sorted(left) == [0] + [8] * (fit - 1), f"members left of the other gangs: {left}")


def preemption(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """A more important gang comes into a cluster full of gangs; one of them leaves whole, the others stay."""
    outcome.cycles = _full_of_gangs(bed, plan, outcome).cycles
    with bed.scheduler() as scheduler:
        high = gang("high", 8, _cards(8), gather="BlockLayer", priority="high")
        _timed(bed, outcome, high, 8, "high")
    _one_gang_gone(bed, plan, outcome)
    outcome.cycles += scheduler.cycles
    outcome.note = "one gang of 8 evicted whole"


def claims(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """Pods that claim a GPU and a NIC on one root, until nothing is left; half go, and others come."""
    fit = plan.gpu_nodes * CARDS // 2
    bed.create(drivers(plan.gpu_nodes))
    with bed.scheduler(retry=5.0) as scheduler:
        _timed(bed, outcome, [paired(f"claim-{one}") for one in range(fit + 1)], fit, "claim-")
        _expect_pairs(bed, outcome, fit)
        bed.end(f"claim-{one}" for one in range(0, fit, 2))
        bed.until(pods=fit // 2 + 1, prefix="claim-", seconds=_PLENTY)  # the one that waited
        _timed(bed, outcome, [paired(f"late-{one}") for one in range(fit // 2 - 1)], fit // 2 - 1, "late-")
        _expect_pairs(bed, outcome, fit)
    outcome.cycles = scheduler.cycles
    outcome.note = "each GPU with the NIC on its root"


def _expect_pairs(bed: Bed, outcome: Outcome, wanted: int) -> None:
    """Look at the claims themselves: reserved for a pod, no device twice, GPU and NIC on one root."""
    taken: Counter[tuple[str, ...]] = Counter()
    reserved = 0
    for item in bed.api.list_all("/apis/resource.k8s.io/v1/resourceclaims").items:
        status = item.get("status", {})
        found = {
            one["request"]: (one["driver"], one["pool"], one["device"])
            for one in status.get("allocation", {}).get("devices", {}).get("results", ())
        }
        taken.update(found.values())
        reserved += bool(status.get("reservedFor"))
        if found:
            gpu, nic = (int(found[name][2].removeprefix("dev-")) for name in ("gpu", "nic"))
            same = found["gpu"][1] == found["nic"][1] and gpu // 2 == nic
            outcome.expect(same, f"{item['metadata']['name']}: {found}")
    twice = [name for name, count in taken.items() if count > 1]
    outcome.expect(not twice, f"given twice: {twice[:3]}")
    outcome.expect(reserved == wanted, f"{reserved} claims are reserved, {wanted} should be")


def groups(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """Kubernetes' own groups fill every block; for a more important one, one leaves whole and comes back."""
    fit = plan.gpu_nodes // 8
    low = [one for number in range(fit) for one in group(f"low{number}", 8, _cards(8))]
    with bed.scheduler(retry=5.0) as scheduler:
        _timed(bed, outcome, low, 8 * fit, "low")
        _timed(bed, outcome, group("high", 8, _cards(8), priority="high"), 8, "high")
        _one_gang_gone(bed, plan, outcome)
        (gone,) = (number for number in range(fit) if not bed.running(f"low{number}-"))
        again = [one for one in group(f"low{gone}", 8, _cards(8)) if one[0].endswith("/pods")]
        bed.create(again)
        time.sleep(2.0)
        outcome.expect(not bed.running(f"low{gone}-"), "who was evicted is back although there is no room")
        bed.end(f"high-{number}" for number in range(8))
        bed.until(pods=8, prefix=f"low{gone}-", seconds=_PLENTY)
        outcome.expect(bed.running(f"low{gone}-") == 8, "who was evicted does not come back")
    outcome.cycles = scheduler.cycles
    outcome.note = "one group of 8 evicted whole and back"


def trees(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """A group of groups waits for its last member while the scheduler is started again, and mends a loss."""
    made = list(tree("tree", ("a", "b"), 4, _cards(8)))
    with bed.scheduler() as scheduler:
        scheduler.wait_ready(_PLENTY)
        bed.create(made[:-1])
        time.sleep(3.0)
        outcome.expect(not bed.running("tree"), "some start although a part of the tree lacks a member")
    outcome.cycles = scheduler.cycles
    with bed.scheduler(retry=5.0) as scheduler:
        _timed(bed, outcome, made[-1:], 8, "tree")
        told = {
            item["metadata"]["name"]: [
                (one["type"], one["status"]) for one in item.get("status", {}).get("conditions", ())
            ]
            for item in bed.api.list_all(GROUPS).items
        }
        for part in ("tree-a", "tree-b"):
            outcome.expect(
                told.get(part) == [("PodGroupInitiallyScheduled", "True")], f"{part}: {told.get(part)}"
            )
        bed.end(["tree-a-0"])
        _timed(bed, outcome, [one for one in made if one[1]["metadata"]["name"] == "tree-a-0"], 8, "tree")
    outcome.cycles += scheduler.cycles
    outcome.note = "two groups below one, together; a member made anew joins its block"


def cuts(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """All connections of the scheduler are cut again and again, in whatever they carry."""
    with (
        CuttingProxy(bed.port, seed=plan.seed) as proxy,
        bed.scheduler(port=proxy.port, patience=0.5, retry=5.0) as scheduler,
    ):
        for number in range(3):
            pods = _mixture(f"cut{number}")
            _timed(bed, outcome, pods, _members(pods), f"cut{number}-")
            outcome.expect(not scheduler.dead, "the scheduler has ended")
            bed.end(name for name in list(bed.kubelets.pods) if name.startswith(f"cut{number}-"))
    outcome.kills = proxy.cuts
    outcome.note = f"{proxy.cuts} connections cut"


def forgotten(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """The scheduler hears nothing for a while; when its watches are cut etcd has forgotten what happened."""
    rounds, told = 3, 0
    with (
        CuttingProxy(bed.port, seed=plan.seed, pauses=None) as proxy,
        bed.scheduler(port=proxy.port, patience=0.5, retry=5.0) as scheduler,
    ):
        for number in range(rounds):
            _timed(bed, outcome, (before := _mixture(f"old{number}")), _members(before), f"old{number}-")
            pods = _mixture(f"new{number}")
            with proxy.held():
                bed.end(name for name in list(bed.kubelets.pods) if name.startswith(f"old{number}-"))
                bed.create(pods)
                bed.server.forget()
            _timed(bed, outcome, (), _members(pods), f"new{number}-")
            outcome.expect(not scheduler.dead, "the scheduler has ended")
            heard = bed.log.read_text(errors="replace").count("the version is gone")
            outcome.expect(heard > told, f"round {number}: nothing was gone")
            told = heard
            bed.end(name for name in list(bed.kubelets.pods) if name.startswith(f"new{number}-"))
    outcome.cycles = scheduler.cycles
    outcome.note = f"{told} times listed anew, since the version was gone"


def live(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """Pods come and end, a hundred a second, in a cluster that runs: metrics and heartbeats at their rate."""
    nodes = sorted(item["metadata"]["name"] for item in bed.api.list_all("/api/v1/nodes").items)
    there = []
    for number in range(plan.running * len(nodes)):
        path, item = pod(f"run-{number}", {"cpu": "500m", "memory": "1Gi"})
        item["spec"]["nodeName"] = nodes[number % len(nodes)]
        there.append((path, item))
    bed.create(there)
    chance = random.Random(plan.seed)
    names = [item["metadata"]["name"] for _, item in there]
    chance.shuffle(names)
    traffic = Traffic(bed.api, nodes, seed=plan.seed, end=lambda: bed.drop(names.pop()), ends=_A_SECOND)
    traffic.open()
    with bed.scheduler() as scheduler:
        scheduler.wait_ready(_PLENTY)
        before = len(scheduler.cycles)
        with traffic:
            begin = time.monotonic()
            for number in range(plan.arrivals):
                time.sleep(max(0.0, begin + number / _A_SECOND - time.monotonic()))
                bed.bring(pod(f"come-{number}", {"cpu": "1", "memory": "2Gi"}))
            bed.until(pods=plan.arrivals, prefix="come-", seconds=_PLENTY)
            outcome.bound = bed.running("come-")
            outcome.seconds = bed.kubelets.last_bind - begin
    outcome.expect(outcome.bound == plan.arrivals, f"{outcome.bound} of {plan.arrivals} run")
    outcome.cycles = scheduler.cycles[before:]
    busy, checking = (outcome.booked(*names) / outcome.seconds for names in (("read", "decide"), ("verify",)))
    turns = len(outcome.cycles)
    shares = f"{busy:.0%} of the time reading and deciding, {checking:.0%} checking"
    outcome.note = f"{len(nodes)} nodes, {turns} turns, {shares}"


def _mixture(name: str) -> list[tuple[str, Object]]:
    """Gangs with a block of their own, pods with cards and NICs, pods without."""
    pods = [
        one for number in range(3) for one in gang(f"{name}-g{number}", 8, _cards(4), gather="BlockLayer")
    ]
    pods += [pod(f"{name}-n{number}", _cards(2, 1)) for number in range(40)]
    pods += [pod(f"{name}-s{number}", _cards(1)) for number in range(20)]
    return pods + [pod(f"{name}-c{number}", {"cpu": "2", "memory": "4Gi"}) for number in range(60)]


def _members(pods: Iterable[tuple[str, Object]]) -> int:
    return sum(path.endswith("/pods") for path, _ in pods)


def two(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """Two schedulers that know nothing of each other."""
    with bed.scheduler(batch=40) as one, bed.scheduler(batch=40) as other:
        one.wait_ready(_PLENTY)
        other.wait_ready(_PLENTY)
        for number in range(2):
            pods = _mixture(f"two{number}")
            _timed(bed, outcome, pods, _members(pods), f"two{number}-")
        outcome.expect(not one.dead and not other.dead, "a scheduler has ended")
    outcome.cycles = one.cycles + other.cycles
    lost = sum(cycle["lost"] for cycle in outcome.cycles)
    shares = [sum(cycle["bound"] for cycle in each.cycles if not cycle["lost"]) for each in (one, other)]
    outcome.note = f"{shares[0]} and {shares[1]} bound, {lost} batches came second"


def kills(bed: Bed, plan: Plan, outcome: Outcome) -> None:
    """The scheduler is killed after some binds and evictions, or some time, until all pods have their nodes.

    By turns a mixture comes into the empty cluster, an important gang into one full of gangs, and a mixture
    while another scheduler runs that is not killed.
    """
    chance = random.Random(plan.seed)
    begin = time.monotonic()
    rounds = 0
    while outcome.kills < plan.kills:
        kind = rounds % 3
        if kind == 1:
            _full_of_gangs(bed, plan, outcome)
            pods = list(gang("kill", 8, _cards(8), gather="BlockLayer", priority="high"))
        else:
            pods = _mixture("kill")
        wanted = _members(pods)
        bed.create(pods)
        with ExitStack() as rivals:
            if kind == 2:
                rivals.enter_context(bed.scheduler(patience=0.5, batch=30))
            while bed.running("kill") < wanted and time.monotonic() - begin < 10 * _PLENTY:
                _kill_one(bed, outcome, chance, wanted)
            with bed.scheduler(patience=0.5) as scheduler:
                bed.until(pods=wanted, prefix="kill", seconds=_PLENTY)
                time.sleep(2.0)  # so that whatever is still to be undone is
            outcome.cycles += scheduler.cycles
        found = bed.running("kill")
        outcome.expect(found == wanted, f"round {rounds}: {found} of {wanted} run")
        if kind == 1:
            _one_gang_gone(bed, plan, outcome)
        outcome.wrong += check(bed.api)
        outcome.bound += found
        rounds += 1
        bed.clear()
    outcome.seconds = time.monotonic() - begin
    left = sum(cycle["finished"] > 0 for cycle in outcome.cycles)
    outcome.note = f"{rounds} rounds, seed {plan.seed}; {left} batches were left half done and finished"


def _kill_one(bed: Bed, outcome: Outcome, chance: random.Random, wanted: int) -> None:
    with bed.scheduler(patience=0.5, batch=chance.choice((60, 200))) as scheduler:
        match chance.choice(("amid a batch", "amid a batch", "some time", "at the start")):
            case "amid a batch":
                bed.until(moves=chance.randrange(1, 40), pods=wanted, prefix="kill", seconds=60.0)
            case "some time":
                scheduler.wait_ready(60.0)
                bed.until(pods=wanted, prefix="kill", seconds=chance.uniform(0.0, 3.0))
            case _:
                time.sleep(chance.uniform(0.0, 2.0))
    outcome.kills += 1
    outcome.cycles += scheduler.cycles


SCENARIOS: Final[Mapping[str, Callable[[Bed, Plan, Outcome], None]]] = {
    "bursts": bursts,
    "gangs with topology": gangs,
    "GPU and NIC together": joint,
    "quota lent and taken back": quotas,
    "preemption of a whole job": preemption,
    "GPU and NIC by claims": claims,
    "groups of Kubernetes' own": groups,
    "groups of groups": trees,
    "two schedulers": two,
    "connections cut": cuts,
    "versions gone": forgotten,
    "a live cluster": live,
    "killed and started again": kills,
}
