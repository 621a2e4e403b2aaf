"""What pods and PodGroups say about gangs: labels, annotations, and the forgiving way they are read.

A value that upstream silently drops or defaults is taken the same way here and reported as a
:class:`~koordcore.errors.Problem` beside the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError, Problem
from koordcore.model.durations import SECOND, parse_duration
from koordcore.model.gangs import (
    DEFAULT_ARGS,
    CoschedulingArgs,
    Gang,
    GangMode,
    GangPod,
    GangSource,
    MatchPolicy,
    NetworkTopologySpec,
    PodGroup,
    gang_group_id,
)
from koordcore.model.mappings import found_in
from koordcore.protocol.fields import (
    Json,
    as_list,
    as_str,
    load_json,
)
from koordcore.protocol.gang_names import (
    GANG_PREFIX,
    LABEL_POD_GROUP,
    gang_name,
)
from koordcore.protocol.gathering import parse_topology_spec
from koordcore.protocol.numbers import parse_decimal
from koordcore.protocol.sub_groups import (
    ANNOTATION_MIN_GROUPS,
    ANNOTATION_SUB_GROUPS,
    parse_min_groups,
    parse_sub_groups,
)

LABEL_LIGHTWEIGHT_MIN_AVAILABLE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
ANNOTATION_MIN_AVAILABLE: Final = f"{GANG_PREFIX}/min-available"
ANNOTATION_TOTAL_NUMBER: Final = f"{GANG_PREFIX}/total-number"
ANNOTATION_MODE: Final = f"{GANG_PREFIX}/mode"
ANNOTATION_MATCH_POLICY: Final = f"{GANG_PREFIX}/match-policy"
ANNOTATION_MATCH_POLICY_ALIAS: Final = "pod-group.scheduling.sigs.k8s.io/match-policy"
ANNOTATION_WAITING_TIME: Final = f"{GANG_PREFIX}/waiting-time"
ANNOTATION_GROUPS: Final = f"{GANG_PREFIX}/groups"
ANNOTATION_TOPOLOGY_SPEC: Final = f"{GANG_PREFIX}/network-topology-spec"
ANNOTATION_TOPOLOGY_INDEX: Final = f"{GANG_PREFIX}/network-topology-index"
BIND_GANG_GROUP_ID: Final = "internal.scheduling.koordinator.sh/bind-gang-group-id"
BIND_GANG_MEMBER_COUNT: Final = "internal.scheduling.koordinator.sh/bind-gang-member-count"

NO_TEXTS: Final[immutabledict[str, str]] = immutabledict()
NO_FIELDS: Final[Mapping[str, Json]] = immutabledict()


@record
class ParsedGang:
    """A gang's configuration, what could not be read, and what was silently defaulted.

    ``unreadable`` is what upstream logs; ``defaulted`` is what it does not even log.
    """

    gang: Gang
    unreadable: tuple[Problem, ...] = ()
    defaulted: tuple[Problem, ...] = ()


@record
class ParsedGangPod:
    """A pod as the gang room sees it, and what could not be read of it."""

    pod: GangPod
    unreadable: tuple[Problem, ...] = ()
    defaulted: tuple[Problem, ...] = ()


class _Notes:
    """Problems met while one object is read."""

    def __init__(self) -> None:
        self.unreadable: list[Problem] = []
        self.defaulted: list[Problem] = []

    def cannot_read(self, key: str, message: str, *, where: str = "annotations") -> None:
        self.unreadable.append(Problem(f"metadata.{where}[{key}]", message))

    def took_default(self, key: str, message: str) -> None:
        self.defaulted.append(Problem(f"metadata.annotations[{key}]", message))


def parse_topology_index(annotations: Mapping[str, str]) -> int | None:
    """Read a member's rank; None when it has none, a negative one counts as none.

    Raises
    ------
    ManifestError
        When the annotation is there and is no integer.
    """
    text = found_in(annotations, ANNOTATION_TOPOLOGY_INDEX)
    if text is None:
        return None
    try:
        index = parse_decimal(text)
    except ManifestError as error:
        raise error.within(f"metadata.annotations[{ANNOTATION_TOPOLOGY_INDEX}]") from None
    return index if index >= 0 else None


def parse_groups(value: Json) -> tuple[str, ...]:
    """Read the list of gang ids that start together, in the order given.

    A list is taken as well as its JSON text (people copy the YAML form); an empty text or null is an empty
    list.

    Raises
    ------
    ManifestError
        When it is no list of strings.
    """
    if isinstance(value, str):
        if not value:
            return ()
        value = load_json(value)
    if value is None:
        return ()
    return tuple("" if item is None else as_str(item) for item in as_list(value))


def _total(annotations: Mapping[str, str], least: int, notes: _Notes) -> int:
    text = annotations.get(ANNOTATION_TOTAL_NUMBER) or ""
    if not text:
        return least
    try:
        total = parse_decimal(text, bits=32)
    except ManifestError as error:
        notes.cannot_read(ANNOTATION_TOTAL_NUMBER, f"{error}; the minimum is taken")
        return least
    if total < least and total != 0:
        notes.took_default(ANNOTATION_TOTAL_NUMBER, f"{total} is below the minimum, which is taken: {least}")
    return least if total == 0 else max(total, least)


def _mode(annotations: Mapping[str, str], notes: _Notes) -> GangMode:
    text = annotations.get(ANNOTATION_MODE, "")
    try:
        return GangMode(text)
    except ValueError:
        if text:
            notes.took_default(
                ANNOTATION_MODE, f'expected Strict or NonStrict, got "{text}"; Strict is taken'
            )
        return GangMode.STRICT


def _match_policy(annotations: Mapping[str, str], args: CoschedulingArgs, notes: _Notes) -> str:
    key = ANNOTATION_MATCH_POLICY
    text = annotations.get(key) or ""
    if not text:
        key = ANNOTATION_MATCH_POLICY_ALIAS
        text = annotations.get(key) or ""
    try:
        return MatchPolicy(text)
    except ValueError:
        if text:
            known = ", ".join(MatchPolicy)
            notes.took_default(
                key, f'expected one of {known}, got "{text}"; "{args.default_match_policy}" is taken'
            )
        return args.default_match_policy


def _group(annotations: Mapping[str, str], own: str, notes: _Notes) -> tuple[str, ...]:
    try:
        group = parse_groups(annotations.get(ANNOTATION_GROUPS, ""))
    except ManifestError as error:
        notes.cannot_read(ANNOTATION_GROUPS, f"{error}; the gang stays alone")
        return (own,)
    return tuple(sorted(group)) or (own,)


def _topology(annotations: Mapping[str, str], notes: _Notes) -> NetworkTopologySpec | None:
    try:
        return parse_topology_spec(annotations.get(ANNOTATION_TOPOLOGY_SPEC, ""))
    except ManifestError as error:
        notes.cannot_read(ANNOTATION_TOPOLOGY_SPEC, f"{error}; a plain gang is taken")
        return None


def _parts(annotations: Mapping[str, str], notes: _Notes) -> dict[str, Any]:
    """Read what is ours: a gang whose parts cannot be read is refused with the text."""
    read: dict[str, Any] = {}
    for key, name, parse in (
        (ANNOTATION_SUB_GROUPS, "sub_groups", parse_sub_groups),
        (ANNOTATION_MIN_GROUPS, "min_groups", parse_min_groups),
    ):
        text = annotations.get(key) or ""
        try:
            if text:
                read[name] = parse(text)
        except ManifestError as error:
            notes.cannot_read(key, f"{error}; the gang is refused")
            read["malformed"] = f"{key}: {error}"
    return read


def _waiting_time(annotations: Mapping[str, str], args: CoschedulingArgs, notes: _Notes) -> int:
    text = annotations.get(ANNOTATION_WAITING_TIME) or ""
    if not text:
        return args.default_timeout
    try:
        wait = parse_duration(text)
    except ManifestError as error:
        notes.cannot_read(ANNOTATION_WAITING_TIME, f"{error}; the default is taken")
        return args.default_timeout
    if wait <= 0:
        notes.took_default(ANNOTATION_WAITING_TIME, f'"{text}" is not positive; the default is taken')
        return args.default_timeout
    return wait


def _gang_from_pod(
    gang_id: str,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    created: str | None,
    args: CoschedulingArgs,
    notes: _Notes,
) -> Gang | None:
    """Read the configuration that a pod carries for its gang; None without a readable minimum."""
    label = labels.get(LABEL_LIGHTWEIGHT_MIN_AVAILABLE) or ""
    text = label or annotations.get(ANNOTATION_MIN_AVAILABLE, "")
    try:
        least: int | None = parse_decimal(text, bits=32)
    except ManifestError as error:
        if label:
            notes.cannot_read(LABEL_LIGHTWEIGHT_MIN_AVAILABLE, str(error), where="labels")
        else:
            notes.cannot_read(ANNOTATION_MIN_AVAILABLE, str(error))
        least = None
    gang = Gang(
        id=gang_id,
        source=GangSource.POD_ANNOTATION,
        initialised=True,
        min_available=least or 0,
        total=_total(annotations, least or 0, notes),
        mode=_mode(annotations, notes),
        match_policy=_match_policy(annotations, args, notes),
        wait_time=_waiting_time(annotations, args, notes),
        group=_group(annotations, gang_id, notes),
        topology_spec=_topology(annotations, notes),
        created=created,
        **_parts(annotations, notes),
    )
    return None if least is None else gang


def parse_gang_pod(
    *,
    namespace: str,
    name: str,
    uid: str = "",
    labels: Mapping[str, str] = NO_TEXTS,
    annotations: Mapping[str, str] = NO_TEXTS,
    created: str | None = None,
    node_name: str = "",
    terminated: bool = False,
    args: CoschedulingArgs = DEFAULT_ARGS,
) -> ParsedGangPod:
    """Read what a pod says about its gang.

    The result's ``config`` is what the pod would configure a fresh gang with: None when its label leaves that
    to the PodGroup, or when it carries no readable minimum.

    Parameters
    ----------
    namespace, name, uid, labels, annotations
        Of the pod.
    created
        Its creation time as written (RFC 3339).
    node_name
        Where it runs; empty for nowhere.
    terminated
        It has run to its end.
    args
        Of the plugin Coscheduling.
    """
    gang = gang_name(labels, annotations)
    notes = _Notes()
    config = None
    by_crd = bool(found_in(labels, LABEL_POD_GROUP))
    if gang and not by_crd:
        config = _gang_from_pod(
            f"{namespace}/{gang}",
            labels=labels,
            annotations=annotations,
            created=created,
            args=args,
            notes=notes,
        )
    try:
        parse_topology_index(annotations)
    except ManifestError as error:
        notes.unreadable.extend(error.problems)
    pod = GangPod(
        key=f"{namespace}/{name}",
        uid=uid,
        gang_id=f"{namespace}/{gang}" if gang else "",
        by_crd=by_crd,
        node_name=node_name,
        terminated=terminated,
        config=config,
    )
    return ParsedGangPod(pod, tuple(notes.unreadable), tuple(notes.defaulted))


def gang_from_pod_group(pod_group: PodGroup, args: CoschedulingArgs = DEFAULT_ARGS) -> ParsedGang:
    """Read the configuration of a gang from its PodGroup."""
    notes = _Notes()
    annotations = pod_group.annotations
    seconds = pod_group.schedule_timeout_seconds
    gang = Gang(
        id=pod_group.id,
        source=GangSource.POD_GROUP,
        initialised=True,
        min_available=pod_group.min_member,
        total=_total(annotations, pod_group.min_member, notes),
        mode=_mode(annotations, notes),
        match_policy=_match_policy(annotations, args, notes),
        wait_time=seconds * SECOND if seconds is not None and seconds > 0 else args.default_timeout,
        group=_group(annotations, pod_group.id, notes),
        topology_spec=pod_group.topology_spec or _topology(annotations, notes),
        created=pod_group.created,
        **_parts(annotations, notes),
    )
    return ParsedGang(gang, tuple(notes.unreadable), tuple(notes.defaulted))


def binding_annotations(group: tuple[str, ...], members: int) -> dict[str, str]:
    """Annotations that tell a bound pod its gang group and how many members started together."""
    return {BIND_GANG_GROUP_ID: gang_group_id(group), BIND_GANG_MEMBER_COUNT: str(members)}
