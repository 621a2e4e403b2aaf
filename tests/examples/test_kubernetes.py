"""The Kubernetes scheduler's parts against a server in memory: no client package, no Go."""

from __future__ import annotations

import copy
import queue
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import pytest
import yaml

from examples.kubernetes.api import (
    Event,
    GoneError,
    Listing,
    Object,
    RefusedError,
    UnreachableError,
)
from examples.kubernetes.follower import Follower
from examples.kubernetes.scheduler import Cycle, Scheduler, Settings
from koordcore import ClusterSnapshot
from koordcore.controlplane import RESOURCES, Overdue, Request, Steps, complete
from koordcore.controlplane.kinds import CORE, GROUPS
from koordcore.controlplane.overdue import half_gangs
from koordcore.controlplane.requests import key_of
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.calls import Call
from koordcore.model.pods import PodKey
from koordcore.model.quotas import QuotaPolicy

JOURNAL = "/api/v1/namespaces/kube-system/configmaps"
KIND_AT = {path: kind for kind, path in RESOURCES.items()} | {
    "/apis/resource.k8s.io/v1/deviceclasses": "DeviceClass",
    "/apis/resource.k8s.io/v1/resourceclaims": "ResourceClaim",
    "/apis/resource.k8s.io/v1/resourceclaimtemplates": "ResourceClaimTemplate",
    "/apis/resource.k8s.io/v1/resourceslices": "ResourceSlice",
    "/apis/scheduling.k8s.io/v1beta1/podgroups": "PodGroup",
}
RULES = [
    rule
    for role in yaml.safe_load_all((Path(__file__).parents[2] / "examples/kubernetes/rbac.yaml").read_text())
    for rule in role.get("rules", ())
]
"""What the scheduler's account may do."""
SETTINGS = Settings(patience=0.0, revoke=0.0, threads=1, idle=0.01, backoff=0.0)


class Killed(BaseException):
    """Stands for SIGKILL: nobody catches it."""


def granted(verb: str, path: str) -> bool:
    """Tell whether the account may do something; ``path`` as the server's, of a collection or an object."""
    parts = path.strip("/").split("/")
    group, parts = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    resource, name = "/".join([parts[0], *parts[2:]]), parts[1] if len(parts) > 1 else ""
    return any(
        group in rule["apiGroups"]
        and resource in rule["resources"]
        and verb in rule["verbs"]
        and name in rule.get("resourceNames", [name])
        for rule in RULES
    )


