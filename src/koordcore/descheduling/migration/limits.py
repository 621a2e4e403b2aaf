"""Eviction limits of one cycle, and the token buckets that slow the migration of a workload down.

Both are values: a step gives the next state, and the clock is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.descheduling.migration.max_unavailable import max_unavailable
from koordcore.descheduling.migration.workloads import UnknownScale, Workloads
from koordcore.errors import ManifestError
from koordcore.model.cluster import Workload
from koordcore.model.pods import Pod
from koordcore.model.rebalance import EvictionLimits, MigrationControllerArgs, ObjectLimiter

_SECOND: Final = 10**9
_NO_COUNTS: Final[immutabledict[str, int]] = immutabledict()


@record(kw_only=True)
class EvictionCounts:
    """What one cycle has evicted so far (``framework/plugins/kubernetes/../evictor.go``).

    Parameters
    ----------
    limits
        What it may evict.
    per_node, per_namespace, total
        What it did evict.
    """

    limits: EvictionLimits
    per_node: immutabledict[str, int] = _NO_COUNTS
    per_namespace: immutabledict[str, int] = _NO_COUNTS
    total: int = 0

    def allows(self, pod: Pod) -> bool:
        """Tell whether one more eviction stays within every limit; a limit of 0 forbids all."""
        limits = self.limits
        return not (
            (pod.node_name and _above(self.per_node.get(pod.node_name, 0) + 1, limits.per_node))
            or _above(self.per_namespace.get(pod.namespace, 0) + 1, limits.per_namespace)
            or _above(self.total + 1, limits.total)
        )

    def counted(self, pod: Pod) -> EvictionCounts:
        """Count one successful eviction."""
        nodes, namespace = self.per_node, pod.namespace
        if pod.node_name:
            nodes = nodes.set(pod.node_name, nodes.get(pod.node_name, 0) + 1)
        namespaces = self.per_namespace.set(namespace, self.per_namespace.get(namespace, 0) + 1)
        return attrs.evolve(self, per_node=nodes, per_namespace=namespaces, total=self.total + 1)


def _above(count: int, limit: int | None) -> bool:
    return limit is not None and count > limit


@record
class Bucket:
    """Tokens of one workload or namespace.

    Parameters
    ----------
    rate, burst
        Tokens per second, and how many are kept at most.
    tokens, updated
        What was left at which moment (nanoseconds).
    touched
        Moment of the last successful eviction.
    """

    rate: float
    burst: int
    tokens: float
    updated: int
    touched: int

    def tokens_at(self, now: int) -> float:
        """Give the tokens at a moment, with what has dripped in since."""
        elapsed = max(0, now - self.updated) / _SECOND
        return min(float(self.burst), self.tokens + elapsed * self.rate)

    def taken(self, now: int) -> Bucket:
        """Take one token for an eviction; one that is not there is no debt."""
        tokens = self.tokens_at(now)
        if tokens >= 1:
            return attrs.evolve(self, tokens=tokens - 1, updated=now, touched=now)
        return attrs.evolve(self, touched=now)


_NO_BUCKETS: Final[immutabledict[tuple[str, str], Bucket]] = immutabledict()


@record(kw_only=True)
class LimiterState:
    """All buckets at one moment.

    Parameters
    ----------
    args
        Which types of bucket there are.
    started
        Moment from which the sweeps are counted (nanoseconds).
    buckets
        Type and key (uid of the controller, or namespace) to bucket.
    """

    args: MigrationControllerArgs
    started: int = 0
    buckets: immutabledict[tuple[str, str], Bucket] = _NO_BUCKETS

    def swept(self, now: int) -> LimiterState:
        """Forget what was idle for one and a half durations at the last sweep that was due."""
        kept = dict(self.buckets)
        for (kind, key), bucket in self.buckets.items():
            idle = self.args.limiters[kind].duration * 3 // 2
            last_sweep = self.started + (now - self.started) // idle * idle
            if last_sweep - bucket.touched > idle:
                del kept[kind, key]
        return attrs.evolve(self, buckets=immutabledict(kept)) if len(kept) < len(self.buckets) else self

    def limited(self, pod: Pod, now: int) -> bool:
        """Tell whether a bucket of the pod has no whole token left."""
        state = self.swept(now)
        return any(state.buckets[key].tokens_at(now) < 1 for key in self._keys(pod) if key in state.buckets)

    def tokens(self, now: int) -> Mapping[tuple[str, str], float]:
        """Give the tokens of every bucket."""
        return {key: bucket.tokens_at(now) for key, bucket in self.swept(now).buckets.items()}

    def evicted(self, pod: Pod, workloads: Workloads, now: int) -> LimiterState:
        """Take a token from every bucket of an evicted pod; a bucket is made, full, at the first eviction.

        A type whose rate is 0 has no bucket; the other types are tracked all the same.

        Parameters
        ----------
        pod
            Who was evicted.
        workloads
            Who owns whom.
        now
            Nanoseconds since 1970.
        """
        state = self.swept(now)
        buckets = dict(state.buckets)
        for kind, key in self._keys(pod):
            bucket = buckets.get((kind, key))
            if bucket is None:
                limiter = self.args.limiters[kind]
                rate = self._rate(kind, limiter, pod, workloads)
                if rate <= 0:
                    continue
                bucket = Bucket(rate, limiter.burst, float(limiter.burst), now, now)
            buckets[kind, key] = bucket.taken(now)
        return attrs.evolve(state, buckets=immutabledict(sorted(buckets.items())))

    def _keys(self, pod: Pod) -> Iterable[tuple[str, str]]:
        for kind, limiter in sorted(self.args.limiters.items()):
            if limiter.duration <= 0:
                continue
            if kind == "namespace":
                yield kind, pod.namespace
            elif kind == "workload" and pod.controller is not None:
                yield kind, pod.controller.uid

    def _rate(self, kind: str, limiter: ObjectLimiter, pod: Pod, workloads: Workloads) -> float:
        seconds = limiter.duration / _SECOND
        if kind == "namespace":
            wanted = limiter.max_migrating if isinstance(limiter.max_migrating, int) else 0
            return wanted / seconds
        workload = workloads.of(pod)
        if workload is None or isinstance(workload, UnknownScale):
            return 0.0
        share = limiter.max_migrating
        if share is None:
            share = self.args.max_migrating_per_workload
        try:
            wanted = max_unavailable(_replicas(workload), share)
        except ManifestError:
            return 0.0
        rate = wanted / seconds
        return rate if math.isfinite(rate) else 0.0


def _replicas(workload: Workload) -> int:
    return workload.replicas or 0
