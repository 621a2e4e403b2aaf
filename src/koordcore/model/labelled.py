"""Pods by namespace and label, so that a selector need not be held against each of them."""

from __future__ import annotations

from collections.abc import Iterable

from koordcore.model.pods import Pod
from koordcore.model.selectors import LabelSelector


class LabelledPods:
    """Pods that selectors are asked about, one after another.

    Parameters
    ----------
    pods
        In any order; it stays.
    """

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._all: dict[str, list[Pod]] = {}
        self._by: dict[tuple[str, str, str], list[Pod]] = {}
        for pod in pods:
            self._all.setdefault(pod.namespace, []).append(pod)
            for key, value in pod.labels.items():
                self._by.setdefault((pod.namespace, key, value), []).append(pod)

    def selected(self, namespace: str, selector: LabelSelector) -> list[Pod]:
        """Give the pods of a namespace that a selector matches."""
        found = self._all.get(namespace, [])
        for key, value in selector.match_labels.items():
            some = self._by.get((namespace, key, value), [])
            found = some if len(some) < len(found) else found
        return [pod for pod in found if selector.matches(pod.labels)]
