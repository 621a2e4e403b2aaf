"""Nodes: what offers room."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from operator import attrgetter
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._blame import shown
from koordcore._record import brief, record
from koordcore.errors import ModelError
from koordcore.model.affinity import Taint
from koordcore.model.checks import check_fields
from koordcore.model.drafts import copier
from koordcore.model.mappings import EMPTY, frozen, frozen_texts
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import NO_RESOURCES, Resources, frozen_amounts

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"


@record(kw_only=True)
class Node:
    """A node without what runs on it.

    Parameters
    ----------
    name
        Unique in a snapshot.
    labels, annotations, taints, unschedulable
        As on the object.
    allocatable, capacity
        What pods may ask for, and what there is (milli-CPU, bytes, counts). A node without ``pods`` in its
        allocatable takes no pod.
    images
        Container image name to its size in bytes.
    features
        Of ``status.declaredFeatures``: what its kubelet is capable of.
    """

    name: str
    uid: str = ""
    labels: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    annotations: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen_texts)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    capacity: Resources = attrs.field(default=NO_RESOURCES, converter=frozen_amounts)
    images: immutabledict[str, int] = attrs.field(default=EMPTY, converter=frozen)
    created: datetime | None = None
    ready: bool = True
    features: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        check_fields(self)
        if not self.name:
            raise ModelError("a node needs a name")
        for name, amount in self.allocatable.items():
            if amount < 0:
                raise ModelError(f"node {self.name}: allocatable {name} is negative: {amount}")

    def __repr__(self) -> str:
        """Write what was said of the node, and nothing that was not."""
        return brief(self)


def _by_key(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    try:
        return tuple(sorted(pods, key=attrgetter("key")))
    except (AttributeError, TypeError) as error:
        raise ModelError(f"NodeState: pods: expected Pods: {error}") from None


@record(weakref_slot=False)
class NodeState:
    """A node with the pods that hold room on it, in the order of their keys.

    Raises
    ------
    ModelError
        When a pod is bound elsewhere or stands twice.
    """

    node: Node
    pods: tuple[Pod, ...] = attrs.field(default=(), converter=_by_key)

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.node, Node):
            raise ModelError(f"NodeState: node: expected Node, got {shown(self.node)}")
        before: PodKey | None = None
        for pod in self.pods:
            if pod.node_name != self.node.name:
                raise ModelError(f"pod {pod.key} is bound to {pod.node_name}, not to {self.node.name}")
            if pod.key == before:
                raise ModelError(f"pod {pod.key} stands twice on {self.node.name}")
            before = pod.key

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name


_filled: Final = copier(NodeState, "node", "pods")


def node_state(node: Node, pods: Collection[Pod]) -> NodeState:
    """Make the state of a node from pods that are known to be its own, each once; nothing is checked."""
    ordered = tuple(pods) if len(pods) < 2 else tuple(sorted(pods, key=attrgetter("key")))
    return _filled(None, node, ordered)
