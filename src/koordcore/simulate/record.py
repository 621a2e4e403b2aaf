"""A call of ``schedule`` as canonical JSON, and its replay: the same digest, or the first difference.

Every record of the model is written by its type and its fields; what equals its default is left out. The same
call gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, join_path
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.protocol.fields import Json, as_int, as_list, as_mapping, as_str, at, required, show
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.simulate.field_types import given, named, wrong_field
from koordcore.snapshot import ClusterSnapshot

FORMAT: Final = "koordcore/record/v1"
_TYPE: Final = "$"
_PATH: Final = re.compile(r"koordcore(\.\w+)*:\w+(\.\w+)*")
_CLOCK: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+\+\d\d:\d\d")

_CAUSED: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What wrong values cause in classes that look at them."""


def to_json(value: Any) -> Json:
    """Turn a value of the model into JSON values.

    Raises
    ------
    ModelError
        When it holds something that is neither a record of the library nor plain data.
    """
    match value:
        case Enum():
            return {_TYPE: _path_of(type(value)), "value": value.value}
        case None | bool() | int() | float() | str():
            return value
        case datetime() if value.tzinfo is not None:
            return {_TYPE: "datetime", "value": value.astimezone(UTC).isoformat()}
        case timedelta():
            return {_TYPE: "timedelta", "value": [value.days, value.seconds, value.microseconds]}
        case Fraction():
            return {_TYPE: "fraction", "value": [value.numerator, value.denominator]}
        case tuple() | list():
            return [to_json(one) for one in value]
        case frozenset() | set():
            return {_TYPE: "set", "value": sorted((to_json(one) for one in value), key=_text)}
        case Mapping():
            if all(isinstance(key, str) and not key.startswith(_TYPE) for key in value):
                return {key: to_json(value[key]) for key in sorted(value)}
            pairs = [[to_json(key), to_json(one)] for key, one in value.items()]
            return {_TYPE: "map", "value": sorted(pairs, key=_text)}
        case _:
            pass
    if attrs.has(type(value)):
        return {_TYPE: _path_of(type(value)), **_fields_of(value)}
    raise ModelError(f"{type(value).__name__} cannot be recorded")


def _path_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _fields_of(value: Any) -> dict[str, Json]:
    written = {}
    for field in attrs.fields(type(value)):
        # What tells no records apart, such as the evidence of a certificate, is not part of the value.
        if not field.init or not field.eq:
            continue
        held = getattr(value, field.name)
        # Most fields of most records hold their defaults; left out, a record is a tenth as long.
        if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # a class, typed as a function
            plain = not field.default.takes_self and held == field.default.factory()
        else:
            plain = field.default is not attrs.NOTHING and held == field.default
        if not plain:
            written[field.alias or field.name] = to_json(held)
    return written


