"""Last-level cache masks and memory bandwidth, per pod and per QoS class.

Rules: upstream ``koordlet/{util/resctrl,runtimehooks/hooks/resctrl,qosmanager/plugins/resctrl}``.
Texts are what is written to a group's ``schemata``.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError
from koordcore.protocol.pod_qos import LLCLimits, MBLimits, ResctrlLimits, ResctrlQoS, ResourceQoS
from koordcore.protocol.qos import QoSClass

_UNLIMITED_AMD: Final = 2048
_AMD_STEPS: Final = 160
"""25 GB/s in eighths of a GB/s, of which 80 percent can be had."""
_NEUTRAL: Final = ResctrlQoS(enable=False, start_percent=0, end_percent=100, mba_percent=100)
_DEFAULTS: Final = {
    QoSClass.LSR: _NEUTRAL,
    QoSClass.LS: _NEUTRAL,
    QoSClass.BE: attrs.evolve(_NEUTRAL, end_percent=30),
}


class Vendor(StrEnum):
    """Makers of cpus as ``/proc/cpuinfo`` names them."""

    INTEL = "GenuineIntel"
    AMD = "AuthenticAMD"


class ResctrlGroup(StrEnum):
    """Control groups of the QoS classes."""

    LSR = "LSR"
    LS = "LS"
    BE = "BE"
    UNKNOWN = "Unknown"


def parse_mask(text: str) -> int:
    """Read a cache mask in hexadecimal.

    Raises
    ------
    ManifestError
        When the text is no such number of at most 64 bits.
    """
    digits = text.strip()
    valid = 0 < len(digits) <= 16 and all(digit in "0123456789abcdefABCDEF" for digit in digits)
    if not valid:
        raise ManifestError.at("", f'expected a mask in hexadecimal, got "{text[:60]}"')
    return int(digits, 16)


def cache_mask(root: int, start_percent: int, end_percent: int) -> int:
    """Give the ways of a cache between two percentages, both rounded up to whole ways.

    Parameters
    ----------
    root
        Mask of the whole cache: all ones.
    start_percent, end_percent
        0 to 100, the end behind the start. The mask is 0 where no way ends in the range.

    Raises
    ------
    ModelError
        When the root has holes or the range is none.

    Examples
    --------
    >>> f"{cache_mask(0x3FF, 10, 80):x}"
    'fe'
    """
    if root & (root + 1):
        raise ModelError(f"cache mask {root:x} is not a row of ones")
    if start_percent < 0 or end_percent > 100 or end_percent <= start_percent:
        raise ModelError(f"cache range {start_percent} to {end_percent} is no range within 0 to 100")
    ways = root.bit_length()
    start = math.ceil(ways * start_percent / 100.0)
    end = math.ceil(ways * end_percent / 100.0)
    return (1 << end) - (1 << start)


def _intel_bandwidth(percent: int) -> int:
    """Round up to tens; a negative number is cut towards zero first, as integer division does upstream."""
    tens = abs(percent) // 10 * (1 if percent >= 0 else -1)
    return percent if percent % 10 == 0 else tens * 10 + 10


def _amd_bandwidth(percent: int) -> int:
    return _UNLIMITED_AMD if percent == 100 else int(_AMD_STEPS * percent / 100.0)


def pod_bandwidth(vendor: str, percent: int) -> int:
    """Give the number that stands for a percentage of bandwidth; 0 for a vendor without a rule."""
    if vendor == Vendor.INTEL:
        return _intel_bandwidth(percent)
    return _amd_bandwidth(percent) if vendor == Vendor.AMD else 0


@record
class Schemata:
    """What a pod gets of each cache before validation.

    Parameters
    ----------
    l3
        Cache id to mask, 0 where nothing was asked or the asking failed.
    mb
        Cache id to bandwidth number, 0 where nothing was asked.
    caches
        Ids of the caches that exist, ascending.
    """

    l3: immutabledict[int, int]
    mb: immutabledict[int, int]
    caches: tuple[int, ...]

    @property
    def text(self) -> str:
        """Lines to write; a line with a gap in it is left out whole, as the kernel would refuse it."""
        known = bool(self.caches)
        lines = ""
        if known and len(self.l3) == len(self.caches) and all(mask > 0 for mask in self.l3.values()):
            lines += _line("L3", {cache: f"{self.l3[cache]:x}" for cache in sorted(self.l3)})
        if known and all(number > 0 for number in self.mb.values()):
            lines += _line("MB", {cache: str(self.mb.get(cache, 0)) for cache in sorted(self.l3)})
        return lines


def _line(name: str, values: Mapping[int, str]) -> str:
    return f"{name}:" + "".join(f"{cache}={value};" for cache, value in values.items()) + "\n"


def pod_group(uid: str) -> str:
    """Give the name of a pod's own control group."""
    return f"koordlet-{uid}"


