"""What the descheduler is told: thresholds, limits, which pods may be evicted."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields, check_least
from koordcore.model.colocation import RawSelector
from koordcore.model.mappings import frozen
from koordcore.model.migration import DEFAULT_JOB_MODE, JobMode
from koordcore.model.nodes import Node
from koordcore.model.selectors import LabelSelector

DEFAULT_POOL: Final = "__default_node_pool__"
"""Name of the pool that the block at the top of the arguments stands for."""

Thresholds: TypeAlias = immutabledict[str, float]
"""Resource name to percent of the node; a name that is absent is completed where the pool is used."""

Share: TypeAlias = int | str
"""A count, or a share such as ``"10%"``."""

_EQUAL_WEIGHTS: Final[immutabledict[str, int]] = immutabledict({"cpu": 1, "memory": 1})
_EVEN_WEIGHTS: Final[immutabledict[str, float]] = immutabledict({"cpu": 1.0, "memory": 1.0})


class EvictionGate(StrEnum):
    """Checks of the migration filter that can be left out one by one."""

    MAX_UNAVAILABLE_PER_WORKLOAD = "MaxUnavailablePerWorkload"
    MAX_MIGRATING_PER_WORKLOAD = "MaxMigratingPerWorkload"
    MAX_MIGRATING_PER_NODE = "MaxMigratingPerNode"
    MAX_MIGRATING_PER_NAMESPACE = "MaxMigratingPerNamespace"
    MAX_MIGRATING_GLOBALLY = "MaxMigratingGlobally"
    EXPECTED_REPLICAS = "ExpectedReplicas"
    PVC = "PVC"
    BARE_PODS = "BarePods"
    LOCAL_STORAGE = "LocalStorage"
    SYSTEM_CRITICAL = "SystemCritical"
    PRIORITY_THRESHOLD = "PriorityThreshold"
    LABEL_SELECTOR = "LabelSelector"
    NAMESPACES = "Namespaces"
    NODE_FIT = "NodeFit"


@record
class Namespaces:
    """Namespaces that are looked at, or that are not; at most one of the two is given."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    __attrs_post_init__ = check_fields

    def admits(self, namespace: str) -> bool:
        """Tell whether pods of the namespace are looked at."""
        return (not self.include or namespace in self.include) and namespace not in self.exclude


@record
class PodSelector:
    """Pods by label, with a name for the reader; a selector that is absent selects none."""

    name: str = ""
    selector: RawSelector | None = None

    __attrs_post_init__ = check_fields


@record
class AnomalyCondition:
    """When a hot node counts as abnormal.

    Parameters
    ----------
    timeout
        Nanoseconds after which an anomaly is forgotten; 0 or less stands for a minute.
    consecutive_abnormalities, consecutive_normalities
        More sightings than these change the state.
    """

    timeout: int = 60 * 10**9
    consecutive_abnormalities: int = 5
    consecutive_normalities: int = 3

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class NodePool:
    """Nodes that are balanced among each other.

    Parameters
    ----------
    name, selector
        Which nodes; without a selector all of them.
    deviation
        Thresholds are distances from the average usage, in percent points.
    high, low, prod_high, prod_low
        Percent of the node; ``None`` where the map is absent.
    weights
        Weight of each resource in usage scores.
    anomaly
        ``None`` acts on every hot node at once.
    """

    name: str = DEFAULT_POOL
    selector: RawSelector | None = None
    deviation: bool = False
    high: Thresholds | None = None
    low: Thresholds | None = None
    prod_high: Thresholds | None = None
    prod_low: Thresholds | None = None
    weights: immutabledict[str, int] = attrs.field(default=_EQUAL_WEIGHTS, converter=frozen)
    anomaly: AnomalyCondition | None = AnomalyCondition()

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class LowNodeLoadArgs:
    """Arguments of LowNodeLoad after defaulting.

    Parameters
    ----------
    paused, dry_run
        Nothing is done; or everything but the eviction.
    number_of_nodes
        Fewer idle nodes than this, or as many, and nothing is done.
    metric_expiration
        Seconds from which on a metric is too old.
    node_fit
        Only pods that fit one of the idle nodes are evicted.
    namespaces, pod_selectors
        Which pods may be evicted; of several selectors one must hold.
    detector_cache_timeout
        Nanoseconds after which an untouched detector is forgotten.
    pools
        The block at the top first, then the pools in their order.
    """

    paused: bool = False
    dry_run: bool = False
    number_of_nodes: int = 0
    metric_expiration: int = 180
    node_fit: bool = True
    namespaces: Namespaces | None = None
    pod_selectors: tuple[PodSelector, ...] = ()
    detector_cache_timeout: int = 300 * 10**9
    pools: tuple[NodePool, ...] = (NodePool(),)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class EvictorArgs:
    """Which pods may be evicted at all.

    Parameters
    ----------
    evict_failed_bare_pods, evict_all_bare_pods
        Pods without owner go if they failed; or in any case.
    evict_local_storage_pods
        Pods with an ``emptyDir`` or ``hostPath`` may go.
    evict_system_critical_pods
        Pods of any priority may go; switches the threshold off, too.
    ignore_pvc_pods
        Pods with a claim stay.
    priority_threshold
        Pods of this priority and above stay.
    label_selector
        Only pods with such labels may go; ``None`` lets all.
    namespaces
        Only pods of these namespaces may go.
    skip_gates
        Checks that are left out.
    """

    evict_failed_bare_pods: bool = False
    evict_all_bare_pods: bool = False
    evict_local_storage_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    priority_threshold: int | None = None
    label_selector: RawSelector | None = None
    namespaces: Namespaces | None = None
    skip_gates: frozenset[str] = frozenset()

    __attrs_post_init__ = check_fields


