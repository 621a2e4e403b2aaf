"""The checks of a whole result, in the order in which a reader would ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final, TypeAlias

import attrs

from koordcore.checking.claim_records import claims_after
from koordcore.checking.domains import Domains
from koordcore.checking.permits import as_placed, as_waiting
from koordcore.checking.profiles import by_profile, check_asked, check_strangers
from koordcore.checking.quota_sums import Elsewhere, held_away
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound, Nominated, PodDecision
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import shared

LEAVES_FOR_OTHERS: Final = "PreemptionByScheduler"
_INDEX: Final = "checking"
"""Under which the checker's own view waits in the pool of a line."""
Check: TypeAlias = Callable[[ClusterSnapshot, ScheduleResult], Iterator[Violation]]


def _checks(
    whole: ClusterSnapshot,
    elsewhere: Elsewhere,
    domains: Domains | None,
    kept: frozenset[PodKey],
    standing: bool,
) -> tuple[Sequence[Check], Sequence[Check]]:
    """One function per rule book; each reads only the snapshot before and the result, and what is given.

    The first are about places, whether a pod is bound there or keeps it while it waits; the others about
    jobs, and tell the two apart.
    """
    # Read on the first check: every rule book brings the model of its room, a third of the import's time.
    from koordcore.checking.claim_numa import check_claims_near
    from koordcore.checking.claim_plan import check_claims
    from koordcore.checking.cpus import check_amplified, check_cpus
    from koordcore.checking.devices import check_devices
    from koordcore.checking.domains import domains_among
    from koordcore.checking.draws import check_draws
    from koordcore.checking.gangs import check_gangs
    from koordcore.checking.groups import check_groups
    from koordcore.checking.neighbours import check_neighbours
    from koordcore.checking.nodes import check_nodes
    from koordcore.checking.nominated_gangs import check_nominated_gangs
    from koordcore.checking.placement import check_placements
    from koordcore.checking.quotas import check_quotas
    from koordcore.checking.unmodelled import check_unmodelled
    from koordcore.checking.victims import check_victims
    from koordcore.checking.volumes import check_volumes

    everywhere = shared(whole)[0]
    places: Sequence[Check] = (
        check_unmodelled,
        check_nodes,
        check_draws,
        check_placements,
        partial(check_neighbours, domains=domains or domains_among(everywhere)),
        partial(check_volumes, standing=standing),
        check_devices,
        partial(check_claims, standing=standing),
        check_claims_near,
        partial(check_cpus, standing=standing),
        check_amplified,
        partial(check_quotas, elsewhere=elsewhere),
    )
    evictions = partial(check_victims, everywhere=everywhere, elsewhere=elsewhere, kept=kept)
    gangs: Sequence[Check] = (
        partial(check_gangs, whole=whole, standing=standing),
        partial(check_nominated_gangs, whole=whole),
        partial(check_groups, standing=standing),
    )
    return places, (*gangs, evictions)


def check_touched(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    progress: Callable[[int, int], None] = lambda _, __: None,
    now: datetime | None = None,
) -> tuple[Violation, ...]:
    """Check what a result touches, by what the checker remembers of the line of snapshots."""
    from koordcore.checking.index import ClusterIndex
    from koordcore.checking.touched import touched

    snapshot, admissions = _admitted(snapshot, result, now)
    snapshot, kept = as_waiting(snapshot, result)
    index = snapshot.place.line.pool.take(_INDEX) or ClusterIndex()
    index.follow(snapshot)
    known = index.to(result.snapshot)
    small = touched(index, result, known)
    found = check_result(
        small.before,
        small.result,
        whole=result.snapshot,
        elsewhere=small.elsewhere,
        domains=small.domains,
        kept=kept,
        progress=progress,
        now=now,
    )
    index.follow(result.snapshot, known)  # from there a control plane goes on
    result.snapshot.place.line.pool.put(_INDEX, index)
    return tuple(sorted({*found, *admissions}))


def _admitted(
    snapshot: ClusterSnapshot, result: ScheduleResult, now: datetime | None
) -> tuple[ClusterSnapshot, tuple[Violation, ...]]:
    """Give the cluster with pods of admitted Workloads as they start, and what is wrong with admissions."""
    if not result.admitted:
        return snapshot, ()
    from koordcore.checking.workloads import check_workloads  # few plans have any
    from koordcore.snapshot.admitted_workloads import with_admitted

    wrong = tuple(check_workloads(snapshot, result, now))  # by what pods ask for before they have any flavor
    return with_admitted(snapshot, result.admitted, result.decisions), wrong


