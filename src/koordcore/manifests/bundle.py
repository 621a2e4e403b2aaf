"""The objects of a dump together: what they say about each other once all of them are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.manifests._raw import SourceObject
from koordcore.manifests._reading import Memory, Reading
from koordcore.manifests.cpu_sync import sync_reservations
from koordcore.manifests.cross_checks import Key, Remark, not_together, shown
from koordcore.manifests.device_sync import sync_devices
from koordcore.manifests.koordinator import Policies, QuotaReading
from koordcore.manifests.objects import (
    ReadObject,
    distinct,
    kind_of,
    left_out,
    read_object,
    unique_key,
)
from koordcore.manifests.podless import without_pods
from koordcore.manifests.pods import PodReading, resolve_priority
from koordcore.manifests.together import Together, Waiting
from koordcore.manifests.workloads import read_workload
from koordcore.model.checks import names_its_fields
from koordcore.model.cluster import PriorityClass
from koordcore.model.mappings import EMPTY
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.records import ClusterRecord
from koordcore.protocol.quota import QuotaObject
from koordcore.snapshot import ClusterSnapshot

READ_AS_TEXT: Final = frozenset({("", "Service"), ("slo.koordinator.sh", "NodeSLO")})
"""Kinds without a record of their own that are read out of the kept text."""


@names_its_fields
@record(kw_only=True)
class Loaded:
    """What a dump holds.

    Parameters
    ----------
    snapshot
        The cluster. Pods that hold no room in it (finished ones, and those bound to a node that the dump does
        not have) stand among its records: ``snapshot.of(Pod)``.
    problems
        What cannot be read, in the order of the input. A Pod with a problem is in the cluster all the same:
        one that waits is not placed, and where one runs nobody joins it (:attr:`Pod.unreadable`). Any other
        object is left out, and stands among the records as :class:`~koordcore.model.cluster.Unreadable`.
    warnings
        What was read in a way that its author may not expect, in the order of the input.
    counts
        Objects by kind, whether they can be read or not.
    policies
        One for each profile of the scheduler configurations, in the order of their names.
    unread
        Objects by kind of those kinds that no plugin reads; they are kept as :class:`RawObject` records.
    podless
        Objects by kind that want pods of which the dump has none, so that no plan is about them.
    """

    snapshot: ClusterSnapshot
    policies: tuple[Policy, ...] = ()
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    counts: immutabledict[str, int] = attrs.field(default=immutabledict(), converter=immutabledict)
    unread: immutabledict[str, int] = attrs.field(default=immutabledict(), converter=immutabledict)
    podless: immutabledict[str, int] = attrs.field(default=immutabledict(), converter=immutabledict)


class Bundle:
    """Collects objects until all are known, then resolves what they say about each other."""

    def __init__(self, gates: Mapping[str, bool] = EMPTY) -> None:
        self.memory = Memory()
        self.gates = gates
        self.network: ClusterNetworkTopology | None = None
        """The network's layers, whatever the objects say."""
        self.objects: dict[Key, ReadObject] = {}
        self.problems: list[Problem] = []
        self.doubled: list[Problem] = []
        self.warnings: list[Problem] = []
        self.unfit: list[Problem] = []
        """What spoils all of the input: files that cannot be read, and the rules by which to decide."""
        self.nodes: list[Node] = []
        self.pods: list[tuple[PodReading, ReadObject]] = []
        self.records: list[ClusterRecord] = []
        self.policies: list[Policy] = []
        self._quotas: list[QuotaObject] = []

    def add(self, source: SourceObject) -> ReadObject:
        """Take one object; gives what it comes to."""
        new = read_object(self.memory, source)
        before = self.objects.setdefault(new.key, new)
        if before is not new:
            self._settle(before, new)
        return new

    def _settle(self, before: ReadObject, new: ReadObject) -> None:
        """Let one of two objects of the same name count: the newer one, as for who applies them in turn."""
        if before.content == new.content:
            message = f"stands twice; it came before in {before.source}, and says the same"
            self.doubled.append(new.put(Problem("", message)))
            return
        dated = bool(before.version and new.version and before.version != new.version)
        newer = new.version > before.version if dated else True
        if before.named != new.named:
            newer = new.named  # what has a name of its own is not ousted by what was called like it
        counts, other = (new, before) if newer else (before, new)
        why = "its resourceVersion is higher" if dated else "it came later" if newer else "it has the name"
        message = (
            f"stands twice, and not alike: this one counts, because {why}; the other is in {other.source}"
        )
        self.doubled.append(counts.put(Problem("", message)))
        self.objects[new.key] = counts

    # -- when all is known -----------------------------------------------------------------------------

    def finish(self, *, strict: bool = False) -> Loaded:
        """Resolve priorities, bindings and owners.

        Parameters
        ----------
        strict
            Refuse all of the input for whatever is wrong with one object.

        Raises
        ------
        ManifestError
            With everything that was wrong.
        """
        held = self._take_all()
        self._profiles()
        self.problems += held
        if strict:
            self.unfit += (*self.problems, *self.doubled)
        self.warnings += self.doubled
        unread = self._generic_workloads()
        synced = sync_devices(self.nodes, self.records, [read.pod for read, _ in self.pods])
        reserved = sync_reservations(synced.nodes, self.records)
        self.nodes, self.records = synced.nodes, reserved.records
        self.warnings += self._placed((*synced.remarks, *reserved.remarks))
        states, pending = self._bind()
        together = Together(
            states=states,
            pending=pending,
            reads=[read for read, _ in self.pods],
            records=self.records,
            quotas=self._quotas,
            owners=self._owners(),
        )
        self.warnings += self._placed(together.remarks(self.gates))
        if self.unfit:
            raise ManifestError(dict.fromkeys(self.unfit))
        try:
            snapshot = ClusterSnapshot(nodes=states, pending=pending, records=tuple(self.records))
        except ModelError as error:
            raise ManifestError.at("", str(error)) from None
        counts = Counter(one.kind for one in self.objects.values() if one.name[1])
        return Loaded(
            snapshot=snapshot,
            policies=tuple(sorted(self.policies, key=lambda policy: policy.name)),
            problems=tuple(dict.fromkeys(self.problems)),
            warnings=tuple(self.warnings),
            counts=dict(sorted(counts.items())),
            unread=dict(sorted(unread.items())),
            podless=dict(sorted(self._podless().items())),
        )

    def _take_all(self) -> list[Problem]:
        """Sort what was read; gives the problems of what can be read, but not beside the others."""
        for one in self.objects.values():
            if isinstance(one.content, Policies) or one.name[1] == "KubeSchedulerConfiguration":
                # Whoever decides by other rules than those that were written decides wrongly about everybody.
                self.unfit += one.problems
            else:
                self.problems += one.problems
            self.warnings += one.warnings
            match one.content:
                case PodReading():
                    self.pods.append((one.content, one))
                case Node():
                    self.nodes.append(one.content)
                case Policies():
                    self.policies += one.content.policies
                case _:
                    pass  # a record
        self.warnings = distinct(self.warnings)
        found = [one for one in self.objects.values() if one.record is not None]
        records = [one.record for one in found if one.record is not None]
        remarks = list(not_together(records, [read.pod for read, _ in self.pods]))
        problems_of: dict[Key, list[Problem]] = {}
        for key, problem in remarks:
            problems_of.setdefault(unique_key(key), []).append(problem)
        self.records = [
            left_out(one.key, one.name, problems_of[one.key]) if one.key in problems_of else record
            for one, record in zip(found, records, strict=True)
        ]
        self._quotas = [
            one.content.written
            for one in found
            if isinstance(one.content, QuotaReading) and one.key not in problems_of
        ]
        if self.network is not None:
            others = [one for one in self.records if not isinstance(one, ClusterNetworkTopology)]
            self.records = [*others, self.network]
        return list(self._placed(remarks))

    def _owners(self) -> dict[Key, tuple[Key, ...]]:
        return {one.name: one.owners for one in self.objects.values() if one.owners}

    def _podless(self) -> Counter[str]:
        owning = {owner for owners in self._owners().values() for owner in owners}
        pods = ((read.pod.namespace, read.pod.name) for read, _ in self.pods)
        wanting = [one.name for one in self.objects.values() if one.wants_pods]
        return Counter(map(kind_of, without_pods(wanting, owning, pods)))

    def _placed(self, remarks: Iterable[Remark]) -> Iterator[Problem]:
        for key, problem in remarks:
            known = self.objects.get(unique_key(key))
            source = known.source if known is not None else ""
            yield Problem(problem.path, problem.message, object_name=shown(key), source=source)

    def _bind(self) -> tuple[tuple[NodeState, ...], tuple[Pod, ...]]:
        classes = {one.name: one for one in self.records if isinstance(one, PriorityClass)}
        on_node: dict[str, list[Pod]] = {node.name: [] for node in self.nodes}
        pending: list[Pod] = []
        waiting = Waiting(self.records)
        for read, found in self.pods:
            reading = Reading(self.memory)
            pod = resolve_priority(reading, read, classes)
            if pod.finished:
                self.records.append(pod)
            elif pod.node_name is None:
                pending.append(pod)
                waiting.warn(reading, pod)
            elif pod.node_name in on_node:
                on_node[pod.node_name].append(pod)
            else:
                self.records.append(pod)
                reading.warn("spec.nodeName", f"no node {pod.node_name} in the dump; the pod holds nothing")
            if reading.warnings and not pod.unreadable:
                named = attrs.evolve(found, name=("", "Pod", pod.namespace, pod.name))
                self.warnings += map(named.put, reading.warnings)
        states = tuple(NodeState(node, tuple(on_node[node.name])) for node in self.nodes)
        return states, tuple(pending)

    def _generic_workloads(self) -> Counter[str]:
        """Read objects of unknown kinds as workloads where another object names them as its owner."""
        owning = {owner for owners in self._owners().values() for owner in owners}
        unread: Counter[str] = Counter()
        for one in self.objects.values():
            if one.slim is None or one.name[:2] in READ_AS_TEXT:
                continue
            if one.name in owning:
                reading = Reading(self.memory)
                workload = read_workload(reading, one.slim)
                if not reading.problems:
                    self.records.append(workload)
                    continue
                # Its selector or replicas mean something else: it stays what it is, an unread object.
                self.warnings += map(one.put, reading.problems)
            unread[one.kind] += 1
        return unread

    def _profiles(self) -> None:
        self.unfit += called_alike(policy.name for policy in self.policies)


def called_alike(names: Iterable[str]) -> Iterator[Problem]:
    """Name what several profiles are called, of however many configurations."""
    for name, count in sorted(Counter(names).items()):
        if count > 1:
            yield Problem("", f"{count} scheduler profiles are called {name}")
