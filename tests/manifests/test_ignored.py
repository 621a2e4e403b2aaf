"""What upstream ignores in silence is said aloud."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.manifests import snapshot_from_objects
from tests.manifests.builders import node, obj, pod

PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"
PREFIX = "scheduling.koordinator.sh/"


def warnings(raw: Any) -> list[str]:
    return [f"{one.path}: {one.message}" for one in snapshot_from_objects([raw]).warnings]


def annotated(key: str, value: Any) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value)
    return [
        one.removeprefix(f"metadata.annotations[{key}]")
        for one in warnings(pod(metadata={"annotations": {key: text}}))
    ]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("reservation-ignored", "true", [": a label is meant; as an annotation it is ignored"]),
        (
            "device-joint-allocate",
            {"deviceTypes": ["gpu", "nic"]},
            ['.deviceTypes[1]: "nic" is none of fpga, gpu, rdma; it is ignored'],
        ),
        (
            "device-allocate-hint",
            {"gpu": {"allocateStrategy": "ApplyToAll", "requiredTopologyScope": "Rack"}, "tpu": {}},
            [
                '[tpu]: "tpu" is none of fpga, gpu, rdma; it is ignored',
                '.gpu.allocateStrategy: "ApplyToAll" is none of ApplyForAll, RequestsAsCount; it is ignored',
                '.gpu.requiredTopologyScope: "Rack" is none of Device, PCIe, NUMANode, Node; it is ignored',
            ],
        ),
        (
            "device-joint-allocate",
            {"deviceTypes": ["gpu"], "requiredScope": "samePCIe"},
            ['.requiredScope: "samePCIe" is none of SamePCIe; it is ignored'],
        ),
        (
            "gpu-partition-spec",
            {"allocatePolicy": "restricted"},
            ['.allocatePolicy: "restricted" is none of Restricted, BestEffort; it is ignored'],
        ),
        (
            "resource-spec",
            {"PreferredCPUBindPolicy": "FullPCPU"},
            [
                (
                    '.preferredCPUBindPolicy: "FullPCPU" is none of '
                    "Default, FullPCPUs, SpreadByPCPUs, ConstrainedBurst; it is ignored"
                )
            ],
        ),
        (
            "numa-topology-spec",
            {"numaTopologyPolicy": "Restricted", "singleNUMANodeExclusive": "No"},
            ['.singleNUMANodeExclusive: "No" is none of Preferred, Required; it is ignored'],
        ),
        ("exact-match-reservation", {"resourceNames": ["cpu"]}, []),
        ("resource-spec", {"preferredCPUBindPolicy": "Default"}, []),
        ("device-allocate-hint", {"gpu": {"selector": {"matchLabels": {"a": "b"}}}}, []),
    ],
)
def test_unknown_words_in_annotations(key: str, value: Any, expected: list[str]) -> None:
    assert annotated(PREFIX + key, value) == expected


@pytest.mark.parametrize(
    "key",
    [
        "device-allocate-hint",
        "device-joint-allocate",
        "gpu-partition-spec",
        "device-allocated",
        "resource-spec",
        "resource-status",
        "numa-topology-spec",
        "exact-match-reservation",
        "reservation-affinity",
    ],
)
def test_text_that_is_no_json_is_told_once(key: str) -> None:
    (found,) = annotated(PREFIX + key, '{"resourceNames":{"cpu","memory"}}')
    assert found.startswith(": ")


def test_labels_of_pods() -> None:
    labels = {
        "koordinator.sh/qosClass": "LSX",
        "koordinator.sh/priority-class": "prod",
        "koordinator.sh/priority": "high",
        PREEMPTIBLE: "False",
    }
    assert warnings(pod(metadata={"labels": labels})) == [
        'metadata.labels[koordinator.sh/qosClass]: "LSX" is none of LSE, LSR, LS, BE, SYSTEM; it is ignored',
        (
            'metadata.labels[koordinator.sh/priority-class]: "prod" is none of '
            "koord-prod, koord-mid, koord-batch, koord-free; it is ignored"
        ),
        'metadata.labels[koordinator.sh/priority]: expected an integer, got "high"',
        f'metadata.labels[{PREEMPTIBLE}]: "False" is none of true, false; it is ignored',
    ]


def test_gangs_of_pods() -> None:
    annotations = {
        "gang.scheduling.koordinator.sh/name": "g",
        "gang.scheduling.koordinator.sh/min-available": "x",
    }
    (found,) = warnings(pod(metadata={"annotations": annotations}))
    assert found.startswith("metadata.annotations[gang.scheduling.koordinator.sh/min-available]: ")


def test_labels_and_annotations_of_nodes() -> None:
    raw = node(
        metadata={
            "labels": {
                "node.koordinator.sh/numa-topology-policy": "SingleNuma",
                "node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly",
                "node.koordinator.sh/gpu-partition-policy": "honor",
            },
            "annotations": {
                "scheduling.koordinator.sh/usage-thresholds": "{",
                "node.koordinator.sh/reservation": '{"reservedCPUs": "a"}',
            },
        }
    )
    found = warnings(raw)
    assert [one.partition(": ")[0] for one in found] == [
        "metadata.annotations[scheduling.koordinator.sh/usage-thresholds]",
        "metadata.annotations[node.koordinator.sh/reservation]",
        "metadata.labels[node.koordinator.sh/numa-topology-policy]",
        "metadata.labels[node.koordinator.sh/gpu-partition-policy]",
    ]


def test_right_values_are_silent() -> None:
    labels = {"koordinator.sh/qosClass": "LS", "koordinator.sh/priority": "9"}
    annotations = {
        f"{PREFIX}device-joint-allocate": '{"deviceTypes":["gpu","rdma"],"requiredScope":"SamePCIe"}',
        "node.koordinator.sh/resctrl": '{"llc": {"schemata": {"range": [0, 30]}}}',
    }
    assert warnings(pod(metadata={"labels": labels, "annotations": annotations})) == []


@pytest.mark.parametrize(
    ("when", "terms", "path"),
    [
        ("required", lambda term: {"nodeSelectorTerms": [term]}, "nodeSelectorTerms[0]"),
        ("preferred", lambda term: [{"weight": 5, "preference": term}], "[0].preference"),
    ],
)
def test_a_comparison_with_what_is_no_integer_is_said_aloud(when: str, terms: Any, path: str) -> None:
    term = {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["three"]}]}
    field = f"{when}DuringSchedulingIgnoredDuringExecution"
    affinity = {"nodeAffinity": {field: terms(term)}}
    dot = "." if path[0] != "[" else ""
    place = f"spec.affinity.nodeAffinity.{field}{dot}{path}.matchExpressions[0].values[0]"
    told = 'Gt needs an integer, got "three"; it matches no node'
    assert warnings(pod(affinity=affinity)) == [f"{place}: {told}"]


@pytest.mark.parametrize("text", ["None", "Strange"])
def test_a_numa_policy_that_is_none_is_said_to_be_refused(text: str) -> None:
    told = f'"{text}" is none of BestEffort, Restricted, SingleNUMANode'
    assert annotated(PREFIX + "numa-topology-spec", {"numaTopologyPolicy": text}) == [
        f".numaTopologyPolicy: {told}; no node takes the pod"
    ]
    label = "node.koordinator.sh/numa-topology-policy"
    assert warnings(node(metadata={"labels": {label: text}})) == [
        f"metadata.labels[{label}]: {told}; the node takes no pod"
    ]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"llc": {"schemata": {"range": [0, 100]}}, "mb": {"schemata": {"percent": 100}}}, []),
        ({"llc": {"schemata": {"range": [0, 130]}}}, [".llc: range [0, 130] goes beyond 100 %"]),
        (
            {"mb": {"schemata": {"percent": 20}, "schemataPerCache": [{"cacheID": 0, "percent": 120}]}},
            [".mb: 120 % is more than all of it"],
        ),
    ],
)
def test_shares_beyond_all_of_a_cache_or_of_bandwidth(limits: Any, expected: list[str]) -> None:
    assert annotated("node.koordinator.sh/resctrl", limits) == expected


def test_a_scope_is_required_of_cards_alone() -> None:
    hints = {kind: {"requiredTopologyScope": "PCIe"} for kind in ("fpga", "gpu", "rdma")}
    assert annotated(PREFIX + "device-allocate-hint", hints) == [
        f".{kind}.requiredTopologyScope: only gpu is chosen by a scope; it is ignored"
        for kind in ("fpga", "rdma")
    ]


def test_cards_are_counted_by_what_is_requested() -> None:
    hints = {kind: {"allocateStrategy": "ApplyForAll"} for kind in ("fpga", "gpu", "rdma")}
    assert annotated(PREFIX + "device-allocate-hint", hints) == [
        ".gpu.allocateStrategy: cards are counted by what the pod requests; it is ignored"
    ]


@pytest.mark.parametrize(
    ("qos", "priority", "spec", "expected"),
    [
        ("LSR", 9500, {"requiredCPUBindPolicy": "FullPCPUs", "preferredCPUExclusivePolicy": "PCPULevel"}, []),
        ("LS", 9500, {"requiredCPUBindPolicy": "FullPCPUs"}, ["requiredCPUBindPolicy: only pods"]),
        ("LSR", 5500, {"preferredCPUBindPolicy": "SpreadByPCPUs"}, ["preferredCPUBindPolicy: only pods"]),
        ("", 0, {"preferredCPUExclusivePolicy": "PCPULevel"}, ["preferredCPUExclusivePolicy: only pods"]),
        ("", 0, {"preferredCPUBindPolicy": "Default", "preferredCPUExclusivePolicy": "None"}, []),
        ("LSR", 9500, {"requiredCPUBindPolicy": "ConstrainedBurst"}, ["requiredCPUBindPolicy: Constrained"]),
    ],
)
def test_who_is_never_bound_to_cpus(
    qos: str, priority: int, spec: dict[str, str], expected: list[str]
) -> None:
    key = PREFIX + "resource-spec"
    labels = {"koordinator.sh/qosClass": qos} if qos else {}
    asked = pod(metadata={"annotations": {key: json.dumps(spec)}, "labels": labels}, priority=priority)
    found = [one.partition(f"[{key}].")[2] for one in warnings(asked) if key in one]
    assert [one[: len(begin)] for one, begin in zip(found, expected, strict=True)] == expected


@pytest.mark.parametrize("text", ["honor", "Honor"])
def test_a_partition_policy_on_a_device_object(text: str) -> None:
    """It is where upstream's agent writes it."""
    label = "node.koordinator.sh/gpu-partition-policy"
    device = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": "n", "labels": {label: text}},
        "spec": {"devices": []},
    }
    told = f'metadata.labels[{label}]: "honor" is none of Honor, Prefer; it is ignored'
    assert [one for one in warnings(device) if label in one] == [told] * (text == "honor")


