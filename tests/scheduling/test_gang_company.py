"""Gangs whose members keep apart or spread: found on large clusters, and nothing is claimed in vain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from koordcore import ClusterSnapshot, Node, Pod, Policy, ScheduleResult, schedule, verify
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from koordcore.model.certificates import CertificateStatus
from koordcore.model.pods import HostPort
from koordcore.model.policy import GangTurns
from koordcore.model.scheduling_groups import SchedulingPodGroup
from koordcore.model.selectors import LabelSelector
from tests.scheduling.test_gangs import MUST, NETWORK, SPEC, members
from tests.scheduling.test_groups import pods as of_group

HOST, ZONE = "kubernetes.io/hostname", "zone"
DEFAULT = Policy()
OWN = LabelSelector({"app": "g"})
SPREAD: dict[str, Any] = {
    "spread_constraints": (TopologySpreadConstraint(max_skew=1, topology_key=HOST, selector=OWN),)
}


def apart(key: str = HOST) -> dict[str, Any]:
    """A pod that wants no other of its kind near it."""
    return {"affinity": Affinity(anti=PodAffinity(required=(PodAffinityTerm(key, OWN),)))}


def block(number: int, cpu: int = 9000, **labels: str) -> list[Node]:
    """Nodes of one block."""
    return [
        Node(
            name=f"n{one:03}",
            labels={HOST: f"n{one:03}", "block": "b", **labels},
            allocatable={"cpu": cpu, "pods": 10},
        )
        for one in range(number)
    ]


def gathered(cpus: Sequence[int], **fields: Any) -> list[Pod]:
    """A gang that has to lie in one block, whose members ask for so much."""
    return [
        attrs.evolve(
            one,
            requests={"cpu": cpu},
            labels={"app": "g"},
            annotations={**one.annotations, SPEC: MUST},
            **fields,
        )
        for one, cpu in zip(members("g", len(cpus), 0, len(cpus)), cpus, strict=True)
    ]


def decided(nodes: list[Node], pods: list[Pod], policy: Policy = DEFAULT) -> ScheduleResult:
    snapshot = ClusterSnapshot(nodes=nodes, pending=pods, records=[NETWORK])
    result = schedule(snapshot, policy=policy)
    assert verify(snapshot, result) == ()
    return result


@pytest.mark.parametrize(
    ("cpus", "fields"),
    [
        pytest.param((1000, 1000), apart(), id="equal members that keep apart"),
        pytest.param((1000, 1000, 1500), apart(), id="members of two kinds that keep apart"),
        pytest.param((1000, 1500), {"host_ports": (HostPort(80),)}, id="members of two kinds with one port"),
        pytest.param((1000, 1000, 1000), SPREAD, id="members that spread"),
        pytest.param((10,) * 14, SPREAD, id="many members that spread"),
    ],
)
def test_members_that_want_a_node_each_find_it_among_a_hundred(
    cpus: Sequence[int], fields: dict[str, Any]
) -> None:
    """Fewest nodes would gather them: that no node takes two has to be learned of all, not of one a time."""
    result = decided(block(100), gathered(cpus, **fields))
    assert len({one.node for one in result.bound}) == len(cpus)


def test_that_equal_members_need_a_node_each_is_known_and_so_the_plan_is_proven() -> None:
    (plan,) = decided(block(3), gathered((1000, 1000), **apart())).jobs
    assert plan.certificate is not None
    assert plan.certificate.proven
    assert plan.domains["NodeTopologyLayer"] == 2


def test_members_that_keep_apart_by_a_label_that_a_node_lacks_may_share_it() -> None:
    """No value, no neighbour: so it is in Kubernetes."""
    nodes = [attrs.evolve(one, labels={"block": "b"}) for one in block(1)]
    assert [one.node for one in decided(nodes, gathered((1000, 1000), **apart())).bound] == ["n000", "n000"]


def test_members_that_share_a_port_are_kept_apart_and_no_others() -> None:
    """The first two want one port; the smaller node takes one of them, so that the others lie together."""
    nodes = [
        attrs.evolve(one, allocatable={"cpu": cpu, "pods": 9})
        for one, cpu in zip(block(2), (9000, 1500), strict=True)
    ]
    first, second, *others = gathered((1000, 1500, 2000, 2500))
    sharing = [attrs.evolve(one, host_ports=(HostPort(80),)) for one in (first, second)]
    found = {one.pod.name: one.node for one in decided(nodes, [*sharing, *others]).bound}
    assert len(found) == 4
    assert found[first.name] != found[second.name]
    assert {found[one.name] for one in others} == {"n000"}


def test_members_of_which_only_one_heeds_the_other_are_kept_apart_as_well() -> None:
    first, second = gathered((1000, 1500), **apart())
    result = decided(block(100), [first, attrs.evolve(second, affinity=None)])
    assert len({one.node for one in result.bound}) == 2


def test_members_that_spread_take_their_nodes_in_turns() -> None:
    """Two of four fit each node; whoever asks one node for all four, or for two at once, is told no."""
    result = decided(block(2), gathered((1000,) * 4, **SPREAD))
    assert sorted(one.node for one in result.bound) == ["n000", "n000", "n001", "n001"]
    (plan,) = result.jobs
    assert plan.certificate is not None
    assert plan.certificate.status is CertificateStatus.HEURISTIC


def test_of_members_that_spread_it_is_never_proven_that_no_plan_exists() -> None:
    """The second node is full, and counts as one without members."""
    full = attrs.evolve(block(2)[1], allocatable={"cpu": 0, "pods": 10})
    (plan,) = decided([block(2)[0], full], gathered((1000,) * 4, **SPREAD)).jobs
    assert not plan.placed
    assert plan.certificate is None or plan.certificate.status is CertificateStatus.HEURISTIC


def test_members_in_company_go_where_there_is_room_for_all_of_them() -> None:
    """Zone b holds three of them, zone a two; the node that scores best lies in a."""
    rooms = {"n000": (2000, "a"), "n001": (1000, "b"), "n002": (2000, "b")}
    nodes = [
        attrs.evolve(one, labels={**one.labels, ZONE: zone}, allocatable={"cpu": cpu, "pods": 10})
        for one in block(3)
        for cpu, zone in [rooms[one.name]]
    ]
    near = Affinity(pod=PodAffinity(required=(PodAffinityTerm(ZONE, OWN),)))
    result = decided(nodes, gathered((1000,) * 3, affinity=near))
    assert sorted(one.node for one in result.bound) == ["n001", "n002", "n002"]


def test_of_a_group_whose_members_look_for_company_it_is_never_proven_that_no_domain_takes_it() -> None:
    """The second member may go where the first is, which no node says before the first has come."""
    near = Affinity(pod=PodAffinity(required=(PodAffinityTerm(HOST, OWN),)))
    first, second = of_group("g", 2)
    pods = [attrs.evolve(first, labels={"app": "g"}), attrs.evolve(second, affinity=near)]
    group = SchedulingPodGroup(name="g", min_count=2, topology_keys=("block",))
    snapshot = ClusterSnapshot(nodes=block(2), pending=pods, records=[group])
    (plan,) = schedule(snapshot).jobs
    assert plan.certificate is None or plan.placed == 2


def test_of_members_kept_apart_by_zones_a_refusal_beside_the_others_proves_nothing() -> None:
    """The large one needs n001, and the small one n002: beside the small one on n000 n001 is refused."""
    sizes = {"n000": (1000, "a"), "n001": (9000, "a"), "n002": (1000, "b")}
    nodes = [
        attrs.evolve(one, labels={**one.labels, ZONE: zone}, allocatable={"cpu": cpu, "pods": 10})
        for one in block(3)
        for cpu, zone in [sizes[one.name]]
    ]
    (plan,) = decided(nodes, gathered((1000, 5000), **apart(ZONE))).jobs
    assert plan.placed == 2 or plan.certificate is None or not plan.certificate.proven
    assert plan.certificate is None or plan.certificate.status is not CertificateStatus.INFEASIBLE


def test_gangs_that_are_planned_together_claim_nothing_of_members_that_spread() -> None:
    pods = [
        attrs.evolve(pod, labels={"app": "g"}, **SPREAD)
        for name in ("a", "b")
        for pod in members(name, 2, 1000, 2)
    ]
    snapshot = ClusterSnapshot(nodes=block(2), pending=pods)
    result = schedule(snapshot, policy=Policy(gangs=GangTurns.TOGETHER))
    assert verify(snapshot, result) == ()
    assert not any(plan.certificate.proven for plan in result.together if len(plan.started) < 2)


def test_what_members_of_one_kind_do_not_do_together_is_learned_beside_members_of_another() -> None:
    """The large member has a node of its own; the two others, who spread, may not share one."""
    own = Node(
        name="own", labels={HOST: "own", "block": "b", "for": "it"}, allocatable={"cpu": 1500, "pods": 9}
    )
    *small, large = gathered((1000, 1000, 1500), **SPREAD)
    large = attrs.evolve(large, labels={"app": "other"}, spread_constraints=(), node_selector={"for": "it"})
    result = decided([*block(3), own], [*small, large])
    assert len({one.node for one in result.bound}) == 3