@record
class ObjectLimiter:
    """A token bucket per workload or namespace.

    Parameters
    ----------
    duration
        Nanoseconds in which ``max_migrating`` evictions are allowed; 0 switches the limiter off.
    max_migrating
        ``None`` takes the limit of the workload.
    burst
        Size of the bucket; 0 stands for 1.
    """

    duration: int = 0
    max_migrating: Share | None = None
    burst: int = 1

    __attrs_post_init__ = check_fields


JOB_SCHEDULERS: Final = ("koord-scheduler",)
"""Whose pods get migration jobs that reserve room first, where nothing is said."""
_DEFAULT_LIMITERS: Final = immutabledict({"workload": ObjectLimiter(300 * 10**9)})


@record(kw_only=True)
class MigrationControllerArgs:
    """Arguments of the migration controller after defaulting.

    Parameters
    ----------
    evictor
        Which pods may be evicted at all.
    max_migrating_globally, max_migrating_per_namespace, max_migrating_per_node
        Jobs at a time; ``None``, 0 or less is unlimited.
    max_migrating_per_workload, max_unavailable_per_workload
        Pods at a time; ``None`` follows from the replicas.
    skip_check_expected_replicas
        Workloads of one pod, or whose limit equals their size, are migrated, too.
    limiters
        Buckets by type, ``workload`` or ``namespace``.
    scheduler_names
        Whose pods migrate where room is reserved first. Left out, jobs are made for those of
        ``koord-scheduler`` (:data:`JOB_SCHEDULERS`), and plans of moves take pods of all schedulers.
    node_selectors
        Pods move among the nodes that every one of these selects; none selects all nodes.
    """

    dry_run: bool = False
    evictor: EvictorArgs = EvictorArgs()
    node_fit: bool = False
    max_migrating_globally: int | None = None
    max_migrating_per_namespace: int | None = None
    max_migrating_per_node: int | None = 2
    max_migrating_per_workload: Share | None = None
    max_unavailable_per_workload: Share | None = None
    skip_check_expected_replicas: bool = False
    limiters: immutabledict[str, ObjectLimiter] = attrs.field(default=_DEFAULT_LIMITERS, converter=frozen)
    default_job_mode: JobMode = DEFAULT_JOB_MODE
    default_job_ttl: int = 300 * 10**9
    scheduler_names: tuple[str, ...] | None = None
    node_selectors: tuple[LabelSelector, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def checks_expected_replicas(self) -> bool:
        """Pods of a workload of one, or whose limit equals its size, stay."""
        gates = self.evictor.skip_gates
        return not self.skip_check_expected_replicas and EvictionGate.EXPECTED_REPLICAS not in gates

    def selects(self, node: Node) -> bool:
        """Tell whether pods may leave a node, or go there."""
        return all(one.matches(node.labels) for one in self.node_selectors)


@record(kw_only=True)
class EvictionLimits:
    """Evictions that one cycle of the descheduler may make; ``None`` is unlimited, 0 forbids all."""

    per_node: int | None = None
    per_namespace: int | None = None
    total: int | None = None

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        check_least(self, 0, "per_node", "per_namespace", "total")


NO_LIMITS: Final = EvictionLimits()
