"""Cache, bandwidth, cpu identity, and profiles."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordcore.colocation.cpuqos import group_identity_rule, pod_identity
from koordcore.colocation.profile import Operation, PriorityClassSpec, mutate_pod
from koordcore.colocation.resctrl import (
    ResctrlGroup,
    Vendor,
    cache_mask,
    class_schemata,
    parse_mask,
    pod_bandwidth,
    pod_schemata,
)
from koordcore.errors import ManifestError, ModelError
from koordcore.protocol.merge_patch import patch_pod
from koordcore.protocol.pod_qos import ANNOTATION_CPU_QOS, parse_cpu_qos, parse_resctrl, parse_resource_qos
from koordcore.protocol.profile import ANNOTATION_EXTENDED_RESOURCE_SPEC, parse_profile


@pytest.mark.parametrize(
    ("root", "start", "end", "mask"),
    [
        (0xFF, 0, 100, "ff"),
        (0x3FF, 10, 80, "fe"),
        (0x7FF, 10, 50, "3c"),
        (0x3, 10, 40, "0"),
        (0, 0, 100, "0"),
    ],
)
def test_masks(root: int, start: int, end: int, mask: str) -> None:
    assert f"{cache_mask(root, start, end):x}" == mask


@pytest.mark.parametrize(
    ("root", "start", "end"), [(0x101, 0, 50), (0xFF, -1, 50), (0xFF, 50, 50), (0xFF, 0, 101)]
)
def test_masks_that_cannot_be(root: int, start: int, end: int) -> None:
    with pytest.raises(ModelError):
        cache_mask(root, start, end)


@pytest.mark.parametrize("text", ["", "xyz", "-1", "1" * 17])
def test_root_masks_that_are_none(text: str) -> None:
    with pytest.raises(ManifestError):
        parse_mask(text)


@pytest.mark.parametrize(
    ("vendor", "percent", "number"),
    [
        (Vendor.INTEL, 5, 10),
        (Vendor.INTEL, 90, 90),
        (Vendor.INTEL, 105, 110),
        (Vendor.INTEL, -5, 10),
        (Vendor.INTEL, -10, -10),
        (Vendor.AMD, 33, 52),
        (Vendor.AMD, 100, 2048),
        ("ARM", 50, 0),
    ],
)
def test_bandwidth(vendor: str, percent: int, number: int) -> None:
    assert pod_bandwidth(vendor, percent) == number


def schemata(text: str) -> str:
    return pod_schemata(parse_resctrl(text), vendor=Vendor.INTEL, root=0xFFF, caches=[8, 0]).text


def test_a_line_with_a_gap_is_left_out_whole() -> None:
    assert schemata('{"llc":{"schemataPerCache":[{"cacheID":0,"range":[0,50]}]}}') == ""
    assert schemata('{"LLC":{"Schemata":{"range":[0,50]}}}') == "L3:0=3f;8=3f;\n"
    assert (
        schemata('{"mb":{"schemata":{"percent":15},"schemataPerCache":[{"cacheid":7,"percent":10}]}}')
        == "MB:0=20;8=20;\n"
    )


def test_the_first_range_that_cannot_be_ends_the_cache_part() -> None:
    text = (
        '{"llc":{"schemata":{"range":[0,50]},"schemataPerCache":[{"cacheID":0,"range":[50,0]},'
        '{"cacheID":8,"range":[0,100]}]}}'
    )
    assert schemata(text) == "L3:0=3f;8=3f;\n"


def test_a_class_that_is_off_gets_everything() -> None:
    raw = {
        "beClass": {"resctrlQOS": {"catRangeEndPercent": 20}},
        "lsClass": {"resctrlQOS": {"enable": True, "mbaPercent": 0}},
    }
    groups = class_schemata(parse_resource_qos(raw), vendor=Vendor.INTEL, root=0xF, caches=[0])
    assert groups[ResctrlGroup.BE].l3 == "L3:0=f;\n"
    assert groups[ResctrlGroup.LS].mb is None


def test_the_shipped_example_is_read() -> None:
    limits = parse_resctrl('{"llc": {"schemata": {"range": [0, 30]}}, "mb": {"schemata": {"percent": 20}}}')
    assert (limits.llc.range, limits.mb.percent) == ((0, 30), 20)
    assert parse_cpu_qos('{"groupIdentity": 1}').group_identity == 1


RULE = group_identity_rule(
    parse_resource_qos({key: {"cpuQOS": {"enable": True}} for key in ("lsrClass", "lsClass", "beClass")})
)


@pytest.mark.parametrize(
    ("label", "note", "value"),
    [
        ("LS", None, 2),
        ("LS", '{"enable":true,"groupIdentity":-1}', -1),
        ("LS", '{"groupIdentity":1}', 0),
        ("LS", "{}", 0),
        ("LSR", "{}", 2),
        ("", '{"enable":true,"groupIdentity":-1}', -1),
        ("SYSTEM", None, -1),
    ],
)
def test_a_pod_overrides_its_identity_only_as_ls(label: str, note: str | None, value: int) -> None:
    labels = {"koordinator.sh/qosClass": label} if label else {}
    notes = {} if note is None else {ANNOTATION_CPU_QOS: note}
    assert pod_identity(RULE, labels, notes, "BestEffort") == value


@pytest.mark.parametrize("note", ["", "{", '{"groupIdentity":3}', '{"groupIdentity":"1"}', "[]"])
def test_identities_that_cannot_be_read(note: str) -> None:
    with pytest.raises(ManifestError, match="cpuQOS"):
        pod_identity(RULE, {}, {ANNOTATION_CPU_QOS: note}, "BestEffort")


CLASSES = {"koord-batch": PriorityClassSpec(5500, "Never")}


def pod(**metadata: Any) -> dict[str, Any]:
    resources = {"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    return {
        "metadata": {"name": "p", "namespace": "d", **metadata},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }


def mutated(given: dict[str, Any], *specs: dict[str, Any], **options: Any) -> Any:
    profiles = [parse_profile({"metadata": {"name": f"p{i}"}, "spec": spec}) for i, spec in enumerate(specs)]
    return mutate_pod(given, profiles, namespaces={"d": {}}, priority_classes=CLASSES, **options)


BATCH = {"qosClass": "BE", "priorityClassName": "koord-batch"}


def test_a_profile_makes_a_batch_pod() -> None:
    given = pod()
    before = json.dumps(given)
    found = mutated(given, BATCH)
    resources = found.pod["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
    assert found.pod["spec"]["priority"] == 5500
    assert ANNOTATION_EXTENDED_RESOURCE_SPEC in found.pod["metadata"]["annotations"]
    assert json.dumps(given) == before


def test_mutating_twice_changes_nothing_more() -> None:
    once = mutated(pod(), BATCH)
    again = mutated(once.pod, BATCH)
    assert not again.changed
    assert again.pod == once.pod


def test_draws_below_the_percentage_apply() -> None:
    spec = {"labels": {"x": "y"}, "probability": "30%"}
    assert mutated(pod(), spec, draws=[29]).applied == ("p0",)
    assert mutated(pod(), spec, draws=[30]).applied == ()
    with pytest.raises(ModelError, match="draw"):
        mutated(pod(), spec)


@pytest.mark.parametrize("text", ["30", "x%", "", "3.5%"])
def test_probabilities_that_are_none_stop_admission(text: str) -> None:
    with pytest.raises(ManifestError, match="probability"):
        mutated(pod(), {"probability": text})


def test_selectors_that_cannot_be_evaluated_match_nothing() -> None:
    broken = {"matchExpressions": [{"key": "a", "operator": "In"}]}
    assert not mutated(pod(), {**BATCH, "selector": broken}).changed
    missing = {**BATCH, "namespaceSelector": {"matchLabels": {"a": "b"}}}
    assert not mutated(pod(namespace="gone"), missing).changed


def test_profiles_count_only_when_a_pod_is_created() -> None:
    assert not mutated(pod(), BATCH, operation=Operation.UPDATE).changed
    assert not mutated(pod(), BATCH, operation=Operation.DELETE).changed


def test_patches_merge_lists_by_their_keys() -> None:
    old = {
        "spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}], "tolerations": [{"key": "t"}]}
    }
    patch = {
        "spec": {
            "containers": [{"name": "new"}, {"name": "a", "image": "y"}, {"name": "b", "$patch": "delete"}],
            "tolerations": [{"key": "u"}],
        }
    }
    found = patch_pod(old, patch)["spec"]
    assert found == {
        "containers": [{"name": "new"}, {"name": "a", "image": "y"}],
        "tolerations": [{"key": "u"}],
    }


def test_patches_remove_with_null_and_refuse_other_types() -> None:
    assert patch_pod({"metadata": {"labels": {"a": "b"}}}, {"metadata": {"labels": {"a": None}}}) == {
        "metadata": {"labels": {}}
    }
    wrong: list[dict[str, Any]] = [
        {"spec": {"containers": "x"}},
        {"metadata": {"labels": {"a": 1}}},
        {"spec": []},
    ]
    for patch in wrong:
        with pytest.raises(ManifestError):
            patch_pod({}, patch)


def test_patches_add_finalizers_and_take_them_off() -> None:
    old = {"metadata": {"finalizers": ["a", "c"]}}
    for patch, left in (
        ({"finalizers": ["b", "c", "b"]}, {"a", "b", "c"}),
        ({"$deleteFromPrimitiveList/finalizers": ["a", "x"]}, {"c"}),
        ({"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["b"]}, {"b", "c"}),
        ({"$deleteFromPrimitiveList/finalizers": None}, set()),
    ):
        found = patch_pod(old, {"metadata": patch})["metadata"].get("finalizers", [])  # type: ignore[attr-defined]
        assert (set(found), len(found)) == (left, len(left))
    assert patch_pod({}, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}) == {"metadata": {}}


def test_patches_keep_the_keys_that_they_retain() -> None:
    old = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]}}
    host = {"name": "v", "hostPath": {"path": "/x"}}
    patch = {"spec": {"volumes": [{"$retainKeys": ["name", "hostPath"], "csi": None, **host}]}}
    assert patch_pod(old, patch) == {"spec": {"volumes": [host, {"name": "w", "emptyDir": {}}]}}


def test_patches_remove_elements_before_they_add_some() -> None:
    old = {"spec": {"containers": [{"name": "a", "image": "x"}]}}
    patch = {"spec": {"containers": [{"name": "a", "$patch": "delete"}, {"name": "a", "args": []}]}}
    assert patch_pod(old, patch) == {"spec": {"containers": [{"name": "a", "args": []}]}}


def containers(*names: str) -> list[dict[str, Any]]:
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("old", "patch", "order", "merged"),
    [
        ("abc", "", "ca", "bca"),
        ("abc", "ca", "ca", "bca"),
        ("abc", "d", "dcb", "dacb"),
        ("abc", "bd", "bcd", "abcd"),
        ("", "ab", "ab", "ab"),
        ("ab", "", "", "ab"),
        ("ab", "", "xb", "ab"),
        ("axby", "c", "bca", "xbcay"),
    ],
)
def test_patches_set_the_order_of_a_list(old: str, patch: str, order: str, merged: str) -> None:
    """First the order that is set, then that of the patch, then that of the pod."""
    there = {"spec": {"containers": containers(*old)}} if old else {"spec": {}}
    brought = {"containers": containers(*patch)} if patch else {}
    asked = {"spec": {"$setElementOrder/containers": containers(*order), **brought}}
    assert patch_pod(there, asked) == {"spec": {"containers": containers(*merged)}}
    plain: dict[str, Any] = {"metadata": {"finalizers": list(old)} if old else {}}
    added = {"$setElementOrder/finalizers": list(order), **({"finalizers": list(patch)} if patch else {})}
    assert patch_pod(plain, {"metadata": added}) == {"metadata": {"finalizers": list(merged)}}


def test_an_order_of_what_nobody_has_is_none() -> None:
    patch = {"spec": {"$setElementOrder/containers": containers("a")}}
    assert patch_pod({"spec": {}}, patch) == {"spec": {}}


def test_elements_of_one_key_stay_two_and_a_patch_merges_into_the_first() -> None:
    """As ``containerPort: 53`` of two protocols does, and two spreads over one topology key."""
    tcp, udp = {"containerPort": 53}, {"containerPort": 53, "protocol": "UDP"}

    def ports(old: list[Any] | None, new: list[Any]) -> Any:
        had = {} if old is None else {"ports": old}
        there: dict[str, Any] = {"spec": {"containers": [{"name": "a", **had}]}}
        patched: Any = patch_pod(there, {"spec": {"containers": [{"name": "a", "ports": new}]}})
        return patched["spec"]["containers"][0]["ports"]

    web = {"containerPort": 80}
    assert ports([tcp, udp], [web]) == [web, tcp, udp]
    assert ports([tcp, udp], [{**tcp, "hostPort": 9}]) == [{**tcp, "hostPort": 9}, udp]
    assert ports([tcp, udp], [{**tcp, "$patch": "delete"}]) == []
    assert ports(None, [tcp, udp]) == [tcp, udp]
    assert ports([web], [tcp, udp]) == [udp, web]


@pytest.mark.parametrize(
    ("patch", "where"),
    [
        (
            {"spec": {"$setElementOrder/containers": None}},
            r"^spec.\$setElementOrder/containers: expected list",
        ),
        ({"spec": {"$setElementOrder/containers": ["a"]}}, "setElementOrder/containers: expected object"),
        ({"spec": {"$setElementOrder/containers": [{"id": "a"}]}}, "with its merge key name"),
        ({"spec": {"$setElementOrder/tolerations": [{"key": "a"}]}}, "expected a plain value"),
        (
            {
                "spec": {
                    "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
                    "containers": [{"name": "b"}, {"name": "a"}],
                }
            },
            r'setElementOrder/containers: lacks \{"name": "a"\} of the patch, or has it elsewhere',
        ),
        ({"spec": {"$patch": "merge", "priority": 3}}, r"spec.\$patch: unknown type of patch"),
        ({"spec": {"containers": [{"name": "c", "$patch": "bogus"}]}}, r"spec.containers.\$patch: unknown"),
        ({"spec": {"affinity": {"$patch": None}}}, "spec.affinity.*: unknown"),
        ({"spec": {"volumes": [{"$retainKeys": ["name"], "name": "v", "csi": {}}]}}, "the patch has csi"),
        ({"spec": {"volumes": [{"$retainKeys": "name", "name": "v"}]}}, r"\$retainKeys: expected list"),
        ({"metadata": {"finalizers": [1]}}, "metadata.finalizers"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}, "expected list"),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": [{}]}}, "expected plain values"),
    ],
)
def test_patches_whose_directives_say_nothing_are_refused(patch: dict[str, Any], where: str) -> None:
    with pytest.raises(ManifestError, match=where):
        mutated(pod(), {**BATCH, "patch": patch})


@pytest.mark.parametrize("name", [["a"], {"a": "b"}])
def test_what_tells_elements_apart_is_plain(name: object) -> None:
    broken: dict[str, Any] = {"spec": {"containers": [{"name": "a"}, {"env": [{"name": name}], "name": "b"}]}}
    added: dict[str, Any] = {"spec": {"containers": [{"name": "b", "env": [{"name": "c"}]}]}}
    for pod_, patch in ((broken, added), (added, broken)):
        with pytest.raises(ManifestError, match=r"^spec.containers.env\[0\].name: expected a merge key, got"):
            patch_pod(pod_, patch)
