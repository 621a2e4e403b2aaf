"""What is about to be done: written down first, done then, and finished by whoever comes after a kill.

The journal is one ConfigMap with the calls of the last batch. A batch counts from the moment at which it is
in there. The server takes a new one only from somebody who knew the one before, so that two schedulers cannot
both decide on the same cluster; and nobody replaces a batch before all of it has been done and seen. All
calls can be sent twice: they name the uid of the pod that they mean.
"""

from __future__ import annotations

import json
import logging
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, Final

import attrs

from examples.kubernetes.api import Api, GoneError, Object, RefusedError, Request, UnreachableError
from examples.kubernetes.mirror import Mirror

__all__ = ["Journal", "send_all"]

_COLLECTION: Final = "/api/v1/namespaces/kube-system/configmaps"
_ECHO: Final = 10.0
"""Seconds after which a watch that shows nothing of what was done is not trusted any more."""

_log = logging.getLogger(__name__)


class Journal:
    """The journal of one cluster.

    Parameters
    ----------
    api, mirror
        Where it is kept, and where the effects of its calls are seen.
    pool
        Threads that send.
    patience
        Seconds that the author of a batch is given before somebody else does his work.
    name
        Of the ConfigMap in ``kube-system``.
    """

    def __init__(
        self,
        api: Api,
        mirror: Mirror,
        pool: ThreadPoolExecutor,
        *,
        patience: float,
        name: str = "koordcore-journal",
    ) -> None:
        self._api, self._mirror, self._pool = api, mirror, pool
        self._patience = patience
        self._name = name
        self._version = ""
        self._seen = 0
        self._left: list[Request] = []

    def open(self) -> int:
        """Read the journal and finish what stands in there; make it if there is none.

        Returns
        -------
        int
            How many calls were left to do.
        """
        while True:
            try:
                self._take(self._fetch())
                break
            except RefusedError as error:
                if not error.passing and error.status != 409:
                    raise
                _log.warning("journal: %s", error)
            except UnreachableError as error:
                _log.warning("journal: %s", error)
            time.sleep(0.5)
        if self._mirror.wait(self._settled, self._patience):  # its author may be at it
            return 0
        self._left = [one for one in self._left if not self._effect_seen(one)]
        found = len(self._left)
        _log.info("finishing %d calls of a batch that its author has left", found)
        self.carry_out()
        return found

    def commit(self, requests: Sequence[Request]) -> bool:
        """Put a batch in; ``False`` when another one came first, which is finished then: decide anew."""
        metadata = {"name": self._name, "resourceVersion": self._version}
        body = {"metadata": metadata, **_page(requests, self._mirror.newest("Pod"))}
        try:
            self._take(self._api.send("PUT", f"{_COLLECTION}/{self._name}", body))
        except RefusedError as error:
            if error.status not in (404, 409) and not error.passing:
                raise
            _log.info("another batch came first (%s)", error)
        except UnreachableError as error:
            # It may have been put in. If so, it is found there and carried out like anybody's.
            _log.warning("journal: %s", error)
        else:
            return True
        self.open()
        return False

    def carry_out(self) -> None:
        """Send the calls until the mirror shows that nothing of the batch is left to do."""
        while True:
            outcomes = send_all(self._api, self._pool, self._left)
            # What the server will never take is dropped, with all that it asks about the same object. A pod
            # that is not there any more, or is bound already, needs no dropping: the mirror will show it.
            hopeless = {
                one.about for one, error in outcomes if isinstance(error, RefusedError) and _final(one, error)
            }
            self._left = [one for one in self._left if one.about not in hopeless]
            if any(isinstance(error, UnreachableError) or _passing(one, error) for one, error in outcomes):
                time.sleep(0.2)
            elif self._mirror.wait(self._settled, _ECHO):
                return
            else:
                _log.warning("the watch does not show what was done; listing pods anew")
                self._mirror.refresh("Pod")

    def _fetch(self) -> Object:
        try:
            return self._api.send("GET", f"{_COLLECTION}/{self._name}")
        except RefusedError as error:
            if error.status != 404:
                raise
        return self._api.send("POST", _COLLECTION, {"metadata": {"name": self._name}, **_page((), 0)})

    def _take(self, item: Object) -> None:
        self._version = item["metadata"]["resourceVersion"]
        self._seen = int(item["data"]["seen"])
        self._left = [
            Request(**one) for one in json.loads(zlib.decompress(b64decode(item["binaryData"]["calls"])))
        ]

    def _settled(self) -> bool:
        """Whether all effects are in the mirror, and all that the author knew as well."""
        while self._left and self._effect_seen(self._left[-1]):
            self._left.pop()
        return not self._left and self._mirror.followed("Pod") >= self._seen

    def _effect_seen(self, request: Request) -> bool:
        if request.pod is None:
            item = self._mirror.find("Reservation", request.about.rpartition("/")[2])
            return item is None or _covers(item, request.body)
        namespace, name = request.pod
        pod = self._mirror.find("Pod", name, namespace)
        if pod is None or pod["metadata"]["uid"] != _uid(request) or "deletionTimestamp" in pod["metadata"]:
            return True
        match request.subresource:
            case "eviction":
                return False
            case "binding":
                return "nodeName" in pod["spec"]
            case "status":
                return "nodeName" in pod["spec"] or _covers(pod, request.body)
            case _:
                return _covers(pod, request.body)


def _page(requests: Sequence[Request], seen: int) -> Object:
    """What the ConfigMap holds: the calls, compressed, since it is limited to a mebibyte."""
    text = json.dumps([attrs.asdict(one) for one in requests], separators=(",", ":"))
    calls = b64encode(zlib.compress(text.encode())).decode()
    return {"data": {"seen": str(seen)}, "binaryData": {"calls": calls}}


def _uid(request: Request) -> str:
    """The uid of the pod that a request means, wherever its kind of request has it."""
    options = request.body.get("deleteOptions", {}).get("preconditions", {})
    return str(options.get("uid") or request.body["metadata"]["uid"])


def _covers(item: Any, wanted: Any) -> bool:
    """Tell whether an object has all the texts of a patch; lists and numbers come back in other forms."""
    if isinstance(wanted, dict):
        return isinstance(item, dict) and all(
            _covers(item.get(name), value) for name, value in wanted.items()
        )
    return not isinstance(wanted, str) or item == wanted


def _passing(request: Request, error: Exception | None) -> bool:
    return isinstance(error, RefusedError) and error.passing and not _final(request, error)


def _final(request: Request, error: RefusedError) -> bool:
    """Tell whether a refusal holds whoever asks; a disruption budget's does until somebody plans anew."""
    if request.subresource == "eviction" and error.status == 429:
        return True
    return not error.passing and error.status not in (404, 409)


def send_all(
    api: Api, pool: ThreadPoolExecutor, requests: Sequence[Request]
) -> list[tuple[Request, Exception | None]]:
    """Send requests at the same time, those about one object in order; a refusal ends that object's turn."""

    def send(group: list[Request]) -> list[tuple[Request, Exception | None]]:
        outcomes: list[tuple[Request, Exception | None]] = []
        for request in group:
            try:
                api.send(request.method, request.path, request.body, request.content_type)
                outcomes.append((request, None))
            except (RefusedError, UnreachableError, GoneError) as error:
                outcomes.append((request, error))
                _log.info("%s %s: %s", request.method, request.path, error)
                break
        return outcomes

    ordered = sorted(requests, key=lambda one: one.about)
    groups = [list(group) for _, group in groupby(ordered, key=lambda one: one.about)]
    return [outcome for outcomes in pool.map(send, groups) for outcome in outcomes]
