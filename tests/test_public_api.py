"""The public surface is what is promised, and importing it costs little."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
import subprocess
import sys
import typing
from pathlib import Path

import attrs
import pytest

import koordcore

HEAVY = ("ortools", "pandas", "yaml", "rich", "matplotlib", "hypothesis", "dask")
ROOMS = (
    "allocators",
    "quota",
    "preemption",
    "descheduling",
    "colocation",
    "simulate",
    "controlplane",
    "topology",
    "manifests",
)
EVERYDAY = "from koordcore import ClusterSnapshot, Node, Pod, schedule"
COME_BETWEEN = (
    "import koordcore.scheduling",
    "import koordcore.framework.plugin",
    "from koordcore.scheduling.cycle import open_workspace",
    "import koordcore.checking.check",
    "import koordcore.explaining",
    "from koordcore.checking import verify as checker",
)


def promised() -> list[str]:
    """The names of the package; type checkers read them elsewhere."""
    names: list[str] = vars(koordcore)["__all__"]
    return names


def imports_of(body: list[ast.stmt]) -> dict[str, str]:
    return {
        alias.name: str(statement.module)
        for statement in body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def printed(code: str) -> str:
    """Run code in a fresh interpreter that prints what is asked."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def loaded_by(statement: str) -> set[str]:
    return set(printed(f"import sys; {statement}; print(*sys.modules)").split())


def test_every_promised_name_is_there_and_described() -> None:
    """Each public name exists, and each class and function says what it is."""
    assert promised() == sorted(promised())
    for name in promised():
        value = getattr(koordcore, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), name


def face_of(path: Path) -> dict[str, str]:
    """Read what type checkers see of a package: name to module."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    checked = next(
        one for one in body if isinstance(one, ast.If) and ast.unparse(one.test) == "TYPE_CHECKING"
    )
    return imports_of(checked.body)


def test_each_name_is_what_its_module_has() -> None:
    """Readers and type checkers see the same; the package hands out the very classes, and keeps them.

    Functions it hands out as ones that name what is wrong with their arguments.
    """
    face = face_of(Path(str(koordcore.__file__)))
    assert set(face) == set(promised())
    for name, module in face.items():
        value = getattr(koordcore, name)
        assert inspect.unwrap(value) is getattr(importlib.import_module(module), name)
        assert vars(koordcore)[name] is value
        assert name in dir(koordcore)


def test_examples_and_embedders_use_names_of_faces_only() -> None:
    """The programs of ``examples`` and the blocks of the guides import what packages offer, nothing else."""
    source, root = Path(str(koordcore.__file__)).parent, Path(__file__).parents[1]
    faces = {
        ".".join(path.parent.relative_to(source.parent).parts): face_of(path)
        for path in source.rglob("__init__.py")
        if "TYPE_CHECKING" in path.read_text(encoding="utf-8")
    }
    pages = [root / "docs" / "guides" / name for name in ("embedding.md", "embedders.md", "plugins.md")]
    codes = {path: path.read_text(encoding="utf-8") for path in (root / "examples").rglob("*.py")}
    codes |= {
        page: "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)) for page in pages
    }
    inner = [
        f"{path.name}: {one.module}.{name.name}"
        for path, code in codes.items()
        for one in ast.walk(ast.parse(code))
        if isinstance(one, ast.ImportFrom) and str(one.module).startswith("koordcore")
        for name in one.names
        if name.name not in faces.get(str(one.module), {})
    ]
    assert inner == []


def test_a_star_brings_what_is_promised() -> None:
    """``from koordcore import *`` gives every name of ``__all__``, none of them read before."""
    code = "import koordcore; from koordcore import *; print(set(koordcore.__all__) <= set(globals()))"
    assert printed(code) == "True"


def test_every_name_that_a_module_lists_is_there() -> None:
    """``from koordcore.X import *`` works for every module: its ``__all__`` names nothing that has gone."""
    modules = [one.name for one in pkgutil.walk_packages(koordcore.__path__, "koordcore.")]
    missing = [
        f"{name}.{promised_name}"
        for name in modules
        if not name.endswith("__main__")
        for promised_name in getattr(importlib.import_module(name), "__all__", ())
        if not hasattr(importlib.import_module(name), promised_name)
    ]
    assert missing == []


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Whoever mistypes is told so; a module of the package can still be imported from it."""
    with pytest.raises(AttributeError, match="module 'koordcore' has no attribute 'Scheduel'"):
        getattr(koordcore, "Scheduel")  # noqa: B009 - a type checker knows that it is not there
    with pytest.raises(ImportError, match="Scheduel"):
        exec("from koordcore import Scheduel")
    assert printed("from koordcore import errors; print(errors.__name__)") == "koordcore.errors"


