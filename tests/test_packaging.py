"""What is shipped: a wheel with the package alone, and a library that names the extra it misses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "gpu-cluster.yaml"
BARE = """import sys
OPTIONAL = ("yaml", "argcomplete", "matplotlib", "dask", "jinja2", "kubernetes")
for name in (*OPTIONAL, "ortools", "pandas"): sys.modules[name] = None
"""
EMBED = """
from koordcore import ClusterSnapshot, Node, Pod, schedule, verify
nodes = [Node(name="n1", allocatable={"cpu": 4000, "pods": 9})]
pods = [Pod(name=name, requests={"cpu": 3000}) for name in ("a", "b")]
before = ClusterSnapshot(nodes=nodes, pending=pods)
result = schedule(before)
assert verify(before, result) == ()
print(*(type(one).__name__ for one in result.decisions))
"""
NETWORK = """{"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "ClusterNetworkTopology",
 "metadata": {"name": "default"}, "spec": {"networkTopologySpec": [
  {"topologyLayer": "BlockLayer", "labelKey": ["example.com/block"]},
  {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"}]}}
"""
CLI = "from koordcore.cli import main\nsys.exit(main({argv!r}))\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, unpacked: nothing of the checkout can be imported by accident."""
    made = tmp_path_factory.mktemp("wheel")
    build(made, "wheel")
    unpacked = made / "unpacked"
    zipfile.ZipFile(next(made.glob("*.whl"))).extractall(unpacked)
    return unpacked


def build(where: Path, target: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(where)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def run(wheel: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code on the unpacked wheel alone, as if no extra were installed, nor the solver."""
    environment = {**os.environ, "PYTHONPATH": str(wheel), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, "-c", BARE + code],
        cwd=wheel,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_wheel_holds_only_the_package(wheel: Path) -> None:
    """Every file is a module of koordcore, a part of its page, its type marker or metadata; none missing."""
    shipped = {str(one.relative_to(wheel)) for one in wheel.rglob("*") if one.is_file()}
    package = {one for one in shipped if ".dist-info/" not in one}
    source = {str(one.relative_to(ROOT / "src")) for one in (ROOT / "src" / "koordcore").rglob("*.py")}
    parts = {
        str(one.relative_to(ROOT / "src")) for one in (ROOT / "src").glob("koordcore/reporting/parts/*.*")
    }
    assert package == source | parts | {"koordcore/py.typed"}
    assert {one.split("/")[1] for one in shipped - package} <= {
        "METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses"
    }  # fmt: skip


@pytest.mark.slow
def test_the_source_archive_can_build_and_test_itself(tmp_path: Path) -> None:
    """The archive brings sources, tests, docs and examples, and nothing that a build left behind."""
    build(tmp_path, "sdist")
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames()]
    assert {"pyproject.toml", "README.md", "LICENSE", "CONTRIBUTING.md", "docs/conf.py"} <= set(names)
    assert {name.split("/")[0] for name in names} >= {"src", "tests", "benchmarks", "docs", "examples"}
    assert [name for name in names if "__pycache__" in name or name.startswith("docs/_build")] == []


@pytest.mark.slow
def test_the_library_works_without_extras(wheel: Path) -> None:
    """Placing, checking and the command line's help need no extra."""
    done = run(wheel, EMBED)
    assert (done.stdout.split(), done.stderr) == (["Bound", "Unschedulable"], "")
    assert run(wheel, CLI.format(argv=["--help"])).stdout.startswith("usage: koordcore")


@pytest.mark.slow
def test_a_dump_in_json_needs_no_extra(wheel: Path, tmp_path: Path) -> None:
    """JSON is read and tables are printed with nothing but the library."""
    dump = tmp_path / "dump.json"
    dump.write_text(
        '{"apiVersion": "v1", "kind": "List", "items": ['
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},'
        ' "status": {"allocatable": {"cpu": "4", "pods": "9"}}},'
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"},'
        ' "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}]}',
        encoding="utf-8",
    )
    done = run(wheel, CLI.format(argv=["schedule", str(dump)]))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1 pods placed on 1 node" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "extra"),
    [
        (["schedule", str(EXAMPLE)], "yaml"),
        (["schedule", "DUMP", "-o", "yaml"], "yaml"),
        (["topology", "DUMP", "--plot", "out.svg"], "plots"),
    ],
    ids=["yaml in", "yaml out", "plot"],
)
def test_a_missing_extra_is_named(wheel: Path, tmp_path: Path, argv: list[str], extra: str) -> None:
    """What cannot be done says which extra to install, in one line and without a traceback."""
    dump = tmp_path / "dump.json"
    dump.write_text(NETWORK, encoding="utf-8")
    done = run(wheel, CLI.format(argv=[str(dump) if word == "DUMP" else word for word in argv]))
    assert done.returncode == 2
    assert re.fullmatch(rf"koordcore: .*: pip install 'koordcore\[{extra}\]'\n", done.stderr)


def test_the_solver_of_the_extra_is_that_of_the_library() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(project["optional-dependencies"]["solver"]) <= set(project["dependencies"])


def test_extras_and_classifiers_are_true() -> None:
    """Every extra that a message can name exists; the classifiers start at the version required."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = set()
    for module in (ROOT / "src").rglob("*.py"):
        named |= set(re.findall(r'for_extra\("[^"]+", "([^"]+)"', module.read_text(encoding="utf-8")))
    assert named
    assert named <= set(project["optional-dependencies"])
    minors = [int(one.rsplit(".", 1)[1]) for one in project["classifiers"] if re.search(r":: 3\.\d+$", one)]
    assert f">=3.{min(minors)}" == project["requires-python"]
