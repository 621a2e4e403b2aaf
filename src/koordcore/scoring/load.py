"""Load-aware filter and score as kernels over all nodes.

Measured usage, and estimates of pods that no measurement shows yet, are columns ``(C, N)`` of int64: C
resources in the order of their names, cpu in milli-CPU, everything else in units. A pod that is placed adds
its estimate to one node; taking it away subtracts the same amounts, so a state never has to be made anew.

The rule is that of upstream's ``pkg/scheduler/plugins/loadaware``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray

from koordcore._arrays import BoolVector, IntCube, IntMatrix, IntVector, Rows
from koordcore._vector import Splice
from koordcore.model.load import LoadAwareArgs
from koordcore.model.metrics import NodeMetric
from koordcore.model.nodes import Node
from koordcore.model.pods import Pod
from koordcore.model.resources import Resources, make_resources
from koordcore.protocol.times import moment_of
from koordcore.scoring.load_bulk import add_all
from koordcore.scoring.load_estimates import NO_REPORT, Estimate, Estimator, LoadRequest, change_of
from koordcore.scoring.load_nodes import NO_LIMIT, NodeKind, NodeKinds, NodeLoads
from koordcore.scoring.load_score import LoadScore
from koordcore.scoring.load_slots import Slots, grown
from koordcore.snapshot import ClusterSnapshot

REASON_EXPIRED: Final = "node(s) nodeMetric expired"
FITS: Final = 0
EXPIRED: Final = 1

SCORABLE: Final = 2
_PARTS: Final = 8
_VECTORS: Final = ("prodUsage", "nodeDelta", "prodDelta", "nodeEstimated")
_CHANGES_KEPT: Final = 2**12
"""Kinds of pods of which it is remembered what one changes."""


class LoadState:
    """Load of every node, updated pod by pod.

    Attributes
    ----------
    args
        What it was made for.
    names
        Resource names of the columns, sorted.
    now
        The clock of the decision, in nanoseconds since 1970.
    prod_usage, node_delta, prod_delta, node_estimated
        ``(C, N)`` until nodes join or leave: what prod pods use by measurement; what pods are
        expected to use beyond the measurement, for all pods and for prod pods; what all pods are expected to
        use in total.
    reasons
        Text of each code that :meth:`fit` gives.

    Notes
    -----
    A pod that is bound without a moment of binding counts as bound now, as upstream counts a pod that it
    sees for the first time.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        metrics: Mapping[str, NodeMetric],
        args: LoadAwareArgs,
        now: datetime | int,
    ) -> None:
        self.args = args
        self.names = args.columns
        self._estimator, self._score, self._kinds = Estimator(args), LoadScore(args), NodeKinds(args)
        self.reasons = (
            "",
            REASON_EXPIRED,
            *(f"node(s) {name} usage exceed threshold" for name in self.names),
            *(f"node(s) {name} aggregated usage exceed threshold" for name in self.names),
        )
        self._open(nodes, metrics, now if isinstance(now, int) else moment_of(now))
        self._update_all()

    def _open(self, nodes: Sequence[Node], metrics: Mapping[str, NodeMetric], now: int) -> None:
        """Compile what nodes and metrics say; :meth:`_update_all` comes next."""
        self.now = now
        self._read = 0
        self._shared = False
        self._bare: tuple[NodeKind, LoadState] | None = None
        self._slots: Slots | None = None
        self._fresh_until = NO_LIMIT
        self._filtering: tuple[bool, ...] = ()
        self._clock: NDArray[np.bool_]
        self._limits: IntCube
        self._changes: dict[tuple[Estimate, bool, bool, bool, bool], IntMatrix] = {}
        self._nodes = NodeLoads(nodes, [metrics.get(node.name) for node in nodes], self.args, self._kinds)
        self._name_parts(np.zeros((_PARTS, len(self.names), len(nodes)), np.int64))
        self.prod_usage += self._nodes.system
        self._set_clock()

    def _with(
        self, nodes: Sequence[Node], metrics: Mapping[str, NodeMetric], pods: Sequence[Sequence[Pod]]
    ) -> LoadState:
        """Make a state of the same kind."""
        made: LoadState = copy(self)
        made._open(nodes, metrics, self.now)
        made.place_all(enumerate(pods))
        return made

    def _empty(self, node: Node) -> LoadState:
        """Make the state of a node without a metric and pods: mostly those that join are of one kind."""
        (kind,) = self._kinds.of([node])
        if self._bare is None or self._bare[0] != kind:
            self._bare = kind, self._with([node], {}, ((),))
        return self._bare[1]

    def _slot(self, row: int) -> int:
        return row if self._slots is None else int(self._slots.block[row])

    def _at(self, rows: Rows) -> Rows:
        """Give where nodes stand in the columns: their rows, until some join or leave."""
        slots = self._slots
        if slots is None:
            return rows
        if isinstance(rows, slice) and rows.start is not None and rows.stop == rows.start + 1:
            slot = int(slots.block[rows.start])  # of one node, as the view of a node has it
            return slice(slot, slot + 1)
        return slots.at[rows]

    @classmethod
    def of_snapshot(cls, snapshot: ClusterSnapshot, args: LoadAwareArgs, now: datetime | int) -> LoadState:
        """Compile the state of a snapshot: its nodes, their metrics and the pods bound to them."""
        metrics = {metric.node: metric for metric in snapshot.of(NodeMetric)}
        state = cls([one.node for one in snapshot.nodes], metrics, args, now)
        state.place_all((row, one.pods) for row, one in enumerate(snapshot.nodes))
        return state

    def fork(self) -> LoadState:
        """Give a state that goes its own way from here; what pods cannot change is shared."""
        other = copy(self)
        other._shared = True  # noqa: SLF001  # a copy of its own
        other._changes = dict(self._changes)  # noqa: SLF001
        other._name_parts(self._parts.copy())  # noqa: SLF001
        return other

    def at(self, now: int) -> LoadState | None:
        """Give a state for another moment that goes its own way.

        ``None`` where a measurement is from after one of the two moments: then the moment decides for which
        pods it stands, and the state has to be compiled for it.
        """
        other = self.fork()
        return None if other.go_to(now) is None else other

    def go_to(self, now: int) -> IntVector | None:
        """Go to another moment in place, as far as nothing but the age of measurements depends on it.

        Returns
        -------
        IntVector or None
            Rows of nodes whose measurement expires between, or is fresh again; ``None``, and nothing is
            done, where a measurement is from after one of the moments.
        """
        if now == self.now:
            return np.empty(0, np.int64)
        if min(now, self.now) <= self._nodes.latest:
            return None
        turned = np.empty(0, np.int64)
        if not self.now < now < self._fresh_until:
            differs = self._nodes.too_old(now) != self._nodes.too_old(self.now)
            turned = np.flatnonzero(differs[self._at(slice(None))])
            self._fresh_until = self._nodes.fresh_until(now)
        self.now = now
        if len(turned):
            self._unshare()
            self._set_clock()
            self._update_all()
        return turned

    def renew(
        self,
        rows: Sequence[int],
        nodes: Sequence[Node],
        metrics: Mapping[str, NodeMetric],
        pods: Sequence[Sequence[Pod]],
    ) -> None:
        """Make some rows anew, of nodes, metrics or pods that are others now.

        Parameters
        ----------
        rows
            Which.
        nodes, pods
            Row by row of these; pods as :meth:`place_all` counts them.
        metrics
            By name of the node.
        """
        self._unshare()
        new = len(nodes) == 1 and not metrics and not pods[0]
        fresh: LoadState = self._empty(nodes[0]) if new else self._with(nodes, metrics, pods)
        where = rows if self._slots is None else self._slots.at[list(rows)].tolist()
        slots = slice(where[0], where[0] + 1) if len(where) == 1 else np.array(where, np.int64)
        self._parts[:, :, slots] = fresh._parts
        self._nodes.put(where, slots, fresh._nodes)
        self._clock[..., slots] = fresh._clock
        self._limits[..., slots] = fresh._limits
        self._fresh_until = min(self._fresh_until, fresh._fresh_until)
        # Where no node could refuse a pod, only those that are others now can.
        if fresh._filtering != self._filtering:
            self._filtering = self._any_filters() if any(self._filtering) else fresh._filtering

    def move(self, edits: Sequence[Splice]) -> None:
        """Let nodes join and leave, as :meth:`Slots.moved`; those that joined are to be made anew then."""
        self._unshare()
        slots, number = self._slots, self._parts.shape[-1]
        if slots is None:
            slots = Slots(np.arange(number), number, ())
        self._slots = slots.moved(edits, self._nodes.forget, self._grow)

    def _grow(self, number: int) -> range:
        """Add slots for nodes of which nothing is known; gives them."""
        blank: LoadState = self._with([Node(name="-")], {}, ())
        end = self._parts.shape[-1]
        self._nodes.grow(blank._nodes, number)
        self._name_parts(grown(self._parts, blank._parts, number))
        self._clock = grown(self._clock, blank._clock, number)
        self._limits = grown(self._limits, blank._limits, number)
        return range(end, end + number)

    def _unshare(self) -> None:
        """Stop sharing with other states what only metrics and nodes change."""
        if self._shared:
            self._nodes = self._nodes.copied()
            self._clock = self._clock.copy()
            self._limits = self._limits.copy()
            if self._slots is not None:
                self._slots = self._slots._replace(block=self._slots.block.copy())
            self._shared = False

    def _name_parts(self, parts: IntMatrix) -> None:
        """Keep everything that a pod changes in one block: a pod is then one addition to a column of it."""
        self._parts = parts
        self.prod_usage, self.node_delta, self.prod_delta, self.node_estimated = parts[:4]
        self._headroom, self._left = (parts[4], parts[5]), (parts[6], parts[7])

    def _set_clock(self) -> None:
        """Find the metrics that are too old now; they refuse, or let everything pass."""
        args, nodes = self.args, self._nodes
        expired = nodes.too_old(self.now)
        late = expired & args.filter_expired_node_metrics
        passing = ~nodes.reported | ~nodes.body | late
        refusing = nodes.reported & late
        if args.enable_schedule_when_node_metrics_expired:
            refusing = np.zeros_like(refusing)
        plain_expired = refusing & nodes.plain_filters
        prod_expired = refusing & nodes.prod_filters | plain_expired
        # (3, N): expired for pods that are no prod pods, for prod pods; and who is scored.
        self._clock = np.array([plain_expired, prod_expired, nodes.reported & ~expired & nodes.body])
        amounts = (nodes.plain_limits, nodes.prod_limits)
        plain_limits, prod_limits = (np.where(passing, NO_LIMIT, limits) for limits in amounts)
        # (2, C, N)
        self._limits = np.array([plain_limits, np.where(nodes.prod_filters, prod_limits, plain_limits)])
        self._fresh_until = self._nodes.fresh_until(self.now)
        self._filtering = self._any_filters()

    def _any_filters(self) -> tuple[bool, ...]:
        """Tell whether any node could refuse a pod, other pods and prod pods."""
        return tuple(
            bool(expired.any() or (limits != NO_LIMIT).any())
            for limits, expired in zip(self._limits, self._clock[:SCORABLE], strict=True)
        )

    def _update_all(self) -> None:
        """Add up what is left below the limits, and of the capacity, for other and for prod pods."""
        nodes = self._nodes
        filtered = np.where(nodes.alone_filter, self.node_estimated, nodes.measured_filter + self.node_delta)
        scored = np.where(nodes.alone_score, self.node_estimated, nodes.measured_score + self.node_delta)
        prod = self.prod_usage + self.prod_delta
        for kind, limits in enumerate(self._limits):
            others = np.where(nodes.prod_filters, prod, filtered) if kind else filtered
            np.subtract(limits, others, out=self._headroom[kind])
        np.subtract(nodes.capacity, scored, out=self._left[0])
        by_prod = prod if self.args.score_according_prod_usage else scored
        np.subtract(nodes.capacity, by_prod, out=self._left[1])

    def request_key(self, pod: Pod) -> tuple[tuple[int, ...], bool, bool]:
        """Give what tells pods apart here: the estimate, whether it is a prod pod, and of a DaemonSet."""
        estimate = self._estimator.of(pod)
        daemon = bool(pod.owners) and any(owner.kind == "DaemonSet" for owner in pod.owners)
        return estimate.amounts, estimate.prod, daemon

    def request_of(self, pod: Pod) -> LoadRequest:
        """Compile a pod."""
        amounts, prod, daemon = self.request_key(pod)
        return LoadRequest(np.array(amounts, np.int64)[:, None], prod, daemon)

    def _count(self, pod: Pod, row: int, assigned: int | None, sign: int) -> None:
        estimate, nodes = self._estimator.seen(pod), self._nodes
        if estimate is None:
            return
        row = self._slot(row)
        report, moment = nodes.reports[row], self.now if assigned is None else assigned
        alone = (
            bool(nodes.alone_filter[row]),
            bool(nodes.alone_score[row]),
            bool(nodes.prod_filters[row]),
            self.args.score_according_prod_usage,
        )
        if report.find(pod.key) is not None:
            change = change_of(self._estimator.contribution(pod, estimate, report, moment), *alone)
        else:
            # Where no measurement shows the pod, all pods of the same estimate change a node alike.
            key = (estimate, *alone)
            known = self._changes.get(key)
            if known is None:
                known = change_of(self._estimator.contribution(pod, estimate, NO_REPORT, moment), *alone)
                if len(self._changes) >= _CHANGES_KEPT:
                    self._changes.clear()
                self._changes[key] = known
            change = known
        column = self._parts[:, :, row]
        if sign > 0:
            column += change
        else:
            column -= change

    def place(self, pod: Pod, row: int, assigned: int | None = None) -> None:
        """Count a pod on a node.

        Parameters
        ----------
        pod
            The pod; finished and reserve pods do not count.
        row
            Row of its node.
        assigned
            Moment of the assignment in nanoseconds, for a pod that does not say when it was scheduled;
            ``None`` is now.
        """
        self._count(pod, row, assigned, 1)

    def remove(self, pod: Pod, row: int, assigned: int | None = None) -> None:
        """Undo :meth:`place` with the same arguments."""
        self._count(pod, row, assigned, -1)

    def read(
        self, journal: Sequence[tuple[Pod, int, int]], besides: Collection[int] = (), end: int | None = None
    ) -> None:
        """Count what was added to an append-only list of ``(pod, row, +1 or -1)`` since the last call.

        ``besides`` are the identities of pods that do not count, ``end`` is where to stop.
        """
        end = len(journal) if end is None else end
        for place in range(self._read, end):
            pod, row, sign = journal[place]
            if id(pod) not in besides:
                self._count(pod, row, None, sign)
        self._read = end

    def skip(self, number: int) -> None:
        """Take note that so much of the list that :meth:`read` is given is counted already."""
        self._read = number

    def place_all(self, nodes: Iterable[tuple[int, Sequence[Pod]]]) -> None:
        """Count the pods of many nodes: row, and who is there."""
        add_all(self._parts, nodes, self._nodes.reports, self._estimator, self.now)
        self._update_all()

    def filters(self, request: LoadRequest) -> bool:
        """Tell whether there is any node that could refuse such a pod."""
        return not request.daemon and self._filtering[int(request.prod)]

    def allows(self, request: LoadRequest, rows: Rows = slice(None)) -> BoolVector:
        """Tell for each node whether its load leaves room for the pod."""
        kind, rows = int(request.prod), self._at(rows)
        if not self.filters(request):
            return np.ones(self._nodes.reported[rows].shape, np.bool_)
        fitting = np.logical_and.reduce(self._headroom[kind][:, rows] >= request.estimate)
        allowed: BoolVector = fitting & ~self._clock[kind][rows]
        return allowed

    def fit(self, request: LoadRequest, rows: Rows = slice(None)) -> IntVector:
        """Tell for each node whether its load leaves room for the pod, and why not.

        Returns
        -------
        IntVector
            A code per row asked for: 0 fits, any other refuses with ``reasons[code]``. Of several
            resources the first by name speaks. Evicting pods may help in every case.
        """
        rows = self._at(rows)
        codes = np.zeros(self._nodes.reported[rows].shape, np.int64)
        if not self.filters(request):
            return codes
        kind = int(request.prod)
        over = self._headroom[kind][:, rows] < request.estimate
        if over.any():
            statistic: BoolVector = self._nodes.aggregated[rows]
            if request.prod:
                statistic = np.logical_and(statistic, ~self._nodes.prod_filters[rows])
            first = over.argmax(axis=0) + 2 + len(self.names) * statistic
            codes = np.where(over.any(axis=0), first, codes)
        return np.where(self._clock[kind][rows], EXPIRED, codes)

    def score(self, request: LoadRequest, rows: Rows = slice(None)) -> IntVector:
        """Score 0..100 for each node: the more room is left after the pod, the higher.

        A node without a fresh metric scores 0.
        """
        rows = self._at(rows)
        scorable = self._clock[SCORABLE, rows]
        left, divisor = self._left[int(request.prod)][:, rows], self._nodes.divisor[:, rows]
        score: IntVector = self._score.of(left - request.estimate, divisor) * scorable
        return score

    def short_of(self, request: LoadRequest, code: int, rows: Rows) -> tuple[str, int, IntVector]:
        """Say in numbers what nodes lack for the pod that :meth:`fit` gave a code for.

        Parameters
        ----------
        request, code, rows
            Who, neither ``FITS`` nor ``EXPIRED``, and the nodes: ``(n,)`` of them.

        Returns
        -------
        tuple
            The resource, how much of it is asked for, and how much each node has left, ``(n,)``.
        """
        column = (code - 2) % len(self.names)
        left = np.maximum(self._headroom[int(request.prod)][column, self._at(rows)], 0)
        return self.names[column], int(request.estimate[column, 0]), left

    def describe(self, row: int) -> dict[str, Resources]:
        """Give one node's vectors by upstream's names, as its debug endpoint does."""
        slot = self._slot(row)
        return {
            key: make_resources({name: int(matrix[at, slot]) for at, name in enumerate(self.names)})
            for key, matrix in zip(_VECTORS, self._parts, strict=False)
        }
