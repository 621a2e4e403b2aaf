"""Parts of gangs: each has its minimum or nobody, enough of them start, and each lies as it must."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import ManifestError
from koordcore.model.gangs import Gang, MatchPolicy
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.gang import parse_topology_index
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.sub_groups import Part, split_members
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.gathering import gathering_violations
from koordcore.topology.network import NetworkTopology


def check_parts(
    snapshot: ClusterSnapshot,
    gang: Gang,
    placed: Sequence[Pod],
    new: set[PodKey],
    tree: NetworkTopology | None,
    *,
    standing: bool = False,
) -> Iterator[Violation]:
    """Check the parts of a gang that got members.

    Parameters
    ----------
    snapshot
        The cluster before.
    placed
        Members with a node, those of this call among them.
    new
        Pods that got theirs in this call.
    tree
        The network, where there is one.
    standing
        The members run already: the network may be gone.
    """
    groups = gang.sub_groups
    assert groups is not None, "only gangs with parts are asked about"
    nodes = {pod.key: str(pod.node_name) for pod in placed}
    ended = [pod for pod in snapshot.of(Pod) if pod.finished and pod.node_name and _is_of(gang, pod)]
    waiting = [pod for pod in snapshot.pending if _is_of(gang, pod) and pod.key not in nodes]
    parts = split_members(groups, (*placed, *ended, *waiting), _rank)
    had = {pod.key for pod in ended}
    before = any(key not in new for key in nodes) or bool(had)
    repaired = before and gang.match_policy == MatchPolicy.ONCE_SATISFIED
    reached: dict[int, int] = {}
    for part in parts:
        here = [pod for pod in part.members if pod.key in nodes or pod.key in had]
        if len(here) >= part.least and part.entry >= 0:
            reached[part.entry] = reached.get(part.entry, 0) + 1
        elif part.entry >= 0 and not repaired and any(pod.key in new for pod in here):
            text = f"{part.name} has {len(here)} of at least {part.least} members"
            yield Violation(ViolationKind.GANG, gang.id, text)
        if part.entry >= 0 and (tree is not None or not standing):
            yield from _lies(gang, part, nodes, new, tree)
    if repaired:
        return
    well = 0
    for number, entry in enumerate(groups.entries):
        several = sum(part.entry == number for part in parts)
        well += reached.get(number, 0) >= (entry.min_replicas or max(1, several))
    least = groups.least or len(groups.entries)
    if well < least:
        yield Violation(ViolationKind.GANG, gang.id, f"{well} of at least {least} parts have started")


def _lies(
    gang: Gang, part: Part, nodes: dict[PodKey, str], new: set[PodKey], tree: NetworkTopology | None
) -> Iterator[Violation]:
    assert gang.sub_groups is not None, "only gangs with parts are asked about"
    spec = gang.sub_groups.entries[part.entry].spec
    here = [pod.key for pod in part.members if pod.key in nodes]
    if not spec.gather_strategy or not any(key in new for key in here):
        return
    if tree is None:
        text = f"{part.name} wants to be gathered, and there is no network topology"
        yield Violation(ViolationKind.GANG, gang.id, text)
        return
    for message in gathering_violations(
        tree,
        [nodes[key] for key in here if key in new],
        must_layer=spec.must_layer(tree.layers),
        multiples=spec.multiples,
        bound=[nodes[key] for key in here if key not in new],
    ):
        yield Violation(ViolationKind.GANG, gang.id, f"{part.name}: {message}")


def _is_of(gang: Gang, pod: Pod) -> bool:
    return f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}" == gang.id


def _rank(pod: Pod) -> int | None:
    try:
        return parse_topology_index(pod.annotations)
    except ManifestError:
        return None
