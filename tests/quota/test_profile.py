"""Profiles of a part of the cluster: the root quota that each should have, and the nodes its pods go to."""

from __future__ import annotations

from typing import Any

import pytest
from immutabledict import immutabledict

from koordcore.model.nodes import Node
from koordcore.model.quotas import QuotaProfile
from koordcore.model.selectors import EVERYTHING, NOTHING, LabelSelector, Requirement, SelectorOperator
from koordcore.protocol.quota import IS_ROOT, PROFILE, TREE_ID, QuotaObject
from koordcore.protocol.quota_rules import QuotaTopology
from koordcore.quota.profile import add_tree_affinity, reconcile_profile, tree_id_of, tree_profile

POOL = LabelSelector(match_labels=immutabledict(pool="gpu"))
LARGEST = 4611686018427387
"""A 2000th of what 64 bits with a sign hold: no real limit."""


def node(name: str, pool: str = "gpu", **fields: Any) -> Node:
    return Node(name=name, labels={"pool": pool}, allocatable={"cpu": 9000, "memory": 101}, **fields)


def profile(**fields: Any) -> QuotaProfile:
    return QuotaProfile(name="p", namespace="team", quota_name="root", node_selector=POOL, **fields)


def test_the_root_quota_of_a_profile_has_what_its_nodes_offer() -> None:
    nodes = [
        node("a"),
        node("b", unschedulable=True),
        node("c", ready=False),
        node("d", pool="cpu"),
    ]
    root = reconcile_profile(
        profile(quota_labels=immutabledict(tier="gold")), nodes, existing_labels={"old": "1", PROFILE: "x"}
    )
    assert (root.name, root.namespace) == ("root", "team")
    assert root.total == root.min == {"cpu": 27_000, "memory": 303}
    assert root.unschedulable == {"cpu": 18_000, "memory": 202}
    assert root.max == {"cpu": 1000 * LARGEST, "memory": LARGEST}
    assert root.labels == {
        "old": "1",
        PROFILE: "p",
        "tier": "gold",
        TREE_ID: tree_id_of(profile()),
        IS_ROOT: "true",
    }
    bare = reconcile_profile(profile(resource_keys=("cpu", "gpu")), nodes[:1])
    assert bare.min == {"cpu": 9000, "gpu": 0}
    assert bare.max == {"cpu": 1000 * LARGEST, "gpu": LARGEST}
    assert bare.unschedulable == {}


@pytest.mark.parametrize(
    ("ratio", "cpu", "memory"),
    [
        (None, 9000, 101),
        ("", 9000, 101),
        ("0.5", 4500, 50),
        ("5e-1", 4500, 50),
        ("1", 9000, 101),
        ("1.5", 9000, 101),
        ("0", 9000, 101),
        ("-0.5", 9000, 101),
        ("half", 9000, 101),
    ],
)
def test_a_share_of_the_nodes_is_cut_down_and_what_is_none_counts_as_all(
    ratio: str | None, cpu: int, memory: int
) -> None:
    root = reconcile_profile(profile(resource_ratio=ratio), [node("a")])
    assert root.total == {"cpu": cpu, "memory": memory}


def test_a_tree_is_named_by_its_label_or_by_the_hash_of_the_profile() -> None:
    assert tree_id_of(profile(labels=immutabledict({TREE_ID: "mine"}))) == "mine"
    # FNV-1a of "team/p" in 64 bits, by the constants of its authors.
    value = 14695981039346656037
    for byte in b"team/p":
        value = (value ^ byte) * 1099511628211 % 2**64
    assert tree_id_of(profile()) == str(value)


def test_the_first_profile_with_the_id_of_the_quotas_tree_is_meant() -> None:
    tree = immutabledict({TREE_ID: "t"})
    quotas = {
        "mine": QuotaObject(name="mine", labels=tree),
        "plain": QuotaObject(name="plain"),
        "team": QuotaObject(name="team", labels=tree),
    }
    topology = QuotaTopology(
        quotas=immutabledict(quotas), children=immutabledict(), namespaces=immutabledict(lab="mine")
    )
    second = QuotaProfile(name="a", namespace="z", labels=tree)
    first = QuotaProfile(name="b", namespace="y", labels=tree)
    other = QuotaProfile(name="a", namespace="a", labels=immutabledict({TREE_ID: "u"}))
    profiles = [second, other, first]

    def found(quota: str, namespace: str) -> QuotaProfile | None:
        return tree_profile(topology, profiles, quota=quota, namespace=namespace)

    assert found("mine", "nowhere") is first
    assert found("", "team") is first
    assert found("", "lab") is found("gone", "lab") is first
    assert found("plain", "team") is None
    assert found("gone", "team") is None
    assert found("", "nowhere") is None
    assert tree_profile(topology, [other], quota="mine", namespace="") is None


def test_the_nodes_of_a_tree_are_required_beside_what_a_pod_requires() -> None:
    selector = LabelSelector(
        match_labels=immutabledict(pool="gpu"),
        requirements=(
            Requirement("zone", SelectorOperator.IN, ("a", "b")),
            Requirement("spot", SelectorOperator.DOES_NOT_EXIST, ()),
        ),
    )
    conditions = [
        {"key": "pool", "operator": "In", "values": ["gpu"]},
        {"key": "zone", "operator": "In", "values": ["a", "b"]},
        {"key": "spot", "operator": "DoesNotExist"},
    ]
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    made = {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchExpressions": conditions}]}}}
    assert add_tree_affinity(None, selector) == made
    own = {"key": "arch", "operator": "In", "values": ["arm64"]}
    asked = {
        "podAffinity": {"x": 1},
        "nodeAffinity": {
            "preferred": [],
            required: {"nodeSelectorTerms": [{"matchExpressions": [own]}, {"matchFields": ["f"]}]},
        },
    }
    assert add_tree_affinity(asked, selector) == {
        "podAffinity": {"x": 1},
        "nodeAffinity": {
            "preferred": [],
            required: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [own, *conditions]},
                    {"matchFields": ["f"], "matchExpressions": conditions},
                ]
            },
        },
    }
    for everything in (EVERYTHING, NOTHING):
        assert add_tree_affinity(asked, everything) is asked
