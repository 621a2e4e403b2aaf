"""Fewer idle cards in vain: fragments of a snapshot, and the moves that lower them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from koordcore._record import record
from koordcore.descheduling.fragments import Fragments, FragmentsPlan, plan_fragments
from koordcore.descheduling.plans import DEFAULT_RULES, MoveRules, Moving, confirmed, problem_of_rooms
from koordcore.errors import ModelError
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.devices import GPU_CORE, GPU_COUNT, GPU_MEMORY_RATIO, DeviceType
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.scheduling.plain_cards import plain_cards
from koordcore.scheduling.plugins.exact import device_state
from koordcore.scheduling.plugins.gpu_share import annotated_slots, demand_of, gpu_node, mix_of
from koordcore.scoring.fragmentation import FragmentationMeasure, WorkloadMix
from koordcore.scoring.gpu_share import CARD, GpuDemand, GpuNode
from koordcore.snapshot import ClusterSnapshot


@record
class _Cards:
    """A node as the measure sees it, and what its pods hold there."""

    node: GpuNode
    held: dict[PodKey, tuple[GpuDemand, tuple[int, ...]]]


def fragments_of(
    snapshot: ClusterSnapshot,
    *,
    mix: WorkloadMix | None = None,
    worth: int = CARD // 10,
    most: int | None = None,
) -> Fragments:
    """Read which cards are held by whom, in any of three conventions.

    A Device object with allocation annotations, Alibaba's annotations, or plain counts under any name that
    means whole cards (``nvidia.com/gpu``, ``amd.com/gpu``, ``dcu.com/gpu``, ``koordinator.sh/gpu``), where
    any card is as good as another. A pod whose part of a card is not known exactly stays where it is. Cards
    that a device plugin counts under a name of its own are not looked at.

    Parameters
    ----------
    snapshot
        The cluster.
    mix
        The work to be expected; the pods of the snapshot when left out.
    worth
        Card milli that a move must win.
    most
        Moves at most; ``None`` for as many as are worth it.
    """
    read = [cards for state in snapshot.nodes if (cards := _cards(snapshot, state)).node.cards]
    held = {pod: one for cards in read for pod, one in cards.held.items()}
    return Fragments(
        mix=(mix or mix_of(snapshot)).typical(),
        nodes=tuple(cards.node for cards in read),
        demands={pod: demand for pod, (demand, _) in held.items()},
        slots={pod: slots for pod, (_, slots) in held.items()},
        worth=worth,
        most=most,
    )


def _cards(snapshot: ClusterSnapshot, state: NodeState) -> _Cards:
    node = gpu_node(snapshot, state)
    demands = {pod.key: demand for pod in state.pods if (demand := _demand(pod)) is not None}
    if not node.cards and not state.node.allocatable.get(GPU_COUNT, 0):
        return _plain(node, len(plain_cards(state)), demands)
    devices = device_state(snapshot, state)
    held = {}
    for pod in state.pods:
        demand = demands.get(pod.key)
        if demand is None:
            continue
        slots: tuple[int, ...] = ()
        if demand.gpus and devices is None:
            slots = tuple(slot for slot in annotated_slots(pod) if slot < len(node.cards))
        elif demand.gpus and devices is not None:
            shape = devices.shape.types.get(DeviceType.GPU)
            allocation = devices.holdings.get(str(pod.key))
            for one in allocation.devices.get(DeviceType.GPU, ()) if shape and allocation else ():
                assert shape is not None
                # A kind of cards may have no core of that name, or a pod ask for none.
                parts = {
                    one.resources[name] for name in (GPU_CORE, GPU_MEMORY_RATIO) if name in one.resources
                }
                if parts == {demand.milli * 100 // CARD} and one.minor in shape.minors:
                    slots = (*slots, shape.minors.index(one.minor))
        if len(slots) == demand.gpus:
            held[pod.key] = (demand, slots)
    return _Cards(node, held)


def _demand(pod: Pod) -> GpuDemand | None:
    try:
        return demand_of(pod)
    except ModelError:
        return None


def _plain(node: GpuNode, size: int, demands: dict[PodKey, GpuDemand]) -> _Cards:
    """Give each pod the lowest cards that are left; who has a part of one, nobody knows of which."""
    held = {}
    first = parts = 0
    for pod, demand in sorted(demands.items()):
        if not demand.shared and first + demand.gpus <= size:
            held[pod] = (demand, tuple(range(first, first + demand.gpus)))
            first += demand.gpus
        else:
            parts += demand.total
    left = [max(0, min(CARD, CARD * (place + 1) - parts)) for place in range(size - first)]
    return _Cards(attrs.evolve(node, cards=(*(0,) * first, *left)), held)


def fragmented_milli(snapshot: ClusterSnapshot, mix: WorkloadMix) -> int:
    """Give the idle card milli that the mix cannot use, on all nodes, rounded down."""
    measure = FragmentationMeasure(mix)
    nodes = (_cards(snapshot, state).node for state in snapshot.nodes)
    return sum(measure.weighted(node) for node in nodes if node.cards) // mix.kept


def plan_less_fragmentation(
    snapshot: ClusterSnapshot,
    aim: Fragments,
    *,
    rules: MoveRules = DEFAULT_RULES,
    budget: Limits = DEFAULT_LIMITS,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> Moving[FragmentsPlan]:
    """Plan the moves that lower fragmentation most for their price.

    Parameters
    ----------
    snapshot
        The cluster.
    aim
        Its cards, as :func:`fragments_of` reads them.
    rules
        Where pods may run, and limits.
    budget
        Of the solver.
    progress
        Called before each move with how many pods are no longer worth one, and how many were.
    """
    problem = problem_of_rooms(snapshot, rules)
    plan = partial(plan_fragments, aim=aim, limits=budget, progress=progress)
    return confirmed(snapshot, problem, plan, rules)
