"""What the manager would send so that nodes and their NUMA nodes offer what they lend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordcore.model.numa import NodeResourceTopology, NUMANodeResource
from koordcore.model.resources import Resources, format_resources, make_resources
from koordcore.snapshot import ClusterSnapshot

_MERGE: Final = "application/merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"


def lending_patches(before: ClusterSnapshot, after: ClusterSnapshot) -> Iterator[dict[str, Any]]:
    """Give one call per node and per topology that differs between two snapshots.

    Amounts that are withdrawn are null in a node's patch. Zones are applied (server-side), so that only the
    amounts that changed are touched.

    Parameters
    ----------
    before, after
        The cluster, and the same with what :func:`koordcore.lend` gave it.
    """
    for old, new in zip(before.nodes, after.nodes, strict=True):
        status = {
            field: changed
            for field in ("allocatable", "capacity")
            if (changed := _changed(getattr(old.node, field), getattr(new.node, field)))
        }
        path = f"/api/v1/nodes/{new.name}"
        annotations = {
            key: text for key, text in new.node.annotations.items() if old.node.annotations.get(key) != text
        }
        gone = dict.fromkeys(old.node.annotations.keys() - new.node.annotations.keys())
        if annotations or gone:
            yield _call(
                path, _MERGE, {"metadata": {"annotations": dict(sorted({**annotations, **gone}.items()))}}
            )
        if status:
            yield _call(f"{path}/status", _MERGE, {"status": status})
    for topology in after.of(NodeResourceTopology):
        found = before.find(NodeResourceTopology, topology.name, topology.namespace)
        known = {} if found is None else {zone.node: zone.resources for zone in found.zones}
        zones = [zone for one in topology.zones if (zone := _zone(one, known.get(one.node)))]
        if zones:
            body = {
                "apiVersion": "topology.node.k8s.io/v1alpha1",
                "kind": "NodeResourceTopology",
                "metadata": {"name": topology.name},
                "zones": zones,
            }
            path = f"/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies/{topology.name}"
            yield _call(path, _APPLY, body)


def _changed(old: Mapping[str, int], new: Mapping[str, int]) -> dict[str, str | None]:
    """Give the amounts that differ, and null for those that are there no more."""
    fresh = make_resources({name: amount for name, amount in new.items() if old.get(name) != amount})
    texts: dict[str, str | None] = {**format_resources(fresh)}
    return dict(sorted({**texts, **dict.fromkeys(old.keys() - new.keys())}.items()))


def _zone(zone: NUMANodeResource, known: Resources | None) -> dict[str, Any] | None:
    changed = {name: text for name, text in _changed(known or {}, zone.resources).items() if text is not None}
    resources = [
        {"name": name, "allocatable": text, "available": text, "capacity": text}
        for name, text in changed.items()
    ]
    return {"name": f"node-{zone.node}", "type": "Node", "resources": resources} if resources else None


def _call(path: str, content_type: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"verb": "patch", "path": path, "contentType": content_type, "body": body}
