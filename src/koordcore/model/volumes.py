"""Volumes, as far as they say where a pod can run."""

from __future__ import annotations

import attrs
from immutabledict import immutabledict

from koordcore.model.mappings import EMPTY, frozen
from koordcore.model.selectors import NodeSelector

__all__ = ["PersistentVolume", "PersistentVolumeClaim"]


@attrs.frozen(kw_only=True)
class PersistentVolumeClaim:
    """A claim on a volume.

    Parameters
    ----------
    volume
        The volume that it is bound to; empty while it waits for one.
    terminating
        It is being deleted.
    """

    name: str
    namespace: str = "default"
    volume: str = ""
    terminating: bool = False


@attrs.frozen(kw_only=True)
class PersistentVolume:
    """A volume.

    Parameters
    ----------
    labels
        Labels of the object; those of zone and region bind it to nodes with the same.
    node_affinity
        Which nodes can reach it; ``None`` for all.
    """

    name: str
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    node_affinity: NodeSelector | None = None
    namespace: str = ""
