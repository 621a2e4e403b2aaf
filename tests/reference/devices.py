"""A slow, independent reading of a device placement: whether it is legal, and how good it is.

Everything is taken from the wire objects of a case with nothing but the library's quantity parser. The
checker knows the rules that a placement must satisfy, not how one is found.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from koordcore.model.quantity import parse_quantity

PREFIX = "scheduling.koordinator.sh/"
CORE, MEMORY, RATIO = (f"koordinator.sh/gpu-{part}" for part in ("core", "memory", "memory-ratio"))
SHARED = "koordinator.sh/gpu.shared"
WHOLE = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
HOPPER = {
    "1": [{"minors": [minor], "allocationScore": 1} for minor in range(8)],
    "2": [{"minors": [minor, minor + 1], "allocationScore": 1} for minor in range(0, 8, 2)],
    "4": [{"minors": [0, 1, 2, 3], "allocationScore": 1}, {"minors": [4, 5, 6, 7], "allocationScore": 1}],
    "8": [{"minors": list(range(8)), "allocationScore": 1}],
}

Amounts = dict[str, int]


def amounts_of(raw: Mapping[str, Any] | None) -> Amounts:
    return {name: parse_quantity(text) for name, text in (raw or {}).items()}


def annotation(raw: Mapping[str, Any], key: str) -> Any:
    text = (raw["metadata"].get("annotations") or {}).get(PREFIX + key)
    return json.loads(text) if text else None


class Wanted:
    """What the pod asks for, of the types that cases use."""

    def __init__(self, pod: Mapping[str, Any]) -> None:
        total: Amounts = {}
        for container in pod["spec"]["containers"]:
            for name, amount in amounts_of((container.get("resources") or {}).get("requests")).items():
                total[name] = total.get(name, 0) + amount
        for name in WHOLE:
            if total.get(name):
                total["koordinator.sh/gpu"] = 100 * total.pop(name)
        if total.get("koordinator.sh/gpu"):
            percent = total.pop("koordinator.sh/gpu")
            total[CORE] = total[RATIO] = percent
        self.total = total
        self.hints = annotation(pod, "device-allocate-hint") or {}
        self.joint = annotation(pod, "device-joint-allocate") or {}
        self.spec = annotation(pod, "gpu-partition-spec")
        ratio = total.get(RATIO, 0)
        self.cards = total.get(SHARED, 0) or (ratio // 100 if ratio > 100 and ratio % 100 == 0 else 1)
        self.wants_gpu = any(total.get(name) for name in (CORE, MEMORY, RATIO))
        self.whole = RATIO in total and ratio // self.cards >= 100

    def nics(self, kind: str) -> int:
        amount = self.total.get(f"koordinator.sh/{kind}", 0)
        hint = self.hints.get(kind) or {}
        if amount > 100 and amount % 100 == 0:
            return amount // 100
        return amount if hint.get("allocateStrategy") == "RequestsAsCount" else min(amount, 1)

    def asked(self, kind: str) -> bool:
        return self.wants_gpu if kind == "gpu" else bool(self.total.get(f"koordinator.sh/{kind}"))

    @property
    def joint_types(self) -> list[str]:
        return [
            kind
            for kind in self.joint.get("deviceTypes", [])
            if self.asked(kind) and (self.hints.get(kind) or {}).get("allocateStrategy") != "ApplyForAll"
        ]


class Machine:
    """The node of a case: devices and what is held of them."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.labels = case["node"]["metadata"].get("labels") or {}
        self.raw = case.get("device") or {"metadata": {}, "spec": {"devices": []}}
        self.devices = {(one["type"], one["minor"]): one for one in self.raw["spec"].get("devices") or []}
        victims = set(case.get("victims", ()))
        self.held: dict[tuple[str, int], Amounts] = {}
        self.vfs: set[tuple[str, int, str]] = set()
        node = case["node"]["metadata"]["name"]
        holders = {}
        for pod in case.get("pods", []):
            name = f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"
            finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if pod["spec"].get("nodeName") == node and name not in victims and not finished:
                try:
                    holders[name] = annotation(pod, "device-allocated") or {}
                except ValueError:
                    continue
        for held in holders.values():
            self._hold(held)
        for entry in case.get("reservations", []):
            if not entry["matched"]:
                own = annotation(entry["reservation"], "device-allocated") or {}
                self._reserve(own, [holders.get(owner, {}) for owner in entry.get("owners", ())])

    def _hold(self, held: Mapping[str, Any]) -> None:
        for kind, parts in held.items():
            for part in parts:
                own = self.held.setdefault((kind, part["minor"]), {})
                for name, amount in amounts_of(part.get("resources")).items():
                    own[name] = own.get(name, 0) + amount
                for vf in (part.get("extension") or {}).get("vfs", []):
                    self.vfs.add((kind, part["minor"], vf["busID"]))

    def _reserve(self, own: Mapping[str, Any], owners: Sequence[Mapping[str, Any]]) -> None:
        """Keep what an unmatched reservation has not given out."""
        for kind, parts in own.items():
            for part in parts:
                left = amounts_of(part.get("resources"))
                for held in owners:
                    for taken in held.get(kind, []):
                        if taken["minor"] == part["minor"]:
                            for name, amount in amounts_of(taken.get("resources")).items():
                                left[name] = left.get(name, 0) - amount
                kept = {name: max(0, amount) for name, amount in left.items()}
                self._hold({kind: [{"minor": part["minor"], "resources": kept}]})

    def free(self, kind: str, minor: int) -> Amounts:
        one = self.devices.get((kind, minor))
        if one is None or not one.get("health"):
            return {}
        used = self.held.get((kind, minor), {})
        total = amounts_of(one.get("resources"))
        return {name: max(0, amount - used.get(name, 0)) for name, amount in total.items()}

    def place(self, kind: str, minor: int) -> tuple[int, str] | None:
        topology = self.devices[kind, minor].get("topology")
        return None if topology is None else (topology["nodeID"], topology["pcieID"])

    def busy(self, kind: str, minor: int) -> bool:
        return any(self.held.get((kind, minor), {}).values())

    @property
    def honors(self) -> bool:
        """Whole cards come as a partition, whatever the pod says."""
        own = self.raw["metadata"].get("labels") or {}
        key = "node.koordinator.sh/gpu-partition-policy"
        return (self.labels.get(key) or own.get(key)) == "Honor"

    @property
    def table(self) -> Mapping[str, Any] | None:
        found = annotation(self.raw, "gpu-partitions") if self.raw["metadata"] else None
        if found is not None:
            return dict(found)
        vendor = self.labels.get("node.koordinator.sh/gpu-vendor", "")
        model = self.labels.get("node.koordinator.sh/gpu-model", "")
        return HOPPER if vendor in ("", "nvidia") and model in ("H100", "H800", "H20") else None


