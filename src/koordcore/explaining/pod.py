"""One pod explained: every node's verdict and score, and what would make it fit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import chain, takewhile
from operator import attrgetter
from typing import Any

import attrs
import numpy as np

from koordcore._blame import shown
from koordcore._notebook import html_table
from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.explaining.verdicts import NodeVerdict, NodeVerdicts, RefusedNodes
from koordcore.framework.evaluator import LEAVING, Evaluator, Refusal
from koordcore.framework.sampling import Search
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.decisions import Bound, NotOurs, PodDecision, Shortfall
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import DEFAULT_POLICY, Policy
from koordcore.result import ScheduleResult
from koordcore.scheduling.cycle import SchedulingCycle, open_cycle, stand_ins
from koordcore.scheduling.entry import check_arguments
from koordcore.scheduling.one_pod import allowed_nodes, feasible_nodes
from koordcore.scheduling.permit_holds import keeps_place
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded


@record
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


@record(kw_only=True)
class Explanation:
    """All that is to be said about one pod.

    Parameters
    ----------
    pod
        Who.
    bound_to
        Where it is now; ``None`` while it waits. It is judged as if it were not there.
    decision
        What :func:`koordcore.schedule` decides about it, in the queue and in its gang.
    refusal
        Why no node was asked; empty where nodes were.
    verdicts
        One per node: best first; those that refuse by how little they lack, then by name; last those that the
        search did not come to. Each is made of columns when somebody looks at it.
    help
        What would help, the smallest lack first; empty where the pod fits.
    """

    pod: PodKey
    bound_to: str | None = None
    decision: PodDecision | None = None
    refusal: str = ""
    verdicts: Sequence[NodeVerdict] = ()
    help: tuple[Help, ...] = ()

    def _repr_html_(self) -> str:
        """Show in a notebook what each node says."""
        message = getattr(self.decision, "message", "") or getattr(self.decision, "reason", "")
        where = f"{self.pod}: {self.best or self.bound_to or 'no node'}"
        return html_table(where, self.table(), [one for one in (message, self.refusal) if one])

    def table(self) -> dict[str, list[Any]]:
        """Give the verdicts as columns by name, as pandas, polars and pyarrow take them.

        Returns
        -------
        dict
            ``node``, ``looked_at``, ``fits``, ``total`` (-1 where the pod does not fit), ``plugin`` that
            refuses, ``lacks`` in words, and the score of every plugin under its name (``None`` where the pod
            does not fit).
        """
        plugins = sorted({name for one in self.verdicts for name in one.scores})
        lacks = [", ".join(lack.reason for lack in one.shortfalls) for one in self.verdicts]
        return {
            "node": [one.node for one in self.verdicts],
            "looked_at": [one.looked_at for one in self.verdicts],
            "fits": [one.fits for one in self.verdicts],
            "total": [one.total for one in self.verdicts],
            "plugin": [one.plugin for one in self.verdicts],
            "lacks": lacks,
            **{name: [one.scores.get(name) for one in self.verdicts] for name in plugins},
        }

    @property
    def best(self) -> str | None:
        """The node that ``schedule`` takes; ``None`` where the pod gets none, such as a member of a gang."""
        return self.decision.node if isinstance(self.decision, Bound) else None

    @property
    def fitting(self) -> tuple[str, ...]:
        """The nodes that could take the pod by itself, best first."""
        return tuple(one.node for one in takewhile(attrgetter("fits"), self.verdicts))


def explain(
    source: ClusterSnapshot | ScheduleResult,
    pod: Pod | PodKey | str,
    *,
    policy: Policy | None = None,
    now: datetime | None = None,
    limits: Limits | None = None,
) -> Explanation:
    """Explain where a pod can go, where not, and what would help, at the moment when its turn comes.

    Parameters
    ----------
    source
        The cluster: the pods that wait are decided as :func:`koordcore.schedule` would, until it is the pod's
        turn, and one that the cluster does not know waits with them, as does one that only keeps a place for
        its gang. One that runs is judged alone, as if it were not there yet. Or a result: the decision is the
        one that was taken there, the nodes are judged as they stand afterwards, whichever were looked at.
    pod
        The pod, its key, or ``"namespace/name"``; of a reservation that waits for a node its ``pod_key``.
    policy, now, limits
        As for :func:`koordcore.schedule`; of a result, its own policy when left out.

    Raises
    ------
    ModelError
        When a pod is named that is not there.
    TypeError
        When an argument is of another type.
    """
    limits = DEFAULT_LIMITS if limits is None else limits
    if not isinstance(pod, Pod | PodKey | str):
        raise TypeError(f"pod: expected Pod, its key or namespace/name, got {shown(pod)}")
    if isinstance(source, ScheduleResult):
        policy = source.policy if policy is None else policy
        asked = _find(source.snapshot, pod, policy)
        taken = source.decision(asked.key)
        alone = _alone(source.snapshot, asked)
        check_arguments(alone, policy)
        found = _explained(alone, asked.at(None), policy, now, limits, sampled=False)
        return attrs.evolve(found, bound_to=asked.node_name, decision=taken or found.decision)
    policy = DEFAULT_POLICY if policy is None else policy
    check_arguments(source, policy)
    return _explained(source, _find(source, pod, policy), policy, now, limits, sampled=True)


def _explained(
    source: ClusterSnapshot,
    asked: Pod,
    policy: Policy,
    now: datetime | None,
    limits: Limits,
    *,
    sampled: bool,
) -> Explanation:
    """Explain a pod in its turn, by the nodes that are looked at then where it is ``sampled``."""
    bound_to = source.location.get(asked.key)
    fresh = asked.at(None)
    ours: tuple[PodKey, ...] = ()
    there, given = source, None
    if bound_to is None:
        known = source.pod(asked.key) == asked or asked in stand_ins(source, policy)
        there = source if known else source.with_pending(fresh)
        # Who is handed over is decided about whatever its scheduler, as schedule(snapshot, [pod]) would.
        ours = () if known else (asked.key,)
    elif not keeps_place(source, policy, asked.key):
        there, given = source.forget(asked.key), [fresh]
    cycle = open_cycle(there, given, policy, now, limits, None, ours=ours)
    judged, taken = _decide(cycle, fresh)
    search = _search_of(cycle, fresh, taken) if sampled else None
    if search is not None:
        # How far the search comes shows when the turn is over; so it is come to once more.
        cycle.close()
        cycle = open_cycle(there, given, policy, now, limits, None, ours=ours)
        judged, taken = _decide(cycle, fresh, search)
    if isinstance(taken, Bound) and not _takes(judged, cycle.workspace.layout.row_of[taken.node]):
        # Planned with others, of whom some come first: nodes are judged as they stand beside these.
        beside = open_cycle(cycle.finish().snapshot.forget(asked.key), [fresh], policy, now, limits, None)
        if next(iter(beside.turns()), None) is not None:
            judged = _judge(beside, fresh, search)
        beside.close()
    else:
        cycle.close()
    return attrs.evolve(judged, bound_to=bound_to, decision=taken)


def _decide(
    cycle: SchedulingCycle, fresh: Pod, search: Search | None = None
) -> tuple[Explanation, PodDecision]:
    """Decide about the queue up to a pod; gives what nodes say in its turn, and what it gets."""
    judged: Explanation | None = None
    for _ in cycle.turns():
        waiting = cycle.about(fresh.key) if judged is None else None
        if waiting is not None:
            judged = _judge(cycle, waiting, search)
        taken = next((one for one in cycle.decide() if one.pod == fresh.key), None)
        if taken is not None:
            assert judged is not None, "whoever is decided about was judged before"
            return judged, taken
    return _judge(cycle, fresh, search), NotOurs(pod=fresh.key, scheduler_name=fresh.scheduler_name)


def _search_of(cycle: SchedulingCycle, pod: Pod, taken: PodDecision) -> Search | None:
    """Give how far the search for a pod came; ``None`` where all nodes were looked at, as by who plans."""
    sample, scheduling_class = cycle.plugins.sample, cycle.plugins.class_of(pod)
    search = None if sample is None else sample.searches.get(pod.key)
    if search is None or isinstance(scheduling_class, Refusal) or not isinstance(taken, Bound):
        return None
    seen = search.among(allowed_nodes(cycle.plugins, scheduling_class))
    return search if seen[cycle.workspace.layout.row_of[taken.node]] else None


def _takes(judged: Explanation, row: int) -> bool:
    """Tell whether the node in a row could take the pod by itself, without writing the verdicts out."""
    return isinstance(judged.verdicts, NodeVerdicts) and judged.verdicts.takes(row)


def _find(snapshot: ClusterSnapshot, pod: Pod | PodKey | str, policy: Policy) -> Pod:
    if isinstance(pod, Pod):
        return pod
    key = PodKey.of(pod)
    found = snapshot.pod(key) or next((one for one in stand_ins(snapshot, policy) if one.key == key), None)
    if found is None:
        raise ModelError(f"no pod {key}")
    return found


def _alone(snapshot: ClusterSnapshot, pod: Pod) -> ClusterSnapshot:
    """Give the cluster with nobody waiting whom the answer could depend on but those with a nomination."""
    others = [one.key for one in snapshot.pending if one.key != pod.key and not one.nominated_node]
    return snapshot.apply(*map(PodEnded, others))


def _judge(cycle: SchedulingCycle, pod: Pod, search: Search | None) -> Explanation:
    """Ask every node that a search comes to about a pod as things stand; ``None`` comes to all."""
    workspace, plugins = cycle.workspace, cycle.plugins
    scheduling_class = plugins.class_of(pod)
    if isinstance(scheduling_class, Refusal):
        return Explanation(pod=pod.key, refusal=scheduling_class.reason)
    refused = scheduling_class.refuse()
    if refused is not None:
        return Explanation(pod=pod.key, refusal=refused[1].reason)
    promised = plugins.nominated.refusal(pod)
    if promised is not None:
        return Explanation(pod=pod.key, refusal=promised.reason)
    feasible = feasible_nodes(plugins, scheduling_class, pod)
    seen = np.ones_like(feasible)
    if search is not None:
        allowed = allowed_nodes(plugins, scheduling_class)
        seen = search.among(allowed) | ~allowed  # what lies outside is refused by who narrows the search
    feasible = feasible & seen
    totals, names = scheduling_class.totals(feasible).copy(), workspace.layout.names
    scores = {name: column.copy() for name, column in scheduling_class.score_table(feasible).items()}
    refusing = (totals < 0) & seen
    lacks = RefusedNodes.of(scheduling_class, np.flatnonzero(refusing), every=bool(refusing.all()))
    beside: dict[int, RefusedNodes] = {}
    for row in plugins.nominated.one_by_one(pod, refusing):
        one = RefusedNodes.of(scheduling_class, np.array([row]))
        if one.at(row):
            beside[row] = one
    verdicts = NodeVerdicts(names, totals, scores, lacks, beside, seen)
    helps: tuple[Help, ...] = ()
    if not feasible.any():
        reserving = any(one.plugin("Reservation") is not None for one in cycle.policy.profiles)
        beside_others = plugins.nominated.concern(pod)
        with plugins.nominated.assumed(pod):
            if beside_others:
                lacks = RefusedNodes.of(scheduling_class, lacks.rows, every=True)
            helps = _what_helps(workspace, scheduling_class, pod, lacks, reserving=reserving)
    return Explanation(pod=pod.key, verdicts=verdicts, help=helps)


def _details(scheduling_class: SchedulingClass, pod: Pod, row: int) -> tuple[str, ...]:
    """Let the evaluators say more about a pod; those of its class speak of whoever was asked about first."""
    found = []
    for plugin, setting, evaluator, _ in scheduling_class.parts:
        if not setting.filters or type(evaluator).details is Evaluator.details:
            continue
        if pod is scheduling_class.pod:
            own = evaluator
        else:
            joint = plugin.joint
            request = joint.part(plugin.name, joint.request_of(pod)) if joint else plugin.request_of(pod)
            own = plugin.evaluator(pod, request)
        found.append(own.details(scheduling_class.view().at(row)))
    return tuple(dict.fromkeys(chain.from_iterable(found)))


def _what_helps(
    workspace: Workspace,
    scheduling_class: SchedulingClass,
    pod: Pod,
    refused: RefusedNodes,
    *,
    reserving: bool,
) -> tuple[Help, ...]:
    """Group nodes by who refuses there, and show of each group the node that lacks least."""
    names = workspace.layout.names
    helps = []
    for row, count in refused.nearest():
        refusing = refused.at(row)
        details = _details(scheduling_class, pod, row)
        if reserving:
            from koordcore.reservations.occupants import reserved_room

            details = (*details, *reserved_room(workspace, pod, row))
        shortfalls = tuple(chain.from_iterable(refusing.values()))
        if not all(one.resolvable for one in shortfalls):
            # What nobody's leaving cures is there without them as well.
            details = tuple(one for one in details if not one.startswith(LEAVING))
        helps.append(Help(tuple(refusing), shortfalls, count, names[row], details))
    return tuple(helps)
