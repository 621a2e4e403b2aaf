"""Laws of CPUs, NUMA amounts and devices as one question, on small random clusters.

The order of a policy's plugins makes no difference to placements; the arguments of NodeNUMAResource and
DeviceShare hold together, under every NUMA policy, as a brute search over sets of NUMA nodes has it; and who
is missing in the policy is not asked.
"""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

import attrs
from hypothesis import given, settings, strategies as st

from koordcore import Bound, ClusterSnapshot, PluginSetting, Policy, ScheduleResult, schedule, verify
from koordcore.allocators.device import DevicePolicy, NodeDevices, allocate_devices, device_request_of
from koordcore.allocators.numa_request import CPUDemand, CPURequest, NUMARefusal, cpu_request_of, demand_on
from koordcore.manifests import snapshot_from_objects
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    GPU_MEMORY_RATIO,
    RDMA,
    DeviceAllocation,
)
from koordcore.model.numa import NUMAArgs
from koordcore.model.plugin_args import ScoringStrategy
from koordcore.model.pods import Pod
from koordcore.protocol.device import parse_allocation
from koordcore.scheduling.plugins.exact import device_state, numa_state
from koordcore.topology.numa import NUMAExclusive, NUMATopologyPolicy, exclusive_allows, mask_of
from tests.reference.numa_placement import StaticResult
from tests.scheduling.test_numa import ALLOCATED, STATUS, node, pod

POLICIES = ("", "BestEffort", "Restricted", "SingleNUMANode")
HELD = (NUMATopologyPolicy.RESTRICTED, NUMATopologyPolicy.SINGLE_NUMA_NODE)
TABLE = {"2": [{"minors": [0, 1], "allocationScore": 1}, {"minors": [2, 3], "allocationScore": 1}]}
STRATEGIES = (ScoringStrategy.LEAST_ALLOCATED, ScoringStrategy.MOST_ALLOCATED)

AMOUNTS = Policy(plugins=(PluginSetting(name="NodeResourcesFit"),))

numa_args = st.builds(
    NUMAArgs,
    scoring=st.sampled_from(STRATEGIES),
    numa_scoring=st.sampled_from(STRATEGIES),
    weights=st.sampled_from(((("cpu", 1), ("memory", 1)), (("memory", 3),))),
)
device_args = st.builds(
    DevicePolicy,
    strategy=st.sampled_from(STRATEGIES),
    weights=st.sampled_from(({GPU_MEMORY_RATIO: 1}, {RDMA: 1})),
    align_numa=st.booleans(),
)


def reservation(name: str, cpu: int, gpus: int, policy: str, *, bound: bool) -> dict[str, Any]:
    """A reservation that waits for a node, for pods of the app ``a``."""
    template = pod("template", cpu, gpus=gpus, bound=bound)
    del template["metadata"]["name"]
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "uid": f"u-{name}"},
        "spec": {
            "template": template,
            "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
            "allocatePolicy": policy,
            "allocateOnce": False,
            "ttl": "24h",
        },
    }


@st.composite
def pods(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """Whole cards, parts of one, or none; CPUs of its own or shared ones."""
    gpus = draw(st.sampled_from((0, 0, 1, 2, 50)))
    one = pod(name, draw(st.integers(1, 5)), gpus=gpus if gpus < 50 else 1, bound=draw(st.booleans()))
    if gpus == 50:
        for amounts in one["spec"]["containers"][0]["resources"].values():
            amounts |= {key: "50" for key in amounts if "gpu" in key}
    if draw(st.booleans()):
        one["metadata"]["labels"]["app"] = "a"
    if draw(st.integers(0, 5)) == 0:
        spec = json.dumps({"numaTopologyPolicy": draw(st.sampled_from(POLICIES[1:]))})
        one["metadata"]["annotations"] = {"scheduling.koordinator.sh/numa-topology-spec": spec}
    return one


@st.composite
def clusters(draw: st.DrawFn, most: int = 3) -> ClusterSnapshot:
    """Nodes under all NUMA policies, some with cards and partitions; pods and reservations wait."""
    objects: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, most))):
        cards = draw(st.sampled_from(((), (0, 1), (0, 0, 1, 1), (1, 1, 0, 0))))
        made = node(f"n{number}", policy=draw(st.sampled_from(POLICIES)), cards=cards)
        if len(cards) == 4 and draw(st.booleans()):
            text = json.dumps(TABLE)
            made[-1]["metadata"]["annotations"] = {"scheduling.koordinator.sh/gpu-partitions": text}
        objects += made
    for number in range(draw(st.integers(0, 2))):
        cpu, gpus = draw(st.integers(1, 4)), draw(st.integers(0, 2))
        policy = draw(st.sampled_from(("Aligned", "Restricted")))
        objects.append(reservation(f"r{number}", cpu, gpus, policy, bound=draw(st.booleans())))
    objects += [draw(pods(f"p{number}")) for number in range(draw(st.integers(1, 6)))]
    return snapshot_from_objects(objects).snapshot