PREFIXED = "node.koordinator.sh/"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        (PREFIXED + "cpu-topology", "{", ": not JSON"),
        (PREFIXED + "cpu-topology", '{"detail": [{"id": 0, "core": 0, "socket": 0, "node": 0}]}', None),
        (
            PREFIXED + "pod-cpu-allocs",
            '[{"uid": "u", "managedByKubelet": true, "cpuset": "0-x"}]',
            "[0].cpuset: ",
        ),
        (PREFIXED + "pod-cpu-allocs", '[{"uid": "u", "managedByKubelet": true, "cpuset": "0-1"}]', None),
        (PREFIXED + "system-qos-resource", '{"cpuset": "1-"}', ": "),
        (PREFIXED + "cpu-shared-pools", '[{"socket": "0"}]', "[0].socket: "),
        (PREFIXED + "resource-amplification-ratio", '{"cpu": "2"}', "[cpu]: "),
        ("kubelet.koordinator.sh/cpu-manager-policy", '{"reservedCPUs": "0-"}', ": "),
        (
            "kubelet.koordinator.sh/cpu-manager-policy",
            '{"policy": "static", "options": {"full-pcpus-only": "True"}}',
            '.options[full-pcpus-only]: "True" is neither true nor false',
        ),
        (
            "kubelet.koordinator.sh/cpu-manager-policy",
            '{"policy": "static", "options": {"full-pcpus-only": "true"}}',
            None,
        ),
    ],
)
def test_what_a_node_topology_says_in_vain(key: str, text: str, expected: str | None) -> None:
    """Upstream takes it for absent."""
    own = obj(
        "NodeResourceTopology", "n1", "topology.node.k8s.io/v1alpha1", metadata={"annotations": {key: text}}
    )
    found = [f"{one.path}: {one.message}" for one in snapshot_from_objects([node(), own]).warnings]
    if expected is None:
        assert found == []
        return
    (told,) = found
    assert told.startswith(f"metadata.annotations[{key}]{expected}")
    assert told.endswith("; it is ignored")


