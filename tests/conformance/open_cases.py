"""Cases that still come out differently for no reason that a ruling gives; the runner shows them as wrong."""

from __future__ import annotations

from typing import Final

_CHOICE = "other cards, CPUs or NUMA nodes on the same node, legal but not shown to be better"
_BLAME = "a node with a reservation and a topology policy is refused under another feature's name"
_LENT = "another answer about CPUs that a reservation holds"

OPEN: Final = {
    "cycle.decide": {
        "d051-gpu": _BLAME,
        "d082-mixed": _CHOICE,
    },
    "cycle.sequence": {
        "s015-cpu": "the nodes that remain feasible differ after the fifth step",
        "s027-gpu": _CHOICE,
        "s028-gpu": _CHOICE,
        "s034-gpu": _CHOICE,
        "s039-mixed": "the runtime share in one message is 410m CPU above what the pool leaves",
        "s050-mixed": "one node more is feasible in one step",
        "s055-mixed": _LENT,
    },
}
"""Subject to case to what differs; a case that passes again has to leave the list."""
