"""NodeNUMAResource where no node tells its topology: pods that ask for nothing special are only scored."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from copy import copy
from functools import lru_cache

import numpy as np

from koordcore._arrays import AMOUNT_LIMIT, IntMatrix, IntVector
from koordcore._record import record
from koordcore.allocators.numa_request import CPURequest
from koordcore.framework.evaluator import Evaluator, Scope
from koordcore.framework.node_view import FREE, REQUESTED, NodeView
from koordcore.framework.workspace import Workspace
from koordcore.model.numa import NUMAArgs
from koordcore.model.plugin_args import FitArgs, ScoringStrategy
from koordcore.model.resources import Resources, is_scalar
from koordcore.scheduling.plugins.resources import ScoredResources
from koordcore.scoring.resources import HALF, least_percent, most_percent


@record(cache_hash=True)
class WholeNode:
    """A request that no NUMA node, CPU or device enters into."""

    requests: Resources


@lru_cache(maxsize=4096)
def whole_node(asked: CPURequest) -> WholeNode | None:
    """Give a request as one for amounts only; ``None`` where it is more than that."""
    return WholeNode(asked.requests) if asked == CPURequest(requests=asked.requests) else None


class WholeNodeEvaluator(Evaluator):
    """Any node does; it is rated as a whole, by what its pods ask for."""

    scope = Scope.NODE
    amounts_only = True

    def __init__(self, workspace: Workspace, requests: Resources, args: NUMAArgs) -> None:
        kept = [(name, weight) for name, weight in args.weights if not is_scalar(name) or requests.get(name)]
        self._scored = ScoredResources(workspace, kept, FitArgs())
        own = [min(requests.get(name, 0), AMOUNT_LIMIT) for name in self._scored.names]
        most = args.scoring is ScoringStrategy.MOST_ALLOCATED
        self._percent = most_percent if most else least_percent
        self._most = most
        self._key = (tuple(kept), most)
        self._take(np.array(own, np.int64)[:, None])

    def _take(self, own: IntMatrix) -> None:
        self.own = own
        # A hundred times what the pod takes of what is free, where floats tell that exactly.
        self._taken = None if self._most or not self._scored.capacity.exact else own * 100.0 - HALF

    def moved(self) -> bool:
        self._take(self.own)
        return True

    @property
    def batch_key(self) -> Hashable:
        return self._key

    def together(self, ones: Sequence[WholeNodeEvaluator]) -> WholeNodeEvaluator:
        made = copy(self)
        made._take(np.stack([one.own for one in ones]))  # noqa: SLF001  # a copy of its own
        return made

    def scores(self, view: NodeView) -> IntVector:
        scored = self._scored
        if self._taken is not None:
            left = view.amounts[FREE][scored.index] * 100.0 - self._taken
            return scored.mean(scored.capacity.at(view.rows).share(left), view.rows)
        used = view.amounts[REQUESTED][scored.index] + self.own
        return scored.mean(self._percent(used, scored.capacity.at(view.rows)), view.rows)
