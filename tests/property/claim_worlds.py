"""Random nodes with devices, and claims for them, as the objects that a cluster serves.

Everything of ``../spec/dra.md`` occurs: pools in all states, counters, compatibility groups, shares, taints,
lists, derived attributes, administrators, binding conditions, alternatives, and selectors that err.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

DRIVER: Final = "d.example.com"
_X: Final = f"device.attributes['{DRIVER}']"
_M: Final = f"device.capacity['{DRIVER}']"

CLASSES: Final[list[dict[str, Any]]] = [
    {
        "metadata": {"name": "c"},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    },
    {
        "metadata": {"name": "cx"},
        "spec": {
            "selectors": [
                {"cel": {"expression": f"device.driver == '{DRIVER}'"}},
                {"cel": {"expression": f"'x' in {_X}"}},
            ],
            "config": [{"opaque": {"driver": DRIVER, "parameters": {"kind": "cx"}}}],
        },
    },
    {"metadata": {"name": "all"}, "spec": {}},
]

SELECTORS: Final = (
    f"{_X}.i % 2 == 0",
    f"{_X}.i >= 1",
    "!device.allowMultipleAllocations",
    "device.allowMultipleAllocations",
    f"'m' in {_M} && {_M}.m.compareTo(quantity('3')) >= 0",
    f"'x' in {_X} && {_X}.x.includes(1)",
    f"{_X}[?'y'].orValue(0) == 0",
    f"!has({_X}.v) || {_X}.v.isLessThan(semver('2.0.0'))",
    f"{_X}[?'z'].orValue('') != 'v0'",
)
ERRING: Final = (f"{_X}.x == 0", f"{_X}.nothing", "device.attributes.oops(", f"{_X}.y.includes(1)")

FEATURES: Final = (
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADerivedAttributes",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
    "DRADeviceCompatibilityGroups",
    "DRADeviceTaints",
    "DRAFractionalCapacityRange",
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
    "DRAPartitionableDevices",
    "DRAPrioritizedList",
)


class _Maker:
    """One case: each part of the language is on or off for the whole of it, so that small cases are dense."""

    def __init__(self, rng: Random, most: int) -> None:
        self.rng = rng
        self.most = most

        def part(share: float) -> bool:
            return rng.random() < share

        self.counters = part(0.5)
        self.groups = self.counters and part(0.35)
        self.shared = part(0.5)
        self.lists = part(0.35)
        self.taints = part(0.35)
        self.pools = part(0.4)
        self.trouble = part(0.15)
        self.conditions = part(0.2)
        self.admin = part(0.25)
        self.every = part(0.3)
        self.alternatives = part(0.5)
        self.bonds = part(0.6)
        self.derived = part(0.12)
        self.errs = part(0.1)
        self.features = part(0.12)
        self.operations = part(0.06)
        self.odd = part(0.1)
        self.held = rng.choice([0.0, 0.1, 0.3])

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    # --- what there is

    def value(self) -> dict[str, Any]:
        if self.lists and self.chance(0.5):
            many = sorted(self.rng.sample(range(4), self.rng.randint(1, 3)))
            return {"ints": many} if self.chance(0.9) else {"strings": [f"v{one}" for one in many]}
        if self.odd and self.chance(0.2):
            return self.rng.choice([{"ints": []}, {}, {"bool": True}, {"string": "1"}])
        return (
            {"string": f"v{self.rng.randint(0, 2)}"} if self.chance(0.12) else {"int": self.rng.randint(0, 2)}
        )

    def attributes(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {"i": {"int": number}}
        for name, share in (("x", 0.8), ("y", 0.8), ("z", 0.3)):
            if self.chance(share):
                found[name] = self.value()
        if self.chance(0.2):
            found["v"] = {"version": self.rng.choice(["1.0.0", "2.0.0", "2.0.0-rc.1"])}
        if self.odd and self.chance(0.3):
            found[f"{DRIVER}/x"] = self.value()
        return found

    def capacity(self, shared: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, share in (("m", 0.6), ("k", 0.25)):
            if not self.chance(share):
                continue
            found[name] = {"value": self.rng.choice(["1", "2", "3", "4", "6", "8", "2500m"])}
            if shared and self.chance(0.5):
                found[name]["requestPolicy"] = self.rng.choice(
                    [
                        {"default": "1", "validValues": ["1", "2", "4"]},
                        {"default": "1", "validRange": {"min": "1"}},
                        {"default": "1", "validRange": {"min": "1", "max": "4"}},
                        {"default": "2", "validRange": {"min": "2", "step": "2"}},
                        {"default": "500m", "validRange": {"min": "500m", "max": "3", "step": "500m"}},
                        {"default": "0", "validRange": {"min": "0", "step": "1"}},
                    ]
                )
        return found

    def consumptions(self) -> list[dict[str, Any]]:
        found = []
        for name in self.rng.sample(["s0", "s1"], self.rng.choice([1, 1, 1, 2])):
            entry: dict[str, Any] = {"counterSet": name, "counters": {}}
            for counter in ("a", "b") if name == "s0" else ("a",):
                if self.chance(0.7):
                    entry["counters"][counter] = {"value": str(self.rng.randint(0, 3))}
            if not entry["counters"]:
                entry["counters"]["a"] = {"value": "1"}
            if self.groups and self.chance(0.8):
                entry["compatibilityGroups"] = self.rng.sample(["g", "h", "k"], self.rng.randint(1, 2))
            found.append(entry)
        return found

    def device(self, number: int, with_counters: bool) -> dict[str, Any]:
        shared = self.shared and self.chance(0.5)
        found: dict[str, Any] = {"name": f"d{number}", "attributes": self.attributes(number)}
        capacity = self.capacity(shared)
        if capacity:
            found["capacity"] = capacity
        if shared:
            found["allowMultipleAllocations"] = True
        if with_counters and self.chance(0.7):
            found["consumesCounters"] = self.consumptions()
        if self.taints and self.chance(0.35):
            found["taints"] = [
                {
                    "key": self.rng.choice("tu"),
                    "value": self.rng.choice(["", "1"]),
                    "effect": self.rng.choice(["NoSchedule", "NoSchedule", "NoExecute", "None"]),
                }
            ]
        if self.conditions and self.chance(0.3):
            found["bindingConditions"] = ["ready"]
            found["bindingFailureConditions"] = ["broken"]
        if self.chance(0.05):
            found["bindsToNode"] = True
        return found

    def where(self, devices: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.pools or self.chance(0.6):
            return {"nodeName": "n1"}
        rack = {"key": "rack", "operator": "In", "values": [self.rng.choice(["r1", "r1", "r2"])]}
        selector = {"nodeSelectorTerms": [{"matchExpressions": [rack]}]}
        kind = self.rng.choice(["all", "selector", "device", "other"])
        if kind == "all":
            return {"allNodes": True}
        if kind == "selector":
            return {"nodeSelector": selector}
        if kind == "other":
            return {"nodeName": "n2"}
        for one in devices:
            one.update(self.rng.choice([{"nodeName": "n1"}, {"nodeName": "n2"}, {"allNodes": True}]))
            if self.chance(0.2):
                one.pop("nodeName", None)
                one.pop("allNodes", None)
                one["nodeSelector"] = selector
        return {"perDeviceNodeSelection": True}

    def slices(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        number = 0
        for pool in range(self.rng.choice([1, 1, 2, 3]) if self.pools else 1):
            counted = self.counters and pool == 0
            parts = self.rng.choice([1, 1, 2]) if self.pools else 1
            many = self.rng.randint(1, max(1, self.most - number)) if number < self.most else 0
            devices = [self.device(number + place, counted) for place in range(many)]
            number += many
            cuts = [devices] if parts == 1 else [devices[: many // 2], devices[many // 2 :]]
            mine = []
            for place, some in enumerate(cuts):
                spec: dict[str, Any] = {"devices": some, **self.where(some)}
                if self.operations and self.chance(0.4):
                    spec["skipNodeOperations"] = ["NodePrepareResources"]
                mine.append((f"sl-{pool}-{self.rng.randint(10, 99)}-{place}", spec))
            if counted:
                sets = [
                    {
                        "name": name,
                        "counters": {
                            counter: {"value": str(self.rng.randint(1, 6))}
                            for counter in (("a", "b") if name == "s0" else ("a",))
                        },
                    }
                    for name in ("s0", "s1")
                ]
                mine.append((f"sl-{pool}-cnt", {"nodeName": "n1", "sharedCounters": sets}))
            generation = self.rng.choice([0, 1])
            for name, spec in mine:
                count = len(mine)
                if self.trouble and self.chance(0.2):
                    count += self.rng.choice([-1, 1])
                old = self.trouble and self.chance(0.2)
                found.append(
                    {
                        "metadata": {"name": name},
                        "spec": {
                            "driver": DRIVER if pool < 2 or self.chance(0.7) else "e.example.com",
                            "pool": {
                                "name": f"p{pool}",
                                "generation": generation + (0 if not old else 1),
                                "resourceSliceCount": max(1, count),
                            },
                            **spec,
                        },
                    }
                )
        self.rng.shuffle(found)
        return found

    def in_use(self, slices: list[dict[str, Any]]) -> dict[str, Any]:
        found: dict[str, list[dict[str, Any]]] = {"devices": [], "shares": [], "capacity": []}
        for one in slices:
            for device in one["spec"].get("devices", ()):
                name = {
                    "driver": one["spec"]["driver"],
                    "pool": one["spec"]["pool"]["name"],
                    "device": device["name"],
                }
                shared = device.get("allowMultipleAllocations", False) != (self.odd and self.chance(0.1))
                if not self.chance(self.held):
                    continue
                if not shared:
                    found["devices"].append(name)
                    continue
                found["shares"].append({**name, "shareID": "u1"})
                taken = {key: str(self.rng.choice([0, 1, 1, 2])) for key in device.get("capacity", {})}
                found["capacity"].append({**name, "consumed": taken})
        return found

    # --- what is asked for

    def form(self, exactly: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"deviceClassName": self.rng.choice(["c", "c", "cx", "all"])}
        if self.every and self.chance(0.35):
            found["allocationMode"] = "All"
        else:
            found["allocationMode"] = "ExactCount"
            found["count"] = self.rng.choice([1, 1, 1, 1, 2, 2, 3])
        selectors = self.rng.sample(SELECTORS, self.rng.choice([0, 0, 0, 1, 1, 2]))
        if self.errs and self.chance(0.4):
            selectors.append(self.rng.choice(ERRING))
        if selectors:
            found["selectors"] = [{"cel": {"expression": one}} for one in selectors]
        if self.taints and self.chance(0.5):
            found["tolerations"] = self.rng.choice(
                [
                    [{"operator": "Exists"}],
                    [{"key": "t", "operator": "Exists", "effect": "NoSchedule"}],
                    [{"key": "t", "operator": "Equal", "value": "1"}],
                    [{"key": "u", "value": ""}],
                ]
            )
        if self.shared and self.chance(0.4):
            amounts = ["1", "2", "3", "4", "500m", "1500m", "0"]
            found["capacity"] = {"requests": {self.rng.choice("mmk"): self.rng.choice(amounts)}}
        if self.derived and self.chance(0.4):
            expressions = [f"{_X}.i % 2", f"{_X}.i / 2", f"{_X}.x", f"[{_X}.i % 2, 3]"]
            found["derivedAttributes"] = [
                {"name": f"{DRIVER}/{self.rng.choice('xq')}", "expression": self.rng.choice(expressions)}
            ]
        if exactly and self.admin and self.chance(0.4):
            found["adminAccess"] = True
        return found

    def claim(self, number: int) -> dict[str, Any]:
        requests: list[dict[str, Any]] = []
        names: list[str] = []
        for place in range(self.rng.choice([1, 1, 1, 2, 2, 3])):
            name = f"r{place}"
            names.append(name)
            if self.alternatives and self.chance(0.5):
                forms = [{"name": f"s{one}", **self.form(False)} for one in range(self.rng.randint(1, 3))]
                requests.append({"name": name, "firstAvailable": forms})
                names += [f"{name}/{form['name']}" for form in forms]
            else:
                requests.append({"name": name, "exactly": self.form(True)})
        constraints = []
        for _ in range(self.rng.choice([0, 1, 1, 2]) if self.bonds else 0):
            attribute = f"{DRIVER}/{self.rng.choice('xyzq' if self.derived else 'xxyz')}"
            kind = self.rng.choice(["matchAttribute", "matchAttribute", "distinctAttribute"])
            constraint: dict[str, Any] = {kind: attribute}
            if self.chance(0.6):
                constraint["requests"] = self.rng.sample(names, self.rng.randint(1, min(2, len(names))))
            constraints.append(constraint)
        devices: dict[str, Any] = {"requests": requests}
        if constraints:
            devices["constraints"] = constraints
        if self.chance(0.2):
            config: dict[str, Any] = {"opaque": {"driver": DRIVER, "parameters": {"kind": "mine"}}}
            if self.chance(0.6):
                config["requests"] = [self.rng.choice(names)]
            devices["config"] = [config]
        name = f"c{number}"
        return {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"devices": devices},
        }

    def case(self) -> dict[str, Any]:
        slices = self.slices()
        status = (
            {"declaredFeatures": ["DRAOptionalNodeOperations"]}
            if self.operations and self.chance(0.5)
            else {}
        )
        found: dict[str, Any] = {
            "claims": [self.claim(number) for number in range(self.rng.choice([1, 1, 1, 2, 2, 3]))],
            "classes": CLASSES,
            "slices": slices,
            "node": {
                "metadata": {"name": "n1", "labels": {"kubernetes.io/hostname": "n1", "rack": "r1"}},
                "status": status,
            },
            "allocated": self.in_use(slices),
        }
        if self.features:
            found["features"] = [one for one in FEATURES if self.chance(0.75)]
        return found


def random_case(rng: Random, most: int = 7) -> Mapping[str, Any]:
    """Make a case of the kind of ``dra.allocate``.

    Parameters
    ----------
    rng
        Where chance comes from.
    most
        Devices of the node, at most.
    """
    return _Maker(rng, most).case()
