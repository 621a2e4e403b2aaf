"""What a claim's constraints say while devices are added and taken back one by one (section 8)."""

from __future__ import annotations

from koordcore.allocators.claims.outcome import ClaimError, ClaimErrorKind
from koordcore.allocators.claims.requests import ClaimForms, Form
from koordcore.allocators.claims.table import DeviceTable, Element, SelectorFault
from koordcore.model.claims import DeviceConstraint


def constraint_values(
    table: DeviceTable, form: Form, attribute: str, device: int
) -> frozenset[Element] | ClaimError | None:
    """Give a device's members of an attribute under a form, which may derive the attribute itself.

    Parameters
    ----------
    table
        The devices of the node.
    form
        One alternative of a request.
    attribute
        Full name of the attribute that devices have to agree in.
    device
        Row of the device in the table.
    """
    for derived in form.spec.derived_attributes:
        if derived.name == attribute:
            value = table.derived(derived.expression, device)
            if isinstance(value, SelectorFault):
                text = f"derived attribute {attribute} on device {table.devices[device].id}: {value.text}"
                return ClaimError(ClaimErrorKind.DERIVED, text)
            return value
    return table.values(attribute)[device]


class RunningConstraint:
    """One constraint with the devices that were added to it so far."""

    def __init__(self, table: DeviceTable, constraint: DeviceConstraint) -> None:
        self._table = table
        self._constraint = constraint
        self._match = bool(constraint.match_attribute)
        self._attribute = constraint.match_attribute or constraint.distinct_attribute or ""
        self._sets: list[frozenset[Element]] = []
        self._common: list[frozenset[Element]] = []

    def touches(self, form: Form) -> bool:
        """Tell whether devices of the form are affected."""
        return form.named(self._constraint.requests)

    def add(self, form: Form, device: int) -> bool | ClaimError:
        """Add a device; false where the constraint does not hold then, and nothing is added."""
        values = constraint_values(self._table, form, self._attribute, device)
        if values is None:
            return False
        if isinstance(values, ClaimError):
            return values
        if self._match:
            common = self._common[-1] & values if self._common else values
            if self._common and not common:
                return False
            self._common.append(common)
            return True
        if self._sets and not (values and all(values.isdisjoint(old) and old for old in self._sets)):
            return False
        self._sets.append(values)
        return True

    @property
    def state(self) -> frozenset[Element] | None:
        """What the devices added so far mean for others; ``None`` where none is."""
        if self._match:
            return self._common[-1] if self._common else None
        # A device that agrees with nobody stands alone: its empty set is not the same as no device.
        alone = frozenset((("", not all(self._sets)),))
        return alone.union(*self._sets) if self._sets else None

    def remove(self) -> None:
        """Take the device back that was added last."""
        (self._common if self._match else self._sets).pop()


def running_constraints(table: DeviceTable, claim: ClaimForms) -> list[RunningConstraint]:
    """Start every constraint of a claim with no devices."""
    return [RunningConstraint(table, one) for one in claim.constraints]
