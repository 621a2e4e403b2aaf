"""NodeNUMAResource on nodes that tell nothing: the short way rates and takes pods as the long one does.

Laws: the same nodes take the pod, every node has the same score, nothing is written on the pod; also where
reservations lend room.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from hypothesis import given, settings, strategies as st

from koordcore import ClusterSnapshot, Node, NodeState, Pod
from koordcore._arrays import IntMatrix, Rows
from koordcore.framework.evaluator import Evaluator, Reserved
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.numa import NUMAArgs
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.model.pods import PodKey
from koordcore.model.policy import PluginSetting
from koordcore.model.resources import make_resources
from koordcore.reservations.lending import ReservationLoans
from koordcore.scheduling.plugins.exact import ExactPlugin
from koordcore.scheduling.plugins.exact.whole import WholeNode, WholeNodeEvaluator

NAMES = ("cpu", "memory", "ephemeral-storage", "example.com/card", "kubernetes.io/batch-cpu")
amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 20_000), max_size=5)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    """A few nodes with pods, some of them without some resource, some overcommitted."""
    states = []
    for number in range(draw(st.integers(1, 4))):
        name = f"n{number}"
        pods = [
            Pod(name=f"p{number}-{index}", node_name=name, requests=draw(amounts))
            for index in range(draw(st.integers(0, 3)))
        ]
        room = {**draw(amounts), "pods": 10}
        states.append(NodeState(Node(name=name, allocatable=room), tuple(pods)))
    return ClusterSnapshot(nodes=states)


NUMA = "NodeNUMAResource"


def feature_of(workspace: Workspace, args: NUMAArgs) -> ExactPlugin:
    return ExactPlugin(workspace, {NUMA: PluginSetting(name=NUMA, args=args)})


class Lending:
    """A loan of the same amounts on every node, as far as so much is held there."""

    required = False
    gone = frozenset[PodKey]()

    def __init__(self, amount: int, requested: IntMatrix) -> None:
        self._lent = np.minimum(requested, amount)

    def lifted(self, rows: Rows, *, scored: bool = False) -> IntMatrix:
        del scored
        return self._lent[:, rows]

    def loans(self, rows: Rows) -> ReservationLoans:
        """No loan has CPUs or NUMA amounts of its own."""
        none = np.zeros((len(self._lent), 0), np.int64)
        return ReservationLoans(none[0], none, (), None)  # type: ignore[arg-type]


@given(
    clusters(),
    amounts.filter(lambda asked: any(asked.values())),
    st.sampled_from([ScoringStrategy.LEAST_ALLOCATED, ScoringStrategy.MOST_ALLOCATED]),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 5)), unique_by=lambda pair: pair[0]),
    st.integers(0, 3000),
)
@settings(max_examples=13)
def test_the_short_way_is_the_long_way(
    snapshot: ClusterSnapshot,
    asked: dict[str, int],
    strategy: ScoringStrategy,
    weights: list[tuple[str, int]],
    lent: int,
) -> None:
    workspace = Workspace(snapshot)
    args = NUMAArgs(scoring=strategy, weights=tuple(weights))
    plugin = feature_of(workspace, args).entry(NUMA)
    pod = Pod(name="new", requests=asked)
    request = plugin.request_of(pod)
    assert isinstance(request, WholeNode)
    short = plugin.evaluator(pod, request)
    assert isinstance(short, WholeNodeEvaluator)
    first = snapshot.nodes[0]
    marked = attrs.evolve(first.node, labels={"koordinator.sh/says-nothing": ""})
    telling = snapshot.with_nodes(NodeState(marked, first.pods))
    exact = feature_of(Workspace(telling), args)
    long = _long_way(exact.entry(NUMA), pod)
    for rows in (slice(None), slice(0, 1), np.arange(len(snapshot.nodes))[::-1]):
        taking = long.fits(NodeView(exact.workspace, rows))
        assert taking is not None
        assert taking.all()
        assert short.fits(NodeView(workspace, rows)) is None
        assert _scores(short, NodeView(workspace, rows)) == _scores(long, NodeView(exact.workspace, rows))
    every = NodeView(workspace, np.arange(len(snapshot.nodes)))
    if all(asked.values()):
        more = Pod(name="more", requests={name: amount + 7 for name, amount in asked.items()})
        other = plugin.evaluator(more, plugin.request_of(more))
        assert isinstance(other, WholeNodeEvaluator)
        assert other.batch_key == short.batch_key
        both = short.together([short, other]).scores(every)
        assert both.tolist() == [_scores(short, every), _scores(other, every)]
    source: Any = Lending(lent, workspace.requested)
    restored = [NodeView(one, slice(None), source) for one in (workspace, exact.workspace)]
    assert _scores(short, restored[0]) == _scores(long, restored[1])
    there = NodeView(exact.workspace, slice(0, 1))
    given_there = exact.evaluator(pod, exact.request_of(pod)).allocate(pod, there)
    assert isinstance(given_there, Reserved)
    assert not given_there.annotations
    assert not given_there.notes


def _scores(evaluator: Evaluator, view: NodeView) -> list[int]:
    scores = evaluator.scores(view)
    assert scores is not None
    return [int(score) for score in scores]


def _long_way(plugin: Plugin, pod: Pod) -> Evaluator:
    """Say something on a node that matters nowhere, so that the plugin looks closely."""
    request = plugin.request_of(pod)
    assert not isinstance(request, WholeNode)
    return plugin.evaluator(pod, request)


def test_what_a_pod_holds_already_goes_the_long_way() -> None:
    """A pod that brings cpus on its annotation is recorded with them."""
    snapshot = ClusterSnapshot(nodes=[Node(name="n", allocatable={"cpu": 4000, "pods": 9})])
    plugin = feature_of(Workspace(snapshot), NUMAArgs()).entry(NUMA)
    status = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-1"}'}
    pod = Pod(name="p", requests=make_resources({"cpu": 2000}), annotations=status)
    assert not isinstance(plugin.request_of(pod), WholeNode)
