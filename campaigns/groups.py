"""Kubernetes' own groups and Kueue's queues on small clusters, against trying everything."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from campaigns.case import Case, Failure, Figures
from tests.property import (
    test_group_device_laws,
    test_group_flow_laws,
    test_group_preemption_laws,
    test_group_queue_laws,
    test_group_quota_laws,
    test_kueue_laws,
    test_victim_unit_laws,
)

__all__ = ["Groups"]

_LAWS: Final[dict[str, Callable[[int], None]]] = {
    "starts": test_group_flow_laws.agrees,
    "cheapest": test_group_preemption_laws.agrees,
    "units": test_victim_unit_laws.agrees_on_units,
    "trees": test_victim_unit_laws.agrees_on_trees,
    "shares": test_victim_unit_laws.agrees_on_shares,
    "turns": test_group_queue_laws.agrees_in_turns,
    "room": test_group_queue_laws.agrees_on_room,
    "quotas": test_group_quota_laws.agrees,
    "queues": test_kueue_laws.agrees,
    "cards": partial(test_group_device_laws.agrees, devices="cards"),
    "claims": partial(test_group_device_laws.agrees, devices="claims"),
    "freed-cards": partial(test_group_device_laws.agrees_on_room, devices="cards"),
    "freed-claims": partial(test_group_device_laws.agrees_on_room, devices="claims"),
}


class Groups:
    """The campaign; see the module. A case is the number that its cluster is drawn from."""

    name = "groups"
    laws: tuple[str, ...] = tuple(_LAWS)
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw the number of a cluster."""
        return {"number": chance.randrange(2**32)}

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Hold the library's answers to those of trying everything."""
        found = []
        for law in laws:
            figures["compared", law] += 1
            try:
                _LAWS[law](case["number"])
            except AssertionError as error:
                found.append(Failure(law, f"differs from trying everything: {error}"[:200]))
        return found
