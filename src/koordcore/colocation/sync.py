"""What is written to a node, and when it is worth a write.

Rules: upstream ``noderesource/framework`` and the ``Prepare``/``NeedSync`` methods of its plugins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.colocation.amounts import bytes_up, ceil_divide
from koordcore.colocation.batch import Batch, BatchOutcome, Degraded, Failed, batch_of_node
from koordcore.colocation.config import effective_strategy, is_disabled
from koordcore.colocation.mid import Mid, MidOutcome, mid_of_node
from koordcore.colocation.normalization import (
    amplification_changed,
    amplification_ratios,
    as_reported,
    normalization_changed,
    normalization_ratio,
)
from koordcore.errors import ManifestError
from koordcore.model.colocation import (
    DEFAULT_STRATEGY,
    ColocationConfig,
    ColocationStrategy,
    NodeLoad,
    overlay,
)
from koordcore.model.durations import SECOND
from koordcore.model.metrics import NOTHING_MEASURED, Measured
from koordcore.model.quantity import NANO
from koordcore.model.resources import AMOUNT_LIMIT, BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordcore.protocol.colocation import (
    format_origin_allocatable,
    third_party_allocations_of,
)
from koordcore.protocol.normalization import (
    ANNOTATION_AMPLIFICATION_RATIO,
    ANNOTATION_NORMALIZATION_RATIO,
    AmplificationConfig,
    NormalizationConfig,
    format_amplification,
    normalization_ratio_of,
)
from koordcore.protocol.qos import PriorityClass

_MILLI: Final = NANO // 1000
_MOST: Final = AMOUNT_LIMIT * 1000
_BATCH: Final = (BATCH_CPU, BATCH_MEMORY)
_MID: Final = (MID_CPU, MID_MEMORY)
_DISABLED: Final = "node colocation is disabled in Config, reason: DisableInConfig"


@record(kw_only=True)
class NodeStatus:
    """The part of a node that is written.

    Parameters
    ----------
    capacity, allocatable
        Exact amounts by name; ``None`` where the status has no allocatable.
    annotations
        ``None`` where the node has none at all.
    """

    capacity: Measured = NOTHING_MEASURED
    allocatable: Measured | None = NOTHING_MEASURED
    annotations: immutabledict[str, str] | None = None


@record(kw_only=True)
class NodeResource:
    """What one cycle computed for a node.

    Parameters
    ----------
    resources
        Exact amounts by name; what is absent is withdrawn.
    resets
        Names that are withdrawn even if an amount is given.
    annotations
        Ratios of this cycle.
    messages
        How each amount came about, or why it is withdrawn.
    zone_resources
        Exact amounts per NUMA node.
    """

    resources: Measured = NOTHING_MEASURED
    resets: tuple[str, ...] = ()
    annotations: immutabledict[str, str] = immutabledict()
    messages: immutabledict[str, str] = immutabledict()
    zone_resources: immutabledict[str, Measured] = immutabledict()


def amplification_of(annotations: Mapping[str, str]) -> float:
    """Give the normalization ratio of this cycle; what cannot be read amplifies nothing."""
    try:
        return normalization_ratio_of(annotations) or 1.0
    except ManifestError:
        return 1.0


def amplified(amount: int, ratio: float) -> int:
    """Multiply in thousandths and cut; upstream's extended resources are rounded up to integers later.

    What would be more than can be counted stays as it is.
    """
    product = float(ceil_divide(amount, _MILLI)) * ratio
    return int(product) * _MILLI if ratio > 1 and product <= _MOST else amount


def amplified_batch_cpu(milli_cores: int, annotations: Mapping[str, str]) -> int:
    """Give milli-cores of batch cpu in normalized cores, by the ratio among some annotations."""
    return bytes_up(amplified(milli_cores * NANO, amplification_of(annotations))) if milli_cores else 0


def prepare_node(node: NodeStatus, resource: NodeResource) -> NodeStatus:
    """Put a cycle's results on a node, as upstream's plugins do one after the other.

    Ratios first, then mid, then batch: amplified by the ratio of this cycle, recorded as the origin, less
    what third parties hold, never below zero.

    Notes
    -----
    A node without allocatable is lent nothing. A node without any annotation gets no origin annotation
    either (unless a ratio is written), as upstream's nodes do.
    """
    notes = dict(node.annotations or {})
    had_notes = node.annotations is not None
    for key in (ANNOTATION_NORMALIZATION_RATIO, ANNOTATION_AMPLIFICATION_RATIO):
        if key in resource.annotations:
            notes[key] = resource.annotations[key]
            had_notes = True
        elif key == ANNOTATION_AMPLIFICATION_RATIO:
            notes.pop(key, None)
    amounts = {
        name: amount
        for name, amount in resource.resources.items()
        if name in (*_MID, *_BATCH) and name not in resource.resets
    }
    if node.allocatable is None:
        amounts.clear()
    if BATCH_CPU in amounts:
        amounts[BATCH_CPU] = amplified(amounts[BATCH_CPU], amplification_of(resource.annotations))
    amounts = {name: bytes_up(amount) * NANO for name, amount in amounts.items()}
    if had_notes:
        origin = {name: amounts.get(name, 0) // NANO for name in _BATCH}
        key, text = format_origin_allocatable(notes, origin)
        notes[key] = text
    if all(name in amounts for name in _BATCH):
        for name, held in _held_by_third_parties(notes).items():
            amounts[name] = max(amounts[name] - held, 0)
    return NodeStatus(
        capacity=_written(node.capacity, amounts),
        allocatable=None if node.allocatable is None else _written(node.allocatable, amounts),
        annotations=immutabledict(sorted(notes.items())) if had_notes else None,
    )


def _held_by_third_parties(annotations: Mapping[str, str]) -> dict[str, int]:
    held: dict[str, int] = {}
    try:
        allocations = third_party_allocations_of(annotations)
    except ManifestError:
        return held
    for allocation in allocations:
        if allocation.priority == PriorityClass.BATCH:
            for name in _BATCH:
                held[name] = held.get(name, 0) + allocation.resources.get(name, 0)
    return held


def _written(old: Measured, amounts: Mapping[str, int]) -> Measured:
    kept = {name: amount for name, amount in old.items() if name not in (*_MID, *_BATCH)}
    return immutabledict(sorted({**kept, **amounts}.items()))


def is_different(old: int | None, new: int | None, threshold: float) -> bool:
    """Tell whether an exact amount changed by more than a ratio of the old one, or came or went."""
    if old is None or new is None:
        return old is not new
    before, after = ceil_divide(old, _MILLI), ceil_divide(new, _MILLI)
    return abs(after - before) > before * threshold


def is_due(last: int | None, seconds: int | None, now: int) -> bool:
    """Tell whether more than so many seconds have passed since then; nanoseconds in."""
    return last is None or now - last > (seconds or 0) * SECOND


def needs_status_sync(
    strategy: ColocationStrategy,
    old: Mapping[str, int] | None,
    new: Mapping[str, int] | None,
    *,
    last_sync: int | None,
    now: int,
) -> bool:
    """Decide whether a node's status is to be written.

    Parameters
    ----------
    strategy
        Its time and difference thresholds count; defaults where it says nothing.
    old, new
        Exact allocatable amounts before and after; a node that comes without any is never written.
    last_sync
        Moment of the last write; ``None`` before the first.
    now
        Moment of the decision, nanoseconds since 1970.
    """
    if new is None:
        return False
    strategy = overlay(DEFAULT_STRATEGY, strategy)
    if is_due(last_sync, strategy.update_time_threshold_seconds, now):
        return True
    threshold = strategy.resource_diff_threshold or 0.0
    before = NOTHING_MEASURED if old is None else old
    return any(is_different(before.get(name), new.get(name), threshold) for name in (*_MID, *_BATCH))


def needs_meta_sync(old: Mapping[str, str], new: Mapping[str, str]) -> bool:
    """Decide by a node's annotations whether its ratios are to be written; the origin alone never is."""
    return normalization_changed(old, new).needed or amplification_changed(old, new).needed


