"""What a quota tree must look like: filling in, and the rules for creating, changing and deleting quotas.

After upstream's ``pkg/webhook/elasticquota`` (``quota_topology*.go``), with its messages. A topology is a
value; an accepted change gives a new one, a refused one gives the reason.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.quotas import BUILTIN_QUOTAS, DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, QuotaPod
from koordcore.protocol.exact import (
    parse_exact_list,
    wire_list,
)
from koordcore.protocol.fields import load_json
from koordcore.protocol.quota import (
    IS_PARENT,
    NAMESPACES,
    PARENT,
    SHARED_WEIGHT,
    TREE_ID,
    QuotaObject,
)
from koordcore.protocol.quota_rules import (
    DEFAULT_POLICY,
    QuotaTopology,
    WebhookPolicy,
    children_keys_problem,
    children_min_problem,
    own_problem,
    parent_problem,
    place_problem,
    tree_problem,
)


@record
class Refused:
    """The request is denied.

    Parameters
    ----------
    message
        Upstream's text; empty parser texts apart, to the letter.
    """

    message: str


def open_topology(quotas: Iterable[QuotaObject]) -> QuotaTopology:
    """Take quotas in as they are, without checking them.

    A namespace that several list is bound to the first of them by namespace and name.
    """
    known: dict[str, QuotaObject] = {}
    children: dict[str, set[str]] = {ROOT_QUOTA: set()}
    namespaces: dict[str, str] = {}
    for quota in quotas:
        known[quota.name] = quota
        children.setdefault(quota.parent, set()).add(quota.name)
        children.setdefault(quota.name, set())
    for quota in sorted(known.values(), key=lambda one: (one.namespace, one.name)):
        for namespace in quota.namespaces:
            namespaces.setdefault(namespace, quota.name)
    return QuotaTopology(
        quotas=immutabledict(known),
        children=immutabledict((name, frozenset(its)) for name, its in children.items()),
        namespaces=immutabledict(namespaces),
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
    topology: QuotaTopology, quota: QuotaObject, *, policy: WebhookPolicy = DEFAULT_POLICY
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
    problem = _bound_problem(topology, quota) or own_problem(quota)
    problem = problem or place_problem(topology, quota, None, (), policy)
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


def _bound_problem(topology: QuotaTopology, quota: QuotaObject) -> str:
    """Say which namespace of a quota another one has; empty for none."""
    for namespace in quota.namespaces:
        owner = topology.namespaces.get(namespace, quota.name)
        if owner != quota.name:
            return (
                f"AddQuota quota {quota.name}'s annotation namespace {namespace}"
                f" is already bound to quota {owner}"
            )
    return ""


def update_quota(
    topology: QuotaTopology,
    old: QuotaObject,
    new: QuotaObject,
    *,
    pods: Iterable[QuotaPod] = (),
    policy: WebhookPolicy = DEFAULT_POLICY,
) -> QuotaTopology | Refused:
    """Check a change of a quota.

    Parameters
    ----------
    topology
        The quotas.
    old, new
        The quota before and after.
    policy
        What the webhook is set to.
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
    problem = own_problem(new) or place_problem(topology, new, known, pods, policy)
    if problem:
        return Refused(problem)
    children = dict(topology.children)
    children[known.parent] = children.get(known.parent, frozenset()) - {new.name}
    children[new.parent] = children.get(new.parent, frozenset()) | {new.name}
    kept = _without(topology, new.name, old.namespaces)
    return attrs.evolve(
        topology,
        quotas=immutabledict({**topology.quotas, new.name: new}),
        children=immutabledict(children),
        namespaces=immutabledict({**kept, **dict.fromkeys(new.namespaces, new.name)}),
    )


def _without(topology: QuotaTopology, name: str, namespaces: Collection[str]) -> dict[str, str]:
    """Give the bindings without those of one quota; a namespace that it lists and another one has stays."""
    return {
        key: owner for key, owner in topology.namespaces.items() if owner != name or key not in namespaces
    }


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
    """Check the deletion of a quota; built-in ones stay, and so do those with children or labelled pods.

    Parameters
    ----------
    topology
        The quotas.
    name
        Which one.
    pods
        All pods of the cluster.
    """
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
        namespaces=immutabledict(_without(topology, name, quota.namespaces)),
    )


def check_tree(
    topology: QuotaTopology, *, policy: WebhookPolicy = DEFAULT_POLICY
) -> Iterator[tuple[QuotaObject, str]]:
    """Give what the webhook would have refused of quotas that are there already, each with its quota.

    Every pair of a parent and a child is looked at once, so a dump of any size takes time in proportion.
    """
    for _, quota in sorted(topology.quotas.items()):
        problem = _bound_problem(topology, quota) or own_problem(quota)
        problem = problem or tree_problem(topology, quota, None) or parent_problem(topology, quota)
        if problem:
            yield quota, problem
            continue
        problem = children_keys_problem(topology, quota, policy) or children_min_problem(topology, quota)
        if problem:
            yield quota, problem


# --- pods -------------------------------------------------------------------------------------------------


def resolve_quota(topology: QuotaTopology, pod: QuotaPod, *, policy: WebhookPolicy = DEFAULT_POLICY) -> str:
    """Find the quota of a pod that is being created; it may be unknown."""
    if pod.quota or policy.disable_default_quota:
        return pod.quota
    named = topology.quotas.get(pod.namespace)
    if named is not None and named.namespace == pod.namespace:
        return named.name
    return topology.namespaces.get(pod.namespace, DEFAULT_QUOTA)


def refuse_pod(
    topology: QuotaTopology, pod: QuotaPod, *, policy: WebhookPolicy = DEFAULT_POLICY
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
    policy: WebhookPolicy = DEFAULT_POLICY,
) -> Refused | None:
    """Refuse a change of a pod: of its ``preemptible`` label (old and new text), or into an inner quota.

    Parameters
    ----------
    topology
        The quotas.
    pod
        After the change.
    preemptible_label
        Texts of its label before and after.
    policy
        What the webhook is set to.
    """
    if preemptible_label[0] != preemptible_label[1]:
        return Refused("Preemptible label is forbidden modify now.")
    return refuse_pod(topology, pod, policy=policy)