def check_cluster(snapshot: ClusterSnapshot, policy: Policy) -> tuple[Violation, ...]:
    """Check everything that runs as if all of it had been decided about at once."""
    from koordcore.checking.standing import as_decided

    return check_result(*as_decided(snapshot, policy), standing=True)


def check_result(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    *,
    whole: ClusterSnapshot | None = None,
    elsewhere: Elsewhere | None = None,
    domains: Domains | None = None,
    kept: frozenset[PodKey] = frozenset(),
    standing: bool = False,
    progress: Callable[[int, int], None] = lambda _, __: None,
    now: datetime | None = None,
) -> tuple[Violation, ...]:
    """Check a result on all that the snapshot shows, for each profile of the policy.

    Parameters
    ----------
    whole, elsewhere, domains
        The cluster afterwards with every node, what pods hold that the snapshot does not show, and in which
        domains they are; left out: it shows all.
    kept
        Pods that wait in the snapshot and kept places from an earlier call.
    standing
        All that runs is told as decided. What others may have placed, and what became of the cluster since,
        is not held against it.
    progress
        Called after each rule book with how many have been gone through, and of how many.
    now
        The moment of the call; ``None`` where nobody knows it.
    """
    from koordcore.checking.load import check_load  # as for the other rule books

    found = {*check_strangers(snapshot, result), *check_asked(result)}
    if whole is None:
        snapshot, admissions = _admitted(snapshot, result, now)
        found.update(admissions)
    snapshot, more = as_waiting(snapshot, result)
    every = result.snapshot if whole is None else whole
    others_hold = held_away(snapshot) if elsewhere is None else elsewhere
    profiles = tuple(by_profile(result))
    for number, (own, others) in enumerate(profiles):
        checks = _checks(every, others_hold, domains, kept | more, standing)
        part = _part(progress, number, len(profiles))
        mine = _check_profile(snapshot, own, checks, part, kept=kept | more, standing=standing)
        found |= {one for one in mine if one.subject not in others}
        if not standing:  # what nodes use now, they did not when their pods came
            spared = others.union(map(str, kept | more))
            found.update(check_load(snapshot, as_placed(own), spared=spared, now=now))
    return tuple(sorted(found))


def _part(progress: Callable[[int, int], None], number: int, of: int) -> Callable[[int, int], None]:
    """Count one profile after the others."""
    return lambda done, total: progress(number * total + done, of * total)


def _check_profile(
    snapshot: ClusterSnapshot,
    told: ScheduleResult,
    book: tuple[Sequence[Check], Sequence[Check]],
    progress: Callable[[int, int], None],
    *,
    kept: frozenset[PodKey],
    standing: bool,
) -> Iterator[Violation]:
    from koordcore.checking.device_choices import check_device_choices
    from koordcore.checking.device_hints import check_device_hints
    from koordcore.checking.devices import check_device_requests
    from koordcore.checking.numa_choices import check_numa_choices
    from koordcore.checking.places import check_device_places

    result = as_placed(told)
    before, outcome, plain, whole = snapshot, result, result, result
    reserved: tuple[Violation, ...] = ()
    spared: frozenset[PodKey] = frozenset()
    if result.policy.plugin("Reservation") is not None:
        from koordcore.checking.holders import with_holders, with_remainders, without_holders
        from koordcore.checking.reservations import check_reservations, taken_in

        reserved = tuple(check_reservations(snapshot, result, standing=standing))
        before = with_remainders(snapshot)
        outcome = _on(result, with_remainders(result.snapshot, snapshot))
        whole = _on(result, with_holders(result.snapshot))
        plain = without_holders(result, snapshot)
        spared = taken_in(snapshot, result)
    found = list(_check_decisions(before, outcome))
    known = {violation.subject for violation in found}
    places, jobs = book
    checks = [(check, outcome) for check in places]
    jobs_told = _on(told, outcome.snapshot)
    checks += [(check, jobs_told) for check in jobs]
    own: Sequence[Check] = (
        partial(check_numa_choices, kept=kept, standing=standing),
        partial(check_device_requests, standing=standing),
        check_device_places,
        check_device_choices,
        partial(check_device_hints, kept=kept, standing=standing),
    )
    checks += [(check, whole) for check in own]
    for number, (check, after) in enumerate(checks, 1):
        found.extend(one for one in check(before, after) if one.subject not in known)
        progress(number, len(checks))
    found += [one for one in reserved if one.subject not in known]
    found.extend(_check_snapshot(snapshot, plain, spared))
    yield from found


def _on(result: ScheduleResult, snapshot: ClusterSnapshot) -> ScheduleResult:
    """Give a result as if it had led to another snapshot."""
    return result if result.snapshot is snapshot else attrs.evolve(result, snapshot=snapshot)


