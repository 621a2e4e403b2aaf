"""A control loop on a server that is played, with a clock that is played: nothing is left to chance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from koordcore.controlplane import (
    RESOURCES,
    Answer,
    Await,
    ControlLoop,
    Feed,
    Look,
    LoopSettings,
    Moment,
    Relist,
    Request,
    Send,
    Steps,
)

Item = dict[str, Any]
BEGIN: Final = datetime(2026, 1, 1, tzinfo=UTC)
DRA: Final = "/apis/resource.k8s.io/v1"
KINDS: Final[Mapping[str, str]] = {
    **RESOURCES,
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "DeviceClass": f"{DRA}/deviceclasses",
    "ResourceClaim": f"{DRA}/resourceclaims",
    "ResourceClaimTemplate": f"{DRA}/resourceclaimtemplates",
    "ResourceSlice": f"{DRA}/resourceslices",
    "ConfigMap": "/api/v1/configmaps",
}
_TICK: Final = 0.05
_KEYS: Final = {"conditions": "type", "reservedFor": "uid", "resourceClaimStatuses": "name"}


class Server:
    """Objects of all kinds, by kind and name; every change is told to whoever listens."""

    def __init__(self) -> None:
        self.version = 100
        self.items: dict[tuple[str, str], Item] = {}
        self.listeners: list[Callable[[str, str, Item], None]] = []

    def put(self, kind: str, item: Item) -> Item:
        """Make an object, or change it: it keeps its uid."""
        self.version += 1
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        before = self.items.get((kind, metadata["name"]))
        metadata["uid"] = before["metadata"]["uid"] if before else f"uid-{self.version}"
        made = self.items[kind, metadata["name"]] = {**item, "metadata": metadata}
        self._tell(kind, "MODIFIED" if before else "ADDED", made)
        return made

    def change(self, kind: str, name: str, patch: Item) -> Item:
        """Merge something into an object."""
        return self.put(kind, _merged(self.items[kind, name], patch))

    def remove(self, kind: str, name: str) -> None:
        """Take an object away."""
        self.version += 1
        item = self.items.pop((kind, name))
        metadata = {**item["metadata"], "resourceVersion": str(self.version)}
        self._tell(kind, "DELETED", {**item, "metadata": metadata})

    def _tell(self, kind: str, what: str, item: Item) -> None:
        for listener in self.listeners:
            listener(kind, what, item)

    def handle(self, request: Request) -> tuple[int, Item]:
        """Carry a request out, or refuse it as Kubernetes does."""
        where, _, name = request.about.rpartition("/")
        head, _, plural = where.partition("/namespaces/")
        path = f"{head}/{plural.partition('/')[2]}" if plural else where
        kind = next(kind for kind, listed in KINDS.items() if listed == path)
        item = self.items.get((kind, name))
        if request.makes:
            spaced = {"namespace": plural.partition("/")[0], **request.body["metadata"]}
            return (409, {}) if item else (201, self.put(kind, {**request.body, "metadata": spaced}))
        if item is None:
            return 404, {}
        if request.method == "GET":
            return 200, item
        if request.method == "PUT":
            known = request.body["metadata"]["resourceVersion"] == item["metadata"]["resourceVersion"]
            return (200, self.put(kind, request.body)) if known else (409, {})
        if request.uid not in ("", item["metadata"]["uid"]):
            return 409, {}
        if request.subresource == "binding":
            if "nodeName" in item["spec"]:
                return 409, {}
            self.change(kind, name, {"spec": {"nodeName": request.body["target"]["name"]}})
            return 201, {}
        made = _merged(item, request.body)
        status, before = made.get("status") or {}, item.get("status") or {}
        if kind == "ResourceClaim" and (
            ("reservedFor" in status and "allocation" not in status)
            or before.get("allocation", status.get("allocation")) != status.get("allocation")
        ):
            return 422, {}
        return 200, self.put(kind, made)

    def node_of(self, pod: str) -> str | None:
        """Where a pod is bound."""
        node: str | None = self.items["Pod", pod]["spec"].get("nodeName")
        return node


def _merged(item: Any, patch: Mapping[str, Any]) -> Any:
    made = dict(item or {})
    for name, value in patch.items():
        if value is None:
            made.pop(name, None)
        elif isinstance(value, Mapping):
            made[name] = _merged(made.get(name), value)
        elif name in _KEYS:
            new = {one[_KEYS[name]]: one for one in value}
            kept = [new.pop(one[_KEYS[name]], one) for one in made.get(name) or ()]
            made[name] = [*kept, *new.values()]
        else:
            made[name] = value
    return made


class Scheduler:
    """A control loop that lives on a server.

    Parameters
    ----------
    lag
        Seconds until a change is heard of.
    before
        Sees every request before it is carried out, and may answer it instead: with a status.
    """

    def __init__(
        self, server: Server, *, lag: float = 0.5, before: Callable[[Request], int | None] | None = None
    ) -> None:
        self.server, self.now = server, 0.0
        self.sent: list[tuple[str, str, int]] = []
        self.said: list[str] = []
        self._lag, self._before = lag, before or (lambda request: None)
        self._feed = Feed({kind: path for kind, path in KINDS.items() if kind != "ConfigMap"})
        for kind in KINDS:
            self._list(kind)
        self._news: list[tuple[float, str, str, Item]] = []
        server.listeners.append(self._hear)
        self.loop = ControlLoop(self._feed, LoopSettings())
        self._steps = self._life()
        self._given: Any = None
        self._awaited: tuple[Await, float] | None = None

    def kill(self) -> None:
        """End it between two of its steps."""
        self.server.listeners.remove(self._hear)

    def run(self, seconds: float) -> Scheduler:
        """Let time pass."""
        end = self.now + seconds
        while self.now < end:
            while self._news and self._news[0][0] <= self.now:
                _, kind, what, item = self._news.pop(0)
                self._feed.watched(kind, what, item)
            self._step()
        return self

    def about(self, plural: str) -> list[tuple[str, str, int]]:
        """What it has sent about objects of a kind, but for what only reads."""
        return [one for one in self.sent if f"/{plural}" in one[1] and one[0] != "GET"]

    def _life(self) -> Steps[None]:
        yield from self.loop.open()
        while True:
            seen = self._feed.mirror.changes
            if (yield from self.loop.turn()) is None:
                yield Await(lambda seen=seen: self._feed.mirror.changes != seen, 1.0)  # type: ignore[misc]

    def _list(self, kind: str) -> None:
        if kind != "ConfigMap":
            items = [item for (of, _), item in self.server.items.items() if of == kind]
            self._feed.listed(kind, items, str(self.server.version))

    def _hear(self, kind: str, what: str, item: Item) -> None:
        if kind != "ConfigMap":
            self._news.append((self.now + self._lag, kind, what, item))

    def _step(self) -> None:
        if self._awaited is not None:
            awaited, until = self._awaited
            self._given = awaited.done()
            if not self._given and self.now < until:
                self.now += _TICK
                return
            self._awaited = None
        step, self._given = self._steps.send(self._given), None
        match step:
            case Send(requests):
                self._given = self._send(requests)
                self.now += _TICK
            case Await(_, seconds):
                self._awaited = (step, self.now + seconds)
            case Look():
                self._given = Moment(self.now, BEGIN + timedelta(seconds=self.now))
            case Relist(kind):
                self._list(kind)
            case say:
                self.said.append(say.text)

    def _send(self, requests: tuple[Request, ...]) -> tuple[Answer, ...]:
        answers: list[Answer] = []
        failed: set[str] = set()
        for request in requests:
            if request.about in failed:
                continue
            refused = self._before(request)
            status, body = self.server.handle(request) if refused is None else (refused, {})
            answers.append(Answer(request, status, body))
            self.sent.append((request.method, request.path, status))
            if not answers[-1].done:
                failed.add(request.about)
        return tuple(answers)
