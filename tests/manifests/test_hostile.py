"""Texts and sizes that nobody means: refused or defaulted with their path, never a traceback."""

from __future__ import annotations

from typing import Any

import pytest

from koordcore.errors import ManifestError
from koordcore.manifests import snapshot_from_objects
from tests.manifests.builders import container, pod

GROUP = "gang.scheduling.koordinator.sh/"
BIG = "9" * 5000


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
        snapshot_from_objects([raw])
    assert [problem.path for problem in caught.value.problems] == [f"spec.{field}"]
    assert len(str(caught.value)) < 300


def test_control_characters_are_refused_in_names_and_escaped_in_messages() -> None:
    raw = pod(metadata={"name": "a\x1b[31m", "annotations": {"x\x9b": 1}}, overhead={"cpu": "\x1b[2J1"})
    with pytest.raises(ManifestError) as caught:
        snapshot_from_objects([raw])
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


def test_null_where_a_quantity_belongs_is_called_null() -> None:
    raw = pod(containers=[container(requests={"cpu": None})])
    with pytest.raises(ManifestError, match="expected a quantity, got null"):
        snapshot_from_objects([raw])
