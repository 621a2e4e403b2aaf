"""Evictions: whom one may evict, whole gangs, and room for the nominated once the victims have gone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from koordcore.checking.extended import classes_of_resources
from koordcore.checking.gangs import gang_minimums
from koordcore.checking.groups import group_priorities, units_of
from koordcore.checking.leaving import PROTECTING, leaving_anyhow
from koordcore.checking.needless import check_needed
from koordcore.checking.nodes import STANDS_FOR
from koordcore.checking.placement import check_place
from koordcore.checking.quota_sums import NOBODY, Elsewhere
from koordcore.checking.reclaims import check_reclaims
from koordcore.checking.room import overflow
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Nominated, Victim
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import PODS
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def check_victims(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    *,
    everywhere: Sequence[NodeState],
    elsewhere: Elsewhere = NOBODY,
    kept: Collection[PodKey] = (),
) -> Iterator[Violation]:
    """Nobody leaves who may not, or for nothing; whoever is nominated fits afterwards.

    Parameters
    ----------
    everywhere, elsewhere
        Every node of the cluster, and what pods hold that the snapshot does not show.
    kept
        Pods that wait in the snapshot and kept places from an earlier call.
    """
    nominated = [one for one in result.decisions if isinstance(one, Nominated)]
    if not nominated:
        return
    running = {pod.key: pod for state in snapshot.nodes for pod in state.pods}
    pods = {pod.key: pod for pod in (*snapshot.pending, *result.snapshot.pending)}
    victims = {victim.pod: victim for one in nominated for victim in one.victims}
    yield from _check_plans(result, nominated)
    yield from _check_rights(result, nominated, running, pods, group_priorities(snapshot, running.values()))
    yield from check_reclaims(snapshot, result, elsewhere, kept)
    yield from _check_gangs(snapshot, running, victims, nominated, result)
    yield from _check_moves(snapshot, result, running)
    gone = {key: running[key] for key in victims if key in running}
    yield from _check_room(snapshot, result, nominated, pods, gone)
    members, minimums = _tied(snapshot, running)
    yield from check_needed(snapshot, result, members, minimums, everywhere=everywhere, elsewhere=elsewhere)


def _check_plans(result: ScheduleResult, nominated: list[Nominated]) -> Iterator[Violation]:
    """The plans, where there are any, say the same as the decisions."""
    if not result.preemptions:
        return
    planned = {key: node for plan in result.preemptions for key, node in plan.nominations.items()}
    decided = {str(one.pod): one.node for one in nominated}
    for key in sorted({*planned, *decided}):
        if planned.get(key) != decided.get(key):
            message = f"the plan says {planned.get(key)}, the decision {decided.get(key)}"
            yield Violation(ViolationKind.VICTIM, key, message)
    leaving = {victim.pod for plan in result.preemptions for victim in plan.victims}
    named = {victim.pod for one in nominated for victim in one.victims}
    for pod in sorted(leaving ^ named):
        yield Violation(ViolationKind.VICTIM, str(pod), "is not in both, the plan and the decisions")


def _check_rights(
    result: ScheduleResult,
    nominated: list[Nominated],
    running: Mapping[PodKey, Pod],
    pods: Mapping[PodKey, Pod],
    priorities: Mapping[PodKey, int],
) -> Iterator[Violation]:
    """A victim runs where it is said to, is of no gang it leaves for, less important, and not protected."""
    least: dict[PodKey, int] = {}
    for plan in result.preemptions:
        members = [pods[one.pod] for one in nominated if str(one.pod) in plan.nominations]
        lowest = min((pod.priority for pod in members), default=0)
        least.update((victim.pod, lowest) for victim in plan.victims)
        gangs = {*map(_gang_of, members)} - {""}
        for victim in plan.victims:
            gang = _gang_of(running[victim.pod]) if victim.pod in running else ""
            if gang in gangs:
                message = f"would leave for members of its own gang {gang}"
                yield Violation(ViolationKind.VICTIM, str(victim.pod), message)
    reclaimed = {victim.pod for plan in result.preemptions if plan.borrowers for victim in plan.victims}
    named: Counter[PodKey] = Counter(victim.pod for one in nominated for victim in one.victims)
    for one in nominated:
        for victim in one.victims:
            subject, pod = str(victim.pod), running.get(victim.pod)
            if pod is None or pod.node_name != victim.node:
                yield Violation(ViolationKind.VICTIM, subject, f"does not run on {victim.node}")
                continue
            if pod.leaving:
                yield Violation(ViolationKind.VICTIM, subject, "leaves anyhow and is evicted again")
            against = least.get(victim.pod, pods[one.pod].priority)
            if victim.pod not in reclaimed and priorities[pod.key] >= against:
                message = f"has priority {priorities[pod.key]} and would leave for {against}"
                yield Violation(ViolationKind.VICTIM, subject, message)
            for key, value in PROTECTING:
                if pod.labels.get(key) == value:
                    yield Violation(ViolationKind.VICTIM, subject, f"is protected by {key}")
            if named[victim.pod] > 1:
                yield Violation(ViolationKind.VICTIM, subject, "is named more than once")


def _check_gangs(
    snapshot: ClusterSnapshot,
    running: Mapping[PodKey, Pod],
    victims: Mapping[PodKey, Victim],
    nominated: list[Nominated],
    result: ScheduleResult,
) -> Iterator[Violation]:
    """A gang keeps its minimum or leaves whole; other victims leave nodes to which somebody comes."""
    members, gangs = _tied(snapshot, running)
    broken: set[PodKey] = set()
    for gang_id, least in sorted(gangs.items()):
        here = members[gang_id]
        gone = [pod for pod in here if pod.key in victims]
        if not gone or len(here) - len(gone) >= least:
            continue
        broken.update(pod.key for pod in gone)
        if len(gone) < len(here):
            message = (
                f"{len(here) - len(gone)} of at least {least} members would be left to hold room in vain"
            )
            yield Violation(ViolationKind.VICTIM, gang_id, message)
    if snapshot.of(ElasticQuota):
        return  # a victim anywhere may give its quota back
    if result.preemptions:
        return  # whether the plans need them is looked at closely
    targets = {one.node for one in nominated}
    for key, victim in sorted(victims.items()):
        if victim.node not in targets and key not in broken:
            yield Violation(ViolationKind.VICTIM, str(key), f"nobody is nominated to {victim.node}")


def _tied(
    snapshot: ClusterSnapshot, running: Mapping[PodKey, Pod]
) -> tuple[dict[str, list[Pod]], dict[str, int]]:
    """Give who leaves together once too few stay: gangs with their minimums, and groups that leave whole."""
    members = _members(running)
    minimums = gang_minimums(snapshot, members)
    units = units_of(snapshot, (pod for pod in running.values() if not pod.leaving))
    return {**members, **units}, minimums | {name: len(pods) for name, pods in units.items()}


def _members(running: Mapping[PodKey, Pod]) -> dict[str, list[Pod]]:
    """Give the pods of every gang that runs, by its id; whoever leaves anyhow is none of them."""
    members: dict[str, list[Pod]] = defaultdict(list)
    for pod in running.values():
        gang = _gang_of(pod)
        if gang and not pod.leaving:
            members[gang].append(pod)
    return members


def _gang_of(pod: Pod) -> str:
    """Give the id of a pod's gang; empty for none."""
    name = gang_name(pod.labels, pod.annotations)
    return f"{pod.namespace}/{name}" if name else ""


