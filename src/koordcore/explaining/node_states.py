"""Nodes at a glance: in which state each is, and what its cards do, each counted once."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.devices import GPU_CORE, GPU_MEMORY_RATIO, DeviceObject, DeviceType
from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.nodes import NodeState
from koordcore.model.reservations import Reservation
from koordcore.model.resources import CPU, MEMORY, PODS
from koordcore.protocol.device import DEVICE_ALLOCATED
from koordcore.protocol.device_object import GPU_MODEL
from koordcore.reservations.state import owners_of, reservation_state, used_reservations
from koordcore.scheduling.plain_cards import WHOLE, plain_cards
from koordcore.scheduling.plugins.exact import device_state
from koordcore.scheduling.plugins.gpu_share import CARD_MODEL, gpu_node
from koordcore.scoring.gpu_share import CARD
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once

_MODELS: Final = (
    GPU_MODEL,
    CARD_MODEL,
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "k8s.amazonaws.com/accelerator",
    "amd.com/gpu.product-name",
    "node.kubernetes.io/instance-type",
)
"""Labels that name the model of a node's cards, the first one found counts."""
_NOT_READY: Final = "node.kubernetes.io/not-ready"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_AMOUNTS: Final = {**WHOLE, GPU_CORE: CARD // 100, GPU_MEMORY_RATIO: CARD // 100}
"""Names that count cards with the thousandths of a card that one of them is."""
_FULL: Final = 95
"""Percent of cores, memory or pods from which a node without cards is full."""


class NodeCondition(StrEnum):
    """What a node is good for now."""

    EMPTY = "empty"
    MIXED = "mixed"
    FULL = "full"
    CORDONED = "cordoned"
    NOT_READY = "not ready"
    UNREACHABLE = "unreachable"


@record(kw_only=True)
class CardCounts:
    """The cards of a node.

    Parameters
    ----------
    model
        As its labels say; empty where they do not.
    idle
        Thousandths of each working card that nobody holds.
    broken
        Cards that are not healthy; they are not among the idle ones.
    kept
        Name of a reservation to the thousandths of cards that it keeps without saying which.
    """

    model: str = ""
    idle: tuple[int, ...] = ()
    broken: int = 0
    kept: immutabledict[str, int] = EMPTY

    @property
    def total(self) -> int:
        """All cards, broken ones included."""
        return len(self.idle) + self.broken

    @property
    def free(self) -> int:
        """Cards of which nobody holds or keeps anything."""
        return self.idle.count(CARD) - self.reserved

    @property
    def reserved(self) -> int:
        """Cards of which nobody holds anything and so many are kept; nobody knows which."""
        return min(self.idle.count(CARD), -(-sum(self.kept.values()) // CARD))

    @property
    def held(self) -> int:
        """Cards that are held as a whole."""
        return self.idle.count(0)

    @property
    def shared(self) -> int:
        """Cards of which a part is held."""
        return len(self.idle) - self.idle.count(CARD) - self.held


def cards_of(snapshot: ClusterSnapshot, state: NodeState) -> CardCounts:
    """Count the cards of a node: by its Device object, Alibaba's annotations, or what it counts itself."""
    model = next((state.node.labels[label] for label in _MODELS if state.node.labels.get(label)), "")
    devices = device_state(snapshot, state)
    shape = None if devices is None else devices.shape.types.get(DeviceType.GPU)
    idle = gpu_node(snapshot, state).cards or plain_cards(state)
    kept = once(snapshot, _kept_cards).get(state.name, EMPTY)
    if devices is None or shape is None:
        return CardCounts(model=model, idle=idle, kept=kept)
    told = snapshot.find(DeviceObject, state.name)
    listed = () if told is None else told.devices
    broken = {one.minor for one in listed if one.type is DeviceType.GPU and not one.health}
    sound = [part for minor, part in zip(shape.minors, idle, strict=True) if minor not in broken]
    return CardCounts(model=model, idle=tuple(sound), broken=len(idle) - len(sound), kept=kept)


def _kept_cards(snapshot: ClusterSnapshot) -> dict[str, immutabledict[str, int]]:
    """Give by node what reservations keep for users to come without saying which cards they are."""
    found: dict[str, dict[str, int]] = {}
    for one in snapshot.of(Reservation):
        name = one.status.node_name
        if not one.active or DEVICE_ALLOCATED in one.annotations or name not in snapshot.layout.row_of:
            continue
        state = reservation_state(one, owners_of(one, used_reservations(snapshot.node(name).pods)))
        milli = max(state.available.get(card, 0) * each for card, each in _AMOUNTS.items())
        if milli and not state.ended:
            found.setdefault(name, {})[one.name] = milli
    return {name: frozen(kept) for name, kept in found.items()}


def condition_of(snapshot: ClusterSnapshot, state: NodeState) -> NodeCondition:
    """Say in which state a node is; cards say whether it is full where it has any.

    A node on which nobody but pods of DaemonSets runs is empty.
    """
    keys = {taint.key for taint in state.node.taints}
    if _UNREACHABLE in keys:
        return NodeCondition.UNREACHABLE
    if _NOT_READY in keys:
        return NodeCondition.NOT_READY
    if state.node.unschedulable:
        return NodeCondition.CORDONED
    own = [pod for pod in state.pods if pod.controller is None or pod.controller.kind != "DaemonSet"]
    if not own:
        return NodeCondition.EMPTY
    cards = cards_of(snapshot, state)
    if cards.total:
        return NodeCondition.FULL if not any(cards.idle) else NodeCondition.MIXED
    used = {name: sum(pod.requests.get(name, 0) for pod in state.pods) for name in (CPU, MEMORY)} | {
        PODS: len(state.pods)
    }
    whole = state.node.allocatable
    full = any(whole.get(name, 0) and used[name] * 100 >= whole[name] * _FULL for name in used)
    return NodeCondition.FULL if full else NodeCondition.MIXED
