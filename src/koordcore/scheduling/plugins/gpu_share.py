"""GpuShare: the policies of the FGD experiment as one plugin, for two conventions.

*Alibaba's* (``alibabacloud.com/gpu-milli``, as the experiment's simulator reads it): nodes offer cards by
``gpu-count``, pods ask by annotation, and the plugin filters, scores and chooses the cards itself.
*Koordinator's*: ``DeviceShare`` filters and chooses; this plugin only scores what it sees there.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from koordcore._arrays import BoolVector, IntVector, Rows
from koordcore._record import record
from koordcore.allocators.device import NodeDevices, device_request_of
from koordcore.errors import ModelError
from koordcore.framework.evaluator import Evaluator, Refusal, Reserved, Scope
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    GPU_CORE,
    GPU_COUNT,
    GPU_MEMORY_RATIO,
    MOST_CARDS,
    DeviceType,
)
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.resources import CPU, MEMORY
from koordcore.scheduling.plugins.exact import device_state
from koordcore.scoring.fragmentation import WorkloadMix, workload_mix
from koordcore.scoring.gpu_policies import (
    DrawnPolicy,
    GpuPolicy,
    PolicyLike,
    PolicyName,
    ScoredPolicy,
    looked_at,
    make_policy,
)
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import ClusterChanges, per_node

GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
_NUMBER: Final = re.compile("[0-9]{1,9}")
GPU_INDEX: Final = "alibabacloud.com/gpu-index"
CARD_MODEL: Final = "alibabacloud.com/gpu-card-model"

NO_CARDS: Final = "Insufficient " + GPU_MILLI
WRONG_MODEL: Final = "node(s) didn't match the GPU card model"


@record(kw_only=True)
class GpuShareArgs:
    """Arguments of GpuShare.

    Parameters
    ----------
    policy
        Whose score counts: a name, or a policy of one's own as for
        :func:`~koordcore.scoring.gpu_policies.make_policy`, whose scores may be any whole numbers
        between -2^62 and 2^62.
    mix
        The work to be expected; left out, the pods of the snapshot, bound and pending.
    seed
        For the policy ``random``.
    """

    policy: PolicyLike = PolicyName.FORESIGHT
    mix: WorkloadMix | None = None
    seed: int = 0


@record
class _Cards:
    """Idle milli by minor, and what kinds of tasks are there."""

    idle: tuple[int, ...]
    held: tuple[tuple[int, int], ...] = ()


def _number(annotations: Mapping[str, str], key: str, default: int) -> int:
    text = annotations.get(key, "")
    return int(text) if _NUMBER.fullmatch(text) else default


def _asks_by_annotation(pod: Pod) -> bool:
    return GPU_MILLI in pod.annotations or GPU_COUNT in pod.annotations


def demand_of(pod: Pod) -> GpuDemand:
    """Read what a pod asks for, in either convention.

    Parts of several cards, which no trace has, count as whole cards.

    Raises
    ------
    ModelError
        When the annotations ask for something impossible.
    """
    cpu, memory = pod.requests.get(CPU, 0), pod.requests.get(MEMORY, 0)
    if _asks_by_annotation(pod):
        count = _number(pod.annotations, GPU_COUNT, 1)
        models = tuple(filter(None, pod.annotations.get(CARD_MODEL, "").split("|")))
        milli = _number(pod.annotations, GPU_MILLI, CARD)
        return GpuDemand(cpu=cpu, memory=memory, gpus=count, milli=milli, models=models if count else ())
    request = device_request_of(pod.requests, annotations=pod.annotations, labels=pod.labels)
    if not isinstance(request, DeviceRequest) or request.gpu is None:
        return GpuDemand(cpu=cpu, memory=memory)
    gpu = request.gpu
    percent = max(gpu.per_device.get(GPU_CORE, 0), gpu.per_device.get(GPU_MEMORY_RATIO, 0))
    milli = percent * CARD // 100 if gpu.shared and gpu.count == 1 else CARD
    return GpuDemand(cpu=cpu, memory=memory, gpus=gpu.count, milli=min(CARD, max(1, milli)))


def annotated_slots(pod: Pod) -> tuple[int, ...]:
    """Give the minors that Alibaba's annotation names."""
    parts = pod.annotations.get(GPU_INDEX, "").split("-")
    return tuple(int(part) for part in parts if _NUMBER.fullmatch(part))


@per_node()
def annotated_cards(snapshot: ClusterSnapshot, state: NodeState) -> _Cards:
    """Give the cards of a node in Alibaba's convention with what its pods' annotations hold of them.

    Of more than :data:`~koordcore.model.devices.MOST_CARDS` the first ones.
    """
    del snapshot
    idle = [CARD] * min(state.node.allocatable.get(GPU_COUNT, 0), MOST_CARDS)
    counts: dict[int, int] = {}
    for pod in state.pods:
        if _asks_by_annotation(pod):
            demand = demand_of(pod)
            slots = [slot for slot in annotated_slots(pod) if slot < len(idle)]
            for slot in slots:
                idle[slot] = max(0, idle[slot] - demand.milli)
            if slots:
                counts[demand.kind] = counts.get(demand.kind, 0) + 1
    return _Cards(tuple(idle), tuple(sorted(counts.items())))


