"""Values of plugins' arguments that change nothing though their fields may, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from koordcore.model.load import LoadAwareArgs
from koordcore.model.plugin_args import FitArgs, ScoringStrategy
from koordcore.model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

_ALWAYS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


def idle_values(args: Any) -> Iterator[tuple[str, str]]:
    """Give the values without effect.

    Parameters
    ----------
    args
        A plugin's arguments as they were read.

    Yields
    ------
    tuple of str
        Path in the arguments, and why nothing follows from what stands there.
    """
    usual = LoadAwareArgs().estimator
    if isinstance(args, LoadAwareArgs) and args.estimator != usual:
        yield "estimator", f"pods are estimated as by {usual}, always"
    if isinstance(args, FitArgs):
        yield from _fit(args)


def _fit(args: FitArgs) -> Iterator[tuple[str, str]]:
    if args.shape and args.strategy is not ScoringStrategy.REQUESTED_TO_CAPACITY_RATIO:
        yield "scoringStrategy.requestedToCapacityRatio", f"the type is {args.strategy}"
    for index, name in enumerate(args.ignored):
        if name in _ALWAYS:
            yield f"ignoredResources[{index}]", f"{name} is no extended resource, and is looked at"
