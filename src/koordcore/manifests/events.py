"""Watch events in, changes out: what leads a snapshot on without reading the cluster anew.

The reader remembers of every object what it comes to, and nothing of its text. Events of different objects
may come in any order: a pod before its node or its priority class, an object before its owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from koordcore._blame import names_its_arguments
from koordcore.errors import ManifestError, Problem
from koordcore.manifests._raw import SourceObject
from koordcore.manifests._reading import Memory, Reading, identity_of, is_object
from koordcore.manifests.assumed import Assumed, On
from koordcore.manifests.beside import Beside, Slot, unsettled
from koordcore.manifests.bundle import READ_AS_TEXT
from koordcore.manifests.cross_checks import Key
from koordcore.manifests.koordinator import QuotaReading
from koordcore.manifests.objects import ReadObject, key_of, left_out, read_object, stamp_of, unique_key
from koordcore.manifests.pods import PodReading, class_asked, resolve_priority
from koordcore.manifests.standing import Standing, moves
from koordcore.manifests.together import Known, named, those_there, told
from koordcore.manifests.workloads import read_workload
from koordcore.model.cluster import PriorityClass, Unreadable
from koordcore.model.decisions import Bound
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.protocol.fields import Json, show
from koordcore.snapshot.changes import (
    Change,
    NodeAdded,
    NodeRemoved,
    NodeReplaced,
    RecordAdded,
    RecordRemoved,
    RecordReplaced,
    record_key,
)

_POD: Final = ("", "Pod")
_NODE: Final = ("", "Node")


class EventReader:
    """Reads watch events of Kubernetes and Koordinator objects as changes of a snapshot.

    What cannot be read is hurt alone, as by :func:`koordcore.manifests.load`, and is named in
    :attr:`problems` until it is replaced or gone: a Pod stands there and says so, anything else is left out.
    The changes of all events lead an empty snapshot to what :func:`koordcore.manifests.load` makes of the
    objects that are there, and so do :attr:`warnings`; but what the manager of a live cluster writes on nodes
    out of their Device objects, and agents on topologies, is not completed in their place, as in a dump.

    Examples
    --------
    >>> from koordcore import ClusterSnapshot
    >>> reader, snapshot = EventReader(), ClusterSnapshot()
    >>> pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"nodeName": "n1"}}
    >>> snapshot = snapshot.apply(*reader.event("ADDED", pod))  # it holds nothing: nobody knows its node
    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    >>> snapshot = snapshot.apply(*reader.event("ADDED", node))
    >>> [str(one.key) for one in snapshot.bound_pods()]
    ['default/web']
    >>> reader.relist("v1", "Pod", [])  # its end was missed
    (PodEnded(pod=PodKey(namespace='default', name='web')),)
    """

    def __init__(self) -> None:
        self._memory = Memory()
        self._known: dict[Key, Known] = {}
        self._kinds: dict[tuple[str, str], dict[Key, None]] = {}
        self._strays: dict[tuple[str, str], set[Key]] = {}
        """What was among the objects of a kind and is none of it, by that kind."""
        self._said: dict[str, dict[Key, tuple[Problem, ...]]] = {}
        """Problems and warnings by kind: of an object as it was read, and of a pod as it stands now."""
        self._nodes: dict[str, Node] = {}
        self._classes: dict[str, PriorityClass] = {}
        self._pods: dict[Key, PodReading] = {}
        self._on: On = {}
        self._assumed = Assumed(self._on)
        self._standing: dict[Key, Standing] = {}
        self._records: dict[Slot, ClusterRecord] = {}
        self._beside = Beside()
        self._shown: dict[Slot, ClusterRecord] = {}
        """Those of the records that are in the snapshot."""
        self._owned: Counter[Key] = Counter()
        self._held_back: dict[Key, Unreadable] = {}
        self._warned: tuple[Problem, ...] | None = None
        self._changes: list[Change] = []

    # -- telling -----------------------------------------------------------------------------------------

    def event(self, what: str, item: Mapping[str, Json]) -> tuple[Change, ...]:
        """Read one event.

        Parameters
        ----------
        what
            ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``. An event that is older than what is known of
            its object, or of a later one of the name, is passed over.
        item
            The object with ``apiVersion`` and ``kind``, as the watch delivers it.

        Returns
        -------
        tuple of Change
            For :meth:`koordcore.ClusterSnapshot.apply`, in this order; none where nothing changes.

        Raises
        ------
        ManifestError
            When it is no such event; an ``ERROR`` of the watch is its reader's to handle.
        """
        if what == "BOOKMARK":
            return ()
        if what not in ("ADDED", "MODIFIED", "DELETED"):
            raise ManifestError.at("type", f"expected ADDED, MODIFIED, DELETED or BOOKMARK, got {show(what)}")
        if what == "DELETED":
            self._delete(item)
        elif not self._is_past(item):
            self._put(item)
        return self._done()

    @names_its_arguments
    def relist(self, api_version: str, kind: str, items: Iterable[Mapping[str, Json]]) -> tuple[Change, ...]:
        """Read all objects of a kind; what is known and not among them has gone, unseen.

        Parameters
        ----------
        api_version, kind
            Of the items, which may lack them.
        """
        group = api_version.rpartition("/")[0]
        there: set[Key] = set()
        for item in items:
            whole: Mapping[str, Json] = (
                {"apiVersion": api_version, "kind": kind, **item} if is_object(item) else item
            )
            there.add(key_of(whole))
            self._put(whole)
        listed = (group, kind)
        strays = self._strays.pop(listed, set()) - there - {*chain.from_iterable(self._strays.values())}
        for key in [one for one in self._kinds.get(listed, ()) if one not in there] + sorted(strays):
            if key in self._known:
                self._forget(key)
        broken = self._said.get("problem", {})
        self._strays[listed] = {one for one in there if one[:2] != listed and one in broken}
        return self._done()

    @names_its_arguments
    def assume(self, *decisions: Bound) -> tuple[Change, ...]:
        """Take pods for bound as was decided, before the watch shows it.

        They stand there, whatever else is told of them meanwhile, until they are bound, gone, or taken back
        by :meth:`forget`; a node that goes takes it back as well. Reservations that were placed are no pods,
        and are passed over.

        Parameters
        ----------
        decisions
            Such as :attr:`koordcore.ScheduleResult.bound`.
        """
        for one in decisions:
            key = (*_POD, one.pod.namespace, one.pod.name)
            read = self._pods.get(key)
            if read is not None and read.pod.node_name is None:
                self._assumed.put(key, read.pod.uid, one)
                self._stand(key)
        return self._done()

    @names_its_arguments
    def forget(self, *pods: PodKey | str) -> tuple[Change, ...]:
        """Let pods wait again that were assumed, such as after the server refused to bind them."""
        for one in pods:
            pod = PodKey.parse(one) if isinstance(one, str) else one
            key = (*_POD, pod.namespace, pod.name)
            if self._assumed.drop(key):
                self._stand(key)
        return self._done()

    # -- reading -----------------------------------------------------------------------------------------

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What cannot be read, in the order of the objects' keys."""
        kinds = ("problem", "held back")
        found = sorted((key, kind) for kind in kinds for key in self._said.get(kind, ()))
        return tuple(problem for key, kind in found for problem in self._said[kind][key])

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What was read in a way that its author may not expect.

        First what objects say of themselves, then what is said of them beside others, as loading all of them
        at once does; each in the order of the objects' keys. All of them are looked at when this is asked for
        after an event, and not before.
        """
        if self._warned is None:
            pods = self._standing, self._pods
            there = those_there(self._nodes, *pods, self._shown, self._known, self._held_back)
            self._warned = told(self._said, self._standing, there)
        return self._warned

    def _say(self, key: Key, kind: str, problems: Iterable[Problem]) -> None:
        """Keep what is to be said about an object, in the place of what was said before."""
        self._warned = None
        new = tuple(named(self._known[key].name, problems))
        if new:
            self._said.setdefault(kind, {})[key] = new
        elif kind in self._said:
            self._said[kind].pop(key, None)

    # -- objects -----------------------------------------------------------------------------------------

    def _put(self, item: Mapping[str, Json]) -> None:
        key = key_of(item)
        uid, version = stamp_of(item)
        known = self._known.get(key)
        if known is not None and version and known.version >= version and known.uid == uid:
            return
        if known is not None and known.uid != uid:
            self._forget(key)  # another one of the name: the end of the first was missed
        read = read_object(self._memory, SourceObject("", item))
        owners = known.owners if known is not None and key in self._known else ()
        self._known[key] = Known(identity_of(item), uid, version, owners)
        self._kinds.setdefault(key[:2], {})[key] = None
        self._say(key, "problem", read.problems)
        self._say(key, "warning", read.warnings)
        self._take(key, read)

    def _is_past(self, item: Mapping[str, Json]) -> bool:
        """Tell whether an event is of an earlier object of the name than the one that is known."""
        known, (uid, version) = self._known.get(key_of(item)), stamp_of(item)
        return known is not None and known.uid != uid and 0 < version < known.version

    def _delete(self, item: Mapping[str, Json]) -> None:
        key = key_of(item)
        uid, version = stamp_of(item)
        known = self._known.get(key)
        if known is None:
            return
        same = known.uid == uid and (not version or known.version <= version)
        # The end of a later one of the name says that this one has gone as well: its own was missed.
        if same or 0 < known.version < version:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        """An object is gone."""
        self._take(key, None)
        for kind in ("problem", "warning"):
            self._say(key, kind, ())
        del self._kinds[key[:2]][key]
        del self._known[key]

    def _take(self, key: Key, read: ReadObject | None) -> None:
        """Let what was read of an object stand for what it was before; ``None`` for one that is gone."""
        self._own(key, () if read is None else read.owners)
        content = None if read is None else read.content
        if key[:2] == _NODE:
            self._take_node(key[3], content if isinstance(content, Node) else None)
        if key[:2] == _POD:
            self._take_pod(key, content if isinstance(content, PodReading) else None)
        else:
            self._take_records(key, read)

    def _done(self) -> tuple[Change, ...]:
        changes, self._changes = tuple(self._changes), []
        return changes

    # -- nodes and pods ----------------------------------------------------------------------------------

    def _take_node(self, name: str, node: Node | None) -> None:
        before = self._nodes.get(name)
        if node == before:
            return
        if node is None:
            del self._nodes[name]
            self._changes.append(NodeRemoved(name))
            for key in list(self._on.get(name, ())):
                if self._standing.get(key, ("",))[0] == "bound":
                    del self._standing[key]
                if self._assumed.drop(key):
                    self._stand(key)
        else:
            self._nodes[name] = node
            self._changes.append(NodeAdded(node) if before is None else NodeReplaced(node))
        if node is None or before is None:
            for key in self._on.get(name, ()):
                self._stand(key)

    def _take_pod(self, key: Key, read: PodReading | None) -> None:
        before = self._pods.pop(key, None)
        self._assumed.heed(key, None if read is None else read.pod)
        if before is not None and before.pod.node_name:
            on = self._on[before.pod.node_name]
            del on[key]
            if not on:
                del self._on[before.pod.node_name]
        if read is not None:
            self._pods[key] = read
            if read.pod.node_name:
                self._on.setdefault(read.pod.node_name, {})[key] = None
        self._stand(key)
        if (before is None) != (read is None) and self._beside.names(key):
            self._hold_back("Reservation")

    def _stand(self, key: Key) -> None:
        """Let a pod stand where it belongs now."""
        reading = Reading(self._memory)
        place, pod = self._placed(reading, key)
        warnings = reading.warnings if pod is None or not pod.unreadable else ()
        self._say(key, "placed warning", warnings)
        before = self._standing.pop(key, None)
        if pod is not None:
            self._standing[key] = place, pod
        self._changes += moves(before, self._standing.get(key))

    def _placed(self, reading: Reading, key: Key) -> tuple[str, Pod | None]:
        """Tell where a pod belongs, with its priority."""
        read = self._pods.get(key)
        if read is None:
            return "", None
        pod = resolve_priority(reading, read, self._classes)
        if pod.finished:
            return "record", pod
        if pod.node_name is None and self._assumed.node_of(key) is not None:
            return "bound", self._assumed.bound(key, pod)
        if pod.node_name is None:
            return "waits", pod
        if pod.node_name in self._nodes:
            return "bound", pod
        reading.warn("spec.nodeName", f"no node {pod.node_name} in the dump; the pod holds nothing")
        return "record", pod

    # -- records -----------------------------------------------------------------------------------------

    def _take_records(self, key: Key, read: ReadObject | None) -> None:
        known = self._known[key]
        known.unread = None if read is None else read.slim
        asked = None if read is None else read.content
        known.quota = asked.written if isinstance(asked, QuotaReading) else None
        before = self._records.get((key, ""))
        record = None if read is None else read.record
        self._keep((key, ""), record)
        self._read_workload(key)
        if isinstance(before, PriorityClass) or isinstance(record, PriorityClass):
            self._settle_priorities(before, record)
        for kind in unsettled(before, record):
            self._hold_back(kind)

    def _keep(self, slot: Slot, record: ClusterRecord | None) -> None:
        """Let a record stand for what was in its place."""
        before = self._records.get(slot)
        if record is None:
            self._records.pop(slot, None)
        else:
            self._records[slot] = record
        self._beside.keep(slot, before, record)
        self._show(slot)

    def _show(self, slot: Slot) -> None:
        """Bring the snapshot up to what is known of a record."""
        before = self._shown.pop(slot, None)
        held = None if slot[1] else self._held_back.get(slot[0])
        after = held or self._records.get(slot)
        if after is not None:
            self._shown[slot] = after
        if before == after:
            return
        if before is not None and after is not None and record_key(before) == record_key(after):
            self._changes.append(RecordReplaced(after))
            return
        if before is not None:
            self._changes.append(RecordRemoved(before))
        if after is not None:
            self._changes.append(RecordAdded(after))

    def _own(self, key: Key, owners: tuple[Key, ...]) -> None:
        """Note who owns an object: an owner of an unknown kind is read as a workload."""
        known = self._known[key]
        before, known.owners = known.owners, owners
        self._owned.subtract(before)
        self._owned.update(owners)
        for owner in {*before, *owners}:
            if not self._owned[owner]:
                del self._owned[owner]
            if unique_key(owner) in self._known:
                self._read_workload(unique_key(owner))

    def _read_workload(self, key: Key) -> None:
        raw, name = self._known[key].unread, self._known[key].name
        workload = None
        problems: list[Problem] = []
        if raw is not None and name in self._owned and key[:2] not in READ_AS_TEXT:
            reading = Reading(self._memory)
            found = read_workload(reading, raw)
            problems = reading.problems
            workload = None if problems else found
        self._say(key, "placed warning", problems)
        self._keep((key, "workload"), workload)

    # -- what objects say about each other -----------------------------------------------------------------

    def _settle_priorities(self, before: ClusterRecord | None, after: ClusterRecord | None) -> None:
        for one in (before, after):
            if isinstance(one, PriorityClass):
                self._classes.pop(one.name, None)
        if isinstance(after, PriorityClass):
            self._classes[after.name] = after
        settled = [one for one in (before, after) if isinstance(one, PriorityClass)]
        asked = {one.name for one in settled} | {"" for one in settled if one.global_default}
        for key, read in self._pods.items():
            if class_asked(read) in asked:
                self._stand(key)

    def _hold_back(self, kind: str) -> None:
        """Let it be known which objects cannot stand beside others, and let all others of the kind in."""
        problems_of: dict[Key, list[Problem]] = {}
        for key, problem in self._beside.remarks(kind, self._pods):
            problems_of.setdefault(unique_key(key), []).append(problem)
        before = {key for key in self._held_back if key[1] == kind}
        for key in before:
            del self._held_back[key]
        for key, problems in problems_of.items():
            self._held_back[key] = left_out(key, self._known[key].name, problems)
        for key in sorted(before | problems_of.keys()):
            self._say(key, "held back", problems_of.get(key, ()))
            self._show((key, ""))
