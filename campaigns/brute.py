"""The best there is, by trying everything: for worlds so small that one can.

Written from what the documentation promises, in terms of the objects: what a gang's gathering is worth, and
what an eviction costs.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Final

from campaigns.case import Object, key_of
from campaigns.meaning import requests_of
from campaigns.worlds import LAYERS

__all__ = ["best_gathering", "cheapest_eviction"]

NOBODY: Final = -(2**31)
"""Stands for the highest priority where nobody leaves."""


def best_gathering(objects: list[Object], members: list[Object], least: int) -> tuple[int, ...] | None:
    """Try every way to put equal members on nodes; None where there is none.

    Returns
    -------
    tuple
        Members placed, negated; domains opened per layer, wished ones first, then from the top down; slots of
        the used domains, from the nodes up.
    """
    note = members[0]["metadata"]["annotations"].get("gang.scheduling.koordinator.sh/network-topology-spec")
    rules = json.loads(note)["gatherStrategy"] if note else []
    must = [LAYERS.index(one["layer"]) for one in rules if one["strategy"] == "MustGather"]
    wished = [LAYERS.index(one["layer"]) for one in rules if one["strategy"] == "PreferGather"]
    order = [*wished, *(depth for depth in range(len(LAYERS)) if depth not in wished)]
    slots = {path: min(len(members), room) for path, room in _rooms(objects, members[0])}
    found: list[tuple[int, ...]] = []
    for counts in itertools.product(*(range(room + 1) for room in slots.values())):
        used = [path for path, count in zip(slots, counts, strict=True) if count]
        placed = sum(counts)
        if not least <= placed <= len(members):
            continue
        domains = [{path[: depth + 1] for path in used} for depth in range(len(LAYERS))]
        if any(len(domains[depth]) > 1 for depth in must):
            continue
        opened = [len(domains[depth]) for depth in order]
        tight = [
            sum(room for path, room in slots.items() if path[: depth + 1] in domains[depth])
            for depth in reversed(range(len(LAYERS)))
        ]
        found.append((-placed, *opened, *tight))
    return min(found, default=None)


def _rooms(objects: list[Object], member: Object) -> Iterator[tuple[tuple[str, ...], int]]:
    """Path of every node in the network, and how many members it takes."""
    asked = requests_of(member)
    for node in (one for one in objects if one["kind"] == "Node"):
        labels, name = node["metadata"]["labels"], node["metadata"]["name"]
        free = _free(objects, name, ())
        room = min(free[key] // amount for key, amount in asked.items() if amount)
        yield (labels["net/spine"], labels["net/block"], name), max(0, room)


def _free(objects: list[Object], name: str, gone: tuple[str, ...]) -> dict[str, int]:
    node = next(one for one in objects if one["kind"] == "Node" and one["metadata"]["name"] == name)
    free = {key: int(str(text).removesuffix("m")) for key, text in node["status"]["allocatable"].items()}
    for pod in objects:
        if pod["kind"] == "Pod" and pod["spec"].get("nodeName") == name and key_of(pod) not in gone:
            for key, amount in requests_of(pod).items():
                free[key] -= amount
    return free


def cheapest_eviction(objects: list[Object], members: list[Object], least: int) -> tuple[int, ...] | None:
    """Try every set of less important pods; None where none makes room for so many equal members.

    Returns
    -------
    tuple
        Budgets broken, highest priority, jobs, pods, sum of priorities, restarts, moves. No pod is in a gang.
    """
    mine = min(one["spec"]["priority"] for one in members)
    victims = [
        one
        for one in objects
        if one["kind"] == "Pod" and one["spec"].get("nodeName") and one["spec"]["priority"] < mine
    ]
    nodes = [one["metadata"]["name"] for one in objects if one["kind"] == "Node"]
    asked = requests_of(members[0])
    best: tuple[int, ...] | None = None
    for count in range(len(victims) + 1):
        for chosen in itertools.combinations(victims, count):
            gone = tuple(key_of(one) for one in chosen)
            room = 0
            for name in nodes:
                free = _free(objects, name, gone)
                room += max(0, min(free[key] // amount for key, amount in asked.items() if amount))
            if room < least:
                continue
            heights = [one["spec"]["priority"] for one in chosen]
            damage = (0, max(heights, default=NOBODY), count, count, sum(heights), 0, 0)
            best = damage if best is None else min(best, damage)
    return best
