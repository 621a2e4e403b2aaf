"""Scheduling plugins that installed packages offer to policy files."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from immutabledict import immutabledict

PLUGIN_GROUP: Final = "koordcore.plugins"
"""The group of entry points."""


@cache
def offered_plugins() -> immutabledict[str, EntryPoint]:
    """Give the entry points of installed packages by the names of their plugins; nothing is loaded."""
    found = sorted(entry_points(group=PLUGIN_GROUP), key=lambda one: (one.name, one.value))
    return immutabledict({one.name: one for one in found})