def _lent(snapshot: ClusterSnapshot, holder: Pod, coming: list[Pod]) -> dict[str, int]:
    from koordcore.checking.reservations import lent  # only who has reservations pays for their rules

    return lent(snapshot, holder, coming)


def _check_room(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    nominated: list[Nominated],
    pods: Mapping[PodKey, Pod],
    gone: Mapping[PodKey, Pod],
) -> Iterator[Violation]:
    """On every node to which somebody comes, what stays and what comes fits together.

    Whom a pod may count on as leaving anyhow makes room for it, and for who moves for it: the less important
    ones of those who come find room beside who leaves only for the others.
    """
    if not result.policy.filters("NodeResourcesFit"):
        return
    coming: dict[str, list[tuple[int, Pod]]] = defaultdict(list)
    for one in nominated:
        coming[one.node].append((pods[one.pod].priority, pods[one.pod]))
    for plan in result.preemptions:
        members = [pods[one.pod].priority for one in nominated if str(one.pod) in plan.nominations]
        for move in plan.moves:
            if move.victim.pod in gone:
                coming[move.node].append((min(members, default=0), gone[move.victim.pod]))
    states = {state.name: state for state in result.snapshot.nodes}
    classes = classes_of_resources(result.snapshot, result.policy)
    for node in sorted(coming.keys() & states.keys()):
        told: set[str] = set()
        for least in sorted({priority for priority, _ in coming[node]}):
            come = [pod for priority, pod in coming[node] if priority <= least]
            away = {*gone, *leaving_anyhow(snapshot, least)}
            staying = [pod for pod in states[node].pods if pod.key not in away]
            holders = [pod for pod in staying if pod.annotations.get(STANDS_FOR) == "true"]
            lent = [(holder, _lent(result.snapshot, holder, come)) for holder in holders]
            found = overflow(states[node].node, staying, come, result.policy, lent=lent, classes=classes)
            for name, amount, limit in found:
                kind = ViolationKind.POD_COUNT if name == PODS else ViolationKind.RESOURCE
                message = f"{name}: {amount} once the victims have gone, {limit} allocatable"
                if name not in told:
                    yield Violation(kind, node, message)
                told.add(name)


def _check_moves(
    snapshot: ClusterSnapshot, result: ScheduleResult, running: Mapping[PodKey, Pod]
) -> Iterator[Violation]:
    """Who moves is one of the victims and may run where it goes."""
    nodes = {state.name: state.node for state in snapshot.nodes}
    for plan in result.preemptions:
        leaving = {victim.pod for victim in plan.victims}
        for move in plan.moves:
            subject, pod = str(move.victim.pod), running.get(move.victim.pod)
            if move.victim.pod not in leaving:
                yield Violation(ViolationKind.VICTIM, subject, "moves and is none of the victims")
            elif move.node not in nodes:
                yield Violation(ViolationKind.UNKNOWN_NODE, subject, f"no node {move.node}")
            elif move.node == move.victim.node and move.victim.job not in plan.broken:
                yield Violation(ViolationKind.VICTIM, subject, f"moves to {move.node}, where it is")
            elif pod is not None:
                yield from check_place(pod, nodes[move.node], result.policy)
