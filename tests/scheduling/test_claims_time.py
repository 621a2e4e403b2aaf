"""Claims over time: when a pod can start, and a stream of pods that come and go."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import attrs

from benchmarks.claims_data import mig_cards, whole_gpus
from koordcore import Pod, schedule
from koordcore.scheduling.backfilling import EarliestStart, earliest_start
from koordcore.simulate import PodArrival, replay_schedule
from tests.scheduling.test_claims_gangs import cluster, member

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def pod(name: str, template: str) -> Pod:
    return attrs.evolve(member(name, template, least=1), annotations={})


def test_a_pod_starts_when_the_devices_that_it_needs_are_free() -> None:
    """Fifty full nodes; the two cards that a pod needs together are free on one of them after two hours."""
    nodes = [whole_gpus(f"n{number:02}", 8) for number in range(50)]
    running = [pod(f"p{number:03}", "gpu") for number in range(400)]
    full = schedule(cluster(nodes, running)).snapshot
    first, *others = full.nodes
    ends = {
        first.pods[0].key: NOW + HOUR,
        others[0].pods[0].key: NOW + HOUR,
        first.pods[1].key: NOW + 2 * HOUR,
    }
    one, two = pod("one", "gpu"), pod("two", "two")
    soon = earliest_start(full.with_pending(one), [one], ends, now=NOW)
    later = earliest_start(full.with_pending(two), [two], ends, now=NOW)
    assert isinstance(soon, EarliestStart)
    assert isinstance(later, EarliestStart)
    assert soon.start == NOW + HOUR
    assert later.start == NOW + 2 * HOUR
    assert later.nodes == {two.key: first.name}


def test_partitions_are_free_again_when_a_run_ends() -> None:
    events = [
        PodArrival(0, pod("a", "4g-40gb"), 60),
        PodArrival(1, pod("b", "3g-40gb"), 100),
        PodArrival(5, pod("c", "7g-80gb"), 10),
        PodArrival(6, pod("d", "4g-40gb"), 10),
    ]
    run = replay_schedule(cluster([mig_cards("n", 1)], []), events)
    assert [(one.task, one.time) for one in run.placements] == [
        ("default/a", 0),
        ("default/b", 1),
        ("default/d", 60),
        ("default/c", 101),
    ]


def test_a_stream_over_fifty_nodes_waits_for_devices_in_use() -> None:
    """Each pod takes all eight cards of a node; the fifty-first starts when the first has ended."""
    nodes = [whole_gpus(f"n{number:02}", 8) for number in range(50)]
    events = [PodArrival(number, pod(f"p{number:03}", "eight"), 1000 + number) for number in range(60)]
    run = replay_schedule(cluster(nodes, []), events)
    starts = [one.time for one in run.placements]
    assert starts == [*range(50), *(1000 + 2 * number for number in range(10))]
    assert run.pending.max() == 10
