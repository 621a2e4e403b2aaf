"""One pod explained: every node's verdict and score, and what would make it fit."""

from __future__ import annotations

from itertools import chain

import attrs
from immutabledict import immutabledict

from koordcore._arrays import IntVector
from koordcore.framework.plugin import Refusal
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.scheduling.cycle import open_workspace
from koordcore.snapshot import ClusterSnapshot

__all__ = ["Explanation", "Help", "NodeVerdict", "explain"]


@attrs.frozen(kw_only=True)
class NodeVerdict:
    """What one node says.

    Parameters
    ----------
    node
        Its name.
    plugin, shortfalls
        The first plugin that refused, and what all that refuse lack; empty where the pod fits.
    scores
        Plugin to score 0..100, before weights; empty where the pod does not fit.
    total
        Weighted sum; -1 where the pod does not fit.
    """

    node: str
    plugin: str = ""
    shortfalls: tuple[Shortfall, ...] = ()
    scores: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    total: int = -1

    @property
    def fits(self) -> bool:
        """The pod can go there."""
        return self.total >= 0


@attrs.frozen
class Help:
    """What some nodes lack, all of it: with that, the pod would fit.

    Parameters
    ----------
    plugins
        Everybody who refuses there.
    shortfalls
        What the nearest of these nodes lacks.
    nodes
        How many nodes are refused by exactly these plugins.
    nearest
        The one of them that lacks least.
    details
        More about that node, in words: what its devices and NUMA nodes lack, and whose leaving would do.
    """

    plugins: tuple[str, ...]
    shortfalls: tuple[Shortfall, ...]
    nodes: int
    nearest: str
    details: tuple[str, ...] = ()


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
        One per node: best first; those that refuse by how little they lack, then by name.
    help
        What would help, the smallest lack first; empty where the pod fits.
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
    workspace = open_workspace(snapshot, policy)
    plugins = PluginSet(workspace, policy)
    scheduling_class = plugins.class_of(pod)
    if isinstance(scheduling_class, Refusal):
        return Explanation(pod=pod.key, bound_to=bound_to, refusal=scheduling_class.reason)
    refused = scheduling_class.refuse()
    if refused is not None:
        return Explanation(pod=pod.key, bound_to=bound_to, refusal=refused[1].reason)
    feasible = scheduling_class.feasible()
    totals = scheduling_class.totals(feasible)
    table = scheduling_class.score_table(feasible)
    names = workspace.layout.names
    verdicts = [
        _verdict(scheduling_class, names[row], row, int(totals[row]), table) for row in range(len(totals))
    ]
    verdicts.sort(key=lambda one: (-one.total, _lacking(one.shortfalls), one.node))
    reserving = policy.plugin("Reservation") is not None
    helps = () if feasible.any() else _what_helps(workspace, scheduling_class, reserving=reserving)
    return Explanation(pod=pod.key, bound_to=bound_to, verdicts=tuple(verdicts), help=helps)


def _verdict(
    scheduling_class: SchedulingClass, node: str, row: int, total: int, table: dict[str, IntVector]
) -> NodeVerdict:
    if total >= 0:
        scores = {name: int(column[row]) for name, column in table.items()}
        return NodeVerdict(node=node, scores=scores, total=total)
    refusing = _refusing(scheduling_class, row)
    shortfalls = tuple(chain.from_iterable(refusing.values()))
    return NodeVerdict(node=node, plugin=next(iter(refusing), ""), shortfalls=shortfalls)


def _refusing(scheduling_class: SchedulingClass, row: int) -> dict[str, tuple[Shortfall, ...]]:
    """Every plugin that refuses the pod on one node, in filter order, with what it lacks there."""
    found = {}
    for part in scheduling_class.parts:
        shortfalls = part.evaluator.shortfalls(row) if part.setting.filters else ()
        if shortfalls:
            found[part.plugin.name] = shortfalls
    return found


def _details(scheduling_class: SchedulingClass, row: int) -> tuple[str, ...]:
    found = [part.evaluator.details(row) for part in scheduling_class.parts if part.setting.filters]
    return tuple(dict.fromkeys(chain.from_iterable(found)))


def _lacking(shortfalls: tuple[Shortfall, ...]) -> tuple[int, int]:
    """How far a node is from taking the pod: the largest share that is missing, in thousandths, and the sum.

    A lack that is no amount, such as a label, counts as everything.
    """
    shares = [one.lacking * 1000 // one.requested if one.requested else 1000 for one in shortfalls]
    return max(shares, default=0), sum(shares)


def _what_helps(
    workspace: Workspace, scheduling_class: SchedulingClass, *, reserving: bool
) -> tuple[Help, ...]:
    """Group nodes by who refuses there, and show of each group the node that lacks least."""
    names = workspace.layout.names
    groups: dict[tuple[str, ...], list[tuple[tuple[int, int], int, tuple[Shortfall, ...]]]] = {}
    for row in range(len(names)):
        refusing = _refusing(scheduling_class, row)
        shortfalls = tuple(chain.from_iterable(refusing.values()))
        groups.setdefault(tuple(refusing), []).append((_lacking(shortfalls), row, shortfalls))
    ranked = sorted(
        ((min(group, key=lambda one: one[:2]), len(group), key) for key, group in groups.items()),
        key=lambda one: (one[0][:2], one[2]),
    )
    helps = []
    for (_, row, shortfalls), count, plugins in ranked:
        details = _details(scheduling_class, row)
        if reserving:
            from koordcore.reservations.occupants import reserved_room

            details = (*details, *reserved_room(workspace, scheduling_class.pod, row))
        helps.append(Help(plugins, shortfalls, count, names[row], details))
    return tuple(helps)