def _text(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def from_json(value: Json) -> Any:
    """Turn what :func:`to_json` gave into the value again; lists become tuples.

    Raises
    ------
    ManifestError
        With its path, when a type is unknown, or a value is none of its type.
    """
    if isinstance(value, list):
        return _each(value)
    if not isinstance(value, Mapping):
        return value
    kind = value.get(_TYPE)
    if kind is None:
        return immutabledict({key: at(key, from_json, one) for key, one in value.items()})
    name = at(_TYPE, as_str, kind)
    if name in _PLAIN:
        return required(value, "value", _PLAIN[name])
    made = _type_at(name)
    if issubclass(made, Enum):
        return required(value, "value", partial(_wrapped, made, name))
    fields = {key: at(key, from_json, one) for key, one in value.items() if key != _TYPE}
    if attrs.has(made):
        fields = named(made, fields)
    try:
        done = made(**fields)
    except ModelError as error:
        raise ManifestError.at("", str(error)) from None
    except _CAUSED as error:
        _check(made, value, fields)
        raise ManifestError.at("", f"no {name}: {error}") from None
    _check(made, value, given(done))
    return done


def _check(kind: type, raw: Mapping[str, Json], values: Mapping[str, Any]) -> None:
    wrong = wrong_field(kind, values)
    if wrong:
        message = f"expected what a {kind.__name__} has there, got {show(raw.get(wrong))}"
        raise ManifestError.at(wrong, message) from None


def _each(value: Json) -> tuple[Any, ...]:
    return tuple(at(f"[{number}]", from_json, one) for number, one in enumerate(as_list(value)))


def _wrapped(make: Callable[[Any], Any], name: str, value: Any) -> Any:
    """Make a value; whatever is wrong with what it is made of is the file's fault."""
    try:
        return make(value)
    except ManifestError:
        raise
    except _CAUSED as error:
        raise ManifestError.at("", f"no {name}: {error}") from None


def _time(value: Json) -> datetime:
    text = as_str(value)
    if not _CLOCK.fullmatch(text):
        raise ManifestError.at("", f"expected a time with zone, got {text!r}")
    return datetime.fromisoformat(text)


def _parts(made: Callable[..., Any]) -> Callable[[Json], Any]:
    return lambda value: made(*map(as_int, as_list(value)))


_PLAIN: Final[Mapping[str, Callable[[Json], Any]]] = {
    name: partial(_wrapped, made, name)
    for name, made in (
        ("datetime", _time),
        ("timedelta", _parts(timedelta)),
        ("fraction", _parts(Fraction)),
        ("set", lambda value: frozenset(_each(value))),
        ("map", lambda value: immutabledict(_each(value))),
    )
}


def _type_at(path: str) -> type:
    """Find a record or an enumeration of the library; nothing else is ever made from a file."""
    if _PATH.fullmatch(path):
        module, _, name = path.partition(":")
        try:
            found: Any = import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            found = None
        if isinstance(found, type) and (attrs.has(found) or issubclass(found, Enum)):
            return found
    raise ManifestError.at(_TYPE, f"unknown type {path!r}")


def _answer(result: ScheduleResult) -> dict[str, Json]:
    answer: dict[str, Json] = {
        "decisions": [to_json(one) for one in result.decisions],
        "jobs": [to_json(one) for one in result.jobs],
    }
    if result.together:
        answer["together"] = [to_json(one) for one in result.together]
    if result.preemptions:
        answer["preemptions"] = [to_json(one) for one in result.preemptions]
    return answer


def _digest(answer: Json) -> str:
    return hashlib.sha256(_text(answer).encode("ascii")).hexdigest()


def write_record(
    snapshot: ClusterSnapshot,
    pods: Iterable[Pod] | None,
    result: ScheduleResult,
    *,
    policy: Policy = Policy(),
    now: datetime | None = None,
    limits: Limits = DEFAULT_LIMITS,
    preempt: PreemptionRules | None = None,
) -> str:
    """Write a call of ``schedule`` with its answer.

    Parameters
    ----------
    snapshot, pods, policy, now, limits, preempt
        The arguments of the call.
    result
        What it gave.
    """
    answer = _answer(result)
    record = {
        "format": FORMAT,
        "snapshot": to_json(snapshot),
        "pods": None if pods is None else [to_json(pod) for pod in pods],
        "policy": to_json(policy),
        "now": to_json(now),
        "limits": to_json(limits),
        **({} if preempt is None else {"preempt": to_json(preempt)}),
        "result": answer,
        "digest": _digest(answer),
    }
    return _text(record) + "\n"


@record
class RecordReplay:
    """How a recorded call came out this time.

    Parameters
    ----------
    result
        What ``schedule`` gave now.
    recorded, digest
        Digest of what was recorded, and of what was decided now.
    difference
        Where they first differ, with both values; empty when they are equal.
    """

    result: ScheduleResult
    recorded: str
    digest: str
    difference: str

    @property
    def same(self) -> bool:
        """The same was decided."""
        return self.recorded == self.digest


def is_record(text: str) -> bool:
    """Tell whether a text claims to be a recorded call."""
    return text.startswith("{") and f'"format":"{FORMAT}"' in text.replace(" ", "")


def replay_record(text: str) -> RecordReplay:
    """Make a recorded call again and compare.

    Raises
    ------
    ManifestError
        When the text is no record, or its result does not have the digest that it gives.
    """
    try:
        record = as_mapping(json.loads(text, parse_constant=_no_number))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ManifestError):
            raise
        raise ManifestError.at("", f"not JSON: {error}") from None
    if record.get("format") != FORMAT:
        raise ManifestError.at("format", f"expected {FORMAT!r}")
    wrote = required(record, "result", as_mapping)
    recorded = _digest(wrote)
    if recorded != required(record, "digest", as_str):
        raise ManifestError.at("digest", "the result was changed after it had been recorded")
    pods = _argument(record, "pods", tuple, None)
    result = schedule(
        _argument(record, "snapshot", ClusterSnapshot),
        pods,
        policy=_argument(record, "policy", Policy),
        now=_argument(record, "now", datetime, None),
        limits=_argument(record, "limits", Limits),
        preempt=_argument(record, "preempt", PreemptionRules, None),
    )
    taken = _answer(result)
    return RecordReplay(result, recorded, _digest(taken), _first_difference(wrote, taken, ""))


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number of JSON")


def _argument(record: Mapping[str, Json], name: str, *kinds: type | None) -> Any:
    """Read an argument of the call, which is of one of some types.

    Raises
    ------
    ManifestError
        When it is wrong, or of another type.
    """
    try:
        value = at(name, from_json, record.get(name))
    except RecursionError:
        raise ManifestError.at(name, "nested too deeply") from None
    held = value if isinstance(value, tuple) else (value,)
    of = Pod if isinstance(value, tuple) else tuple(kind for kind in kinds if kind is not None)
    if not (value is None and None in kinds) and not all(isinstance(one, of) for one in held):
        raise ManifestError.at(name, f"expected what a call of schedule takes, got {show(record.get(name))}")
    return value


def _first_difference(recorded: Json, now: Json, path: str) -> str:
    """Name the first place, in the order of decisions and fields, where two JSON values differ."""
    if recorded == now:
        return ""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for key in sorted({*recorded, *now}):
            found = _first_difference(recorded.get(key), now.get(key), join_path(path, key))
            if found:
                return found
    if isinstance(recorded, list) and isinstance(now, list):
        for index, (left, right) in enumerate(zip(recorded, now, strict=False)):
            found = _first_difference(left, right, f"{path}[{index}]")
            if found:
                return found
        return f"{path}: {len(recorded)} recorded, {len(now)} now"
    return f"{path}: recorded {_text(recorded)}, now {_text(now)}"
