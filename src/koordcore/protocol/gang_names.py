"""By which labels and annotations a pod names its gang; asked of every pod, so it loads nothing of gangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

GANG_PREFIX: Final = "gang.scheduling.koordinator.sh"
LABEL_POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"
LABEL_LIGHTWEIGHT_NAME: Final = "pod-group.scheduling.sigs.k8s.io/name"
ANNOTATION_GANG_NAME: Final = f"{GANG_PREFIX}/name"
ANNOTATION_TOPOLOGY_SELECTOR: Final = "scheduling.koordinator.sh/network-topology-selector"
WAITS_AT_PERMIT: Final = "internal.scheduling.koordinator.sh/waits-at-permit"
"""Ours, and only between calls on one line of snapshots: the member keeps a place and is not bound yet."""


def gang_name(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Name the gang of a pod; empty for none. The CRD label wins, then the lightweight label."""
    # Asked of every pod, and few are in a gang: a look-up that fails is dear in a frozen mapping.
    name = ""
    if LABEL_POD_GROUP in labels:
        name = labels[LABEL_POD_GROUP]
    if not name and LABEL_LIGHTWEIGHT_NAME in labels:
        name = labels[LABEL_LIGHTWEIGHT_NAME]
    if not name and ANNOTATION_GANG_NAME in annotations:
        name = annotations[ANNOTATION_GANG_NAME]
    return name


def topology_selector(annotations: Mapping[str, str]) -> str:
    """Key of the pods that want to be near each other; empty for none."""
    return annotations.get(ANNOTATION_TOPOLOGY_SELECTOR, "")
