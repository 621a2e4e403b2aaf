"""Laws of spread and inter-pod affinity: as the rule reads, and whatever was placed before."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from random import Random

import attrs
import numpy as np
from hypothesis import given, strategies as st
from immutabledict import immutabledict
from numpy.testing import assert_array_equal

from koordcore._arrays import compile_layout
from koordcore._vector import Splice
from koordcore.model.affinity import (
    Affinity,
    NodeInclusionPolicy,
    PodAffinity,
    PodAffinityTerm,
    Taint,
    TopologySpreadConstraint,
    UnsatisfiableAction,
    WeightedPodAffinityTerm,
)
from koordcore.model.cluster import Namespace
from koordcore.model.decisions import Bound
from koordcore.model.nodes import Node, NodeState
from koordcore.model.plugin_args import InterPodArgs
from koordcore.model.pods import Pod
from koordcore.model.selectors import LabelSelector, Requirement, SelectorOperator
from koordcore.scheduling import schedule
from koordcore.scoring.groups import PodGroups
from koordcore.scoring.interpod import InterPodFilter, InterPodScore, Namespaces, interpod_request
from koordcore.scoring.spread import SpreadFilter, SpreadScore, spread_request
from koordcore.snapshot import ClusterSnapshot
from tests.reference.neighbours import interpod_filter, interpod_scores, spread_filter, spread_scores

KEYS = ("kubernetes.io/hostname", "zone", "rack")
NAMESPACES = {"default": {}, "other": {"team": "x"}}

labels = st.dictionaries(st.sampled_from(("app", "tier")), st.sampled_from(("a", "b")))
requirements = st.one_of(
    st.builds(
        Requirement,
        st.sampled_from(("app", "tier")),
        st.sampled_from((SelectorOperator.IN, SelectorOperator.NOT_IN)),
        st.lists(st.sampled_from(("a", "b")), min_size=1, max_size=2, unique=True).map(tuple),
    ),
    st.builds(Requirement, st.sampled_from(("app", "tier")), st.just(SelectorOperator.EXISTS)),
)
selectors = st.none() | st.builds(LabelSelector, labels, st.lists(requirements, max_size=1).map(tuple))
constraints = st.builds(
    TopologySpreadConstraint,
    max_skew=st.integers(1, 2),
    topology_key=st.sampled_from(KEYS),
    when_unsatisfiable=st.sampled_from(UnsatisfiableAction),
    selector=selectors,
    min_domains=st.none() | st.integers(1, 4),
    node_affinity_policy=st.sampled_from(NodeInclusionPolicy),
    node_taints_policy=st.sampled_from(NodeInclusionPolicy),
    match_label_keys=st.sampled_from(((), ("tier",))),
)
namespace_selectors = st.none() | st.sampled_from((LabelSelector(), LabelSelector({"team": "x"})))
terms = st.builds(
    PodAffinityTerm,
    topology_key=st.sampled_from(KEYS),
    selector=selectors,
    namespaces=st.sampled_from(((), ("other",))),
    namespace_selector=namespace_selectors,
)
weighted = st.builds(WeightedPodAffinityTerm, st.integers(1, 9), terms)
affinities = st.builds(
    PodAffinity, st.lists(terms, max_size=2).map(tuple), st.lists(weighted, max_size=2).map(tuple)
)
affinity = st.none() | st.builds(Affinity, pod=st.none() | affinities, anti=st.none() | affinities)


def pods(name: str) -> st.SearchStrategy[Pod]:
    return st.builds(
        Pod,
        name=st.just(name),
        namespace=st.sampled_from(("default", "other", "ghost")),
        labels=labels,
        affinity=affinity,
        node_selector=st.sampled_from(({}, {"rack": "1"})),
        spread_constraints=st.lists(constraints, max_size=3).map(tuple),
        deleted=st.sampled_from((None, None, datetime(2026, 1, 1, tzinfo=UTC))),
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[NodeState, ...]:
    states = []
    for number in range(draw(st.integers(1, 4))):
        place = draw(
            st.fixed_dictionaries(
                {}, optional={"zone": st.sampled_from(("1", "2", "")), "rack": st.sampled_from("12")}
            )
        )
        name = f"n{number}"
        if draw(st.booleans()):
            place["kubernetes.io/hostname"] = name
        taints = draw(st.sampled_from(((), (Taint("k"),))))
        running = [draw(pods(f"p{number}-{index}")).at(name) for index in range(draw(st.integers(0, 2)))]
        states.append(NodeState(Node(name=name, labels=place, taints=taints), tuple(running)))
    return tuple(states)


def groups_of(states: tuple[NodeState, ...], *, late: bool = False) -> PodGroups:
    placed = [(pod, row) for row, state in enumerate(states) for pod in state.pods]
    return PodGroups(compile_layout(states), () if late else placed)


@given(clusters(), pods("new"))
def test_spread_as_the_rule_reads(states: tuple[NodeState, ...], pod: Pod) -> None:
    request = spread_request(pod)
    if request is None:
        return
    groups = groups_of(states)
    kernel = SpreadFilter(groups, request)
    fits, missing, skewed = kernel.judge()
    told = ["label" if lacks else "skew" if over else "" for lacks, over in zip(missing, skewed, strict=True)]
    assert told == spread_filter(states, pod)
    assert fits.tolist() == [not one for one in told]
    assert_array_equal(kernel.fits(), fits)
    if request.of(hard=False):
        score = SpreadScore(groups, request)
        expected = spread_scores(states, pod, fits.tolist())
        assert score.normalise(score.raw(fits), fits).tolist() == expected


@given(clusters(), pods("new"), st.data())
def test_without_all_keys_nodes_that_lack_one_are_the_domain_of_the_empty_value(
    states: tuple[NodeState, ...], pod: Pod, data: st.DataObject
) -> None:
    request = spread_request(pod, require_all=False)
    if request is None or not request.of(hard=False):
        return
    feasible = np.array([data.draw(st.booleans()) for _ in states], np.bool_)
    score = SpreadScore(groups_of(states), request)
    expected = spread_scores(states, pod, feasible.tolist(), require_all=False)
    assert score.normalise(score.raw(feasible), feasible).tolist() == expected


@given(clusters(), pods("new"), st.integers(0, 2))
def test_affinity_between_pods_as_the_rule_reads(states: tuple[NodeState, ...], pod: Pod, hard: int) -> None:
    names = Namespaces(NAMESPACES)
    groups = groups_of(states)
    request = interpod_request(pod)
    kernel = InterPodFilter(groups, names, request)
    lonely, crowded, unwanted = kernel.judge()
    told = [
        "affinity" if one else "anti" if two else "existing" if three else ""
        for one, two, three in zip(lonely, crowded, unwanted, strict=True)
    ]
    assert told == interpod_filter(states, pod, NAMESPACES)
    assert kernel.active or not any(told)
    raw = InterPodScore(groups, names, request, InterPodArgs(hard_pod_affinity_weight=hard)).raw()
    expected = interpod_scores(states, pod, NAMESPACES, hard)
    assert (raw.tolist() if raw is not None else [0] * len(states)) == expected


@given(clusters(), pods("new"), st.data())
def test_following_placements_equals_starting_with_them(
    states: tuple[NodeState, ...], pod: Pod, data: st.DataObject
) -> None:
    """Kernels made on an empty cluster and fed one change after the other say the same as fresh ones."""
    names = Namespaces(NAMESPACES)
    groups = groups_of(states, late=True)
    request, affine = spread_request(pod), interpod_request(pod)
    old_filter = InterPodFilter(groups, names, affine)
    old_score = InterPodScore(groups, names, affine, InterPodArgs())
    old_spread = SpreadFilter(groups, request) if request else None
    old_soft = SpreadScore(groups, request) if request else None
    guest = data.draw(pods("guest"))
    journal = [(one, row, 1) for row, state in enumerate(states) for one in state.pods]
    journal.insert(data.draw(st.integers(0, len(journal))), (guest, 0, 1))
    journal.append((guest, 0, -1))
    cut = data.draw(st.integers(0, len(journal)))
    groups.read(journal[:cut])
    old_filter.judge()
    old_score.raw()
    groups.read(journal)
    fresh = groups_of(states)
    late = InterPodFilter(groups, names, affine)  # made after the changes, on groups that have followed them
    assert_array_equal(late.judge(), InterPodFilter(fresh, names, affine).judge())
    assert_array_equal(old_filter.judge(), InterPodFilter(fresh, names, affine).judge())
    new_raw = InterPodScore(fresh, names, affine, InterPodArgs()).raw()
    old_raw = old_score.raw()
    assert (old_raw is None) == (new_raw is None)
    if old_raw is not None and new_raw is not None:
        assert_array_equal(old_raw, new_raw)
    if request is not None and old_spread is not None and old_soft is not None:
        assert_array_equal(old_spread.judge(), SpreadFilter(fresh, request).judge())
        everywhere = np.ones(len(states), np.bool_)
        assert_array_equal(old_soft.raw(everywhere), SpreadScore(fresh, request).raw(everywhere))


@given(clusters(), st.lists(pods("new"), min_size=1, max_size=2), st.lists(st.integers(0, 1), max_size=5))
def test_the_loop_sees_what_was_placed_before(
    states: tuple[NodeState, ...], kinds: list[Pod], order: list[int]
) -> None:
    """Pod by pod, schedule takes a node that the rule allows, and none only where it allows none."""
    room = {"cpu": 4000, "pods": 50}
    spaces = [Namespace(name, immutabledict(labels)) for name, labels in NAMESPACES.items()]
    snapshot = ClusterSnapshot(
        nodes=[NodeState(attrs.evolve(one.node, allocatable=room, taints=()), one.pods) for one in states],
        records=spaces,
    )
    queue = [
        attrs.evolve(
            kinds[kind % len(kinds)], name=f"q{index}", deleted=None, node_selector={}, priority=-index
        )
        for index, kind in enumerate(order)
    ]
    result = schedule(snapshot, queue)
    for pod, decision in zip(queue, result.decisions, strict=True):
        spread = spread_filter(snapshot.nodes, pod)
        near = interpod_filter(snapshot.nodes, pod, NAMESPACES)
        allowed = [
            state.name
            for state, one, two in zip(snapshot.nodes, spread, near, strict=True)
            if not one and not two
        ]
        if isinstance(decision, Bound):
            assert decision.node in allowed
            assert decision.feasible == len(allowed)
            snapshot = snapshot.assume(pod.at(decision.node))
        else:
            assert not allowed


@given(st.integers(0, 3), st.integers(0, 2**32))
def test_where_counted_groups_are_follows_who_comes_and_which_nodes_join(number: int, seed: int) -> None:
    """Places, removals, nodes that join and leave, and new groups, with questions at any time."""
    states = [NodeState(Node(name=f"n{row}")) for row in range(number)]
    groups, there = PodGroups(compile_layout(states)), dict[Pod, int]()
    chance = Random(seed)
    for what in chance.choices("ppppprrmmaaa", k=60):
        if what == "p" and number:
            pod = Pod(name=f"p{len(there)}-{chance.random()}", labels={"app": chance.choice("abcd")})
            there[pod] = chance.randrange(number)
            groups.place(pod, there[pod])
        elif what == "r" and there:
            pod = chance.choice([*there])
            groups.remove(pod, there.pop(pod))
        elif what == "m":
            at = chance.randrange(number + 1)
            gone = 1 if at < number and at not in there.values() and chance.random() < 0.5 else 0
            edit, number = Splice(at, gone, 1 - gone), number + 1 - 2 * gone
            there = {pod: row if row < at else row + 1 - 2 * gone for pod, row in there.items()}
            states = [NodeState(Node(name=f"n{row}")) for row in range(number)]
            groups.move(compile_layout(states), [edit], [] if gone else [at])
        elif what == "a":
            among = groups.weighed(
                "who",
                lambda group: (("zone", 1),) if group.labels["app"] in "ab" else (),
                lambda: range(len(groups.groups)),
            )
            found = Counter[int]()
            for one in among.values():
                rows, counts = groups.rows(one)
                found.update(dict(zip(rows.tolist(), counts.tolist(), strict=True)))
            assert found == Counter(row for pod, row in there.items() if pod.labels["app"] in "ab")
