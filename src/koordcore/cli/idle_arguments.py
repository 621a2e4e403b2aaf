"""Settings of the descheduler that change no plan of moves: whoever writes one is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_MOMENT: Final = "a dump shows one moment: who is hot in it is cooled"
_PLAN: Final = "a plan moves nobody by itself"
_CONTROLLER: Final = "how fast the controller works says nothing about the plan"
LOW_NODE_LOAD: Final[Mapping[str, str]] = {
    "paused": _PLAN,
    "dryRun": _PLAN,
    "numberOfNodes": "hot nodes are cooled however few are idle",
    "nodeFit": "whoever moves fits where he goes, always",
    "detectorCacheTimeout": _MOMENT,
    "anomalyCondition": _MOMENT,
    "resourceWeights": "the fewest moves are taken, not those of the highest scores",
}
"""Fields of LowNodeLoadArgs, and of its pools, that the fewest moves do not hang on; its own rounds do."""
MIGRATION: Final[Mapping[str, str]] = {
    "dryRun": _PLAN,
    "nodeFit": "whoever moves fits where he goes, always",
    "maxConcurrentReconciles": _CONTROLLER,
    "evictQPS": _CONTROLLER,
    "evictBurst": _CONTROLLER,
    "arbitrationArgs": _CONTROLLER,
    "evictionPolicy": "`-o patches` calls the eviction API",
    "defaultDeleteOptions": "`-o patches` calls the eviction API",
    "defaultJobTTL": "`-o patches` writes five minutes",
}
"""Fields of MigrationControllerArgs that no plan hangs on."""


def idle_arguments(raw: Any, table: Mapping[str, str], option: str) -> Iterator[str]:
    """Name the settings of a file that have no effect, each with the reason."""
    if not isinstance(raw, Mapping):
        return
    for name, why in table.items():
        if name in raw:
            yield f"{option}: {name} has no effect: {why}"
    pools = raw.get("nodePools")
    for number, pool in enumerate(pools if isinstance(pools, list) else ()):
        for name, why in table.items():
            if isinstance(pool, Mapping) and name in pool:
                yield f"{option}: nodePools[{number}].{name} has no effect: {why}"
