"""Spread and inter-pod affinity by walking over nodes and pods, as the rule reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from koordcore.model.affinity import PodAffinityTerm, TopologySpreadConstraint
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.scoring.labels import untolerated_taint

HOSTNAME = "kubernetes.io/hostname"


def selected(one: TopologySpreadConstraint, pod: Pod, other: Pod) -> bool:
    if one.selector is None or not one.selector.matches(other.labels):
        return False
    return all(other.labels.get(key) == pod.labels[key] for key in one.match_label_keys if key in pod.labels)


def countable(one: TopologySpreadConstraint, pod: Pod, state: NodeState) -> bool:
    node = state.node
    if one.node_affinity_policy == "Honor":
        if any(node.labels.get(key) != value for key, value in pod.node_selector.items()):
            return False
        required = pod.affinity.node.required if pod.affinity and pod.affinity.node else None
        if required is not None and not required.matches(node.name, node.labels):
            return False
    return one.node_taints_policy == "Ignore" or untolerated_taint(node.taints, pod.tolerations) is None


def matching(one: TopologySpreadConstraint, pod: Pod, state: NodeState) -> int:
    return sum(
        other.namespace == pod.namespace and other.deleted is None and selected(one, pod, other)
        for other in state.pods
    )


def spread_filter(states: Sequence[NodeState], pod: Pod) -> list[str]:
    """For each node "", "label" or "skew"."""
    rules = [one for one in pod.spread_constraints if one.when_unsatisfiable == "DoNotSchedule"]
    counts: list[dict[str, int]] = []
    for one in rules:
        found: dict[str, int] = {}
        for state in states:
            if all(rule.topology_key in state.node.labels for rule in rules) and countable(one, pod, state):
                value = state.node.labels[one.topology_key]
                found[value] = found.get(value, 0) + matching(one, pod, state)
        counts.append(found)
    answers = []
    for state in states:
        answer = ""
        for one, found in zip(rules, counts, strict=True):
            if answer:
                break
            if one.topology_key not in state.node.labels:
                answer = "label"
            elif found:
                least = min(found.values()) if len(found) >= (one.min_domains or 1) else 0
                here = found.get(state.node.labels[one.topology_key], 0)
                if here + selected(one, pod, pod) - least > one.max_skew:
                    answer = "skew"
        answers.append(answer)
    return answers


def spread_scores(
    states: Sequence[NodeState], pod: Pod, feasible: Sequence[bool], *, require_all: bool = True
) -> list[int]:
    """Normalised scores of the feasible nodes, 0 for the others."""
    rules = [one for one in pod.spread_constraints if one.when_unsatisfiable == "ScheduleAnyway"]
    keys = {one.topology_key for one in rules}
    counted = [not require_all or keys <= set(state.node.labels) for state in states]
    scored = [ok and counts for ok, counts in zip(feasible, counted, strict=True)]
    raw = []
    for state, wanted in zip(states, scored, strict=True):
        total = 0.0
        for one in rules if wanted else ():
            key = one.topology_key
            if key not in state.node.labels:
                continue
            if key == HOSTNAME:
                size, count = sum(scored), matching(one, pod, state)
            else:
                size = len(
                    {other.node.labels.get(key, "") for other, ok in zip(states, scored, strict=True) if ok}
                )
                count = sum(
                    matching(one, pod, other)
                    for other, counts in zip(states, counted, strict=True)
                    if counts
                    and other.node.labels.get(key, "") == state.node.labels[key]
                    and countable(one, pod, other)
                )
            total += count * math.log(size + 2) + (one.max_skew - 1)
        raw.append(math.floor(total) + (total - math.floor(total) >= 0.5))
    kept = [one for one, ok in zip(raw, scored, strict=True) if ok]
    if not kept:
        return [0] * len(raw)
    low, high = min(kept), max(kept)
    final = [100 if high == 0 else 100 * (high + low - one) // high for one in raw]
    return [one if ok else 0 for one, ok in zip(final, scored, strict=True)]


def means(
    term: PodAffinityTerm,
    owner: Pod,
    other: Pod,
    namespaces: Mapping[str, Mapping[str, str]],
    *,
    resolved: bool,
) -> bool:
    if term.selector is None or not term.selector.matches(other.labels):
        return False
    if not term.namespaces and term.namespace_selector is None:
        return other.namespace == owner.namespace
    if other.namespace in term.namespaces:
        return True
    selector = term.namespace_selector
    if selector is None:
        return False
    everything = not selector.match_labels and not selector.requirements
    if resolved and not everything and other.namespace not in namespaces:
        return False
    return selector.matches(namespaces.get(other.namespace, {}))


def interpod_filter(
    states: Sequence[NodeState], pod: Pod, namespaces: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """For each node "", "affinity", "anti" or "existing"."""
    near = pod.affinity.pod.required if pod.affinity and pod.affinity.pod else ()
    far = pod.affinity.anti.required if pod.affinity and pod.affinity.anti else ()
    near_in: set[tuple[str, str]] = set()
    far_in: set[tuple[str, str]] = set()
    existing: set[tuple[str, str]] = set()
    for state in states:
        for other in state.pods:
            if near and all(means(term, pod, other, namespaces, resolved=True) for term in near):
                near_in |= {(t.topology_key, state.node.labels.get(t.topology_key, "-")) for t in near}
            for term in far:
                if means(term, pod, other, namespaces, resolved=True):
                    far_in.add((term.topology_key, state.node.labels.get(term.topology_key, "-")))
            for term in other.affinity.anti.required if other.affinity and other.affinity.anti else ():
                if means(term, other, pod, namespaces, resolved=False):
                    existing.add((term.topology_key, state.node.labels.get(term.topology_key, "-")))
    near_in = {one for one in near_in if one[1] != "-"}
    alone = not near_in and all(means(term, pod, pod, namespaces, resolved=True) for term in near)
    answers = []
    for state in states:
        labels = state.node.labels
        pairs = set(labels.items())
        if any(t.topology_key not in labels for t in near) or not (
            alone or all((t.topology_key, labels[t.topology_key]) in near_in for t in near)
        ):
            answers.append("affinity")
        elif any((t.topology_key, labels.get(t.topology_key)) in far_in & pairs for t in far):
            answers.append("anti")
        elif existing & pairs:
            answers.append("existing")
        else:
            answers.append("")
    return answers


def interpod_scores(
    states: Sequence[NodeState], pod: Pod, namespaces: Mapping[str, Mapping[str, str]], hard: int
) -> list[int]:
    """Raw scores."""
    weights: dict[tuple[str, str], int] = {}

    def add(term: PodAffinityTerm, state: NodeState, weight: int) -> None:
        value = state.node.labels.get(term.topology_key)
        if value is not None:
            weights[term.topology_key, value] = weights.get((term.topology_key, value), 0) + weight

    for state in states:
        for other in state.pods:
            for mine, theirs, resolved in ((pod, other, True), (other, pod, False)):
                for sign, part in ((1, "pod"), (-1, "anti")):
                    affinity = getattr(mine.affinity, part, None) if mine.affinity else None
                    for one in affinity.preferred if affinity else ():
                        if means(one.term, mine, theirs, namespaces, resolved=resolved):
                            add(one.term, state, sign * one.weight)
            required = other.affinity.pod.required if other.affinity and other.affinity.pod else ()
            for term in required if hard else ():
                if means(term, other, pod, namespaces, resolved=False):
                    add(term, state, hard)
    return [
        sum(weight for pair, weight in weights.items() if pair in state.node.labels.items())
        for state in states
    ]
