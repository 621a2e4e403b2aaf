"""Nodes with GPUs, NICs and MIG partitions as their drivers publish them, and claims for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from koordcore.allocators.claims import (
    CelCompiler,
    DevicesInUse,
    DeviceTable,
    NodeView,
    Room,
    SliceIndex,
    gather_pools,
    room_of,
)
from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceConstraint,
    DeviceSubRequest,
    ResourceClaim,
)
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    CounterConsumption,
    CounterSet,
    ResourceSlice,
    SliceDevice,
)
from koordcore.model.quantity import NANO

GPU: Final = "gpu.nvidia.com"
NIC: Final = "dra.net"
ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA: Final = f"{GPU}/numa"
PROFILES: Final = {
    "1g.10gb": (1, 1, (0, 1, 2, 3, 4, 5, 6)),
    "1g.20gb": (1, 2, (0, 2, 4, 6)),
    "2g.20gb": (2, 2, (0, 2, 4)),
    "3g.40gb": (3, 4, (0, 4)),
    "4g.40gb": (4, 4, (0,)),
    "7g.80gb": (7, 8, (0,)),
}
"""Profiles of an H100: compute slices, memory slices, and where a partition may start."""


def _is(kind: str) -> str:
    return f"device.driver == '{GPU}' && device.attributes['{GPU}'].type == '{kind}'"


CLASSES: Final = {
    "gpu": DeviceClass(name="gpu", selectors=(_is("gpu"),)),
    "mig": DeviceClass(name="mig", selectors=(_is("mig"),)),
    "nic": DeviceClass(name="nic", selectors=(f"device.driver == '{NIC}'",)),
}
COMPILER: Final = CelCompiler()


def _text(value: str) -> AttributeValue:
    return AttributeValue(AttributeKind.STRING, (value,))


def _number(value: int) -> AttributeValue:
    return AttributeValue(AttributeKind.INT, (value,))


def whole_gpus(node: str, count: int, *, nics: Sequence[int] = ()) -> list[ResourceSlice]:
    """A node with GPUs, half of them in each NUMA node, two to a PCIe root; NICs on the roots given."""
    gpus = tuple(
        SliceDevice(
            name=f"gpu-{number:02}",
            attributes={
                "type": _text("gpu"),
                "uuid": _text(f"GPU-{node}-{number}"),
                "numa": _number(number * 2 // count),
                ROOT: _text(f"pci{number // 2:02}"),
            },
        )
        for number in range(count)
    )
    slices = [ResourceSlice(name=f"{node}-gpu", driver=GPU, pool=node, node_name=node, devices=gpus)]
    if nics:
        cards = tuple(
            SliceDevice(name=f"nic-{number}", attributes={ROOT: _text(f"pci{root:02}")})
            for number, root in enumerate(nics)
        )
        slices.append(ResourceSlice(name=f"{node}-nic", driver=NIC, pool=node, node_name=node, devices=cards))
    return slices


def _card(number: int) -> list[SliceDevice]:
    counters = f"gpu-{number}"

    def device(name: str, kind: Mapping[str, AttributeValue], taken: Mapping[str, int]) -> SliceDevice:
        amounts = {counter: amount * NANO for counter, amount in taken.items()}
        return SliceDevice(
            name=name,
            attributes={"parent": _number(number), "numa": _number(number // 4), **kind},
            consumes_counters=(CounterConsumption(counters, amounts),),
        )

    found = []
    for profile, (compute, memory, starts) in PROFILES.items():
        for start in starts:
            slices = {f"memory-slice-{place}": 1 for place in range(start, start + memory)}
            found.append(
                device(
                    f"gpu-{number}-{profile.replace('.', '-')}-{start}",
                    {"type": _text("mig"), "profile": _text(profile)},
                    {"multiprocessors": 18 * compute, "copy-engines": compute, **slices},
                )
            )
    everything = {f"memory-slice-{place}": 1 for place in range(8)}
    found.append(
        device(
            f"gpu-{number}",
            {"type": _text("gpu")},
            {"multiprocessors": 132, "copy-engines": 7, **everything},
        )
    )
    return found


def mig_cards(node: str, count: int) -> list[ResourceSlice]:
    """A node with cards that can be partitioned: a slice with counters and one with devices for each."""
    counters = {"multiprocessors": 132, "copy-engines": 7} | {f"memory-slice-{n}": 1 for n in range(8)}
    sets = tuple(
        CounterSet(f"gpu-{number}", {name: amount * NANO for name, amount in counters.items()})
        for number in range(count)
    )
    common = {"driver": GPU, "pool": node, "node_name": node, "slice_count": count + 1}
    slices = [ResourceSlice(name=f"{node}-counters", shared_counters=sets, **common)]  # type: ignore[arg-type]
    for number in range(count):
        devices = tuple(_card(number))
        slices.append(ResourceSlice(name=f"{node}-card-{number}", devices=devices, **common))  # type: ignore[arg-type]
    return slices


def table_of(slices: Sequence[ResourceSlice], node: str = "n1") -> DeviceTable:
    """Columns of one node, with nothing worked out yet."""
    return DeviceTable(gather_pools(SliceIndex(slices), NodeView(node)), COMPILER)


def empty_room(slices: Sequence[ResourceSlice], node: str = "n1") -> Room:
    """A node on which nothing is held."""
    return room_of(table_of(slices, node), DevicesInUse())


def request(name: str, kind: str, count: int = 1, profile: str = "") -> ClaimRequest:
    """A request for devices of a class, or for partitions of a profile."""
    selectors = (f"device.attributes['{GPU}'].profile == '{profile}'",) if profile else ()
    return ClaimRequest(name, (DeviceSubRequest(class_name=kind, count=count, selectors=selectors),))


def claim(
    name: str, requests: Sequence[ClaimRequest], match: Sequence[tuple[str, tuple[str, ...]]] = ()
) -> ResourceClaim:
    """A claim whose requests agree in attributes."""
    bonds = tuple(DeviceConstraint(names, match_attribute=attribute) for attribute, names in match)
    return ResourceClaim(name=name, spec=ClaimSpec(tuple(requests), bonds))


def gpus_of_one_numa(count: int) -> ResourceClaim:
    """So many GPUs that must lie in one NUMA node."""
    return claim("c", [request("gpu", "gpu", count)], [(NUMA, ())])


def pairs(count: int) -> ResourceClaim:
    """Pairs of GPU and NIC, each on one PCIe root."""
    requests = [request(f"{kind}-{number}", kind) for number in range(count) for kind in ("gpu", "nic")]
    return claim("c", requests, [(ROOT, (f"gpu-{n}", f"nic-{n}")) for n in range(count)])


def partitions(**counts: int) -> list[ResourceClaim]:
    """One claim for every partition, by profile written with underscores (``p1g_10gb=6``)."""
    found = []
    for short, count in counts.items():
        profile = short[1:].replace("_", ".")
        found += [claim(f"{short}-{n}", [request("r", "mig", 1, profile)]) for n in range(count)]
    return found
