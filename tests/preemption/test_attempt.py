"""The workflow step by step: eligibility, outcome, nominations, the record."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from immutabledict import immutabledict

from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.decisions import Victim
from koordcore.model.pods import MIRROR_ANNOTATION, Pod, PodKey
from koordcore.model.preemption import NotHelpful, PreemptionPlan
from koordcore.preemption.eligible import may_evict
from tests.reference.nominations import NominatingMode, Nomination, renominate
from tests.reference.preemption_attempt import (
    Attempt,
    attempt_preemption,
    format_diagnosis,
    nominations_after,
)
from tests.reference.preemption_refusals import Failure

TRIGGER = Pod(name="p", priority=10)
PLAN = PreemptionPlan(
    nominations=immutabledict({"default/p": "n1"}),
    victims=(
        Victim(PodKey("default", "a"), "n1", 0, "default/a"),
        Victim(PodKey("default", "b"), "n2", 0, "default/b"),
    ),
    certificate=Certificate.make_proven((0, 0, 2, 2, 0, 0)),
)
NOTHING = NotHelpful(reason="x", message="", certificate=Certificate(CertificateStatus.INFEASIBLE))


def attempted(found: PreemptionPlan | NotHelpful, pending: Sequence[Pod] = (TRIGGER,)) -> Attempt:
    return attempt_preemption(
        TRIGGER,
        preemptor="default/p",
        pending=pending,
        on_node={"n1": ()},
        statuses={"n1": "Unschedulable"},
        find=lambda: found,
        explain=lambda: Failure(message="0/1 nodes are available: 1 no potential victims."),
    )


def nominated(name: str, node: str, priority: int) -> Pod:
    return Pod(name=name, nominated_node=node, priority=priority)


def test_a_success_clears_less_important_nominations_everywhere() -> None:
    others = [nominated("x", "n2", 5), nominated("y", "n2", 20), nominated("z", "n3", 5)]
    after = nominations_after(attempted(PLAN), members=[TRIGGER], nominated=others, trigger=TRIGGER)
    assert after == {"default/y": "n2", "default/z": "n3", "default/p": "n1"}


def test_a_failure_clears_the_job_and_nobody_else() -> None:
    others = [nominated("x", "n2", 5)]
    waiting = nominated("p", "n1", 10)
    after = nominations_after(attempted(NOTHING), members=[waiting], nominated=others, trigger=TRIGGER)
    assert after == {"default/x": "n2"}


def test_the_record_of_a_success_is_upstreams() -> None:
    record = format_diagnosis(attempted(PLAN).diagnosis, {"default/a": "u-a"})
    assert record["reason"] == "preempt success, alreadyWaitingForBound: %d/%d"
    assert record["message"] == "preempt success, alreadyWaitingForBound: 0/1"
    assert record["victims"][0] == {
        "nodeName": "n1",
        "possibleVictims": [{"namespace": "default", "name": "a", "uid": "u-a"}],
    }
    assert "unschedulablePodsNumber" not in record
    assert record["NodeToOfferSlot"] is None


def test_nothing_is_planned_without_pending_pods() -> None:
    attempt = attempted(PLAN, pending=())
    assert (attempt.nominated, attempt.diagnosis.reason) == (None, "no pending pods")


@pytest.mark.parametrize(
    ("rejecter", "mode", "node"),
    [
        ("JobPreemptionSuccessPlugin", NominatingMode.OVERRIDE, "n7"),
        ("JobRejectPlugin", NominatingMode.NOOP, ""),
        ("JobPreemptionFailurePlugin", NominatingMode.OVERRIDE, ""),
        ("NodeResourcesFit", NominatingMode.OVERRIDE, "n1"),
    ],
)
def test_a_rejected_pod_keeps_what_its_job_decided(rejecter: str, mode: NominatingMode, node: str) -> None:
    default = Nomination(NominatingMode.OVERRIDE, "n1")
    found = renominate(default, code="Unschedulable", rejecters=[rejecter], assumed_node="n7")
    assert (found.mode, found.node, found.rejecter) == (mode, node, rejecter)


def test_a_static_pod_never_leaves() -> None:
    assert may_evict(TRIGGER, Pod(name="a"))
    assert not may_evict(TRIGGER, Pod(name="a", annotations={MIRROR_ANNOTATION: "x"}))
