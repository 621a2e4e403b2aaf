"""The best that can be done with a batch of device pods, by trying everything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.reference.devices import Machine, Wanted, annotation
from tests.reference.devices_brute import placements

__all__ = ["best_batch", "worth_of"]

Objective = tuple[int, ...]
ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def worth_of(case: Mapping[str, Any], allocated: Mapping[str, Any]) -> Objective:
    """Loose, partition score (negated), NUMA nodes, remote NICs, switches of one placed pod."""
    machine, wanted = Machine(case), Wanted(case["pod"])
    cards = [part["minor"] for part in allocated.get("gpu", [])]
    places = [place for minor in cards if (place := machine.place("gpu", minor)) is not None]
    numas, switches = {place[0] for place in places}, {place[1] for place in places}
    remote = 0
    near = {"gpu", "rdma"} <= set(wanted.joint_types) and wanted.joint.get("requiredScope") != "SamePCIe"
    for part in allocated.get("rdma", []) if near else []:
        place = machine.place("rdma", part["minor"])
        remote += place is None or place[1] not in switches
    loose = score = 0
    breadth = len(numas)
    table = annotation(case["device"], "gpu-partitions")
    if cards and wanted.whole and table is not None:
        scores = [
            entry.get("allocationScore", 0)
            for entry in table.get(str(len(cards)), [])
            if set(entry["minors"]) == set(cards)
        ]
        if scores:
            score, breadth = max(scores), 0
        else:
            loose = 1
    return loose, -score, breadth, remote, len(switches)


def best_batch(nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> Objective:
    """Measure the best placement of a batch: pods left out, then the sums of :func:`worth_of`.

    Parameters
    ----------
    nodes
        Cases without a pod.
    """
    if not pods:
        return (0,) * 6
    pod, rest = pods[0], pods[1:]
    without = best_batch(nodes, rest)
    best: Objective = (without[0] + 1, *without[1:])
    for index, node in enumerate(nodes):
        case = {**node, "pod": pod}
        for allocated in placements(case):
            holder = {
                "metadata": {
                    "name": f"batch-{len(rest)}",
                    "annotations": {ALLOCATED: json.dumps(allocated)},
                },
                "spec": {"nodeName": node["node"]["metadata"]["name"], "containers": []},
            }
            taken = [*nodes[:index], {**node, "pods": [*node["pods"], holder]}, *nodes[index + 1 :]]
            others = best_batch(taken, rest)
            own = (0, *worth_of(case, allocated))
            best = min(best, tuple(a + b for a, b in zip(own, others, strict=True)))
    return best
