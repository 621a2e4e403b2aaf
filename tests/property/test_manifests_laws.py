"""Laws of reading objects.

- The order of a dump does not matter.
- What is written decodes to what was read; reading what was written again changes nothing.
- A shared memory changes no result.
- JSON and YAML text of the same objects mean the same.
- Whatever comes in, the answer is a value or a ManifestError; the input stays as it was.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings, strategies as st

from koordcore.manifests import node_from_manifest, pod_from_manifest, snapshot_from_objects
from koordcore.manifests._reading import Memory, Reading
from koordcore.manifests.encode import node_manifest, pod_manifest
from koordcore.manifests.pods import read_pod
from koordcore.manifests.sources import SourceObject, read_json, read_yaml
from tests.manifests.strategies import dumps, nodes, pods

small = settings(max_examples=13, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@small
@given(dumps(), st.randoms(use_true_random=False))
def test_the_order_of_a_dump_does_not_matter(objects: list[Any], random: Any) -> None:
    before = copy.deepcopy(objects)
    loaded = snapshot_from_objects(objects)
    assert objects == before
    random.shuffle(objects)
    again = snapshot_from_objects(objects)
    assert again.snapshot == loaded.snapshot
    assert sorted(one.message for one in again.warnings) == sorted(one.message for one in loaded.warnings)


@small
@given(pods())
def test_a_pod_that_is_written_reads_the_same(raw: Any) -> None:
    pod = pod_from_manifest(raw)
    written = pod_manifest(pod)
    assert pod_from_manifest(written) == pod
    assert pod_manifest(pod_from_manifest(written)) == written
    assert json.loads(json.dumps(written)) == written


@small
@given(nodes())
def test_a_node_that_is_written_reads_the_same(raw: Any) -> None:
    node = node_from_manifest(raw)
    assert node_from_manifest(node_manifest(node)) == node


@small
@given(st.lists(pods(), max_size=4))
def test_a_shared_memory_changes_nothing(raws: list[Any]) -> None:
    memory = Memory()
    for raw in raws:
        alone, shared = Reading(), Reading(memory)
        assert read_pod(alone, raw) == read_pod(shared, raw)
        assert (alone.problems, alone.warnings) == (shared.problems, shared.warnings)


@small
@given(dumps())
def test_json_and_yaml_texts_mean_the_same(objects: list[Any]) -> None:
    text = json.dumps({"kind": "List", "items": objects}, indent=1)
    as_json, as_yaml = list(read_json(text, "x")), list(read_yaml(text, "x"))
    assert as_json == as_yaml
    assert [one.raw for one in as_json if isinstance(one, SourceObject)] == objects


ODD_TEXT = st.text(alphabet="ab-: #'\"\n&*[]{}|>%@\t?!,<é", max_size=12)
ODD = st.recursive(
    st.none() | st.booleans() | ODD_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ODD_TEXT, inner, max_size=3),
    max_leaves=6,
)


@settings(small, max_examples=13)
@given(st.lists(ODD, max_size=5), st.booleans(), st.integers(20, 80))
def test_a_long_yaml_list_means_what_was_dumped(items: list[Any], shared: bool, width: int) -> None:
    marked = [{"kind": "K", "x": item, **({"again": item} if shared else {})} for item in items]
    text = yaml.safe_dump({"apiVersion": "v1", "items": marked, "kind": "List"}, width=width)
    assert [one.raw for one in read_yaml(text, "x") if isinstance(one, SourceObject)] == marked


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
ANYWHERE = [
    ("metadata",),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("metadata", "ownerReferences"),
]
OF_PODS = [
    ("spec",),
    ("spec", "containers"),
    ("spec", "containers", 0),
    ("spec", "containers", 0, "resources"),
    ("spec", "containers", 0, "ports"),
    ("spec", "affinity"),
    ("spec", "tolerations"),
    ("spec", "volumes"),
    ("status",),
    ("status", "conditions"),
    ("status", "containerStatuses"),
]
OF_NODES = [("spec", "taints"), ("status", "conditions"), ("status", "allocatable"), ("status", "images")]


def problems_of(raw: Any, place: tuple[Any, ...], value: Any) -> list[str]:
    target = raw
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    return [problem.source for problem in snapshot_from_objects([raw]).problems]


@settings(small, max_examples=13)
@given(pods(), st.sampled_from(ANYWHERE + OF_PODS), JSON)
def test_any_value_in_any_place_of_a_pod_is_read_or_refused(raw: Any, place: Any, value: Any) -> None:
    assert all(source == "object 1" for source in problems_of(raw, place, value))


@settings(small, max_examples=20)
@given(nodes(), st.sampled_from(ANYWHERE + OF_NODES), JSON)
def test_any_value_in_any_place_of_a_node_is_read_or_refused(raw: Any, place: Any, value: Any) -> None:
    assert all(source == "object 1" for source in problems_of(raw, place, value))
