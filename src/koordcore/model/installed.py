"""Scheduling plugins that installed packages offer to policy files."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from immutabledict import immutabledict

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

PLUGIN_GROUP: Final = "koordcore.plugins"
"""The group of entry points."""


@cache
def offered_plugins() -> immutabledict[str, EntryPoint]:
    """Give the entry points of installed packages by the names of their plugins; nothing is loaded."""
    # It brings the parser of mails, and is needed where a name is none of the library's.
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=PLUGIN_GROUP), key=lambda one: (one.name, one.value))
    return immutabledict({one.name: one for one in found})
