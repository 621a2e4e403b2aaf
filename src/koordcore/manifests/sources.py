"""Files in, raw objects out: the loader, and the only part below the command line that opens files.

JSON (one document, several, or a ``List``), YAML with several documents, either of them gzipped, folders, and
a text stream for ``-``. Whatever cannot be read becomes a :class:`~koordcore.errors.Problem` in its place, so
that one broken document does not hide the others.
"""

from __future__ import annotations

import functools
import json
import re
import zlib
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import attrs

from koordcore.errors import ManifestError, MissingExtraError, ModelError, Problem
from koordcore.protocol.fields import Json, show

__all__ = ["SourceLimits", "SourceObject", "read_json", "read_sources", "read_yaml"]

SUFFIXES: Final = (".json", ".yaml", ".yml")
"""What is read out of a folder, each also with ``.gz`` behind it."""

_GZIP: Final = b"\x1f\x8b"
_CHUNK: Final = 1 << 20
_SPACE: Final = re.compile(r"[ \t\n\r]*")


@attrs.frozen(kw_only=True)
class SourceLimits:
    """How much input is taken at most; anything beyond is refused with a clear error.

    Parameters
    ----------
    file_bytes
        Bytes of one file after decompression.
    total_bytes
        Bytes of all files together, after decompression.
    depth
        Levels of nesting in one YAML document; JSON is bounded by the interpreter's own stack guard.
    alias_values
        Values that the aliases of one YAML document may add to what it spells out.
    """

    file_bytes: int = 1 << 30
    total_bytes: int = 4 << 30
    depth: int = 200
    alias_values: int = 1_000_000

    def __attrs_post_init__(self) -> None:
        for name, value in attrs.asdict(self).items():
            if value < 1:
                raise ModelError(f"{name}: expected a positive number, got {value}")


_LIMITS: Final = SourceLimits()


@attrs.frozen
class SourceObject:
    """One raw object and where it came from, such as ``pods.json (item 3)``."""

    source: str
    raw: Json


Source: TypeAlias = SourceObject | Problem


def read_sources(
    paths: Iterable[str | Path], *, stdin: IO[str] | None = None, limits: SourceLimits = _LIMITS
) -> Iterator[Source]:
    """Read files and folders one object after the other.

    Parameters
    ----------
    paths
        Files, folders (read recursively in the order of their names; hidden entries are left out), or ``-``.
    stdin
        What ``-`` stands for.
    limits
        Bounds against hostile input.

    Yields
    ------
    SourceObject or Problem
        Items of a ``List`` come one by one. A problem stands for what could not be read.

    Raises
    ------
    MissingExtraError
        When YAML is to be read and PyYAML is not installed.
    """
    left = limits.total_bytes
    for label, path in _files(paths):
        if isinstance(path, Problem):
            yield path
            continue
        try:
            text = _read_stream(stdin, limits) if path is None else _read_file(path, limits)
        except ManifestError as error:
            yield from _at_source(error, label)
            continue
        left -= len(text)
        if left < 0:
            yield Problem("", f"all files together hold more than {limits.total_bytes} bytes", source=label)
            return
        yield from _read_text(text, label, limits)


def _at_source(error: ManifestError, label: str) -> Iterator[Problem]:
    return (attrs.evolve(problem, source=label) for problem in error.problems)


def _files(paths: Iterable[str | Path]) -> Iterator[tuple[str, Path | Problem | None]]:
    for given in paths:
        if str(given) == "-":
            yield "standard input", None
            continue
        path = Path(given)
        try:
            found = _folder(path) if path.is_dir() else [path]
            if not path.exists():
                yield str(given), Problem("", "no such file or folder", source=str(given))
                continue
        except (OSError, ValueError) as error:
            yield str(given), Problem("", _os_message(error), source=str(given)[:_SHOWN_PATH])
            continue
        if not found:
            wanted = ", ".join(SUFFIXES)
            yield str(given), Problem("", f"no file with {wanted} (or .gz) in this folder", source=str(given))
        for file in found:
            yield str(file), file


