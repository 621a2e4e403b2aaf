"""Device annotations: what is read, what is written, and how a fault is worded."""

from __future__ import annotations

import json

import pytest
from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.device_requests import (
    AllocateStrategy,
    ExclusivePolicy,
    PartitionAllocatePolicy,
)
from koordcore.model.devices import (
    DeviceType,
)
from koordcore.protocol.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_ALLOCATED,
    DEVICE_JOINT_ALLOCATE,
    GPU_PARTITION_SPEC,
    format_allocation,
    parse_allocation,
    parse_hints,
    parse_joint,
    parse_partition_spec,
    replace_deprecated,
)
from koordcore.protocol.device_object import (
    GPU_PARTITIONS,
    device_object_from_manifest,
    inventory_of,
    parse_partition_table,
    templates_from_manifest,
)
from koordcore.protocol.go_json import syntax_error

WRITTEN = (
    '{"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-core":"100","koordinator.sh/gpu-memory":"80Gi"},'
    '"id":"GPU-1","extension":{"gpuSharedResourceTemplate":"vir02"}}],'
    '"rdma":[{"minor":0,"resources":{"koordinator.sh/rdma":"1"},"id":"0000:1f:00.0",'
    '"extension":{"vfs":[{"busID":"0000:1f:00.2"},{"minor":-1,"busID":"0000:1f:00.3"}]}}]}'
)


def message(annotations: dict[str, str], parse: object) -> str:
    assert callable(parse)
    with pytest.raises(ManifestError) as caught:
        parse(annotations)
    return caught.value.problems[0].message


def test_an_allocation_is_written_as_the_agent_reads_it() -> None:
    """Field order, empty fields left out, VF minor 0 left out and -1 shown; reading gives the same back."""
    allocation = parse_allocation({DEVICE_ALLOCATED: WRITTEN})
    assert allocation is not None
    assert format_allocation(allocation) == WRITTEN
    assert allocation.minors(DeviceType.GPU) == (1,)
    assert allocation.total["koordinator.sh/gpu-memory"] == 80 * 2**30


def test_keys_match_without_case_and_old_names_count() -> None:
    """As upstream's decoder reads them."""
    text = '{"gpu":[{"Minor":2,"RESOURCES":{"kubernetes.io/gpu-core":"50"},"ID":"x"}],"tpu":[{"minor":0}]}'
    allocation = parse_allocation({DEVICE_ALLOCATED: text})
    assert allocation is not None
    assert list(allocation.devices) == [DeviceType.GPU]
    (part,) = allocation.devices[DeviceType.GPU]
    assert (part.minor, part.id, dict(part.resources)) == (2, "x", {"koordinator.sh/gpu-core": 50})


def test_a_null_hint_is_an_empty_one() -> None:
    """Upstream crashes on it."""
    hints = parse_hints({DEVICE_ALLOCATE_HINT: '{"rdma":null}'})
    assert hints[DeviceType.RDMA].vf_selector is None


def test_hints_are_read_and_unknown_words_count_as_none() -> None:
    """Selectors, strategy and policy; what nobody knows is no wish."""
    text = json.dumps(
        {
            "rdma": {
                "selector": {"matchLabels": {"a": "b"}},
                "vfSelector": {"matchExpressions": [{"key": "v", "operator": "Exists"}]},
                "allocateStrategy": "RequestsAsCount",
                "exclusivePolicy": "PCIeLevel",
            },
            "gpu": {"allocateStrategy": "Odd", "exclusivePolicy": "Odd", "requiredTopologyScope": "PCIe"},
            "tpu": {},
        }
    )
    hints = parse_hints({DEVICE_ALLOCATE_HINT: text})
    assert sorted(hints) == [DeviceType.GPU, DeviceType.RDMA]
    rdma, gpu = hints[DeviceType.RDMA], hints[DeviceType.GPU]
    assert rdma.selector is not None
    assert rdma.selector.matches({"a": "b"})
    assert rdma.vf_selector is not None
    assert not rdma.vf_selector.matches({})
    assert (rdma.strategy, rdma.exclusive) == (AllocateStrategy.REQUESTS_AS_COUNT, ExclusivePolicy.PCIE_LEVEL)
    assert (gpu.strategy, gpu.exclusive) == (AllocateStrategy.NONE, ExclusivePolicy.NONE)
    assert gpu.required_topology_scope == "PCIe"


