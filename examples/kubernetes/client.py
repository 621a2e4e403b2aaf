"""The API server through the official ``kubernetes`` client.

The client's own models are left aside: koordcore reads objects as JSON, and answers stay what they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import urllib3
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

from examples.kubernetes.api import Event, GoneError, Listing, Object, RefusedError, UnreachableError

__all__ = ["KubernetesApi", "connect"]

_TIMEOUT: Final = (5, 60)
_WATCH_SECONDS: Final = 300


def connect(kubeconfig: str | None, *, connections: int = 64) -> KubernetesApi:
    """Connect as a kubeconfig says; without one, as a pod of the cluster does."""
    settings: Any = client.Configuration()
    if kubeconfig is None:
        config.load_incluster_config(settings)  # type: ignore[no-untyped-call]
    else:
        config.load_kube_config(kubeconfig, client_configuration=settings)  # type: ignore[no-untyped-call]
    settings.connection_pool_maxsize = connections
    return KubernetesApi(client.ApiClient(settings))


class KubernetesApi:
    """An :class:`~examples.kubernetes.api.Api` over HTTP."""

    def __init__(self, api_client: Any) -> None:
        self._client = api_client

    def list_all(self, path: str) -> Listing:
        """List all objects under a path."""
        answer = self.send("GET", path)
        kind = answer["kind"].removesuffix("List")
        return Listing(tuple(answer.get("items") or ()), answer["metadata"]["resourceVersion"], kind)

    def watch(self, path: str, version: str) -> Iterator[Event]:
        """Yield changes after a version until the server ends the stream."""
        query = [
            ("watch", "true"),
            ("resourceVersion", version),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(_WATCH_SECONDS)),
        ]
        response = self._open("GET", path, query=query, timeout=(5, _WATCH_SECONDS + 30))
        try:
            lines = watch.watch.iter_resp_lines(response.response)  # type: ignore[no-untyped-call]
            for line in lines:
                event = json.loads(line)
                if event["type"] != "ERROR":
                    yield Event(event["type"], event["object"])
                elif event["object"].get("code") == 410:
                    raise GoneError
                else:
                    raise UnreachableError(str(event["object"].get("message")))
        except (urllib3.exceptions.HTTPError, OSError, json.JSONDecodeError) as error:
            raise UnreachableError(str(error)) from error
        finally:
            response.response.close()

    def send(self, method: str, path: str, body: Object | None = None, content_type: str = "") -> Object:
        """Make one request and give the answer."""
        response = self._open(method, path, body=body, content_type=content_type)
        try:
            answer: Object = json.loads(response.read())
        except (urllib3.exceptions.HTTPError, OSError, json.JSONDecodeError) as error:
            raise UnreachableError(str(error)) from error
        return answer

    def _open(
        self,
        method: str,
        path: str,
        *,
        query: list[tuple[str, str]] | None = None,
        body: Object | None = None,
        content_type: str = "",
        timeout: tuple[float, float] = _TIMEOUT,
    ) -> Any:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type or "application/json"
        request = self._client.param_serialize(
            method, path, query_params=query, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            response = self._client.call_api(*request, _request_timeout=timeout)
        except (ApiException, urllib3.exceptions.HTTPError, OSError) as error:
            raise UnreachableError(str(error)) from error
        if response.status == 410:
            response.read()
            raise GoneError
        if not 200 <= response.status <= 299:
            raise RefusedError(response.status, _message(response.read()))
        return response


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.decode(errors="replace")[:200]
