"""Kueue's queues and cohorts as a quota tree: nominal quota, borrowing and lending on the one ledger.

A queue is a quota below its cohort, a cohort one below its parent; a flavor's resource is a resource called
``flavor/resource``. What a queue may borrow follows from two bounds: its own ``max`` (nominal and borrowing
limit) and that of every cohort above it (what there is in it). What a queue does not lend counts in its
cohort as used, as long as the queue does not use it itself: a stand-in holds that room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.kueue import ClusterQueue, Cohort, ResourceGroup
from koordcore.model.pods import PodKey
from koordcore.model.quotas import ROOT_QUOTA, ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.model.resources import NO_RESOURCES, Resources, make_resources
from koordcore.protocol.exact import exact_of
from koordcore.quota.admission import masked_request
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger

_POLICY: Final = QuotaPolicy(
    enable_runtime_quota=False,
    enable_min_quota_scale=False,
    disable_default_quota=True,
)
_UNBOUND: Final = 2**60
"""Stands for the borrowing limit that a queue does not have: its cohort's bound counts alone."""
_NOBODY: Final = ""


def flavored(flavor: str, amounts: Mapping[str, int]) -> dict[str, int]:
    """Name amounts by flavor and resource, as the ledger of queues counts them."""
    return {f"{flavor}/{name}": amount for name, amount in amounts.items()}


@record(kw_only=True)
class QueueShortfall:
    """What a queue lacks for a workload.

    Parameters
    ----------
    where
        ``ClusterQueue NAME`` or ``Cohort NAME``: whose bound is met first, from the queue up.
    flavor, resource
        Of what; the first by name.
    asked, used, limit
        Amounts in the resource's unit; ``used`` has what others keep for themselves.
    message
        All of it in words.
    """

    where: str
    flavor: str
    resource: str
    asked: int
    used: int
    limit: int
    message: str


