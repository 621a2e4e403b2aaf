"""Trained models of use: one per pod, per priority class, per node and for the system.

State is a value: :func:`update` and :func:`train` give another state, and a state is rebuilt from its
checkpoints. Rules: upstream ``koordlet/prediction``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, TypeAlias

import attrs
import numpy as np
from immutabledict import immutabledict
from numpy.typing import NDArray

from koordcore._record import record
from koordcore.colocation.histogram import (
    CPU_BUCKETS,
    CPU_HALF_LIFE,
    MEMORY_BUCKETS,
    MEMORY_HALF_LIFE,
    Checkpoint,
    Histogram,
    empty_histogram,
)
from koordcore.colocation.histogram_bank import HistogramBank, bank_of, empty_bank
from koordcore.errors import ModelError
from koordcore.model.durations import MINUTE, SECOND
from koordcore.protocol.qos import PriorityClass

Ints: TypeAlias = NDArray[np.int64]

NODE_MODEL: Final = "__node__"
"""Id of the model of a node's whole use."""
SYSTEM_MODEL: Final = "__node-sys__"
"""Id of the model of what runs outside pods."""
MODEL_EXPIRY: Final = 30 * MINUTE
CHECKPOINT_INTERVAL: Final = 10 * MINUTE
CHECKPOINTS_PER_STEP: Final = 12

_NEVER: Final = -(1 << 62)
_PERCENTILES: Final = {"p60": 0.6, "p90": 0.9, "p95": 0.95, "p98": 0.98, "max": 1.0}


def class_model(priority_class: str) -> str:
    """Give the id of the model of all pods of a priority class.

    Examples
    --------
    >>> class_model("koord-prod"), class_model("")
    ('__node-koord-prod__', '__node-__')
    """
    return f"__node-{priority_class}__"


@record
class Use:
    """Cores and bytes used, as measured; ``None`` where a measurement failed."""

    cpu: float | None
    memory: float | None


@record(kw_only=True)
class Model:
    """What is known of one consumer.

    Parameters
    ----------
    cpu, memory
        Histograms of cores and of bytes.
    updated
        Moment of the last sample (of the checkpoint, for a restored model).
    saved
        Moment of the last checkpoint; ``None`` before the first.
    """

    cpu: Histogram
    memory: Histogram
    updated: int
    saved: int | None = None


