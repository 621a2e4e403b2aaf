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
from koordcore.simulate.record import RecordReplay, decisions_digest, replay_record, write_record
from koordcore.simulate.report import PlotKind, Summary, csv_text, json_text, plot, summaries
from koordcore.simulate.scenario import Cell, CellResult, Clock, play_cell, replay_cell, summarise
from koordcore.simulate.sweep import Progress, ResultFolder, SweepResult, sweep
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
    "Cell",
    "CellResult",
    "Clock",
    "Departure",
    "DrawnPolicy",
    "Event",
    "GangArrival",
    "NodeAdded",
    "NodeDrained",
    "NodeFailed",
    "Placement",
    "PlotKind",
    "PolicyName",
    "Progress",
    "PublishedRun",
    "RecordReplay",
    "Refused",
    "Replay",
    "ReplayColumns",
    "ReplayPolicy",
    "ResultFolder",
    "ScoredPolicy",
    "Summary",
    "SweepResult",
    "Task",
    "Trace",
    "TraceFolder",
    "arrival_columns",
    "csv_text",
    "decisions_digest",
    "drawn_ranks",
    "json_text",
    "make_policy",
    "parse_nodes",
    "parse_trace",
    "play_cell",
    "plot",
    "read_text",
    "replay",
    "replay_cell",
    "replay_record",
    "resample",
    "summaries",
    "summarise",
    "sweep",
    "timed_events",
    "untimed_events",
    "write_record",
]