def policy_with(numa: NUMAArgs, devices: DevicePolicy) -> Policy:
    policy = Policy().with_plugin(PluginSetting(name="Reservation", weight=5000))
    policy = policy.with_plugin(PluginSetting(name="NodeNUMAResource", args=numa))
    return policy.with_plugin(PluginSetting(name="DeviceShare", args=devices))


def outcome(result: ScheduleResult) -> list[tuple[Any, ...]]:
    """Where every pod goes and what it gets; reasons and notes may come in another order."""
    return [
        (one.pod, one.node, one.score, one.annotations, one.reservation)
        if isinstance(one, Bound)
        else (one.pod,)
        for one in result.decisions
    ]


@settings(max_examples=10, deadline=None)
@given(clusters(), numa_args, device_args, st.data())
def test_the_order_of_plugins_makes_no_difference(
    snapshot: ClusterSnapshot, numa: NUMAArgs, devices: DevicePolicy, data: st.DataObject
) -> None:
    policy = policy_with(numa, devices)
    shuffled = attrs.evolve(policy, plugins=tuple(data.draw(st.permutations(policy.plugins))))
    result, other = (schedule(snapshot, policy=one) for one in (policy, shuffled))
    assert outcome(result) == outcome(other)
    assert verify(snapshot, result) == ()


def _given(decision: Bound) -> tuple[DeviceAllocation | None, tuple[int, ...]]:
    """What is written on the pod: its devices, and the NUMA nodes of its amounts."""
    status = json.loads(decision.annotations.get(STATUS, "{}"))
    cards = parse_allocation(decision.annotations) if ALLOCATED in decision.annotations else None
    return cards, tuple(one["node"] for one in status.get("numaNodeResources", ()))


def demand_of(snapshot: ClusterSnapshot, waiting: Pod, args: NUMAArgs) -> CPUDemand | NUMARefusal:
    """What a pod asks for on the first node; a refusal where the policies of both do not match."""
    request = cpu_request_of(waiting, args)
    assert isinstance(request, CPURequest)
    return demand_on(request, numa_state(snapshot, snapshot.nodes[0]).node)


