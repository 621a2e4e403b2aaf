"""Which pods belong together: the gangs of a snapshot, and the turns in which the loop takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.gang.cycle import before_pre_filter
from koordcore.allocators.gang.group_table import GroupTable, group_table
from koordcore.allocators.gang.members import in_two_gangs
from koordcore.allocators.gang.state import Code, GangRecord, exempt
from koordcore.errors import ManifestError
from koordcore.model.decisions import Bound, PodDecision
from koordcore.model.gangs import (
    CoschedulingArgs,
    Gang,
    GangFit,
    GangMode,
    GangSource,
    MatchPolicy,
    NetworkTopologySpec,
    split_specs,
)
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import DEFAULT_POLICY, Policy
from koordcore.model.scheduling_groups import leaf_id
from koordcore.protocol.gang import parse_topology_index
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.networks import spelt
from koordcore.protocol.sub_groups import LABEL_SUB_GROUP, Part, split_members
from koordcore.scheduling.gang_book import NO_MEMBERS, gang_book, gang_pod
from koordcore.scheduling.gang_order import cores
from koordcore.scheduling.gang_refusals import fewest_gangs, gathered, needs_network, refused_as_group
from koordcore.scheduling.group_tree import GroupTree, tree_of
from koordcore.scheduling.network_trees import network_tree
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once

NOBODY: Final[immutabledict[str, int]] = immutabledict()
NO_PARTS: Final[immutabledict[str, tuple[Part, ...]]] = immutabledict()
NOWHERE: Final[immutabledict[PodKey, str]] = immutabledict()
NO_GANGS: Final = frozenset[str]()


@record(kw_only=True, slots=False)
class Job:
    """Pods that are decided together: the members of a gang group that are asked about.

    Parameters
    ----------
    name
        Ids of its gangs, joined by commas; without those that it only waits for.
    gangs
        Their configurations, by id; with those that it only waits for.
    ahead
        Gangs that it waits for and that do not wait for it: they have had their turn.
    free
        Gangs whose minimum nobody asks for: they list others, and not themselves, or have started before.
    members
        Pending members by gang id, in rank order where they have ranks, else in queue order.
    bound
        Nodes of the members that run or keep a place at Permit, by gang id; one entry each.
    waiting
        How many of these keep a place at Permit, by gang id.
    ended
        Members that ran to their end and still exist, by gang id.
    satisfied
        A member of the group has been bound once.
    refusal
        Why the group may not start at all, such as too few members; empty for none.
    waits_for
        What the group waits for before it is tried, such as a closed gate of a member; empty for none.
    tree
        How its gangs hang together where they are Kubernetes' own groups; ``None`` where every gang has to
        reach its minimum.
    parts
        Parts of the gangs that have some, by gang id, with all their members.
    there
        Nodes of the members of these that run, by pod.
    fit
        Which nodes come first where these are of unequal size, by the policy of its first member.
    optional
        How many of the gangs that are asked for have to start; 0 for all.
    """

    name: str
    gangs: Mapping[str, Gang]
    members: Mapping[str, tuple[Pod, ...]]
    bound: Mapping[str, tuple[str, ...]]
    ahead: frozenset[str] = NO_GANGS
    free: frozenset[str] = NO_GANGS
    waiting: Mapping[str, int] = NOBODY
    ended: Mapping[str, int] = NOBODY
    satisfied: bool = False
    refusal: str = ""
    waits_for: str = ""
    tree: GroupTree | None = None
    parts: Mapping[str, tuple[Part, ...]] = NO_PARTS
    there: Mapping[PodKey, str] = NOWHERE
    fit: GangFit = GangFit.FEWEST_NODES
    optional: int = 0

    @property
    def stopped(self) -> bool:
        """Nobody of it is tried."""
        return bool(self.refusal or self.waits_for)

    @property
    def by_labels(self) -> bool:
        """It is a gang by labels and annotations, not a group of Kubernetes itself."""
        return not any(gang.source is GangSource.SCHEDULING_GROUP for gang in self.gangs.values())

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """All members that wait, gang after gang."""
        return tuple(chain.from_iterable(self.members.values()))

    @cached_property
    def _specs(self) -> tuple[NetworkTopologySpec | None, Mapping[str, NetworkTopologySpec]]:
        return split_specs({name: gang.topology_spec for name, gang in self.gangs.items()})

    @property
    def spec(self) -> NetworkTopologySpec | None:
        """The wish for gathering of the group as a whole."""
        return self._specs[0]

    @property
    def own_specs(self) -> Mapping[str, NetworkTopologySpec]:
        """What binds the members of single gangs beside it, by id."""
        return self._specs[1]

    @property
    def strict(self) -> bool:
        """One member's failure releases the others."""
        return any(self.gangs[name].mode is GangMode.STRICT for name in self.own)

    @property
    def own(self) -> tuple[str, ...]:
        """Its gangs without those that it only waits for."""
        return tuple(name for name in self.gangs if name not in self.ahead)

    @property
    def together(self) -> bool:
        """It cannot go member by member: parts have wishes or minimums, or not all of it has to start."""
        return bool(self.parts or self.optional)

    def repaired(self, gang_id: str) -> bool:
        """Tell whether a gang has started before, so that members come as they may.

        The group has, as a rule; one in parts itself: no other gang says which of its parts started.
        """
        if gang_id in self.parts and not (self.bound[gang_id] or self.ended.get(gang_id, 0)):
            return False
        return self.satisfied and self.gangs[gang_id].match_policy == MatchPolicy.ONCE_SATISFIED

    def started_with(self, there: Mapping[PodKey, str]) -> bool:
        """Tell whether every gang has its minimum with those who have a place now."""
        return all(
            sum(pod.key in there for pod in pods) >= self.least(gang) for gang, pods in self.members.items()
        )

    def least(self, gang_id: str) -> int:
        """Give how many of a gang's members that wait have to be placed at least."""
        gang = self.gangs[gang_id]
        if not gang.initialised:
            return 1  # it cannot start
        if gang_id in self.free or self.repaired(gang_id):
            return 0
        counted = self.waiting.get(gang_id, 0)
        if gang.match_policy != MatchPolicy.ONLY_WAITING:
            counted = len(self.bound[gang_id]) + self.ended.get(gang_id, 0)
        return max(0, gang.min_available - counted)

    def lacking(self) -> str:
        """Name a gang that has fewer members to place than it needs; empty for none."""
        if self.tree is not None or self.optional:
            return ""
        for name, parts in self.parts.items():
            groups, there = self.gangs[name].sub_groups, {part.entry for part in parts}
            if groups is None or groups.least or self.repaired(name):
                continue
            for number, entry in enumerate(groups.entries):
                if number not in there:
                    message = f'no pod of gang "{name}" belongs to its part "{entry.name}"'
                    return f"{message} (label {LABEL_SUB_GROUP}, or its matchLabels)"
        for name, pods in self.members.items():
            if len(pods) < self.least(name) and name in self.ahead:
                return f'gang "{name}", which it waits for, has not started'
            if len(pods) < self.least(name):
                return f'gang "{name}" needs {self.least(name)} more members at once, and {len(pods)} wait'
        return ""


