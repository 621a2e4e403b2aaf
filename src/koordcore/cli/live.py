"""A live cluster as input: what the API server lists, through the official client and the kubeconfig."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from koordcore.errors import MissingExtraError, ModelError
from koordcore.manifests.sources import SourceObject

KINDS: Final = (
    "api/v1/nodes",
    "api/v1/pods",
    "api/v1/namespaces",
    "api/v1/persistentvolumeclaims",
    "api/v1/persistentvolumes",
    "api/v1/services",
    "apis/apps/v1/replicasets",
    "apis/apps/v1/statefulsets",
    "apis/policy/v1/poddisruptionbudgets",
    "apis/scheduling.k8s.io/v1/priorityclasses",
    "apis/storage.k8s.io/v1/storageclasses",
    "apis/storage.k8s.io/v1/csinodes",
    "apis/resource.k8s.io/v1/deviceclasses",
    "apis/resource.k8s.io/v1/resourceclaims",
    "apis/resource.k8s.io/v1/resourceclaimtemplates",
    "apis/resource.k8s.io/v1/resourceslices",
    "apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    "apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas",
    "apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies",
    "apis/scheduling.koordinator.sh/v1alpha1/devices",
    "apis/scheduling.koordinator.sh/v1alpha1/reservations",
    "apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs",
    "apis/slo.koordinator.sh/v1alpha1/nodemetrics",
    "apis/quota.koordinator.sh/v1alpha1/elasticquotaprofiles",
    "apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles",
    "apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies",
    "apis/kueue.x-k8s.io/v1beta1/topologies",
    "apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
    "apis/jobset.x-k8s.io/v1alpha2/jobsets",
)
"""Where what bears on scheduling is listed. A cluster without a kind answers 404, and has none of it."""
CONFIG_MAPS: Final = ("slo-controller-config", "gpu-shared-resource-templates")
"""The ConfigMaps of ``koordinator-system`` that are read; no other is asked for."""
_NEEDED: Final = KINDS[:2]
_PAGE: Final = 500
_CLIENT: Final = (
    "kubernetes.client",
    "kubernetes.config",
    "kubernetes.client.exceptions",
    "urllib3.exceptions",
)

Fetch = Callable[[str, dict[str, str]], dict[str, Any] | None]
"""Gets a path with query parameters; ``None`` where the server has no such thing."""


def read_live(fetch: Fetch, step: Callable[[int], None] = lambda _: None) -> Iterator[SourceObject]:
    """List everything that bears on scheduling, page by page.

    Parameters
    ----------
    fetch
        Asks the server.
    step
        Told how many objects have come.

    Raises
    ------
    ModelError
        When the server has neither nodes nor pods to list, or refuses.
    """
    come = 0
    for path in KINDS:
        query = {"limit": str(_PAGE)}
        while (answer := fetch(path, query)) is not None:
            kind = str(answer.get("kind", "")).removesuffix("List")
            for item in answer.get("items") or ():
                come += 1
                yield SourceObject(f"live {path}", {"apiVersion": answer["apiVersion"], "kind": kind, **item})
            step(come)
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                break
            query = {**query, "continue": following}
        if answer is None and path in _NEEDED:
            raise ModelError(f"--live: the server does not list {path}")
    for name in CONFIG_MAPS:
        found = fetch(f"api/v1/namespaces/koordinator-system/configmaps/{name}", {})
        if found is not None:
            yield SourceObject("live configmaps", found)


def connect(context: str | None) -> Fetch:
    """Give what asks the API server that the kubeconfig names.

    Raises
    ------
    MissingExtraError
        When the official client is not installed.
    ModelError
        When the kubeconfig does not have the context.
    """
    try:
        # Optional, and slow to import; by name, so that the types do not depend on what is installed.
        client, config, failures, transport = map(import_module, _CLIENT)
    except ImportError:
        raise MissingExtraError.for_extra("kubernetes", "live", "reading a live cluster") from None
    settings: Any = client.Configuration()
    # Once is enough: whoever types the command sees the message and types it again.
    settings.retries = 1
    try:
        config.load_kube_config(context=context, client_configuration=settings)
    except config.config_exception.ConfigException as error:
        raise ModelError(f"--live: {error}") from None
    api: Any = client.ApiClient(settings)

    def fetch(path: str, query: dict[str, str]) -> dict[str, Any] | None:
        request = api.param_serialize(
            "GET",
            f"/{path}",
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        try:
            answer = api.call_api(*request, _request_timeout=(5, 60))
            text = answer.read()
        except (failures.ApiException, transport.HTTPError, OSError) as error:
            raise ModelError(f"--live: {settings.host}: {error}") from None
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise ModelError(f"--live: /{path}: {answer.status} {_message(text)}")
        found: dict[str, Any] = json.loads(text)
        return found

    return fetch


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:200]
