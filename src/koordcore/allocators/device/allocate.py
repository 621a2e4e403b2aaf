"""Exact devices for one pod on one node: all types at once.

What is feasible is upstream's (``device_allocator.go``, ``gpu_partition.go``, ``device_handler_*.go``) as
documented, corrected where the rulings say so. The answer is found by looking at every set of switches or
partitions that could hold it, so that "does not fit" is never wrong; see
:mod:`koordcore.allocators.device.leaders` for what is preferred.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import attrs
from immutabledict import immutabledict

from koordcore.allocators.device.designated import (
    designated_holders,
    designated_nowhere,
    designated_otherwise,
    designated_terms,
)
from koordcore.allocators.device.followers import Followers, Picked
from koordcore.allocators.device.leaders import Leaders, by_partition, by_score, by_switches, first_choice
from koordcore.allocators.device.shape import DeviceShape
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import PLAIN_TERMS, Terms, TypeView, view_of
from koordcore.allocators.device.wants import Wants, wants_of
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
    GPURequest,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceHolding,
    DeviceShortfall,
    DeviceType,
    StatusCode,
)
from koordcore.model.resources import Resources
from koordcore.topology.devices import bits, lowest

_VIOLATION = "node(s) Device Joint-Allocate rules violation"
_NO_TABLE = "node(s) missing GPU Partition Table"
_NO_SIZE = "node(s) Unsupported number of GPU requests"
_NO_PARTITION = "Insufficient Partitioned GPU Devices"
_NO_TREE = "node(s) missing GPU Device Topology Tree"
_NO_MULTI = "node(s) Unsupported Multi-Shared GPU"
_NO_GPU = "Insufficient GPU Devices"
_NO_SCOPED_GPU = "Insufficient Topology Scoped GPU Devices"
_NO_TEMPLATE = "no matched GPU shared resource template"


def allocate_devices(
    state: NodeDevices | None,
    request: DeviceRequest,
    numa_mask: int | None = None,
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    terms: Terms = PLAIN_TERMS,
) -> DeviceAllocation | DeviceShortfall:
    """Choose the devices of a pod on one node.

    Parameters
    ----------
    state
        The node's devices; ``None`` where nothing is known about them.
    request
        From :func:`~koordcore.allocators.device.request.device_request_of`.
    numa_mask
        Bit mask of the NUMA ids that the pod is bound to; ``None`` for no affinity.
    policy
        How devices are ranked.
    terms
        What loans and victims give back, and where loans end.

    Returns
    -------
    DeviceAllocation or DeviceShortfall
        The allocation is empty where ``state`` is ``None``: no device is chosen, and the pod is left to the
        plain resources of the node and to its agent, unless it names its devices. A shortfall has upstream's
        reason.
    """
    if state is None:
        return designated_nowhere(request.designated) or DeviceAllocation()
    found = choose_devices(state, request, numa_mask, policy=policy, terms=terms)
    return found if isinstance(found, DeviceShortfall) else allocation_of(state, found)


def choose_devices(
    state: NodeDevices,
    request: DeviceRequest,
    numa_mask: int | None = None,
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    terms: Terms = PLAIN_TERMS,
) -> DeviceChoice | DeviceShortfall:
    """Choose the devices of a pod on one node, and on every node in the same state.

    Parameters
    ----------
    state, request, numa_mask, policy, terms
        As for :func:`allocate_devices`. What a pod is designated is a node's own, and so are loans.
    """
    found = _decide(state, request, numa_mask, policy, terms)
    if isinstance(found, DeviceShortfall):
        return found
    chosen = {kind: pick() for kind, pick in found.chosen.items()}
    return choice_of(state.shape, request, found.views, chosen)


def refusal_of(
    state: NodeDevices | None,
    request: DeviceRequest,
    numa_mask: int | None = None,
    *,
    policy: DevicePolicy = DEFAULT_DEVICE_POLICY,
    terms: Terms = PLAIN_TERMS,
) -> DeviceShortfall | None:
    """Tell why a node does not serve a pod, or ``None`` where it does: the same decision, not written down.

    Parameters
    ----------
    state, request, numa_mask, policy, terms
        As for :func:`allocate_devices`.
    """
    if state is None:
        return designated_nowhere(request.designated)
    found = _decide(state, request, numa_mask, policy, terms)
    return found if isinstance(found, DeviceShortfall) else None


Pick: TypeAlias = Callable[[], Picked]
"""A choice that is settled but not yet written out; most questions need no more than that there is one."""


class _Decision(NamedTuple):
    """The devices chosen per type, with the views that they were chosen in."""

    views: Mapping[DeviceType, TypeView]
    chosen: Mapping[DeviceType, Pick]


def _decide(
    state: NodeDevices,
    request: DeviceRequest,
    numa_mask: int | None,
    policy: DevicePolicy,
    terms: Terms,
) -> _Decision | DeviceShortfall:
    wants = wants_of(state.shape, request, policy)
    if isinstance(wants, DeviceShortfall):
        return wants
    if request.designated is None:
        return _choose(state, request, wants, numa_mask, terms)
    otherwise = designated_otherwise(request.designated, wants)
    if otherwise is not None:
        return otherwise
    limited = designated_terms(state, request.designated, terms)
    if isinstance(limited, DeviceShortfall):
        return limited
    found = _choose(state, request, wants, numa_mask, limited)
    if isinstance(found, DeviceShortfall):
        return attrs.evolve(found, detail=designated_holders(state, request.designated))
    return found


def _choose(
    state: NodeDevices, request: DeviceRequest, wants: Wants, numa_mask: int | None, terms: Terms
) -> _Decision | DeviceShortfall:
    views = {kind: view_of(state, want, numa_mask, terms) for kind, want in wants.items()}
    joint = () if request.joint is None else request.joint.types
    chosen: dict[DeviceType, Pick] = {}
    if len(joint) > 1:
        found = _choose_joint(state.shape, request, views, joint)
        if isinstance(found, DeviceShortfall):
            return found
        chosen.update(found)
    for kind, view in views.items():
        if kind in chosen:
            continue
        if kind is DeviceType.GPU:
            leaders = _choose_gpus(state.shape, request, view, ())
            if isinstance(leaders, DeviceShortfall):
                return leaders
            chosen[kind] = partial(_once, leaders.minors)
        else:
            pool = Followers(view, same_pcie=False)
            if pool.remote(()) is None:
                return _short(kind, view)
            chosen[kind] = partial(pool.pick, ())
    return _Decision(views, chosen)


def _short(kind: DeviceType, view: TypeView, reason: str = "") -> DeviceShortfall:
    return DeviceShortfall(
        reasons=(reason or f"Insufficient {kind} devices",),
        device_type=kind,
        requested=view.want.count,
        available=view.usable.bit_count(),
    )


def _once(minors: Sequence[int]) -> Picked:
    return tuple((minor, 1) for minor in minors)


# --- joint
# -----------------------------------------------------------------------------------------------------


def _choose_joint(
    shape: DeviceShape,
    request: DeviceRequest,
    views: Mapping[DeviceType, TypeView],
    joint: Sequence[DeviceType],
) -> dict[DeviceType, Pick] | DeviceShortfall:
    """Choose all joint types at once: cards lead where there are any, else the primary type does."""
    same_pcie = request.joint is not None and request.joint.same_pcie
    leading = DeviceType.GPU if DeviceType.GPU in joint else joint[0]
    followers = {kind: Followers(views[kind], same_pcie=same_pcie) for kind in joint if kind is not leading}
    if leading is not joint[0] and not followers[joint[0]].suffices:
        return _short(joint[0], views[joint[0]])
    leaders = _choose_leaders(shape, request, views[leading], tuple(followers.values()))
    if isinstance(leaders, DeviceShortfall):
        return leaders
    numa_nodes = views[leading].shape.layout.numa_nodes(sum(1 << minor for minor in leaders.minors))
    chosen: dict[DeviceType, Pick] = {leading: partial(_once, leaders.minors)}
    for kind, pool in followers.items():
        chosen[kind] = partial(pool.pick, leaders.switches, numa_nodes)
    return chosen


def _choose_leaders(
    shape: DeviceShape, request: DeviceRequest, view: TypeView, followers: Sequence[Followers]
) -> Leaders | DeviceShortfall:
    kind = view.want.kind
    if kind is DeviceType.GPU:
        return _choose_gpus(shape, request, view, followers)
    leaders = by_score(view, view.want.count, followers)
    if leaders is not None:
        return leaders
    alone = by_score(view, view.want.count)
    return _short(kind, view) if alone is None else _blame(alone, followers)


def _blame(leaders: Leaders, followers: Sequence[Followers]) -> DeviceShortfall:
    """Say which following type fails beside the leaders that would be best without it."""
    for pool in followers:
        if len(pool.order) < pool.desired(leaders.switches):
            return _short(pool.view.want.kind, pool.view)
    return DeviceShortfall(reasons=(_VIOLATION,))


# --- cards
# --------------------------------------------------------------------------------------------------------


def _choose_gpus(
    shape: DeviceShape, request: DeviceRequest, view: TypeView, followers: Sequence[Followers]
) -> Leaders | DeviceShortfall:
    found = _search_gpus(shape, request, view, followers)
    if not followers or isinstance(found, Leaders):
        return found
    alone = _search_gpus(shape, request, view, ())
    if isinstance(alone, DeviceShortfall):
        return alone
    return _blame(_first_choice(shape, request, view, alone), followers)


def _first_choice(shape: DeviceShape, request: DeviceRequest, view: TypeView, alone: Leaders) -> Leaders:
    """Give the cards beside which the reference would look for NICs; its reason speaks of them."""
    gpu = request.gpu
    if gpu is None or (gpu.shared and gpu.count == 1):
        return alone
    if gpu.shared or not view.shape.layout.complete:
        chosen = lowest(view.usable, gpu.count)
        return Leaders(tuple(bits(chosen)), view.shape.layout.pcies(chosen))
    return alone if isinstance(partition_of(shape, request, view), Leaders) else first_choice(view, gpu.count)


def _search_gpus(
    shape: DeviceShape, request: DeviceRequest, view: TypeView, followers: Sequence[Followers]
) -> Leaders | DeviceShortfall:
    """Look for cards as upstream's pipeline has it: template, partition, topology, score."""
    gpu = request.gpu
    if gpu is None:
        return _short(DeviceType.GPU, view)
    if gpu.enforce_template and f"{shape.vendor}-{shape.model}" not in gpu.templates:
        return _unresolvable(_NO_TEMPLATE)
    honored = request.partition is not None or shape.honor
    if not gpu.shared and (honored or shape.partitions is not None):
        partition = partition_of(shape, request, view, followers)
        if honored or isinstance(partition, Leaders):
            return partition
    return _by_topology(request, gpu, view, followers)


