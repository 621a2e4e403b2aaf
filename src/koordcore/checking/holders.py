"""The pods that stand for reservations: what each still holds, and whose it is."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import attrs

from koordcore.checking.cpus import STATUS, cpulist
from koordcore.checking.devices import ALLOCATED as DEVICES
from koordcore.checking.nodes import KEEPS_SLOT, KEPT_BY, STANDS_FOR
from koordcore.errors import KoordcoreError
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod, PodKey, PodPhase
from koordcore.model.reservations import (
    AllocatePolicy,
    Reservation,
    ReservationOwner,
)
from koordcore.model.resources import parse_resources
from koordcore.protocol.reservation import (
    is_operating_pod,
    operating_reservation,
    resized_allocatable,
    restricted_resources,
)
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded

PREFIX: Final = "scheduling.koordinator.sh/"
USED: Final = PREFIX + "reservation-allocated"
AFFINITY: Final = PREFIX + "reservation-affinity"
NOMINATED: Final = "koordcore.io/nominated-node"
IGNORED: Final = PREFIX + "reservation-ignored"


def holder_key(one: Reservation) -> PodKey:
    """Give the key of the pod that stands for a reservation."""
    namespace = one.template.namespace if one.template is not None else "default"
    return PodKey(namespace, one.uid or f"reservation-{one.name}")


def used_by(pod: Pod) -> str:
    """Give the uid (or, without one, the name) of the reservation that a pod says it uses; empty for none."""
    if USED not in pod.annotations:
        return ""
    try:
        raw = json.loads(pod.annotations.get(USED) or "{}")
        return str(raw.get("uid") or raw.get("name") or "")
    except (ValueError, AttributeError):
        return ""


def identity_of(one: Reservation) -> str:
    """Give the name by which users know a reservation: its uid, or else its name."""
    return one.uid or one.name


def with_remainders(snapshot: ClusterSnapshot, before: ClusterSnapshot | None = None) -> ClusterSnapshot:
    """Put a pod on the node of each reservation that holds what is left of it, and let pending ones wait.

    Left is what neither its users nor pods that ignore reservations have taken. Of pods that act as
    reservations likewise only that is left. Of what a reservation keeps no account of only new users take
    anything: it goes on holding that for the next.

    Parameters
    ----------
    before
        The cluster before new users came; left out, none did.
    """
    earlier = snapshot if before is None else before
    names = {state.name for state in snapshot.nodes}
    holders = [
        _remainder(snapshot, one, earlier)
        for one in snapshot.of(Reservation)
        if one.active and one.status.node_name in names
    ]
    waiting = [
        attrs.evolve(holder_of(one), node_name=None)
        for one in snapshot.of(Reservation)
        if not one.status.node_name and not one.over
    ]
    pending = {pod.key for pod in snapshot.pending}
    acting = [_what_is_left_of(snapshot, pod) for pod in snapshot.bound_pods() if is_operating_pod(pod)]
    held = snapshot.apply(*(PodEnded(pod.key) for pod in acting)) if acting else snapshot
    held = held.assume(*holders, *acting) if holders or acting else held
    added = [pod for pod in waiting if pod.key not in pending and pod.key not in held.location]
    return held.with_pending(*added) if added else held


def with_holders(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Put a pod on the node of each reservation that asks for and holds all that was granted to it."""
    names = {state.name for state in snapshot.nodes}
    there = (one for one in snapshot.of(Reservation) if one.active and one.status.node_name in names)
    holders = [holder_of(one) for one in there]
    return snapshot.assume(*holders) if holders else snapshot


