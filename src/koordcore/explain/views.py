"""State as the scheduler's debug endpoints show it, as functions that return JSON values.

Paths and fields are those of upstream's services (specification section 4.6); amounts are quantities.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from koordcore._arrays import node_columns
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric
from koordcore.model.pods import Pod
from koordcore.model.resources import Resources, format_resources, make_resources, subtract
from koordcore.protocol.times import format_timestamp, moment_of
from koordcore.scoring.load import LoadState
from koordcore.snapshot import ClusterSnapshot

__all__ = ["load_view", "node_view"]


def node_view(snapshot: ClusterSnapshot, name: str) -> dict[str, Any]:
    """Show one node with what is taken on it: ``/apis/v1/nodes/:name``.

    Raises
    ------
    ModelError
        When there is no such node.
    """
    state = snapshot.node(name)
    requested, scored = node_columns(snapshot.layout, name, state.pods)
    columns = snapshot.layout.resources
    allocatable = state.node.allocatable
    taken = _named(columns, requested)
    return {
        "node": name,
        "pods": [str(pod.key) for pod in state.pods],
        "allocatable": format_resources(allocatable),
        "requested": format_resources(taken),
        "nonZeroRequested": format_resources(_named(columns, scored)),
        "remaining": format_resources(subtract(allocatable, taken)),
    }


def _named(columns: tuple[str, ...], amounts: list[int]) -> Resources:
    return make_resources({name: amount for name, amount in zip(columns, amounts, strict=True) if amount})


def load_view(
    snapshot: ClusterSnapshot, name: str, now: datetime, args: LoadAwareArgs | None = None
) -> dict[str, Any]:
    """Show one node's load as LoadAwareScheduling counts it: ``…/LoadAwareScheduling/node/:name``.

    The ``…Pods`` lists name the pods that an amount comes from, as ``namespace/name``.

    Raises
    ------
    ModelError
        When there is no such node.
    """
    state = snapshot.node(name)
    metrics = {one.node: one for one in snapshot.of(NodeMetric) if one.node == name}
    moment = moment_of(now)

    def counted(*pods: Pod) -> Mapping[str, Resources]:
        load = LoadState([state.node], metrics, args or LoadAwareArgs(), moment)
        load.place_all((pod, 0) for pod in pods)
        return load.describe(0)

    def stamp(pod: Pod) -> int:
        return moment if pod.scheduled is None else moment_of(pod.scheduled)

    pods = sorted(state.pods, key=lambda pod: (stamp(pod), pod.key))
    single = {pod.key: counted(pod) for pod in pods}
    vectors = counted(*pods)
    return {
        "pods": [{"timestamp": format_timestamp(stamp(pod)), "pod": str(pod.key)} for pod in pods],
        **{key: format_resources(vector) for key, vector in vectors.items()},
        **{
            f"{key}Pods": [str(pod.key) for pod in pods if any(single[pod.key][key].values())]
            for key in ("nodeDelta", "prodDelta", "nodeEstimated")
        },
    }
