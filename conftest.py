"""Doctests are sought where a file says ``>>>``: to search every module takes longer than to read it."""

from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Leave out the doctests of files without an example."""
    found = yield
    plain = file_path.suffix == ".py" and ">>>" not in file_path.read_text(encoding="utf-8")
    return [one for one in found if not isinstance(one, DoctestModule)] if plain else found
