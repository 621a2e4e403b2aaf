"""Sums on nodes: resources, pod counts and host ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from koordcore.checking.extended import classes_of_resources
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.nodes import NodeState
from koordcore.model.plugin_args import FitArgs
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, counted
from koordcore.protocol.reserved_on_node import trimmed_allocatable
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

KEPT_BY: Final = "koordcore.io/kept-by"
"""On what stands for a reservation while a result is checked: which one it is, and for whom."""
STANDS_FOR: Final = "scheduling.koordinator.sh/reserve-pod"
KEEPS_SLOT: Final = "koordcore.io/keeps-slot"
"""On the same, as long as nobody has taken of the reservation: the pod slot is for its first user."""


def check_nodes(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """No node holds more than it has, unless it did so before and got no worse."""
    before = {state.name: state for state in snapshot.nodes}
    classes = classes_of_resources(snapshot, result.policy)
    for state in result.snapshot.nodes:
        earlier = before.get(state.name)
        if earlier is None or earlier.pods == state.pods:
            continue
        if result.policy.filters("NodeResourcesFit"):
            yield from _check_sums(earlier, state, result.policy, classes)
        if result.policy.filters("NodePorts"):
            yield from _check_ports(earlier, state)


def _sums(state: NodeState) -> Counter[str]:
    sums: Counter[str] = Counter()
    for pod in state.pods:
        for name, amount in pod.requests.items():
            sums[name] += amount
    sums[PODS] = slots_taken(state.pods)
    return sums


def slots_taken(pods: Iterable[Pod]) -> int:
    """Count pods; what stands for a reservation is none for a kubelet, and keeps a slot for one."""
    return sum(pod.annotations.get(STANDS_FOR) != "true" or KEEPS_SLOT in pod.annotations for pod in pods)


def limits_of(
    state: NodeState, names: Iterable[str], policy: Policy, classes: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """Give the resources that a node is held to, sorted, with how much it has of each.

    Parameters
    ----------
    classes
        Resources that device classes go by.
    """
    setting = policy.plugin("NodeResourcesFit")
    args = setting.args if setting and setting.args else FitArgs()
    limits = trimmed_allocatable(state.node.allocatable, state.node.annotations)
    for name in sorted(names):
        if not counted(name):
            continue
        if name not in (CPU, MEMORY, EPHEMERAL_STORAGE, PODS) and (
            name in args.ignored or name.split("/", 1)[0] in args.ignored_groups
        ):
            continue
        limit = limits.get(name, 0)
        if not limit and name in classes:
            continue  # devices of claims serve it; whether they do is seen there
        yield name, limit


def _check_sums(
    earlier: NodeState, state: NodeState, policy: Policy, classes: Mapping[str, str]
) -> Iterator[Violation]:
    old, new = _sums(earlier), _sums(state)
    for name, limit in limits_of(state, new, policy, classes):
        if new[name] > limit and new[name] > old[name]:
            kind = ViolationKind.POD_COUNT if name == PODS else ViolationKind.RESOURCE
            kept = "".join(_kept(pod, name) for pod in state.pods)
            message = f"{name}: {new[name]} requested, {limit} allocatable{kept}"
            yield Violation(kind, state.name, message)


def _kept(pod: Pod, name: str) -> str:
    """Say what a reservation keeps of a resource; nothing of pods."""
    whose = pod.annotations.get(KEPT_BY, "")
    amount = pod.requests.get(name, 0)
    return f"; {amount} is kept by {whose}" if whose and amount else ""


def _check_ports(earlier: NodeState, state: NodeState) -> Iterator[Violation]:
    old = {pod.key for pod in earlier.pods}
    taken = [(pod.key, port) for pod in state.pods for port in pod.host_ports]
    for index, (key, port) in enumerate(taken):
        for other, second in taken[:index]:
            if key != other and (key not in old or other not in old) and port.conflicts(second):
                message = f"port {port.port}/{port.protocol} is open for {other} and {key}"
                yield Violation(ViolationKind.PORT, state.name, message)