@pytest.mark.parametrize(
    ("key", "text", "parse", "expected"),
    [
        (
            DEVICE_ALLOCATE_HINT,
            '{"rdma":{"allocateStrategy":1}}',
            parse_hints,
            (
                "invalid DeviceAllocateHint annotation, err: json: cannot unmarshal number into Go "
                "struct field DeviceHint.allocateStrategy of type extension.DeviceAllocateStrategy"
            ),
        ),
        (
            DEVICE_ALLOCATE_HINT,
            '{"rdma":{"vfSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}}',
            parse_hints,
            (
                "invalid VFSelector of DeviceHint, deviceType: rdma, err: "
                '"Is" is not a valid label selector operator'
            ),
        ),
        (
            DEVICE_JOINT_ALLOCATE,
            '{"deviceTypes":["gpu",',
            parse_joint,
            "invalid DeviceJointAllocate annotation, err: unexpected end of JSON input",
        ),
        (
            GPU_PARTITION_SPEC,
            '{"ringBusBandwidth":"fast"}',
            parse_partition_spec,
            (
                "invalid GPUPartitionSpec annotation, err: quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ),
        ),
        (
            DEVICE_ALLOCATED,
            "[]",
            parse_allocation,
            "json: cannot unmarshal array into Go value of type extension.DeviceAllocations",
        ),
    ],
    ids=["type", "operator", "cut short", "quantity", "array"],
)
def test_faults_are_worded_as_upstream_words_them(key: str, text: str, parse: object, expected: str) -> None:
    """The reason of a refusal is the decoder's."""
    assert message({key: text}, parse) == expected


def test_joint_types_and_partition_specs() -> None:
    """Duplicates count once, the order stays; an empty specification is one."""
    joint = parse_joint(
        {DEVICE_JOINT_ALLOCATE: '{"deviceTypes":["rdma","gpu","rdma","tpu"],"requiredScope":"SamePCIe"}'}
    )
    assert joint is not None
    assert joint.types == (DeviceType.RDMA, DeviceType.GPU)
    assert joint.same_pcie
    spec = parse_partition_spec({GPU_PARTITION_SPEC: "{}"})
    assert spec is not None
    assert spec.policy is PartitionAllocatePolicy.BEST_EFFORT
    assert parse_partition_spec({}) is None
    full = parse_partition_spec(
        {GPU_PARTITION_SPEC: '{"allocatePolicy":"Restricted","ringBusBandwidth":"1Gi"}'}
    )
    assert full is not None
    assert (full.policy, full.ring_bus_bandwidth) == (PartitionAllocatePolicy.RESTRICTED, 2**30)


def test_old_names_give_way_to_new_ones() -> None:
    """An old name beside the new one is dropped; other names stay."""
    assert replace_deprecated({"kubernetes.io/gpu": 1, "koordinator.sh/gpu": 2, "cpu": 3}) == {
        "koordinator.sh/gpu": 2,
        "cpu": 3,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "unexpected end of JSON input"),
        ("{x", "invalid character 'x' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("nope", "invalid character 'o' in literal null (expecting 'u')"),
        ("1 2", "invalid character '2' after top-level value"),
        ("-x", "invalid character 'x' in numeric literal"),
        ("1.", "unexpected end of JSON input"),
        ("1.x", "invalid character 'x' after decimal point in numeric literal"),
        ("1e+x", "invalid character 'x' in exponent of numeric literal"),
        (r'"\q"', "invalid character 'q' in string escape code"),
        (r'"\u12x4"', r"invalid character 'x' in \u hexadecimal character escape"),
        ('"a\nb"', r"invalid character '\n' in string literal"),
        ("'a'", r"invalid character '\'' looking for beginning of value"),
        (' {"a": [1, -2.5e3, "é", true, null, {}]} ', None),
        ("01", "invalid character '1' after top-level value"),
    ],
)
def test_syntax_errors_have_the_decoders_words(text: str, expected: str | None) -> None:
    """The first character that cannot stand where it stands."""
    assert syntax_error(text) == expected


