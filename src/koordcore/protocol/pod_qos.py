"""Pod-level quality of service on the wire: cache and bandwidth limits, cpu group identity, class defaults.

Keys match without case, as upstream's decoder does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.protocol.fields import (
    Json,
    as_bool,
    as_int,
    as_mapping,
    as_str,
    list_of,
    load_json,
    optional,
    optional_in,
)
from koordcore.protocol.qos import QoSClass

ANNOTATION_RESCTRL: Final = "node.koordinator.sh/resctrl"
ANNOTATION_CPU_QOS: Final = "koordinator.sh/cpuQOS"

_EMPTY: Final[Mapping[str, Json]] = immutabledict()
_IDENTITIES: Final = range(-1, 3)


@record
class LLCLimits:
    """Which share of the last-level cache may be used.

    Parameters
    ----------
    range
        Start and end in percent, for all caches; any other number of numbers says nothing.
    per_cache
        Cache id and range, over the common one.
    """

    range: tuple[int, ...] = ()
    per_cache: tuple[tuple[int, tuple[int, ...]], ...] = ()


@record
class MBLimits:
    """How much memory bandwidth may be used.

    Parameters
    ----------
    percent
        For all caches; 0 says nothing.
    per_cache
        Cache id and percent, over the common one.
    """

    percent: int = 0
    per_cache: tuple[tuple[int, int], ...] = ()


@record
class ResctrlLimits:
    """What a pod's annotation asks of the cache and of memory bandwidth."""

    llc: LLCLimits = attrs.field(factory=LLCLimits)
    mb: MBLimits = attrs.field(factory=MBLimits)


@record
class CPUQoS:
    """Group identity of a class or pod; ``None`` where nothing is said."""

    enable: bool | None = None
    group_identity: int | None = None
    sched_idle: int | None = None
    core_expeller: bool | None = None


@record
class ResctrlQoS:
    """Cache range and bandwidth of a class in percent; ``None`` where nothing is said."""

    enable: bool | None = None
    start_percent: int | None = None
    end_percent: int | None = None
    mba_percent: int | None = None


@record
class ClassQoS:
    """What a NodeSLO says of one QoS class."""

    cpu: CPUQoS = attrs.field(factory=CPUQoS)
    resctrl: ResctrlQoS = attrs.field(factory=ResctrlQoS)


@record
class ResourceQoS:
    """The resource QoS strategy of a NodeSLO.

    Parameters
    ----------
    classes
        ``LSR``, ``LS``, ``BE`` and ``SYSTEM`` to what is said of them.
    cpu_policy
        ``groupIdentity`` or ``coreSched``; empty where nothing is said.
    """

    classes: immutabledict[QoSClass, ClassQoS] = attrs.field(default=immutabledict(), converter=immutabledict)
    cpu_policy: str = ""


def _range(value: Json) -> tuple[int, ...]:
    return list_of(as_int)(value)


def _llc(value: Json) -> LLCLimits:
    def one(entry: Json) -> tuple[int, tuple[int, ...]]:
        fields = as_mapping(entry)
        return (
            optional(fields, "cacheID", as_int, 0, fold_case=True),
            optional(fields, "range", _range, _NO_RANGE, fold_case=True),
        )

    raw = as_mapping(value)
    common = optional(raw, "schemata", as_mapping, _EMPTY, fold_case=True)
    per_cache = optional(raw, "schemataPerCache", list_of(one), None, fold_case=True)
    return LLCLimits(
        optional_in("schemata", common, "range", _range, _NO_RANGE, fold_case=True), per_cache or ()
    )


_NO_RANGE: Final[tuple[int, ...]] = ()


