"""What the admission webhooks do to device requests: complete them, and refuse impossible ones.

Upstream: ``pkg/webhook/pod/mutating/device_resource_spec.go`` and ``validating/verify_device_resource.go``.
Functions take and give wire quantities, because an admitted pod is written back as it was, save for what is
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.devices import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED, NPU_CORE
from koordcore.model.quantity import format_quantity, parse_quantity

_LOOKED_AT: Final = (GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, GPU_SHARED)
_PATH: Final = "pod.spec.containers[*].resources.requests"


@record(kw_only=True)
class MutatedContainer:
    """A container's amounts after completion.

    Parameters
    ----------
    requests, limits
        Wire quantities.
    mutated
        Anything was changed.
    """

    requests: immutabledict[str, Any]
    limits: immutabledict[str, Any]
    mutated: bool


def complete_container(requests: Mapping[str, Any], limits: Mapping[str, Any]) -> MutatedContainer:
    """Split ``koordinator.sh/gpu`` into core and ratio, and add the number of cards where it is missing.

    Nothing is validated here. A container without limits gets those that belong to what is added (upstream
    crashes).

    Parameters
    ----------
    requests, limits
        Wire quantities of one container.

    Examples
    --------
    >>> done = complete_container({"koordinator.sh/gpu": "200"}, {"koordinator.sh/gpu": "200"})
    >>> sorted(done.requests.items())[2]
    ('koordinator.sh/gpu.shared', '2')
    """
    if not any(name in requests for name in _LOOKED_AT):
        return MutatedContainer(requests=immutabledict(requests), limits=immutabledict(limits), mutated=False)
    wanted, capped = dict(requests), dict(limits)
    mutated = False
    if GPU in wanted:
        percent = format_quantity(parse_quantity(wanted.pop(GPU)))
        capped.pop(GPU, None)
        for amounts in (wanted, capped):
            amounts[GPU_CORE] = amounts[GPU_MEMORY_RATIO] = percent
        mutated = True
    if GPU_SHARED not in wanted:
        by = wanted.get(GPU_MEMORY_RATIO, wanted.get(GPU_CORE, "0"))
        percent_points = parse_quantity(by)
        several = percent_points > 100 and percent_points % 100 == 0
        cards = format_quantity(percent_points // 100 if several else 1)
        wanted[GPU_SHARED] = capped[GPU_SHARED] = cards
        mutated = True
    return MutatedContainer(requests=immutabledict(wanted), limits=immutabledict(capped), mutated=mutated)


@record
class AdmissionVerdict:
    """Whether a pod is let in, and what is wrong with it.

    Parameters
    ----------
    errors
        In the order of containers.
    """

    errors: tuple[str, ...] = ()

    @property
    def allowed(self) -> bool:
        """Nothing is wrong."""
        return not self.errors

    @property
    def reason(self) -> str:
        """All errors as one text, equal ones once."""
        different = list(dict.fromkeys(self.errors))
        return different[0] if len(different) == 1 else f"[{', '.join(different)}]" if different else ""


def validate_containers(containers: Iterable[Mapping[str, Any]]) -> AdmissionVerdict:
    """Check the requests (wire quantities) of each container."""
    return AdmissionVerdict(tuple(error for requests in containers for error in _container_errors(requests)))


def _invalid(amount: int, message: str) -> str:
    return f'{_PATH}: Invalid value: "{format_quantity(amount)}": {message}'


def _forbidden(message: str) -> str:
    return f"{_PATH}: Forbidden: {message}"


def _container_errors(requests: Mapping[str, Any]) -> list[str]:
    amounts = {name: parse_quantity(requests[name]) for name in (*_LOOKED_AT, NPU_CORE) if name in requests}
    if GPU in amounts and GPU_SHARED in amounts:
        return [_forbidden("Forbidden declare GPU and GPU share at same time")]
    if GPU in amounts:
        return _percent_errors(amounts[GPU])
    if GPU_SHARED not in amounts:
        return []
    cards = amounts[GPU_SHARED]
    errors = []
    if cards <= 0:
        errors.append(_invalid(cards, "the requested GPU must be greater than zero"))
    if amounts.get(NPU_CORE, 0):
        return errors
    memory, ratio, core = (amounts.get(name, 0) for name in (GPU_MEMORY, GPU_MEMORY_RATIO, GPU_CORE))
    if memory and ratio:
        errors.append(_forbidden("declare GPU memory and GPU memory ratio at same time"))
    elif not memory and not ratio:
        errors.append(_forbidden("GPU memory and GPU memory ratio all is zero"))
    if cards > 0 and core % cards:
        errors.append(_invalid(core, "the requested gpuCore must multiple of shared"))
    if cards > 0 and ratio % cards:
        errors.append(_invalid(ratio, "the requested gpuMemoryRatio must multiple of shared"))
    return errors


def _percent_errors(percent: int) -> list[str]:
    if percent <= 0:
        return [_invalid(percent, "the requested GPU must be greater than zero")]
    if percent > 100 and percent % 100:
        return [_invalid(percent, "the requested GPU must be percentage of 100")]
    return []
