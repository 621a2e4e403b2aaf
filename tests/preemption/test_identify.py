"""Who failed, and whose job it is."""

from __future__ import annotations

from koordcore.model.decisions import Bound, Rejection, Unschedulable
from koordcore.model.pods import Pod, PodKey
from koordcore.preemption.identify import detect_failures, identify_job

LABEL = "pod-group.scheduling.sigs.k8s.io"


def member(name: str, gang: str, node: str | None = None) -> Pod:
    return Pod(name=name, labels={LABEL: gang}, node_name=node)


def failed(name: str, *, resolvable: bool) -> Unschedulable:
    rejection = Rejection("NodeResourcesFit", "Insufficient cpu", 1, resolvable)
    return Unschedulable(pod=PodKey("default", name), nodes=1, rejections=(rejection,))


def test_only_failures_that_evictions_may_mend_are_detected() -> None:
    decisions = (
        Bound(pod=PodKey("default", "a"), node="n1"),
        failed("b", resolvable=False),
        failed("c", resolvable=True),
        Unschedulable(pod=PodKey("default", "d"), nodes=1, refusal="Insufficient quotas"),
    )
    assert [pod.name for pod in detect_failures(decisions)] == ["c", "d"]


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
