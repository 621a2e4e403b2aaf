"""Parts of classes that have to be made anew: those of plugins for which nothing has changed go on."""

from __future__ import annotations

from collections.abc import Collection

from koordcore.framework.plugin import Plugin
from koordcore.framework.requests import RequestKey
from koordcore.framework.static_result import Part


class LeftParts:
    """What is left of classes, by what their pods want.

    Parameters
    ----------
    most
        So many classes; the oldest go first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._left: dict[RequestKey, tuple[int, list[Part]]] = {}
        # How many times it was told whose parts do not go on, and for each of these which was the last time.
        self._times = 0
        self._void: dict[str, int] = {}

    def void(self, plugins: Collection[Plugin]) -> None:
        """Take note that nothing that some plugins have said goes on."""
        self._times += 1
        self._void.update(dict.fromkeys([one.name for one in plugins], self._times))

    def leave(self, key: RequestKey, parts: list[Part]) -> None:
        """Keep the parts of a class that is no more."""
        # Where somebody lends, what the others know may be of a loan that is another one now.
        if any("sources" in part.evaluator.answers for part in parts):
            return
        if len(self._left) >= self._most:
            del self._left[next(iter(self._left))]
        self._left[key] = self._times, parts

    def take(self, key: RequestKey) -> dict[Plugin, Part]:
        """Give by plugin the parts that go on, to whoever makes the class anew."""
        if not self._left:  # a key takes long to hash
            return {}
        since, parts = self._left.pop(key, (0, ()))
        return {part.plugin: part for part in parts if self._void.get(part.owner.name, 0) < since}
