"""VolumeBinding and VolumeZone: nodes that can reach the volumes of a pod.

Volumes that are bound are compared with nodes by node affinity, zone and region, as Kubernetes 1.35 does it.
A claim that waits for its first pod lets the pod go where its class makes volumes, or where one that is there
would serve; which of these it gets, and that no other claim gets it too, is not modelled, and the decision
says so. A snapshot without any claim says nothing about volumes, and then no pod is refused for its own; nor
does one without any volume for a class of which none are made.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

from koordcore._arrays import BoolVector, ClusterLayout
from koordcore.framework.evaluator import Evaluator, Refusal, Reserved
from koordcore.framework.hints import ROOM
from koordcore.framework.node_view import NodeView
from koordcore.framework.plugin import Plugin
from koordcore.model.nodes import REGION_LABEL, ZONE_LABEL
from koordcore.model.pods import Pod
from koordcore.model.volumes import PersistentVolume, PersistentVolumeClaim, StorageClass
from koordcore.scheduling.plugins.placement import MaskEvaluator
from koordcore.scoring.labels import fit_selector, fit_values
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.free_volumes import free_volumes

REASON_AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
REASON_UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
REASON_LOST: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
REASON_NOT_FOUND: Final = "node(s) didn't find available persistent volumes to bind"
REASON_ZONE: Final = "node(s) had no available volume zone"

_ZONE_KEYS: Final = {
    ZONE_LABEL: ZONE_LABEL,
    REGION_LABEL: REGION_LABEL,
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
}
"""Label of a volume to the present name of the same label."""


def claims_of(snapshot: ClusterSnapshot, pod: Pod) -> Iterator[PersistentVolumeClaim | str]:
    """Give the claims that a pod names; the name alone where there is no such claim."""
    known = bool(pod.claims) and snapshot.has(PersistentVolumeClaim)
    for name in pod.claims if known else ():
        yield snapshot.find(PersistentVolumeClaim, name, pod.namespace) or name


def class_of(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> StorageClass | None:
    """Give where the volume of a claim comes from, as far as a snapshot knows it."""
    return snapshot.find(StorageClass, claim.storage_class) if claim.storage_class else None


class VolumePlugin(Plugin):
    """What all plugins of volumes share: the claims of a pod and what they are bound to."""

    reads = frozenset((PersistentVolume, PersistentVolumeClaim, StorageClass))
    keeps_rows = False
    looks_at = frozenset(("labels",))

    def claims_of(self, pod: Pod) -> Iterator[PersistentVolumeClaim | str]:
        """Give the claims that a pod names; the name alone where there is no such claim."""
        return claims_of(self.workspace.snapshot, pod)

    def volumes_of(self, pod: Pod) -> tuple[str, ...]:
        """Give the names of the volumes that a pod's claims are bound to."""
        return tuple(
            one.volume for one in self.claims_of(pod) if isinstance(one, PersistentVolumeClaim) and one.volume
        )

    def class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """Give where the volume of a claim comes from, as far as the snapshot knows it."""
        return class_of(self.workspace.snapshot, claim)

    def volume(self, name: str) -> PersistentVolume | None:
        """Give a volume by name."""
        return self.workspace.snapshot.find(PersistentVolume, name)


