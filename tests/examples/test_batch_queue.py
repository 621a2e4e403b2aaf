"""The queue of the example starts whole jobs, keeps its promises, and loses nobody."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from examples.batch_queue.__main__ import main
from examples.batch_queue.bottled import BottledQueue
from examples.batch_queue.queue import Job, Queue, What, dispatch, finish, submit
from koordcore import ClusterSnapshot, ModelError, Node, Unschedulable
from koordcore.simulate.world import named_profile, run_world

CARDS = 4


def cluster(nodes: int = 2) -> ClusterSnapshot:
    room = {"cpu": 64_000, "pods": 110, "nvidia.com/gpu": CARDS}
    return ClusterSnapshot(nodes=[Node(name=f"n{number}", allocatable=room) for number in range(nodes)])


def job(
    name: str, gpus: int, *, width: int = 1, submitted: int = 0, limit: int = 100, priority: int = 0
) -> Job:
    return Job(
        name=name, submitted=submitted, limit=limit, width=width, priority=priority,
        requests={"cpu": 1000, "nvidia.com/gpu": gpus},
    )  # fmt: skip


def waiting(*jobs: Job, nodes: int = 2) -> Queue:
    queue = Queue(cluster=cluster(nodes))
    for one in jobs:
        answer = submit(queue, one)
        assert isinstance(answer, Queue)
        queue = answer
    return queue


def running(queue: Queue) -> set[str]:
    return {run.job.name for run in queue.running}


def happened(queue: Queue) -> list[tuple[int, str, str]]:
    return [(event.at, event.what.value, event.job) for event in queue.diary]


def test_a_job_starts_whole_or_not_at_all() -> None:
    """Three nodes' worth of pods do not start on two, not even in part."""
    queue = dispatch(waiting(job("small", 3), job("whole", 4, width=2, submitted=1)), 1)
    assert running(queue) == {"small"}
    assert len(list(queue.cluster.bound_pods())) == 1
    assert queue.cluster.pending == ()


def test_what_never_fits_is_refused_with_the_reason() -> None:
    """A job larger than the empty cluster does not block the queue; running jobs do not count against it."""
    queue = dispatch(waiting(job("first", 4, width=2)), 0)
    refused = submit(queue, job("moon", 4, width=3))
    assert isinstance(refused, Unschedulable)
    assert "Insufficient nvidia.com/gpu" in refused.message
    assert isinstance(submit(queue, job("later", 4, width=2)), Queue)


def test_backfill_takes_who_is_gone_in_time() -> None:
    """While two whole nodes are promised at 100, a short job may start, a long one may not."""
    jobs = (
        job("running", 3),
        job("wide", 4, width=2, submitted=1),
        job("long", 1, submitted=2, limit=101),
        job("short", 1, submitted=3, limit=100),
    )
    assert running(dispatch(waiting(*jobs), 0)) == {"running", "short"}


def test_backfill_takes_who_leaves_room() -> None:
    """A job that outlasts the promise may start where the promised job fits beside it."""
    jobs = (
        job("running", 4),
        job("other", 1, submitted=1, limit=1000),
        job("wide", 4, submitted=2),
        job("long", 2, submitted=3, limit=5000),
    )
    assert running(dispatch(waiting(*jobs), 0)) == {"running", "other", "long"}


def test_preemption_takes_only_who_is_in_the_way() -> None:
    """Of two smaller jobs the one that started later leaves, whole; it waits again and comes back."""
    queue = dispatch(waiting(job("old", 4), job("young", 2, width=2, submitted=1)), 10)
    answer = submit(queue, job("urgent", 4, submitted=20, priority=5, limit=30))
    assert isinstance(answer, Queue)
    queue = dispatch(answer, 20)
    assert running(queue) == {"old", "urgent"}
    assert [one.name for one in queue.waiting] == ["young"]
    queue = dispatch(finish(queue, "urgent", 50), 50)
    assert happened(queue)[2:] == [
        (20, "preempted", "young"),
        (20, "started", "urgent"),
        (50, "finished", "urgent"),
        (50, "started", "young"),
    ]


def test_nobody_is_preempted_in_vain_or_by_an_equal() -> None:
    """No victim leaves where that makes no room, and equal priority takes nobody's place."""
    queue = dispatch(waiting(job("peer", 4, priority=5), job("low", 4, submitted=1)), 0)
    for name, width in (("equal", 2), ("second", 2)):
        answer = submit(queue, job(name, 4, width=width, submitted=2, priority=5))
        assert isinstance(answer, Queue)
        assert running(dispatch(answer, 2)) == {"peer", "low"}


def test_a_queue_is_a_value() -> None:
    """Dispatching changes nothing that was there before, and does the same every time."""
    before = waiting(job("a", 2, width=2), job("b", 4, submitted=1))
    after = dispatch(before, 0)
    assert before.running == ()
    assert list(before.cluster.bound_pods()) == []
    assert dispatch(before, 0) == after


