"""Cards as running pods hold them, and the work that idle ones are kept for."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import names_its_fields
from koordcore.model.pods import PodKey
from koordcore.scoring.fragmentation import WorkloadMix
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode


@names_its_fields
@record(kw_only=True)
class Fragments:
    """Cards as they are held, and the work that idle ones are kept for.

    Parameters
    ----------
    mix
        The work to be expected.
    nodes
        Nodes with cards, with what is idle; nodes that are not listed play no part.
    demands, slots
        Of each pod that may move: what it asks for, and the minors that it holds. A pod that is not listed
        stays.
    worth
        Card milli that a move must win for each unit of its cost.
    most
        Moves at most; ``None`` for as many as are worth it.
    """

    mix: WorkloadMix
    nodes: tuple[GpuNode, ...]
    demands: Mapping[PodKey, GpuDemand] = attrs.field(factory=dict, converter=immutabledict)
    slots: Mapping[PodKey, tuple[int, ...]] = attrs.field(factory=dict, converter=immutabledict)
    worth: int = CARD // 10
    most: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.worth < 1:
            raise ModelError(f"worth: a move must win at least 1 card milli, not {self.worth}")
        for pod, demand in self.demands.items():
            if len(self.slots.get(pod, ())) != demand.gpus:
                raise ModelError(f"{pod} asks for {demand.gpus} cards and holds {self.slots.get(pod, ())}")
