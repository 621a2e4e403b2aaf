"""The gangs of a snapshot with their members, followed from snapshot to snapshot.

Gangs that name each other, in whatever direction and over however many others, are a family. What happens to
a family is worked out event by event, as the reference's cache does: an event copies what it may change, and
that of thousands of gangs is no concern of one pod. A family to which nothing happened stays as it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore._vector import Vector
from koordcore.allocators.gang.cycle import permit
from koordcore.allocators.gang.events import add_pod_group, add_pods, post_bind
from koordcore.allocators.gang.members import in_two_gangs, running_members
from koordcore.allocators.gang.state import Code, GangState
from koordcore.model.gangs import CoschedulingArgs, Gang, GangPod, PodGroup
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.records import ClusterRecord
from koordcore.protocol.gang import gang_from_pod_group, parse_gang_pod
from koordcore.protocol.gang_names import WAITS_AT_PERMIT, gang_name
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, changed_states, derived

T = TypeVar("T")

_NOBODY: Final = frozenset[PodKey]()
_NO_GANGS: Final = GangState()


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
    families, family_of
        Ids of the gangs of each family, by one of them; and that one by gang.
    parts
        The state of each family.
    state
        That of all gangs.
    """

    pending: tuple[Pod, ...] = ()
    members: dict[str, dict[tuple[PodKey, bool], Member]] = attrs.Factory(dict)
    groups: dict[str, Gang] = attrs.Factory(dict)
    leaving: frozenset[str] = frozenset()
    gone: frozenset[PodKey] = _NOBODY
    families: dict[str, frozenset[str]] = attrs.Factory(dict)
    family_of: dict[str, str] = attrs.Factory(dict)
    parts: dict[str, GangState] = attrs.Factory(dict)
    state: GangState = _NO_GANGS

    def running(self, gang_id: str) -> list[Pod]:
        """Give the members of a gang that hold room on a node, and count."""
        known = self.members.get(gang_id, NO_MEMBERS).values()
        return [one.pod for one in known if one.runs and one.pod.key not in self.gone]

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
        came = [(pod, False) for pod in (*running_members(snapshot), *snapshot.pending)]
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
        if value.pending is not snapshot.pending:
            left += ((pod, False) for pod in value.pending)
            came += ((pod, False) for pod in snapshot.pending)
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
        members, touched = dict(book.members), set[str]()

        def of(gang_id: str) -> dict[tuple[PodKey, bool], Member]:
            if gang_id not in touched:
                touched.add(gang_id)
                members[gang_id] = dict(members.get(gang_id, NO_MEMBERS))
            return members[gang_id]

        for pod, ended in left:
            if (gang := gang_name(pod.labels, pod.annotations)) and not in_two_gangs(pod):
                of(f"{pod.namespace}/{gang}").pop((pod.key, ended), None)
        for pod, ended in came:
            if (gang := gang_name(pod.labels, pod.annotations)) and not in_two_gangs(pod):
                said = gang_pod(pod, self.args)
                of(f"{pod.namespace}/{gang}")[pod.key, ended] = Member(pod, said, ended)
        groups = dict(book.groups)
        for group in gone:
            of(_id_of(group))
            groups.pop(_id_of(group), None)
        for group in put:
            of(_id_of(group))
            groups[_id_of(group)] = gang_from_pod_group(group, self.args).gang
        if not touched:
            return book
        return _with_states(book, members, groups, touched)


def _id_of(group: PodGroup) -> str:
    return f"{group.namespace}/{group.name}"


def _has_ended(pod: Pod) -> bool:
    return pod.finished and bool(pod.node_name)


def _with_states(
    book: GangBook,
    members: dict[str, dict[tuple[PodKey, bool], Member]],
    groups: dict[str, Gang],
    touched: set[str],
) -> GangBook:
    """Work out anew what becomes of the families to which something happened."""
    leaving = {name for name in touched if any(one.leaves for one in members[name].values())}
    leaving |= book.leaving - touched
    gone = _gone(members, groups, leaving) if leaving else _NOBODY
    if gone != book.gone:
        touched |= {name for name, own in members.items() if any(key in gone ^ book.gone for key, _ in own)}
    families, family_of = dict(book.families), dict(book.family_of)
    parts, gangs, shared = dict(book.parts), dict(book.state.gangs), dict(book.state.groups)
    home, anew, asked = _Families(), set[str](), list(touched)
    while asked:
        first = family_of.get(asked[-1], asked[-1])
        own = families.pop(first, frozenset((asked.pop(),))) - anew
        part = parts.pop(first, _NO_GANGS)
        gangs, shared = _without(gangs, part.gangs), _without(shared, part.groups)
        anew |= own
        for name in own:
            named = _named(members.get(name, NO_MEMBERS).values(), groups.get(name), gone)
            home.join(name, named)
            asked += named - anew
    together = defaultdict[str, set[str]](set)
    for name in anew:
        together[home.of(name)].add(name)
        family_of.pop(name, None)
    for name, ids in together.items():
        if any(members.get(one) or one in groups for one in ids):
            families[name] = frozenset(ids)
            family_of.update(dict.fromkeys(ids, name))
            parts[name] = part = _part(sorted(ids), members, groups, gone)
            gangs.update(part.gangs)
            shared.update(part.groups)
    for name in anew:
        if not members.get(name, True):
            del members[name]
    return GangBook(
        pending=book.pending,
        members=members,
        groups=groups,
        leaving=frozenset(leaving),
        gone=gone,
        families=families,
        family_of=family_of,
        parts=parts,
        state=GangState(gangs=immutabledict(gangs), groups=immutabledict(shared)),
    )


def _without(known: dict[str, T], gone: Mapping[str, object]) -> dict[str, T]:
    for name in gone:
        known.pop(name, None)
    return known


def _named(members: Iterable[Member], group: Gang | None, gone: frozenset[PodKey]) -> set[str]:
    """Give the ids that whatever may configure a gang lists."""
    found = set[str]() if group is None else {*group.group}
    for one in members:
        if one.said.config is not None and one.pod.key not in gone:
            found.update(one.said.config.group)
    return found


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
        home.join(name, _named(asking, groups.get(name), _NOBODY))
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
