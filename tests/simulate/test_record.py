"""Recorded calls: the same bytes, the same digest when made again, and the first difference otherwise."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path

import attrs
import pytest
from immutabledict import immutabledict

from koordcore.errors import ManifestError, ModelError
from koordcore.manifests import load
from koordcore.model.device_slices import DeviceCapacity, ResourceSlice, SliceDevice
from koordcore.model.nodes import Node
from koordcore.model.numa import NodeResourceTopology
from koordcore.model.pods import Pod, PodPhase
from koordcore.model.policy import PluginSetting, Policy
from koordcore.model.records import ClusterRecord
from koordcore.scheduling import schedule
from koordcore.simulate import replay_record, write_record
from koordcore.simulate.record import from_json, to_json
from koordcore.snapshot import ClusterSnapshot, RecordAdded
from koordcore.topology.cpu import CPUTopology

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "gpu-cluster.yaml"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def snapshot() -> ClusterSnapshot:
    nodes = [Node(name=name, allocatable={"cpu": 4000, "memory": 2**33, "pods": 9}) for name in ("a", "b")]
    pods = [Pod(name=f"p{turn}", requests={"cpu": 1500}, created=NOW) for turn in range(5)]
    return ClusterSnapshot(nodes=nodes, pending=pods)


def recorded() -> str:
    cluster = snapshot()
    return write_record(cluster, None, schedule(cluster, now=NOW), now=NOW)


def test_a_recorded_call_comes_out_the_same() -> None:
    again = replay_record(recorded())
    assert again.same
    assert not again.difference
    assert len(again.result.bound) == 4


def test_the_same_call_gives_the_same_bytes() -> None:
    assert recorded() == recorded()


def test_a_real_cluster_survives_the_record() -> None:
    """Devices, gangs, quotas and what else the example holds."""
    cluster = load([EXAMPLE]).snapshot
    text = write_record(cluster, None, schedule(cluster))
    assert from_json(json.loads(text)["snapshot"]) == cluster
    assert replay_record(text).same


def test_a_cluster_that_tells_cpus_and_capacities_survives_the_record() -> None:
    """CPUs are tuples with named fields, and capacities of devices have no bound of 64 bits."""
    cpus = CPUTopology.of((cpu, cpu // 2, cpu // 4, 0) for cpu in range(8))
    card = SliceDevice(name="d0", capacity={"mem": DeviceCapacity(10 * 2**30 * 10**9)})
    records: list[ClusterRecord] = [
        NodeResourceTopology(name="a", topology=cpus),
        ResourceSlice(name="s", driver="d.x", pool="a", node_name="a", devices=(card,)),
    ]
    cluster = snapshot().apply(*map(RecordAdded, records))
    text = write_record(cluster, None, schedule(cluster))
    (again,) = from_json(json.loads(text)["snapshot"]).of(NodeResourceTopology)
    assert again.topology.cpus[3].numa == 0
    assert replay_record(text).same


def test_the_first_difference_is_named() -> None:
    """A policy that scores differently puts the second pod elsewhere."""
    record = json.loads(recorded())
    crowd = Policy(plugins=(PluginSetting(name="NodeResourcesFit", scores=False),))
    record["policy"] = to_json(crowd)
    again = replay_record(json.dumps(record))
    assert not again.same
    assert again.difference.startswith("decisions[0].score: recorded ")


def test_decisions_that_were_edited_are_refused() -> None:
    text = recorded()
    with pytest.raises(ManifestError, match="changed after"):
        replay_record(text.replace('"node":"b"', '"node":"a"', 1))


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[]", "expected object"), ("{}", "format"), ('{"format": "other"}', "format")],
)
def test_what_is_no_record_is_refused(text: str, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        replay_record(text)


@pytest.mark.parametrize(
    "path", ["os:system", "koordcore.errors:Problem.__init__", "koordcore.schedule:schedule", "x"]
)
def test_only_records_are_made_from_a_file(path: str) -> None:
    with pytest.raises(ManifestError, match="unknown type"):
        from_json({"$": path})


@pytest.mark.parametrize(
    "value",
    [
        (1, 2.5, None, True, "text"),
        immutabledict({"b": 1, "a": (2,)}),
        immutabledict({("x", 1): 2, ("a", 3): 4}),
        immutabledict({"$odd": 1}),
        frozenset({"b", "a"}),
        NOW,
        timedelta(days=1, seconds=2),
        Fraction(1, 3),
        PodPhase.RUNNING,
    ],
)
def test_plain_values_survive(value: object) -> None:
    assert from_json(json.loads(json.dumps(to_json(value)))) == value


def test_times_are_written_in_one_zone() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=8)))
    assert to_json(elsewhere) == to_json(NOW)


@pytest.mark.parametrize("value", [object(), NOW.replace(tzinfo=None), b"bytes"])
def test_what_is_no_value_of_the_model_is_refused(value: object) -> None:
    with pytest.raises(ModelError, match="cannot be recorded"):
        to_json(value)


def test_defaults_are_left_out() -> None:
    """A pod's requests follow from its containers and are written all the same."""
    assert to_json(Node(name="n")) == {"$": "koordcore.model.nodes:Node", "name": "n"}
    pod = Pod(name="p", requests={"cpu": 1})
    assert from_json(to_json(attrs.evolve(pod, priority=5))) == attrs.evolve(pod, priority=5)


