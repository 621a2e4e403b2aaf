"""Devices as a pod's hints and a device's own record have them: labels, VFs, ids, numbers, and who shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from koordcore._record import record
from koordcore.checking.devices import (
    ALLOCATED,
    BESIDE,
    MEMORY,
    RATIO,
    WHOLE,
    Part,
    asked_of,
    check_cards,
    parts_of,
)
from koordcore.checking.holders import holder_key
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import KoordcoreError
from koordcore.model.decisions import Bound
from koordcore.model.device_requests import NO_HINT, AllocateStrategy, DeviceHint, ExclusivePolicy
from koordcore.model.devices import Device, DeviceObject
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import Reservation
from koordcore.protocol.device import parse_hints, parse_joint, replace_deprecated
from koordcore.protocol.reservation import is_operating_pod
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_PLUGIN: Final = "DeviceShare"
_UNREADABLE: Final = (ValueError, TypeError, AttributeError, KoordcoreError)


@record(kw_only=True)
class _Given:
    """A new pod and what it holds of one type of devices.

    Parameters
    ----------
    pod
        As it waited.
    kind, node
        The type, and where.
    parts
        What it holds.
    devices
        The node's devices of that type, by minor.
    hint
        What the pod says of the type.
    """

    pod: Pod
    kind: str
    node: str
    parts: tuple[Part, ...]
    devices: Mapping[int, Device]
    hint: DeviceHint

    def says(self, message: str) -> Violation:
        """Name what is wrong."""
        return Violation(ViolationKind.DEVICE, str(self.pod.key), message)

    def where(self, minor: int) -> str:
        """Name a device."""
        return f"{self.kind} {minor} of {self.node}"


def check_device_hints(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    *,
    kept: frozenset[PodKey] = frozenset(),
    standing: bool = False,
) -> Iterator[Violation]:
    """Devices of new pods are of the number, with the labels, VFs and neighbours that their hints ask for.

    Parameters
    ----------
    snapshot, result
        Before and afterwards; reservations are whole in the result.
    kept
        Pods that had their devices before, since when others may have come.
    standing
        The pods run already; what became of devices since is not held against them.
    """
    if standing or not result.policy.filters(_PLUGIN):
        return
    objects = {device.name: device for device in snapshot.of(DeviceObject)}
    new = {one.pod for one in result.decisions if isinstance(one, Bound)} - kept
    waiting = {pod.key: pod for pod in snapshot.pending}
    for state in result.snapshot.nodes:
        device = objects.get(state.name)
        if device is None:
            continue
        fresh = [pod for pod in state.pods if pod.key in new and ALLOCATED in pod.annotations]
        for pod in fresh:
            try:
                wanted = waiting.get(pod.key, pod)
                for given in _given(pod, wanted, device):
                    yield from _check_records(given)
                    yield from _check_number(given)
                    yield from _check_memory(given)
                    if given.hint.exclusive is not ExclusivePolicy.NONE:
                        yield from _check_alone(given, _touched(snapshot, state.name, given.kind))
            except _UNREADABLE:
                continue  # what cannot be read is another check's


def _given(pod: Pod, wanted: Pod, device: DeviceObject) -> Iterator[_Given]:
    hints = {str(kind): hint for kind, hint in parse_hints(wanted.annotations).items()}
    parts = parts_of(pod)
    for kind in sorted({str(one.type) for one in device.devices}):
        yield _Given(
            pod=wanted,
            kind=kind,
            node=device.name,
            parts=tuple(part for part in parts if part.kind == kind),
            devices={one.minor: one for one in device.devices if str(one.type) == kind},
            hint=hints.get(kind, NO_HINT),
        )


def _check_records(given: _Given) -> Iterator[Violation]:
    """What is written of each device is the device's own, and it is one of those that are asked for."""
    hint = given.hint
    for part in given.parts:
        one = given.devices.get(part.minor)
        if one is None:
            continue  # another check's
        where = given.where(part.minor)
        if part.id and one.id and part.id != one.id:
            yield given.says(f"{where} is {one.id}, and not {part.id}")
        if hint.selector is not None and not hint.selector.matches(one.labels):
            yield given.says(f"{where} has not the labels that are asked for")
        suits = {
            vf.bus_id
            for group in one.vf_groups
            if hint.vf_selector is None or hint.vf_selector.matches(group.labels)
            for vf in group.vfs
        }
        if hint.vf_selector is not None and not part.vfs:
            yield given.says(f"asked for VFs, and is given none of {where}")
        # Several of one device only where a number of VFs is asked for; the number is another check's.
        most = 0 if hint.vf_selector is None else len(part.vfs) if _by_vf(hint) else 1
        if len(part.vfs) > most:
            asked = most or "no"
            yield given.says(f"asked for {asked} VF of a device, and is given {len(part.vfs)} of {where}")
        for vf in part.vfs:
            if vf not in suits:
                known = any(vf == other.bus_id for group in one.vf_groups for other in group.vfs)
                why = "has not the labels that are asked for" if known else "does not exist"
                yield given.says(f"VF {vf} of {where} {why}")


def _by_vf(hint: DeviceHint) -> bool:
    """Tell whether a pod asks for a number of VFs: of one device it may get several, each of which counts."""
    return hint.vf_selector is not None and hint.strategy is AllocateStrategy.REQUESTS_AS_COUNT


