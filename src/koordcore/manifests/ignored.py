"""Labels and annotations whose values upstream silently ignores or defaults: taken the same, and reported.

The plugins read these texts themselves, when they place a pod; here they are only looked at, so that whoever
wrote ``"allocateStrategy": "ApplyToAll"`` learns it from the loader (ruling 20).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from koordcore.errors import ManifestError, Problem
from koordcore.manifests._reading import Memory, Reading, as_strings
from koordcore.manifests.colocation_texts import strategy_text
from koordcore.manifests.idle_wishes import idle_wishes
from koordcore.manifests.text_checks import (
    IGNORED,
    Check,
    both,
    keyed,
    no_divisors,
    no_nulls,
    readable,
    unknown_word,
    word,
    words,
)
from koordcore.model.affinity import Affinity
from koordcore.model.device_requests import (
    AllocateStrategy,
    ExclusivePolicy,
    PartitionAllocatePolicy,
)
from koordcore.model.devices import (
    DeviceType,
)
from koordcore.model.nodes import Node
from koordcore.model.numa import CPUBindPolicy, CPUExclusivePolicy, NodeCPUBindPolicy, NUMAAllocateStrategy
from koordcore.model.pods import Pod
from koordcore.protocol.colocation import (
    ANNOTATION_COLOCATION_STRATEGY,
    ANNOTATION_THIRD_PARTY_ALLOCATIONS,
    STRATEGY_RATIO_LABELS,
    parse_ratio,
    third_party_allocations_of,
)
from koordcore.protocol.device import (
    DEVICE_ALLOCATE_HINT,
    DEVICE_ALLOCATED,
    DEVICE_JOINT_ALLOCATE,
    GPU_ISOLATION_PROVIDER,
    GPU_PARTITION_SPEC,
    parse_allocation,
    parse_hints,
    parse_joint,
    parse_partition_spec,
)
from koordcore.protocol.device_object import GPU_PARTITION_POLICY
from koordcore.protocol.expectations import (
    EXPECTED_DURATION,
    EXPECTED_END,
    parse_duration_expected,
    parse_end_expected,
)
from koordcore.protocol.fields import Json, as_mapping, field, load_json, optional, show
from koordcore.protocol.gang import ANNOTATION_TOPOLOGY_INDEX, parse_gang_pod
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.hints import (
    ANNOTATION_SCHEDULING_HINT,
    DEPRECATED_SCHEDULING_HINT,
    parse_scheduling_hint,
)
from koordcore.protocol.load import (
    ANNOTATION_SCALING_FACTORS,
    ANNOTATION_USAGE_THRESHOLDS,
    parse_scaling_factors,
    parse_usage_thresholds,
)
from koordcore.protocol.normalization import (
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_NORMALIZATION_RATIO,
    ANNOTATION_RAW_ALLOCATABLE,
    LABEL_NORMALIZATION_ENABLED,
    normalization_enabled_of,
    normalization_ratio_of,
    parse_amplification,
    parse_raw_allocatable,
)
from koordcore.protocol.numa import (
    ANNOTATION_NUMA_TOPOLOGY_SPEC,
    ANNOTATION_RESOURCE_SPEC,
    ANNOTATION_RESOURCE_STATUS,
    numa_topology_spec_of,
    parse_resource_status,
    resource_spec_of,
)
from koordcore.protocol.numa_nodes import (
    LABEL_NODE_CPU_BIND_POLICY,
    LABEL_NODE_NUMA_ALLOCATE_STRATEGY,
    LABEL_NODE_NUMA_TOPOLOGY_POLICY,
)
from koordcore.protocol.pod_qos import ANNOTATION_CPU_QOS, ANNOTATION_RESCTRL, parse_cpu_qos, parse_resctrl
from koordcore.protocol.qos import (
    LABEL_PRIORITY,
    LABEL_PRIORITY_CLASS,
    LABEL_QOS_CLASS,
    PriorityClass,
    QoSClass,
    sub_priority,
)
from koordcore.protocol.quota import PREEMPTIBLE
from koordcore.protocol.reservation import RESERVATION_IGNORED, RESERVATION_OWNERS, parse_owners
from koordcore.protocol.reserved_on_node import APPLY_POLICIES, NODE_RESERVATION, reserved_exactly
from koordcore.topology.numa import NUMAExclusive, NUMATopologyPolicy

_SCOPES: Final = ("Device", "PCIe", "NUMANode", "Node")
_OF_CARDS: Final = (
    (
        "allocateStrategy",
        "cards are counted by what the pod requests",
        (AllocateStrategy.APPLY_FOR_ALL, AllocateStrategy.REQUESTS_AS_COUNT),
    ),
)
_OF_OTHERS: Final = (("requiredTopologyScope", "only gpu is chosen by a scope", _SCOPES),)
_DESIGNATING: Final = ("DeviceShare", "NodeNUMAResource")


def no_debts(key: str, text: str) -> tuple[Problem, ...]:
    """Check that no amount of a device that a pod holds is negative, which counts for nothing."""
    try:
        raw = load_json(text)
        parse_allocation({DEVICE_ALLOCATED: text})
    except ManifestError:
        return ()  # said by the parser
    return tuple(
        Problem(f"{kind}[{place}].resources[{name}]", f"{show(amount)} counts for nothing")
        for kind, entries in (raw.items() if isinstance(raw, Mapping) else ())
        for place, entry in enumerate(entries or ())
        for name, amount in as_mapping(field(entry or {}, "resources", fold_case=True) or {}).items()
        if str(amount).startswith("-")
    )


def heeded_fields(key: str, text: str) -> tuple[Problem, ...]:
    """Check that a scope of the topology is required of cards alone, and a way to count of all others."""
    try:
        raw = load_json(text)
    except ManifestError:
        return ()  # said by the parser
    return tuple(
        Problem(f"{kind}.{name}", f"{reason}; {IGNORED}")
        for kind, hint in (raw.items() if isinstance(raw, Mapping) else ())
        if kind in tuple(DeviceType) and isinstance(hint, Mapping)
        for name, reason, words in (_OF_CARDS if kind == DeviceType.GPU else _OF_OTHERS)
        if field(hint, name, fold_case=True) in words
    )


def joint_types(key: str, text: str) -> tuple[Problem, ...]:
    """Check that the types of devices that go together are known ones."""
    try:
        raw = load_json(text)
    except ManifestError:
        return ()  # said by the parser
    named = field(raw, "deviceTypes", fold_case=True) if isinstance(raw, Mapping) else None
    return tuple(
        unknown_word(f"deviceTypes[{index}]", one, tuple(DeviceType))
        for index, one in enumerate(named if isinstance(named, list) else ())
        if isinstance(one, str) and one not in tuple(DeviceType)
    )


def hinted_plugins(key: str, text: str) -> tuple[Problem, ...]:
    """Check that the extensions of a scheduling hint are plugins that take designated allocations."""
    try:
        hint = parse_scheduling_hint({key: text})
    except ManifestError:
        return ()  # said by the parser
    return tuple(
        unknown_word(f"extensions[{name}]", name, _DESIGNATING)
        for name in (() if hint is None else hint.extensions)
        if name not in _DESIGNATING
    )


def misplaced(key: str, text: str) -> tuple[Problem, ...]:
    """Say that a label stands among the annotations."""
    return (Problem("", f"a label is meant; as an annotation {IGNORED}"),)


def beyond_all(key: str, text: str) -> tuple[Problem, ...]:
    """Check that no share of a cache or of bandwidth is more than all of it."""
    try:
        limits = parse_resctrl(text)
    except ManifestError:
        return ()  # said by the parser
    ranges = (limits.llc.range, *(one for _, one in limits.llc.per_cache))
    shares = (limits.mb.percent, *(one for _, one in limits.mb.per_cache))
    return (
        *(
            Problem("llc", f"range {list(one)} goes beyond 100 %")
            for one in ranges
            if max(one, default=0) > 100
        ),
        *(Problem("mb", f"{one} % is more than all of it") for one in shares if one > 100),
    )


def _object(text: str) -> Mapping[str, Json]:
    return as_mapping(load_json(text))


def _exact_match(text: str) -> tuple[str, ...]:
    """Read the names of an exact match; one of the release notes prints them as a set, which JSON has not."""
    try:
        return optional(_object(text), "resourceNames", as_strings, (), fold_case=True)
    except ManifestError as error:
        first = error.problems[0]
        hint = f'{first.message}; write {{"resourceNames":["cpu","memory"]}}'
        raise ManifestError.at(first.path, hint) from None


_BOOLEAN: Final = word("true", "false")

POD_ANNOTATIONS: Final[Mapping[str, Check]] = {
    DEVICE_ALLOCATE_HINT: both(
        keyed(parse_hints),
        words(
            {
                "allocateStrategy": tuple(AllocateStrategy),
                "exclusivePolicy": tuple(ExclusivePolicy),
                "requiredTopologyScope": _SCOPES,
            },
            of_each=tuple(DeviceType),
        ),
        heeded_fields,
    ),
    DEVICE_JOINT_ALLOCATE: both(keyed(parse_joint), words({"requiredScope": ("SamePCIe",)}), joint_types),
    GPU_PARTITION_SPEC: both(
        keyed(parse_partition_spec), words({"allocatePolicy": tuple(PartitionAllocatePolicy)})
    ),
    DEVICE_ALLOCATED: both(keyed(parse_allocation), no_debts),
    ANNOTATION_RESOURCE_SPEC: both(
        keyed(resource_spec_of),
        words(
            {
                "requiredCPUBindPolicy": tuple(CPUBindPolicy),
                "preferredCPUBindPolicy": tuple(CPUBindPolicy),
                "preferredCPUExclusivePolicy": tuple(CPUExclusivePolicy),
            }
        ),
    ),
    ANNOTATION_RESOURCE_STATUS: readable(parse_resource_status),
    ANNOTATION_NUMA_TOPOLOGY_SPEC: both(
        keyed(numa_topology_spec_of),
        words(
            {
                "singleNUMANodeExclusive": tuple(NUMAExclusive),
            }
        ),
        words({"numaTopologyPolicy": tuple(NUMATopologyPolicy)}, effect="no node takes the pod"),
    ),
    "scheduling.koordinator.sh/exact-match-reservation": readable(_exact_match),
    "scheduling.koordinator.sh/reservation-affinity": readable(_object),
    RESERVATION_OWNERS: readable(parse_owners),
    ANNOTATION_SCHEDULING_HINT: both(keyed(parse_scheduling_hint), hinted_plugins),
    DEPRECATED_SCHEDULING_HINT: both(keyed(parse_scheduling_hint), hinted_plugins),
    ANNOTATION_SCALING_FACTORS: both(readable(parse_scaling_factors), no_nulls),
    ANNOTATION_RESCTRL: both(readable(parse_resctrl), beyond_all),
    RESERVATION_IGNORED: misplaced,
    GPU_ISOLATION_PROVIDER: misplaced,
    ANNOTATION_CPU_QOS: readable(parse_cpu_qos),
    EXPECTED_END: readable(parse_end_expected),
    EXPECTED_DURATION: readable(parse_duration_expected),
}
POD_LABELS: Final[Mapping[str, Check]] = {
    LABEL_QOS_CLASS: word(*(one for one in QoSClass if one is not QoSClass.NONE)),
    LABEL_PRIORITY_CLASS: word(*(one for one in PriorityClass if one is not PriorityClass.NONE)),
    LABEL_PRIORITY: keyed(sub_priority),
    PREEMPTIBLE: _BOOLEAN,
}
NODE_ANNOTATIONS: Final[Mapping[str, Check]] = {
    ANNOTATION_USAGE_THRESHOLDS: readable(parse_usage_thresholds),
    ANNOTATION_AMPLIFICATION_RATIO: both(keyed(parse_amplification), no_nulls, no_divisors),
    ANNOTATION_RAW_ALLOCATABLE: keyed(parse_raw_allocatable),
    NODE_RESERVATION: both(
        keyed(reserved_exactly),
        words({"applyPolicy": APPLY_POLICIES}, effect=f"it counts as {APPLY_POLICIES[0]}"),
    ),
    ANNOTATION_COLOCATION_STRATEGY: strategy_text,
    ANNOTATION_THIRD_PARTY_ALLOCATIONS: keyed(third_party_allocations_of),
    ANNOTATION_NORMALIZATION_RATIO: keyed(normalization_ratio_of),
}
NODE_LABELS: Final[Mapping[str, Check]] = {
    LABEL_NODE_NUMA_TOPOLOGY_POLICY: word(*NUMATopologyPolicy, effect="the node takes no pod"),
    LABEL_NODE_CPU_BIND_POLICY: word(*NodeCPUBindPolicy, "None"),
    LABEL_NODE_NUMA_ALLOCATE_STRATEGY: word(*NUMAAllocateStrategy),
    GPU_PARTITION_POLICY: word("Honor", "Prefer"),
    LABEL_NORMALIZATION_ENABLED: keyed(normalization_enabled_of),
    **dict.fromkeys(STRATEGY_RATIO_LABELS, readable(parse_ratio)),
}
_CHECKS: Final = {
    "metadata.annotations": {**POD_ANNOTATIONS, **NODE_ANNOTATIONS},
    "metadata.labels": {**POD_LABELS, **NODE_LABELS},
}


def check_pod(reading: Reading, pod: Pod) -> None:
    """Warn about what a pod says in vain."""
    check_preferences(reading, pod.affinity)
    reading.warnings += idle_wishes(pod)
    _check(reading, pod.annotations, POD_ANNOTATIONS, "metadata.annotations")
    _check(reading, pod.labels, POD_LABELS, "metadata.labels")
    if gang_name(pod.labels, pod.annotations) or ANNOTATION_TOPOLOGY_INDEX in pod.annotations:
        parsed = parse_gang_pod(
            namespace=pod.namespace, name=pod.name, labels=pod.labels, annotations=pod.annotations
        )
        reading.warnings += (*parsed.unreadable, *parsed.defaulted)


def check_holdings(reading: Reading, pod: Pod) -> None:
    """Say what a pod that runs holds by texts that cannot be read: nobody knows which devices and CPUs."""
    for key in (DEVICE_ALLOCATED, ANNOTATION_RESOURCE_STATUS):
        text = pod.annotations.get(key)
        try:
            if text and key == DEVICE_ALLOCATED:
                parse_allocation(pod.annotations)
            elif text:
                parse_resource_status(text)
        except ManifestError as error:
            reading.note(error, f"metadata.annotations[{key}]")


def check_preferences(reading: Reading, affinity: Affinity | None) -> None:
    """Warn about conditions on node labels that compare with what is no integer: they match no node."""
    if affinity is None or affinity.node is None:
        return
    when = "DuringSchedulingIgnoredDuringExecution"
    required = affinity.node.required.terms if affinity.node.required else ()
    terms = [(f"required{when}.nodeSelectorTerms[{number}]", one) for number, one in enumerate(required)]
    terms += [
        (f"preferred{when}[{number}].preference", one.term)
        for number, one in enumerate(affinity.node.preferred)
    ]
    for place, term in terms:
        for number, one in enumerate(term.expressions):
            if not one.comparable:
                path = f"spec.affinity.nodeAffinity.{place}.matchExpressions[{number}].values[0]"
                message = f"{one.operator} needs an integer, got {show(one.values[0])}; it matches no node"
                reading.warn(path, message)


def check_node(reading: Reading, node: Node) -> None:
    """Warn about what a node says in vain."""
    _check(reading, node.annotations, NODE_ANNOTATIONS, "metadata.annotations")
    _check(reading, node.labels, NODE_LABELS, "metadata.labels")


def _check(reading: Reading, texts: Mapping[str, str], checks: Mapping[str, Check], where: str) -> None:
    if checks.keys().isdisjoint(texts):
        return
    memory: Memory = reading.memory
    for key in checks:
        if key in texts:
            reading.warnings += memory.once(_found, [where, key, texts[key]])


def _found(entry: Json) -> tuple[Problem, ...]:
    """Look at one text; paths come out as they are in the object."""
    assert isinstance(entry, list)
    where, key, text = entry
    place = f"{where}[{key}]"
    return tuple(
        problem if problem.path.startswith(place) else problem.within(place)
        for problem in _CHECKS[where][key](key, text)
    )
