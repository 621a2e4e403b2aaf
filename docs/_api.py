"""The API reference: one page per package with what its ``__init__`` offers, from the docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import attrs

ROOMS: Mapping[str, str] = {
    "scheduling": "the cycle and its plugins",
    "framework": "what plugins answer",
    "testing": "does a plugin keep the contract",
    "reservations": "room held for pods",
    "checking": "the independent checker",
    "explaining": "why, why not, what would help",
    "model": "frozen records",
    "topology": "what is near what",
    "allocators": "which exact things a pod or a gang gets",
    "quota": "may it",
    "preemption": "who must leave",
    "descheduling": "who should move",
    "colocation": "how much can be lent",
    "scoring": "kernels over all nodes",
    "simulate": "what would have been",
    "simulate.world": "a cluster in a bottle: time and faults",
    "controlplane": "whose turn it is, and what is about to be done",
    "manifests": "objects in, patches out",
    "protocol": "what labels and annotations say",
    "reporting": "a page to look at",
    "controllers": "what controllers and webhooks do beside the scheduler",
}
"""Packages in the order of the table of contents, each with the question it answers."""


Face: TypeAlias = Mapping[str, Sequence[str]]
"""What a package offers: the modules that define it, each with its names."""


def write_pages(source: Path, target: Path) -> None:
    """Write the pages of a package's folder; pages of packages that are gone are removed."""
    offered = faces(source)
    seen: set[str] = set()
    pages = {name: _page(name, face, seen) for name, face in offered.items()}
    pages["index"] = _index(source, list(pages))
    target.mkdir(exist_ok=True)
    for path in target.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        _write(target / f"{name}.md", text)


def faces(source: Path) -> dict[str, Face]:
    """Give what each package offers, and what only ``import koordcore`` does; every name stands once."""
    known: set[tuple[str, str]] = set()
    found: dict[str, Face] = {}
    dotted = {
        path: ".".join(path.relative_to(source.parent).parent.parts[1:])
        for path in source.rglob("__init__.py")
    }
    dotted[source / "__init__.py"] = source.name
    paths = [path for path, name in dotted.items() if name not in ("cli", source.name)]
    paths.sort(key=lambda path: (_place(dotted[path]), dotted[path]))
    for path in (*paths, source / "__init__.py"):
        face: dict[str, list[str]] = {}
        for module, name in promised(path):
            if (module, name) not in known:
                face.setdefault(module, []).append(name)
        known |= set(promised(path))
        found[dotted[path]] = face
    return {name: face for name, face in found.items() if face}


def promised(path: Path) -> list[tuple[str, str]]:
    """Read what the ``__init__`` of a package offers without importing it: modules with names."""
    for statement in _tree(path).body:
        if (
            isinstance(statement, ast.If)
            and statement.orelse  # what is read late
            and ast.unparse(statement.test) == "TYPE_CHECKING"
        ):
            return [
                (str(one.module), alias.name)
                for one in statement.body
                if isinstance(one, ast.ImportFrom)
                for alias in one.names
            ]
    return []


def homes(source: Path) -> Iterator[tuple[str, str, str]]:
    """Give the names of ``import koordcore``, each with the module that defines it and its first line."""
    for module, name in sorted(promised(source / "__init__.py"), key=lambda pair: pair[1]):
        path = source.parent.joinpath(*module.split("."))
        body = _tree(path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).body
        yield name, module, _summary(body, name)


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


def _index(source: Path, pages: list[str]) -> str:
    lines = [
        "# API reference",
        "",
        "Most callers need the names that `import koordcore` brings. Each package offers more, by",
        "`from koordcore.manifests import ...` and so on. Whatever is not listed here promises nothing.",
        "",
        "| name | what it is |",
        "|---|---|",
    ]
    for name, module, summary in homes(source):
        plain = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", summary).replace("``", "`").replace("|", "\\|")
        lines.append(f"| {{py:obj}}`{name} <{module}.{name}>` | {plain} |")
    lines += ["", "```{toctree}", ":maxdepth: 1", ":caption: By package", "", *pages, "```", ""]
    return "\n".join(lines)


def _page(package: str, face: Face, seen: set[str]) -> str:
    """Write a page; a module of which another page has names already is indexed there alone."""
    title = f"{package}: {ROOMS[package]}" if package in ROOMS else f"{package}: what only the top offers"
    lines = [f"# {title}", ""]
    for module, names in face.items():
        lines += ["```{eval-rst}", f".. automodule:: {module}"]
        lines += [
            f"   :members: {', '.join(names)}",
            *(["   :no-index:"] if module in seen else []),
            "```",
            "",
        ]
        seen.add(module)
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
