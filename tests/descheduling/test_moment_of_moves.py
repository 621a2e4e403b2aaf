"""Plans of moves are for a moment: nobody moves to a node whose measurements are too old then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs

from koordcore import ClusterSnapshot, Node, Pod
from koordcore.checking import verify_moves
from koordcore.descheduling.emptying import EmptyingPlan
from koordcore.descheduling.plans import MoveRules, Moving, plan_empty_nodes
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import Measured, NodeMetric
from koordcore.model.pods import OwnerReference
from koordcore.model.policy import PluginSetting, Policy
from koordcore.protocol.times import moment_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ROOM = {"cpu": 8000, "memory": 2**33, "pods": 10}
OWNER = (OwnerReference("ReplicaSet", "w", "w", controller=True),)
LOAD = LoadAwareArgs(usage_thresholds={"cpu": 65})
POLICY = Policy().with_plugin(PluginSetting(name="LoadAwareScheduling", args=LOAD))
RULES = MoveRules(policy=POLICY, now=NOW)


def emptied(rules: MoveRules) -> Moving[EmptyingPlan]:
    """Both nodes are almost empty, and nothing was measured for an hour."""
    pod = Pod(name="p", owners=OWNER, requests={"cpu": 1000}, node_name="a", ready=True)
    known = moment_of(NOW - timedelta(hours=1))
    metrics = [NodeMetric(node=name, update_time=known, node_usage=Measured({"cpu": 100})) for name in "ab"]
    nodes = [Node(name=name, allocatable=ROOM) for name in "ab"]
    other = Pod(name="stays", requests={"cpu": 1000}, node_name="b", ready=True)
    snapshot = ClusterSnapshot(nodes=nodes).with_records(*metrics).assume(pod, other)
    return plan_empty_nodes(snapshot, rules=rules)


def test_nobody_moves_to_a_node_of_which_nothing_is_known_by_then() -> None:
    unaware = emptied(attrs.evolve(RULES, now=None))
    assert [move.target for move in unaware.plan.moves] == ["b"]
    assert emptied(RULES).plan.moves == ()


def test_the_checker_looks_at_the_same_moment() -> None:
    made = emptied(attrs.evolve(RULES, now=None))
    asked = made.snapshot, made.plan.moves, made.checked.bound
    assert verify_moves(*asked, policy=POLICY) == ()
    (wrong,) = verify_moves(*asked, policy=POLICY, now=NOW)
    assert wrong.message == "wave 1: is put on b, whose NodeMetric is 3600 s old"
