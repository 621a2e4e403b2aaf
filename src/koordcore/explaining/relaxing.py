"""Which rule about neighbours a pod would have to give up: affinity, anti-affinity, even spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs

from koordcore.explaining.attempts import Attempts
from koordcore.explaining.remedy import Remedy, RemedyKind, some
from koordcore.model.affinity import TopologySpreadConstraint, UnsatisfiableAction
from koordcore.model.pods import Pod


def relaxing(asked: Attempts) -> Iterator[Remedy]:
    """Try the pods without their required pod affinity, anti-affinity and spread, each by itself."""
    for what, keys_of, without in (
        ("required podAffinity", _near, _without_near),
        ("required podAntiAffinity", _far, _without_far),
        ("topologySpreadConstraints that bind", _spread, _without_spread),
    ):
        yield from _without(asked, what, keys_of, without)


def _without(
    asked: Attempts, what: str, keys_of: Callable[[Pod], set[str]], without: Callable[[Pod], Pod]
) -> Iterator[Remedy]:
    keys = sorted(set[str]().union(*map(keys_of, asked.members)))
    if not keys:
        return
    found = asked.fits(members=[without(pod) for pod in asked.members])
    if found:
        nodes = asked.snapshot.nodes
        absent = [key for key in keys if not any(key in state.node.labels for state in nodes)]
        hint = f"; no node has the label {', '.join(absent)}" if absent else ""
        text = f"without {what} (over {', '.join(keys)}) it fits {some(sorted(set(found.values())))}{hint}"
        yield Remedy(kind=RemedyKind.RELAX, text=text)


def _near(pod: Pod) -> set[str]:
    near = None if pod.affinity is None else pod.affinity.pod
    return {one.topology_key for one in near.required} if near is not None else set()


def _far(pod: Pod) -> set[str]:
    far = None if pod.affinity is None else pod.affinity.anti
    return {one.topology_key for one in far.required} if far is not None else set()


def _binds(one: TopologySpreadConstraint) -> bool:
    return one.when_unsatisfiable is UnsatisfiableAction.DO_NOT_SCHEDULE


def _spread(pod: Pod) -> set[str]:
    return {one.topology_key for one in pod.spread_constraints if _binds(one)}


def _without_near(pod: Pod) -> Pod:
    if pod.affinity is None or pod.affinity.pod is None:
        return pod
    near = attrs.evolve(pod.affinity.pod, required=())
    return attrs.evolve(pod, affinity=attrs.evolve(pod.affinity, pod=near))


def _without_far(pod: Pod) -> Pod:
    if pod.affinity is None or pod.affinity.anti is None:
        return pod
    far = attrs.evolve(pod.affinity.anti, required=())
    return attrs.evolve(pod, affinity=attrs.evolve(pod.affinity, anti=far))


def _without_spread(pod: Pod) -> Pod:
    return attrs.evolve(
        pod, spread_constraints=tuple(one for one in pod.spread_constraints if not _binds(one))
    )
