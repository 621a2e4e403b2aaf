"""Devices: every card, NIC and virtual function that a pod was given, counted anew from the annotations."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordcore._record import record
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import KoordcoreError
from koordcore.model.decisions import Bound
from koordcore.model.devices import Device, DeviceObject
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quantity import parse_quantity
from koordcore.model.resources import NO_RESOURCES
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
JOINT: Final = "scheduling.koordinator.sh/device-joint-allocate"

WHOLE_CARDS: Final = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
MEMORY: Final = "koordinator.sh/gpu-memory"
AS_WRITTEN: Final = (
    MEMORY,
    "huawei.com/npu-core",
    "huawei.com/npu-cpu",
    "huawei.com/npu-dvpp",
)
"""Amounts of cards that are held as they are asked for."""
CORE: Final = "koordinator.sh/gpu-core"
RATIO: Final = "koordinator.sh/gpu-memory-ratio"
BOTH: Final = "koordinator.sh/gpu"
SHARED: Final = "koordinator.sh/gpu.shared"
HINT: Final = "scheduling.koordinator.sh/device-allocate-hint"
BESIDE: Final = {"rdma": "koordinator.sh/rdma", "fpga": "koordinator.sh/fpga"}
"""What is asked for of devices that are no cards, by their type."""
WHOLE: Final = 100
"""Percent points of one device."""


@record
class Part:
    """One device as one pod holds it."""

    pod: PodKey
    kind: str
    minor: int
    amounts: Mapping[str, int]
    vfs: tuple[str, ...]
    id: str = ""


def check_devices(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """What new pods hold exists, is healthy, and is nobody else's."""
    if not result.policy.filters("DeviceShare"):
        return
    objects = {device.name: device for device in snapshot.of(DeviceObject)}
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    for state in result.snapshot.nodes:
        fresh = [pod for pod in state.pods if pod.key in new]
        device = objects.get(state.name)
        if fresh and device is not None:
            yield from _check_node(device, state, new)


def check_device_requests(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, standing: bool = False
) -> Iterator[Violation]:
    """What new pods hold is what they asked for.

    Parameters
    ----------
    snapshot, result
        Before and afterwards; reservations are whole in the result.
    standing
        The pods run already. Of those on which no devices are written only cards are missed.
    """
    if not result.policy.filters("DeviceShare"):
        return
    objects = {device.name: device for device in snapshot.of(DeviceObject)}
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    for state in result.snapshot.nodes:
        device = objects.get(state.name)
        for pod in state.pods:
            if device is not None and pod.key in new:
                yield from _check_request(pod, device, beside=not standing or ALLOCATED in pod.annotations)


def parts_of(pod: Pod) -> list[Part]:
    """Read what a pod holds of devices.

    Raises
    ------
    ValueError, TypeError, AttributeError, KoordcoreError
        When that cannot be read.
    """
    text = pod.annotations.get(ALLOCATED)
    if not text:
        return []
    found = []
    for kind, entries in json.loads(text).items():
        for entry in entries or ():
            told = entry.get("resources") or {}
            # Nobody gives back what others hold.
            amounts = {name: max(0, parse_quantity(value)) for name, value in told.items()}
            extension = entry.get("extension") or {}
            vfs = tuple(str(vf.get("busID") or "") for vf in extension.get("vfs") or ())
            minor, name = int(entry.get("minor", 0)), str(entry.get("id") or "")
            found.append(Part(pod.key, kind, minor, amounts, vfs, name))
    return found