class Server:
    """As much of an API server as the scheduler needs, with one thing that can be told to go wrong."""

    def __init__(self) -> None:
        self.version = 0
        self.items: dict[str, dict[tuple[str, str], Object]] = defaultdict(dict)
        self.watchers: list[tuple[str, queue.SimpleQueue[Event]]] = []
        self.lock = threading.RLock()
        self.sent: list[tuple[str, str]] = []
        self.dies_after: int | None = None
        self.unanswered: set[str] = set()
        self.guarded: set[str] = set()
        """Pods that may not be evicted."""

    # -- what the scheduler may ask ----------------------------------------------------------------------

    def list_all(self, path: str) -> Listing:
        with self.lock:
            if path not in KIND_AT:
                raise RefusedError(404, "not found")
            assert granted("list", path), path
            items = tuple(map(copy.deepcopy, self.items[path].values()))
            return Listing(items, str(self.version), KIND_AT[path])

    def watch(self, path: str, version: str) -> Iterator[Event]:
        mine: queue.SimpleQueue[Event] = queue.SimpleQueue()
        assert granted("watch", path), path
        with self.lock:
            for item in self.items[path].values():
                if int(item["metadata"]["resourceVersion"]) > int(version):
                    mine.put(Event("MODIFIED", copy.deepcopy(item)))
            self.watchers.append((path, mine))
        while True:
            event = mine.get()
            if event.what == "GONE":
                raise GoneError
            yield event

    def send(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        if path == "/apis":
            return served()
        verb = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch"}[method]
        assert granted(verb, path), (verb, path)
        with self.lock:
            if self.dies_after is not None:
                self.dies_after -= 1
                if self.dies_after < 0:
                    raise Killed
            self.sent.append((method, path))
            answer = self._carry_out(method, path, copy.deepcopy(body or {}))
            if path in self.unanswered:
                self.unanswered.discard(path)
                raise UnreachableError("no answer")
            return copy.deepcopy(answer)

    def _carry_out(self, method: str, path: str, body: Object) -> Object:
        request = Request(method=method, path=path, body=body)
        about, subresource = request.about, request.subresource
        if request.makes:
            return self.put(path, body)
        collection, namespace, name = self._where(about)
        item = self.items[collection].get((namespace, name))
        if item is None:
            raise RefusedError(404, "not found")
        if method == "GET":
            return item
        if method == "PUT":
            if body["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                raise RefusedError(409, "the object has been modified")
            return self.put(collection, body)
        options = body.get("deleteOptions", {}).get("preconditions", {})
        uid = options.get("uid") or body.get("metadata", {}).get("uid")
        if collection == RESOURCES["Pod"] and uid != item["metadata"]["uid"]:
            raise RefusedError(409, f"uid {uid} is not that of {name}")
        if subresource == "eviction":
            if name in self.guarded:
                raise RefusedError(429, "it would violate the pod's disruption budget")
            self.delete(collection, namespace, name)
            return {}
        if subresource == "binding":
            if "nodeName" in item["spec"]:
                raise RefusedError(409, "bound already")
            item["spec"]["nodeName"] = body["target"]["name"]
        else:
            _merge(item, body)
        return self.put(collection, item)

    def _where(self, about: str) -> tuple[str, str, str]:
        head, _, name = about.rpartition("/")
        return (*_collection(head), name)

    # -- what the world does -----------------------------------------------------------------------------

    def put(self, collection: str, item: Object) -> Object:
        with self.lock:
            self.version += 1
            collection, namespace = _collection(collection)
            metadata = item.setdefault("metadata", {})
            if namespace:
                metadata.setdefault("namespace", namespace)
            metadata.setdefault("uid", f"u{self.version}")
            metadata["resourceVersion"] = str(self.version)
            what = "MODIFIED" if key_of(item) in self.items[collection] else "ADDED"
            self.items[collection][key_of(item)] = item
            self._tell(collection, Event(what, copy.deepcopy(item)))
            return item

    def delete(self, collection: str, namespace: str, name: str) -> None:
        with self.lock:
            self.version += 1
            item = self.items[collection].pop((namespace, name))
            item["metadata"]["resourceVersion"] = str(self.version)
            self._tell(collection, Event("DELETED", copy.deepcopy(item)))

    def compact(self) -> None:
        """End all watches with "too old"."""
        with self.lock:
            for path, mine in self.watchers:
                mine.put(Event("GONE", {"path": path}))
            self.watchers.clear()

    def _tell(self, collection: str, event: Event) -> None:
        for path, mine in self.watchers:
            if path == collection:
                mine.put(event)

    # -- shorthand ---------------------------------------------------------------------------------------

    def pods(self) -> dict[str, str | None]:
        with self.lock:
            return {
                name: item["spec"].get("nodeName") for (_, name), item in self.items[RESOURCES["Pod"]].items()
            }


def served() -> Object:
    """Which groups there are, as the server says it."""
    versions: dict[str, set[str]] = defaultdict(set)
    for path in KIND_AT:
        group, _, version = path.rpartition("/")[0].removeprefix("/apis/").partition("/")
        versions[group].add(f"{group}/{version}")
    return {
        "groups": [
            {"name": name, "versions": [{"groupVersion": one} for one in sorted(versions[name])]}
            for name in versions
        ]
    }


def _collection(path: str) -> tuple[str, str]:
    """Where a kind is listed, and the namespace out of a path."""
    head, between, rest = path.partition("/namespaces/")
    namespace, _, plural = rest.partition("/")
    # ConfigMaps are looked up where they are.
    return (f"{head}/{plural}", namespace) if between and plural != "configmaps" else (path, "")


def _merge(item: Object, patch: Object) -> None:
    for name, value in patch.items():
        if isinstance(value, dict):
            _merge(item.setdefault(name, {}), value)
        else:
            item[name] = value


def node(name: str, cards: int = 4) -> Object:
    room = {"cpu": "32", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(cards)}
    return {"metadata": {"name": name}, "status": {"allocatable": room}}


def pod(name: str, cards: int = 1, *, gang: str = "", priority: int = 0, **labels: str) -> Object:
    own = {"pod-group.scheduling.sigs.k8s.io": gang} if gang else {}
    container = {"name": "main", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": str(cards)}}}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": own | labels},
        "spec": {"schedulerName": "koord-scheduler", "priority": priority, "containers": [container]},
        "status": {"phase": "Pending"},
    }


def pod_group(name: str, least: int) -> Object:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": least}}


def reservation() -> Object:
    template = {"spec": pod("x")["spec"]}
    spec = {"template": template, "owners": [{"labelSelector": {"matchLabels": {"app": "x"}}}], "ttl": "1h"}
    return {"metadata": {"name": "room"}, "spec": spec}


def server(*pods: Object, nodes: int = 2) -> Server:
    one = Server()
    for number in range(nodes):
        one.put(RESOURCES["Node"], node(f"n{number}"))
    for item in pods:
        one.put(RESOURCES["PodGroup" if "minMember" in item["spec"] else "Pod"], item)
    return one


def scheduler(api: Server, settings: Settings = SETTINGS) -> Scheduler:
    one = Scheduler(api, settings, lambda cycle: None)
    one.open()
    return one


def settle(one: Scheduler, turns: int = 20) -> list[Cycle]:
    """Let it take its turns until there is nothing to do; pods may take a moment to be seen."""
    cycles = []
    for _ in range(turns):
        cycle = one.turn()
        if cycle is None:
            break
        cycles.append(cycle)
    return cycles


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_the_account_may_read_all_that_decisions_are_made_of(verb: str) -> None:
    for group, kinds in (("", CORE), *GROUPS.items()):
        where = f"/apis/{group}/v1" if group else "/api/v1"
        for kind in kinds:
            assert granted(verb, f"{where}/{kind}")
    assert not granted(verb, "/api/v1/secrets")


def test_the_account_may_make_every_call_that_a_decision_comes_to() -> None:
    key = PodKey("ml", "one")
    calls = [
        Call(verb="patch", pod=key, body={}),
        Call(verb="patch", pod=key, subresource="status", body={}),
        Call(verb="create", pod=key, subresource="binding", body={}),
        Call(verb="create", pod=key, subresource="eviction", body={}),
        Call(verb="patch", pod=key, node="n1", body={}),
        Call(verb="patch", pod=key, volume_claim="disk", body={}),
        Call(verb="create", pod=key, claim="card", body={}),
        Call(verb="patch", pod=key, claim="card", body={}),
        Call(verb="patch", pod=key, claim="card", subresource="status", body={}),
        Call(verb="patch", pod=key, reservation="room", body={}),
        Call(verb="patch", pod=key, reservation="room", subresource="status", body={}),
        Call(verb="patch", pod=key, pod_group="scheduling.k8s.io/v1beta1", subresource="status", body={}),
    ]
    assert [one.path for one in calls if not granted(one.verb, one.path)] == []


def test_pods_are_bound_where_they_fit_and_told_why_they_wait() -> None:
    """Two nodes of four cards take two pods of three; the third one gets a condition, once."""
    api = server(*(pod(f"p{number}", 3) for number in range(3)))
    one = scheduler(api)
    settle(one)
    assert sorted(filter(None, api.pods().values())) == ["n0", "n1"]
    (waiting,) = (item for item in api.items[RESOURCES["Pod"]].values() if "nodeName" not in item["spec"])
    (condition,) = waiting["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == (
        "Unschedulable",
        "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.",
    )
    told = [path for method, path in api.sent if path.endswith("/status")]
    assert len(told) == 1
    api.put(RESOURCES["Node"], node("n2"))
    assert one.follower.wait(lambda: one.follower.mirror.find("Node", "n2") is not None, 60)
    settle(one)
    assert api.pods()[waiting["metadata"]["name"]] == "n2"


@pytest.mark.parametrize("name", ["koord-scheduler", "of-my-own"])
def test_pods_of_other_schedulers_are_left_to_them(name: str) -> None:
    names = ("default-scheduler", "koord-scheduler", "of-my-own")
    pods = [pod(one) for one in names]
    for one, called in zip(pods, names, strict=True):
        one["spec"]["schedulerName"] = called
    api = server(*pods)
    settle(scheduler(api, attrs.evolve(SETTINGS, name=name)))
    assert [one for one, place in api.pods().items() if place] == [name]


def test_a_kill_between_any_two_calls_leaves_no_half_gang() -> None:
    """Whatever call is the last before the kill, the next start completes the gang or has not begun it."""
    killed = 0
    for calls in range(100):
        api = server(pod_group("train", 4), *(pod(f"w{number}", 2, gang="train") for number in range(4)))
        api.dies_after = calls
        try:
            settle(scheduler(api))
            break
        except Killed:
            killed += 1
        api.dies_after = None
        settle(scheduler(api))
        assert None not in api.pods().values()
    assert killed >= 11  # the journal made, read and written; four members told and bound


def test_the_second_of_two_schedulers_decides_anew() -> None:
    """Both have decided before either has written; one batch counts, and no card is given twice."""
    api = server(*(pod(f"p{number}", 3) for number in range(2)))
    first, second = scheduler(api), scheduler(api)
    commit = second.loop.journal.commit
    cycles: list[Cycle] = []

    def late(requests: Sequence[Request]) -> Steps[bool]:
        if not cycles:
            cycles.extend(settle(first))
        return (yield from commit(requests))

    second.loop.journal.commit = late  # type: ignore[method-assign]
    lost = second.turn()
    assert lost is not None
    assert lost.lost
    assert [cycle.bound for cycle in cycles] == [2]
    settle(second)
    assert sorted(filter(None, api.pods().values())) == ["n0", "n1"]


def test_a_batch_whose_fate_is_unknown_is_looked_up_and_carried_out() -> None:
    """The server takes the batch and its answer is lost: nothing is decided on what may be out of date."""
    api = server(pod("p"))
    one = scheduler(api)
    api.unanswered.add(f"{JOURNAL}/koordcore-journal")
    cycle = one.turn()
    assert cycle is not None
    assert cycle.lost
    assert api.pods()["p"] is not None


def test_a_call_of_an_old_batch_does_not_meet_a_new_pod_of_the_name() -> None:
    """Who finishes somebody else's batch means the pods that were there then."""
    api = server(pod("p"))
    one = scheduler(api)
    api.dies_after = 1  # the batch is written down, nothing is done
    with pytest.raises(Killed):
        settle(one)
    api.dies_after = None
    api.delete(RESOURCES["Pod"], "default", "p")
    api.put(RESOURCES["Pod"], pod("p", 99))
    settle(scheduler(api))
    assert api.pods() == {"p": None}


def test_a_more_important_pod_gets_the_room_of_who_had_to_go() -> None:
    """The victim is evicted, the pod nominated, and bound when the victim has left."""
    api = server(pod("low", 4), nodes=1)
    one = scheduler(api)
    settle(one)
    api.put(RESOURCES["Pod"], pod("high", 4, priority=10))
    assert one.follower.wait(lambda: one.follower.mirror.find("Pod", "high", "default") is not None, 60)
    cycles = settle(one)
    assert api.pods() == {"high": "n0"}
    assert [(cycle.nominated, cycle.evicted, cycle.bound) for cycle in cycles] == [(1, 1, 0), (0, 0, 1)]


def test_a_gang_that_lost_a_member_on_the_way_is_released() -> None:
    """All or none: the others go once the patience is over; one that has finished has run."""
    api = server(pod_group("train", 2), *(pod(f"w{number}", gang="train") for number in range(2)))
    settle(scheduler(api))
    assert half_gangs(seen(api)) == {}
    api.items[RESOURCES["Pod"]]["default", "w1"]["status"]["phase"] = "Succeeded"
    assert half_gangs(seen(api)) == {}
    api.delete(RESOURCES["Pod"], "default", "w1")
    assert {name: [one.name for one in pods] for name, pods in half_gangs(seen(api)).items()} == {
        "default/train": ["w0"]
    }
    overdue = Overdue(patience=2.0, quotas=QuotaPolicy())
    assert overdue.look(seen(api), now=10.0) == {}
    assert [key.name for key in overdue.look(seen(api), now=12.0)] == ["w0"]
    settle(scheduler(api))
    assert api.pods() == {}


def test_a_pod_may_be_called_like_a_subresource() -> None:
    """What a request is about follows from its place in the path, not from its name."""
    path = "/api/v1/namespaces/binding/pods/status"
    plain = Request(method="PATCH", path=path, body={})
    status = Request(method="PATCH", path=f"{path}/status", body={})
    assert (plain.pod, plain.subresource) == (("binding", "status"), "")
    assert (status.pod, status.subresource) == (("binding", "status"), "status")
    room = Request(method="PATCH", path=f"{RESOURCES['Reservation']}/room/status", body={})
    assert (room.pod, room.about, room.subresource) == (None, f"{RESOURCES['Reservation']}/room", "status")


def test_a_refused_eviction_holds_nobody_up() -> None:
    """A budget keeps the half gang; others are scheduled all the same, and it is asked again later."""
    api = server(pod_group("train", 2), *(pod(f"w{number}", gang="train") for number in range(2)))
    settle(scheduler(api))
    api.delete(RESOURCES["Pod"], "default", "w1")
    api.guarded.add("w0")
    api.put(RESOURCES["Pod"], pod("other"))
    settle(scheduler(api), turns=3)
    assert None not in api.pods().values()
    api.guarded.clear()
    settle(scheduler(api))
    assert set(api.pods()) == {"other"}


def test_who_may_not_be_evicted_is_not_said_to_leave() -> None:
    """A budget has changed meanwhile: nobody goes on counting on the room, and it is tried again."""
    api = server(pod("low", 4), nodes=1)
    settle(scheduler(api))
    api.guarded.add("low")
    api.put(RESOURCES["Pod"], pod("high", 4, priority=10))
    one = scheduler(api)
    settle(one, turns=3)

    def told() -> list[tuple[str, str]]:
        item = api.items[RESOURCES["Pod"]][("default", "low")]
        return [(each["type"], each["status"]) for each in item["status"].get("conditions", ())]

    assert ("DisruptionTarget", "False") in told()
    assert seen(api).pod("default/low") is not None
    api.guarded.clear()
    settle(scheduler(api))
    assert set(api.pods().items()) == {("high", "n0")}


def test_what_others_say_of_a_pod_that_stays_is_left_as_it_is() -> None:
    """Half a gang that a budget keeps: a drain has marked its member, and nobody takes that back."""
    api = server(pod_group("train", 2), *(pod(f"w{number}", gang="train") for number in range(2)))
    settle(scheduler(api))
    api.delete(RESOURCES["Pod"], "default", "w1")
    api.guarded.add("w0")
    marked = api.items[RESOURCES["Pod"]][("default", "w0")]
    drained = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "drain",
    }
    marked.setdefault("status", {})["conditions"] = [drained]
    api.put(RESOURCES["Pod"], marked)
    settle(scheduler(api), turns=3)
    assert drained in api.items[RESOURCES["Pod"]][("default", "w0")]["status"]["conditions"]


