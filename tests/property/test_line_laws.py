"""A line of snapshots: what is carried along equals what is built anew, whatever happened on the way."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from koordcore import Bound, ClusterSnapshot, Node, Pod, Policy, schedule, verify
from koordcore._arrays import IntMatrix
from koordcore._line import KEPT, Delta, Line, Place
from koordcore._moved_rows import moved_rows, shifted_rows
from koordcore._offers import Offers
from koordcore._vector import Names, Splice, Table, Vector, gone_and_come
from koordcore.model.network import ClusterNetworkTopology
from koordcore.model.policy import PluginSetting
from koordcore.scheduling import cycle
from koordcore.scheduling.network_trees import network_tree
from koordcore.snapshot import NodeAdded, NodeRemoved, NodeReplaced, PodEnded, RecordReplaced, forking
from koordcore.topology.network import NODE_LAYER, LayerSpec
from tests.property.strategies import clusters, pods

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICIES = (
    Policy(),
    Policy(name="load").with_plugin(PluginSetting(name="LoadAwareScheduling")),
    Policy(name="plain", plugins=Policy().plugins[:6]),
)


def anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """The same contents with no past."""
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


def used(snapshot: ClusterSnapshot, columns: IntMatrix) -> dict[str, list[int]]:
    """What pods use of each resource of which they use any, node by node."""
    rows = zip(snapshot.layout.resources, columns, strict=True)
    return {name: row.tolist() for name, row in rows if row.any()}


def same(snapshot: ClusterSnapshot) -> None:
    """Tables and columns that were carried along are those of a snapshot without a past."""
    fresh = anew(snapshot)
    assert snapshot == fresh
    assert dict(snapshot.location) == dict(fresh.location)
    assert len(snapshot.location) == len(fresh.location)
    for pod in (*fresh.pending, *fresh.bound_pods()):
        assert snapshot.pod(pod.key) == pod
    for carried, made in (
        (snapshot.columns.requested, fresh.columns.requested),
        (snapshot.columns.scored, fresh.columns.scored),
    ):
        # A line keeps the columns of resources that only pods had that have gone.
        assert used(snapshot, carried) == used(fresh, made)


@pytest.fixture(autouse=True, scope="module")
def _columns_kept_count_of() -> Iterator[None]:
    """Every call hands on the columns that it has kept count of, which else one in many does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forking, "_COUNTED", -1)
        yield


@given(clusters(most_nodes=4, most_pods=4), st.data())
def test_calls_on_a_line_decide_as_calls_without_a_past(
    snapshot: ClusterSnapshot, data: st.DataObject
) -> None:
    """Pods come and end, snapshots fork, the clock moves: every call says what one without a past says."""
    known = [snapshot]
    for step in range(data.draw(st.integers(1, 8))):
        now = known[-1] if data.draw(st.booleans()) else data.draw(st.sampled_from(known))
        action = data.draw(st.sampled_from(["arrive", "end", "decide", "decide", "some"]))
        if action == "arrive":
            now = now.with_pending(data.draw(pods(f"q{step}")))
        elif action == "end":
            running = [pod.key for pod in now.bound_pods()]
            if running:
                now = now.forget(data.draw(st.sampled_from(running)))
        else:
            asked = [pod for pod in now.pending if data.draw(st.booleans())] if action == "some" else None
            policy = data.draw(st.sampled_from(POLICIES))
            moment = START + timedelta(seconds=data.draw(st.integers(0, 5)))
            warm = schedule(now, asked, policy=policy, now=moment)
            cold = schedule(anew(now), asked, policy=policy, now=moment)
            assert warm == cold
            now = warm.snapshot
        known.append(now)
        same(now)


def test_steps_lead_back_and_across_forks() -> None:
    """Between two snapshots of forks the way leads back to where they parted, and on from there."""
    a, b, c = (Delta(()), Delta(()), Delta(()))
    start = Place(Line(), 0)
    one = start.next(a)
    two, fork = one.next(b), one.next(c)
    assert two.path(two) == []
    assert start.path(two) == [a, b]
    assert two.path(start) == [b.back(), a.back()]
    assert two.path(fork) == [b.back(), c]
    assert start.path(Place(Line(), 1)) is None


