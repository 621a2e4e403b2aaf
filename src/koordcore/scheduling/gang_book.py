"""The gangs of a snapshot with their members, followed from snapshot to snapshot.

Gangs that name each other, in whatever direction and over however many others, are a family. What happens to
a family is worked out event by event, as the reference's cache does: an event copies what it may change, and
that of thousands of gangs is no concern of one pod. A family to which nothing happened stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore._vector import Table, Vector, gone_and_come
from koordcore.allocators.gang.cycle import permit
from koordcore.allocators.gang.events import add_pod_group, add_pods, post_bind
from koordcore.allocators.gang.members import in_two_gangs
from koordcore.allocators.gang.state import Code, GangRecord, GangState
from koordcore.model.gangs import CoschedulingArgs, Gang, GangPod, MatchPolicy, PodGroup
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.protocol.gang import gang_from_pod_group, parse_gang_pod
from koordcore.protocol.gang_names import WAITS_AT_PERMIT, gang_name
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived

_NOBODY: Final = frozenset[PodKey]()
_NO_GANGS: Final = GangState()
_NOTHING: Final[Table[Any, Any]] = Table({})


class Member(NamedTuple):
    """A member of a gang: the pod, what it says about the gang, and whether it ran to its end."""

    pod: Pod
    said: GangPod
    ended: bool

    @property
    def runs(self) -> bool:
        """It holds room on a node."""
        return not self.ended and self.pod.node_name is not None

    @property
    def started(self) -> bool:
        """It runs and stays, or ran to its end."""
        return self.ended or (self.runs and (self.pod.finished or self.pod.deleted is None))

    @property
    def leaves(self) -> bool:
        """It is on its way off its node, and no group of Kubernetes' own says what that means."""
        return self.runs and self.pod.terminating and self.pod.scheduling_group is None


Members = Mapping[tuple[PodKey, bool], Member]
"""By key and whether it ended."""
NO_MEMBERS: Final[Members] = immutabledict()


@record(eq=False, kw_only=True)
class GangBook:
    """All gangs of a snapshot.

    Parameters
    ----------
    pending
        Who waited.
    members
        By gang id.
    groups
        What PodGroups configure, by gang id.
    leaving
        Gangs with members on their way out.
    gone
        Members that count no more: on their way out of gang groups of which nobody stays. Such a group starts
        anew, as a whole. Else whoever is made anew would be placed beside those that leave, be half a gang
        once these have left, have to go, and so on for ever.
    half
        Gangs that run in part: of one of their group fewer members run, or ran to their end, than it needs.
    families, family_of
        Ids of the gangs of each family, by one of them; and that one by gang.
    parts
        The state of each family.
    records
        How far each gang has come.
    """

    pending: tuple[Pod, ...] = ()
    members: Table[str, Members] = _NOTHING
    groups: Table[str, Gang] = _NOTHING
    leaving: frozenset[str] = frozenset()
    gone: frozenset[PodKey] = _NOBODY
    half: frozenset[str] = frozenset()
    families: Table[str, frozenset[str]] = _NOTHING
    family_of: Table[str, str] = _NOTHING
    parts: Table[str, GangState] = _NOTHING
    records: Table[str, GangRecord] = _NOTHING

    def part(self, gang_id: str) -> GangState:
        """Give the state of the family of a gang."""
        family = self.family_of.get(gang_id)
        return _NO_GANGS if family is None else self.parts[family]

    def satisfied(self, gang_id: str) -> bool:
        """Tell whether a member of the group that a gang lists has been bound once."""
        record = self.records.get(gang_id)
        return record is not None and self.part(gang_id).group_of(record).satisfied

    def waits_for(self, gang_id: str) -> Sequence[str]:
        """Give the gangs without which no member of a gang starts, and those that are planned with it."""
        record = self.records.get(gang_id)
        if record is None or not self.satisfied(gang_id):
            return () if record is None else record.gang.group
        # It has started: those that have not matter only where they count anew at every start.
        anew = (MatchPolicy.ONLY_WAITING, MatchPolicy.WAITING_AND_RUNNING)
        listed = [name for name in record.gang.group if name in self.records]
        return [one for one in listed if self.satisfied(one) or self.records[one].gang.match_policy in anew]

    @property
    def state(self) -> GangState:
        """Give the state of all gangs."""
        groups = {name: group for part in self.parts.values() for name, group in part.groups.items()}
        return GangState(gangs=immutabledict(self.records), groups=immutabledict(groups))

    def running(self, gang_id: str) -> list[Pod]:
        """Give the members of a gang that hold room on a node, and count."""
        known = self.members.get(gang_id, NO_MEMBERS).values()
        return [one.pod for one in known if one.runs and one.pod.key not in self.gone]

    def running_beside(self, pods: Iterable[Pod]) -> list[Pod]:
        """List who holds room on a node of the gangs of some pods, and of the gangs that these go with."""
        names = {f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}" for pod in pods}
        known = [self.records[name].gang.group for name in sorted(names) if name in self.records]
        return [pod for name in sorted(names.union(*known)) for pod in self.running(name)]

    def ended(self, gang_id: str) -> int:
        """Count the members of a gang that ran to their end: they count as bound, and hold nothing."""
        return sum(one.ended for one in self.members.get(gang_id, NO_MEMBERS).values())


