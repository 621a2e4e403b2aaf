"""The controller of resource claims, as far as the scenarios need it: it makes those of templates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from examples.kubernetes.api import Api, Object, RefusedError

__all__ = ["ClaimMaker"]

_CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
_TEMPLATES: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
_MERGE: Final = "application/merge-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_ENTRY: Final = "resource.kubernetes.io/pod-claim-name"


class ClaimMaker:
    """Makes the claims that pods ask for by templates, tells the pods, and deletes the claims after them."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._specs: dict[str, Object] = {}

    @staticmethod
    def concerns(item: Object) -> bool:
        """Tell whether a pod has claims out of templates."""
        return any(True for _ in _templates(item))

    def make(self, item: Object) -> None:
        """Make the claims of a new pod."""
        metadata = item["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        told = []
        for entry, template in _templates(item):
            name = _name(item, entry)
            made: Object = {"name": name, "annotations": {_ENTRY: entry}}
            made["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
            claim = {"metadata": made, "spec": self._spec(template)}
            self._ask("POST", _CLAIMS, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim})
            told.append({"name": entry, "resourceClaimName": name})
        path = f"/api/v1/namespaces/default/pods/{metadata['name']}/status"
        self._ask("PATCH", path, {"status": {"resourceClaimStatuses": told}}, _STRATEGIC)

    def clear(self, item: Object) -> None:
        """Give the devices of a pod that is gone back, and delete its claims."""
        for entry, _ in _templates(item):
            path = f"{_CLAIMS}/{_name(item, entry)}"
            self._ask(
                "PATCH", f"{path}/status", {"status": {"reservedFor": None, "allocation": None}}, _MERGE
            )
            self._ask("PATCH", path, {"metadata": {"finalizers": None}}, _MERGE)
            self._ask("DELETE", path)

    def _spec(self, template: str) -> Object:
        if template not in self._specs:
            found = self._api.send("GET", f"{_TEMPLATES}/{template}")
            self._specs[template] = found["spec"]["spec"]
        return self._specs[template]

    def _ask(self, method: str, path: str, body: Object | None = None, kind: str = "") -> None:
        try:
            self._api.send(method, path, body, kind)
        except RefusedError as error:
            if error.status not in (404, 409):
                raise


def _templates(item: Object) -> Iterator[tuple[str, str]]:
    for one in item["spec"].get("resourceClaims") or ():
        if "resourceClaimTemplateName" in one:
            yield one["name"], one["resourceClaimTemplateName"]


def _name(item: Object, entry: str) -> str:
    metadata = item["metadata"]
    return f"{metadata['name']}-{entry}-{metadata['uid'][:5]}"
