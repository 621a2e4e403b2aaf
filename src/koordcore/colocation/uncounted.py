"""Amounts that columns do not hold: whose they are, so that only their node lends nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from koordcore.colocation.columns import LoadColumns, compile_loads
from koordcore.errors import ModelError, join_path
from koordcore.model.colocation import NodeLoad
from koordcore.model.metrics import Measured
from koordcore.protocol.reserved_on_node import KEPT_AT

_STATUS: Final = "status.nodeMetric"


def counted_loads(loads: Sequence[NodeLoad]) -> tuple[LoadColumns, dict[str, str]]:
    """Make columns of nodes; one with an amount that they do not hold stands there without a report.

    Parameters
    ----------
    loads
        The nodes.

    Returns
    -------
    tuple
        The columns, and for each such node object, path and what is wrong.
    """
    try:
        return compile_loads(loads), {}
    except ModelError:
        found = {one.name: problem for one in loads if (problem := too_large(one))}
        return compile_loads([NodeLoad(name=one.name) if one.name in found else one for one in loads]), found


def too_large(load: NodeLoad) -> str:
    """Say which amount of a node columns do not hold, with its object and path; empty where there is none."""
    try:
        compile_loads([load])
    except ModelError as error:
        return f"{_place(load)}: {error}"
    return ""


def _place(load: NodeLoad) -> str:
    for thing, path, amounts in _amounts(load):
        for name, amount in amounts.items():
            try:
                compile_loads([NodeLoad(name=load.name, capacity=Measured({name: amount}))])
            except ModelError:
                return f"{thing}: {join_path(path, name)}"
    return f"Node {load.name}"


def _amounts(load: NodeLoad) -> Iterator[tuple[str, str, Measured]]:
    """Give everything that is counted on a node: object, path, amounts."""
    node = f"Node {load.name}"
    yield node, "status.capacity", load.capacity
    yield node, "status.allocatable", load.allocatable or Measured()
    yield node, KEPT_AT, load.reserved
    for pod in load.pods:
        yield f"Pod {pod.namespace}/{pod.name}", "requests", pod.request
    if load.metric is None:
        return
    metric = f"NodeMetric {load.name}"
    yield metric, f"{_STATUS}.nodeUsage.resources", load.metric.node_usage or Measured()
    yield metric, f"{_STATUS}.systemUsage.resources", load.metric.system_usage
    for number, one in enumerate(load.metric.pods):
        yield metric, f"status.podsMetric[{number}].podUsage.resources", one.usage
    for number, host in enumerate(load.metric.host_applications):
        yield metric, f"status.hostApplicationMetric[{number}].usage.resources", host.usage
    reclaimable = load.metric.prod_reclaimable
    yield metric, "status.prodReclaimableMetric.resource.resources", reclaimable or Measured()
