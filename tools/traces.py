"""A plugin of pytest that keeps which test runs which lines: ``-p tools.traces --traces FILE``.

Lines are followed by coverage.py, every test under its own name; with ``-n`` each worker writes
a part of its own beside the file. ``python -m tools.mutants`` makes such files and reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

__all__ = ["Traces", "parts"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the file."""
    parser.addoption("--traces", help="file that is to tell which test runs which lines")


def pytest_configure(config: pytest.Config) -> None:
    """Follow the lines in every process that runs tests."""
    file = config.getoption("--traces")
    controls = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if file and not controls:
        config.pluginmanager.register(Traces(Path(file)), "traces of tests")


class Traces:
    """Follows lines from the collection of the tests to the end of their process."""

    def __init__(self, file: Path) -> None:
        self._coverage = coverage.Coverage(
            data_file=str(file),
            data_suffix=True,
            config_file=False,
            include=["*/koordcore/*"],
            messages=False,
        )

    def pytest_sessionstart(self) -> None:
        """Begin; what is run while tests are collected belongs to none of them."""
        self._coverage.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count what a test runs as that test's."""
        self._coverage.switch_context(item.nodeid)
        yield
        self._coverage.switch_context("")

    def pytest_sessionfinish(self) -> None:
        """Write what was seen."""
        self._coverage.stop()
        self._coverage.save()


def parts(file: Path) -> list[str]:
    """Name the files that the processes of one run have written."""
    return [str(path) for path in sorted(file.parent.glob(f"{file.name}.*"))]
