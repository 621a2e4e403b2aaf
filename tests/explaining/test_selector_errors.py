"""Selectors that err on some devices of pods that wait."""

from __future__ import annotations

from koordcore.explaining.selector_errors import selector_errors
from koordcore.model.claims import (
    ClaimRequest,
    ClaimSpec,
    DeviceClass,
    DeviceSubRequest,
    ResourceClaimTemplate,
)
from koordcore.snapshot import ClusterSnapshot
from tests.scheduling.test_claims import DRIVER, cluster, pod


def world(*selectors: str, own: tuple[str, ...] = ()) -> ClusterSnapshot:
    kind = DeviceClass(name="odd", selectors=selectors)
    spec = ClaimSpec((ClaimRequest("r", (DeviceSubRequest(class_name="odd", selectors=own),)),))
    template = ResourceClaimTemplate(name="t", spec=spec)
    return cluster({"a": 2, "b": 1}, kind, template, pending=[pod("p", "t"), pod("q", "one")])


def test_a_class_and_a_claim_are_told_with_devices_and_error() -> None:
    snapshot = world(f"device.driver == '{DRIVER}'", own=(f"device.attributes['{DRIVER}'].x == 1",))
    (found,) = selector_errors(snapshot, snapshot.pending)
    assert found.where.startswith("claim default/p-gpu-")
    assert found.where.endswith("request r: selector #0")
    assert (found.devices, found.first) == (3, f"{DRIVER}/a/gpu-0")
    assert "no such key: x" in found.error

    snapshot = world(f"device.attributes['{DRIVER}'].x == 1")
    (found,) = selector_errors(snapshot, snapshot.pending)
    assert str(found).startswith("DeviceClass odd: selector #0 errs on 3 devices, left out, such as")


def test_what_an_earlier_selector_leaves_out_is_not_asked_about() -> None:
    snapshot = world("device.driver == 'nobody'", f"device.attributes['{DRIVER}'].x == 1")
    assert selector_errors(snapshot, snapshot.pending) == ()


def test_classes_that_nobody_asks_for_are_not_looked_at() -> None:
    snapshot = world(f"device.attributes['{DRIVER}'].x == 1")
    assert selector_errors(snapshot, [one for one in snapshot.pending if one.name == "q"]) == ()
