"""Reading traces, drawing orders of arrival, and columns by percent arrived."""

from __future__ import annotations

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from koordcore.errors import ManifestError
from koordcore.scoring.fragmentation import workload_mix
from koordcore.scoring.gpu_share import GpuDemand, GpuNode
from koordcore.simulate import Arrival, PolicyName, Task, TraceFolder, make_policy, replay, resample
from koordcore.simulate.columns import arrival_columns
from koordcore.simulate.reader import read_text
from koordcore.simulate.trace import drawn_ranks, parse_nodes, parse_trace, timed_events, untimed_events
from tests.simulate.small import SMALL, small_trace

HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time"


def test_columns_become_demands() -> None:
    trace = parse_trace([HEAD, "b,4000,2,1,470,V100|T4,10,100,40", "a,8000,1,0,,,5,,", "c,1,1,2,1000,,7,3,"])
    assert [task.name for task in trace.tasks] == ["a", "b", "c"]
    plain, share, pair = trace.tasks
    assert share.demand == GpuDemand(cpu=4000, memory=2 << 20, gpus=1, milli=470, models=("V100", "T4"))
    assert (share.duration, plain.duration, pair.duration) == (60, None, 0)
    assert plain.demand == GpuDemand(cpu=8000, memory=1 << 20)
    assert trace.created == (5, 10, 7)
    assert [event.time for event in timed_events(trace)] == [5, 7, 10]


def test_traces_without_models_and_times_will_do() -> None:
    trace = parse_trace(["name,cpu_milli,memory_mib,num_gpu,gpu_milli", "a,1,1,1,1000"])
    assert trace.tasks[0].demand.models == ()
    assert trace.created == (0,)


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("a,x,1,0,0,,,,", "line 2.cpu_milli"),
        (",1,1,0,0,,,,", "line 2.name"),
        ("a,1,1,1,,,,,", "line 2.gpu_milli"),
        ("a,1,1,0,0,,1,soon,", "line 2.deletion_time"),
    ],
)
def test_what_cannot_be_read_is_named(line: str, path: str) -> None:
    with pytest.raises(ManifestError, match=path):
        parse_trace([HEAD, line])


def test_nodes_are_sorted_by_name() -> None:
    nodes = parse_nodes(["sn,cpu_milli,memory_mib,gpu,model", "b,2000,4,2,T4", "a,1000,4,0,"])
    assert [node.name for node in nodes] == ["a", "b"]
    assert nodes[1] == GpuNode(name="b", cpu=2000, memory=4 << 20, cards=(1000, 1000), model="T4")


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress)]
)
def test_files_may_be_compressed(tmp_path: Path, suffix: str, pack: type[bytes]) -> None:
    for name in ("nodes.csv", "pods_small.csv"):
        (tmp_path / (name + suffix)).write_bytes(pack((SMALL.path / name).read_bytes()))
    folder = TraceFolder(tmp_path)
    assert folder.traces() == ("small",)
    assert folder.trace("small") == small_trace()
    assert folder.nodes() == SMALL.nodes()
    assert folder.runs() == ()
    with pytest.raises(ManifestError, match=r"no pods_large\.csv"):
        folder.trace("large")
    assert read_text(tmp_path / ("nodes.csv" + suffix)).startswith("sn,")


def test_stored_runs_are_checked(tmp_path: Path) -> None:
    (tmp_path / "runs.json").write_text('[{"trace": "small", "seed": "x"}]')
    with pytest.raises(ManifestError, match=r"runs\.json.*seed"):
        TraceFolder(tmp_path).runs()


@pytest.mark.parametrize("percent", [40, 130])
def test_resampling_stops_short_of_the_target(percent: int) -> None:
    """Each order holds the trace's tasks first, drawn anew for each seed, and the same for the same seed."""
    trace = small_trace()
    order = resample(trace, capacity=100_000, percent=percent, seed=3)
    demand = sum(trace.tasks[index].demand.total for index in order)
    assert 100_000 * percent // 100 - 8000 <= demand <= 100_000 * percent // 100 + 8000
    assert order == resample(trace, capacity=100_000, percent=percent, seed=3)
    assert order != resample(trace, capacity=100_000, percent=percent, seed=4)
    if percent == 130:
        assert sorted(order[: len(trace.tasks)]) == list(range(len(trace.tasks)))


def test_a_trace_without_cards_is_not_resampled_for_ever() -> None:
    trace = parse_trace([HEAD, "a,1,1,0,,,,,"])
    assert resample(trace, capacity=1000, percent=130, seed=1) == (0,)


def test_copies_get_names_of_their_own() -> None:
    events = untimed_events(small_trace(), [2, 0, 2, 2])
    assert [event.task.name for event in events if isinstance(event, Arrival)] == [
        "p-002",
        "p-000",
        "p-002-2",
        "p-002-3",
    ]


def test_ranks_are_a_permutation() -> None:
    assert sorted(drawn_ranks(50, 7)) == list(range(50))
    assert drawn_ranks(50, 7) != drawn_ranks(50, 8)


def test_a_percent_without_events_takes_its_neighbours() -> None:
    """Four cards asked for one after another: 25, 50, 75 and 100 percent, nothing between."""
    one = GpuDemand(cpu=1, gpus=1)
    mix = workload_mix([one])
    nodes = [GpuNode(name="n", cpu=9, memory=9, cards=(1000,) * 4)]
    events = [Arrival(turn, Task(name=f"t{turn}", demand=one)) for turn in range(4)]
    result = replay(nodes, events, make_policy(PolicyName.FGD, mix), mix=mix)
    columns = arrival_columns(result, last=101)
    assert [columns.allocated[k] for k in (0, 24, 25, 26, 40, 49, 75, 100, 101)] == [
        0,
        25,
        25,
        25,
        25,
        50,
        75,
        100,
        100,
    ]


def test_a_cluster_without_cards_has_none_in_use() -> None:
    plain = GpuDemand(cpu=1)
    mix = workload_mix([plain])
    nodes = [GpuNode(name="n", cpu=9, memory=9, cards=())]
    result = replay(
        nodes, [Arrival(0, Task(name="t", demand=plain))], make_policy(PolicyName.FGD, mix), mix=mix
    )
    assert arrival_columns(result).allocated[100] == 0
    assert result.placements[0].node == "n"


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.csv", b"\xff\xfe\x00", "not UTF-8: byte 0"),
        ("a.csv", "Zürich".encode("latin-1"), "not UTF-8: byte 1"),
        ("a.csv.gz", b"sn,", "Not a gzipped file"),
        ("a.csv.gz", gzip.compress(b"sn," * 999)[:-9], "end-of-stream"),
        ("a.csv.bz2", b"sn,", "Invalid data"),
        ("a.csv.xz", b"sn,", "not supported"),
    ],
    ids=["utf-16", "latin-1", "no gzip", "half a gzip", "no bzip2", "no xz"],
)
def test_what_is_no_text_is_named(name: str, data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(ManifestError, match=f"{name}: .*{message}"):
        read_text(file)