def test_a_job_that_fits_no_longer_holds_nobody_up() -> None:
    """A node has gone since it was submitted; nobody knows when it will start, and others need not wait."""
    queue = waiting(job("wide", 4, width=2), job("late", 1, submitted=1))
    left = attrs.evolve(queue, cluster=queue.cluster.without_nodes("n1"))
    assert running(dispatch(left, 2)) == {"late"}


@pytest.mark.parametrize("name", ["nodes", "network"])
def test_the_queue_lives_in_a_bottle(name: str) -> None:
    plain: dict[str, Any] = {"cards": 0, "quotas": 0, "budgets": 0, "nodes": 3, "arrival": 1600, "most": 6}
    plain |= {"seconds": 60, "storm": 25, "calm": 30}
    run = run_world(2, attrs.evolve(named_profile(name), **plain), lambda seat: BottledQueue())
    assert run.breaches == ()
    assert run.counts["begin"] > 20


def test_mistakes_are_named() -> None:
    queue = waiting(job("a", 1))
    with pytest.raises(ModelError, match="job a stands twice"):
        submit(queue, job("a", 2))
    with pytest.raises(ModelError, match="no job a is running"):
        finish(queue, "a", 0)


def test_the_program_prints_its_diary(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["0", "started", "train", "on", "gpu-0,", "gpu-1"]
    assert sum(" refused " in line for line in lines) == 1
    assert lines[-1].split() == ["14400", "finished", "long"]


JOBS = st.lists(
    st.tuples(
        st.integers(0, 30), st.integers(1, 40), st.integers(1, 3), st.integers(1, CARDS), st.integers(0, 2)
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=10, deadline=None)
@given(JOBS)
def test_every_job_ends_once(shapes: list[tuple[int, int, int, int, int]]) -> None:
    """Whole gangs only, victims of lower priority only, and one end for each job that was taken."""
    jobs = [
        job(f"j{number}", gpus, width=width, submitted=at, limit=limit, priority=priority)
        for number, (at, limit, width, gpus, priority) in enumerate(shapes)
    ]
    queue, accepted = Queue(cluster=cluster()), 0
    arrivals = sorted(jobs, key=lambda one: (one.submitted, one.name))
    while arrivals or queue.running:
        now = min([one.submitted for one in arrivals[:1]] + [run.ends for run in queue.running])
        for run in queue.running:
            if run.ends == now:
                queue = finish(queue, run.job.name, now)
        while arrivals and arrivals[0].submitted == now:
            answer = submit(queue, arrivals.pop(0))
            if isinstance(answer, Queue):
                queue, accepted = answer, accepted + 1
        before = queue
        queue = dispatch(queue, now)
        started = [event.job for event in queue.diary[len(before.diary) :] if event.what is What.STARTED]
        for event in queue.diary[len(before.diary) :]:
            if event.what is What.PREEMPTED:
                mine = next(one.priority for one in jobs if one.name == event.job)
                assert any(one.name in started and one.priority > mine for one in jobs)
        held = {pod.key for pod in queue.cluster.bound_pods()}
        assert held == {key for run in queue.running for key in run.job.keys}
        assert not queue.waiting or queue.running, "the first in the queue starts on an empty cluster"
    assert queue.waiting == ()
    assert sum(event.what is What.FINISHED for event in queue.diary) == accepted


@settings(max_examples=10, deadline=None)
@given(JOBS)
def test_backfill_never_delays_the_first_in_the_queue(shapes: list[tuple[int, int, int, int, int]]) -> None:
    """With the backfilled jobs gone again, the blocked job would start no earlier than with them."""
    jobs = [
        job(f"j{number}", gpus, width=width, submitted=number, limit=limit)
        for number, (_, limit, width, gpus, _) in enumerate(shapes)
        if width <= 2
    ]
    queue = dispatch(waiting(*jobs), 0)
    if not queue.waiting:
        return
    head = min(queue.waiting, key=lambda one: one.submitted).name
    filled = [event.job for event in queue.diary if event.what is What.BACKFILLED]
    alone = queue
    for name in filled:
        alone = finish(alone, name, 0)
    assert start_of(head, queue) <= start_of(head, alone)


def start_of(name: str, queue: Queue) -> int:
    """Let runs end at their limits, start nobody but the one asked about, and see when it can."""
    only = next(one for one in queue.waiting if one.name == name)
    queue = Queue(cluster=queue.cluster, running=queue.running, waiting=(only,))
    for run in sorted(queue.running, key=lambda one: one.ends):
        queue = dispatch(finish(queue, run.job.name, run.ends), run.ends)
        if not queue.waiting:
            return run.ends
    raise AssertionError("it fits the empty cluster")
