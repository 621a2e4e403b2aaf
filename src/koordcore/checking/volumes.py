"""Volumes: within reach of the node, one pod at a time where they say so, no more than a node attaches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.decisions import Bound
from koordcore.model.nodes import REGION_LABEL, ZONE_LABEL, Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.volumes import (
    NO_PROVISIONER,
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

_OLD_NAMES: Final = {
    ZONE_LABEL: "failure-domain.beta.kubernetes.io/zone",
    REGION_LABEL: "failure-domain.beta.kubernetes.io/region",
}


def check_volumes(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, standing: bool = False
) -> Iterator[Violation]:
    """Every pod that was bound reaches its volumes, shares none that is for one pod, and they all fit.

    Parameters
    ----------
    standing
        All that runs is told as decided: what became of claims and volumes since is not looked at.
    """
    if not snapshot.of(PersistentVolumeClaim):
        return
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    states = result.snapshot.nodes
    if result.policy.filters("VolumeBinding"):
        for state in states:
            if not standing:
                yield from _not_there(snapshot, state, new)
            yield from _out_of_reach(snapshot, state, new)
    if result.policy.filters("VolumeZone"):
        for state in states:
            yield from _in_other_zones(snapshot, state, new)
    if result.policy.filters("VolumeRestrictions"):
        yield from _shared(snapshot, states, new)
    if result.policy.filters("NodeVolumeLimits"):
        for state in states:
            yield from _too_many(snapshot, state, new)


def _claims(snapshot: ClusterSnapshot, pod: Pod) -> list[PersistentVolumeClaim]:
    found = (snapshot.find(PersistentVolumeClaim, name, pod.namespace) for name in pod.claims)
    return [one for one in found if one is not None]


def _not_there(snapshot: ClusterSnapshot, state: NodeState, new: set[PodKey]) -> Iterator[Violation]:
    """Say which claims are not there, and which lack the volume that they should have by now."""
    for pod in state.pods:
        for name in dict.fromkeys(pod.claims) if pod.key in new else ():
            claim = snapshot.find(PersistentVolumeClaim, name, pod.namespace)
            text = f"claim {name} does not exist" if claim is None else _lacks(snapshot, claim)
            if text:
                yield Violation(ViolationKind.VOLUME, str(pod.key), text)


def _lacks(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> str:
    """Say in what way a claim is without its volume, or soon will be; empty where a pod may start with it."""
    if claim.lost:
        return f"claim {claim.name} has lost its volume {claim.volume}"
    if claim.terminating:
        return f"claim {claim.name} is being deleted"
    if claim.volume:
        there = snapshot.find(PersistentVolume, claim.volume)
        return f"volume {claim.volume} of claim {claim.name} does not exist" if there is None else ""
    kind = snapshot.find(StorageClass, claim.storage_class) if claim.storage_class else None
    if claim.storage_class == "":
        return f"claim {claim.name} has no volume, and no class that waits for pods"
    if kind is not None and kind.immediate:
        return f"claim {claim.name} has no volume, and its class {kind.name} does not wait for pods"
    return ""


def _out_of_reach(snapshot: ClusterSnapshot, state: NodeState, new: set[PodKey]) -> Iterator[Violation]:
    for pod in state.pods:
        for claim in _claims(snapshot, pod) if pod.key in new else ():
            if not _is_own(claim, pod):
                text = f"claim {claim.name} is not that of {pod.name}, which has it made"
                yield Violation(ViolationKind.VOLUME, str(pod.key), text)
            if not claim.volume and not _can_have_one(snapshot, claim, state):
                text = f"no volume for {claim.name} can be made or found on {state.name}"
                yield Violation(ViolationKind.VOLUME, str(pod.key), text)
            volume = snapshot.find(PersistentVolume, claim.volume) if claim.volume else None
            affinity = None if volume is None else volume.node_affinity
            if affinity is not None and not affinity.matches(state.name, state.node.labels):
                text = f"volume {claim.volume} cannot be reached from {state.name}"
                yield Violation(ViolationKind.VOLUME, str(pod.key), text)


def _is_own(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Tell whether a claim was made for a pod that has it made with itself."""
    for made in pod.ephemeral_claims:
        if made.name == claim.name:
            owner, name = (
                (claim.owner_uid, made.uid) if claim.owner_uid and made.uid else (claim.owner, made.pod)
            )
            if not owner or owner != name:
                return False
    return True


