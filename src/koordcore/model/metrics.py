"""What was measured on a node: the content of its NodeMetric.

Measured amounts are exact, in billionths of the unit of their resource (nano-cores, nano-bytes), because
upstream adds them up before it rounds. :func:`rounded` gives the library's usual integers. Times are
integers of nanoseconds, moments counted from 1970 (see :mod:`koordcore.protocol.times`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, Problem
from koordcore.model.checks import check_fields
from koordcore.model.mappings import frozen
from koordcore.model.quantity import NANO, parse_exact_quantity
from koordcore.model.resources import CPU, Resources, scale_of

Measured: TypeAlias = immutabledict[str, int]
"""Resource name to amount in billionths of its unit; an absent name was not measured."""

NOTHING_MEASURED: Final[Measured] = immutabledict()
_MILLI: Final = NANO // scale_of(CPU)


def parse_measured(raw: Mapping[str, object]) -> Measured:
    """Read a Kubernetes resource list exactly.

    Raises
    ------
    ManifestError
        Names every entry that is no quantity.
    """
    amounts: dict[str, int] = {}
    problems: list[Problem] = []
    for name, text in sorted(raw.items()):
        try:
            amounts[name] = parse_exact_quantity(text)  # type: ignore[arg-type]  # checked inside
        except ManifestError as error:
            problems.extend(error.within(f"[{name}]").problems)
    if problems:
        raise ManifestError(problems)
    return immutabledict(amounts)


def measured_of(resources: Mapping[str, int]) -> Measured:
    """Give exact amounts for the library's usual integers (cpu in milli, the rest in units).

    Examples
    --------
    >>> dict(measured_of({"cpu": 1500, "memory": 1}))
    {'cpu': 1500000000, 'memory': 1000000000}
    """
    return immutabledict(
        (name, amount * (NANO // scale_of(name))) for name, amount in sorted(resources.items())
    )


def rounded(measured: Mapping[str, int]) -> Resources:
    """Give the usual integers for exact amounts, rounded away from zero as ``Value()`` is.

    Examples
    --------
    >>> dict(rounded({"cpu": 758090681, "memory": 1}))
    {'cpu': 759, 'memory': 1}
    """
    amounts: dict[str, int] = {}
    for name, amount in sorted(measured.items()):
        step = _MILLI if name == CPU else NANO
        amounts[name] = -(-amount // step) if amount >= 0 else amount // step
    return immutabledict(amounts)


def rounded_to(measured: Mapping[str, int], names: Iterable[str]) -> tuple[int, ...]:
    """Give the usual integers of some resources, as :func:`rounded` does, 0 for what was not measured.

    Examples
    --------
    >>> rounded_to({"cpu": 758090681, "memory": -1}, ("cpu", "memory", "pods"))
    (759, -1, 0)
    """
    amounts = []
    for name in names:
        try:
            amount = measured[name]  # a frozen mapping takes three times as long for get
        except KeyError:
            amounts.append(0)
            continue
        step = _MILLI if name == CPU else NANO
        amounts.append(-(-amount // step) if amount >= 0 else amount // step)
    return tuple(amounts)


def rounded_column(measured: Sequence[Mapping[str, int]], name: str) -> list[int]:
    """Give the usual integers of one resource by many measurements, as :func:`rounded_to` does.

    Examples
    --------
    >>> rounded_column([{"cpu": 758090681}, {"cpu": -1}, {}], "cpu")
    [759, -1, 0]
    """
    try:
        amounts = [one[name] for one in measured]
    except KeyError:
        amounts = [one[name] if name in one else 0 for one in measured]  # noqa: SIM401  # see above
    step = _MILLI if name == CPU else NANO
    return [-(-amount // step) if amount >= 0 else amount // step for amount in amounts]


@record
class AggregatedUsage:
    """Usage over one window, per statistic.

    Parameters
    ----------
    duration
        Length of the window in nanoseconds.
    usage
        ``avg``, ``p50``, ``p90``, ``p95`` or ``p99`` to what was measured.
    """

    duration: int
    usage: immutabledict[str, Measured] = attrs.field(converter=frozen)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PodMetric:
    """What one pod uses.

    Parameters
    ----------
    namespace, name
        The pod.
    priority
        Priority class as the node agent reported it; empty where it is none.
    usage
        What the pod uses.
    """

    namespace: str
    name: str
    priority: str = ""
    usage: Measured = NOTHING_MEASURED

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class HostApplicationMetric:
    """What a process outside Kubernetes uses.

    Parameters
    ----------
    name
        Name of the application.
    priority, qos
        Its priority class and QoS class as configured; empty where there is none.
    usage
        What it uses.
    """

    name: str
    priority: str = ""
    qos: str = ""
    usage: Measured = NOTHING_MEASURED

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class NodeMetric:
    """What was last reported about a node.

    Parameters
    ----------
    node
        Name of the node.
    update_time
        Moment of the report; ``None`` when nothing was reported yet.
    report_interval
        Nanoseconds between reports; ``None`` where unsaid.
    node_usage
        What the whole node uses; ``None`` when the report has no body.
    system_usage
        What runs outside pods; part of the node's usage.
    aggregated_node_usages, aggregated_system_usages
        Statistics over windows, in the order reported.
    pods, host_applications
        Per pod and per application, in the order reported.
    prod_reclaimable
        What prod pods asked for and will not use, by prediction; ``None`` where there is no prediction.
    """

    node: str
    update_time: int | None = None
    report_interval: int | None = None
    node_usage: Measured | None = None
    system_usage: Measured = NOTHING_MEASURED
    aggregated_node_usages: tuple[AggregatedUsage, ...] = ()
    aggregated_system_usages: tuple[AggregatedUsage, ...] = ()
    pods: tuple[PodMetric, ...] = ()
    host_applications: tuple[HostApplicationMetric, ...] = ()
    prod_reclaimable: Measured | None = None

    __attrs_post_init__ = check_fields

    @property
    def name(self) -> str:
        """Name of the record: that of the node."""
        return self.node

    @property
    def namespace(self) -> str:
        """The object belongs to the whole cluster."""
        return ""

    def pod_usages(self) -> Mapping[tuple[str, str], PodMetric]:
        """Index the pods' metrics by namespace and name; the last of equal names stays."""
        return {(pod.namespace, pod.name): pod for pod in self.pods}