FLAT = {"2": [{"minors": [0, 1], "gpuLinkType": "NVLink", "ringBusBandwidth": "400Gi", "allocationScore": 1}]}


def test_tables_of_the_release_notes_are_read() -> None:
    """Link types between count and entry, in both places, and scores as text; each is named."""
    entry = {"minors": [0, 1], "allocationScore": "3"}
    for raw in ({"2": [{"NVLINK": entry}]}, {"2": {"NVLINK": [entry]}}):
        parsed = parse_partition_table({GPU_PARTITIONS: json.dumps(raw)})
        assert parsed.table is not None
        (one,) = parsed.table[2]
        assert (one.minors, one.allocation_score, one.link_type) == ((0, 1), 3, "NVLINK")
        assert parsed.aliases == (
            "link type between the count and the partitions",
            "allocationScore as text",
        )
    flat = parse_partition_table({GPU_PARTITIONS: json.dumps(FLAT)})
    assert flat.aliases == ()
    assert flat.table is not None
    assert flat.table[2][0].ring_bus_bandwidth == 400 * 2**30


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("null", "expected object"),
        ('{"two":[]}', "[two]"),
        ('{"2":[{"minors":["0"]}]}', "[2][0].minors[0]: expected int"),
        ('{"2":[{"minors":[0],"allocationScore":1.5}]}', "allocationScore: expected int"),
        ('{"2":[{"minors":[-1]}]}', "expected a minor"),
        ('{"2":[{"minors":[0],"ringBusBandwidth":"fast"}]}', "ringBusBandwidth"),
        ("{", "unexpected end"),
    ],
)
def test_one_bad_entry_voids_the_table(text: str, fault: str) -> None:
    """The error names the place; an empty table and an empty size are no errors."""
    parsed = parse_partition_table({GPU_PARTITIONS: text})
    assert parsed.table is None
    assert fault in parsed.error
    assert parse_partition_table({GPU_PARTITIONS: "{}"}).table == immutabledict()
    assert parse_partition_table({GPU_PARTITIONS: '{"2":null}'}).table == immutabledict({2: ()})
    assert parse_partition_table({GPU_PARTITIONS: ""}).error == ""


def test_a_device_object_is_read_with_its_faults() -> None:
    """A missing health is false; unknown types and doubled minors are told; a wrong type names its path."""
    raw = {
        "metadata": {"annotations": {GPU_PARTITIONS: "{"}},
        "spec": {
            "devices": [
                {"type": "gpu", "minor": 0},
                {"type": "tpu", "minor": 0},
                {"type": "gpu", "minor": 0, "health": True, "topology": {"nodeID": -1}},
            ]
        },
    }
    inventory = inventory_of(device_object_from_manifest(raw))
    assert [one.health for one in inventory.devices] == [True]
    assert [warning.partition(":")[0] for warning in inventory.warnings] == [
        "spec.devices[1].type",
        "spec.devices[2].minor",
        f"metadata.annotations[{GPU_PARTITIONS}]",
    ]
    with pytest.raises(ManifestError, match=r'spec\.devices\[0\]\.topology\.nodeID: expected int, got "a"'):
        device_object_from_manifest(
            {"spec": {"devices": [{"type": "gpu", "minor": 0, "topology": {"nodeID": "a"}}]}}
        )


def test_templates_are_read() -> None:
    """Model to template to amounts."""
    text = json.dumps(
        {"huawei-310P": {"vir01": {"huawei.com/npu-core": "1", "koordinator.sh/gpu-memory": "3Gi"}}}
    )
    templates = templates_from_manifest({"data": {"data.yaml": text}})
    assert dict(templates["huawei-310P"]["vir01"]) == {
        "huawei.com/npu-core": 1,
        "koordinator.sh/gpu-memory": 3 * 2**30,
    }
    assert templates_from_manifest({}) == {}
    with pytest.raises(ManifestError, match=r"data\[data\.yaml\]\.m\.t"):
        templates_from_manifest({"data": {"data.yaml": '{"m":{"t":1}}'}})
