"""Plugins that break the contract, one for each clause, and those that keep it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from koordcore import ClusterSnapshot, ModelError, Node, Pod, Shortfall
from koordcore._arrays import BoolVector, IntVector
from koordcore.framework import Evaluator, NodeView, Plugin, Reserved, Scope, Workspace
from koordcore.testing import BrokenContractError, check_plugin
from koordcore.testing.violation import Clause

FREE = 2
"""Where what is free stands among the amounts of a view."""


class Table(Evaluator):
    """Nodes of a zone serve, and the first name is best."""

    def __init__(self, workspace: Workspace) -> None:
        nodes = workspace.layout.nodes
        self.has = np.array(["zone" in node.labels for node in nodes])
        self.worth = np.arange(len(nodes))[::-1].copy()

    def fits(self, view: NodeView) -> BoolVector:
        mask: BoolVector = self.has[view.rows]
        return mask

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        return [("no zone", ~self.has[view.rows])]

    def scores(self, view: NodeView) -> IntVector | None:
        worth: IntVector = self.worth[view.rows]
        return worth


class Good(Plugin):
    """Keeps the contract; the broken ones differ from it in one thing."""

    name = "Good"
    kind: ClassVar[type[Table]] = Table

    def request_of(self, pod: Pod) -> Hashable:
        return "zone"

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return self.kind(self.workspace)


def with_evaluator(evaluator: type[Table]) -> type[Plugin]:
    return type("Broken", (Good,), {"name": "Broken", "kind": evaluator, "__doc__": evaluator.__doc__})


class Silent(Good):
    """Nobody concerns it."""

    def request_of(self, pod: Pod) -> Hashable:
        return None


class Raises(Table):
    def fits(self, view: NodeView) -> BoolVector:
        raise KeyError("zone")


class Unhashable(Good):
    def request_of(self, pod: Pod) -> Any:
        return dict(pod.labels)


class SaysItIsTheTemplate(Good):
    by_template = True

    def request_of(self, pod: Pod) -> Hashable:
        return pod.name


class SaysTheTemplateHasAnAge(Good):
    by_template = True

    def request_of(self, pod: Pod) -> Hashable:
        return (pod.created,)


class SaysTheTemplateIsOld(Good):
    by_template = True

    def request_of(self, pod: Pod) -> Hashable:
        return pod.created is not None and pod.created.year < 2026


class NewEachTime(Good):
    def request_of(self, pod: Pod) -> Hashable:
        return object()


class ReadsThePod(Good):
    """Two pods want the same, and the more important one gets more."""

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        made = Table(self.workspace)
        made.worth = made.worth + (50 if pod.priority > 0 else 0)
        return made


class ListOfTruths(Table):
    def fits(self, view: NodeView) -> Any:
        return self.has[view.rows].tolist()


class HalfPoints(Table):
    def scores(self, view: NodeView) -> Any:
        return self.worth[view.rows] / 2


class EveryNodeWhateverTheView(Table):
    def scores(self, view: NodeView) -> IntVector:
        return self.worth


class CallsAllNodesAlike(Table):
    """Says that every node is worth the same, and answers otherwise."""

    @property
    def alike(self) -> tuple[bool, int | None]:
        return True, 0


class Counting(Table):
    """Likes a node more whenever it is asked."""

    asked = 0

    def scores(self, view: NodeView) -> IntVector:
        self.asked += 1
        worth: IntVector = self.worth[view.rows] + self.asked
        return worth


class CountingAcrossClasses(Good):
    """Each evaluator likes the nodes more than the last one did."""

    made = 0

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        self.made += 1
        made = Table(self.workspace)
        made.worth = made.worth + self.made % 7
        return made


class Spends(Table):
    """Takes a core off every node that it is asked about."""

    def fits(self, view: NodeView) -> BoolVector:
        view.workspace.amounts[FREE, 0] -= 1
        return super().fits(view)


class Sorts(Table):
    """Takes it for granted that rows come in order."""

    def scores(self, view: NodeView) -> IntVector:
        worth: IntVector = self.worth[np.sort(view.numbers)]
        return worth


class BestOfTheView(Table):
    """A hundred for the best node of those that it is asked about."""

    def scores(self, view: NodeView) -> IntVector:
        worth: IntVector = self.worth[view.rows]
        best: IntVector = worth - worth.max() + 100
        return best


class CallsLabelsAmounts(Table):
    scope = Scope.NODE
    amounts_only = True


class LooksPastTheView(Table):
    """Says what is free on nodes, not what the view shows there."""

    scope = Scope.NODE
    amounts_only = True

    def fits(self, view: NodeView) -> None:  # type: ignore[override]
        return None

    def scores(self, view: NodeView) -> IntVector:
        free: IntVector = view.workspace.free[0, view.rows] * 100 // 10**6
        return free


class TooMuch(Table):
    def scores(self, view: NodeView) -> IntVector:
        return np.full(len(view.numbers), 101)


class NoReason(Table):
    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        return []


class RefusesAtLast(Table):
    """Says yes, and no when it comes to it."""

    def allocate(self, pod: Pod, view: NodeView) -> Reserved | Shortfall | None:
        return Shortfall("no zone after all")


class CallsAmountsStatic(Table):
    def scores(self, view: NodeView) -> IntVector:
        free: IntVector = view.amounts[FREE][0] * 100 // 10**6
        return free


class CallsTheClusterOneNode(Table):
    """What is free anywhere counts everywhere."""

    scope = Scope.NODE

    def scores(self, view: NodeView) -> IntVector:
        free = int(view.workspace.free[0].sum()) * 100 // 10**6
        return np.full(len(view.numbers), free)


class Remembers(Table):
    """Looks once at what is free, and never again."""

    scope = Scope.NODE

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(workspace)
        self.worth = workspace.free[0] * 100 // 10**6


class Grudge(Good):
    """Counts who came to a node, and forgets nobody who left."""

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.came = np.zeros(len(workspace.layout.names), np.int64)

    def placed(self, pod: Pod, row: int) -> None:
        self.came[row] += 1

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        made = Table(self.workspace)
        made.scope = Scope.NODE  # type: ignore[misc]  # as a class of its own would say
        made.worth = self.came
        return made


class SaysItReadsTaintsAlone(Good):
    looks_at = frozenset({"taints"})


class SaysItReadsLabels(Good):
    looks_at = frozenset({"labels"})


class KeepsItsTableWhateverNodesSay(Good):
    """Declares what it reads, and keeps what it once read of it."""

    looks_at = frozenset({"labels"})

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.table = Table(workspace)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return self.table


class NeedsPortsAndLooksAtLabels(Good):
    """Says that only pods with ports concern it, and asks others, too."""

    needs = frozenset(("host_ports",))


class WakesWithAnOldTable(Good):
    """Keeps what it saw of the cluster when nothing concerned it."""

    needs = frozenset(("host_ports",))

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        self.number = sum(len(state.pods) for state in workspace.snapshot.nodes)

    def request_of(self, pod: Pod) -> Hashable:
        return "port" if pod.host_ports and self.number else None


BROKEN: list[tuple[Clause, type[Plugin]]] = [
    (Clause.CONCERN, Silent),
    (Clause.ERROR, with_evaluator(Raises)),
    (Clause.REQUEST, Unhashable),
    (Clause.REQUEST, NewEachTime),
    (Clause.TEMPLATE, SaysItIsTheTemplate),
    (Clause.TEMPLATE, SaysTheTemplateHasAnAge),
    (Clause.TEMPLATE, SaysTheTemplateIsOld),
    (Clause.EQUAL_REQUESTS, ReadsThePod),
    (Clause.SHAPE, with_evaluator(ListOfTruths)),
    (Clause.SHAPE, with_evaluator(HalfPoints)),
    (Clause.SHAPE, with_evaluator(EveryNodeWhateverTheView)),
    (Clause.PURITY, with_evaluator(Counting)),
    (Clause.PURITY, CountingAcrossClasses),
    (Clause.PURITY, with_evaluator(Spends)),
    (Clause.ROWS, with_evaluator(Sorts)),
    (Clause.BATCH, with_evaluator(BestOfTheView)),
    (Clause.BATCH, with_evaluator(CallsAllNodesAlike)),
    (Clause.EQUAL_AMOUNTS, with_evaluator(CallsLabelsAmounts)),
    (Clause.EQUAL_AMOUNTS, with_evaluator(LooksPastTheView)),
    (Clause.SCORE, with_evaluator(TooMuch)),
    (Clause.REASONS, with_evaluator(NoReason)),
    (Clause.RESERVE, with_evaluator(RefusesAtLast)),
    (Clause.SCOPE, with_evaluator(CallsAmountsStatic)),
    (Clause.SCOPE, with_evaluator(CallsTheClusterOneNode)),
    (Clause.UNDO, Grudge),
    (Clause.WARM, with_evaluator(Remembers)),
    (Clause.WARM, KeepsItsTableWhateverNodesSay),
    (Clause.NEEDS, NeedsPortsAndLooksAtLabels),
    (Clause.LOOKS_AT, SaysItReadsTaintsAlone),
]


def test_every_clause_is_planted() -> None:
    assert {clause for clause, _ in BROKEN} == set(Clause)


@pytest.mark.parametrize(
    ("clause", "plugin"), BROKEN, ids=[f"{clause}-{number}" for number, (clause, _) in enumerate(BROKEN)]
)
def test_what_breaks_a_clause_is_found(clause: Clause, plugin: type[Plugin]) -> None:
    assert clause in {one.clause for one in check_plugin(plugin)}


def test_one_defect_is_told_once_for_each_cluster_and_raised_on_request() -> None:
    broken = with_evaluator(BestOfTheView)
    (first, second) = check_plugin(broken)
    assert check_plugin(broken) == (first, second)
    assert {first.clause, second.clause} == {Clause.BATCH}
    assert str(first) == (
        "Broken: batch: pod default/batch, asked about all nodes and about only the rows [1]: "
        "scores on node-1: 99, then 100 (snapshot 0)"
    )
    with pytest.raises(BrokenContractError, match="Broken: batch") as raised:
        check_plugin(broken, raises=True)
    assert raised.value.violations == (first, second)


def test_what_keeps_the_contract_passes() -> None:
    assert check_plugin(Good, raises=True) == ()


def test_who_names_what_it_looks_at_passes_and_who_leaves_a_field_out_is_told_which() -> None:
    assert check_plugin(SaysItReadsLabels) == ()
    (found, *_) = check_plugin(SaysItReadsTaintsAlone)
    assert found.clause is Clause.LOOKS_AT
    assert found.message == (
        "pod default/batch, after node node-0 said something else in labels: "
        "fits on node-0 is True, with a new plugin False"
    )


def test_clusters_of_ones_own_come_first() -> None:
    """A plugin that only its own labels concern is tested where they occur."""

    class OnlyMine(Good):
        def request_of(self, pod: Pod) -> Hashable:
            return "zone" if "mine" in pod.labels else None

        def evaluator(self, pod: Pod, request: Any) -> Evaluator:
            return NoReason(self.workspace)

    mine = ClusterSnapshot(
        nodes=[Node(name="n", allocatable={"pods": 2})], pending=[Pod(name="p", labels={"mine": ""})]
    )
    assert [one.clause for one in check_plugin(OnlyMine)] == [Clause.CONCERN]
    (found,) = check_plugin(OnlyMine, snapshots=[mine])
    assert (found.clause, found.snapshot) == (Clause.REASONS, 0)


def test_what_is_no_plugin_is_refused() -> None:
    with pytest.raises(ModelError, match="no plugin Nobody"):
        check_plugin("Nobody")
    with pytest.raises(ModelError, match="a plugin needs a name"):
        check_plugin(Evaluator)  # type: ignore[arg-type]  # on purpose