_SHOWN_PATH: Final = 200


def _folder(folder: Path) -> list[Path]:
    """Find manifests below a folder; links to folders are not followed, so there are no loops."""
    found: list[Path] = []
    for entry in sorted(folder.iterdir(), key=lambda path: path.name):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if not entry.is_symlink():
                found += _folder(entry)
        elif entry.name.removesuffix(".gz").endswith(SUFFIXES):
            found.append(entry)
    return found


def _os_message(error: OSError | ValueError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _read_stream(stdin: IO[str] | None, limits: SourceLimits) -> str:
    if stdin is None:
        raise ManifestError.at("", "no standard input was given")
    try:
        text = stdin.read(limits.file_bytes + 1)
    except (OSError, ValueError) as error:
        raise ManifestError.at("", _os_message(error)) from None
    if len(text) > limits.file_bytes:
        raise _too_large(limits)
    return text.removeprefix("\ufeff")


def _read_file(path: Path, limits: SourceLimits) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(limits.file_bytes + 1)
    except OSError as error:
        raise ManifestError.at("", _os_message(error)) from None
    if len(data) > limits.file_bytes:
        raise _too_large(limits)
    if data[:2] == _GZIP:
        data = _decompress(data, limits)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ManifestError.at("", f"not UTF-8: byte {error.start}") from None


def _too_large(limits: SourceLimits) -> ManifestError:
    return ManifestError.at("", f"more than {limits.file_bytes} bytes")


def _decompress(data: bytes, limits: SourceLimits) -> bytes:
    """Unpack gzip members one after the other and stop at the limit, before the memory is spent."""
    parts: list[bytes] = []
    size = 0
    while data:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            while not unpacker.eof:
                part = unpacker.decompress(data, _CHUNK)
                data = unpacker.unconsumed_tail
                if not part and not data and not unpacker.eof:
                    raise ManifestError.at("", "gzip data end too early")
                parts.append(part)
                size += len(part)
                if size > limits.file_bytes:
                    raise _too_large(limits)
        except zlib.error as error:
            raise ManifestError.at("", f"not gzip: {error}") from None
        data = unpacker.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _read_text(text: str, label: str, limits: SourceLimits) -> Iterator[Source]:
    first = text[_SPACE.match(text).end() :][:1]  # type: ignore[union-attr]  # the pattern matches emptiness
    if first in ("{", "[") and not label.removesuffix(".gz").endswith((".yaml", ".yml")):
        return read_json(text, label)
    return read_yaml(text, label, limits=limits)


# --- JSON ---------------------------------------------------------------------------------------------


class _DuplicateKeyError(ValueError):
    pass


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _DuplicateKeyError(f"duplicate key {show(key)}")
            seen.add(key)
    return mapping


def _refuse(name: str) -> float:
    raise ValueError(f"{name[:20]} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        _refuse(text)
    return value


_STRICT: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)
_LENIENT: Final = json.JSONDecoder()


def read_json(text: str, label: str) -> Iterator[Source]:
    """Read JSON text: one object, a list of objects, a ``List`` kind, or several of these in a row.

    A list is decoded item by item, so that a large dump never stands in memory as dictionaries.
    """
    at = _skip(text, 0)
    number = 0
    while at < len(text):
        number += 1
        name = label if number == 1 else f"{label} (document {number})"
        try:
            at = yield from _json_document(text, at, name)
        except _JsonError as error:
            yield Problem("", error.message, source=name)
            return
        at = _skip(text, at)


class _JsonError(Exception):
    def __init__(self, message: str) -> None:
        self.message = message


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # the pattern matches emptiness


def _value(text: str, at: int) -> tuple[Json, int]:
    try:
        return _STRICT.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise _JsonError(f"not JSON: {error.msg}: line {error.lineno} column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _JsonError(f"not JSON: {_reason(error)} in the value at {_position(text, at)}") from None


def _reason(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _position(text: str, at: int) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}"


def _syntax(text: str, at: int, expected: str) -> _JsonError:
    found = f'"{text[at]}"' if at < len(text) else "the end"
    return _JsonError(f"not JSON: expected {expected}, got {found}: {_position(text, at)}")


def _json_document(text: str, at: int, label: str) -> Generator[Source, None, int]:
    if text[at] == "[":
        return (yield from _json_items(text, at, label, []))
    if text[at] != "{":
        raw, at = _value(text, at)
        yield SourceObject(label, raw)
        return at
    outer: dict[str, Json] = {}
    kindless: list[SourceObject] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key, at = _value(text, at)
        at = _skip(text, at)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            raise _syntax(text, at, '":" after a string')
        if key in outer:
            raise _JsonError(f"duplicate key {show(key)}")
        at = _skip(text, at + 1)
        if key == "items" and text[at : at + 1] == "[":
            outer[key] = ()
            at = yield from _json_items(text, at, label, kindless)
        else:
            outer[key], at = _value(text, at)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] != '"':
                raise _syntax(text, at, "a key")
        elif text[at : at + 1] != "}":
            raise _syntax(text, at, '"," or "}"')
    yield from _outer(outer, kindless, label)
    return at + 1


def _json_items(text: str, at: int, label: str, kindless: list[SourceObject]) -> Generator[Source, None, int]:
    at = _skip(text, at + 1)
    number = 0
    while text[at : at + 1] != "]":
        number += 1
        name = f"{label} (item {number})"
        try:
            raw, at = _STRICT.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            if isinstance(error, RecursionError | json.JSONDecodeError):
                _value(text, at)
            yield Problem("", _reason(error), source=name)
            at = _skip_value(text, at)
        else:
            item = SourceObject(name, raw)
            if isinstance(raw, dict) and "kind" not in raw:
                kindless.append(item)
            else:
                yield item
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
            if text[at : at + 1] == "]":
                raise _syntax(text, at, "a value")
        elif text[at : at + 1] != "]":
            raise _syntax(text, at, '"," or "]"')
    return at + 1


def _skip_value(text: str, at: int) -> int:
    try:
        return _LENIENT.raw_decode(text, at)[1]
    except (ValueError, RecursionError) as error:
        raise _JsonError(f"not JSON: {_reason(error)} in the value at {_position(text, at)}") from None


def _outer(outer: dict[str, Json], kindless: list[SourceObject], label: str) -> Iterator[Source]:
    """Give what surrounds the items: nothing for a list, the object itself for anything else."""
    kind = outer.get("kind")
    if outer.get("items") == () and (kind is None or (isinstance(kind, str) and kind.endswith("List"))):
        element = str(kind or "").removesuffix("List")
        for item in kindless:
            known = {"apiVersion": outer.get("apiVersion"), "kind": element} if element else {}
            assert isinstance(item.raw, dict)
            yield SourceObject(item.source, {**known, **item.raw})
        return
    if outer.get("items") == ():
        outer["items"] = [item.raw for item in kindless]
    yield SourceObject(label, outer)


# --- YAML ---------------------------------------------------------------------------------------------

_DOCUMENT: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_AFTER_END: Final = re.compile(r"^\.\.\.[ \t]*\r?\n(?:[ \t]*\r?\n|[#%][^\n]*\n)*\Z", re.MULTILINE)
_EMPTY: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z))*\Z")
_DIRECTIVE: Final = re.compile(r"^%[^\n]*$", re.MULTILINE)


