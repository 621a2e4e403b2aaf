"""Several profiles in one call: the pods of each are held to what it filters by."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import NotOurs
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def by_profile(result: ScheduleResult) -> Iterator[tuple[ScheduleResult, frozenset[str]]]:
    """Give the result under each profile alone, with the keys of the pods that others decide.

    A reservation holds its room against the pods of all profiles, whichever of them knows of reservations.
    """
    policy = result.policy
    if not policy.others:
        yield result, frozenset()
        return
    holding = next((one for one in (each.plugin("Reservation") for each in policy.profiles) if one), None)
    decided_by = {
        str(pod.key): policy.profile_of(pod.scheduler_name) or policy
        for pod in (*result.snapshot.pending, *result.snapshot.bound_pods())
    }
    for profile in policy.profiles:
        others = frozenset(key for key, one in decided_by.items() if one is not profile)
        alone = profile.alone()
        if holding is not None and alone.plugin("Reservation") is None:
            alone = alone.with_plugin(holding)
        yield attrs.evolve(result, policy=alone), others


def check_strangers(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """Whoever is left to another scheduler waits for it, and no profile names it."""
    for one in result.decisions:
        if not isinstance(one, NotOurs):
            continue
        pod = snapshot.pod(one.pod)
        if pod is not None and pod.scheduler_name != one.scheduler_name:
            message = f"waits for {pod.scheduler_name}, the decision says {one.scheduler_name}"
            yield Violation(ViolationKind.NOT_DECIDED, str(one.pod), message)
        elif result.policy.profile_of(one.scheduler_name) is not None:
            message = f"the policy has a profile of the name {one.scheduler_name}"
            yield Violation(ViolationKind.NOT_DECIDED, str(one.pod), message)


def check_asked(result: ScheduleResult) -> Iterator[Violation]:
    """As many pods have a decision as were asked about, where the result counts them."""
    asked = result.stats.get("pods")
    decided = len({one.pod for one in result.decisions if not isinstance(one, NotOurs)})
    if asked is not None and decided < asked:
        message = f"{asked} pods were asked about, and {decided} have a decision"
        yield Violation(ViolationKind.NOT_DECIDED, "queue", message)
