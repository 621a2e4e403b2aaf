"""The journal of a cluster, in one ConfigMap: written before anything is done, emptied by seeing it done."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from koordcore.controlplane.effects import is_final
from koordcore.controlplane.feed import Feed
from koordcore.controlplane.journal import Batch
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
        yield from self._look_through()
        found = len(self._batch.left)
        yield Say(f"finishing {found} calls of a batch that its author has left")
        yield from self.carry_out()
        return found

    def commit(self, requests: Sequence[Request]) -> Steps[bool]:
        """Put a batch in; ``False`` when another one came first, which is finished then: decide anew."""
        metadata = {"name": self._name, "resourceVersion": self._version}
        batch = Batch.of(requests, self._feed.mirror, self._batch.seen)
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
            refused = [one.request for one in failed if one.status and is_final(one.request, one.status)]
            dropped = {one.about for one in refused}
            back = self._batch.taken_back(refused, self._feed.mirror)
            self._batch = self._batch.without(refused).with_further(back)
            passing = [one for one in failed if one.passing and one.request.about not in dropped]
            if back:
                said: tuple[Answer, ...] = yield Send(back)
                self._batch = self._batch.answered(said)
                passing += [one for one in said if one.passing]
            if passing or self._batch.first:
                yield from pause(0.2)
            elif (yield Await(self._settled, _ECHO)):
                return
            else:
                yield from self._distrust()
            # Not all of a long batch again for a few calls that got lost.
            yield from self._look_through()

    def _send(self) -> Steps[tuple[Answer, ...]]:
        """Send what is left: what pods need first, and about pods only where they have it."""
        first = self._batch.first
        met: tuple[Answer, ...] = (yield Send(first)) if first else ()
        self._batch = self._batch.answered(met)
        then = self._batch.then
        more: tuple[Answer, ...] = (yield Send(then)) if then else ()
        self._batch = self._batch.answered(more)
        return (*met, *more)

    def _look_through(self) -> Steps[None]:
        """Find out what need not be sent, or not again.

        Time has passed, and others may have done it, have gone on from there, or have replaced the batch,
        which they did once all of it was done.
        """
        while True:
            yield from self._catch_up(self._batch.doubtful)
            answer = yield from _ask(self._page)
            if not answer.done or answer.body["metadata"]["resourceVersion"] == self._version:
                self._batch = self._batch.looked_through(self._feed.mirror)
                return
            self._take(answer.body)
            if (yield Await(self._settled, self._patience)):
                return

    def _catch_up(self, paths: Sequence[str]) -> Steps[None]:
        """Wait until the mirror is as new as some objects are on the server now."""
        while paths:
            wanted = tuple(Request(method="GET", path=path, body={}) for path in paths)
            found: tuple[Answer, ...] = yield Send(wanted)
            if any(one.passing for one in found):
                yield from pause(_AGAIN)
            elif (yield Await(partial(self._are_current, found), _ECHO)):
                return
            else:
                yield from self._distrust()

    def _are_current(self, found: Sequence[Answer]) -> bool:
        """Tell whether the mirror knows what was read; what nobody may read says nothing."""
        mirror = self._feed.mirror

        def is_current(one: Answer) -> bool:
            path = one.request.path
            if one.status == _ABSENT:
                return mirror.at(path) is None
            if not one.done or not mirror.kind_at(path):
                return True
            return mirror.knows(path, int(one.body["metadata"]["resourceVersion"]))

        return all(map(is_current, found))

    def _distrust(self) -> Steps[None]:
        """List anew what the batch is about, and what its author knew more of."""
        mirror = self._feed.mirror
        kinds = sorted({*self._batch.kinds(mirror), *self._batch.behind(mirror)})
        yield Say(f"the watch does not show what was done; listing anew: {', '.join(kinds)}", grave=True)
        for kind in kinds:
            yield Relist(kind)

    @property
    def _page(self) -> Request:
        return Request(method="GET", path=f"{_COLLECTION}/{self._name}", body={})

    def _fetch(self) -> Steps[None]:
        while True:
            answer = yield from _ask(self._page)
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
