"""Labels and annotations that are parsed and that nothing decides by; the list may only shrink."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "koordcore"
Name: TypeAlias = tuple[str, str]
"""Module and name."""

KEYS: Final = re.compile(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9._/-]*\Z")
READERS: Final = ("protocol", "model", "manifests")
"""Rooms that only turn texts into records; who asks them is in another."""
LOADER: Final = "koordcore.manifests.bundle"
"""What the loader turns into records is asked for by the fields of these; see test_idle_fields."""

IDLE: Final = {
    "koordinator.sh/evict-trigger": "written on migration jobs, for those who look at them",
    "scheduling.koordinator.sh/questioned-object-key": "written on explanations, for those who look at them",
}
"""Keys that no decision reads to why they are known. Wire a key in and strike it out; add none."""


def module_of(path: Path) -> str:
    """Give the dotted name of a source file."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class Graph:
    """Which definition of the package names which other, by what is imported where."""

    def __init__(self) -> None:
        self.uses: dict[Name, set[Name]] = {}
        self._parts: dict[Name, tuple[Name | None, str]] = {}
        self.roots: set[Name] = set()
        for path in sorted(SOURCE.rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            self._read(module_of(path), tree)
            if path.name == "__init__.py" and path.parent.name not in READERS:
                self.roots.update(name for _, name in _imports(ast.walk(tree)))  # what users call

    def _read(self, module: str, tree: ast.Module) -> None:
        inside = {id(node): [*ast.walk(node)] for node in tree.body}
        known = dict(_imports(one for nodes in inside.values() for one in nodes))
        bodies = {name: node for node in tree.body for name in _defined(node)}
        known |= {name: (module, name) for name in bodies}
        decides = module.split(".")[1:2] not in [[room] for room in READERS] or module == LOADER
        for name, node in bodies.items():
            said = {one.id for one in inside[id(node)] if isinstance(one, ast.Name)} - {name}
            self.uses[module, name] = {known[one] for one in said if one in known}
            if decides:
                self.roots.add((module, name))
            self._parts.update(((module, name), part) for part in _text(node, known))

    def text(self, name: Name) -> str:
        """Give the text of a constant; empty for anything else."""
        prefix, tail = self._parts.get(name, (None, ""))
        return tail if prefix is None else self.text(prefix) + tail

    def reached(self) -> set[Name]:
        """Give what a definition that decides comes to."""
        found, waiting = set[Name](), list(self.roots)
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += self.uses.get(one, ())
        return found


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, Name]]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for one in node.names:
                yield one.asname or one.name, (node.module, one.name)


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    for target in targets:
        yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _text(node: ast.stmt, known: dict[str, Name]) -> Iterator[tuple[Name | None, str]]:
    """Give the text of a constant: a literal, or a prefix of the same file or another and a literal."""
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    match value:
        case ast.Constant(value=str(text)):
            yield None, text
        case ast.BinOp(left=ast.Name(id=prefix), right=ast.Constant(value=str(text))) if prefix in known:
            yield known[prefix], text


def test_every_label_and_annotation_is_read_by_a_decision_or_has_a_reason() -> None:
    graph = Graph()
    reached = graph.reached()
    rooms = ("koordcore.protocol", "koordcore.model")
    keys = {name: graph.text(name) for name in graph.uses if name[0].startswith(rooms)}
    keys = {name: text for name, text in keys.items() if KEYS.match(text)}
    idle = {text for name, text in keys.items() if name not in reached}
    read = {text for name, text in keys.items() if name in reached}
    assert len(read) > 90
    assert idle - read == IDLE.keys()
