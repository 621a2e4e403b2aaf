"""What vendors' device plugins want to read on a bound pod (gate ``DevicePluginAdaption``).

Upstream: ``pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go``, whose gate is off by default. Here
it is on where the cards of a vendor, or of an isolation provider, cannot start without: those plugins find
the devices of a pod nowhere else. The time of binding is an argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.devices import GPU_CORE, GPU_MEMORY, DeviceAllocation, DeviceHolding, DeviceType
from koordcore.model.pods import PodKey
from koordcore.protocol.device import GPU_ISOLATION_PROVIDER

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCK_LIFE: Final = timedelta(minutes=5)
_CAMBRICON_UNIT: Final = 256 * 2**20
_MIB: Final = 2**20
_DUO: Final = "Ascend-310P3-300I-DUO"
_READING: Final = frozenset({"huawei", "cambricon", "metax"})
"""Vendors whose plugins learn from annotations which cards a pod was given."""
_LEAST_MEMORY: Final[Mapping[str, int]] = {"cambricon": _CAMBRICON_UNIT, "metax": _MIB}
LOCKS: Final[Mapping[str, str]] = {"cambricon": "cambricon.com/dsmlu.lock", "metax": "hami.io/mutex.lock"}
"""Vendor to the annotation of a node whose plugin serves one pod at a time."""


@record
class NodeLock:
    """A lock that a vendor's plugin keeps on its node: annotation and value."""

    key: str
    value: str


@record(kw_only=True)
class PluginPatch:
    """What is written when the pod is bound.

    Parameters
    ----------
    annotations, labels
        On the pod.
    lock
        On the node, for vendors whose plugin serves one pod at a time; ``None`` for the others.
    """

    annotations: immutabledict[str, str] = attrs.field(default=immutabledict(), converter=immutabledict)
    labels: immutabledict[str, str] = attrs.field(default=immutabledict(), converter=immutabledict)
    lock: NodeLock | None = None


def adapts(gate: bool | None, vendor: str, pod_labels: Mapping[str, str]) -> bool:
    """Tell whether a pod with cards of a vendor is written for its device plugin.

    Parameters
    ----------
    gate
        What the configuration says; ``None`` where it says nothing.
    """
    return gate if gate is not None else vendor in _READING or _isolates(pod_labels)


def _isolates(pod_labels: Mapping[str, str]) -> bool:
    return pod_labels.get(GPU_ISOLATION_PROVIDER, "").casefold() == "hami-core"


def plugin_refusal(vendor: str, cards: int, amounts: Mapping[str, int]) -> str:
    """Say why a vendor's plugin cannot serve a pod; empty where it can.

    Parameters
    ----------
    cards
        How many the pod gets.
    amounts
        On each of them, memory in bytes.
    """
    if vendor not in _LEAST_MEMORY:
        return ""
    plugin = f"the device plugin of {vendor}"
    if vendor == "cambricon" and cards != 1:
        return f"{plugin} serves one card per pod, got {cards}"
    if GPU_CORE not in amounts:
        return f"{plugin} needs {GPU_CORE}"
    least = _LEAST_MEMORY[vendor]
    if amounts.get(GPU_MEMORY, 0) < least:
        return f"{plugin} needs at least {least // _MIB}Mi of {GPU_MEMORY}, got {amounts.get(GPU_MEMORY, 0)}"
    return ""


