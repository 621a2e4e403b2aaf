"""Gangs: all of the minimum or nothing, and gathered as they must be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain

from koordcore.checking.gang_parts import check_parts
from koordcore.checking.network import tree_of
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound, Waiting
from koordcore.model.gangs import (
    DEFAULT_ARGS,
    CoschedulingArgs,
    Gang,
    GangMode,
    GatherRule,
    MatchPolicy,
    NetworkTopologySpec,
    PodGroup,
)
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.gang import gang_from_pod_group, parse_gang_pod
from koordcore.protocol.gang_names import WAITS_AT_PERMIT, gang_name
from koordcore.protocol.networks import spelt
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.gathering import gathering_violations
from koordcore.topology.network import NODE_LAYER, LayerSpec, NetworkTopology, build_tree


def check_gangs(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, whole: ClusterSnapshot, standing: bool = False
) -> Iterator[Violation]:
    """Every gang that got a member is configured and has its minimum, and its members lie as they must.

    Parameters
    ----------
    whole
        The cluster with all nodes, whose network counts.
    standing
        The members run already: what configured their gang may be gone, and so may the network.
    """
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    held = {one.pod for one in result.decisions if isinstance(one, Waiting) and one.held}
    members = members_of(pod for state in result.snapshot.nodes for pod in state.pods)
    yield from check_members(snapshot, result, members, new, new, whole=whole, standing=standing)
    gangs = _gangs_after(snapshot, result) if held else {}
    for gang_id, gang in sorted(gangs.items()):
        if gang.mode is GangMode.STRICT and {pod.key for pod in members.get(gang_id, ())} & held:
            yield Violation(ViolationKind.GANG, gang_id, "is Strict and keeps places while it waits")


def members_of(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Give the members of gangs among pods, by the id of their gang."""
    members: dict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        name = gang_name(pod.labels, pod.annotations)
        if name:
            members[f"{pod.namespace}/{name}"].append(pod)
    return members


def check_members(
    snapshot: ClusterSnapshot,
    result: ScheduleResult,
    members: Mapping[str, list[Pod]],
    asked: Collection[PodKey],
    new: set[PodKey],
    *,
    whole: ClusterSnapshot,
    standing: bool = False,
    spared: Collection[str] = (),
) -> Iterator[Violation]:
    """Check the gangs of some pods as they are once their members have nodes.

    Parameters
    ----------
    members
        Everybody who has a node then, by gang.
    asked, new
        The pods whose gangs are checked, and all that have not run before.
    spared
        Gangs that are not checked, nor those that list them.
    """
    gangs, tree = _gangs_after(snapshot, result), None
    if any(gang.topology_spec is not None or gang.sub_groups is not None for gang in gangs.values()):
        tree = tree_of(whole)
    if tree is not None:
        gangs = {name: spelt(gang, tree) for name, gang in gangs.items()}
    before, staying = _before(snapshot), _staying(snapshot, gangs)
    for gang_id in sorted(members):
        if not any(pod.key in asked for pod in members[gang_id]):
            continue
        gang = gangs.get(gang_id)
        if gang is None:
            if not standing:
                yield Violation(ViolationKind.GANG, gang_id, "has a new member, and nothing configures it")
            continue
        if any(name in spared for name in (gang_id, *gang.group)):
            continue
        yield from _check_group(gang, gangs, members, before, new)
        # Also where it does not list itself its members lie with those of the gangs that it lists.
        planned = sorted({gang_id, *_awaited(gang, gangs, before[0])})
        specs = {name: gangs[name].topology_spec for name in planned if name in gangs}
        # Where nothing binds them all, others may have come by themselves, to nodes that are in no network.
        binding = specs if _shared(specs).gather_strategy else (gang_id,)
        together = [pod for name in binding for pod in members.get(name, ())]
        # What the gangs say decides whether a network is needed, not what is left of it for each check.
        known = [spec for spec in specs.values() if spec is not None]
        started = _started(gang, gangs, before[0])
        if known and (tree is not None or not started or any(spec.binds for spec in known)):
            there = tree or _bare(together, known)
            if there is not None or not standing:
                yield from _check_gather(there, gang.id, _shared(specs), together, new, staying)
        if gang.topology_spec is not None:
            own, pods = _unshared(gang.topology_spec, _shared(specs)), members[gang_id]
            there = tree or _bare(pods, [gang.topology_spec])
            if there is not None or (not standing and (not started or gang.topology_spec.binds)):
                yield from _check_gather(there, gang.id, own, pods, new, staying)
        if gang.sub_groups is not None:
            yield from check_parts(snapshot, gang, members[gang_id], new, tree, standing=standing)


