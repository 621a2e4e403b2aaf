"""One pod on one node: CPUs, memory, hugepages and devices decided together.

The NUMA nodes are chosen once for everything that the pod asks for. On a set of NUMA nodes the CPUs, the
amounts and the devices do not compete with each other, so that a set serves the pod exactly when each side
can be served inside it; no second opinion is asked for when the choice is carried out.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.device import (
    DEFAULT_DEVICE_POLICY,
    PLAIN_TERMS,
    DevicePolicy,
    NodeDevices,
    Terms,
    allocate_devices,
)
from koordcore.allocators.device.allocate import refusal_of
from koordcore.allocators.device.answers import DeviceAnswers
from koordcore.allocators.node_request import NodeArgs, NodeRequest
from koordcore.allocators.numa import (
    NO_AMOUNTS,
    NodeAmounts,
    NUMAAllocation,
    allocate_numa,
    filter_numa,
)
from koordcore.allocators.numa_align import PLAIN_ROOM, NUMAAdmission, NUMAProvider, NUMARoom, align
from koordcore.allocators.numa_request import (
    CPURequest,
    NUMARefusal,
    completed_resource_spec,
    demand_on,
)
from koordcore.allocators.numa_state import NUMANode, NUMAState
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceShortfall,
    DeviceType,
)
from koordcore.model.numa import NUMAArgs
from koordcore.protocol.device import DEVICE_ALLOCATED, format_allocation
from koordcore.protocol.numa import (
    ANNOTATION_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    ResourceSpec,
    format_resource_spec,
    format_resource_status,
    resource_spec_of,
)
from koordcore.topology.numa import NUMAMask, NUMATopologyPolicy

_SAME_CARDS: Final = 500
"""Score of NUMA nodes that give the very cards that the whole node would give, as upstream has it."""


DEFAULT_NODE_ARGS: Final = NodeArgs()


@record
class NodeOffer:
    """What a node offers a pod beyond plain amounts, and on what terms.

    Parameters
    ----------
    numa
        CPUs and NUMA nodes with what is held of them.
    devices
        Devices with what is held of them; ``None`` where nothing is known.
    amounts
        Of the node as a whole; they matter only where its CPU is amplified.
    room, terms
        What loans and victims give back: CPUs and amounts, and devices.
    covers
        NUMA nodes that have to be among those that are chosen, where any are.
    only
        The very NUMA nodes that are chosen, where any are; 0 for whichever.
    sides
        Others who give the pod something near NUMA nodes; the answer says which these are.
    """

    numa: NUMAState
    devices: NodeDevices | None = None
    amounts: NodeAmounts = attrs.field(default=NO_AMOUNTS, kw_only=True)
    room: NUMARoom = attrs.field(default=PLAIN_ROOM, kw_only=True)
    terms: Terms = attrs.field(default=PLAIN_TERMS, kw_only=True)
    covers: NUMAMask = attrs.field(default=0, kw_only=True)
    only: NUMAMask = attrs.field(default=0, kw_only=True)
    sides: tuple[NUMAProvider, ...] = attrs.field(default=(), kw_only=True)

    @property
    def state(self) -> Hashable:
        """Equal for nodes that offer the same on the same terms, whoever holds what is held there."""
        return self.numa, None if self.devices is None else self.devices.signature


@record(kw_only=True)
class NodeAllocation:
    """What a pod gets of a node.

    Parameters
    ----------
    numa
        CPUs and amounts per NUMA node.
    devices
        Exact devices; ``None`` for a pod that asks for none.
    """

    numa: NUMAAllocation
    devices: DeviceAllocation | None = None

    @cached_property
    def _status_text(self) -> str:
        return format_resource_status(self.numa.status)

    def annotations(
        self, request: NodeRequest, node: NUMANode, written: Mapping[str, str]
    ) -> immutabledict[str, str]:
        """Annotations that carry the allocation on the pod.

        Parameters
        ----------
        request, node
            What it was made for.
        written
            Annotations that the pod has; its resource-spec is completed, never overwritten.
        """
        found: dict[str, str] = {}
        if self.numa.written:
            found[ANNOTATION_RESOURCE_STATUS] = self._status_text
        if request.cpu is not None and self.numa.status.cpuset:
            found[ANNOTATION_RESOURCE_SPEC] = _spec_text(resource_spec_of(written), request.cpu, node)
        if self.devices is not None and self.devices.devices:
            found[DEVICE_ALLOCATED] = format_allocation(self.devices)
        return immutabledict(found)


@lru_cache(maxsize=4096)
def _spec_text(spec: ResourceSpec, request: CPURequest, node: NUMANode) -> str:
    return format_resource_spec(completed_resource_spec(spec, request, node))


class DeviceProvider:
    """The devices of a node as the choice of NUMA nodes sees them.

    Parameters
    ----------
    offer
        The node.
    request, policy
        As for :func:`~koordcore.allocators.device.allocate_devices`.
    answers
        What is known of nodes in equal states; only where nothing is lent.
    """

    def __init__(
        self,
        offer: NodeOffer,
        request: DeviceRequest,
        policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
        answers: DeviceAnswers | None = None,
    ) -> None:
        self._devices = offer.devices
        self._request = request
        self._policy = policy
        self._terms = offer.terms
        self._answers = answers if offer.terms is PLAIN_TERMS else None
        self._number = -1 if self._answers is None else self._answers.table.number(self._devices)
        # Devices of this node alone: what is lent is seldom the same twice.
        self._known: dict[NUMAMask, DeviceAllocation | DeviceShortfall] = {}

    @property
    def names(self) -> Sequence[str]:
        """Types of devices that the pod asks for."""
        return self._request.types

    @property
    def aligned(self) -> bool:
        """Whether any device of the node tells its NUMA node."""
        return self._devices is not None and self._policy.align_numa and self._devices.shape.numa_nodes > 0

    def allocate(self, mask: NUMAMask | None) -> DeviceAllocation | DeviceShortfall:
        """Choose devices inside NUMA nodes, or anywhere; this node's own ids and VFs."""
        if self._answers is not None:
            return self._answers.allocate(self._devices, mask)
        return allocate_devices(self._devices, self._request, mask, policy=self._policy, terms=self._terms)

    def feasible(self, mask: NUMAMask) -> bool:
        """Tell whether the devices exist inside NUMA nodes."""
        if self._answers is not None:
            return self._answers.refusal(self._number, mask) is None
        if mask in self._known:
            return not isinstance(self._known[mask], DeviceShortfall)
        found = refusal_of(self._devices, self._request, mask, policy=self._policy, terms=self._terms)
        return found is None

    def score(self, mask: NUMAMask) -> int:
        """Rate NUMA nodes: 500 where they give the cards that the whole node would give, else 0."""
        inside = self._cards(mask)
        return _SAME_CARDS if inside is not None and inside == self._cards(self._everything) else 0

    def _cards(self, mask: NUMAMask) -> frozenset[int] | None:
        """Give the cards that NUMA nodes would give; ``None`` where their devices do not serve the pod."""
        if self._answers is not None and self._devices is not None and self._request.designated is None:
            choice = self._answers.choice(self._number, mask)
            if isinstance(choice, DeviceShortfall):
                return None
            return frozenset(one.minor for kind, chosen in choice if kind is DeviceType.GPU for one in chosen)
        found = self._ask(mask)
        return None if isinstance(found, DeviceShortfall) else frozenset(found.minors(DeviceType.GPU))

    def refusal(self) -> NUMARefusal | None:
        """Say why no set of NUMA nodes will do; ``None`` where one would."""
        if not self.aligned:
            return None
        whole = self._ask(self._everything)
        if not isinstance(whole, DeviceShortfall):
            return None
        # Upstream's topology manager passes the reasons on and gives them its own code.
        return NUMARefusal(tuple(attrs.evolve(one, resolvable=True) for one in whole.shortfalls))

    @property
    def _everything(self) -> NUMAMask:
        return 0 if self._devices is None else self._devices.shape.numa_nodes

    def _ask(self, mask: NUMAMask) -> DeviceAllocation | DeviceShortfall:
        known = self._known.get(mask)
        if known is None:
            known = self._known[mask] = self.allocate(mask)
        return known