class Brute:
    """All sets of NUMA nodes of one node, tried one by one."""

    def __init__(
        self, snapshot: ClusterSnapshot, waiting: Pod, demand: CPUDemand, devices: DevicePolicy
    ) -> None:
        state = snapshot.nodes[0]
        known = numa_state(snapshot, state)
        self.demand = demand
        self.exclusive = demand.request.exclusive_here
        wanted_alone = self.exclusive is NUMAExclusive.REQUIRED
        self.status = known.usage.status if wanted_alone else {}
        self.ground = StaticResult(known.node, known.allocations, demand)
        self.cards: NodeDevices | None = device_state(snapshot, state)
        wanted = device_request_of(waiting.requests, policy=devices)
        self.wanted = wanted if isinstance(wanted, DeviceRequest) else None
        self.policy = devices

    def devices(self, mask: tuple[int, ...] | None) -> DeviceAllocation | None:
        """The devices there, empty where none are asked for; ``None`` where there are not enough."""
        if self.wanted is None or self.cards is None:
            return DeviceAllocation()
        number = None if mask is None else mask_of(mask)
        found = allocate_devices(self.cards, self.wanted, number, policy=self.policy)
        return found if isinstance(found, DeviceAllocation) else None

    @property
    def tied(self) -> bool:
        return self.wanted is not None and self.cards is not None and self.policy.align_numa

    def masks(self) -> list[tuple[int, ...]]:
        """The smallest sets of NUMA nodes that have everything."""
        most = 1 if self.demand.policy is NUMATopologyPolicy.SINGLE_NUMA_NODE else 2
        for size in range(1, most + 1):
            found = [
                mask
                for mask in combinations((0, 1), size)
                if self.ground.exists(mask) and (not self.tied or self.devices(mask) is not None)
            ]
            exclusive = [
                mask for mask in found if exclusive_allows(mask_of(mask), self.exclusive, self.status)
            ]
            if self.demand.policy is not NUMATopologyPolicy.BEST_EFFORT or exclusive:
                found = exclusive
            if found:
                return found
        return []

    @property
    def cpus_anywhere(self) -> bool:
        """Whether CPUs are there for a pod that is held to no NUMA nodes."""
        demand = self.demand
        if demand.bind:
            return len(self.ground.free) >= demand.request.cpus_needed
        return demand.policy is NUMATopologyPolicy.NONE or self.ground.exists((0, 1))


def _one_pod_each(snapshot: ClusterSnapshot) -> list[tuple[ClusterSnapshot, Pod]]:
    """Each pod of a cluster of one node alone, beside those that came before it."""
    step, found = snapshot, []
    for waiting in snapshot.pending:
        found.append((step, waiting))
        step = schedule(step, [waiting]).snapshot
    return found


@settings(max_examples=10, deadline=None)
@given(clusters(most=1), numa_args, device_args)
def test_the_arguments_of_both_hold_under_every_policy(
    snapshot: ClusterSnapshot, numa: NUMAArgs, devices: DevicePolicy
) -> None:
    names = ("NodeResourcesFit", "NodeNUMAResource", "DeviceShare")
    own = {"NodeNUMAResource": numa, "DeviceShare": devices}
    for order in (names, names[::-1]):
        policy = Policy(plugins=tuple(PluginSetting(name=name, args=own.get(name)) for name in order))
        for step, waiting in _one_pod_each(snapshot):
            demand = demand_of(step, waiting, numa)
            if isinstance(demand, NUMARefusal):
                assert schedule(step, [waiting], policy=policy).bound == ()
                continue
            brute = Brute(step, waiting, demand, devices)
            masks = [] if demand.policy is NUMATopologyPolicy.NONE else brute.masks()
            fits = bool(masks)
            if demand.policy not in HELD:
                fits = brute.cpus_anywhere
            fits &= brute.devices(None) is not None
            fits &= schedule(step, [waiting], policy=AMOUNTS).bound != ()
            [decision] = schedule(step, [waiting], policy=policy).decisions
            assert isinstance(decision, Bound) == fits
            if not isinstance(decision, Bound):
                continue
            cards, nodes = _given(decision)
            if masks and nodes:
                assert any(set(nodes) <= set(mask) for mask in masks)
            if brute.wanted is not None and brute.cards is not None:
                choices = masks if brute.tied and masks else [None]
                assert cards in [brute.devices(mask) for mask in choices]


@settings(max_examples=8, deadline=None)
@given(clusters(), numa_args, device_args)
def test_who_is_not_in_the_policy_is_not_asked(
    snapshot: ClusterSnapshot, numa: NUMAArgs, devices: DevicePolicy
) -> None:
    policy = policy_with(numa, devices)
    for missing, key in (("DeviceShare", ALLOCATED), ("NodeNUMAResource", STATUS)):
        result = schedule(snapshot, policy=policy.without_plugin(missing))
        assert all(key not in one.annotations for one in result.bound)
        aligned = attrs.evolve(devices, align_numa=False)
        unaligned = policy_with(numa, aligned).without_plugin(missing)
        assert outcome(schedule(snapshot, policy=unaligned)) == outcome(result)