class VolumeBinding(VolumePlugin):
    """Nodes that the node affinity of every bound volume allows."""

    name = "VolumeBinding"
    by_template = True
    helped_by = ROOM | {"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode"}

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        if not pod.claims:
            return None
        made_with_it = {one.name: one for one in pod.ephemeral_claims}
        for one in self.claims_of(pod):
            if isinstance(one, str):
                if one in made_with_it:
                    text = "waiting for ephemeral volume controller to create the persistentvolumeclaim"
                    return Refusal(f'{text} "{one}"')
                return Refusal(f'persistentvolumeclaim "{one}" not found')
            if one.lost:
                text = f'bound to non-existent persistentvolume "{one.volume}"'
                return Refusal(f'persistentvolumeclaim "{one.name}" {text}')
            if one.terminating:
                return Refusal(f'persistentvolumeclaim "{one.name}" is being deleted')
            wanted = made_with_it.get(one.name)
            if wanted is not None and not one.is_for(wanted):
                whose = f"{one.namespace}/{wanted.pod}"
                text = f"was not created for pod {whose} (pod is not owner)"
                return Refusal(f"PVC {one.namespace}/{one.name} {text}")
            made_by = self.class_of(one)
            at_once = one.storage_class == "" or (made_by is not None and made_by.immediate)
            if not one.volume and at_once:
                return Refusal(REASON_UNBOUND)
        waiting = tuple(self._waiting(pod))
        volumes = self.volumes_of(pod)
        return (volumes, waiting) if volumes or waiting else None

    def _waiting(self, pod: Pod) -> Iterator[PersistentVolumeClaim]:
        for one in self.claims_of(pod):
            if isinstance(one, PersistentVolumeClaim) and not one.volume:
                yield one

    @cached_property
    def _available(self) -> Mapping[tuple[str, str], Sequence[PersistentVolume]]:
        """Free volumes by the claim that they are kept for, or by nothing and their class."""
        found: dict[tuple[str, str], list[PersistentVolume]] = {}
        for one in free_volumes(self.workspace.snapshot).values():
            space, _, name = one.claim.rpartition("/")
            found.setdefault((space, name) if name else ("", one.storage_class), []).append(one)
        return found

    def _found_on(self, claim: PersistentVolumeClaim) -> BoolVector | None:
        """Tell for which nodes a volume can be made or found: ``(N,)``; ``None`` for all of them."""
        layout, made_by = self.workspace.layout, self.class_of(claim)
        allowed = None if made_by is None else made_by.topologies
        if claim.selected_node:
            chosen = np.array([name == claim.selected_node for name in layout.names], bool)
            return chosen if allowed is None else chosen & fit_selector(layout, allowed)
        if made_by is None or (
            allowed is None if made_by.makes else not self.workspace.snapshot.has(PersistentVolume)
        ):
            return None
        found = np.zeros(len(layout.names), np.bool_)
        if made_by.makes and allowed is not None:
            found = fit_selector(layout, allowed)
        kept = self._available.get((claim.namespace, claim.name), ())
        for volume in (*kept, *self._available.get(("", claim.storage_class or ""), ())):
            if volume.serves(claim):
                if volume.node_affinity is None:
                    return None
                found = found | fit_selector(layout, volume.node_affinity)
        return found

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        layout = self.workspace.layout
        volumes, waiting = request
        mask = np.ones(len(layout.names), np.bool_)
        for name in volumes:
            volume = self.volume(name)
            if volume is None:
                return MaskEvaluator(np.zeros_like(mask), REASON_LOST)
            if volume.node_affinity is not None:
                mask &= fit_selector(layout, volume.node_affinity)
        if not waiting:
            return MaskEvaluator(mask, REASON_AFFINITY)
        masks = [one for one in map(self._found_on, waiting) if one is not None]
        found = np.logical_and.reduce(masks) if masks else np.ones_like(mask)
        return BindingEvaluator(mask, found, [one.name for one in waiting])


class BindingEvaluator(MaskEvaluator):
    """Volumes of which some are yet to be made or found; the decision says which."""

    def __init__(self, reached: BoolVector, found: BoolVector, waiting: Sequence[str]) -> None:
        super().__init__(reached & found, REASON_AFFINITY)
        self._reached, self._found = reached, found
        self._note = f"volume of {', '.join(waiting)} yet to be bound"

    def reasons(self, view: NodeView) -> Sequence[tuple[str, BoolVector]]:
        pairs = ((REASON_AFFINITY, self._reached), (REASON_NOT_FOUND, self._found))
        lacking = ((reason, ~mask[view.rows]) for reason, mask in pairs)
        return [(reason, there) for reason, there in lacking if there.any()]

    def allocate(self, pod: Pod, view: NodeView) -> Reserved:
        return Reserved(notes=(self._note,))


def fit_zones(layout: ClusterLayout, volume: PersistentVolume) -> BoolVector:
    """Tell which nodes lie in the zone and region of a volume; nodes that name none of any kind fit."""
    number = len(layout.names)
    fits, named = np.ones(number, np.bool_), np.zeros(number, np.bool_)
    # Whoever names a zone or a region at all is held to both, by whichever name the volume has for them.
    for key in _ZONE_KEYS:
        there = layout.kinds.label(key)
        has = there.judge(lambda value: value is not None).astype(np.bool_)
        named |= has
        values = _zones_of(volume, key)
        if values:
            # A node that lacks the old name of the label may have the new one.
            now = fit_values(layout, _ZONE_KEYS[key], values)
            fits &= np.where(has, fit_values(layout, key, values), now)
    return fits | ~named


def _zones_of(volume: PersistentVolume, key: str) -> frozenset[str]:
    """Give the zones or regions that a label names; a list with an empty name in it says nothing."""
    names = [name.strip() for name in volume.labels.get(key, "").split("__")]
    return frozenset(names) if all(names) else frozenset()


class VolumeZone(VolumePlugin):
    """Nodes in the zone and region of every bound volume."""

    name = "VolumeZone"
    by_template = True
    helped_by = ROOM | {"PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode"}

    def request_of(self, pod: Pod) -> Hashable | None:
        if not pod.claims:
            return None
        volumes = [self.volume(name) for name in self.volumes_of(pod)]
        return (
            tuple(one for one in volumes if one is not None and _ZONE_KEYS.keys() & one.labels.keys()) or None
        )

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        layout = self.workspace.layout
        mask = np.ones(len(layout.names), np.bool_)
        for volume in request:
            mask &= fit_zones(layout, volume)
        return MaskEvaluator(mask, REASON_ZONE)