def _unresolvable(reason: str) -> DeviceShortfall:
    return DeviceShortfall(reasons=(reason,), code=StatusCode.UNRESOLVABLE, device_type=DeviceType.GPU)


def partition_of(
    shape: DeviceShape, request: DeviceRequest, view: TypeView, followers: Sequence[Followers] = ()
) -> Leaders | DeviceShortfall:
    """Choose a partition of the node's table for whole cards."""
    if shape.partitions is None:
        return _unresolvable(_NO_TABLE)
    if view.want.count not in shape.partitions:
        return _unresolvable(_NO_SIZE)
    scope = request.scope(DeviceType.GPU)
    leaders = by_partition(view, shape.partitions, request.partition, scope, followers)
    if leaders is not None:
        return leaders
    if scope is not None and by_partition(view, shape.partitions, request.partition, None, followers):
        return _short(DeviceType.GPU, view, _NO_SCOPED_GPU)
    return _short(DeviceType.GPU, view, _NO_PARTITION)


def _by_topology(
    request: DeviceRequest, gpu: GPURequest, view: TypeView, followers: Sequence[Followers]
) -> Leaders | DeviceShortfall:
    scope = request.scope(DeviceType.GPU)
    if not view.shape.layout.complete:
        if scope is not None:
            return _unresolvable(_NO_TREE)
        return by_score(view, gpu.count, followers) or _short(DeviceType.GPU, view)
    several = gpu.shared and gpu.count > 1
    if several and scope is not None:
        return _unresolvable(_NO_MULTI)
    leaders = by_switches(view, gpu.count, whole=not gpu.shared, scope=scope, followers=followers)
    if leaders is not None:
        return leaders
    if scope is not None:
        return _short(DeviceType.GPU, view, _NO_SCOPED_GPU)
    return _short(DeviceType.GPU, view, "" if several else _NO_GPU)


