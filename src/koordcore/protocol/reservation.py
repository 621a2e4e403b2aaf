"""Labels and annotations of reservations and of the pods that use them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.affinity import Taint, Toleration, tolerated
from koordcore.model.mappings import EMPTY, found_in, frozen
from koordcore.model.pods import Pod, PodPhase
from koordcore.model.reservations import (
    AllocatePolicy,
    ObjectReference,
    Reservation,
    ReservationOwner,
    ReservationPhase,
    ReservationStatus,
)
from koordcore.model.resources import NO_RESOURCES, Resources, parse_countable
from koordcore.model.selectors import NodeSelector
from koordcore.protocol.device import load_go_json
from koordcore.protocol.fields import (
    Json,
    as_labels,
    as_list,
    as_mapping,
    as_str,
    as_strings,
    load_json,
    optional,
)
from koordcore.protocol.numbers import parse_decimal
from koordcore.protocol.reservation_owners import as_object_reference, as_owner, owners_error
from koordcore.protocol.selectors import as_node_selector_terms, as_tolerations

PREFIX: Final = "scheduling.koordinator.sh/"
RESERVATION_IGNORED: Final = PREFIX + "reservation-ignored"
RESERVATION_AFFINITY: Final = PREFIX + "reservation-affinity"
EXACT_MATCH: Final = PREFIX + "exact-match-reservation"
RESERVATION_ALLOCATED: Final = PREFIX + "reservation-allocated"
RESERVATION_ORDER: Final = PREFIX + "reservation-order"
RESTRICTED_OPTIONS: Final = PREFIX + "reservation-restricted-options"
RESIZE_ALLOCATABLE: Final = PREFIX + "reservation-resize-allocatable"
PRE_ALLOCATION_REQUIRED: Final = PREFIX + "pre-allocation-required"
OPERATING_MODE: Final = PREFIX + "operating-mode"
RESERVATION_NAME: Final = PREFIX + "reservation-name"
RESERVATION_NODE: Final = PREFIX + "reservation-node"
IS_PRE_ALLOCATION: Final = PREFIX + "is-pre-allocation"
PRIORITY: Final = "koordinator.sh/priority"
NOMINATED_NODE: Final = "koordcore.io/nominated-node"
"""Node of which a reservation that waits has had pods leave; a pod has a field of its status for that."""

HELD_CLAIMS: Final = "koordcore.io/held-claims"
"""What a reservation's claims were allocated: no ResourceClaim exists for them, since no pod does."""

LOAN_ANNOTATIONS: Final = (RESERVATION_AFFINITY,)
LOAN_LABELS: Final = (PRE_ALLOCATION_REQUIRED, RESERVATION_IGNORED)
"""What of a pod says how it draws from reservations; see :func:`loan_rules`."""

_UNSCHEDULABLE: Final = Taint("node.kubernetes.io/unschedulable")


@record(kw_only=True)
class ReservationAffinity:
    """Which reservations a pod must use.

    Parameters
    ----------
    name
        The one of that name, whatever else is said; empty for any.
    selector
        Labels, all of which it must have.
    required
        Terms of which one must hold; ``None`` where there are none to hold.
    tolerations
        Of the reservation's taints.
    """

    name: str = ""
    selector: immutabledict[str, str] = attrs.field(default=EMPTY, converter=frozen)
    required: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] = ()

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether a taint of a reservation does not keep the pod away."""
        return tolerated(taint, self.tolerations)

    @property
    def tolerates_unschedulable(self) -> bool:
        """A reservation that admits nobody admits this pod."""
        return tolerated(_UNSCHEDULABLE, self.tolerations)

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether the labels of a reservation (and of its node) satisfy the selector and the terms."""
        if any(labels.get(key) != value for key, value in self.selector.items()):
            return False
        return self.required is None or self.required.matches(name, labels)


NO_AFFINITY: Final = ReservationAffinity()


