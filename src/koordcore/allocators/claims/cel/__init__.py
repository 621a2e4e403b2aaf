"""Kubernetes' expression language over devices: read once, evaluated once per class of equal devices.

:func:`compile_selector` reads an expression that selects devices, :func:`compile_derived` one that computes
an attribute. Both give a :class:`SelectorError` where the text is none; evaluating gives one where a device
has no answer. Nothing here raises for any text, and :data:`COST_LIMIT` bounds the work of an evaluation.

No library is used: the three on PyPI that install for Python 3.11 to 3.14 (``cel-python``,
``common-expression-language``, ``cel-expr-python``) know neither quantities nor versions, two cannot be
taught such types, and the third needs five more packages and 280 us an evaluation.
"""

from koordcore.allocators.claims.cel.environment import ALL_FEATURES, SelectorFeatures
from koordcore.allocators.claims.cel.errors import SelectorError, SelectorErrorKind
from koordcore.allocators.claims.cel.footprint import Footprint
from koordcore.allocators.claims.cel.selector import (
    COST_LIMIT,
    MAX_LENGTH,
    DerivedExpression,
    DeviceVariable,
    Selector,
    compile_derived,
    compile_selector,
    device_variable,
    is_version,
)

__all__ = [
    "ALL_FEATURES",
    "COST_LIMIT",
    "MAX_LENGTH",
    "DerivedExpression",
    "DeviceVariable",
    "Footprint",
    "Selector",
    "SelectorError",
    "SelectorErrorKind",
    "SelectorFeatures",
    "compile_derived",
    "compile_selector",
    "device_variable",
    "is_version",
]
