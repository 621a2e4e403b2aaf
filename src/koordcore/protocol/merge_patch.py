"""Strategic merge patches of pods, as Kubernetes applies them.

Objects are merged key by key, a null removes a key, and the lists that Kubernetes merges by a key are merged
element by element; every other list is replaced. Rules: ``apimachinery/pkg/util/strategicpatch`` and the
patch tags of ``core/v1``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from koordcore.errors import ManifestError
from koordcore.protocol.fields import Json, as_list, as_mapping, as_str_mapping, show

JsonObject: TypeAlias = dict[str, Json]

_MERGE_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "schedulingGates": "name",
    "resourceClaims": "name",
    "ownerReferences": "uid",
}
"""Field of a pod to the key by which its elements are told apart."""

_ATOMIC_LISTS: Final = ("tolerations", "envFrom", "command", "args", "readinessGates")
_STRING_MAPS: Final = ("labels", "annotations", "nodeSelector")
_OBJECTS: Final = ("metadata", "spec", "status", "affinity", "securityContext", "resources")
_DIRECTIVE: Final = "$patch"


def patch_pod(pod: Mapping[str, Json], patch: Mapping[str, Json]) -> JsonObject:
    """Apply a patch to a pod object and give the result; neither is changed.

    Raises
    ------
    ManifestError
        When the patch puts another type where the pod has a list, an object or a map of strings.
    """
    _check(patch, "")
    return _merge(pod, patch)


def _check(value: Json, path: str) -> None:
    if isinstance(value, list):
        for index, one in enumerate(value):
            _check(one, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            inner = f"{path}.{key}" if path else key
            _check_field(key, one, inner)
            _check(one, inner)


def _check_field(key: str, value: Json, path: str) -> None:
    if value is None:
        return
    convert: Callable[[Json], object] | None = None
    if key in _MERGE_KEYS or key in _ATOMIC_LISTS:
        convert = as_list
    elif key in _STRING_MAPS and isinstance(value, Mapping):
        value = {name: text for name, text in value.items() if text is not None}
        convert = as_str_mapping
    elif key in (*_STRING_MAPS, *_OBJECTS):
        convert = as_mapping
    if convert is not None:
        try:
            convert(value)
        except ManifestError as error:
            raise error.within(path) from None


def _merge(old: Mapping[str, Json], patch: Mapping[str, Json]) -> JsonObject:
    directive = patch.get(_DIRECTIVE)
    body = {key: value for key, value in patch.items() if not key.startswith("$")}
    if directive == "replace":
        return body
    if directive == "delete":
        return {}
    merged = dict(old)
    for key, value in body.items():
        if value is None:
            merged.pop(key, None)
            continue
        try:
            merged[key] = _merged(key, merged.get(key), value)
        except ManifestError as error:
            raise error.within(key) from None
    return merged


def _merged(key: str, before: Json, value: Json) -> Json:
    """Give what a field holds afterwards."""
    if isinstance(value, Mapping):
        return _merge(before if isinstance(before, Mapping) else {}, value)
    if isinstance(value, list) and key in _MERGE_KEYS:
        return _merge_list(before if isinstance(before, list) else [], value, _MERGE_KEYS[key])
    return value


def _elements(values: list[Json], key: str) -> list[Mapping[str, Json]]:
    """Take objects that a plain value tells apart."""
    for place, one in enumerate(values):
        try:
            name = as_mapping(one).get(key)
        except ManifestError as error:
            raise error.within(f"[{place}]") from None
        if isinstance(name, list | Mapping):
            raise ManifestError.at(f"[{place}].{key}", f"expected a merge key, got {show(name)}")
    return [as_mapping(one) for one in values]


def _merge_list(old: list[Json], patch: list[Json], key: str) -> list[Json]:
    entries = _elements(patch, key)
    if any(one.get(_DIRECTIVE) == "replace" for one in entries):
        return [dict(one) for one in entries if _DIRECTIVE not in one]
    merged = {one.get(key): dict(one) for one in _elements(old, key)}
    order = list(merged)
    for one in entries:
        if key not in one:
            raise ManifestError.at("", f"an element of the patch lacks its merge key {key}")
        if one.get(_DIRECTIVE) == "delete":
            merged.pop(one[key], None)
        else:
            merged[one[key]] = _merge(merged.get(one[key], {}), one)
    named = [one[key] for one in entries if one[key] in merged]
    rest = [name for name in order if name in merged and name not in named]
    return [merged[name] for name in _interleaved(rest, named, order)]


def _interleaved(rest: list[Json], named: list[Json], order: list[Json]) -> list[Json]:
    """Put elements that the patch does not name among those it names, where both were there before.

    A new element goes before what is not named, as Kubernetes does it.
    """
    done: list[Json] = []
    while rest and named:
        earlier = named[0] in order and order.index(rest[0]) < order.index(named[0])
        done.append(rest.pop(0) if earlier else named.pop(0))
    return done + rest + named
