"""The API reference has every public name, and every public name says what it is."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

import pytest

import koordcore

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "koordcore"
sys.path.append(str(ROOT / "docs"))
_api = importlib.import_module("_api")
sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("api")
    (folder / "gone.md").write_text("a room of yesterday", encoding="utf-8")
    _api.write_pages(SOURCE, folder)
    return {page.stem: page.read_text(encoding="utf-8") for page in folder.glob("*.md")}


def test_every_room_has_its_page(pages: dict[str, str]) -> None:
    """A module that promises names stands on the page of its room, once; old pages are gone."""
    assert "gone" not in pages
    for module in _api.modules(SOURCE):
        room = module.split(".")[1]
        assert pages[room].count(f".. automodule:: {module}\n") == 1
        assert f"\n{room}\n" in pages["index"]


def test_the_index_has_every_name_of_the_package(pages: dict[str, str]) -> None:
    """Each name that ``import koordcore`` brings is linked to the module that defines it, with a summary."""
    homes = {name: (module, summary) for name, module, summary in _api.homes(SOURCE)}
    assert set(homes) == set(koordcore.__all__) - {"__version__"}
    for name, (module, summary) in homes.items():
        assert getattr(importlib.import_module(module), name) is getattr(koordcore, name)
        assert summary, name
        assert f"`{name} <{module}.{name}>`" in pages["index"]


@pytest.mark.slow
def test_every_promised_name_is_there_and_described() -> None:
    """Each class and function in any public module's ``__all__`` exists and has a docstring of its own."""
    bare = []
    for path in sorted(SOURCE.rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        if path.stem == "__main__" or not _api.promised(path):
            continue
        loaded = importlib.import_module(module.removesuffix(".__init__"))
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and not value.__doc__:
                bare.append(f"{module}.{name}")
    assert bare == []
