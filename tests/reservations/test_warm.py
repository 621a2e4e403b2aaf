"""Owners of reservations in calls on a line: they are told of nodes what a call without a past tells."""

from __future__ import annotations

import attrs

from koordcore import ClusterSnapshot, Pod, schedule
from koordcore.manifests import snapshot_from_objects
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.reservations import Reservation
from koordcore.reservations.holders import with_holders
from koordcore.snapshot import NodeReplaced, PodBound, PodEnded, PodPending, RecordReplaced
from tests.reservations.worlds import node as machine, pod as plain, reservation
from tests.scheduling.test_numa import node, pod

POLICY = Policy(
    name="numa",
    plugins=(PluginSetting(name="NodeNUMAResource", weight=5), PluginSetting(name="Reservation", weight=2)),
)


def owner(name: str, app: str) -> Pod:
    found = snapshot_from_objects([pod(name, 2)]).snapshot.pending[0]
    return attrs.evolve(found, labels={**found.labels, "app": app})


def test_a_plugin_counts_once_after_another_was_made_anew() -> None:
    """Who owns nothing and wants the same else is asked first; its parts are known again in a later call."""
    base = snapshot_from_objects([one for number in range(12) for one in node(f"n{number}")]).snapshot
    held = [reservation("r1", 2, "n1", "x"), reservation("r2", 2, "n2", "z")]
    snapshot = ClusterSnapshot(nodes=base.nodes, records=[*base.records, *held])
    for name, app in (("a", "x"), ("b", "z")):
        snapshot = schedule(snapshot, [owner(name, app)], policy=POLICY).snapshot
    one = snapshot.of(Reservation)[0]
    snapshot = snapshot.apply(RecordReplaced(attrs.evolve(one, labels={"x": "y"})))
    anew = ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)
    warm, cold = (schedule(each, [owner("c", "x")], policy=POLICY) for each in (snapshot, anew))
    assert warm.decisions == cold.decisions
    assert warm == cold


def test_pods_that_start_and_stop_on_nodes_that_say_something_else_are_found() -> None:
    """In the cluster as plugins see it, with the pods that stand for reservations."""
    bound, waiting = plain("b", 1).at("n1"), plain("w", 1)
    start = ClusterSnapshot(
        nodes=[machine("n1"), machine("n2")], pending=[waiting], records=[reservation("r", 2, "n2")]
    ).assume(bound)
    with_holders(start)
    other = attrs.evolve(machine("n1"), labels={"says": "else"})
    stops = PodEnded(bound.key), PodPending(bound.at(None))
    swapped = (PodBound(waiting.at("n1")), *stops, NodeReplaced(other))
    after = with_holders(start.apply(*swapped))
    assert after.pod(waiting.key) == waiting.at("n1")
    assert after.pod(bound.key) == bound.at(None)