def pod_schemata(limits: ResctrlLimits, *, vendor: str, root: int, caches: Iterable[int]) -> Schemata:
    """Compute what a pod gets of each cache.

    Bandwidth comes first; the first cache range that cannot be is the end of the cache part, and what was
    set before it stays.

    Parameters
    ----------
    limits
        What the pod asks for.
    vendor
        Maker of the cpu.
    root
        Mask of the whole cache.
    caches
        Ids of the caches that exist.
    """
    ids = tuple(sorted(set(caches)))
    l3 = dict.fromkeys(ids, 0)
    _set_ways(l3, limits.llc, root)
    return Schemata(immutabledict(l3), immutabledict(_bandwidths(ids, limits.mb, vendor)), ids)


def _bandwidths(caches: tuple[int, ...], limits: MBLimits, vendor: str) -> dict[int, int]:
    common = pod_bandwidth(vendor, limits.percent) if limits.percent else 0
    numbers = dict.fromkeys(caches, common)
    numbers.update((cache, pod_bandwidth(vendor, percent)) for cache, percent in limits.per_cache)
    return numbers


def _set_ways(masks: dict[int, int], limits: LLCLimits, root: int) -> None:
    wanted = [(cache, limits.range) for cache in masks] + list(limits.per_cache)
    for cache, bounds in wanted:
        if len(bounds) != 2:
            continue
        try:
            masks[cache] = cache_mask(root, *bounds)
        except ModelError:
            return


def resctrl_group(qos: str) -> ResctrlGroup:
    """Give the control group of a pod by its QoS class, with the Kubernetes default applied.

    Examples
    --------
    >>> resctrl_group("LSE").value, resctrl_group("SYSTEM").value
    ('LSR', 'Unknown')
    """
    match qos:
        case QoSClass.LSE | QoSClass.LSR:
            return ResctrlGroup.LSR
        case QoSClass.LS:
            return ResctrlGroup.LS
        case QoSClass.BE:
            return ResctrlGroup.BE
        case _:
            return ResctrlGroup.UNKNOWN


@record
class ClassSchemata:
    """What a QoS class gets.

    Parameters
    ----------
    l3, mb
        Line to write; ``None`` leaves the group as it is.
    problem
        Why the cache line cannot be computed; empty where it can.
    """

    l3: str | None
    mb: str | None
    problem: str = ""


def class_schemata(
    strategy: ResourceQoS | None, *, vendor: str, root: int, caches: Iterable[int]
) -> immutabledict[ResctrlGroup, ClassSchemata]:
    """Compute what each QoS class gets of every cache.

    A class that is not enabled gets everything, whatever its values are. Unlike for pods, a mask of 0 is
    written as it is and every vendor but AMD rounds bandwidth as Intel does.

    Parameters
    ----------
    strategy
        Of the NodeSLO; ``None`` where there is none.
    vendor
        Maker of the cpu.
    root
        Mask of the whole cache.
    caches
        Ids of the caches that exist.
    """
    ids = tuple(sorted(set(caches)))
    done = {}
    for name, default in _DEFAULTS.items():
        said = strategy.classes[name].resctrl if strategy and name in strategy.classes else ResctrlQoS()
        merged = _over(default, said) if said.enable else _NEUTRAL
        problem, l3 = "", None
        try:
            mask = cache_mask(root, merged.start_percent or 0, merged.end_percent or 0)
            l3 = _line("L3", dict.fromkeys(ids, f"{mask:x}"))
        except ModelError as error:
            problem = str(error)
        percent, mb = merged.mba_percent or 0, None
        if 0 < percent <= 100:
            number = _amd_bandwidth(percent) if vendor == Vendor.AMD else _intel_bandwidth(percent)
            mb = _line("MB", dict.fromkeys(ids, str(number)))
        done[ResctrlGroup(name.value)] = ClassSchemata(l3, mb, problem)
    return immutabledict(done)


def _over(base: ResctrlQoS, said: ResctrlQoS) -> ResctrlQoS:
    return ResctrlQoS(
        *(
            old if new is None else new
            for old, new in zip(attrs.astuple(base), attrs.astuple(said), strict=True)
        )
    )


def new_tasks(tasks: Iterable[int], known: Collection[int] | None) -> tuple[int, ...]:
    """Give the task ids that a group does not hold yet, in their order; all where nothing is known."""
    return tuple(task for task in tasks if known is None or task not in known)
