"""How pods are named where a key is asked for."""

from __future__ import annotations

import pytest

from koordcore import Bound, ClusterSnapshot, Node, Pod, PodKey, schedule, snapshot_from_objects


def test_a_decision_is_found_by_the_pod_its_key_and_its_name() -> None:
    pod = Pod(name="p", namespace="lab")
    result = schedule(ClusterSnapshot(nodes=[Node(name="n", allocatable={"pods": 1})], pending=[pod]))
    for asked in (pod, pod.key, "lab/p", PodKey("lab", "p")):
        assert isinstance(result.decision(asked), Bound)


def test_what_is_no_key_is_told() -> None:
    for wrong in (None, 3, Pod(name="p")):
        with pytest.raises(TypeError, match="expected a pod's key or namespace/name"):
            PodKey.of(wrong)  # type: ignore[arg-type]  # the mistake


def test_a_list_stands_for_what_is_in_it() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    loaded = snapshot_from_objects({"apiVersion": "v1", "kind": "List", "items": [node]})
    assert [one.name for one in loaded.snapshot.nodes] == ["n"]
    assert not loaded.problems
