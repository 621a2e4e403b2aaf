"""Who waits for a turn, and in which order: pods, and those that stand for what plugins place."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from typing import Final

from koordcore.framework.requests import kinds_with
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.snapshot import ClusterSnapshot

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def waiting_pods(snapshot: ClusterSnapshot, policy: Policy) -> Iterable[Pod]:
    """Give the pods that wait, and those that stand for what plugins place."""
    return chain(snapshot.pending, stand_ins(snapshot, policy))


def stand_ins(snapshot: ClusterSnapshot, policy: Policy) -> Iterable[Pod]:
    """Give the pods that stand for what plugins place."""
    return chain.from_iterable(kind.waiting(snapshot) for kind in kinds_with(policy, "waiting", snapshot))


def queue_order(pods: Iterable[Pod]) -> list[Pod]:
    """Sort pods as the queue does: higher priority first, then older, then by namespace and name.

    A pod without a creation time counts as older than any that has one.
    """
    ordered = sorted(pods, key=attrgetter("key"))
    ordered.sort(key=_age)
    ordered.sort(key=attrgetter("priority"), reverse=True)  # keeps the order of equals
    return ordered


def _age(pod: Pod) -> datetime:
    return pod.created or _EPOCH
