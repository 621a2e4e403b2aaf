"""All kubelets in one thread: pods run, and end when they are told to; complaints are noted.

They see every bind in the order of the server. What no node could live with is noted at that moment: a pod
that changes its node or cards, a card or a virtual function given twice, a node with more pods than room.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from examples.kubernetes.api import Api, GoneError, Object, RefusedError, UnreachableError
from examples.kubernetes.testbed.claim_maker import ClaimMaker
from koordcore.controlplane import RESOURCES
from koordcore.model import Resources, parse_resources

__all__ = ["Kubelets"]

_ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
_WHOLE: Final = 100
"""Percent of a card or NIC."""


class Kubelets:
    """Every kubelet of the cluster."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._pool = ThreadPoolExecutor(8)
        self._claims = ClaimMaker(api)
        self._stopped = False
        self._room: dict[str, Resources] = {}
        self._used: dict[str, Counter[str]] = defaultdict(Counter)
        self._changed = threading.Condition()
        self.pods: dict[str, Object] = {}
        """Latest state of every pod, by name."""
        self.complaints: list[str] = []
        self.moves = 0
        """Counts pods that got a node, and pods that went."""
        self.last_bind = 0.0

    def start(self) -> None:
        """Begin on all nodes that there are, in a thread of their own."""
        for item in self._api.list_all(RESOURCES["Node"]).items:
            self._room[item["metadata"]["name"]] = parse_resources(item["status"]["allocatable"])
        threading.Thread(target=self._run, name="kubelets", daemon=True).start()

    def stop(self) -> None:
        """End before the server does."""
        self._stopped = True
        self._pool.shutdown(cancel_futures=True)

    def wait(self, done: Callable[[], bool], timeout: float) -> bool:
        """Wait until the pods are in some state."""
        with self._changed:
            return self._changed.wait_for(done, timeout)

    def running(self, prefix: str) -> list[Object]:
        """Pods with a node whose names begin so."""
        return [
            item
            for name, item in list(self.pods.items())
            if name.startswith(prefix) and "nodeName" in item["spec"]
        ]

    def _run(self) -> None:
        path = RESOURCES["Pod"]
        version = self._api.list_all(path).version
        while True:
            try:
                for event in self._api.watch(path, version):
                    version = event.object["metadata"]["resourceVersion"]
                    if event.what != "BOOKMARK":
                        self._see(event.what, event.object)
            except (UnreachableError, GoneError) as error:
                if self._stopped:
                    return
                self.complaints.append(f"the kubelets lost their watch: {error}")
                time.sleep(0.5)
                version = self._api.list_all(path).version

    def _see(self, what: str, item: Object) -> None:
        name = item["metadata"]["name"]
        with self._changed:
            before = self.pods.get(name)
            if before is not None and before["metadata"]["uid"] != item["metadata"]["uid"]:
                self.complaints.append(f"{name}: there twice")
            if what == "DELETED":
                self.pods.pop(name, None)
                self.moves += 1
                if before is not None and "nodeName" in before["spec"]:
                    self._used[before["spec"]["nodeName"]].subtract(_claims(before))
            else:
                self.pods[name] = item
                self._placed(before, item)
            self._changed.notify_all()
        if self._stopped:
            return
        if what in ("ADDED", "DELETED") and self._claims.concerns(item):
            self._pool.submit(self._about_claims, what, item)
        if what != "DELETED" and "nodeName" in item["spec"]:
            if "deletionTimestamp" in item["metadata"]:
                self._pool.submit(self._end, item)
            elif item["status"].get("phase") == "Pending":
                self._pool.submit(self._begin, item)

    def _placed(self, before: Object | None, item: Object) -> None:
        name, node = item["metadata"]["name"], item["spec"].get("nodeName")
        if before is not None and "nodeName" in before["spec"]:
            if before["spec"]["nodeName"] != node:
                self.complaints.append(f"{name}: moved from {before['spec']['nodeName']} to {node}")
            if _given(before) != _given(item):
                self.complaints.append(f"{name}: its cards changed while it ran")
        elif node is not None:
            self.moves += 1
            self.last_bind = time.monotonic()
            used = self._used[node]
            used.update(_claims(item))
            for what, amount in used.items():
                limit = _WHOLE if what.startswith("device ") else self._room[node].get(what, 0)
                if amount > limit:
                    self.complaints.append(f"{node}: {amount} of {limit} {what} taken, last by {name}")
            wanted = sum(amount for what, amount in _claims(item).items() if what == "koordinator.sh/gpu")
            cards = sum(
                amount
                for what, amount in _claims(item).items()
                if what.startswith("device gpu") and "core" in what
            )
            if wanted != cards:
                self.complaints.append(f"{name}: wants {wanted} percent of cards and got {cards}")

    def _about_claims(self, what: str, item: Object) -> None:
        try:
            (self._claims.make if what == "ADDED" else self._claims.clear)(item)
        except RefusedError as error:
            self.complaints.append(f"claims of {item['metadata']['name']}: {error}")

    def _begin(self, item: Object) -> None:
        ready = {"type": "Ready", "status": "True"}
        self._send("PATCH", item, "/status", {"status": {"phase": "Running", "conditions": [ready]}})

    def _end(self, item: Object) -> None:
        self._send("DELETE", item, "", {"gracePeriodSeconds": 0})

    def _send(self, method: str, item: Object, subresource: str, body: Object) -> None:
        metadata = item["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{subresource}"
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else ""
        try:
            self._api.send(method, path, body, kind)
        except RefusedError as error:
            if error.status not in (404, 409):
                self.complaints.append(f"{metadata['name']}: {error}")


def _given(item: Object) -> Any:
    return json.loads(item["metadata"].get("annotations", {}).get(_ALLOCATED, "{}"))


def _claims(item: Object) -> Counter[str]:
    """What a pod takes of its node: amounts, percent of each card, and virtual functions as 100 percent."""
    claims: Counter[str] = Counter({"pods": 1})
    for container in item["spec"]["containers"]:
        claims.update(parse_resources(container.get("resources", {}).get("requests", {})))
    for kind, devices in _given(item).items():
        for device in devices:
            for resource, text in device["resources"].items():
                if not resource.endswith("memory"):
                    claims[f"device {kind}-{device['minor']} {resource.rpartition('/')[2]}"] += int(text)
            for function in (device.get("extension") or {}).get("vfs", ()):
                claims[f"device {kind} {function['busID']}"] += _WHOLE
    return claims
