"""The webhooks: what the shared vectors leave open, and what is ours."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st
from immutabledict import immutabledict

from koordcore.errors import ManifestError
from koordcore.model.nodes import Node, NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.model.quotas import DEFAULT_QUOTA, ElasticQuota, QuotaPod, QuotaPolicy
from koordcore.model.resources import make_resources
from koordcore.model.selectors import EVERYTHING, NOTHING, LabelSelector, Requirement, SelectorOperator
from koordcore.protocol.exact import (
    ExactQuantity,
    Notation,
    add_lists,
    exact_pod_requests,
    parse_exact,
    parse_exact_list,
)
from koordcore.protocol.quota import (
    IS_PARENT,
    NAMESPACES,
    PARENT,
    QUOTA_NAME,
    QuotaObject,
    elastic_quota_from_object,
    label_selector_from_object,
    quota_object,
    quota_pod_of,
)
from koordcore.protocol.quota_args import parse_quota_args
from koordcore.protocol.quota_rules import QuotaTopology
from koordcore.protocol.quota_webhook import Refused
from koordcore.quota import (
    add_tree_affinity,
    admit_batch,
    create_quota,
    delete_quota,
    fill_quota,
    open_topology,
    update_quota,
)
from koordcore.quota.cluster import cluster_ledger
from koordcore.snapshot import ClusterSnapshot

Json = dict[str, Any]


def quota(
    name: str, *, parent: str = "", least: str = "0", most: str = "9", inner: bool = False
) -> QuotaObject:
    labels = {PARENT: parent} if parent else {}
    if inner:
        labels[IS_PARENT] = "true"
    return quota_object(
        {
            "metadata": {"name": name, "namespace": "teams", "labels": labels},
            "spec": {"max": {"cpu": most}, "min": {"cpu": least}},
        }
    )


# --- edits of a tree --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "name", "parent"),
    [
        ([("a", ""), ("b", "a")], "a", "b"),
        ([("a", ""), ("b", "a")], "a", "a"),
        ([("a", ""), ("b", "a"), ("c", "b"), ("d", "c")], "a", "d"),
        ([("r", ""), ("a", "r"), ("b", "a"), ("c", "b")], "b", "c"),
    ],
)
def test_a_cycle_is_refused_and_named(start: list[tuple[str, str]], name: str, parent: str) -> None:
    topology = open_topology(quota(one, parent=above, inner=True) for one, above in start)
    old = topology.quotas[name]
    outcome = update_quota(topology, old, quota(name, parent=parent, inner=True))
    assert isinstance(outcome, Refused)
    assert outcome.message.startswith(f"the parents of elastic quotas form a cycle: {name} -> {parent}")
    assert outcome.message.endswith(f" -> {name}")


names = st.sampled_from("abcdef")


@settings(max_examples=23)
@given(st.lists(st.tuples(names, st.one_of(st.just(""), names), st.booleans()), max_size=14))
def test_no_chain_of_accepted_edits_makes_a_tree_that_cannot_be_opened(
    edits: list[tuple[str, str, bool]],
) -> None:
    """Create, move and delete at random: what is accepted is always a forest, known from both ends."""
    topology = open_topology([])
    for name, parent, delete in edits:
        outcome: QuotaTopology | Refused
        if name not in topology.quotas:
            filled = fill_quota(topology, quota(name, parent=parent, inner=True))
            if isinstance(filled, Refused):
                assert filled.message == f"fill quota {name} failed, parent not exist"
                continue
            outcome = create_quota(topology, filled)
        elif delete:
            outcome = delete_quota(topology, name)
        else:
            outcome = update_quota(topology, topology.quotas[name], quota(name, parent=parent, inner=True))
        if isinstance(outcome, QuotaTopology):
            topology = outcome
        for one in topology.quotas.values():
            assert one.name in topology.children[one.parent]
            above, steps = one, 0
            while above.parent in topology.quotas:
                above, steps = topology.quotas[above.parent], steps + 1
                assert steps <= len(topology.quotas)


def test_a_namespace_stays_with_the_quota_that_has_it_when_another_lister_goes() -> None:
    listed = immutabledict({NAMESPACES: '["ns"]'})
    first, second = (attrs.evolve(quota(name), annotations=listed) for name in ("a", "b"))
    topology = open_topology([first, second])
    gone = delete_quota(topology, "b")
    changed = update_quota(topology, second, quota("b"))
    for after in (gone, changed):
        assert isinstance(after, QuotaTopology)
        assert after.namespaces == {"ns": "a"}
        assert isinstance(create_quota(after, attrs.evolve(second, name="c")), Refused)
    freed = delete_quota(topology, "a")
    assert isinstance(freed, QuotaTopology)
    assert not freed.namespaces


def test_an_unreadable_weight_is_refused_where_it_is_filled_in() -> None:
    raw = {
        "metadata": {
            "name": "q",
            "annotations": {"quota.scheduling.koordinator.sh/shared-weight": '{"cpu":"much"}'},
        },
        "spec": {"max": {"cpu": "1"}},
    }
    outcome = fill_quota(open_topology([]), quota_object(raw))
    assert isinstance(outcome, Refused)
    assert outcome.message.startswith("fillDefaultQuotaInfo unmarshal sharedWeight failed:")


def test_the_scheduler_takes_an_unreadable_weight_as_max_and_says_so() -> None:
    raw = {
        "metadata": {
            "name": "q",
            "annotations": {
                "quota.scheduling.koordinator.sh/shared-weight": "{",
                "quota.scheduling.koordinator.sh/namespaces": '{"a":1}',
            },
        },
        "spec": {"max": {"cpu": "1"}},
    }
    made, warnings = elastic_quota_from_object(raw)
    assert made.weight == make_resources({"cpu": 1000})
    assert made.namespaces == ()
    assert [one.path for one in warnings] == [
        "metadata.annotations[quota.scheduling.koordinator.sh/shared-weight]",
        "metadata.annotations[quota.scheduling.koordinator.sh/namespaces]",
    ]


def test_an_amount_that_is_none_is_named_with_its_place() -> None:
    with pytest.raises(ManifestError, match=r'spec\.max\[cpu\]: expected a quantity, got "lots"'):
        elastic_quota_from_object({"metadata": {"name": "q"}, "spec": {"max": {"cpu": "lots"}}})


# --- many pods at creation --------------------------------------------------------------------------------


def test_everybody_is_told_when_the_count_cannot_be_read() -> None:
    broken = quota_object(
        {
            "metadata": {"name": "q", "annotations": {"quota.scheduling.koordinator.sh/child-request": "{"}},
            "spec": {"max": {"cpu": "1"}},
        }
    )
    reasons = admit_batch(broken, [parse_exact_list({"cpu": "1"})] * 2, lambda _: None)
    assert all("not JSON" in reason for reason in reasons)


def test_a_batch_of_pods_that_count_nothing_writes_nothing() -> None:
    writes: list[QuotaObject] = []

    def write(one: QuotaObject) -> None:
        writes.append(one)

    assert admit_batch(quota("q"), [parse_exact_list({"x/y": "1"}), parse_exact_list({})], write) == ("", "")
    assert writes == []


# --- exact amounts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("0.5Gi", "512Mi"),
        ("1000Ki", "1000Ki"),
        ("1024", "1024"),
        ("1000", "1k"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("1500m", "1500m"),
        ("1e3", "1e3"),
        ("0.1n", "1n"),
        ("-1.5", "-1500m"),
        ("9Ei", str(2**63 - 1)),
        ("90E", "90E"),
        ("0", "0"),
    ],
)
def test_quantities_print_in_their_notation(text: str, printed: str) -> None:
    assert str(parse_exact(text)) == printed


@given(st.integers(-(10**30), 10**30), st.sampled_from(Notation))
def test_a_printed_quantity_reads_back(nano: int, notation: Notation) -> None:
    one = ExactQuantity(nano, notation)
    if abs(nano) < (2**63 - 1) * 10**9:
        assert parse_exact(str(one)).nano == nano


def test_a_sum_keeps_the_notation_of_its_first_operand_but_zero() -> None:
    total = add_lists(
        parse_exact_list({"memory": "0", "x": "1k"}), parse_exact_list({"memory": "2Ki", "x": "1Ki"})
    )
    assert {name: str(one) for name, one in total.items()} == {"memory": "2Ki", "x": "2024"}


def test_sidecars_stand_beside_the_containers_that_start_after_them() -> None:
    def container(cpu: str, **more: str) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    pod = {
        "spec": {
            "initContainers": [container("5"), container("1", restartPolicy="Always"), container("4500m")],
            "containers": [container("2"), container("1")],
            "overhead": {"cpu": "250m"},
        }
    }
    assert str(exact_pod_requests(pod)["cpu"]) == "5750m"
    assert str(exact_pod_requests(pod, overhead=False)["cpu"]) == "5500m"


# --- selectors and profiles -------------------------------------------------------------------------------


def test_absent_and_empty_selectors_differ() -> None:
    assert label_selector_from_object(None) == NOTHING
    assert label_selector_from_object({}) == EVERYTHING


def test_selectors_of_all_nodes_and_of_none_change_no_pod() -> None:
    assert add_tree_affinity(None, EVERYTHING) is None
    assert add_tree_affinity(None, NOTHING) is None
    wanted = LabelSelector(immutabledict({"b": "2", "a": "1"}), (Requirement("c", SelectorOperator.EXISTS),))
    terms = add_tree_affinity({"podAffinity": {"x": 1}}, wanted)
    assert terms == {
        "podAffinity": {"x": 1},
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "a", "operator": "In", "values": ["1"]},
                            {"key": "b", "operator": "In", "values": ["2"]},
                            {"key": "c", "operator": "Exists"},
                        ]
                    }
                ]
            }
        },
    }


# --- arguments and snapshots ------------------------------------------------------------------------------


def test_arguments_left_out_have_upstreams_defaults() -> None:
    assert parse_quota_args({}) == QuotaPolicy()
    policy = parse_quota_args(
        {"enableRuntimeQuota": False, "delayEvictTime": "30s", "defaultQuotaGroupMax": {"cpu": "2"}},
        gates=["MultiQuotaTree"],
    )
    assert policy == QuotaPolicy(
        enable_runtime_quota=False,
        delay_evict=30 * 10**9,
        default_quota_group_max=make_resources({"cpu": 2000}),
        multi_quota_tree=True,
    )


def test_every_argument_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_quota_args(
            {"enableRuntimeQuota": "yes", "delayEvictTime": "-1s", "systemQuotaGroupMax": {"cpu": "-1"}}
        )
    assert [one.path for one in caught.value.problems] == [
        "enableRuntimeQuota",
        "systemQuotaGroupMax[cpu]",
        "delayEvictTime",
    ]


def test_a_snapshot_opens_its_ledger_once() -> None:
    def pod(name: str, cpu: int, label: str = "", node: str | None = None) -> Pod:
        return Pod(
            name=name,
            labels={QUOTA_NAME: label} if label else {},
            requests=make_resources({"cpu": cpu}),
            node_name=node,
        )

    node = Node(name="n", allocatable=make_resources({"cpu": 100, "pods": 9}))
    snapshot = ClusterSnapshot(
        nodes=(NodeState(node, (pod("run", 20, "q", "n"), pod("stray", 10, node="n"))),),
        pending=(pod("wait", 200, "q"),),
        records=(ElasticQuota(name="q", namespace="teams", max=make_resources({"cpu": 500})),),
    )
    ledger = cluster_ledger(snapshot)
    assert cluster_ledger(snapshot) is ledger
    assert ledger.runtime_of("q") == make_resources({"cpu": 90})
    assert ledger.used_of("q") == make_resources({"cpu": 20})
    assert ledger.used_of(DEFAULT_QUOTA) == make_resources({"cpu": 10})
    booked = QuotaPod(key=PodKey("d", "booked"), quota="q", request=make_resources({"cpu": 1}))
    with_one = cluster_ledger(snapshot).track(booked)
    assert with_one.status("q").request == make_resources({"cpu": 221})
    assert quota_pod_of(snapshot.pending[0]).quota == "q"
