"""Device selectors: reading an expression, asking it, and asking it of many devices."""

from __future__ import annotations

from typing import Any

from koordcore.allocators.claims.cel import Selector, compile_selector, device_variable
from koordcore.allocators.claims.selectors import CelCompiler
from koordcore.allocators.claims.table import DeviceView
from koordcore.manifests import snapshot_from_objects
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeValue,
    DeviceCapacity,
    SliceDevice,
)
from koordcore.model.quantity import NANO

DRIVER = "gpu.nvidia.com"
GPU = "device.attributes['gpu.nvidia.com']"
MEMORY = "device.capacity['gpu.nvidia.com'].memory"
EXPRESSIONS = (
    f"device.driver == 'gpu.nvidia.com' && {GPU}.type == 'gpu'",
    f"{GPU}.productName.lowerAscii().matches('^.*h100.*$')",
    f"{GPU}.driverVersion.major() >= 550 && {MEMORY}.isGreaterThan(quantity('40Gi'))",
    f"cel.bind(a, {GPU}, a.type == 'mig' && a.profile in ['1g.10gb', '2g.20gb'])",
)
HOSTILE = "lists.range(1000).all(x, lists.range(1000).all(y, x * y >= 0))"


def device(number: int) -> SliceDevice:
    """A GPU like the others, but for its UUID and place."""
    attributes = {
        "type": AttributeValue(AttributeKind.STRING, ("gpu",)),
        "productName": AttributeValue(AttributeKind.STRING, ("NVIDIA H100 80GB HBM3",)),
        "uuid": AttributeValue(AttributeKind.STRING, (f"GPU-{number:08}",)),
        "index": AttributeValue(AttributeKind.INT, (number % 8,)),
        "cudaComputeCapability": AttributeValue(AttributeKind.VERSION, ("9.0.0",)),
        "driverVersion": AttributeValue(AttributeKind.VERSION, ("570.86.15",)),
        "resource.kubernetes.io/pcieRoot": AttributeValue(AttributeKind.STRING, (f"pci{number % 4:04}:00",)),
    }
    capacity = {"memory": DeviceCapacity(80 * 2**30 * NANO, binary=True)}
    return SliceDevice(name=f"gpu-{number}", attributes=attributes, capacity=capacity)


class Expressions:
    """One expression of each of four kinds."""

    def setup(self) -> None:
        compiled = [compile_selector(text) for text in EXPRESSIONS]
        self.selectors = [one for one in compiled if isinstance(one, Selector)]
        self.variable = device_variable(DRIVER, device(0))
        hostile = compile_selector(HOSTILE)
        assert isinstance(hostile, Selector)
        self.hostile = hostile

    def time_read_four(self) -> None:
        for text in EXPRESSIONS:
            compile_selector(text)

    def time_evaluate_four(self) -> None:
        for one in self.selectors:
            one.evaluate(self.variable)

    def time_until_the_limit_of_cost(self) -> None:
        self.hostile.evaluate(self.variable)


class ManyDevices:
    """40,000 devices that differ in their UUIDs: 5000 nodes with eight cards."""

    def setup(self) -> None:
        self.views = [DeviceView(DRIVER, device(number)) for number in range(40_000)]

    def time_ask_once_per_class(self) -> None:
        selector = CelCompiler().selector(EXPRESSIONS[2])
        assert callable(selector)
        for view in self.views:
            selector(view)


class Slices:
    """Slices of 1000 nodes with four cards in 14 partitions each, as drivers publish them."""

    def setup(self) -> None:
        self.objects = [one for number in range(1000) for one in _slices(f"node-{number:04}")]

    def time_read(self) -> None:
        snapshot_from_objects(self.objects)


def _slices(node: str) -> list[dict[str, Any]]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    base = {"driver": DRIVER, "nodeName": node, "pool": pool}
    counters = {f"slice-{n}": {"value": "1"} for n in range(8)}
    cards = [{"name": f"card-{n}", "counters": counters} for n in range(4)]
    devices = [
        {
            "name": f"gpu-{card}-mig-{part}",
            "attributes": {
                "type": {"string": "mig"},
                "profile": {"string": f"{part % 4 + 1}g"},
                "uuid": {"string": f"MIG-{node}-{card}-{part}"},
                "driverVersion": {"version": "570.86.15"},
            },
            "capacity": {"memory": {"value": f"{10 * (part % 4 + 1)}Gi"}},
            "consumesCounters": [
                {"counterSet": f"card-{card}", "counters": {f"slice-{part % 8}": {"value": "1"}}}
            ],
        }
        for card in range(4)
        for part in range(14)
    ]
    metadata = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return [
        {**metadata, "metadata": {"name": f"{node}-cards"}, "spec": {**base, "sharedCounters": cards}},
        {**metadata, "metadata": {"name": f"{node}-parts"}, "spec": {**base, "devices": devices}},
    ]
