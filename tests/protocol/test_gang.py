"""What pods and PodGroups say about gangs."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from koordcore.errors import ManifestError, ModelError
from koordcore.model.durations import HOUR, MILLISECOND, SECOND, format_duration, parse_duration
from koordcore.model.gangs import (
    CoschedulingArgs,
    GangMode,
    GangSource,
    GatherRule,
    NetworkTopologySpec,
    PodGroup,
)
from koordcore.protocol.gang import (
    ANNOTATION_GROUPS,
    ANNOTATION_MATCH_POLICY,
    ANNOTATION_MIN_AVAILABLE,
    ANNOTATION_MODE,
    ANNOTATION_TOPOLOGY_INDEX,
    ANNOTATION_TOPOLOGY_SPEC,
    ANNOTATION_TOTAL_NUMBER,
    ANNOTATION_WAITING_TIME,
    LABEL_LIGHTWEIGHT_MIN_AVAILABLE,
    binding_annotations,
    gang_from_pod_group,
    parse_gang_pod,
    parse_groups,
    parse_topology_index,
)
from koordcore.protocol.gang_names import ANNOTATION_GANG_NAME, LABEL_LIGHTWEIGHT_NAME, LABEL_POD_GROUP
from koordcore.protocol.gathering import parse_topology_spec
from koordcore.protocol.pod_group import parse_coscheduling_args, parse_pod_group
from tests.reference.formats import format_topology_spec


def parsed(annotations: dict[str, str], labels: dict[str, str] | None = None):  # type: ignore[no-untyped-def]  # a record
    return parse_gang_pod(namespace="a", name="p", annotations=annotations, labels=labels or {})


def test_the_crd_label_wins_and_leaves_configuration_to_the_pod_group() -> None:
    labels = {LABEL_POD_GROUP: "crd", LABEL_LIGHTWEIGHT_NAME: "light"}
    pod = parsed({ANNOTATION_GANG_NAME: "ann", ANNOTATION_MIN_AVAILABLE: "3"}, labels).pod
    assert (pod.gang_id, pod.by_crd, pod.config) == ("a/crd", True, None)


def test_the_lightweight_label_gives_name_and_minimum() -> None:
    labels = {LABEL_LIGHTWEIGHT_NAME: "light", LABEL_LIGHTWEIGHT_MIN_AVAILABLE: "4"}
    pod = parsed({ANNOTATION_MIN_AVAILABLE: "9"}, labels).pod
    assert pod.config is not None
    assert (pod.gang_id, pod.config.min_available) == ("a/light", 4)


def test_silent_defaults_are_reported_and_taken() -> None:
    result = parsed(
        {
            ANNOTATION_GANG_NAME: "g",
            ANNOTATION_MIN_AVAILABLE: "2",
            ANNOTATION_TOTAL_NUMBER: "1",
            ANNOTATION_MODE: "strict",
            ANNOTATION_MATCH_POLICY: "bogus",
            ANNOTATION_WAITING_TIME: "-1s",
            ANNOTATION_GROUPS: "a/b",
        }
    )
    gang = result.pod.config
    assert gang is not None
    assert (gang.total, gang.mode, gang.match_policy) == (2, GangMode.STRICT, "once-satisfied")
    assert (gang.wait_time, gang.group) == (600 * SECOND, ("a/g",))
    assert [problem.path for problem in result.unreadable] == [f"metadata.annotations[{ANNOTATION_GROUPS}]"]
    assert len(result.defaulted) == 4
    assert 'got "strict"' in str(result.defaulted[1])


@pytest.mark.parametrize("text", ["", " 2", "2.0", "1e1", "0x10", "1_000", "2147483648", "٣"])
def test_a_minimum_that_go_cannot_read_configures_nothing(text: str) -> None:
    result = parsed({ANNOTATION_GANG_NAME: "g", ANNOTATION_MIN_AVAILABLE: text})
    assert result.pod.config is None
    assert result.unreadable[0].path == f"metadata.annotations[{ANNOTATION_MIN_AVAILABLE}]"


def test_groups_are_read_as_json_and_as_a_list() -> None:
    assert parse_groups('["b/h","a/g"]') == ("b/h", "a/g")
    assert parse_groups(["b/h", "a/g"]) == ("b/h", "a/g")
    assert parse_groups("") == parse_groups("null") == parse_groups("[]") == ()
    for wrong in ('["b/h",3]', '{"k":"v"}', "a,b"):
        with pytest.raises(ManifestError):
            parse_groups(wrong)


def test_a_pod_group_object_is_read() -> None:
    raw = {
        "metadata": {"name": "g", "namespace": "a", "annotations": {ANNOTATION_GROUPS: ["b/h", "a/g"]}},
        "spec": {"minMember": 2, "scheduleTimeoutSeconds": 30},
        "status": {"phase": "Running", "running": 2},
    }
    group = parse_pod_group(raw)
    assert (group.id, group.min_member, group.status.running) == ("a/g", 2, 2)
    gang = gang_from_pod_group(group).gang
    assert (gang.group, gang.wait_time, gang.source) == (("a/g", "b/h"), 30 * SECOND, GangSource.POD_GROUP)
    with pytest.raises(ManifestError, match=r"spec.minMember: expected int"):
        parse_pod_group({"metadata": {"name": "g"}, "spec": {"minMember": "2"}})


def test_a_timeout_that_is_not_positive_takes_the_default() -> None:
    args = CoschedulingArgs(default_timeout=5)
    for seconds in (None, 0, -3):
        group = PodGroup(namespace="a", name="g", schedule_timeout_seconds=seconds)
        assert gang_from_pod_group(group, args).gang.wait_time == 5


def test_topology_specs_ignore_case_of_keys_and_unknown_ones() -> None:
    spec = parse_topology_spec('{"GatherStrategy":[{"LAYER":"B","strategy":"MustGather","x":1},null]}')
    assert spec == NetworkTopologySpec((GatherRule("B", "MustGather"), GatherRule("", "")))
    assert parse_topology_spec("") is None
    assert parse_topology_spec("null") == parse_topology_spec("{}") == NetworkTopologySpec()
    with pytest.raises(ManifestError):
        parse_topology_spec('{"gatherStrategy":[{"podCountMultiple":1.5}]}')


@given(
    st.lists(
        st.builds(GatherRule, st.text(max_size=4), st.sampled_from(("MustGather", "x")), st.integers(-3, 9))
    )
)
def test_topology_specs_survive_the_round_trip(rules: list[GatherRule]) -> None:
    import json

    spec = NetworkTopologySpec(tuple(rules))
    assert parse_topology_spec(json.dumps(format_topology_spec(spec))) == spec


def test_the_deepest_must_layer_counts_and_undeclared_ones_are_topmost() -> None:
    layers = ("S", "B", "N")
    spec = NetworkTopologySpec((GatherRule("X", "MustGather"), GatherRule("B", "MustGather")))
    assert spec.must_layer(layers) == "B"
    assert NetworkTopologySpec((GatherRule("X", "MustGather"),)).must_layer(layers) == "X"
    assert NetworkTopologySpec().must_layer(layers) == ""


def test_of_two_multiples_for_a_layer_the_last_binding_one_counts() -> None:
    rules = (
        GatherRule("B", "x", 4),
        GatherRule("B", "x", 3),
        GatherRule("B", "x", 1),
        GatherRule("S", "x", 0),
    )
    assert NetworkTopologySpec(rules).multiples == {"B": 3}


def test_ranks() -> None:
    assert parse_topology_index({}) is None
    assert parse_topology_index({ANNOTATION_TOPOLOGY_INDEX: "-1"}) is None
    assert parse_topology_index({ANNOTATION_TOPOLOGY_INDEX: "7"}) == 7
    with pytest.raises(ManifestError, match="out of range"):
        parse_topology_index({ANNOTATION_TOPOLOGY_INDEX: "9" * 20})


def test_arguments_are_refused_with_upstreams_text() -> None:
    assert parse_coscheduling_args({"defaultTimeout": "2m"}).default_timeout == 120 * SECOND
    with pytest.raises(ModelError, match="coeSchedulingArgs DefaultTimeoutSeconds invalid"):
        parse_coscheduling_args({"defaultTimeout": "-1s"})
    with pytest.raises(ModelError, match="coeSchedulingArgs ControllerWorkers invalid"):
        parse_coscheduling_args({"controllerWorkers": 0})


def test_bound_members_learn_group_and_count() -> None:
    written = binding_annotations(("b/h", "a/g"), 3)
    assert sorted(written.values()) == ["3", "a/g,b/h"]


def test_topology_annotation_reaches_the_gang() -> None:
    result = parsed(
        {ANNOTATION_GANG_NAME: "g", ANNOTATION_MIN_AVAILABLE: "1", ANNOTATION_TOPOLOGY_SPEC: "invalid"}
    )
    assert result.pod.config is not None
    assert result.pod.config.topology_spec is None
    assert "a plain gang is taken" in str(result.unreadable[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1h30m", HOUR * 3 // 2),
        ("1.5h", HOUR * 3 // 2),
        (".5s", SECOND // 2),
        ("500ms", 500 * MILLISECOND),
        ("-20s", -20 * SECOND),
        ("+5s", 5 * SECOND),
        ("1us", 1000),
        ("2µs", 2000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "text", ["", "20", "1d", "1h -5m", "garbage", "9999999h", "s", "1.2.3s", "+", "0x1s"]
)
def test_no_durations(text: str) -> None:
    with pytest.raises(ManifestError):
        parse_duration(text)


@given(st.integers(-(2**62), 2**62))
def test_durations_survive_the_round_trip(nanoseconds: int) -> None:
    assert parse_duration(format_duration(nanoseconds)) == nanoseconds
