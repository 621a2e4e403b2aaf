"""What a pod wishes of the CPUs that it is bound to, and why there are not enough."""

from __future__ import annotations

from enum import StrEnum

from koordcore._record import record
from koordcore.model.numa import (
    CPUBindPolicy,
    CPUExclusivePolicy,
    NUMAAllocateStrategy,
)


class CPUShortage(StrEnum):
    """Why CPUs cannot be had; the texts are upstream's."""

    NOT_ENOUGH = "not enough cpus available to satisfy request"
    FULL_PCPUS = "insufficient CPUs to satisfy required cpu bind policy FullPCPUs"
    SPREAD_BY_PCPUS = "insufficient CPUs to satisfy required cpu bind policy SpreadByPCPUs"
    FAILED = "failed to allocate cpus"


@record(kw_only=True)
class CPUWish:
    """How a pod wants its CPUs.

    Parameters
    ----------
    bind_policy
        ``FULL_PCPUS`` takes whole cores first; everything else spreads over cores.
    required
        Whether the bind policy is a condition and not only a wish.
    exclusive
        Which neighbours to avoid as far as possible.
    strategy
        ``MOST_ALLOCATED`` fills the fullest NUMA node or socket first, everything else the emptiest.
    max_ref_count
        How many holders one CPU may have.
    """

    bind_policy: CPUBindPolicy = CPUBindPolicy.FULL_PCPUS
    required: bool = False
    exclusive: CPUExclusivePolicy = CPUExclusivePolicy.NONE
    strategy: NUMAAllocateStrategy = NUMAAllocateStrategy.LEAST_ALLOCATED
    max_ref_count: int = 1
