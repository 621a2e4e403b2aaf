"""What the webhook demands of a quota itself and of its place in the tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.quotas import ROOT_QUOTA, QuotaPod
from koordcore.protocol.exact import (
    ExactList,
    add_lists,
    maximum_list,
    negative_names,
    parse_exact_list,
    subtract_lists,
)
from koordcore.protocol.fields import as_list, as_str, load_json
from koordcore.protocol.quota import (
    ALLOW_FORCE_UPDATE,
    GUARANTEED,
    IS_PARENT,
    IS_ROOT,
    MAX_STRICT_CHECK,
    SHARED_WEIGHT,
    QuotaObject,
)


@record(kw_only=True)
class WebhookPolicy:
    """Plugin gates of the webhook, under upstream's names.

    Parameters
    ----------
    guarantee_usage
        ``ElasticQuotaGuaranteeUsage``: a raised min must be covered by guarantees up the tree.
    update_resource_key
        ``ElasticQuotaEnableUpdateResourceKey``: a child's resources may be some of its parent's.
    support_parent_quota_submit_pod
        ``SupportParentQuotaSubmitPod``: pods may belong to inner quotas.
    disable_default_quota
        ``DisableDefaultQuota``: a pod's quota is what its label says, and nothing else.
    """

    guarantee_usage: bool = False
    update_resource_key: bool = False
    support_parent_quota_submit_pod: bool = False
    disable_default_quota: bool = False


_NOTHING: Final[ExactList] = immutabledict()

DEFAULT_POLICY: Final = WebhookPolicy()


@record(kw_only=True)
class QuotaTopology:
    """The quotas of a cluster as the webhook knows them.

    Parameters
    ----------
    quotas
        By name.
    children
        Names of the children of each quota, also of one that does not exist (yet).
    namespaces
        Namespace to the quota that it is bound to.
    """

    quotas: immutabledict[str, QuotaObject]
    children: immutabledict[str, frozenset[str]]
    namespaces: immutabledict[str, str]

    def children_of(self, name: str) -> tuple[str, ...]:
        """Names of the children, sorted."""
        return tuple(sorted(self.children.get(name, ())))


def own_problem(quota: QuotaObject) -> str:
    """Say what of its own fields the webhook refuses; empty for nothing."""
    name = quota.name
    for title, amounts in (("Max", quota.max), ("Min", quota.min)):
        below = negative_names(amounts)
        if below:
            return f"{name} quota.Spec.{title}'s value < 0, in dimensions :[{' '.join(below)}]"
    text = quota.annotations.get(SHARED_WEIGHT, "")
    try:
        below = negative_names(parse_exact_list(load_json(text))) if text else ()
    except ManifestError as error:
        return str(error)
    if below:
        return f"{name} quota.Annotation[{SHARED_WEIGHT}]'s value < 0, in dimension :[{' '.join(below)}]"
    for key, amount in quota.min.items():
        if key not in quota.max:
            return f"resourceKey {key} of quota {name} is included in min, which is not included in max"
        if amount.nano > quota.max[key].nano:
            return f"resourceKey {key} of quota {name} min {amount} > max {quota.max[key]}"
    return _strict_items(quota)


def _strict_items(quota: QuotaObject) -> str:
    text = quota.annotations.get(MAX_STRICT_CHECK, "")
    try:
        keys = [as_str(key) for key in as_list(load_json(text) or [])] if text else []
    except ManifestError as error:
        return f"{quota.name} quota.Annotation[{MAX_STRICT_CHECK}]'s value is invalid: {error}"
    for key in keys:
        if key not in quota.used:
            continue
        if key not in quota.max:
            return (
                f"resourceKey {key} of quota {quota.name} is included in used, which is not included in max"
                " but should check max >= used"
            )
        if quota.max[key].nano < quota.used[key].nano:
            return f"resourceKey {key} of quota {quota.name} max {quota.max[key]} < used {quota.used[key]}"
    return ""


def place_problem(
    topology: QuotaTopology,
    quota: QuotaObject,
    known: QuotaObject | None,
    pods: Iterable[QuotaPod],
    policy: WebhookPolicy,
) -> str:
    """Say what of its place in the tree the webhook refuses; empty for nothing."""
    if quota.name == ROOT_QUOTA:
        return ""
    problem = _parenthood(topology, quota, known, pods) if known is not None else ""
    problem = problem or tree_problem(topology, quota, known)
    if problem or (quota.parent == ROOT_QUOTA and not quota.flag(IS_PARENT)):
        return problem
    return (
        parent_problem(topology, quota)
        or _keys(topology, quota, policy)
        or _min_sums(topology, quota)
        or _cycle(topology, quota)
        or (_guarantee(topology, quota) if policy.guarantee_usage else "")
    )


def _parenthood(
    topology: QuotaTopology, quota: QuotaObject, known: QuotaObject, pods: Iterable[QuotaPod]
) -> str:
    before, after = known.flag(IS_PARENT), quota.flag(IS_PARENT)
    if before and not after and topology.children_of(quota.name):
        return f"quota has children, isParent is forbidden to modify as false, quotaName:{quota.name}"
    if after and not before:
        homes = {quota.name, *known.namespaces}
        if any(pod.quota == quota.name or pod.namespace in homes for pod in pods):
            return f"quota has bound pods, isParent is forbidden to modify as true, quotaName: {quota.name}"
    return ""


def tree_problem(topology: QuotaTopology, quota: QuotaObject, known: QuotaObject | None) -> str:
    """Say what is wrong with the tree that it belongs to; empty for nothing."""
    tree = quota.tree
    if known is not None and known.tree != tree:
        return f"{quota.name} tree id changed [{known.tree}] vs [{tree}]"
    parent = topology.quotas.get(quota.parent)
    if quota.parent != ROOT_QUOTA and parent is not None and parent.tree != tree:
        return f"{quota.name} tree id is different from parent {parent.name}, [{tree}] vs [{parent.tree}]"
    for child in _children(topology, quota.name):
        if child.tree != tree:
            return f"{quota.name} tree id is different from child {child.name}, [{tree}] vs [{child.tree}]"
    return ""


def _children(topology: QuotaTopology, name: str) -> list[QuotaObject]:
    return [topology.quotas[child] for child in topology.children_of(name) if child in topology.quotas]


def parent_problem(topology: QuotaTopology, quota: QuotaObject) -> str:
    """Say what is wrong with its parent; empty for nothing."""
    if quota.parent == ROOT_QUOTA:
        return ""
    parent = topology.quotas.get(quota.parent)
    head = f"{quota.name} has parentName {quota.parent} but"
    if parent is None:
        return f"{head} not find parentInfo in quotaInfoMap"
    if quota.parent not in topology.children:
        return f"{head} not find parentInfo in quotaHierarchyInfo"
    if not parent.flag(IS_PARENT):
        return f"{head} the parentQuotaInfo's IsParent is false"
    return ""


_KEYS: Final = "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: "


def _keys(topology: QuotaTopology, quota: QuotaObject, policy: WebhookPolicy) -> str:
    if quota.parent != ROOT_QUOTA:
        problem = _pair_keys(quota, [(quota, topology.quotas[quota.parent])], policy)
        if problem:
            return problem
    return children_keys_problem(topology, quota, policy)


def children_keys_problem(topology: QuotaTopology, quota: QuotaObject, policy: WebhookPolicy) -> str:
    """Say which child's resources are not its own; empty for none."""
    return _pair_keys(quota, [(child, quota) for child in _children(topology, quota.name)], policy)


