"""What objects say about each other once all of them are known, whether they came at once or as events."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import attrs

from koordcore._record import record
from koordcore.errors import Problem
from koordcore.manifests._reading import Reading
from koordcore.manifests.beside import Slot
from koordcore.manifests.claim_conflicts import claim_conflicts
from koordcore.manifests.cross_checks import (
    Key,
    Remark,
    gang_remarks,
    owner_cycles,
    profile_remarks,
    quota_remarks,
    reservation_remarks,
    shown,
    topology_remarks,
)
from koordcore.manifests.device_sync import holders_without_devices, unsplit
from koordcore.manifests.group_checks import group_remarks
from koordcore.manifests.objects import distinct, unique_key
from koordcore.manifests.pod_admission import pod_problems
from koordcore.manifests.pods import PodReading
from koordcore.manifests.pool_checks import pool_remarks
from koordcore.manifests.runtime_classes import runtime_class_remarks
from koordcore.manifests.standing import Standing
from koordcore.manifests.unamplified import unamplified
from koordcore.manifests.volumes import warn_of_volumes
from koordcore.model.mappings import EMPTY
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.model.volumes import PersistentVolumeClaim
from koordcore.protocol.fields import Json
from koordcore.protocol.quota import QuotaObject


@record(kw_only=True, eq=False)
class Together:
    """All that is there.

    Parameters
    ----------
    states
        The nodes, with the pods that stand on them.
    pending
        The pods that wait.
    reads
        All pods as they were read.
    records
        Everything else.
    quotas
        Those of the records that are quotas, as their webhook sees them.
    owners
        Who owns whom.
    """

    states: Sequence[NodeState]
    pending: Sequence[Pod]
    reads: Sequence[PodReading]
    records: Sequence[ClusterRecord]
    quotas: Sequence[QuotaObject]
    owners: Mapping[Key, tuple[Key, ...]]

    def remarks(self, gates: Mapping[str, bool] = EMPTY) -> Iterator[Remark]:
        """Give what is to be said of them beside each other; ``gates`` are those of the quota webhook."""
        nodes = [state.node for state in self.states]
        pods = [read.pod for read in self.reads]
        yield from owner_cycles(self.owners)
        yield from unsplit(nodes, pods)
        yield from holders_without_devices(self.states, self.records)
        yield from topology_remarks(self.records, pods, nodes)
        yield from gang_remarks(self.records, pods)
        yield from group_remarks(self.records)
        yield from reservation_remarks(self.records, nodes)
        yield from quota_remarks(self.quotas, pods, gates)
        yield from profile_remarks(self.records)
        yield from unamplified(nodes, self.records)
        yield from pool_remarks(self.records)
        yield from runtime_class_remarks(self.records, self.reads)
        for found in claim_conflicts(self.records, self.states, self.pending):
            of = ("", "Pod") if isinstance(found.about, Pod) else ("resource.k8s.io", "ResourceClaim")
            yield (*of, found.about.namespace, found.about.name), found.problem


@attrs.define(eq=False)
class Known:
    """What a reader of events remembers of an object.

    Parameters
    ----------
    name
        As owners are told: with its namespace only where the object says it.
    unread
        As much of an object of an unknown kind as a workload is read out of.
    quota
        A quota as its webhook sees it.
    """

    name: Key
    uid: str
    version: int
    owners: tuple[Key, ...] = ()
    unread: Mapping[str, Json] | None = None
    quota: QuotaObject | None = None


class Waiting:
    """What is to be said of pods that wait, beside the claims for volumes that are there."""

    def __init__(self, records: Iterable[ClusterRecord]) -> None:
        self._claims = {
            (one.namespace, one.name): one for one in records if isinstance(one, PersistentVolumeClaim)
        }

    def warn(self, reading: Reading, pod: Pod) -> None:
        """Note it."""
        warn_of_volumes(reading, pod, self._claims)
        reading.warnings += pod_problems(pod)


def told(
    said: Mapping[str, Mapping[Key, Sequence[Problem]]], standing: Mapping[Key, Standing], there: Together
) -> tuple[Problem, ...]:
    """Give what is to be said of objects that came as events, as of the same ones in the order of their keys.

    Parameters
    ----------
    said
        By kind: the ``warning`` of an object by itself, the ``placed warning`` of one where it stands now.
    standing
        Where each pod stands.
    there
        All of them.
    """
    own = said.get("warning", {})
    beside: list[tuple[Key, Problem]] = []
    for key, those in said.get("placed warning", {}).items():
        beside += [(key, one) for one in (named(key, those) if key in standing else those)]
    waiting = Waiting(there.records)
    for key, (place, pod) in standing.items():
        if place == "waits" and not pod.unreadable:
            reading = Reading()
            waiting.warn(reading, pod)
            beside += [(key, one) for one in named(key, reading.warnings)]
    for key, problem in there.remarks():
        beside += [(unique_key(key), one) for one in named(key, [problem])]
    alone = distinct(problem for key in sorted(own) for problem in own[key])
    return (*alone, *(problem for _, problem in sorted(beside, key=itemgetter(0))))


def named(key: Key, problems: Iterable[Problem]) -> Iterator[Problem]:
    """Say which object problems are about, and of no file."""
    for one in problems:
        yield attrs.evolve(one, object_name=shown(key), source="")


def those_there(
    nodes: Mapping[str, Node],
    standing: Mapping[Key, Standing],
    reads: Mapping[Key, PodReading],
    records: Mapping[Slot, ClusterRecord],
    known: Mapping[Key, Known],
    held_back: Container[Key],
) -> Together:
    """Put objects that came as events beside each other, in the order of their keys.

    Pods that are taken for bound before a watch shows it count as bound.
    """
    in_order = sorted(known.items(), key=itemgetter(0))
    pods = sorted(standing.items(), key=itemgetter(0))
    on: dict[str, list[Pod]] = {name: [] for name in sorted(nodes)}
    for _, (place, pod) in pods:
        if place == "bound" and pod.node_name is not None:
            on[pod.node_name].append(pod)
    assumed = {key for key, (place, _) in pods if place == "bound" and reads[key].pod.node_name is None}
    nothing = [pod for _, (place, pod) in pods if place == "record"]
    return Together(
        states=[NodeState(nodes[name], tuple(those)) for name, those in on.items()],
        pending=[pod for _, (place, pod) in pods if place == "waits"],
        reads=[attrs.evolve(reads[key], pod=pod) if key in assumed else reads[key] for key, (_, pod) in pods],
        records=[*(one for _, one in sorted(records.items(), key=itemgetter(0))), *nothing],
        quotas=[one.quota for key, one in in_order if one.quota is not None and key not in held_back],
        owners={one.name: one.owners for _, one in in_order if one.owners},
    )
