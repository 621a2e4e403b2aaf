"""What is about to be done: written down first, done then, and finished by whoever comes after a kill.

A batch is a value that fits into one ConfigMap. It counts from the moment at which the server holds it; the
server takes a new one only from somebody who knew the one before, so that two schedulers cannot both decide
on the same cluster; and nobody replaces a batch before all of it has been done and seen. All requests can be
sent twice: they name the uid of the pod that they mean.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.controlplane.mirror import Mirror
from koordcore.controlplane.requests import Object, Request
from koordcore.manifests.calls import STRATEGIC_MERGE_PATCH
from koordcore.model.mappings import EMPTY
from koordcore.protocol.preemption import PREEMPTED_REASON, parse_preempted

_LEAVES: Final = "DisruptionTarget"
_SEEN: Final = "seen."
_SETS: Final = frozenset({"reservedFor", "finalizers", "resourceClaimStatuses"})
"""Lists in which several writers have entries of their own."""


@record
class Batch:
    """Requests of one turn, in the order of the decisions.

    Parameters
    ----------
    left
        Those whose effect has not been seen.
    seen
        By kind: version of the newest object that the author knew. Whoever finishes the batch has to know as
        much: what he has not heard of yet looks as if it had gone.
    """

    left: tuple[Request, ...] = ()
    seen: immutabledict[str, int] = EMPTY

    @classmethod
    def of(cls, requests: Iterable[Request], mirror: Mirror) -> Batch:
        """Put requests together that were decided by what a mirror shows."""
        left = tuple(requests)
        kinds = {"Pod", *(mirror.kind_at(one.about) for one in left if one.pod is None)} - {""}
        return cls(left, immutabledict({kind: mirror.newest(kind) for kind in sorted(kinds)}))

    @classmethod
    def read(cls, item: Object) -> Batch:
        """Read a batch out of a ConfigMap."""
        calls = json.loads(zlib.decompress(b64decode(item["binaryData"]["calls"])))
        data = item.get("data") or {}  # the server leaves out what is empty
        versions = ((name.partition(_SEEN)[2], text) for name, text in sorted(data.items()))
        seen = immutabledict({kind: int(text) for kind, text in versions if kind})
        return cls(tuple(Request(**one) for one in calls), seen)

    def page(self) -> Object:
        """Give what the ConfigMap holds: the calls, compressed, since it is limited to a mebibyte."""
        text = json.dumps([attrs.asdict(one) for one in self.left], separators=(",", ":"))
        calls = b64encode(zlib.compress(text.encode())).decode()
        seen = {_SEEN + kind: str(version) for kind, version in self.seen.items()}
        return {"data": seen, "binaryData": {"calls": calls}}

    def checked(self, mirror: Mirror, *, thoroughly: bool = False) -> Batch:
        """Drop requests whose effect is seen: from the end up to one that is not, or ``thoroughly`` all.

        Nothing is dropped before the mirror knows what the author knew.
        """
        if not self._known_to(mirror):
            return self
        left = list(self.left)
        made = {one.about for one in left if one.makes}
        if thoroughly:
            left = [one for one in left if not _effect_seen(one, mirror, made)]
        while left and _effect_seen(left[-1], mirror, made):
            left.pop()
        return attrs.evolve(self, left=tuple(left))

    def settled(self, mirror: Mirror) -> bool:
        """Tell whether nothing is left, and the mirror knows all that the author knew."""
        return not self.left and self._known_to(mirror)

    def _known_to(self, mirror: Mirror) -> bool:
        return all(mirror.followed(kind) >= version for kind, version in self.seen.items())

    def without(self, about: Collection[str]) -> Batch:
        """Drop all requests about some objects, and all for pods that needed them."""
        lost = {one.needed_by for one in self.left if one.needed_by and one.about in about}

        def stays(one: Request) -> bool:
            return one.about not in about and one.needed_by not in lost and _pod_of(one) not in lost

        return attrs.evolve(self, left=tuple(filter(stays, self.left)))

    def taken_back(self, refused: Iterable[Request], mirror: Mirror) -> tuple[Request, ...]:
        """Say of pods whose eviction was refused that they do not leave: else all count on their room.

        Parameters
        ----------
        refused
            Evictions that the server will not do.
        """
        status_of = {one.pod: one for one in self.left if one.subresource == "status"}
        return tuple(
            back
            for one in refused
            if one.subresource == "eviction"
            for back in _withdrawn(one, status_of, mirror)
        )

    def with_further(self, requests: Iterable[Request]) -> Batch:
        """Add requests that follow from what came of others."""
        return attrs.evolve(self, left=(*self.left, *requests))

    def having(self, made: Iterable[str]) -> Batch:
        """Drop the making of objects that are there already."""
        there = set(made)
        return attrs.evolve(
            self, left=tuple(one for one in self.left if not (one.makes and one.about in there))
        )

    @property
    def first(self) -> tuple[Request, ...]:
        """What is about things that pods need, and is sent before all others."""
        return tuple(one for one in self.left if one.needed_by)

    def then(self, unmet: Collection[str]) -> tuple[Request, ...]:
        """Give the others, but for those about pods that lack something they need."""
        return tuple(one for one in self.left if not one.needed_by and _pod_of(one) not in unmet)


def is_final(request: Request, status: int) -> bool:
    """Tell whether a refusal with an HTTP status holds whoever asks again.

    That of a disruption budget does until somebody plans anew. A pod that is not there any more (404), or is
    bound already (409), is none: the mirror will show it.
    """
    if request.subresource == "eviction" and status == 429:
        return True
    return not (status == 429 or status >= 500) and status not in (404, 409)


def _withdrawn(
    eviction: Request, status_of: Mapping[tuple[str, str] | None, Request], mirror: Mirror
) -> Iterator[Request]:
    """Give the patch that takes back what we told a pod before its eviction; what others say of it stands."""
    assert eviction.pod is not None
    namespace, name = eviction.pod
    status = status_of[eviction.pod].body["status"] if eviction.pod in status_of else None
    pod = mirror.find("Pod", name, namespace)
    if status is None and pod is not None:
        status = pod.get("status")
    for condition in (status or {}).get("conditions") or ():
        ours = condition.get("reason") == PREEMPTED_REASON and parse_preempted(condition.get("message", ""))
        if ours and condition["type"] == _LEAVES and condition["status"] == "True":
            yield Request(
                method="PATCH",
                path=eviction.path.removesuffix("eviction") + "status",
                body={
                    "metadata": {"uid": _uid(eviction)},
                    "status": {"conditions": [{**condition, "status": "False"}]},
                },
                content_type=STRATEGIC_MERGE_PATCH,
            )


def _pod_of(request: Request) -> str:
    return "" if request.pod is None else "/".join(request.pod)


def _effect_seen(request: Request, mirror: Mirror, made: Collection[str]) -> bool:
    """Tell whether the mirror shows what a request does; ``made`` are the objects that the batch makes."""
    if request.pod is None:
        item = mirror.at(request.about)
        if item is None:  # it has gone, unless it is still to come
            return request.about not in made
        return request.makes or _covers(item, request.body)
    namespace, name = request.pod
    pod = mirror.find("Pod", name, namespace)
    if pod is None or pod["metadata"]["uid"] != _uid(request) or "deletionTimestamp" in pod["metadata"]:
        return True
    match request.subresource:
        case "eviction":
            return False
        case "binding":
            return "nodeName" in pod["spec"]
        case "status":
            return _said(pod, request.body["status"])
        case _:
            return _covers(pod, request.body)


def _said(pod: Object, wanted: Object) -> bool:
    """Tell whether a pod's status says what a patch would; a nomination is moot once it has a node."""
    known = {one["type"]: one for one in pod.get("status", {}).get("conditions") or ()}
    for condition in wanted.get("conditions", ()):
        there = known.get(condition["type"], {})
        if any(there.get(name) != condition.get(name) for name in ("status", "reason", "message")):
            return False
    rest = {name: value for name, value in wanted.items() if name != "conditions"}
    return "nodeName" in pod["spec"] or _covers(pod.get("status", {}), rest)


def _uid(request: Request) -> str:
    """The uid of the pod that a request means, wherever its kind of request has it."""
    options = request.body.get("deleteOptions", {}).get("preconditions", {})
    return str(options.get("uid") or request.body["metadata"]["uid"])


def _covers(item: Any, wanted: Any) -> bool:
    """Tell whether an object has the texts of a patch; most lists and numbers come back in other forms."""
    if isinstance(wanted, dict):
        return isinstance(item, dict) and all(
            _covers(item.get(name), value) if name not in _SETS else _has(item.get(name), value)
            for name, value in wanted.items()
        )
    return item == wanted if wanted is None or isinstance(wanted, str) else True


def _has(items: Any, wanted: Sequence[Any]) -> bool:
    """Tell whether a list has some entries in whatever order, and perhaps with further fields."""
    return all(any(_covers(one, each) for one in items or ()) for each in wanted)
