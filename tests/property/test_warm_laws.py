"""Calls on a line of snapshots: what was learnt follows every change, and changes no answer."""

from __future__ import annotations

from datetime import timedelta
from unittest.mock import patch

from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Policy, ScheduleResult, _line, explain, schedule
from koordcore.framework.registry import known_plugins
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.policy import PluginSetting
from koordcore.reservations.known import known_reservations
from koordcore.scheduling import cycle
from tests.property.living_worlds import START, happenings, waiting_pods, worlds

SHIPPED = koordinator_policy(known_plugins())
POLICIES = (SHIPPED, SHIPPED, Policy().with_plugin(PluginSetting(name="LoadAwareScheduling")))


def anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same contents with no past."""
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


def walk(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """Go a random way with forks; every call says what one without a past says."""
    # Small worlds would be built anew where more nodes joined or left than there are. Where a line forgets
    # its steps at once, states follow by what differs.
    kept = data.draw(st.sampled_from([_line.KEPT, 1]))
    with patch.object(cycle, "_FARTHEST", 1000), patch.object(_line, "KEPT", kept):
        _walk(snapshot, data)


def _walk(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    known = [snapshot]
    for step in range(data.draw(st.integers(2, 9))):
        now = (
            known[-1]
            if data.draw(st.sampled_from([True, True, False]))
            else data.draw(st.sampled_from(known))
        )
        changes = []
        after = now
        for more in range(data.draw(st.integers(0, 3))):
            change = data.draw(happenings(after, 10 * step + more))
            if change is not None:
                changes.append(change)
                after = after.apply(change)
        now = now.apply(*changes)
        if data.draw(st.sampled_from([True, True, False])):
            asked = [data.draw(waiting_pods(f"q{step}"))] if data.draw(st.booleans()) else None
            policy = data.draw(st.sampled_from(POLICIES))
            moment = START + timedelta(seconds=data.draw(st.sampled_from([0, 1, 2, 40, 290, 300])))
            warm: ScheduleResult = schedule(now, asked, policy=policy, now=moment)
            cold = schedule(anew(now), asked, policy=policy, now=moment)
            assert warm.decisions == cold.decisions
            assert warm == cold
            now = warm.snapshot
            if data.draw(st.booleans()):
                curious = data.draw(waiting_pods(f"w{step}"))
                told = explain(now, curious, policy=policy, now=moment)
                assert told == explain(anew(now), curious, policy=policy, now=moment)
        assert known_reservations(now) == known_reservations(anew(now))
        known.append(now)


@settings(max_examples=13, deadline=None)
@given(worlds(), st.data())
def test_calls_follow_whatever_changes(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """Metrics, nodes, pods, quotas, gangs, devices: with forks, and with the clock set back and forth."""
    walk(snapshot, data)


@settings(max_examples=10, deadline=None)
@given(worlds(reserving=True), st.data())
def test_calls_follow_with_reservations(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """The same where room is held for some pods."""
    walk(snapshot, data)
