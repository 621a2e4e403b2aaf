"""What one turn of ``koordcore.controlplane.ControlLoop`` costs, a server that answers at once around it.

A cluster with something of everything that turns look at: gangs, quotas, budgets, reservations. What is timed
is what the loop does itself: looking who has to go, deciding, checking, writing down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any, ClassVar

from benchmarks.bench_live import HOST, QUOTA, START, ZONE
from koordcore.controlplane import (
    RESOURCES,
    Answer,
    Await,
    ControlLoop,
    Feed,
    Look,
    LoopSettings,
    Moment,
    Request,
    Send,
    Steps,
)
from koordcore.framework.registry import known_plugins
from koordcore.manifests.scheduler_config import koordinator_policy

Json = dict[str, Any]
GANG = "pod-group.scheduling.sigs.k8s.io"
CREATED = "2026-01-01T00:00:00Z"
SCHEDULER = "koord-scheduler"


class Server:
    """The objects of a cluster, and a loop that is told of them; what it asks for is done at once."""

    def __init__(self, number: int) -> None:
        self.number, self.turns, self._version = number, 0, 0
        self._journal: Json = {}
        self._echoes: list[tuple[str, str, Json]] = []
        self.pods: dict[str, Json] = {}
        self.nodes = {f"n{row:05}": self.node(row) for row in range(number)}
        objects: dict[str, list[Json]] = {kind: [] for kind in RESOURCES}
        objects["Node"] = list(self.nodes.values())
        for row, node in enumerate(self.nodes):
            for place in range(10):
                one = 10 * row + place
                labels = {"app": f"a{one % 50}", QUOTA: f"q{one % 100:03}"}
                if row % 2:
                    labels[GANG] = f"g{one // 8}"
                    objects["PodGroup"] += [] if one % 8 else [self.group(f"g{one // 8}", 2)]
                objects["Pod"].append(self.pod(f"p{row}-{place}", labels, node))
            objects["NodeMetric"].append(self.metric(node))
        objects["ElasticQuota"] = [self.quota(one) for one in range(100)]
        objects["PodDisruptionBudget"] = [self.budget(one) for one in range(50)]
        objects["Reservation"] = [
            self.reservation(f"r{one:03}", f"n{one * number // 200:05}") for one in range(200)
        ]
        self.feed = Feed()
        self.loop = ControlLoop(self.feed, LoopSettings(policy=koordinator_policy(known_plugins())))
        for kind in RESOURCES:
            self.feed.listed(kind, objects[kind], str(self._version))
        self._drive(self.loop.open())

    # -- objects -----------------------------------------------------------------------------------------

    def _stamped(self, item: Mapping[str, Any]) -> Json:
        self._version += 1
        name = item["metadata"]["name"]
        metadata = {"uid": f"uid-{name}", **item["metadata"], "resourceVersion": str(self._version)}
        return {**item, "metadata": metadata}

    def node(self, row: int) -> Json:
        name = f"n{row:05}"
        offered = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        status = {"allocatable": offered, "conditions": [{"type": "Ready", "status": "True"}]}
        labels = {HOST: name, ZONE: f"z{row % 8}"}
        return self._stamped({"metadata": {"name": name, "labels": labels}, "status": status})

    def pod(self, name: str, labels: Mapping[str, str], node: str | None = None, cores: int = 1) -> Json:
        asked = {"cpu": str(cores), "memory": "2Gi"}
        container = {"name": "c", "image": "i", "resources": {"requests": asked}}
        spec: Json = {"schedulerName": SCHEDULER, "priority": 9500, "containers": [container]}
        if node:
            spec["nodeName"] = node
        metadata = {"name": name, "namespace": "d", "labels": dict(labels), "creationTimestamp": CREATED}
        status = {"phase": "Running" if node else "Pending"}
        made = self._stamped({"metadata": metadata, "spec": spec, "status": status})
        self.pods[name] = made
        return made

    def metric(self, node: str) -> Json:
        at = START + timedelta(seconds=0.01 * self.turns)
        usage = {"resources": {"cpu": str(8 + self.turns % 3), "memory": "16Gi"}}
        status = {"updateTime": at.isoformat().replace("+00:00", "Z"), "nodeMetric": {"nodeUsage": usage}}
        spec = {"metricCollectPolicy": {"reportIntervalSeconds": 60}}
        return self._stamped({"metadata": {"name": node}, "spec": spec, "status": status})

    def group(self, name: str, least: int) -> Json:
        metadata = {"name": name, "namespace": "d"}
        return self._stamped({"metadata": metadata, "spec": {"minMember": least}})

    def quota(self, number: int) -> Json:
        spec = {"max": {"cpu": "100000", "memory": "500Ti"}, "min": {"cpu": "100", "memory": "1Ti"}}
        metadata = {"name": f"q{number:03}", "namespace": "d"}
        return self._stamped(
            {"metadata": metadata, "spec": spec, "status": {"used": {"cpu": str(self.turns)}}}
        )

    def budget(self, number: int) -> Json:
        spec = {"selector": {"matchLabels": {"app": f"a{number}"}}, "maxUnavailable": 1}
        metadata = {"name": f"b{number}", "namespace": "d"}
        return self._stamped({"metadata": metadata, "spec": spec, "status": {"disruptionsAllowed": 9}})

    def reservation(self, name: str, node: str) -> Json:
        container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
        spec = {
            "template": {"spec": {"containers": [container]}},
            "owners": [{"labelSelector": {"matchLabels": {"app": name}}}],
            "ttl": "24h",
        }
        status = {"phase": "Available", "nodeName": node, "allocatable": {"cpu": "1"}}
        metadata = {"name": name, "creationTimestamp": CREATED}
        return self._stamped({"metadata": metadata, "spec": spec, "status": status})

    # -- answering ---------------------------------------------------------------------------------------

    def tell(self, kind: str, what: str, item: Json) -> None:
        """Let the loop hear of an object."""
        self.feed.watched(kind, what, item)

    def turn(self) -> None:
        """Let the loop take one turn."""
        self._drive(self.loop.turn())

    def _drive(self, steps: Steps[Any]) -> None:
        given: Any = None
        moment = Moment(0.05 * self.turns, START + timedelta(seconds=60 + 0.05 * self.turns))
        while True:
            try:
                step = steps.send(given)
            except StopIteration:
                return
            given = None
            if isinstance(step, Look):
                given = moment
            elif isinstance(step, Await):
                given = step.done()
            elif isinstance(step, Send):
                given = tuple(map(self._answer, step.requests))
                echoes, self._echoes = self._echoes, []
                for echo in echoes:
                    self.tell(*echo)

    def _answer(self, asked: Request) -> Answer:
        if "configmaps" in asked.path:
            if asked.method != "GET":
                self._journal = self._stamped(asked.body)
            return Answer(asked, 200 if self._journal else 404, self._journal)
        name = asked.pod[1] if asked.pod else ""
        old = self.pods.get(name)
        if old is None:
            return Answer(asked, 404)
        if asked.subresource == "eviction":
            del self.pods[name]
            self._echoes.append(("Pod", "DELETED", self._stamped(old)))
            return Answer(asked, 201)
        said = asked.body.get("metadata", {}).get("annotations") or {}
        known = old["metadata"].get("annotations", {})
        new = {**old, "metadata": {**old["metadata"], "annotations": {**known, **said}}}
        if asked.subresource == "binding":
            new["spec"] = {**old["spec"], "nodeName": asked.body["target"]["name"]}
        elif asked.subresource == "status":
            new["status"] = {**old["status"], **asked.body["status"]}
        self.pods[name] = new = self._stamped(new)
        self._echoes.append(("Pod", "MODIFIED", new))
        return Answer(asked, 200, new)


@lru_cache(maxsize=4)
def server(number: int) -> Server:
    """Give the server of a size; every row goes on where the last one left it."""
    return Server(number)


class _Loop:
    """One turn of the loop in which a pod arrives, after some news."""

    params: ClassVar[tuple[int, ...]] = (1000, 8000)
    param_names: ClassVar[tuple[str, ...]] = ("nodes",)
    number = 1
    warmup_time = 0
    timeout = 300

    def setup(self, number: int) -> None:
        self.server = server(number)
        for _ in range(3):
            self.prepare()
            self.server.turn()
        self.prepare()

    def prepare(self) -> None:
        self.server.turns += 1
        self.happen(self.server)
        self.arrive(self.server)

    def happen(self, server: Server) -> None:
        """What happens before the turn."""

    def arrive(self, server: Server) -> None:
        """Who wants a place."""
        self.come(1)

    def come(self, number: int, labels: Mapping[str, str] | None = None, cores: int = 1) -> None:
        server = self.server
        for one in range(number):
            said = {"app": "new", QUOTA: f"q{server.turns % 100:03}", **(labels or {})}
            server.tell("Pod", "ADDED", server.pod(f"new{server.turns}-{one}", said, cores=cores))

    def some(self, more: int = 0) -> int:
        """The row of some node; another one in each turn."""
        return (37 * self.server.turns + 13 * more) % self.server.number

    def ends(self, row: int, place: int) -> None:
        old = self.server.pods.pop(f"p{row}-{place}", None)
        if old is not None:
            self.server.tell("Pod", "DELETED", self.server._stamped(old))  # noqa: SLF001  # of this file

    def time_turn(self, number: int) -> None:
        self.server.turn()

    def teardown(self, number: int) -> None:
        self.prepare()


class TurnDecides(_Loop):
    """Nothing else happens."""


class TurnEnds(_Loop):
    """A pod ends that was in no gang."""

    def happen(self, server: Server) -> None:
        self.ends(self.some() // 2 * 2, server.turns % 10)


class TurnGangEnds(_Loop):
    """A member of a gang ends."""

    def happen(self, server: Server) -> None:
        self.ends(self.some() // 2 * 2 + 1, server.turns % 10)


class TurnMetric(_Loop):
    """A NodeMetric comes."""

    def happen(self, server: Server) -> None:
        server.tell("NodeMetric", "MODIFIED", server.metric(f"n{self.some():05}"))


class TurnLabels(_Loop):
    """The labels of a node change."""

    def happen(self, server: Server) -> None:
        node = server.node(self.some())
        node["metadata"]["labels"]["turn"] = str(server.turns)
        server.tell("Node", "MODIFIED", node)


class TurnQuota(_Loop):
    """The status of a quota changes."""

    def happen(self, server: Server) -> None:
        server.tell("ElasticQuota", "MODIFIED", server.quota(server.turns % 100))


class TurnReserves(_Loop):
    """A reservation comes."""

    def happen(self, server: Server) -> None:
        made = server.reservation(f"s{server.turns}", f"n{self.some():05}")
        server.tell("Reservation", "ADDED", made)


class TurnGang(_Loop):
    """A gang of eight arrives."""

    def arrive(self, server: Server) -> None:
        name = f"late{server.turns}"
        server.tell("PodGroup", "ADDED", server.group(name, 8))
        self.come(8, {GANG: name})


class TurnRefuses(_Loop):
    """The pod fits nowhere."""

    def arrive(self, server: Server) -> None:
        self.come(1, cores=900)


class TurnSecond(_Loop):
    """200 NodeMetrics come, 50 pods end, 50 arrive."""

    def happen(self, server: Server) -> None:
        for one in range(200):
            server.tell("NodeMetric", "MODIFIED", server.metric(f"n{self.some(one):05}"))
        for one in range(50):
            self.ends(self.some(one), server.turns % 10)

    def arrive(self, server: Server) -> None:
        self.come(50)


ROWS: Sequence[type[_Loop]] = (
    *(TurnDecides, TurnEnds, TurnGangEnds, TurnMetric, TurnLabels, TurnQuota, TurnReserves),
    *(TurnGang, TurnRefuses, TurnSecond),
)
"""All of them, for a table."""
