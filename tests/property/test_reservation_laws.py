"""Laws of reservations on small random clusters."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import combinations

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from koordcore.checking import verify
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.manifests import snapshot_from_objects
from koordcore.model.pods import Pod, PodKey
from koordcore.model.reservations import AllocatePolicy, Reservation
from koordcore.protocol.reservation import ReservationWish, allocated_reservation
from koordcore.reservations.cache import ReservationLedger
from koordcore.reservations.lifecycle import controlled
from koordcore.reservations.match import NodeMatches, owns
from koordcore.reservations.state import (
    assigned_pod,
    owners_of,
    reservation_state,
    used_reservations,
)
from koordcore.result import ScheduleResult
from koordcore.scheduling import schedule
from koordcore.scheduling.backfilling import EarliestStart, backfill, earliest_start
from koordcore.scheduling.cycle import open_workspace
from koordcore.scheduling.one_pod import place_pod
from koordcore.snapshot import ClusterSnapshot, forking
from tests.reference.reservation_cycle import filter_node, restored_node
from tests.reference.reservations import held_amounts
from tests.reservations.test_joint import JOINT
from tests.reservations.test_operating_pods import acting
from tests.reservations.test_preallocated_fine import over, running
from tests.reservations.worlds import IGNORES, POLICY, must, node, pod, reservation
from tests.scheduling.test_numa import node as node_with

APPS = ("a", "b")
NAMES = ("n1", "n2", "n3")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[ClusterSnapshot, list[Pod]]:
    """A cluster that holds no more than it has, and pods that wait."""
    room = dict.fromkeys(NAMES, 8)
    records = []
    for number in range(draw(st.integers(0, 4))):
        on = draw(st.sampled_from(("", *NAMES)))
        cpu = draw(st.integers(1, 5))
        if on and room[on] < cpu:
            on = ""
        if on:
            room[on] -= cpu
        records.append(
            reservation(
                f"r{number}",
                cpu,
                on,
                draw(st.sampled_from(APPS)),
                draw(st.sampled_from((AllocatePolicy.ALIGNED, AllocatePolicy.RESTRICTED))),
                allocate_once=draw(st.booleans()),
            )
        )
    running = []
    for name in NAMES:
        cpu = draw(st.integers(0, room[name]))
        if cpu:
            running.append(pod(f"on-{name}", cpu, node_name=name))
    waiting = []
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("plain", "owner", "must", "ignores")))
        app = draw(st.sampled_from(APPS)) if kind in ("owner", "must") else ""
        waiting.append(
            pod(
                f"p{number}",
                draw(st.integers(1, 5)),
                app,
                annotations=must() if kind == "must" else {},
                labels=IGNORES if kind == "ignores" else {},
            )
        )
    snapshot = ClusterSnapshot(nodes=[node(name) for name in NAMES], records=records)
    return snapshot.assume(*running), waiting


@settings(max_examples=10, deadline=None)
@given(worlds())
def test_results_are_legal_and_nobody_takes_what_is_held_for_others(
    world: tuple[ClusterSnapshot, list[Pod]],
) -> None:
    snapshot, waiting = world
    result = schedule(snapshot, [*waiting], policy=POLICY)
    assert verify(snapshot, result) == ()
    for state in result.snapshot.nodes:
        used, kept = held_amounts(result.snapshot, state.name)
        ignoring = sum(one.requests["cpu"] for one in state.pods if dict(one.labels).keys() & IGNORES.keys())
        assert used <= 8000
        assert used + kept - ignoring <= 8000


@settings(max_examples=10, deadline=None)
@given(worlds())
def test_one_call_decides_as_many_calls_do(world: tuple[ClusterSnapshot, list[Pod]]) -> None:
    snapshot, waiting = world
    at_once = schedule(snapshot, [*waiting], policy=POLICY)
    step = snapshot
    for decision in at_once.decisions:
        one = next(pod for pod in waiting if pod.key == decision.pod)
        step = schedule(step, [one], policy=POLICY).snapshot
    assert step.nodes == at_once.snapshot.nodes


def _columns(workspace: Workspace) -> tuple[list[list[int]], ...]:
    ledger = workspace.once(ReservationLedger)
    return tuple(
        matrix.tolist()
        for matrix in (
            workspace.requested,
            workspace.free,
            workspace.scored,
            ledger.left,
            ledger.account,
            ledger.lift,
        )
    )


@settings(max_examples=10, deadline=None)
@given(worlds())
def test_what_is_used_and_released_is_as_before(world: tuple[ClusterSnapshot, list[Pod]]) -> None:
    snapshot, waiting = world
    workspace = open_workspace(snapshot, POLICY)
    plugins = PluginSet(workspace, POLICY)
    before = _columns(workspace)
    mark = workspace.checkpoint()
    for one in waiting:
        place_pod(workspace, plugins, one)
    placed = [
        one
        for row in range(len(NAMES))
        for one in workspace.pods_on(row).values()
        if one.name.startswith("p")
    ]
    for one in placed:
        row = workspace.layout.row_of[str(one.node_name)]
        plugins.removed(workspace.evict(one.key, row), row)
    assert _columns(workspace) == before
    workspace.rollback(mark)
    assert _columns(workspace) == before


@settings(max_examples=10, deadline=None)
@given(worlds(), st.integers(1, 9), st.sampled_from(APPS))
def test_the_flow_filters_as_the_rules_on_one_node_say(
    world: tuple[ClusterSnapshot, list[Pod]], cpu: int, app: str
) -> None:
    snapshot, _ = world
    asked = pod("q", cpu, app)
    workspace = open_workspace(snapshot, POLICY)
    scheduling_class = PluginSet(workspace, POLICY).class_of(asked)
    feasible = scheduling_class.feasible()  # type: ignore[union-attr]  # no refusal here
    users = used_reservations(snapshot.bound_pods())
    states = [reservation_state(one, owners_of(one, users)) for one in snapshot.of(Reservation)]
    for row, name in enumerate(NAMES):
        there = [one for one in states if one.reservation.active and one.reservation.status.node_name == name]
        matched = [one for one in there if one.matchable and owns(one.reservation.owners, asked)]
        matches = NodeMatches(tuple(matched), tuple(one for one in there if one not in matched))
        state = snapshot.node(name)
        seen = restored_node(state.node, state.pods, [one.reservation for one in there], matches)
        fits = filter_node(asked, ReservationWish(), seen) is None
        plain = cpu * 1000 <= 8000 - seen.restored.get("cpu", 0)
        assert bool(feasible[row]) == (fits and plain)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 6), max_size=5), st.integers(1, 6), st.integers(0, 3))
def test_a_state_gives_back_at_most_what_it_holds(cpus: list[int], held: int, kept: int) -> None:
    state = reservation_state(
        reservation(
            "r",
            held,
            "n1",
            annotations={"node.koordinator.sh/reservation": f'{{"resources":{{"cpu":"{kept}"}}}}'},
        )
    )
    for number, cpu in enumerate(cpus):
        state = state.with_user(assigned_pod(pod(f"u{number}", cpu)))
    assert state.returned.get("cpu", 0) == min(1000 * held, 1000 * sum(cpus))
    assert state.available["cpu"] == max(0, 1000 * (held - sum(cpus) - kept))
    for number in range(len(cpus)):
        state = state.without_user(f"uid-u{number}")
    assert state.returned.get("cpu", 0) == 0


@settings(max_examples=8, deadline=None)
@given(worlds(), st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), max_size=4), st.integers(4, 8))
def test_backfill_never_moves_the_start(
    world: tuple[ClusterSnapshot, list[Pod]], jobs: list[tuple[int, int]], size: int
) -> None:
    snapshot, _ = world
    now = datetime(2026, 1, 1, tzinfo=UTC)
    bare = attrs.evolve(snapshot, records=())
    ends = {PodKey("default", f"on-{name}"): now + timedelta(hours=at + 1) for at, name in enumerate(NAMES)}
    ends = {key: end for key, end in ends.items() if key in bare.location}
    big = [pod(f"big{number}", size, priority=1) for number in range(2)]
    small = [pod(f"s{number}", cpu) for number, (cpu, _) in enumerate(jobs)]
    durations = {one.key: timedelta(minutes=30 * span) for one, (_, span) in zip(small, jobs, strict=True)}
    cluster = bare.with_pending(*big, *small)
    plan = earliest_start(cluster, big, ends, now=now)
    assert isinstance(plan, EarliestStart)
    found = backfill(cluster, plan, ends, durations, now=now)
    assert found.recomputed == plan.start


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(1, 3), st.booleans()), max_size=4),
    st.integers(1, 4),
    st.integers(1, 7),
)
def test_over_running_pods_a_reservation_finds_its_cards_exactly_where_some_set_of_pods_has_them(
    held: list[tuple[int, int, bool]], wanted: int, cpu: int
) -> None:
    pods, cards, room = [], 0, 8
    for number, (gpus, cpus, ours) in enumerate(held):
        if cards + gpus > 4 or cpus > room:
            continue
        own = tuple(range(cards, cards + gpus))
        cards, room = cards + gpus, room - cpus
        made = running(f"p{number}", cpus, cards=own)
        if not ours:
            made["metadata"]["labels"] = {"app": "other"}
        pods.append((made, gpus, cpus, ours))
    objects = [*node_with("n1", cards=(0, 0, 0, 0)), over(cpu, gpus=wanted), *(made for made, *_ in pods)]
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    candidates = [(gpus, cpus) for _, gpus, cpus, ours in pods if ours]
    possible = [
        size
        for size in range(1, len(candidates) + 1)
        for chosen in combinations(candidates, size)
        if sum(one for one, _ in chosen) <= wanted <= 4 - cards + sum(one for one, _ in chosen)
        and sum(one for _, one in chosen) <= cpu <= room + sum(one for _, one in chosen)
    ]
    taken = [one for one in result.snapshot.bound_pods() if allocated_reservation(one.annotations)]
    assert len(taken) == min(possible, default=0)
    assert bool(result.bound) == bool(possible)


@settings(max_examples=10, deadline=None)
@given(
    worlds(),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 4), st.booleans()), min_size=1, max_size=3),
)
def test_pods_that_act_as_reservations_hold_with_their_owners_no_more_than_there_is(
    world: tuple[ClusterSnapshot, list[Pod]], pods: list[tuple[str, int, bool]]
) -> None:
    snapshot, waiting = world
    waiting = [one for one in waiting if not one.labels.keys() & IGNORES.keys()]
    for number, (on, cpu, ready) in enumerate(pods):
        held = sum(one.requests["cpu"] for one in snapshot.node(on).pods)
        held += sum(one.requests["cpu"] for one in snapshot.of(Reservation) if one.status.node_name == on)
        if held + 1000 * cpu <= 8000:
            snapshot = snapshot.assume(acting(f"op{number}", cpu, on, ready=ready))
    at_once = schedule(snapshot, [*waiting], policy=POLICY)
    assert verify(snapshot, at_once) == ()
    step = snapshot
    for decision in at_once.decisions:
        one = next(pod for pod in waiting if pod.key == decision.pod)
        step = schedule(step, [one], policy=POLICY).snapshot
    assert step == at_once.snapshot
    fresh = ClusterSnapshot(nodes=at_once.snapshot.nodes, records=at_once.snapshot.records)
    assert (fresh.columns.requested == at_once.snapshot.columns.requested).all()
    assert (fresh.columns.scored == at_once.snapshot.columns.scored).all()


@settings(max_examples=10, deadline=None)
@given(worlds(), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_matching_together_is_never_worse_in_the_order_of_priority(
    world: tuple[ClusterSnapshot, list[Pod]], priorities: list[int]
) -> None:
    snapshot, waiting = world
    pods = [attrs.evolve(one, priority=rank) for one, rank in zip(waiting, priorities, strict=False)]
    sequential = schedule(snapshot, pods, policy=POLICY)
    joint = schedule(snapshot, pods, policy=JOINT)
    assert verify(snapshot, joint) == ()
    assert schedule(snapshot, pods[::-1], policy=JOINT) == joint
    rank_of = {one.key: one.priority for one in pods}

    def placed(result: ScheduleResult) -> list[int]:
        return [sum(rank_of.get(one.pod) == rank for one in result.bound) for rank in (2, 1, 0)]

    assert placed(joint) >= placed(sequential)


@pytest.fixture(autouse=True, scope="module")
def _columns_kept_count_of() -> Iterator[None]:
    """Every call hands on the columns that it has kept count of, which else one in many does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forking, "_COUNTED", -1)
        yield