def test_a_reservation_gets_its_node() -> None:
    """It becomes available there, by a patch of its status, although no pod waits."""
    api = server()
    api.put(RESOURCES["Reservation"], reservation())
    settle(scheduler(api))
    (item,) = api.items[RESOURCES["Reservation"]].values()
    assert (item["status"]["phase"], item["status"]["nodeName"]) == ("Available", "n0")


def test_the_mirror_lists_anew_when_its_version_is_gone() -> None:
    """What happened in between is there, and who has left is not."""
    api = server(pod("old"))
    follower = Follower(api)
    follower.start()
    mirror = follower.mirror
    assert follower.wait(lambda: len(api.watchers) == len(KIND_AT), 60)
    snapshot = ClusterSnapshot().apply(*follower.feed.take()[0])
    with api.lock:
        watchers, api.watchers = api.watchers, []
        api.delete(RESOURCES["Pod"], "default", "old")
        api.put(RESOURCES["Pod"], pod("new"))
        api.watchers = watchers
        api.compact()
    assert follower.wait(lambda: mirror.find("Pod", "new", "default") is not None, 60)
    assert mirror.find("Pod", "old", "default") is None
    snapshot = snapshot.apply(*follower.feed.take()[0])
    assert [one.name for one in snapshot.pending] == ["new"]


def test_a_broken_object_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """It is left out and named."""
    api = server(pod("good"), pod("bad"))
    api.items[RESOURCES["Pod"]]["default", "bad"]["spec"]["priority"] = "high"
    settle(scheduler(api))
    assert api.pods()["good"]
    assert "left out: Pod default/bad: spec.priority" in caplog.text


def seen(api: Server) -> ClusterSnapshot:
    """The cluster as somebody sees it who lists it now."""
    return snapshot_from_objects(
        [complete(kind, item) for kind, path in RESOURCES.items() for item in api.list_all(path).items]
    ).snapshot
