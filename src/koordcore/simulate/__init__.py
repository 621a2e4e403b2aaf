"""Trace replay: what another policy would have made of the same load."""

from koordcore.scoring.gpu_policies import DrawnPolicy, GpuPolicy, PolicyName, ScoredPolicy, make_policy
from koordcore.simulate.cluster import (
    ClusterFragmentation,
    arrivals_of,
    final_snapshot,
    fragmentation_of,
    nodes_of,
)
from koordcore.simulate.columns import ArrivalColumns, arrival_columns
from koordcore.simulate.compare import Comparison, Landing, PolicyOutcome, ResourceUse, compare_policies
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
from koordcore.simulate.reader import PublishedRun, TraceFolder, read_text
from koordcore.simulate.record import RecordReplay, replay_record, write_record
from koordcore.simulate.report import PlotKind, Summary, csv_text, json_text, plot, summaries
from koordcore.simulate.scenario import Cell, CellResult, Clock, play_cell, replay_cell, summarise
from koordcore.simulate.scheduled import NodeJoined, PodArrival, ScheduledReplay, replay_schedule
from koordcore.simulate.sweeps import Progress, ResultFolder, SweepResult, sweep
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
    "ClusterFragmentation",
    "Comparison",
    "Departure",
    "DrawnPolicy",
    "Event",
    "GangArrival",
    "GpuPolicy",
    "Landing",
    "NodeAdded",
    "NodeDrained",
    "NodeFailed",
    "NodeJoined",
    "Placement",
    "PlotKind",
    "PodArrival",
    "PolicyName",
    "PolicyOutcome",
    "Progress",
    "PublishedRun",
    "RecordReplay",
    "Refused",
    "Replay",
    "ReplayColumns",
    "ResourceUse",
    "ResultFolder",
    "ScheduledReplay",
    "ScoredPolicy",
    "Summary",
    "SweepResult",
    "Task",
    "Trace",
    "TraceFolder",
    "arrival_columns",
    "arrivals_of",
    "compare_policies",
    "csv_text",
    "drawn_ranks",
    "final_snapshot",
    "fragmentation_of",
    "json_text",
    "make_policy",
    "nodes_of",
    "parse_nodes",
    "parse_trace",
    "play_cell",
    "plot",
    "read_text",
    "replay",
    "replay_cell",
    "replay_record",
    "replay_schedule",
    "resample",
    "summaries",
    "summarise",
    "sweep",
    "timed_events",
    "untimed_events",
    "write_record",
]