@pytest.mark.parametrize(
    ("names", "heeded"),
    [
        (["RestrictedPodLevel"], False),
        (["SingleNUMANodeContainerLevel"], False),
        (["SingleNUMANodePodLevel"], True),
        (["None"], True),
        ([], True),
    ],
)
def test_policies_of_the_kubelet_that_are_not_heeded(names: list[str], heeded: bool) -> None:
    own = obj("NodeResourceTopology", "n1", "topology.node.k8s.io/v1alpha1", topologyPolicies=names)
    found = [one.path for one in snapshot_from_objects([node(), own]).warnings]
    assert found == ([] if heeded else ["topologyPolicies"])


NODE_NOTE, NODE_LABEL = "metadata.annotations", "metadata.labels"


@pytest.mark.parametrize(
    ("where", "key", "text", "expected"),
    [
        (NODE_NOTE, "thirdPartyAllocations", "{", ["]: not JSON"]),
        (NODE_NOTE, "thirdPartyAllocations", '{"allocations": [{"name": "yarn"}]}', []),
        (NODE_NOTE, "cpu-normalization-ratio", "abc", [']: expected a number, got "abc"']),
        (NODE_NOTE, "cpu-normalization-ratio", "-1", ["]: expected a positive number"]),
        (NODE_NOTE, "cpu-normalization-ratio", "1.20", []),
        (
            NODE_NOTE,
            "colocation-strategy",
            '{"cpuReclaimThreshold": 10, "MidReclaimMode": "Static"}',
            [
                "].cpuReclaimThreshold: unknown field; it is ignored",
                '].midReclaimMode: "Static" is none of static',
            ],
        ),
        (NODE_NOTE, "colocation-strategy", '{"CPUReclaimThresholdPercent": 10}', []),
        (NODE_NOTE, "colocation-strategy", "null", []),
        (NODE_NOTE, "resource-amplification-ratio", '{"cpu": 0.5}', ["][cpu]: 0.5 is less than 1"]),
        (NODE_NOTE, "resource-amplification-ratio", '{"cpu": 1, "memory": 1.0}', []),
        (NODE_NOTE, "reservation", '{"applyPolicy": "CPUsOnly"}', ['].applyPolicy: "CPUsOnly" is none of']),
        (NODE_NOTE, "reservation", '{"applyPolicy": "ReservedCPUsOnly", "reservedCPUs": "0"}', []),
        (NODE_LABEL, "cpu-reclaim-ratio", "abc", [']: expected a number, got "abc"']),
        (NODE_LABEL, "memory-reclaim-ratio", "-0.5", [']: expected a ratio of at least 0, got "-0.5"']),
        (NODE_LABEL, "mid-static-cpu-reserved-ratio", "0.5", []),
    ],
)
def test_what_a_node_says_in_vain_about_what_it_lends(
    where: str, key: str, text: str, expected: list[str]
) -> None:
    own = node(metadata={where.partition(".")[2]: {PREFIXED + key: text}})
    found = [one.removeprefix(f"{where}[{PREFIXED}{key}") for one in warnings(own)]
    assert [one[: len(begin)] for one, begin in zip(found, expected, strict=True)] == expected


