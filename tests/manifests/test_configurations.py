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


KOORDINATOR = "scheduling.koordinator.sh/v1alpha1"


def test_fields_of_koordinators_objects_that_nobody_reads_are_named_once_for_a_kind() -> None:
    template = {"spec": {"containers": [{"name": "c"}]}}
    owners = [{"object": {"name": "x"}}]
    layers = [{"topologyLayer": "NodeTopologyLayer"}]
    profiled = {"quotaName": "q", "quotaLabels": {}, "nodeSelector": {"matchLabels": {"a": "b"}}}
    groups = [
        obj("PodGroup", name, "scheduling.sigs.k8s.io/v1alpha1", spec={"minMembers": 3}) for name in "abc"
    ]
    loaded = snapshot_from_objects(
        [
            *groups,
            obj("Reservation", "r", KOORDINATOR, spec={"owner": [], "owners": owners, "template": template}),
            obj("Device", "d", KOORDINATOR, spec={"devices": [], "device": []}),
            obj(
                "ClusterNetworkTopology", "default", KOORDINATOR, spec={"networkTopologySpec": layers, "l": 1}
            ),
            obj(
                "PodMigrationJob", "j", KOORDINATOR, spec={"podRef": {"namespace": "d", "name": "p"}, "m": 1}
            ),
            obj("ElasticQuota", "q", "scheduling.sigs.k8s.io/v1alpha1", spec={"mx": {"cpu": 1}}),
            obj("ClusterColocationProfile", "c", "config.koordinator.sh/v1alpha1", spec={"qos": "BE"}),
            obj("ElasticQuotaProfile", "e", "quota.koordinator.sh/v1alpha1", spec={**profiled, "ratio": 1}),
        ]
    )
    unread = "has no effect: nothing here reads it"
    found = {(one.object_name, one.path): one.message for one in loaded.warnings if unread in one.message}
    assert found == {
        ("PodGroup a", "spec.minMembers"): f"{unread} (here and in 2 more)",
        ("Reservation r", "spec.owner"): unread,
        ("Device d", "spec.device"): unread,
        ("ClusterNetworkTopology default", "spec.l"): unread,
        ("PodMigrationJob j", "spec.m"): unread,
        ("ElasticQuota q", "spec.mx"): unread,
        ("ClusterColocationProfile c", "spec.qos"): unread,
        ("ElasticQuotaProfile e", "spec.ratio"): unread,
    }


def test_a_reservation_on_a_node_that_is_not_there_is_named() -> None:
    held = obj(
        "Reservation",
        "r",
        KOORDINATOR,
        metadata={"uid": "u"},
        spec={"owners": [{"object": {"name": "x"}}], "ttl": "1h", "template": {"spec": {"containers": []}}},
        status={"phase": "Available", "nodeName": "gone", "allocatable": {"cpu": "4"}},
    )
    assert "status.nodeName: no node gone in the dump; the reservation holds nothing" in told(held)
