"""Whose job a failed pod is."""

from __future__ import annotations

from koordcore.model.pods import Pod
from koordcore.preemption.identify import identify_job

LABEL = "pod-group.scheduling.sigs.k8s.io"


def member(name: str, gang: str, node: str | None = None) -> Pod:
    return Pod(name=name, labels={LABEL: gang}, node_name=node)


def test_a_bare_pod_is_a_job_of_its_own() -> None:
    pod = Pod(name="p")
    job = identify_job(pod, pending=[pod, Pod(name="q")])
    assert (job.preemptor, job.pending) == ("default/p", (pod,))
    assert dict(job.parts) == {"default/p": ((pod,), 1)}


def test_a_gang_group_is_one_job() -> None:
    """Members at Permit count towards the minimum of their gang; pods of others do not belong to it."""
    first, second, held = member("a1", "a"), member("b1", "b"), member("b2", "b", "n1")
    job = identify_job(
        first,
        group=("default/b", "default/a"),
        pending=[second, first, member("x", "other"), Pod(name="bare")],
        waiting=[held],
        minimums={"default/a": 1, "default/b": 2},
    )
    assert job.preemptor == "default/a,default/b"
    assert set(job.pending) == {first, second}
    assert job.waiting == (held,)
    assert dict(job.parts) == {"default/a": ((first,), 1), "default/b": ((second,), 1)}
    alone = identify_job(first, group=("default/b", "default/a"), pending=[first, second])
    assert dict(alone.parts) == {"default/a": ((first,), 0), "default/b": ((second,), 0)}
