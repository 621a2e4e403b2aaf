"""Small objects for the tests of this room."""

from __future__ import annotations

from typing import Any

__all__ = ["container", "node", "obj", "pod"]


def obj(kind: str, name: str, api_version: str = "v1", **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, **rest.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def container(name: str = "main", **rest: Any) -> dict[str, Any]:
    resources = {key: rest.pop(key) for key in ("requests", "limits") if key in rest}
    return {"name": name, **({"resources": resources} if resources else {}), **rest}


def pod(name: str = "web", **rest: Any) -> dict[str, Any]:
    metadata = rest.pop("metadata", {})
    status = rest.pop("status", None)
    raw = obj("Pod", name, metadata=metadata, spec={"containers": [container()], **rest})
    if status is not None:
        raw["status"] = status
    return raw


def node(name: str = "n1", allocatable: dict[str, Any] | None = None, **rest: Any) -> dict[str, Any]:
    status = {"allocatable": allocatable or {"cpu": "8", "memory": "32Gi", "pods": "110"}}
    return obj("Node", name, status={**status, **rest.pop("status", {})}, **rest)
