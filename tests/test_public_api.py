"""The public surface is what is promised, and importing it costs little."""

from __future__ import annotations

import inspect
import subprocess
import sys

import koordcore

HEAVY = ("ortools", "pandas", "yaml", "rich", "matplotlib", "hypothesis", "dask")


def test_every_promised_name_is_there_and_described() -> None:
    """Each public name exists, and each class and function says what it is."""
    assert koordcore.__all__ == sorted(koordcore.__all__)
    for name in koordcore.__all__:
        value = getattr(koordcore, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name


def test_import_leaves_heavy_packages_alone() -> None:
    """``import koordcore`` loads neither the solver nor anything that only the command line needs."""
    code = f"import sys, koordcore; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_import_leaves_rooms_alone() -> None:
    """``import koordcore`` reads the records and the loop; a room is read when a cluster needs it."""
    code = (
        "import sys, koordcore; print(sorted(name for name in sys.modules if name.startswith('koordcore.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = (
        "allocators",
        "quota",
        "preemption",
        "rebalance",
        "colocation",
        "simulate",
        "topology",
        "manifests",
    )
    assert not [room for room in rooms if f"koordcore.{room}" in done.stdout]
