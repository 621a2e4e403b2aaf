"""Selectors for the allocator: each expression read once, each asked once per class of equal devices."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from koordcore.allocators.claims.cel import (
    DeviceVariable,
    Footprint,
    SelectorError,
    SelectorErrorKind,
    SelectorFeatures,
    compile_derived,
    compile_selector,
    device_variable,
    is_version,
)
from koordcore.allocators.claims.features import ALL_FEATURES, ClaimFeature
from koordcore.allocators.claims.table import DeviceView, SelectorFault, lookup_attribute
from koordcore.model.claims import AttributeKind, AttributeValue, SliceDevice

__all__ = ["CelCompiler"]

T = TypeVar("T")

_MAX_EXPRESSIONS: Final = 4096
_MAX_CLASSES: Final = 65536
"""Entries that are kept; beyond them a table starts anew, so that no stream of names can fill memory."""


class CelCompiler:
    """Makes selectors of expressions and remembers both them and their answers.

    Parameters
    ----------
    features
        What the cluster has switched on.

    Examples
    --------
    >>> from koordcore.model.claims import SliceDevice
    >>> selector = CelCompiler().selector("device.driver == 'gpu.example.com'")
    >>> selector(DeviceView("gpu.example.com", SliceDevice(name="gpu-0")))
    True
    """

    def __init__(self, features: frozenset[ClaimFeature] = ALL_FEATURES) -> None:
        self._features = SelectorFeatures(
            list_attributes=ClaimFeature.LIST_ATTRIBUTES in features,
            consumable_capacity=ClaimFeature.CONSUMABLE_CAPACITY in features,
        )
        self._selectors: dict[str, _PerClass[bool] | SelectorFault] = {}
        self._derivations: dict[str, _PerClass[AttributeValue] | SelectorFault] = {}

    def selector(self, expression: str, /) -> Callable[[DeviceView], bool | SelectorFault] | SelectorFault:
        """Make a selector, or say why the expression is none."""
        found = self._selectors.get(expression)
        if found is None:
            if len(self._selectors) >= _MAX_EXPRESSIONS:
                self._selectors.clear()
            compiled = compile_selector(expression, self._features)
            found = (
                _fault(compiled)
                if isinstance(compiled, SelectorError)
                else _PerClass(compiled.footprint, compiled.evaluate)
            )
            self._selectors[expression] = found
        return found

    def derivation(
        self, expression: str, /
    ) -> Callable[[DeviceView], AttributeValue | SelectorFault] | SelectorFault:
        """Make what computes an attribute, or say why the expression computes none."""
        found = self._derivations.get(expression)
        if found is None:
            if len(self._derivations) >= _MAX_EXPRESSIONS:
                self._derivations.clear()
            compiled = compile_derived(expression, self._features)
            found = (
                _fault(compiled)
                if isinstance(compiled, SelectorError)
                else _PerClass(compiled.footprint, compiled.evaluate)
            )
            self._derivations[expression] = found
        return found


class _PerClass(Generic[T]):
    """An expression with its answers by class of devices: equal in all that it can look at."""

    def __init__(
        self, footprint: Footprint | None, evaluate: Callable[[DeviceVariable], T | SelectorError]
    ) -> None:
        self._footprint = footprint
        self._evaluate = evaluate
        self._answers: dict[Hashable, T | SelectorFault] = {}

    def __call__(self, view: DeviceView, /) -> T | SelectorFault:
        key = self._class_of(view.driver, view.device)
        answer = self._answers.get(key)
        if answer is None:
            value = self._evaluate(device_variable(view.driver, view.device))
            answer = _fault(value) if isinstance(value, SelectorError) else value
            if len(self._answers) >= _MAX_CLASSES:
                self._answers.clear()
            self._answers[key] = answer
        return answer

    def _class_of(self, driver: str, device: SliceDevice) -> Hashable:
        if self._footprint is None or not all(map(_readable, device.attributes.values())):
            return (driver, device.allow_multiple_allocations, device.attributes, device.capacity)
        return (
            driver,
            device.allow_multiple_allocations,
            *(_seen(driver, device, *place) for place in self._footprint),
        )


def _seen(driver: str, device: SliceDevice, which: str, domain: str | None, name: str) -> Hashable:
    full = f"{driver if domain is None else domain}/{name}"
    if which == "attributes":
        return lookup_attribute(device, driver, full)
    capacity = device.capacity.get(full)
    if capacity is None and domain in {None, driver}:
        capacity = device.capacity.get(name)
    return None if capacity is None else capacity.value


def _readable(value: AttributeValue) -> bool:
    """Whether the attribute leaves all expressions an answer, also those that do not look at it."""
    return bool(value.values) and (
        value.kind is not AttributeKind.VERSION or all(map(is_version, value.values))
    )


def _fault(error: SelectorError) -> SelectorFault:
    return SelectorFault(compiles=error.kind is SelectorErrorKind.RUN, text=str(error))