def read_yaml(text: str, label: str, *, limits: SourceLimits = _LIMITS) -> Iterator[Source]:
    """Read YAML text with any number of documents; scalars as Kubernetes' own reader takes them.

    A time stays text, ``1:30`` stays text, and keys are always text. Documents are parsed one by one, so a
    broken one costs only itself.

    Raises
    ------
    MissingExtraError
        When PyYAML is not installed.
    """
    starts = [0, *(match.start() for match in _DOCUMENT.finditer(text))]
    chunks = [
        (start, _AFTER_END.sub("", text[start:end]))
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True)
    ]
    documents = [(start, chunk) for start, chunk in chunks if not _blank(chunk)]
    for number, (start, chunk) in enumerate(documents, 1):
        name = label if len(documents) == 1 else f"{label} (document {number})"
        try:
            values = _parse_yaml(chunk, limits)
        except _YamlError as error:
            line = text.count("\n", 0, start) + error.line + 1
            yield Problem("", f"not YAML: {error}: line {line}", source=name)
            continue
        for raw in values:
            if isinstance(raw, dict) and isinstance(raw.get("items"), list):
                yield from _yaml_list(raw, name)
            elif isinstance(raw, list):
                yield from (SourceObject(f"{name} (item {at})", item) for at, item in enumerate(raw, 1))
            elif raw is not None:
                yield SourceObject(name, raw)