@record(kw_only=True, eq=False)
class QueueLedger:
    """Queues, cohorts and what is used of them: a value, made by :func:`open_queues`.

    Parameters
    ----------
    ledger
        The quota tree with everything that is used.
    nominal
        By queue: what is its own, by flavor and resource.
    kept
        By node of the tree: what does not count as free above it.
    broken
        By queue: why it has no quota at all.
    has
        By node of the tree: what is its own and of all below.
    lendable
        By cohort: what there is for those in it at most, by resource, over all flavors.
    heights
        By cohort: how many steps down the lowest queue below it is.
    """

    ledger: QuotaLedger
    nominal: immutabledict[str, Resources]
    kept: immutabledict[str, Resources]
    broken: immutabledict[str, str]
    has: immutabledict[str, Resources]
    lendable: immutabledict[str, Resources]
    heights: immutabledict[str, int]

    def path(self, queue: str) -> tuple[str, ...]:
        """List a queue and the cohorts above it, from the queue up, as nodes of the tree."""
        found = [_queue(queue)]
        while (parent := self.ledger.quotas[found[-1]].parent) != ROOT_QUOTA:
            found.append(parent)
        return tuple(found)

    def used(self, queue: str) -> Resources:
        """What the workloads of a queue use, by flavor and resource."""
        return self.ledger.used_of(_queue(queue))

    def borrows(self, queue: str, amounts: Mapping[str, int]) -> bool:
        """Tell whether a queue with so much more used uses more than its own."""
        used, own = self.used(queue), self.nominal.get(queue, immutabledict())
        return any(used.get(name, 0) + amount > own.get(name, 0) for name, amount in amounts.items())

    def beyond(self, node: str, names: Iterable[str], more: Mapping[str, int] = NO_RESOURCES) -> bool:
        """Tell whether a node of the tree, with so much more used, is beyond what it has of something."""
        used, has = self.ledger.used_of(node), self.has.get(node, NO_RESOURCES)
        return any(used.get(name, 0) + more.get(name, 0) > has.get(name, 0) for name in names)

    def source(self, queue: str, name: str, amount: int) -> str:
        """Name the lowest node, from a queue up, that has so much more of something; the topmost if none."""
        path = self.path(queue)
        for node in path:
            if not self.beyond(node, (name,), {name: amount}):
                return node
            amount -= self.idle(node).get(name, 0)
        return path[-1]

    def height(self, queue: str, amounts: Mapping[str, int]) -> int:
        """Tell from how far up a queue borrows with so much more used; 0 if it does not."""
        nodes = (self.source(queue, name, amount) for name, amount in amounts.items() if amount)
        return max((self.heights.get(node, 0) for node in nodes), default=0)

    def idle(self, node: str) -> dict[str, int]:
        """Give what a node keeps for itself and does not use."""
        used, kept = self.ledger.used_of(node), self.kept.get(node, NO_RESOURCES)
        return {name: max(0, amount - used.get(name, 0)) for name, amount in kept.items()}

    def borrowed(self, node: str) -> dict[str, int]:
        """Add up what a node of the tree, and all below, uses beyond what they have, by resource."""
        used, has = self.ledger.used_of(node), self.has.get(node, immutabledict())
        beyond: dict[str, int] = {}
        for name in used.keys() & has.keys():
            if used[name] > has[name]:
                resource = name.partition("/")[2]
                beyond[resource] = beyond.get(resource, 0) + used[name] - has[name]
        return beyond

    def admit(self, key: str, queue: str, amounts: Mapping[str, int]) -> QueueLedger | QueueShortfall:
        """Give a queue's workload its quota.

        Parameters
        ----------
        key
            ``namespace/name`` of the workload.
        queue
            The ClusterQueue.
        amounts
            What it asks for, by flavor and resource.

        Returns
        -------
        QueueLedger or QueueShortfall
            The ledger with it, or what is missing.

        Notes
        -----
        Each flavor's resource is looked at by itself, and only where something is asked of it: who uses too
        much of one still has the others. Above a queue counts what it does not keep for itself. A cohort that
        is over takes from that, too. After ``resource_node.go: available`` of Kueue.
        """
        pod = _usage(key, _queue(queue), amounts)
        ledger, node = self.ledger, pod.quota
        asked = {name: amount for name, amount in masked_request(ledger, node, pod).items() if amount > 0}
        own = dict[str, int]()  # what the queue, and the cohorts passed so far, keep and do not use
        while node != ROOT_QUOTA:
            limit, used = ledger.max_of(node), ledger.used_of(node)
            for name, amount in sorted(asked.items()):
                others = used.get(name, 0) - own.get(name, 0)
                if amount + others > limit[name]:
                    return _shortfall(node, name, amount, others, limit[name])
            for name, amount in self.idle(node).items():
                own[name] = own.get(name, 0) + amount
            node = ledger.quotas[node].parent
        return self._with(pod)

    def with_usage(self, key: str, queue: str, amounts: Mapping[str, int]) -> QueueLedger:
        """Count what a workload uses already, whether or not it may."""
        return self._with(_usage(key, _queue(queue), amounts))

    def without_usage(self, key: str, queue: str, amounts: Mapping[str, int]) -> QueueLedger:
        """Take out again what a workload uses."""
        return self._with(_usage(key, _queue(queue), amounts), gone=True)

    def settled(self) -> QueueLedger:
        """Hold in the cohorts what nobody uses yet and is not lent, from the queues up."""
        ledger = self.ledger
        for node in self.kept:
            stand_in = self._stand_in(ledger, node)
            ledger = ledger if stand_in is None else ledger.track(stand_in)
        return attrs.evolve(self, ledger=ledger)

    def _with(self, pod: QuotaPod, *, gone: bool = False) -> QueueLedger:
        ledger, path = self.ledger, self.path(pod.quota.removeprefix(_queue("")))
        before = [self._stand_in(ledger, node) for node in path]
        ledger = ledger.untrack(pod) if gone else ledger.track(pod)
        for node, old in zip(path, before, strict=True):
            new = self._stand_in(ledger, node)
            if old is not None and new is not None and old != new:
                ledger = ledger.untrack(old).track(new)
        return attrs.evolve(self, ledger=ledger)

    def _stand_in(self, ledger: QuotaLedger, node: str) -> QuotaPod | None:
        """Give who holds, in the cohort above, what a node keeps and does not use."""
        kept = self.kept.get(node)
        if kept is None:
            return None
        used = ledger.used_of(node)
        idle = {name: max(0, amount - used.get(name, 0)) for name, amount in kept.items()}
        return _usage(node, ledger.quotas[node].parent, idle)


