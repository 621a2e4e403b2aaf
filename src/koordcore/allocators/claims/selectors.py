"""Selectors for the allocator: each expression read once, each asked once per class of equal devices."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
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
from koordcore.allocators.claims.table import DeviceView, SelectorFault
from koordcore.model.device_slices import (
    AttributeKind,
    AttributeScalar,
    AttributeValue,
    SliceDevice,
)

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
    >>> from koordcore.model.device_slices import SliceDevice
    >>> selector = CelCompiler().selector("device.driver == 'gpu.example.com'")
    >>> selector(DeviceView("gpu.example.com", SliceDevice(name="gpu-0")))
    True
    """

    def __init__(self, features: frozenset[ClaimFeature] = ALL_FEATURES) -> None:
        self._features = SelectorFeatures(
            list_attributes=ClaimFeature.LIST_ATTRIBUTES in features,
            consumable_capacity=ClaimFeature.CONSUMABLE_CAPACITY in features,
        )
        self._readable = _Readable()
        self._selectors: dict[str, _PerClass[bool] | SelectorFault] = {}
        self._drivers: dict[str, str | None] = {}
        self._derivations: dict[str, _PerClass[AttributeValue] | SelectorFault] = {}

    def selector(self, expression: str, /) -> Callable[[DeviceView], bool | SelectorFault] | SelectorFault:
        """Make a selector, or say why the expression is none."""
        found = self._selectors.get(expression)
        if found is None:
            if len(self._selectors) >= _MAX_EXPRESSIONS:
                self._selectors.clear()
                self._drivers.clear()
            compiled = compile_selector(expression, self._features)
            if not isinstance(compiled, SelectorError):
                self._drivers[expression] = compiled.driver
            found = (
                _fault(compiled)
                if isinstance(compiled, SelectorError)
                else _PerClass(compiled.footprint, compiled.evaluate, self._readable)
            )
            self._selectors[expression] = found
        return found

    def driver(self, expression: str, /) -> str | None:
        """Give the one driver whose devices an expression can select, where its text says so."""
        found = self.selector(expression)
        return None if isinstance(found, SelectorFault) else self._drivers.get(expression)

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
                else _PerClass(compiled.footprint, compiled.evaluate, self._readable)
            )
            self._derivations[expression] = found
        return found


class _PerClass(Generic[T]):
    """An expression with its answers by class of devices: equal in all that it can look at."""

    def __init__(
        self,
        footprint: Footprint | None,
        evaluate: Callable[[DeviceVariable], T | SelectorError],
        readable: _Readable,
    ) -> None:
        self._footprint = footprint
        self._evaluate = evaluate
        self._readable = readable
        self._answers: dict[Hashable, T | SelectorFault] = {}
        self._places: dict[str, tuple[tuple[bool, str, str], ...] | None] = {}

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
        places = self._places.get(driver)
        if places is None:
            places = self._places[driver] = _places(self._footprint, driver)
        if places is None or not self._readable(device.attributes.values()):
            return (driver, device.allow_multiple_allocations, device.attributes, device.capacity)
        seen: list[Hashable] = [driver, device.allow_multiple_allocations]
        for published, full, short in places:
            value = device.attributes.get(full) if published else device.capacity.get(full)
            if value is None and short:
                value = device.attributes.get(short) if published else device.capacity.get(short)
            seen.append(value)
        return tuple(seen)


def _places(footprint: Footprint | None, driver: str) -> tuple[tuple[bool, str, str], ...] | None:
    """Where a driver's devices have what an expression looks at.

    Whether it is an attribute, its full name, and its name without the driver's domain (or nothing).
    """
    if footprint is None:
        return None
    return tuple(
        (which == "attributes", f"{domain or driver}/{name}", name if domain in {None, driver} else "")
        for which, domain, name in footprint
    )


class _Readable:
    """Whether a device's attributes leave all expressions an answer, also those that do not look at them."""

    def __init__(self) -> None:
        self._versions: dict[AttributeScalar, bool] = {}

    def __call__(self, values: Iterable[AttributeValue]) -> bool:
        for value in values:
            if not value.values:
                return False
            if value.kind is AttributeKind.VERSION:
                for one in value.values:
                    known = self._versions.get(one)
                    if known is None:
                        if len(self._versions) >= _MAX_CLASSES:
                            self._versions.clear()
                        known = self._versions[one] = is_version(one)
                    if not known:
                        return False
        return True


def _fault(error: SelectorError) -> SelectorFault:
    return SelectorFault(compiles=error.kind is SelectorErrorKind.RUN, text=str(error))
