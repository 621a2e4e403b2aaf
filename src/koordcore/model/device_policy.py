"""What an administrator sets for device scheduling (``DeviceShareArgs``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields, names_its_fields
from koordcore.model.devices import FPGA, GPU_MEMORY, GPU_MEMORY_RATIO, NPU_CORE, RDMA


class ScoringStrategy(StrEnum):
    """Spread over idle devices, or fill devices that are in use."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


@names_its_fields
@record(kw_only=True, cache_hash=True)
class DevicePolicy:
    """How nodes and devices are ranked, and what must not be shared.

    Parameters
    ----------
    strategy
        One strategy ranks both nodes and devices.
    weights
        Resource name to weight (at least 1); other resources are invisible to scores.
    template_resources
        A shared request for one of these must equal a vendor's template.
    template_source
        Namespace and name of the ConfigMap with these templates.
    unshareable_models
        ``(vendor, model)`` whose cards are never shared.
    align_numa
        Give hints to the topology manager.
    adapt_plugins
        Bound pods say what vendors' device plugins read (gate ``DevicePluginAdaption``): all pods with
        devices, none, or with ``None`` those whose cards cannot start without.
    """

    strategy: ScoringStrategy = attrs.field(
        default=ScoringStrategy.LEAST_ALLOCATED, converter=ScoringStrategy
    )
    weights: immutabledict[str, int] = attrs.field(
        default=immutabledict({GPU_MEMORY_RATIO: 1, GPU_MEMORY: 1, RDMA: 1, FPGA: 1}),
        converter=immutabledict,
    )
    template_resources: frozenset[str] = attrs.field(default=frozenset({NPU_CORE}), converter=frozenset)
    template_source: tuple[str, str] = ("koordinator-system", "gpu-shared-resource-templates")
    unshareable_models: tuple[tuple[str, str], ...] = ()
    align_numa: bool = True
    adapt_plugins: bool | None = None

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        for name, weight in self.weights.items():
            if weight < 1:
                raise ModelError(f"weights[{name}]: expected at least 1, got {weight}")


DEFAULT_DEVICE_POLICY: Final = DevicePolicy()
"""What applies where nothing is set: spread by memory, ratio, rdma and fpga."""
