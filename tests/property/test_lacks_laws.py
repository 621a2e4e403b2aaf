"""What many nodes lack, told at once, is what each of them tells by itself."""

from __future__ import annotations

import pickle
from itertools import chain

import attrs
import numpy as np
from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Pod, Policy, explain
from koordcore.framework.evaluator import Refusal
from koordcore.framework.lacks import NodeLacks
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.registry import known_plugins
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.decisions import Shortfall
from koordcore.scheduling.cycle import open_workspace
from tests.property.living_worlds import START, waiting_pods, worlds

SHIPPED = koordinator_policy(known_plugins())


@st.composite
def askers(draw: st.DrawFn) -> Pod:
    """A pod of one of many kinds that asks for little or for much."""
    pod = draw(waiting_pods("asks"))
    factor = draw(st.sampled_from([1, 1, 3, 20]))
    return attrs.evolve(pod, requests={name: factor * amount for name, amount in pod.requests.items()})


def lacking(shortfalls: tuple[Shortfall, ...]) -> tuple[int, int]:
    """The largest share that is missing, in thousandths, and the sum; a lack that is no amount is whole."""
    shares = [one.lacking * 1000 // one.requested if one.requested else 1000 for one in shortfalls]
    return max(shares, default=0), sum(shares)


@settings(max_examples=20, deadline=None)
@given(worlds(reserving=True), st.data())
def test_nodes_told_at_once_and_one_by_one(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """Every filter of every kind of pod: the same words, numbers and shares, in the same order."""
    policy = data.draw(st.sampled_from([SHIPPED, Policy()]))
    pod = data.draw(askers())
    workspace = open_workspace(snapshot, policy, START)
    own = PluginSet(workspace, policy).class_of(pod)
    if isinstance(own, Refusal):
        return
    number = len(workspace.layout.names)
    for part in own.parts:
        if not part.setting.filters:
            continue
        lacks = NodeLacks.of(part.evaluator, own.view())
        single = [part.evaluator.shortfalls(own.view().at(row)) for row in range(number)]
        assert [lacks.at(row) for row in range(number)] == single
        assert lacks.counts(number).tolist() == list(map(len, single))
        shares = [np.zeros(number, np.int64), *lacks.shares(number)]
        assert list(zip(np.max(shares, axis=0), np.sum(shares, axis=0), strict=True)) == [
            lacking(one) for one in single
        ]


@settings(max_examples=13, deadline=None)
@given(worlds(reserving=True), st.data())
def test_an_explanation_is_in_order(snapshot: ClusterSnapshot, data: st.DataObject) -> None:
    """Best first, then by how little is lacking, then by name; help comes of the same, the nearest first."""
    pod = data.draw(askers())
    told = explain(snapshot, pod, policy=SHIPPED, now=START)
    verdicts = list(told.verdicts)
    assert verdicts == sorted(verdicts, key=lambda one: (-one.total, lacking(one.shortfalls), one.node))
    assert [*told.verdicts[:2]] == verdicts[:2]
    assert pickle.loads(pickle.dumps(told)) == told
    assert list(told.fitting) == [one.node for one in verdicts if one.fits]
    if told.help:
        assert sum(one.nodes for one in told.help) == len(verdicts)
        by_name = {one.node: one for one in verdicts}
        for one in told.help:
            assert by_name[one.nearest].shortfalls == one.shortfalls
        assert [lacking(one.shortfalls) for one in told.help] == sorted(
            lacking(one.shortfalls) for one in told.help
        )
        assert {*chain.from_iterable(one.plugins for one in told.help)} >= {one.plugin for one in verdicts}
