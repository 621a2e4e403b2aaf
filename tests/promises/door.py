"""Manifests as a stranger writes them, and the command line that answers."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koordcore.cli.main import main

__all__ = [
    "GANG",
    "GROUP",
    "KOORD",
    "NODE",
    "QUOTA",
    "SCHED",
    "Answer",
    "Door",
    "Object",
    "available",
    "card",
    "device",
    "gang",
    "held",
    "members",
    "node",
    "obj",
    "pod",
    "quota",
    "reservation",
]

Object = dict[str, Any]
KOORD, SCHED = "koordinator.sh/", "scheduling.koordinator.sh/"
NODE, GANG = "node.koordinator.sh/", "gang.scheduling.koordinator.sh/"
QUOTA, GROUP = "quota.scheduling.koordinator.sh/", "pod-group.scheduling.sigs.k8s.io"
_GROUPS = {
    "Device": "scheduling.koordinator.sh/v1alpha1",
    "Reservation": "scheduling.koordinator.sh/v1alpha1",
    "ClusterNetworkTopology": "scheduling.koordinator.sh/v1alpha1",
    "PodGroup": "scheduling.sigs.k8s.io/v1alpha1",
    "ElasticQuota": "scheduling.sigs.k8s.io/v1alpha1",
    "ElasticQuotaProfile": "quota.koordinator.sh/v1alpha1",
    "NodeMetric": "slo.koordinator.sh/v1alpha1",
    "ClusterColocationProfile": "config.koordinator.sh/v1alpha1",
    "NodeResourceTopology": "topology.node.k8s.io/v1alpha1",
    "PriorityClass": "scheduling.k8s.io/v1",
    "ReplicaSet": "apps/v1",
    "KubeSchedulerConfiguration": "kubescheduler.config.k8s.io/v1",
}
WHOLE: Mapping[str, str] = {
    KOORD + "gpu-core": "100",
    KOORD + "gpu-memory": "80Gi",
    KOORD + "gpu-memory-ratio": "100",
}


def texts(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Write annotations that are no texts as JSON."""
    return {key: one if isinstance(one, str) else json.dumps(one) for key, one in annotations.items()}


def obj(kind: str, name: str, /, **parts: Any) -> Object:
    """An object; ``labels``, ``annotations``, ``namespace`` and ``meta`` go into its metadata."""
    metadata: Object = {"name": name, **parts.pop("meta", {})}
    for part in ("namespace", "labels"):
        if parts.get(part):
            metadata[part] = parts[part]
        parts.pop(part, None)
    if annotations := parts.pop("annotations", None):
        metadata["annotations"] = texts(annotations)
    version = parts.pop("version", _GROUPS.get(kind, "v1"))
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def node(name: str, /, *, taints: list[Object] | None = None, amounts: Any = None, **meta: Any) -> Object:
    """A node of 32 CPUs, unless told otherwise."""
    there = {"cpu": "32", "memory": "256Gi", "pods": "110", **(amounts or {})}
    return obj(
        "Node",
        name,
        **meta,
        **({"spec": {"taints": taints}} if taints else {}),
        status={"allocatable": there, "capacity": dict(there)},
    )


def pod(name: str, asks: Mapping[str, Any], /, *, on: str = "", spec: Any = None, **parts: Any) -> Object:
    """A pod, pending or running ``on`` a node; ``priority`` and ``scheduler`` are short for its spec's."""
    amounts = {key: str(one) for key, one in asks.items()}
    resources = {"requests": amounts, "limits": amounts}
    written: Object = {"containers": [{"name": "main", "image": "i", "resources": resources}]}
    if on:
        written["nodeName"] = on
    for short, field in (("priority", "priority"), ("scheduler", "schedulerName")):
        if short in parts:
            written[field] = parts.pop(short)
    status = {"phase": "Running" if on else "Pending", **parts.pop("status", {})}
    return obj("Pod", name, spec={**written, **(spec or {})}, status=status, **parts)


def card(
    minor: int, amounts: Mapping[str, str] = WHOLE, *, numa: int = 0, pcie: str = "", **more: Any
) -> Object:
    """A healthy card, each under a switch of its own unless told otherwise."""
    where = {"nodeID": numa, "pcieID": pcie or str(minor), "busID": f"0000:{minor:02x}:00.0"}
    known = {"type": "gpu", "minor": minor, "id": f"card-{minor}", "health": True, "topology": where}
    return {**known, "resources": dict(amounts), **more}


def device(name: str, /, *cards: Object, **meta: Any) -> Object:
    """The Device of a node."""
    return obj("Device", name, spec={"devices": list(cards)}, **meta)


