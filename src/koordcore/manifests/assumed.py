"""Pods that a reader takes for bound before the watch shows it, as upstream's cache assumes them."""

from __future__ import annotations

from typing import TypeAlias

from koordcore.manifests.cross_checks import Key
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod
from koordcore.snapshot.cluster import bind

On: TypeAlias = dict[str, dict[Key, None]]
"""Pods by the node that they name, or that they are assumed on."""


class Assumed:
    """What was decided about waiting pods, until the watch shows it or somebody takes it back.

    Parameters
    ----------
    on
        The reader's pods by node: those that are assumed are among them.
    """

    def __init__(self, on: On) -> None:
        self._on = on
        self._decisions: dict[Key, tuple[str, Bound]] = {}

    def put(self, key: Key, uid: str, decision: Bound) -> None:
        """Assume a pod of a uid on the node of a decision."""
        self.drop(key)
        self._decisions[key] = uid, decision
        self._on.setdefault(decision.node, {})[key] = None

    def drop(self, key: Key) -> bool:
        """Assume nothing of a pod any more; False where nothing was."""
        found = self._decisions.pop(key, None)
        if found is None:
            return False
        on = self._on[found[1].node]
        del on[key]
        if not on:
            del self._on[found[1].node]
        return True

    def heed(self, key: Key, pod: Pod | None) -> None:
        """Drop what is assumed of a pod that is bound, has ended, is gone, or is another one of the name."""
        found = self._decisions.get(key)
        if found is not None and (
            pod is None or pod.node_name is not None or pod.finished or pod.uid != found[0]
        ):
            self.drop(key)

    def node_of(self, key: Key) -> str | None:
        """Give the node that a pod is assumed on."""
        found = self._decisions.get(key)
        return None if found is None else found[1].node

    def bound(self, key: Key, pod: Pod) -> Pod:
        """Give a waiting pod as it stands where it is assumed, whatever it has come to say since."""
        return bind(pod, self._decisions[key][1])
