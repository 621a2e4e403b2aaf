"""What the objects of one dump say about each other, looked at once all of them are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.model.devices import ALL_GPU_RESOURCES
from koordcore.model.feature_gates import WEBHOOK_GATES
from koordcore.model.gangs import GatherStrategy, PodGroup
from koordcore.model.mappings import EMPTY
from koordcore.model.network import ClusterNetworkTopology, KueueTopology, ResourceFlavor
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.quotas import BUILTIN_QUOTAS, ElasticQuota, QuotaProfile
from koordcore.model.records import ClusterRecord
from koordcore.model.reservations import Reservation
from koordcore.model.resources import Resources
from koordcore.protocol.fields import Json, field, load_json, show
from koordcore.protocol.gang import ANNOTATION_TOPOLOGY_SPEC
from koordcore.protocol.gang_names import LABEL_POD_GROUP, gang_name
from koordcore.protocol.networks import network_of
from koordcore.protocol.quota import PARENT, QUOTA_NAME, TREE_ID, QuotaObject, quota_pod_of
from koordcore.protocol.quota_rules import QuotaTopology, WebhookPolicy
from koordcore.protocol.quota_webhook import check_tree, open_topology, refuse_pod, resolve_quota
from koordcore.protocol.sub_groups import ANNOTATION_SUB_GROUPS, parse_sub_groups
from koordcore.topology.network import CLUSTER_LAYER, NODE_LAYER, NetworkTopology

Key: TypeAlias = tuple[str, str, str, str]
"""API group, kind, namespace and name."""
Remark: TypeAlias = tuple[Key, Problem]
"""Something about an object, with its path."""

_SIGS: Final = "scheduling.sigs.k8s.io"
_SPEC_PATH: Final = f"metadata.annotations[{ANNOTATION_TOPOLOGY_SPEC}]"
_CARDS: Final = frozenset(ALL_GPU_RESOURCES)
_RULE_FIELDS: Final = ("layer", "strategy", "podcountmultiple")


def not_together(records: Iterable[ClusterRecord], pods: Iterable[Pod]) -> Iterator[Remark]:
    """Name objects that can be read, but cannot stand beside the others: these are held back."""
    known = list(records)
    yield from _cycle_free([one for one in known if isinstance(one, ElasticQuota)])
    yield from stand_ins(known, pods)


def stand_ins(records: Iterable[ClusterRecord], pods: Iterable[Pod]) -> Iterator[Remark]:
    """While a reservation is scheduled its uid is the name of a pod, so nothing else may be called so."""
    taken = {pod.key: f"is the name of Pod {pod.key}" for pod in pods}
    for one in records:
        if isinstance(one, Reservation) and not one.over:
            own = f"is that of Reservation {one.name} too"
            first = taken.setdefault(one.pod_key, own)
            if first is not own:
                key = ("scheduling.koordinator.sh", "Reservation", "", one.name)
                yield key, Problem("metadata.uid", f"{one.pod_key.name} {first}")


# --- gangs ----------------------------------------------------------------------------------------------


def reservation_remarks(records: Iterable[ClusterRecord], nodes: Iterable[Node]) -> Iterator[Remark]:
    """Find reservations on nodes that are not there: they hold nothing."""
    there = {node.name for node in nodes}
    for one in records:
        if isinstance(one, Reservation) and one.active and one.status.node_name not in there:
            message = f"no node {one.status.node_name} in the dump; the reservation holds nothing"
            key = ("scheduling.koordinator.sh", "Reservation", "", one.name)
            yield key, Problem("status.nodeName", message)


def topology_remarks(
    records: Sequence[ClusterRecord], pods: Iterable[Pod], nodes: Iterable[Node]
) -> Iterator[Remark]:
    """Find layers, strategies and multiples of gangs that are misspelt or bind nothing."""
    layers: _Layers | None = None
    try:
        known = network_of(
            [one for one in records if isinstance(one, ClusterNetworkTopology)],
            [one for one in records if isinstance(one, KueueTopology)],
            [one for one in records if isinstance(one, ResourceFlavor)],
            {node.name: node.labels for node in nodes},
        )
    except ModelError:
        known = None  # said where it was read
    if known is not None:
        layers = _Layers(known.tree)
    pods = tuple(pods)
    seen: dict[str, tuple[Problem, ...]] = {}
    texts: list[tuple[Key, str]] = [
        ((_SIGS, "PodGroup", one.namespace, one.name), one.annotations[ANNOTATION_TOPOLOGY_SPEC])
        for one in records
        if isinstance(one, PodGroup) and ANNOTATION_TOPOLOGY_SPEC in one.annotations
    ]
    texts += [
        (("", "Pod", pod.namespace, pod.name), pod.annotations[ANNOTATION_TOPOLOGY_SPEC])
        for pod in pods
        if ANNOTATION_TOPOLOGY_SPEC in pod.annotations
        and LABEL_POD_GROUP not in pod.labels
        and gang_name(pod.labels, pod.annotations)
    ]
    for key, text in texts:
        if text not in seen:
            seen[text] = tuple(_spec_problems(text, layers))
        for problem in seen[text]:
            yield key, problem.within(_SPEC_PATH)
    yield from _part_remarks(records, pods, layers)


def gang_remarks(records: Iterable[ClusterRecord], pods: Iterable[Pod]) -> Iterator[Remark]:
    """Name the PodGroups that pods wait for and the dump lacks: it may have been written without them."""
    known = {one.id for one in records if isinstance(one, PodGroup)}
    waiting: dict[str, list[Pod]] = {}
    for pod in pods:
        name = pod.labels.get(LABEL_POD_GROUP) if pod.node_name is None else None
        if name and f"{pod.namespace}/{name}" not in known:
            waiting.setdefault(f"{pod.namespace}/{name}", []).append(pod)
    for group, members in waiting.items():
        first = members[0]
        many = f"{len(members)} pods wait" if len(members) > 1 else "the pod waits"
        message = f"the dump has no PodGroup {group}, so {many} for it"
        yield (
            ("", "Pod", first.namespace, first.name),
            Problem(f"metadata.labels[{LABEL_POD_GROUP}]", message),
        )


def _part_remarks(
    records: Sequence[ClusterRecord], pods: Iterable[Pod], layers: _Layers | None
) -> Iterator[Remark]:
    """Find layers that parts of gangs name and nobody declares."""
    written = [
        ((_SIGS, "PodGroup", one.namespace, one.name), one.annotations.get(ANNOTATION_SUB_GROUPS))
        for one in records
        if isinstance(one, PodGroup)
    ]
    written += [
        (("", "Pod", one.namespace, one.name), one.annotations.get(ANNOTATION_SUB_GROUPS)) for one in pods
    ]
    for key, text in written:
        try:
            entries = parse_sub_groups(text).entries if text and layers is not None else ()
        except ManifestError:
            continue  # said by the parser
        for number, entry in enumerate(entries):
            for rule in entry.spec.gather_strategy:
                message = layers.remark(rule.layer) if layers is not None else ""
                if message:
                    path = f"metadata.annotations[{ANNOTATION_SUB_GROUPS}].subGroups[{number}].gatherStrategy"
                    effect = "" if "is read" in message else "; no domain is one of it"
                    yield key, Problem(path, message + effect)


@record
class _Layers:
    """The layers of the network as rules may call them."""

    tree: NetworkTopology

    def remark(self, text: str) -> str:
        """Say what is odd about the name of a layer; empty for nothing."""
        layers = (CLUSTER_LAYER, *(layer for layer in self.tree.layers if layer != NODE_LAYER), NODE_LAYER)
        if text in layers or ("/" in text and text in self.tree.aliases):
            return ""  # a node label with its domain leaves no doubt
        meant = self.tree.layer_named(text)
        if meant in layers:
            return f"{show(text)} is read as {meant}"
        return f"{show(text)} is none of {', '.join(layers)}"


def _spec_problems(text: str, layers: _Layers | None) -> Iterator[Problem]:
    try:
        raw = load_json(text)
    except ManifestError:
        return  # said by the parser
    if not isinstance(raw, Mapping):
        return
    for name in raw:
        if name.casefold() != "gatherstrategy":
            yield Problem(name, "unknown field; it is ignored")
    rules = field(raw, "gatherStrategy", fold_case=True)
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, Mapping):
            for problem in _rule_problems(rule, layers):
                yield problem.within(f"gatherStrategy[{index}]")


def _rule_problems(rule: Mapping[str, Json], layers: _Layers | None) -> Iterator[Problem]:
    for name in rule:
        if name.casefold() not in _RULE_FIELDS:
            yield Problem(name, "unknown field; it is ignored")
    layer = field(rule, "layer", fold_case=True) or ""
    strategy = field(rule, "strategy", fold_case=True) or GatherStrategy.PREFER_GATHER
    multiple = field(rule, "podCountMultiple", fold_case=True) or 0
    if isinstance(strategy, str) and strategy not in list(GatherStrategy):
        words = ", ".join(GatherStrategy)
        yield Problem("strategy", f"{show(strategy)} is none of {words}; it acts as PreferGather")
    message = layers.remark(layer) if layers is not None and isinstance(layer, str) else ""
    if message:
        effect = "no domain is one of it" if strategy == GatherStrategy.MUST_GATHER else "the rule is ignored"
        yield Problem("layer", message if "is read" in message else f"{message}; {effect}")
    if isinstance(multiple, int) and multiple < 0:
        yield Problem("podCountMultiple", f"{multiple} is below zero; it does not bind")


# --- quotas ---------------------------------------------------------------------------------------------


def profile_remarks(records: Sequence[ClusterRecord]) -> Iterator[Remark]:
    """Name the profiles whose quotas are not in the dump: nobody makes them here."""
    quotas = {one.name for one in records if isinstance(one, ElasticQuota)}
    for one in records:
        if isinstance(one, QuotaProfile) and one.quota_name not in {"", *quotas}:
            missing = f"the dump has no ElasticQuota {one.quota_name}"
            message = f"not applied: {missing}, which its controller makes (--admit)"
            yield (
                ("quota.koordinator.sh", "ElasticQuotaProfile", one.namespace, one.name),
                Problem("", message),
            )


def quota_remarks(
    quotas: Sequence[QuotaObject], pods: Iterable[Pod], gates: Mapping[str, bool] = EMPTY
) -> Iterator[Remark]:
    """Say what the webhook would have refused: trees that cannot be, and pods in inner or unknown quotas."""
    policy = WebhookPolicy(**{field: gates[gate] for gate, field in WEBHOOK_GATES.items() if gate in gates})
    if not quotas:
        return
    named: dict[str, QuotaObject] = {}
    for quota in quotas:
        first = named.setdefault(quota.name, quota)
        if first is not quota:
            message = f"a quota of this name is in namespace {first.namespace} too; names tell quotas apart"
            yield _key(quota), Problem("metadata.name", message)
    topology = filled_topology(named)
    asking: dict[str, list[Resources]] = {}
    for quota, message in check_tree(topology, policy=policy):
        yield _key(quota), Problem("", f"the webhook refuses it: {message}")
    for pod in pods:
        asked = quota_pod_of(pod)
        name = resolve_quota(topology, asked, policy=policy)
        key = ("", "Pod", pod.namespace, pod.name)
        if asked.quota and name not in topology.quotas and name not in BUILTIN_QUOTAS:
            message = f"no ElasticQuota {show(name)}; the default quota counts it"
            yield key, Problem(f"metadata.labels[{QUOTA_NAME}]", message)
        if name in topology.quotas and not asked.finished:
            asking.setdefault(name, []).append(asked.request)
        refused = refuse_pod(topology, asked, policy=policy)
        if refused is not None:
            yield key, Problem("", f"the webhook refuses it: {refused.message}")
    for name, requests in asking.items():
        yield from _uncounted_cards(topology.quotas[name], requests)


def _uncounted_cards(quota: QuotaObject, requests: Iterable[Resources]) -> Iterator[Remark]:
    """Say that a quota limits cards by a name under which its pods do not ask for them: it limits nothing."""
    limited = sorted(_CARDS.intersection(quota.max))
    asked = [_CARDS.intersection(name for name, amount in one.items() if amount) for one in requests]
    passing = [names for names in asked if names and names.isdisjoint(limited)]
    if limited and passing:
        names = ", ".join(sorted(frozenset().union(*passing)))
        pods = "1 of its pods asks" if len(passing) == 1 else f"{len(passing)} of its pods ask"
        told = f"counts {', '.join(limited)} alone; {pods} for {names}, which it does not limit"
        yield _key(quota), Problem("spec.max", told)


def filled_topology(named: Mapping[str, QuotaObject]) -> QuotaTopology:
    """Take quotas in by name, each with the tree that the webhook fills in where it names none."""
    trees: dict[str, str] = {}
    return open_topology([attrs.evolve(one, labels=_filled(one, named, trees)) for one in named.values()])


def _key(quota: QuotaObject) -> Key:
    return (_SIGS, "ElasticQuota", quota.namespace, quota.name)


def _filled(
    quota: QuotaObject, named: Mapping[str, QuotaObject], trees: dict[str, str]
) -> immutabledict[str, str]:
    """Give the labels with the tree of the nearest quota above that names one, as the webhook fills it in.

    ``trees`` keeps what was found for the quotas on the way, so that a long line of them is walked once.
    """
    seen: list[str] = []
    above: QuotaObject | None = quota
    while above is not None and not above.tree and above.name not in trees:
        seen.append(above.name)
        trees[above.name] = ""
        above = named.get(above.parent)
    tree = "" if above is None else above.tree or trees[above.name]
    trees.update(dict.fromkeys(seen, tree))
    return (
        immutabledict({**quota.labels, TREE_ID: trees[quota.name]}) if trees.get(quota.name) else quota.labels
    )


# --- cycles ---------------------------------------------------------------------------------------------


def shown(key: Key) -> str:
    """Write kind, namespace and name of an object."""
    _, kind, namespace, name = key
    return " ".join(part for part in (kind, "/".join(part for part in (namespace, name) if part)) if part)


def owner_cycles(owners: Mapping[Key, tuple[Key, ...]]) -> Iterator[Remark]:
    """Find objects that own each other in a circle."""
    for cycle in _cycles(owners):
        names = " -> ".join(shown(key) for key in (*cycle, cycle[0]))
        yield cycle[0], Problem("metadata.ownerReferences", f"owners form a cycle: {names}")


def quota_cycles(records: Iterable[ClusterRecord]) -> Iterator[Remark]:
    """Find quotas that are each other's parents in a circle."""
    quotas = {one.name: one for one in records if isinstance(one, ElasticQuota)}
    keys = {name: (_SIGS, "ElasticQuota", one.namespace, name) for name, one in quotas.items()}
    parents = {keys[name]: (keys[one.parent],) for name, one in quotas.items() if one.parent in keys}
    for cycle in _cycles(parents):
        names = " -> ".join(key[3] for key in (*cycle, cycle[0]))
        yield cycle[0], Problem(f"metadata.labels[{PARENT}]", f"parents form a cycle: {names}")


def _cycle_free(quotas: list[ElasticQuota]) -> Iterator[Remark]:
    """Name quotas until those that are left have no parents in a circle."""
    while found := list(quota_cycles(quotas)):
        yield from found
        named = {key[2:] for key, _ in found}
        quotas = [one for one in quotas if (one.namespace, one.name) not in named]


def _cycles(edges: Mapping[Key, tuple[Key, ...]]) -> Iterator[tuple[Key, ...]]:
    """Find cycles, each from its first name on; without recursion, because chains may be long."""
    done: set[Key] = set()
    for start in sorted(edges):
        path: dict[Key, Iterator[Key]] = {}
        at: Key | None = start
        while at is not None:
            if at in path:
                cycle = list(path)[list(path).index(at) :]
                first = cycle.index(min(cycle))
                yield (*cycle[first:], *cycle[:first])
            elif at not in done:
                path[at] = iter(edges.get(at, ()))
            at = _advance(path, done)


def _advance(path: dict[Key, Iterator[Key]], done: set[Key]) -> Key | None:
    while path:
        last = next(reversed(path))
        following = next(path[last], None)
        if following is not None:
            return following
        done.add(last)
        del path[last]
    return None
