"""Admission when a pod is created: what it counts for, what a quota still takes, and conflicts in writing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.model.durations import SECOND
from koordcore.protocol.exact import parse_exact_list
from koordcore.protocol.quota import CHILD_REQUEST, QuotaObject, quota_object
from koordcore.quota.evaluate import (
    REPLACE_RESOURCES,
    admit_batch,
    evaluate_creation,
    evaluated_request,
    replace_resources,
    retry_budget,
)

PREFIX = "quota.scheduling.koordinator.sh/"
POD = {"cpu": "2", "memory": "4Gi"}


def quota(
    most: dict[str, str], child: dict[str, str] | None = None, admission: dict[str, str] | None = None
) -> QuotaObject:
    notes = {"child-request": child, "admission": admission}
    annotations = {PREFIX + key: json.dumps(value) for key, value in notes.items() if value is not None}
    metadata = {"name": "quota1", "namespace": "kube-system", "annotations": annotations}
    return quota_object({"metadata": metadata, "spec": {"max": most}})


def count(one: QuotaObject | None) -> Any:
    """What a quota says that it was asked for."""
    return None if one is None else json.loads(one.annotations.get(CHILD_REQUEST, "null"))


# --- what a pod counts for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("passed", "phase", "counts"),
    [
        (29 * SECOND, "Running", True),
        (30 * SECOND, "Running", True),
        (30 * SECOND + 1, "Running", False),
        (0, "Succeeded", False),
        (0, "Failed", False),
        (0, "Pending", True),
    ],
)
def test_a_pod_counts_until_its_grace_period_is_over(passed: int, phase: str, counts: bool) -> None:
    pod = {
        "metadata": {"deletionTimestamp": "1970-01-01T00:01:40Z", "deletionGracePeriodSeconds": 30},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]},
        "status": {"phase": phase},
    }
    found = evaluated_request(pod, now=100 * SECOND + passed)
    assert found == (parse_exact_list({"cpu": "2"}) if counts else {})


def test_a_pod_that_is_not_being_deleted_counts_for_good() -> None:
    pod = {"spec": {"containers": [{"resources": {"requests": {"cpu": "2"}}}]}}
    assert evaluated_request(pod, now=2**62) == parse_exact_list({"cpu": "2"})


def test_resources_are_renamed_counted_in_thousandths_or_dropped() -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi", "x/y": "3"}}}
    bare = {"name": "d"}
    pod = {
        "metadata": {
            "annotations": {REPLACE_RESOURCES: "cpu:example.io/cpu,memory:,nonsense,gpu:example.io/gpu"}
        },
        "spec": {"containers": [container, bare], "initContainers": [container], "nodeName": "n"},
    }
    found: Any = replace_resources(pod)
    requests = {"example.io/cpu": "1500", "x/y": "3"}
    for key in ("containers", "initContainers"):
        first = found["spec"][key][0]
        assert parse_exact_list(first["resources"]["requests"]) == parse_exact_list(requests)
        assert first["name"] == "c"
    assert found["spec"]["containers"][1]["resources"] == {"requests": {}}
    assert found["spec"]["nodeName"] == "n"
    assert found["metadata"] == pod["metadata"]


@pytest.mark.parametrize("text", ["", "nonsense"])
def test_a_pod_without_renames_stays_as_it_is(text: str) -> None:
    pod: dict[str, Any] = {
        "metadata": {"annotations": {REPLACE_RESOURCES: text}},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
    }
    assert replace_resources(pod) is pod


# --- one pod ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (quota({"cpu": "4", "memory": "8Gi"}), {"cpu": "2", "memory": "4Gi"}),
        (quota({"cpu": "4", "memory": "8Gi"}, {"cpu": "2", "memory": "2Gi"}), {"cpu": "4", "memory": "6Gi"}),
        (
            quota({"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "2Gi"}),
            "exceeded quota: kube-system/quota1, requested: cpu=2, used: cpu=4, limited: cpu=4",
        ),
        (
            quota({"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}),
            (
                "exceeded quota: kube-system/quota1, requested: cpu=2,memory=4Gi, used: cpu=4,memory=8Gi,"
                " limited: cpu=4,memory=8Gi"
            ),
        ),
        (
            quota({"cpu": "4"}, {"cpu": "4", "memory": "8Gi"}, {"cpu": "8", "memory": "16Gi"}),
            {"cpu": "6", "memory": "8Gi"},
        ),
        (
            quota({"cpu": "1", "memory": "2Gi"}),
            (
                "exceeded quota: kube-system/quota1, requested: cpu=2,memory=4Gi, used: ,"
                " limited: cpu=1,memory=2Gi"
            ),
        ),
    ],
)
def test_a_quota_counts_what_it_admits_and_says_what_is_too_much(
    one: QuotaObject, expected: str | dict[str, str]
) -> None:
    found = evaluate_creation([one], "quota1", parse_exact_list(POD))
    if isinstance(expected, str):
        assert (found.reason, found.quota) == (expected, None)
    else:
        assert (found.reason, count(found.quota)) == ("", expected)


@pytest.mark.parametrize("most", [{"kubernetes.io/batch-cpu": "1"}, {"example.io/card": "1"}])
def test_a_quota_of_other_resources_is_left_alone(most: dict[str, str]) -> None:
    found = evaluate_creation([quota(most)], "quota1", parse_exact_list(POD))
    assert (found.reason, found.quota) == ("", None)


def test_a_quota_has_to_be_there_and_be_the_only_one_of_its_name() -> None:
    one, asked = quota({"cpu": "4"}), parse_exact_list(POD)
    assert evaluate_creation([one], "", asked).quota is None
    assert evaluate_creation([], "koordinator-default-quota", asked).reason == ""
    assert evaluate_creation([one], "quota2", asked).reason == "elastic quota quota2 not found"
    assert evaluate_creation([one, one], "quota1", asked).reason == "more than one elastic quota quota1 found"


# --- many pods at once ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "flag", "retries"),
    [
        (0, 10, 3),
        (1, 10, 3),
        (2, 10, 4),
        (3, 10, 4),
        (4, 10, 5),
        (8, 10, 6),
        (2**20, 10, 10),
        (1024, 5, 5),
        (1024, 1, 3),
        (2, 3, 3),
    ],
)
def test_a_batch_may_write_more_often_the_more_it_counts(changed: int, flag: int, retries: int) -> None:
    assert retry_budget(changed, flag) == retries


class Storage:
    """Somebody else writes first, so often."""

    def __init__(self, *others: QuotaObject) -> None:
        self.others = list(others)
        self.seen: list[QuotaObject] = []

    def write(self, one: QuotaObject) -> QuotaObject | None:
        self.seen.append(one)
        return self.others.pop(0) if self.others else None


def ones(number: int) -> list[Any]:
    return [parse_exact_list({"cpu": "1"})] * number


def test_a_batch_is_counted_in_one_write_and_the_rest_is_denied() -> None:
    storage = Storage()
    reasons = admit_batch(quota({"cpu": "3"}, {"cpu": "1"}), ones(3), storage.write)
    assert reasons[:2] == ("", "")
    assert reasons[2].endswith("requested: cpu=1, used: cpu=3, limited: cpu=3")
    assert [count(one) for one in storage.seen] == [{"cpu": "3"}]


def test_after_a_conflict_all_that_was_granted_is_added_to_the_new_count() -> None:
    storage = Storage(quota({"cpu": "5"}, {"cpu": "3"}))
    assert admit_batch(quota({"cpu": "5"}), ones(2), storage.write) == ("", "")
    assert [count(one) for one in storage.seen] == [{"cpu": "2"}, {"cpu": "5"}]


def test_where_not_all_fit_the_new_count_they_are_decided_again_one_by_one() -> None:
    storage = Storage(quota({"cpu": "5"}, {"cpu": "4"}))
    reasons = admit_batch(quota({"cpu": "5"}), ones(2), storage.write)
    assert reasons[0] == ""
    assert reasons[1].startswith("exceeded quota: ")
    assert [count(one) for one in storage.seen] == [{"cpu": "2"}, {"cpu": "5"}]


def test_who_is_undecided_when_the_retries_are_used_up_is_told_of_the_conflict() -> None:
    full = Storage(*[quota({"cpu": "5"}, {"cpu": "1"})] * 9)
    assert admit_batch(quota({"cpu": "5"}), ones(1), full.write, conflict="try again") == ("try again",)
    assert len(full.seen) == 4
    few = Storage(*[quota({"cpu": "5"}, {"cpu": "1"})] * 3)
    assert admit_batch(quota({"cpu": "5"}), ones(1), few.write) == ("",)
    more = Storage(*[quota({"cpu": "9"}, {"cpu": "1"})] * 9)
    assert admit_batch(quota({"cpu": "9"}), ones(4), more.write, max_retries=10) == ("conflict",) * 4
    assert len(more.seen) == 6
