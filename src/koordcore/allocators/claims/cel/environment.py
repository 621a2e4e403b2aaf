"""What an expression can name: its variable, its functions, the names of types."""

from __future__ import annotations

from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.claims.cel.declarations import Library, Overload
from koordcore.allocators.claims.cel.kubernetes import declare_includes, declare_kubernetes
from koordcore.allocators.claims.cel.lists import declare_lists
from koordcore.allocators.claims.cel.network import declare_network
from koordcore.allocators.claims.cel.optionals import declare_optionals
from koordcore.allocators.claims.cel.standard import declare_standard
from koordcore.allocators.claims.cel.texts import declare_texts
from koordcore.allocators.claims.cel.times import declare_times
from koordcore.allocators.claims.cel.types import (
    ANY,
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DYN,
    INT,
    NULL,
    QUANTITY,
    STRING,
    UINT,
    Type,
    list_of,
    map_of,
    type_of_types,
)
from koordcore.allocators.claims.cel.values import TypeValue


@record
class SelectorFeatures:
    """Features of the cluster that change what expressions can say.

    Parameters
    ----------
    list_attributes
        Attributes may be lists: ``includes`` exists, and macros run over attributes.
    consumable_capacity
        Devices may be shared: ``device.allowMultipleAllocations`` exists.
    """

    list_attributes: bool = True
    consumable_capacity: bool = True


ALL_FEATURES: Final = SelectorFeatures()

_TYPES: Final[dict[str, Type]] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "null_type": NULL,
    "string": STRING,
    "type": type_of_types(DYN),
    "uint": UINT,
}


@record
class Environment:
    """What an expression can name.

    Parameters
    ----------
    functions
        Forms of the functions and operators, by name.
    fields
        Types of the fields of ``device``.
    """

    functions: immutabledict[str, tuple[Overload, ...]]
    fields: immutabledict[str, Type]

    def named_type(self, name: str) -> tuple[Type, TypeValue] | None:
        """The type that a name stands for, with its type and value."""
        type_ = _TYPES.get(name)
        return None if type_ is None else (type_of_types(type_), TypeValue(name))


def environment(features: SelectorFeatures) -> Environment:
    """The environment of device selectors."""
    return _ENVIRONMENTS[features]


def _build(features: SelectorFeatures) -> Environment:
    library = Library()
    for declare in (
        declare_standard,
        declare_optionals,
        declare_texts,
        declare_lists,
        declare_kubernetes,
        declare_network,
        declare_times,
    ):
        declare(library)
    if features.list_attributes:
        declare_includes(library)
    attribute = DYN if features.list_attributes else ANY
    fields = {
        "driver": STRING,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    if features.consumable_capacity:
        fields["allowMultipleAllocations"] = BOOL
    functions = {name: tuple(forms) for name, forms in library.functions.items()}
    return Environment(immutabledict(functions), immutabledict(fields))


DEVICE_VARIABLE: Final = "device"
DEVICE_TYPE: Final = DEVICE
_ENVIRONMENTS: Final = {
    features: _build(features)
    for features in (SelectorFeatures(lists, shares) for lists in (False, True) for shares in (False, True))
}