def _in_other_zones(snapshot: ClusterSnapshot, state: NodeState, new: set[PodKey]) -> Iterator[Violation]:
    for pod in state.pods:
        for claim in _claims(snapshot, pod) if pod.key in new else ():
            volume = snapshot.find(PersistentVolume, claim.volume) if claim.volume else None
            if volume is not None and not _same_zone(volume, state.node):
                text = f"volume {claim.volume} is of another zone or region than {state.name}"
                yield Violation(ViolationKind.VOLUME, str(pod.key), text)


def _same_zone(volume: PersistentVolume, node: Node) -> bool:
    """Tell whether a node is where the labels of a volume say, or says nothing of where it is."""
    if not any(name in node.labels for pair in _OLD_NAMES.items() for name in pair):
        return True
    for name, old in _OLD_NAMES.items():
        here = node.labels.get(name)
        for label, mine in ((name, here), (old, node.labels.get(old, here))):
            allowed = [one.strip() for one in volume.labels.get(label, "").split("__")]
            if "" not in allowed and mine not in allowed:
                return False
    return True


def _can_have_one(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim, state: NodeState) -> bool:
    """Tell whether a claim that waits for its first pod could get a volume on a node, alone as it is."""
    if claim.selected_node and claim.selected_node != state.name:
        return False
    found = snapshot.find(StorageClass, claim.storage_class) if claim.storage_class else None
    if found is None:
        return True
    allowed = found.topologies is None or found.topologies.matches(state.name, state.node.labels)
    volumes = snapshot.of(PersistentVolume)
    made = found.provisioner != NO_PROVISIONER
    if claim.selected_node or (allowed and made):
        return allowed
    if not made and not volumes:
        return True  # the dump does not show any
    for volume in volumes:
        affinity = volume.node_affinity
        if affinity is not None and not affinity.matches(state.name, state.node.labels):
            continue
        large, alike = volume.capacity >= claim.request, volume.block is claim.block
        if not (volume.available and large and alike):
            continue
        if volume.attributes_class != claim.attributes_class:
            continue
        if volume.claim:
            another = bool(volume.claim_uid and claim.uid) and volume.claim_uid != claim.uid
            if volume.claim == f"{claim.namespace}/{claim.name}" and not another:
                return True
            continue
        wanted = claim.selector is None or claim.selector.matches(volume.labels)
        modes = all(mode in volume.access_modes for mode in claim.access_modes)
        if wanted and modes and volume.storage_class == (claim.storage_class or ""):
            return True
    return False


def _shared(
    snapshot: ClusterSnapshot, states: tuple[NodeState, ...], new: set[PodKey]
) -> Iterator[Violation]:
    users: dict[tuple[str, str], list[PodKey]] = {}
    for state in states:
        for pod in state.pods:
            for claim in _claims(snapshot, pod) if pod.claims else ():
                if claim.one_pod:
                    users.setdefault((claim.namespace, claim.name), []).append(pod.key)
    for (_, name), pods in users.items():
        for key in pods if len(pods) > 1 else ():
            if key in new:
                yield Violation(ViolationKind.VOLUME, str(key), f"claim {name} is for one pod only")


def _too_many(snapshot: ClusterSnapshot, state: NodeState, new: set[PodKey]) -> Iterator[Violation]:
    csi_node = snapshot.find(CSINode, state.name)
    if csi_node is None or not csi_node.limits:
        return
    old: set[tuple[str, str]] = set()
    brought: dict[tuple[str, str], PodKey] = {}
    for pod in state.pods:
        for volume in _attached(snapshot, pod):
            if pod.key in new:
                brought.setdefault(volume, pod.key)
            else:
                old.add(volume)
    for driver, limit in csi_node.limits.items():
        there = {one for one in old | brought.keys() if one[0] == driver}
        for volume, key in brought.items():
            if volume[0] == driver and volume not in old and len(there) > limit:
                text = f"{len(there)} volumes of {driver} on {state.name}, which attaches {limit}"
                yield Violation(ViolationKind.VOLUME, str(key), text)


def _attached(snapshot: ClusterSnapshot, pod: Pod) -> Iterator[tuple[str, str]]:
    for claim in _claims(snapshot, pod) if pod.claims else ():
        volume = snapshot.find(PersistentVolume, claim.volume) if claim.volume else None
        made_by = snapshot.find(StorageClass, claim.storage_class) if claim.storage_class else None
        if volume is not None:
            yield volume.driver, volume.handle or volume.name
        elif made_by is not None:
            yield made_by.provisioner, f"{claim.namespace}/{claim.name}"