# --- the answer
# ---------------------------------------------------------------------------------------------------


def write_allocation(
    state: NodeDevices,
    request: DeviceRequest,
    views: Mapping[DeviceType, TypeView],
    chosen: Mapping[DeviceType, Picked],
) -> DeviceAllocation:
    """Write down a choice of devices, with ids, VFs and template.

    Parameters
    ----------
    views
        The views in which the choice was made: per type, what may be used.
    chosen
        Per type of ``views`` the minors, in the order of selection, with how often each gives its share.
    """
    return allocation_of(state, choice_of(state.shape, request, views, chosen))


class ChosenHolding(NamedTuple):
    """One device of a choice as it looks on every node of the same build: VFs by rank, no ids."""

    minor: int
    resources: Resources
    ranks: tuple[int, ...]
    template: str


DeviceChoice: TypeAlias = tuple[tuple[DeviceType, tuple[ChosenHolding, ...]], ...]
"""A choice of devices without what tells one node from another in the same state."""


def choice_of(
    shape: DeviceShape,
    request: DeviceRequest,
    views: Mapping[DeviceType, TypeView],
    chosen: Mapping[DeviceType, Picked],
) -> DeviceChoice:
    """Write down a choice without the names of a node; see :func:`write_allocation`."""
    template = _template(shape, request)
    return tuple(
        (
            kind,
            tuple(
                _chosen_holding(view, minor, often, template if kind is DeviceType.GPU else "")
                for minor, often in chosen[kind]
            ),
        )
        for kind, view in views.items()
    )


