"""Gangs: pods that start together or not at all, and how they want to be gathered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields
from koordcore.model.durations import SECOND
from koordcore.model.mappings import frozen_texts

if TYPE_CHECKING:
    from koordcore.model.sub_groups import SubGroups


DEFAULT_TIMEOUT: Final = 600 * SECOND
"""Permit wait of a gang that gives none, in nanoseconds."""


_NODE_LAYER: Final = "NodeTopologyLayer"
"""The layer below all others, whose domains are nodes."""
_NO_TEXTS: Final[immutabledict[str, str]] = immutabledict()


class GangMode(StrEnum):
    """What the failure of one member means for those that wait already."""

    STRICT = "Strict"
    NON_STRICT = "NonStrict"


class MatchPolicy(StrEnum):
    """Which members count towards the minimum."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"


class GangSource(StrEnum):
    """What configured a gang."""

    POD_ANNOTATION = "GangFromPodAnnotation"
    POD_GROUP = "GangFromPodGroupCrd"
    SCHEDULING_GROUP = "SchedulingGroup"
    """One of Kubernetes' own groups."""


class GatherStrategy(StrEnum):
    """How binding the wish for one domain of a layer is."""

    MUST_GATHER = "MustGather"
    PREFER_GATHER = "PreferGather"
    BALANCED_GATHER = "BalancedGather"
    """Ours: as few domains as can be, and the members evenly over them."""


@record
class GatherRule:
    """One entry of ``gatherStrategy``.

    Parameters
    ----------
    layer
        Name of a topology layer.
    strategy
        ``MustGather``, or ``BalancedGather``; anything else acts as ``PreferGather``.
    pod_count_multiple
        Pods per domain of that layer come in multiples of it; 0 and 1 do not bind.
    """

    layer: str
    strategy: str = GatherStrategy.PREFER_GATHER
    pod_count_multiple: int = 0

    __attrs_post_init__ = check_fields

    @property
    def must(self) -> bool:
        """The rule is a constraint."""
        return self.strategy == GatherStrategy.MUST_GATHER


@record
class NetworkTopologySpec:
    """How a gang wants to lie in the network; without rules it is gathered as well as possible."""

    gather_strategy: tuple[GatherRule, ...] = ()

    __attrs_post_init__ = check_fields

    @property
    def multiples(self) -> immutabledict[str, int]:
        """Binding pod-count multiple per layer; of several rules for a layer the last binding one counts."""
        return immutabledict(
            (rule.layer, rule.pod_count_multiple)
            for rule in self.gather_strategy
            if rule.pod_count_multiple > 1
        )

    @property
    def needs_network(self) -> bool:
        """The rules speak of more than nodes, or there are none and any network counts."""
        return any(rule.layer != _NODE_LAYER for rule in self.gather_strategy) or not self.gather_strategy

    @property
    def binds(self) -> bool:
        """Some rule is a constraint, so that no member may be placed where the network is not known."""
        return any(rule.must or rule.pod_count_multiple > 1 for rule in self.gather_strategy)

    def rule(self, layer: str) -> GatherRule | None:
        """Give the rule for a layer: of several a strict one, else the first."""
        found = [rule for rule in self.gather_strategy if rule.layer == layer]
        return next((rule for rule in found if rule.must), found[0] if found else None)

    def must_layer(self, layers: Sequence[str]) -> str:
        """Deepest layer that has a MustGather rule, empty when there is none.

        ``layers`` runs from the top to the nodes; a layer that is not declared counts as topmost, so that a
        declared one wins over it, and of several such the first given is taken.
        """
        index = {layer: position for position, layer in enumerate(layers)}
        musts = [rule.layer for rule in self.gather_strategy if rule.must]
        return max(musts, key=lambda layer: index.get(layer, 0)) if musts else ""

    def balanced_layers(self, layers: Sequence[str]) -> tuple[str, ...]:
        """Declared layers over whose domains the members are to be spread evenly, in the order given."""
        wanted = (rule for rule in self.gather_strategy if rule.strategy == GatherStrategy.BALANCED_GATHER)
        return tuple(dict.fromkeys(rule.layer for rule in wanted if rule.layer in layers))

    def prefer_layers(self, layers: Sequence[str]) -> tuple[str, ...]:
        """Declared layers with a PreferGather or BalancedGather rule, in the order given, each once."""
        wanted = (rule.layer for rule in self.gather_strategy if not rule.must and rule.layer in layers)
        return tuple(dict.fromkeys(wanted))


