"""What pods ask of the plugins of a profile; pods out of one template are read once."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

import attrs

from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin import Plugin
from koordcore.model.containers import Container
from koordcore.model.pods import Pod

RequestKey: TypeAlias = tuple[Hashable, ...]
"""What tells the classes of pods apart: one request for each plugin that is asked."""

_Read: TypeAlias = tuple[tuple[Hashable, ...], RequestKey | Refusal]
"""A template, and what was read of it."""

_OWN: Final = frozenset({"name", "uid", "created", "key"})
"""What pods out of one template differ in."""
_CONTAINERS: Final = frozenset({"containers", "init_containers"})
_MOST: Final = 4096
"""Templates that are remembered; then all are forgotten."""

# Requests come first: what tells most templates apart.
_of_pod: Final = attrgetter(
    "requests",
    *(one.name for one in attrs.fields(Pod) if one.name not in _OWN | _CONTAINERS | {"requests"}),
)
_of_container: Final = attrgetter(*(field.name for field in attrs.fields(Container)))


def _template_of(pod: Pod) -> tuple[Hashable, ...]:
    """Give what a pod says but for what is its own, in tuples: they are equal at a glance where parts are."""
    containers = tuple(map(_of_container, pod.containers))
    if not pod.init_containers:
        return (*_of_pod(pod), containers)
    return (*_of_pod(pod), containers, tuple(map(_of_container, pod.init_containers)))


class RequestReader:
    """Asks plugins what a pod wants of each.

    Parameters
    ----------
    plugins
        Whom to ask, in the order of the requests.
    """

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._number = len(plugins)
        numbered = list(enumerate(plugins))
        self._by_template = [(number, one.request_of) for number, one in numbered if one.by_template]
        self._by_pod = [(number, one.request_of) for number, one in numbered if not one.by_template]
        # By hash, so that a template is hashed once: nothing yet for what came once; of two the latter stays.
        self._known: dict[int, _Read | None] = {}
        self._last: _Read | None = None

    def read(self, pod: Pod) -> RequestKey | Refusal:
        """Give what a pod asks for, or a refusal by one of the plugins.

        Raises
        ------
        ManifestError
            What the pod says to a plugin cannot be read.
        """
        found = self._found(_template_of(pod), pod)
        if isinstance(found, Refusal) or not self._by_pod:
            return found
        requests: list[Hashable] | None = None
        for number, ask in self._by_pod:
            request = ask(pod)
            if request is not None:
                if type(request) is Refusal:
                    return request
                requests = list(found) if requests is None else requests
                requests[number] = request
        return found if requests is None else tuple(requests)  # mostly the template says it all

    def _found(self, template: tuple[Hashable, ...], pod: Pod) -> RequestKey | Refusal:
        """Give what pods out of a template ask for of those who go by it."""
        last = self._last
        # To compare with the pod before is cheaper than to hash where the very same values come again.
        if last is not None and last[0][0] is template[0] and last[0] == template:
            return last[1]
        mark = hash(template)
        known = self._known.get(mark)
        if known is None or known[0] != template:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = template, self._read(pod)
            # Many come once, and whatever is kept the garbage collector looks after.
            self._known[mark] = known if mark in self._known else None
        self._last = known
        return known[1]

    def _read(self, pod: Pod) -> RequestKey | Refusal:
        """Ask those for whom the template says it all; the others' places stay empty."""
        requests: list[Hashable] = [None] * self._number
        for number, ask in self._by_template:
            request = ask(pod)
            if type(request) is Refusal:
                return request
            requests[number] = request
        return tuple(requests)
