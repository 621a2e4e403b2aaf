"""A batch of device pods as one integer program over pods and cards, for batches too large to enumerate.

A boolean per (pod, node, card) and per switch and NUMA node touched, counts per NIC, a row for every amount
of every device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import pairwise

import attrs

from koordcore._certify import certify
from koordcore._cpsat import Program, Stage, solve
from koordcore.allocators.device.allocate import allocate_devices, write_allocation
from koordcore.allocators.device.followers import Picked
from koordcore.allocators.device.shape import Partition, scope_of
from koordcore.allocators.device.state import NodeDevices
from koordcore.allocators.device.view import TypeView, view_of
from koordcore.allocators.device.wants import wants_of
from koordcore.allocators.joint.cells import vf_classes
from koordcore.allocators.joint.greedy import Placed
from koordcore.model.certificates import Certificate, Limits
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceHolding,
    DeviceRequest,
    DeviceShortfall,
    DeviceType,
    PartitionAllocatePolicy,
)
from koordcore.topology.devices import TopologyScope, bits, lowest

__all__ = ["place_by_pods"]


def place_by_pods(
    nodes: Mapping[str, NodeDevices],
    requests: Mapping[str, DeviceRequest],
    policy: DevicePolicy,
    greedy: Placed,
    limits: Limits,
) -> tuple[Placed, Certificate]:
    """Place a batch; see :func:`koordcore.allocators.joint.place.place_devices_jointly`.

    Parameters
    ----------
    nodes
        Node to its devices, by name.
    greedy
        An answer to start from.
    """
    batch = _Batch(nodes, requests, policy)
    hint = batch.hint(greedy)
    stages = batch.stages(hint)
    outcome = solve(batch.program, stages, hint=hint, limits=limits)
    certificate = certify(batch.program.problem(stages), outcome, limits)
    return (batch.read(outcome.values) if outcome.solved else greedy), certificate


@attrs.define(eq=False)
class _Following:
    """Variables of one following type of one pod on one node.

    Attributes
    ----------
    shares
        Minor to how often it gives its share.
    classes
        ``(minor, VFs that are equal to all pods)`` to how many of them are taken.
    beside
        Minor to how many of its shares sit beside a card of the pod; only where nearness counts.
    near
        Nearness counts: shares elsewhere are remote.
    """

    view: TypeView
    shares: dict[int, int]
    classes: dict[tuple[int, int], int]
    beside: dict[int, int]
    near: bool


@attrs.define(eq=False, kw_only=True)
class _Place:
    """Variables of one pod on one node.

    Attributes
    ----------
    groups
        Set of cards (bit mask) to how many of them the pod takes. Idle cards on one switch are one group to
        a pod of whole cards, because nothing tells them apart; every other card is a group of its own.
    switches, numas
        Name to whether the pod has a card there.
    partitions
        Which partition of the table it takes.
    loose
        It takes whole cards outside the table although there is one.
    breadth
        NUMA nodes that count against it.
    """

    pod: str
    node: str
    views: dict[DeviceType, TypeView]
    placed: int
    groups: dict[int, int] = attrs.field(factory=dict)
    switches: dict[str, int] = attrs.field(factory=dict)
    numas: dict[int, int] = attrs.field(factory=dict)
    partitions: list[tuple[int, Partition]] = attrs.field(factory=list)
    loose: int | None = None
    breadth: int | None = None
    following: dict[DeviceType, _Following] = attrs.field(factory=dict)


def _fewest(sizes: Iterable[int], count: int) -> int:
    """Count the groups that are needed for so many cards; 0 where the groups do not hold them all."""
    needed = 0
    for size in sorted(sizes, reverse=True):
        if count <= 0:
            break
        needed += 1
        count -= size
    return needed if count <= 0 else 0


class _Batch:
    """The integer program of a batch, with the way from and to allocations."""

    def __init__(
        self, states: Mapping[str, NodeDevices], requests: Mapping[str, DeviceRequest], policy: DevicePolicy
    ) -> None:
        self.states = states
        self.requests = requests
        self.policy = policy
        self.program = Program()
        self.places: list[_Place] = []
        self.least_numas: dict[int, int] = {}
        self.least_switches: dict[int, int] = {}
        self.touches: list[tuple[int, Sequence[int]]] = []
        twins: dict[DeviceRequest, list[str]] = {}
        for pod, request in requests.items():
            twins.setdefault(request, []).append(pod)
        self.twins = [pods for pods in twins.values() if len(pods) > 1]
        for pod, request in requests.items():
            own = [
                place
                for node, state in self.states.items()
                if (place := self._place(pod, request, node, state)) is not None
            ]
            self.program.require([(place.placed, 1) for place in own], at_most=1)
            self.places.extend(own)
        for node, state in self.states.items():
            here = [place for place in self.places if place.node == node]
            self._add_capacity(state, here)
        self._order_twins()

    # --- one pod on one node ------------------------------------------------------------------------

    def _place(self, pod: str, request: DeviceRequest, node: str, state: NodeDevices) -> _Place | None:
        """Add the variables of a pod on a node; ``None`` where the node cannot serve it even alone."""
        wants = wants_of(state.shape, request, self.policy)
        if isinstance(wants, DeviceShortfall) or isinstance(
            allocate_devices(state, request, policy=self.policy), DeviceShortfall
        ):
            return None
        views = {kind: view_of(state, want) for kind, want in wants.items()}
        place = _Place(pod=pod, node=node, views=views, placed=self.program.boolean())
        if DeviceType.GPU in views:
            self._add_cards(place, request, state)
        for kind, view in views.items():
            if kind is not DeviceType.GPU:
                self._add_following(place, request, kind, view)
        return place

    def _touched(self, counts: Sequence[tuple[int, int]]) -> int:
        """Add a boolean that is 1 exactly where one of the counts ``(variable, most)`` is positive."""
        touched = self.program.boolean()
        for variable, most in counts:
            self.program.require([(touched, most), (variable, -1)], at_least=0)
        self.program.require([(touched, -1), *((variable, 1) for variable, _ in counts)], at_least=0)
        self.touches.append((touched, [variable for variable, _ in counts]))
        return touched

    def _add_cards(self, place: _Place, request: DeviceRequest, state: NodeDevices) -> None:
        program, view = self.program, place.views[DeviceType.GPU]
        layout = view.shape.layout
        whole = request.gpu is not None and not request.gpu.shared
        alike = self._idle_groups(state) if whole else ()
        masks = [mask for mask in alike if not mask & ~view.usable]
        masks.extend(1 << minor for minor in bits(view.usable & ~sum(masks)))
        place.groups = {mask: program.integer(0, mask.bit_count()) for mask in masks}
        count = view.want.count
        program.require([*((one, 1) for one in place.groups.values()), (place.placed, -count)], equal=0)

        def inside(area: int) -> list[tuple[int, int]]:
            return [(one, mask.bit_count()) for mask, one in place.groups.items() if mask & area]

        place.switches = {
            pcie: self._touched(inside(mask))
            for pcie, mask in sorted(layout.pcie_masks.items())
            if mask & view.usable
        }
        place.numas = {
            numa: self._touched(inside(mask))
            for numa, mask in layout.numa_masks.items()
            if mask & view.usable
        }
        # Cuts: so many switches and NUMA nodes are needed in any case.
        for touched, areas, floors in (
            (place.switches, layout.pcie_masks.values(), self.least_switches),
            (place.numas, layout.numa_masks.values(), self.least_numas),
        ):
            least = _fewest([(area & view.usable).bit_count() for area in areas], count)
            floors[place.placed] = least
            program.require([*((one, 1) for one in touched.values()), (place.placed, -least)], at_least=0)
        scope = scope_of(request.hint(DeviceType.GPU).required_topology_scope)
        if scope in (TopologyScope.PCIE, TopologyScope.DEVICE):
            program.require([(switch, 1) for switch in place.switches.values()], at_most=1)
        if scope in (TopologyScope.PCIE, TopologyScope.DEVICE, TopologyScope.NUMA_NODE):
            program.require([(numa, 1) for numa in place.numas.values()], at_most=1)
        if whole:
            self._add_partitions(place, request, state)
        if place.partitions:
            self.least_numas[place.placed] = 0
        place.breadth = program.integer(0, len(place.numas))
        terms = [(place.breadth, 1), *((numa, -1) for numa in place.numas.values())]
        # Inside a partition the table decides, not the number of NUMA nodes.
        program.require(terms, at_least=0, when=() if place.loose is None else (place.loose,))

    def _idle_groups(self, state: NodeDevices) -> tuple[int, ...]:
        """Group the idle cards by switch; on a node with a partition table every card counts for itself."""
        shape = state.shape.types[DeviceType.GPU]
        if state.shape.partitions is not None or not shape.layout.complete:
            return ()
        idle = shape.healthy & ~state.busy[DeviceType.GPU]
        return tuple(switch.mask & idle for switch in shape.layout.switches if switch.mask & idle)

    def _add_partitions(self, place: _Place, request: DeviceRequest, state: NodeDevices) -> None:
        """Tie whole cards to a partition; a pod that need not honour the table may stay loose."""
        program, shape, view = self.program, state.shape, place.views[DeviceType.GPU]
        spec = request.partition
        honored = spec is not None or shape.honor
        groups = shape.partitions.get(view.want.count, ()) if shape.partitions else ()
        restricted = spec is not None and spec.policy is PartitionAllocatePolicy.RESTRICTED
        bandwidth = None if spec is None else spec.ring_bus_bandwidth
        for group in groups[:1] if restricted else groups:
            for one in group:
                if one.mask & (view.busy | ~view.usable):
                    continue
                if bandwidth is not None and (one.bandwidth is None or one.bandwidth < bandwidth):
                    continue
                taken = program.boolean()
                for minor in bits(one.mask):
                    program.require([(place.groups[1 << minor], 1), (taken, -1)], at_least=0)
                place.partitions.append((taken, one))
        chosen = [(taken, 1) for taken, _ in place.partitions]
        if honored:
            program.require([*chosen, (place.placed, -1)], equal=0)
        elif shape.partitions is not None:
            place.loose = program.boolean()
            program.require([*chosen, (place.loose, 1), (place.placed, -1)], equal=0)
        if honored and place.loose is None:
            # Never loose: the breadth of an honoured partition does not count.
            place.loose = program.integer(0, 0)

    def _add_following(self, place: _Place, request: DeviceRequest, kind: DeviceType, view: TypeView) -> None:
        program, count = self.program, view.want.count
        shares = {minor: program.integer(0, view.slots(minor)) for minor in bits(view.usable)}
        joint = request.joint
        near = joint is not None and kind in joint.types and DeviceType.GPU in joint.types
        same = near and joint is not None and joint.same_pcie
        following = place.following[kind] = _Following(view, shares, {}, {}, near and not same)
        grows = same and joint is not None and joint.types[0] is DeviceType.GPU
        total = [(share, 1) for share in shares.values()]
        if grows:
            most = max(count, len(place.switches))
            program.require([*total, (place.placed, -count)], at_least=0)
            program.require([*total, (place.placed, -most)], at_most=0)
        else:
            program.require([*total, (place.placed, -count)], equal=0)
        if view.vfs is not None:
            for minor, share in shares.items():
                own = {
                    mask: program.integer(0, mask.bit_count())
                    for mask in vf_classes(
                        self.states[place.node], kind, minor, tuple(self.requests.values())
                    )
                    if not mask & ~view.vfs[minor]
                }
                following.classes |= {(minor, mask): variable for mask, variable in own.items()}
                program.require([(share, -1), *((variable, 1) for variable in own.values())], equal=0)
        if not near:
            return
        pcie_of = view.shape.layout.pcie_of
        for minor, share in shares.items():
            switch = place.switches.get(pcie_of.get(minor, ""))
            most = view.slots(minor)
            if same:
                terms = [(share, 1)] if switch is None else [(share, 1), (switch, -most)]
                program.require(terms, at_most=0)
            elif switch is not None:
                beside = following.beside[minor] = program.integer(0, most)
                program.require([(beside, 1), (share, -1)], at_most=0)
                program.require([(beside, 1), (switch, -most)], at_most=0)
        if same:
            for pcie, switch in place.switches.items():
                here = [(share, 1) for minor, share in shares.items() if pcie_of.get(minor) == pcie]
                program.require([*here, (switch, -1)], at_least=0)

    # --- all pods on one node ----------------------------------------------------------------------------

    def _add_capacity(self, state: NodeDevices, places: Sequence[_Place]) -> None:
        """Keep every amount of every device, and every class of equal VFs, within what is free."""
        rows: dict[tuple[DeviceType, int, int], list[tuple[int, int]]] = {}
        classes: dict[tuple[DeviceType, int, int], list[tuple[int, int]]] = {}
        alike = self._idle_groups(state) if DeviceType.GPU in state.shape.types else ()
        grouped: dict[int, list[tuple[int, int]]] = {mask: [] for mask in alike}
        single: dict[int, list[tuple[int, int]]] = {}
        for place in places:
            variables = {
                (kind, minor): share
                for kind, one in place.following.items()
                for minor, share in one.shares.items()
            }
            whole = place.views[DeviceType.GPU].want.whole if place.groups else False
            for mask, variable in place.groups.items():
                if whole and mask in grouped:
                    grouped[mask].append((variable, 1))
                else:
                    minor = mask.bit_length() - 1
                    variables[DeviceType.GPU, minor] = variable
                    single.setdefault(minor, []).append((variable, 1))
            for (kind, minor), variable in variables.items():
                for column, amount in place.views[kind].want.needs[minor]:
                    rows.setdefault((kind, minor, column), []).append((variable, amount))
            for kind, one in place.following.items():
                for (minor, mask), variable in one.classes.items():
                    classes.setdefault((kind, minor, mask), []).append((variable, 1))
        for (kind, minor, column), terms in rows.items():
            self.program.require(terms, at_most=state.free[kind][minor][column])
        for (_, _, mask), terms in classes.items():
            self.program.require(terms, at_most=mask.bit_count())
        for mask, terms in grouped.items():
            if terms:
                others = [(self._touched(single[minor]), 1) for minor in bits(mask) if minor in single]
                self.program.require([*terms, *others], at_most=mask.bit_count())

    def _order_twins(self) -> None:
        """Fix the order of nodes among pods that ask for the same, which changes nothing but the proof."""
        rank = {node: len(self.states) - index for index, node in enumerate(self.states)}
        terms: dict[str, list[tuple[int, int]]] = {pod: [] for pod in self.requests}
        for place in self.places:
            terms[place.pod].append((place.placed, rank[place.node]))
        for pods in self.twins:
            for before, after in pairwise(pods):
                later = [(variable, -amount) for variable, amount in terms[after]]
                self.program.require([*terms[before], *later], at_least=0)

    # --- objective ----------------------------------------------------------------------------------------

    def _at_least(self, hint: Sequence[int], floors: Mapping[int, int]) -> int:
        """Bound a sum over placed pods from below: at least as many as the hint places, each at its least.

        Parameters
        ----------
        floors
            Variable ``placed`` to the least that the pod adds on that node.
        """
        least: dict[str, int] = {}
        for place in self.places:
            floor = floors.get(place.placed, 0)
            least[place.pod] = min(floor, least.get(place.pod, floor))
        placed = sum(hint[place.placed] for place in self.places)
        return sum(sorted(least.values())[:placed])

    def stages(self, hint: Sequence[int]) -> tuple[Stage, ...]:
        """Pods left out; loose pods; partition scores; NUMA nodes; remote followers; switches."""
        remote: list[tuple[int, int]] = []
        for place in self.places:
            for one in place.following.values():
                if one.near:
                    remote.extend((share, 1) for share in one.shares.values())
                    remote.extend((beside, -1) for beside in one.beside.values())
        places = self.places
        return (
            Stage([(place.placed, -1) for place in places], constant=len(self.requests), at_least=0),
            Stage([(place.loose, 1) for place in places if place.loose is not None]),
            Stage([(taken, -one.score) for place in places for taken, one in place.partitions]),
            Stage(
                [(place.breadth, 1) for place in places if place.breadth is not None],
                at_least=self._at_least(hint, self.least_numas),
            ),
            Stage(remote),
            Stage(
                [(switch, 1) for place in places for switch in place.switches.values()],
                at_least=self._at_least(hint, self.least_switches),
            ),
        )

    # --- greedy start -------------------------------------------------------------------------------------

    def hint(self, greedy: Placed) -> list[int]:
        """Write an answer as an assignment, pods that ask for the same in the order of nodes."""
        placed = dict(greedy)
        order = {node: index for index, node in enumerate(self.states)}
        for pods in self.twins:
            found_for = sorted(
                (placed.pop(pod) for pod in pods if pod in placed), key=lambda one: order[one[0]]
            )
            placed.update(zip(pods, found_for, strict=False))
        return self._assignment(placed)

    def _assignment(self, placed: Mapping[str, tuple[str, DeviceAllocation]]) -> list[int]:
        """Write placements as values of all variables; what does not fit the program is no legal hint."""
        values = [0] * len(self.program)
        for place in self.places:
            node, allocation = placed.get(place.pod, ("", DeviceAllocation()))
            if node != place.node:
                continue
            values[place.placed] = 1
            minors = allocation.minors(DeviceType.GPU)
            mask = sum(1 << minor for minor in minors)
            for group, variable in place.groups.items():
                values[variable] = (group & mask).bit_count()
            fitting = [taken for taken, one in place.partitions if one.mask == mask]
            if fitting:
                values[fitting[0]] = 1
            elif place.loose is not None:
                values[place.loose] = 1
            for kind, one in place.following.items():
                self._assign_shares(place, one, allocation.devices[kind], values)
        for touched, cards in self.touches:
            values[touched] = int(any(values[card] for card in cards))
        for place in self.places:
            if place.breadth is not None and (place.loose is None or values[place.loose]):
                values[place.breadth] = sum(values[numa] for numa in place.numas.values())
            for one in place.following.values():
                pcie_of = one.view.shape.layout.pcie_of
                for minor, beside in one.beside.items():
                    near = values[place.switches[pcie_of[minor]]]
                    values[beside] = values[one.shares[minor]] if near else 0
        return values

    def _assign_shares(
        self, place: _Place, one: _Following, holdings: Sequence[DeviceHolding], values: list[int]
    ) -> None:
        kind, state = one.view.want.kind, self.states[place.node]
        # Optional extra devices of a single allocation are not taken in a batch.
        left = one.view.want.count if one.near or not place.switches else len(one.shares) * len(holdings)
        for holding in holdings:
            mask = state.vf_mask(kind, holding)
            often = min(left, max(1, mask.bit_count()))
            left -= often
            values[one.shares[holding.minor]] = often
            for (minor, equal), variable in one.classes.items():
                if minor == holding.minor:
                    values[variable] = min(often, (mask & equal).bit_count())
                    often -= values[variable]

    # --- the answer ---------------------------------------------------------------------------------------

    def read(self, values: Sequence[int]) -> Placed:
        """Turn an assignment into allocations."""
        placed: dict[str, tuple[str, DeviceAllocation]] = {}
        states = dict(self.states)
        # Pods of single cards first: what is left of a group of idle cards then goes to the others.
        taken = [place for place in self.places if values[place.placed]]
        for place in sorted(taken, key=lambda place: any(mask.bit_count() > 1 for mask in place.groups)):
            state, request = states[place.node], self.requests[place.pod]
            allocation = self._allocation(place, state, request, values)
            states[place.node] = state.assume(f"batch/{place.pod}", allocation)
            placed[place.pod] = place.node, allocation
        return placed

    def _allocation(
        self, place: _Place, state: NodeDevices, request: DeviceRequest, values: Sequence[int]
    ) -> DeviceAllocation:
        views = dict(place.views)
        chosen: dict[DeviceType, Picked] = {}
        if place.groups:
            idle = ~state.busy[DeviceType.GPU]
            mask = 0
            for group, variable in place.groups.items():
                mask |= lowest(group & idle if group.bit_count() > 1 else group, values[variable])
            order = next((one.minors for taken, one in place.partitions if values[taken]), tuple(bits(mask)))
            chosen[DeviceType.GPU] = tuple((minor, 1) for minor in order)
        for kind, one in place.following.items():
            chosen[kind] = tuple(
                (minor, values[share]) for minor, share in one.shares.items() if values[share]
            )
            if one.classes:
                views[kind] = self._with_vfs(state, one, values)
        return write_allocation(state, request, views, chosen)

    def _with_vfs(self, state: NodeDevices, one: _Following, values: Sequence[int]) -> TypeView:
        """Name the VFs: out of each class the first ones that nobody has taken yet."""
        kind, shape = one.view.want.kind, one.view.shape
        chosen: dict[int, int] = {}
        for (minor, mask), variable in one.classes.items():
            free = mask & ~state.use(kind).vfs[shape.position[minor]]
            chosen[minor] = chosen.get(minor, 0) | lowest(free, values[variable])
        view = copy(one.view)
        view.vfs = chosen
        return view
