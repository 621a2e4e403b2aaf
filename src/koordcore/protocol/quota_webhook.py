"""What a quota tree must look like: filling in, and the rules for creating, changing and deleting quotas.

After upstream's ``pkg/webhook/elasticquota`` (``quota_topology*.go``), with its messages. A topology is a
value; an accepted change gives a new one, a refused one gives the reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.quotas import BUILTIN_QUOTAS, DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, QuotaPod
from koordcore.protocol.exact import (
    ExactList,
    add_lists,
    maximum_list,
    negative_names,
    parse_exact_list,
    subtract_lists,
    wire_list,
)
from koordcore.protocol.fields import as_list, as_str, load_json
from koordcore.protocol.quota import (
    ALLOW_FORCE_UPDATE,
    GUARANTEED,
    IS_PARENT,
    IS_ROOT,
    MAX_STRICT_CHECK,
    NAMESPACES,
    PARENT,
    SHARED_WEIGHT,
    TREE_ID,
    QuotaObject,
)

_NOTHING: Final[ExactList] = immutabledict()


@attrs.frozen
class Refused:
    """The request is denied.

    Parameters
    ----------
    message
        Upstream's text; empty parser texts apart, to the letter.
    """

    message: str


@attrs.frozen(kw_only=True)
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


_DEFAULT_POLICY: Final = WebhookPolicy()


@attrs.frozen(kw_only=True)
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


def open_topology(quotas: Iterable[QuotaObject]) -> QuotaTopology:
    """Take quotas in as they are, without checking them."""
    known: dict[str, QuotaObject] = {}
    children: dict[str, frozenset[str]] = {ROOT_QUOTA: frozenset()}
    namespaces: dict[str, str] = {}
    for quota in quotas:
        known[quota.name] = quota
        children[quota.parent] = children.get(quota.parent, frozenset()) | {quota.name}
        children.setdefault(quota.name, frozenset())
        namespaces.update(dict.fromkeys(quota.namespaces, quota.name))
    return QuotaTopology(
        quotas=immutabledict(known), children=immutabledict(children), namespaces=immutabledict(namespaces)
    )


# --- filling in -------------------------------------------------------------------------------------------


def fill_quota(topology: QuotaTopology, quota: QuotaObject) -> QuotaObject | Refused:
    """Complete a quota that is being created: parent, tree id, shared weight. The root stays as it is."""
    if quota.name == ROOT_QUOTA:
        return quota
    labels, annotations = dict(quota.labels), dict(quota.annotations)
    parent = labels.get(PARENT) or ROOT_QUOTA
    labels[PARENT] = parent
    if not labels.get(TREE_ID) and parent != ROOT_QUOTA:
        if parent not in topology.quotas:
            return Refused(f"fill quota {quota.name} failed, parent not exist")
        if topology.quotas[parent].tree:
            labels[TREE_ID] = topology.quotas[parent].tree
    text = annotations.get(SHARED_WEIGHT, "")
    weight = quota.max
    if text:
        try:
            given = parse_exact_list(load_json(text))
        except ManifestError as error:
            return Refused(f"fillDefaultQuotaInfo unmarshal sharedWeight failed:{error}")
        weight = immutabledict({name: given.get(name, amount) for name, amount in quota.max.items()})
    written = wire_list(weight) if weight or text or quota.has_max else None
    annotations[SHARED_WEIGHT] = json.dumps(written, separators=(",", ":"))
    return attrs.evolve(quota, labels=immutabledict(labels), annotations=immutabledict(annotations))


# --- creating, changing, deleting -------------------------------------------------------------------------


def create_quota(
    topology: QuotaTopology, quota: QuotaObject, *, policy: WebhookPolicy = _DEFAULT_POLICY
) -> QuotaTopology | Refused:
    """Check a quota that is being created (after :func:`fill_quota`).

    Parameters
    ----------
    topology
        The quotas that are there.
    quota
        The new one, filled in.
    policy
        What the webhook is set to check.
    """
    if quota.name in topology.quotas:
        return Refused(f"AddQuota quota already exist:{quota.name}")
    for namespace in quota.namespaces:
        owner = topology.namespaces.get(namespace)
        if owner is not None:
            return Refused(
                f"AddQuota quota {quota.name}'s annotation namespace {namespace}"
                f" is already bound to quota {owner}"
            )
    problem = _own_items(quota) or _topology_items(topology, quota, None, (), policy)
    if problem:
        return Refused(problem)
    children = dict(topology.children)
    children[quota.parent] = children.get(quota.parent, frozenset()) | {quota.name}
    # Upstream starts a new quota without children, even if some were waiting for it.
    children[quota.name] = frozenset()
    return attrs.evolve(
        topology,
        quotas=immutabledict({**topology.quotas, quota.name: quota}),
        children=immutabledict(children),
        namespaces=immutabledict({**topology.namespaces, **dict.fromkeys(quota.namespaces, quota.name)}),
    )


def update_quota(
    topology: QuotaTopology,
    old: QuotaObject,
    new: QuotaObject,
    *,
    pods: Iterable[QuotaPod] = (),
    policy: WebhookPolicy = _DEFAULT_POLICY,
) -> QuotaTopology | Refused:
    """Check a change of a quota.

    Parameters
    ----------
    pods
        All pods of the cluster; a leaf that has pods cannot become a parent.
    """
    if _same_shape(old, new):
        return topology
    if new.name in (ROOT_QUOTA, SYSTEM_QUOTA):
        return Refused(f"invalid quota {new.name}")
    for namespace in new.namespaces:
        owner = topology.namespaces.get(namespace)
        if owner is not None and owner != new.name:
            return Refused(
                f"UpdadteQuota, quota {new.name} update namespaces, but namespace {namespace}"
                f" is already bound to quota {owner}"
            )
    known = topology.quotas.get(new.name)
    if known is None:
        return Refused(f"UpdateQuota quota not exist in quotaInfoMap:{new.name}")
    problem = _own_items(new) or _topology_items(topology, new, known, pods, policy)
    if problem:
        return Refused(problem)
    children = dict(topology.children)
    children[known.parent] = children.get(known.parent, frozenset()) - {new.name}
    children[new.parent] = children.get(new.parent, frozenset()) | {new.name}
    kept = {name: owner for name, owner in topology.namespaces.items() if name not in old.namespaces}
    return attrs.evolve(
        topology,
        quotas=immutabledict({**topology.quotas, new.name: new}),
        children=immutabledict(children),
        namespaces=immutabledict({**kept, **dict.fromkeys(new.namespaces, new.name)}),
    )


def _same_shape(old: QuotaObject, new: QuotaObject) -> bool:
    """Tell whether nothing changed that upstream looks at; weights and lending are not."""
    return (
        old.max == new.max
        and old.min == new.min
        and all(
            old.labels.get(label, "") == new.labels.get(label, "") for label in (PARENT, IS_PARENT, TREE_ID)
        )
        and old.annotations.get(NAMESPACES, "") == new.annotations.get(NAMESPACES, "")
    )


def delete_quota(
    topology: QuotaTopology, name: str, *, pods: Iterable[QuotaPod] = ()
) -> QuotaTopology | Refused:
    """Check the deletion of a quota; built-in ones stay, and so do those with children or labelled pods."""
    if name in BUILTIN_QUOTAS:
        return Refused(f"can not delete quotaGroup :{name}")
    quota = topology.quotas.get(name)
    if quota is None:
        return Refused(f"not found quota:{name}")
    if name not in topology.children:
        return Refused(f"BUG quotaMap and quotaTree information out of sync, losed :{name}")
    below = topology.children_of(name)
    if below:
        return Refused(f"delete quota failed, quota {name} has {len(below)} child quotas")
    bound = sorted(pod.key for pod in pods if pod.quota == name)
    if bound:
        shown = [key.name for key in bound[:2]] + ["..."] * (len(bound) > 2)
        return Refused(f"delete quota failed, quota {name} has {len(bound)} child pods: {', '.join(shown)}")
    children = {parent: names for parent, names in topology.children.items() if parent != name}
    children[quota.parent] = children.get(quota.parent, frozenset()) - {name}
    return attrs.evolve(
        topology,
        quotas=immutabledict({key: other for key, other in topology.quotas.items() if key != name}),
        children=immutabledict(children),
        namespaces=immutabledict(
            {key: owner for key, owner in topology.namespaces.items() if key not in quota.namespaces}
        ),
    )


def check_tree(
    topology: QuotaTopology, *, policy: WebhookPolicy = _DEFAULT_POLICY
) -> Iterator[tuple[QuotaObject, str]]:
    """Give what the webhook would have refused of quotas that are there already, each with its quota.

    Every pair of a parent and a child is looked at once, so a dump of any size takes time in proportion.
    """
    for _, quota in sorted(topology.quotas.items()):
        problem = _own_items(quota) or _tree_ids(topology, quota, None) or _parent(topology, quota)
        if problem:
            yield quota, problem
            continue
        problem = _children_keys(topology, quota, policy) or _children_min(topology, quota)
        if problem:
            yield quota, problem


# --- rules of the quota itself ----------------------------------------------------------------------------


def _own_items(quota: QuotaObject) -> str:
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


# --- rules of its place in the tree -----------------------------------------------------------------------


def _topology_items(
    topology: QuotaTopology,
    quota: QuotaObject,
    known: QuotaObject | None,
    pods: Iterable[QuotaPod],
    policy: WebhookPolicy,
) -> str:
    if quota.name == ROOT_QUOTA:
        return ""
    problem = _parenthood(topology, quota, known, pods) if known is not None else ""
    problem = problem or _tree_ids(topology, quota, known)
    if problem or (quota.parent == ROOT_QUOTA and not quota.flag(IS_PARENT)):
        return problem
    return (
        _parent(topology, quota)
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


def _tree_ids(topology: QuotaTopology, quota: QuotaObject, known: QuotaObject | None) -> str:
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


def _parent(topology: QuotaTopology, quota: QuotaObject) -> str:
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
    return _children_keys(topology, quota, policy)


def _children_keys(topology: QuotaTopology, quota: QuotaObject, policy: WebhookPolicy) -> str:
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
    return _brothers_min(topology, quota) or _children_min(topology, quota)


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


def _children_min(topology: QuotaTopology, quota: QuotaObject) -> str:
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


# --- pods -------------------------------------------------------------------------------------------------


def resolve_quota(topology: QuotaTopology, pod: QuotaPod, *, policy: WebhookPolicy = _DEFAULT_POLICY) -> str:
    """Find the quota of a pod that is being created; it may be unknown."""
    if pod.quota or policy.disable_default_quota:
        return pod.quota
    named = topology.quotas.get(pod.namespace)
    if named is not None and named.namespace == pod.namespace:
        return named.name
    return topology.namespaces.get(pod.namespace, DEFAULT_QUOTA)


def refuse_pod(
    topology: QuotaTopology, pod: QuotaPod, *, policy: WebhookPolicy = _DEFAULT_POLICY
) -> Refused | None:
    """Refuse a pod that belongs to an inner quota."""
    name = resolve_quota(topology, pod, policy=policy)
    quota = topology.quotas.get(name)
    if quota is None or policy.support_parent_quota_submit_pod or not quota.flag(IS_PARENT):
        return None
    return Refused(f"pod can not be linked to a parentQuotaGroup,quota:{name}, pod:{pod.key.name}")


def refuse_pod_update(
    topology: QuotaTopology,
    pod: QuotaPod,
    *,
    preemptible_label: tuple[str, str],
    policy: WebhookPolicy = _DEFAULT_POLICY,
) -> Refused | None:
    """Refuse a change of a pod: of its ``preemptible`` label (old and new text), or into an inner quota."""
    if preemptible_label[0] != preemptible_label[1]:
        return Refused("Preemptible label is forbidden modify now.")
    return refuse_pod(topology, pod, policy=policy)
