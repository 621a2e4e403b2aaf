"""The loop and the framework ask plugins what the contract says, and know none of them by name."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

import koordcore
from koordcore.framework.registry import PLUGINS

SOURCES: Final = Path(koordcore.__file__).parent
FILES: Final = sorted(
    path
    for room in ("scheduling", "framework")
    for path in (SOURCES / room).rglob("*.py")
    if "plugins" not in path.parts and path.name != "registry.py"
)


def texts(path: Path) -> set[str]:
    """Give the texts in a file's code, docstrings and all."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        one.value for one in ast.walk(tree) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    }


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
def test_no_plugin_is_known_by_name(path: Path) -> None:
    assert texts(path).isdisjoint(PLUGINS)


def test_somebody_is_looked_at() -> None:
    assert {"cycle", "preempt", "plugin_set", "scheduling_class"} <= {path.stem for path in FILES}
    assert "NodeResourcesFit" in texts(SOURCES / "framework" / "registry.py")