@record(kw_only=True)
class ReservationWish:
    """What a pod says about reservations.

    Parameters
    ----------
    affinity
        Set: a reservation is mandatory; ``None``: the pod takes one where it may.
    exact
        Resources of which pod and reservation must have the same amount.
    ignored
        The pod takes held room as if it were free.
    """

    affinity: ReservationAffinity | None = None
    exact: tuple[str, ...] = ()
    ignored: bool = False


_NO_WISH: Final = ReservationWish()


def _object(text: str) -> Mapping[str, Json]:
    """Read a JSON object; emptiness and null stand for an empty one, as upstream's decoder has it."""
    value = load_json(text) if text else None
    return {} if value is None else as_mapping(value)


def reservation_wish(labels: Mapping[str, str], annotations: Mapping[str, str]) -> ReservationWish:
    """Read what a pod says about reservations.

    Raises
    ------
    ManifestError
        When the affinity or the exact-match annotation cannot be read; upstream ends the attempt then.
    """
    if not annotations and not labels:
        return _NO_WISH
    affinity, exact = found_in(annotations, RESERVATION_AFFINITY), found_in(annotations, EXACT_MATCH)
    ignored = found_in(labels, RESERVATION_IGNORED) == "true"
    if affinity is None and exact is None:
        return ReservationWish(ignored=True) if ignored else _NO_WISH
    wish = ReservationWish(ignored=ignored)
    if affinity is not None:
        try:
            wish = attrs.evolve(wish, affinity=_affinity(_object(affinity)))
        except ManifestError as error:
            raise error.within(f"metadata.annotations[{RESERVATION_AFFINITY}]") from None
    if exact is not None:
        try:
            names = optional(_object(exact), "resourceNames", as_strings, (), fold_case=True)
            wish = attrs.evolve(wish, exact=names)
        except ManifestError as error:
            raise error.within(f"metadata.annotations[{EXACT_MATCH}]") from None
    return wish


def loan_rules(labels: Mapping[str, str], annotations: Mapping[str, str]) -> tuple[bool, bool]:
    """Tell whether devices must come out of a reservation, and whether all reservations count as free.

    The affinity only has to be JSON here, as upstream's DeviceShare has it.

    Raises
    ------
    ManifestError
        When it is not.
    """
    affinity = annotations.get(RESERVATION_AFFINITY, "")
    if affinity:
        load_go_json(affinity)
    required = bool(affinity) or labels.get(PRE_ALLOCATION_REQUIRED) == "true"
    return required, labels.get(RESERVATION_IGNORED) == "true"


def _affinity(raw: Mapping[str, Json]) -> ReservationAffinity:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    required = optional(raw, key, as_mapping, None, fold_case=True)
    terms = None
    if required is not None:
        terms = optional(
            required, "reservationSelectorTerms", as_node_selector_terms, NodeSelector(), fold_case=True
        )
    return ReservationAffinity(
        name=optional(raw, "name", as_str, "", fold_case=True),
        selector=optional(raw, "reservationSelector", as_labels, EMPTY, fold_case=True),
        required=terms,
        tolerations=optional(raw, "tolerations", as_tolerations, (), fold_case=True),
    )


@record
class AllocatedReservation:
    """The reservation that a pod uses, as written on it."""

    name: str
    uid: str


def allocated_reservation(annotations: Mapping[str, str]) -> AllocatedReservation | None:
    """Give the reservation that a pod says it uses; ``None`` where it says nothing readable."""
    text = None if annotations is EMPTY else found_in(annotations, RESERVATION_ALLOCATED)
    return _allocated_in(text) if text else None


@lru_cache(maxsize=4096)  # a pod is asked for its reservation in every step of a call
def _allocated_in(text: str) -> AllocatedReservation | None:
    try:
        raw = _object(text)
        return AllocatedReservation(
            optional(raw, "name", as_str, "", fold_case=True),
            optional(raw, "uid", as_str, "", fold_case=True),
        )
    except ManifestError:
        return None