def _blank(chunk: str) -> bool:
    body = chunk[3:] if chunk.startswith("---") else _DIRECTIVE.sub("", chunk)
    return _EMPTY.match(body) is not None


def _yaml_list(raw: dict[str, Json], label: str) -> Iterator[Source]:
    kindless: list[SourceObject] = []
    items = raw["items"]
    assert isinstance(items, list)
    for number, item in enumerate(items, 1):
        source = SourceObject(f"{label} (item {number})", item)
        if isinstance(item, dict) and "kind" not in item:
            kindless.append(source)
        else:
            yield source
    yield from _outer({**raw, "items": ()}, kindless, label)


class _YamlError(Exception):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


_INTEGER: Final = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)\Z")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_CONSTANTS: Final[dict[str, bool | None]] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"), False),
}
_NOT_FINITE: Final = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_PLAIN: Final = "plain"
_MAY_BE_NUMBER: Final = frozenset("+-.0123456789")


@functools.cache
def _loader() -> Any:
    """Make the loader class: C speed, and no implicit types of its own (scalars are read in ``_scalar``)."""
    # An optional dependency: dumps in JSON need none.
    try:
        import yaml
    except ImportError:
        raise MissingExtraError.for_extra("PyYAML", "yaml", "reading YAML") from None

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time
        # One implicit type: a scalar without quotes and without a tag.
        yaml_implicit_resolvers: dict[str | None, Any] = {None: [(_PLAIN, re.compile(""))]}  # noqa: RUF012

    return Loader


def _parse_yaml(text: str, limits: SourceLimits) -> list[Json]:
    loader_class = _loader()
    import yaml  # `_loader` has said so where it is missing

    try:
        loader = loader_class(text)
    except yaml.YAMLError as error:
        raise _YamlError(str(error).splitlines()[0], 0) from None
    try:
        if _may_be_deep(text, limits.depth):
            _check_depth(yaml.parse(text, Loader=loader_class), limits.depth)
        values: list[Json] = []
        while loader.check_node():
            values.append(_Builder(limits, len(text)).document(loader.get_node()))
        return values
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _YamlError(str(error.problem or error.context), mark.line if mark else 0) from None
    except yaml.YAMLError as error:
        raise _YamlError(str(error).splitlines()[0], 0) from None
    except RecursionError:
        raise _YamlError("nested too deeply", 0) from None
    finally:
        loader.dispose()


def _may_be_deep(text: str, depth: int) -> bool:
    """Tell whether a document could nest deeper than allowed.

    A level of flow style costs a bracket. A level of block style starts in a column further right than the
    one around it (a list in a mapping may share its column), after nothing but indentation and indicators.
    """
    if text.count("[") + text.count("{") > depth // 2:
        return True
    return re.search(f"^[ \\t?:-]{{{depth // 4}}}", text, re.MULTILINE) is not None


def _check_depth(events: Iterable[Any], depth: int) -> None:
    """Refuse deep nesting before the C composer sees it, whose recursion nothing else bounds."""
    level = 0
    for event in events:
        if hasattr(event, "flow_style"):
            level += 1
            if level > depth:
                line = event.start_mark.line
                raise _YamlError(f"nested more than {depth} levels deep", line)
        elif type(event).__name__.endswith(("SequenceEndEvent", "MappingEndEvent")):
            level -= 1