@record(kw_only=True)
class Cycle:
    """One round of the controller for one node.

    Parameters
    ----------
    disabled
        Whether colocation is off for the node.
    strategy
        The strategy in force.
    batch, mid
        What was computed; ``None`` while colocation is off.
    resource
        What was computed, merged.
    prepared
        The node with it.
    sync_status, sync_meta
        Whether status and annotations are to be written.
    """

    disabled: bool
    strategy: ColocationStrategy
    batch: BatchOutcome | None
    mid: MidOutcome | None
    resource: NodeResource
    prepared: NodeStatus
    sync_status: bool
    sync_meta: bool


def run_cycle(
    node: NodeLoad,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None,
    config: ColocationConfig,
    *,
    last_sync: int | None,
    now: int,
    topology_annotations: Mapping[str, str] | None = None,
    normalization: NormalizationConfig | None = NormalizationConfig(),  # noqa: B008 - immutable
    amplification: AmplificationConfig | None = AmplificationConfig(),  # noqa: B008 - immutable
) -> Cycle:
    """Compute, prepare and decide what to write for one node.

    Parameters
    ----------
    node, labels, annotations
        The node with its pods and measurements.
    config
        Completed configuration (:func:`koordcore.colocation.config.completed_config`).
    last_sync
        Moment of the last write of its status; ``None`` before the first.
    now
        Moment of the decision, nanoseconds since 1970.
    topology_annotations
        Annotations of its NodeResourceTopology; ``None`` without one.
    normalization, amplification
        The two ratio configurations; ``None`` when one could not be read at the start.
    """
    notes = annotations or {}
    strategy = effective_strategy(config, labels, notes)
    disabled = is_disabled(config, strategy)
    batch: BatchOutcome | None = None
    mid: MidOutcome | None = None
    ratios: dict[str, str] = {}
    if not disabled:
        ratio = normalization_ratio(normalization, labels, topology_annotations)
        if not isinstance(ratio, Failed):
            ratios[ANNOTATION_NORMALIZATION_RATIO] = f"{ratio:.2f}"
        factors = amplification_ratios(amplification, node.name, labels, notes)
        if not isinstance(factors, Failed) and factors:
            ratios[ANNOTATION_AMPLIFICATION_RATIO] = format_amplification(factors)
        offered = node.allocatable and as_reported(node.allocatable, notes)
        load = attrs.evolve(node, allocatable=offered)
        mid = mid_of_node(load, strategy, now)
        batch = batch_of_node(load, strategy, now)
    resource = _merge(batch, mid, ratios)
    before = NodeStatus(
        capacity=node.capacity,
        allocatable=node.allocatable,
        annotations=None if annotations is None else immutabledict(annotations),
    )
    prepared = prepare_node(before, resource)
    return Cycle(
        disabled=disabled,
        strategy=strategy,
        batch=batch,
        mid=mid,
        resource=resource,
        prepared=prepared,
        sync_status=needs_status_sync(
            strategy, before.allocatable, prepared.allocatable, last_sync=last_sync, now=now
        ),
        sync_meta=needs_meta_sync(notes, prepared.annotations or {}),
    )


