"""Classes and priorities of pods."""

from __future__ import annotations

import pytest

from koordcore.errors import ManifestError
from koordcore.protocol import qos
from koordcore.protocol.qos import ContainerResources, KubernetesQoS, PriorityClass, QoSClass
from tests.reference import pod_requests


@pytest.mark.parametrize(
    ("priority", "expected"),
    [
        (8999, PriorityClass.NONE),
        (9000, PriorityClass.PROD),
        (9999, PriorityClass.PROD),
        (10000, PriorityClass.NONE),
        (7000, PriorityClass.MID),
        (5999, PriorityClass.BATCH),
        (3000, PriorityClass.FREE),
        (None, PriorityClass.NONE),
    ],
)
def test_bands_include_both_ends(priority: int | None, expected: PriorityClass) -> None:
    assert qos.priority_class_of({}, priority) is expected


def test_a_label_hides_the_priority_even_when_it_is_unknown() -> None:
    assert qos.priority_class_of({qos.LABEL_PRIORITY_CLASS: "x"}, 9500) is PriorityClass.NONE
    assert qos.priority_class_of({qos.LABEL_PRIORITY_CLASS: "koord-free"}, 9500) is PriorityClass.FREE


def test_class_falls_back_to_qos() -> None:
    assert qos.priority_class_with_default({}, None, KubernetesQoS.BEST_EFFORT) is PriorityClass.BATCH
    assert qos.priority_class_with_default({}, None, KubernetesQoS.GUARANTEED) is PriorityClass.PROD
    label = {qos.LABEL_QOS_CLASS: "SYSTEM"}
    assert qos.priority_class_with_default(label, None, KubernetesQoS.BEST_EFFORT) is PriorityClass.PROD


def test_qos_falls_back_to_kubernetes() -> None:
    assert qos.qos_class_with_default({}, "Guaranteed") is QoSClass.LSR
    assert qos.qos_class_with_default({qos.LABEL_QOS_CLASS: "be"}, "Burstable") is QoSClass.LS


def test_priority_zero_means_unsaid() -> None:
    assert pod_requests.priority_value({}, 0, "BestEffort") == 5500
    assert pod_requests.priority_value({}, -1, "BestEffort") == -1


@pytest.mark.parametrize("text", ["08", "0x", "1__0", "_1", "1_", "0b2", "", "+", " 1", "1 ", "9" * 300, "٣"])
def test_what_is_no_integer_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(ManifestError):
        qos.parse_integer(text)


@pytest.mark.parametrize(
    ("text", "value"), [("0_7", 7), ("0x_f", 15), ("-0b1", -1), ("0O17", 15), ("0", 0), ("00", 0)]
)
def test_integers_by_prefix(text: str, value: int) -> None:
    assert qos.parse_integer(text) == value


def test_sub_priority_names_the_label() -> None:
    with pytest.raises(ManifestError, match=r"metadata\.labels\[koordinator\.sh/priority\]"):
        qos.sub_priority({qos.LABEL_PRIORITY: "high"})


def test_resource_names_of_classes() -> None:
    assert qos.resource_name("koord-batch", "cpu") == "kubernetes.io/batch-cpu"
    assert qos.resource_name("koord-mid", "nvidia.com/gpu") is None
    assert qos.resource_name("koord-free", "cpu") is None
    assert qos.resource_name("", "nvidia.com/gpu") == "nvidia.com/gpu"


def test_a_sidecar_runs_beside_later_init_containers() -> None:
    sidecar = ContainerResources({"cpu": 1}, restartable=True)
    init = ContainerResources({"cpu": 3})
    assert pod_requests.effective_request([ContainerResources({"cpu": 1})], [sidecar, init]) == {"cpu": 4}
    assert pod_requests.effective_request([ContainerResources({"cpu": 1})], [init, sidecar]) == {"cpu": 3}


def test_pod_level_amounts_replace_by_name_before_overhead() -> None:
    request = pod_requests.effective_request(
        [ContainerResources({"cpu": 1, "memory": 2, "x": 3})],
        pod_level={"cpu": 5, "x": 9},
        overhead={"cpu": 1},
    )
    assert request == {"cpu": 6, "memory": 2, "x": 3}


def test_guaranteed_needs_equal_limits_everywhere() -> None:
    both = {"cpu": 1, "memory": 1}
    full = ContainerResources(both, both)
    assert qos.kubernetes_qos_of([full]) is KubernetesQoS.GUARANTEED
    assert qos.kubernetes_qos_of([full], [ContainerResources(both)]) is KubernetesQoS.BURSTABLE
    assert qos.kubernetes_qos_of([ContainerResources()], (), full) is KubernetesQoS.GUARANTEED
    assert qos.kubernetes_qos_of([ContainerResources({"cpu": 0})]) is KubernetesQoS.BEST_EFFORT