def _gangs_after(snapshot: ClusterSnapshot, result: ScheduleResult) -> dict[str, Gang]:
    args = result.policy.args_of(CoschedulingArgs)
    return gang_configs(snapshot.of(PodGroup), _everybody(result.snapshot), args)


def gang_configs(
    groups: Iterable[PodGroup], pods: Iterable[Pod], args: CoschedulingArgs = DEFAULT_ARGS
) -> dict[str, Gang]:
    """Say how gangs are meant, by id: as their PodGroups say, else their first member by key."""
    gangs = {group.id: gang_from_pod_group(group, args).gang for group in groups}
    named = ((pod, gang_name(pod.labels, pod.annotations)) for pod in pods)
    members = sorted(((pod.key, f"{pod.namespace}/{name}", pod) for pod, name in named if name), key=_first)
    for _, gang_id, pod in members:
        if gang_id not in gangs:
            config = parse_gang_pod(
                namespace=pod.namespace,
                name=pod.name,
                labels=pod.labels,
                annotations=pod.annotations,
                args=args,
            ).pod.config
            if config is not None:
                gangs[gang_id] = config
    return gangs


def _first(item: tuple[PodKey, str, Pod]) -> PodKey:
    return item[0]


def _everybody(snapshot: ClusterSnapshot) -> Iterator[Pod]:
    """Give all pods that may say how a gang is meant: who runs, ran or waits."""
    yield from snapshot.bound_pods()
    yield from snapshot.pending
    yield from snapshot.of(Pod)


def gang_minimums(snapshot: ClusterSnapshot, members: Mapping[str, list[Pod]]) -> dict[str, int]:
    """Give the minimum of every gang that is configured and has members, by id."""
    if not members:
        return {}
    gangs = gang_configs(snapshot.of(PodGroup), _everybody(snapshot))
    return {gang_id: gangs[gang_id].min_available for gang_id in members if gang_id in gangs}


def _before(snapshot: ClusterSnapshot) -> tuple[Counter[str], Counter[str]]:
    """Count the members that had a node before, by gang: bound ones, and those that kept one at Permit.

    Bound are also those that ran to their end and still exist.
    """
    bound, waiting = Counter[str](), Counter[str]()
    ended = (pod for pod in snapshot.of(Pod) if pod.finished and pod.node_name)
    for pod in (*(pod for state in snapshot.nodes for pod in state.pods), *ended):
        name = gang_name(pod.labels, pod.annotations)
        if name:
            counts = waiting if WAITS_AT_PERMIT in pod.annotations else bound
            counts[f"{pod.namespace}/{name}"] += 1
    return bound, waiting


def _staying(snapshot: ClusterSnapshot, gangs: Mapping[str, Gang]) -> set[str]:
    """Give the gangs of which somebody stays, and all that are tied to them by their lists.

    Whoever ran to his end and still exists counts, and whoever terminates does not.
    """
    tied: dict[str, set[str]] = defaultdict(set)
    for name, gang in gangs.items():
        for other in gang.group:
            tied[name].add(other)
            tied[other].add(name)
    ended = (pod for pod in snapshot.of(Pod) if pod.finished and pod.node_name)
    there = chain((pod for state in snapshot.nodes for pod in state.pods), ended)
    asked = [*members_of(pod for pod in there if not pod.terminating)]
    found: set[str] = set()
    while asked:
        name = asked.pop()
        if name not in found:
            found.add(name)
            asked += tied[name]
    return found


