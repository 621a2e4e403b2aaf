"""Two hours of a small GPU cluster, printed as a diary: ``python -m examples.batch_queue``."""

from __future__ import annotations

from examples.batch_queue.queue import Job, Queue, dispatch, finish, submit
from koordcore import ClusterSnapshot, Node, Unschedulable

NODES = [
    Node(
        name=f"gpu-{number}", allocatable={"cpu": 64_000, "memory": 1 << 40, "pods": 110, "nvidia.com/gpu": 8}
    )
    for number in range(4)
]


def gpus(count: int) -> dict[str, int]:
    """Requests of one pod."""
    return {"cpu": 4_000 * count, "nvidia.com/gpu": count}


JOBS = [
    Job(name="train", submitted=0, limit=3600, width=2, requests=gpus(8)),
    Job(name="sweep", submitted=60, limit=1800, width=3, requests=gpus(4)),
    Job(name="wide", submitted=120, limit=3600, width=4, requests=gpus(8)),
    Job(name="notebook", submitted=180, limit=1200, requests=gpus(1)),
    Job(name="long", submitted=240, limit=7200, requests=gpus(2)),
    Job(name="urgent", submitted=900, limit=600, width=2, priority=100, requests=gpus(8)),
    Job(name="moon", submitted=960, limit=600, width=5, requests=gpus(8)),
]


def places(queue: Queue, name: str) -> str:
    """Say where a job runs; nothing for one that does not."""
    keys = [key for run in queue.running if run.job.name == name for key in run.job.keys]
    nodes = sorted({queue.cluster.location[key] for key in keys})
    return f"on {', '.join(nodes)}" if nodes else ""


def main() -> None:
    """Replay the arrivals; the next moment is an arrival or the end of a run, whichever comes first."""
    queue = Queue(cluster=ClusterSnapshot(nodes=NODES))
    arrivals = sorted(JOBS, key=lambda job: (job.submitted, job.name))
    printed = 0
    while arrivals or queue.running:
        now = min([job.submitted for job in arrivals[:1]] + [run.ends for run in queue.running])
        for run in queue.running:
            if run.ends == now:
                queue = finish(queue, run.job.name, now)
        while arrivals and arrivals[0].submitted == now:
            answer = submit(queue, job := arrivals.pop(0))
            if isinstance(answer, Unschedulable):
                print(f"{now:6d}  refused     {job.name}: {answer.message}")
            else:
                queue = answer
        queue = dispatch(queue, now)
        for event in queue.diary[printed:]:
            print(f"{event.at:6d}  {event.what:10}  {event.job:10}{places(queue, event.job)}")
        printed = len(queue.diary)


if __name__ == "__main__":
    main()