def pcies(machine: Machine, kind: str, parts: Sequence[Mapping[str, Any]]) -> set[str]:
    places = [machine.place(kind, part["minor"]) for part in parts]
    return {place[1] for place in places if place is not None}


def violations(case: Mapping[str, Any], allocated: Mapping[str, Any]) -> list[str]:
    """List what is illegal about a placement; ``allocated`` is the parsed annotation."""
    machine, wanted = Machine(case), Wanted(case["pod"])
    found = []
    for kind in ("gpu", "rdma", "fpga"):
        if wanted.asked(kind) and not allocated.get(kind):
            found.append(f"no {kind}")
    for kind, parts in allocated.items():
        found.extend(_part_violations(machine, wanted, kind, parts))
    gpus = allocated.get("gpu", [])
    if wanted.wants_gpu:
        found.extend(_gpu_violations(machine, wanted, gpus))
    joint = wanted.joint_types
    if len(joint) > 1:
        lead = pcies(machine, joint[0], allocated.get(joint[0], []))
        for kind in joint[1:]:
            own = pcies(machine, kind, allocated.get(kind, []))
            if wanted.joint.get("requiredScope") == "SamePCIe" and own != lead:
                found.append(f"{kind} sits on {sorted(own)}, not on {sorted(lead)}")
    affinity = case.get("numaAffinity")
    if affinity is not None:
        for kind, parts in allocated.items():
            for part in parts:
                place = machine.place(kind, part["minor"])
                if place is None or (place[0] >= 0 and place[0] not in affinity):
                    found.append(f"{kind} {part['minor']} is outside the NUMA affinity")
    return found


def _part_violations(
    machine: Machine, wanted: Wanted, kind: str, parts: Sequence[Mapping[str, Any]]
) -> list[str]:
    found = []
    minors = [part["minor"] for part in parts]
    if len(set(minors)) != len(minors):
        found.append(f"{kind}: a device stands twice")
    hint = wanted.hints.get(kind) or {}
    vfs = 0
    for part in parts:
        minor = part["minor"]
        if (kind, minor) not in machine.devices:
            found.append(f"{kind} {minor}: not on the node")
            continue
        free = machine.free(kind, minor)
        for name, amount in amounts_of(part["resources"]).items():
            if amount > free.get(name, 0) and (name in free or amount):
                found.append(f"{kind} {minor}: {name} {amount} of {free.get(name, 0)}")
        taken = [vf["busID"] for vf in (part.get("extension") or {}).get("vfs", [])]
        vfs += len(taken)
        own = {
            vf["busID"]
            for group in machine.devices[kind, minor].get("vfGroups", [])
            for vf in group.get("vfs", [])
            if matches(hint.get("vfSelector") or {}, group.get("labels") or {})
        }
        found.extend(
            f"{kind} {minor}: VF {bus} is not free" for bus in taken if (kind, minor, bus) in machine.vfs
        )
        found.extend(f"{kind} {minor}: VF {bus} does not match" for bus in taken if bus not in own)
        if "vfSelector" in hint and not taken:
            found.append(f"{kind} {minor}: no VF")
        if not matches(hint.get("selector") or {}, machine.devices[kind, minor].get("labels") or {}):
            found.append(f"{kind} {minor}: not selected")
    if kind != "gpu" and hint.get("allocateStrategy") != "ApplyForAll":
        count = max(len(parts), vfs)
        if count < wanted.nics(kind):
            found.append(f"{kind}: {count} of {wanted.nics(kind)}")
    return found


