"""InterPodAffinity: pods that must, must not, should or should not be near others.

The rule is that of Kubernetes 1.35 (``plugins/interpodaffinity``). Near means the same value of a node label;
all sums are kept per domain and follow the pods that are placed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from immutabledict import immutabledict

from koordcore._arrays import BoolVector, IntVector
from koordcore._record import record
from koordcore.model.affinity import PodAffinity, PodAffinityTerm
from koordcore.model.plugin_args import InterPodArgs
from koordcore.model.pods import Pod
from koordcore.scoring.groups import PodGroup, PodGroups, TopologyTally, Weights, label_keys

REASON_AFFINITY: Final = "node(s) didn't match pod affinity rules"
REASON_ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
REASON_EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_NONE: Final = PodAffinity()


@record(eq=False)
class Namespaces:
    """Labels of the namespaces, for terms that select by them."""

    labels: Mapping[str, Mapping[str, str]] = immutabledict()

    def selected(self, term: PodAffinityTerm, owner: str, namespace: str, *, known_only: bool) -> bool:
        """Tell whether a term of a pod in namespace ``owner`` looks at another namespace.

        Parameters
        ----------
        known_only
            A selector that names anything finds only namespaces that exist as objects. So it is for terms
            of the incoming pod, whose selectors are resolved to names first; a namespace without object
            counts as one without labels for the terms of pods that run.
        """
        selector = term.namespace_selector
        if not term.namespaces and selector is None:
            return namespace == owner
        if namespace in term.namespaces:
            return True
        if selector is None:
            return False
        empty = not selector.match_labels and not selector.requirements
        if known_only and not empty and namespace not in self.labels:
            return False
        return selector.matches(self.labels.get(namespace, {}))

    def matches(
        self,
        term: PodAffinityTerm,
        owner: str,
        namespace: str,
        labels: Mapping[str, str],
        *,
        known_only: bool,
    ) -> bool:
        """Tell whether a term of a pod in namespace ``owner`` means a pod of that namespace and labels.

        Parameters
        ----------
        term
            The term.
        owner
            Namespace of the pod that has it.
        namespace, labels
            Of the pod that it may mean.
        known_only
            Selectors of namespaces match only those that exist as objects.
        """
        if term.selector is None or not term.selector.matches(labels):
            return False
        return self.selected(term, owner, namespace, known_only=known_only)

    def apart_from(self, pod: Pod, other: Pod) -> Iterator[str]:
        """Give the labels of nodes by which a pod has to be apart from another, whichever comes first."""
        far = pod.affinity.anti if pod.affinity else None
        for term in far.required if far else ():
            if self.matches(term, pod.namespace, other.namespace, other.labels, known_only=True):
                yield term.topology_key


@record
class InterPodRequest:
    """What matters about an incoming pod; pods with equal requests are alike.

    Parameters
    ----------
    namespace, labels
        What the terms of others, and its own, may see of it.
    affinity, anti
        Its own terms.
    """

    namespace: str
    labels: immutabledict[str, str]
    affinity: PodAffinity
    anti: PodAffinity


def interpod_request(pod: Pod, looked_at: Collection[str] | None = None) -> InterPodRequest:
    """Read what matters about a pod.

    Parameters
    ----------
    pod
        The incoming pod.
    looked_at
        Labels that the terms of other pods look at; ``None`` keeps all labels. Pods that differ only in
        labels that nobody looks at, such as the index of a job's pod, are then alike.
    """
    affinity = pod.affinity
    near = (affinity.pod if affinity else None) or _NONE
    far = (affinity.anti if affinity else None) or _NONE
    labels = pod.labels
    if looked_at is not None:
        terms = [
            term for part in (near, far) for term in (*part.required, *(one.term for one in part.preferred))
        ]
        own = {key for term in terms for key in label_keys(term.selector)}
        kept = {key: value for key, value in labels.items() if key in looked_at or key in own}
        labels = labels if len(kept) == len(labels) else immutabledict(kept)
    return InterPodRequest(pod.namespace, labels, near, far)


def _required(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return affinity.required if affinity is not None else ()


class InterPodFilter:
    """Required terms of one kind of pods, and those of the pods that run, over all nodes."""

    def __init__(self, groups: PodGroups, namespaces: Namespaces, request: InterPodRequest) -> None:
        self._groups = groups
        self._names = namespaces
        self._request = request
        self._affinity_keys = tuple(dict.fromkeys(term.topology_key for term in request.affinity.required))
        near, far = request.affinity.required, request.anti.required
        self._near = self._tally("near", self._weigh_near, near[:1]) if near else None
        self._far = self._tally("far", self._weigh_far, far) if far else None
        existing = groups.weighed(
            ("existing", request), self._weigh_existing, lambda: groups.concerned(request.labels)
        )
        self._existing = TopologyTally(groups, self._weigh_existing, existing)
        self._itself = all(
            self._means(term, request.namespace, request.labels) for term in request.affinity.required
        )

    def _tally(
        self, who: str, weigh: Callable[[PodGroup], Weights], terms: Sequence[PodAffinityTerm]
    ) -> TopologyTally:
        groups = self._groups
        among = groups.weighed(
            (who, self._request), weigh, lambda: groups.matching(term.selector for term in terms)
        )
        return TopologyTally(groups, weigh, among)

    def _means(self, term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        return self._names.matches(term, self._request.namespace, namespace, labels, known_only=True)

    def _weigh_near(self, group: PodGroup) -> Weights:
        terms = self._request.affinity.required
        if all(self._means(term, group.namespace, group.labels) for term in terms):
            return tuple((key, 1) for key in self._affinity_keys)
        return ()

    def _weigh_far(self, group: PodGroup) -> Weights:
        return tuple(
            (term.topology_key, 1)
            for term in self._request.anti.required
            if self._means(term, group.namespace, group.labels)
        )

    def _weigh_existing(self, group: PodGroup) -> Weights:
        request = self._request
        return tuple(
            (term.topology_key, 1)
            for term in _required(group.anti)
            if self._names.matches(term, group.namespace, request.namespace, request.labels, known_only=False)
        )

    def apart(self) -> BoolVector | None:
        """Tell on which nodes pods of this kind keep each other away; ``None`` for no node."""
        request = self._request
        keys = {
            term.topology_key
            for term in request.anti.required
            if self._means(term, request.namespace, request.labels)
        }
        there = [self._groups.domains(key).present for key in sorted(keys)]
        return np.logical_or.reduce(there) if there else None

    @property
    def active(self) -> bool:
        """There is anything to judge now; where there is not, every node fits."""
        self._existing.update()
        return self._near is not None or self._far is not None or self._existing.entries > 0

    def judge(self) -> tuple[BoolVector, BoolVector, BoolVector]:
        """Judge all nodes: which break the affinity, the anti-affinity, the anti-affinity of others.

        A node may stand in several; the first of the three is what upstream reports.
        """
        number = len(self._groups.layout.names)
        lonely = np.zeros(number, np.bool_)
        crowded = np.zeros(number, np.bool_)
        unwanted = np.zeros(number, np.bool_)
        if self._near is not None:
            self._near.update()
            first = self._itself and self._near.entries == 0
            for key in self._affinity_keys:
                if first:
                    lonely |= ~self._groups.domains(key).present
                else:
                    lonely |= self._near.per_node(key) <= 0
        if self._far is not None:
            self._far.update()
            for key in self._far.keys:
                crowded |= self._far.per_node(key) > 0
        self._existing.update()
        if self._existing.entries:
            for key in self._existing.keys:
                unwanted |= self._existing.per_node(key) > 0
        return lonely, crowded, unwanted

    def fits(self) -> BoolVector:
        """Tell which nodes satisfy every term."""
        lonely, crowded, unwanted = self.judge()
        return ~(lonely | crowded | unwanted)


class InterPodScore:
    """Preferred terms of one kind of pods, and those of the pods that run, over all nodes."""

    def __init__(
        self, groups: PodGroups, namespaces: Namespaces, request: InterPodRequest, args: InterPodArgs
    ) -> None:
        self._names = namespaces
        self._request = request
        self._args = args
        self._own = bool(request.affinity.preferred or request.anti.preferred)
        self._number = len(groups.layout.names)
        own = [one.term.selector for one in (*request.affinity.preferred, *request.anti.preferred)]
        among = groups.weighed(
            (args, request),
            self._weigh,
            lambda: sorted({*groups.matching(own), *groups.concerned(request.labels)}),
        )
        self._tally = TopologyTally(groups, self._weigh, among)

    def _weigh(self, group: PodGroup) -> Weights:
        return (*self._own_terms(group), *self._terms_of(group))

    def _own_terms(self, group: PodGroup) -> Iterable[tuple[str, int]]:
        request = self._request
        for sign, affinity in ((1, request.affinity), (-1, request.anti)):
            for one in affinity.preferred:
                term = one.term
                if self._names.matches(
                    term, request.namespace, group.namespace, group.labels, known_only=True
                ):
                    yield term.topology_key, sign * one.weight

    def _terms_of(self, group: PodGroup) -> Iterable[tuple[str, int]]:
        hard = self._args.hard_pod_affinity_weight
        terms = [(term, hard) for term in _required(group.affinity)] if hard > 0 else []
        for sign, affinity in ((1, group.affinity), (-1, group.anti)):
            if affinity is not None:
                terms += [(one.term, sign * one.weight) for one in affinity.preferred]
        request = self._request
        for term, weight in terms:
            if self._names.matches(
                term, group.namespace, request.namespace, request.labels, known_only=False
            ):
                yield term.topology_key, weight

    def raw(self) -> IntVector | None:
        """Sum up the weights for each node; ``None`` where no term means anybody."""
        if self._args.ignore_preferred_terms_of_existing_pods and not self._own:
            return None
        self._tally.update()
        if not self._tally.entries:
            return None
        total = np.zeros(self._number, np.int64)
        for key in self._tally.keys:
            total += self._tally.per_node(key)
        return total


def normalise_interpod(raw: IntVector, feasible: BoolVector) -> IntVector:
    """Map raw scores to 0..100 between the lowest and the highest feasible one; 0 where all are equal."""
    values = raw[feasible]
    if not values.size:
        return np.zeros_like(raw)
    low, high = int(values.min()), int(values.max())
    if high == low:
        return np.zeros_like(raw)
    # Upstream divides first, in float64, and cuts the fraction off.
    scaled = 100.0 * ((raw - low).astype(np.float64) / float(high - low))
    return np.trunc(scaled).astype(np.int64)
