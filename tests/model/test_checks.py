"""Records say which of their fields is not what it should be, when they are made."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from koordcore import (
    Bound,
    ClusterSnapshot,
    Limits,
    Node,
    NodeState,
    PluginSetting,
    Pod,
    Policy,
    Toleration,
    model,
    schedule,
    verify,
)
from koordcore.errors import KoordcoreError, ModelError
from koordcore.explaining.pod import explain
from koordcore.model import affinity, cluster, nodes, pods, policy, quotas, reservations, selectors
from koordcore.model.numa import NUMAArgs
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import Reservation

ANY: Any = Pod
NAN = float("nan")
NAIVE, AWARE = datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"name": True}, "Pod: name: expected text, got True"),
        ({"priority": None}, "Pod default/p: priority: expected int, got None"),
        ({"priority": NAN}, "Pod default/p: priority: expected int, got nan"),
        ({"created": "x"}, "Pod default/p: created: expected a time with its zone or None, got 'x'"),
        ({"created": NAIVE}, "Pod default/p: created: expected a time with its zone or None"),
        ({"tolerations": 5}, r"Pod default/p: tolerations: expected tuple\[Toleration, ...\], got 5"),
        ({"tolerations": (Toleration(), "x")}, "Pod default/p: tolerations: expected"),
        ({"containers": (5,)}, r"Pod default/p: containers: expected tuple\[Container, ...\], got \(5,\)"),
        ({"affinity": True}, "Pod default/p: affinity: expected Affinity or None, got True"),
        ({"labels": 5}, "Pod default/p: labels: expected texts by text, got 5"),
        ({"annotations": {"a": 1}}, "Pod default/p: annotations: expected texts by text, got {'a': 1}"),
        ({"requests": 5}, "Pod default/p: requests: expected amounts by resource, got 5"),
        ({"requests": {"cpu": 1.5}}, "Pod default/p: requests: cpu: expected int, got 1.5"),
        ({"pod_limits": {"cpu": "1"}}, "Pod default/p: pod_limits: cpu: expected int, got '1'"),
        (
            {"preemption_policy": "Never"},
            "Pod default/p: preemption_policy: expected PreemptionPolicy, got 'Never'",
        ),
    ],
)
def test_a_pod_names_the_field_that_is_wrong(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelError, match=told):
        ANY(**{"name": "p", **fields})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Toleration(operator=5), "Toleration: operator: expected TolerationOperator, got 5"),  # type: ignore[arg-type]
        (lambda: Policy(plugins=("x",)), "Policy default-scheduler: plugins: expected tuple"),  # type: ignore[arg-type]
        (lambda: PluginSetting(name="x", weight=NAN), "PluginSetting x: weight: expected int, got nan"),  # type: ignore[arg-type]
        (lambda: PluginSetting(name="x", weight=2**57), "x: weight: expected 1 to 2147483647"),
        (lambda: PluginSetting(name="x", args=[1]), "x: args: expected a frozen record, got"),
        (lambda: NUMAArgs(weights=("x",)), "NUMAArgs: weights: expected"),  # type: ignore[arg-type]
        (lambda: Limits(deterministic_time=NAN), "Limits: deterministic_time: expected a number, got nan"),
        (
            lambda: ElasticQuota(name="q", max={"cpu": "1"}),  # type: ignore[dict-item]
            "ElasticQuota q: max: cpu: expected int",
        ),
        (lambda: NodeState(5), "NodeState: node: expected Node, got 5"),  # type: ignore[arg-type]
        (lambda: NodeState(Node(name="n"), (5,)), "NodeState: pods: expected Pods"),  # type: ignore[arg-type]
        (lambda: ClusterSnapshot(nodes=[5]), r"snapshot: nodes\[0\]: expected NodeState or Node, got 5"),  # type: ignore[list-item]
        (lambda: ClusterSnapshot(pending=5), "snapshot: pending: expected several, got 5"),  # type: ignore[arg-type]
        (lambda: ClusterSnapshot(records=[5]), "snapshot: records: expected records with name and namespace"),  # type: ignore[list-item]
    ],
)
def test_other_records_do_so_too(make: Any, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        make()


NAMED = [
    kind
    for kind in {id(one): one for one in (getattr(model, name) for name in dir(model))}.values()
    if isinstance(kind, type) and attrs.has(kind) and "name" in attrs.fields_dict(kind)
]
TAKE_ANYTHING = {"args", "plugin", "written_max", "written_min"}


@pytest.mark.parametrize("kind", NAMED, ids=lambda kind: kind.__name__)
def test_what_has_a_name_says_which_of_many_is_wrong(kind: Any) -> None:
    """Of every field but the name; of five thousand nodes the one that is wrong has to be found."""
    assert len(NAMED) > 20
    fields = {one.alias: one for one in attrs.fields(kind) if one.init and "name" not in one.alias[:9]}
    needed = {name for name, one in fields.items() if one.default is attrs.NOTHING}
    for name in fields.keys() - TAKE_ANYTHING:
        with pytest.raises(ModelError, match="who"):
            kind(name="who", **dict.fromkeys({*needed, name}, object()))


def test_what_suits_a_field_is_taken() -> None:
    """Dictionaries are frozen; times with a zone and whole numbers for floats are taken."""
    pod = Pod(name="p", labels={"a": "b"}, created=AWARE, requests={"cpu": 1}, affinity=None)
    assert attrs.evolve(pod, priority=5).priority == 5
    assert Limits(deterministic_time=1).deterministic_time == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"snapshot": 5}, "snapshot: expected ClusterSnapshot, got 5"),
        ({"pods": 5}, "pods: expected several, got 5"),
        ({"pods": ["x"]}, r"pods\[0\]: expected Pod, got 'x'"),
        ({"policy": "binpack"}, "policy: expected Policy, got 'binpack'"),
        ({"now": NAIVE}, "now: expected a time with its zone, got 2026-01-01T00:00:00"),
        ({"now": 5}, "now: expected datetime, got 5"),
        ({"limits": 5}, "limits: expected Limits, got 5"),
        ({"preempt": True}, "preempt: expected PreemptionRules, got True"),
    ],
)
def test_entry_functions_name_the_argument(arguments: dict[str, Any], told: str) -> None:
    call: Any = schedule
    with pytest.raises(TypeError, match=told):
        call(**{"snapshot": ClusterSnapshot(), **arguments})


def test_the_other_entries_do_so_too() -> None:
    check: Any = verify
    ask: Any = explain
    with pytest.raises(TypeError, match="result: expected ScheduleResult, got 5"):
        check(ClusterSnapshot(), 5)
    with pytest.raises(TypeError, match=r"pod: expected Pod, its key or namespace/name, got 5"):
        ask(ClusterSnapshot(), 5)
    with pytest.raises(ModelError, match=r"^no pod default/p$"):
        ask(ClusterSnapshot(), "p")


def test_arguments_of_another_plugin_are_named() -> None:
    policy = Policy().with_plugin(PluginSetting(name="DeviceShare", args=NUMAArgs()))
    with pytest.raises(ModelError, match="DeviceShare: args: expected DevicePolicy, got NUMAArgs"):
        schedule(ClusterSnapshot(), policy=policy)


ODD: tuple[Any, ...] = (
    *(None, True, 5, -1, 2**70, 1.5, NAN, "x", "", b"x", [], [1], {}, {"a": 1}, {1: 2}, ("x",), (1,), ((),)),
    *(object(), NAIVE, AWARE, set(), int, Pod(name="q"), Node(name="z"), {"cpu": 1}, {"cpu": -5}, {"a": "b"}),
)
CLASSES = [
    kind
    for module in (affinity, cluster, nodes, pods, policy, quotas, reservations, selectors)
    for name, kind in sorted(vars(module).items())
    if isinstance(kind, type) and attrs.has(kind) and kind.__module__ == module.__name__
]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_whatever_is_given_it_is_taken_or_refused_in_words(kind: Any) -> None:
    """And what was taken is scheduled or refused in words: nothing fails later and elsewhere."""
    chance = random.Random(1)
    fields = [field for field in attrs.fields(kind) if field.init]
    for _ in range(60):
        chosen = {one.alias for one in fields if one.default is attrs.NOTHING}
        chosen.add(chance.choice(fields).alias)
        given = {name: "n" if chance.random() < 0.5 else chance.choice(ODD) for name in sorted(chosen)}
        try:
            made = kind(**given)
            pending = [Pod(name="good")] + [one for one in [made] if isinstance(one, Pod)]
            here = [Node(name="base", allocatable={"cpu": 1000, "pods": 9})]
            here += [one for one in [made] if isinstance(one, Node)]
            records = [one for one in [made] if isinstance(one, ElasticQuota | Reservation)]
            snapshot = ClusterSnapshot(nodes=here, pending=pending, records=records)
            result = schedule(snapshot, policy=made if isinstance(made, Policy) else Policy())
        except KoordcoreError:
            continue
        assert isinstance(result.decision(pending[0].key), Bound) or isinstance(made, Policy | Node | Pod)
        assert verify(snapshot, result) == ()
