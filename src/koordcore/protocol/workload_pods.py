"""The pods of a Kueue Workload as its admission makes them: a gang, on the nodes of its flavors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from koordcore.model.affinity import Affinity, NodeAffinity
from koordcore.model.gangs import GatherRule, GatherStrategy, NetworkTopologySpec, PodGroup
from koordcore.model.kueue import GATES, POD_SET_LABEL, WORKLOAD_ANNOTATION, KueueWorkload, PodSet
from koordcore.model.network import KueueTopology, ResourceFlavor
from koordcore.model.pods import Pod
from koordcore.model.selectors import NodeSelector, NodeSelectorTerm, Requirement, SelectorOperator
from koordcore.protocol.gang_names import LABEL_POD_GROUP
from koordcore.protocol.sub_groups import ANNOTATION_SUB_GROUPS, LABEL_SUB_GROUP
from koordcore.topology.network import NODE_LAYER

HOSTNAME: Final = "kubernetes.io/hostname"
FlavorsOf: TypeAlias = Mapping[str, Sequence[ResourceFlavor]]
"""By pod set the flavors that it is given."""


def pod_set_of(pod: Pod, workload: KueueWorkload) -> str:
    """Give the pod set that a pod of a Workload belongs to: as its label says, else the first."""
    named = pod.labels.get(POD_SET_LABEL, "")
    known = [one.name for one in workload.pod_sets]
    return named if named in known else known[0]


def workload_of(pod: Pod) -> str:
    """Give the Workload that a pod names, as ``namespace/name``; empty for none."""
    named = pod.annotations.get(WORKLOAD_ANNOTATION, "")
    return f"{pod.namespace}/{named}" if named else ""


def admitted_pods(
    pods: Sequence[Pod],
    workload: KueueWorkload,
    flavors: FlavorsOf,
    topologies: Mapping[str, KueueTopology],
) -> tuple[PodGroup, list[Pod]]:
    """Make the gang of an admitted Workload.

    Parameters
    ----------
    pods
        Those of its pods that take part.
    flavors
        Those that each pod set is given, by its name.
    topologies
        By name.
    """
    parts = {one.name: _part_name(one) for one in workload.pod_sets}
    made = []
    for pod in pods:
        name = pod_set_of(pod, workload)
        made.append(_admitted(pod, workload, flavors[name], _levels(flavors[name], topologies), parts[name]))
    return _gang(workload, flavors, topologies), made


def without_gang(pod: Pod) -> Pod:
    """Take a pod out of its gang."""
    gone = (LABEL_POD_GROUP, LABEL_SUB_GROUP)
    return attrs.evolve(pod, labels={key: text for key, text in pod.labels.items() if key not in gone})


def _part_name(one: PodSet) -> str:
    return f"group-{one.topology.group}" if one.topology.group else one.name


def _levels(given: Sequence[ResourceFlavor], topologies: Mapping[str, KueueTopology]) -> tuple[str, ...]:
    """Give the levels of the topology of a pod set's flavors, from the top down."""
    found = (topologies[one.topology].levels for one in given if one.topology in topologies)
    return next(found, ())


def _admitted(
    pod: Pod,
    workload: KueueWorkload,
    given: Sequence[ResourceFlavor],
    levels: Sequence[str],
    part: str,
) -> Pod:
    extra = [one for flavor in given for one in flavor.tolerations if one not in pod.tolerations]
    labels = {key: value for flavor in given for key, value in flavor.node_labels.items()}
    # A node without a level's label is in no domain of the topology.
    known = [level for level in levels if level != HOSTNAME]
    return attrs.evolve(
        pod,
        labels={**pod.labels, LABEL_POD_GROUP: workload.name, LABEL_SUB_GROUP: part},
        gates=tuple(one for one in pod.gates if one not in GATES),
        node_selector={**labels, **pod.node_selector},
        tolerations=(*pod.tolerations, *dict.fromkeys(extra)),
        affinity=_with_labels(pod.affinity, known) if known else pod.affinity,
    )


def _with_labels(affinity: Affinity | None, keys: Sequence[str]) -> Affinity:
    affinity = affinity or Affinity()
    node = affinity.node or NodeAffinity()
    there = tuple(Requirement(key, SelectorOperator.EXISTS) for key in keys)
    before = (NodeSelectorTerm(),) if node.required is None else node.required.terms
    terms = tuple(
        attrs.evolve(
            term,
            expressions=(*term.expressions, *(one for one in there if one not in term.expressions)),
        )
        for term in before
        if node.required is None or term.expressions or term.fields
    )
    return attrs.evolve(affinity, node=attrs.evolve(node, required=NodeSelector(terms)))


def _gang(workload: KueueWorkload, flavors: FlavorsOf, topologies: Mapping[str, KueueTopology]) -> PodGroup:
    """Write the pod sets' requests as a gang has them: wishes for all of it, demands for its parts."""
    sets = [one for one in workload.pod_sets if one.name in flavors]
    least: dict[str, int] = {}
    demands: dict[str, dict[GatherRule, None]] = {}
    wishes: dict[GatherRule, None] = {}
    for one in sets:
        part, levels = _part_name(one), _levels(flavors[one.name], topologies)
        least[part] = least.get(part, 0) + one.least
        demands.setdefault(part, {}).update(dict.fromkeys(_demands(one)))
        if one.topology.preferred in levels:
            above = levels[: levels.index(one.topology.preferred) + 1]
            wishes |= {GatherRule(_layer(level), GatherStrategy.PREFER_GATHER): None for level in above}
    elastic = any(one.least < one.count for one in sets)
    parted = len(least) > 1 and (elastic or any(demands.values()))
    rules = [] if parted else [rule for part in demands.values() for rule in part]
    demanded = {rule.layer for rule in rules}
    rules += [rule for rule in wishes if rule.layer not in demanded]
    parts = [_entry(part, least[part], demands[part]) for part in least]
    return PodGroup(
        namespace=workload.namespace,
        name=workload.name,
        min_member=sum(least.values()),
        annotations={ANNOTATION_SUB_GROUPS: json.dumps({"subGroups": parts})} if parted else {},
        topology_spec=NetworkTopologySpec(tuple(rules)) if rules else None,
    )


def _entry(name: str, least: int, rules: Iterable[GatherRule]) -> dict[str, object]:
    written = [
        {"layer": rule.layer, "strategy": str(rule.strategy)}
        | ({"podCountMultiple": rule.pod_count_multiple} if rule.pod_count_multiple else {})
        for rule in rules
    ]
    return {"name": name, "minMember": least} | ({"gatherStrategy": written} if written else {})


def _demands(one: PodSet) -> tuple[GatherRule, ...]:
    wish, found = one.topology, list[GatherRule]()
    if wish.required:
        found.append(GatherRule(_layer(wish.required), GatherStrategy.MUST_GATHER))
    if wish.slice_level and wish.slice_size > 1:
        layer = _layer(wish.slice_level)
        strict = wish.slice_level == wish.required
        strategy = GatherStrategy.MUST_GATHER if strict else GatherStrategy.PREFER_GATHER
        found = [rule for rule in found if rule.layer != layer]
        found.append(GatherRule(layer, strategy, wish.slice_size))
    return tuple(found)


def _layer(level: str) -> str:
    return NODE_LAYER if level == HOSTNAME else level
