"""What has become of a request: done, undone by others, never to be done, or needed by nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from koordcore.controlplane import Request
from tests.controlplane.played import DRA, Item, Scheduler, Server

SPEC: Item = {"devices": {"requests": [{"name": "q", "exactly": {"deviceClassName": "gpu"}}]}}
CLASS = {"storageClassName": "late", "accessModes": ["ReadWriteOnce"]}


def pod(name: str, *, cpu: str = "1", labels: dict[str, str] | None = None, **spec: Any) -> Item:
    """A pod; further fields are those of its spec."""
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": metadata, "spec": {"containers": containers, **spec}, "status": {"phase": "Pending"}}


def claiming(name: str, **claim: str) -> Item:
    return pod(name, resourceClaims=[{"name": "d", **claim}])


def claim(name: str) -> Item:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": SPEC}


def volume_claim() -> Item:
    spec = {**CLASS, "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "v", "namespace": "default"}, "spec": spec, "status": {"phase": "Pending"}}


def cluster() -> Server:
    """A node with one device of a driver, a template of claims, and a class whose volumes are made late."""
    server = Server()
    room = {"cpu": "4", "memory": "8Gi", "pods": "9"}
    server.put("Node", {"metadata": {"name": "n"}, "status": {"allocatable": room}})
    server.put("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    devices = {"driver": "d.example.com", "nodeName": "n", "pool": pool, "devices": [{"name": "d0"}]}
    server.put("ResourceSlice", {"metadata": {"name": "n-d"}, "spec": devices})
    template = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": SPEC}}
    server.put("ResourceClaimTemplate", template)
    late = {"provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer"}
    server.put("StorageClass", {"metadata": {"name": "late"}, **late})
    return server


def at_first(plural: str, do: Callable[[], object], status: int | None = None) -> Any:
    """Before the first write about a kind something happens, and that write may be answered with a status."""
    begun: list[Request] = []

    def before(request: Request) -> int | None:
        if begun or request.method == "GET" or f"/{plural}" not in request.path:
            return None
        begun.append(request)
        do()
        return status

    return before


def allocation(server: Server, name: str) -> Item | None:
    status: Item = server.items["ResourceClaim", name].get("status") or {}
    return status.get("allocation")


@pytest.mark.parametrize("remade", [False, True])
def test_a_claim_that_goes_before_it_is_allocated_holds_up_nobody(remade: bool) -> None:
    """The pod that needs it is not bound for want of it; asked again, it gets the claim made since."""
    server = cluster()
    server.put("ResourceClaim", claim("c"))
    server.put("Pod", claiming("p", resourceClaimName="c"))

    def leave() -> None:
        server.remove("ResourceClaim", "c")
        if remade:
            server.put("ResourceClaim", claim("c"))

    scheduler = Scheduler(server, before=at_first("resourceclaims", leave)).run(5)
    server.put("Pod", pod("other"))
    scheduler.run(30)
    assert server.node_of("other") == "n"
    assert server.node_of("p") == ("n" if remade else None)
    assert not remade or allocation(server, "c")
    assert scheduler.said == []


@pytest.mark.parametrize("remade", [False, True])
def test_a_volume_claim_that_goes_before_it_is_told_its_node_holds_up_nobody(remade: bool) -> None:
    server = cluster()
    server.put("PersistentVolumeClaim", volume_claim())
    server.put("PersistentVolumeClaim", {**volume_claim(), "metadata": {"name": "w", "namespace": "default"}})
    server.put("Pod", pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "v"}}]))

    def leave() -> None:
        server.remove("PersistentVolumeClaim", "v")
        if remade:
            server.put("PersistentVolumeClaim", volume_claim())

    scheduler = Scheduler(server, before=at_first("persistentvolumeclaims", leave)).run(5)
    server.put("Pod", pod("other"))
    scheduler.run(30)
    assert server.node_of("other") == "n"
    assert server.node_of("p") == ("n" if remade else None)
    assert scheduler.about("persistentvolumeclaims")[0][2] == (409 if remade else 404)
    assert scheduler.said == []


def test_whoever_finishes_a_batch_binds_no_pod_whose_claim_is_gone() -> None:
    server = cluster()
    server.put("ResourceClaim", claim("c"))
    server.put("Pod", claiming("p", resourceClaimName="c"))
    killed = Scheduler(server, before=lambda request: 503 if "resourceclaims" in request.path else None)
    killed.run(1).kill()
    server.remove("ResourceClaim", "c")
    scheduler = Scheduler(server).run(10)
    assert scheduler.said == ["finishing 0 calls of a batch that its author has left"]
    assert scheduler.about("pods/p/binding") == []


def test_no_pod_is_bound_before_the_claim_that_was_made_for_it_is_allocated() -> None:
    """That it was made, and cannot be made again, says nothing of its allocation; the watch is slow."""
    server = cluster()
    server.put("Pod", claiming("p", resourceClaimTemplateName="t"))
    server.put("Pod", pod("other"))
    failing = {"status": 1, "other/binding": 3}

    def busy(request: Request) -> int | None:
        for end, times in failing.items():
            if times and request.path.endswith(end) and ("claims" in request.path or end != "status"):
                failing[end] -= 1
                return 503
        return None

    scheduler = Scheduler(server, lag=3.0, before=busy).run(30)
    assert server.node_of("p") == server.node_of("other") == "n"
    made = next(name for kind, name in server.items if kind == "ResourceClaim")
    assert allocation(server, made)
    paths = [path for method, path, status in scheduler.sent if method != "GET" and status < 300]
    told = paths.index(f"{DRA}/namespaces/default/resourceclaims/{made}/status")
    assert told < paths.index("/api/v1/namespaces/default/pods/p/binding")


def reserving() -> Server:
    """A reservation and its only owner wait; once that one is bound the reservation has been used."""
    server = cluster()
    labels = {"owner": "r"}
    owners = [{"labelSelector": {"matchLabels": labels}}]
    template = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]}}
    spec = {"ttl": "24h", "allocateOnce": True, "owners": owners, "template": template}
    server.put("Reservation", {"metadata": {"name": "r"}, "spec": spec})
    server.put("Pod", pod("p", cpu="2", labels=labels))
    return server


def use_up(server: Server) -> None:
    """What the controller of reservations does."""
    if server.node_of("p") and server.items["Reservation", "r"]["status"]["phase"] == "Available":
        server.change("Reservation", "r", {"status": {"phase": "Succeeded"}})


def test_a_reservation_that_has_been_used_is_not_made_available_again() -> None:
    """Neither by its scheduler, whose watch is slower than the controller, nor by the next one."""
    server = reserving()
    server.listeners.append(lambda kind, *_: use_up(server) if kind == "Pod" else None)
    first = Scheduler(server).run(30)
    assert server.items["Reservation", "r"]["status"]["phase"] == "Succeeded"
    assert len(first.about("reservations")) == 1
    first.kill()
    second = Scheduler(server).run(30)
    assert second.about("reservations") == []


def give_back(server: Server) -> None:
    """What the controller of claims does, and the collector of what belongs to nobody."""
    pods = {item["metadata"]["uid"] for (kind, _), item in server.items.items() if kind == "Pod"}
    for (kind, name), item in list(server.items.items()):
        if kind != "ResourceClaim":
            continue
        owners = item["metadata"].get("ownerReferences") or ()
        held = (item.get("status") or {}).get("reservedFor") or ()
        if owners and owners[0]["uid"] not in pods:
            server.remove(kind, name)
        elif held and held[0]["uid"] not in pods:
            server.put(kind, {**item, "status": {}})


def test_a_claim_that_was_given_back_is_not_allocated_again() -> None:
    """Whoever finishes the batch looks first for what became of the pod."""
    server = cluster()
    server.put("ResourceClaim", claim("c"))
    server.put("Pod", claiming("p", resourceClaimName="c"))
    Scheduler(server).run(0.3).kill()
    assert server.node_of("p") == "n"
    server.remove("Pod", "p")
    give_back(server)
    server.put("Pod", pod("other"))
    scheduler = Scheduler(server).run(30)
    assert scheduler.about("resourceclaims") == []
    assert server.node_of("other") == "n"


def test_whoever_hears_late_writes_nothing_that_was_undone_since() -> None:
    """To him the pod waits still, and its claim is free: as it is again, after all that he has missed."""
    server = cluster()
    server.put("ResourceClaim", claim("c"))
    server.put("Pod", claiming("p", resourceClaimName="c"))
    late = Scheduler(server, lag=20.0)
    Scheduler(server).run(0.3).kill()
    server.remove("Pod", "p")
    give_back(server)
    late.run(60)
    assert late.about("resourceclaims") == []


def test_a_claim_is_not_made_again_for_a_pod_that_has_left() -> None:
    server = cluster()
    server.put("Pod", claiming("p", resourceClaimTemplateName="t"))
    gone = at_first("resourceclaims", lambda: server.remove("Pod", "p"))
    scheduler = Scheduler(server, before=gone)
    server.listeners.append(lambda *_: give_back(server))
    scheduler.run(5)
    server.put("Pod", pod("other"))
    scheduler.run(60)
    assert [one[2] for one in scheduler.about("resourceclaims") if one[0] == "POST"] == [201]
    assert server.node_of("other") == "n"


def test_a_reservation_made_anew_gets_nothing_of_what_was_meant_for_the_one_before() -> None:
    """Every request names the uid of what it means."""
    server = reserving()

    def remake() -> None:
        item = server.items["Reservation", "r"]
        server.remove("Reservation", "r")
        containers = [{"name": "main", "resources": {"requests": {"cpu": "40"}}}]
        template = {"spec": {"containers": containers}}
        server.put("Reservation", {**item, "spec": {**item["spec"], "template": template}})

    scheduler = Scheduler(server, before=at_first("reservations", remake)).run(30)
    assert scheduler.about("reservations")[0][2] == 409
    assert "phase" not in server.items["Reservation", "r"].get("status", {})


def scheduled(server: Server, kind: str, name: str) -> Item:
    """The condition that says whether somebody has a node."""
    conditions: list[Item] = server.items[kind, name]["status"]["conditions"]
    (found,) = (one for one in conditions if one["type"] in ("Scheduled", "PodScheduled"))
    return found


def test_a_reservation_that_fits_nowhere_says_so_once() -> None:
    """It is a remark, as that of a pod; what it says wakes nobody into saying it again."""
    server = reserving()
    server.change("Node", "n", {"status": {"allocatable": {"cpu": "1"}}})
    scheduler = Scheduler(server).run(400)
    assert [one[0] for one in scheduler.about("reservations")] == ["PATCH"]
    assert [one[0] for one in scheduler.about("configmaps")] == ["POST"]
    assert scheduled(server, "Reservation", "r")["status"] == "False"


def test_a_condition_that_says_something_else_is_as_old_as_it_has_been_so() -> None:
    server = reserving()
    server.change("Node", "n", {"status": {"allocatable": {"cpu": "1"}}})
    scheduler = Scheduler(server).run(20)
    waiting = (("Reservation", "r"), ("Pod", "p"))
    before = [scheduled(server, *one) for one in waiting]
    server.put("Node", {"metadata": {"name": "m"}, "status": {"allocatable": {"cpu": "1", "pods": "9"}}})
    scheduler.run(20)
    after = [scheduled(server, *one) for one in waiting]
    assert all(one["message"].startswith("0/2") for one in after)
    since = "lastTransitionTime"
    assert [one[since] for one in after] == [one[since] for one in before]