def misstated(case: Mapping[str, Any], allocated: Mapping[str, Any]) -> list[str]:
    """List what the entries of an allocation say wrongly: ids, names of resources, amounts of a device."""
    machine, wanted = Machine(case), Wanted(case["pod"])
    found = []
    for kind, parts in allocated.items():
        for part in parts:
            device = machine.devices.get((kind, part["minor"]))
            if device is None:
                found.append(f"{kind} {part['minor']}: not on the node")
                continue
            if part.get("id", "") != device.get("id", ""):
                found.append(f"{kind} {part['minor']}: id {part.get('id')}")
            taken = (part.get("extension") or {}).get("vfs", ())
            known = [vf for group in device.get("vfGroups", []) for vf in group.get("vfs", [])]
            found += [f"{kind} {part['minor']}: VF {vf}" for vf in taken if vf not in known]
            vfs = len(taken) or 1
            share = _share(wanted, kind, amounts_of(device.get("resources")), vfs)
            if share and amounts_of(part.get("resources")) != share:
                found.append(f"{kind} {part['minor']}: {part.get('resources')}, not {share}")
    return found


def entries(case: Mapping[str, Any], minors: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Write an allocation that takes these devices, with the amounts and ids that it has to have."""
    machine, wanted = Machine(case), Wanted(case["pod"])
    found: dict[str, Any] = {}
    for kind, taken in minors.items():
        for minor in taken:
            device = machine.devices.get((kind, minor), {})
            share = _share(wanted, kind, amounts_of(device.get("resources")), 1)
            part = {"minor": minor, "resources": {name: str(amount) for name, amount in share.items()}}
            found.setdefault(kind, []).append(part | ({"id": device["id"]} if "id" in device else {}))
    return found


def _share(wanted: Wanted, kind: str, total: Amounts, vfs: int) -> Amounts:
    """What one device gives: an equal share of what is asked for, memory and its ratio each by the other.

    ``vfs`` is how many units one device stands for. A device taken alone gives everything.
    """
    if kind != "gpu":
        name = f"koordinator.sh/{kind}"
        hint = wanted.hints.get(kind) or {}
        if hint.get("exclusivePolicy") == "DeviceLevel":
            return {name: total.get(name, 0)}
        asked = wanted.total.get(name, 0)
        counted = hint.get("allocateStrategy") == "RequestsAsCount"
        split = counted or (asked > 100 and asked % 100 == 0)
        return {name: vfs * asked // wanted.nics(kind) if split else asked}
    share = {
        name: amount // wanted.cards
        for name, amount in wanted.total.items()
        if name in total and name not in (RATIO, MEMORY)
    }
    if RATIO in wanted.total:
        share[RATIO] = wanted.total[RATIO] // wanted.cards
        share[MEMORY] = total.get(MEMORY, 0) * share[RATIO] // 100
    elif MEMORY in wanted.total:
        share[MEMORY] = wanted.total[MEMORY] // wanted.cards
        share[RATIO] = share[MEMORY] * 100 // max(1, total.get(MEMORY, 0))
    return share


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    for entry in selector.get("matchExpressions") or []:
        value = labels.get(entry["key"])
        good = {
            "In": value in (entry.get("values") or []),
            "NotIn": value not in (entry.get("values") or []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[entry["operator"]]
        if not good:
            return False
    return all(labels.get(key) == value for key, value in (selector.get("matchLabels") or {}).items())


def _gpu_violations(machine: Machine, wanted: Wanted, gpus: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    minors = [part["minor"] for part in gpus]
    table = machine.table
    entry = _partition(table, wanted, minors)
    if len(minors) != wanted.cards and entry is None:
        found.append(f"gpu: {len(minors)} of {wanted.cards}")
    if wanted.whole and (wanted.spec is not None or machine.honors):
        if entry is None:
            found.append(f"{minors} is no partition")
        elif wanted.spec is not None and wanted.spec.get("allocatePolicy") == "Restricted":
            assert table is not None
            best = max(one.get("allocationScore", 0) for one in table[str(wanted.cards)])
            if entry.get("allocationScore", 0) != best:
                found.append(f"{minors} is not of the best score")
    scope = (wanted.hints.get("gpu") or {}).get("requiredTopologyScope", "")
    places = [machine.place("gpu", minor) for minor in minors if ("gpu", minor) in machine.devices]
    if scope == "PCIe" and len(set(places)) > 1:
        found.append("more than one PCIe switch")
    if scope == "NUMANode" and len({place and place[0] for place in places}) > 1:
        found.append("more than one NUMA node")
    if scope == "Device" and len(minors) > 1:
        found.append("more than one device")
    return found


def _partition(
    table: Mapping[str, Any] | None, wanted: Wanted, minors: Sequence[int]
) -> Mapping[str, Any] | None:
    entries = (table or {}).get(str(wanted.cards)) or []
    same = [one for one in entries if sorted(one["minors"]) == sorted(minors)]
    return max(same, key=lambda one: int(one.get("allocationScore", 0)), default=None)


def objective(case: Mapping[str, Any], allocated: Mapping[str, Any]) -> tuple[Any, ...]:
    """Measure a legal placement: smaller is better.

    Partitions by score first; then NUMA nodes of the cards, devices of following types on other switches
    than the cards', switches of the cards, and for whole cards what is left free on these switches and NUMA
    nodes.
    """
    machine, wanted = Machine(case), Wanted(case["pod"])
    gpus = allocated.get("gpu", [])
    minors = [part["minor"] for part in gpus]
    places = [machine.place("gpu", minor) for minor in minors]
    reserved = {
        part["minor"]
        for entry in case.get("reservations", [])
        if entry["matched"]
        and entry["reservation"]["metadata"]["name"] == case.get("nominated")
        # A restricted reservation serves with its own cards alone, or not at all.
        and entry["reservation"]["spec"].get("allocatePolicy") != "Restricted"
        for part in (annotation(entry["reservation"], "device-allocated") or {}).get("gpu", [])
    }
    aside = -len(reserved & set(minors))
    remote = elsewhere = 0
    joint = wanted.joint_types
    if len(joint) > 1 and "gpu" in joint:
        near = pcies(machine, "gpu", gpus)
        for kind in joint:
            if kind != "gpu":
                spots = [machine.place(kind, part["minor"]) for part in allocated[kind]]
                local = sum(1 for spot in spots if spot is not None and spot[1] in near)
                remote += len(spots) - local
                sockets = {place[0] for place in places if place is not None}
                elsewhere += sum(1 for spot in spots if spot is not None and spot[0] not in sockets)
    known = {place for place in places if place is not None}
    numas, switches = len({place[0] for place in known}), len(known)
    if any(kind == "gpu" and one.get("topology") is None for (kind, _), one in machine.devices.items()):
        numas = switches = 0
    entry = _partition(machine.table, wanted, minors) if wanted.whole else None
    if entry is not None:
        return (
            0,
            aside,
            -entry.get("allocationScore", 0),
            remote,
            -_kept(machine, wanted, minors),
            numas,
            switches,
            elsewhere,
        )
    whole_left: tuple[int, ...] = ()
    if wanted.whole and None not in places:
        open_cards = [
            minor
            for kind, minor in machine.devices
            if kind == "gpu" and minor not in minors and _could_serve(machine, minor, gpus[0]["resources"])
        ]
        spots = [machine.place("gpu", minor) for minor in open_cards]
        whole_left = (
            sum(1 for spot in spots if spot in known),
            sum(1 for spot in spots if spot is not None and spot[0] in {place[0] for place in known}),
        )
    return (1, aside, numas, remote, switches, *whole_left, elsewhere)


def scope_binds_partition(case: Mapping[str, Any]) -> bool:
    """Tell whether a partition would have to satisfy a topology scope too (ruling 21)."""
    wanted = Wanted(case["pod"])
    scope = (wanted.hints.get("gpu") or {}).get("requiredTopologyScope")
    return bool(scope) and wanted.whole and Machine(case).table is not None


def _could_serve(machine: Machine, minor: int, asked: Mapping[str, Any]) -> bool:
    free = machine.free("gpu", minor)
    return bool(free) and all(amount <= free.get(name, 0) for name, amount in amounts_of(asked).items())


def _kept(machine: Machine, wanted: Wanted, minors: Sequence[int]) -> int:
    taken = {minor for kind, minor in machine.devices if kind == "gpu" and machine.busy(kind, minor)} | set(
        minors
    )
    worth = 0
    for size, weight in ((8, 10_000), (4, 100), (2, 1)):
        entries = (machine.table or {}).get(str(size)) or []
        if size >= wanted.cards and entries:
            best = max(one.get("allocationScore", 0) for one in entries)
            worth += weight * sum(
                best
                for one in entries
                if one.get("allocationScore", 0) == best and not taken & set(one["minors"])
            )
    return worth
