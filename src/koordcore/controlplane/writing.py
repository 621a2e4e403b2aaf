"""The journal of a cluster, in one ConfigMap: written before anything is done, emptied by seeing it done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from koordcore.controlplane.feed import Feed
from koordcore.controlplane.journal import Batch, is_final
from koordcore.controlplane.requests import Object, Request
from koordcore.controlplane.steps import Answer, Await, Relist, Say, Send, Steps, pause

_COLLECTION: Final = "/api/v1/namespaces/kube-system/configmaps"
_ECHO: Final = 10.0
"""Seconds after which a watch that shows nothing of what was done is not trusted any more."""
_AGAIN: Final = 0.5
"""Seconds before a server that did not answer is asked again."""
_CONFLICT: Final = 409
_ABSENT: Final = 404


class Journal:
    """The journal of one cluster.

    Parameters
    ----------
    feed
        Where the effects of its calls are seen.
    patience
        Seconds that the author of a batch is given before somebody else does his work.
    name
        Of the ConfigMap in ``kube-system``.
    """

    def __init__(self, feed: Feed, *, patience: float, name: str = "koordcore-journal") -> None:
        self._feed, self._patience, self._name = feed, patience, name
        self._version = ""
        self._batch = Batch()

    def open(self) -> Steps[int]:
        """Read the journal and finish what stands in there; make it if there is none.

        Returns
        -------
        int
            How many calls were left to do.

        Raises
        ------
        PermissionError
            When the server will never show it.
        """
        yield from self._fetch()
        if (yield Await(self._settled, self._patience)):  # its author may be at it
            return 0
        self._batch = self._batch.checked(self._feed.mirror, thoroughly=True)
        found = len(self._batch.left)
        yield Say(f"finishing {found} calls of a batch that its author has left")
        yield from self.carry_out()
        return found

    def commit(self, requests: Sequence[Request]) -> Steps[bool]:
        """Put a batch in; ``False`` when another one came first, which is finished then: decide anew."""
        metadata = {"name": self._name, "resourceVersion": self._version}
        batch = Batch.of(requests, self._feed.mirror)
        body = {"metadata": metadata, **batch.page()}
        put = Request(method="PUT", path=f"{_COLLECTION}/{self._name}", body=body)
        answer = yield from _ask(put)
        if answer.done:
            self._take(answer.body)
            return True
        # Without an answer it may have been put in. If so, it is found there and carried out like anybody's.
        if answer.status not in (_ABSENT, _CONFLICT) and not answer.passing:
            raise PermissionError(f"the journal cannot be written: {answer.status}")
        yield Say(f"another batch came first, or nobody knows ({answer.status})")
        yield from self.open()
        return False

    def carry_out(self) -> Steps[None]:
        """Send the calls until the mirror shows that nothing of the batch is left to do."""
        while True:
            answers = yield from self._send()
            # What the server will never take is dropped, with all that it asks about the same object.
            failed = [one for one in answers if not one.done]
            refused = [one for one in failed if one.status and is_final(one.request, one.status)]
            dropped = {one.request.about for one in refused}
            back = self._batch.taken_back((one.request for one in refused), self._feed.mirror)
            self._batch = self._batch.without(dropped).with_further(back)
            passing = [one for one in failed if one.passing and one.request.about not in dropped]
            if back:
                said: tuple[Answer, ...] = yield Send(back)
                passing += [one for one in said if one.passing]
            if passing:
                yield from pause(0.2)
                # Not all of a long batch again for a few calls that got lost.
                self._batch = self._batch.checked(self._feed.mirror, thoroughly=True)
            elif (yield Await(self._settled, _ECHO)):
                return
            else:
                yield Say("the watch does not show what was done; listing pods anew", grave=True)
                yield Relist("Pod")

    def _send(self) -> Steps[tuple[Answer, ...]]:
        """Send what is left: what pods need first, and about pods only where they have it."""
        needed = self._batch.first
        met: tuple[Answer, ...] = (yield Send(needed)) if needed else ()
        # Somebody has made it before, perhaps in a batch that was cut off.
        self._batch = self._batch.having(
            one.request.about for one in met if one.request.makes and one.status == _CONFLICT
        )
        done = {one.request.words for one in met if one.done}
        then = self._batch.then({one.needed_by for one in self._batch.first if one.words not in done})
        more: tuple[Answer, ...] = (yield Send(then)) if then else ()
        return (*met, *more)

    def _fetch(self) -> Steps[None]:
        path = f"{_COLLECTION}/{self._name}"
        while True:
            answer = yield from _ask(Request(method="GET", path=path, body={}))
            if answer.status == _ABSENT:
                body = {"metadata": {"name": self._name}, **Batch().page()}
                answer = yield from _ask(Request(method="POST", path=_COLLECTION, body=body))
            if answer.done:
                return self._take(answer.body)
            if not answer.passing and answer.status not in (_ABSENT, _CONFLICT):
                raise PermissionError(f"the journal cannot be read: {answer.status}")
            yield Say(f"journal: {answer.status}", grave=True)
            yield from pause(_AGAIN)

    def _take(self, item: Object) -> None:
        self._version = item["metadata"]["resourceVersion"]
        self._batch = Batch.read(item)

    def _settled(self) -> bool:
        """Whether all effects are in the mirror, and all that the author knew as well."""
        self._batch = self._batch.checked(self._feed.mirror)
        return self._batch.settled(self._feed.mirror)


def _ask(request: Request) -> Steps[Answer]:
    """Send one request."""
    (answer,) = yield Send((request,))
    assert isinstance(answer, Answer)
    return answer
