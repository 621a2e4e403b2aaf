"""Trace replay: what another policy would have made of the same load."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.scoring.gpu_policies import (
        PolicyName as PolicyName,
        ScoredPolicy as ScoredPolicy,
        make_policy as make_policy,
    )
    from koordcore.simulate.cluster import (
        arrivals_of as arrivals_of,
        final_snapshot as final_snapshot,
        nodes_of as nodes_of,
    )
    from koordcore.simulate.compare import compare_policies as compare_policies
    from koordcore.simulate.course import Replay as Replay
    from koordcore.simulate.engine import replay as replay
    from koordcore.simulate.events import (
        Arrival as Arrival,
        Departure as Departure,
        Event as Event,
        GangArrival as GangArrival,
        NodeArrival as NodeArrival,
        NodeDrained as NodeDrained,
        NodeFailed as NodeFailed,
        Refused as Refused,
        Task as Task,
    )
    from koordcore.simulate.loop_rules import (
        KNOWN_RULES as KNOWN_RULES,
        LoopRules as LoopRules,
    )
    from koordcore.simulate.loop_search import search_loops as search_loops
    from koordcore.simulate.loop_worlds import (
        LoopPod as LoopPod,
        LoopWorld as LoopWorld,
    )
    from koordcore.simulate.loops import find_loop as find_loop
    from koordcore.simulate.plots import plot as plot
    from koordcore.simulate.reader import TraceFolder as TraceFolder
    from koordcore.simulate.record import (
        replay_record as replay_record,
        write_record as write_record,
    )
    from koordcore.simulate.report import (
        curves as curves,
        summaries as summaries,
    )
    from koordcore.simulate.scenario import (
        Cell as Cell,
        Clock as Clock,
        play_cell as play_cell,
    )
    from koordcore.simulate.scheduled import (
        PodArrival as PodArrival,
        replay_schedule as replay_schedule,
    )
    from koordcore.simulate.sweeps import (
        ResultFolder as ResultFolder,
        sweep as sweep,
    )
    from koordcore.simulate.trace import (
        Trace as Trace,
        resample as resample,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.simulate.cluster": ("arrivals_of", "final_snapshot", "nodes_of"),
            "koordcore.scoring.gpu_policies": ("PolicyName", "ScoredPolicy", "make_policy"),
            "koordcore.simulate.compare": ("compare_policies",),
            "koordcore.simulate.course": ("Replay",),
            "koordcore.simulate.engine": ("replay",),
            "koordcore.simulate.events": (
                "GangArrival",
                "Arrival",
                "Departure",
                "Event",
                "NodeArrival",
                "NodeDrained",
                "NodeFailed",
                "Refused",
                "Task",
            ),
            "koordcore.simulate.loop_worlds": ("LoopPod", "LoopWorld"),
            "koordcore.simulate.loop_search": ("search_loops",),
            "koordcore.simulate.loops": ("find_loop",),
            "koordcore.simulate.loop_rules": ("KNOWN_RULES", "LoopRules"),
            "koordcore.simulate.reader": ("TraceFolder",),
            "koordcore.simulate.record": ("replay_record", "write_record"),
            "koordcore.simulate.plots": ("plot",),
            "koordcore.simulate.report": ("curves", "summaries"),
            "koordcore.simulate.scenario": ("Cell", "Clock", "play_cell"),
            "koordcore.simulate.scheduled": ("PodArrival", "replay_schedule"),
            "koordcore.simulate.sweeps": ("ResultFolder", "sweep"),
            "koordcore.simulate.trace": ("Trace", "resample"),
        },
    )
