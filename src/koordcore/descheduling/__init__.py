"""Who should move: hot nodes cooled, fragments closed, limits kept."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.descheduling.card_moves import plan_less_fragmentation as plan_less_fragmentation
    from koordcore.descheduling.cards import Fragments as Fragments
    from koordcore.descheduling.claim_moves import plan_room_for as plan_room_for
    from koordcore.descheduling.defrag import plan_defragmentation as plan_defragmentation
    from koordcore.descheduling.fragments import plan_fragments as plan_fragments
    from koordcore.descheduling.moves import (
        Group as Group,
        Host as Host,
        Movable as Movable,
        MoveProblem as MoveProblem,
    )
    from koordcore.descheduling.plan import plan_rebalance as plan_rebalance
    from koordcore.descheduling.plans import (
        MoveRules as MoveRules,
        plan_cooling as plan_cooling,
        plan_empty_nodes as plan_empty_nodes,
        plan_room as plan_room,
    )
    from koordcore.descheduling.wanted import Wanted as Wanted
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.descheduling.card_moves": ("plan_less_fragmentation",),
            "koordcore.descheduling.cards": ("Fragments",),
            "koordcore.descheduling.claim_moves": ("plan_room_for",),
            "koordcore.descheduling.defrag": ("plan_defragmentation",),
            "koordcore.descheduling.fragments": ("plan_fragments",),
            "koordcore.descheduling.moves": ("Group", "Host", "Movable", "MoveProblem"),
            "koordcore.descheduling.plan": ("plan_rebalance",),
            "koordcore.descheduling.plans": ("MoveRules", "plan_cooling", "plan_empty_nodes", "plan_room"),
            "koordcore.descheduling.wanted": ("Wanted",),
        },
    )
