"""What of the package is reached from its public face and the command line, by the names that code mentions.

A node of the graph is a function, a class, a method, or a module-level assignment. Code that mentions a name
reaches what the name stands for in its module: a definition there, or what is imported. An attribute reaches
every method of that name of a class that is reached, since types are not known here, and a text that is the
name of a definition reaches it too (plugins are found by such texts). That is generous: what is not reached
so is reached by nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias, TypeGuard

import attrs

__all__ = ["Definition", "Package", "read_package"]

SOURCES: Final = Path(__file__).resolve().parents[1] / "src"
PAGES: Final = SOURCES.parent / "docs"
_CODE: Final = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
Node: TypeAlias = tuple[str, str]
"""Module, and the name of the definition in it; of a method with its class before it."""
_Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@attrs.frozen
class Definition:
    """A function, class or method.

    Parameters
    ----------
    lines
        How long it is, with decorators.
    """

    module: str
    name: str
    lines: int

    @property
    def node(self) -> Node:
        """Its place in the graph."""
        return self.module, self.name

    def __str__(self) -> str:
        return f"{self.module}: {self.name} ({self.lines} lines)"


@attrs.frozen
class _Mention:
    """What some code mentions: names, attributes, names of modules' members, and texts."""

    names: frozenset[str]
    attributes: frozenset[str]
    members: frozenset[tuple[str, str]]
    texts: frozenset[str]
    implicit: bool = False
    """Python or attrs calls it by itself."""


def _walk(*body: ast.AST) -> Iterator[ast.AST]:
    """Walk over trees as :func:`ast.walk` does, in another order, and past what says how a name is used."""
    queue = list(body)
    while queue:
        one = queue.pop()
        yield one
        for name in one._fields:
            value = getattr(one, name, None)
            if isinstance(value, list):
                queue += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                queue.append(value)


def _mentioned(body: Iterable[ast.AST]) -> _Mention:
    names, attributes, texts = set[str](), set[str](), set[str]()
    members = set[tuple[str, str]]()
    for one in _walk(*body):
        match one:
            case ast.Attribute(value=ast.Name(id=holder), attr=attribute):
                attributes.add(attribute)
                members.add((holder, attribute))
            case ast.Attribute(attr=attribute):
                attributes.add(attribute)
            case ast.Name(id=name):
                names.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                texts.add(text)
            case ast.Constant(value=str(text)) if re.fullmatch(r"[\w.\[\], |]+", text):
                names.update(re.findall(r"\w+", text))  # an annotation that is written as a text
            case ast.MatchClass(kwd_attrs=keys):
                attributes.update(keys)
            case _:
                pass
    return _Mention(frozenset(names), frozenset(attributes), frozenset(members), frozenset(texts))


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Walk over statements, inner ones as well: imports are nowhere else."""
    for one in body:
        yield one
        for name in ("body", "orelse", "handlers", "finalbody", "cases"):
            inner = getattr(one, name, ())
            if isinstance(inner, list):
                yield from _statements(inner)


def _is_all(statement: ast.stmt) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return any(isinstance(one, ast.Name) and one.id == "__all__" for one in targets)


def _is_face(statement: ast.stmt) -> TypeGuard[ast.If]:
    """Tell the imports of a package that are read when they are first used."""
    if not isinstance(statement, ast.If) or ast.unparse(statement.test) != "TYPE_CHECKING":
        return False
    imports = [one for one in statement.body if isinstance(one, ast.ImportFrom)]
    return bool(imports) and all(alias.asname == alias.name for one in imports for alias in one.names)


def _targets(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        found = statement.targets
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        found = [statement.target]
    else:
        found = []
    return [one.id for target in found for one in ast.walk(target) if isinstance(one, ast.Name)]


@attrs.define
class _Module:
    """One file: what it defines, what it imports, and what its other statements mention."""

    name: str
    is_package: bool = False
    defined: dict[str, _Mention] = attrs.Factory(dict)
    methods: dict[str, dict[str, _Mention]] = attrs.Factory(dict)
    imported: dict[str, Node] = attrs.Factory(dict)
    always: list[ast.stmt] = attrs.Factory(list)
    exported: tuple[str, ...] = ()
    definitions: list[Definition] = attrs.Factory(list)

    def read(self, tree: ast.Module) -> None:
        for one in _statements(tree.body):
            if isinstance(one, ast.ImportFrom) and one.module and not one.level:
                for alias in one.names:
                    self.imported[alias.asname or alias.name] = (one.module, alias.name)
            elif isinstance(one, ast.Import):
                for alias in one.names:
                    self.imported[alias.asname or alias.name.partition(".")[0]] = (alias.name, "")
        for statement in tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                continue
            if _is_all(statement):
                constants = (one for one in ast.walk(statement) if isinstance(one, ast.Constant))
                self.exported = tuple(str(one.value) for one in constants)
            elif _is_face(statement):
                self.exported = tuple(
                    str(alias.asname)
                    for one in statement.body
                    if isinstance(one, ast.ImportFrom)
                    for alias in one.names
                )
                # The names themselves are promised only where a page has them, too.
                calls = (one.value for one in statement.orelse if isinstance(one, ast.Assign))
                self.always += [ast.Expr(one.func) for one in calls if isinstance(one, ast.Call)]
            elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._define(statement, statement.name)
                self.defined[statement.name] = _mentioned([statement])
            elif isinstance(statement, ast.ClassDef):
                self._read_class(statement)
            elif names := _targets(statement):
                for name in names:
                    self.defined[name] = _mentioned([statement])
            else:
                self.always.append(statement)

    def _define(self, one: _Def, name: str) -> None:
        first = min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)])
        self.definitions.append(Definition(self.name, name, (one.end_lineno or one.lineno) - first + 1))

    def _read_class(self, one: ast.ClassDef) -> None:
        self._define(one, one.name)
        inner = [each for each in one.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        rest = [each for each in one.body if each not in inner]
        self.defined[one.name] = _mentioned([*rest, *one.bases, *one.keywords, *one.decorator_list])
        self.methods[one.name] = {}
        for each in inner:
            self._define(each, f"{one.name}.{each.name}")
            called = each.name.startswith(("__", "_repr_")) or any(
                isinstance(mark, ast.Attribute) and mark.attr in ("default", "validator")
                for mark in each.decorator_list
            )
            self.methods[one.name][each.name] = attrs.evolve(_mentioned([each]), implicit=called)


@attrs.frozen(eq=False, slots=False)
class Package:
    """The modules of a package, and what its face promises.

    Parameters
    ----------
    words
        Words in code of the pages: what a package exports and a page names is promised; methods likewise.
    """

    modules: Mapping[str, _Module]
    words: frozenset[str]

    @property
    def definitions(self) -> list[Definition]:
        """Every function, class and method, file by file."""
        return [one for module in self.modules.values() for one in module.definitions]

    def roots(self) -> Iterator[Node]:
        """Walk over what is promised: the top's names, what pages name of packages, and the command line."""
        top = min(self.modules, key=len)
        for module in self.modules.values():
            if module.is_package or module.name == top:
                yield module.name, ""
                for name in module.exported:
                    if module.name == top or name in self.words:
                        yield module.name, name
        yield f"{top}.cli", "main"
        yield f"{top}.__main__", ""

    def resolve(self, module: str, name: str) -> Node | None:
        """Follow a name through imports to where it is defined; a module has no name in itself."""
        for _ in range(10):
            home = self.modules.get(module)
            if home is None:
                return None
            if name in home.defined:
                return module, name
            if name not in home.imported:
                return (f"{module}.{name}", "") if f"{module}.{name}" in self.modules else None
            module, name = home.imported[name]
            if f"{module}.{name}" in self.modules:
                return f"{module}.{name}", ""
        return None

    @cached_property
    def reached(self) -> frozenset[Node]:
        """Everything that the face and the command line reach."""
        walk = _Walk(self)
        walk.run(self.roots())
        return frozenset(walk.found)

    @property
    def unreached(self) -> list[Definition]:
        """What nothing reaches; methods of a class that is not reached count with it."""
        lost = [one for one in self.definitions if one.node not in self.reached]
        gone = {one.node for one in lost}
        return [
            one for one in lost if (one.module, one.name.partition(".")[0]) not in gone or "." not in one.name
        ]