def gang_book(snapshot: ClusterSnapshot, args: CoschedulingArgs) -> GangBook:
    """Give all gangs of a snapshot.

    Parameters
    ----------
    snapshot
        The cluster.
    args
        What a gang does not say is as these have it.
    """
    opened = _Opened(args)
    return derived(snapshot, opened, opened.again, replaced=True)


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


@record
class _Opened:
    """How the gangs of a snapshot are read, and led on to those of a later one."""

    args: CoschedulingArgs

    def __call__(self, snapshot: ClusterSnapshot) -> GangBook:
        ended = filter(_has_ended, snapshot.of(Pod))
        came = [(pod, False) for pod in (*snapshot.bound_pods(), *snapshot.pending)]
        groups = snapshot.of(PodGroup)
        empty = GangBook(pending=snapshot.pending)
        return self._moved(empty, (), [*came, *((pod, True) for pod in ended)], (), groups)

    def again(
        self,
        nodes: Vector[NodeState],
        records: Vector[ClusterRecord],
        value: GangBook,
        snapshot: ClusterSnapshot,
    ) -> GangBook:
        """Follow who came and who left, and what PodGroups say now."""
        left, came = list[tuple[Pod, bool]](), list[tuple[Pod, bool]]()
        for old, new in changed_states(snapshot, nodes):
            before = () if old is None else old.pods
            after = () if new is None else new.pods
            left += ((pod, False) for pod in before)
            came += ((pod, False) for pod in after)
        waited, wait = gone_and_come(value.pending, snapshot.pending)
        left += ((pod, False) for pod in waited)
        came += ((pod, False) for pod in wait)
        gone, put = list[PodGroup](), list[PodGroup]()
        for was, now in changed_records(snapshot, records):
            gone += [was] if isinstance(was, PodGroup) else []
            put += [now] if isinstance(now, PodGroup) else []
            left += [(was, True)] if isinstance(was, Pod) and _has_ended(was) else []
            came += [(now, True)] if isinstance(now, Pod) and _has_ended(now) else []
        stay = {id(pod) for pod, _ in left} & {id(pod) for pod, _ in came}
        left = [one for one in left if id(one[0]) not in stay]
        came = [one for one in came if id(one[0]) not in stay]
        return self._moved(attrs.evolve(value, pending=snapshot.pending), left, came, gone, put)

    def _moved(
        self,
        book: GangBook,
        left: Iterable[tuple[Pod, bool]],
        came: Iterable[tuple[Pod, bool]],
        gone: Iterable[PodGroup],
        put: Iterable[PodGroup],
    ) -> GangBook:
        """Give the gangs after pods left and came, and after PodGroups went and were put."""
        fresh: dict[str, dict[tuple[PodKey, bool], Member]] = {}

        def of(gang_id: str) -> dict[tuple[PodKey, bool], Member]:
            if gang_id not in fresh:
                fresh[gang_id] = dict(book.members.get(gang_id, NO_MEMBERS))
            return fresh[gang_id]

        for pod, ended in left:
            if (gang := gang_name(pod.labels, pod.annotations)) and not in_two_gangs(pod):
                of(f"{pod.namespace}/{gang}").pop((pod.key, ended), None)
        for pod, ended in came:
            if (gang := gang_name(pod.labels, pod.annotations)) and not in_two_gangs(pod):
                said = gang_pod(pod, self.args)
                of(f"{pod.namespace}/{gang}")[pod.key, ended] = Member(pod, said, ended)
        left_groups = {_id_of(group) for group in gone}
        came_groups = {_id_of(group): gang_from_pod_group(group, self.args).gang for group in put}
        for name in (*left_groups, *came_groups):
            of(name)
        if not fresh:
            return book
        return _with_states(book, fresh, book.groups.changed(left_groups, came_groups))


def _id_of(group: PodGroup) -> str:
    return f"{group.namespace}/{group.name}"


def _has_ended(pod: Pod) -> bool:
    return pod.finished and bool(pod.node_name)