@record(eq=False, kw_only=True)
class PredictionState:
    """Models by id, of one node or of a whole cluster.

    Parameters
    ----------
    names
        Ids in text order; a model's *row* is its place here.
    cpu, memory
        Histograms of cores and of bytes, by row.
    updated, saved
        As in :class:`Model`, by row; ``saved`` is far in the past before the first checkpoint.
    """

    names: tuple[str, ...] = ()
    cpu: HistogramBank = attrs.field(factory=lambda: empty_bank(CPU_BUCKETS, CPU_HALF_LIFE, 0))
    memory: HistogramBank = attrs.field(factory=lambda: empty_bank(MEMORY_BUCKETS, MEMORY_HALF_LIFE, 0))
    updated: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))
    saved: Ints = attrs.field(factory=lambda: np.zeros(0, dtype=np.int64))

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Id to row."""
        return {name: row for row, name in enumerate(self.names)}

    def model(self, name: str) -> Model | None:
        """Give one model, or ``None``."""
        row = self.row_of.get(name)
        if row is None:
            return None
        saved = int(self.saved[row])
        return Model(
            cpu=self.cpu.row(row),
            memory=self.memory.row(row),
            updated=int(self.updated[row]),
            saved=None if saved == _NEVER else saved,
        )

    def equals(self, other: PredictionState) -> bool:
        """Tell whether two states are the same to the last bit."""
        return (
            self.names == other.names
            and self.cpu.equals(other.cpu)
            and self.memory.equals(other.memory)
            and np.array_equal(self.updated, other.updated)
            and np.array_equal(self.saved, other.saved)
        )


NO_MODELS: Final = PredictionState()


@record
class Prediction:
    """Milli-cores and bytes by percentile: ``p60``, ``p90``, ``p95``, ``p98`` and ``max``."""

    cpu: immutabledict[str, int]
    memory: immutabledict[str, int]


def update(state: PredictionState, samples: Mapping[str, tuple[float, float]], now: int) -> PredictionState:
    """Give every named model one more sample of weight 1; a model that is not there is begun.

    Parameters
    ----------
    state
        The models so far.
    samples
        Model id to cores and bytes.
    now
        Moment of the samples, nanoseconds since 1970.

    Raises
    ------
    ModelError
        When a sample is not finite.
    """
    names = sorted(samples)
    state = _with_models(state, names, now)
    row_of = state.row_of
    rows = np.array([row_of[name] for name in names], dtype=np.int64)
    values = np.array([samples[name] for name in names], dtype=np.float64).reshape(-1, 2)
    updated = state.updated.copy()
    updated[rows] = now
    return attrs.evolve(
        state,
        cpu=state.cpu.add(rows, values[:, 0], now),
        memory=state.memory.add(rows, values[:, 1], now),
        updated=_frozen(updated),
    )


def _with_models(state: PredictionState, names: Sequence[str], now: int) -> PredictionState:
    """Begin the models that are not there yet; rows stay in the order of names."""
    new = [name for name in names if name not in state.row_of]
    if not new:
        return state
    joined = [*state.names, *new]
    order = np.array(sorted(range(len(joined)), key=joined.__getitem__), dtype=np.int64)
    return PredictionState(
        names=tuple(joined[row] for row in order),
        cpu=state.cpu.joined(empty_bank(CPU_BUCKETS, CPU_HALF_LIFE, len(new))).take(order),
        memory=state.memory.joined(empty_bank(MEMORY_BUCKETS, MEMORY_HALF_LIFE, len(new))).take(order),
        updated=_frozen(np.append(state.updated, [now] * len(new)).astype(np.int64)[order]),
        saved=_frozen(np.append(state.saved, [_NEVER] * len(new)).astype(np.int64)[order]),
    )


def _frozen(column: Ints) -> Ints:
    column.flags.writeable = False
    return column


def train(
    state: PredictionState,
    pods: Iterable[tuple[str, str]],
    usage: Mapping[str, Use],
    node: Use,
    now: int,
) -> PredictionState:
    """Run one training step of a node.

    Pods without both measurements are passed over; their use falls to the system. Every class model is
    trained, with 0 where it has no pods, so an idle class predicts the end of the first bucket.

    Parameters
    ----------
    state
        The models so far.
    pods
        Uid and priority class (with its default applied) of each pod known now.
    usage
        Uid to the 90th percentile of use over the last minute.
    node
        The same for the node.
    now
        Moment of the step, nanoseconds since 1970.
    """
    sums = {name: [0.0, 0.0] for name in PriorityClass}
    every = [0.0, 0.0]
    samples: dict[str, tuple[float, float]] = {}
    for uid, priority_class in pods:
        use = usage.get(uid)
        if use is None or use.cpu is None or use.memory is None:
            continue
        samples[uid] = (use.cpu, use.memory)
        for total in (every, sums[PriorityClass(priority_class)]):
            total[0] += use.cpu
            total[1] += use.memory
    if node.cpu is not None and node.memory is not None:
        samples[NODE_MODEL] = (node.cpu, node.memory)
    for name, (cpu, memory) in sums.items():
        samples[class_model(name)] = (cpu, memory)
    samples[SYSTEM_MODEL] = (
        max((node.cpu or 0.0) - every[0], 0.0),
        max((node.memory or 0.0) - every[1], 0.0),
    )
    return update(state, samples, now)


def predict(state: PredictionState, name: str) -> Prediction | None:
    """Give what a model expects; ``None`` without such a model."""
    model = state.model(name)
    if model is None:
        return None
    return Prediction(
        immutabledict({key: int(model.cpu.percentile(p) * 1000) for key, p in _PERCENTILES.items()}),
        immutabledict({key: int(model.memory.percentile(p)) for key, p in _PERCENTILES.items()}),
    )


def collect_garbage(state: PredictionState, now: int, *, expiry: int = MODEL_EXPIRY) -> PredictionState:
    """Drop the models without a sample for longer than they may live.

    Parameters
    ----------
    state
        All models.
    now
        Nanoseconds since 1970.
    expiry
        Nanoseconds without a sample.
    """
    rows = np.flatnonzero(now - state.updated <= expiry)
    return PredictionState(
        names=tuple(state.names[row] for row in rows),
        cpu=state.cpu.take(rows),
        memory=state.memory.take(rows),
        updated=_frozen(state.updated[rows]),
        saved=_frozen(state.saved[rows]),
    )


@record(kw_only=True)
class ModelCheckpoint:
    """A model in few numbers; ``updated`` is the moment of saving."""

    name: str
    cpu: Checkpoint
    memory: Checkpoint
    updated: int


def save_step(
    state: PredictionState,
    now: int,
    *,
    limit: int = CHECKPOINTS_PER_STEP,
    interval: int = CHECKPOINT_INTERVAL,
) -> tuple[PredictionState, tuple[ModelCheckpoint, ...]]:
    """Save the models that were not saved for longest.

    Parameters
    ----------
    state
        All models.
    now
        Nanoseconds since 1970.
    limit
        Most models saved at once.
    interval
        Nanoseconds between two savings of one model.

    Returns
    -------
    PredictionState
        With the moment noted in the models that were saved.
    tuple of ModelCheckpoint
        At most ``limit``, none of a model saved within ``interval``.
    """
    oldest = sorted(range(len(state.names)), key=lambda row: (state.saved[row], state.names[row]))
    due = [row for row in oldest[:limit] if state.saved[row] == _NEVER or now - state.saved[row] >= interval]
    saved = state.saved.copy()
    saved[due] = now
    checkpoints = tuple(
        ModelCheckpoint(
            name=state.names[row],
            cpu=state.cpu.row(row).save(),
            memory=state.memory.row(row).save(),
            updated=now,
        )
        for row in due
    )
    return attrs.evolve(state, saved=_frozen(saved)), checkpoints


def restore(
    checkpoints: Sequence[ModelCheckpoint], pods: Iterable[str], *, with_node: bool
) -> tuple[PredictionState, tuple[str, ...]]:
    """Rebuild the models from their checkpoints.

    Parameters
    ----------
    checkpoints
        The newest of each model.
    pods
        Uids of the pods known now.
    with_node
        Whether the node object is known; without it the node's model is dropped.

    Returns
    -------
    PredictionState
        A checkpoint that cannot be loaded leaves an empty model.
    tuple of str
        Ids that were dropped, sorted.
    """
    known = {*pods, SYSTEM_MODEL, *(class_model(name) for name in PriorityClass)}
    if with_node:
        known.add(NODE_MODEL)
    kept = sorted({one.name: one for one in checkpoints if one.name in known}.items())
    cpu, memory = (
        empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE),
        empty_histogram(MEMORY_BUCKETS, MEMORY_HALF_LIFE),
    )
    state = PredictionState(
        names=tuple(name for name, _ in kept),
        cpu=bank_of(CPU_BUCKETS, CPU_HALF_LIFE, [_loaded(cpu, one.cpu) for _, one in kept]),
        memory=bank_of(MEMORY_BUCKETS, MEMORY_HALF_LIFE, [_loaded(memory, one.memory) for _, one in kept]),
        updated=_frozen(np.array([one.updated for _, one in kept], dtype=np.int64)),
        saved=_frozen(np.full(len(kept), _NEVER, dtype=np.int64)),
    )
    dropped = sorted(saved.name for saved in checkpoints if saved.name not in known)
    return state, tuple(dropped)


def _loaded(empty: Histogram, checkpoint: Checkpoint) -> Histogram:
    reference = checkpoint.reference
    if reference is not None:
        checkpoint = attrs.evolve(checkpoint, reference=reference // SECOND * SECOND)
    try:
        return empty.load(checkpoint)
    except ModelError:
        return empty
