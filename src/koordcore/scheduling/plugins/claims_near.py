"""Claims, CPUs and Koordinator's devices on the same NUMA nodes, where a policy holds a pod to some."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.claims.near import ClaimSide, nodes_of
from koordcore.allocators.claims.states import Answers
from koordcore.framework.numa_sides import NUMASides
from koordcore.model.claims import ClaimAllocation
from koordcore.model.decisions import Shortfall
from koordcore.model.pods import Pod
from koordcore.scheduling.plugins.claim_ledger import ClaimLedger


def claim_side(
    ledger: ClaimLedger, answers: Answers | None, settled: Sequence[ClaimAllocation], row: int
) -> ClaimSide | None:
    """Make what the choice of NUMA nodes asks of a pod's claims; ``None`` where no device tells its own.

    Parameters
    ----------
    ledger
        Who has what.
    answers
        What the claims get that are to be allocated; ``None`` where there are none.
    settled
        What the others are allocated already.
    row
        The node.
    """
    table = ledger.devices.table(ledger.devices.shape[row])
    if not table.near_numa.by_node:
        return None
    places = ledger.devices.places(row)
    had = [
        places[one.driver, one.pool][one.device]
        for allocation in settled
        for one in allocation.results
        if one.device in places.get((one.driver, one.pool), {})
    ]
    return ClaimSide(ledger.states, int(ledger.numbers[row]), answers, nodes_of(table, had))


class NearClaims:
    """Tells for one class of pods where claims and all else are to be had near the same NUMA nodes.

    Parameters
    ----------
    sides
        Who chooses NUMA nodes.
    ledger
        Who has what.
    pod
        Some pod of the class.
    side_at
        Gives the side of the class's claims on a node.
    """

    def __init__(
        self, sides: NUMASides, ledger: ClaimLedger, pod: Pod, side_at: Callable[[int], ClaimSide | None]
    ) -> None:
        self._sides = sides
        self._ledger = ledger
        self._pod = pod
        self._side_at = side_at
        self._known: dict[Hashable, tuple[Shortfall, ...]] = {}
        self._table: object = None

    def forget(self) -> None:
        """Forget what was worked out: other claims are allocated now."""
        self._known.clear()

    def allowed(self, rows: Rows, among: BoolVector) -> BoolVector:
        """Tell which of the nodes among some, ``(n,)``, have NUMA nodes that serve everything."""
        chosen = self._concerned(rows, among)
        if not len(chosen):
            return among
        numbers: IntVector = np.arange(len(self._ledger.numbers))[rows]
        found = among.copy()
        for place in chosen.tolist():
            found[place] = not self.lacks(int(numbers[place]))
        return found

    def _concerned(self, rows: Rows, among: BoolVector) -> IntVector:
        chooser = self._sides.chooser
        tells = self._ledger.devices.tells_numa
        if chooser is None or not tells.any():
            return np.zeros(0, np.int64)
        near: BoolVector = among & tells[np.array(self._ledger.devices.shape, np.int64)[rows]]
        held = chooser.holding(self._pod, rows) if near.any() else None
        return np.flatnonzero(near & held) if held is not None else np.zeros(0, np.int64)

    def lacks(self, row: int) -> tuple[Shortfall, ...]:
        """Say what keeps a node from serving everything near the same NUMA nodes; empty where it does."""
        chooser = self._sides.chooser
        if chooser is None or chooser.holding(self._pod, slice(row, row + 1)) is None:
            return ()
        table, ids = chooser.states_for(self._pod)
        if table is not self._table:
            self._known.clear()
            self._table = table
        side = self._side_at(row)
        if side is None:
            return ()
        key = (int(ids[row]), side.number, side.settled)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = chooser.lacking_beside(self._pod, row, side)
        return found

    def lines(self, row: int) -> tuple[str, ...]:
        """Say what each NUMA node has, and has not, where none serves everything."""
        chooser, side = self._sides.chooser, self._side_at(row)
        return () if chooser is None or side is None else chooser.lines_beside(self._pod, row, side)
