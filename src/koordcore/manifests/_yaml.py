"""YAML text as a stream of objects: document by document, long lists item by item.

Scalars are read as Kubernetes' own reader takes them.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from koordcore._record import record
from koordcore.errors import MissingExtraError, Problem
from koordcore.manifests._raw import LIMITS, Source, SourceLimits, SourceObject, finite, outer
from koordcore.protocol.fields import Json, show

_DOCUMENT: Final = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_AFTER_END: Final = re.compile(r"^\.\.\.[ \t]*\r?\n(?:[ \t]*\r?\n|[#%][^\n]*\n)*\Z", re.MULTILINE)
_EMPTY: Final = re.compile(r"(?:[ \t]*(?:#[^\n]*)?(?:\r?\n|\Z))*\Z")
_DIRECTIVE: Final = re.compile(r"^%[^\n]*$", re.MULTILINE)


def read_yaml(text: str, label: str, *, limits: SourceLimits = LIMITS) -> Iterator[Source]:
    """Read YAML text with any number of documents; scalars as Kubernetes' own reader takes them.

    A time stays text, ``1:30`` stays text, and keys are always text. Documents are parsed one by one, so a
    broken one costs only itself.

    Raises
    ------
    MissingExtraError
        When PyYAML is not installed.
    """
    starts = [0, *(match.start() for match in _DOCUMENT.finditer(text)), len(text)]
    spans = [
        (start, end) for start, end in itertools.pairwise(starts) if not _blank(_document(text, start, end))
    ]
    line = at = 0
    for number, (start, end) in enumerate(spans, 1):
        name = label if len(spans) == 1 else f"{label} (document {number})"
        line, at = line + text.count("\n", at, start), start
        yield from _read_document(_document(text, start, end), name, line, limits, start)


def _document(text: str, start: int, end: int) -> str:
    chunk = text[start:end]
    return _AFTER_END.sub("", chunk) if "\n..." in chunk else chunk


def _blank(chunk: str) -> bool:
    body = chunk[3:] if chunk.startswith("---") else _DIRECTIVE.sub("", chunk)
    return _EMPTY.match(body) is not None


def _read_document(chunk: str, label: str, line: int, limits: SourceLimits, start: int) -> Iterator[Source]:
    block = _items_block(chunk, limits)
    if block is not None:
        yield from _stream_items(chunk, block, label, line, limits, start)
        return
    try:
        values = _parse_yaml(chunk, limits)
    except _YamlError as error:
        yield _problem(error, label, line)
        return
    end = start + len(chunk)
    for raw in values:
        if isinstance(raw, dict) and isinstance(raw.get("items"), list):
            kindless: list[SourceObject] = []
            yield from _with_kind(raw["items"], label, kindless)
            yield from outer({**raw, "items": ()}, kindless, label, end)
        elif isinstance(raw, list):
            yield from (SourceObject(f"{label} (item {at})", item) for at, item in enumerate(raw, 1))
        elif raw is not None:
            yield SourceObject(label, raw, end=end)


def _problem(error: _YamlError, label: str, line: int) -> Problem:
    return Problem("", f"not YAML: {error}: line {line + error.line + 1}", source=label)


def _with_kind(
    items: Iterable[Json], label: str, kindless: list[SourceObject], first: int = 1, end: int = 0
) -> Iterator[SourceObject]:
    """Give items that say their kind; keep the others until the list has said it."""
    for number, item in enumerate(items, first):
        source = SourceObject(f"{label} (item {number})", item, end=end)
        if isinstance(item, dict) and "kind" not in item:
            kindless.append(source)
        else:
            yield source


# --- long lists, item by item ---------------------------------------------------------------------------

_ITEMS: Final = re.compile(r"^items:[ \t]*\r?\n(?=( *)- )", re.MULTILINE)
_ANCHOR: Final = re.compile(r"&(?<![^\s,\[{:-]&)[A-Za-z0-9_-]")


@record
class _ItemsBlock:
    """A list in block style inside a document.

    Parameters
    ----------
    around
        The document without its items.
    cuts
        Where each item starts, and where the last one ends.
    """

    around: dict[str, Json]
    cuts: tuple[int, ...]


def _items_block(chunk: str, limits: SourceLimits) -> _ItemsBlock | None:
    """Find the items of a list that is written as ``kubectl`` writes it.

    ``None`` where the document must be read as a whole, because it is no such list or has anchors, which one
    item may set and another use.
    """
    match = _ITEMS.search(chunk)
    if match is None or _ANCHOR.search(chunk) is not None:
        return None
    indent = match[1]
    start = r"-(?=[ \r\n]|\Z)"
    # The block ends at the first line that is indented less, or as much without starting an item.
    after = re.compile(rf"^(?! *(?:#|\r?$))(?!{indent} )(?!{indent}{start})", re.MULTILINE).search(
        chunk, match.end()
    )
    stop = len(chunk) if after is None else after.start()
    try:
        (around,) = _parse_yaml(chunk[: match.end()] + "  []\n" + chunk[stop:], limits)
    except _YamlError:
        return None
    if not isinstance(around, dict):
        return None
    items = re.compile(f"^{indent}{start}", re.MULTILINE).finditer(chunk, match.end(), stop)
    return _ItemsBlock(around, (*(item.start() for item in items), stop))


def _stream_items(
    chunk: str, block: _ItemsBlock, label: str, line: int, limits: SourceLimits, origin: int
) -> Iterator[Source]:
    """Parse item by item, so that a long list never stands in memory as a whole.

    The cuts are certain unless a quoted text or a bracket goes on at the margin; a piece of such an item
    cannot be parsed, and then the whole document decides, once, whether it is broken.
    """
    kindless: list[SourceObject] = []
    line += chunk.count("\n", 0, block.cuts[0])
    whole_is_broken = False
    for number, (start, end) in enumerate(itertools.pairwise(block.cuts), 1):
        try:
            (value,) = _parse_yaml(chunk[start:end], limits)
        except _YamlError as error:
            rest = None if whole_is_broken else _items_of(chunk, limits)
            if rest is not None:
                yield from _with_kind(rest[number - 1 :], label, kindless, number)
                break
            whole_is_broken = True
            yield _problem(error, f"{label} (item {number})", line)
        else:
            assert isinstance(value, list)
            yield from _with_kind(value, label, kindless, number, origin + end)
        line += chunk.count("\n", start, end)
    yield from outer({**block.around, "items": ()}, kindless, label, origin + len(chunk))


def _items_of(chunk: str, limits: SourceLimits) -> list[Json] | None:
    try:
        (raw,) = _parse_yaml(chunk, limits)
    except _YamlError:
        return None
    items = raw.get("items") if isinstance(raw, dict) else None
    return items if isinstance(items, list) else None


class _YamlError(Exception):
    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


_INTEGER: Final = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)\Z")
_LONGEST_INTEGER: Final = 1000
"""Characters; Python refuses to write integers of thousands of digits, and nobody means one."""
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
_STR: Final = "tag:yaml.org,2002:str"
_SEQ: Final = "tag:yaml.org,2002:seq"
_MAP: Final = "tag:yaml.org,2002:map"
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
        def resolve(self, kind: type, value: str | None, implicit: Any) -> str:
            """Tag a node that has no tag: a scalar without quotes by a tag of our own."""
            if kind is yaml.ScalarNode:
                return _PLAIN if implicit[0] else _STR
            return _SEQ if kind is yaml.SequenceNode else _MAP

        def descend_resolver(self, current_node: Any, current_index: Any) -> None:
            """Do nothing: tags do not depend on the place."""

        def ascend_resolver(self) -> None:
            """Do nothing."""

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
        problem = str(error.problem or error.context)
        if problem == _TOO_DEEP_FOR_LIBYAML:
            problem = _too_deep(min(limits.depth, _LIBYAML_DEPTH))
        raise _YamlError(problem, mark.line if mark else 0) from None
    except yaml.YAMLError as error:
        raise _YamlError(str(error).splitlines()[0], 0) from None
    except RecursionError:
        raise _YamlError("nested too deeply", 0) from None
    finally:
        loader.dispose()


_LIBYAML_DEPTH: Final = 1000
"""What libyaml 0.2.6 reads at most; its scanner may refuse more before the parser tells of any level."""
_TOO_DEEP_FOR_LIBYAML: Final = "exceeded maximum nesting depth"


def _too_deep(depth: int) -> str:
    return f"nested more than {depth} levels deep"


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
                raise _YamlError(_too_deep(depth), line)
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
            raise self.error(node, _too_deep(self.limits.depth))
        if id(node) in self.open:
            raise self.error(node, "an alias stands for something that contains it")
        self.open.add(id(node))
        result = self.sequence(node, depth) if node.id == "sequence" else self.mapping(node, depth)
        self.open.discard(id(node))
        return result

    def sequence(self, node: Any, depth: int) -> list[Json]:
        if node.tag != _SEQ:
            raise self.error(node, f"unknown tag {node.tag}")
        return [self.value(element, depth - 1) for element in node.value]

    def mapping(self, node: Any, depth: int) -> dict[str, Json]:
        if node.tag != _MAP:
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
        value = int(digits, 0) if len(digits) <= _LONGEST_INTEGER else None
    except ValueError as error:
        raise _YamlError(str(error), node.start_mark.line) from None
    if value is None:
        raise _YamlError(f"{text[:20]}… is too large a number", node.start_mark.line)
    return value


def _finite_yaml(node: Any, text: str) -> float:
    try:
        return finite(text)
    except ValueError as error:
        raise _YamlError(str(error), node.start_mark.line) from None