def open_queues(queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort]) -> QueueLedger:
    """Make the tree of queues and cohorts, with nothing used yet.

    A queue below cohorts that form a cycle has no quota, as the reference has it.
    """
    declared = {one.name: one for one in cohorts}
    queues = sorted(queues, key=lambda one: one.name)
    named = [one.cohort for one in queues] + [one.parent for one in declared.values()]
    for name in named:
        if name:
            declared.setdefault(name, Cohort(name=name))
    cycles = {name: text for name in declared if (text := _cycle(name, declared))}
    broken = {one.name: cycles[one.cohort] for one in queues if one.cohort in cycles}
    tree = _Tree([one for one in queues if one.name not in broken], declared, cycles.keys())
    nominal = {one.name: make_resources(_amounts(one.groups)[0]) for one in queues}
    opened = QueueLedger(
        ledger=open_ledger(tree.quotas, total={}, policy=_POLICY),
        nominal=immutabledict(nominal),
        kept=immutabledict(tree.kept),
        broken=immutabledict(broken),
        has=immutabledict({node: make_resources(amounts) for node, amounts in tree.has.items()}),
        lendable=immutabledict(tree.lendable()),
        heights=immutabledict(tree.heights),
    )
    return opened.settled()


class _Tree:
    """Adds up what each node of the tree has and keeps, from the queues up."""

    def __init__(
        self, queues: Sequence[ClusterQueue], cohorts: Mapping[str, Cohort], cycles: Iterable[str]
    ) -> None:
        self.quotas: list[ElasticQuota] = []
        self.kept: dict[str, Resources] = {}
        self.has: dict[str, dict[str, int]] = {}
        self.heights: dict[str, int] = {}
        self._most: dict[str, dict[str, int]] = {}
        self._hidden: dict[str, Mapping[str, int]] = {}
        self._below: dict[str, list[str]] = {}
        self._cohorts = cohorts
        self._queues: dict[str, list[ClusterQueue]] = {}
        known = [cohorts[name] for name in sorted(cohorts.keys() - set(cycles))]
        for one in known:
            self._below.setdefault(one.parent, []).append(one.name)
        for queue in queues:
            self._queues.setdefault(queue.cohort, []).append(queue)
        for queue in self._queues.get(_NOBODY, ()):
            self._add(_queue(queue.name), _NOBODY, queue.groups, {}, {})
        for name in self._below.get(_NOBODY, ()):
            self._cohort(name)

    def _cohort(self, name: str) -> tuple[dict[str, int], dict[str, int]]:
        """Add a cohort and all below it; give what it has, and what of that stays out of sight above."""
        below, hidden = dict[str, int](), dict[str, int]()
        parts = [self._cohort(child) for child in self._below.get(name, ())]
        parts += [self._add(_queue(one.name), name, one.groups, {}, {}) for one in self._queues.get(name, ())]
        for amounts, kept in parts:
            for key, amount in amounts.items():
                below[key] = below.get(key, 0) + amount
                hidden[key] = hidden.get(key, 0) + kept.get(key, 0)
        one = self._cohorts[name]
        heights = (self.heights[_cohort(child)] for child in self._below.get(name, ()))
        self.heights[_cohort(name)] = max((each + 1 for each in heights), default=min(len(parts), 1))
        return self._add(_cohort(name), one.parent, one.groups, below, hidden)

    def _add(
        self,
        node: str,
        parent: str,
        groups: Sequence[ResourceGroup],
        below: Mapping[str, int],
        hidden: Mapping[str, int],
    ) -> tuple[dict[str, int], dict[str, int]]:
        own, borrowing, lending = _amounts(groups)
        has = {name: own.get(name, 0) + below.get(name, 0) for name in {**below, **own}}
        self.has[node] = has
        kept = {name: amount for name, amount in hidden.items() if amount}
        if parent:
            for name, limit in lending.items():
                shown = has[name] - hidden.get(name, 0)
                kept[name] = max(0, shown - limit) + hidden.get(name, 0)
            most = {name: has[name] + borrowing[name] if name in borrowing else _UNBOUND for name in has}
            if any(kept.get(name, 0) > hidden.get(name, 0) for name in kept):
                self.kept[node] = make_resources(kept)
        else:
            most = has
        self._most[node], self._hidden[node] = most, hidden
        self.quotas.append(
            ElasticQuota(
                name=node, parent=_cohort(parent) if parent else ROOT_QUOTA, max=most, is_parent=True
            )
        )
        return has, kept

    def lendable(self) -> dict[str, Resources]:
        """Add up by cohort what there is at most for those in it, by resource, over all flavors."""
        found: dict[str, Resources] = {}
        known: dict[str, dict[str, int]] = {}
        for one in self.quotas[::-1]:  # from the top down
            if not one.name.startswith(_cohort("")):
                continue
            hidden, has, most = self._hidden[one.name], self.has[one.name], self._most[one.name]
            above = known.get(one.parent)
            there = dict(has if above is None else above)
            for name in there:
                there[name] = has.get(name, 0) - hidden.get(name, 0)
                if above is not None:
                    kept = self.kept.get(one.name, NO_RESOURCES)
                    own = kept.get(name, hidden.get(name, 0)) - hidden.get(name, 0)
                    there[name] = min(most.get(name, _UNBOUND) - hidden.get(name, 0), own + above[name])
            known[one.name] = there
            total: dict[str, int] = {}
            for name, amount in there.items():
                resource = name.partition("/")[2]
                total[resource] = total.get(resource, 0) + amount
            found[one.name] = make_resources(total)
        return found