def _device_cards(state: NodeDevices) -> _Cards:
    """Give the cards of a Device object; the scarcer of core and memory ratio counts.

    A card that reports no core of that name, as an NPU does, is as idle as its memory.
    """
    shape = state.shape.types.get(DeviceType.GPU)
    if shape is None:
        return _Cards(())
    columns = [shape.column[name] for name in (GPU_CORE, GPU_MEMORY_RATIO) if name in shape.column]
    free = state.free[DeviceType.GPU]
    parts = (
        [free[minor][column] for column in columns if minor in free and shape.totals[minor][column]]
        for minor in shape.minors
    )
    idle = tuple(min(CARD, min(left) * CARD // 100) if left else 0 for left in parts)
    counts: dict[int, int] = {}
    for allocation in state.holdings.values():
        cards = allocation.devices.get(DeviceType.GPU, ())
        if cards:
            part = len(cards) == 1 and cards[0].resources.get(GPU_MEMORY_RATIO, 100) < 100
            kind = 0 if part else len(cards)
            counts[kind] = counts.get(kind, 0) + 1
    return _Cards(idle, tuple(sorted(counts.items())))


def _model(state: NodeState) -> str:
    labels = state.node.labels
    return labels.get(CARD_MODEL) or labels.get("node.koordinator.sh/gpu-model", "")


def gpu_node(snapshot: ClusterSnapshot, state: NodeState) -> GpuNode:
    """Give a node as the policies see it, with what its pods leave of it."""
    devices = device_state(snapshot, state)
    cards = annotated_cards(snapshot, state) if devices is None else _device_cards(devices)
    taken = {name: sum(pod.requests.get(name, 0) for pod in state.pods) for name in (CPU, MEMORY)}
    return GpuNode(
        name=state.name,
        cpu=state.node.allocatable.get(CPU, 0) - taken[CPU],
        memory=state.node.allocatable.get(MEMORY, 0) - taken[MEMORY],
        cards=cards.idle,
        model=_model(state),
        held=cards.held,
    )


def empty_node(snapshot: ClusterSnapshot, state: NodeState) -> GpuNode:
    """Give a node as it would be without pods."""
    return gpu_node(snapshot, NodeState(state.node))


class GpuShareEvaluator(Evaluator):
    """Filter, score and choice for one demand."""

    scope = Scope.NODE

    def __init__(self, plugin: GpuShare, demand: GpuDemand, annotated: bool) -> None:
        self._plugin = plugin
        # CPU and memory are NodeResourcesFit's to refuse; a policy looks at the CPU all the same.
        self._demand = demand
        self._annotated = annotated and demand.gpus > 0

    def _masks(self, rows: Rows) -> tuple[BoolVector, BoolVector]:
        """Which nodes have the model, and which have the cards."""
        demand, plugin = self._demand, self._plugin
        chosen = plugin.numbers[rows].tolist()
        model = [not demand.models or plugin.models[row] in demand.models for row in chosen]
        cards = [
            sum(left >= demand.milli for left in plugin.cards(row).idle) >= demand.gpus for row in chosen
        ]
        return np.array(model, bool), np.array(cards, bool)

    def fits(self, view: NodeView) -> BoolVector | None:
        if not self._annotated:
            return None
        model, cards = self._masks(view.rows)
        return model & cards

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        if not self._annotated:
            return ()
        model, cards = self._masks(view.rows)
        return [(WRONG_MODEL, ~model), (NO_CARDS, model & ~cards)]

    def unresolvable(self, view: NodeView) -> BoolVector | None:
        return ~self._masks(view.rows)[0] if self._annotated else None

    def shortfalls(self, view: NodeView) -> tuple[Shortfall, ...]:
        row = view.row
        demand = self._demand
        if demand.models and self._plugin.models[row] not in demand.models:
            return (Shortfall(WRONG_MODEL, resolvable=False),)
        most = sum(left for left in self._plugin.cards(row).idle if left >= demand.milli)
        return (Shortfall(NO_CARDS, GPU_MILLI, demand.total, most),)

    def _each_score(self, policy: ScoredPolicy, rows: Rows) -> IntVector:
        demand, plugin = self._demand, self._plugin
        nodes = [plugin.node(row) for row in plugin.numbers[rows].tolist()]
        return np.array([policy.score(one, demand) if one.fits(demand) else 0 for one in nodes], np.int64)

    def allocate(self, pod: Pod, view: NodeView) -> Reserved | None:
        row = view.row
        if not self._annotated:
            return None
        demand, plugin = self._demand, self._plugin
        policy, node = plugin.policy, plugin.node(row)
        if isinstance(policy, DrawnPolicy):
            slots = policy.drawn_slots(plugin.turn, node, demand)
        else:
            slots = policy.slots(node, demand)
        plugin.put(row, node.take(demand, slots))
        return Reserved({GPU_INDEX: "-".join(map(str, slots))})


class ScoredEvaluator(GpuShareEvaluator):
    """Scores that are 0..100 already."""

    def scores(self, view: NodeView) -> IntVector:
        policy = self._plugin.policy
        assert isinstance(policy, ScoredPolicy)
        return self._each_score(policy, view.rows)


class RankedEvaluator(ScoredEvaluator):
    """Scores without bounds: 100 for the best feasible node, 99 for the next, and so on down to 0.

    Ranks keep apart what a scale of 101 steps would throw together.
    """

    normalises = True

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        values = np.unique(raw[feasible])
        ahead = len(values) - np.searchsorted(values, raw, side="right")
        return np.clip(100 - ahead, 0, 100)


class DrawnEvaluator(GpuShareEvaluator):
    """100 for the one feasible node that is drawn."""

    scope = Scope.CLUSTER
    normalises = True

    def scores(self, view: NodeView) -> IntVector:
        return np.zeros(len(self._plugin.numbers[view.rows]), np.int64)

    def normalise(self, raw: IntVector, feasible: BoolVector) -> IntVector:
        plugin = self._plugin
        chosen = np.zeros_like(raw)
        rows = np.flatnonzero(feasible)
        if len(rows):
            assert isinstance(plugin.policy, DrawnPolicy)
            chosen[rows[plugin.policy.draw(plugin.turn, len(rows))]] = 100
        return chosen


class GpuShare(Plugin):
    """Cards and shares of cards, placed by a policy; the arguments are :class:`GpuShareArgs`."""

    name = "GpuShare"
    by_template = True
    arguments = GpuShareArgs

    def __init__(self, workspace: Workspace, args: Any = None) -> None:
        super().__init__(workspace, args)
        settings: GpuShareArgs = args or GpuShareArgs()
        snapshot = workspace.snapshot
        self._from = len(workspace.journal)
        empty = [empty_node(snapshot, state) for state in snapshot.nodes]
        mix = settings.mix or mix_of(snapshot)
        made = make_policy(settings.policy, mix, nodes=empty, seed=settings.seed)
        self.policy: GpuPolicy = looked_at(made)
        bounded = set(PolicyName) - {PolicyName.FORESIGHT}
        self._ranked = not (isinstance(settings.policy, str) and settings.policy in bounded)
        self.models = [node.model for node in empty]
        self.numbers = np.arange(len(empty))
        self._devices = workspace.values(device_state)
        self._annotated = workspace.values(annotated_cards)

    def follow(self, changes: ClusterChanges) -> bool:
        return False  # the mix of demands is that of one call, and draws are numbered from its start

    @property
    def turn(self) -> int:
        """Number of pods that came or left so far: what a draw is made from."""
        return len(self.workspace.journal) - self._from

    def cards(self, row: int) -> _Cards:
        """Give the cards of a node now."""
        devices = self._devices[row]
        return self._annotated[row] if devices is None else _device_cards(devices)

    def node(self, row: int) -> GpuNode:
        """Give a node as the policy sees it now."""
        layout, cards = self.workspace.layout, self.cards(row)
        free = self.workspace.free
        return GpuNode(
            name=layout.names[row],
            cpu=int(free[layout.index[CPU], row]),
            memory=int(free[layout.index[MEMORY], row]),
            cards=cards.idle,
            model=self.models[row],
            held=cards.held,
        )

    def put(self, row: int, node: GpuNode) -> None:
        """Take note of what is left of the annotated cards of a node."""
        self.workspace.put(self._annotated, row, _Cards(node.cards, node.held))

    def request_of(self, pod: Pod) -> Hashable | Refusal:
        try:
            return demand_of(pod), _asks_by_annotation(pod)
        except ModelError as error:
            return Refusal(str(error))

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        demand, annotated = request
        if isinstance(self.policy, DrawnPolicy):
            return DrawnEvaluator(self, demand, annotated)
        kind = RankedEvaluator if self._ranked else ScoredEvaluator
        return kind(self, demand, annotated)

    def removed(self, pod: Pod, row: int) -> None:
        slots = annotated_slots(pod)
        if slots and _asks_by_annotation(pod):
            self.put(row, self.node(row).give_back(demand_of(pod), slots))


def mix_of(snapshot: ClusterSnapshot) -> WorkloadMix:
    """Take the pods that are there for the work to be expected."""
    demands = []
    for pod in (*snapshot.bound_pods(), *snapshot.pending):
        try:
            demands.append(demand_of(pod))
        except ModelError:
            continue  # such a pod is refused when its turn comes
    return workload_mix(demands or [GpuDemand(gpus=1)])
