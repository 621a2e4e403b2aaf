"""Workloads and nodes as Kubernetes objects: what stands in the bottle, and what comes into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore._record import record
from koordcore.controlplane.requests import Object
from koordcore.simulate.world.chance import Chance
from koordcore.simulate.world.profile import SECOND, FaultProfile

CARD: Final = "koordinator.sh/gpu"
QUOTA: Final = "quota.scheduling.koordinator.sh/"
GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
SCHEDULER: Final = "koord-scheduler"
PRIORITIES: Final = (0, 100, 1000)
_CORES: Final = 16
_WHOLE: Final = 100
"""Percent of a card."""


@record(kw_only=True)
class Work:
    """A workload: pods that its controller makes anew until it has run.

    Parameters
    ----------
    pods
        How many pods there are at a time.
    together
        They start together.
    cores, cards
        What each pod asks for.
    least
        Of its disruption budget; 0 for none.
    grace, stuck
        How long a pod may take to end, and how long a finalizer keeps it then, in milliseconds.
    runs
        How long it runs once all of its pods do, in milliseconds.
    """

    name: str
    pods: int
    together: bool
    cores: int
    cards: int
    priority: int
    quota: str
    least: int
    grace: int
    stuck: int
    runs: int


def draw_work(chance: Chance, profile: FaultProfile, number: int) -> Work:
    """Draw a workload; the number stands in its name."""
    together = chance.happens(profile.gangs)
    pods = chance.between(2, 4) if together or chance.below(2) else 1
    cards = chance.one_of((0, 1, 1, 2)) if profile.cards else 0
    cards = min(cards, profile.cards)
    return Work(
        name=f"w{number}",
        pods=pods,
        together=together,
        cores=chance.one_of((1, 2, 4)),
        cards=cards,
        priority=chance.one_of(PRIORITIES),
        quota=chance.one_of(("team-a", "team-b")) if chance.happens(profile.quotas) else "",
        least=chance.between(1, pods) if chance.happens(profile.budgets) else 0,
        grace=chance.below(profile.drain + 1),
        stuck=chance.between(1, 5) * SECOND if chance.happens(profile.stuck) else 0,
        runs=chance.between(5, 40) * SECOND,
    )


def words_for(work: Work) -> str:
    """Tell what a workload is."""
    wants = _counted(work.cores, "core") + (f", {_counted(work.cards, 'card')}" if work.cards else "")
    many = f"a {'gang' if work.together else 'set'} of {work.pods} pods" if work.pods > 1 else "a pod"
    quota = f", quota {work.quota}" if work.quota else ""
    return f"{work.name}: {many}, {wants}{' each' * (work.pods > 1)}, priority {work.priority}{quota}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def pod_of(work: Work, rank: int) -> Object:
    """Make a pod of a workload; it has the same name every time."""
    labels = {"app": work.name}
    if work.together:
        labels[GROUP] = work.name
    if work.quota:
        labels[QUOTA + "name"] = work.quota
    amounts = {"cpu": str(work.cores), "memory": f"{work.cores}Gi"}
    if work.cards:
        amounts[CARD] = str(_WHOLE * work.cards)
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    metadata: Object = {"name": f"{work.name}-{rank}", "namespace": "default", "labels": labels}
    if work.stuck:
        metadata["finalizers"] = ["example.com/stuck"]
    spec = {
        "schedulerName": SCHEDULER,
        "priority": work.priority,
        "terminationGracePeriodSeconds": -(-work.grace // SECOND),
        "containers": [container],
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def group_of(work: Work) -> Object:
    """Make the PodGroup of a workload whose pods start together."""
    return {"metadata": {"name": work.name, "namespace": "default"}, "spec": {"minMember": work.pods}}


def budget_of(work: Work) -> Object:
    """Make the disruption budget of a workload."""
    spec = {"minAvailable": work.least, "selector": {"matchLabels": {"app": work.name}}}
    return {
        "metadata": {"name": work.name, "namespace": "default"},
        "spec": spec,
        "status": {"disruptionsAllowed": 0},
    }


def node_name(number: int) -> str:
    """Name a node."""
    return f"n{number}"


def node(number: int, cards: int) -> Object:
    """Make a node."""
    room = {"cpu": str(_CORES), "memory": f"{4 * _CORES}Gi", "pods": "20"}
    if cards:
        share = str(_WHOLE * cards)
        room |= {CARD: share, f"{CARD}-core": share, f"{CARD}-memory-ratio": share}
        room |= {f"{CARD}-memory": f"{80 * cards}Gi", f"{CARD}.shared": share}
    name = node_name(number)
    labels = {"kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": room}}


def cards_of(number: int, profile: FaultProfile) -> int:
    """Give how many cards a node has: every second one has them."""
    return 0 if number % 2 else profile.cards


def device(number: int, cards: int) -> Object:
    """Make the Device object of a node with cards."""
    amounts = {f"{CARD}-core": "100", f"{CARD}-memory-ratio": "100", f"{CARD}-memory": "80Gi"}
    listed = [
        {"type": "gpu", "minor": minor, "id": f"GPU-{minor}", "health": True, "resources": amounts}
        for minor in range(cards)
    ]
    return {"metadata": {"name": node_name(number)}, "spec": {"devices": listed}}


def metric(number: int, second: int, cores: Mapping[str, int]) -> Object:
    """Make the report of what the pods of a node use, in milli-cores."""
    minutes, seconds = divmod(second, 60)
    when = f"2026-01-01T{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}Z"
    pods = [{"namespace": "default", "name": pod, "podUsage": _usage(used)} for pod, used in cores.items()]
    return {
        "metadata": {"name": node_name(number)},
        "spec": {},
        "status": {
            "updateTime": when,
            "nodeMetric": {"nodeUsage": _usage(sum(cores.values()))},
            "podsMetric": pods,
        },
    }


def _usage(cores: int) -> Object:
    return {"resources": {"cpu": f"{cores}m", "memory": f"{cores}Mi"}}


def quotas(profile: FaultProfile) -> list[Object]:
    """Make two quotas that may each use two thirds of the cluster and are promised a third."""
    cores = _CORES * profile.nodes
    cards = _WHOLE * sum(cards_of(number, profile) for number in range(profile.nodes))
    found = []
    for name in ("team-a", "team-b"):
        labels = {QUOTA + "is-parent": "false"}
        amounts = [{"cpu": str(cores * part // 3), "memory": f"{cores * part // 3}Gi"} for part in (1, 2)]
        if cards:
            amounts = [
                {**one, CARD: str(cards * part // 300 * 100)}
                for part, one in zip((1, 2), amounts, strict=True)
            ]
        spec = {"min": amounts[0], "max": amounts[1]}
        found.append({"metadata": {"name": name, "namespace": "default", "labels": labels}, "spec": spec})
    return found
