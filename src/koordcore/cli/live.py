"""A live cluster as input: what the API server lists, through the official client and the kubeconfig."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from typing import Any, Final

from koordcore.cli.words import near
from koordcore.controlplane import places
from koordcore.errors import KoordcoreError, MissingExtraError, ModelError
from koordcore.manifests.sources import SourceObject

CONFIG_MAPS: Final = ("slo-controller-config", "gpu-shared-resource-templates")
"""The ConfigMaps of ``koordinator-system`` that are read; no other is asked for."""
_NEEDED: Final = ("api/v1/nodes", "api/v1/pods")
_PAGE: Final = 500
_CLIENT: Final = (
    "kubernetes.client",
    "kubernetes.config",
    "kubernetes.client.exceptions",
    "urllib3.exceptions",
)

Fetch = Callable[[str, dict[str, str]], dict[str, Any] | None]
"""Gets a path with query parameters; ``None`` where the server has no such thing."""


class ForbiddenError(ModelError):
    """Who asks may not see this."""


class ExpiredError(ModelError):
    """The pages of a list have changed since the first of them."""


def read_live(
    fetch: Fetch,
    step: Callable[[int], None] = lambda _: None,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[SourceObject]:
    """List everything that bears on scheduling, page by page.

    Parameters
    ----------
    fetch
        Asks the server.
    step
        Told how many objects have come.
    warn
        Told what may not be listed; nodes and pods have to be.

    Raises
    ------
    ModelError
        When the server has neither nodes nor pods to list, or refuses.
    """
    come = 0
    for paths in _served(fetch("apis", {}) or {}):
        for source in _listed(fetch, [path.removeprefix("/") for path in paths], warn):
            come += 1
            yield source
            if come % _PAGE == 0:
                step(come)
    for name in CONFIG_MAPS:
        path = f"api/v1/namespaces/koordinator-system/configmaps/{name}"
        try:
            found = fetch(path, {})
        except ForbiddenError as error:
            warn(str(error))
            continue
        if found is not None:
            yield SourceObject("live configmaps", found)


def _served(groups: dict[str, Any]) -> tuple[tuple[str, ...], ...]:
    """Give where the server lists each kind."""
    try:
        return places(groups)
    except (KeyError, TypeError, KoordcoreError):
        raise ModelError("--live: /apis: the answer is no list of groups: is this an API server?") from None


def _listed(fetch: Fetch, paths: Sequence[str], warn: Callable[[str], None]) -> Iterator[SourceObject]:
    """List a kind page by page, at the first of its places that the server has."""
    for path in paths:
        try:
            found = _pages(fetch, path)
        except ForbiddenError as error:
            if path in _NEEDED:
                raise
            warn(str(error))
            return
        if found is not None:
            yield from found
            return
    if paths[0] in _NEEDED:
        raise ModelError(f"--live: the server does not list {paths[0]}")


def _pages(fetch: Fetch, path: str) -> list[SourceObject] | None:
    """List all of a path, page by page; ``None`` where the server has no such thing."""
    query = {"limit": str(_PAGE)}
    found: list[SourceObject] = []
    while True:
        try:
            answer = fetch(path, query)
        except ExpiredError:
            if "continue" not in query:
                raise
            # Who pages for too long is told so, and takes the list as a whole, as kubectl does.
            found, query = [], {}
            continue
        if answer is None:
            return None
        kind, items, about = answer.get("kind"), answer.get("items") or [], answer.get("metadata") or {}
        if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
            said = answer.get("message") if kind == "Status" else None
            raise ModelError(f"--live: /{path}: the answer is no list{f': {said}' if said else ''}")
        known = {"apiVersion": answer.get("apiVersion", "v1"), "kind": kind.removesuffix("List")}
        found += [
            SourceObject(f"live {path}", {**known, **item} if isinstance(item, dict) else item)
            for item in items
        ]
        following = about.get("continue") if isinstance(about, dict) else None
        if not following:
            return found
        if following == query.get("continue"):
            raise ModelError(f"--live: /{path}: the server gives the same page again and again")
        query = {**query, "continue": str(following)}


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
        with _credentials():
            config.load_kube_config(context=context, client_configuration=settings)
    except ModelError:
        raise
    except config.config_exception.ConfigException as error:
        raise ModelError(_unknown_context(config, context) or f"--live: {error}") from None
    except Exception as error:  # whatever a file that is no kubeconfig makes of the client
        why = str(error).partition("\n")[0]
        raise ModelError(f"--live: the kubeconfig cannot be read: {type(error).__name__}: {why}") from None
    api: Any = client.ApiClient(settings)

    def fetch(path: str, query: dict[str, str]) -> dict[str, Any] | None:
        with _credentials():  # a token that has expired is fetched once more
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
            raise ModelError(f"--live: {settings.host}: {_cause(error)}") from None
        if answer.status == 404:
            return None
        if answer.status == 403:
            raise ForbiddenError(f"--live: /{path}: {_message(text)}")
        if answer.status != 200:
            kind = ExpiredError if answer.status == 410 else ModelError
            raise kind(f"--live: /{path}: {answer.status} {_message(text)}")
        return _object_in(text, f"--live: {settings.host}/{path}")

    return fetch


@contextmanager
def _credentials() -> Iterator[None]:
    """Refuse to go on without credentials: the client logs that a plugin failed, and asks as nobody."""
    heard = StringIO()
    ear = logging.StreamHandler(heard)
    ear.setLevel(logging.ERROR)
    logging.getLogger().addHandler(ear)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(ear)
    why = " ".join(heard.getvalue().split())
    if why:
        raise ModelError(f"--live: the kubeconfig's credentials cannot be had: {why}")


def _unknown_context(config: Any, context: str | None) -> str:
    """Say that a kubeconfig does not have a context, and which it has; empty where it has."""
    try:
        known = [one["name"] for one in config.list_kube_config_contexts()[0]]
    except config.config_exception.ConfigException:
        return ""
    if context is None or context in known:
        return ""
    hint = near(context, known) or f"; there are {', '.join(known)}"
    return f"--context: the kubeconfig has no context {context}{hint}"


def _cause(error: BaseException) -> str:
    """Give the words of what lies below the client's own errors."""
    while isinstance(below := getattr(error, "reason", None) or error.__context__, BaseException):
        error = below
    return getattr(error, "strerror", None) or str(error)


def _object_in(text: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ModelError(f"{where}: the answer is no JSON object: is this an API server?")
    return found


def _message(text: bytes) -> str:
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return text.decode(errors="replace")[:200]
