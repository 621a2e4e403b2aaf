"""What prod pods asked for and, by prediction, will not use.

Two predictors look at the same node, one pod by pod and one by priority class; the smaller answer holds.
Rules: upstream ``koordlet/prediction``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.colocation.amounts import MILLI_CORE, NO_AMOUNTS, Amounts, amounts_of, bytes_up, milli_up
from koordcore.colocation.batch import Failed
from koordcore.colocation.prediction import SYSTEM_MODEL, PredictionState, class_model, predict
from koordcore.errors import ManifestError
from koordcore.model.durations import MINUTE
from koordcore.model.metrics import NOTHING_MEASURED, Measured, measured_of
from koordcore.model.quantity import NANO
from koordcore.model.resources import CPU, MEMORY
from koordcore.protocol.normalization import parse_raw_allocatable
from koordcore.protocol.qos import PriorityClass

COLD_START: Final = 24 * 60 * MINUTE
"""How old a pod must be before its model is trusted."""
SAFETY_MARGIN_PERCENT: Final = 10

_CLASSES: Final = (PriorityClass.PROD, PriorityClass.NONE)
_NO_ALLOCATABLE: Final = (
    "failed to get allocatable of node, err=invalid node, for node.status.allocation is nil"
)
_ENDED: Final = ("Succeeded", "Failed")

Peaks: TypeAlias = Callable[[str], Measured | None]
"""Model id to the 95th percentile of cpu and the 98th of memory, exact; ``None`` without such a model."""


@record(kw_only=True)
class PeakPod:
    """A pod with a fresh metric, as prediction sees it.

    Parameters
    ----------
    uid, namespace, name
        The pod; its uid names its model.
    request
        Effective request, exact.
    priority_class
        With the QoS default applied.
    created
        Moment of its creation, nanoseconds since 1970; ``None`` counts as long ago.
    phase, terminating
        Pods that ended or are being deleted take no part.
    """

    uid: str
    namespace: str
    name: str
    request: Measured = NOTHING_MEASURED
    priority_class: str = "koord-prod"
    created: int | None = None
    phase: str = "Running"
    terminating: bool = False


@record
class UnaddedPod:
    """A pod that could not be counted, and why."""

    uid: str
    problem: str


@record(kw_only=True)
class PeakReport:
    """What prod leaves on a node, with how it came about, in exact amounts.

    Parameters
    ----------
    by_pod, by_priority
        What each predictor holds reclaimable.
    by_pod_peak, by_priority_peak
        What each expects prod to use at its peak.
    reclaimable, peak
        The smaller of the reclaimables; the larger of the peaks, by resource.
    unadded
        Pods that could not be counted.
    """

    by_pod: Amounts | Failed
    by_priority: Amounts | Failed
    by_pod_peak: Amounts
    by_priority_peak: Amounts | Failed
    reclaimable: Amounts | Failed
    peak: Amounts | Failed
    unadded: tuple[UnaddedPod, ...]


def peaks_of_state(state: PredictionState) -> Peaks:
    """Let trained models answer."""

    def peak(name: str) -> Measured | None:
        prediction = predict(state, name)
        if prediction is None:
            return None
        return measured_of({CPU: prediction.cpu["p95"], MEMORY: prediction.memory["p98"]})

    return peak


def raw_allocatable_of(allocatable: Measured | None, annotations: Mapping[str, str]) -> Measured | None:
    """Give what is allocatable before amplification; a broken annotation does not count."""
    try:
        raw = parse_raw_allocatable(annotations)
    except ManifestError:
        raw = None
    return allocatable if allocatable is None or raw is None else raw


def _with_margin(amounts: Amounts, margin_percent: int) -> Amounts:
    factor = (100 + margin_percent) / 100.0
    return Amounts(
        int(float(milli_up(amounts.cpu)) * factor) * MILLI_CORE,
        int(float(bytes_up(amounts.memory)) * factor) * NANO,
    )


def prod_reclaimable(
    pods: Iterable[PeakPod],
    peaks: Peaks,
    allocatable: Measured | None,
    now: int,
    *,
    safety_margin_percent: int = SAFETY_MARGIN_PERCENT,
    cold_start: int = COLD_START,
) -> PeakReport:
    """Predict what prod pods of a node will not use of what they asked for.

    Parameters
    ----------
    pods
        Pods with a fresh metric, in the order in which they are counted.
    peaks
        What the models answer.
    allocatable
        The node's raw allocatable, exact (:func:`raw_allocatable_of`); ``None`` is an error in the report.
    now
        Moment of the decision, nanoseconds since 1970.
    safety_margin_percent
        Added to every predicted peak.
    cold_start
        Age up to which a pod counts with its whole request, in nanoseconds.
    """
    used = unpredicted = spare = asked = NO_AMOUNTS
    seen: set[str] = set()
    unadded = []
    for pod in pods:
        if pod.priority_class not in _CLASSES:
            continue
        request = amounts_of(pod.request)
        ended = pod.terminating or pod.phase in _ENDED
        if pod.uid in seen:
            problem = f"pod {pod.namespace}/{pod.name} already exist in the pod reclaimable predictor"
            unadded.append(_unadded(pod, problem))
            continue
        seen.add(pod.uid)
        if pod.created is not None and now - pod.created <= cold_start:
            unpredicted += request
        elif not ended:
            predicted = peaks(pod.uid)
            if predicted is None:
                unpredicted += request
                unadded.append(_unadded(pod, f"UID {pod.uid} not found in predict server"))
                continue
            peak = _with_margin(amounts_of(predicted), safety_margin_percent)
            used += peak
            left = (request - peak).clamped()
            # What the model does not speak of is neither used nor spare.
            spare += Amounts(left.cpu if CPU in predicted else 0, left.memory if MEMORY in predicted else 0)
        if not ended:
            asked += request
    by_priority_peak = _priority_peak(peaks, safety_margin_percent)
    by_pod = _left(allocatable, used, spare)
    by_priority: Amounts | Failed = (
        by_priority_peak
        if isinstance(by_priority_peak, Failed)
        else _left(allocatable, by_priority_peak, (asked - by_priority_peak).clamped())
    )
    by_pod_peak = used + unpredicted
    return PeakReport(
        by_pod=by_pod,
        by_priority=by_priority,
        by_pod_peak=by_pod_peak,
        by_priority_peak=by_priority_peak,
        reclaimable=_joined(by_pod, by_priority, Amounts.minimum),
        peak=_joined(by_pod_peak, by_priority_peak, Amounts.maximum),
        unadded=tuple(unadded),
    )


def _unadded(pod: PeakPod, problem: str) -> UnaddedPod:
    where = f"failed to add pod ({pod.namespace}/{pod.name}) to podReclaimablePredictor"
    return UnaddedPod(pod.uid, f"{where}. error: {problem}")


def _left(allocatable: Measured | None, used: Amounts, spare: Amounts) -> Amounts | Failed:
    if allocatable is None:
        return Failed(
            "failed to get allocatable of node, err=invalid node, for node.status.allocation is nil"
        )
    return (amounts_of(allocatable) - used).clamped().minimum(spare)


def _priority_peak(peaks: Peaks, margin_percent: int) -> Amounts | Failed:
    total = NO_AMOUNTS
    models = [("sys", SYSTEM_MODEL), *((f"priority {name}", class_model(name)) for name in _CLASSES)]
    for word, model in models:
        peak = peaks(model)
        if peak is None:
            return Failed(f"failed to get prediction of {word}, err: UID {model} not found in predict server")
        total += amounts_of(peak)
    return _with_margin(total, margin_percent)


def _joined(
    left: Amounts | Failed, right: Amounts | Failed, join: Callable[[Amounts, Amounts], Amounts]
) -> Amounts | Failed:
    if isinstance(left, Failed):
        return left
    return right if isinstance(right, Failed) else join(left, right)