@record
class _Covering:
    """Lets only those sets of NUMA nodes through that contain some, or are these."""

    mask: NUMAMask
    exactly: bool = False
    names: tuple[str, ...] = ()
    aligned: bool = True

    def feasible(self, mask: NUMAMask) -> bool:
        return not self.mask & ~mask and (not self.exactly or mask == self.mask)

    def score(self, mask: NUMAMask) -> int:
        return 0

    def refusal(self) -> NUMARefusal | None:
        return None


def fit_node(
    offer: NodeOffer,
    request: NodeRequest,
    args: NodeArgs = DEFAULT_NODE_ARGS,
    answers: DeviceAnswers | None = None,
) -> NodeAllocation | NUMARefusal:
    """Tell exactly what a pod would get on a node, or why nothing.

    Whatever else a pod has to be given together with this joins as one more member of request, offer,
    arguments and allocation, and as one more provider that says which NUMA nodes serve it.

    Parameters
    ----------
    offer
        The node.
    request
        What the pod asks for.
    args
        How NUMA nodes and devices are ranked.
    answers
        See :class:`DeviceProvider`.

    Returns
    -------
    NodeAllocation or NUMARefusal
        Under SINGLE_NUMA_NODE and RESTRICTED everything comes from one set of NUMA nodes, the smallest that
        has it all; BEST_EFFORT takes one where there is one and does without otherwise.
    """
    provider = None
    if request.devices is not None:
        provider = DeviceProvider(offer, request.devices, args.devices, answers)
    if request.cpu is None:
        return _with_devices(NUMAAllocation(), provider, None)
    providers: tuple[NUMAProvider, ...] = offer.sides if provider is None else (provider, *offer.sides)
    if offer.covers:
        providers = (*providers, _Covering(offer.covers))
    if offer.only:
        providers = (*providers, _Covering(offer.only, exactly=True))
    state, room = offer.numa, offer.room
    admission = filter_numa(state, request.cpu, offer.amounts, args=args.numa, room=room, providers=providers)
    if isinstance(admission, NUMARefusal):
        return admission
    if admission.policy is NUMATopologyPolicy.BEST_EFFORT and request.cpu.designated is None:
        chosen = _best_effort(state, request.cpu, args.numa, room, providers)
        if isinstance(chosen, NUMARefusal):
            return chosen
        admission = chosen
    given = allocate_numa(state, request.cpu, admission, args=args.numa, room=room)
    if isinstance(given, NUMARefusal):
        return given
    return _complete(given, provider, admission.policy)


