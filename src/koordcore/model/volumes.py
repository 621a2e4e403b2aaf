"""Volumes, as far as they say where a pod can run."""

from __future__ import annotations

from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.mappings import EMPTY, frozen, frozen_texts
from koordcore.model.selectors import NodeSelector

ONE_POD_ONLY: Final = "ReadWriteOncePod"
"""The access mode of a claim that one pod may use at a time."""


@record(kw_only=True)
class PersistentVolumeClaim:
    """A claim on a volume.

    Parameters
    ----------
    volume
        The volume that it is bound to; empty while it waits for one.
    terminating
        It is being deleted.
    storage_class
        Name of its :class:`StorageClass`; empty for none.
    one_pod
        One pod at a time may use it (access mode ``ReadWriteOncePod``).
    """

    name: str
    namespace: str = "default"
    volume: str = ""
    terminating: bool = False
    storage_class: str = ""
    one_pod: bool = False

    __attrs_post_init__ = check_fields


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
    """

    name: str
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    node_affinity: NodeSelector | None = None
    driver: str = ""
    handle: str = ""
    namespace: str = ""

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class StorageClass:
    """Where the volumes of a claim come from.

    Parameters
    ----------
    provisioner
        The driver that makes them.
    immediate
        A claim gets its volume at once; otherwise when the first pod that uses it has a node.
    """

    name: str
    provisioner: str = ""
    immediate: bool = True
    namespace: str = ""

    __attrs_post_init__ = check_fields


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
