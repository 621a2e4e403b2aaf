"""Labels that a pod's affinity names by key alone, written into selectors as the API server does.

It does so once, when it makes a pod (``applyMatchLabelKeysAndMismatchLabelKeys`` of its registry), and the
scheduler reads the selectors: a pod that no API server has made has them still to be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.selectors import Requirement, SelectorOperator


def with_label_keys(affinity: Affinity, labels: Mapping[str, str]) -> Affinity:
    """Give affinity whose selectors say the values of the labels that it names by key.

    Parameters
    ----------
    affinity
        As it was written. Terms without a selector find nobody, whatever they name.
    labels
        Of the pod itself; keys that it lacks count for nothing.
    """
    return attrs.evolve(affinity, pod=_written(affinity.pod, labels), anti=_written(affinity.anti, labels))


def _written(side: PodAffinity | None, labels: Mapping[str, str]) -> PodAffinity | None:
    if side is None:
        return None
    return PodAffinity(
        required=tuple(_with_values(term, labels) for term in side.required),
        preferred=tuple(attrs.evolve(one, term=_with_values(one.term, labels)) for one in side.preferred),
    )


def _with_values(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    if term.selector is None:
        return term
    known = term.selector.requirements
    asked = (
        *_of(term.match_label_keys, SelectorOperator.IN, labels),
        *_of(term.mismatch_label_keys, SelectorOperator.NOT_IN, labels),
    )
    # What was written out of a pod says them already.
    more = tuple(one for one in asked if one not in known)
    if not more:
        return term
    return attrs.evolve(term, selector=attrs.evolve(term.selector, requirements=(*known, *more)))


def _of(keys: Iterable[str], operator: SelectorOperator, labels: Mapping[str, str]) -> Iterator[Requirement]:
    for key in keys:
        if key in labels:
            yield Requirement(key, operator, (labels[key],))
