"""The cards of a node and who holds them, whatever the convention in which they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs

from koordcore._record import record
from koordcore.allocators.device import NodeDevices
from koordcore.errors import ModelError
from koordcore.explaining.claimed_devices import CardView, HeldDevice, pool_views
from koordcore.model.device_slices import ResourceSlice
from koordcore.model.devices import AMD_GPU, DCU_GPU, GPU_COUNT, NVIDIA_GPU, Device, DeviceObject, DeviceType
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.protocol.device_object import inventory_of
from koordcore.scheduling.plugins.exact import device_state
from koordcore.scheduling.plugins.gpu_share import annotated_slots, demand_of
from koordcore.scoring.gpu_share import CARD, GpuDemand
from koordcore.snapshot import ClusterSnapshot

_PLAIN: Final = (NVIDIA_GPU, AMD_GPU, DCU_GPU)
_COUNTED: Final = ("/mig-", "/npu", "/tpu", "/gaudi", "/neuron", "/mlu", "/xpu", "/ascend")
"""Parts of names under which device plugins count cards of other makes, and partitions of cards."""
_MOST: Final = 256
"""Cards of one counted resource that are drawn on one node."""


@record
class CardUse:
    """Who has how much of a card.

    Parameters
    ----------
    holder
        ``namespace/name`` of a pod, or what else holds it.
    milli
        Thousandths of the card.
    exact
        It is known that it is this card; device plugins choose cards and do not tell.
    """

    holder: str
    milli: int
    exact: bool = True


@record(kw_only=True)
class Card:
    """One card, or one of the devices beside the cards.

    Parameters
    ----------
    name, kind
        Its name on the node, and ``gpu``, ``rdma``, or the resource or driver that it belongs to.
    numa, pcie
        Where it sits; -1 and empty where that is not known.
    health
        ``False`` for a broken one.
    uses
        Who has it.
    parts
        What its holders have: ``partition`` where hardware divides it, else empty.
    """

    name: str
    kind: str
    numa: int = -1
    pcie: str = ""
    health: bool = True
    uses: tuple[CardUse, ...] = ()
    parts: str = ""

    @property
    def idle(self) -> int:
        """Thousandths that nobody has; a broken card has none."""
        return max(0, CARD - sum(one.milli for one in self.uses)) if self.health else 0


def cards_of(snapshot: ClusterSnapshot, state: NodeState) -> tuple[Card, ...]:
    """Give the cards of a node with who holds them, in the order of their numbers.

    Cards come from the node's Device object, else from Alibaba's annotations, else from plain counts such as
    ``nvidia.com/gpu``; devices of drivers (ResourceSlices) follow. A pod that asks for cards and does not say
    which holds the lowest ones that are left.
    """
    found = snapshot.find(DeviceObject, state.name)
    devices = None if found is None else device_state(snapshot, state)
    if found is not None and devices is not None:
        inventory = inventory_of(found, state.node.labels)
        known = [
            _known(one, devices) for one in sorted(inventory.devices, key=lambda one: (one.type, one.minor))
        ]
        held = set(devices.holdings)
    else:
        known, held = _counted(state)
    cards = _with_rest(known, [pod for pod in state.pods if str(pod.key) not in held])
    return (*cards, *_by_count(state), *_of_drivers(snapshot, state))


def _known(device: Device, devices: NodeDevices) -> Card:
    """Read one device of a Device object."""
    place = device.topology
    return Card(
        name=str(device.minor),
        kind=device.type.value,
        numa=-1 if place is None else place.node_id,
        pcie="" if place is None else place.pcie_id,
        health=device.health,
        uses=tuple(
            CardUse(pod, _share(holding.resources, device.resources))
            for pod, allocation in sorted(devices.holdings.items())
            for holding in allocation.devices.get(device.type, ())
            if holding.minor == device.minor
        ),
    )


def _share(taken: Mapping[str, int], whole: Mapping[str, int]) -> int:
    """Give the largest share over all resources, in thousandths."""
    shares = (CARD * amount // whole[name] for name, amount in taken.items() if whole.get(name))
    return min(CARD, max(shares, default=0))


def _counted(state: NodeState) -> tuple[list[Card], set[str]]:
    """Read cards that are only counted, and what annotations name of them."""
    offered = state.node.allocatable
    count = offered.get(GPU_COUNT, 0) or max(offered.get(name, 0) for name in _PLAIN)
    uses: list[list[CardUse]] = [[] for _ in range(min(count, _MOST))]
    held = set()
    for pod in state.pods:
        demand = _demand(pod)
        slots = [slot for slot in annotated_slots(pod) if slot < len(uses)]
        if demand is not None and slots and offered.get(GPU_COUNT, 0):
            held.add(str(pod.key))
            for slot in slots:
                uses[slot].append(CardUse(str(pod.key), demand.milli))
    gpu = DeviceType.GPU.value
    return [Card(name=str(slot), kind=gpu, uses=tuple(one)) for slot, one in enumerate(uses)], held


def _demand(pod: Pod) -> GpuDemand | None:
    try:
        demand = demand_of(pod)
    except ModelError:
        return None
    return demand if demand.gpus else None


def _with_rest(cards: list[Card], pods: Iterable[Pod]) -> list[Card]:
    """Give pods that do not say which cards they hold the lowest ones that are left."""
    idle = {place: one.idle for place, one in enumerate(cards) if one.kind == DeviceType.GPU and one.idle}
    for pod in pods:
        demand = _demand(pod) if idle else None
        if demand is None:
            continue
        fitting = [place for place, left in idle.items() if left >= demand.milli][: demand.gpus]
        for place in fitting if len(fitting) == demand.gpus else ():
            use = CardUse(str(pod.key), demand.milli, exact=False)
            cards[place] = attrs.evolve(cards[place], uses=(*cards[place].uses, use))
            idle[place] -= demand.milli
            if not idle[place]:
                del idle[place]
    return cards


def _by_count(state: NodeState) -> Iterator[Card]:
    """Read cards of other makes and partitions of cards, which device plugins only count."""
    for name, count in sorted(state.node.allocatable.items()):
        if not count or not any(part in name for part in _COUNTED) or name.startswith("koordinator.sh/"):
            continue
        holders = [str(pod.key) for pod in state.pods for _ in range(min(_MOST, pod.requests.get(name, 0)))]
        for slot in range(min(count, _MOST)):
            uses = (CardUse(holders[slot], CARD, exact=False),) if slot < len(holders) else ()
            part = "partition" if "/mig-" in name else ""
            yield Card(name=str(slot), kind=name.rpartition("/")[2], uses=uses, parts=part)


# --- devices of drivers -----------------------------------------------------------------------------------


def _of_drivers(snapshot: ClusterSnapshot, state: NodeState) -> Iterator[Card]:
    """Read what drivers offer to ResourceClaims."""
    if not snapshot.has(ResourceSlice):
        return
    for pool in pool_views(snapshot, state):
        for view in pool.cards:
            yield Card(name=view.name, kind=pool.driver, uses=tuple(_parts(view)), parts="partition")
        for one in pool.plain:
            yield Card(name=one.name, kind=pool.driver, health=not one.taints, uses=tuple(_holders(one)))


def _holders(device: HeldDevice) -> Iterator[CardUse]:
    for holder in device.holders:
        taken = {one.name: holder.consumed.get(one.name, 0) for one in device.left}
        whole = {one.name: one.total for one in device.left}
        milli = _share(taken, whole) if holder.shared else CARD
        for pod in holder.pods or (f"claim {holder.claim}",):
            yield CardUse(pod, milli // max(1, len(holder.pods)))


def _parts(view: CardView) -> Iterator[CardUse]:
    """Say which part of a divided card each holder has: of its numbered slices, else evenly."""
    taken = max((CARD - CARD * one.left // one.total for one in view.counters if one.total), default=0)
    for place, device in enumerate(view.held):
        milli = taken // len(view.held)
        if view.strip:
            milli = CARD * view.strip.count(place) // len(view.strip)
        for holder in device.holders:
            for pod in holder.pods or (f"claim {holder.claim}",):
                yield CardUse(pod, milli // max(1, len(holder.pods)))
