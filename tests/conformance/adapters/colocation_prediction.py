"""Subjects ``prediction.*``: histograms, trained models, peaks and what prod leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.colocation.amounts import Amounts, bytes_up, milli_up
from koordcore.colocation.batch import Failed
from koordcore.colocation.histogram import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    YEAR_ONE,
    Buckets,
    Checkpoint,
    ExponentialBuckets,
    Histogram,
    LinearBuckets,
    empty_histogram,
)
from koordcore.colocation.peak import (
    PeakPod,
    Peaks,
    peaks_of_state,
    prod_reclaimable,
    raw_allocatable_of,
)
from koordcore.colocation.prediction import (
    NO_MODELS,
    ModelCheckpoint,
    PredictionState,
    Use,
    collect_garbage,
    predict,
    restore,
    save_step,
    train,
)
from koordcore.errors import ModelError
from koordcore.model.durations import MINUTE, SECOND
from koordcore.model.metrics import Measured, measured_of, parse_measured
from koordcore.protocol.times import format_timestamp, parse_timestamp
from tests.conformance.adapters.colocation import pod_load
from tests.conformance.core import Case, Missing, Verdict, difference, subject
from tests.reference.histograms import align, merge

TOLERANCE = 1e-9


def buckets_of(spec: Mapping[str, Any]) -> Buckets:
    match spec.get("kind"):
        case "memory":
            return MEMORY_BUCKETS
        case "exponential":
            return ExponentialBuckets(spec["max"], spec["first"], spec["ratio"], spec["epsilon"])
        case "linear":
            return LinearBuckets(spec["max"], spec["first"], spec["epsilon"])
        case _:
            return CPU_BUCKETS


def histogram_of(spec: Mapping[str, Any], buckets: Buckets) -> Histogram:
    seconds = spec.get("halfLifeSeconds")
    return empty_histogram(buckets, None if seconds is None else seconds * SECOND)


def checkpoint_of(raw: Mapping[str, Any] | None) -> Checkpoint:
    if raw is None:
        raise ModelError("cannot load an empty checkpoint")
    reference = raw.get("referenceTimestamp")
    return Checkpoint(
        weights={int(bucket): weight for bucket, weight in (raw.get("bucketWeights") or {}).items()},
        total=raw.get("totalWeight", 0.0),
        reference=YEAR_ONE if reference is None else parse_timestamp(reference),
    )


def shown_checkpoint(saved: Checkpoint) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "bucketWeights": {str(bucket): weight for bucket, weight in saved.weights.items()},
        "totalWeight": saved.total,
    }
    if saved.reference is not None and saved.reference != YEAR_ONE:
        answer["referenceTimestamp"] = format_timestamp(saved.reference)
    return answer


def run_script(given: Mapping[str, Any]) -> list[Any]:
    buckets = buckets_of(given["histogram"])
    state = {"": histogram_of(given["histogram"], buckets)}
    for name, spec in (given.get("others") or {}).items():
        state[name] = histogram_of(spec, buckets_of(spec) if spec.get("kind") else buckets)
    answers: list[Any] = []
    for step in given["script"]:
        try:
            answer = run_step(step, state)
        except ModelError:
            answer = {"error": True}
        if answer is not None:
            answers.append(answer)
    return answers


def run_step(step: Mapping[str, Any], state: dict[str, Histogram]) -> Any:
    name = step.get("on", "")
    one = state[name]
    match step["op"]:
        case "add" | "subtract":
            time = parse_timestamp(step["t"]) if "t" in step else 0
            for index in range(step.get("repeat", 1)):
                when = time + index * step.get("everySeconds", 0) * SECOND
                act = one.add if step["op"] == "add" else one.subtract
                one = act(step["v"], step["w"], when)
            state[name] = one
        case "merge":
            _, state[step["other"]] = align(one, state[step["other"]])
            state[name] = merge(one, state[step["other"]])
        case "percentile":
            return one.percentile(step["p"])
        case "state":
            return {"minBucket": one.lowest, "maxBucket": one.highest, "empty": one.is_empty}
        case "equals":
            return one.equals(state[step["other"]])
        case "save":
            return shown_checkpoint(one.save())
        case "load":
            state[name] = one.load(checkpoint_of(step.get("checkpoint")))
            return {"ok": True}
        case _:
            raise Missing(step["op"])
    return None


def near(expected: Any, seen: Any) -> Any:
    """Take the expected float where the answer is as near as the vectors ask, and any text of an error."""
    if isinstance(expected, Mapping) and isinstance(seen, Mapping):
        if set(expected) == {"error"} and seen == {"error": True}:
            return dict(expected)
        return {key: near(expected[key], one) if key in expected else one for key, one in seen.items()}
    if isinstance(expected, list) and isinstance(seen, list):
        return [near(left, right) for left, right in zip(expected, seen, strict=False)] + seen[
            len(expected) :
        ]
    numbers = isinstance(expected, int | float) and isinstance(seen, int | float)
    if numbers and not isinstance(seen, bool) and abs(expected - seen) <= TOLERANCE * abs(expected):
        return expected
    return seen


def nearness(case: Case, answer: Any) -> tuple[Verdict, str]:
    reports = [difference(expected, near(expected, answer)) for expected in case.expectations]
    if "" in reports:
        return Verdict.EQUAL, ""
    return (Verdict.WRONG, min(reports, key=len)) if reports else (Verdict.RULED, "")


@subject("prediction.histogram", judge=nearness)
def histogram(case: Case) -> Any:
    given = case.input
    if given["op"] == "script":
        return run_script(given)
    try:
        buckets = buckets_of(given["histogram"])
    except ModelError:
        return {"error": True}
    return {
        "numBuckets": buckets.count,
        "buckets": [empty_histogram(buckets).add(value).highest for value in given["values"]],
        "starts": [buckets.start(bucket) for bucket in given["starts"]],
    }


def peak_pod(pod: Mapping[str, Any]) -> PeakPod:
    load, metadata = pod_load(pod), pod["metadata"]
    created = metadata.get("creationTimestamp")
    return PeakPod(
        uid=metadata.get("uid", ""),
        namespace=load.namespace,
        name=load.name,
        request=load.request,
        priority_class=load.priority_class,
        created=None if created is None else parse_timestamp(created),
        phase=load.phase,
        terminating=metadata.get("deletionTimestamp") is not None,
    )


def shown_amounts(amounts: Amounts) -> dict[str, int]:
    return {"cpu": milli_up(amounts.cpu), "memory": bytes_up(amounts.memory)}


def report_answer(given: Mapping[str, Any], peaks: Peaks) -> dict[str, Any]:
    node = given["node"]
    raw = (node.get("status") or {}).get("allocatable")
    report = prod_reclaimable(
        [peak_pod(pod) for pod in given["pods"]],
        peaks,
        raw_allocatable_of(
            None if raw is None else parse_measured(raw), node["metadata"].get("annotations") or {}
        ),
        parse_timestamp(given["now"]),
        safety_margin_percent=given.get("safetyMarginPercent", 10),
        cold_start=given.get("coldStartSeconds", 86400) * SECOND,
    )

    def predictor(left: Amounts | Failed, peak: Amounts | Failed) -> dict[str, Any]:
        answer: dict[str, Any] = (
            {"error": True} if isinstance(left, Failed) else {"reclaimable": shown_amounts(left)}
        )
        if isinstance(peak, Failed):
            return answer | {"peakError": True}
        return answer | {"peak": shown_amounts(peak)}

    def joined(amounts: Amounts | Failed) -> dict[str, int] | None:
        return None if isinstance(amounts, Failed) else shown_amounts(amounts)

    answer: dict[str, Any] = {
        "podPredictor": predictor(report.by_pod, report.by_pod_peak),
        "priorityPredictor": predictor(report.by_priority, report.by_priority_peak),
        "prodReclaimable": joined(report.reclaimable),
        "prodPeak": joined(report.peak),
    }
    if report.unadded:
        answer["addErrors"] = [one.uid for one in report.unadded]
    return answer | ({"error": True} if isinstance(report.reclaimable, Failed) else {})


def given_peaks(predictions: Mapping[str, Any]) -> Peaks:
    def peak(name: str) -> Measured | None:
        if name not in predictions:
            return None
        raw = predictions[name]
        wire = {"cpu": raw.get("p95cpu"), "memory": raw.get("p98memory")}
        return measured_of({key: amount for key, amount in wire.items() if amount is not None})

    return peak


def use_of(raw: Any) -> Use:
    numbers = [None if number is None or number < 0 else number for number in raw or []]
    cpu, memory = [*numbers, None, None][:2]
    return Use(cpu, memory)


def train_answer(given: Mapping[str, Any]) -> Any:
    pods = [(pod["metadata"]["uid"], pod_load(pod).priority_class) for pod in given["pods"]]
    state = NO_MODELS
    stored: dict[str, ModelCheckpoint] = {}
    events: list[dict[str, Any]] = []
    for step in given["steps"]:
        now = parse_timestamp(step["t"])
        known = step.get("list")
        listed = [pod for pod in pods if known is None or pod[0] in known]
        match step.get("do", "train"):
            case "train":
                usage = {uid: use_of(raw) for uid, raw in (step.get("usage") or {}).items()}
                for index in range(step.get("repeat", 1)):
                    when = now + index * MINUTE
                    state = train(state, listed, usage, use_of(step.get("nodeUsage")), when)
            case "gc":
                state = collect_garbage(state, now)
                stored = {name: one for name, one in stored.items() if name in state.names}
                events.append({"models": list(state.names)})
            case "checkpoint":
                state, saved = save_step(state, now)
                stored |= {one.name: one for one in saved}
                events.append({"checkpoints": len(stored)})
            case "restart":
                state, removed = restore(
                    list(stored.values()), [uid for uid, _ in listed], with_node="node" in given
                )
                stored = {name: one for name, one in stored.items() if name in state.names}
                events.append({"models": list(state.names), "removed": list(removed)})
            case _:
                raise Missing(step["do"])
    answer: dict[str, Any] = {"predictions": {name: prediction(state, name) for name in given["uids"]}}
    if events:
        answer["events"] = events
    if "now" in given and "node" in given:
        answer["report"] = report_answer(given, peaks_of_state(state))
    return answer


def prediction(state: PredictionState, name: str) -> Any:
    one = predict(state, name)
    return one and {key: {"cpu": one.cpu[key], "memory": one.memory[key]} for key in one.cpu}


def uid_only(answer: Any) -> Any:
    """Cut what only informs: of an error of adding a pod only the uid counts, of others that there is one."""
    if isinstance(answer, Mapping):
        return {
            key: [text.split(":")[0] for text in value]
            if key == "addErrors"
            else bool(value)
            if key in ("error", "peakError")
            else uid_only(value)
            for key, value in answer.items()
        }
    return answer


def informative(case: Case, answer: Any) -> tuple[Verdict, str]:
    reports = [difference(uid_only(expected), uid_only(answer)) for expected in case.expectations]
    if "" in reports:
        return Verdict.EQUAL, ""
    return (Verdict.WRONG, min(reports, key=len)) if reports else (Verdict.RULED, "")


@subject("prediction.peak", judge=informative)
def peak(case: Case) -> Any:
    given = case.input
    if given["op"] == "train":
        return train_answer(given)
    return report_answer(given, given_peaks(given["predictions"]))
