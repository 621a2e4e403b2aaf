"""Wire objects of ``dra.*`` read into records, and allocations written back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from immutabledict import immutabledict

from koordcore.allocators.claims import (
    ALL_FEATURES,
    CelCompiler,
    ClaimFeature,
    DevicesInUse,
    DeviceTable,
    DeviceView,
    NodeView,
    SelectorFault,
    SliceIndex,
    devices_in_use,
    gather_pools,
)
from koordcore.checking.claim_pools import CheckedNode
from koordcore.checking.claims import ClaimChecker
from koordcore.manifests._reading import Reading
from koordcore.manifests.resource_claims import read_device_class, read_resource_claim
from koordcore.manifests.resource_slices import as_amounts, read_resource_slice
from koordcore.model.claims import (
    DeviceClass,
    DeviceResult,
    ResourceClaim,
)
from koordcore.model.device_slices import (
    AttributeValue,
    DeviceId,
    ResourceSlice,
    SliceDevice,
)

__all__ = ["Expressions", "NodeInput", "World", "features_of", "held_of"]


def features_of(names: list[str] | None) -> frozenset[ClaimFeature]:
    """Read the list of features that are on; absent stands for all."""
    if names is None:
        return ALL_FEATURES
    parts = {part for name in names for part in name.split("+")}
    return frozenset(one for one in ClaimFeature if one.value in parts)


def _slice(raw: Mapping[str, Any]) -> ResourceSlice:
    return read_resource_slice(Reading(), raw)


def _class(raw: Mapping[str, Any]) -> DeviceClass:
    return read_device_class(Reading(), raw)


def claim_of(raw: Mapping[str, Any]) -> ResourceClaim:
    """Read a claim."""
    return read_resource_claim(Reading(), raw)


class Expressions:
    """Answers of selectors for the checker, which must not ask the allocator's tables."""

    def __init__(self, compiler: CelCompiler) -> None:
        self._compiler = compiler

    def selects(self, expression: str, driver: str, device: SliceDevice) -> bool | None:
        selector = self._compiler.selector(expression)
        answer = selector if isinstance(selector, SelectorFault) else selector(DeviceView(driver, device))
        return None if isinstance(answer, SelectorFault) else answer

    def derives(self, expression: str, driver: str, device: SliceDevice) -> AttributeValue | None:
        derivation = self._compiler.derivation(expression)
        answer = (
            derivation if isinstance(derivation, SelectorFault) else derivation(DeviceView(driver, device))
        )
        return None if isinstance(answer, SelectorFault) else answer


class NodeInput:
    """One node of a world as allocator and checker know it."""

    def __init__(self, world: World, raw: Mapping[str, Any]) -> None:
        metadata = raw["metadata"]
        declared = tuple((raw.get("status") or {}).get("declaredFeatures") or ())
        self.view = NodeView(metadata["name"], metadata.get("labels") or {}, declared)
        self.checked = CheckedNode(metadata["name"], metadata.get("labels") or {}, declared)
        self.table = DeviceTable(gather_pools(world.index, self.view), world.compiler)


class World:
    """Slices and classes with what allocator and checker make of them; read once."""

    def __init__(
        self, slices: list[Any], classes: list[Any], nodes: list[Any], features: list[str] | None = None
    ) -> None:
        self.features = features_of(features)
        self.compiler = CelCompiler(self.features)
        self.slices = tuple(map(_slice, slices))
        self.classes = {one.name: one for one in map(_class, classes)}
        self.index = SliceIndex(self.slices, self.features)
        self.nodes = {raw["metadata"]["name"]: NodeInput(self, raw) for raw in nodes}

    def checker(self) -> ClaimChecker:
        """Make a checker that holds nothing yet."""
        expressions = Expressions(self.compiler)
        return ClaimChecker(
            self.slices,
            self.classes.values(),
            expressions.selects,
            expressions.derives,
            self.compiler.driver,
            frozenset(one.value for one in self.features),
        )


def _ids(entries: list[Mapping[str, Any]] | None) -> list[DeviceId]:
    return [DeviceId(one["driver"], one["pool"], one["device"]) for one in entries or []]


def held_of(
    given: Mapping[str, Any], features: frozenset[ClaimFeature], checker: ClaimChecker
) -> DevicesInUse:
    """Read what is held, for the allocator and, by the way, for the checker."""
    allocations = [claim_of(raw).allocation for raw in given.get("allocatedClaims") or []]
    known = devices_in_use([one for one in allocations if one is not None], features)
    for allocation in allocations:
        checker.hold([] if allocation is None else allocation.results)
    said = given.get("allocated") or {}
    whole, shares = _ids(said.get("devices")), _ids(said.get("shares"))
    if ClaimFeature.CONSUMABLE_CAPACITY not in features:
        whole, shares = [*whole, *shares], []
    amounts = {
        device: as_amounts(one["consumed"])
        for device, one in zip(_ids(said.get("capacity")), said.get("capacity") or [], strict=True)
    }
    checker.hold(DeviceResult(**device._asdict(), request="held") for device in whole)
    for number, device in enumerate(shares):
        taken = amounts if device not in shares[:number] else {}
        checker.hold(
            [
                DeviceResult(
                    **device._asdict(),
                    request="held",
                    share_id=str(number),
                    consumed_capacity=taken.get(device, {}),
                )
            ]
        )
    counted = dict(known.shares)
    for device in shares:
        counted[device] = counted.get(device, 0) + 1
    return DevicesInUse(
        known.dedicated | frozenset(whole),
        immutabledict(counted),
        immutabledict({**known.consumed, **amounts}),
    )
