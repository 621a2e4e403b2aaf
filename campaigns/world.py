"""Worlds: the library's own scheduler in a bottle with faults, and what has to hold at every event."""

from __future__ import annotations

import random
from collections.abc import Iterable

from campaigns.case import Case, Failure, Figures
from koordcore.simulate.world import named_profile, own_scheduler, run_world
from koordcore.simulate.world.profile import PROFILES
from koordcore.simulate.world.record import Rule

__all__ = ["Worlds"]


class Worlds:
    """Each case is a seed and a profile; ``koordcore world`` tells what happens in it.

    One that once failed is followed ``until`` some milliseconds after the moment at which it did.
    """

    name = "world"
    laws = tuple(rule.value for rule in Rule)
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a world; what happens in it follows from its own seed."""
        return {"seed": chance.randrange(1 << 31), "profile": chance.choice(list(PROFILES))}

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Let a scheduler live through it."""
        seed, profile = case["seed"], case["profile"]
        run = run_world(seed, named_profile(profile), own_scheduler, until=case.get("until"))
        figures["world", "events"] += run.events
        figures["profile", profile] += 1
        for what, number in run.counts.items():
            figures["happened", what] += number
        asked = set(laws)
        where = f"koordcore world --seed {seed} --profile {profile} --shrink"
        return [
            Failure(one.rule.value, f"{one.what} ({where})")
            for one in run.breaches
            if one.rule.value in asked
        ]