def _mb(value: Json) -> MBLimits:
    def one(entry: Json) -> tuple[int, int]:
        fields = as_mapping(entry)
        return (
            optional(fields, "cacheID", as_int, 0, fold_case=True),
            optional(fields, "percent", as_int, 0, fold_case=True),
        )

    raw = as_mapping(value)
    common = optional(raw, "schemata", as_mapping, _EMPTY, fold_case=True)
    per_cache = optional(raw, "schemataPerCache", list_of(one), None, fold_case=True)
    return MBLimits(optional_in("schemata", common, "percent", as_int, 0, fold_case=True), per_cache or ())


def parse_resctrl(text: str) -> ResctrlLimits:
    """Read the cache and bandwidth limits of a pod.

    Raises
    ------
    ManifestError
        When the text cannot be read; nothing is applied then.
    """
    try:
        value = load_json(text)
        raw = _EMPTY if value is None else as_mapping(value)
        llc = optional(raw, "llc", _llc, None, fold_case=True)
        mb = optional(raw, "mb", _mb, None, fold_case=True)
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{ANNOTATION_RESCTRL}]") from None
    return ResctrlLimits(llc or LLCLimits(), mb or MBLimits())


def _cpu_qos(value: Json) -> CPUQoS:
    raw = as_mapping(value)
    return CPUQoS(
        optional(raw, "enable", as_bool, None, fold_case=True),
        optional(raw, "groupIdentity", as_int, None, fold_case=True),
        optional(raw, "schedIdle", as_int, None, fold_case=True),
        optional(raw, "coreExpeller", as_bool, None, fold_case=True),
    )


def parse_cpu_qos(text: str) -> CPUQoS:
    """Read the group identity of a pod.

    Raises
    ------
    ManifestError
        When the text cannot be read or the identity is not -1, 0, 1 or 2.
    """
    try:
        value = load_json(text)
        qos = CPUQoS() if value is None else _cpu_qos(value)
        if qos.group_identity is not None and qos.group_identity not in _IDENTITIES:
            raise ManifestError.at("groupIdentity", f"expected -1 to 2, got {qos.group_identity}")
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{ANNOTATION_CPU_QOS}]") from None
    return qos


def cpu_qos_of(annotations: Mapping[str, str]) -> CPUQoS | None:
    """Give what a pod says of its group identity; ``None`` where it says nothing.

    Raises
    ------
    ManifestError
        As :func:`parse_cpu_qos`.
    """
    text = annotations.get(ANNOTATION_CPU_QOS)
    return None if text is None else parse_cpu_qos(text)


def _resctrl_qos(value: Json) -> ResctrlQoS:
    raw = as_mapping(value)
    return ResctrlQoS(
        optional(raw, "enable", as_bool, None, fold_case=True),
        optional(raw, "catRangeStartPercent", as_int, None, fold_case=True),
        optional(raw, "catRangeEndPercent", as_int, None, fold_case=True),
        optional(raw, "mbaPercent", as_int, None, fold_case=True),
    )


def _class(value: Json) -> ClassQoS:
    raw = as_mapping(value)
    cpu = optional(raw, "cpuQOS", _cpu_qos, None, fold_case=True)
    resctrl = optional(raw, "resctrlQOS", _resctrl_qos, None, fold_case=True)
    return ClassQoS(cpu or CPUQoS(), resctrl or ResctrlQoS())


def parse_resource_qos(raw: Mapping[str, Json]) -> ResourceQoS:
    """Read the ``resourceQOSStrategy`` of a NodeSLO.

    Raises
    ------
    ManifestError
        With the path of what has another type.
    """
    wire = {
        QoSClass.LSR: "lsrClass",
        QoSClass.LS: "lsClass",
        QoSClass.BE: "beClass",
        QoSClass.SYSTEM: "systemClass",
    }
    found = {name: optional(raw, key, _class, None, fold_case=True) for name, key in wire.items()}
    policies = optional(raw, "policies", as_mapping, _EMPTY, fold_case=True)
    return ResourceQoS(
        {name: one for name, one in found.items() if one is not None},
        optional(policies, "cpuPolicy", as_str, "", fold_case=True),
    )