def held(*minors: int) -> dict[str, Any]:
    """The annotation of a pod that has whole cards."""
    entries = [{"minor": minor, "resources": dict(WHOLE)} for minor in minors]
    return {SCHED + "device-allocated": {"gpu": entries}}


def gang(name: str, least: int, /, **parts: Any) -> Object:
    """A PodGroup in ``default``."""
    spec = {"minMember": least, **parts.pop("spec", {})}
    return obj("PodGroup", name, namespace=parts.pop("namespace", "default"), spec=spec, **parts)


def members(group: str, number: int, asks: Mapping[str, Any], /, **parts: Any) -> list[Object]:
    """So many pending pods of a gang."""
    return [pod(f"{group}-{one}", asks, labels={GROUP: group}, **parts) for one in range(number)]


def quota(name: str, most: Mapping[str, Any], least: Any = None, /, **parts: Any) -> Object:
    """An ElasticQuota; ``parent``, ``inner`` and ``tree`` are short for its labels."""
    labels = dict(parts.pop("labels", {}))
    for short, label in (("parent", "parent"), ("inner", "is-parent"), ("tree", "tree-id")):
        if short in parts:
            labels[QUOTA + label] = parts.pop(short)
    amounts = {key: {name: str(one) for name, one in table.items()} for key, table in (("max", most),)}
    if least is not None:
        amounts["min"] = {name: str(one) for name, one in least.items()}
    return obj("ElasticQuota", name, namespace="kube-system", labels=labels, spec=amounts, **parts)


def reservation(name: str, asks: Mapping[str, Any], /, **parts: Any) -> Object:
    """A Reservation for pods with ``app=NAME``; ``pod`` goes into its template, ``spec`` into its own."""
    amounts = {key: str(one) for key, one in asks.items()}
    template = {"containers": [{"name": "main", "resources": {"requests": amounts}}], **parts.pop("pod", {})}
    owners = [{"labelSelector": {"matchLabels": {"app": name}}}]
    spec = {"owners": owners, "template": {"spec": template}, **parts.pop("spec", {})}
    return obj("Reservation", name, spec=spec, **parts)


def available(one: Object, on: str, **meta: Any) -> Object:
    """A reservation that has its node since the beginning of 2026."""
    amounts = one["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]
    ready = {"type": "Ready", "status": "True", "reason": "Available"}
    name = one["metadata"]["name"]
    made = {"uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z", **meta}
    status = {"phase": "Available", "nodeName": on, "allocatable": amounts, "conditions": [ready]}
    return {**one, "metadata": {**one["metadata"], **made}, "status": status}


@dataclass(frozen=True)
class Answer:
    """What the command line says: exit code, output, standard error."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The output, for programs."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The output, one JSON object a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def decision(self, name: str) -> Object:
        """The decision about a pod of ``default``, or by its whole name."""
        (found,) = [one for one in self.json["decisions"] if one["pod"] in (name, f"default/{name}")]
        return dict(found)

    def node_of(self, name: str) -> str:
        """Where a pod goes; empty for nowhere."""
        found = self.decision(name)
        return str(found.get("node", "")) if found["decision"] == "Bound" else ""

    def minors(self, name: str, kind: str = "gpu") -> list[int]:
        """The cards that a pod gets."""
        text = self.decision(name).get("annotations", {}).get(SCHED + "device-allocated", "{}")
        return sorted(one["minor"] for one in json.loads(text).get(kind, ()))

    def why(self, name: str) -> str:
        """Why a pod gets no node."""
        return str(self.decision(name)["message"])

    @property
    def bound(self) -> dict[str, str]:
        """Everybody who gets a node, without namespaces."""
        found = self.json["decisions"]
        return {one["pod"].split("/")[-1]: one["node"] for one in found if one["decision"] == "Bound"}


class Door:
    """The command line in front of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def file(self, *objects: Any) -> str:
        """Write objects into one file, a list of them flat."""
        self._number += 1
        path = self._folder / f"dump-{self._number}.json"
        items = list(_flat(objects))
        whole = items[0] if len(items) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}
        path.write_text(json.dumps(whole), encoding="utf-8")
        return str(path)

    def text(self, name: str, text: str) -> str:
        """Write a text as it is."""
        (self._folder / name).write_text(text, encoding="utf-8")
        return str(self._folder / name)

    def ask(self, *words: str) -> Answer:
        """Type a command."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(list(words))
        return Answer(code, out.getvalue(), err.getvalue())

    def schedule(self, *objects: Any, say: tuple[str, ...] = ()) -> Answer:
        """Schedule some objects; a plan that is not legal would be an error."""
        return self.ask("schedule", self.file(*objects), "-o", "json", *say)


def _flat(objects: Any) -> Iterator[Object]:
    for one in objects:
        if isinstance(one, list | tuple):
            yield from _flat(one)
        else:
            yield one