def _with_states(book: GangBook, fresh: Mapping[str, Members], groups: Table[str, Gang]) -> GangBook:
    """Work out anew what becomes of the families to which something happened."""

    def of(name: str) -> Members:
        return fresh[name] if name in fresh else book.members.get(name, NO_MEMBERS)

    home, anew, asked = _Families(), set[str](), list(fresh)
    while asked:
        first = asked.pop()
        if first not in anew:
            own = book.families.get(book.family_of.get(first, first), frozenset()) | {first}
            anew |= own
            for name in own:
                named = _named(of(name).values(), groups.get(name))
                home.join(name, named)
                asked += named - anew
    members = {name: of(name) for name in sorted(anew)}
    leaving = {name for name, own in members.items() if any(one.leaves for one in own.values())}
    counted = {key for name, own in members.items() for key, _ in (*own, *book.members.get(name, ()))}
    gone = (book.gone - counted) | _gone(members, groups, leaving)
    together = defaultdict[str, set[str]](set)
    for name in anew:
        together[home.of(name)].add(name)
    families = {
        name: frozenset(ids)
        for name, ids in together.items()
        if any(members[one] or one in groups for one in ids)
    }
    parts = {name: _part(sorted(ids), members, groups, gone) for name, ids in families.items()}
    dropped = {book.family_of[name] for name in anew if name in book.family_of}
    return GangBook(
        pending=book.pending,
        members=book.members.changed(fresh.keys(), {name: own for name, own in fresh.items() if own}),
        groups=groups,
        leaving=(book.leaving - anew) | leaving,
        gone=gone,
        half=(book.half - anew) | {name for part in parts.values() for name in _half(part, members)},
        families=book.families.changed(dropped, families),
        family_of=book.family_of.changed(anew, {one: name for name, ids in families.items() for one in ids}),
        parts=book.parts.changed(dropped, parts),
        records=book.records.changed(
            {name for first in dropped for name in book.parts[first].gangs},
            {name: record for part in parts.values() for name, record in part.gangs.items()},
        ),
    )


def _named(members: Iterable[Member], group: Gang | None) -> set[str]:
    """Give the ids that whatever may configure a gang lists."""
    found = set[str]() if group is None else {*group.group}
    for one in members:
        if one.said.config is not None:
            found.update(one.said.config.group)
    return found


def _half(part: GangState, members: Mapping[str, Members]) -> set[str]:
    """Find the gangs of a family that run in part."""
    started = {
        name: sum(one.started for one in members.get(name, NO_MEMBERS).values()) for name in part.gangs
    }
    short = {name for name, record in part.gangs.items() if started[name] < record.gang.min_available}
    return {
        name
        for name, record in part.gangs.items()
        if started[name] and not short.isdisjoint(record.gang.group)
    }


def _part(
    ids: Sequence[str],
    members: Mapping[str, Members],
    groups: Mapping[str, Gang],
    gone: frozenset[PodKey],
) -> GangState:
    """Build the state of some gangs: PodGroups first, then pods in the order of their keys."""
    state = GangState()
    for gang in (groups[name] for name in sorted(ids, key=lambda one: one.split("/")) if name in groups):
        state = add_pod_group(state, gang).state
    pods = {
        name: [one for key, one in sorted(members.get(name, NO_MEMBERS).items()) if key[0] not in gone]
        for name in ids
    }
    for name in ids:
        state = add_pods(state, [one.said for one in pods[name]])
    everyone = [one for name in ids for one in pods[name]]
    for one in sorted(everyone, key=lambda one: one.pod.key):
        if WAITS_AT_PERMIT in one.pod.annotations:
            step = permit(state, one.said, now=0)
            state = step.state
            if step.code is Code.SUCCESS:
                released = {one.said.key, *step.released}
                for other in everyone:
                    if other.said.key in released:
                        state = post_bind(state, other.said).state
    return state


def _gone(
    members: Mapping[str, Members], groups: Mapping[str, Gang], leaving: Iterable[str]
) -> frozenset[PodKey]:
    """Find the members that leave gang groups of which nobody stays."""
    home = _Families()
    for name, own in members.items():
        asking = (one for one in own.values() if not one.ended and (not one.runs or _plain(one)))
        home.join(name, _named(asking, groups.get(name)))
    stays = {
        home.of(name)
        for name, own in members.items()
        if any(not one.pod.terminating and (one.ended or _plain(one)) for one in own.values())
    }
    return frozenset(
        one.pod.key
        for name in leaving
        if home.of(name) not in stays
        for one in members[name].values()
        if one.leaves
    )


def _plain(member: Member) -> bool:
    return member.runs and member.pod.scheduling_group is None


class _Families:
    """Gangs that name each other, as they do now."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}

    def join(self, gang_id: str, others: Iterable[str]) -> None:
        """Take note of what a gang lists."""
        for other in others:
            self._parent[self.of(other)] = self.of(gang_id)

    def of(self, gang_id: str) -> str:
        """Give the gang that stands for a family."""
        known = self._parent
        while known.get(gang_id, gang_id) != gang_id:
            known[gang_id] = gang_id = known.get(known[gang_id], known[gang_id])
        return gang_id


class Minimums(Mapping[str, int]):
    """What is read of the gangs that are asked about: most calls ask about none of them."""

    def __init__(self, gangs: Mapping[str, GangRecord]) -> None:
        self._gangs = gangs

    def __getitem__(self, name: str) -> int:
        gang = self._gangs[name].gang
        if not gang.initialised:
            raise KeyError(name)
        return gang.min_available

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None

    def get(self, name: object, default: Any = None) -> Any:
        """Give the minimum of a gang, or the default."""
        record = self._gangs.get(name)  # type: ignore[call-overload]  # whatever it is
        return default if record is None or not record.gang.initialised else record.gang.min_available

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name for name, record in self._gangs.items() if record.gang.initialised))

    def __len__(self) -> int:
        return sum(1 for _ in self)