class _Walk:
    """From what is promised to everything that it mentions, and so on."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._by_text: dict[str, list[Node]] = {}
        for module in package.modules.values():
            for name in module.defined:
                self._by_text.setdefault(name, []).append((module.name, name))
        self.found: set[Node] = set()
        self._queue: list[Node] = []
        self._attributes: set[str] = set(package.words)
        self._classes: set[Node] = set()
        self._named: set[str] = set()  # modules that some text names: their functions are found by attribute

    def run(self, roots: Iterable[Node]) -> None:
        """Walk until nothing new is found."""
        self._queue.extend(roots)
        while self._queue:
            while self._queue:
                self._visit(*self._queue.pop())
            for name in sorted(self._named):
                inner = (
                    (name, one) for one in self._package.modules[name].defined if one in self._attributes
                )
                self._queue += [one for one in inner if one not in self.found]
            for module, name in sorted(self._classes):
                for method, mention in self._package.modules[module].methods[name].items():
                    node = (module, f"{name}.{method}")
                    if node not in self.found and (method in self._attributes or mention.implicit):
                        self.found.add(node)
                        self._follow(module, mention)

    def _visit(self, module: str, name: str) -> None:
        place = self._package.resolve(module, name) if name else (module, "")
        if place is None or place in self.found or place[0] not in self._package.modules:
            return
        self.found.add(place)
        home = self._package.modules[place[0]]
        if (home.name, "") not in self.found or not place[1]:
            self.found.add((home.name, ""))
            self._follow(home.name, _mentioned(home.always))
            self._queue += [(home.name, one) for one in home.defined if one.startswith(("__", "_repr_"))]
        if place[1]:
            self._follow(home.name, home.defined[place[1]])
        if place[1] in home.methods:
            self._classes.add(place)

    def _follow(self, module: str, mention: _Mention) -> None:
        package = self._package
        for name in mention.names:
            if (there := package.resolve(module, name)) is not None:
                self._queue.append(there)
        for holder, attribute in mention.members:
            there = package.resolve(module, holder)
            if there is not None and not there[1] and (inner := package.resolve(there[0], attribute)):
                self._queue.append(inner)
        for text in mention.texts:
            self._queue.extend(self._by_text.get(text, ()))
            neighbour = f"{module.rpartition('.')[0]}.{text}"
            if neighbour in package.modules:
                self._named.add(neighbour)
        self._attributes.update(mention.attributes | mention.texts)


def read_package(root: Path = SOURCES, pages: Path = PAGES) -> Package:
    """Read every file of a package, and the words of its pages."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = _Module(name, path.name == "__init__.py")
        modules[name].read(ast.parse(path.read_text(encoding="utf-8")))
    code = (one for page in pages.rglob("*.md") for one in _CODE.findall(page.read_text(encoding="utf-8")))
    return Package(modules, frozenset(word for one in code for word in re.findall(r"\w+", one)))
