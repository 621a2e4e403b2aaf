"""Manifests as people write them load, each file alone; what is odd in them is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from koordcore.manifests import load
from tests.conformance.__main__ import SHARED

EXAMPLES = SHARED.parent / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))
ODD = {
    "ascend_npu": ["allocationScore as text"],
    "gang_groups": ["taken as its JSON text"],
    "gpu_partition": ["link type between", "allocationScore as text"],
    "gpu_share_hami": ["write that instead"],
    "reservation_affinity": ["keep out owners with a reservation affinity alone"],
    "network_topology": ["no pod fits on this node"],
    "scheduler_config_reservation_preemption": ["write that instead"],
}


@pytest.mark.skipif(not FILES, reason="the example manifests are not here")
@pytest.mark.parametrize("path", FILES or [EXAMPLES], ids=[path.stem for path in FILES] or None)
def test_examples_load(path: Path) -> None:
    loaded = load([path])
    assert sum(loaded.counts.values()) > 0
    found = [one.message for one in loaded.warnings]
    for expected in ODD.get(path.stem, []):
        assert any(expected in message for message in found), found
    if path.stem not in ODD:
        assert not found
