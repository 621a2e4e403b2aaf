"""The API reference has every public name, and every public name says what it is."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

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


def test_every_package_has_its_page(pages: dict[str, str]) -> None:
    """Each name of a face stands on one page, under the module that defines it; old pages are gone."""
    assert "gone" not in pages
    listed: list[tuple[str, str]] = []
    for package, face in _api.faces(SOURCE).items():
        assert f"\n{package}\n" in pages["index"]
        for module, names in face.items():
            assert f".. automodule:: {module}\n   :members: {', '.join(names)}\n" in pages[package]
            listed += [(module, name) for name in names]
    assert len(listed) == len(set(listed))
    assert {pair for path in SOURCE.rglob("__init__.py") for pair in _api.promised(path)} == set(listed)


def test_the_index_has_every_name_of_the_package(pages: dict[str, str]) -> None:
    """Each name that ``import koordcore`` brings is linked to the module that defines it, with a summary."""
    homes = {name: (module, summary) for name, module, summary in _api.homes(SOURCE)}
    assert set(homes) == set(vars(koordcore)["__all__"])
    for name, (module, summary) in homes.items():
        assert _made(importlib.import_module(module), name) is _made(koordcore, name)
        assert summary, name
        assert f"`{name} <{module}.{name}>`" in pages["index"]


def _made(module: ModuleType, name: str) -> object:
    """Give what a name stands for, without the wrapping in which a face hands functions out."""
    value: object = getattr(module, name)
    return inspect.unwrap(value) if inspect.isfunction(value) else value


@pytest.mark.slow
def test_every_promised_name_is_there_and_described() -> None:
    """What a package offers is what its module has, with a docstring of its own; no two share a name."""
    bare, known = [], dict[str, object]()
    for path in sorted(SOURCE.rglob("__init__.py")):
        if not _api.promised(path):
            continue
        package = importlib.import_module(".".join(path.relative_to(SOURCE.parent).parent.parts))
        assert package.__all__ == sorted(name for _, name in _api.promised(path))
        for module, name in _api.promised(path):
            value = _made(package, name)
            assert value is _made(importlib.import_module(module), name)
            assert known.setdefault(name, value) is value, name
            if (inspect.isclass(value) or inspect.isfunction(value)) and not value.__doc__:
                bare.append(f"{module}.{name}")
    assert bare == []
    assert len(known) < 400


def _questions(name: str, value: object) -> Iterator[tuple[str, Callable[..., object]]]:
    """The functions behind a public name: itself, or its public methods."""
    if inspect.isfunction(value):
        yield name, value
    elif inspect.isclass(value):
        for key, one in vars(value).items():
            if not key.startswith("_") and (
                inspect.isfunction(one) or isinstance(one, classmethod | staticmethod)
            ):
                yield f"{name}.{key}", getattr(value, key)


@pytest.mark.slow
def test_whoever_takes_three_things_describes_them() -> None:
    """Every public function with three parameters or more names each of them in its section."""
    bare = []
    for path in sorted(SOURCE.rglob("__init__.py")):
        for module, name in _api.promised(path):
            for own, one in _questions(name, getattr(importlib.import_module(module), name)):
                taken = [key for key in inspect.signature(one).parameters if key not in ("self", "cls")]
                section = (inspect.getdoc(one) or "").partition("\nParameters\n---")[2]
                missing = [key for key in taken if not re.search(rf"\b{key}\b", section)]
                if len(taken) > 2 and missing:
                    bare.append(f"{module}.{own}: {', '.join(missing)}")
    assert bare == []


@pytest.mark.slow
def test_arrays_have_shapes() -> None:
    """Every public function that takes or gives an array says its shape."""
    bare = []
    for path in sorted(SOURCE.rglob("__init__.py")):
        for module, name in _api.promised(path):
            for own, one in _questions(name, getattr(importlib.import_module(module), name)):
                types = " ".join(str(each) for each in getattr(one, "__annotations__", {}).values())
                shape = re.search(r"\(\w+(?:, \w+)*,?\)", (inspect.getdoc(one) or "").replace("`", ""))
                if re.search(r"(Bool|Int|Float)(Vector|Matrix|Cube)|NDArray", types) and not shape:
                    bare.append(f"{module}.{own}")
    assert bare == []
