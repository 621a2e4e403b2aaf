"""Owners that draw from a reservation on a node with more on it than it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from koordcore.checking.extended import classes_of_resources
from koordcore.checking.holders import holder_key, identity_of, used_by
from koordcore.checking.nodes import limits_of
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.reservations import Reservation
from koordcore.model.resources import PODS
from koordcore.protocol.reservation import is_operating_pod
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def check_draws(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """A node has what its new owners ask for beside all others, once what is left for them counts as free.

    That a reservation held as much before is not enough: others may have its room already.

    Parameters
    ----------
    snapshot, result
        With pods that stand for what is left of reservations.
    """
    if not result.policy.filters("NodeResourcesFit"):
        return
    before = {state.name: state for state in snapshot.nodes}
    classes = classes_of_resources(snapshot, result.policy)
    objects = {identity_of(one): holder_key(one) for one in result.snapshot.of(Reservation)}
    for state in result.snapshot.nodes:
        earlier = before.get(state.name)
        if earlier is None or earlier.pods == state.pods:
            continue
        known = {pod.key for pod in earlier.pods}
        came = [pod for pod in state.pods if pod.key not in known and used_by(pod)]
        if not came:
            continue
        there = {pod.key: pod for pod in state.pods}
        acting = {pod.uid or pod.name: pod.key for pod in state.pods if is_operating_pod(pod)}
        sums: Counter[str] = Counter()
        for pod in state.pods:
            sums.update(pod.requests)
        for pod in came:
            holder = acting.get(used_by(pod)) or objects.get(used_by(pod))
            if holder is None:
                continue
            # One for a single use is over with its user, and nobody stands for it any more.
            left = there[holder].requests if holder in there else {}
            asked = {name for name, amount in pod.requests.items() if amount and name != PODS}
            for name, limit in limits_of(state, asked, result.policy, classes):
                amount = sums[name] - left.get(name, 0)
                if amount > limit:
                    message = f"{name}: {amount} requested without what is left for it, {limit} allocatable"
                    yield Violation(ViolationKind.RESOURCE, str(pod.key), message)
