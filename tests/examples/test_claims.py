"""The Kubernetes scheduler with claims and with groups of Kubernetes' own, against a server in memory."""

from __future__ import annotations

from examples.kubernetes.api import Object, RefusedError
from koordcore.controlplane import RESOURCES
from tests.examples.test_kubernetes import Server, pod, scheduler, server, settle

HEAD = "/apis/resource.k8s.io/v1"
CLAIM = f"{HEAD}/namespaces/default/resourceclaims/p-gpu"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"
ROOM = {"cpu": "8", "memory": "8Gi", "pods": "9"}


class Strict(Server):
    """Refuses to change a claim, if told so."""

    refuses = False

    def _carry_out(self, method: str, path: str, body: Object) -> Object:
        if self.refuses and path.startswith(CLAIM) and method == "PATCH":
            raise RefusedError(422, "spec is immutable")
        return super()._carry_out(method, path, body)


def claimed() -> Strict:
    """A node with a device of a driver, and a pod that asks for one by a template."""
    api = Strict()
    api.put(RESOURCES["Node"], {"metadata": {"name": "n0"}, "status": {"allocatable": ROOM}})
    api.put(f"{HEAD}/deviceclasses", {"metadata": {"name": "gpu"}, "spec": {}})
    pool = {"name": "n0", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "nodeName": "n0", "pool": pool, "devices": [{"name": "d0"}]}
    api.put(f"{HEAD}/resourceslices", {"metadata": {"name": "n0-d"}, "spec": spec})
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    template = {"metadata": {"name": "one", "namespace": "default"}, "spec": {"spec": asked}}
    api.put(f"{HEAD}/resourceclaimtemplates", template)
    item = pod("p", 0)
    item["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    api.put(RESOURCES["Pod"], item)
    return api


def make_claim(api: Server) -> None:
    """What the controller does."""
    (item,) = api.items[RESOURCES["Pod"]].values()
    (template,) = api.items[f"{HEAD}/resourceclaimtemplates"].values()
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": item["metadata"]["uid"]}
    metadata = {
        "name": "p-gpu",
        "namespace": "default",
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    api.put(f"{HEAD}/resourceclaims", {"metadata": metadata, "spec": template["spec"]["spec"]})
    item["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu"}]
    api.put(RESOURCES["Pod"], item)


def test_a_pod_waits_for_its_claim_which_is_reserved_before_it_is_bound() -> None:
    """As kube-scheduler has it: the controller makes claims; the allocation is written first."""
    api = claimed()
    one = scheduler(api)
    settle(one)
    (waiting,) = api.items[RESOURCES["Pod"]].values()
    (condition,) = waiting["status"]["conditions"]
    assert 'pod "default/p": ResourceClaim not created yet' in condition["message"]
    make_claim(api)
    assert one.follower.wait(lambda: one.follower.mirror.at(CLAIM) is not None, 60)
    settle(one)
    assert api.pods()["p"] == "n0"
    (claim,) = api.items[f"{HEAD}/resourceclaims"].values()
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["pool"], result["device"]) == ("n0", "d0")
    assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p"]
    order = [path.rpartition("/")[2] for _, path in api.sent if path.startswith(CLAIM) or "binding" in path]
    assert order == ["p-gpu", "status", "binding"]


def test_a_pod_whose_claim_is_refused_is_not_bound() -> None:
    """What it needs cannot be had; the batch is over all the same, and others are decided."""
    api = claimed()
    make_claim(api)
    api.refuses = True
    one = scheduler(api)
    settle(one, turns=2)
    assert not any("binding" in path for _, path in api.sent)
    api.put(RESOURCES["Pod"], pod("other", 0))
    assert one.follower.wait(lambda: one.follower.mirror.find("Pod", "other", "default") is not None, 60)
    settle(one)
    assert api.pods() == {"p": None, "other": "n0"}


def test_groups_of_two_kinds_of_one_name_are_told_apart() -> None:
    """Kubernetes' own group starts at three, the sigs' of the same name is nobody's."""
    members = [pod(f"w{number}", 4) for number in range(3)]
    for item in members:
        item["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    api = server(*members, nodes=2)
    key = {"name": "train", "namespace": "default"}
    api.put(RESOURCES["PodGroup"], {"metadata": dict(key), "spec": {"minMember": 1}})
    api.put(GROUPS, {"metadata": dict(key), "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    settle(scheduler(api))
    assert set(api.pods().values()) == {None}
    (group,) = api.items[GROUPS].values()
    (condition,) = group["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodGroupInitiallyScheduled", "False")
