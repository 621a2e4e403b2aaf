"""Pods against each other: required affinity and anti-affinity, and hard spread constraints.

Only what can be told from the end state is checked, so that a legal result is never blamed: the order in
which pods were placed is not known here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypeAlias

from koordcore._record import record
from koordcore.checking.domains import (
    Domains,
    SpreadRule,
    counts_pod,
    domain_of,
    selected,
    spread_rules,
)
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.affinity import PodAffinityTerm
from koordcore.model.cluster import Namespace
from koordcore.model.decisions import Bound
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

Spaces: TypeAlias = Mapping[str, Mapping[str, str]]
Placed: TypeAlias = tuple[Pod, Node]


def check_neighbours(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, domains: Domains
) -> Iterator[Violation]:
    """Every pod that was bound is near whom it needs, far from whom it shuns or who shuns it, and spread.

    Parameters
    ----------
    domains
        Those of every node of the cluster: also one without pods is in a domain.
    """
    bound = {one.pod for one in result.decisions if isinstance(one, Bound)}
    placed = [(pod, state.node) for state in result.snapshot.nodes for pod in state.pods]
    new = [one for one in placed if one[0].key in bound]
    unseen: frozenset[PodKey] = frozenset()
    if result.policy.plugin("Reservation") is not None:
        from koordcore.checking.holders import owned_holders

        unseen = owned_holders(result.snapshot, [pod for pod, _ in new])
    if result.policy.filters("InterPodAffinity"):
        spaces = {one.name: one.labels for one in snapshot.of(Namespace)}
        yield from _check_affinity(placed, new, spaces, unseen)
    if result.policy.filters("PodTopologySpread"):
        yield from _check_spread(placed, new, domains, bound, unseen)


# -- affinity ---------------------------------------------------------------------------------------------


@record(eq=False)
class _Index:
    """Pods by one label pair each, so that a selector need not be held against all of them."""

    everyone: Sequence[Placed]
    by_label: Mapping[tuple[str, str], Sequence[Placed]]

    @classmethod
    def of(cls, placed: Sequence[Placed]) -> _Index:
        by_label: dict[tuple[str, str], list[Placed]] = {}
        for one in placed:
            for pair in one[0].labels.items():
                by_label.setdefault(pair, []).append(one)
        return cls(placed, by_label)

    def candidates(self, term: PodAffinityTerm) -> Sequence[Placed]:
        if term.selector is None:
            return ()
        for pair in term.selector.match_labels.items():
            return self.by_label.get(pair, ())
        return self.everyone


def means(term: PodAffinityTerm, owner: str, other: Pod, spaces: Spaces, *, resolved: bool) -> bool:
    """Tell whether a term of a pod in namespace ``owner`` means another pod."""
    if term.selector is None or not term.selector.matches(other.labels):
        return False
    selector = term.namespace_selector
    if not term.namespaces and selector is None:
        return other.namespace == owner
    if other.namespace in term.namespaces:
        return True
    if selector is None:
        return False
    if resolved and other.namespace not in spaces and (selector.match_labels or selector.requirements):
        return False
    return selector.matches(spaces.get(other.namespace, {}))


def terms_of(pod: Pod, part: str) -> tuple[PodAffinityTerm, ...]:
    """Give the required terms of a pod, of ``pod`` affinity or ``anti``-affinity."""
    affinity = getattr(pod.affinity, part) if pod.affinity is not None else None
    return () if affinity is None else tuple(affinity.required)


def _check_affinity(
    placed: Sequence[Placed], new: Sequence[Placed], spaces: Spaces, unseen: frozenset[PodKey]
) -> Iterator[Violation]:
    index = _Index.of(placed)
    came = {pod.key for pod, _ in new}
    seen = [one for one in placed if one[0].key not in unseen] if unseen else placed
    apart = _Index.of(seen) if unseen else index
    shunned: dict[tuple[PodAffinityTerm, str], Counter[str]] = {}
    needed: dict[tuple[tuple[PodAffinityTerm, ...], str], set[tuple[str, str]]] = {}
    for pod, node in new:
        owner = pod.namespace
        for term in terms_of(pod, "anti") if pod.key not in unseen else ():
            if (term, owner) not in shunned:
                shunned[term, owner] = _meant(term, owner, apart, spaces)
            yield from _check_far(pod, node, term, shunned[term, owner], spaces)
        terms = terms_of(pod, "pod")
        if terms and (terms, owner) not in needed:
            needed[terms, owner] = _near(terms, owner, index, spaces, came, unseen)
        for term in terms:
            yield from _check_near(pod, node, term, needed[terms, owner])
    fresh = [one for one in new if one[0].key not in unseen]
    yield from _check_others(seen, _Index.of(fresh), spaces)


def _meant(term: PodAffinityTerm, owner: str, index: _Index, spaces: Spaces) -> Counter[str]:
    """Count the pods that a term means, by the value of its key."""
    return Counter(
        node.labels[term.topology_key]
        for other, node in index.candidates(term)
        if term.topology_key in node.labels and means(term, owner, other, spaces, resolved=True)
    )


def counted(pod: Pod) -> bool:
    """Tell whether everybody who came saw a running pod: it does not leave, nor hold room for others."""
    return not (pod.leaving or pod.finished or is_reserve_pod(pod))


def _near(
    terms: tuple[PodAffinityTerm, ...],
    owner: str,
    index: _Index,
    spaces: Spaces,
    came: Collection[PodKey],
    unseen: Collection[PodKey],
) -> set[tuple[str, str]]:
    """Give the domains that hold a pod which all the terms mean.

    Where such pods were there before, those of a series (of the same terms) that ``came`` are no company by
    themselves: each had to come to somebody.
    """
    meant = [
        (
            other,
            {
                (one.topology_key, node.labels[one.topology_key])
                for one in terms
                if one.topology_key in node.labels
            },
        )
        for other, node in index.candidates(terms[0])
        if all(means(each, owner, other, spaces, resolved=True) for each in terms)
    ]
    there = any(
        pairs and counted(other) and other.key not in came and other.key not in unseen
        for other, pairs in meant
    )
    doubtful = {
        other.key: pairs
        for other, pairs in meant
        if there and other.key in came and other.namespace == owner and terms_of(other, "pod") == terms
    }
    near = {pair for other, pairs in meant if other.key not in doubtful for pair in pairs}
    while reached := [key for key, pairs in doubtful.items() if pairs <= near]:
        for key in reached:
            near |= doubtful.pop(key)
    return near


def _check_far(
    pod: Pod, node: Node, term: PodAffinityTerm, meant: Counter[str], spaces: Spaces
) -> Iterator[Violation]:
    """Nobody whom the pod shuns is in its domain."""
    value = node.labels.get(term.topology_key)
    if value is None:
        return
    others = meant[value] - means(term, pod.namespace, pod, spaces, resolved=True)
    if others:
        message = f"shuns {others} pods in {term.topology_key}={value}"
        yield Violation(ViolationKind.POD_AFFINITY, str(pod.key), message)


def _check_near(
    pod: Pod, node: Node, term: PodAffinityTerm, near: set[tuple[str, str]]
) -> Iterator[Violation]:
    """Somebody whom the pod needs is in its domain; the first of a series is near itself."""
    value = node.labels.get(term.topology_key)
    if value is None:
        message = f"{node.name} has no {term.topology_key}, which its affinity needs"
        yield Violation(ViolationKind.POD_AFFINITY, str(pod.key), message)
    elif (term.topology_key, value) not in near:
        message = f"nobody whom it needs is in {term.topology_key}={value}"
        yield Violation(ViolationKind.POD_AFFINITY, str(pod.key), message)


def _check_others(placed: Sequence[Placed], fresh: _Index, spaces: Spaces) -> Iterator[Violation]:
    """No new pod is in the domain of another pod that shuns it."""
    homes: dict[tuple[PodAffinityTerm, str], dict[str, list[PodKey]]] = {}
    for owner, home in placed:
        for term in terms_of(owner, "anti"):
            value = home.labels.get(term.topology_key)
            if value is not None:
                homes.setdefault((term, owner.namespace), {}).setdefault(value, []).append(owner.key)
    for (term, space), owners in homes.items():
        for pod, node in fresh.candidates(term):
            value = node.labels.get(term.topology_key, "")
            others = [key for key in owners.get(value, ())[:2] if key != pod.key]
            if others and means(term, space, pod, spaces, resolved=False):
                message = f"{others[0]} shuns it in {term.topology_key}={value}"
                yield Violation(ViolationKind.POD_AFFINITY, str(pod.key), message)


# -- spread -----------------------------------------------------------------------------------------------


def _check_spread(
    placed: Sequence[Placed],
    new: Sequence[Placed],
    domains: Domains,
    came: set[PodKey],
    unseen: frozenset[PodKey],
) -> Iterator[Violation]:
    rules: dict[SpreadRule, list[Placed]] = {}
    for pod, node in new:
        for rule in spread_rules(pod):
            key = rule.constraint.topology_key
            if key not in node.labels:
                message = f"{node.name} has no {key}, over which it is to be spread"
                yield Violation(ViolationKind.SPREAD, str(pod.key), message)
            else:
                rules.setdefault(rule, []).append((pod, node))
    for rule, owners in rules.items():
        doubtful = (came - {pod.key for pod, _ in owners}) | unseen
        yield from _check_rule(rule, owners, placed, domains, doubtful)


def _check_rule(
    rule: SpreadRule,
    owners: Sequence[Placed],
    placed: Sequence[Placed],
    domains: Domains,
    doubtful: set[PodKey],
) -> Iterator[Violation]:
    constraint, key = rule.constraint, rule.constraint.topology_key
    like = owners[0][0]
    counts = domains(rule, like)
    for pod, node in placed:
        if counts_pod(rule, like, pod):
            if pod.key in doubtful:
                return  # it may have come after the others or was looked through: no constraint held it back
            value = domain_of(rule, like, node)
            if value is not None and value in counts:
                counts[value] += 1
    if not counts:
        return
    least = min(counts.values()) if len(counts) >= (constraint.min_domains or 1) else 0
    for pod, node in owners:
        skew = counts.get(node.labels[key], 0) - least
        if selected(constraint, like, pod) and skew > constraint.max_skew:
            message = f"skew {skew} over {key}, at most {constraint.max_skew} allowed"
            yield Violation(ViolationKind.SPREAD, str(pod.key), message)
