"""The journal of a cluster: one ConfigMap that holds the batch which is being carried out."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Final

from examples.kubernetes.api import Api, GoneError, Object, RefusedError, UnreachableError
from examples.kubernetes.follower import Follower
from koordcore.controlplane import Batch, Request, is_final

__all__ = ["Journal", "send_all"]

_COLLECTION: Final = "/api/v1/namespaces/kube-system/configmaps"
_ECHO: Final = 10.0
"""Seconds after which a watch that shows nothing of what was done is not trusted any more."""

_log = logging.getLogger(__name__)


class Journal:
    """The journal of one cluster.

    Parameters
    ----------
    api, follower
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
        follower: Follower,
        pool: ThreadPoolExecutor,
        *,
        patience: float,
        name: str = "koordcore-journal",
    ) -> None:
        self._api, self._follower, self._pool = api, follower, pool
        self._patience = patience
        self._name = name
        self._version = ""
        self._batch = Batch()

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
        if self._follower.wait(self._settled, self._patience):  # its author may be at it
            return 0
        self._batch = self._batch.checked(self._follower.mirror, thoroughly=True)
        found = len(self._batch.left)
        _log.info("finishing %d calls of a batch that its author has left", found)
        self.carry_out()
        return found

    def commit(self, requests: Sequence[Request]) -> bool:
        """Put a batch in; ``False`` when another one came first, which is finished then: decide anew."""
        metadata = {"name": self._name, "resourceVersion": self._version}
        batch = Batch(tuple(requests), self._follower.mirror.newest("Pod"))
        try:
            body = {"metadata": metadata, **batch.page()}
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
            outcomes = send_all(self._api, self._pool, self._batch.left)
            # What the server will never take is dropped, with all that it asks about the same object.
            refused = [(one, error) for one, error in outcomes if isinstance(error, RefusedError)]
            hopeless = {one.about for one, error in refused if is_final(one, error.status)}
            self._batch = self._batch.without(hopeless)
            passing = any(error.passing and one.about not in hopeless for one, error in refused)
            if passing or any(isinstance(error, UnreachableError) for _, error in outcomes):
                time.sleep(0.2)
            elif self._follower.wait(self._settled, _ECHO):
                return
            else:
                _log.warning("the watch does not show what was done; listing pods anew")
                self._follower.refresh("Pod")

    def _fetch(self) -> Object:
        try:
            return self._api.send("GET", f"{_COLLECTION}/{self._name}")
        except RefusedError as error:
            if error.status != 404:
                raise
        return self._api.send("POST", _COLLECTION, {"metadata": {"name": self._name}, **Batch().page()})

    def _take(self, item: Object) -> None:
        self._version = item["metadata"]["resourceVersion"]
        self._batch = Batch.read(item)

    def _settled(self) -> bool:
        """Whether all effects are in the mirror, and all that the author knew as well."""
        self._batch = self._batch.checked(self._follower.mirror)
        return self._batch.settled(self._follower.mirror)


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
