"""Objects without a name, as release notes print them, and with one that is none: how they are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore.errors import printable
from koordcore.manifests._reading import MAX_NAME, Reading, as_name
from koordcore.protocol.fields import Json, as_mapping, show

_PLACE: Final = re.compile(r"(?P<file>.*?)(?P<places>(?: \((?:document|item) [0-9]+\))*)\Z", re.DOTALL)
_SUFFIX: Final = re.compile(r"(?:\.(?:ya?ml|json))?(?:\.gz)?\Z")
_NUMBER: Final = re.compile(r"[0-9]+")
_ODD: Final = re.compile(r"[^a-z0-9]+")
_LONGEST: Final = 200
_NO_FIELDS: Final[Mapping[str, Json]] = immutabledict()
_NO_NAME_NEEDED: Final = frozenset({"KubeSchedulerConfiguration"})


def named(reading: Reading, raw: Mapping[str, Json], source: str) -> Mapping[str, Json]:
    """Give an object a name by which it can be told of: one without any with a warning.

    One whose name or namespace cannot be read is called after what stands there, and that is a problem.

    Parameters
    ----------
    source
        Where it came from, such as ``notes.yaml (document 3)``, which gives ``notes-3``.
    """
    if raw.get("kind") in _NO_NAME_NEEDED:
        return raw
    meta = raw.get("metadata")
    if (
        type(meta) is dict
        and _plain(meta.get("name"))
        and (not meta.get("namespace") or _plain(meta["namespace"]))
    ):
        return raw  # nearly all
    known = _NO_FIELDS if meta is None else reading.take(raw, "metadata", "", as_mapping, None)
    if known is None:
        return {**raw, "metadata": {"name": _name_after(source)}}
    name, space = known.get("name"), known.get("namespace")
    found = dict[str, Json]()
    if name is None or name == "":
        found["name"] = _name_after(source)
        message = f"none is there; the object is called {found['name']} after its place"
        reading.warn("metadata.name", message)
    elif reading.take(known, "name", "metadata", as_name, None) is None:
        found["name"] = _called(name)
    # Of kinds without a namespace nobody reads it.
    unsaid = space is None or space == "" or raw.get("kind") != "Pod"
    if not unsaid and reading.take(known, "namespace", "metadata", as_name, None) is None:
        found["namespace"] = _called(space)
    return {**raw, "metadata": {**known, **found}} if found else raw


def _plain(value: Json) -> bool:
    return type(value) is str and 0 < len(value) <= MAX_NAME and value.isprintable()


def _called(value: Json) -> str:
    """Write what stands for a name that cannot be read."""
    text = value if isinstance(value, str) else show(value)
    return "".join(one if one.isprintable() else "?" for one in printable(text))[:_LONGEST]


def _name_after(source: str) -> str:
    match = _PLACE.match(source)
    assert match is not None  # the pattern matches every text
    stem = _SUFFIX.sub("", match["file"].rpartition("/")[2]).lower()
    parts = [_ODD.sub("-", stem).strip("-") or "object", *_NUMBER.findall(match["places"])]
    return "-".join(parts)[-_LONGEST:].strip("-")