@settings(max_examples=10, deadline=None)
@given(
    worlds(),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 3), st.booleans()), max_size=2),
    st.lists(st.sampled_from(("pod", "pod", "pod", "leaves", "controller", "again")), min_size=2, max_size=8),
)
def test_what_is_carried_from_call_to_call_changes_no_answer(
    world: tuple[ClusterSnapshot, list[Pod]], acts: list[tuple[str, int, bool]], events: list[str]
) -> None:
    snapshot, waiting = world
    for number, (on, cpu, ready) in enumerate(acts):
        snapshot = snapshot.assume(acting(f"op{number}", cpu, on, ready=ready))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for number, event in enumerate(events):
        if event == "leaves":
            bound = sorted(one.key for one in snapshot.bound_pods())
            snapshot = snapshot.forget(bound[number % len(bound)]) if bound else snapshot
        elif event == "controller":
            born = [attrs.evolve(one, created=now) for one in snapshot.of(Reservation)]
            snapshot = controlled(snapshot.with_records(*born), now + timedelta(hours=number))
        else:
            asked = [] if event == "again" or not waiting else [waiting.pop()]
            fresh = ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)
            carried, anew = (
                schedule(one, [*asked, *one.pending], policy=POLICY) for one in (snapshot, fresh)
            )
            assert carried == anew
            assert schedule(snapshot, policy=POLICY) == schedule(fresh, policy=POLICY)
            snapshot = carried.snapshot
            plain = ClusterSnapshot(nodes=snapshot.nodes, records=snapshot.records)
            assert (plain.columns.requested == snapshot.columns.requested).all()
            assert (plain.columns.scored == snapshot.columns.scored).all()
