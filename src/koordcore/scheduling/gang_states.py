"""How far every gang of a snapshot has come: followed event by event, as the reference's cache does."""

from __future__ import annotations

from collections.abc import Iterable

from immutabledict import immutabledict

from koordcore.allocators.gang.cycle import permit
from koordcore.allocators.gang.events import add_pod, add_pod_group, post_bind
from koordcore.allocators.gang.members import running_members
from koordcore.allocators.gang.state import Code, GangState
from koordcore.model.gangs import (
    DEFAULT_ARGS,
    CoschedulingArgs,
    Gang,
    GangPod,
    PodGroup,
)
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.gang import (
    WAITS_AT_PERMIT,
    gang_from_pod_group,
    gang_name,
    parse_gang_pod,
)
from koordcore.snapshot import ClusterSnapshot


def gang_pod(pod: Pod, args: CoschedulingArgs) -> GangPod:
    """Give what a pod says about its gang."""
    created = None if pod.created is None else pod.created.strftime("%Y-%m-%dT%H:%M:%SZ")
    return parse_gang_pod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid or str(pod.key),
        labels=pod.labels,
        annotations=pod.annotations,
        created=created,
        node_name="" if WAITS_AT_PERMIT in pod.annotations else pod.node_name or "",
        terminated=pod.finished,
        args=args,
    ).pod


def gang_state(snapshot: ClusterSnapshot, args: CoschedulingArgs = DEFAULT_ARGS) -> GangState:
    """Build the state of all gangs: PodGroups first, then pods in the order of their keys.

    What a gang does not say is as ``args`` have it. Gangs that know nothing of each other are followed
    apart: an event copies what it may change, and that of thousands of gangs is no concern of one pod.
    """
    groups = [gang_from_pod_group(group, args).gang for group in snapshot.of(PodGroup)]
    candidates = (*running_members(snapshot), *ended_members(snapshot), *snapshot.pending)
    gone = snapshot.once(leaving_members)
    members = [pod for pod in candidates if pod.key not in gone and gang_name(pod.labels, pod.annotations)]
    held = {str(pod.key) for pod in members if WAITS_AT_PERMIT in pod.annotations}
    pods = [gang_pod(pod, args) for pod in sorted(members, key=lambda one: one.key)]
    home = _Families([*groups, *(pod.config for pod in pods if pod.config is not None)])
    parts: dict[str, GangState] = {}
    for group in groups:
        name = home.of(group.id)
        parts[name] = add_pod_group(parts.get(name, GangState()), group).state
    for pod in pods:
        name = home.of(pod.gang_id)
        parts[name] = add_pod(parts.get(name, GangState()), pod).state
    for pod in pods:
        if pod.key in held:
            name = home.of(pod.gang_id)
            step = permit(parts[name], pod, now=0)
            parts[name] = step.state
            if step.code is Code.SUCCESS:
                for one in pods:
                    if one.key in (pod.key, *step.released):
                        parts[name] = post_bind(parts[name], one).state
    return GangState(
        gangs=immutabledict({key: one for part in parts.values() for key, one in part.gangs.items()}),
        groups=immutabledict({key: one for part in parts.values() for key, one in part.groups.items()}),
    )


def leaving_members(snapshot: ClusterSnapshot) -> frozenset[PodKey]:
    """Members on their way out of gang groups of which nobody stays: such a group starts anew, as a whole.

    Else whoever is made anew would be placed beside those that leave, be half a gang once these have left,
    have to go, and so on for ever.
    """
    running = [pod for pod in running_members(snapshot) if pod.scheduling_group is None]
    leaving = [pod for pod in running if pod.terminating]
    if not leaving:
        return frozenset()

    def gang_of(pod: Pod) -> str:
        return f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}"

    stays = {gang_of(pod) for pod in (*running, *ended_members(snapshot)) if not pod.terminating}
    groups = [gang_from_pod_group(group).gang for group in snapshot.of(PodGroup)]
    own = (
        gang_pod(pod, DEFAULT_ARGS).config
        for pod in (*running, *snapshot.pending)
        if gang_name(pod.labels, pod.annotations)
    )
    home = _Families([*groups, *(config for config in own if config is not None)])
    whole = {home.of(gang_id) for gang_id in stays}
    return frozenset(pod.key for pod in leaving if home.of(gang_of(pod)) not in whole)


def ended_members(snapshot: ClusterSnapshot) -> tuple[Pod, ...]:
    """Members of gangs that ran to their end and still exist: they count as bound, and hold nothing."""
    ended = (pod for pod in snapshot.of(Pod) if pod.finished and pod.node_name)
    return tuple(pod for pod in ended if gang_name(pod.labels, pod.annotations))


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