def _amounts(groups: Sequence[ResourceGroup]) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """Name what groups say by flavor and resource: nominal, borrowing limit, lending limit."""
    flavors = [one for group in groups for one in group.flavors]
    # What a flavor gives no quota of that its group covers is there in no amount at all.
    nominal = {
        f"{one.flavor}/{name}": one.nominal.get(name, 0)
        for group in groups
        for one in group.flavors
        for name in group.resources
    }
    borrowing = {key: each for one in flavors for key, each in flavored(one.flavor, one.borrowing).items()}
    lending = {key: each for one in flavors for key, each in flavored(one.flavor, one.lending).items()}
    return nominal, borrowing, lending


def _queue(name: str) -> str:
    return f"ClusterQueue {name}"


def _cohort(name: str) -> str:
    return f"Cohort {name}"


def _usage(key: str, quota: str, amounts: Mapping[str, int]) -> QuotaPod:
    # A node makes it count as used.
    return QuotaPod(key=PodKey("", key), quota=quota, request=make_resources(amounts), node="-")


def _cycle(name: str, cohorts: Mapping[str, Cohort]) -> str:
    trail: list[str] = []
    while name and name not in trail:
        trail.append(name)
        name = cohorts[name].parent
    if not name:
        return ""
    return f"its cohorts form a cycle: {' -> '.join([*trail[trail.index(name) :], name])}"


def _shortfall(where: str, key: str, *amounts: int) -> QueueShortfall:
    """Say what is asked, used and at most there of a flavor's resource."""
    flavor, _, resource = key.partition("/")
    asked, used, limit = (str(exact_of({resource: amount})[resource]) for amount in amounts)
    word = "used or kept" if where.startswith("Cohort") else "used"
    return QueueShortfall(
        where=where,
        flavor=flavor,
        resource=resource,
        asked=amounts[0],
        used=amounts[1],
        limit=amounts[2],
        message=f"{where}: {asked} {resource} of flavor {flavor} asked, {used} of {limit} {word}",
    )
