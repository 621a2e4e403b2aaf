"""One pod explained: every node's verdict and score, and what would make it fit."""

from __future__ import annotations

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import IntVector
from koordcore._workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.schedule.classes import FeatureSet, PodClass
from koordcore.schedule.feature import Refusal
from koordcore.snapshot import ClusterSnapshot

__all__ = ["Explanation", "Help", "NodeVerdict", "explain"]


@attrs.frozen(kw_only=True)
class NodeVerdict:
    """What one node says.

    Parameters
    ----------
    node
        Its name.
    feature, shortfalls
        The first feature that refused, and what it lacks; empty where the pod fits.
    scores
        Feature to score 0..100, before weights; empty where the pod does not fit.
    total
        Weighted sum; -1 where the pod does not fit.
    """

    node: str
    feature: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    scores: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    total: int = -1

    @property
    def fits(self) -> bool:
        """The pod can go there."""
        return self.total >= 0


@attrs.frozen
class Help:
    """A change that would give the pod a node.

    Parameters
    ----------
    change
        What would have to be different.
    nodes
        How many nodes would then take the pod.
    example
        The first of them by name.
    """

    change: str
    nodes: int
    example: str


@attrs.frozen(kw_only=True)
class Explanation:
    """All that is to be said about one pod.

    Parameters
    ----------
    pod
        Who.
    bound_to
        Where it is now; ``None`` while it waits. It is judged as if it were not there.
    refusal
        Why no node was asked; empty where nodes were.
    verdicts
        One per node: best first, then by name.
    help
        What would help, fewest changes first; empty where the pod fits.
    """

    pod: PodKey
    bound_to: str | None
    refusal: str = ""
    verdicts: tuple[NodeVerdict, ...] = ()
    help: tuple[Help, ...] = ()

    @property
    def best(self) -> str | None:
        """The node that ``schedule`` would take."""
        return self.verdicts[0].node if self.verdicts and self.verdicts[0].fits else None


def explain(snapshot: ClusterSnapshot, pod: Pod, *, policy: Policy = Policy()) -> Explanation:
    """Explain where a pod can go, where not, and what would help.

    Parameters
    ----------
    snapshot
        The cluster. Where it holds the pod, the pod is taken out first.
    pod
        Bound or pending, or one that the snapshot does not know.
    policy
        What decides.
    """
    bound_to = snapshot.location.get(pod.key)
    if bound_to is not None:
        snapshot = snapshot.forget(pod.key)
    pod = pod.at(None)
    workspace = Workspace(snapshot)
    features = FeatureSet(workspace, policy)
    pod_class = features.class_of(pod)
    if isinstance(pod_class, Refusal):
        return Explanation(pod=pod.key, bound_to=bound_to, refusal=pod_class.reason)
    refused = pod_class.refuse()
    if refused is not None:
        return Explanation(pod=pod.key, bound_to=bound_to, refusal=refused[1].reason)
    feasible = pod_class.feasible()
    totals = pod_class.totals(feasible)
    table = pod_class.score_table(feasible)
    verdicts = [
        _verdict(pod_class, workspace.layout.names[row], row, int(totals[row]), table)
        for row in range(len(totals))
    ]
    verdicts.sort(key=lambda one: (-one.total, one.node))
    helps = () if feasible.any() else _what_helps(pod_class, workspace)
    return Explanation(pod=pod.key, bound_to=bound_to, verdicts=tuple(verdicts), help=helps)


def _verdict(
    pod_class: PodClass, node: str, row: int, total: int, table: dict[str, IntVector]
) -> NodeVerdict:
    if total >= 0:
        scores = {name: int(column[row]) for name, column in table.items()}
        return NodeVerdict(node=node, scores=scores, total=total)
    for part in pod_class.parts:
        if part.setting.filters:
            shortfalls = part.evaluator.shortfalls(row)
            if shortfalls:
                return NodeVerdict(node=node, feature=part.feature.name, shortfalls=shortfalls)
    return NodeVerdict(node=node)


def _what_helps(pod_class: PodClass, workspace: Workspace) -> tuple[Help, ...]:
    """Leave out one feature at a time: if nodes remain, that feature alone stands in the way there."""
    number = len(workspace.layout.names)
    masks = []
    for part in pod_class.parts:
        mask = part.evaluator.fits(slice(None)) if part.setting.filters else None
        if mask is not None and not mask.all():
            masks.append((part, mask))
    found = []
    for part, _ in masks:
        others = np.ones(number, bool)
        for other, mask in masks:
            if other is not part:
                others &= mask
        rows = np.flatnonzero(others).tolist()
        if rows:
            nearest = min(rows, key=lambda row: (_lacking(part.evaluator.shortfalls(row)), row))
            change = "; ".join(_describe(one) for one in part.evaluator.shortfalls(nearest))
            name = workspace.layout.names[nearest]
            found.append(Help(f"{part.feature.name} alone refuses: {change}", len(rows), name))
    return tuple(sorted(found, key=lambda one: (-one.nodes, one.change)))


def _lacking(shortfalls: tuple[Shortfall, ...]) -> tuple[int, int]:
    return len(shortfalls), sum(one.lacking * 1000 // max(1, one.requested) for one in shortfalls)


def _describe(shortfall: Shortfall) -> str:
    if not shortfall.resource:
        return shortfall.reason
    return (
        f"{shortfall.reason} ({shortfall.requested} asked, {shortfall.available} free,"
        f" {shortfall.lacking} short)"
    )