class _Builder:
    """Turns one document's nodes into values; refuses what is too deep, too large, cyclic or ambiguous."""

    def __init__(self, limits: SourceLimits, size: int) -> None:
        self.limits = limits
        # What is spelt out has at most one value for each character.
        self.left = size + 1 + limits.alias_values
        self.open: set[int] = set()

    def document(self, node: Any) -> Json:
        return self.value(node, self.limits.depth)

    def value(self, node: Any, depth: int) -> Json:
        """Build a value; every visit counts, so an alias costs as much as what it stands for."""
        self.left -= 1
        if self.left < 0:
            raise self.error(node, f"aliases add more than {self.limits.alias_values} values")
        if node.id == "scalar":
            return _scalar(node)
        if depth == 0:
            raise self.error(node, f"nested more than {self.limits.depth} levels deep")
        if id(node) in self.open:
            raise self.error(node, "an alias stands for something that contains it")
        self.open.add(id(node))
        result = self.sequence(node, depth) if node.id == "sequence" else self.mapping(node, depth)
        self.open.discard(id(node))
        return result

    def sequence(self, node: Any, depth: int) -> list[Json]:
        if node.tag != "tag:yaml.org,2002:seq":
            raise self.error(node, f"unknown tag {node.tag}")
        return [self.value(element, depth - 1) for element in node.value]

    def mapping(self, node: Any, depth: int) -> dict[str, Json]:
        if node.tag != "tag:yaml.org,2002:map":
            raise self.error(node, f"unknown tag {node.tag}")
        mapping: dict[str, Json] = {}
        merged: list[Json] = []
        for key_node, value_node in node.value:
            if key_node.id != "scalar":
                raise self.error(key_node, "a key must be text")
            key = key_node.value
            value = self.value(value_node, depth - 1)
            if key == "<<" and key_node.tag == _PLAIN:
                merged += value if isinstance(value, list) else [value]
                continue
            if key in mapping:
                raise self.error(key_node, f"duplicate key {show(key)}")
            mapping[key] = value
        for other in merged:
            if not isinstance(other, dict):
                raise self.error(node, "<< takes mappings only")
            mapping = {**other, **mapping}
        return mapping

    @staticmethod
    def error(node: Any, message: str) -> _YamlError:
        return _YamlError(message, node.start_mark.line)


def _scalar(node: Any) -> Json:
    text: str = node.value
    tag: str = node.tag
    if tag != _PLAIN:
        return _tagged(node, text, tag)
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] not in _MAY_BE_NUMBER:
        return text
    if _INTEGER.match(text):
        return _integer(node, text)
    if _FLOAT.match(text):
        return _finite_yaml(node, text)
    if _NOT_FINITE.match(text):
        raise _YamlError(f"{text} is not a JSON number", node.start_mark.line)
    return text


def _tagged(node: Any, text: str, tag: str) -> Json:
    match tag.removeprefix("tag:yaml.org,2002:"):
        case "str" | "binary" | "timestamp":
            return text
        case "null":
            return None
        case "int" if _INTEGER.match(text):
            return _integer(node, text)
        case "float" if _FLOAT.match(text):
            return _finite_yaml(node, text)
        case "bool" if isinstance(_CONSTANTS.get(text), bool):
            return _CONSTANTS[text]
        case _:
            raise _YamlError(f"unknown tag {tag}", node.start_mark.line)


def _integer(node: Any, text: str) -> int:
    digits = text.replace("_", "")
    body = digits.lstrip("+-")
    if len(body) > 1 and body[0] == "0" and body[1].isdigit():
        digits = digits.replace("0", "0o", 1)  # YAML 1.1 writes octal as C does
    try:
        return int(digits, 0)
    except ValueError as error:
        raise _YamlError(str(error), node.start_mark.line) from None


def _finite_yaml(node: Any, text: str) -> float:
    try:
        return _finite(text)
    except ValueError as error:
        raise _YamlError(str(error), node.start_mark.line) from None