SELECTED = {"nodeSelector": {"matchLabels": {"pool": "a"}}}


USAGE, RECLAIMABLE = "it counts as usage", "what is reclaimable counts"
NOTHING = "none of the configuration is taken"
OTHERWISE = "the strategy of all nodes counts instead of this one"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"memoryCalculatePolicy": "request", "midReclaimMode": "static", "nodeConfigs": [SELECTED]}, {}),
        ({"memoryCalculatePolicy": "Request"}, {"memoryCalculatePolicy": USAGE}),
        ({"cpuCalculatePolicy": "request"}, {"cpuCalculatePolicy": USAGE}),
        ({"midReclaimMode": "Static"}, {"midReclaimMode": RECLAIMABLE}),
        ({"midCPUThresholdPercent": 110}, {"midCPUThresholdPercent": NOTHING}),
        ({"resourceDiffThreshold": 0}, {"resourceDiffThreshold": NOTHING}),
        (
            {"nodeConfigs": [SELECTED, {**SELECTED, "degradeTimeMinutes": 0, "midReclaimMode": "all"}]},
            {
                "nodeConfigs[1].degradeTimeMinutes": OTHERWISE,
                "nodeConfigs[1].midReclaimMode": RECLAIMABLE,
            },
        ),
        (
            {"nodeConfigs": [{}, {"nodeSelector": {"matchLabels": {"a b": ""}}}]},
            {
                "nodeConfigs[0].nodeSelector": "it selects no node",
                "nodeConfigs[1].nodeSelector": "it selects no node",
            },
        ),
    ],
)
def test_what_a_colocation_configuration_says_in_vain(said: dict[str, Any], expected: dict[str, str]) -> None:
    data = {"colocation-config": json.dumps({"enable": True, **said})}
    own = obj("ConfigMap", "slo-controller-config", metadata={"namespace": "koordinator-system"}, data=data)
    found = [one.removeprefix("data[colocation-config].") for one in warnings(own)]
    told = {one.partition(": ")[0]: one.rpartition("; ")[2] for one in found}
    assert (told, len(found)) == (expected, len(expected))


