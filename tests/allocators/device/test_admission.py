"""What the admission webhook says of device requests that make no sense."""

from __future__ import annotations

import pytest

from koordcore.allocators.device.admission import complete_container, validate_containers

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


@pytest.mark.parametrize(
    ("percent", "error"),
    [
        ("0", "the requested GPU must be greater than zero"),
        ("1", ""),
        ("100", ""),
        ("101", "the requested GPU must be percentage of 100"),
        ("200", ""),
        ("250", "the requested GPU must be percentage of 100"),
    ],
)
def test_more_than_one_card_in_percent_is_a_number_of_whole_cards(percent: str, error: str) -> None:
    found = validate_containers([{K + "gpu": percent}])
    assert found.reason == (f'{PATH}: Invalid value: "{percent}": {error}' if error else "")


@pytest.mark.parametrize(
    ("requests", "completed"),
    [
        ({"cpu": "1"}, None),
        ({K + "gpu": "50"}, {K + "gpu-core": "50", K + "gpu-memory-ratio": "50", K + "gpu.shared": "1"}),
        ({K + "gpu": "300"}, {K + "gpu-core": "300", K + "gpu-memory-ratio": "300", K + "gpu.shared": "3"}),
        ({K + "gpu-core": "200"}, {K + "gpu-core": "200", K + "gpu.shared": "2"}),
        ({K + "gpu-memory": "8Gi"}, {K + "gpu-memory": "8Gi", K + "gpu.shared": "1"}),
        ({K + "gpu-memory-ratio": "100"}, {K + "gpu-memory-ratio": "100", K + "gpu.shared": "1"}),
        ({K + "gpu.shared": "2", K + "gpu-memory-ratio": "200"}, None),
    ],
)
def test_the_number_of_cards_is_added_where_any_amount_of_a_card_is_asked_for(
    requests: dict[str, str], completed: dict[str, str] | None
) -> None:
    """Who says the number, or asks for no card, is left alone."""
    done = complete_container(requests, {})
    assert done.mutated == (completed is not None)
    assert dict(done.requests) == (requests if completed is None else completed)
