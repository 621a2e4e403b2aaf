"""Plans of moves that are wrong in one way each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from koordcore.checking.moves import verify_moves
from koordcore.checking.violation import ViolationKind
from koordcore.model.cluster import PodDisruptionBudget, Workload
from koordcore.model.colocation import RawRequirement, RawSelector
from koordcore.model.decisions import Bound
from koordcore.model.gangs import PodGroup
from koordcore.model.moves import Move
from koordcore.model.nodes import Node
from koordcore.model.pods import HostPort, OwnerReference, Pod, PodKey
from koordcore.model.rebalance import (
    NO_LIMITS,
    EvictionGate,
    EvictionLimits,
    EvictorArgs,
    MigrationControllerArgs,
    Namespaces,
)
from koordcore.model.records import ClusterRecord
from koordcore.model.selectors import EVERYTHING
from koordcore.protocol.migration import ANNOTATION_EVICT
from koordcore.snapshot import ClusterSnapshot

OWNER = (OwnerReference("ReplicaSet", "w", "w", controller=True),)


def pod(name: str, on: str, cpu: int = 4, **changes: Any) -> Pod:
    made = Pod(name=name, owners=OWNER, requests={"cpu": cpu}, node_name=on, ready=True)
    return attrs.evolve(made, **changes)


def world(*pods: Pod, records: Sequence[ClusterRecord] = (), cordoned: str = "") -> ClusterSnapshot:
    nodes = [
        Node(name=name, allocatable={"cpu": 8, "pods": 9}, unschedulable=name == cordoned) for name in "abc"
    ]
    return ClusterSnapshot(nodes=nodes).with_records(*records).assume(*pods)


def go(name: str, source: str, target: str, leaves: int = 0, arrives: int | None = None) -> Move:
    last = leaves if arrives is None else arrives
    return Move(pod=PodKey("default", name), source=source, target=target, leaves=leaves, arrives=last)


def found(
    snapshot: ClusterSnapshot,
    *moves: Move,
    args: MigrationControllerArgs | None = None,
    limits: EvictionLimits = NO_LIMITS,
) -> list[tuple[ViolationKind, str, str]]:
    bound = [Bound(pod=move.pod, node=move.target) for move in moves]
    wrong = verify_moves(snapshot, moves, bound, args=args, limits=limits)
    return [(one.kind, one.subject, one.message) for one in wrong]


def test_a_legal_plan() -> None:
    """A chain in two waves, and a swap with one pod down."""
    chain = world(pod("p", "a", 8), pod("q", "b", 8))
    assert found(chain, go("q", "b", "c", 0), go("p", "a", "b", 1)) == []
    assert found(chain, go("q", "b", "a", 1), go("p", "a", "b", 0, 2)) == []


def test_room_that_is_not_free_yet() -> None:
    """Both in one wave: b still holds q while p arrives."""
    chain = world(pod("p", "a", 8), pod("q", "b", 8))
    ((kind, subject, message),) = found(chain, go("q", "b", "c", 0), go("p", "a", "b", 0))
    assert (kind, subject) == (ViolationKind.RESOURCE, "b")
    assert message.startswith("wave 1: cpu: 16 requested")
    ((kind, subject, _),) = found(chain, go("p", "a", "b", 0))
    assert (kind, subject) == (ViolationKind.RESOURCE, "b")


def test_a_port_that_is_not_free_yet() -> None:
    """Whoever leaves in the same wave has it still."""
    port: dict[str, Any] = {"host_ports": (HostPort(80),)}
    snapshot = world(pod("p", "a", **port), pod("q", "b", **port))
    assert [kind for kind, _, _ in found(snapshot, go("q", "b", "c"), go("p", "a", "b"))] == [
        ViolationKind.PORT
    ]
    assert found(snapshot, go("q", "b", "c", 0), go("p", "a", "b", 1)) == []


@pytest.mark.parametrize(
    ("move", "message"),
    [
        (go("p", "b", "c"), "does not run on b"),
        (go("x", "a", "c"), "does not run on a"),
        (go("p", "a", "z"), "no node z"),
        (go("p", "a", "a"), "is on a already"),
        (go("p", "a", "b", 1, 0), "arrives in 0, leaves in 1"),
    ],
)
def test_moves_that_make_no_sense(move: Move, message: str) -> None:
    """Said about the plan as it stands, without replaying it."""
    assert message in [text for _, _, text in found(world(pod("p", "a")), move)]


def test_decisions_that_do_not_go_with_the_moves() -> None:
    """Nothing for one, something for another, one twice."""
    snapshot = world(pod("p", "a"), pod("q", "a"))
    wrong = verify_moves(snapshot, [go("p", "a", "b")], [Bound(pod=PodKey("default", "q"), node="b")])
    assert {one.message for one in wrong} == {"gets nothing on b", "gets something and does not move"}
    assert "moves more than once" in {
        text for _, _, text in found(snapshot, go("p", "a", "b"), go("p", "a", "c"))
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"owners": (OwnerReference("DaemonSet", "d", "d"),)}, "belongs to a DaemonSet"),
        ({"annotations": {"kubernetes.io/config.mirror": ""}}, "is a mirror pod"),
        ({"annotations": {"kubernetes.io/config.source": "file"}}, "is a static pod"),
        (
            {"annotations": {"scheduling.koordinator.sh/eviction-cost": "2147483647"}},
            "must not be evicted at any cost",
        ),
    ],
)
def test_pods_that_never_move(changes: dict[str, Any], message: str) -> None:
    """Whatever is asked for; the evict annotation says otherwise."""
    assert [text for _, _, text in found(world(pod("p", "a", **changes)), go("p", "a", "b"))] == [message]
    allowed = {**changes, "annotations": {"descheduler.alpha.kubernetes.io/evict": ""}}
    assert found(world(pod("p", "a", **allowed)), go("p", "a", "b")) == []


G = EvictionGate
ON_DISK: dict[str, Any] = {"local_storage": True}
BOUND_DISK: dict[str, Any] = {"claims": ("data",)}


@pytest.mark.parametrize(
    ("changes", "evictor", "message", "allows"),
    [
        ({"owners": ()}, {}, "has no owner that makes it again", {"evict_all_bare_pods": True}),
        ({"owners": ()}, {"evict_failed_bare_pods": True}, "has no owner that makes it again", G.BARE_PODS),
        ({"priority": 2 * 10**9}, {}, "is critical for the system", {"evict_system_critical_pods": True}),
        ({"priority": 2 * 10**9}, {}, "is critical for the system", G.SYSTEM_CRITICAL),
        (
            {"priority": 9},
            {"priority_threshold": 9},
            "has priority 9, from 9 on pods stay",
            G.PRIORITY_THRESHOLD,
        ),
        (
            {"priority": 9},
            {"priority_threshold": 9},
            "has priority 9, from 9 on pods stay",
            G.SYSTEM_CRITICAL,
        ),
        ({"priority": 8}, {"priority_threshold": 9}, None, {}),
        (ON_DISK, {}, "has local storage", {"evict_local_storage_pods": True}),
        (ON_DISK, {}, "has local storage", G.LOCAL_STORAGE),
        (BOUND_DISK, {}, None, {}),
        (BOUND_DISK, {"ignore_pvc_pods": True}, "has a PersistentVolumeClaim", G.PVC),
        ({}, {"namespaces": Namespaces(exclude=("default",))}, "namespaces exclude default", G.NAMESPACES),
        ({}, {"namespaces": Namespaces(include=("x",))}, "namespaces do not include default", G.NAMESPACES),
        ({}, {"namespaces": Namespaces(include=("default",))}, None, {}),
    ],
)
def test_pods_that_may_not_be_evicted_do_not_move(
    changes: dict[str, Any],
    evictor: dict[str, Any],
    message: str | None,
    allows: EvictionGate | dict[str, Any],
) -> None:
    """Each rule has an argument or a gate that lifts it; the evict annotation lifts all of them."""

    def told(changes: dict[str, Any], evictor: dict[str, Any]) -> list[str]:
        args = MigrationControllerArgs(evictor=EvictorArgs(**evictor))
        return [text for _, _, text in found(world(pod("p", "a", **changes)), go("p", "a", "b"), args=args)]

    assert told(changes, evictor) == ([message] if message else [])
    lifted = allows if isinstance(allows, dict) else {"skip_gates": frozenset({allows})}
    assert told(changes, {**evictor, **lifted}) == []
    assert told({**changes, "annotations": {ANNOTATION_EVICT: ""}}, evictor) == []


@pytest.mark.parametrize(
    ("operator", "values", "chosen"),
    [
        ("In", ("web", "db"), True),
        ("In", ("db",), False),
        ("NotIn", ("db",), True),
        ("NotIn", ("web",), False),
        ("Exists", (), True),
        ("DoesNotExist", (), False),
        ("Like", ("web",), False),
    ],
)
def test_pods_that_the_label_selector_leaves_out_do_not_move(
    operator: str, values: tuple[str, ...], chosen: bool
) -> None:
    snapshot = world(pod("p", "a", labels={"app": "web"}))
    by_expression = RawSelector(match_expressions=(RawRequirement("app", operator, values),))
    by_label = RawSelector({"app": "web" if chosen else "db"})
    for selector in (by_expression, by_label):
        evictor = EvictorArgs(label_selector=selector)
        wrong = found(snapshot, go("p", "a", "b"), args=MigrationControllerArgs(evictor=evictor))
        assert [text for _, _, text in wrong] == ([] if chosen else ["is not chosen by labelSelector"])


def test_a_node_that_is_not_ready_takes_no_pods() -> None:
    snapshot = world(pod("p", "a"))
    broken = snapshot.with_nodes(attrs.evolve(snapshot.node("b").node, ready=False))
    assert found(broken, go("p", "a", "b")) == [(ViolationKind.MOVE, "default/p", "b is not Ready")]
    assert found(broken, go("p", "a", "c")) == []


def test_a_target_that_does_not_take_pods() -> None:
    """The placement itself is judged like any other."""
    ((kind, subject, _),) = found(world(pod("p", "a"), cordoned="b"), go("p", "a", "b"))
    assert (kind, subject) == (ViolationKind.CORDON, "default/p")


def test_budgets_hold_at_every_moment() -> None:
    """One may be away: one after the other is fine, both at once is not."""
    budget = PodDisruptionBudget(name="one", selector=EVERYTHING, disruptions_allowed=1)
    snapshot = world(pod("p", "a"), pod("q", "a"), records=[budget])
    assert found(snapshot, go("p", "a", "b", 0), go("q", "a", "b", 1)) == []
    assert found(snapshot, go("p", "a", "b"), go("q", "a", "b")) == [
        (ViolationKind.BUDGET, "default/one", "wave 1: 2 away, 1 allowed")
    ]


def test_workloads_keep_enough_pods() -> None:
    """Of four, two may be away, and one is not ready; a single pod never goes."""
    four = Workload(kind="ReplicaSet", name="w", uid="w", replicas=4)
    pods = [pod(name, "a", 1) for name in "pqr"]
    snapshot = world(*pods, pod("s", "b", 1, ready=False), records=[four])
    args = MigrationControllerArgs(max_migrating_per_node=0)
    moves = [go(name, "a", "c") for name in "pq"]
    assert found(snapshot, moves[0], args=args) == []
    assert {kind for kind, _, _ in found(snapshot, *moves, args=args)} == {ViolationKind.BUDGET}
    # A pod that is away anyhow does not count twice.
    assert found(snapshot, go("s", "b", "c"), moves[0], args=args) == []
    alone = attrs.evolve(four, replicas=1)
    assert found(world(pods[0], records=[alone]), moves[0]) != []
    spared = attrs.evolve(args, skip_check_expected_replicas=True)
    assert found(world(pods[0], records=[alone]), moves[0], args=spared) == []


def test_pods_that_wait_for_a_node_are_away_from_their_workload() -> None:
    """Of four, two may be away, and two have no node: nobody moves; beside one that waits one may."""
    four = Workload(kind="ReplicaSet", name="w", uid="w", replicas=4)
    snapshot = attrs.evolve(
        world(pod("p", "a", 1), pod("q", "a", 1), records=[four]),
        pending=[attrs.evolve(pod(name, "a", 1), node_name=None) for name in "rs"],
    )
    assert set(found(snapshot, go("p", "a", "b"))) == {
        (ViolationKind.BUDGET, "ReplicaSet default/w", "wave 1: 3 away, 2 allowed")
    }
    one = attrs.evolve(snapshot, pending=snapshot.pending[:1])
    assert found(one, go("p", "a", "b")) == []


@pytest.mark.parametrize(("share", "most"), [(3, 3), ("30%", 3), ("5%", 1), (0, 1), (None, 2), (99, 10)])
def test_shares_of_a_workload(share: int | str | None, most: int) -> None:
    """Counts, percentages, the ladder, and never more than there are."""
    ten = Workload(kind="ReplicaSet", name="w", uid="w", replicas=10)
    snapshot = world(*(pod(f"p{index}", "a", 0) for index in range(8)), records=[ten])
    args = MigrationControllerArgs(
        max_unavailable_per_workload=share,
        max_migrating_per_workload=share,
        max_migrating_per_node=0,
        skip_check_expected_replicas=True,
    )
    moves = [go(f"p{index}", "a", "b") for index in range(8)]
    assert found(snapshot, *moves[:most], args=args) == []
    assert most >= 8 or found(snapshot, *moves[: most + 1], args=args) != []


@pytest.mark.parametrize(
    "args",
    [
        MigrationControllerArgs(max_unavailable_per_workload="100%"),
        MigrationControllerArgs(max_migrating_per_workload=2),
    ],
)
def test_a_workload_as_large_as_one_of_its_limits_stays(args: MigrationControllerArgs) -> None:
    """The controller migrates none of it, unless the pod or a gate says otherwise."""
    two = Workload(kind="ReplicaSet", name="w", uid="w", replicas=2)
    standing, willing = pod("p", "a", 1), pod("q", "a", 1, annotations={ANNOTATION_EVICT: ""})
    snapshot = world(standing, willing, records=[two])
    assert found(snapshot, go("p", "a", "b"), args=args) == [
        (ViolationKind.BUDGET, "ReplicaSet default/w", "wave 1: 1 away, 0 allowed")
    ]
    assert found(snapshot, go("q", "a", "b"), args=args) == []
    open_gate = EvictorArgs(skip_gates=frozenset({EvictionGate.EXPECTED_REPLICAS}))
    assert found(snapshot, go("p", "a", "b"), args=attrs.evolve(args, evictor=open_gate)) == []


def test_a_gang_keeps_its_minimum() -> None:
    """Two of three are needed."""
    label = {"pod-group.scheduling.sigs.k8s.io": "g"}
    group = PodGroup(namespace="default", name="g", min_member=2)
    snapshot = world(*(pod(name, "a", 1, labels=label) for name in "pqr"), records=[group])
    assert found(snapshot, go("p", "a", "b", 0), go("q", "a", "c", 1)) == []
    assert found(snapshot, go("p", "a", "b"), go("q", "a", "c")) == [
        (ViolationKind.GANG, "default/g", "wave 1: 2 away, 1 allowed")
    ]


def test_limits_of_migration() -> None:
    """Per node two at once by default; per namespace and in all as given; of the plan as a whole."""
    snapshot = world(*(pod(name, "a", 1) for name in "pqr"))
    moves = [go(name, "a", "b") for name in "pqr"]
    assert found(snapshot, *moves) == [(ViolationKind.LIMIT, "node a", "wave 1: 3 away, 2 allowed")]
    in_turn = [go("p", "a", "b", 0), go("q", "a", "b", 0), go("r", "a", "b", 1)]
    assert found(snapshot, *in_turn) == []
    for name, subject in (("globally", "all nodes"), ("per_namespace", "namespace default")):
        args = MigrationControllerArgs(**{f"max_migrating_{name}": 1})  # type: ignore[arg-type]
        wrong = found(snapshot, *in_turn, args=args)
        assert wrong == [(ViolationKind.LIMIT, subject, "wave 1: 2 away, 1 allowed")]
    for limit, subject in (
        ("total", "all nodes"),
        ("per_node", "node a"),
        ("per_namespace", "namespace default"),
    ):
        wrong = found(snapshot, *in_turn, limits=EvictionLimits(**{limit: 2}))
        assert wrong == [(ViolationKind.LIMIT, subject, "3 evictions, 2 allowed")]
