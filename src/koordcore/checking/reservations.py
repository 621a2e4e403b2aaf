"""Reservations: what they still hold counts on their nodes, and who uses one may do so."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from koordcore.checking.cpus import STATUS, cpulist
from koordcore.checking.devices import ALLOCATED as DEVICES
from koordcore.checking.holders import (
    AFFINITY,
    IGNORED,
    NOMINATED,
    USED,
    accounted,
    holder_key,
    identity_of,
    owns,
    to_be_granted,
    used_by,
)
from koordcore.checking.nodes import KEEPS_SLOT, STANDS_FOR
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import KoordcoreError
from koordcore.model.affinity import TaintEffect
from koordcore.model.decisions import Bound, Nominated
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.reservations import (
    AllocatePolicy,
    ConditionStatus,
    Reservation,
    ReservationArgs,
)
from koordcore.model.resources import PODS, Resources, counted, make_resources, parse_resources
from koordcore.protocol.reservation import (
    ReservationAffinity,
    is_operating_pod,
    operating_reservation,
    reservation_wish,
)
from koordcore.protocol.reserved_on_node import inner_reserved
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def check_reservations(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, standing: bool = False
) -> Iterator[Violation]:
    """Users own what they use, within its account; reservations changed only as decided.

    Parameters
    ----------
    standing
        The users run already: what they use may have been closed to others since.
    """
    placed = {one.pod: one for one in result.decisions if isinstance(one, Bound)}
    yield from _check_changes(snapshot, result, placed)
    known = {identity_of(one): one for one in result.snapshot.of(Reservation)}
    acting = (pod for pod in result.snapshot.bound_pods() if is_operating_pod(pod))
    known.update((identity_of(one), one) for one in map(operating_reservation, acting))
    yield from _check_users(result, placed, known, standing=standing)
    yield from _check_accounts(result, placed, known)


def _check_changes(
    snapshot: ClusterSnapshot, result: ScheduleResult, placed: Mapping[PodKey, Bound]
) -> Iterator[Violation]:
    """Each says afterwards what was decided about it, and else what it said before."""
    before = {one.name: one for one in snapshot.of(Reservation)}
    after = {one.name: one for one in result.snapshot.of(Reservation)}
    gained = _gained(result)
    waits = {one.pod: one.node for one in result.decisions if isinstance(one, Nominated)}
    coming = any(holder_key(one) in placed for one in before.values())
    taken = [(used_by(pod), pod.key) for pod in snapshot.bound_pods() if used_by(pod)] if coming else []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            yield _wrong(name, "came or went")
            continue
        if holder_key(old) in waits:
            annotations = {**old.annotations, NOMINATED: waits[holder_key(old)]}
            if attrs.evolve(old, annotations=annotations) != new:
                yield _wrong(name, "is nominated, and does not say so or changed otherwise")
            continue
        decision = placed.get(holder_key(old))
        # One that is placed over running pods has its first users with that.
        fresh = identity_of(old) in gained or (decision is not None and old.pre_allocation)
        if decision is not None:
            yield from _check_placed(old, new, decision)
            if any(used == identity_of(old) and key not in decision.over for used, key in taken):
                yield _wrong(name, "is used already, so that it waits for no node")
        elif attrs.evolve(new, status=old.status) != old or (not fresh and new != old):
            yield _wrong(name, "is not the same before and after")
            continue
        if fresh:
            yield from _check_named(old, new, result.snapshot, placed=decision is not None)
        if decision is not None and old.pre_allocation:
            yield from _check_over(new, result.snapshot, decision)


def _check_users(
    result: ScheduleResult,
    placed: Mapping[PodKey, Bound],
    known: Mapping[str, Reservation],
    *,
    standing: bool,
) -> Iterator[Violation]:
    """Who was placed may use what he uses, and uses some where he has to."""
    nodes = {one.status.node_name for one in known.values()}
    for state in result.snapshot.nodes:
        for pod in state.pods:
            if pod.key not in placed:
                continue
            used = known.get(used_by(pod))
            yield from _check_user(pod, placed[pod.key], used)
            both = AFFINITY in pod.annotations and pod.labels.get(IGNORED) == "true"
            if both and not standing and placed[pod.key].node not in nodes:
                yield _wrong(str(pod.key), "must go where a reservation is, and none is there")
            if used is not None and not standing:
                yield from _check_wishes(pod, used, state.node.labels)
            if used is not None and used.allocate_policy is AllocatePolicy.RESTRICTED:
                yield from _check_inside(pod, used)


def _check_accounts(
    result: ScheduleResult, placed: Mapping[PodKey, Bound], known: Mapping[str, Reservation]
) -> Iterator[Violation]:
    """What somebody came to use holds no more than it has."""
    args = _arguments(result.policy)
    users: dict[str, list[Pod]] = defaultdict(list)
    for pod in result.snapshot.bound_pods():
        if (identity := used_by(pod)) in known:
            users[identity].append(pod)
    for identity, pods in sorted(users.items()):
        one = known[identity]
        here = [pod for pod in pods if pod.node_name == one.status.node_name]
        # One that was placed over running pods got all of them.
        everybody = holder_key(one) in placed
        came = {pod.key for pod in here if everybody or pod.key in placed}
        if came:
            yield from _check_account(one, here, came, args)


def lent(snapshot: ClusterSnapshot, holder: Pod, coming: list[Pod]) -> dict[str, int]:
    """Give what those who come to a node may draw from what a reservation still holds there, at most."""
    held = next((one for one in snapshot.of(Reservation) if holder_key(one) == holder.key), None)
    if held is None or not held.available:
        return {}
    takers = [
        pod
        for pod in coming
        if pod.labels.get(IGNORED) == "true" or any(owns(term, pod) for term in held.owners)
    ]
    drawn: dict[str, int] = {PODS: 1} if takers and KEEPS_SLOT in holder.annotations else {}
    for name, amount in holder.requests.items():
        if name != PODS:
            drawn[name] = min(amount, sum(pod.requests.get(name, 0) for pod in takers))
    return drawn


def taken_in(snapshot: ClusterSnapshot, result: ScheduleResult) -> frozenset[PodKey]:
    """Give the running pods that became owners of a reservation which was placed over them, and may.

    Nothing else of them changed, they are no owners yet, and the reservation takes in running pods like them.
    """
    placed = {one.pod: one.node for one in result.decisions if isinstance(one, Bound)}
    over = {
        identity_of(one): one
        for one in snapshot.of(Reservation)
        if one.pre_allocation and holder_key(one) in placed and not one.status.node_name
    }
    args = _arguments(result.policy)
    before = {pod.key: pod for pod in snapshot.bound_pods()} if over else {}
    found = []
    for pod in result.snapshot.bound_pods() if over else ():
        one, old = over.get(used_by(pod)), before.get(pod.key)
        if one is None or old is None or USED in old.annotations:
            continue
        unchanged = old.at(old.node_name, annotations={USED: pod.annotations[USED]}) == pod
        cluster = one.pre_allocation_policy.mode == "Cluster"
        wanted = old.labels.get(args.pre_allocation.label) == "true" and args.pre_allocation.cluster_mode
        may = wanted if cluster else any(owns(term, old) for term in one.owners)
        if unchanged and may and placed[holder_key(one)] == old.node_name:
            found.append(pod.key)
    return frozenset(found)


def _arguments(policy: Policy) -> ReservationArgs:
    setting = policy.plugin("Reservation")
    return setting.args if setting is not None and setting.args is not None else ReservationArgs()


def _wrong(subject: str, message: str) -> Violation:
    return Violation(ViolationKind.RESERVATION, subject, message)


def _gained(result: ScheduleResult) -> frozenset[str]:
    """Give the reservations that the decisions gave a user."""
    pods = (result.snapshot.pod(one.pod) for one in result.decisions if isinstance(one, Bound))
    return frozenset(used_by(pod) for pod in pods if pod is not None) - {""}


def _check_placed(old: Reservation, new: Reservation, decision: Bound) -> Iterator[Violation]:
    """It was given a node, and nothing else is new about it but its status."""
    if old == new:
        yield _wrong(old.name, "was given a node and does not say so")
        return
    if old.status.node_name or old.over:
        yield _wrong(old.name, f"has the node {old.status.node_name} already")
    if old.problem:
        yield _wrong(old.name, old.problem)
    if not (new.available or _used_up(new)) or new.status.node_name != decision.node:
        yield _wrong(old.name, f"is not available on {decision.node}, as decided")
    if new.status.allocatable != make_resources(to_be_granted(old)):
        yield _wrong(old.name, "does not hold what its template asks for, as resized")
    same = attrs.evolve(new, status=old.status, annotations=old.annotations, claims=old.claims)
    if new.claims != decision.claims:
        yield _wrong(old.name, "its claims are not as decided")
    if same != old or any(new.annotations.get(key) != text for key, text in decision.annotations.items()):
        yield _wrong(old.name, "changed in what no decision is about")


def _used_up(one: Reservation) -> bool:
    """Tell whether a reservation ended as one does that may be used once and is used."""
    ready = [condition for condition in one.status.conditions if condition.kind == "Ready"]
    said_so = any(
        condition.status is ConditionStatus.FALSE and condition.reason == "Succeeded" for condition in ready
    )
    return one.succeeded and one.allocate_once and bool(one.status.current_owners) and said_so


def _check_named(
    old: Reservation, new: Reservation, after: ClusterSnapshot, *, placed: bool
) -> Iterator[Violation]:
    """A reservation that got users names them, says what they ask for, and is over if it is for one."""
    there = new.status.node_name
    pods = after.node(there).pods if there in after.layout.row_of else ()
    users = sorted(
        (pod for pod in pods if used_by(pod) == identity_of(new)), key=lambda pod: (pod.uid, pod.key)
    )
    if old.over:
        yield _wrong(old.name, "is over and was used")
        return
    named = [(one.namespace, one.name, one.uid) for one in new.status.current_owners]
    if named != [(pod.namespace, pod.name, pod.uid) for pod in users]:
        yield _wrong(old.name, "does not name the pods that use it")
    asked: dict[str, int] = defaultdict(int)
    for pod in users:
        for name, amount in pod.requests.items():
            if name in (new.status.allocatable or ()):
                asked[name] += amount
    if make_resources(new.status.allocated or {}) != make_resources(asked):
        yield _wrong(old.name, "does not say what is used of it")
    if users and old.allocate_once != _used_up(new):
        yield _wrong(old.name, f"is {new.status.phase} after it was used")
    was = old.status
    status = attrs.evolve(
        new.status,
        phase=was.phase,
        allocated=was.allocated,
        current_owners=was.current_owners,
        conditions=was.conditions,
    )
    if not placed and status != was:
        yield _wrong(old.name, "changed in what no decision is about")


def _check_over(one: Reservation, after: ClusterSnapshot, decision: Bound) -> Iterator[Violation]:
    """What the pods hold over which a reservation was placed is part of what it holds, in kind and place."""
    there = one.status.node_name
    pods = after.node(there).pods if there in after.layout.row_of else ()
    users = [pod for pod in pods if used_by(pod) == identity_of(one)]
    for key in sorted(set(decision.over) - {pod.key for pod in users}):
        yield _wrong(one.name, f"is placed over {key}, which does not use it")
    for pod in (pod for pod in users if pod.key in decision.over):
        yield from _check_named_by(pod, one)
        yield from _check_wishes(pod, one, after.node(there).node.labels, running=True)
    try:
        mine, theirs = _amounts_on([one.annotations]), _amounts_on(pod.annotations for pod in users)
        kinds = {kind for kind, _ in mine}
        for (kind, minor), amounts in sorted(theirs.items()):
            held = mine.get((kind, minor), {})
            if kind in kinds and any(amount > held.get(name, amount) for name, amount in amounts.items()):
                yield _wrong(one.name, f"holds less of {kind} {minor} than its first owners")
            elif kind in kinds and not held:
                yield _wrong(one.name, f"does not hold {kind} {minor} of its first owners")
        cpus = _cpus_on(one.annotations)
        for pod in users if cpus else ():
            if not _cpus_on(pod.annotations) <= cpus:
                yield _wrong(one.name, f"does not hold the CPUs of {pod.key}")
    except (ValueError, TypeError, AttributeError, KoordcoreError):
        return  # what cannot be read holds nothing


def _cpus_on(annotations: Mapping[str, str]) -> frozenset[int]:
    return cpulist(json.loads(annotations.get(STATUS) or "{}").get("cpuset") or "")


def _amounts_on(annotations: Iterable[Mapping[str, str]]) -> dict[tuple[str, int], dict[str, int]]:
    """Add up device amounts by type and minor."""
    found: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in annotations:
        for kind, entries in json.loads(one.get(DEVICES) or "{}").items():
            for entry in entries or ():
                for name, amount in parse_resources(entry.get("resources") or {}).items():
                    found[kind, int(entry.get("minor", 0))][name] += amount
    return found


def _check_user(pod: Pod, decision: Bound, one: Reservation | None) -> Iterator[Violation]:
    subject = str(pod.key)
    if pod.annotations.get(STANDS_FOR) == "true":
        return
    if not used_by(pod):
        if decision.reservation:
            yield _wrong(subject, f"uses {decision.reservation}, which is not written on it")
        if AFFINITY in pod.annotations and pod.labels.get(IGNORED) != "true":
            yield _wrong(subject, "must use a reservation and uses none")
        return
    if one is None:
        yield _wrong(subject, "uses a reservation that does not exist")
        return
    if decision.reservation != one.name:
        yield _wrong(subject, f'the decision says "{decision.reservation}", the pod says {one.name}')
    if not (one.available or _used_up(one)) or one.status.node_name != decision.node:
        yield _wrong(subject, f"uses {one.name}, which is not available on {decision.node}")
    if one.owners_error or not any(owns(term, pod) for term in one.owners):
        yield _wrong(subject, f"is no owner of {one.name}")
    yield from _check_named_by(pod, one)


def _check_named_by(pod: Pod, one: Reservation) -> Iterator[Violation]:
    try:
        affinity = json.loads(pod.annotations.get(AFFINITY) or "{}")
    except ValueError:
        return
    if isinstance(affinity, Mapping) and affinity.get("name") not in (None, "", one.name):
        yield _wrong(str(pod.key), f"names the reservation {affinity['name']} and uses {one.name}")


def _check_wishes(
    pod: Pod, one: Reservation, node: Mapping[str, str], *, running: bool = False
) -> Iterator[Violation]:
    """A reservation is open to who comes, is one that they want, and has exactly as much where they say so.

    Parameters
    ----------
    node
        Labels of its node.
    running
        It was placed over the pod, which it may be though it is closed to new owners.
    """
    try:
        wish = reservation_wish(pod.labels, pod.annotations)
    except KoordcoreError:
        return
    subject, affinity = str(pod.key), wish.affinity
    if affinity is None or not affinity.name:  # who names it asks for nothing else
        invited = running or (affinity is not None and affinity.tolerates_unschedulable)
        if one.admits_nobody and not invited:
            yield _wrong(subject, f"uses {one.name}, which is closed to new owners")
        if affinity is not None:
            yield from _check_affinity(subject, one, affinity, {**node, **one.labels})
    held = _granted(one)
    if (affinity is None or running) and accounted(one).isdisjoint(pod.requests):
        yield _wrong(subject, f"uses {one.name} and asks for nothing that it keeps account of")
    for name in wish.exact:
        if pod.requests.get(name) != held.get(name):
            amounts = f"{pod.requests.get(name, 0)} {name}, {one.name} has {held.get(name, 0)}"
            yield _wrong(subject, f"must match exactly and asks for {amounts}")


def _check_affinity(
    subject: str, one: Reservation, affinity: ReservationAffinity, labels: Mapping[str, str]
) -> Iterator[Violation]:
    """Who says which reservations it wants gets one of these, and tolerates its taints."""
    for taint in one.taints:
        hard = taint.effect in (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
        if hard and not any(each.tolerates(taint) for each in affinity.tolerations):
            yield _wrong(subject, f"uses {one.name} and does not tolerate its taint {taint}")
    for key, value in sorted(affinity.selector.items()):
        if labels.get(key) != value:
            yield _wrong(subject, f"wants a reservation with {key}={value}, {one.name} has {labels.get(key)}")
    terms = affinity.required
    if terms is not None and not any(term.matches(one.name, labels) for term in terms.terms):
        yield _wrong(subject, f"uses {one.name}, which none of the terms selects that it requires")


def _granted(one: Reservation) -> Resources:
    return one.requests if one.status.allocatable is None else one.status.allocatable


def _check_inside(pod: Pod, one: Reservation) -> Iterator[Violation]:
    """Of devices of a type that a Restricted reservation holds, and of CPUs, its owner takes no others."""
    try:
        mine, theirs = _amounts_on([one.annotations]), _amounts_on([pod.annotations])
        for kind, minor in sorted(theirs.keys() - mine.keys()):
            if any(own == kind for own, _ in mine):
                yield _wrong(str(pod.key), f"takes {kind} {minor}, which {one.name} does not hold")
        held, given = _cpus_on(one.annotations), _cpus_on(pod.annotations)
    except (ValueError, TypeError, AttributeError, KoordcoreError):
        return
    if held and given - held:
        shown = ",".join(map(str, sorted(given - held)))
        yield _wrong(str(pod.key), f"takes CPUs {shown}, which {one.name} does not hold")


def _check_account(
    one: Reservation, users: list[Pod], came: Collection[PodKey], args: ReservationArgs
) -> Iterator[Violation]:
    """Users that came find in an account what they ask for; others may have too much of the rest."""
    if one.allocate_once and len(users) > 1:
        yield _wrong(one.name, f"may be used once and is used by {len(users)} pods")
    if one.allocate_policy is not AllocatePolicy.RESTRICTED:
        return
    held, kept = _granted(one), inner_reserved(one.annotations)
    asked = {name for pod in users if pod.key in came for name, amount in pod.requests.items() if amount}
    for name in sorted(asked & accounted(one) - {PODS}):
        used = sum(pod.requests.get(name, 0) for pod in users)
        if counted(name) and not args.ignores(name) and used > held[name] - kept.get(name, 0):
            back = f", which keeps {kept[name]} back" if name in kept else ""
            yield _wrong(one.name, f"{name}: {used} used of {held[name]}{back}")
    if PODS in held and len(users) > held[PODS]:
        yield _wrong(one.name, f"{len(users)} pods use it, at most {held[PODS]} may")
