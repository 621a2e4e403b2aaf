"""The decisions of a call as columns, for data frames."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from koordcore.model.decisions import Bound, Nominated, NotOurs, PodDecision, Unschedulable, Waiting

_COLUMNS: Final = ("namespace", "pod", "outcome", "node", "score", "why")


def decision_table(decisions: Iterable[PodDecision]) -> dict[str, list[Any]]:
    """Give one row per decision, in their order; see :meth:`koordcore.ScheduleResult.table`."""
    rows = [(one.pod.namespace, one.pod.name, *_cells(one)) for one in decisions]
    return {name: [row[place] for row in rows] for place, name in enumerate(_COLUMNS)}


def _cells(one: PodDecision) -> tuple[str, str, int | None, str]:
    """Give outcome, node, score and reason."""
    match one:
        case Bound():
            return "bound", one.node, one.score, ""
        case Nominated():
            return "nominated", one.node, None, ", ".join(f"once {victim.pod} left" for victim in one.victims)
        case Waiting():
            return "waiting", one.held.node if one.held else "", None, one.reason
        case Unschedulable():
            return "unschedulable", "", None, one.message
        case NotOurs():
            return "not ours", "", None, one.message
