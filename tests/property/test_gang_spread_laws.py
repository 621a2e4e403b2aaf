"""Laws of gangs whose members count each other: placed in one block wherever any order finds places there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
from hypothesis import example, given, strategies as st

from koordcore import ClusterSnapshot, Node, Pod, schedule, verify
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from koordcore.model.records import ClusterRecord
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.model.selectors import LabelSelector
from tests.scheduling.test_gangs import MUST, NETWORK, SPEC, members
from tests.scheduling.test_groups import pods as of_group

HOST, ZONE = "kubernetes.io/hostname", "zone"
OWN: Final = LabelSelector({"app": "g"})
Host = tuple[int, int, int]
"""Members that a node has room for, its block, its zone."""
RULES: Final = ("spread by 1", "spread by 2", "in company", "apart")


def fields_of(rule: str, key: str) -> Mapping[str, Any]:
    """Write a rule on a pod."""
    if rule.startswith("spread"):
        skew = int(rule[-1])
        return {
            "spread_constraints": (TopologySpreadConstraint(max_skew=skew, topology_key=key, selector=OWN),)
        }
    terms = PodAffinity(required=(PodAffinityTerm(key, OWN),))
    return {"affinity": Affinity(pod=terms) if rule == "in company" else Affinity(anti=terms)}


def allows(rule: str, there: int, of: Mapping[int, int]) -> bool:
    """Tell whether a member may go where so many are in its domain; ``of`` has those of all domains."""
    if rule.startswith("spread"):
        return there + 1 - min(of.values()) <= int(rule[-1])
    if rule == "apart":
        return not there
    return there > 0 or not any(of.values())  # the first member has nobody to look for


def in_turn(hosts: Sequence[Host], number: int, rule: str, key: str, block: int | None) -> bool:
    """Tell whether so many members find places in a block (``None``: anywhere), one after another."""
    domains = [at if key == HOST else zone for at, (_, _, zone) in enumerate(hosts)]
    reached = {(0,) * len(hosts)}
    for _ in range(number):
        further = set()
        for counts in reached:
            of = dict.fromkeys(domains, 0)
            for count, domain in zip(counts, domains, strict=True):
                of[domain] += count
            for at, (room, lies_in, _) in enumerate(hosts):
                fits = counts[at] < room and block in (None, lies_in)
                if fits and allows(rule, of[domains[at]], of):
                    further.add((*counts[:at], counts[at] + 1, *counts[at + 1 :]))
        reached = further
    return bool(reached)


hosts_of = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=4
)


def gang_of(
    dialect: str, number: int, *, gathers: bool, **fields: Any
) -> tuple[list[Pod], list[ClusterRecord]]:
    """Make a gang, of Koordinator or of Kubernetes itself, that lies in one block or anywhere."""
    if dialect == "kubernetes":
        group = SchedulingPodGroup(name="g", min_count=number, topology_keys=("block",) if gathers else ())
        return [attrs.evolve(one, labels={"app": "g"}, **fields) for one in of_group("g", number)], [group]
    wish = {SPEC: MUST} if gathers else {}
    pods = [
        attrs.evolve(one, labels={"app": "g"}, annotations={**one.annotations, **wish}, **fields)
        for one in members("g", number, 1000, number)
    ]
    return pods, [NETWORK]


@given(
    hosts_of,
    st.integers(1, 6),
    st.sampled_from(RULES),
    st.sampled_from((HOST, ZONE)),
    st.booleans(),
    st.sampled_from(("koordinator", "kubernetes")),
)
@example([(4, 0, 0), (4, 0, 0)], 4, "spread by 1", HOST, True, "koordinator")
@example([(1, 0, 0), (3, 0, 1), (2, 1, 0)], 4, "spread by 1", ZONE, True, "kubernetes")
@example([(2, 0, 0), (1, 0, 1), (2, 0, 1)], 3, "in company", ZONE, True, "koordinator")
def test_a_gang_is_placed_wherever_its_members_find_places_in_any_order(
    hosts: list[Host], number: int, rule: str, key: str, gathers: bool, dialect: str
) -> None:
    nodes = [
        Node(
            name=f"n{at}",
            labels={HOST: f"n{at}", "block": f"b{block}", ZONE: f"z{zone}"},
            allocatable={"cpu": 1000 * room, "pods": 10},
        )
        for at, (room, block, zone) in enumerate(hosts)
    ]
    pods, records = gang_of(dialect, number, gathers=gathers, **fields_of(rule, key))
    snapshot = ClusterSnapshot(nodes=nodes, pending=pods, records=records)
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    blocks = sorted({block for _, block, _ in hosts}) if gathers else [None]
    possible = any(in_turn(hosts, number, rule, key, block) for block in blocks)
    assert bool(result.bound) == possible
