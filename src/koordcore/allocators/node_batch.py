"""Many nodes at once: what they answer to one kind of pods, equal states asked once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Final

import attrs
import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore._record import record
from koordcore.allocators.device import DeviceAnswers, device_table
from koordcore.allocators.device.answers import StateTable
from koordcore.allocators.node import (
    DEFAULT_NODE_ARGS,
    DeviceProvider,
    NodeAllocation,
    NodeOffer,
    fit_node,
    same_on,
)
from koordcore.allocators.node_request import NodeArgs, NodeRequest
from koordcore.allocators.numa import (
    AMPLIFIED,
    NodeAmounts,
    before_numa,
    score_given,
)
from koordcore.allocators.numa_align import NUMAProvider, has_room, pod_request
from koordcore.allocators.numa_request import CPUDemand, CPURequest, NUMARefusal, demand_on
from koordcore.model.numa import amplify
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.model.quantity import INT64_MAX
from koordcore.model.resources import CPU, NO_RESOURCES, is_scalar, make_resources
from koordcore.protocol.numa import NO_STATUS
from koordcore.scoring.resources import Capacity, least_percent, most_percent, weighted_mean
from koordcore.topology.numa import NUMATopologyPolicy

_MOST: Final = 2**53
"""No node has more of anything (``_arrays.AMOUNT_LIMIT``)."""

_ALL: Final = slice(None)
_UNKNOWN: Final = -2
_ENOUGH: Final = NodeAmounts(make_resources({CPU: INT64_MAX}))
"""Amounts with which the amplified CPU of a node never decides; that is looked at apart."""


def node_table(offers: Iterable[NodeOffer], *, by_name: bool = False) -> StateTable[NodeOffer]:
    """Number what many nodes offer: those that offer the same have one number.

    ``by_name`` tells nodes with devices apart by their names as well.
    """
    return StateTable(offers, key=_state_and_name if by_name else attrgetter("state"))


def _state_and_name(offer: NodeOffer) -> Hashable:
    return offer.state, "" if offer.devices is None else offer.devices.node


@record(kw_only=True)
class _Verdict:
    """What one distinct state says to a pod class, but for the amounts of the node as a whole.

    Parameters
    ----------
    refusal
        ``None`` where the pod fits, as if the node's amplified CPU were no matter.
    ratio, bound
        Amplification of CPU, and milli-CPU that is handed out as cpusets.
    need
        Milli-CPU that the pod takes of amplified CPU.
    """

    refusal: NUMARefusal | None
    ratio: float = 1.0
    bound: int = 0
    need: int = 0


@record(kw_only=True)
class _Score:
    """How one distinct state is scored for a pod class.

    Parameters
    ----------
    score
        Of the NUMA nodes that the pod would use; negative where the node as a whole is scored.
    request_cpu, more_cpu, instead_cpu
        For that score: milli-CPU of the pod, what to add to the node's requested CPU, and what to put in its
        place (negative for nothing).
    """

    score: int = 0
    request_cpu: int = 0
    more_cpu: int = 0
    instead_cpu: int = -1


class NodeVerdicts:
    """What the nodes of a table say to one pod class; asked again, only new states are worked out.

    Parameters
    ----------
    table
        The nodes; it may change between questions. Nothing is lent there.
    request, args
        The pod class, and how NUMA nodes and devices are ranked.
    devices
        What the devices answer to the request; left out where it asks for none, or for its own memory.
    allocatable, requested
        Resource to its ``(N,)`` amounts of the nodes as a whole; views that follow every change. They matter
        where CPU is amplified and where no NUMA nodes are chosen.

    Attributes
    ----------
    asked
        How many states were worked out so far.
    """

    def __init__(
        self,
        table: StateTable[NodeOffer],
        request: NodeRequest,
        args: NodeArgs = DEFAULT_NODE_ARGS,
        *,
        devices: DeviceAnswers | None = None,
        allocatable: Mapping[str, IntVector] | None = None,
        requested: Mapping[str, IntVector] | None = None,
    ) -> None:
        self.table = table
        self.request = request
        self.args = args
        self.asked = 0
        self._devices = devices
        if devices is None and request.devices is not None:
            self._devices = DeviceAnswers(device_table(()), request.devices, args.devices)
        self._answers: dict[int, NodeAllocation | NUMARefusal] = {}
        self._cpu = request.cpu or CPURequest(requests=NO_RESOURCES)
        self._verdicts: list[_Verdict | None] = []
        self._open = 0
        self._fits: BoolVector = np.zeros(0, dtype=np.bool_)
        self._zone_scores: IntVector = np.zeros(0, dtype=np.int64)
        self._cpu_terms: IntVector = np.zeros((3, 0), dtype=np.int64)
        rated = {
            name: weight
            for name, weight in args.numa.weights
            if name in (allocatable or {}) and (not is_scalar(name) or self._cpu.requests.get(name))
        }
        self._rated = tuple(rated)
        self._weights: IntVector = np.array([*rated.values()], dtype=np.int64)[:, None]
        self._amplified = False
        self.renew(allocatable or {}, requested or {})

    def renew(self, allocatable: Mapping[str, IntVector], requested: Mapping[str, IntVector]) -> None:
        """Take in that the nodes of the table are others, or offer something else as a whole."""
        self._allocatable, self._requested = allocatable, requested
        number = len(self.table)
        self._numbers: IntVector = np.arange(number, dtype=np.int64)
        none: IntVector = np.zeros((0, number), dtype=np.int64)
        rated = self._rated
        self._room = Capacity(np.stack([allocatable[name] for name in rated]) if rated else none)

    def fits(self, rows: Rows = _ALL, lent: IntVector | None = None) -> BoolVector:
        """Tell which nodes can take the pod.

        Parameters
        ----------
        lent
            Milli-CPU that is taken off the requested amounts of these nodes.
        """
        ids = self._known_ids(rows)
        fits: BoolVector = self._fits[ids]
        return fits & ~self._short_of_amplified(ids, rows, lent) if self._amplified else fits

    def answer(self, row: int) -> NodeAllocation | NUMARefusal:
        """What the pod would get on one node, or why nothing."""
        # Who holds what a pod is designated differs between nodes in equal states, and so do the amounts of
        # the node as a whole, which count where CPU is amplified.
        offer = self.table.rows[row]
        if self._cpu.designated is None and offer.numa.node.cpu_ratio == 1:
            known = self._given(int(self.table.ids[row]))
            if isinstance(known, NodeAllocation):
                return same_on(known, offer, self.request, self.args, self._devices)
        return self._fit(offer, self._amounts(row))

    def beside(
        self, row: int, sides: tuple[NUMAProvider, ...], *, amounts: bool = True
    ) -> NodeAllocation | NUMARefusal:
        """What the pod would get on one node where others give it something near the same NUMA nodes.

        Parameters
        ----------
        row, sides
            The node, and the others.
        amounts
            Whether the amounts of the node as a whole are looked at.
        """
        offer = attrs.evolve(self.table.rows[row], sides=sides)
        return self._fit(offer, self._amounts(row) if amounts else _ENOUGH)

    def _given(self, state_id: int) -> NodeAllocation | NUMARefusal:
        """What the pod would get on a node in a state, as if its amounts as a whole were no matter."""
        known = self._answers.get(state_id)
        if known is None:
            known = self._answers[state_id] = self._fit(self.table.states[state_id], _ENOUGH)
        return known

    def _fit(self, offer: NodeOffer, amounts: NodeAmounts) -> NodeAllocation | NUMARefusal:
        return fit_node(attrs.evolve(offer, amounts=amounts), self.request, self.args, self._devices)

    def reasons(self, rows: Rows = _ALL) -> list[tuple[str, BoolVector]]:
        """Each reason with the nodes that give it, sorted by text; a node may give several."""
        ids = self._known_ids(rows)
        short = self._short_of_amplified(ids, rows)
        by_reason: dict[str, BoolVector] = {}
        for state_id in np.unique(ids).tolist():
            refusal = self._verdict(state_id).refusal
            for reason in refusal.reasons if refusal is not None else ():
                giving = by_reason.setdefault(reason, np.zeros(len(self._verdicts), dtype=np.bool_))
                giving[state_id] = True
        found = {reason: giving[ids] & ~short for reason, giving in by_reason.items()}
        if short.any():
            found[AMPLIFIED] = short
        return sorted(found.items())

    def unresolvable(self, rows: Rows = _ALL) -> BoolVector:
        """Tell at which nodes no eviction would help."""
        ids = self._known_ids(rows)
        unresolvable = np.fromiter(
            (
                verdict is not None and verdict.refusal is not None and not verdict.refusal.resolvable
                for verdict in self._verdicts
            ),
            dtype=np.bool_,
            count=len(self._verdicts),
        )
        return unresolvable[ids] & ~self._short_of_amplified(ids, rows)

    def scores(self, rows: Rows = _ALL, lifted: Mapping[str, IntVector] | None = None) -> IntVector:
        """Rate nodes, 0..100, as upstream's Score does; one that cannot take the pod rates anything.

        Parameters
        ----------
        lifted
            What is taken off the requested amounts of these nodes where a node is rated as a whole.
        """
        ids = self._known_ids(rows)
        scores: IntVector = self._zone_scores[ids]
        unknown = scores == _UNKNOWN
        if unknown.any():
            for state_id in np.unique(ids[unknown]).tolist():
                rated = self._rate(state_id)
                self._zone_scores[state_id] = rated.score
                self._cpu_terms[:, state_id] = rated.request_cpu, rated.more_cpu, rated.instead_cpu
            scores = self._zone_scores[ids]
        plain = scores < 0
        if plain.all():
            return self._score_nodes(ids, self._rows(rows), lifted or {})
        if plain.any():
            off = {name: column[plain] for name, column in (lifted or {}).items()}
            scores[plain] = self._score_nodes(ids[plain], self._rows(rows)[plain], off)
        return scores

    def _rows(self, rows: Rows) -> IntVector:
        return self._numbers[rows]

    def _amounts(self, row: int) -> NodeAmounts:
        return NodeAmounts(
            make_resources({name: int(column[row]) for name, column in self._allocatable.items()}),
            make_resources({name: int(column[row]) for name, column in self._requested.items()}),
        )

    def _column(self, ids: IntVector, field: str) -> IntVector:
        values = [0 if verdict is None else getattr(verdict, field) for verdict in self._verdicts]
        return np.array(values, dtype=np.int64)[ids]

    def _known_ids(self, rows: Rows) -> IntVector:
        """Ids of some nodes, each with its verdict worked out."""
        ids: IntVector = self.table.ids[rows]
        size = len(self.table.states)
        if len(self._verdicts) < size:
            more = size - len(self._verdicts)
            self._verdicts += [None] * more
            self._open += more
            self._fits = np.concatenate([self._fits, np.zeros(more, dtype=np.bool_)])
            self._zone_scores = np.concatenate([self._zone_scores, np.full(more, _UNKNOWN)])
            self._cpu_terms = np.hstack([self._cpu_terms, np.zeros((3, more), dtype=np.int64)])
        if self._open:
            for state_id in np.unique(ids).tolist():
                self._verdict(state_id)
        return ids

    def _verdict(self, state_id: int) -> _Verdict:
        known = self._verdicts[state_id]
        if known is None:
            known = self._verdicts[state_id] = self._work_out(state_id)
            self._open -= 1
            self._fits[state_id] = known.refusal is None
            self._amplified = self._amplified or known.ratio > 1
        return known

    def _work_out(self, state_id: int) -> _Verdict:
        self.asked += 1
        offer = self.table.states[state_id]
        state = offer.numa
        demand = demand_on(self._cpu, state.node)
        if isinstance(demand, NUMARefusal):
            return _Verdict(refusal=demand)
        step = before_numa(state, self._cpu, _ENOUGH)
        refusal = step if isinstance(step, NUMARefusal) else None
        providers = self._providers(offer)
        # On NUMA nodes that serve everything the pod surely has its room; all else is tried out.
        surely = isinstance(step, CPUDemand) and all(provider.aligned for provider in providers)
        if refusal is None and not (surely and has_room(state, demand, providers)):
            given = self._given(state_id)
            refusal = given if isinstance(given, NUMARefusal) else None
        ratio, cpu = state.node.cpu_ratio or 1.0, self._cpu.cpu
        return _Verdict(
            refusal=refusal,
            ratio=ratio,
            bound=1000 * state.usage.holdings.held.bit_count(),
            need=amplify(cpu, ratio) if demand.bind else cpu,
        )

    def _providers(self, offer: NodeOffer) -> tuple[DeviceProvider, ...]:
        if self.request.devices is None:
            return ()
        return (DeviceProvider(offer, self.request.devices, self.args.devices, self._devices),)

    def _rate(self, state_id: int) -> _Score:
        state, verdict = self.table.states[state_id].numa, self._verdict(state_id)
        demand = demand_on(self._cpu, state.node)
        if isinstance(demand, NUMARefusal) or verdict.refusal is not None:
            return _Score()
        given = NO_STATUS
        # Under BestEffort upstream scores before it chooses NUMA nodes.
        if self._cpu.designated is None and demand.policy is not NUMATopologyPolicy.BEST_EFFORT:
            answer = self._given(state_id)
            if isinstance(answer, NodeAllocation) and answer.numa.mask is not None:
                given = answer.numa.status
        if given.numa_node_resources:
            return _Score(score=score_given(state, demand, given, _ENOUGH, self.args.numa))
        extra = amplify(verdict.bound, verdict.ratio) - verdict.bound
        plain = demand.policy is NUMATopologyPolicy.NONE
        return _Score(
            score=-1,
            request_cpu=pod_request(demand, state).get(CPU, 0),
            more_cpu=extra if plain and self._cpu.cpu else 0,
            instead_cpu=verdict.bound + extra if demand.bind and not plain else -1,
        )

    def _short_of_amplified(self, ids: IntVector, rows: Rows, lent: IntVector | None = None) -> BoolVector:
        """Nodes whose amplified CPU is used up and which refuse for nothing earlier."""
        none: BoolVector = np.zeros(len(ids), dtype=np.bool_)
        if not self._amplified or CPU not in self._allocatable or not self._cpu.cpu:
            return none
        chosen = self._rows(rows)
        bound, need = self._column(ids, "bound"), self._column(ids, "need")
        ratios = np.array([0.0 if one is None else one.ratio for one in self._verdicts])[ids]
        # A ratio may be as large as a float: more than can be counted is more than there is.
        product = np.ceil(bound.astype(np.float64) * np.minimum(ratios, _MOST))
        amplified = np.minimum(product, _MOST).astype(np.int64)
        requested = self._requested[CPU][chosen]
        if lent is not None:
            requested = requested - lent
        requested = np.where((bound > 0) & (requested >= bound), requested + amplified - bound, requested)
        short: BoolVector = (ratios > 1) & (need > self._allocatable[CPU][chosen] - requested)
        return short

    def _score_nodes(self, ids: IntVector, rows: IntVector, lifted: Mapping[str, IntVector]) -> IntVector:
        """Score nodes as a whole: the formula of :func:`score_amounts` on columns."""
        if not self._rated:
            return np.zeros(len(ids), dtype=np.int64)
        used = np.zeros((len(self._rated), len(rows)), dtype=np.int64)
        for place, name in enumerate(self._rated):
            if name in self._requested:
                used[place] = self._requested[name][rows]
            if name in lifted:
                used[place] -= lifted[name]
            if name == CPU:
                request, more, instead = self._cpu_terms[:, ids]
                used[place] = np.where(instead >= 0, instead, used[place] + more) + request
            else:
                used[place] += self._cpu.requests.get(name, 0)
        most = self.args.numa.scoring is ScoringStrategy.MOST_ALLOCATED
        room = self._room.at(rows)
        parts = (most_percent if most else least_percent)(used, room)
        if self._room.everywhere and len(self._rated) == sum(self._weights[:, 0]):
            mean: IntVector = np.add.reduce(parts) // len(parts)
            return mean
        return weighted_mean(parts, np.where(room.present, self._weights, 0))
