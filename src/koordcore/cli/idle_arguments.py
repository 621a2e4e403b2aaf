"""Settings of the descheduler that change no plan of moves: whoever writes one is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from koordcore.model.rebalance import (
    EvictionGate,
    LowNodeLoadArgs,
    MigrationControllerArgs,
    NodePool,
    ObjectLimiter,
    Thresholds,
)
from koordcore.model.resources import MEMORY

_MOMENT: Final = "a dump shows one moment: who is hot in it is cooled"
_PLAN: Final = "a plan moves nobody by itself"
_CONTROLLER: Final = "how fast the controller works says nothing about the plan"
_COOLING: Final[Mapping[str, str]] = {
    "paused": _PLAN,
    "dryRun": _PLAN,
    "numberOfNodes": "hot nodes are cooled however few are idle",
    "nodeFit": "whoever moves fits where he goes, always",
    "detectorCacheTimeout": _MOMENT,
    "anomalyCondition": _MOMENT,
    "resourceWeights": "the fewest moves are taken, not those of the highest scores",
}
"""Fields of LowNodeLoadArgs, and of its pools, that the fewest moves do not hang on; its own rounds do."""
_MIGRATION: Final[Mapping[str, str]] = {
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


def _idle_fields(raw: Any, table: Mapping[str, str], option: str) -> Iterator[str]:
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


def idle_cooling(raw: Mapping[str, Any], args: LowNodeLoadArgs, option: str) -> Iterator[str]:
    """Name what LowNodeLoadArgs say in vain, each with the reason.

    Parameters
    ----------
    raw, args
        As they are written, and as they were read.
    option
        Who names the file.
    """
    yield from _idle_fields(raw, _COOLING, option)
    top, *pools = args.pools
    written: list[Mapping[str, Any]] = list(raw.get("nodePools") or ())
    for field, judge in _PAIRS.items():
        heirs = [pool for own, pool in zip(written, pools, strict=True) if own.get(field) is None]
        blocks = [("", raw, [top, *heirs])]
        blocks += [
            (f"nodePools[{number}].", own, [pool])
            for number, (own, pool) in enumerate(zip(written, pools, strict=True))
        ]
        for place, block, users in blocks:
            if field in block:
                told = _vain(field, block[field] or {}, [judge(pool) for pool in users])
                yield from (f"{option}: {place}{line}" for line in told)


_Names: TypeAlias = frozenset[str]


def _vain(field: str, table: Mapping[str, Any], idle: Sequence[_Names]) -> Iterator[str]:
    """Name a whole map, or the resources in it, that none of the pools that have it heeds."""
    names = sorted(name for name in table if all(name in one for one in idle))
    low = field in ("lowThresholds", "prodLowThresholds")
    why = "a node takes pods up to its high thresholds" if low else "by deviation 0 stands for no threshold"
    if low and len(names) == len(table):
        yield f"{field} has no effect: {why}"
    else:
        yield from (f"{field}[{name}] has no effect: {why}" for name in names)


def _off(pool: NodePool, high: Thresholds | None, low: Thresholds | None) -> _Names:
    """List the high thresholds that deviations of 0 switch off."""
    below: Mapping[str, float] = low or {}
    return frozenset(
        name for name, above in (high or {}).items() if pool.deviation and not below.get(name, above)
    )


def _idle_lows(pool: NodePool, high: Thresholds | None, low: Thresholds | None, named: _Names) -> _Names:
    """List the low thresholds without which a plan is the same: of no other resource do they make a limit."""
    off = _off(pool, high, low)
    return frozenset(low or ()) & (named | (high or {}).keys()) - off


_PAIRS: Final[Mapping[str, Callable[[NodePool], _Names]]] = {
    "highThresholds": lambda pool: _off(pool, pool.high, pool.low),
    "prodHighThresholds": lambda pool: _off(pool, pool.prod_high, pool.prod_low),
    "lowThresholds": lambda pool: _idle_lows(
        pool, pool.high, pool.low, frozenset({MEMORY, *(pool.prod_high or ()), *(pool.prod_low or ())})
    ),
    "prodLowThresholds": lambda pool: _idle_lows(pool, pool.prod_high, pool.prod_low, frozenset()),
}


_KEPT: Final = (
    EvictionGate.MAX_UNAVAILABLE_PER_WORKLOAD,
    EvictionGate.MAX_MIGRATING_PER_WORKLOAD,
    EvictionGate.MAX_MIGRATING_PER_NODE,
    EvictionGate.MAX_MIGRATING_PER_NAMESPACE,
    EvictionGate.MAX_MIGRATING_GLOBALLY,
    EvictionGate.NODE_FIT,
)
"""Gates of checks that a plan of moves cannot leave out."""
_WORKLOAD, _NAMESPACE = "workload", "namespace"


def idle_migration(
    raw: Mapping[str, Any], args: MigrationControllerArgs, option: str, *, plans: bool
) -> Iterator[str]:
    """Name what MigrationControllerArgs say in vain, each with the reason.

    Parameters
    ----------
    raw, args
        As they are written, and as they were read.
    option
        Who names the file.
    plans
        Moves are planned; otherwise jobs are arbitrated, which leaves out the checks that it is told to.
    """
    yield from _idle_fields(raw, _MIGRATION, option)
    told = [*_thresholds(raw, args), *_limiters(raw, args)]
    if plans:
        told += _planned(raw, args)
    yield from (f"{option}: {name} has no effect: {why}" for name, why in told)


def _thresholds(raw: Mapping[str, Any], args: MigrationControllerArgs) -> Iterator[tuple[str, str]]:
    evictor, given = args.evictor, raw.get("priorityThreshold") or {}
    if evictor.priority_threshold is None:
        return
    if given.get("name") and given.get("value") is not None:
        yield "priorityThreshold.name", "the value beside it decides"
    if evictor.evict_system_critical_pods:
        yield "priorityThreshold", "evictSystemCriticalPods switches it off"
    for gate in (EvictionGate.SYSTEM_CRITICAL, EvictionGate.PRIORITY_THRESHOLD):
        if gate in evictor.skip_gates:
            yield "priorityThreshold", f"skipEvictionGates with {gate} switch it off"


def _limiters(raw: Mapping[str, Any], args: MigrationControllerArgs) -> Iterator[tuple[str, str]]:
    for kind, limiter in sorted(args.limiters.items()) if raw.get("objectLimiters") else ():
        reason = _limits_nobody(kind, limiter)
        if reason:
            yield f"objectLimiters[{kind}]", reason


def _limits_nobody(kind: str, limiter: ObjectLimiter) -> str:
    """Say why a limiter lets all go; empty where it does not, or is switched off."""
    if kind not in (_WORKLOAD, _NAMESPACE):
        return f"expected {_WORKLOAD} or {_NAMESPACE}"
    share = limiter.max_migrating
    if limiter.duration <= 0:
        return "" if share is None else "without a duration above 0 it is switched off"
    if kind == _NAMESPACE:
        plain = isinstance(share, int) and share > 0
        return "" if plain else "a namespace is limited by a number above 0 in maxMigrating"
    below = share is not None and int(str(share).rstrip("%")) < 0
    return "maxMigrating is below 0" if below else ""


def _planned(raw: Mapping[str, Any], args: MigrationControllerArgs) -> Iterator[tuple[str, str]]:
    if args.evictor.evict_failed_bare_pods:
        yield "evictFailedBarePods", "a pod that has failed holds no room, and no plan moves it"
    if raw.get("schedulerNames") and not args.default_job_mode.keeps_room:
        yield "schedulerNames", f"{args.default_job_mode} reserves no room"
    for index, gate in enumerate(raw.get("skipEvictionGates") or ()):
        if gate in _KEPT:
            yield f"skipEvictionGates[{index}]", f"a plan keeps to {gate}, always"
