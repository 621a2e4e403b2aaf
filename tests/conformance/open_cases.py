"""Cases that still come out differently for no reason that a ruling gives; the runner shows them as wrong."""

from __future__ import annotations

from typing import Final

_CHOICE = "other cards, CPUs or NUMA nodes on the same node, legal but not shown to be better"
_NUMBERS = "another NUMA score of a node that has a reservation the pod may use"
_BLAME = "a node with a reservation and a topology policy is refused under another feature's name"
_LENT = "another answer about CPUs that a reservation holds"

OPEN: Final = {
    "cycle.decide": {
        "d029-gpu": _NUMBERS,
        "d034-gpu": _BLAME,
        "d035-gpu": "a reservation is used that the reference cannot serve the pod from",
        "d047-gpu": _BLAME,
        "d050-gpu": _BLAME,
        "d051-gpu": _BLAME,
        "d082-mixed": _CHOICE,
        "d083-mixed": _NUMBERS,
    },
    "cycle.sequence": {
        "s015-cpu": "the nodes that remain feasible differ after the fifth step",
        "s027-gpu": _CHOICE,
        "s028-gpu": _CHOICE,
        "s030-gpu": _LENT,
        "s032-gpu": _CHOICE,
        "s034-gpu": _CHOICE,
        "s035-gpu": "a message about a quota leaves out a resource whose runtime share is 0",
        "s039-mixed": "the runtime share in one message is 410m CPU above what the pool leaves",
        "s044-mixed": _LENT,
        "s047-mixed": _LENT,
        "s050-mixed": "one node more is feasible in one step",
        "s055-mixed": _LENT,
    },
}
"""Subject to case to what differs; a case that passes again has to leave the list."""
