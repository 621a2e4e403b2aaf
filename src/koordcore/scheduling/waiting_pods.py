"""Who waits for a turn: pods, and those that stand for what plugins place."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from koordcore.framework.requests import kinds_with
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.snapshot import ClusterSnapshot


def waiting_pods(snapshot: ClusterSnapshot, policy: Policy) -> Iterable[Pod]:
    """Give the pods that wait, and those that stand for what plugins place."""
    return chain(snapshot.pending, stand_ins(snapshot, policy))


def stand_ins(snapshot: ClusterSnapshot, policy: Policy) -> Iterable[Pod]:
    """Give the pods that stand for what plugins place."""
    return chain.from_iterable(kind.waiting(snapshot) for kind in kinds_with(policy, "waiting", snapshot))
