"""Which pods belong together: the gangs of a snapshot, and the turns in which the loop takes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import attrs
from immutabledict import immutabledict

from koordcore.allocators.gang.cycle import before_pre_filter
from koordcore.allocators.gang.events import add_pod, add_pod_group
from koordcore.allocators.gang.state import Code, GangState
from koordcore.errors import ManifestError
from koordcore.model.gangs import Gang, GangMode, GangPod, MatchPolicy, NetworkTopologySpec, PodGroup
from koordcore.model.network import DEFAULT_NETWORK_TOPOLOGY, ClusterNetworkTopology
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.protocol.gang import gang_from_pod_group, gang_name, parse_gang_pod, parse_topology_index
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.network import NetworkTopology, build_tree, order_layers

__all__ = ["Job", "JobTable", "gang_state", "network_tree"]


def _gang_pod(pod: Pod) -> GangPod:
    created = None if pod.created is None else pod.created.strftime("%Y-%m-%dT%H:%M:%SZ")
    return parse_gang_pod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid or str(pod.key),
        labels=pod.labels,
        annotations=pod.annotations,
        created=created,
        node_name=pod.node_name or "",
        terminated=pod.finished,
    ).pod


def gang_state(snapshot: ClusterSnapshot) -> GangState:
    """Build the state of all gangs: PodGroups first, then pods in the order of their keys.

    Gangs that know nothing of each other are followed apart: every event copies the records that it may
    change, and those of thousands of gangs are no concern of one pod.
    """
    groups = [gang_from_pod_group(group).gang for group in snapshot.of(PodGroup)]
    running = snapshot.derived(_running_members, _running_again).values()
    members = [*chain.from_iterable(running), *_members(snapshot.pending)]
    pods = [_gang_pod(pod) for pod in sorted(members, key=lambda one: one.key)]
    home = _Families([*groups, *(pod.config for pod in pods if pod.config is not None)])
    parts: dict[str, GangState] = {}
    for group in groups:
        name = home.of(group.id)
        parts[name] = add_pod_group(parts.get(name, GangState()), group).state
    for pod in pods:
        name = home.of(pod.gang_id)
        parts[name] = add_pod(parts.get(name, GangState()), pod).state
    return GangState(
        gangs=immutabledict({key: one for part in parts.values() for key, one in part.gangs.items()}),
        groups=immutabledict({key: one for part in parts.values() for key, one in part.groups.items()}),
    )


class _Families:
    """Gangs that name each other, in whatever direction and over however many others."""

    def __init__(self, gangs: Iterable[Gang]) -> None:
        self._parent: dict[str, str] = {}
        for gang in gangs:
            for other in gang.group:
                self._parent[self.of(other)] = self.of(gang.id)

    def of(self, gang_id: str) -> str:
        """Give the gang that stands for a family."""
        known = self._parent
        while known.get(gang_id, gang_id) != gang_id:
            known[gang_id] = gang_id = known.get(known[gang_id], known[gang_id])
        return gang_id


def _members(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple([pod for pod in pods if gang_name(pod.labels, pod.annotations)])


def _running_members(snapshot: ClusterSnapshot) -> dict[int, tuple[Pod, ...]]:
    """Members of gangs by the row of their node; only nodes that have some."""
    found = ((row, _members(state.pods)) for row, state in enumerate(snapshot.nodes))
    return {row: pods for row, pods in found if pods}


def _running_again(
    nodes: tuple[NodeState, ...],
    records: tuple[ClusterRecord, ...],
    value: dict[int, tuple[Pod, ...]],
    snapshot: ClusterSnapshot,
) -> dict[int, tuple[Pod, ...]]:
    del records
    changed = snapshot.changed_rows(nodes)
    found = dict(value) if changed else value
    for row in changed:
        found.pop(row, None)
        pods = _members(snapshot.nodes[row].pods)
        if pods:
            found[row] = pods
    return found


def network_tree(snapshot: ClusterSnapshot) -> NetworkTopology | None:
    """Build the network's tree of all nodes; ``None`` without a ClusterNetworkTopology named ``default``.

    Raises
    ------
    ModelError
        When the declared layers do not lead from the top down to the nodes.
    """
    declared = snapshot.find(ClusterNetworkTopology, DEFAULT_NETWORK_TOPOLOGY)
    if declared is None:
        return None
    labels = {state.name: state.node.labels for state in snapshot.nodes}
    return build_tree(order_layers(declared.layers), labels)


@attrs.frozen(kw_only=True)
class Job:
    """Pods that are decided together: the members of a gang group that are asked about.

    Parameters
    ----------
    name
        Ids of its gangs, joined by commas.
    gangs
        Their configurations, by id.
    members
        Pending members by gang id, in rank order where they have ranks, else in queue order.
    bound
        Nodes of the members that run, by gang id; one entry each.
    refusal
        Why the group may not start at all, such as too few members; empty for none.
    """

    name: str
    gangs: Mapping[str, Gang]
    members: Mapping[str, tuple[Pod, ...]]
    bound: Mapping[str, tuple[str, ...]]
    refusal: str = ""

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All members that wait, gang after gang."""
        return tuple(chain.from_iterable(self.members.values()))

    @property
    def spec(self) -> NetworkTopologySpec | None:
        """The wish for gathering of the first gang that has one."""
        specs = (self.gangs[name].topology_spec for name in sorted(self.gangs))
        return next((spec for spec in specs if spec is not None), None)

    @property
    def strict(self) -> bool:
        """One member's failure releases the others."""
        return any(gang.mode is GangMode.STRICT for gang in self.gangs.values())

    def least(self, gang_id: str) -> int:
        """Give how many of a gang's members that wait have to be placed at least."""
        gang = self.gangs[gang_id]
        running = 0 if gang.match_policy == MatchPolicy.ONLY_WAITING else len(self.bound[gang_id])
        return max(0, gang.min_available - running)