def format_allocated_reservation(name: str, uid: str) -> str:
    """Write which reservation a pod uses, as upstream does at PreBind."""
    return json.dumps({"name": name, "uid": uid}, separators=(",", ":"), ensure_ascii=False)


def reservation_order(labels: Mapping[str, str]) -> int:
    """Give a reservation's place in line, smaller first; 0 stands for none."""
    return _integer(labels.get(RESERVATION_ORDER, ""), 64) or 0


def label_priority(labels: Mapping[str, str]) -> int | None:
    """Give the priority that a reservation's label states; ``None`` where it is no 32-bit integer."""
    return _integer(labels.get(PRIORITY, ""), 32)


def _integer(text: str, bits: int) -> int | None:
    try:
        return parse_decimal(text, bits=bits) if text else None
    except ManifestError:
        return None


def restricted_resources(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Give the resources to which a Restricted reservation's account is narrowed; none for all.

    Raises
    ------
    ManifestError
        When the annotation cannot be read; then the reservation matches nobody.
    """
    text = annotations.get(RESTRICTED_OPTIONS)
    if text is None:
        return ()
    try:
        return optional(_object(text), "resources", as_strings, (), fold_case=True)
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{RESTRICTED_OPTIONS}]") from None


def _resources(value: Json) -> Resources:
    return parse_countable(as_mapping(value))


def resized_allocatable(annotations: Mapping[str, str]) -> Resources:
    """Give the amounts that replace those of the template; empty for none.

    Raises
    ------
    ManifestError
        When the annotation cannot be read; then the reservation cannot become available.
    """
    try:
        raw = _object(annotations.get(RESIZE_ALLOCATABLE, ""))
        return optional(raw, "resources", _resources, NO_RESOURCES, fold_case=True)
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{RESIZE_ALLOCATABLE}]") from None


RESERVATION_OWNERS: Final = PREFIX + "reservation-owners"
CURRENT_OWNER: Final = PREFIX + "reservation-current-owner"


def is_operating_pod(pod: Pod) -> bool:
    """Tell whether a pod acts as a reservation once it runs."""
    return OPERATING_MODE in pod.labels and pod.labels[OPERATING_MODE] == "Reservation"


def parse_owners(text: str) -> tuple[ReservationOwner, ...]:
    """Read whom an operating pod is for.

    Raises
    ------
    ManifestError
        When that cannot be read; then it is for nobody.
    """
    value = load_json(text) if text else None
    listed = [] if value is None else as_list(value)
    wrong = owners_error(listed)
    if wrong:
        raise ManifestError.at("", wrong)
    return tuple(as_owner(one) for one in listed)


def current_owner(annotations: Mapping[str, str]) -> ObjectReference | None:
    """Read which pod is said to use an operating pod; ``None`` for none, or where it cannot be read."""
    text = annotations.get(CURRENT_OWNER, "")
    try:
        value = load_json(text) if text else None
        return None if value is None else as_object_reference(value)
    except ManifestError:
        return None


def operating_reservation(pod: Pod) -> Reservation:
    """Give an operating pod that has a node as the reservation that it acts as.

    It holds what the pod asks for, is for one owner, and lets that one take from the node what it lacks.
    Until the pod runs and is ready nobody is matched with it.
    """
    try:
        owners, wrong = parse_owners(pod.annotations.get(RESERVATION_OWNERS, "")), ""
    except ManifestError as error:
        owners, wrong = (), str(error)
    usable = pod.phase is PodPhase.RUNNING and pod.ready
    return Reservation(
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        labels=pod.labels,
        annotations=pod.annotations,
        template=pod,
        template_priority=pod.priority,
        owners=owners,
        owners_error=wrong,
        ttl=0,
        allocate_once=True,
        allocate_policy=AllocatePolicy.ALIGNED,
        created=pod.created,
        deleted=pod.deleted,
        status=ReservationStatus(
            phase=ReservationPhase.AVAILABLE if usable else ReservationPhase.WAITING,
            node_name=pod.node_name or "",
            allocatable=pod.requests,
        ),
    )