def _chosen_holding(view: TypeView, minor: int, often: int, template: str) -> ChosenHolding:
    amounts = view.want.filled[minor]
    if often > 1:
        amounts = immutabledict({name: amount * often for name, amount in amounts.items()})
    ranks = () if view.vfs is None else tuple(bits(lowest(view.vfs[minor], often)))
    return ChosenHolding(minor, amounts, ranks, template)


def allocation_of(state: NodeDevices, choice: DeviceChoice) -> DeviceAllocation:
    """Put a node's ids and VFs to a choice."""
    devices = {}
    for kind, holdings in choice:
        devices[kind] = tuple(
            [
                DeviceHolding(
                    minor=one.minor,
                    resources=one.resources,
                    id=state.id_of(kind, one.minor),
                    vfs=tuple([state.vf_of(kind, one.minor, rank) for rank in one.ranks])
                    if one.ranks
                    else (),
                    template=one.template,
                )
                for one in holdings
            ]
        )
    return DeviceAllocation(immutabledict(devices))


def _template(shape: DeviceShape, request: DeviceRequest) -> str:
    """Name the template of a virtual card; of several equal ones the first by name."""
    if request.gpu is None or not request.gpu.enforce_template:
        return ""
    return request.gpu.templates[f"{shape.vendor}-{shape.model}"][0]
