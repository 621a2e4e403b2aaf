"""The API server: objects with versions, what may be asked about them, and the history that watches read.

Objects are values: a change makes a new one, so that whoever holds the old one may keep it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from koordcore._record import record
from koordcore.controlplane import RESOURCES, Request
from koordcore.controlplane.requests import Object, key_of

Key: TypeAlias = tuple[str, str]
Reply: TypeAlias = tuple[int, Object]
"""Status and body of an answer."""
Listener: TypeAlias = Callable[[str, str, Object | None, Object], None]
"""Told of every change: kind, what, the object before, the object now (the last one where it was deleted)."""

OK, CREATED, ABSENT, CONFLICT, TOO_MANY, INVALID = 200, 201, 404, 409, 429, 422
_KIND_AT: Final[Mapping[str, str]] = {path: kind for kind, path in RESOURCES.items()}
_KEPT: Final = 400
"""Versions of a kind whose changes a watch can still be given."""


@record
class Change:
    """One entry of the history of a kind."""

    version: int
    what: str
    item: Object


class ApiServer:
    """All objects, and what happened to them lately."""

    def __init__(self) -> None:
        self.version = 1
        self.objects: dict[str, dict[Key, Object]] = {kind: {} for kind in (*RESOURCES, "ConfigMap")}
        self.history: dict[str, deque[Change]] = {kind: deque(maxlen=_KEPT) for kind in self.objects}
        self.listeners: list[Listener] = []

    # -- watching ----------------------------------------------------------------------------------------

    def since(self, kind: str, version: int) -> list[Change] | None:
        """Give the changes of a kind after a version; ``None`` where they are forgotten."""
        history = self.history[kind]
        if len(history) == _KEPT and history[0].version > version:
            return None
        found: list[Change] = []
        for change in reversed(history):
            if change.version <= version:
                break
            found.append(change)
        return found[::-1]

    # -- requests ----------------------------------------------------------------------------------------

    def handle(self, request: Request) -> Reply:
        """Carry a request out, or refuse it as Kubernetes does."""
        kind, key = _target(request.about)
        if request.makes:
            metadata = request.body["metadata"]
            if key in self.objects[kind]:
                return CONFLICT, {}
            return CREATED, self.put(kind, {**request.body, "metadata": {**metadata, "namespace": key[0]}})
        item = self.objects[kind].get(key)
        if item is None:
            return ABSENT, {}
        if request.method == "GET":
            return OK, item
        if request.method == "PUT":
            wanted = request.body["metadata"].get("resourceVersion")
            if wanted and wanted != item["metadata"]["resourceVersion"]:
                return CONFLICT, {}
            metadata = {**item["metadata"], **request.body["metadata"]}
            return OK, self.put(kind, {**request.body, "metadata": metadata})
        return self._change(kind, item, request)

    def _change(self, kind: str, item: Object, request: Request) -> Reply:
        options = request.body.get("deleteOptions", {}).get("preconditions", {})
        uid = options.get("uid") or request.body.get("metadata", {}).get("uid")
        if uid and uid != item["metadata"]["uid"]:
            return CONFLICT, {}
        match request.method, request.subresource:
            case "POST", "binding":
                if "deletionTimestamp" in item["metadata"] or "nodeName" in item["spec"]:
                    return CONFLICT, {}
                node = request.body["target"]["name"]
                return CREATED, self.put(kind, {**item, "spec": {**item["spec"], "nodeName": node}})
            case "POST", "eviction":
                return self._evict(item)
            case "PATCH", _:
                return OK, self.put(kind, _merged(item, request.body))
            case "DELETE", _:
                return OK, self.delete(item)
            case _:
                return INVALID, {}

    def _evict(self, pod: Object) -> Reply:
        if "deletionTimestamp" in pod["metadata"]:
            return CREATED, pod
        budget = self.budget_of(pod)
        if budget is not None and is_healthy(pod) and self.allowed(budget) <= 0:
            return TOO_MANY, {}
        return CREATED, self.delete(pod)

    # -- budgets -----------------------------------------------------------------------------------------

    def budget_of(self, pod: Object) -> Object | None:
        """Give the disruption budget that a pod is under; workloads and their budgets share a name."""
        labels = pod["metadata"].get("labels") or {}
        return self.objects["PodDisruptionBudget"].get((pod["metadata"]["namespace"], labels.get("app", "")))

    def allowed(self, budget: Object) -> int:
        """Give how many healthy pods may go now."""
        name = budget["metadata"]["name"]
        healthy = sum(
            is_healthy(pod)
            for pod in self.objects["Pod"].values()
            if pod["metadata"]["labels"].get("app") == name
        )
        least: int = budget["spec"]["minAvailable"]
        return healthy - least

    def recount(self, budget: Object) -> None:
        """Write what a budget allows into its status, as its controller does."""
        status = {"disruptionsAllowed": max(0, self.allowed(budget))}
        if budget.get("status") != status:
            self.put("PodDisruptionBudget", {**budget, "status": status})

    # -- objects -----------------------------------------------------------------------------------------

    def find(self, kind: str, key: Key) -> Object | None:
        """Give one object."""
        return self.objects[kind].get(key)

    def put(self, kind: str, item: Object) -> Object:
        """Make an object, or replace it."""
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        key = key_of(item)
        before = self.objects[kind].get(key)
        own = f"{kind.lower()}-{self.version}" if before is None else before["metadata"]["uid"]
        metadata.setdefault("uid", own)
        item = {**item, "metadata": metadata}
        self.objects[kind][key] = item
        self._tell(kind, "ADDED" if before is None else "MODIFIED", before, item)
        return item

    def delete(self, pod: Object, *, at_once: bool = False) -> Object:
        """Let a pod go: at once where it has no node, else when its kubelet has ended it."""
        metadata = pod["metadata"]
        if at_once or ("nodeName" not in pod["spec"] and not metadata.get("finalizers")):
            return self.remove("Pod", key_of(pod))
        if "deletionTimestamp" in metadata:
            return pod
        grace = pod["spec"].get("terminationGracePeriodSeconds", 0)
        marked = {
            **metadata,
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "deletionGracePeriodSeconds": grace,
        }
        return self.put("Pod", {**pod, "metadata": marked})

    def remove(self, kind: str, key: Key) -> Object:
        """Take an object away."""
        self.version += 1
        before = self.objects[kind].pop(key)
        item = {**before, "metadata": {**before["metadata"], "resourceVersion": str(self.version)}}
        self._tell(kind, "DELETED", before, item)
        return item

    def _tell(self, kind: str, what: str, before: Object | None, item: Object) -> None:
        self.history[kind].append(Change(self.version, what, item))
        for listener in self.listeners:
            listener(kind, what, before, item)

    def all_objects(self) -> Iterable[tuple[str, Object]]:
        """Give all objects that schedulers read, with their kinds."""
        for kind in RESOURCES:
            for item in self.objects[kind].values():
                yield kind, item


def is_healthy(pod: Object) -> bool:
    """Tell whether a pod runs, is ready and stays."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def _target(path: str) -> tuple[str, Key]:
    """Give the kind, namespace and name that a path is about."""
    parts = path.split("/")
    namespace = ""
    if "namespaces" in parts[2:5]:
        at = parts.index("namespaces")
        namespace = parts[at + 1]
        del parts[at : at + 2]
    head, _, name = "/".join(parts).rpartition("/")
    kinds = {**_KIND_AT, "/api/v1/configmaps": "ConfigMap"}
    return kinds[head], (namespace, name)


def _merged(item: Any, patch: Mapping[str, Any]) -> Any:
    """Apply a patch: mappings are merged, ``None`` takes away, conditions are told apart by their type."""
    made = dict(item)
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping):
            made[name] = _merged(made.get(name) or {}, value)
        elif name == "conditions":
            new = {one["type"]: one for one in value}
            kept = [new.pop(one["type"], one) for one in made.get(name) or ()]
            made[name] = [*kept, *new.values()]
        else:
            made[name] = value
    return made
