"""Models of use as JSON: upstream's checkpoint, small and rounded, and a state to the last bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import numpy as np
from immutabledict import immutabledict

from koordcore.colocation.histogram import (
    CPU_BUCKETS,
    CPU_HALF_LIFE,
    MEMORY_BUCKETS,
    MEMORY_HALF_LIFE,
    YEAR_ONE,
    Checkpoint,
    Histogram,
    empty_histogram,
)
from koordcore.colocation.histogram_bank import bank_of
from koordcore.colocation.prediction import ModelCheckpoint, PredictionState
from koordcore.errors import ManifestError, ModelError
from koordcore.protocol.fields import Json, as_float, as_int, as_list, as_mapping, as_str, optional, required
from koordcore.protocol.times import format_timestamp, parse_timestamp

_VERSION: Final = 1
_EMPTY: Final[Mapping[str, Json]] = immutabledict()


def _moment(value: Json) -> int:
    return parse_timestamp(as_str(value))


def _format_histogram(saved: Checkpoint) -> dict[str, Json]:
    reference = YEAR_ONE if saved.reference is None else saved.reference
    return {
        "referenceTimestamp": format_timestamp(reference),
        "bucketWeights": {str(bucket): weight for bucket, weight in sorted(saved.weights.items())},
        "totalWeight": saved.total,
    }


def _bucket(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ManifestError.at(f"[{text[:20]}]", "expected the number of a bucket")
    return int(text)


def _histogram(value: Json) -> Checkpoint:
    raw = as_mapping(value)
    weights = optional(raw, "bucketWeights", as_mapping, _EMPTY)
    try:
        read = {_bucket(name): as_int(weight) for name, weight in weights.items()}
    except ManifestError as error:
        raise error.within("bucketWeights") from None
    return Checkpoint(
        weights=immutabledict(read),
        total=optional(raw, "totalWeight", as_float, 0.0),
        reference=optional(raw, "referenceTimestamp", _moment, YEAR_ONE),
    )


def format_checkpoint(saved: ModelCheckpoint) -> dict[str, Json]:
    """Write a checkpoint as upstream stores it, one object per model."""
    return {
        "UID": saved.name,
        "CPU": _format_histogram(saved.cpu),
        "Memory": _format_histogram(saved.memory),
        "LastUpdated": format_timestamp(saved.updated),
    }


def parse_checkpoint(raw: Mapping[str, Json]) -> ModelCheckpoint:
    """Read a checkpoint as upstream stores it.

    Raises
    ------
    ManifestError
        With the path of what cannot be read.
    """
    return ModelCheckpoint(
        name=required(raw, "UID", as_str),
        cpu=required(raw, "CPU", _histogram),
        memory=required(raw, "Memory", _histogram),
        updated=required(raw, "LastUpdated", _moment),
    )


def _format_exact(one: Histogram) -> dict[str, Json]:
    return {
        "reference": one.reference,
        "total": one.total,
        "lowest": one.lowest,
        "highest": one.highest,
        "weights": {str(bucket): weight for bucket, weight in enumerate(one.weights) if weight},
    }


def _exact(empty: Histogram, value: Json) -> Histogram:
    raw = as_mapping(value)
    weights = list(empty.weights)
    for name, weight in required(raw, "weights", as_mapping).items():
        bucket = _bucket(name)
        if bucket >= len(weights):
            raise ManifestError.at(f"weights[{name}]", f"the histogram has {len(weights)} buckets")
        weights[bucket] = as_float(weight)
    lowest, highest = required(raw, "lowest", as_int), required(raw, "highest", as_int)
    if not (0 <= lowest < len(weights) and 0 <= highest < len(weights)):
        raise ManifestError.at("lowest", f"expected buckets 0 to {len(weights) - 1}")
    return attrs.evolve(
        empty,
        reference=required(raw, "reference", as_int),
        total=required(raw, "total", as_float),
        lowest=lowest,
        highest=highest,
        weights=tuple(weights),
    )


def format_state(state: PredictionState) -> dict[str, Json]:
    """Write a state so that :func:`parse_state` gives the very same one."""
    models: list[Json] = []
    for row, name in enumerate(state.names):
        models.append(
            {
                "name": name,
                "cpu": _format_exact(state.cpu.row(row)),
                "memory": _format_exact(state.memory.row(row)),
                "updated": int(state.updated[row]),
                "saved": int(state.saved[row]),
            }
        )
    return {"version": _VERSION, "models": models}


def parse_state(raw: Mapping[str, Json]) -> PredictionState:
    """Read a state written by :func:`format_state`.

    Raises
    ------
    ManifestError
        When it is of another version or cannot be read.
    """
    if required(raw, "version", as_int) != _VERSION:
        raise ManifestError.at("version", f"expected {_VERSION}")
    cpu = empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE)
    memory = empty_histogram(MEMORY_BUCKETS, MEMORY_HALF_LIFE)
    rows: list[tuple[str, Histogram, Histogram, int, int]] = []
    for index, value in enumerate(required(raw, "models", as_list)):
        try:
            fields = as_mapping(value)
            rows.append(
                (
                    required(fields, "name", as_str),
                    _exact(cpu, fields.get("cpu")),
                    _exact(memory, fields.get("memory")),
                    required(fields, "updated", as_int),
                    required(fields, "saved", as_int),
                )
            )
        except ManifestError as error:
            raise error.within(f"models[{index}]") from None
    rows.sort(key=lambda row: row[0])
    names = tuple(row[0] for row in rows)
    if len(set(names)) != len(names):
        raise ManifestError.at("models", "a model stands twice")
    try:
        return PredictionState(
            names=names,
            cpu=bank_of(CPU_BUCKETS, CPU_HALF_LIFE, [row[1] for row in rows]),
            memory=bank_of(MEMORY_BUCKETS, MEMORY_HALF_LIFE, [row[2] for row in rows]),
            updated=np.array([row[3] for row in rows], dtype=np.int64),
            saved=np.array([row[4] for row in rows], dtype=np.int64),
        )
    except (ModelError, OverflowError) as error:
        raise ManifestError.at("models", str(error)) from None
