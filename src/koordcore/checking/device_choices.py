"""Devices that a pod must be given: designated ones, and virtual cards by a template of their vendor."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from koordcore.checking.devices import ALLOCATED, RATIO, SHARED
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import KoordcoreError
from koordcore.model.decisions import Bound
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.devices import DeviceObject, SharedResourceTemplates, SharedTemplates
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.quantity import parse_quantity
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

HINTS: Final = (
    "internal.scheduling.koordinator.sh/scheduling-hint",
    "scheduling.koordinator.sh/scheduling-hint",
)
PLUGIN: Final = "DeviceShare"
VENDOR, MODEL = "node.koordinator.sh/gpu-vendor", "node.koordinator.sh/gpu-model"


def check_device_choices(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """New pods hold what they were designated, and virtual cards that their vendor knows."""
    if not result.policy.filters(PLUGIN):
        return
    setting = result.policy.plugin(PLUGIN)
    policy = (setting.args if setting is not None else None) or DEFAULT_DEVICE_POLICY
    namespace, name = policy.template_source
    record = snapshot.find(SharedTemplates, name, namespace)
    templates: SharedResourceTemplates | Mapping[str, Any] = {} if record is None else record.templates
    devices = {one.name for one in snapshot.of(DeviceObject)}
    waiting = {pod.key: pod for pod in snapshot.pending}
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    for state in result.snapshot.nodes:
        for pod in state.pods if state.name in devices else ():
            if pod.key in new:
                yield from _check_template(pod, state, templates, policy)
                if pod.key in waiting:
                    yield from _check_designated(waiting[pod.key], pod)


def _held(pod: Pod) -> Mapping[str, list[Mapping[str, Any]]]:
    """Read what a pod holds; what cannot be read is another check's."""
    try:
        return {kind: list(entries or ()) for kind, entries in json.loads(pod.annotations[ALLOCATED]).items()}
    except (KeyError, ValueError, AttributeError, TypeError):
        return {}


def _hinted(pod: Pod) -> bool:
    text = next((pod.annotations[key] for key in HINTS if pod.annotations.get(key)), "")
    try:
        found = {str(key).lower(): value for key, value in json.loads(text or "{}").items()}
        return PLUGIN in (found.get("extensions") or {})
    except (ValueError, AttributeError, TypeError):
        return False


def _check_designated(before: Pod, after: Pod) -> Iterator[Violation]:
    if not before.annotations.get(ALLOCATED) or not _hinted(before):
        return
    wanted, given = _held(before), _held(after)
    for kind, entries in sorted(wanted.items()):
        there = {int(one.get("minor", 0)) for one in entries}
        got = {int(one.get("minor", 0)) for one in given.get(kind, ())}
        # A type that the pod does not ask for is designated to no purpose.
        if got and got != there:
            shown = ",".join(map(str, sorted(got)))
            yield _broken(after, f"holds {kind} {shown} instead of those that it was designated")


def _check_template(
    pod: Pod, state: NodeState, templates: Mapping[str, Any], policy: DevicePolicy
) -> Iterator[Violation]:
    if not pod.requests.get(SHARED) or not any(pod.requests.get(name) for name in policy.template_resources):
        return
    labels = state.node.labels
    known = templates.get(f"{labels.get(VENDOR, '')}-{labels.get(MODEL, '')}", {})
    for card in _held(pod).get("gpu", ()):
        named = (card.get("extension") or {}).get("gpuSharedResourceTemplate", "")
        try:
            amounts = {key: parse_quantity(one) for key, one in (card.get("resources") or {}).items()}
        except KoordcoreError:
            continue
        # The share of the card's memory is filled in beside what the template says.
        template = {RATIO: amounts.get(RATIO, 0), **known.get(named, {})}
        if named not in known or {RATIO: amounts.get(RATIO, 0), **amounts} != template:
            yield _broken(pod, f"gpu {card.get('minor', 0)} is no virtual card of a template of its vendor")


def _broken(pod: Pod, message: str) -> Violation:
    return Violation(ViolationKind.DEVICE, str(pod.key), message)
