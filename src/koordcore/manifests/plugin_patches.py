"""What bound pods and their nodes say for the device plugins of vendors."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from koordcore.model.decisions import Bound
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY
from koordcore.model.devices import DeviceObject
from koordcore.protocol.device import parse_allocation
from koordcore.protocol.device_object import GPU_MODEL, GPU_VENDOR
from koordcore.protocol.device_plugins import PluginPatch, adapt_to_plugin, adapts
from koordcore.result import ScheduleResult

NO_PATCH: Final = PluginPatch()


def plugin_patch(result: ScheduleResult, decision: Bound, moment: datetime | None) -> PluginPatch:
    """Say what the vendor's device plugin has to find on a bound pod, and on its node.

    Parameters
    ----------
    moment
        Time of binding; times and locks are left out without it.
    """
    snapshot = result.snapshot
    device = snapshot.find(DeviceObject, decision.node)
    pod = snapshot.pod(decision.pod)
    allocation = parse_allocation(decision.annotations)
    if device is None or pod is None or allocation is None or not allocation.devices:
        return NO_PATCH
    setting = (result.policy.profile_of(pod.scheduler_name) or result.policy).plugin("DeviceShare")
    policy = (None if setting is None else setting.args) or DEFAULT_DEVICE_POLICY
    labels = {**snapshot.node(decision.node).node.labels, **device.labels}
    vendor, model = labels.get(GPU_VENDOR, ""), labels.get(GPU_MODEL, "")
    if setting is None or not adapts(policy.adapt_plugins, vendor, pod.labels):
        return NO_PATCH
    return adapt_to_plugin(
        allocation,
        pod=decision.pod,
        pod_labels=pod.labels,
        node=decision.node,
        vendor=vendor,
        model=model,
        now=moment,
    )
