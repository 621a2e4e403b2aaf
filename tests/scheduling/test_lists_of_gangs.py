"""Gangs that list others: which of them wait for which, whoever comes first in the queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    NodeState,
    Pod,
    PodGroup,
    Policy,
    PreemptionRules,
    ScheduleResult,
    explain,
    schedule,
    verify,
)
from koordcore.explaining.advice import advise
from koordcore.explaining.groups import group_states, pods_ahead, waiting_jobs
from koordcore.explaining.schedule_explanation import schedule_explanation
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.policy import GangTurns
from koordcore.model.records import ClusterRecord
from koordcore.scheduling.gang_groups import Job, JobTable
from koordcore.scheduling.gang_order import cores
from koordcore.topology.network import NODE_LAYER, LayerSpec

PREFIX = "gang.scheduling.koordinator.sh/"
WAYS = [
    {},
    {"preempt": PreemptionRules()},
    {"policy": Policy(gangs=GangTurns.TOGETHER)},
]


def lists(*names: str, **more: str) -> dict[str, str]:
    groups = json.dumps([name if "/" in name else f"default/{name}" for name in names])
    return {
        f"{PREFIX}groups": groups,
        **{f"{PREFIX}{key.replace('_', '-')}": text for key, text in more.items()},
    }


def group(name: str, least: int, *names: str, **more: str) -> PodGroup:
    """A gang with what it lists; with nobody it is alone."""
    space, _, own = name.rpartition("/")
    return PodGroup(
        namespace=space or "default",
        name=own,
        min_member=least,
        annotations=lists(*names, **more) if names else {},
    )


def member(gang: str, number: int = 0, cpu: int = 1000, priority: int = 0) -> Pod:
    space, _, own = gang.rpartition("/")
    return Pod(
        namespace=space or "default",
        name=f"{own}-{number}",
        labels={"pod-group.scheduling.sigs.k8s.io": own},
        requests={"cpu": cpu},
        priority=priority,
    )


def cluster(
    records: Sequence[ClusterRecord], pods: Sequence[Pod], running: Sequence[Pod] = (), cpu: int = 4000
) -> ClusterSnapshot:
    node = Node(name="n", allocatable={"cpu": cpu, "pods": 20})
    states = [NodeState(node, tuple(pod.at("n") for pod in running))]
    return ClusterSnapshot(nodes=states, pending=pods, records=records)


def started(snapshot: ClusterSnapshot, **how: object) -> set[str]:
    """Decide; everybody has one decision, which is legal, and explained as it is."""
    result: ScheduleResult = schedule(snapshot, **how)  # type: ignore[arg-type]
    assert sorted(one.pod for one in result.decisions) == sorted(pod.key for pod in snapshot.pending)
    assert verify(snapshot, result) == ()
    if not how:
        for one in result.decisions:
            assert explain(snapshot, one.pod).decision == one
            advise(snapshot, result, one.pod)
    return {one.pod.name for one in result.bound}


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("first", ["g", "h"])
@pytest.mark.parametrize("there", [0, 1, 2])
def test_a_gang_that_does_not_list_itself_starts_with_those_that_it_lists(
    there: int, first: str, how: dict[str, object]
) -> None:
    """Its own minimum, which it has not, nobody asks for; those of ``h`` start without it."""
    priority = {first: 10}
    pods = [member("h", number, priority=priority.get("h", 0)) for number in range(there)]
    snapshot = cluster(
        [group("g", 5, "h"), group("h", 2)], [*pods, member("g", priority=priority.get("g", 0))]
    )
    assert started(snapshot, **how) == ({"h-0", "h-1", "g-0"} if there == 2 else set())
    narrow = attrs.evolve(snapshot.node("n").node, allocatable={"cpu": 1000 * there, "pods": 20})
    full = ClusterSnapshot(nodes=[narrow], pending=snapshot.pending, records=snapshot.records)
    assert started(full, **how) == ({"h-0", "h-1"} if there == 2 else set())


def test_so_does_one_that_its_pods_configure() -> None:
    said = {f"{PREFIX}min-available": "1"}
    own = Pod(name="own", annotations={f"{PREFIX}name": "g", **said, **lists("h")})
    other = Pod(name="other", annotations={f"{PREFIX}name": "h", **said})
    assert started(cluster([], [own])) == set()
    assert started(cluster([], [own, other])) == {"own", "other"}


def test_members_carry_the_gangs_that_their_own_lists() -> None:
    key = "scheduling.koordinator.sh/bind-gang-group-id"
    pods = [member(gang, number) for gang in "gh" for number in range(2)]
    result = schedule(cluster([group("g", 1, "h"), group("h", 2)], pods))
    assert {one.annotations[key] for one in result.bound} == {"default/h"}


def test_a_gang_that_does_not_list_itself_has_started_when_its_group_has() -> None:
    """``g`` and ``other`` list ``h`` alone, so that the three are one group, of which a member runs."""
    records = [group("g", 1, "h"), group("other", 1, "h"), group("h", 3)]
    snapshot = cluster(records, [member("g"), member("h")], [member("other")])
    assert started(snapshot) == {"g-0", "h-0"}


@pytest.mark.parametrize("how", WAYS)
def test_a_gang_starts_whatever_becomes_of_one_that_lists_it(how: dict[str, object]) -> None:
    """``b`` comes first and finds no room; ``a`` does not know of it."""
    records = [group("a", 1), group("b", 1, "a", "b")]
    large = member("b", cpu=9000, priority=10)
    assert started(cluster(records, [large, member("a")]), **how) == {"a-0"}
    fits = attrs.evolve(large, requests={"cpu": 1000})
    assert started(cluster(records, [fits, member("a")]), **how) == {"a-0", "b-0"}
    assert started(cluster(records, [fits, member("a", cpu=9000)]), **how) == set()


def test_nobody_leaves_for_a_gang_that_waits_for_another() -> None:
    records = [group("a", 1), group("b", 1, "a", "b")]
    low = attrs.evolve(member("low"), labels={}, priority=-10)
    pods = [member("b", cpu=4000, priority=10), member("a", cpu=9000)]
    result = schedule(cluster(records, pods, [low]), preempt=PreemptionRules())
    assert result.preemptions == ()


def test_gangs_that_start_together_wait_for_what_each_of_them_lists() -> None:
    """``b`` needs ``a``, which waits for a gang that nobody has made."""
    records = [group("a", 1, "a", "b", "none"), group("b", 1, "a", "b")]
    assert started(cluster(records, [member("b", priority=10), member("a")])) == set()
    ring = [group("x/a", 1, "y/b"), group("y/b", 1, "x/c"), group("x/c", 1, "x/a")]
    pods = [member(name) for name in ("x/a", "y/b", "x/c")]
    assert started(cluster(ring, pods)) == {"a-0", "b-0", "c-0"}
    assert started(cluster(ring, pods, cpu=2000)) == set()


def test_a_gang_that_counts_waiting_members_only_lets_one_start_that_lists_it() -> None:
    records = [group("a", 1, match_policy="only-waiting"), group("b", 1, "a", "b")]
    assert started(cluster(records, [member("b", priority=10), member("a")])) == {"a-0", "b-0"}


def test_some_gangs_are_enough_where_all_list_the_same_ones() -> None:
    most = {"min_groups": "1"}
    same = [group(name, 1, "a", "b", **most) for name in "ab"]
    other = [group("a", 1, "a", "b", **most), group("b", 1, "b", **most)]
    pods = [member("a"), member("b", cpu=9000)]
    assert started(cluster(same, pods)) == {"a-0"}
    assert started(cluster(other, pods)) == set()
    # One that lists them, and not itself, is none of those that are enough.
    beside = group("g", 1, "a", "b", **most)
    assert started(cluster([*same, beside], [*pods, member("g")])) == {"a-0", "g-0"}
    large = [member(name, cpu=9000) for name in "ab"]
    assert started(cluster([*same, beside], [*large, member("g")])) == set()
    # Nor is one that nothing configures, or that is not there at all, needed.
    three = [group(name, 1, "a", "b", "c", min_groups="2") for name in "ab"]
    assert started(cluster(three, [member("a"), member("b")])) == {"a-0", "b-0"}
    assert started(cluster(three, [member("a"), member("b"), member("c")])) == {"a-0", "b-0"}
    assert started(cluster(three, [member("a"), member("b", cpu=9000), member("c")])) == set()


def test_lists_that_differ_ask_for_all_gangs_also_where_some_have_started() -> None:
    """``b`` has, so that nobody waits for ``c`` any more; it lists fewer gangs than they do."""
    anew = {"min_groups": "1", "match_policy": "waiting-and-running"}
    records = [group(name, 1, "a", "b", "c", **anew) for name in "ab"]
    pods = [member("a", cpu=9000), member("b", 1)]
    for own, least in (("b", "c"), set()), (("a", "b", "c"), {"b-1"}):
        snapshot = cluster([*records, group("c", 1, *own, min_groups="1")], pods, [member("b")])
        assert started(snapshot) == least


@pytest.mark.parametrize(
    ("policy", "least"),
    [("once-satisfied", {"g-0"}), ("waiting-and-running", set()), ("only-waiting", set())],
)
@pytest.mark.parametrize("own", [["h"], ["g", "h"]])
def test_a_gang_that_has_started_once_keeps_nobody_back_who_waits_for_it(
    own: list[str], policy: str, least: set[str]
) -> None:
    """As upstream: its group has been satisfied, whatever becomes of the rest of its minimum."""
    records = [group("h", 3, "h", "i", match_policy=policy), group("g", 1, *own), group("i", 1)]
    pods = [member("h", 1, cpu=9000), member("h", 2, cpu=9000), member("g")]
    assert started(cluster(records, pods, [member("h")])) == least
    assert started(cluster(records, [*pods, member("h", 3, cpu=9000)])) == set()


def test_who_is_not_waited_for_any_more_keeps_nobody_in_the_network() -> None:
    """``h`` wants to be gathered, and has not started; ``g`` has, on a node that is in no spine."""
    layers = LayerSpec("Spine", ("spine",)), LayerSpec("Block", ("block",), "Spine")
    network = ClusterNetworkTopology("default", (*layers, LayerSpec(NODE_LAYER, (), "Block")))
    wish = json.dumps({"gatherStrategy": [{"layer": "Block", "strategy": "PreferGather"}]})
    gangs = [group("g", 1, "h"), group("h", 1, "g", "h", network_topology_spec=wish)]
    snapshot = cluster([network, *gangs], [member("g", 1), member("h", cpu=9000)], [member("g")])
    outside = attrs.evolve(snapshot.node("n").node, labels={"block": "b"})
    inside = Node(name="m", labels={"spine": "s", "block": "b"}, allocatable={"cpu": 500, "pods": 20})
    there = NodeState(outside, snapshot.node("n").pods)
    assert started(snapshot.with_nodes(there, inside)) == {"g-1"}


def test_the_explanation_of_a_gang_counts_on_those_that_it_waits_for() -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)
    records = [group("a", 1), group("b", 1, "a", "b"), group("c", 1, "b", "c")]
    pods = [member("c"), member("b"), member("a")]
    snapshot = cluster(records, pods)
    status = schedule_explanation(snapshot, pods[0], now=now)["status"]
    assert status["schedulable"]
    (chosen,) = status["detailedExplanation"][0]["scheduleExplanation"]["feasibleSchedulingResult"]
    assert chosen["name"] == "c-0"
    job = next(one for one in JobTable(snapshot).turns(pods) if isinstance(one, Job) and pods[0] in one.pods)
    assert {pod.name for pod in pods_ahead(snapshot, job)} == {"a-0", "b-0"}


def test_each_gang_is_listed_once_with_what_it_waits_for() -> None:
    records = [group("a", 1), group("b", 1, "a", "b"), group("g", 2, "b")]
    pods = [member("b", cpu=9000), member("a"), member("g")]
    told = group_states(cluster(records, pods))
    assert [(one.job, one.name, one.least) for one in told] == [
        ("default/a", "default/a", 1),
        ("default/b", "default/b", 1),
        ("default/g", "default/g", 0),
    ]
    snapshot = cluster(records, pods)
    result = schedule(snapshot)
    assert [(one.job, one.placed, one.members) for one in result.jobs] == [
        ("default/a", 1, 1),
        ("default/b", 0, 1),
        ("default/g", 0, 1),
    ]
    why = 'gang "default/b", which it waits for, has not started'
    assert result.jobs[-1].message == why
    assert why in advise(snapshot, result, pods[2]).summary[0]
    (job,) = waiting_jobs(snapshot, "default/a")
    assert job.own == ("default/a",)
    # A gang of which nobody waits has no turn, and is told with those that wait for it.
    told = group_states(cluster(records, [member("b")]))
    assert [(one.name, bool(one.stops)) for one in told] == [("default/a", True), ("default/b", True)]


def test_who_waits_comes_after_those_that_it_waits_for() -> None:
    chain = {str(number): [str(number), str(number + 1)] for number in range(5000)}
    found = cores("0", lambda name: chain.get(name, ()))
    assert found == [(str(number),) for number in range(5000, -1, -1)]
    knot = {"a": ["b"], "b": ["c", "x"], "c": ["a", "y"], "y": ["y", "x"]}
    assert cores("a", lambda name: knot.get(name, ())) == [("x",), ("y",), ("a", "b", "c")]
