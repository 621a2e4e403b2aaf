"""Members of NonStrict gangs that keep places from one call to the next on a line of snapshots.

Such a member stands on its node, marked, and is bound to nothing yet. Every call decides about it anew: it
keeps its place while the others are missing, starts with them, or gives the place up when its time is over.
So it is put back among those who wait, and has its place again before anybody else has a turn.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import attrs

from koordcore._record import record
from koordcore._vector import Vector
from koordcore.allocators.gang.members import belongs
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Bound
from koordcore.model.mappings import EMPTY
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.policy import Policy
from koordcore.model.records import ClusterRecord
from koordcore.protocol.gang_names import WAITS_AT_PERMIT
from koordcore.protocol.holdings import without
from koordcore.protocol.times import moment_of, parse_timestamp
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.reset import unbound
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.changes import PodEnded, PodPending
from koordcore.snapshot.following import changed_states, derived

FOR_EVER: Final = "true"
"""Value of the mark where nothing says until when."""
_Marked: TypeAlias = "dict[str, tuple[Pod, ...]]"


@record
class Kept:
    """A place from an earlier call.

    Parameters
    ----------
    pod
        The member as one that waits.
    node
        Where its place is.
    until
        When it gives it up, in nanoseconds since 1970; ``None`` where nothing says so.
    """

    pod: Pod
    node: str
    until: int | None

    def over(self, now: datetime | None) -> bool:
        """Tell whether its time is up."""
        return now is not None and self.until is not None and self.until <= moment_of(now)


NOBODY: Final[Mapping[PodKey, Kept]] = {}


def kept_places(snapshot: ClusterSnapshot) -> list[Kept]:
    """Give who keeps which place, by the names of the nodes."""
    marked = derived(snapshot, _marked, _marked_again, replaced=True)
    return [Kept(_back(pod), name, _until(pod)) for name, pods in sorted(marked.items()) for pod in pods]


def reopened(
    snapshot: ClusterSnapshot, policy: Policy, asked: Collection[Pod] | None, now: datetime | None
) -> tuple[ClusterSnapshot, Mapping[PodKey, Kept]]:
    """Put the members that keep places back among those who wait; gives also who kept which place.

    Parameters
    ----------
    policy
        Whose pods; those of other schedulers stay where they are.
    asked
        Whom a call is about; only places of their gangs, of those that these start with, and such whose
        time is up concern it. ``None`` for all.
    """
    kept = kept_places(snapshot)
    if not kept:
        return snapshot, NOBODY
    # A call without gangs should not pay for them.
    from koordcore.model.gangs import CoschedulingArgs
    from koordcore.scheduling.gang_book import gang_book
    from koordcore.scheduling.gang_states import gang_id_of

    family_of = gang_book(snapshot, policy.args_of(CoschedulingArgs)).family_of
    meant = {family_of.get(gang_id_of(pod)) for pod in asked or () if belongs(pod)}
    found = {
        one.pod.key: one
        for one in kept
        if (asked is None or one.over(now) or family_of.get(gang_id_of(one.pod)) in meant)
        and policy.profile_of(one.pod.scheduler_name) is not None
    }
    ended, waiting = map(PodEnded, found), (PodPending(one.pod) for one in found.values())
    return snapshot.apply(*ended, *waiting), found


def keeps_place(snapshot: ClusterSnapshot, policy: Policy, key: PodKey) -> bool:
    """Tell whether a pod only keeps its place, so that it is decided about anew."""
    pod = snapshot.pod(key)
    ours = pod is not None and policy.profile_of(pod.scheduler_name) is not None
    return ours and pod is not None and WAITS_AT_PERMIT in pod.annotations


def _back(pod: Pod) -> Pod:
    fresh = unbound(pod)
    return attrs.evolve(fresh, annotations=without(fresh.annotations, (WAITS_AT_PERMIT,)))


def _until(pod: Pod) -> int | None:
    return kept_until(pod.annotations[WAITS_AT_PERMIT])


def kept_until(mark: str) -> int | None:
    """Read a mark: when the place is given up, in nanoseconds since 1970; ``None`` where nothing says so."""
    return None if mark == FOR_EVER else parse_timestamp(mark)


def _marked(snapshot: ClusterSnapshot) -> _Marked:
    """Give the members that keep a place by the name of their node."""
    found = ((state, _on(state)) for state in snapshot.nodes if state.pods)
    return {state.name: pods for state, pods in found if pods}


def _on(state: NodeState) -> tuple[Pod, ...]:
    # Many pods have no annotations, which is seen at a glance.
    noted = [pod for pod in state.pods if pod.annotations is not EMPTY]
    return tuple([pod for pod in noted if WAITS_AT_PERMIT in pod.annotations])


def _marked_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], value: _Marked, snapshot: ClusterSnapshot
) -> _Marked:
    del records
    changed = changed_states(snapshot, nodes)
    found = dict(value) if changed else value
    for before, after in changed:
        if before is not None:
            found.pop(before.name, None)
        pods = () if after is None else _on(after)
        if after is not None and pods:
            found[after.name] = pods
    return found


class PermitHolds:
    """The places that are kept while others have their turns."""

    def __init__(
        self, workspace: Workspace, plugins: PluginSet, kept: Mapping[PodKey, Kept], now: datetime | None
    ) -> None:
        self._workspace, self._plugins, self._kept = workspace, plugins, kept
        self._rows: dict[PodKey, int] = {}
        row_of = workspace.layout.row_of
        for key, one in kept.items():
            row = row_of.get(one.node)
            if row is None or one.over(now):
                continue
            # Who was nominated counts on the room beside what is kept.
            with plugins.nominated.nobody():
                placed = place_there(workspace, plugins, one.pod, row)
            if placed is None:
                continue
            # Nobody evicts who was never bound.
            workspace.annotate(key, row, {WAITS_AT_PERMIT: FOR_EVER})
            self._rows[key] = row
        workspace.commit()

    def release(self, pods: Iterable[Pod]) -> Mapping[PodKey, Kept]:
        """Take members off their places, which they may have again at once; gives who kept which."""
        own = {pod.key: self._kept[pod.key] for pod in pods if pod.key in self._kept}
        for key in own:
            row = self._rows.pop(key, None)
            if row is not None:
                gone = self._workspace.evict(key, row)
                self._plugins.removed(gone, row)
                for plugin, _ in self._plugins.everyone:
                    if not plugin.asleep:
                        plugin.evicted(gone, charged=False)  # it still asks for what it may have
        return own


def again(workspace: Workspace, plugins: PluginSet, pod: Pod, kept: Mapping[PodKey, Kept]) -> Bound | None:
    """Place a member where it kept a place; ``None`` where it kept none, or the node does not take it."""
    own = kept.get(pod.key)
    row = None if own is None else workspace.layout.row_of.get(own.node)
    if row is None:
        return None
    # Who was nominated later counted on the room beside what it keeps.
    with plugins.nominated.lifted(), plugins.nominated.nobody():
        return place_there(workspace, plugins, pod, row)