def _check_node(device: DeviceObject, state: NodeState, new: set[PodKey]) -> Iterator[Violation]:
    known: dict[tuple[str, int], Device] = {(str(one.type), one.minor): one for one in device.devices}
    parts: dict[tuple[str, int], list[Part]] = defaultdict(list)
    for pod in state.pods:
        try:
            for part in parts_of(pod):
                parts[part.kind, part.minor].append(part)
        except (ValueError, TypeError, AttributeError, KoordcoreError):
            if pod.key in new:
                yield _broken(pod.key, f"{ALLOCATED} cannot be read")
    asked = {pod.key: frozenset(asked_of(pod)) for pod in state.pods if pod.key in new}
    for (kind, minor), holders in sorted(parts.items()):
        fresh = [part for part in holders if part.pod in new]
        if not fresh:
            continue
        one = known.get((kind, minor))
        where = f"{kind} {minor} of {state.name}"
        if one is None or not one.health:
            yield _broken(fresh[0].pod, f"{where} {'is not healthy' if one else 'does not exist'}")
            continue
        named = frozenset().union(*(asked[part.pod] for part in fresh))
        yield from _check_amounts(one, holders, fresh, where, named)
        yield from _check_vfs(holders, fresh[0].pod, where)


def _check_amounts(
    one: Device, holders: list[Part], fresh: list[Part], where: str, asked: frozenset[str]
) -> Iterator[Violation]:
    """What new pods take of a device is there, and reported; of the rest others may have too much."""
    pod = fresh[0].pod
    # Of memory and its ratio the one that is not asked for is worked out, also where the card has none of it.
    open_ended = {name for name in (MEMORY, RATIO) if name not in asked and not one.resources.get(name)}
    for name, limit in sorted(one.resources.items()):
        if name in open_ended:
            continue
        used = sum(part.amounts.get(name, 0) for part in holders)
        if used > limit and any(part.amounts.get(name) for part in fresh):
            yield _broken(pod, f"{where}: {used} of {limit} {name} given away")
    for name in sorted({name for part in holders if part.pod == pod for name in part.amounts}):
        # Nothing of what the device does not report is nothing taken.
        if name in open_ended:
            continue
        if name not in one.resources and any(part.amounts.get(name) for part in holders if part.pod == pod):
            yield _broken(pod, f"{where} has no {name}")


def _check_vfs(holders: list[Part], pod: PodKey, where: str) -> Iterator[Violation]:
    taken: set[str] = set()
    for part in holders:
        for vf in part.vfs:
            if vf in taken:
                yield _broken(pod, f"VF {vf} of {where} is given twice")
            taken.add(vf)


def _check_request(pod: Pod, device: DeviceObject, *, beside: bool) -> Iterator[Violation]:
    """The amounts are those asked for, and joint devices share a PCIe switch where they must."""
    try:
        parts = parts_of(pod)
    except (ValueError, TypeError, AttributeError, KoordcoreError):
        return
    cards = [part for part in parts if part.kind == "gpu"]
    wrong = list(check_cards(pod, cards))
    yield from wrong or _check_memory(pod, cards, device)
    if beside:
        yield from _check_beside(pod, parts, device)
    yield from _check_joint(pod, parts, device)