def same_on(
    given: NodeAllocation,
    offer: NodeOffer,
    request: NodeRequest,
    args: NodeArgs = DEFAULT_NODE_ARGS,
    answers: DeviceAnswers | None = None,
) -> NodeAllocation | NUMARefusal:
    """Give what :func:`fit_node` would, on a node that is in the very state of one it was asked about.

    Parameters
    ----------
    given
        The answer there. CPUs and amounts are the same here; devices of equal use have ids of their own.
    offer, request, args, answers
        Of this node, as for :func:`fit_node`; nothing is lent.
    """
    if request.devices is None or request.cpu is None:
        return given
    demand = demand_on(request.cpu, offer.numa.node)
    if isinstance(demand, NUMARefusal):
        return demand
    provider = DeviceProvider(offer, request.devices, args.devices, answers)
    return _complete(given.numa, provider, demand.policy)


def _complete(
    given: NUMAAllocation, provider: DeviceProvider | None, policy: NUMATopologyPolicy
) -> NodeAllocation | NUMARefusal:
    answer = _with_devices(given, provider, given.mask)
    if isinstance(answer, NUMARefusal) and policy is NUMATopologyPolicy.BEST_EFFORT:
        return _with_devices(given, provider, None)
    return answer


def _best_effort(
    state: NUMAState,
    request: CPURequest,
    args: NUMAArgs,
    room: NUMARoom,
    providers: Sequence[NUMAProvider],
) -> NUMAAdmission | NUMARefusal:
    """Choose NUMA nodes for everything, or for CPUs and amounts alone where there are none for everything."""
    demand = demand_on(request, state.node)
    if isinstance(demand, NUMARefusal):
        return demand
    chosen = align(state, demand, args=args, room=room, providers=providers)
    if isinstance(chosen, NUMARefusal) or chosen.mask is None:
        return chosen
    if all(provider.feasible(chosen.mask) for provider in providers if provider.aligned):
        return chosen
    return align(state, demand, args=args, room=room)


def _with_devices(
    given: NUMAAllocation, provider: DeviceProvider | None, mask: NUMAMask | None
) -> NodeAllocation | NUMARefusal:
    """Add the devices to what was chosen; NUMA nodes bind only devices that tell theirs."""
    if provider is None:
        return NodeAllocation(numa=given)
    chosen = provider.allocate(mask if provider.aligned else None)
    if isinstance(chosen, DeviceShortfall):
        return NUMARefusal(chosen.shortfalls)
    return NodeAllocation(numa=given, devices=chosen)
