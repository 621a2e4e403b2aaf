"""NodeResourcesFit for resources that device plugins list on some nodes and claims serve on others."""

from __future__ import annotations

from collections.abc import Hashable

from koordcore._arrays import AMOUNT_LIMIT, IntMatrix, IntVector
from koordcore.framework.node_view import NodeView
from koordcore.scheduling.plugins.resources import FitEvaluator


class PartlyServedFit(FitEvaluator):
    """Filter and score of pods that ask for resources which claims serve on nodes that do not list them."""

    amounts_only = False
    served: tuple[int, ...] = ()
    """Rows of these resources."""

    @property
    def amounts(self) -> IntVector:
        amounts = super().amounts
        amounts[list(self.served)] = 0
        return amounts

    def _free(self, view: NodeView) -> IntMatrix:
        return self._open(super()._free(view), view)

    def _whole(self, view: NodeView) -> IntMatrix:
        return self._open(super()._whole(view), view)

    def _open(self, amounts: IntMatrix, view: NodeView) -> IntMatrix:
        """Let nodes that do not list a resource have enough of it: its devices are a claim's."""
        found = amounts.copy()
        whole = self._workspace.layout.allocatable
        for row in self.served:
            found[row, whole[row, view.rows] <= 0] = AMOUNT_LIMIT
        return found

    def fits_everywhere(self) -> bool:
        return False

    @property
    def batch_key(self) -> Hashable:
        return None