def test_names_can_be_pickled() -> None:
    """Another process finds functions where they are handed out, classes and records where they are made."""
    pod = koordcore.Pod(name="web", requests={"cpu": 1000})
    told = pickle.dumps((koordcore.schedule, koordcore.verify, koordcore.Policy, pod))
    assert pickle.loads(told) == (koordcore.schedule, koordcore.verify, koordcore.Policy, pod)
    code = f"import koordcore, pickle; print(pickle.loads({told!r})[0] is koordcore.schedule)"
    assert printed(code) == "True"


@pytest.mark.slow
@pytest.mark.parametrize("first", COME_BETWEEN)
def test_functions_are_not_taken_for_their_packages(first: str) -> None:
    """``schedule`` and ``verify`` are functions whatever was imported before them or comes after."""
    others = "; ".join(one for one in COME_BETWEEN if one != first)
    ask = "from koordcore import schedule, verify; print(callable(schedule), callable(verify))"
    assert printed(f"{first}; {ask}; {others}; {ask}") == "True True\nTrue True"


def test_functions_are_found_when_all_packages_came_before_them() -> None:
    others = "; ".join(COME_BETWEEN)
    assert printed(f"{others}; import koordcore; print(callable(koordcore.schedule))") == "True"


def test_hints_of_functions_resolve() -> None:
    """Annotations name types through the package, so that whoever asks gets the classes."""
    hints = typing.get_type_hints(koordcore.schedule)
    assert (hints["snapshot"], hints["return"]) == (koordcore.ClusterSnapshot, koordcore.ScheduleResult)
    assert set(hints) == {*inspect.signature(koordcore.schedule).parameters, "return"}
    assert typing.get_type_hints(koordcore.verify)["return"] == tuple[koordcore.Violation, ...]


def test_hints_of_records_resolve() -> None:
    """Whoever reads the types of a record's fields, as converters to JSON do, gets classes."""
    for name in promised():
        value = getattr(koordcore, name)
        if inspect.isclass(value) and attrs.has(value):
            assert typing.get_type_hints(value).keys() >= attrs.fields_dict(value).keys(), name


def test_import_loads_nothing_but_a_table_of_names() -> None:
    """``import koordcore`` loads neither numpy nor attrs, and nothing else of the library."""
    loaded = loaded_by("import koordcore")
    assert loaded.isdisjoint((*HEAVY, "numpy", "attr", "attrs", "immutabledict"))
    assert {name for name in loaded if name.startswith("koordcore.")} == {"koordcore._face"}


def test_everyday_names_leave_rooms_alone() -> None:
    """Records are made without numpy, the rooms and the loop; those are read when a cluster needs them."""
    make = "ClusterSnapshot(nodes=[Node(name='n')], pending=[Pod(name='p', requests={'cpu': 1})])"
    loaded = loaded_by(f"{EVERYDAY}; {make}")
    assert loaded.isdisjoint((*HEAVY, "numpy"))
    assert loaded.isdisjoint(f"koordcore.{room}" for room in ROOMS)
    assert loaded.isdisjoint(("koordcore.scheduling.cycle", "koordcore.result", "koordcore.model.policy"))


def test_a_plain_call_leaves_alone_what_others_need() -> None:
    """Who places a plain pod does not wait for gangs, quotas, networks, claims or evictions to be read."""
    make = "schedule(ClusterSnapshot(nodes=[Node(name='n')], pending=[Pod(name='p', requests={'cpu': 1})]))"
    loaded = loaded_by(f"{EVERYDAY}; {make}")
    assert "koordcore.scheduling.cycle" in loaded
    rooms = ("scheduling.gang_groups", "quota.ledger", "protocol.networks", "allocators.claims", "preemption")
    idle = ("model.preemption", "protocol.gang", "protocol.device_object")
    assert loaded.isdisjoint(f"koordcore.{name}" for name in (*rooms, *idle))


def test_snapshots_and_results_are_short_to_look_at() -> None:
    nodes = [koordcore.Node(name=f"n{number}", allocatable={"cpu": 1000, "pods": 9}) for number in range(50)]
    pods = [koordcore.Pod(name=f"p{number}", requests={"cpu": 600}) for number in range(51)]
    gang = koordcore.PodGroup(name="g", min_member=2)
    snapshot = koordcore.ClusterSnapshot(nodes=nodes, pending=pods, records=(gang,))
    assert repr(snapshot) == "<ClusterSnapshot: 50 nodes, 0 bound, 51 pending, 1 PodGroup>"
    after = "<ClusterSnapshot: 50 nodes, 50 bound, 1 pending, 1 PodGroup>"
    assert repr(koordcore.schedule(snapshot)) == f"<ScheduleResult: 50 Bound, 1 Unschedulable; {after}>"


def test_one_path_is_a_path(tmp_path: Path) -> None:
    """A text is one file, not its letters."""
    file = tmp_path / "node.json"
    file.write_text('{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}', encoding="utf-8")
    for path in (str(file), file, [file]):
        assert len(koordcore.load(path).snapshot.nodes) == 1