def test_an_empty_policy_of_collecting_memory_spoils_the_configuration() -> None:
    data = {"colocation-config": json.dumps({"metricMemoryCollectPolicy": ""})}
    own = obj("ConfigMap", "slo-controller-config", metadata={"namespace": "koordinator-system"}, data=data)
    assert f"data[colocation-config].metricMemoryCollectPolicy: it must not be empty; {NOTHING}" in warnings(
        own
    )


@pytest.mark.parametrize("key", ["cpu-normalization-config", "resource-amplification-config"])
def test_exceptions_of_ratios_that_select_no_node_are_named(key: str) -> None:
    data = {key: json.dumps({"enable": False, "nodeConfigs": [SELECTED, {}]})}
    own = obj("ConfigMap", "slo-controller-config", metadata={"namespace": "koordinator-system"}, data=data)
    assert warnings(own) == [f"data[{key}].nodeConfigs[1].nodeSelector: absent; it selects no node"]


@pytest.mark.parametrize(
    ("key", "said", "idle"),
    [
        ("resource-amplification-config", {"enabled": True}, "enabled"),
        (
            "resource-amplification-config",
            {"nodeConfigs": [{"name": "a", "ratio": 1}]},
            "nodeConfigs[0].ratio",
        ),
        ("cpu-normalization-config", {"ratioModel": {"X": {"base": 1.5}}}, "ratioModel.X.base"),
    ],
)
def test_fields_of_ratio_configurations_that_nobody_reads_are_named(
    key: str, said: dict[str, Any], idle: str
) -> None:
    for one in said.get("nodeConfigs", ()):
        one["nodeSelector"] = {}
    data = {key: json.dumps(said)}
    own = obj("ConfigMap", "slo-controller-config", metadata={"namespace": "koordinator-system"}, data=data)
    assert warnings(own) == [f"data[{key}]: has no effect here: {idle}"]


def test_a_profile_with_a_class_that_is_none_says_so() -> None:
    def told(text: str) -> list[str]:
        spec = {"qosClass": text}
        return warnings(obj("ClusterColocationProfile", "p", "config.koordinator.sh/v1alpha1", spec=spec))

    assert told("BE") == told("") == []
    (found,) = told("BestEffort")
    assert found.startswith('spec.qosClass: "BestEffort" is none of LSE, LSR, LS, BE, SYSTEM; ')


