"""The best nodes of one decision with every plugin's weighted score, as a Markdown table.

Specification section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import attrs
import numpy as np

from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.scheduling.cycle import open_workspace
from koordcore.snapshot import ClusterSnapshot

__all__ = ["NodeScore", "render_score_table", "score_nodes"]


@attrs.frozen
class NodeScore:
    """One node's total and what it is made of.

    Parameters
    ----------
    total
        Sum that decides.
    scores
        Plugin and its weighted score, in the plugins' order.
    """

    node: str
    total: int
    scores: tuple[tuple[str, int], ...] = ()


def score_nodes(
    snapshot: ClusterSnapshot, pod: Pod, *, policy: Policy = Policy(), now: datetime | None = None
) -> tuple[NodeScore, ...]:
    """Score every node that can take the pod, best first, equal ones by name.

    Parameters
    ----------
    snapshot
        The cluster; it is not changed.
    pod
        Who asks.
    policy
        What decides.
    now
        The clock, for plugins that look at the age of things.
    """
    workspace = open_workspace(snapshot, policy, now)
    scheduling_class = PluginSet(workspace, policy).class_of(pod)
    if isinstance(scheduling_class, Refusal) or scheduling_class.refuse() is not None:
        return ()
    feasible = scheduling_class.feasible()
    weights = {setting.name: setting.weight for setting in policy.plugins}
    columns = [
        (name, scores * weights[name]) for name, scores in scheduling_class.score_table(feasible).items()
    ]
    rows = []
    for row in np.flatnonzero(feasible).tolist():
        scores = tuple((name, int(column[row])) for name, column in columns)
        rows.append(NodeScore(workspace.layout.names[row], sum(score for _, score in scores), scores))
    return tuple(sorted(rows, key=lambda one: (-one.total, one.node)))


def render_score_table(pod: str, scores: Sequence[NodeScore], top: int) -> str:
    """Write the ``top`` best nodes as a Markdown table.

    Parameters
    ----------
    pod
        ``namespace/name``.
    scores
        In any order; equal totals are sorted by name. All list the same plugins in the same order; the
        columns are named after those of the best.
    top
        Number of rows; 0 gives the header alone.

    Returns
    -------
    str
        The table without a newline at its end; nothing where there are no scores.

    Examples
    --------
    >>> print(render_score_table("default/p", [NodeScore("n1", 80, (("Fit", 80),))], 1))
    | # | Pod | Node | Score | Fit |
    | --- | --- | --- | ---:| ---:|
    | 0 | default/p | n1 | 80 | 80 |
    """
    if not scores:
        return ""
    ranked = sorted(scores, key=lambda one: (-one.total, one.node))
    columns = [name for name, _ in ranked[0].scores]
    shown = ranked[: max(0, top)]
    header = ["#", "Pod", "Node", "Score", *columns]
    # Upstream's renderer tells text from numbers by the rows: without any, every column is one of numbers.
    rule = [" --- " if shown and index < 3 else " ---:" for index in range(len(header))]
    lines = [_line(header), f"|{'|'.join(rule)}|"]
    for rank, one in enumerate(shown):
        cells = [str(rank), pod, one.node, str(one.total), *(str(score) for _, score in one.scores)]
        lines.append(_line(cells))
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