def pod_with(**fields: object) -> dict[str, object]:
    return {"$": "koordcore.model.pods:Pod", "name": "p", **fields}


WRONG: dict[str, tuple[object, str]] = {
    "amounts": (pod_with(requests={"cpu": "x"}), "requests: expected what a Pod has there"),
    "amounts in a map": (
        pod_with(scored_requests={"cpu": [1]}),
        "scored_requests: expected what a Pod has there",
    ),
    "an amount beyond 64 bits": (
        pod_with(requests={"cpu": 2**64}),
        "requests: expected what a Pod has there",
    ),
    "an enumeration": (
        pod_with(tolerations=[{"$": "koordcore.model.affinity:Toleration", "operator": "Exist"}]),
        r"tolerations\[0\]: ",
    ),
    "a value of one": (
        pod_with(phase={"$": "koordcore.model.pods:PodPhase", "value": "Ran"}),
        "phase.value: ",
    ),
    "no value": (pod_with(phase={"$": "koordcore.model.pods:PodPhase"}), "phase.value: "),
    "a type": (pod_with(phase={"$": 7}), r"phase.\$: expected string"),
    "another record": (pod_with(affinity=pod_with()), "affinity: "),
    "no list": (pod_with(tolerations=5), "tolerations: "),
    "a field that is not there": (pod_with(size=1), "size"),
    "a nothing of a fraction": ({"$": "fraction", "value": [1, 0]}, "value: no fraction"),
    "no number of a fraction": ({"$": "fraction", "value": [1, "x"]}, "value: expected int"),
    "a span beyond all calendars": ({"$": "timedelta", "value": [10**12]}, "value: no timedelta"),
    "a day that is not there": (
        {"$": "datetime", "value": "2026-02-30T00:00:00+00:00"},
        "value: no datetime",
    ),
    "no pairs": ({"$": "map", "value": [5]}, "value: no map"),
    "no set": ({"$": "set", "value": 5}, "value: expected list"),
    "what the converters of mappings trust": (
        {"$": "koordcore.topology.network:LayerSpec", "layer": "a", "label_keys": [1]},
        "label_keys: expected what a LayerSpec has there",
    ),
}


@pytest.mark.parametrize(("value", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_named_with_its_path(value: object, message: str) -> None:
    with pytest.raises(ManifestError, match=rf"^pods\[0\]\.?.*{message}"):
        replay_record(json.dumps({**json.loads(recorded()), "pods": [value]}))


@pytest.mark.parametrize(
    ("name", "value"),
    [("pods", 5), ("pods", [5]), ("snapshot", None), ("snapshot", pod_with()), ("now", 1), ("policy", {})],
)
def test_an_argument_of_another_type_is_named(name: str, value: object) -> None:
    with pytest.raises(ManifestError, match=f"^{name}: expected what a call of schedule takes"):
        replay_record(json.dumps({**json.loads(recorded()), name: value}))


def test_a_record_of_no_number_is_no_json() -> None:
    with pytest.raises(ManifestError, match="not JSON: NaN"):
        replay_record(json.dumps({**json.loads(recorded()), "result": {"a": float("nan")}}))