def _check_decisions(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """Every decision is about a pod that waits, once, and names a node that exists."""
    pending = {pod.key: pod for pod in (*result.snapshot.pending, *snapshot.pending)}
    after = {pod.key: pod for state in result.snapshot.nodes for pod in state.pods}
    nodes = {state.name for state in snapshot.nodes}
    bound = {pod.key for state in snapshot.nodes for pod in state.pods}
    seen: set[PodKey] = set()
    for decision in result.decisions:
        key = decision.pod
        if key in seen:
            yield Violation(ViolationKind.DECIDED_TWICE, str(key), "has more than one decision")
        seen.add(key)
        if key in bound:
            yield Violation(ViolationKind.ALREADY_BOUND, str(key), "was bound before")
        pod = pending.get(key) or after.get(key)
        if pod is None:
            yield Violation(ViolationKind.UNKNOWN_POD, str(key), "is in neither snapshot")
        elif pod.gated and isinstance(decision, Bound | Nominated):
            yield Violation(ViolationKind.GATED, str(key), f"is held by gate {pod.gates[0]}")
        if isinstance(decision, Bound | Nominated) and decision.node not in nodes:
            yield Violation(ViolationKind.UNKNOWN_NODE, str(key), f"no node {decision.node}")


def _check_snapshot(
    snapshot: ClusterSnapshot, result: ScheduleResult, spared: frozenset[PodKey]
) -> Iterator[Violation]:
    """The snapshot afterwards differs from the one before by exactly the decisions.

    Parameters
    ----------
    spared
        Running pods that a decision about a reservation changed as it may.
    """
    before = {pod.key: pod for state in snapshot.nodes for pod in state.pods}
    after = {pod.key: pod for state in result.snapshot.nodes for pod in state.pods}
    decided: Mapping[PodKey, PodDecision] = {one.pod: one for one in result.decisions}
    if [state.node for state in snapshot.nodes] != [state.node for state in result.snapshot.nodes]:
        yield Violation(ViolationKind.SNAPSHOT, "nodes", "are not the same before and after")
    preemptor_of = {victim.pod: plan.job for plan in result.preemptions for victim in plan.victims}
    for key in preemptor_of.keys() & before.keys():
        before[key] = attrs.evolve(before[key], disruption=LEAVES_FOR_OTHERS, preempted_by=preemptor_of[key])
    reserving = result.policy.plugin("Reservation") is not None
    if _records(claims_after(snapshot, result), reserving) != _records(result.snapshot, reserving):
        yield Violation(ViolationKind.SNAPSHOT, "records", "are not the same before and after")
    for key in sorted({*before, *after}):
        decision = decided.get(key)
        if key in spared:
            continue
        # Forks share what did not change, and comparing a pod field by field takes its time.
        if key in before and after.get(key) is not before[key] and after.get(key) != before[key]:
            message = "is gone" if key not in after else "is not as it was"
            yield Violation(ViolationKind.SNAPSHOT, str(key), message)
        elif key not in before and not isinstance(decision, Bound):
            yield Violation(ViolationKind.NOT_DECIDED, str(key), "is bound without a decision")
        elif key not in before and isinstance(decision, Bound):
            yield from _check_written(after[key], decision)
    waiting = {pod.key for pod in result.snapshot.pending}
    for pod in snapshot.pending:
        if pod.key not in waiting and pod.key not in after:
            yield Violation(ViolationKind.SNAPSHOT, str(pod.key), "is lost")
    for decision in result.decisions:
        if isinstance(decision, Bound) and decision.pod not in after:
            yield Violation(ViolationKind.SNAPSHOT, str(decision.pod), "is decided but not bound")


def _records(snapshot: ClusterSnapshot, reserving: bool) -> list[ClusterRecord]:
    """Give the records that no decision may change; reservations are looked at apart."""
    return [one for one in snapshot.records if not (reserving and isinstance(one, Reservation))]


def _check_written(pod: Pod, decision: Bound) -> Iterator[Violation]:
    if pod.node_name != decision.node:
        message = f"is on {pod.node_name}, the decision says {decision.node}"
        yield Violation(ViolationKind.SNAPSHOT, str(pod.key), message)
    if pod.held_claims != decision.claims:
        yield Violation(ViolationKind.SNAPSHOT, str(pod.key), "its claims are not as decided")
    for key, value in decision.annotations.items():
        if pod.annotations.get(key) != value:
            yield Violation(ViolationKind.SNAPSHOT, str(pod.key), f"annotation {key} is not as decided")
    for key in decision.dropped:
        if key in pod.annotations:
            yield Violation(ViolationKind.SNAPSHOT, str(pod.key), f"annotation {key} is still there")
