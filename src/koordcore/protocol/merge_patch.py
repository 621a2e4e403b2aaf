"""Strategic merge patches of pods, as Kubernetes applies them.

Objects are merged key by key, a null removes a key, the lists that Kubernetes merges by a key are merged
element by element, and finalizers are added; every other list is replaced. Two elements of one key, as ports
of two protocols are, stay two where a pod has the list so, or had none; else a patch merges into the first.
Rules: ``apimachinery/pkg/util/strategicpatch`` and the patch tags of ``core/v1``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from koordcore.errors import ManifestError
from koordcore.protocol.fields import Json, as_list, as_mapping, as_str, as_str_mapping, list_of, show

JsonObject: TypeAlias = dict[str, Json]
_Value = TypeVar("_Value")

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

_MERGED_VALUES: Final = ("finalizers",)
"""Fields whose plain values are added to those that are there."""
_ATOMIC_LISTS: Final = ("tolerations", "envFrom", "command", "args", "readinessGates")
_STRING_MAPS: Final = ("labels", "annotations", "nodeSelector")
_OBJECTS: Final = ("metadata", "spec", "status", "affinity", "securityContext", "resources")
_DIRECTIVE: Final = "$patch"
_RETAINED: Final = "$retainKeys"
_TAKEN_OFF: Final = "$deleteFromPrimitiveList/"
_ORDERED: Final = "$setElementOrder/"


def patch_pod(pod: Mapping[str, Json], patch: Mapping[str, Json]) -> JsonObject:
    """Apply a patch to a pod object and give the result; neither is changed.

    Raises
    ------
    ManifestError
        When the patch puts another type where the pod has a list, an object or a map of strings, or has a
        directive that does not exist, or one that contradicts it.
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
            try:
                if key.startswith(_ORDERED):
                    _wanted(value, key)
            except ManifestError as error:
                raise error.within(inner) from None
            _check_field(key, one, inner)
            _check(one, inner)


def _check_field(key: str, value: Json, path: str) -> None:
    if value is None:
        return
    convert: Callable[[Json], object] | None = None
    if key in _MERGED_VALUES or key == _RETAINED:
        convert = list_of(as_str)
    elif key in _MERGE_KEYS or key in _ATOMIC_LISTS or key.startswith(_TAKEN_OFF):
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
    body = {key: value for key, value in patch.items() if not key.startswith("$")}
    if _DIRECTIVE in patch:
        return body if _directive(patch) == "replace" else {}
    merged = _taken_off(_retained(old, patch, body), patch)
    for key, value in body.items():
        if value is None:
            merged.pop(key, None)
            continue
        try:
            merged[key] = _merged(key, merged.get(key), value)
        except ManifestError as error:
            raise error.within(key) from None
    for directive in patch:
        field = directive.removeprefix(_ORDERED)
        if field != directive and field in merged:
            try:
                wanted = _wanted(patch, directive)
                merged[field] = _sorted(merged[field], old.get(field), wanted, _MERGE_KEYS.get(field))
            except ManifestError as error:
                raise error.within(directive) from None
    return merged


def _directive(patch: Mapping[str, Json]) -> Json:
    """Give what a patch does with a whole object, or with a whole list where it stands in an element."""
    directive = patch[_DIRECTIVE]
    if directive not in ("replace", "delete"):
        raise ManifestError.at(_DIRECTIVE, f"unknown type of patch: {show(directive)}")
    return directive


def _retained(old: Mapping[str, Json], patch: Mapping[str, Json], body: Mapping[str, Json]) -> JsonObject:
    """Give what the keys to keep leave of an object; all of it where a patch names none."""
    if _RETAINED not in patch:
        return dict(old)
    kept = as_list(patch[_RETAINED])
    lost = next((key for key, value in body.items() if value is not None and key not in kept), None)
    if lost is not None:
        raise ManifestError.at(_RETAINED, f"the patch has {lost}, which is not among the keys to keep")
    return {key: value for key, value in old.items() if key in kept}