def rank_of(pod: Pod) -> int | None:
    """Give a member's rank; ``None`` without a readable one."""
    try:
        return parse_topology_index(pod.annotations)
    except ManifestError:
        return None


class JobTable:
    """The gangs of a snapshot, ready to be asked which pods go together."""

    def __init__(self, snapshot: ClusterSnapshot, policy: Policy | None = None) -> None:
        self._snapshot = snapshot
        self._policy = DEFAULT_POLICY if policy is None else policy
        self._args = self._policy.args_of(CoschedulingArgs)
        self.book = gang_book(snapshot, self._args)
        """All gangs, with their members."""
        self._nodes: dict[str, list[str]] = {}
        self._repairing: dict[PodKey, str] = {}
        self._fits: dict[str, GangFit] = {}
        self._placed = Counter[str]()

    def _nodes_of(self, gang_id: str) -> list[str]:
        """Give the nodes of the members of a gang that run or got one; nobody's where they will have one."""
        known = self._nodes.get(gang_id)
        if known is None:
            known = sorted(str(pod.node_name) for pod in self.book.running(gang_id))
            self._nodes[gang_id] = known
        return known

    def turns(self, queue: Iterable[Pod]) -> Iterator[Pod | Job]:
        """Give single pods and jobs in queue order; a job comes when its first member would.

        Members of a gang that has started before, and is not gathered, come as pods of their own.
        """
        waiting = list(queue)
        by_gang: dict[str, list[Pod]] = {}
        names = ["" if in_two_gangs(pod) else gang_name(pod.labels, pod.annotations) for pod in waiting]
        for pod, gang in zip(waiting, names, strict=True):
            if gang:
                by_gang.setdefault(f"{pod.namespace}/{gang}", []).append(pod)
        taken: set[str] = set()
        grouped: dict[str, list[Pod]] = {}
        for pod in waiting:
            if pod.scheduling_group is not None and not in_two_gangs(pod):
                grouped.setdefault(leaf_id(pod), []).append(pod)
        for pod, gang in zip(waiting, names, strict=True):
            if pod.scheduling_group is not None and not in_two_gangs(pod):
                leaf = leaf_id(pod)
                if leaf not in taken:
                    job = self._group_job(pod, grouped)
                    taken.update(job.members)
                    yield job
            elif gang:
                yield from self._gang_turns(pod, f"{pod.namespace}/{gang}", by_gang, taken)
            else:
                yield pod

    def _gang_turns(
        self, pod: Pod, gang_id: str, by_gang: Mapping[str, list[Pod]], taken: set[str]
    ) -> Iterator[Pod | Job]:
        """Give the turn of a member after those of the gangs that it waits for; nobody has two turns."""
        if gang_id in taken or pod not in by_gang[gang_id]:
            return
        if self._alone(gang_id):
            self._repairing[pod.key] = gang_id
            by_gang[gang_id].remove(pod)
            yield pod
            return
        *before, core = cores(gang_id, self.book.waits_for)
        for name in chain.from_iterable(before):
            for one in tuple(by_gang.get(name, ())):
                yield from self._gang_turns(one, name, by_gang, taken)
        taken.update(core)
        yield self._job(gang_id, pod, core, by_gang)

    @property
    def groups(self) -> GroupTable:
        """Kubernetes' own groups."""
        return once(self._snapshot, group_table)

    def _group_job(self, first: Pod, asked: Mapping[str, list[Pod]]) -> Job:
        """Make the job of a tree of Kubernetes' own groups; of the pod's leaf where the tree has a gap."""
        groups, leaf = self.groups, leaf_id(first)
        missing = groups.missing(first)
        root = leaf if missing else groups.root_of(leaf)
        leaves = groups.leaves(root)
        refusal, waits_for, tree = "", missing, None
        if not missing:
            waits_for = groups.gate(root)
            profile = self._policy.profile_of(first.scheduler_name) or self._policy
            refusal = groups.malformed(root, own_policy=profile.group_preemption)
            tree = tree_of(groups, root)
        known = ((name, groups.nodes.get(name)) for name in leaves)
        return Job(
            name=root,
            gangs={
                name: Gang(
                    id=name,
                    source=GangSource.SCHEDULING_GROUP,
                    initialised=True,
                    min_available=1 if node is None else node.least,
                    match_policy=MatchPolicy.WAITING_AND_RUNNING,
                )
                for name, node in known
            },
            members={name: tuple(asked.get(name, ())) for name in leaves},
            bound={name: tuple(str(pod.node_name) for pod in groups.bound.get(name, ())) for name in leaves},
            refusal="" if waits_for else refusal,
            waits_for=waits_for,
            tree=tree,
            fit=self._fit(first),
        )

    def placed(self, pod: PodKey) -> None:
        """Take note that a pod that came alone has a node, or will have one."""
        gang = self._repairing.get(pod)
        if gang is not None:
            self._nodes_of(gang).append("")
            self._placed[gang] += 1

    def started(self, job: Job, decisions: Iterable[PodDecision]) -> None:
        """Take note of the members of a job that got a node."""
        nodes = {one.pod: one.node for one in decisions if isinstance(one, Bound)}
        for gang, pods in job.members.items():
            got = [nodes[pod.key] for pod in pods if pod.key in nodes]
            self._nodes_of(gang).extend(got)
            self._placed[gang] += len(got)

    def renewed(self, job: Job) -> Job:
        """Give a job with whoever got a node since it was made, among the gangs that it waits for."""
        return attrs.evolve(
            job,
            bound={name: tuple(self._nodes_of(name)) for name in job.bound},
            waiting={name: self._waiting(name) for name in job.waiting},
        )

    def beyond_minimum(self, pod: PodKey) -> bool:
        """Tell whether a pod that comes alone belongs to a gang that has as many members as it needs."""
        gang = self._repairing.get(pod)
        if gang is None:
            return False
        have = len(self._nodes_of(gang)) + self.book.ended(gang)
        return have >= self.book.records[gang].gang.min_available

    def _alone(self, gang_id: str) -> bool:
        """Tell whether members go one by one, like ordinary pods."""
        record = self.book.records.get(gang_id)
        if record is None or not record.gang.initialised or not exempt(self.book.part(gang_id), record):
            return False
        if record.gang.sub_groups is not None and not self._running_of(gang_id):
            return False  # its group has started, and none of its parts
        # Each gang of the group has to permit it, and others may count anew at every start.
        return not any(
            gathered(gang) or gang.match_policy in (MatchPolicy.ONLY_WAITING, MatchPolicy.WAITING_AND_RUNNING)
            for gang in (record.gang, *self._group(record).values())
        )

    def _waiting(self, gang_id: str) -> int:
        """Count the members that keep a place at Permit, or got one in this call."""
        record = self.book.records.get(gang_id)
        return self._placed[gang_id] + (0 if record is None else len(record.waiting))

    def _group(self, record: GangRecord) -> dict[str, Gang]:
        known = self.book.records
        return {name: known[name].gang for name in record.gang.group if name in known}

    def _job(self, gang_id: str, first: Pod, core: Collection[str], by_gang: Mapping[str, list[Pod]]) -> Job:
        known = self.book.records
        needed = {name for one in core for name in self.book.waits_for(one)}
        ids = sorted(name for name in needed.union(core) if name in known)
        gangs = {name: known[name].gang for name in ids} or {gang_id: Gang(id=gang_id)}
        # One that has not started need not be waited for, and may list others nonetheless.
        listed = [known[name].gang for gang in gangs.values() for name in gang.group if name in known]
        optional = fewest_gangs([*gangs.values(), *listed])
        if any(map(gathered, gangs.values())) and (tree := once(self._snapshot, network_tree)) is not None:
            gangs = {name: spelt(gang, tree) for name, gang in gangs.items()}
        members = {name: tuple(by_gang.get(name, ())) if name in core else () for name in gangs}
        with_parts = [name for name, gang in gangs.items() if gang.sub_groups is not None and name in core]
        running = {name: self._running_of(name) for name in with_parts}
        # Whose group has started, and only is waited for, keeps nobody back.
        asked = {name for name in needed if optional or name in core or not self._begun(name)}
        return Job(
            name=",".join(sorted(core)),
            gangs=gangs,
            members=members,
            bound={name: tuple(self._nodes_of(name)) for name in gangs},
            ahead=frozenset(gangs).difference(core),
            free=frozenset(gangs) - asked if any(name in known for name in core) else NO_GANGS,
            waiting={name: self._waiting(name) for name in gangs},
            ended={name: self.book.ended(name) for name in gangs},
            satisfied=all(map(self.book.satisfied, core)),
            refusal=self._refusal(
                first, gangs, {name: members[name] for name in gangs if name in core}, needed, optional
            ),
            optional=optional,
            parts={name: self._parts(gangs[name], (*running[name], *members[name])) for name in with_parts},
            there={pod.key: str(pod.node_name) for pods in running.values() for pod in pods if pod.bound},
            fit=self._fit(first),
        )

    def _begun(self, gang_id: str) -> bool:
        record = self.book.records.get(gang_id)
        return record is not None and exempt(self.book.part(gang_id), record)

    def _fit(self, first: Pod) -> GangFit:
        known = self._fits.get(first.scheduler_name)
        if known is None:
            profile = self._policy.profile_of(first.scheduler_name) or self._policy
            known = self._fits[first.scheduler_name] = profile.args_of(CoschedulingArgs).gang_fit
        return known

    def _running_of(self, gang_id: str) -> tuple[Pod, ...]:
        """Give the members of a gang that have or had a node."""
        known = self.book.members.get(gang_id, NO_MEMBERS)
        return tuple(one.pod for _, one in sorted(known.items()) if one.ended or one.runs)

    def _parts(self, gang: Gang, pods: tuple[Pod, ...]) -> tuple[Part, ...]:
        """Part all members of a gang that are known, and keep those that run or are asked about."""
        assert gang.sub_groups is not None, "asked only of gangs with parts"
        here = {pod.key: pod for pod in pods}
        known = {one.pod.key: one.pod for one in self.book.members.get(gang.id, NO_MEMBERS).values()}
        every = split_members(gang.sub_groups, {**known, **here}.values(), rank_of)
        kept = [tuple(pod for pod in part.members if pod.key in here) for part in every]
        return tuple(attrs.evolve(one, members=ones) for one, ones in zip(every, kept, strict=True))

    def _refusal(
        self,
        first: Pod,
        gangs: Mapping[str, Gang],
        members: Mapping[str, Sequence[Pod]],
        needed: Collection[str],
        least: int,
    ) -> str:
        """Say why gangs that start together may not start at all; the first pod's own gang says it first."""
        wanted = any(needs_network(gang) for gang in gangs.values())
        known = not wanted or once(self._snapshot, network_tree) is not None
        found = refused_as_group(gangs, members, needed, self.book.records, least, topology_known=known)
        if found is not None:
            return found
        # Gangs that start together may list different ones.
        for pod in (first, *(pods[0] for pods in members.values() if pods)):
            said = gang_pod(pod, self._args)
            step = before_pre_filter(self.book.part(said.gang_id), said, topology_known=known)
            if step.code is not Code.SUCCESS:
                return step.message
        return ""
