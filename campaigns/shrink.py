"""The smallest case that still fails: leave out whatever is not needed for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from campaigns.case import Case, Object

__all__ = ["shrunk"]

_TRIES = 600


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Leave out objects, then parts of objects, then parts of the policy, as long as it still fails."""
    left = [_TRIES]

    def still(smaller: Case) -> bool:
        left[0] -= 1
        return left[0] >= 0 and fails(smaller)

    case = _fewer_objects(case, still)
    changed = True
    while changed and left[0] > 0:
        changed = False
        for smaller in _simpler(case):
            if still(smaller):
                case, changed = smaller, True
                break
    return case


def _fewer_objects(case: Case, still: Callable[[Case], bool]) -> Case:
    """Halves first, then quarters, down to single objects."""
    objects: list[Object] = case.get("objects", [])
    step = max(1, len(objects) // 2)
    while True:
        start = 0
        while start < len(objects):
            rest = objects[:start] + objects[start + step :]
            if still({**case, "objects": rest}):
                objects = rest
            else:
                start += step
        if step == 1:
            return {**case, "objects": objects}
        step //= 2


def _simpler(case: Case) -> Iterator[Case]:
    """Cases with one thing less."""
    for key in ("policy", "preempt"):
        if case.get(key) is not None:
            yield {**case, key: None}
    policy = case.get("policy")
    if policy:
        for key in ("plugins", "args"):
            for number in range(len(policy[key])):
                less = policy[key][:number] + policy[key][number + 1 :]
                yield {**case, "policy": {**policy, key: less}}
    for number, one in enumerate(case.get("objects", [])):
        for smaller in _less(one):
            objects = [*case["objects"]]
            objects[number] = smaller
            yield {**case, "objects": objects}


def _less(one: Any) -> Iterator[Object]:
    """Objects with one field less, where the field may be left out."""
    for path in (
        ("metadata", "annotations"),
        ("metadata", "labels"),
        ("spec", "affinity"),
        ("spec", "tolerations"),
        ("spec", "taints"),
        ("spec", "topologySpreadConstraints"),
        ("spec", "nodeSelector"),
        ("spec", "volumes"),
        ("spec", "devices"),
        ("status", "allocatable"),
    ):
        outer = one.get(path[0]) if isinstance(one, dict) else None
        inner = outer.get(path[1]) if isinstance(outer, dict) else None
        if not isinstance(inner, dict | list) or not inner:
            continue
        without = json.loads(json.dumps(one))
        del without[path[0]][path[1]]
        yield without
        if isinstance(inner, dict):
            for key in list(inner):
                copy = json.loads(json.dumps(one))
                del copy[path[0]][path[1]][key]
                yield copy
        else:
            for number in range(len(inner)):
                copy = json.loads(json.dumps(one))
                del copy[path[0]][path[1]][number]
                yield copy