# -- how many ------------------------------------------------------------------------------------------------


def _check_number(given: _Given) -> Iterator[Violation]:
    """Of NICs and FPGAs there are as many as asked for, each once and with the same share."""
    name = BESIDE.get(given.kind)
    if name is None:
        return
    asked = replace_deprecated(given.pod.requests).get(name, 0)
    if not asked:
        if given.parts:
            yield given.says(f"holds {given.kind}, for which it did not ask")
        return
    if len({part.minor for part in given.parts}) != len(given.parts):
        yield given.says(f"holds one {given.kind} twice")
        return
    count, share = _counted(given, asked)
    for_all = given.hint.strategy is AllocateStrategy.APPLY_FOR_ALL
    if sum(part.amounts.get(name, 0) for part in given.parts) < (share if for_all else asked):
        return  # another check's
    by_vf = _by_vf(given.hint)
    found = 0
    for part in given.parts:
        often = max(1, len(part.vfs)) if by_vf else 1
        found += often
        holds = part.amounts.get(name, 0)
        if holds != share * often:
            yield given.says(f"holds {holds} {name} of {given.kind} {part.minor}, a share is {share * often}")
    if found < count or (found > count and not _joint(given)):
        yield given.says(f"asked for {count} {given.kind} devices, holds {found}")


def _counted(given: _Given, asked: int) -> tuple[int, int]:
    """Give how many devices an amount is, and how much of each."""
    hint = given.hint
    if hint.strategy is AllocateStrategy.APPLY_FOR_ALL:
        every = [
            one
            for one in given.devices.values()
            # One that has nothing to give is as good as broken.
            if one.health
            and any(one.resources.values())
            and (hint.selector is None or hint.selector.matches(one.labels))
        ]
        return len(every), min(asked, WHOLE)
    if asked > WHOLE and not asked % WHOLE:
        return asked // WHOLE, WHOLE
    if hint.strategy is AllocateStrategy.REQUESTS_AS_COUNT:
        return asked, WHOLE if hint.exclusive is ExclusivePolicy.DEVICE_LEVEL else 1
    return 1, asked


def _joint(given: _Given) -> bool:
    """Tell whether a type follows another one, so that each switch may bring one more."""
    joint = parse_joint(given.pod.annotations)
    return joint is not None and len(joint.types) > 1 and given.kind in map(str, joint.types)


# -- how much ------------------------------------------------------------------------------------------------


def _check_memory(given: _Given) -> Iterator[Violation]:
    """Of memory and its ratio the one that is not asked for follows from the other and from the card."""
    if given.kind != "gpu":
        return
    asked = asked_of(given.pod)
    if (MEMORY in asked) == (RATIO in asked) or any(check_cards(given.pod, list(given.parts))):
        return  # nothing follows, or what it follows from is wrong
    for part in given.parts:
        one = given.devices.get(part.minor)
        size = 0 if one is None else one.resources.get(MEMORY, 0)
        if not size or MEMORY not in part.amounts or RATIO not in part.amounts:
            continue
        memory, ratio = part.amounts[MEMORY], part.amounts[RATIO]
        if RATIO in asked and memory != ratio * size // WHOLE:
            share = ratio * size // WHOLE
            yield given.says(f"holds {memory} {MEMORY} of gpu {part.minor}, {ratio} of {WHOLE} are {share}")
        elif MEMORY in asked and ratio != memory * WHOLE // size:
            share = memory * WHOLE // size
            yield given.says(f"holds {ratio} {RATIO} of gpu {part.minor}, its memory is {share}")


# -- who else ------------------------------------------------------------------------------------------------


def _touched(snapshot: ClusterSnapshot, node: str, kind: str) -> dict[int, PodKey]:
    """Give the devices of which pods held something before the call, and one who did.

    Reservations may lend what they hold, and who leaves for others gives it back: they keep nobody away here.
    """
    lenders = {holder_key(one) for one in snapshot.of(Reservation)}
    found: dict[int, PodKey] = {}
    for pod in snapshot.node(node).pods:
        if pod.key in lenders or pod.preempted_by or is_operating_pod(pod):
            continue
        try:
            parts = parts_of(pod)
        except _UNREADABLE:
            continue
        for part in parts:
            if part.kind == kind and any(part.amounts.values()):
                found.setdefault(part.minor, pod.key)
    return found


def _check_alone(given: _Given, touched: Mapping[int, PodKey]) -> Iterator[Violation]:
    """Nobody was there before, on the device itself or on its switch."""
    switches: dict[str, PodKey] = {}
    for minor, key in sorted(touched.items()):
        if (switch := _switch(given, minor)) is not None:
            switches.setdefault(switch, key)
    for part in given.parts:
        other = touched.get(part.minor)
        if other is None and given.hint.exclusive is ExclusivePolicy.PCIE_LEVEL:
            switch = _switch(given, part.minor)
            other = None if switch is None else switches.get(switch)
        if other is not None:
            level = given.hint.exclusive
            yield given.says(f"wants {given.where(part.minor)} for itself ({level}), {other} is there")


def _switch(given: _Given, minor: int) -> str | None:
    """Name the PCIe switch of a device; ``None`` where it is not known."""
    one = given.devices.get(minor)
    return None if one is None or one.topology is None else one.topology.pcie_id or None