def test_a_long_line_forgets_how_it_began() -> None:
    """Only the last steps are kept; from further back there is no way."""
    place = start = Place(Line(), 0)
    for _ in range(2 * KEPT + 1):
        place = place.next(Delta(()))
    assert start.path(place) is None
    assert len(place.line.deltas) <= 2 * KEPT


@given(st.lists(st.tuples(st.sets(st.integers(0, 5)), st.dictionaries(st.integers(0, 5), st.integers()))))
def test_a_table_in_parts_is_a_table(changes: list[tuple[set[int], dict[int, int]]]) -> None:
    """Keys that went and came, in whatever order, read as in a table that was written anew each time."""
    plain = {0: 0, 1: 1}
    table = Table(dict(plain))
    for gone, new in changes:
        plain = {key: value for key, value in plain.items() if key not in gone} | new
        table = table.changed(gone, new)
        assert dict(table) == plain
        assert len(table) == len(plain)
        assert all((key in table) == (key in plain) and table.get(key) == plain.get(key) for key in range(6))


@pytest.mark.parametrize("start", [0, 9, 600, 5000])
def test_a_table_of_any_size_is_one_and_leaves_the_older_one_alone(start: int) -> None:
    """Of one part and of several groups of parts; a table that has grown is spread over more of them."""
    plain = {key: -key for key in range(start)}
    table = Table(plain)
    new = {key: key for key in range(start // 2, start // 2 + 4500, 3)}
    later = table.changed(range(0, start + 10, 7), new)
    assert dict(table) == plain
    assert dict(later) == {key: value for key, value in plain.items() if key % 7} | new
    assert len(later) == len(dict(later))
    assert dict(pickle.loads(pickle.dumps(later))) == dict(later)


@st.composite
def offered(draw: st.DrawFn) -> list[int]:
    """What a node offers of two resources."""
    return draw(st.sampled_from(([1, 5], [1, 6], [1, 7])))


@given(
    st.lists(offered(), max_size=4),
    st.lists(st.tuples(st.booleans(), st.lists(offered(), max_size=9), st.randoms()), max_size=7),
)
def test_what_nodes_offer_follows_who_joins_and_leaves(
    start: list[list[int]], steps: list[tuple[bool, list[list[int]], Random]]
) -> None:
    """Whoever is asked about, one node or all of them, and whatever was asked before."""
    plain, offers = start, Offers(np.array(start, np.int64).reshape(-1, 2).T.copy())
    for all_asked, fresh, chance in steps:
        before, old = plain, offers
        after: list[int | None] = [*range(len(plain))]
        edits, columns = [], {}
        for _ in fresh:
            at = chance.randrange(len(after) + 1)
            edit = Splice(at, chance.randrange(min(3, len(after) - at + 1)), chance.randrange(2))
            after[edit.at : edit.at + edit.gone] = [None] * edit.come
            edits.append(edit)
        for row, one in enumerate(after):
            if fresh and (one is None or chance.randrange(3) == 0):
                columns[row] = chance.choice(fresh)
        plain = [columns[row] if row in columns else before[one or 0] for row, one in enumerate(after)]
        offers = old.moved(edits, columns)
        assert [[*offers.at(row)] for row in range(len(plain))] == plain
        assert [[*old.at(row)] for row in range(len(before))] == before
        if all_asked:
            for resource in range(2):
                amounts = {column[resource] for column in plain}
                assert offers.alike(resource) == (amounts.pop() if len(amounts) == 1 else None)
            for wanted in ({}, {0: 1}, {1: 6}, {0: 1, 1: 7}):
                fits = any(all(column[one] >= amount for one, amount in wanted.items()) for column in plain)
                assert offers.suffice(wanted) == fits
            assert offers.matrix.T.tolist() == plain
            assert old.matrix.T.tolist() == before


splices = st.tuples(
    st.integers(0, 400), st.sampled_from((0, 0, 1, 1, 3, 90)), st.sampled_from((0, 1, 2, 150))
)


@given(st.integers(0, 300), st.lists(st.lists(splices, max_size=11), max_size=4), st.data())
def test_a_spliced_sequence_is_the_list_that_was_spliced(
    number: int, steps: list[list[tuple[int, int, int]]], data: st.DataObject
) -> None:
    """Items taken out and put in anywhere; what it came of stays as it was, and arrays move alike."""
    plain: list[int] = list(range(1, number + 1))
    vector, start, array = Vector(plain), Vector(plain), np.array([plain, plain], np.int64)
    block, rows = array.copy(), number
    for step in steps:
        edits, after = [], list(plain)
        for at, gone, come in step:
            edit = Splice(min(at, len(after)), min(gone, len(after) - min(at, len(after))), come)
            after[edit.at : edit.at + edit.gone] = [0] * come
            edits.append(edit)
        array = moved_rows(array, edits)
        block, rows = shifted_rows(block, rows, edits)
        assert array[1].tolist() == after == block[1, :rows].tolist()
        assert block.flags.c_contiguous
        fresh = {row: 1000 + row for row, item in enumerate(after) if not item}
        array[:, list(fresh)] = block[:, list(fresh)] = list(fresh.values())
        plain = [fresh.get(row, item) for row, item in enumerate(after)]
        vector = vector.spliced(edits, fresh)
        assert [*vector] == plain == [vector[row] for row in range(len(plain))]
        assert vector == Vector(plain) == tuple(plain) == vector
        first, last = data.draw(st.integers(0, 500)), data.draw(st.integers(0, 500))
        assert vector[first:last] == tuple(plain[first:last])
        if plain:
            row = data.draw(st.integers(0, len(plain) - 1))
            other = vector.changed({row: -1})
            assert vector.apart(other) == ([plain[row]], [-1]) == Vector(plain).apart(other)
    assert start == Vector(range(1, number + 1))


@pytest.mark.parametrize("number", [1, 20])
def test_rows_come_to_where_there_were_none(number: int) -> None:
    edits = [Splice(row, 0, 1) for row in range(number)]
    assert moved_rows(np.empty((2, 0), np.int64), edits).tolist() == [[0] * number] * 2


@given(st.sets(st.integers(0, 999), max_size=300), st.sets(st.integers(0, 999), max_size=9))
def test_names_in_order_are_a_mapping(there: set[int], asked: set[int]) -> None:
    """Each name to its place; a name that is not there would stand where it belongs."""
    plain = sorted(f"n{number:03}" for number in there)
    gone = plain[::7]
    edits = [Splice(plain.index(name), 1, 0) for name in reversed(gone)]
    left = [name for name in plain if name not in gone]
    for names, known in ((Names.of(plain), plain), (Names.of(plain).spliced(edits, {}), left)):
        assert dict(names) == {name: row for row, name in enumerate(known)}
        for name in (f"n{number:03}" for number in asked):
            assert names.place(name) == sum(one < name for one in known)
            assert (name in names) == (name in known)
            assert names.get(name, -1) == (known.index(name) if name in known else -1)


def test_snapshots_share_what_one_of_them_had_compiled() -> None:
    """Nobody asked the common ancestor; what one of its children compiled serves the other."""
    room = {"cpu": 1000, "pods": 9}
    start = ClusterSnapshot(nodes=[Node(name=f"n{number}", allocatable=room) for number in range(9)])
    one = start.with_pending(Pod(name="p"))
    assert one.layout.names
    other = start.with_pending(Pod(name="q"))
    assert other.layout is one.layout
    grown = start.assume(Pod(name="r", node_name="n1", requests={"example.com/new": 1}))
    assert "example.com/new" in grown.layout.index
    same(grown)
    assert one.columns is other.columns
    same(start.assume(Pod(name="s", node_name="n2", requests={"cpu": 10})))


def test_the_network_follows_labels_and_nodes() -> None:
    """A node that joins, leaves or says something else stands where a tree that is read anew has it."""
    zones = "topology.kubernetes.io/zone"

    def declared(label: str) -> ClusterNetworkTopology:
        layers = (LayerSpec("zone", (label,)), LayerSpec(NODE_LAYER, (), "zone"))
        return ClusterNetworkTopology(name="default", layers=layers)

    def read(snapshot: ClusterSnapshot) -> object:
        tree = network_tree(snapshot)
        return None if tree is None else (tree.names, tree.parent.tolist())

    snapshot = ClusterSnapshot(
        nodes=[Node(name=f"n{number}", labels={zones: f"z{number % 2}"}) for number in range(4)],
        records=[declared(zones)],
    )
    seen = [read(snapshot)]
    steps: tuple[Callable[[ClusterSnapshot], ClusterSnapshot], ...] = (
        lambda one: one.apply(NodeReplaced(Node(name="n1", labels={zones: "z0"}))),
        lambda one: one.apply(NodeAdded(Node(name="m", labels={zones: "z9"}))),
        lambda one: one.assume(Pod(name="p", node_name="n0")),
        lambda one: one.apply(NodeRemoved("n2")),
        lambda one: one.apply(RecordReplaced(declared("rack"))),
    )
    for step in steps:
        snapshot = step(snapshot)
        seen.append(read(snapshot))
        assert seen[-1] == read(anew(snapshot))
    assert seen[2] == seen[3]
    assert len({repr(one) for one in seen}) == 5


def test_a_call_after_a_change_does_not_write_out_the_nodes() -> None:
    """Nor the records: that alone would cost more than the decision in a large cluster."""
    nodes = [Node(name=f"n{number}", allocatable={"cpu": 4000, "pods": 9}) for number in range(8)]
    asked = Pod(name="a", requests={"cpu": 1000})
    then = schedule(ClusterSnapshot(nodes=nodes, pending=[asked])).snapshot.apply(
        NodeAdded(Node(name="m", allocatable={"cpu": 8000, "pods": 9})), PodEnded(asked.key)
    )
    then = then.with_pending(Pod(name="b", requests={"cpu": 1000}))
    result = schedule(then)
    assert verify(then, result) == ()
    for snapshot in (then, result.snapshot):
        for written in ("nodes", "records"):
            with pytest.raises(AttributeError):
                object.__getattribute__(snapshot, written)
    assert len(then.nodes) == 9


def test_what_was_learnt_is_used_and_not_needed() -> None:
    """A second call on the result goes on with the state of the first one; forgetting it changes nothing."""
    from koordcore import Node, Pod

    nodes = [Node(name=f"n{number}", allocatable={"cpu": 4000, "pods": 9}) for number in range(8)]
    first = schedule(ClusterSnapshot(nodes=nodes, pending=[Pod(name="a", requests={"cpu": 1000})]))
    pool = first.snapshot.place.line.pool
    state = pool.take(first.policy)
    assert state is not None
    assert pool.take(first.policy) is None  # whoever comes second builds anew
    pod = Pod(name="b", requests={"cpu": 1000})
    cold = schedule(first.snapshot, [pod])
    pool.put(first.policy, state)
    warm = schedule(first.snapshot, [pod])
    assert warm == cold
    assert isinstance(warm.decisions[0], Bound)


@given(st.lists(st.integers(0, 20), unique=True), st.lists(st.integers(0, 20), unique=True))
def test_gone_and_come_is_what_only_one_of_two_sequences_has(before: list[int], after: list[int]) -> None:
    gone, come = gone_and_come(before, after)
    assert gone == [one for one in before if one not in after]
    assert come == [one for one in after if one not in before]


def test_what_is_learnt_of_a_small_cluster_is_forgotten_before_it_outgrows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cycle, "_SHORTEST", 20)
    policy = Policy()
    line = ClusterSnapshot(nodes=[Node(name=name, allocatable={"cpu": 9000, "pods": 9}) for name in "ab"])
    lengths = []
    for turn in range(60):
        gone = [PodEnded(one.key) for one in line.bound_pods()]
        line = line.apply(*gone)
        one = Pod(name=f"p{turn}", labels={"turn": str(turn)}, requests={"cpu": 100 + turn})
        result = schedule(line, [one], policy=policy)
        assert result.decisions == schedule(ClusterSnapshot(nodes=line.nodes), [one], policy=policy).decisions
        line = result.snapshot
        warm = line.place.line.pool.take(policy)
        if warm is not None:
            lengths.append(len(warm.workspace.journal))
            line.place.line.pool.put(policy, warm)
    assert lengths
    assert max(lengths) <= 20 + 2 * 25