def adapt_to_plugin(
    allocation: DeviceAllocation,
    *,
    pod: PodKey,
    pod_labels: Mapping[str, str],
    node: str,
    vendor: str,
    model: str,
    now: datetime | None,
) -> PluginPatch:
    """Say what the vendor's plugin has to find on a pod with these devices.

    Parameters
    ----------
    allocation, pod, pod_labels, node
        Who got what where.
    vendor, model
        Labels of the Device object.
    now
        Time of binding, with a zone; without it times and locks, which are made of it, are left out.

    Raises
    ------
    ModelError
        When the vendor's plugin cannot serve the allocation: several MLUs, or too little memory.
    """
    nanoseconds = "" if now is None else str((now - _EPOCH) // timedelta(microseconds=1) * 1000)
    annotations = {"scheduling.koordinator.sh/bind-timestamp": nanoseconds} if nanoseconds else {}
    labels: dict[str, str] = {}
    lock = None
    cards = allocation.devices.get(DeviceType.GPU, ())
    if cards:
        minors = ",".join(str(card.minor) for card in cards)
        annotations["scheduling.koordinator.sh/gpu-minors"] = minors
        if _isolates(pod_labels):
            labels["hami.io/vgpu-node"] = node
        if vendor == "huawei":
            annotations |= {"predicate-time": nanoseconds} if nanoseconds else {}
            annotations |= _huawei(cards, model)
        elif vendor == "cambricon":
            annotations |= _cambricon(cards)
        elif vendor == "metax":
            annotations |= _metax(cards)
        if vendor in LOCKS and now is not None:
            lock = NodeLock(LOCKS[vendor], _lock_value(now, pod))
    return PluginPatch(annotations=annotations, labels=labels, lock=lock)


def _huawei(cards: Sequence[DeviceHolding], model: str) -> dict[str, str]:
    if model == _DUO:
        return {"huawei.com/Ascend310P": ",".join(f"Ascend310P-{card.minor}" for card in cards)}
    first = cards[0]
    if first.template:
        return {"huawei.com/npu-core": f"{first.minor}-{first.template}"}
    return {"huawei.com/npu-core": ",".join(str(card.minor) for card in cards)}


def _check(vendor: str, cards: Sequence[DeviceHolding]) -> None:
    for card in cards:
        refused = plugin_refusal(vendor, len(cards), card.resources)
        if refused:
            raise ModelError(f"gpu {card.minor}: {refused}")


def _cambricon(cards: Sequence[DeviceHolding]) -> dict[str, str]:
    _check("cambricon", cards)
    held = cards[0].resources
    core, memory = held[GPU_CORE], held[GPU_MEMORY] // _CAMBRICON_UNIT
    # The plugin's own spelling.
    return {
        "CAMBRICON_DSMLU_ASSIGHED": "false",
        "CAMBRICON_DSMLU_PROFILE": f"{cards[0].minor}_{core}_{memory}",
    }


def _metax(cards: Sequence[DeviceHolding]) -> dict[str, str]:
    _check("metax", cards)
    entries = [
        {
            "uuid": card.id,
            "compute": card.resources[GPU_CORE],
            "vRam": card.resources[GPU_MEMORY] // _MIB,
        }
        for card in cards
    ]
    return {"metax-tech.com/gpu-devices-allocated": json.dumps([entries], separators=(",", ":"))}


def _lock_value(now: datetime, pod: PodKey) -> str:
    stamp = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"{stamp},{pod.namespace},{pod.name}"


def lock_blocks(value: str, *, now: datetime, holder_exists: bool) -> bool:
    """Tell whether a lock found on the node still keeps others from binding there.

    Parameters
    ----------
    value
        ``time,namespace,name`` as the annotation has it; empty for no lock.
    holder_exists
        The pod that it names is still there.

    Raises
    ------
    ModelError
        When the value is no lock.

    Examples
    --------
    >>> from datetime import datetime, timezone
    >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    >>> lock_blocks("2026-01-01T11:58:00Z,default,p", now=noon, holder_exists=True)
    True
    >>> lock_blocks("2026-01-01T11:50:00Z,default,p", now=noon, holder_exists=True)
    False
    """
    if not value:
        return False
    parts = value.split(",")
    try:
        taken = datetime.fromisoformat(parts[0].replace("Z", "+00:00"))
    except ValueError:
        raise ModelError(f'expected "time,namespace,name", got "{value}"') from None
    # A time without its zone is none of RFC 3339, which the plugins write.
    if len(parts) != 3 or taken.tzinfo is None:
        raise ModelError(f'expected "time,namespace,name", got "{value}"')
    return holder_exists and now - taken <= _LOCK_LIFE
