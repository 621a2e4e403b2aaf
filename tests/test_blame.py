"""A call that fails because of what it was given says which argument that is; a defect stays one."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import pytest

import koordcore
from koordcore import ClusterSnapshot, ModelError, Node, Pod, PodKey, Policy, ScheduleResult, schedule, verify
from koordcore._blame import names_its_arguments, shown
from koordcore.colocation import latest_report
from koordcore.controllers import parse_mask
from koordcore.controlplane import complete, version_of
from koordcore.explaining import advise
from koordcore.manifests import SourceLimits, snapshot_from_objects
from koordcore.scheduling import schedule as the_same


class Unspeakable:
    """What cannot even be written down."""

    def __repr__(self) -> str:
        raise RuntimeError


def told(call: Callable[..., object], *given: Any, **named: Any) -> str:
    with pytest.raises(TypeError) as caught:
        call(*given, **named)
    return str(caught.value)


@names_its_arguments
def weigh(
    amounts: Mapping[str, int],
    pods: Iterable[Pod] = (),
    *names: str,
    share: float = 1.0,
    now: datetime | None = None,
    mode: Literal["a", "b"] = "a",
    pair: tuple[int, str] = (1, ""),
) -> float:
    """Fail in one of Python's ways for most of what is not what it should be."""
    total = sum(amounts.values()) * share + sum(pod.priority for pod in pods)
    if now is not None:
        now.astimezone() - datetime.fromisoformat("2026-01-01T00:00:00+00:00")
        if now.tzinfo is None:
            raise ValueError
    return total + {"a": 1, "b": 2}[mode] + pair[0] + len("".join(names) + pair[1])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (({"cpu": "1"},), "amounts: expected Mapping[str, int], got {'cpu': '1'}"),
        ((5,), "amounts: expected Mapping[str, int], got 5"),
        (({}, ["x"]), "pods: expected Iterable[Pod], got ['x']"),
        (({}, (one for one in ["x"])), "pods: AttributeError: 'str' object has no attribute 'priority'"),
        (({}, (), "x", 5), "names: expected str, got 5"),
        (({}, Unspeakable()), "pods: expected Iterable[Pod], got an object of Unspeakable"),
    ],
)
def test_the_first_argument_that_differs_from_its_annotation_is_named(
    given: tuple[Any, ...], expected: str
) -> None:
    """What stands in the arguments is looked at as well, generators excepted."""
    assert told(weigh, *given) == expected


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"mode": "c"}, "mode: expected Literal['a', 'b'], got 'c'"),
        ({"now": datetime(2026, 1, 1)}, "now: expected a time with its zone, got "),  # noqa: DTZ001 - meant
        ({"pair": (1, 2)}, "pair: expected tuple[int, str], got (1, 2)"),
        ({"pair": (1,)}, "pair: expected tuple[int, str], got (1,)"),
        ({"share": "x"}, "share: expected float, got 'x'"),
    ],
)
def test_arguments_by_name_are_named(named: dict[str, Any], expected: str) -> None:
    """A time without its zone is none, and a tuple has a length."""
    assert told(weigh, {"cpu": 1}, **named).startswith(expected)


def test_what_no_argument_is_to_blame_for_stays_what_it_is() -> None:
    """A defect of a function is not put on its caller."""

    @names_its_arguments
    def broken(number: int) -> int:
        return {}[number]  # type: ignore[index]  # it is empty

    with pytest.raises(KeyError):
        broken(1)
    assert told(broken, 2**70).startswith("number: KeyError")


def test_deep_and_endless_things_end_in_a_name() -> None:
    """Neither what is too deep to be written nor what holds itself is an error of its own."""
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for odd in (endless, deep, 10**5000):
        assert told(parse_mask, odd).startswith("text: expected str, got ")
    assert shown(10**5000) == "an object of int"


@pytest.mark.parametrize(
    ("call", "given", "name"),
    [
        (advise, (5, Pod(name="p"), ()), "snapshot"),
        (latest_report, (None,), "snapshot"),
        (koordcore.queue_order, ([1],), "pods"),
        (koordcore.named_policy, ([],), "name"),
        (ClusterSnapshot().has, (None,), "kind"),
        (ClusterSnapshot().forget, ({},), "pods"),
        (ClusterSnapshot().assume, ([],), "pods"),
        (Policy().with_plugin, (5,), "setting"),
        (Pod(name="p").at, (5,), "node"),
        (koordcore.queue_order, ({"x": 1},), "pods"),
        (version_of, ("Nothing", {"Pod": "v1"}), "kind"),
        (complete, ("Pod", {"cpu": 1}), "item"),
        (snapshot_from_objects, ("nodes.yaml",), "objects"),
        (snapshot_from_objects, (b"{}",), "objects"),
    ],
)
def test_public_calls_name_what_they_cannot_take(
    call: Callable[..., object], given: tuple[Any, ...], name: str
) -> None:
    """Functions of faces and methods of values alike."""
    assert name in told(call, *given)


def test_a_function_is_the_same_at_every_face_and_in_every_process() -> None:
    """What is handed out can be sent to another process, and is itself there."""
    assert koordcore.schedule is the_same
    assert pickle.loads(pickle.dumps(schedule)) is schedule


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (SourceLimits, {"depth": [1]}),
        (ScheduleResult, {"decisions": 5, "snapshot": ClusterSnapshot()}),
        (ScheduleResult, {"decisions": (), "snapshot": 5}),
        (koordcore.Bound, {"pod": "default/p", "node": "n"}),
        (koordcore.DeviceClass, {"name": "c", "extended_resource_name": range(3)}),
        (koordcore.ResourceClaim, {"name": 5}),
        (koordcore.SchedulingPodGroup, {"name": "g", "parent": [None]}),
    ],
)
def test_records_name_the_field_that_they_cannot_be_made_of(kind: type, fields: dict[str, Any]) -> None:
    """Also those that results and claims are made of."""
    with pytest.raises(ModelError, match=rf"^{kind.__name__}( [\w/]+)?: \w+: expected "):
        kind(**fields)


def test_a_result_by_hand_is_held_to_its_types_before_it_is_verified() -> None:
    """A decision about a pod that does not exist is a finding, one that is no decision an error."""
    snapshot = ClusterSnapshot(nodes=[Node(name="n")])
    by_hand = ScheduleResult(decisions=(koordcore.Bound(pod=PodKey("a", "b"), node="n"),), snapshot=snapshot)
    assert verify(snapshot, by_hand)
    with pytest.raises(ModelError, match="ScheduleResult: decisions"):
        ScheduleResult(decisions=("x",), snapshot=snapshot)  # type: ignore[arg-type]


def test_a_list_where_each_is_an_argument_by_itself_is_told_how_to_hand_it_over() -> None:
    pods = [Pod(name="a"), Pod(name="b")]
    assert told(ClusterSnapshot().with_pending, pods).endswith("; hand them over one by one, as *pods")
    with pytest.raises(ModelError, match=r"got .*; hand them over one by one, with a \* before$"):
        ClusterSnapshot().with_nodes((Node(name="n"),))  # type: ignore[arg-type]  # meant
    assert "one by one" not in told(ClusterSnapshot().with_pending, [5])
    assert ClusterSnapshot().with_pending(*pods).pending == tuple(pods)


def test_what_takes_no_arguments_is_no_callback() -> None:
    """A class can be called, and this one not with what a callback is told."""
    with pytest.raises(TypeError, match="progress: expected"):
        koordcore.report(ClusterSnapshot(nodes=[Node(name="n")]), progress=object)  # type: ignore[arg-type]