def split_specs(
    specs: Mapping[str, NetworkTopologySpec | None],
) -> tuple[NetworkTopologySpec | None, immutabledict[str, NetworkTopologySpec]]:
    """Tell what binds a gang group as a whole from what binds single gangs of it (ruling 30).

    A layer that stands in every spec binds all members together, as strictly as the mildest of the specs has
    it; any other layer binds the members of the gangs that name it. A wish of a single gang comes after those
    that all have.

    Parameters
    ----------
    specs
        The wish of every gang by id; ``None`` for one without any.

    Returns
    -------
    spec
        Of the group; ``None`` where no gang has one.
    own
        What binds single gangs beside it, by id.
    """
    known = {name: spec for name, spec in sorted(specs.items()) if spec is not None}
    if not known:
        return None, immutabledict()
    if len(known) == len(specs) == 1:
        return next(iter(known.values())), immutabledict()
    layers = list(dict.fromkeys(rule.layer for spec in known.values() for rule in spec.gather_strategy))
    everywhere = [
        layer for layer in layers if all(spec is not None and spec.rule(layer) for spec in specs.values())
    ]
    common: list[GatherRule] = []
    for layer in everywhere:
        rules = [rule for spec in known.values() if (rule := spec.rule(layer)) is not None]
        strategy = GatherStrategy.MUST_GATHER if all(rule.must for rule in rules) else _mild(rules)
        multiples = {spec.multiples.get(layer, 1) for spec in known.values()}
        common.append(GatherRule(layer, strategy, multiples.pop() if len(multiples) == 1 else 0))
    wished = [layer for layer in layers if layer not in everywhere]
    whole = NetworkTopologySpec(
        (
            *common,
            *(
                GatherRule(layer, _mild([rule for spec in known.values() if (rule := spec.rule(layer))]))
                for layer in wished
                if not any((rule := spec.rule(layer)) is not None and rule.must for spec in known.values())
            ),
        )
    )
    own = {}
    for name, spec in known.items():
        left = []
        for rule in spec.gather_strategy:
            shared = whole.rule(rule.layer)
            must = rule.must and not (shared is not None and shared.must)
            multiple = 0 if rule.layer in whole.multiples else spec.multiples.get(rule.layer, 0)
            if must or multiple > 1:
                kind = GatherStrategy.MUST_GATHER if must else GatherStrategy.PREFER_GATHER
                left.append(GatherRule(rule.layer, kind, multiple))
        if left:
            own[name] = NetworkTopologySpec(tuple(left))
    return whole, immutabledict(own)


def _mild(rules: Sequence[GatherRule]) -> GatherStrategy:
    """Join rules that are no constraint: evenly where one of them says so."""
    even = any(rule.strategy == GatherStrategy.BALANCED_GATHER for rule in rules)
    return GatherStrategy.BALANCED_GATHER if even else GatherStrategy.PREFER_GATHER


def gang_group_id(group: Sequence[str]) -> str:
    """Join the sorted ids of a gang group with commas."""
    return ",".join(sorted(group))


class GangFit(StrEnum):
    """What comes first where the nodes that a gathered gang may take are of unequal size."""

    FEWEST_NODES = "FewestNodes"
    """As few nodes as can be, of these the tightest."""
    TIGHTEST_FIT = "TightestFit"
    """Nodes of which the least is left over, of these as few as can be: larger blocks stay whole."""


@record(kw_only=True)
class CoschedulingArgs:
    """Arguments of the gang room.

    Parameters
    ----------
    default_timeout
        Permit wait when the gang gives none, in nanoseconds.
    default_match_policy
        Used when the gang gives none or an illegal one; not validated itself, as upstream.
    controller_workers
        Kept for configuration files; a library has no workers.
    enable_preemption, aware_network_topology
        Job preemption; planning of gangs with a topology spec as a whole.
    gang_fit
        Which nodes gathered gangs take where these are of unequal size (ours: ``gangFit`` in a file).

    Raises
    ------
    ModelError
        With upstream's text for a negative timeout or less than one worker.
    """

    default_timeout: int = DEFAULT_TIMEOUT
    default_match_policy: str = MatchPolicy.ONCE_SATISFIED
    controller_workers: int = 1
    enable_preemption: bool = False
    aware_network_topology: bool = False
    gang_fit: GangFit = attrs.field(default=GangFit.FEWEST_NODES, converter=GangFit)

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if self.default_timeout < 0:
            raise ModelError("coeSchedulingArgs DefaultTimeoutSeconds invalid")
        if self.controller_workers < 1:
            raise ModelError("coeSchedulingArgs ControllerWorkers invalid")