def rank_of(pod: Pod) -> int | None:
    """Give a member's rank; ``None`` without a readable one."""
    try:
        return parse_topology_index(pod.annotations)
    except ManifestError:
        return None


class JobTable:
    """The gangs of a snapshot, ready to be asked which pods go together."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._state: GangState = snapshot.once(gang_state)
        self._nodes: dict[str, list[str]] = {}
        if self._state.gangs:
            for pod in snapshot.bound_pods():
                gang = gang_name(pod.labels, pod.annotations)
                if gang:
                    self._nodes.setdefault(f"{pod.namespace}/{gang}", []).append(str(pod.node_name))

    def turns(self, queue: Iterable[Pod]) -> Iterator[Pod | Job]:
        """Give single pods and jobs in queue order; a job comes when its first member would."""
        waiting = list(queue)
        by_gang: dict[str, list[Pod]] = {}
        names = [gang_name(pod.labels, pod.annotations) for pod in waiting]
        for pod, gang in zip(waiting, names, strict=True):
            if gang:
                by_gang.setdefault(f"{pod.namespace}/{gang}", []).append(pod)
        taken: set[str] = set()
        for pod, gang in zip(waiting, names, strict=True):
            if not gang:
                yield pod
            elif (gang_id := f"{pod.namespace}/{gang}") not in taken:
                job = self._job(gang_id, pod, by_gang)
                taken.update(job.members)
                yield job

    def minimums(self) -> dict[str, int]:
        """Give the minimum of every gang that is configured, by id."""
        return {
            name: record.gang.min_available
            for name, record in sorted(self._state.gangs.items())
            if record.gang.initialised
        }

    def _job(self, gang_id: str, first: Pod, by_gang: Mapping[str, list[Pod]]) -> Job:
        record = self._state.gangs.get(gang_id)
        group = (gang_id,) if record is None else record.gang.group
        known = {name: self._state.gangs[name].gang for name in group if name in self._state.gangs}
        gangs = known or {gang_id: Gang(id=gang_id)}
        refusal = self._refusal(first)
        return Job(
            name=",".join(sorted(gangs)),
            gangs=gangs,
            members={name: tuple(by_gang.get(name, ())) for name in sorted(gangs)},
            bound={name: tuple(self._nodes.get(name, ())) for name in sorted(gangs)},
            refusal=refusal,
        )

    def _refusal(self, first: Pod) -> str:
        tree = self._snapshot.once(network_tree)
        step = before_pre_filter(self._state, _gang_pod(first), topology_known=tree is not None)
        return "" if step.code is Code.SUCCESS else step.message
