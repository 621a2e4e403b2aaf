"""Whether a pod was refused although a node has room for it, by all that is said about either."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from campaigns.case import Object
from campaigns.judge import Judge
from campaigns.meaning import gang_of, plain, ports_of, requests_of
from koordcore import Nominated, Unschedulable

__all__ = ["refused_in_vain"]

_SHY = ("Reservation", "NodeMetric", "ElasticQuota", "NodeResourceTopology")
"""Kinds of which this knows too little."""


def refused_in_vain(judge: Judge) -> Iterator[str]:
    """Plain pods that found no place although a node has one by all that is said about them.

    Only for pods of which all is known here: no cards, CPUs, quota, gang or neighbours, and in a world
    without reservations, nominated pods and load.
    """
    if any(judge.of[kind] for kind in _SHY) or any(
        one.get("status", {}).get("nominatedNodeName") or gang_of(one) for one in judge.of["Pod"]
    ):
        return
    if any(one["spec"].get("affinity", {}).get("podAntiAffinity") for one in judge.of["Pod"]):
        return
    if any(isinstance(one, Nominated) for one in judge.result.decisions):
        return
    room = _Room(judge)
    for decision in judge.result.decisions:
        pod = judge.waiting.get(str(decision.pod))
        if not isinstance(decision, Unschedulable) or pod is None or not plain(pod):
            continue
        for name in judge.nodes:
            if room.takes(pod, name):
                yield f"{decision.pod} is refused ({decision.message}), and {name} could take it"


class _Room:
    """What is left on every node."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._free: dict[str, dict[str, int]] = {}
        self._ports: dict[str, set[int]] = defaultdict(set)
        for name in judge.nodes:
            self._free[name] = judge.allocatable(name)
        for place in judge.after:
            free = self._free[place.node]
            for key, amount in requests_of(place.pod).items():
                free[key] = free.get(key, 0) - amount
            self._ports[place.node].update(ports_of(place.pod))

    def takes(self, pod: Object, name: str) -> bool:
        """Tell whether nothing speaks against a pod on a node."""
        free = self._free[name]
        if any(amount > free.get(key, 0) for key, amount in requests_of(pod).items() if amount):
            return False
        if any(self._judge.refusals(pod, name)):
            return False
        return not self._ports[name] & set(ports_of(pod))
