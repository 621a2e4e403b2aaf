"""Every legal placement of a small case, by trying all sets of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, combinations
from typing import Any

from tests.reference.devices import MEMORY, RATIO, Machine, Wanted, amounts_of, objective, violations

__all__ = ["best_placement", "placements"]


def _subsets(minors: list[int]) -> Iterator[tuple[int, ...]]:
    return chain.from_iterable(combinations(minors, size) for size in range(len(minors) + 1))


def _card(machine: Machine, wanted: Wanted, minor: int) -> dict[str, Any]:
    """One card's share, with memory and ratio completed."""
    share = {
        name: amount // wanted.cards
        for name, amount in wanted.total.items()
        if name.startswith(("koordinator.sh/gpu-", "huawei.com/"))
    }
    size = amounts_of(machine.devices["gpu", minor].get("resources")).get(MEMORY, 0)
    if RATIO in share and MEMORY not in share:
        share[MEMORY] = share[RATIO] * size // 100
    elif MEMORY in share and RATIO not in share:
        share[RATIO] = share[MEMORY] * 100 // size if size else 0
    return {"minor": minor, "resources": {name: str(amount) for name, amount in share.items()}}


def _nic(machine: Machine, wanted: Wanted, minor: int) -> dict[str, Any] | None:
    amount = wanted.total["koordinator.sh/rdma"]
    each = 100 if amount > 100 and amount % 100 == 0 else amount
    part: dict[str, Any] = {"minor": minor, "resources": {"koordinator.sh/rdma": str(each)}}
    if "vfSelector" in (wanted.hints.get("rdma") or {}):
        groups = machine.devices["rdma", minor].get("vfGroups", [])
        open_vfs = sorted(
            vf["busID"]
            for group in groups
            for vf in group.get("vfs", [])
            if ("rdma", minor, vf["busID"]) not in machine.vfs
        )
        if not open_vfs:
            return None
        part["extension"] = {"vfs": [{"busID": open_vfs[0], "minor": -1}]}
    return part


def placements(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield every legal placement of a pod that asks for cards, NICs, or both (amounts as percent)."""
    machine, wanted = Machine(case), Wanted(case["pod"])
    cards = sorted(minor for kind, minor in machine.devices if kind == "gpu")
    nics = sorted(minor for kind, minor in machine.devices if kind == "rdma")
    card_sets: list[tuple[int, ...]] = list(combinations(cards, wanted.cards)) if wanted.wants_gpu else [()]
    for chosen in card_sets:
        for beside in _subsets(nics) if wanted.asked("rdma") else [()]:
            allocated: dict[str, Any] = {}
            if chosen:
                allocated["gpu"] = [_card(machine, wanted, minor) for minor in chosen]
            parts = [_nic(machine, wanted, minor) for minor in beside]
            if any(part is None for part in parts):
                continue
            if parts:
                allocated["rdma"] = parts
            if not violations(case, allocated):
                yield allocated


def best_placement(case: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Measure the best legal placement; ``None`` where there is none."""
    return min((objective(case, allocated) for allocated in placements(case)), default=None)
