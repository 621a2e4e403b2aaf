"""The objects of a dump together: what they say about each other once all of them are known."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore._arrays import AMOUNT_LIMIT
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.manifests._raw import SourceObject
from koordcore.manifests._reading import Memory, Reading, as_owners, identity_of, is_object
from koordcore.manifests.claim_conflicts import claim_conflicts
from koordcore.manifests.cpu_sync import sync_reservations
from koordcore.manifests.cross_checks import (
    Key,
    Remark,
    gang_remarks,
    owner_cycles,
    profile_remarks,
    quota_cycles,
    quota_remarks,
    shown,
    stand_ins,
    topology_remarks,
)
from koordcore.manifests.device_sync import sync_devices, untold_holders
from koordcore.manifests.ignored import check_node, check_pod
from koordcore.manifests.koordinator import KOORDINATOR, Policies, QuotaReading
from koordcore.manifests.kubernetes import KUBERNETES, Decoder
from koordcore.manifests.kueue import KUEUE
from koordcore.manifests.nameless import named
from koordcore.manifests.pod_admission import pod_problems
from koordcore.manifests.podless import wants_pods, without_pods
from koordcore.manifests.pods import PodReading, resolve_priority
from koordcore.manifests.volumes import warn_of_volumes
from koordcore.manifests.workloads import read_workload
from koordcore.model.checks import names_its_fields
from koordcore.model.cluster import PriorityClass, RawObject
from koordcore.model.mappings import EMPTY
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.records import ClusterRecord
from koordcore.model.volumes import PersistentVolumeClaim
from koordcore.protocol.fields import Json, show
from koordcore.protocol.quota import QuotaObject
from koordcore.snapshot import ClusterSnapshot

DECODERS: Final[Mapping[tuple[str, str], Decoder]] = {**KUBERNETES, **KOORDINATOR, **KUEUE}
"""API group and kind to decoder; objects of other kinds are kept as they are, and counted."""

READ_AS_TEXT: Final = frozenset({("", "Service"), ("slo.koordinator.sh", "NodeSLO")})
"""Kinds without a record of their own that are read out of the kept text."""
_NAMESPACED: Final = frozenset({("", "Service"), ("", "ConfigMap"), ("", "PersistentVolumeClaim")})
"""Kinds without a decoder that live in ``default`` when they name no namespace."""
_GROUP_OF: Final = {kind: group for group, kind in DECODERS}


@names_its_fields
@attrs.frozen(kw_only=True)
class Loaded:
    """What a dump holds.

    Parameters
    ----------
    snapshot
        The cluster. Pods that hold no room in it (finished ones, and those bound to a node that the dump does
        not have) stand among its records: ``snapshot.of(Pod)``.
    warnings
        What was read in a way that its author may not expect, in the order of the input.
    counts
        Objects by kind.
    policies
        One for each profile of the scheduler configurations, in the order of their names.
    unread
        Objects by kind of those kinds that no plugin reads; they are kept as :class:`RawObject` records.
    podless
        Objects by kind that want pods of which the dump has none, so that no plan is about them.
    """

    snapshot: ClusterSnapshot
    policies: tuple[Policy, ...] = ()
    warnings: tuple[Problem, ...] = ()
    counts: immutabledict[str, int] = attrs.field(default=immutabledict(), converter=immutabledict)
    unread: immutabledict[str, int] = attrs.field(default=immutabledict(), converter=immutabledict)
    podless: immutabledict[str, int] = attrs.field(default=immutabledict(), converter=immutabledict)


@attrs.frozen
class _Place:
    """Where an object came from, for messages."""

    source: str
    key: Key

    def put(self, problem: Problem) -> Problem:
        return Problem(problem.path, problem.message, object_name=shown(self.key), source=self.source)


class Bundle:
    """Collects objects until all are known, then resolves what they say about each other."""

    def __init__(self, memory: Memory | None = None, gates: Mapping[str, bool] = EMPTY) -> None:
        self.memory = memory or Memory()
        self.gates = gates
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.counts: Counter[str] = Counter()
        self.nodes: list[Node] = []
        self.pods: list[tuple[PodReading, str]] = []
        self.records: list[ClusterRecord] = []
        self.policies: list[Policy] = []
        self.quotas: list[QuotaObject] = []
        self.unread: list[tuple[Key, Mapping[str, Json], str]] = []
        self.seen: dict[Key, str] = {}
        self.owners: dict[Key, tuple[Key, ...]] = {}
        self.wanting: list[Key] = []

    def add(self, source: SourceObject) -> None:
        """Take one object."""
        raw = source.raw
        key = identity_of(raw)
        place = _Place(source.source, key)
        if not is_object(raw):
            self.problems.append(place.put(Problem("", f"expected object, got {show(raw)}")))
            return
        if not self._header(raw, key, place):
            return
        reading = Reading(self.memory)
        decoder = DECODERS.get(key[:2])
        if decoder is not None and not key[3]:
            raw = named(reading, raw, source.source)
            key = identity_of(raw)
            place = _Place(source.source, key)
        if not self._first(key, place):
            return
        self.counts[_kind(key)] += 1
        try:
            decoded = None if decoder is None else decoder(reading, raw)
            if decoded is None:
                self._keep(reading, raw, key, place)
            else:
                self._take(decoded, place)
                if isinstance(decoded, PodReading):
                    check_pod(reading, decoded.pod)
                elif isinstance(decoded, Node):
                    check_node(reading, decoded)
        except (ManifestError, ModelError) as error:
            reading.note(error, "")
        self._note_owners(reading, raw, key)
        if (decoder is None or decoder is read_workload) and wants_pods(key, raw):
            self.wanting.append(key)
        if reading.problems:
            self.problems += map(place.put, dict.fromkeys(reading.problems))
        if reading.warnings:
            self.warnings += map(place.put, reading.warnings)

    def _header(self, raw: Mapping[str, Json], key: Key, place: _Place) -> bool:
        for name in ("apiVersion", "kind"):
            value = raw.get(name)
            if not isinstance(value, str) or not value:
                group = _GROUP_OF.get(key[1]) if name == "apiVersion" else None
                hint = "" if group is None else f' (such as "{group + "/" if group else ""}v1")'
                wrong = "required" if value is None else f"expected string, got {show(value)}"
                self.problems.append(place.put(Problem(name, wrong + hint)))
                return False
        return True

    def _first(self, key: Key, place: _Place) -> bool:
        """Refuse a second object of the same name; nameless ones are told apart by content."""
        if not key[3]:
            return True
        unique = (*key[:2], key[2] or "default", key[3])
        before = self.seen.setdefault(unique, place.source)
        if before is not place.source:
            self.problems.append(place.put(Problem("", f"stands twice; it came before in {before}")))
        return before is place.source

    def _keep(self, reading: Reading, raw: Mapping[str, Json], key: Key, place: _Place) -> None:
        known = _GROUP_OF.get(key[1])
        if (known or "").endswith(("koordinator.sh", "sigs.k8s.io")):
            reading.warn("apiVersion", f"not read: {key[1]} is a kind of {known}, not of {key[0] or 'v1'}")
        text = canonical_text(raw)
        name = key[3] or "sha256:" + hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
        namespace = key[2] or ("default" if key[:2] in _NAMESPACED else "")
        unique = (*key[:3], name)
        if not key[3] and self.seen.setdefault(unique, place.source) is not place.source:
            reading.problem("", f"stands twice; it came before in {self.seen[unique]}")
            return
        self.records.append(
            RawObject(
                kind=key[1], name=name, namespace=namespace, api_version=str(raw["apiVersion"]), text=text
            )
        )
        slim = {
            "apiVersion": raw["apiVersion"],
            "kind": key[1],
            "metadata": raw.get("metadata"),
            "spec": raw.get("spec"),
        }
        self.unread.append((key, slim, place.source))

    def _take(self, decoded: Any, place: _Place) -> None:
        match decoded:
            case PodReading():
                self.pods.append((decoded, place.source))
            case Node():
                self.nodes.append(decoded)
            case Policies():
                self.policies += decoded.policies
            case QuotaReading():
                self.records.append(decoded.quota)
                self.quotas.append(decoded.written)
            case _:
                self.records.append(decoded)

    def _note_owners(self, reading: Reading, raw: Mapping[str, Json], key: Key) -> None:
        meta = raw.get("metadata")
        listed = meta.get("ownerReferences") if is_object(meta) else None
        if not listed:
            return
        try:
            owners = self.memory.once(as_owners, listed)
        except ManifestError as error:
            if key[:2] not in DECODERS:
                reading.note(error, "metadata.ownerReferences")
            return
        self.owners[key] = tuple(
            (owner.api_version.rpartition("/")[0], owner.kind, key[2], owner.name) for owner in owners
        )

    # -- when all is known -----------------------------------------------------------------------------

    def finish(self) -> Loaded:
        """Resolve priorities, bindings and owners.

        Raises
        ------
        ManifestError
            With everything that was wrong.
        """
        self.problems += self._placed(owner_cycles(self.owners))
        self.problems += self._placed(quota_cycles(self.records))
        self._profiles()
        unread = self._generic_workloads()
        synced = sync_devices(self.nodes, self.records, [read.pod for read, _ in self.pods])
        reserved = sync_reservations(synced.nodes, synced.records)
        self.nodes, self.records = synced.nodes, reserved.records
        self.warnings += self._placed((*synced.remarks, *reserved.remarks))
        states, pending = self._bind()
        self.warnings += self._placed(untold_holders(states, self.records))
        self._cross_checks()
        self._claim_conflicts(states, pending)
        if self.problems:
            raise ManifestError(dict.fromkeys(self.problems))
        try:
            snapshot = ClusterSnapshot(nodes=states, pending=pending, records=tuple(self.records))
        except ModelError as error:
            raise ManifestError.at("", str(error)) from None
        return Loaded(
            snapshot=snapshot,
            policies=tuple(sorted(self.policies, key=lambda policy: policy.name)),
            warnings=tuple(self.warnings),
            counts=dict(sorted(self.counts.items())),
            unread=dict(sorted(unread.items())),
            podless=dict(sorted(self._podless().items())),
        )

    def _podless(self) -> Counter[str]:
        owning = {owner for owners in self.owners.values() for owner in owners}
        pods = ((read.pod.namespace, read.pod.name) for read, _ in self.pods)
        return Counter(map(_kind, without_pods(self.wanting, owning, pods)))

    def _cross_checks(self) -> None:
        pods = [read.pod for read, _ in self.pods]
        self.problems += self._placed(stand_ins(self.records, pods))
        self.warnings += self._placed(topology_remarks(self.records, pods, self.nodes))
        self.warnings += self._placed(gang_remarks(self.records, pods))
        self.warnings += self._placed(quota_remarks(self.quotas, pods, self.gates))
        self.warnings += self._placed(profile_remarks(self.records))

    def _placed(self, remarks: Iterable[Remark]) -> Iterator[Problem]:
        return (_Place(self.seen.get(unique_key(key), ""), key).put(problem) for key, problem in remarks)

    def _bind(self) -> tuple[tuple[NodeState, ...], tuple[Pod, ...]]:
        classes = {one.name: one for one in self.records if isinstance(one, PriorityClass)}
        on_node: dict[str, list[Pod]] = {node.name: [] for node in self.nodes}
        pending: list[Pod] = []
        checked: set[int] = set()
        claims = {
            (one.namespace, one.name): one for one in self.records if isinstance(one, PersistentVolumeClaim)
        }
        for read, source in self.pods:
            reading = Reading(self.memory)
            pod = resolve_priority(reading, read, classes)
            if pod.finished:
                self.records.append(pod)
            elif pod.node_name is None:
                pending.append(pod)
                warn_of_volumes(reading, pod, claims)
                reading.warnings += pod_problems(pod)
            elif pod.node_name in on_node:
                on_node[pod.node_name].append(pod)
                if id(pod.requests) not in checked:
                    checked.add(id(pod.requests))
                    check_countable(reading, pod)
            else:
                self.records.append(pod)
                reading.warn("spec.nodeName", f"no node {pod.node_name} in the dump; the pod holds nothing")
            if reading.problems or reading.warnings:
                place = _Place(source, ("", "Pod", pod.namespace, pod.name))
                self.problems += map(place.put, reading.problems)
                self.warnings += map(place.put, reading.warnings)
        states = tuple(NodeState(node, tuple(on_node[node.name])) for node in self.nodes)
        return states, tuple(pending)

    def _claim_conflicts(self, states: tuple[NodeState, ...], pending: tuple[Pod, ...]) -> None:
        for found in claim_conflicts(self.records, states, pending):
            group, kind = (
                ("", "Pod") if isinstance(found.about, Pod) else ("resource.k8s.io", "ResourceClaim")
            )
            key = (group, kind, found.about.namespace, found.about.name)
            self.warnings.append(_Place(self.seen.get(key, ""), key).put(found.problem))

    def _generic_workloads(self) -> Counter[str]:
        """Read objects of unknown kinds as workloads where another object names them as its owner."""
        owning = {owner for owners in self.owners.values() for owner in owners}
        unread: Counter[str] = Counter()
        for key, raw, source in self.unread:
            if key[:2] in READ_AS_TEXT:
                continue
            if key in owning:
                reading = Reading(self.memory)
                workload = read_workload(reading, raw)
                if not reading.problems:
                    self.records.append(workload)
                    continue
                # Its selector or replicas mean something else: it stays what it is, an unread object.
                place = _Place(source, key)
                self.warnings += map(place.put, reading.problems)
            unread[_kind(key)] += 1
        return unread

    def _profiles(self) -> None:
        names = Counter(policy.name for policy in self.policies)
        for name, count in sorted(names.items()):
            if count > 1:
                self.problems.append(Problem("", f"{count} scheduler profiles are called {name}"))


def unique_key(key: Key) -> Key:
    """Give the key under which an object stands: one without a namespace is in ``default``."""
    return (*key[:2], key[2] or "default", key[3])


def _kind(key: Key) -> str:
    return f"{key[1]}.{key[0]}" if key[0] and key[:2] not in DECODERS else key[1]


def check_countable(reading: Reading, pod: Pod) -> None:
    """Refuse amounts that no sum could hold."""
    for name, amount in pod.requests.items():
        if amount > AMOUNT_LIMIT:
            reading.problem("spec", f"requests {amount} of {name}; at most {AMOUNT_LIMIT} can be counted")


def canonical_text(raw: Mapping[str, Json]) -> str:
    """Write an object as JSON with sorted keys and no spaces: equal objects give equal texts.

    Raises
    ------
    ManifestError
        When it nests too deeply, or holds what JSON cannot.
    """
    try:
        return json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (RecursionError, TypeError, ValueError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ManifestError.at("", f"not JSON: {reason}") from None
