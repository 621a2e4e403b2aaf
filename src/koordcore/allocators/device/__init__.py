"""Exact devices for one pod on one node: GPUs and their kin, NICs, FPGAs."""

from koordcore.allocators.device.allocate import allocate_devices, refusal_of
from koordcore.allocators.device.answers import DeviceAnswers, device_table
from koordcore.allocators.device.explain import DeviceExplanation, Release, explain_devices, smallest_release
from koordcore.allocators.device.request import device_request_of
from koordcore.allocators.device.reservations import DeviceReservation, allocate_reserved, terms_for
from koordcore.allocators.device.scoring import score_devices
from koordcore.allocators.device.state import DeviceConflict, NodeDevices, node_devices
from koordcore.allocators.device.view import PLAIN_TERMS, Terms
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy, ScoringStrategy
from koordcore.protocol.device_amounts import DeviceResources, device_resources

__all__ = [
    "DEFAULT_DEVICE_POLICY",
    "PLAIN_TERMS",
    "DeviceAnswers",
    "DeviceConflict",
    "DeviceExplanation",
    "DevicePolicy",
    "DeviceReservation",
    "DeviceResources",
    "NodeDevices",
    "Release",
    "ScoringStrategy",
    "Terms",
    "allocate_devices",
    "allocate_reserved",
    "device_request_of",
    "device_resources",
    "device_table",
    "explain_devices",
    "node_devices",
    "refusal_of",
    "score_devices",
    "smallest_release",
    "terms_for",
]
