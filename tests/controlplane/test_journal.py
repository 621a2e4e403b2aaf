"""What stands in the journal, for whoever reads it later and knows less than its author."""

from __future__ import annotations

from koordcore.controlplane import Mirror, Request
from koordcore.controlplane.journal import Batch
from tests.controlplane.test_mirror import pod

PODS = "/api/v1/namespaces/d/pods/a"


def mirror(version: int) -> Mirror:
    made = Mirror({"Pod": "/api/v1/pods"})
    made.listed("Pod", [], str(version))
    return made


def test_who_has_not_heard_of_a_pod_yet_does_not_take_its_calls_for_done() -> None:
    """To a mirror that lags, a pod that is new looks like one that has gone."""
    author = mirror(10)
    author.watched("Pod", "ADDED", pod(12))
    body = {"metadata": {"name": "a", "namespace": "d", "uid": "u"}, "target": {"name": "n"}}
    binding = Request(method="POST", path=f"{PODS}/binding", body=body)
    batch = Batch.read(Batch.of([binding], author).page())
    assert batch.seen == {"Pod": 12}

    late = mirror(10)
    batch = batch.checked(late).looked_through(late)
    assert len(batch.left) == 1
    late.watched("Pod", "ADDED", pod(12))
    batch = batch.checked(late)
    assert len(batch.left) == 1
    assert not batch.settled(late)
    late.watched("Pod", "MODIFIED", pod(13, node="n"))
    assert batch.checked(late).settled(late)


def test_a_journal_that_nobody_has_written_to_is_read_as_the_server_gives_it() -> None:
    page = Batch().page()
    assert Batch.read({"binaryData": page["binaryData"]}) == Batch.read(page) == Batch()
