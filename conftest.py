"""What keeps a run short: doctests are sought where a file says ``>>>``, and garbage where there is some."""

import gc
from collections.abc import Generator
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule


def pytest_configure() -> None:
    """Let what is collected be: thousands of tests and the modules under them stay until the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from now on, among what the tests make, and less often than in a short run."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Leave out the doctests of files without an example."""
    found = yield
    plain = file_path.suffix == ".py" and ">>>" not in file_path.read_text(encoding="utf-8")
    return [one for one in found if not isinstance(one, DoctestModule)] if plain else found
