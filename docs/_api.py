"""The API reference: one page per room, one section per module, every public name from its docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

ROOMS: Mapping[str, str] = {
    "scheduling": "the cycle and its plugins",
    "framework": "what plugins answer",
    "reservations": "room held for pods",
    "checking": "the independent checker",
    "snapshot": "the cluster as a value",
    "result": "what a call decided",
    "explain": "why, why not, what would help",
    "model": "frozen records",
    "topology": "what is near what",
    "allocators": "which exact things a pod or a gang gets",
    "quota": "may it",
    "preemption": "who must leave",
    "descheduling": "who should move",
    "colocation": "how much can be lent",
    "scoring": "kernels over all nodes",
    "simulate": "what would have been",
    "controlplane": "whose turn it is, and what is about to be done",
    "manifests": "objects in, patches out",
    "protocol": "what labels and annotations say",
    "errors": "what a caller can do wrong",
    "cli": "the command line",
}
"""Rooms in the order of the table of contents, each with the question it answers."""


def write_pages(source: Path, target: Path) -> None:
    """Write the pages of a package's folder; pages of rooms that are gone are removed."""
    rooms: dict[str, list[str]] = {}
    for module in modules(source):
        rooms.setdefault(module.split(".")[1], []).append(module)
    pages = {room: _page(room, members) for room, members in rooms.items()}
    pages["index"] = _index(source, sorted(rooms, key=lambda room: (_place(room), room)))
    target.mkdir(exist_ok=True)
    for path in target.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        _write(target / f"{name}.md", text)


def modules(source: Path) -> Iterator[str]:
    """Give the public modules that promise names, by name; private ones start with an underscore."""
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        if parts[-1] == "__init__":
            continue
        if not any(part.startswith("_") for part in parts) and promised(path):
            yield ".".join(parts)


def promised(path: Path) -> list[str]:
    """Read the names in a module's ``__all__`` without importing it."""
    for statement in _tree(path).body:
        if isinstance(statement, ast.Assign) and [ast.unparse(one) for one in statement.targets] == [
            "__all__"
        ]:
            names: list[str] = ast.literal_eval(statement.value)
            return names
    return []


def homes(source: Path) -> Iterator[tuple[str, str, str]]:
    """Give the names of ``import koordcore``, each with the module that defines it and its first line."""
    where = {
        alias.name: str(statement.module)
        for statement in ast.walk(_tree(source / "__init__.py"))  # most imports are for type checkers only
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    for name in promised(source / "__init__.py"):
        module = where.get(name)
        while module is not None:
            path = source.parent.joinpath(*module.split("."))
            package = path.is_dir()
            body = _tree(path / "__init__.py" if package else path.with_suffix(".py")).body
            passed_on = [
                str(one.module)
                for one in body
                if isinstance(one, ast.ImportFrom) and name in [alias.name for alias in one.names]
            ]
            if not passed_on:
                yield name, module, _summary(body, name)
            module = passed_on[0] if passed_on else None


def _summary(body: list[ast.stmt], name: str) -> str:
    """Give the first line of a definition's docstring, or of the text below an alias."""
    for statement, below in zip(body, [*body[1:], ast.Pass()], strict=True):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name == name:
            return (ast.get_docstring(statement) or "").partition("\n")[0]
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) == name:
            text = below.value if isinstance(below, ast.Expr) else None
            return str(text.value).partition("\n")[0] if isinstance(text, ast.Constant) else ""
    return ""


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _place(room: str) -> int:
    return list(ROOMS).index(room) if room in ROOMS else len(ROOMS)


def _index(source: Path, rooms: list[str]) -> str:
    lines = [
        "# API reference",
        "",
        "Most callers need the names that `import koordcore` brings. Everything else is imported from the",
        "module that defines it; a module or package that starts with an underscore promises nothing.",
        "",
        "| name | what it is |",
        "|---|---|",
    ]
    for name, module, summary in homes(source):
        plain = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", summary).replace("``", "`").replace("|", "\\|")
        lines.append(f"| {{py:obj}}`{name} <{module}.{name}>` | {plain} |")
    lines += ["", "```{toctree}", ":maxdepth: 1", ":caption: By room", "", *rooms, "```", ""]
    return "\n".join(lines)


def _page(room: str, members: list[str]) -> str:
    lines = [f"# {room}: {ROOMS.get(room, room)}", ""]
    for module in members:
        if module != f"koordcore.{room}":
            lines += [f"## {module.removeprefix('koordcore.')}", ""]
        lines += ["```{eval-rst}", f".. automodule:: {module}", "   :members:", "```", ""]
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    """Leave an unchanged page alone, so that it is not built again."""
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def show_defaults(
    _app: Any, _what: str, _name: str, what: Any, _options: Any, signature: Any, returns: Any
) -> Any:
    """Write a record's defaults as values: attrs makes its constructor in a way that hides them."""
    if isinstance(what, type) and issubclass(what, Enum):
        return "", returns  # the values are listed below
    if signature is None or not (isinstance(what, type) and attrs.has(what)):
        return None
    fields = attrs.fields_dict(what)

    def value(found: re.Match[str]) -> str:
        default = fields[found[1]].default
        if isinstance(default, Enum):
            return f"{type(default).__name__}.{default.name}"
        text = repr(default)
        return text if len(text) <= 24 and "<" not in text and "(" not in text.strip("()") else "..."

    return re.sub(r"attr_dict\['(\w+)'\]\.default", value, signature).replace("NOTHING", "..."), returns


def show_values(_app: Any, _what: str, _name: str, what: Any, _options: Any, lines: list[str]) -> None:
    """List the members of an enumeration with their values."""
    if isinstance(what, type) and issubclass(what, Enum):
        lines += ["", *(f"* ``{one.name}`` = ``{one.value!r}``" for one in what), ""]
