"""Elastic quotas: what a team is promised, what it may reach, and how it competes for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs
from attrs.converters import optional
from immutabledict import immutabledict

from koordcore._blame import shown
from koordcore._record import record
from koordcore.errors import ModelError
from koordcore.model.checks import check_fields, check_least
from koordcore.model.pods import PodKey
from koordcore.model.resources import CPU, MEMORY, NO_RESOURCES, Resources, frozen_amounts, make_resources
from koordcore.model.selectors import NOTHING, LabelSelector

ROOT_QUOTA: Final = "koordinator-root-quota"
SYSTEM_QUOTA: Final = "koordinator-system-quota"
DEFAULT_QUOTA: Final = "koordinator-default-quota"
BUILTIN_QUOTAS: Final = frozenset({ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA})

Spelling = immutabledict[str, str]
"""Resource name to the text that an object gave for it; used in messages only, never in a decision."""

NO_SPELLING: Final[Spelling] = immutabledict()
NO_LABELS: Final[immutabledict[str, str]] = immutabledict()
NO_NOTATION: Final[immutabledict[str, bool]] = immutabledict()

# Upstream's default for the system and default quotas: a fifth of the largest int64, in cores and in bytes.
_GROUP_MAX: Final = (2**63 - 1) // 5
_UNLIMITED_GROUP: Final = make_resources({CPU: _GROUP_MAX * 1000, MEMORY: _GROUP_MAX})


@record(kw_only=True)
class ElasticQuota:
    """One quota of a tree.

    Parameters
    ----------
    name
        Its identity; namespaces do not tell quotas apart.
    namespace
        Where the object lives.
    parent
        Name of the parent; :data:`ROOT_QUOTA` for the first level.
    tree
        Id of the tree; empty for the default tree.
    max
        What it may reach. Resources outside it are neither counted nor limited.
    min
        What it is promised. A resource that is absent has no promise, and does not bound non-preemptible
        pods.
    shared_weight
        Its weight in the competition for what others leave; ``None`` means as ``max``.
    allow_lent
        Whether others may use what it is promised and does not ask for.
    is_parent
        Whether it is an inner node; pods belong into leaves.
    is_root
        Whether it is the root of a tree of its own, made for a profile.
    ignore_default_tree
        On a tree root: its total is not taken out of the default tree.
    allow_force_update
        The webhook skips the checks of sums and guarantees.
    profile
        Profile that owns it; empty for none.
    namespaces
        Namespaces whose pods belong to it unless they say otherwise.
    total
        On a tree root: capacity of the tree. ``None`` where it is not given.
    unschedulable
        On a tree root: the part of ``total`` on cordoned or unready nodes.
    deleting
        Whether it is on its way out; such a quota is not taken in.
    written_max, written_min
        How the object spelled ``max`` and ``min``.
    """

    name: str
    namespace: str = ""
    parent: str = ROOT_QUOTA
    tree: str = ""
    max: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    min: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    shared_weight: Resources | None = attrs.field(default=None, converter=optional(frozen_amounts))
    allow_lent: bool = True
    is_parent: bool = False
    is_root: bool = False
    ignore_default_tree: bool = False
    allow_force_update: bool = False
    profile: str = ""
    namespaces: tuple[str, ...] = ()
    total: Resources | None = attrs.field(default=None, converter=optional(frozen_amounts))
    unschedulable: Resources | None = attrs.field(default=None, converter=optional(frozen_amounts))
    deleting: bool = False
    written_max: Spelling = attrs.field(default=NO_SPELLING, eq=False, repr=False)
    written_min: Spelling = attrs.field(default=NO_SPELLING, eq=False, repr=False)

    __attrs_post_init__ = check_fields

    @property
    def weight(self) -> Resources:
        """The weight that counts: ``max`` where none is given or every given one is zero."""
        if self.shared_weight is None or not any(self.shared_weight.values()):
            return self.max
        return self.shared_weight


@record(kw_only=True)
class QuotaPod:
    """What quotas need to know about a pod, or about a pending Reservation that names a quota (ruling 23).

    Parameters
    ----------
    key
        Namespace and name.
    quota
        Quota that its label names; empty for none.
    request
        Effective request.
    preemptible
        ``False`` bounds it by ``min`` and protects it from quota preemption and revoke.
    priority
        Larger is more important.
    start
        Nanoseconds since 1970 at which it started; ``None`` counts as latest.
    node
        Node that it is bound to; empty for a pending pod.
    labels
        Its labels, for disruption budgets.
    terminating
        Whether it is being deleted, or was told to leave.
    finished
        Whether it has succeeded or failed; it then uses nothing.
    written
        How the object spelled the request.
    """

    key: PodKey
    quota: str = ""
    request: Resources = NO_RESOURCES
    preemptible: bool = True
    priority: int = 0
    start: int | None = None
    node: str = ""
    labels: immutabledict[str, str] = NO_LABELS
    terminating: bool = False
    finished: bool = False
    written: Spelling = attrs.field(default=NO_SPELLING, eq=False, repr=False)

    __attrs_post_init__ = check_fields

    @property
    def assigned(self) -> bool:
        """Whether it counts as using its request."""
        return bool(self.node) and not self.finished

    @property
    def namespace(self) -> str:
        """Namespace of the pod."""
        return self.key.namespace


@record
class NamedCheck:
    """A rule of the embedder's own for admission to a quota (upstream's hook plugins).

    Parameters
    ----------
    key
        Its name, in messages and wherever answers are kept: two rules of one name are taken for the same.
    check
        A pure function of the ledger, the name of the quota and the :class:`QuotaPod`; it says why the pod
        may not be admitted, empty where it may.
    """

    key: str
    check: Callable[[Any, str, QuotaPod], str] = attrs.field(eq=False, repr=False)

    def check_pod(self, ledger: Any, quota: str, pod: QuotaPod) -> str:
        """Ask the rule."""
        return self.check(ledger, quota, pod)


def _named_checks(checks: Any) -> tuple[NamedCheck, ...]:
    """Take rules as a mapping of names to functions, as functions, or as objects with key and check_pod."""
    if isinstance(checks, Mapping):
        listed = [NamedCheck(str(key), check) for key, check in checks.items()]
    elif isinstance(checks, Iterable):
        listed = [_named(one) for one in checks]
    else:
        raise ModelError(f"checks: expected several rules, got {shown(checks)}")
    if len({one.key for one in listed}) < len(listed):
        raise ModelError("checks: two rules have the same name")
    return tuple(listed)


def _named(one: Any) -> NamedCheck:
    if isinstance(one, NamedCheck):
        return one
    key = getattr(one, "key", None)
    if isinstance(key, str) and callable(getattr(one, "check_pod", None)):
        return NamedCheck(key, one.check_pod)
    name = getattr(one, "__name__", "<lambda>")
    if not callable(one) or name == "<lambda>":
        raise ModelError("checks: expected functions with a name, or objects with key and check_pod")
    return NamedCheck(name, one)


@record(kw_only=True)
class QuotaPolicy:
    """How quotas are enforced: upstream's plugin arguments and feature gates, under their names.

    Parameters
    ----------
    enable_runtime_quota
        Admit against the runtime quota; otherwise against ``max``.
    enable_min_quota_scale
        Shrink promises in proportion when they exceed what there is to share.
    enable_check_parent_quota
        Admit against every ancestor as well.
    disable_default_quota_preemption
        Pods of the default quota are never victims.
    monitor_all_quotas
        Evict pods of quotas that use more than their runtime for too long.
    delay_evict
        How long is too long, in nanoseconds.
    default_quota_group_max, system_quota_group_max
        Limits of the two built-in quotas.
    multi_quota_tree
        Trees by tree id; otherwise all quotas form one tree.
    guarantee_usage
        What a quota uses is never taken back; nothing is lent.
    disable_default_quota
        Pods without a known quota in their label are not governed.
    checks
        Rules of the embedder's own, asked after the limits of the quota: functions by name, functions that
        have one, or objects with ``key`` and ``check_pod``. See :class:`NamedCheck`.
    """

    enable_runtime_quota: bool = True
    enable_min_quota_scale: bool = True
    enable_check_parent_quota: bool = False
    disable_default_quota_preemption: bool = True
    monitor_all_quotas: bool = False
    delay_evict: int = 120 * 10**9
    default_quota_group_max: Resources = attrs.field(default=_UNLIMITED_GROUP, converter=frozen_amounts)
    system_quota_group_max: Resources = attrs.field(default=_UNLIMITED_GROUP, converter=frozen_amounts)
    multi_quota_tree: bool = False
    guarantee_usage: bool = False
    disable_default_quota: bool = False
    checks: tuple[NamedCheck, ...] = attrs.field(default=(), converter=_named_checks)

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        check_least(self, 0, "delay_evict")


@record(kw_only=True)
class QuotaUsage:
    """Sums over the pods of one quota itself, its children's left out.

    Parameters
    ----------
    request, used
        Of all its pods; of those that are placed.
    non_preemptible_request, non_preemptible_used
        The part of either that belongs to non-preemptible pods.
    binary, non_preemptible_binary
        For messages: resources that the used amounts name, and whether they are printed in powers of two.
        What is not named here is printed as the resource's name suggests.
    """

    request: Resources = NO_RESOURCES
    used: Resources = NO_RESOURCES
    non_preemptible_request: Resources = NO_RESOURCES
    non_preemptible_used: Resources = NO_RESOURCES
    binary: immutabledict[str, bool] = attrs.field(default=NO_NOTATION, eq=False, repr=False)
    non_preemptible_binary: immutabledict[str, bool] = attrs.field(default=NO_NOTATION, eq=False, repr=False)

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class QuotaProfile:
    """A part of the cluster, chosen by node labels, that gets a quota tree of its own.

    Parameters
    ----------
    name, namespace
        Identity of the profile.
    quota_name
        Name of the root quota made for it, in the same namespace.
    node_selector
        Which nodes; an empty selector selects all of them, an absent one none.
    quota_labels
        Labels that the root quota gets.
    labels
        Labels of the profile itself; the tree id is kept there.
    resource_ratio
        Share of the nodes' resources that the tree may use, as text; ``None`` for all.
    resource_keys
        Resources that the root quota's ``min`` and ``max`` name.
    """

    name: str
    namespace: str = ""
    quota_name: str = ""
    node_selector: LabelSelector = NOTHING
    quota_labels: immutabledict[str, str] = NO_LABELS
    labels: immutabledict[str, str] = NO_LABELS
    resource_ratio: str | None = None
    resource_keys: tuple[str, ...] = (CPU, MEMORY)

    __attrs_post_init__ = check_fields


def by_name(quotas: Iterable[ElasticQuota] | Mapping[str, ElasticQuota]) -> immutabledict[str, ElasticQuota]:
    """Key quotas by name; of two with one name the first one counts, as upstream's intake has it."""
    listed = quotas.values() if isinstance(quotas, Mapping) else quotas
    result: dict[str, ElasticQuota] = {}
    for quota in listed:
        result.setdefault(quota.name, quota)
    return immutabledict(result)
