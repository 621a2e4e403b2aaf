"""Parts of a gang as annotations say them, and which member belongs to which part.

Ours, and so strict: what cannot be read or means nothing is an error of the gang, with the right spelling.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.errors import ManifestError
from koordcore.model.gangs import GatherRule, GatherStrategy, NetworkTopologySpec
from koordcore.model.naming import natural_key
from koordcore.model.pods import Pod, PodKey
from koordcore.model.sub_groups import SubGroup, SubGroups
from koordcore.protocol.fields import (
    Json,
    as_int,
    as_labels,
    as_list,
    as_mapping,
    as_str,
    collect,
    list_of,
    load_json,
    optional,
    required,
    show,
)
from koordcore.protocol.gathering import parse_gather_rule
from koordcore.protocol.numbers import parse_decimal

LABEL_SUB_GROUP: Final = "gang.scheduling.koordinator.sh/sub-group"
"""Label, or annotation, of a pod: the part of its gang that it belongs to."""
ANNOTATION_SUB_GROUPS: Final = "gang.scheduling.koordinator.sh/sub-groups"
ANNOTATION_MIN_GROUPS: Final = "gang.scheduling.koordinator.sh/min-groups"
"""How many gangs of a group have to start; all where nobody says it."""

_ENTRY: Final = ("name", "matchLabels", "by", "size", "minMember", "minReplicas", "gatherStrategy")
_WHOLE: Final = ("subGroups", "minSubGroups")
_RULE: Final = ("layer", "strategy", "podCountMultiple")


def parse_min_groups(text: str) -> int:
    """Read how many gangs of a group have to start.

    Raises
    ------
    ManifestError
        When it is no number above zero.
    """
    number = parse_decimal(text, bits=32)
    if number < 1:
        raise ManifestError.at("", f"expected 1 or more, got {show(text)}")
    return number


def parse_sub_groups(text: str) -> SubGroups:
    """Read the annotation ``sub-groups``.

    Raises
    ------
    ManifestError
        With the path of what has the wrong shape, is unknown, or contradicts itself.
    """
    raw = as_mapping(load_json(text))
    _known(raw, _WHOLE)
    entries = required(raw, "subGroups", list_of(_entry))
    least = optional(raw, "minSubGroups", _count, 0)
    if not entries:
        raise ManifestError.at("subGroups", "names no part")
    names = [entry.name for entry in entries]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise ManifestError.at(f"subGroups[{number}].name", f"{show(name)} stands there twice")
    if least > len(entries):
        raise ManifestError.at("minSubGroups", f"{least} of {len(entries)} parts")
    return SubGroups(entries=entries, least=least)


def _known(raw: Mapping[str, Json], names: Sequence[str]) -> None:
    for name in raw:
        if name not in names:
            raise ManifestError.at(name, f"unknown field; known are {', '.join(names)}")


def _count(value: Json) -> int:
    number = as_int(value)
    if number < 1:
        raise ManifestError.at("", f"expected 1 or more, got {number}")
    return number


def _entry(raw: Json) -> SubGroup:
    entry = as_mapping(raw)
    _known(entry, _ENTRY)
    name = required(entry, "name", as_str)
    if not name:
        raise ManifestError.at("name", "is empty")
    found = SubGroup(
        name=name,
        match_labels=optional(entry, "matchLabels", as_labels, immutabledict()),
        by=optional(entry, "by", as_str, ""),
        size=optional(entry, "size", _count, 0),
        min_member=optional(entry, "minMember", _count, 0),
        min_replicas=optional(entry, "minReplicas", _count, 0),
        spec=NetworkTopologySpec(optional(entry, "gatherStrategy", _rules, ())),
    )
    if found.by and found.size:
        raise ManifestError.at("size", "parts are told apart by a label or by their size, not by both")
    if found.size and found.min_member > found.size:
        raise ManifestError.at("minMember", f"{found.min_member} of {found.size} members")
    if found.min_replicas > 1 and not (found.by or found.size):
        raise ManifestError.at("minReplicas", "there is one such part; by or size make several")
    return found


def _rules(raw: Json) -> tuple[GatherRule, ...]:
    return collect(_rule, as_list(raw))


def _rule(raw: Json) -> GatherRule:
    entry = as_mapping(raw)
    _known(entry, _RULE)
    rule = parse_gather_rule({"strategy": GatherStrategy.MUST_GATHER, **entry})
    if not rule.layer:
        raise ManifestError.at("layer", "is missing")
    if not rule.must and rule.strategy != GatherStrategy.PREFER_GATHER:
        raise ManifestError.at("strategy", f"{show(rule.strategy)} is none of {', '.join(GatherStrategy)}")
    if not rule.must and rule.pod_count_multiple < 2:
        raise ManifestError.at("strategy", "a part gathers by MustGather; wishes belong to the whole gang")
    if rule.pod_count_multiple < 0:
        raise ManifestError.at("podCountMultiple", f"{rule.pod_count_multiple} is below zero")
    return rule


@record(kw_only=True)
class Part:
    """One part of a gang with its members.

    Parameters
    ----------
    name
        Of the entry, with a label's value or a number behind a slash where the entry makes several.
    entry
        Position of the entry; -1 for members that belong to none.
    members
        In rank order.
    least
        How many of them it needs.
    """

    name: str
    entry: int
    members: tuple[Pod, ...]
    least: int


def split_members(
    groups: SubGroups, pods: Iterable[Pod], rank_of: Callable[[Pod], int | None]
) -> tuple[Part, ...]:
    """Part the members of a gang; those that belong nowhere come last, and nobody of them is needed.

    Parameters
    ----------
    pods
        All members: who runs, who ran to an end, who waits.
    rank_of
        Gives a member's rank.
    """
    pods = tuple(pods)
    ranks = {pod.key: rank_of(pod) for pod in pods}
    chosen: dict[int, list[Pod]] = {number: [] for number in (*range(len(groups.entries)), -1)}
    for pod in sorted(
        pods, key=lambda one: (ranks[one.key] is None, ranks[one.key] or 0, natural_key(one.name))
    ):
        chosen[_entry_of(groups, pod)].append(pod)
    parts = []
    for number, entry in enumerate(groups.entries):
        for name, members in _cut(entry, chosen[number], ranks):
            least = entry.min_member or max(1, len(members))
            parts.append(Part(name=name, entry=number, members=tuple(members), least=least))
    if chosen[-1]:
        parts.append(Part(name="", entry=-1, members=tuple(chosen[-1]), least=0))
    return tuple(parts)


def _entry_of(groups: SubGroups, pod: Pod) -> int:
    named = pod.labels.get(LABEL_SUB_GROUP) or pod.annotations.get(LABEL_SUB_GROUP, "")
    for number, entry in enumerate(groups.entries):
        if entry.match_labels:
            if all(pod.labels.get(key) == value for key, value in entry.match_labels.items()):
                return number
        elif entry.name == named or (not named and entry.by and entry.by in pod.labels):
            return number
    return -1


def _cut(
    entry: SubGroup, members: Sequence[Pod], ranks: Mapping[PodKey, int | None]
) -> Iterable[tuple[str, list[Pod]]]:
    if entry.by:
        values: dict[str, list[Pod]] = {}
        for pod in members:
            values.setdefault(pod.labels.get(entry.by, ""), []).append(pod)
        return [(f"{entry.name}/{value}", values[value]) for value in sorted(values, key=natural_key)]
    if not entry.size:
        return [(entry.name, list(members))]
    known = [rank for pod in members if (rank := ranks[pod.key]) is not None]
    slices: dict[int, list[Pod]] = {}
    for position, pod in enumerate(members):
        # Ranks stay where a member is gone for a while; positions do not.
        rank = ranks[pod.key] if len(known) == len(members) else None
        slices.setdefault((position if rank is None else rank - min(known)) // entry.size, []).append(pod)
    return [(f"{entry.name}/{number}", slices[number]) for number in sorted(slices)]