def _check_group(
    gang: Gang,
    gangs: Mapping[str, Gang],
    members: Mapping[str, list[Pod]],
    before: tuple[Counter[str], Counter[str]],
    new: set[PodKey],
) -> Iterator[Violation]:
    bound, waiting = before
    started = _started(gang, gangs, bound)
    group = sorted(set(gang.group))
    known = [gangs[name] for name in {gang.id, *group} if name in gangs]
    enough = max(one.min_groups for one in known)
    # Gangs of which one lists others than the rest are no group of which some would be enough.
    partly, met = 0 < enough < len(group) and all({*one.group} == {*group} for one in known), 0
    for name in group:
        policy = gangs[name].match_policy if name in gangs else MatchPolicy.ONCE_SATISFIED
        begun = started or (name in gangs and name != gang.id and _started(gangs[name], gangs, bound))
        if begun and policy == MatchPolicy.ONCE_SATISFIED:
            met += 1
            continue
        least = gangs[name].min_available if name in gangs else 0
        fresh = sum(pod.key in new for pod in members.get(name, ()))
        placed = fresh + waiting[name]
        if policy != MatchPolicy.ONLY_WAITING:
            placed += bound[name]
        if placed >= least:
            met += name in gangs
        elif fresh or not partly:  # where a part of the gangs is enough, the others start nobody
            message = f"{placed} of at least {least} members of {name} have a node"
            yield Violation(ViolationKind.GANG, gang.id, message)
    if partly and met < enough:
        yield Violation(ViolationKind.GANG, gang.id, f"{met} of at least {enough} gangs have their minimum")


def _started(gang: Gang, gangs: Mapping[str, Gang], bound: Mapping[str, int]) -> bool:
    """Tell whether a member of the group has run before: of any gang that lists the same ones."""
    return any(bound[name] for name, one in gangs.items() if one.group == gang.group)


def _awaited(gang: Gang, gangs: Mapping[str, Gang], bound: Mapping[str, int]) -> Iterator[str]:
    """Give those whom a gang lists without which none of its members starts now.

    Once it has started, those that have not matter only where they count anew at every start.
    """
    started = _started(gang, gangs, bound)
    for name in gang.group:
        one = gangs.get(name)
        if not started or (one is not None and (_counts_anew(one) or _started(one, gangs, bound))):
            yield name


def _counts_anew(gang: Gang) -> bool:
    return gang.match_policy in (MatchPolicy.ONLY_WAITING, MatchPolicy.WAITING_AND_RUNNING)


def _shared(specs: Mapping[str, NetworkTopologySpec | None]) -> NetworkTopologySpec:
    """Give the rules that every gang of a group has: they bind all members together."""
    known = [spec for spec in specs.values() if spec is not None]
    if len(known) < len(specs):
        return NetworkTopologySpec()
    strict = [{rule.layer for rule in spec.gather_strategy if rule.must} for spec in known]
    counted = [set(spec.multiples.items()) for spec in known]
    return NetworkTopologySpec(
        (
            *(GatherRule(layer, "MustGather") for layer in sorted(set.intersection(*strict))),
            *(GatherRule(layer, "", number) for layer, number in sorted(set.intersection(*counted))),
        )
    )


def _unshared(spec: NetworkTopologySpec, shared: NetworkTopologySpec) -> NetworkTopologySpec:
    """Give what a gang's own spec says beyond that."""
    strict = {rule.layer for rule in shared.gather_strategy if rule.must}
    return NetworkTopologySpec(
        (
            *(
                GatherRule(r.layer, "MustGather")
                for r in spec.gather_strategy
                if r.must and r.layer not in strict
            ),
            *(
                GatherRule(layer, "", number)
                for layer, number in spec.multiples.items()
                if (layer, number) not in shared.multiples.items()
            ),
        )
    )


def _bare(pods: Iterable[Pod], specs: Iterable[NetworkTopologySpec]) -> NetworkTopology | None:
    """Give the nodes of pods as a network of their own, where no rule asks for more."""
    if any(spec.needs_network for spec in specs):
        return None
    return build_tree([LayerSpec(NODE_LAYER)], {str(pod.node_name): {} for pod in pods})


def _check_gather(
    tree: NetworkTopology | None,
    gang_id: str,
    spec: NetworkTopologySpec,
    pods: list[Pod],
    new: set[PodKey],
    staying: Collection[str],
) -> Iterator[Violation]:
    if tree is None:
        yield Violation(ViolationKind.GANG, gang_id, "wants to be gathered, and there is no network topology")
        return
    # A gang of which nobody stays begins anew.
    running = [pod for pod in pods if pod.key not in new] if gang_id in staying else []
    broken = gathering_violations(
        tree,
        [str(pod.node_name) for pod in pods if pod.key in new],
        must_layer=spec.must_layer(tree.layers),
        multiples=spec.multiples,
        bound=[str(pod.node_name) for pod in running],
    )
    for message in broken:
        yield Violation(ViolationKind.GANG, gang_id, message)
