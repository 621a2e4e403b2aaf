"""Who should move: hot nodes cooled, fragments closed, limits kept."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.descheduling.card_moves import plan_less_fragmentation as plan_less_fragmentation
    from koordcore.descheduling.compare import EvictionOutcome as EvictionOutcome
    from koordcore.descheduling.defrag import (
        DefragmentationPlan as DefragmentationPlan,
    )
    from koordcore.descheduling.defrag import (
        Wanted as Wanted,
    )
    from koordcore.descheduling.defrag import (
        plan_defragmentation as plan_defragmentation,
    )
    from koordcore.descheduling.plan import RebalancePlan as RebalancePlan
    from koordcore.descheduling.plans import (
        MoveRules as MoveRules,
    )
    from koordcore.descheduling.plans import (
        compare_round as compare_round,
    )
    from koordcore.descheduling.plans import (
        plan_cooling as plan_cooling,
    )
    from koordcore.descheduling.plans import (
        plan_empty_nodes as plan_empty_nodes,
    )
    from koordcore.descheduling.plans import (
        plan_room as plan_room,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.descheduling.card_moves": "plan_less_fragmentation",
            "koordcore.descheduling.compare": "EvictionOutcome",
            "koordcore.descheduling.defrag": "DefragmentationPlan Wanted plan_defragmentation",
            "koordcore.descheduling.plan": "RebalancePlan",
            "koordcore.descheduling.plans": "MoveRules compare_round plan_cooling plan_empty_nodes plan_room",
        },
    )