def check_cards(pod: Pod, cards: list[Part]) -> Iterator[Violation]:
    """There are as many cards as asked for, each with its even share; parts of a unit are nobody's."""
    asked = asked_of(pod)
    ratio = asked.get(RATIO, 0)
    count = pod.requests.get(SHARED, 0) or (ratio // WHOLE if ratio > WHOLE and not ratio % WHOLE else 1)
    wrong = len({part.minor for part in cards}) != len(cards)
    if wrong:
        yield _broken(pod.key, "holds one card twice")
    for name, amount in sorted(asked.items()):
        given = sum(part.amounts.get(name, 0) for part in cards)
        if given != amount // count * count:
            wrong = True
            yield _broken(pod.key, f"asked for {amount} {name}, holds {given}")
    if wrong or not asked:
        return
    if len(cards) != count:
        yield _broken(pod.key, f"asked for {count} cards, holds {len(cards)}")
        return
    for part in cards:
        for name, amount in sorted(asked.items()):
            if part.amounts.get(name, 0) != amount // count:
                given = part.amounts.get(name, 0)
                yield _broken(
                    pod.key, f"holds {given} {name} of gpu {part.minor}, a share is {amount // count}"
                )


def _check_memory(pod: Pod, cards: list[Part], device: DeviceObject) -> Iterator[Violation]:
    """Where a card reports memory and its ratio, both are held."""
    totals = {one.minor: one.resources for one in device.devices if str(one.type) == "gpu"}
    for part in cards:
        total = totals.get(part.minor, NO_RESOURCES)
        for name in (MEMORY, RATIO):
            if total.get(MEMORY) and total.get(RATIO) and name not in part.amounts:
                yield _broken(pod.key, f"does not say how much {name} it holds of gpu {part.minor}")


def _check_beside(pod: Pod, parts: list[Part], device: DeviceObject) -> Iterator[Violation]:
    """What is asked of NICs and FPGAs is held where the node has such devices."""
    for kind, name in BESIDE.items():
        asked = pod.requests.get(name, 0)
        if not asked or not any(str(one.type) == kind for one in device.devices):
            continue
        wanted = min(asked, WHOLE) if _for_all(pod, kind) else asked  # so much of each of them
        given = sum(part.amounts.get(name, 0) for part in parts if part.kind == kind)
        if given < wanted:
            yield _broken(pod.key, f"asked for {wanted} {name}, holds {given}")


def _for_all(pod: Pod, kind: str) -> bool:
    """Tell whether a pod asks for all devices of a type."""
    wish = (folded(pod, HINT) or {}).get(kind)
    return isinstance(wish, Mapping) and "ApplyForAll" in wish.values()


def folded(pod: Pod, key: str) -> Mapping[str, Any] | None:
    """Read an annotation that holds an object, its keys in small letters; ``None`` where there is none."""
    try:
        raw = json.loads(pod.annotations.get(key) or "null")
        return None if raw is None else {str(name).lower(): value for name, value in raw.items()}
    except (ValueError, AttributeError):
        return None


def asked_of(pod: Pod) -> dict[str, int]:
    """Add up what a pod asks of cards: percent points, and what counts as it is written."""
    wanted: dict[str, int] = {}
    whole = sum(pod.requests.get(name, 0) for name in WHOLE_CARDS) * 100 + pod.requests.get(BOTH, 0)
    for name in (CORE, RATIO):
        amount = pod.requests.get(name, 0) + whole
        if amount:
            wanted[name] = amount
    wanted.update({name: pod.requests[name] for name in AS_WRITTEN if pod.requests.get(name)})
    return wanted


def _check_joint(pod: Pod, parts: list[Part], device: DeviceObject) -> Iterator[Violation]:
    text = pod.annotations.get(JOINT)
    if not text:
        return
    try:
        raw: Any = {str(key).lower(): value for key, value in json.loads(text).items()}
    except (ValueError, AttributeError):
        return
    if raw.get("requiredscope") != "SamePCIe":
        return
    # Whoever gets all devices of a type gets them wherever they are.
    kinds = [
        kind
        for kind in raw.get("devicetypes") or ()
        if any(part.kind == kind for part in parts) and not _for_all(pod, kind)
    ]
    switches: dict[str, set[str]] = {kind: set() for kind in kinds}
    place = {
        (str(one.type), one.minor): one.topology.pcie_id for one in device.devices if one.topology is not None
    }
    for part in parts:
        # A device of which no place is known is on no switch.
        if part.kind in switches and (part.kind, part.minor) in place:
            switches[part.kind].add(place[part.kind, part.minor])
    if len(kinds) > 1 and len({frozenset(found) for found in switches.values()}) > 1:
        shown = "; ".join(f"{kind} on {', '.join(sorted(found))}" for kind, found in switches.items())
        yield _broken(pod.key, f"devices are not on the same PCIe switches: {shown}")


def _broken(pod: PodKey, message: str) -> Violation:
    return Violation(ViolationKind.DEVICE, str(pod), message)
