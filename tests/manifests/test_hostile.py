"""Texts and sizes that nobody means: refused or defaulted with their path, never a traceback."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from koordcore import schedule
from koordcore.errors import ManifestError
from koordcore.manifests import SourceLimits, load, snapshot_from_objects
from koordcore.model.containers import Container, effective_requests
from tests.manifests.builders import container, node, obj, pod

GROUP = "gang.scheduling.koordinator.sh/"
BIG = "9" * 5000


def held(name: str, uid: str) -> dict[str, Any]:
    spec = {"template": {"spec": {"containers": []}}, "owners": [{"object": {"name": "x"}}], "ttl": "1h"}
    return obj("Reservation", name, "scheduling.koordinator.sh/v1alpha1", spec=spec, metadata={"uid": uid})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (GROUP + "min-available", BIG),
        (GROUP + "total-number", "-" + BIG),
        (GROUP + "network-topology-index", BIG),
        (GROUP + "waiting-time", BIG + "s"),
    ],
)
def test_a_number_of_thousands_of_digits_cannot_be_read_like_any_other_text(key: str, text: str) -> None:
    annotations = {GROUP + "name": "g", GROUP + "min-available": "1", key: text}
    loaded = snapshot_from_objects([pod(metadata={"annotations": annotations})])
    assert [str(one.path) for one in loaded.warnings] == [f"metadata.annotations[{key}]"]
    assert len(str(loaded.warnings[0])) < 300


@pytest.mark.parametrize("value", [10**400, 16**4000, -(2**63) - 1], ids=["long", "longer", "just"])
@pytest.mark.parametrize("field", ["priority", "tolerations", "hostNetwork"])
def test_an_integer_beyond_64_bits_is_refused_with_its_path(value: int, field: str) -> None:
    spec: dict[str, Any] = {field: value}
    raw = pod(**spec)
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects([raw], strict=True)
    assert [problem.path for problem in caught.value.problems] == [f"spec.{field}"]
    assert len(str(caught.value)) < 300


def test_control_characters_are_refused_in_names_and_escaped_in_messages() -> None:
    raw = pod(metadata={"name": "a\x1b[31m", "annotations": {"x\x9b": 1}}, overhead={"cpu": "\x1b[2J1"})
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects([raw], strict=True)
    text = str(caught.value)
    assert text.replace("\n", "").isprintable()
    assert "metadata.name: a name has no control characters" in text
    assert r'expected a quantity, got "\x1b[2J1"' in text


def test_long_keys_do_not_make_long_messages() -> None:
    (warning,) = snapshot_from_objects([pod(metadata={"annotations": {"k" * 50_000: [1]}})]).warnings
    assert len(str(warning)) < 2500


def test_a_nameless_object_with_half_a_character_is_kept() -> None:
    odd = {"apiVersion": "v1", "kind": "Oddity", "spec": {"text": "\ud800"}}
    assert snapshot_from_objects([odd]).unread == {"Oddity": 1}


def test_half_a_character_in_the_name_of_a_claims_entry_or_in_an_identity_ends_no_call() -> None:
    def dra(kind: str, name: str, **rest: Any) -> dict[str, Any]:
        return obj(kind, name, "resource.k8s.io/v1", **rest)

    ask = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "1"}}}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "a", **shared}, {"name": "b", **shared}]
    entry, half = {"name": "gpu", "resourceClaimTemplateName": "t"}, "\ud800"
    objects = [
        dra("DeviceClass", "gpu", spec={}),
        dra("ResourceSlice", "s", spec={"driver": "d", "nodeName": "n", "pool": pool, "devices": devices}),
        dra("ResourceClaimTemplate", "t", spec={"spec": ask}),
        dra("ResourceClaim", "c", spec=ask, metadata={"uid": half}),
        pod("entry", resourceClaims=[{**entry, "name": half}]),
        pod("identity", metadata={"uid": half}, resourceClaims=[entry]),
        pod("share", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}]),
        node("n", {"cpu": "8", "memory": "8Gi", "pods": "9"}),
    ]
    read = snapshot_from_objects(objects)
    assert [one.path for one in read.problems] == ["spec.resourceClaims[0].name"]
    assert {one.pod.name for one in schedule(read.snapshot).bound} == {"identity", "share"}


def test_null_where_a_quantity_belongs_is_called_null() -> None:
    raw = pod(containers=[container(requests={"cpu": None})])
    with pytest.raises(ManifestError, match="expected a quantity, got null"):
        snapshot_from_objects([raw], strict=True)


def test_a_gzip_bomb_is_refused_before_it_is_unpacked_unless_the_caller_says_so(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.json.gz"
    bomb.write_bytes(gzip.compress(b"[" + b" " * (1 << 25) + b"]", 9))
    with pytest.raises(ManifestError, match="more than 200 times its size"):
        load([bomb])
    assert load([bomb], limits=SourceLimits(gzip_ratio=2000)).counts == {}


def test_ten_thousand_containers_take_no_longer_than_their_number() -> None:
    """Each container is added once; the sums name every one of a thousand resources."""
    many = [
        Container(requests={"cpu": 1, f"example.com/r{number % 1000}": 1}, restarts_always=number % 2 == 0)
        for number in range(10_000)
    ]
    requests = effective_requests(many, many)
    assert requests["cpu"] == 15_000  # all containers and, beside them, the sidecars
    assert len(requests) == 1001


@pytest.mark.parametrize(
    ("others", "told"),
    [([held("b", "u")], "u is that of Reservation a too"), ([pod("u")], "u is the name of Pod default/u")],
)
def test_a_uid_that_stands_for_something_else_is_named(others: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(ManifestError, match=rf"Reservation (a|b): metadata.uid: {told}"):
        snapshot_from_objects([held("a", "u"), *others], strict=True)


def test_a_node_with_more_than_can_be_counted_is_refused_with_its_path() -> None:
    with pytest.raises(
        ManifestError, match=r"Node n1: status.allocatable\[memory\]: 9007199254740993 is more"
    ):
        snapshot_from_objects([node(allocatable={"memory": 2**53 + 1})], strict=True)
