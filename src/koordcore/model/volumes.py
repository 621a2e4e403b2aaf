"""Volumes, as far as they say where a pod can run."""

from __future__ import annotations

from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.mappings import EMPTY, frozen, frozen_texts
from koordcore.model.selectors import LabelSelector, NodeSelector

ONE_POD_ONLY: Final = "ReadWriteOncePod"
"""The access mode of a claim that one pod may use at a time."""
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the node for which a volume is to be made."""
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
"""What a class names as its provisioner whose volumes are there already, or are made by hand."""


@record
class EphemeralClaim:
    """A claim that is made together with the one pod that uses it.

    Parameters
    ----------
    name
        Of the :class:`PersistentVolumeClaim`.
    pod, uid
        The pod, which manages the claim; no uid where it has none yet.
    """

    name: str
    pod: str
    uid: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class PersistentVolumeClaim:
    """A claim on a volume.

    Parameters
    ----------
    volume
        The volume that it is bound to; empty while it waits for one.
    terminating
        It is being deleted.
    lost
        The volume that it was bound to is gone (``status.phase: Lost``).
    storage_class
        Name of its :class:`StorageClass`; empty for none, so that it never waits for a pod; ``None`` where
        nobody has said, and its volume could be had anywhere.
    one_pod
        One pod at a time may use it (access mode ``ReadWriteOncePod``).
    selected_node
        The node for which a volume is being made; empty while nobody has chosen one.
    request
        Bytes that the volume has to have.
    access_modes, block
        Ways of access that it has to offer; it has to be a raw device.
    selector
        Which volumes will do, by their labels; ``None`` for any.
    attributes_class
        Name of the VolumeAttributesClass that its volume has to be of; empty for none.
    owner, owner_uid
        Name of the pod that manages it, empty for none; the uid of whoever manages it.
    uid
        Its own.
    """

    name: str
    namespace: str = "default"
    volume: str = ""
    terminating: bool = False
    lost: bool = False
    storage_class: str | None = None
    one_pod: bool = False
    selected_node: str = ""
    request: int = 0
    access_modes: tuple[str, ...] = ()
    block: bool = False
    selector: LabelSelector | None = None
    attributes_class: str = ""
    owner: str = ""
    owner_uid: str = ""
    uid: str = ""

    __attrs_post_init__ = check_fields

    def is_for(self, wanted: EphemeralClaim) -> bool:
        """Tell whether it was made for the pod that wants it: by uid, by name where one of them has none."""
        if self.owner_uid and wanted.uid:
            return self.owner_uid == wanted.uid
        return bool(self.owner) and self.owner == wanted.pod


@record(kw_only=True)
class PersistentVolume:
    """A volume.

    Parameters
    ----------
    labels
        Labels of the object; those of zone and region bind it to nodes with the same.
    node_affinity
        Which nodes can reach it; ``None`` for all.
    driver, handle
        The CSI driver that attaches it, and what the driver calls it; empty for a volume of another kind.
    storage_class
        The class whose claims it serves; empty for those of none.
    capacity
        Bytes.
    access_modes, block
        Ways of access that it offers; it is a raw device.
    attributes_class
        Name of its VolumeAttributesClass; empty for none.
    claim, claim_uid
        The claim, ``namespace/name``, that it is bound to or kept for, empty for none; its uid, if known.
    available
        A claim may take it; ``False`` where it is bound, released, being deleted or broken.
    """

    name: str
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    node_affinity: NodeSelector | None = None
    driver: str = ""
    handle: str = ""
    namespace: str = ""
    storage_class: str = ""
    capacity: int = 0
    access_modes: tuple[str, ...] = ()
    block: bool = False
    attributes_class: str = ""
    claim: str = ""
    claim_uid: str = ""
    available: bool = True

    __attrs_post_init__ = check_fields

    def serves(self, claim: PersistentVolumeClaim) -> bool:
        """Tell whether a claim without a volume may take this one, on a node that reaches it."""
        if not self.available or self.capacity < claim.request or self.block != claim.block:
            return False
        if self.attributes_class != claim.attributes_class:
            return False
        if self.claim:
            # One of the same name that was made later is another one.
            same = not self.claim_uid or not claim.uid or self.claim_uid == claim.uid
            return same and self.claim == f"{claim.namespace}/{claim.name}"
        return (
            self.storage_class == (claim.storage_class or "")
            and {*claim.access_modes} <= {*self.access_modes}
            and (claim.selector is None or claim.selector.matches(self.labels))
        )


@record(kw_only=True)
class StorageClass:
    """Where the volumes of a claim come from.

    Parameters
    ----------
    provisioner
        The driver that makes them.
    immediate
        A claim gets its volume at once; otherwise when the first pod that uses it has a node.
    topologies
        Nodes for which a volume can be made; ``None`` for all.
    """

    name: str
    provisioner: str = ""
    immediate: bool = True
    namespace: str = ""
    topologies: NodeSelector | None = None

    __attrs_post_init__ = check_fields

    @property
    def makes(self) -> bool:
        """Volumes are made for its claims."""
        return self.provisioner != NO_PROVISIONER


@record(kw_only=True)
class CSINode:
    """What the storage drivers say of a node.

    Parameters
    ----------
    name
        Of the node.
    limits
        Driver to how many volumes it can attach there; a driver that gives no number is not named.
    """

    name: str
    limits: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    namespace: str = ""

    __attrs_post_init__ = check_fields
