"""One object of a dump: what it comes to, and what of it cannot be read.

What an object says wrongly hurts that object alone (ruling 25). A Pod that cannot be read stays a pod, with
the text, because it waits for an answer or holds room; anything else is left out, and named.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.manifests._raw import SourceObject
from koordcore.manifests._reading import Memory, Reading, as_owners, identity_of, is_object
from koordcore.manifests._reads import TopTraced, unread
from koordcore.manifests.cross_checks import Key, shown
from koordcore.manifests.ignored import check_holdings, check_node, check_pod
from koordcore.manifests.koordinator import KOORDINATOR, Policies, QuotaReading
from koordcore.manifests.kubernetes import KUBERNETES, Decoder
from koordcore.manifests.kueue import KUEUE
from koordcore.manifests.nameless import named
from koordcore.manifests.podless import wants_pods
from koordcore.manifests.pods import PodReading
from koordcore.manifests.reservations import still_held
from koordcore.manifests.workloads import read_workload
from koordcore.model.cluster import RawObject, Unreadable
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.model.resources import HELD_LIMIT, NO_RESOURCES
from koordcore.protocol.fields import Json, show

DECODERS: Final[Mapping[tuple[str, str], Decoder]] = {**KUBERNETES, **KOORDINATOR, **KUEUE}
"""API group and kind to decoder; objects of other kinds are kept as they are, and counted."""

_NAMESPACED: Final = frozenset({("", "Service"), ("", "ConfigMap"), ("", "PersistentVolumeClaim")})
"""Kinds without a decoder that live in ``default`` when they name no namespace."""
_GROUP_OF: Final = {kind: group for group, kind in DECODERS}
_POD: Final = ("", "Pod")
UNREAD_FIELD: Final = "has no effect: nothing here reads it"
_MOST: Final = 100
"""Problems of one object that are kept; who has that many has thousands."""
_SHOWN: Final = 3
"""Problems of one object that stand in its decision."""

Content: TypeAlias = "PodReading | Node | Policies | QuotaReading | ClusterRecord"


@record(kw_only=True, eq=False)
class ReadObject:
    """What one object comes to.

    Parameters
    ----------
    key
        What tells it apart: one without a namespace is in ``default``.
    name
        As owners are told: with its namespace only where the object says it.
    source
        Where it stands.
    version
        Its ``resourceVersion``; 0 where there is none that can be compared.
    named
        Whether its name and namespace are its own, and not made up because they cannot be read.
    content
        What it comes to: of what cannot be read a pod that says so, or :class:`Unreadable`.
    slim
        As much of an object of an unknown kind as a workload is read out of.
    owners
        Who made it.
    wants_pods
        It wants pods, whether or not anybody has made them.
    problems, warnings
        What was met, with the object's place.
    """

    key: Key
    name: Key
    source: str
    version: int
    named: bool
    content: Any
    slim: Mapping[str, Json] | None
    owners: tuple[Key, ...]
    wants_pods: bool
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]

    @property
    def record(self) -> ClusterRecord | None:
        """What of it stands among the records of a snapshot as it was read; ``None`` for nothing."""
        match self.content:
            case PodReading() | Node() | Policies():
                return None
            case QuotaReading():
                quota: ClusterRecord = self.content.quota
                return quota
            case _:
                found: ClusterRecord = self.content
                return found

    @property
    def kind(self) -> str:
        """How its kind is called where objects are counted."""
        return kind_of(self.name)

    def put(self, problem: Problem) -> Problem:
        """Say where a problem is."""
        return Problem(problem.path, problem.message, object_name=shown(self.name), source=self.source)


def unique_key(key: Key) -> Key:
    """Give the key under which an object stands: one without a namespace is in ``default``."""
    return (*key[:2], key[2] or "default", key[3])


def key_of(raw: Json) -> Key:
    """Give the key of an object without reading the rest of it."""
    name = identity_of(raw)
    if is_object(raw) and name[:2] in DECODERS:
        name = identity_of(named(Reading(), raw, ""))
    return unique_key(name)


def kind_of(key: Key) -> str:
    """Write the kind of an object, with its group where that is not one that is read."""
    return f"{key[1]}.{key[0]}" if key[0] and key[:2] not in DECODERS else key[1]


def version_of(raw: Json) -> int:
    """Read the resource version of an object; 0 where there is none that can be compared."""
    meta = raw.get("metadata") if is_object(raw) else None
    version = meta.get("resourceVersion") if is_object(meta) else None
    if isinstance(version, str) and version.isascii() and version.isdecimal() and len(version) < 20:
        return int(version)
    return 0


def stamp_of(raw: Json) -> tuple[str, int]:
    """Read uid and version of an object; empty and 0 where there are none that can be compared."""
    meta = raw.get("metadata") if is_object(raw) else None
    uid = meta.get("uid") if is_object(meta) else None
    return uid if isinstance(uid, str) else "", version_of(raw)


def read_object(memory: Memory, source: SourceObject) -> ReadObject:
    """Read one object; what is wrong with it stands in the answer, whatever it is."""
    reading = Reading(memory)
    raw = _with_header(reading, source.raw)
    reading.problems += source.refused
    own_name, wanting = True, False
    slim: Mapping[str, Json] | None = None
    owners: tuple[Key, ...] = ()
    content: Any = None
    if raw is None:
        name = identity_of(source.raw)
        key = unique_key((*name[:3], name[3] or source.source or _name_by_content(show(source.raw))))
    else:
        name = identity_of(raw)
        decoder = DECODERS.get(name[:2])
        if decoder is not None:
            before, written = len(reading.problems), raw
            raw = named(reading, raw, source.source)
            own_name = len(reading.problems) == before
            name = name if raw is written else identity_of(raw)
        key = unique_key(name)
        try:
            if decoder is not None:
                content = _decoded(decoder, reading, raw, watched=name[:2] in KOORDINATOR)
            if content is None:
                content = _kept(reading, raw, name)
                key = unique_key((*name[:3], content.name))
                slim = {one: raw.get(one) for one in ("apiVersion", "kind", "metadata", "spec")}
            _look_at(reading, content)
        except (ManifestError, ModelError) as error:
            reading.note(error, "")
        if isinstance(content, Policies):
            key = (*key[:3], source.source)  # the only kind without a name
        owners = _owners_of(reading, raw, name)
        wanting = (decoder is None or decoder is read_workload) and wants_pods(name, raw)
    if reading.problems:
        content, slim = _broken(reading, content, raw, key, name), None
    found = ReadObject(
        key=key,
        name=name,
        source=source.source,
        version=version_of(raw),
        named=own_name,
        content=content,
        slim=slim,
        owners=owners,
        wants_pods=wanting,
        problems=(),
        warnings=(),
    )
    if not reading.problems and not reading.warnings:
        return found
    problems = _most(dict.fromkeys(reading.problems))
    return attrs.evolve(
        found,
        problems=tuple(map(found.put, problems)),
        warnings=tuple(map(found.put, reading.warnings)),
    )


def _with_header(reading: Reading, raw: Json) -> Mapping[str, Json] | None:
    """Check that a value is an object of some kind; ``None`` where that cannot be read.

    A Pod without its version is a pod all the same: it may hold room.
    """
    if not is_object(raw):
        reading.problem("", f"expected object, got {show(raw)}")
        return None
    kind = raw.get("kind")
    for name in ("apiVersion", "kind"):
        value = raw.get(name)
        if not isinstance(value, str) or not value:
            group = _GROUP_OF.get(kind) if name == "apiVersion" and isinstance(kind, str) else None
            hint = "" if group is None else f' (such as "{group + "/" if group else ""}v1")'
            wrong = "required" if value is None else f"expected string, got {show(value)}"
            reading.problem(name, wrong + hint)
            return {**raw, "apiVersion": "v1"} if name == "apiVersion" and kind == "Pod" else None
    return raw


def _name_by_content(raw: Json) -> str:
    """Call what has no name after what it says."""
    text = canonical_text(raw)
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def canonical_text(raw: Json) -> str:
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


def _decoded(decoder: Decoder, reading: Reading, raw: Mapping[str, Json], *, watched: bool) -> Any:
    """Decode an object; fields of its specification that nobody reads are named where that is watched."""
    spec = raw.get("spec")
    if not watched or not is_object(spec):
        return decoder(reading, raw)
    traced = TopTraced(spec)
    content = decoder(reading, {**raw, "spec": traced})
    for name in unread(traced):
        reading.warn(f"spec.{name}", UNREAD_FIELD)
    return content


def distinct(warnings: Iterable[Problem]) -> list[Problem]:
    """Name a field that nobody reads once for all objects of a kind that have it."""
    found: dict[object, Problem] = {}
    more: Counter[object] = Counter()
    for number, one in enumerate(warnings):
        unread_field = one.message == UNREAD_FIELD
        key = (one.object_name.partition(" ")[0], one.path) if unread_field else number
        more[key] += key in found
        found.setdefault(key, one)
    return [
        attrs.evolve(one, message=f"{one.message} (here and in {more[key]} more)") if more[key] else one
        for key, one in found.items()
    ]


def _kept(reading: Reading, raw: Mapping[str, Json], name: Key) -> RawObject:
    """Keep an object of a kind that no plugin reads as it is."""
    known = _GROUP_OF.get(name[1])
    if (known or "").endswith(("koordinator.sh", "sigs.k8s.io")) or name[1] in ("Pod", "Node"):
        kind = f"{name[1]} is a kind of {known or 'v1'}"
        reading.warn("apiVersion", f"not read: {kind}, not of {name[0] or 'v1'}")
    namespace = name[2] or ("default" if name[:2] in _NAMESPACED else "")
    return RawObject(
        kind=name[1],
        name=name[3] or _name_by_content(raw),
        namespace=namespace,
        api_version=str(raw["apiVersion"]),
        text=canonical_text(raw),
    )


def _look_at(reading: Reading, content: Any) -> None:
    """Say what an object that was read says in vain, and what cannot be counted."""
    if isinstance(content, PodReading):
        check_pod(reading, content.pod)
        if content.pod.bound:
            _count(reading, "spec", content.pod.requests)
            check_holdings(reading, content.pod)
    elif isinstance(content, Node):
        check_node(reading, content)
    elif isinstance(content, Reservation) and content.active:
        granted = content.status.allocatable or NO_RESOURCES
        _count(reading, "spec.template", {**content.requests, **granted})


def _count(reading: Reading, path: str, requests: Mapping[str, int]) -> None:
    """Say what is held on a node and cannot be counted."""
    for name, amount in requests.items():
        if amount > HELD_LIMIT:
            message = f"requests {amount} of {name}; at most {HELD_LIMIT} can be counted"
            reading.problem(path, message)


def _owners_of(reading: Reading, raw: Mapping[str, Json], name: Key) -> tuple[Key, ...]:
    meta = raw.get("metadata")
    listed = meta.get("ownerReferences") if is_object(meta) else None
    if not listed:
        return ()
    try:
        owners = reading.memory.once(as_owners, listed)
    except ManifestError as error:
        if name[:2] not in DECODERS:
            reading.note(error, "metadata.ownerReferences")
        return ()
    return tuple((owner.api_version.rpartition("/")[0], owner.kind, name[2], owner.name) for owner in owners)


# --- what cannot be read ----------------------------------------------------------------------------


_BESIDE: Final = (
    "apiVersion",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.ownerReferences",
    "spec.activeDeadlineSeconds",
    "spec.nodeSelector",
    "spec.preemptionPolicy",
    "spec.priority",
    "spec.schedulerName",
    "spec.schedulingGates",
    "spec.tolerations",
    "spec.topologySpreadConstraints",
    "status.conditions",
    "status.nominatedNodeName",
    "status.phase",
    "status.qosClass",
    "status.startTime",
)
"""Fields of a running pod that say nothing of what it holds, nor of whom it keeps away."""


def _broken(reading: Reading, content: Any, raw: Mapping[str, Json] | None, key: Key, name: Key) -> Any:
    """Give what stands for an object with problems."""
    if isinstance(content, Reservation) and content.name == key[3]:
        held = still_held(content, reading.problems, _in_short(reading.problems))
        return held or left_out(key, name, reading.problems)
    if key[:2] != _POD or raw is None:
        return left_out(key, name, reading.problems)
    read = content if isinstance(content, PodReading) else _bare_pod(raw, key)
    why = _in_short(reading.problems)
    if read.pod.node_name is None and not read.pod.finished:
        return attrs.evolve(read, pod=_bystander(read.pod, why))
    requests, scored = (
        {name: amount for name, amount in amounts.items() if amount <= HELD_LIMIT}
        for amounts in (read.pod.requests, read.pod.scored_requests)
    )
    known = read is content and all(one.path.startswith(_BESIDE) for one in reading.problems)
    pod = attrs.evolve(read.pod, requests=requests, scored_requests=scored, unreadable=why, holds_known=known)
    return attrs.evolve(read, pod=pod)


def _bystander(pod: Pod, why: str) -> Pod:
    """Give a pod that waits for its answer alone: it belongs to no gang and no quota, and keeps no room."""
    return Pod(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        owners=pod.owners,
        priority=pod.priority,
        priority_class=pod.priority_class,
        scheduler_name=pod.scheduler_name,
        created=pod.created,
        unreadable=why,
    )


def _bare_pod(raw: Mapping[str, Json], key: Key) -> PodReading:
    """Give a pod of which nothing else can be read: where it is counts all the same."""
    spec = raw.get("spec")
    node = spec.get("nodeName") if is_object(spec) else None
    pod = Pod(name=key[3], namespace=key[2], node_name=node if isinstance(node, str) and node else None)
    return PodReading(pod, has_priority=True, has_policy=True)


def left_out(key: Key, name: Key, problems: Iterable[Problem]) -> Unreadable:
    """Give what stands for an object that is left out, because of itself or because of another one."""
    return Unreadable(kind=key[1], name=key[3], namespace=name[2], group=key[0], why=_in_short(problems))


def _in_short(problems: Iterable[Problem]) -> str:
    texts = list(dict.fromkeys(str(Problem(one.path, one.message)) for one in problems))
    rest = len(texts) - _SHOWN
    return "; ".join(texts[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")


def _most(problems: Iterable[Problem]) -> list[Problem]:
    found = list(problems)
    rest = len(found) - _MOST
    return [*found[:_MOST], Problem("", f"and {rest} more problems")] if rest > 0 else found
