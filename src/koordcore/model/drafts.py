"""Records of values that were checked before: copies with a few fields replaced, made without checking again.

Calling the setters of a frozen record's slots one by one, as attrs has to, takes five times as long as plain
assignments. So a record is filled as an object of a class with the same slots that is not frozen, and becomes
what it is at the end; attrs compiles ``__init__`` likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

T = TypeVar("T")


def copier(kind: type[T], *replaced: str) -> Callable[..., T]:
    """Compile the copying of a record: what it gives takes one, and after it the values of some fields.

    Nothing is converted or checked: only for the library's own values, of the types that the class names.

    Parameters
    ----------
    kind
        An attrs class with slots, without others above it and without weak references.
    replaced
        Names of the fields that are given anew, in this order.
    """
    names = [field.name for field in attrs.fields(kind)]  # type: ignore[arg-type]  # an attrs class
    lines = ["made = Draft()"]
    lines += [f"made.{name} = {name if name in replaced else f'record.{name}'}" for name in names]
    lines += ["made.__class__ = Kind", "return made"]
    scope: dict[str, Any] = {"Draft": type("Draft", (), {"__slots__": names}), "Kind": kind}
    exec("\n    ".join([f"def copied({', '.join(('record', *replaced))}):", *lines]), scope)
    copied: Callable[..., T] = scope["copied"]
    return copied