def _merge(batch: BatchOutcome | None, mid: MidOutcome | None, ratios: Mapping[str, str]) -> NodeResource:
    amounts: dict[str, int] = {}
    messages: dict[str, str] = {}
    resets: list[str] = []
    zones: dict[str, Measured] = {}
    for names, outcome in ((_MID, mid), (_BATCH, batch)):
        match outcome:
            case Batch() | Mid():
                messages.update(zip(names, (outcome.cpu.message, outcome.memory.message), strict=True))
            case Degraded(message):
                messages.update(dict.fromkeys(names, message))
                resets += names
            case Failed():
                pass
            case None:
                messages.update(dict.fromkeys(names, _DISABLED))
                resets += names
    if isinstance(mid, Mid):
        amounts.update((name, amount * NANO) for name, amount in mid.resources.items())
    if isinstance(batch, Batch):
        amounts.update(batch.exact)
        for zone, lent in batch.zones.items():
            zones[zone] = immutabledict((name, amount * NANO) for name, amount in lent.items())
    return NodeResource(
        resources=immutabledict(sorted(amounts.items())),
        resets=tuple(sorted(resets)),
        annotations=immutabledict(ratios),
        messages=immutabledict(sorted(messages.items())),
        zone_resources=immutabledict(zones),
    )
