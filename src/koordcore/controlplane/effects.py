"""What has become of a request, as far as objects tell: to be done, done, or of no use any more."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum
from typing import Any, Final

from koordcore.controlplane.mirror import Mirror
from koordcore.controlplane.requests import Object, Request
from koordcore.manifests.call_targets import waits_no_more

_SETS: Final = frozenset({"reservedFor", "finalizers", "resourceClaimStatuses"})
"""Lists in which several writers have entries of their own."""


class Effect(Enum):
    """What a mirror shows of a request."""

    LEFT = "left"
    """It is still to be done, or to be seen."""
    SEEN = "seen"
    """It was done, others have gone on from there, or nobody needs it any more."""
    LOST = "lost"
    """It never can be done, and a pod needs it."""


def is_final(request: Request, status: int) -> bool:
    """Tell whether a refusal with an HTTP status holds whoever asks again.

    That of a disruption budget does until somebody plans anew. An object that is not there any more (404), or
    a pod that is bound already (409), is none: the mirror will show it.
    """
    if request.subresource == "eviction" and status == 429:
        return True
    return not (status == 429 or status >= 500) and status not in (404, 409)


def effect_of(request: Request, mirror: Mirror, made: Collection[str], *, looked_up: bool) -> Effect:
    """Tell what has become of a request.

    Parameters
    ----------
    made
        Paths of objects that the batch makes and that have not been seen: they are still to come.
    looked_up
        The mirror is known to be as new as the objects that the request is about and needed for. What a bound
        pod needed has been done then, whatever others made of it.
    """
    if request.pod is not None:
        return _effect_on_pod(request, request.pod, mirror)
    if not mirror.kind_at(request.about):
        return Effect.SEEN  # it never will be
    if looked_up and request.needed_by and not _still_needed(request, mirror):
        return Effect.SEEN
    item = mirror.at(request.about)
    if item is None and (request.makes or request.about in made):
        return Effect.LEFT
    if item is None or request.uid not in ("", item["metadata"]["uid"]):
        return Effect.LOST if request.needed_by else Effect.SEEN
    told = request.makes or waits_no_more(item) or _covers(item, request.body)
    return Effect.SEEN if told else Effect.LEFT


def _effect_on_pod(request: Request, key: tuple[str, str], mirror: Mirror) -> Effect:
    namespace, name = key
    pod = mirror.find("Pod", name, namespace)
    if pod is None or pod["metadata"]["uid"] != request.uid or "deletionTimestamp" in pod["metadata"]:
        return Effect.SEEN
    match request.subresource:
        case "eviction":
            seen = False
        case "binding":
            seen = "nodeName" in pod["spec"]
        case "status":
            seen = _said(pod, request.body["status"])
        case _:
            seen = _covers(pod, request.body)
    return Effect.SEEN if seen else Effect.LEFT


def _still_needed(request: Request, mirror: Mirror) -> bool:
    """Tell whether a pod waits for it: what it needs comes before its binding, and goes after its end."""
    namespace, _, name = request.needed_by.partition("/")
    pod = mirror.find("Pod", name, namespace)
    if pod is None or request.needed_uid not in ("", pod["metadata"]["uid"]):
        return False
    return "deletionTimestamp" not in pod["metadata"] and "nodeName" not in pod["spec"]


def _said(pod: Object, wanted: Object) -> bool:
    """Tell whether a pod's status says what a patch would; a nomination is moot once it has a node."""
    known = {one["type"]: one for one in pod.get("status", {}).get("conditions") or ()}
    for condition in wanted.get("conditions", ()):
        there = known.get(condition["type"], {})
        if any(there.get(name) != condition.get(name) for name in ("status", "reason", "message")):
            return False
    rest = {name: value for name, value in wanted.items() if name != "conditions"}
    return "nodeName" in pod["spec"] or _covers(pod.get("status", {}), rest)


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
