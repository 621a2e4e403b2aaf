"""What Kueue has admitted and where it runs, against where it could run: the same flavors, placed anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.controlplane.flavors import FlavorChoice, PodSetFlavors
from koordcore.model.kueue import KueueWorkload
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.protocol.workload_pods import HOSTNAME, admitted_pods, workload_of
from koordcore.scheduling import schedule
from koordcore.scheduling.reset import unbound
from koordcore.snapshot import ClusterSnapshot

_NODE: Final = "node"


@record(kw_only=True)
class PlacedWorkload:
    """Where a Workload runs, and where it could.

    Parameters
    ----------
    workload, queue
        ``namespace/name``, and the ClusterQueue that admitted it.
    pods
        How many run.
    now, best
        Domains used per level of its topology from the top down, then nodes; ``best`` if it were placed anew,
        everybody else staying where they are. ``best`` is empty where no place was found.
    """

    workload: str
    queue: str
    pods: int
    now: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    best: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)

    @property
    def worse(self) -> bool:
        """Whether it lies in more domains than it needs, the highest level that differs counting."""
        return bool(self.best) and tuple(self.now.values()) > tuple(self.best.values())


def review_admitted(
    snapshot: ClusterSnapshot,
    *,
    policy: Policy = Policy(),
    now: datetime | None = None,
) -> tuple[PlacedWorkload, ...]:
    """Place every admitted Workload anew, each by itself, and compare.

    Parameters
    ----------
    snapshot
        The cluster; running pods name their Workload in ``kueue.x-k8s.io/workload``.
    policy, now
        As for :func:`koordcore.schedule`.

    Returns
    -------
    tuple of PlacedWorkload
        Those that want to lie near together, all of whose pods run, and whose flavors are known; by name.
    """
    running: dict[str, list[Pod]] = {}
    for pod in snapshot.bound_pods():
        if workload_of(pod):
            running.setdefault(workload_of(pod), []).append(pod)
    flavors = {one.name: one for one in snapshot.of(ResourceFlavor)}
    topologies = {one.name: one for one in snapshot.of(KueueTopology)}
    found = []
    for workload in snapshot.of(KueueWorkload):
        pods = running.get(workload.key, [])
        choice = _given(workload, flavors)
        wishes = (one.topology for one in workload.pod_sets)
        near = any(one.required or one.preferred for one in wishes)
        whole = len(pods) >= sum(one.count for one in workload.pod_sets)
        if workload.finished or choice is None or not near or not whole:
            continue
        levels = next(_levels(choice, topologies), ())
        before = {pod.key: str(pod.node_name) for pod in pods}
        away = snapshot.forget(*before)
        group, made = admitted_pods([unbound(pod) for pod in pods], workload, choice.flavors, topologies)
        result = schedule(away.with_records(group), made, policy=policy, now=now)
        after = {one.pod: one.node for one in result.bound}
        found.append(
            PlacedWorkload(
                workload=workload.key,
                queue=workload.admitted_by,
                pods=len(pods),
                now=_domains(snapshot, levels, list(before.values())),
                best=_domains(snapshot, levels, list(after.values())) if len(after) == len(before) else {},
            )
        )
    return tuple(found)


def _given(workload: KueueWorkload, flavors: Mapping[str, ResourceFlavor]) -> FlavorChoice | None:
    """Read the flavors that a Workload was given; nothing where one is not known."""
    sets = {one.name: one.flavors for one in workload.assignments}
    names = {name for given in sets.values() for name in given.values()}
    if not sets or any(one.name not in sets for one in workload.pod_sets) or not names <= flavors.keys():
        return None
    return FlavorChoice(
        pod_sets=immutabledict(
            {
                name: PodSetFlavors(
                    by_resource=given,
                    flavors=tuple(flavors[one] for one in dict.fromkeys(given.values())),
                )
                for name, given in sets.items()
            }
        )
    )


def _levels(choice: FlavorChoice, topologies: Mapping[str, KueueTopology]) -> Iterator[tuple[str, ...]]:
    for given in choice.pod_sets.values():
        for flavor in given.flavors:
            if flavor.topology in topologies:
                yield topologies[flavor.topology].levels


def _domains(snapshot: ClusterSnapshot, levels: Sequence[str], nodes: Sequence[str]) -> dict[str, int]:
    """Count domains per level: equal labels below different domains are different ones."""
    above = [level for level in levels if level != HOSTNAME]
    labels = [snapshot.node(name).node.labels for name in nodes]
    counts = {
        level: len({tuple(one.get(key, "") for key in above[: depth + 1]) for one in labels})
        for depth, level in enumerate(above)
    }
    return {**counts, _NODE: len(set(nodes))}
