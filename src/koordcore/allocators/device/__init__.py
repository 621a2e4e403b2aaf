"""Exact devices for one pod on one node: GPUs and their kin, NICs, FPGAs."""

from koordcore.allocators.device.allocate import allocate_devices
from koordcore.allocators.device.hints import DeviceHints, DeviceNUMAHint, device_hints
from koordcore.allocators.device.policy import DEFAULT_DEVICE_POLICY, DevicePolicy, ScoringStrategy
from koordcore.allocators.device.request import device_request_of
from koordcore.allocators.device.reservations import DeviceReservation, allocate_reserved, terms_for
from koordcore.allocators.device.scoring import normalize_scores, score_devices
from koordcore.allocators.device.state import DeviceConflict, NodeDevices, node_devices
from koordcore.allocators.device.view import PLAIN_TERMS, Terms

__all__ = [
    "DEFAULT_DEVICE_POLICY",
    "PLAIN_TERMS",
    "DeviceConflict",
    "DeviceHints",
    "DeviceNUMAHint",
    "DevicePolicy",
    "DeviceReservation",
    "NodeDevices",
    "ScoringStrategy",
    "Terms",
    "allocate_devices",
    "allocate_reserved",
    "device_hints",
    "device_request_of",
    "node_devices",
    "normalize_scores",
    "score_devices",
    "terms_for",
]
