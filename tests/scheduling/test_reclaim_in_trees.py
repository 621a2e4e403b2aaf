"""Quotas under a parent get back what their siblings borrowed, although the parent's own share is used up."""

from __future__ import annotations

import attrs
import pytest

from koordcore import schedule, verify
from koordcore.checking.violation import ViolationKind
from koordcore.model.preemption import PreemptionRules
from tests.scheduling.test_reclaim import cluster, evictions, quota, work


def test_a_child_gets_back_from_its_sibling_what_their_parent_is_promised() -> None:
    snapshot = cluster(
        quota("dept", 20, 20, **{"is-parent": "true"}),
        quota("a", 10, 20, parent="dept"),
        quota("b", 10, 20, parent="dept"),
        *(work(f"b{one}", 4, "b", on="n1", priority=100) for one in range(5)),
        *(work(f"a{one}", 4, "a") for one in range(3)),
        cpu=20,
    )
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    leaving = evictions(result)
    assert {job: len(pods) for job, pods in leaving.items()} == {"default/a0": 1, "default/a1": 1}
    # The third would be beyond its min.
    assert {plan.borrowers for plan in result.preemptions} == {("b",)}


@pytest.mark.parametrize(("least", "gets"), [(10, False), (14, True)])
def test_beyond_the_parents_own_min_only_its_children_give(least: int, gets: bool) -> None:
    """The parent uses all that it is promised: a child of another one gives nothing, unless there is more."""
    snapshot = cluster(
        quota("dept", least, 40, **{"is-parent": "true"}),
        quota("a", 4, 40, parent="dept"),
        quota("b", 6, 40, parent="dept"),
        quota("other", 4, 40),
        work("fixed", 10, "b", on="n1", labels={"quota.scheduling.koordinator.sh/preemptible": "false"}),
        *(work(f"o{one}", 5, "other", on="n1") for one in range(2)),
        work("a", 4, "a"),
        cpu=20,
    )
    result = schedule(snapshot, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert bool(result.preemptions) == gets


def test_the_checker_tells_siblings_from_strangers() -> None:
    """The same plan, with the victims' quota outside of the parent, is none."""
    dept = quota("dept", 20, 40, **{"is-parent": "true"})
    mine = quota("a", 10, 40, parent="dept")
    objects = [
        *(work(f"b{one}", 4, "b", on="n1") for one in range(5)),
        work("a", 4, "a"),
    ]
    inside = cluster(dept, mine, quota("b", 10, 40, parent="dept"), *objects, cpu=20)
    result = schedule(inside, preempt=PreemptionRules())
    assert verify(inside, result) == ()
    assert result.preemptions
    keep = work("keep", 20, "c", on="n1")
    there = (dept, mine, quota("c", 0, 40, parent="dept"), keep, quota("b", 10, 40), *objects)
    outside = cluster(*there, cpu=40)
    forged = attrs.evolve(result, snapshot=outside)
    told = [one for one in verify(outside, forged) if one.kind is ViolationKind.VICTIM]
    assert "dept" in {one.subject for one in told}, told