DEFAULT_ARGS: Final = CoschedulingArgs()


@record(kw_only=True)
class Gang:
    """The configuration of one gang.

    Parameters
    ----------
    id
        ``namespace/name``.
    source
        What configured it.
    initialised
        False for a placeholder: a pod named the gang before anything configured it.
    min_available, total
        Members that must be placed together; members expected (informative).
    mode, match_policy
        See :class:`GangMode` and :class:`MatchPolicy`; a default policy that is none of them is kept.
    wait_time
        How long a member waits at Permit, in nanoseconds.
    group
        Sorted ids of the gangs that start together; usually this one alone.
    topology_spec
        The wish for gathering; None for a plain gang.
    created
        Creation time as the object gives it (RFC 3339); None where it gives none.
    sub_groups
        Parts with a minimum and a place of their own; None for none.
    min_groups
        How many gangs of the group have to start; 0 for all.
    malformed
        Why it cannot start at all, such as parts that cannot be read; empty for nothing.
    """

    id: str
    source: GangSource = GangSource.POD_ANNOTATION
    initialised: bool = False
    min_available: int = 0
    total: int = 0
    mode: GangMode = GangMode.STRICT
    match_policy: str = MatchPolicy.ONCE_SATISFIED
    wait_time: int = 0
    group: tuple[str, ...] = attrs.field()
    topology_spec: NetworkTopologySpec | None = None
    created: str | None = None
    sub_groups: SubGroups | None = None
    min_groups: int = 0
    malformed: str = ""

    __attrs_post_init__ = check_fields

    @group.default
    def _own_group(self) -> tuple[str, ...]:
        return (self.id,)

    @property
    def group_id(self) -> str:
        """Identity of the gang group."""
        return ",".join(self.group)


@record(kw_only=True)
class GangPod:
    """What the gang room needs to know of a pod.

    Parameters
    ----------
    key, uid
        ``namespace/name`` and the unique id.
    gang_id
        ``namespace/gangName``; empty for a pod without a gang.
    by_crd
        The pod names its gang by the label that leaves all configuration to the PodGroup.
    node_name
        Where it is bound; empty while it is pending.
    terminated
        Succeeded or failed.
    config
        What the pod's own annotations say about its gang; None when they say nothing usable.
    """

    key: str
    uid: str = ""
    gang_id: str = ""
    by_crd: bool = False
    node_name: str = ""
    terminated: bool = False
    config: Gang | None = None

    __attrs_post_init__ = check_fields


class PodGroupPhase(StrEnum):
    """Phases of a PodGroup; a new one has none."""

    NONE = ""
    PENDING = "Pending"
    PRE_SCHEDULING = "PreScheduling"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    UNKNOWN = "Unknown"
    FINISHED = "Finished"
    FAILED = "Failed"


@record(kw_only=True)
class PodGroupStatus:
    """``status`` of a PodGroup; times are RFC 3339 texts, None where unset."""

    phase: str = ""
    occupied_by: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    schedule_start_time: str | None = None

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PodGroup:
    """A PodGroup object (``scheduling.sigs.k8s.io/v1alpha1``).

    Parameters
    ----------
    min_member
        How many members have to start together.
    schedule_timeout_seconds
        How long members that have a node wait for the rest; the scheduler's default where it is left out.
    annotations
        Mode, group, topology spec and the like, as the control plane writes them.
    topology_spec
        How the gang wants to lie in the network; before the annotation that says the same as JSON.
    created
        RFC 3339.
    """

    namespace: str = "default"
    name: str
    min_member: int = 0
    schedule_timeout_seconds: int | None = None
    annotations: immutabledict[str, str] = attrs.field(default=_NO_TEXTS, converter=frozen_texts)
    topology_spec: NetworkTopologySpec | None = None
    created: str | None = None
    status: PodGroupStatus = PodGroupStatus()

    __attrs_post_init__ = check_fields

    @property
    def id(self) -> str:
        """Id of the gang that the object configures."""
        return f"{self.namespace}/{self.name}"
