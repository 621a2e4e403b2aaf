"""What a result touches: a small cluster on which every check finds what it finds on the whole one.

The nodes that changed, or that a decision names, are there with all their pods. Of the others only those pods
are there that belong together with somebody who was decided about: gang, group, reservation, volume,
neighbours, and what a victim bears on. What is left out is the same before and after.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import attrs

from koordcore._record import record
from koordcore.checking.claims_near import claims_near
from koordcore.checking.differences import Differences, difference
from koordcore.checking.domains import Domains, SpreadRule
from koordcore.checking.gangs import gang_configs
from koordcore.checking.groups import leaf_of
from koordcore.checking.holders import holder_key, holder_of, used_by
from koordcore.checking.index import ACTING, LEAVING, NOMINATED, ClusterIndex, Holder
from koordcore.checking.near import near
from koordcore.checking.permits import as_placed
from koordcore.checking.quota_sums import NOBODY, Elsewhere
from koordcore.model.claims import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.cluster import Namespace, PodDisruptionBudget, RawObject, Workload
from koordcore.model.decisions import Bound, Nominated
from koordcore.model.device_slices import (
    DeviceTaintRule,
    ResourceSlice,
)
from koordcore.model.devices import DeviceObject
from koordcore.model.gangs import PodGroup
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import Node, NodeState
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import ElasticQuota
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup, SchedulingWorkload
from koordcore.model.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from koordcore.protocol.extended_resources import classes_by_resource
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_NAMES: Final = attrgetter("namespace", "name")
_CLAIMS: Final = (ResourceClaim, ResourceClaimTemplate, ResourceSlice, DeviceTaintRule)
_PICKED: Final[tuple[type, ...]] = (
    *_CLAIMS,
    *(PodGroup, SchedulingPodGroup, CompositePodGroup, SchedulingWorkload, Reservation, ElasticQuota),
    *(PersistentVolume, PersistentVolumeClaim, StorageClass, NodeMetric, Namespace, Pod),
)
"""Kinds of which those are taken that somebody refers to."""
_UNREAD: Final[tuple[type, ...]] = (PodDisruptionBudget, Workload, RawObject)
"""Kinds that no decision about a pod is held to; there are as many as there are applications."""
_OF_NODES: Final[tuple[type, ...]] = (DeviceObject, NodeResourceTopology, CSINode)
"""Kinds of which each node has one by its name."""


@record(eq=False)
class Touched:
    """The small cluster before, the result on it, and of pods that are not in it what they hold and where."""

    before: ClusterSnapshot
    result: ScheduleResult
    elsewhere: Elsewhere
    domains: Domains


def touched(index: ClusterIndex, result: ScheduleResult, known: Differences) -> Touched:
    """Cut out what a result touches.

    Parameters
    ----------
    index
        Of the snapshot before.
    known
        How the snapshot afterwards differs from that.
    """
    return _Cut(index, result, known).made()


class _Cut:
    """One small cluster while it is put together."""

    def __init__(self, index: ClusterIndex, result: ScheduleResult, known: Differences) -> None:
        self._index, self._result, self._placed = index, result, as_placed(result).decisions
        (self._gone, self._come), (self._lost, self._new), (self._old, self._fresh) = known
        self._whole = {state.name for state in (*self._gone, *self._come)}
        self._some: defaultdict[str, dict[int, Pod]] = defaultdict(dict)
        self._pending: dict[int, Pod] = {id(pod): pod for pod in self._lost}
        self._records: dict[int, ClusterRecord] = {id(one): one for one in self._old}
        self._nominated = any(isinstance(one, Nominated) for one in result.decisions)
        self._after: defaultdict[PodKey, list[Pod]] = defaultdict(list)
        for pod in (*self._new, *(pod for state in self._come for pod in state.pods)):
            self._after[pod.key].append(pod)
        self._keys = list(dict.fromkeys(one.pod for one in result.decisions))
        self._decided = [pod for key in self._keys for pod in self._versions(key)]
        self._victims = [pod for key, _ in _leaving(result) for pod in index.bound.get(key, ())]

    def made(self) -> Touched:
        """Put everything in that matters."""
        self._take_nodes()
        self._take_reservations()
        self._take_gangs()
        self._take_groups()
        self._take_claims()
        self._take_preemption()
        self._take_neighbours()
        self._take_volumes()
        elsewhere = self._take_quotas()
        self._take_records()
        return self._cut(elsewhere)

    def _versions(self, key: PodKey) -> Iterator[Pod]:
        """Give a pod as it is before and afterwards, waiting or bound."""
        yield from self._index.bound.get(key, ())
        if key in self._index.waiting:
            yield self._index.waiting[key]
        yield from self._after.get(key, ())

    # -- taking ----------------------------------------------------------------------------------------

    def _take(self, holders: Iterable[Holder]) -> None:
        """Put single pods in, and reservations with their nodes."""
        for one in holders:
            if isinstance(one, Reservation):
                self._records[id(one)] = one
                self._some.setdefault(one.status.node_name, {})
            elif one.node_name is not None:
                self._some[one.node_name][id(one)] = one

    def _keep(self, records: Iterable[Any]) -> None:
        for one in records:
            self._records[id(one)] = one

    def _wait(self, holders: Iterable[Holder]) -> None:
        for one in holders:
            if isinstance(one, Reservation):
                self._records[id(one)] = one
            else:
                self._pending[id(one)] = one

    def _take_nodes(self) -> None:
        """Whole nodes: where somebody came or left, is decided about, is nominated or is to leave."""
        index = self._index
        for one in self._placed:
            if isinstance(one, Bound | Nominated):
                self._whole.add(one.node)
            if isinstance(one, Bound):
                self._whole.update(
                    pod.node_name or "" for key in one.over for pod in index.bound.get(key, ())
                )
        for key, name in _leaving(self._result):
            self._whole.add(name)
            self._whole.update(pod.node_name or "" for pod in index.bound.get(key, ()))
        changed = [pod for old, new in self._pairs() for some in difference(old, new) for pod in some]
        for pod in (*changed, *self._decided, *self._victims):
            for there in (*index.bound.get(pod.key, ()), *self._after.get(pod.key, ())):
                self._whole.add(there.node_name or "")
        if self._quotas:
            # What is left of a pod that acts as a reservation depends on the others of its node.
            self._whole.update(pod.node_name or "" for pod in index.marked(ACTING) if isinstance(pod, Pod))
        self._used = {used_by(pod) for pod in (*changed, *self._decided)} - {""}

    def _pairs(self) -> Iterator[tuple[tuple[Pod, ...], tuple[Pod, ...]]]:
        """Give the pods of each node that changed, before and after."""
        before = {state.name: state.pods for state in self._gone}
        for state in self._come:
            yield before.pop(state.name, ()), state.pods
        for pods in before.values():
            yield pods, ()

    def _filters(self, name: str) -> bool:
        """Tell whether any profile filters by a plugin."""
        return any(one.filters(name) for one in self._result.policy.profiles)

    @property
    def _quotas(self) -> bool:
        return self._filters("ElasticQuota") and self._index.has(ElasticQuota)

    def _take_reservations(self) -> None:
        """Reservations that changed, were decided about or are used, their users, and those on the nodes."""
        index = self._index
        mine = [one for one in (*self._old, *self._fresh) if isinstance(one, Reservation)]
        for key in self._keys:
            mine += index.by("holder", key)
        for used in sorted(self._used | {one.uid or one.name for one in mine}):
            mine += index.by("reservation", used)
            for mark in ("acts", "uses"):
                users = list(index.marked((mark, used)))
                self._take(users)
                self._whole.update(pod.node_name or "" for pod in users if isinstance(pod, Pod))
        fresh = {id(one) for one in self._fresh}
        self._keep(one for one in mine if id(one) not in fresh)
        self._whole.update(one.status.node_name for one in mine)
        for name in self._whole:
            self._keep(index.by("reserved on", name))

    def _take_gangs(self) -> None:
        """Gangs of whoever was decided about or leaves, with the gangs that start together with them."""
        index = self._index
        ids = {_gang(pod) for pod in (*self._decided, *self._victims, *self._reserving())} - {""}
        if not ids:
            return
        configs = gang_configs(self._pod_groups(ids), self._members(ids))
        ids |= {name for gang in configs.values() for name in gang.group}
        # Those that list the same ones are of the same group, and may have started it.
        ids |= {one for name in ids for one in index.listing(name)}
        self._keep(self._pod_groups(ids))
        for name in ids:
            self._take(index.marked(("gang", name)))
            self._wait(index.marked(("gang waits", name)))
            self._keep(index.by("ended of gang", name))

    def _members(self, ids: Iterable[str]) -> Iterator[Pod]:
        """Give the members of gangs, those who come, wait and ended included."""
        wanted = set(ids)
        for name in sorted(wanted):
            for mark in ("gang", "gang waits"):
                yield from (_pod(one) for one in self._index.marked((mark, name)))
            yield from self._index.by("ended of gang", name)
        coming = (*(pod for pods in self._after.values() for pod in pods), *self._reserving())
        yield from (pod for pod in coming if _gang(pod) in wanted)

    def _pod_groups(self, ids: Iterable[str]) -> list[PodGroup]:
        split = [name.partition("/") for name in sorted(ids)]
        return [one for space, _, name in split for one in self._index.find(PodGroup, name, space)]

    def _reserving(self) -> list[Pod]:
        """Give the pods that stand for the reservations that were decided about, before and after."""
        keys = set(self._keys)
        found = [one for key in self._keys for one in self._index.by("holder", key)]
        found += [one for one in self._fresh if isinstance(one, Reservation) and holder_key(one) in keys]
        return [holder_of(one) for one in found]

    def _take_groups(self) -> None:
        """Whole trees of Kubernetes' groups, with all their members."""
        index = self._index
        asked = (*self._decided, *self._victims, *self._reserving())
        composites: list[tuple[str, str]] = []
        for leaf in sorted({leaf_of(pod) for pod in asked if pod.scheduling_group is not None}):
            space, workload, name, _ = leaf
            self._take_leaf(leaf)
            self._keep(index.find(SchedulingWorkload, workload, space))
            for group in index.find(SchedulingPodGroup, name, space):
                self._keep([group])
                composites.append((space, group.parent))
        seen: set[tuple[str, str]] = set()
        while composites:
            at = composites.pop()
            if at in seen or not at[1]:
                continue
            seen.add(at)
            for above in index.find(CompositePodGroup, at[1], at[0]):
                self._keep([above])
                composites.append((at[0], above.parent))
            for child in index.by("below", at):
                self._keep([child])
                if isinstance(child, CompositePodGroup):
                    composites.append((at[0], child.name))
                else:
                    self._take_leaf((at[0], "", child.name, ""))

    def _take_leaf(self, leaf: tuple[str, ...]) -> None:
        index = self._index
        self._take(index.marked(("group", leaf)))
        self._keep(index.by("ended of group", leaf))
        self._wait(index.marked(("group waits", leaf)))

    def _take_claims(self) -> None:
        """Claims of the pods, and of the pools that they may have devices of whoever holds some of these."""
        index = self._index
        if not self._filters("DynamicResources"):
            return
        classes = classes_by_resource(sorted(index.of(DeviceClass), key=_NAMES))
        claiming = any(isinstance(one, Bound) and one.claims for one in self._placed)
        for pod in self._decided:
            claiming |= bool(pod.resource_claims) or any(name in classes for name in pod.requests)
        if not claiming:
            return
        found = claims_near(
            index,
            self._decided,
            [one for one in self._placed if isinstance(one, Bound)],
            [one for one in (*self._old, *self._fresh) if isinstance(one, ResourceClaim)],
            sorted(self._whole),
        )
        self._keep(found.records)
        self._take(found.holders)
        for claim in found.claims:
            for user in claim.reserved_for:
                key = PodKey(claim.namespace, user.name)
                self._take(index.bound.get(key, ()))
                self._wait([index.waiting[key]] if key in index.waiting else ())

    def _take_preemption(self) -> None:
        """What the room that victims make is counted by."""
        if not self._nominated:
            return
        index = self._index
        self._take(index.marked(LEAVING))
        self._wait(index.marked(NOMINATED))
        if self._quotas:
            self._take(index.of(Reservation))

    def _take_neighbours(self) -> None:
        """Who shuns, needs or is spread among those that came."""
        came = {one.pod for one in self._placed if isinstance(one, Bound)}
        pods = [pod for pod in (*self._decided, *self._reserving()) if pod.key in came]
        nodes = {state.name: state.node for state in self._come}
        placed: list[tuple[Pod, Node]] = []
        for pod in pods:
            name = pod.node_name or ""
            if name in self._index.states:
                placed.append((pod, self._index.states[name].node))
            if name in nodes:
                placed.append((pod, nodes[name]))
        self._take(near(self._index, placed, self._filters, self._whole))

    def _take_volumes(self) -> None:
        """Volumes of everybody on the nodes, and who else uses those of the pods."""
        index = self._index
        if not index.has(PersistentVolumeClaim):
            return
        for pod in (*self._decided, *self._reserving()):
            for claim in pod.claims:
                self._take(index.marked(("volume", (pod.namespace, claim))))
                for found in index.find(PersistentVolumeClaim, claim, pod.namespace):
                    self._take_volumes_for(found)
        self._keep(islice(index.of(PersistentVolumeClaim), 1))  # to tell that there are some
        templates = [one.template for one in self._records.values() if isinstance(one, Reservation)]
        everybody = [*self._shown(), *self._decided, *self._reserving(), *filter(None, templates)]
        for pod in everybody:
            for name in pod.claims:
                for found in index.find(PersistentVolumeClaim, name, pod.namespace):
                    self._keep([found])
                    self._keep(index.find(PersistentVolume, found.volume))
                    self._keep(index.find(StorageClass, found.storage_class or ""))

    def _take_volumes_for(self, claim: PersistentVolumeClaim) -> None:
        """Volumes that a claim without one may take, and any one to tell that there are some."""
        if not claim.volume:
            index = self._index
            self._keep(islice(index.of(PersistentVolume), 1))
            self._keep(index.by("volume for", f"{claim.namespace}/{claim.name}"))
            self._keep(index.by("volume for", ("class", claim.storage_class or "")))

    def _take_quotas(self) -> Elsewhere:
        """Quotas of everybody who is shown, and what all others hold of them."""
        if not self._quotas:
            return NOBODY
        index = self._index
        if self._nominated:
            self._keep(index.of(ElasticQuota))
        shown = list(self._shown())
        come = [pod for state in self._come for pod in state.pods]
        for name in {name for pod in (*shown, *come) for name in index.sums.chain(pod)}:
            self._keep(index.by("quota", name))
        return Elsewhere(index.sums, shown)

    def _take_records(self) -> None:
        # All others are few.
        for kind in self._index.kinds:
            if kind not in (*_PICKED, *_OF_NODES, *_UNREAD):
                self._keep(self._index.of(kind))
        # Of others' namespaces terms may say what labels they have.
        held = [holder_of(one) for one in self._records.values() if isinstance(one, Reservation)]
        for space in {pod.namespace for pod in (*self._shown(), *self._decided, *self._reserving(), *held)}:
            self._keep(self._index.find(Namespace, space))
        measured = self._nominated or self._filters("LoadAwareScheduling")
        for name in self._whole:
            for each in _OF_NODES:
                self._keep(self._index.find(each, name))
            self._keep(self._index.by("metric of", name) if measured else ())

    # -- cutting ---------------------------------------------------------------------------------------

    def _shown(self) -> Iterator[Pod]:
        """Give the bound pods of the small cluster before."""
        for state in self._states():
            yield from state.pods

    def _states(self) -> Iterator[NodeState]:
        """Give the nodes of the small cluster before."""
        states = self._index.states
        yield from (states[name] for name in self._whole if name in states)
        for name, pods in self._some.items():
            if name in states and name not in self._whole:
                yield NodeState(states[name].node, pods.values())

    def _cut(self, elsewhere: Elsewhere) -> Touched:
        index = self._index
        for key in self._keys:
            self._wait([index.waiting[key]] if key in index.waiting else ())
        before = list(self._states())
        gone = {id(one) for some in (self._gone, self._lost, self._old) for one in some}
        return Touched(
            ClusterSnapshot(nodes=before, pending=self._pending.values(), records=self._records.values()),
            attrs.evolve(
                self._result,
                snapshot=ClusterSnapshot(
                    nodes=[*(one for one in before if id(one) not in gone), *self._come],
                    pending=[*(one for one in self._pending.values() if id(one) not in gone), *self._new],
                    records=[*(one for one in self._records.values() if id(one) not in gone), *self._fresh],
                ),
            ),
            elsewhere,
            partial(self._away, before),
        )

    def _away(self, shown: Sequence[NodeState], rule: SpreadRule, like: Pod) -> dict[str, int]:
        """Give the domains afterwards with the pods that are not shown."""
        sums = self._index.domains(rule, like)
        nodes = ([state.node for state in some] for some in (self._gone, self._come))
        return sums.without(shown, *nodes)


def _leaving(result: ScheduleResult) -> Iterator[tuple[PodKey, str]]:
    """Give who is to leave or move, with the nodes that are named."""
    for one in result.decisions:
        for victim in one.victims if isinstance(one, Nominated) else ():
            yield victim.pod, victim.node
    for plan in result.preemptions:
        for victim in plan.victims:
            yield victim.pod, victim.node
        for move in plan.moves:
            yield move.victim.pod, move.victim.node
            yield move.victim.pod, move.node


def _gang(pod: Pod) -> str:
    name = gang_name(pod.labels, pod.annotations)
    return f"{pod.namespace}/{name}" if name else ""


def _pod(holder: Holder) -> Pod:
    return holder_of(holder) if isinstance(holder, Reservation) else holder
