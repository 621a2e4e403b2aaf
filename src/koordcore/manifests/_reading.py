"""Reading one object field by field: every problem is collected, repeated parts are decoded once.

A dump of a large cluster says the same things thousands of times: the labels of a deployment, the requests of
its containers, its tolerations. :class:`Memory` keeps one frozen value for each text that it has seen, which
saves both the time to decode it and the room to hold it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeGuard, TypeVar

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, Problem, join_path
from koordcore.model.pods import OwnerReference
from koordcore.model.resources import Resources, parse_countable, parse_resources
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_labels,
    as_list,
    as_mapping,
    as_str,
    as_strings,
    choice,
    collect,
    optional,
    required,
    show,
)
from koordcore.protocol.times import parse_timestamp

__all__ = [
    "MAX_NAME",
    "Memory",
    "Metadata",
    "Reading",
    "as_labels",
    "as_strings",
    "as_time",
    "choice",
    "identity_of",
]

T = TypeVar("T")
D = TypeVar("D")

MAX_NAME: Final = 253
"""Longest name of an object in Kubernetes."""
UNREADABLE: Final = "?"
"""Stands for a name that cannot be read, until the problem is reported."""
_MAX_KEYS: Final = 30_000
"""Most texts that are remembered for one converter."""
_LONGEST_KEY: Final = 20_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NONE: Final[immutabledict[str, str]] = immutabledict()


class Memory:
    """Decoded values by the text they came from; belongs to one loading call."""

    def __init__(self) -> None:
        self._tables: defaultdict[Any, dict[Any, Any]] = defaultdict(dict)

    def once(self, convert: Callable[[Json], T], raw: Json) -> T:
        """Convert a value, or give the one that an equal text gave before."""
        # repr tells 1 from True from "1", which equality of the values themselves would not.
        try:
            key = repr(raw)
        except (ValueError, RecursionError):
            return convert(raw)  # an integer of thousands of digits, or nested without end
        table = self._tables[convert]
        value = table.get(key, self)
        if value is self:
            value = convert(raw)
            if len(key) < _LONGEST_KEY:
                _remember(table, key, value)
        return value  # type: ignore[no-any-return]  # stored under the converter that made it

    def same(self, convert: Callable[..., T], *arguments: Any) -> T:
        """Compute from arguments that this memory gave, and are therefore the same objects where equal."""
        key = tuple(map(id, arguments))
        table = self._tables[convert]
        found = table.get(key)
        if found is not None:
            return found[0]  # type: ignore[no-any-return]  # stored under the function that made it
        value = convert(*arguments)
        # The arguments are kept, so that no other object can take their place in memory.
        _remember(table, key, (value, arguments))
        return value


def _remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    if len(table) >= _MAX_KEYS:
        table.clear()  # mostly texts that never came back; those that do will be seen again
    table[key] = value


class Reading:
    """Problems and warnings met while one object is read."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory()
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def take(
        self, raw: Mapping[str, Json], name: str, path: str, convert: Callable[[Json], T], default: D
    ) -> T | D:
        """Convert the value of a key; the default where it is absent, null, or wrong (then noted)."""
        value = raw.get(name)
        if value is None:
            return default
        try:
            return convert(value)
        except (ManifestError, ModelError) as error:
            self.note(error, join_path(path, name))
            return default

    def recall(
        self, raw: Mapping[str, Json], name: str, path: str, convert: Callable[[Json], T], default: D
    ) -> T | D:
        """Do as :meth:`take`, and remember the value for equal texts."""
        value = raw.get(name)
        if value is None:
            return default
        try:
            return self.memory.once(convert, value)
        except (ManifestError, ModelError) as error:
            self.note(error, join_path(path, name))
            return default

    def note(self, error: ManifestError | ModelError, path: str) -> None:
        """Keep what was wrong at a path."""
        if isinstance(error, ManifestError):
            self.problems += error.within(path).problems
        else:
            self.problems.append(Problem(path, str(error)))

    def problem(self, path: str, message: str) -> None:
        """Note something that cannot be read."""
        self.problems.append(Problem(path, message))

    def warn(self, path: str, message: str) -> None:
        """Note something that is read in a way that its author may not expect."""
        self.warnings.append(Problem(path, message))

    def finish(self) -> None:
        """Raise what was noted.

        Raises
        ------
        ManifestError
            With every problem of the object.
        """
        if self.problems:
            raise ManifestError(self.problems)


# --- what every object has ------------------------------------------------------------------------------


def is_object(value: Json) -> TypeGuard[Mapping[str, Json]]:
    """Tell whether a value is a JSON object; a plain dictionary is recognised without asking its ABC."""
    return type(value) is dict or isinstance(value, Mapping)


