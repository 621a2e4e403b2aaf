"""Trained models of use: one per pod, per priority class, per node and for the system.

State is a value: :func:`update` and :func:`train` give another state, and a state is rebuilt from its
checkpoints. Rules: upstream ``koordlet/prediction``; specification sections 3.1 to 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore.colocation.histogram import (
    CPU_BUCKETS,
    CPU_HALF_LIFE,
    MEMORY_BUCKETS,
    MEMORY_HALF_LIFE,
    Checkpoint,
    Histogram,
    empty_histogram,
)
from koordcore.errors import ModelError
from koordcore.protocol.qos import PriorityClass
from koordcore.protocol.times import MINUTE

__all__ = [
    "CHECKPOINTS_PER_STEP",
    "CHECKPOINT_INTERVAL",
    "MODEL_EXPIRY",
    "NODE_MODEL",
    "NO_MODELS",
    "SYSTEM_MODEL",
    "Model",
    "ModelCheckpoint",
    "Prediction",
    "PredictionState",
    "Use",
    "class_model",
    "collect_garbage",
    "predict",
    "restore",
    "save_step",
    "train",
    "update",
]

NODE_MODEL: Final = "__node__"
"""Id of the model of a node's whole use."""
SYSTEM_MODEL: Final = "__node-sys__"
"""Id of the model of what runs outside pods."""
MODEL_EXPIRY: Final = 30 * MINUTE
CHECKPOINT_INTERVAL: Final = 10 * MINUTE
CHECKPOINTS_PER_STEP: Final = 12

_PERCENTILES: Final = {"p60": 0.6, "p90": 0.9, "p95": 0.95, "p98": 0.98, "max": 1.0}


def class_model(priority_class: str) -> str:
    """Give the id of the model of all pods of a priority class.

    Examples
    --------
    >>> class_model("koord-prod"), class_model("")
    ('__node-koord-prod__', '__node-__')
    """
    return f"__node-{priority_class}__"


@attrs.frozen
class Use:
    """Cores and bytes used, as measured; ``None`` where a measurement failed."""

    cpu: float | None
    memory: float | None

    @property
    def is_complete(self) -> bool:
        """Tell whether both were measured."""
        return self.cpu is not None and self.memory is not None


@attrs.frozen(kw_only=True)
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

    cpu: Histogram = attrs.field(factory=lambda: empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE))
    memory: Histogram = attrs.field(factory=lambda: empty_histogram(MEMORY_BUCKETS, MEMORY_HALF_LIFE))
    updated: int
    saved: int | None = None


@attrs.frozen
class PredictionState:
    """Models by id."""

    models: immutabledict[str, Model] = attrs.field(default=immutabledict(), converter=immutabledict)


NO_MODELS: Final = PredictionState()


@attrs.frozen
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
    models = dict(state.models)
    for name, (cpu, memory) in sorted(samples.items()):
        old = models.get(name) or Model(updated=now)
        models[name] = attrs.evolve(
            old, cpu=old.cpu.add(cpu, 1.0, now), memory=old.memory.add(memory, 1.0, now), updated=now
        )
    return PredictionState(models)


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
    model = state.models.get(name)
    if model is None:
        return None
    return Prediction(
        immutabledict({key: int(model.cpu.percentile(p) * 1000) for key, p in _PERCENTILES.items()}),
        immutabledict({key: int(model.memory.percentile(p)) for key, p in _PERCENTILES.items()}),
    )


def collect_garbage(state: PredictionState, now: int, *, expiry: int = MODEL_EXPIRY) -> PredictionState:
    """Drop the models without a sample for longer than they may live."""
    return PredictionState(
        {name: model for name, model in state.models.items() if now - model.updated <= expiry}
    )


@attrs.frozen(kw_only=True)
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

    Returns
    -------
    PredictionState
        With the moment noted in the models that were saved.
    tuple of ModelCheckpoint
        At most ``limit``, none of a model saved within ``interval``.
    """
    oldest = sorted(
        state.models.items(),
        key=lambda pair: (-math.inf if pair[1].saved is None else pair[1].saved, pair[0]),
    )
    due = [
        (name, model)
        for name, model in oldest[:limit]
        if model.saved is None or now - model.saved >= interval
    ]
    models = {**state.models, **{name: attrs.evolve(model, saved=now) for name, model in due}}
    saved = tuple(
        ModelCheckpoint(name=name, cpu=model.cpu.save(), memory=model.memory.save(), updated=now)
        for name, model in due
    )
    return PredictionState(models), saved


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
    models = {
        saved.name: Model(
            cpu=_loaded(empty_histogram(CPU_BUCKETS, CPU_HALF_LIFE), saved.cpu),
            memory=_loaded(empty_histogram(MEMORY_BUCKETS, MEMORY_HALF_LIFE), saved.memory),
            updated=saved.updated,
        )
        for saved in checkpoints
        if saved.name in known
    }
    dropped = sorted(saved.name for saved in checkpoints if saved.name not in known)
    return PredictionState(models), tuple(dropped)


def _loaded(empty: Histogram, checkpoint: Checkpoint) -> Histogram:
    try:
        return empty.load(checkpoint)
    except ModelError:
        return empty
