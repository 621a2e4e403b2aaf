"""What the admission webhook says of device requests that make no sense."""

from __future__ import annotations

import pytest

from koordcore.allocators.device.admission import validate_containers

K = "koordinator.sh/"
PATH = "pod.spec.containers[*].resources.requests"


@pytest.mark.parametrize(
    ("requests", "errors"),
    [
        ({"gpu.shared": "2", "gpu-core": "100", "gpu-memory-ratio": "100"}, []),
        (
            {"gpu.shared": "3", "gpu-core": "99", "gpu-memory-ratio": "100"},
            ['Invalid value: "100": the requested gpuMemoryRatio must multiple of shared'],
        ),
        (
            {"gpu.shared": "3", "gpu-core": "100", "gpu-memory-ratio": "50"},
            [
                'Invalid value: "100": the requested gpuCore must multiple of shared',
                'Invalid value: "50": the requested gpuMemoryRatio must multiple of shared',
            ],
        ),
        ({"gpu.shared": "3", "gpu-memory": "100"}, []),
        (
            {"gpu.shared": "0", "gpu-core": "100", "gpu-memory-ratio": "50"},
            ['Invalid value: "0": the requested GPU must be greater than zero'],
        ),
    ],
)
def test_shares_of_a_container_divide_among_its_cards(requests: dict[str, str], errors: list[str]) -> None:
    """Core and ratio are counted over all cards, so that each card gets a whole number; memory need not."""
    found = validate_containers([{K + name: amount for name, amount in requests.items()}])
    assert found.errors == tuple(f"{PATH}: {error}" for error in errors)
    assert found.allowed == (not errors)