def as_time(value: Json) -> datetime:
    """Take an RFC 3339 time; digits beyond microseconds are cut."""
    text = as_str(value)
    if len(text) == 20 and text[4] == text[7] == "-" and text[10] == "T" and text[19] == "Z":
        try:
            return datetime.fromisoformat(text)
        except ValueError:
            pass  # said better below
    return _EPOCH + timedelta(microseconds=parse_timestamp(text) // 1000)


def as_annotations(value: Json) -> immutabledict[str, str]:
    """Take annotations; what is no text is what people write by hand without quotes (ruling 12)."""
    return immutabledict(
        sorted(
            (key, text if type(text) is str else _annotation(text)) for key, text in as_mapping(value).items()
        )
    )


def _annotation(value: Json) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""  # as the API server reads it

    import json  # only for hand-written manifests

    return json.dumps(value, ensure_ascii=False)


def as_resources(value: Json) -> Resources:
    """Take a resource list."""
    return parse_resources(as_mapping(value))


def as_countable(value: Json) -> Resources:
    """Take a resource list of amounts that columns hold."""
    return parse_countable(as_mapping(value))


def _owner(value: Json) -> OwnerReference:
    raw = as_mapping(value)
    return OwnerReference(
        kind=optional(raw, "kind", as_str, ""),
        name=required(raw, "name", as_str),
        uid=optional(raw, "uid", as_str, ""),
        api_version=optional(raw, "apiVersion", as_str, ""),
        controller=optional(raw, "controller", as_bool, None),
    )


def as_owners(value: Json) -> tuple[OwnerReference, ...]:
    """Take owner references."""
    return collect(_owner, as_list(value))


def as_name(value: Json) -> str:
    """Take the name of an object."""
    name = as_str(value)
    if not name:
        raise ManifestError.at("", "required")
    if len(name) > MAX_NAME:
        raise ManifestError.at("", f"a name has at most {MAX_NAME} characters, got {len(name)}")
    if not name.isprintable():
        raise ManifestError.at("", f"a name has no control characters, got {show(name)}")
    return name


def _namespace(value: Json) -> str:
    return "" if value == "" else as_name(value)


@record
class Metadata:
    """The part of ``metadata`` that scheduling reads."""

    name: str
    namespace: str
    uid: str = ""
    labels: immutabledict[str, str] = _NONE
    annotations: immutabledict[str, str] = _NONE
    owners: tuple[OwnerReference, ...] = ()
    created: datetime | None = None
    deleted: datetime | None = None


_NO_FIELDS: Final[Mapping[str, Json]] = immutabledict()


def section(reading: Reading, raw: Mapping[str, Json], name: str, path: str = "") -> Mapping[str, Json]:
    """Give a nested object; an empty one where it is absent."""
    value = raw.get(name)
    if type(value) is dict:
        return value
    return reading.take(raw, name, path, as_mapping, _NO_FIELDS)


def read_metadata(reading: Reading, raw: Mapping[str, Json], *, namespaced: bool = True) -> Metadata:
    """Read ``metadata``; a namespaced object that names no namespace lives in ``default``."""
    meta = section(reading, raw, "metadata")
    annotations = reading.take(meta, "annotations", "metadata", as_annotations, _NONE)
    for key in annotations:
        value = meta["annotations"][key]  # type: ignore[index]  # converted above
        if value is not None and not isinstance(value, str):
            reading.warn(
                f"metadata.annotations[{key}]",
                f"expected string, got {show(value)}; taken as its JSON text",
            )
    name = reading.take(meta, "name", "metadata", as_name, "")
    if not name and meta.get("name") is None:
        reading.problem("metadata.name", "required")
    return Metadata(
        name=name or UNREADABLE,
        namespace=(reading.take(meta, "namespace", "metadata", _namespace, "") or "default")
        if namespaced
        else "",
        uid=reading.take(meta, "uid", "metadata", as_str, ""),
        labels=reading.recall(meta, "labels", "metadata", as_labels, _NONE),
        annotations=annotations,
        owners=reading.recall(meta, "ownerReferences", "metadata", as_owners, ()),
        created=reading.take(meta, "creationTimestamp", "metadata", as_time, None),
        deleted=reading.take(meta, "deletionTimestamp", "metadata", as_time, None),
    )


def identity_of(raw: Json) -> tuple[str, str, str, str]:
    """Give group, kind, namespace and name of an object as far as they can be read; empty where not."""
    if not is_object(raw):
        return ("", "", "", "")
    meta = raw.get("metadata")
    meta = meta if is_object(meta) else {}
    version = _text(raw.get("apiVersion"))
    group = version.rpartition("/")[0]
    return (group, _text(raw.get("kind")), _text(meta.get("namespace")), _text(meta.get("name")))


def _text(value: Json) -> str:
    return value[:MAX_NAME] if isinstance(value, str) else ""
