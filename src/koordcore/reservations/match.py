"""Which reservations a pod may use, and why not the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from koordcore._record import record
from koordcore.model.affinity import TaintEffect
from koordcore.model.nodes import Node
from koordcore.model.pods import OwnerReference, Pod
from koordcore.model.reservations import ControllerReference, ObjectReference, Reservation, ReservationOwner
from koordcore.model.resources import Resources
from koordcore.protocol.reservation import ReservationWish
from koordcore.reservations.state import ReservationState
from koordcore.scoring.labels import named_nodes

AFFINITY_REFUSED: Final = "node(s) no reservations match reservation affinity"
TERMS_CONFLICT: Final = "pod affinity terms conflict"

_HARD: Final = (TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)


class MatchReason(StrEnum):
    """How a pod stands to a reservation."""

    IGNORED = "ignored"
    OWNER_UNMATCHED = "ownerUnmatched"
    NAME_UNMATCHED = "nameUnmatched"
    NAME_MATCHED = "nameMatched"
    UNSCHEDULABLE = "isUnschedulableUnmatched"
    TAINTS_UNMATCHED = "taintsUnmatched"
    AFFINITY_UNMATCHED = "affinityUnmatched"
    NOT_EXACT = "notExactMatched"
    MATCHED = "matched"


_MATCHING: Final = (MatchReason.IGNORED, MatchReason.NAME_MATCHED, MatchReason.MATCHED)


@record
class Match:
    """Whether a pod may use a reservation, and why.

    Parameters
    ----------
    taint
        The taint that keeps the pod away, as ``{key: value}``.
    """

    reason: MatchReason
    taint: str = ""

    @property
    def matched(self) -> bool:
        """The pod may use it."""
        return self.reason in _MATCHING


def _is_object(pod: Pod, wanted: ObjectReference) -> bool:
    # A pod says its version nowhere in the records; it is always v1.
    there = ((wanted.uid, pod.uid), (wanted.name, pod.name), (wanted.namespace, pod.namespace))
    return all(not left or left == right for left, right in there) and wanted.api_version in ("", "v1")


def _is_owned(owner: OwnerReference, wanted: ControllerReference) -> bool:
    if wanted.controller is not None and owner.controller is not wanted.controller:
        return False
    there = (
        (wanted.uid, owner.uid),
        (wanted.name, owner.name),
        (wanted.kind, owner.kind),
        (wanted.api_version, owner.api_version),
    )
    return all(not left or left == right for left, right in there)


def _term_owns(term: ReservationOwner, pod: Pod) -> bool:
    if term.object is not None and not _is_object(pod, term.object):
        return False
    controller = term.controller
    if controller is not None:
        if controller.namespace and controller.namespace != pod.namespace:
            return False
        if not any(_is_owned(owner, controller) for owner in pod.owners):
            return False
    return term.selector is None or term.selector.matches(pod.labels)


def owns(owners: Iterable[ReservationOwner], pod: Pod) -> bool:
    """Tell whether a pod is an owner: one of the terms holds for it."""
    return any(_term_owns(term, pod) for term in owners)


def exact_match(names: Sequence[str], requests: Resources, allocatable: Resources) -> bool:
    """Tell whether pod and reservation have the same amount of every name; absent is equal to absent only."""
    return all(requests.get(name) == allocatable.get(name) for name in names)


def untolerated(reservation: Reservation, wish: ReservationWish) -> str:
    """Give the first hard taint that the pod's affinity does not tolerate, as ``{key: value}``; else empty.

    A pod without affinity annotation tolerates every taint of a reservation, as upstream has it.
    """
    affinity = wish.affinity
    if affinity is None:
        return ""
    hard = (taint for taint in reservation.taints if taint.effect in _HARD)
    return next((str(taint) for taint in hard if not affinity.tolerates(taint)), "")


def judge_match(
    pod: Pod, wish: ReservationWish, state: ReservationState, node_labels: Mapping[str, str]
) -> Match:
    """Hold a pod against a reservation that is matchable.

    Parameters
    ----------
    wish
        What the pod says about reservations.
    node_labels
        Labels of the reservation's node; the reservation's own come over them.
    """
    one = state.reservation
    if wish.ignored:
        return Match(MatchReason.IGNORED)
    if not owns(one.owners, pod):
        return Match(MatchReason.OWNER_UNMATCHED)
    affinity = wish.affinity
    exact = exact_match(wish.exact, pod.requests, state.allocatable)
    if affinity is not None and affinity.name:
        if one.name != affinity.name:
            return Match(MatchReason.NAME_UNMATCHED)
        return Match(MatchReason.NAME_MATCHED if exact else MatchReason.NOT_EXACT)
    if one.admits_nobody and not (affinity is not None and affinity.tolerates_unschedulable):
        return Match(MatchReason.UNSCHEDULABLE)
    taint = untolerated(one, wish)
    if taint:
        return Match(MatchReason.TAINTS_UNMATCHED, taint)
    if affinity is not None and not affinity.selects(one.name, {**node_labels, **one.labels}):
        return Match(MatchReason.AFFINITY_UNMATCHED)
    return Match(MatchReason.MATCHED if exact else MatchReason.NOT_EXACT)


@record
class NodeMatches:
    """The reservations of one node as one pod sees them.

    Parameters
    ----------
    matched
        Those that it may use, by name.
    unmatched
        The others, as far as pods use them.
    """

    matched: tuple[ReservationState, ...] = ()
    unmatched: tuple[ReservationState, ...] = ()


NO_MATCHES: Final = NodeMatches()


def screened_nodes(pod: Pod, nodes: Mapping[str, Node]) -> frozenset[str] | None:
    """Give the nodes that a pod's own node selector and affinity leave; ``None`` where they contradict.

    Where every required term names nodes, the names alone decide.
    """
    affinity = pod.affinity.node if pod.affinity is not None else None
    required = affinity.required if affinity is not None else None
    names = named_nodes(required) if required is not None and required.terms else None
    if names is not None:
        return frozenset(names) if names else None
    return frozenset(
        name
        for name, node in nodes.items()
        if all(node.labels.get(key) == value for key, value in pod.node_selector.items())
        and (required is None or required.matches(name, node.labels))
    )
