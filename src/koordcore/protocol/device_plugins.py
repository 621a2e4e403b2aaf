"""What vendors' device plugins want to read on a bound pod (gate ``DevicePluginAdaption``).

Upstream: ``pkg/scheduler/plugins/deviceshare/device_plugin_adapter.go``. The time of binding is an argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.errors import ModelError
from koordcore.model.devices import GPU_CORE, GPU_MEMORY, DeviceAllocation, DeviceHolding, DeviceType
from koordcore.model.pods import PodKey
from koordcore.protocol.device import GPU_ISOLATION_PROVIDER

__all__ = ["NodeLock", "PluginPatch", "adapt_to_plugin", "lock_blocks"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCK_LIFE: Final = timedelta(minutes=5)
_CAMBRICON_UNIT: Final = 256 * 2**20
_MIB: Final = 2**20
_DUO: Final = "Ascend-310P3-300I-DUO"


@attrs.frozen
class NodeLock:
    """A lock that a vendor's plugin keeps on its node: annotation and value."""

    key: str
    value: str


@attrs.frozen(kw_only=True)
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


def adapt_to_plugin(
    allocation: DeviceAllocation,
    *,
    pod: PodKey,
    pod_labels: Mapping[str, str],
    node: str,
    vendor: str,
    model: str,
    now: datetime,
) -> PluginPatch:
    """Say what the vendor's plugin has to find on a pod with these devices.

    Parameters
    ----------
    vendor, model
        Labels of the Device object.
    now
        Time of binding, with a zone.

    Raises
    ------
    ModelError
        When the vendor's plugin cannot serve the allocation: several MLUs, or too little memory.
    """
    nanoseconds = str((now - _EPOCH) // timedelta(microseconds=1) * 1000)
    annotations = {"scheduling.koordinator.sh/bind-timestamp": nanoseconds}
    labels: dict[str, str] = {}
    lock = None
    cards = allocation.devices.get(DeviceType.GPU, ())
    if cards:
        minors = ",".join(str(card.minor) for card in cards)
        annotations["scheduling.koordinator.sh/gpu-minors"] = minors
        if pod_labels.get(GPU_ISOLATION_PROVIDER, "").casefold() == "hami-core":
            labels["hami.io/vgpu-node"] = node
        if vendor == "huawei":
            annotations["predicate-time"] = nanoseconds
            annotations |= _huawei(cards, model)
        elif vendor == "cambricon":
            annotations |= _cambricon(cards)
            lock = NodeLock("cambricon.com/dsmlu.lock", _lock_value(now, pod))
        elif vendor == "metax":
            annotations |= _metax(cards)
            lock = NodeLock("hami.io/mutex.lock", _lock_value(now, pod))
    return PluginPatch(annotations=annotations, labels=labels, lock=lock)


def _huawei(cards: Sequence[DeviceHolding], model: str) -> dict[str, str]:
    if model == _DUO:
        return {"huawei.com/Ascend310P": ",".join(f"Ascend310P-{card.minor}" for card in cards)}
    first = cards[0]
    if first.template:
        return {"huawei.com/npu-core": f"{first.minor}-{first.template}"}
    return {"huawei.com/npu-core": ",".join(str(card.minor) for card in cards)}


def _amount(card: DeviceHolding, name: str, least: int) -> int:
    amount = card.resources.get(name)
    if amount is None or amount < least:
        raise ModelError(
            f"gpu {card.minor}: the vendor's plugin needs {name} of at least {least}, got {amount}"
        )
    return amount


def _cambricon(cards: Sequence[DeviceHolding]) -> dict[str, str]:
    if len(cards) != 1:
        raise ModelError(f"the vendor's plugin serves one MLU, got {len(cards)}")
    core = _amount(cards[0], GPU_CORE, 0)
    memory = _amount(cards[0], GPU_MEMORY, _CAMBRICON_UNIT) // _CAMBRICON_UNIT
    # The plugin's own spelling.
    return {
        "CAMBRICON_DSMLU_ASSIGHED": "false",
        "CAMBRICON_DSMLU_PROFILE": f"{cards[0].minor}_{core}_{memory}",
    }


def _metax(cards: Sequence[DeviceHolding]) -> dict[str, str]:
    entries = [
        {
            "uuid": card.id,
            "compute": _amount(card, GPU_CORE, 0),
            "vRam": _amount(card, GPU_MEMORY, _MIB) // _MIB,
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
    if len(parts) != 3:
        raise ModelError(f'expected "time,namespace,name", got "{value}"')
    return holder_exists and now - taken <= _LOCK_LIFE
