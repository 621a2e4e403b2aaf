"""Nominated members: once the victims have gone they could start as their gangs must."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import attrs

from koordcore.checking.gangs import check_members, members_of
from koordcore.checking.violation import Violation
from koordcore.model.decisions import Bound, Nominated, Waiting
from koordcore.protocol.gang_names import gang_name
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot


def check_nominated_gangs(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, whole: ClusterSnapshot
) -> Iterator[Violation]:
    """Whoever is nominated has with those that run, come and keep a place what his gang needs.

    A gang of a group that loses members itself, to this plan or anyhow, is not asked about: whether it has
    started then, and where it lies, hangs on when they leave.

    Parameters
    ----------
    whole
        The cluster with all nodes, whose network counts.
    """
    nominated = [one for one in result.decisions if isinstance(one, Nominated)]
    if not nominated:
        return
    waiting = {pod.key: pod for pod in (*snapshot.pending, *result.snapshot.pending)}
    promised = [waiting[one.pod].at(one.node) for one in nominated if one.pod in waiting]
    asked = {pod.key for pod in promised if gang_name(pod.labels, pod.annotations)}
    if not asked:
        return
    gone = {victim.pod for one in nominated for victim in one.victims}
    running = [pod for state in result.snapshot.nodes for pod in state.pods]
    less = {*members_of(pod for pod in running if pod.key in gone or pod.leaving)}
    new = {
        one.pod
        for one in result.decisions
        if isinstance(one, Bound | Nominated) or (isinstance(one, Waiting) and one.held)
    }
    members = members_of(chain(running, promised))
    for one in check_members(snapshot, result, members, asked, new, whole=whole, spared=less):
        yield attrs.evolve(one, message=f"once the victims have gone: {one.message}")