@pytest.mark.parametrize("field", ["selector", "namespaceSelector"])
def test_a_profile_whose_selector_cannot_be_evaluated_applies_to_nobody_and_says_so(field: str) -> None:
    def told(selector: Any) -> list[str]:
        return warnings(
            obj("ClusterColocationProfile", "p", "config.koordinator.sh/v1alpha1", spec={field: selector})
        )

    wrong = {"matchExpressions": [{"key": "app", "operator": "Bad"}]}
    (found,) = told(wrong)
    assert found == (
        f'spec.{field}: "Bad" is not a valid label selector operator; the profile applies to no pod'
    )
    assert told({"matchLabels": {"app": "a"}}) == told({}) == []


QUOTA = "quota.scheduling.koordinator.sh/"
ROOT_ALONE = f"it counts with {QUOTA}is-root and {QUOTA}tree-id alone; it is ignored"


@pytest.mark.parametrize(
    ("where", "key", "text", "told"),
    [
        (NODE_LABEL, "allow-lent-resource", "False", '"False" is neither true nor false; it counts as true'),
        (NODE_LABEL, "is-parent", "True", '"True" is neither true nor false; it counts as false'),
        (NODE_LABEL, "is-root", "yes", '"yes" is neither true nor false; it counts as false'),
        (NODE_LABEL, "ignore-default-tree", "1", '"1" is neither true nor false; it counts as false'),
        (NODE_LABEL, "allow-force-update", "TRUE", '"TRUE" is neither true nor false; it counts as false'),
        (NODE_LABEL, "allow-lent-resource", "false", ""),
        (NODE_LABEL, "is-parent", "", ""),
        (NODE_NOTE, "shared-weight", '{"cpu":"0"}', "nothing of any resource counts as max"),
        (NODE_NOTE, "shared-weight", '{"cpu":"1"}', ""),
        (
            NODE_NOTE,
            "total-resource",
            '{"cpu":"1"}',
            ROOT_ALONE,
        ),
        (
            NODE_LABEL,
            "ignore-default-tree",
            "true",
            ROOT_ALONE,
        ),
    ],
)
def test_what_a_quota_says_in_vain(where: str, key: str, text: str, told: str) -> None:
    own = obj(
        "ElasticQuota",
        "q",
        "scheduling.sigs.k8s.io/v1alpha1",
        metadata={where.partition(".")[2]: {QUOTA + key: text}},
        spec={"max": {"cpu": "4"}, "min": {"cpu": "1"}},
    )
    assert warnings(own) == [f"{where}[{QUOTA}{key}]: {told}"] * bool(told)


@pytest.mark.parametrize(
    ("said", "keys", "told"),
    [
        ({}, "", []),
        ({"resourceRatio": "0.5", "nodeSelector": {}}, '["cpu"]', []),
        ({"resourceRatio": "1.5"}, "", ["spec.resourceRatio: expected a number above 0 and of at most 1"]),
        ({"resourceRatio": "90%"}, "", ["spec.resourceRatio: expected a number"]),
        ({"nodeSelector": None}, "", ["spec.nodeSelector: absent; it selects no node"]),
        ({"quotaName": ""}, "", ["spec.quotaName: absent; the profile makes no quota"]),
        ({}, "cpu", [f"{NODE_NOTE}[{QUOTA}resource-keys]: not JSON"]),
        ({}, '["cpu",5]', [f"{NODE_NOTE}[{QUOTA}resource-keys][1]: expected string, got 5"]),
    ],
)
def test_what_a_profile_of_a_quota_says_in_vain(said: dict[str, Any], keys: str, told: list[str]) -> None:
    spec = {"quotaName": "q", "nodeSelector": {"matchLabels": {"pool": "a"}}, **said}
    notes = {"annotations": {QUOTA + "resource-keys": keys}}
    own = obj("ElasticQuotaProfile", "p", "quota.koordinator.sh/v1alpha1", metadata=notes, spec=spec)
    made = obj("ElasticQuota", "q", "scheduling.sigs.k8s.io/v1alpha1", spec={"max": {"cpu": "4"}})
    found = [
        str(one.path and f"{one.path}: {one.message}") for one in snapshot_from_objects([own, made]).warnings
    ]
    assert len(found) == len(told)
    assert all(line.startswith(start) for line, start in zip(found, told, strict=True))
