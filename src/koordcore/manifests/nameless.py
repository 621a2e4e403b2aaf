"""Objects without a name, as release notes print them: they are called after file and document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from koordcore.manifests._reading import Reading, is_object
from koordcore.protocol.fields import Json

_PLACE: Final = re.compile(r"(?P<file>.*?)(?P<places>(?: \((?:document|item) [0-9]+\))*)\Z", re.DOTALL)
_SUFFIX: Final = re.compile(r"(?:\.(?:ya?ml|json))?(?:\.gz)?\Z")
_NUMBER: Final = re.compile(r"[0-9]+")
_ODD: Final = re.compile(r"[^a-z0-9]+")
_NO_NAME_NEEDED: Final = frozenset({"KubeSchedulerConfiguration"})


def named(reading: Reading, raw: Mapping[str, Json], source: str) -> Mapping[str, Json]:
    """Give an object that has no name one, with a warning; one with a wrong name is given as it is.

    Parameters
    ----------
    source
        Where it came from, such as ``notes.yaml (document 3)``, which gives ``notes-3``.
    """
    meta = raw.get("metadata")
    if raw.get("kind") in _NO_NAME_NEEDED or not (meta is None or is_object(meta)):
        return raw
    known = {} if meta is None else meta
    if known.get("name") not in (None, ""):
        return raw
    name = _name_after(source)
    reading.warn("metadata.name", f"none is there; the object is called {name} after its place")
    return {**raw, "metadata": {**known, "name": name}}


def _name_after(source: str) -> str:
    match = _PLACE.match(source)
    assert match is not None  # the pattern matches every text
    stem = _SUFFIX.sub("", match["file"].rpartition("/")[2]).lower()
    parts = [_ODD.sub("-", stem).strip("-") or "object", *_NUMBER.findall(match["places"])]
    return "-".join(parts)[-200:].strip("-")
