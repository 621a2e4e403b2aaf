"""The small trace of the repository and the shared data, where it is there."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Final

from koordcore.scoring.fragmentation import WorkloadMix, workload_mix
from koordcore.simulate import PolicyName, Refused, Replay, Trace, TraceFolder, make_policy, replay, resample
from koordcore.simulate.trace import drawn_ranks, timed_events, untimed_events

HERE: Final = Path(__file__).resolve().parent
SMALL: Final = TraceFolder(HERE / "data" / "small")
OPENB: Final = HERE.parents[2] / "shared" / "data" / "openb"


@lru_cache
def small_trace() -> Trace:
    return SMALL.trace("small")


@lru_cache
def small_mix() -> WorkloadMix:
    return workload_mix(small_trace().demands)


def filled(policy: PolicyName, seed: int = 7) -> Replay:
    """The small cluster filled up to 130 percent, without departures."""
    nodes, trace = SMALL.nodes(), small_trace()
    capacity = 1000 * sum(len(node.cards) for node in nodes)
    arrivals = resample(trace, capacity=capacity, percent=130, seed=seed)
    return replay(
        nodes,
        untimed_events(trace, arrivals),
        make_policy(policy, small_mix(), seed=seed),
        mix=small_mix(),
        ranks=drawn_ranks(len(nodes), seed),
    )


def timed(policy: PolicyName) -> Replay:
    """The small trace with its times; who finds no room waits."""
    return replay(
        SMALL.nodes(),
        timed_events(small_trace()),
        make_policy(policy, small_mix()),
        mix=small_mix(),
        refused=Refused.WAITS,
    )
