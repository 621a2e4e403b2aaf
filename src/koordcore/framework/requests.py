"""What pods ask of the plugins of a profile, and which of these sleep; a template of pods is read once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Final, TypeAlias

import attrs

from koordcore._vector import Vector
from koordcore.framework.evaluator import Refusal
from koordcore.framework.plugin import Plugin
from koordcore.framework.registry import plugin_kinds
from koordcore.model.containers import Container
from koordcore.model.mappings import EMPTY
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.records import ClusterRecord
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_states, derived

RequestKey: TypeAlias = tuple[Hashable, ...]
"""What tells the classes of pods apart: one request for each plugin that is asked."""

_Read: TypeAlias = tuple[tuple[Hashable, ...], RequestKey | Refusal]
"""A template, and what was read of it."""

_OWN: Final = frozenset({"name", "uid", "created", "key", "scheduling_group"})
"""What pods out of one template differ in; which group a pod is in no plugin reads of its template."""
_CONTAINERS: Final = frozenset({"containers", "init_containers"})
_MOST: Final = 4096
"""Templates that are remembered; then all are forgotten."""
_FEW: Final = 8
"""Plugins that are asked as quickly as it is found what was read of a template."""

# Requests come first: what tells most templates apart.
_of_pod: Final = attrgetter(
    "requests",
    *(one.name for one in attrs.fields(Pod) if one.name not in _OWN | _CONTAINERS | {"requests"}),
)
_of_container: Final = attrgetter(*(field.name for field in attrs.fields(Container)))
_FIELDS: Final = frozenset(one.name for one in attrs.fields(Pod))
_PLAIN: Final = Pod(name="-")
"""It says nothing but its name."""


class Marks:
    """Looks for the marks of pods by which plugins wake; see :attr:`Plugin.needs`.

    Parameters
    ----------
    marks
        Fields of pods, which have to say something, and keys of labels and annotations.
    """

    def __init__(self, marks: frozenset[str]) -> None:
        self._fields = tuple(sorted(marks & _FIELDS))
        self._keys = marks - _FIELDS
        self._said = attrgetter(*self._fields) if self._fields else None
        # Most pods say what one does that says nothing, which is seen at a glance.
        quiet = self._said is not None and not any(getattr(_PLAIN, name) for name in self._fields)
        self._nothing: object = self._said(_PLAIN) if self._said is not None and quiet else _PLAIN

    def on(self, pod: Pod) -> frozenset[str]:
        """Give the marks that a pod has."""
        found = _NO_MARKS
        if self._said is not None and self._said(pod) != self._nothing:
            found = frozenset(name for name in self._fields if getattr(pod, name))
        if self._keys:
            for mapping in (pod.labels, pod.annotations):
                # To ask whether a frozen mapping is empty takes longer than to see that it is the empty one.
                if mapping is not EMPTY and not self._keys.isdisjoint(mapping):
                    found |= self._keys.intersection(mapping)
        return found

    def among(self, pods: Iterable[Pod]) -> frozenset[str]:
        """Give the marks that some pods have."""
        return _NO_MARKS.union(*filter(None, map(self.on, pods)))


_NO_MARKS: Final = frozenset[str]()


def sleeps(plugin: type[Plugin] | Plugin, snapshot: ClusterSnapshot, marks: frozenset[str]) -> bool:
    """Tell whether nothing in a cluster concerns a plugin; ``marks`` are those that its pods have."""
    needs = plugin.needs
    if needs is None or not needs.isdisjoint(marks):
        return False
    return not any(isinstance(one, type) and snapshot.has(one) for one in needs)


def kinds_with(policy: Policy, hook: str, snapshot: ClusterSnapshot | None = None) -> list[type[Plugin]]:
    """Give the classes of a policy's plugins that have a class method of their own, such as ``waiting``.

    Those that need records of which a cluster has none are left out, where one is given.

    Raises
    ------
    ModelError
        When a profile names a plugin that does not exist.
    """
    return [
        kind
        for kind, records in _kinds_with(_This(policy), hook)
        if snapshot is None or not records or any(map(snapshot.has, records))
    ]


class _This:
    """A policy by identity: to compare two takes longer than most calls have time for."""

    __slots__ = ("policy",)

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def __hash__(self) -> int:
        return id(self.policy)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _This) and other.policy is self.policy


@lru_cache(maxsize=64)  # what is remembered keeps its policy alive, so that no other has its identity
def _kinds_with(policy: _This, hook: str) -> list[tuple[type[Plugin], list[type]]]:
    default = getattr(Plugin, hook).__func__
    kinds = plugin_kinds(policy.policy)
    return [
        (kind, [one for one in kind.needs or () if isinstance(one, type)])
        for kind in kinds
        if getattr(kind, hook).__func__ is not default
    ]


def marks_in(snapshot: ClusterSnapshot, marks: frozenset[str]) -> frozenset[str]:
    """Give the marks that running pods have; those that they had earlier on the line may be among them."""
    build, again = _readers(marks)
    return derived(snapshot, build, again, replaced=True)


@lru_cache(maxsize=64)
def _readers(
    wanted: frozenset[str],
) -> tuple[
    Callable[[ClusterSnapshot], frozenset[str]],
    Callable[
        [Vector[NodeState], Vector[ClusterRecord], frozenset[str], ClusterSnapshot],
        frozenset[str],
    ],
]:
    """Give what reads marks in a whole cluster, and what reads them in the nodes that changed."""
    marks = Marks(wanted)

    def build(snapshot: ClusterSnapshot) -> frozenset[str]:
        return marks.among(snapshot.bound_pods())

    def again(
        nodes: Vector[NodeState], _: Vector[ClusterRecord], value: frozenset[str], snapshot: ClusterSnapshot
    ) -> frozenset[str]:
        changed = (state.pods for _, state in changed_states(snapshot, nodes) if state is not None)
        return value.union(marks.among(chain.from_iterable(changed)))

    return build, again


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
    wake
        Wakes those whom a pod concerns by its marks; called for the first pod of each template at least.
    """

    def __init__(self, plugins: Sequence[Plugin], wake: Callable[[Pod], None]) -> None:
        self._number = len(plugins)
        self._wake = wake
        numbered = list(enumerate(plugins))
        self._by_template = [(number, one.request_of) for number, one in numbered if one.by_template]
        self._by_pod = [(number, one) for number, one in numbered if not one.by_template]
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
        if self._number > _FEW:
            found = self._found(_template_of(pod), pod)
        else:
            self._wake(pod)
            found = self._read(pod)
        if isinstance(found, Refusal) or not self._by_pod:
            return found
        requests: list[Hashable] | None = None
        for number, plugin in self._by_pod:
            request = None if plugin.asleep else plugin.request_of(pod)
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
            self._wake(pod)
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
