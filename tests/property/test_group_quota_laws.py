"""Trees of groups of which a quota takes some members only: as many start as trying everything finds."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, ElasticQuota, schedule, verify
from koordcore.model.scheduling_groups import CompositePodGroup, SchedulingPodGroup
from tests.property import test_group_flow_laws as trees
from tests.reference.group_units import best_of, leaves, options

QUOTA = "quota.scheduling.koordinator.sh/name"


def agrees(seed: int) -> None:
    """Compare one tree below one quota with trying everything that stays within it."""
    base, root, room = trees.world(seed)
    if not base.pending or not trees.ready(root):
        return
    limit = random.Random(seed + 3).randint(0, 6)
    records: list[Any] = [*base.of(SchedulingPodGroup), *base.of(CompositePodGroup)]
    quota = ElasticQuota(name="team", namespace="default", min={"cpu": 0}, max={"cpu": limit * 1000})
    pending = [attrs.evolve(pod, labels={QUOTA: "team"}) for pod in base.pending]
    snapshot = ClusterSnapshot(nodes=base.nodes, pending=pending, records=[*records, quota])
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    known = {used: value for used, value in options(root, len(room)).items() if sum(used[0]) <= limit}
    names = sorted((one.name for one in snapshot.of(SchedulingPodGroup)), key=lambda name: int(name[1:]))
    placed = Counter(one.pod.name.partition("-")[0] for one in result.decisions if isinstance(one, Bound))
    started = sum(
        placed[name] > 0 and not leaf.started for name, leaf in zip(names, leaves(root), strict=True)
    )
    assert (started, placed.total()) == (best_of(known, room) or (0, 0))


@pytest.mark.solver
@settings(max_examples=17, deadline=None)
@given(st.integers(0, 10**6))
@example(0)
@example(261)
@example(296)
def test_a_quota_takes_the_members_with_which_most_groups_start(seed: int) -> None:
    agrees(seed)
