"""Several pods' devices on one node, all or none, where one after another some would find none left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Final

from koordcore.allocators.device.allocate import write_allocation
from koordcore.allocators.device.followers import Picked
from koordcore.allocators.device.shape import TypeShape
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import view_of
from koordcore.allocators.device.wants import wants_of
from koordcore.allocators.joint.cells import Share, vf_classes
from koordcore.allocators.joint.packings import Put, Work, packings_of
from koordcore.errors import SolverError
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
    ExclusivePolicy,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceShortfall,
    DeviceType,
)
from koordcore.model.resources import NO_RESOURCES
from koordcore.topology.devices import lowest

WORK: Final = 20_000
"""How many ways to put a pod on a node are looked at."""
_COUNTED: Final = 500
"""The same where only the number of pods is asked for, on many nodes."""


def countable(request: DeviceRequest) -> bool:
    """Tell whether what a node can take of such pods is found by counting.

    Exclusive and designated devices, and one switch for others than cards, are decided pod by pod.
    """
    joint = request.joint
    apart = any(hint.exclusive is not ExclusivePolicy.NONE for hint in request.hints.values())
    switch = joint is not None and joint.same_pcie and len(joint.types) > 1
    strange = joint is not None and switch and DeviceType.GPU not in joint.types
    return not (apart or strange or request.designated is not None or request.loan_required)


def devices_together(
    state: NodeDevices, requests: Mapping[str, DeviceRequest], policy: DevicePolicy
) -> dict[str, DeviceAllocation] | None:
    """Give several pods their devices on one node.

    Parameters
    ----------
    requests
        Pod to what it asks for, each of them :func:`countable`.

    Returns
    -------
    dict or None
        In an order in which they can be taken; empty where it is proven that they do not fit together,
        ``None`` where there are too many ways to tell.
    """
    kinds: dict[DeviceRequest, list[str]] = {}
    for pod, request in requests.items():
        kinds.setdefault(request, []).append(pod)
    ordered = sorted(kinds, key=lambda request: -_size(request))
    demand = tuple(len(kinds[request]) for request in ordered)
    found = packings_of(state, ordered, demand, policy, Work(WORK))
    if found is None:
        return None
    packing = next((one for one in found if one.counts == demand), None)
    if packing is None:
        return {}
    waiting = [iter(kinds[request]) for request in ordered]
    given: dict[str, DeviceAllocation] = {}
    now = state
    for put in packing.pods():
        pod = next(waiting[put.which])
        given[pod] = _allocation(state, now, put, ordered, policy)
        now = now.assume(f"batch/{pod}", given[pod])
    return given


def most_together(
    state: NodeDevices, request: DeviceRequest, least: int, most: int, policy: DevicePolicy
) -> tuple[int, bool]:
    """Count how many such pods a node takes, of which it takes ``least`` one after another.

    More than are known to fit are only told where all ways could be looked at; whether it is known that no
    more than that fit stands beside the number.
    """
    bound = min(most, _by_cards(state, request))
    if least < bound:
        bound = min(bound, _by_switches(state, request, bound))
    if not least < bound:
        return least, True
    if not countable(request):
        return least, False
    found = packings_of(state, [request], [bound], policy, Work(_COUNTED))
    if found is None:
        return least, False
    return max(least, *(one.counts[0] for one in found)), True


def never_together(
    state: NodeDevices, requests: Sequence[DeviceRequest], demand: Sequence[int], policy: DevicePolicy
) -> tuple[tuple[int, ...], ...] | None:
    """List the least numbers of pods of each kind that a node does not take together.

    Parameters
    ----------
    requests, demand
        The kinds of pods, each :func:`countable`, and how many of each there are.

    Returns
    -------
    tuple or None
        So many of all kinds, or more, do not fit; ``None`` where there are too many ways to tell.
    """
    found = packings_of(state, requests, demand, policy, Work(_COUNTED))
    if found is None:
        return None
    able = {one.counts for one in found}
    # Whatever fits still fits without a pod: the least that does not is one pod beyond something that does.
    beyond = {
        (*counts[:kind], counts[kind] + 1, *counts[kind + 1 :])
        for counts in able
        for kind, most in enumerate(demand)
        if counts[kind] < most
    } - able
    least = [
        one
        for one in beyond
        if all(
            not count or (*one[:kind], count - 1, *one[kind + 1 :]) in able for kind, count in enumerate(one)
        )
    ]
    return tuple(sorted(least))


def _by_cards(state: NodeDevices, request: DeviceRequest) -> int:
    """Bound by the cards that nobody uses; whatever is shared has no bound."""
    cards = state.shape.types.get(DeviceType.GPU)
    if request.gpu is None or request.gpu.shared or cards is None:
        return 1 << 30
    return (cards.healthy & ~state.busy[DeviceType.GPU]).bit_count() // max(1, request.gpu.count)


def _by_switches(state: NodeDevices, request: DeviceRequest, most: int) -> int:
    """Bound by the switches, where whole devices of another type have to sit on those of the cards."""
    cards, joint, gpu = state.shape.types.get(DeviceType.GPU), request.joint, request.gpu
    if cards is None or gpu is None or gpu.shared or joint is None or not joint.same_pcie:
        return most
    idle = cards.healthy & ~state.busy[DeviceType.GPU]
    for kind in joint.types:
        other = state.shape.types.get(kind)
        if kind is DeviceType.GPU or other is None or not _whole(other, request, kind):
            continue
        able = other.healthy & ~state.busy[kind]
        beside = other.layout.pcie_masks
        # A pod has one of the others on every switch of its cards, of which there are as many at most.
        used = sum(
            min((group & idle).bit_count(), gpu.count * (beside.get(pcie, 0) & able).bit_count())
            for pcie, group in cards.layout.pcie_masks.items()
        )
        most = min(most, used // max(1, gpu.count))
    return most


def _whole(shape: TypeShape, request: DeviceRequest, kind: DeviceType) -> bool:
    """Tell whether nobody else has a device of which such a pod has something."""
    asked = request.amounts.get(kind, NO_RESOURCES)
    column = shape.column
    everyone = [total for total in shape.totals.values() if total != shape.nothing]
    return request.hint(kind).vf_selector is None and any(
        name in column and all(amount >= total[column[name]] for total in everyone)
        for name, amount in asked.items()
    )


def _size(request: DeviceRequest) -> int:
    return 0 if request.gpu is None else request.gpu.count * (1 if request.gpu.shared else 2)


def _allocation(
    start: NodeDevices, now: NodeDevices, put: Put, kinds: Sequence[DeviceRequest], policy: DevicePolicy
) -> DeviceAllocation:
    """Write down what a pod gets: out of each class of equal VFs the first that nobody has taken yet."""
    request = kinds[put.which]
    wants = wants_of(start.shape, request, policy)
    if isinstance(wants, DeviceShortfall):
        raise SolverError(f"{wants.reasons}: a node that cannot serve a pod was chosen for it")
    views = {kind: copy(view_of(start, want)) for kind, want in wants.items()}
    chosen: dict[DeviceType, list[tuple[int, int]]] = {kind: [] for kind in views}
    for share in sorted(put.shares, key=lambda share: share.minor):
        chosen[share.kind].append((share.minor, share.often))
    if put.order is not None:
        chosen[DeviceType.GPU] = [(minor, 1) for minor in put.order]
    for kind, view in views.items():
        if view.vfs is not None:
            shares = [share for share in put.shares if share.kind is kind]
            view.vfs = {share.minor: _vfs(start, now, share, kinds) for share in shares}
    picked: dict[DeviceType, Picked] = {kind: tuple(found) for kind, found in chosen.items()}
    return write_allocation(now, request, views, picked)


def _vfs(start: NodeDevices, now: NodeDevices, share: Share, kinds: Sequence[DeviceRequest]) -> int:
    shape = start.shape.types[share.kind]
    taken = now.use(share.kind).vfs[shape.position[share.minor]]
    classes = vf_classes(start, share.kind, share.minor, kinds)
    ranks = 0
    for place, number in share.vfs:
        ranks |= lowest(classes[place] & ~taken, number)
    return ranks
