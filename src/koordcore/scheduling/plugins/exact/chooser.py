"""The choice of NUMA nodes as others see it who give pods something near the same nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import attrs

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore.allocators.node_request import NodeRequest
from koordcore.allocators.numa_request import NUMARefusal
from koordcore.model.decisions import Shortfall
from koordcore.model.pods import Pod

if TYPE_CHECKING:
    from koordcore.allocators.numa_align import NUMAProvider
    from koordcore.scheduling.plugins.exact.question import Question
    from koordcore.scheduling.plugins.exact.states import ExactStates


class _Exact(Protocol):
    """The plugin as the choice sees it."""

    @property
    def tells_numa(self) -> bool:
        """Whether any node says something that NUMA nodes hang on."""

    @property
    def states(self) -> ExactStates:
        """What every node has."""

    def node_request(self, pod: Pod) -> NodeRequest | None:
        """Give what a pod asks for; ``None`` for nothing, and for what is refused."""

    def question(self, request: NodeRequest) -> Question:
        """Open the answers to one kind of request."""


class NUMAChooser:
    """Answers of the exact plugin about pods that others give something, too.

    Parameters
    ----------
    exact
        The plugin.
    """

    def __init__(self, exact: _Exact) -> None:
        self._exact = exact

    def _asked_by(self, pod: Pod) -> Question | None:
        """Open the answers to what a pod asks for, where it asks for CPUs or amounts."""
        request = self._exact.node_request(pod) if self._exact.tells_numa else None
        return None if request is None or request.cpu is None else self._exact.question(request)

    def holding(self, pod: Pod, rows: Rows) -> BoolVector | None:
        """Tell which nodes hold a pod to some of their NUMA nodes, ``(n,)``; ``None`` for none of them."""
        question = self._asked_by(pod)
        return None if question is None else question.holding(rows)

    def states_for(self, pod: Pod) -> tuple[object, IntVector]:
        """Number what nodes have of CPUs, amounts and devices, ``(N,)``, and tell whose numbers they are."""
        question = self._asked_by(pod)
        tied = None if question is None else question.joint or question.cpu
        assert tied is not None, "some node holds the pod"
        self._exact.states.update()
        return tied.table, tied.table.ids

    def lacking_beside(self, pod: Pod, row: int, side: NUMAProvider) -> tuple[Shortfall, ...]:
        """Say what is lacking of NUMA nodes that serve a side as well; empty where some do.

        What is lacking without the side is not said here.
        """
        question = self._asked_by(pod)
        if question is None or not question.serves(row):
            return ()
        answer = question.beside(row, (side,), amounts=False)
        return answer.shortfalls if isinstance(answer, NUMARefusal) else ()

    def lines_beside(self, pod: Pod, row: int, side: NUMAProvider) -> tuple[str, ...]:
        """Say what each NUMA node has, and has not, where none serves everything."""
        from koordcore.allocators.numa_explain import explain_node

        question = self._asked_by(pod)
        if question is None:
            return ()
        asked = question.asked_at(row)
        offer = self._exact.states.offer(row, with_devices=asked.devices is not None)
        return explain_node(attrs.evolve(offer, sides=(side,)), asked, question.args).lines