def _taken_off(old: JsonObject, patch: Mapping[str, Json]) -> JsonObject:
    """Give an object without the plain values that a patch takes off its lists."""
    left = dict(old)
    for directive, values in patch.items():
        key = directive.removeprefix(_TAKEN_OFF)
        if key == directive:
            continue
        if values is None:
            left.pop(key, None)
            continue
        before, gone = left.get(key), as_list(values)
        if any(isinstance(one, list | Mapping) for one in gone):
            raise ManifestError.at(directive, "expected plain values")
        if isinstance(before, list):
            left[key] = [one for one in before if one not in gone]
    return left


def _merged(key: str, before: Json, value: Json) -> Json:
    """Give what a field holds afterwards."""
    if isinstance(value, Mapping):
        return _merge(before if isinstance(before, Mapping) else {}, value)
    if not isinstance(value, list):
        return value
    there = before if isinstance(before, list) else None
    if key in _MERGED_VALUES:
        old = there or []
        new = (one for one in dict.fromkeys(value) if one not in old)
        return _in_order([*old, *new], value, old, lambda one: one)
    return _merge_list(there, value, _MERGE_KEYS[key]) if key in _MERGE_KEYS else value


def _wanted(patch: Mapping[str, Json], directive: str) -> list[Json]:
    """Give what tells the elements of a list apart, in the order that a patch sets.

    What the patch brings of the list has to be among them, in the same order.
    """
    field = directive.removeprefix(_ORDERED)
    order, patched, key = as_list(patch[directive]), patch.get(field), _MERGE_KEYS.get(field)
    wanted = [_name(one, key) for one in order]
    left = iter(wanted)
    for one in patched if isinstance(patched, list) and wanted else ():
        if not (isinstance(one, Mapping) and _DIRECTIVE in one) and _name(one, key) not in left:
            raise ManifestError.at("", f"lacks {show(one)} of the patch, or has it elsewhere")
    return wanted


def _sorted(value: Json, before: Json, wanted: Sequence[Json], key: str | None) -> Json:
    """Put a list into an order; what that does not name stays where it was before, as far as it can."""
    if not isinstance(value, list):
        return value
    there = [_name(one, key) for one in before] if isinstance(before, list) else []
    return _in_order(value, wanted, there, lambda one: _name(one, key))


def _name(element: Json, key: str | None) -> Json:
    """Give what tells an element apart: what it has for a key, or a plain value itself."""
    name = element if key is None else as_mapping(element).get(key)
    if isinstance(name, list | Mapping) or (name is None and key is not None):
        told = "a plain value" if key is None else f"an object with its merge key {key}"
        raise ManifestError.at("", f"expected {told}, got {show(element)}")
    return name


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


def _merge_list(old: list[Json] | None, patch: list[Json], key: str) -> list[Json]:
    """Merge a list element by element; one that is not there, ``None``, is taken as the patch has it."""
    entries = _elements(patch, key)
    plain = [one for one in entries if _DIRECTIVE not in one]
    directives = [(_directive(one), one) for one in entries if _DIRECTIVE in one]
    if any(directive == "replace" for directive, _ in directives):
        return [dict(one) for one in plain]
    if any(key not in one for one in entries):
        raise ManifestError.at("", f"an element of the patch lacks its merge key {key}")
    if old is None:
        return [_merge({}, one) for one in plain]
    gone = [one[key] for _, one in directives]
    there = [one for one in _elements(old, key) if one.get(key) not in gone]
    merged = [dict(one) for one in there]
    for one in plain:
        place = next((at for at, known in enumerate(merged) if known.get(key) == one[key]), len(merged))
        if place == len(merged):
            merged.append({})
        merged[place] = _merge(merged[place], one)
    order = [one.get(key) for one in there]
    return _in_order(merged, [one[key] for one in plain], order, lambda one: one.get(key))


def _in_order(
    merged: Sequence[_Value], patched: Sequence[Json], order: Sequence[Json], name: Callable[[_Value], Json]
) -> list[Json]:
    """Put elements that the patch does not name among those it names, where both were there before.

    A new element goes before what is not named, as Kubernetes does it.
    """
    rest = [one for one in merged if name(one) not in patched]
    named = sorted((one for one in merged if name(one) in patched), key=lambda one: patched.index(name(one)))
    done: list[Json] = []
    while rest and named:
        first = name(named[0])
        other = name(rest[0])
        earlier = first in order and other in order and order.index(other) < order.index(first)
        done.append(rest.pop(0) if earlier else named.pop(0))
    return [*done, *rest, *named]
