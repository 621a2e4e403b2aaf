"""What a notebook shows, and what data frames are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from immutabledict import immutabledict

from koordcore import (
    Bound,
    Node,
    NotOurs,
    Pod,
    Unschedulable,
    compare_policies,
    explain,
    named_policy,
    plan_room,
)
from koordcore.descheduling.defrag import Wanted
from koordcore.scoring import GpuDemand, GpuNode, workload_mix
from koordcore.simulate import Arrival, Task, make_policy, replay
from tests.reporting.clusters import HOSTILE, example, large, preempted, scattered

MOVING = plan_room(scattered(), Wanted(requests={"nvidia.com/gpu": 8, "pods": 1}))
EXPLAINED = explain(example(), "default/render-16")


def course() -> Any:
    one = GpuDemand(gpus=1)
    mix = workload_mix([one])
    nodes = [GpuNode(name="n", cpu=1000, memory=1, cards=(1000,) * 2)]
    return replay(nodes, [Arrival(0, Task(name="t", demand=one))], make_policy("fgd", mix), mix=mix)


COMPARED = compare_policies(
    scattered(), {"packed": named_policy("binpack"), "spread": named_policy("spread")}
)
SHOWN: Mapping[str, Any] = {
    "comparison": COMPARED,
    "snapshot": example().snapshot,
    "result": example(),
    "explanation": EXPLAINED,
    "moves": MOVING,
    "preemption": preempted().preemptions[0],
}


@pytest.mark.parametrize("name", [*SHOWN, "replay"])
def test_pandas_takes_every_table(name: str) -> None:
    pandas = pytest.importorskip("pandas")
    table = course().table() if name == "replay" else SHOWN[name].table()
    frame = pandas.DataFrame(table)
    assert list(frame.columns) == list(table)
    assert len(frame) > 0


@pytest.mark.parametrize(
    ("module", "make"),
    [("polars", lambda polars: polars.DataFrame), ("pyarrow", lambda pyarrow: pyarrow.table)],
)
@pytest.mark.parametrize("name", SHOWN)
def test_other_frames_take_it_where_they_are_there(
    name: str, module: str, make: Callable[[Any], Callable[[Mapping[str, Sequence[Any]]], Any]]
) -> None:
    made = make(pytest.importorskip(module))(SHOWN[name].table())
    assert made.shape[0] > 0


def test_the_table_of_a_result_says_what_its_decisions_say() -> None:
    result = example()
    rows = zip(*result.table().values(), strict=True)
    for decision, (namespace, name, outcome, node, score, why) in zip(result.decisions, rows, strict=True):
        assert (namespace, name) == (decision.pod.namespace, decision.pod.name)
        match decision:
            case Bound():
                assert (outcome, node, score, why) == ("bound", decision.node, decision.score, "")
            case Unschedulable() | NotOurs():
                assert (node, score, why) == ("", None, decision.message)
            case _:
                assert outcome in {"waiting", "nominated"}


def test_changing_a_table_changes_no_snapshot() -> None:
    snapshot = scattered()
    snapshot.table()["nvidia.com/gpu"][:] = 0
    assert snapshot.table()["nvidia.com/gpu"].tolist() == [8, 8, 8]


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_is_shown_a_table(name: str) -> None:
    shown = SHOWN[name]._repr_html_()
    assert shown.count("<tr>") == 1 + min(30, len(next(iter(SHOWN[name].table().values()))))


def test_a_large_cluster_does_not_flood_a_notebook() -> None:
    shown = large()._repr_html_()
    assert len(shown) < 10_000
    assert "… and 970 more; table() has them all" in shown


def test_no_text_of_a_cluster_is_markup() -> None:
    quota = preempted().snapshot.pending[0]
    assert quota.labels
    shown = explain(preempted(), quota.key)._repr_html_() + preempted()._repr_html_()
    assert HOSTILE not in shown
    assert re.findall(r"</?(\w+)", shown).count("script") == 0


def test_a_comparison_has_a_row_per_policy() -> None:
    table = COMPARED.table()
    assert table["policy"] == ["packed", "spread"]
    assert table["placed"] == [one.bound for one in COMPARED.outcomes]
    assert len(repr(COMPARED)) < 120


def test_a_pod_and_a_node_say_what_was_said_of_them() -> None:
    """And can be read back from it."""
    one = Pod(name="p", requests={"cpu": 1}, priority=5)
    assert repr(one) == ("Pod(name='p', requests=immutabledict({'cpu': 1}), priority=5)")
    room = Node(name="n", allocatable={"cpu": 1000}, unschedulable=True)
    assert repr(room) == "Node(name='n', unschedulable=True, allocatable=immutabledict({'cpu': 1000}))"
    names = {"Pod": Pod, "Node": Node, "immutabledict": immutabledict}
    assert (eval(repr(one), names), eval(repr(room), names)) == (one, room)
