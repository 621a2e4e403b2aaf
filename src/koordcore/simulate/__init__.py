"""Trace replay: what another policy would have made of the same load."""

from koordcore.simulate.columns import ArrivalColumns, arrival_columns
from koordcore.simulate.engine import Placement, Replay, ReplayColumns, replay
from koordcore.simulate.events import (
    Arrival,
    Departure,
    Event,
    GangArrival,
    NodeAdded,
    NodeDrained,
    NodeFailed,
    Refused,
    Task,
)
from koordcore.simulate.policies import DrawnPolicy, PolicyName, ReplayPolicy, ScoredPolicy, make_policy
from koordcore.simulate.reader import PublishedRun, TraceFolder, read_text
from koordcore.simulate.trace import (
    Trace,
    drawn_ranks,
    parse_nodes,
    parse_trace,
    resample,
    timed_events,
    untimed_events,
)

__all__ = [
    "Arrival",
    "ArrivalColumns",
    "Departure",
    "DrawnPolicy",
    "Event",
    "GangArrival",
    "NodeAdded",
    "NodeDrained",
    "NodeFailed",
    "Placement",
    "PolicyName",
    "PublishedRun",
    "Refused",
    "Replay",
    "ReplayColumns",
    "ReplayPolicy",
    "ScoredPolicy",
    "Task",
    "Trace",
    "TraceFolder",
    "arrival_columns",
    "drawn_ranks",
    "make_policy",
    "parse_nodes",
    "parse_trace",
    "read_text",
    "replay",
    "resample",
    "timed_events",
    "untimed_events",
]
