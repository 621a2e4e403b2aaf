"""Kernels over nodes: masks of what fits and integer scores 0..100, arrays in and arrays out."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.scoring.fragmentation import (
        WorkloadMix as WorkloadMix,
        workload_mix as workload_mix,
    )
    from koordcore.scoring.gpu_share import (
        GpuDemand as GpuDemand,
        GpuNode as GpuNode,
        fullest_slots as fullest_slots,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.scoring.fragmentation": ("WorkloadMix", "workload_mix"),
            "koordcore.scoring.gpu_share": ("GpuDemand", "GpuNode", "fullest_slots"),
        },
    )
