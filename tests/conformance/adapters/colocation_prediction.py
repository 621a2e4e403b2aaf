"""Subjects ``prediction.*``: histograms, trained models, peaks and what prod leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordcore.colocation.histogram import (
    CPU_BUCKETS,
    MEMORY_BUCKETS,
    YEAR_ONE,
    Buckets,
    Checkpoint,
    ExponentialBuckets,
    Histogram,
    LinearBuckets,
    align,
    empty_histogram,
    merge,
)
from koordcore.errors import ModelError
from koordcore.protocol.times import SECOND, format_timestamp, parse_timestamp
from tests.conformance.core import Case, Missing, Verdict, difference, subject

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
        except ModelError as error:
            answer = {"error": str(error)}
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
        if set(expected) == set(seen) == {"error"}:
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
    except ModelError as error:
        return {"error": str(error)}
    return {
        "numBuckets": buckets.count,
        "buckets": [empty_histogram(buckets).add(value).highest for value in given["values"]],
        "starts": [buckets.start(bucket) for bucket in given["starts"]],
    }