def owned_holders(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> frozenset[PodKey]:
    """Give the pods of those reservations that some of the pods own or ignore: they are not in its way."""
    pods = tuple(pods)
    ignored = any(pod.labels.get(IGNORED) == "true" for pod in pods)
    return frozenset(
        holder_key(one)
        for one in snapshot.of(Reservation)
        if ignored or any(owns(term, pod) for term in one.owners for pod in pods)
    )


def without_holders(result: ScheduleResult, before: ClusterSnapshot) -> ScheduleResult:
    """Give the result without what it says about reservations as pods."""
    keys = {holder_key(one) for one in before.of(Reservation)}
    left = tuple(one for one in result.decisions if one.pod not in keys)
    return result if len(left) == len(result.decisions) else attrs.evolve(result, decisions=left)


def holder_of(one: Reservation) -> Pod:
    """Give the pod that stands for a reservation and holds all that was, or will be, granted to it."""
    template = one.template or Pod(name=one.name)
    key = holder_key(one)
    granted = one.status.allocatable if one.active else to_be_granted(one)
    stated = one.labels.get("koordinator.sh/priority", "")
    priority = one.template_priority
    if priority is None:
        spelt = re.fullmatch(r"[+-]?[0-9]{1,19}", stated) and -(2**31) <= int(stated) < 2**31
        priority = int(stated) if spelt else 2**31 - 1
    return attrs.evolve(
        template,
        name=key.name,
        uid=one.uid,
        labels={**template.labels, **one.labels},
        annotations={
            **template.annotations,
            **one.annotations,
            STANDS_FOR: "true",
            KEPT_BY: f"reservation {one.name}, which belongs to {one.owners_text}",
        },
        requests={**template.requests, **(granted or {})},
        priority=priority,
        node_name=one.status.node_name or None,
        phase=PodPhase.PENDING,
    )


def to_be_granted(one: Reservation) -> Mapping[str, int]:
    """Give what a reservation that waits will hold: what its template asks for, as it is resized."""
    asked = one.template.requests if one.template is not None else {}
    try:
        return {**asked, **resized_allocatable(one.annotations)}
    except KoordcoreError:
        return asked


def accounted(one: Reservation) -> frozenset[str]:
    """Give the resources of which a reservation keeps account."""
    held = frozenset(one.requests if one.status.allocatable is None else one.status.allocatable)
    if one.allocate_policy is not AllocatePolicy.RESTRICTED:
        return held
    try:
        return held.intersection(restricted_resources(one.annotations)) or held
    except KoordcoreError:
        return held


def _remainder(snapshot: ClusterSnapshot, one: Reservation, earlier: ClusterSnapshot) -> Pod:
    holder = holder_of(one)
    there = snapshot.node(one.status.node_name).pods
    takers = [pod for pod in there if used_by(pod) == identity_of(one) or pod.labels.get(IGNORED) == "true"]
    users = {pod.key for pod in takers if used_by(pod) == identity_of(one)}
    if one.allocate_once and users:  # it is over with its first user
        bare = {key: text for key, text in holder.annotations.items() if key not in (DEVICES, STATUS)}
        return attrs.evolve(holder, requests={}, annotations=bare, host_ports=())
    if not takers:
        holder = attrs.evolve(holder, annotations={**holder.annotations, KEEPS_SLOT: "true"})
    ports = [port for pod in takers for port in pod.host_ports]
    free = tuple(port for port in holder.host_ports if port not in ports)
    spared = frozenset(holder.requests) - accounted(one)
    old = (pod for pod in takers if spared and pod.key in users and pod.key in earlier.location)
    known = {pod.key for pod in old if used_by(earlier.pod(pod.key) or pod) == identity_of(one)}
    return attrs.evolve(_less(holder, takers, dict.fromkeys(known, spared)), host_ports=free)


def _what_is_left_of(snapshot: ClusterSnapshot, pod: Pod) -> Pod:
    """Give a pod that acts as a reservation without what others have of it; its ports are its own."""
    one = operating_reservation(pod)
    takers = [
        other
        for other in snapshot.node(one.status.node_name).pods
        if other.key != pod.key
        and (used_by(other) == identity_of(one) or other.labels.get(IGNORED) == "true")
    ]
    return _less(pod, takers) if takers else pod


def _less(holder: Pod, takers: list[Pod], spared: Mapping[PodKey, Collection[str]] = EMPTY) -> Pod:
    """Give a pod without what others took of what it holds.

    Parameters
    ----------
    spared
        Resources of which some of them took nothing here.
    """
    left = dict(holder.requests)
    for pod in takers:
        beside = spared.get(pod.key, ())
        for name, amount in pod.requests.items():
            if name in beside:
                continue
            left[name] = max(0, left.get(name, 0) - amount)
    annotations = dict(holder.annotations)
    try:
        if DEVICES in annotations:
            annotations[DEVICES] = _devices_left(annotations[DEVICES], takers)
        if STATUS in annotations:
            annotations[STATUS] = _cpus_left(annotations[STATUS], takers)
    except (ValueError, TypeError, AttributeError, KoordcoreError):
        pass  # what cannot be read holds nothing
    return attrs.evolve(holder, requests=left, annotations=annotations)


def _devices_left(text: str, takers: list[Pod]) -> str:
    gone: dict[tuple[str, int], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    functions: set[tuple[str, int, str]] = set()
    for pod in takers:
        for kind, entries in json.loads(pod.annotations.get(DEVICES) or "{}").items():
            for entry in entries or ():
                place = kind, int(entry.get("minor", 0))
                for name, amount in parse_resources(entry.get("resources") or {}).items():
                    gone[place][name] += amount
                functions.update(
                    (*place, vf["busID"]) for vf in (entry.get("extension") or {}).get("vfs") or ()
                )
    left: dict[str, list[Any]] = {}
    for kind, entries in json.loads(text).items():
        for entry in entries or ():
            place = kind, int(entry.get("minor", 0))
            amounts = parse_resources(entry.get("resources") or {})
            rest = {name: max(0, amount - gone[place][name]) for name, amount in amounts.items()}
            if not any(rest.values()):
                continue
            kept = {**entry, "resources": rest}
            vfs = (entry.get("extension") or {}).get("vfs") or ()
            free = [vf for vf in vfs if (*place, vf["busID"]) not in functions]
            kept["extension"] = {**(entry.get("extension") or {}), "vfs": free}
            left.setdefault(kind, []).append(kept)
    return json.dumps(left)


def _cpus_left(text: str, takers: list[Pod]) -> str:
    raw = json.loads(text)
    cpus = set(cpulist(raw.get("cpuset") or ""))
    amounts = {
        int(entry.get("node", 0)): dict(parse_resources(entry.get("resources") or {}))
        for entry in raw.get("numaNodeResources") or ()
    }
    for pod in takers:
        taken = json.loads(pod.annotations.get(STATUS) or "{}")
        cpus -= cpulist(taken.get("cpuset") or "")
        for entry in taken.get("numaNodeResources") or ():
            here = amounts.get(int(entry.get("node", 0)), {})
            for name, amount in parse_resources(entry.get("resources") or {}).items():
                here[name] = max(0, here.get(name, 0) - amount)
    zones = [
        {"node": node, "resources": {name: _quantity(name, amount) for name, amount in here.items()}}
        for node, here in amounts.items()
    ]
    return json.dumps({"cpuset": ",".join(map(str, sorted(cpus))), "numaNodeResources": zones})


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == "cpu" else str(amount)


# -- who may use what ----------------------------------------------------------------------------------------


def owns(term: ReservationOwner, pod: Pod) -> bool:
    """Tell whether an owner term holds for a pod; written apart from the allocator's own rule on purpose."""
    if term.object is not None:
        wanted = term.object
        for left, right in (
            (wanted.uid, pod.uid),
            (wanted.name, pod.name),
            (wanted.namespace, pod.namespace),
            (wanted.api_version, "v1"),
        ):
            if left and left != right:
                return False
    if term.controller is not None:
        asked = term.controller
        if asked.namespace and asked.namespace != pod.namespace:
            return False
        fitting = [
            owner
            for owner in pod.owners
            if asked.kind in ("", owner.kind)
            and asked.name in ("", owner.name)
            and asked.uid in ("", owner.uid)
            and asked.api_version in ("", owner.api_version)
            and (asked.controller is None or asked.controller == owner.controller)
        ]
        if not fitting:
            return False
    return term.selector is None or term.selector.matches(pod.labels)
