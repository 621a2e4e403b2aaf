"""ConfigMaps of the control plane: every key and field of them is used, or named."""

from __future__ import annotations

import json
from typing import Any

from koordcore.manifests import snapshot_from_objects
from tests.manifests.builders import obj

STRATEGY = {
    "enable": True,
    "cpuReclaimThresholdPercent": 70,
    "memoryreclaimthresholdpercent": 80,
    "metricReportIntervalSeconds": 30,
    "cpuReclaimThreshold": 1,
    "nodeConfigs": [{"name": "x", "nodeSelector": {"matchLabels": {"a": "b"}}, "enable": False, "bogus": 1}],
}


def config_map(name: str, namespace: str = "koordinator-system", **data: Any) -> dict[str, Any]:
    texts = {key.replace("_", "-"): json.dumps(value) for key, value in data.items()}
    return obj("ConfigMap", name, metadata={"namespace": namespace}, data=texts)


def told(one: dict[str, Any]) -> list[str]:
    return [f"{found.path}: {found.message}" for found in snapshot_from_objects([one]).warnings]


def test_what_the_configuration_of_colocation_says_in_vain_is_named() -> None:
    whole = config_map(
        "slo-controller-config",
        colocation_config=STRATEGY,
        resource_qos_config={"clusterStrategy": {"lsClass": {"cpuQOS": {"enable": True}}}},
        cpu_burst_config={"clusterStrategy": {"policy": "auto"}},
        colocation_confg={"enable": True},
    )
    assert told(whole) == [
        (
            "data[colocation-config]: has no effect here: cpuReclaimThreshold, nodeConfigs[0].bogus, "
            "metricReportIntervalSeconds"
        ),
        "data: has no effect here: colocation-confg, cpu-burst-config",
    ]


def test_a_configuration_in_another_namespace_is_not_looked_at() -> None:
    there = config_map("slo-controller-config", "default", colocation_config={"enable": True})
    assert told(there) == ["metadata.namespace: not looked at: only the one in koordinator-system counts"]


def test_templates_of_cards_under_another_key_are_named() -> None:
    templates = {"huawei-Ascend-310P": {"vir01": {"huawei.com/npu-core": 1}}}
    assert told(config_map("gpu-shared-resource-templates", templates=templates)) == [
        "data: has no effect: templates; templates stand under data.yaml"
    ]
