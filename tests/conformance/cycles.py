"""What stands when a pod of a whole cycle has its turn, and whether a placement there is legal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import attrs

from koordcore.checking import verify
from koordcore.checking.violation import ViolationKind
from koordcore.explaining.cycle import Cycle, explain_cycle
from koordcore.model.decisions import Bound
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.reservations import AllocatePolicy, Reservation
from koordcore.model.resources import CPU
from koordcore.protocol.reservation import allocated_reservation
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.cluster import bind
from tests.reference import devices as checker

PREFIX: Final = "scheduling.koordinator.sh/"
DEVICES, STATUS, USED = (
    PREFIX + name for name in ("device-allocated", "resource-status", "reservation-allocated")
)
PHYSICAL: Final = (
    ViolationKind.RESOURCE,
    ViolationKind.POD_COUNT,
    ViolationKind.DEVICE,
    ViolationKind.CPU,
    ViolationKind.NUMA,
    ViolationKind.TAINT,
    ViolationKind.CORDON,
    ViolationKind.AFFINITY,
    ViolationKind.PORT,
    ViolationKind.POD_AFFINITY,
)


@attrs.frozen(eq=False, slots=False)
class Scene:
    """What stands when a pod has its turn.

    Parameters
    ----------
    objects
        The wire objects of the case, of which nodes and devices matter.
    """

    snapshot: ClusterSnapshot
    pod: Pod
    policy: Policy
    now: datetime
    objects: Sequence[Mapping[str, Any]]

    @cached_property
    def cycle(self) -> Cycle:
        """What the library says of it."""
        return explain_cycle(self.snapshot, self.pod, policy=self.policy, now=self.now)

    def faults(self, decision: Bound) -> list[str]:
        """Say what is physically wrong about placing the pod so, as the independent checker sees it."""
        known = self.snapshot if self.snapshot.pod(self.pod.key) else self.snapshot.with_pending(self.pod)
        after = known.assume(bind(self.pod, decision))
        result = ScheduleResult(decisions=(decision,), snapshot=after, policy=self.policy)
        found = [str(one) for one in verify(known, result) if one.kind in PHYSICAL]
        return found + list(self._outside(decision)) + self._misstated(decision)

    def _misstated(self, decision: Bound) -> list[str]:
        """List what the entries of a device allocation say wrongly."""
        allocated = json.loads(decision.annotations.get(DEVICES, "null"))
        if not allocated:
            return []
        return checker.misstated(self.devices_case(decision.node, decision.annotations), allocated)

    def _outside(self, decision: Bound) -> Iterator[str]:
        """CPUs, amounts and devices beside those that a Restricted reservation holds some of."""
        one = self._used(decision.annotations)
        if one is None or one.allocate_policy is not AllocatePolicy.RESTRICTED:
            return
        mine, ours = (json.loads(each.get(DEVICES, "{}")) for each in (one.annotations, decision.annotations))
        for kind in sorted(mine.keys() & ours.keys()):
            beside = {part["minor"] for part in ours[kind]} - {part["minor"] for part in mine[kind]}
            if beside:
                yield f"{kind} {sorted(beside)} is not what the Restricted reservation {one.name} holds"
        held, taken = (json.loads(each.get(STATUS, "{}")) for each in (one.annotations, decision.annotations))
        nodes = {entry["node"] for entry in held.get("numaNodeResources", ())}
        for entry in taken.get("numaNodeResources", ()):
            if nodes and entry["node"] not in nodes:
                yield f"NUMA node {entry['node']} is not what the Restricted reservation {one.name} holds"

    def _used(self, annotations: Mapping[str, str]) -> Reservation | None:
        used = allocated_reservation(annotations)
        return None if used is None else self.snapshot.find(Reservation, used.name)

    def devices_case(self, node: str, annotations: Mapping[str, str]) -> dict[str, Any]:
        """Put the node and what is held there in the form that the device checker reads."""

        def raw(kind: str) -> Mapping[str, Any] | None:
            found = (one for one in self.objects if one["kind"] == kind and one["metadata"]["name"] == node)
            return next(found, None)

        own = self._used(annotations)
        entries = []
        for one in self.snapshot.of(Reservation):
            if one.active and one.status.node_name == node:
                users = [
                    str(pod.key)
                    for pod in self.snapshot.node(node).pods
                    if (used := allocated_reservation(pod.annotations)) is not None and used.name == one.name
                ]
                wire = {
                    "metadata": {"name": one.name, "annotations": dict(one.annotations)},
                    "spec": {"allocatePolicy": str(one.allocate_policy)},
                }
                entries.append({"reservation": wire, "matched": one is own, "owners": users})
        return {
            "node": raw("Node"),
            "device": raw("Device"),
            "pods": [_wire(pod) for pod in self.snapshot.node(node).pods if not is_reserve_pod(pod)],
            "reservations": entries,
            "nominated": None if own is None else own.name,
            "pod": _wire(self.pod),
        }


def _wire(pod: Pod) -> dict[str, Any]:
    requests = {name: _text(name, amount) for name, amount in pod.requests.items()}
    return {
        "metadata": {"name": pod.name, "namespace": pod.namespace, "annotations": dict(pod.annotations)},
        "spec": {"nodeName": pod.node_name, "containers": [{"resources": {"requests": requests}}]},
    }


def _text(name: str, amount: int) -> str:
    return f"{amount}m" if name == CPU else str(amount)


def decided(pod: Pod, step: Mapping[str, Any]) -> Bound | None:
    """Read a placement out of a step; ``None`` for none."""
    if not step.get("node"):
        return None
    written = {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in (step.get("annotations") or {}).items()
        if value is not None
    }
    used = written.get(USED)
    name = "" if used is None else json.loads(used)["name"]
    return Bound(
        pod=pod.key, node=step["node"], annotations=written, labels=step.get("labels") or {}, reservation=name
    )
