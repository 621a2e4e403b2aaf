"""What is about to be done: written down first, done then, and finished by whoever comes after a kill.

A batch is a value that fits into one ConfigMap. It counts from the moment at which the server holds it; the
server takes a new one only from somebody who knew the one before, so that two schedulers cannot both decide
on the same cluster; and nobody replaces a batch before all of it has been done and seen. Requests name the
uid of what they mean. What may have been done is looked up before it is sent again: others may have gone on
from there.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.controlplane.effects import Effect, effect_of
from koordcore.controlplane.mirror import Mirror
from koordcore.controlplane.requests import Object, Request
from koordcore.controlplane.steps import Answer
from koordcore.manifests.calls import STRATEGIC_MERGE_PATCH
from koordcore.model.mappings import EMPTY
from koordcore.protocol.preemption import PREEMPTED_REASON, parse_preempted

_LEAVES: Final = "DisruptionTarget"
_SEEN: Final = "seen."
_CONFLICT: Final = 409


@record
class Batch:
    """Requests of one turn, in the order of the decisions.

    Parameters
    ----------
    left
        Those that the server is not known to have done.
    seen
        By kind: version of the newest object that the author knew. Whoever finishes the batch has to know as
        much: what he has not heard of yet looks as if it had gone.
    done
        Answers of those that the server has done, and whose effect has not been seen. They are never sent
        again: others may have gone on from there. Whoever reads the batch later knows none.
    """

    left: tuple[Request, ...] = ()
    seen: immutabledict[str, int] = EMPTY
    done: tuple[Answer, ...] = ()

    @classmethod
    def of(cls, requests: Iterable[Request], mirror: Mirror, earlier: Iterable[str] = ()) -> Batch:
        """Put requests together that were decided by what a mirror shows.

        Parameters
        ----------
        requests
            In the order of the decisions.
        mirror
            What its author knew.
        earlier
            Kinds that batches before were about: whoever comes to this one may have seen nothing of them.
        """
        batch = cls(tuple(requests))
        kinds = sorted({"Pod", *earlier, *batch.kinds(mirror)})
        return attrs.evolve(batch, seen=immutabledict({kind: mirror.newest(kind) for kind in kinds}))

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

    def kinds(self, mirror: Mirror) -> tuple[str, ...]:
        """Give the kinds of all objects that it is about."""
        paths = {one.about for one in self.left} | {one.request.about for one in self.done}
        return tuple(sorted({mirror.kind_at(path) for path in paths} - {""}))

    def answered(self, answers: Iterable[Answer]) -> Batch:
        """Take note of what the server has done; what was made is named by its uid from then on."""
        accepted: dict[str, list[Answer]] = {}
        for one in answers:
            if one.done or _is_there_already(one):
                accepted.setdefault(one.request.about, []).append(one)
        left: list[Request] = []
        done = list(self.done)
        for request in self.left:
            about = accepted.get(request.about, [])
            answer = next((one for one in about if one.request == request), None)
            if answer is not None:
                done.append(answer)
                continue
            made = next((one for one in about if one.request.makes), None)
            uid = "" if made is None else _metadata(made).get("uid", "")
            left.append(request.meaning(uid) if uid and not request.uid else request)
        return attrs.evolve(self, left=tuple(left), done=tuple(done))

    def checked(self, mirror: Mirror) -> Batch:
        """Drop from the end what is seen, up to what is not.

        Nothing is dropped before the mirror knows what the author knew.
        """
        if self.behind(mirror):
            return self
        left, done, made = list(self.left), list(self.done), self._made
        while done and _shown(done[-1], mirror):
            done.pop()
        while left and effect_of(left[-1], mirror, made, looked_up=False) is Effect.SEEN:
            left.pop()
        return attrs.evolve(self, left=tuple(left), done=tuple(done))

    def looked_through(self, mirror: Mirror) -> Batch:
        """Drop all that is seen, and all about pods that never get what they need.

        The mirror has to be as new as the objects of :attr:`doubtful`.
        """
        if self.behind(mirror):
            return self
        made = self._made
        effects = [effect_of(one, mirror, made, looked_up=True) for one in self.left]
        left = tuple(one for one, effect in zip(self.left, effects, strict=True) if effect is not Effect.SEEN)
        lost = {
            one.needed_by for one, effect in zip(self.left, effects, strict=True) if effect is Effect.LOST
        }
        done = tuple(one for one in self.done if not _shown(one, mirror))
        return attrs.evolve(self, left=left, done=done).without_pods(lost)

    def settled(self, mirror: Mirror) -> bool:
        """Tell whether nothing is left, and the mirror knows all that the author knew."""
        return not (self.left or self.done) and not self.behind(mirror)

    def behind(self, mirror: Mirror) -> tuple[str, ...]:
        """Give the kinds of which the author knew more."""
        return tuple(
            kind
            for kind, version in self.seen.items()
            if mirror.follows(kind) and mirror.followed(kind) < version
        )

    @property
    def _made(self) -> frozenset[str]:
        """Paths of objects that it makes and that nobody has seen."""
        requests = (*self.left, *(one.request for one in self.done))
        return frozenset(one.about for one in requests if one.makes)

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Paths of objects to be read before anything is sent again.

        Requests about pods are none: they name the uid, and what they do stays done.
        """
        paths: dict[str, None] = {}
        for one in self.left:
            if one.pod is None:
                paths[one.about] = None
            if one.needed_by:
                namespace, _, name = one.needed_by.partition("/")
                paths[f"/api/v1/namespaces/{namespace}/pods/{name}"] = None
        return tuple(paths)

    def without(self, refused: Iterable[Request]) -> Batch:
        """Drop what is refused for good, all about the same objects, and all for pods that needed it."""
        about = {one.about for one in refused}
        lost = {one.needed_by for one in self.left if one.needed_by and one.about in about}
        left = tuple(one for one in self.left if one.about not in about)
        return attrs.evolve(self, left=left).without_pods(lost)

    def without_pods(self, lost: Collection[str]) -> Batch:
        """Drop all about some pods, and all that only they needed."""
        left = tuple(one for one in self.left if one.needed_by not in lost and _pod_of(one) not in lost)
        return attrs.evolve(self, left=left)

    def taken_back(self, refused: Iterable[Request], mirror: Mirror) -> tuple[Request, ...]:
        """Say of pods whose eviction was refused that they do not leave: else all count on their room.

        Parameters
        ----------
        refused
            Evictions that the server will not do.
        """
        sent = (*(one.request for one in self.done), *self.left)
        status_of = {one.pod: one for one in sent if one.subresource == "status"}
        return tuple(
            back
            for one in refused
            if one.subresource == "eviction"
            for back in _withdrawn(one, status_of, mirror)
        )

    def with_further(self, requests: Iterable[Request]) -> Batch:
        """Add requests that follow from what came of others."""
        return attrs.evolve(self, left=(*self.left, *requests))

    @property
    def first(self) -> tuple[Request, ...]:
        """What is about things that pods need, and is sent before all others."""
        return tuple(one for one in self.left if one.needed_by)

    @property
    def then(self) -> tuple[Request, ...]:
        """Give the others, but for those about pods that lack something they need."""
        unmet = {one.needed_by for one in self.left} - {""}
        return tuple(one for one in self.left if not one.needed_by and _pod_of(one) not in unmet)


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
                    "metadata": {"uid": eviction.uid},
                    "status": {"conditions": [{**condition, "status": "False"}]},
                },
                content_type=STRATEGIC_MERGE_PATCH,
            )


def _pod_of(request: Request) -> str:
    return "" if request.pod is None else "/".join(request.pod)


def _metadata(answer: Answer) -> Object:
    return answer.body.get("metadata") or {}


def _is_there_already(answer: Answer) -> bool:
    """Tell whether something was to be made that is there, perhaps by a batch that was cut off."""
    return answer.request.makes and answer.status == _CONFLICT


def _shown(answer: Answer, mirror: Mirror) -> bool:
    """Tell whether a mirror shows what the server has done: the version that came of it, or a later one."""
    version = _metadata(answer).get("resourceVersion")
    if version and mirror.kind_at(answer.request.about):
        return mirror.knows(answer.request.about, int(version))
    return effect_of(answer.request, mirror, (), looked_up=False) is not Effect.LEFT