def _pair_keys(
    quota: QuotaObject, pairs: Iterable[tuple[QuotaObject, QuotaObject]], policy: WebhookPolicy
) -> str:
    for lower, upper in pairs:
        other = upper if lower is quota else lower
        if policy.update_resource_key:
            if not lower.max.keys() <= upper.max.keys():
                return f"{_KEYS}{lower.name}'s max keys are not all included in {upper.name}'s"
        elif lower.max.keys() != upper.max.keys():
            return f"{_KEYS}{other.name}'s max keys are not the same with {quota.name}'s"
        if not lower.min.keys() <= upper.min.keys():
            return f"{_KEYS}{lower.name}'s min keys are not all included in {upper.name}'s"
    return ""


def _exceeds(amounts: ExactList, limit: ExactList) -> bool:
    """Compare with every missing amount taken as zero."""
    return any(rest.nano > 0 for rest in subtract_lists(amounts, limit).values())


def _min_sums(topology: QuotaTopology, quota: QuotaObject) -> str:
    return _brothers_min(topology, quota) or children_min_problem(topology, quota)


def _brothers_min(topology: QuotaTopology, quota: QuotaObject) -> str:
    if quota.flag(ALLOW_FORCE_UPDATE) or quota.flag(IS_ROOT):
        return ""
    if quota.parent != ROOT_QUOTA:
        promised = quota.min
        for brother in _children(topology, quota.parent):
            if brother.name != quota.name:
                promised = add_lists(promised, brother.min)
        if _exceeds(promised, topology.quotas[quota.parent].min):
            return f"checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {quota.parent}"
    return ""


def children_min_problem(topology: QuotaTopology, quota: QuotaObject) -> str:
    """Say that its children are promised more than it is itself; empty where not."""
    if quota.flag(ALLOW_FORCE_UPDATE) or quota.flag(IS_ROOT):
        return ""
    promised = _NOTHING
    for child in _children(topology, quota.name):
        promised = add_lists(promised, child.min)
    if _exceeds(promised, quota.min):
        return f"checkMinQuotaSum all children's MinQuota > current MinQuota, current: {quota.name}"
    return ""


def _cycle(topology: QuotaTopology, quota: QuotaObject) -> str:
    """Refuse a parent that hangs below the quota itself (ruling 19); upstream accepts it and never ends."""
    trail = [quota.name]
    above = quota.parent
    while above and above != ROOT_QUOTA and above in topology.quotas:
        trail.append(above)
        if above == quota.name:
            return f"the parents of elastic quotas form a cycle: {' -> '.join(trail)}"
        if trail.count(above) > 1:
            return ""
        above = topology.quotas[above].parent
    return ""


def _guarantee(topology: QuotaTopology, quota: QuotaObject) -> str:
    """Climb until somebody's guarantee covers the raised min together with all brothers' guarantees."""
    own = quota.annotated_list(GUARANTEED)
    skipped = quota.flag(ALLOW_FORCE_UPDATE) or quota.flag(IS_ROOT) or not quota.tree
    if skipped or not _exceeds(quota.min, own):
        return ""
    wanted, at, above = maximum_list(quota.min, own), quota.name, quota.parent
    for _ in range(len(topology.quotas) + 1):
        parent = topology.quotas.get(above)
        if above == ROOT_QUOTA or parent is None:
            break
        for brother in _children(topology, above):
            if brother.name != at:
                wanted = add_lists(wanted, brother.annotated_list(GUARANTEED))
        wanted = maximum_list(parent.min, wanted)
        if not _exceeds(wanted, parent.annotated_list(GUARANTEED)):
            return ""
        at, above = above, parent.parent
    return f"tree root quota {at} can't guarantee for min {quota.name}"
