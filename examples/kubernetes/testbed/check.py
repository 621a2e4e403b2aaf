"""Everything read back from the API server, and looked at as one plan by koordcore's checker."""

from __future__ import annotations

import attrs

from examples.kubernetes.api import RESOURCES, Api
from examples.kubernetes.mirror import complete
from examples.kubernetes.scheduler import Settings
from koordcore import Bound, NodeState, ScheduleResult, snapshot_from_objects, verify

__all__ = ["check"]


def check(api: Api) -> list[str]:
    """Give every broken rule: rooms, cards, virtual functions, CPUs, quotas' max, gangs and their gathering.

    The checker takes the empty cluster and all that runs as a plan for it. It shares no code with the
    scheduler's decisions, and it does not know in which order they were taken.
    """
    objects = [complete(kind, item) for kind, path in RESOURCES.items() for item in api.list_all(path).items]
    after = snapshot_from_objects(objects).snapshot
    running = list(after.bound_pods())
    empty = attrs.evolve(
        after,
        nodes=tuple(NodeState(state.node, ()) for state in after.nodes),
        pending=(*after.pending, *(pod.at(None) for pod in running)),
    )
    decisions = tuple(Bound(pod=pod.key, node=str(pod.node_name)) for pod in running)
    result = ScheduleResult(decisions=decisions, snapshot=empty.assume(*running), policy=Settings().policy)
    return [str(violation) for violation in verify(empty, result)]
