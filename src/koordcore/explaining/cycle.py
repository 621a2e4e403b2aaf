"""One scheduling cycle of one pod, laid open: who refused where, every score, and what would be written.

The same plugins as in :func:`koordcore.schedule`, asked for everything instead of for the best only. The
stages have the names of the scheduling framework.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import BoolVector
from koordcore._record import record
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.scheduling_class import SchedulingClass
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Bound
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.reservations.match import AFFINITY_REFUSED
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.scheduling.one_pod import (
    allowed_nodes,
    feasible_nodes,
    nominated_only,
    place_there,
    restrictions,
    search_for,
)
from koordcore.snapshot import ClusterSnapshot


@record
class FilterVerdict:
    """Who refused, and why; ``plugin`` is empty where nobody did.

    Parameters
    ----------
    reasons
        Sorted texts of the first plugin that refused.
    resolvable
        Evicting pods may help.
    """

    plugin: str = ""
    reasons: tuple[str, ...] = ()
    resolvable: bool = True

    @property
    def passed(self) -> bool:
        """Nobody refused."""
        return not self.plugin


@record(kw_only=True)
class Cycle:
    """What one cycle found.

    Parameters
    ----------
    nodes
        Number of nodes in the cluster.
    admission
        The verdict before any node is looked at.
    allowed, rejectors
        The only nodes that were looked at, and who narrowed them; ``None`` for all.
    filters
        Verdict by node that was looked at: of the share that the policy has a call that begins with this pod
        look at.
    scores
        Plugin to score 0..100 by feasible node, before weights; empty with fewer than two feasible nodes.
    totals
        Weighted sums.
    best
        Nodes of the highest sum, sorted.
    decision
        What the first of them gives the pod; ``None`` where no node is feasible.
    waits
        The pod is a member of a gang whose others are not there yet.
    """

    nodes: int
    admission: FilterVerdict
    allowed: tuple[str, ...] | None = None
    rejectors: tuple[str, ...] = ()
    filters: immutabledict[str, FilterVerdict] = attrs.field(default=EMPTY, converter=frozen)
    scores: immutabledict[str, Mapping[str, int]] = attrs.field(default=EMPTY, converter=frozen)
    totals: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    best: tuple[str, ...] = ()
    decision: Bound | None = None
    waits: bool = False

    @property
    def message(self) -> str:
        """The FailedScheduling event without what PostFilter adds; empty where a node was found."""
        if self.decision is not None:
            return ""
        head = f"0/{self.nodes} nodes are available"
        if not self.admission.passed:
            return f"{head}: {', '.join(self.admission.reasons)}."
        counts = Counter(reason for one in self.filters.values() for reason in one.reasons)
        left_out = self.nodes - len(self.filters)
        if self.allowed is not None and left_out:
            counts[f"node(s) didn't satisfy plugin(s) [{' '.join(self.rejectors)}]"] = left_out
        return f"{head}: {', '.join(sorted(f'{count} {reason}' for reason, count in counts.items()))}."


def explain_cycle(
    snapshot: ClusterSnapshot, pod: Pod, *, policy: Policy = Policy(), now: datetime | None = None
) -> Cycle:
    """Run one cycle for one pending pod, and keep everything that was said.

    Parameters
    ----------
    snapshot
        The cluster, the pod among its pending ones.
    pod
        Whom to place.
    policy, now
        As for :func:`koordcore.schedule`.
    """
    workspace, plugins, job = _open(snapshot, pod, policy, now)
    number = len(workspace.layout.names)
    refused = _admission(plugins, pod, job)
    if not refused.passed:
        return Cycle(nodes=number, admission=refused)
    scheduling_class = plugins.class_of(pod)
    assert isinstance(scheduling_class, SchedulingClass), "admission has asked every plugin"
    return _look(workspace, plugins, scheduling_class, pod, job)


def admission_of(
    snapshot: ClusterSnapshot, pod: Pod, *, policy: Policy = Policy(), now: datetime | None = None
) -> FilterVerdict:
    """Ask for what needs no node, as :func:`explain_cycle` does first."""
    _, plugins, job = _open(snapshot, pod, policy, now)
    return _admission(plugins, pod, job)


def verdict_on(
    snapshot: ClusterSnapshot, pod: Pod, node: str, *, policy: Policy = Policy(), now: datetime | None = None
) -> FilterVerdict:
    """Ask the filters about one node, even where another plugin would have left it out of the search.

    Parameters
    ----------
    snapshot, pod, policy, now
        As for :func:`explain_cycle`.
    node
        Name of a node of the cluster.

    Returns
    -------
    FilterVerdict
        Of admission where that refuses the pod before any node is looked at.
    """
    workspace, plugins, job = _open(snapshot, pod, policy, now)
    refused = _admission(plugins, pod, job)
    if not refused.passed:
        return refused
    scheduling_class = plugins.class_of(pod)
    assert isinstance(scheduling_class, SchedulingClass), "admission has asked every plugin"
    among = np.array([name == node for name in workspace.layout.names], bool)
    return filters_of(plugins, scheduling_class, pod, among)[node]


def _open(
    snapshot: ClusterSnapshot, pod: Pod, policy: Policy, now: datetime | None
) -> tuple[Workspace, PluginSet, Job | None]:
    if snapshot.pod(pod.key) is None:
        snapshot = snapshot.with_pending(pod)
    workspace = open_workspace(snapshot, policy, now)
    turn = next(JobTable(snapshot).turns([pod]))
    return workspace, PluginSet(workspace, policy), turn if isinstance(turn, Job) else None


def _admission(plugins: PluginSet, pod: Pod, job: Job | None) -> FilterVerdict:
    """The first refusal that no eviction can mend, else the last one of the others, as PreFilter has it."""
    found = FilterVerdict()
    for name, refusal in plugins.refusals(pod):
        # What upstream reads while it restores reservations comes before the gang's own check.
        early = name == "DeviceShare" or (name == "Reservation" and refusal.reason != AFFINITY_REFUSED)
        if job is not None and job.refusal and not early:
            continue
        found = FilterVerdict(name, (refusal.reason,), refusal.resolvable)
        if not refusal.resolvable:
            return found
    if job is not None and job.refusal:
        return FilterVerdict("Coscheduling", (job.refusal,), resolvable=False)
    return found


def _look(
    workspace: Workspace, plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod, job: Job | None
) -> Cycle:
    names = workspace.layout.names
    narrowed = restrictions(scheduling_class)
    allowed = allowed_nodes(plugins, scheduling_class)
    feasible = feasible_nodes(plugins, scheduling_class, pod) & allowed
    nominated = nominated_only(workspace, pod, feasible)
    looked_at = allowed.copy()
    if nominated is not None:
        feasible = allowed = looked_at = nominated
    elif (search := search_for(plugins, scheduling_class, pod, feasible)) is not None:
        looked_at = search.among(allowed)
        feasible = feasible & looked_at
    if (own := workspace.layout.row_of.get(pod.nominated_node or "")) is not None:
        looked_at[own] = True  # it is tried first, whatever narrows the search
    filters = filters_of(plugins, scheduling_class, pod, looked_at)
    rows = np.flatnonzero(feasible).tolist()
    table = scheduling_class.score_table(feasible) if len(rows) > 1 else {}
    totals = scheduling_class.totals(feasible).copy()
    best = [row for row in rows if totals[row] == totals[rows].max()]
    decision = place_there(workspace, plugins, pod, best[0]) if best else None
    if decision is not None:
        decision = attrs.evolve(decision, score=int(totals[best[0]]), feasible=len(rows))
    return Cycle(
        nodes=len(names),
        admission=FilterVerdict(),
        allowed=tuple(names[row] for row in np.flatnonzero(allowed).tolist()) if narrowed else None,
        rejectors=tuple(sorted(narrowed)),
        filters=filters,
        scores={names[row]: {name: int(column[row]) for name, column in table.items()} for row in rows}
        if table
        else {},
        totals={names[row]: int(totals[row]) for row in rows} if table else {},
        best=tuple(names[row] for row in best),
        decision=decision,
        waits=job is not None and any(job.least(name) > 1 for name in job.members),
    )


def filters_of(
    plugins: PluginSet, scheduling_class: SchedulingClass, pod: Pod, among: BoolVector
) -> dict[str, FilterVerdict]:
    """Ask the filters about some nodes, ``(N,)``, each beside the pods nominated there, and without them."""
    names = plugins.workspace.layout.names
    filters = _filters(scheduling_class, names, among)
    for row in plugins.nominated.one_by_one(pod, among):
        only = np.zeros_like(among)
        only[row] = True
        beside = _filters(scheduling_class, names, only)[names[row]]
        if not beside.passed:
            filters[names[row]] = beside
    return filters


def _filters(
    scheduling_class: SchedulingClass, names: Sequence[str], allowed: BoolVector
) -> dict[str, FilterVerdict]:
    verdicts = {names[row]: FilterVerdict() for row in np.flatnonzero(allowed).tolist()}
    alive = allowed.copy()
    for part in scheduling_class.parts:
        mask = part.evaluator.fits(scheduling_class.view()) if part.setting.filters else None
        if mask is None or mask[alive].all():
            continue
        unresolvable = part.evaluator.unresolvable(scheduling_class.view())
        reasons = part.evaluator.reasons(scheduling_class.view())
        for row in np.flatnonzero(alive & ~mask).tolist():
            texts = tuple(sorted(text for text, holds in reasons if holds[row]))
            resolvable = unresolvable is None or not unresolvable[row]
            verdicts[names[row]] = FilterVerdict(part.plugin.name, texts, resolvable)
        alive &= mask
    return verdicts
