"""Gang groups of which a part is enough: who starts nobody owes nothing."""

from __future__ import annotations

import json

import pytest

from koordcore import (
    ClusterNetworkTopology,
    ClusterSnapshot,
    GatherRule,
    NetworkTopologySpec,
    Node,
    NodeState,
    Pod,
    PodGroup,
    schedule,
    verify,
)
from koordcore.checking.certificates import CertificateCheck, check_certificate
from koordcore.topology import LayerSpec

GANG = "gang.scheduling.koordinator.sh/"
LABEL = "pod-group.scheduling.sigs.k8s.io"


@pytest.mark.parametrize("match", ["waiting-and-running", "only-waiting", "once-satisfied"])
@pytest.mark.parametrize(
    ("minimums", "waiting", "running", "enough", "starts"),
    [
        ((1, 1, 3), (1, 1, 0), (0, 0, 1), 2, 2),
        ((1, 1, 3), (1, 1, 1), (0, 0, 1), 2, None),
        ((1, 2), (1, 0), (0, 1), 1, 1),
        ((1, 2, 0), (1, 1, 0), (0, 0, 0), 2, None),
    ],
)
def test_what_starts_is_what_may(
    minimums: tuple[int, ...],
    waiting: tuple[int, ...],
    running: tuple[int, ...],
    enough: int,
    starts: int | None,
    match: str,
) -> None:
    """One whose member runs, and one without a minimum, are seen by both as they are."""
    ids = json.dumps([f"default/g{number}" for number in range(len(minimums))])
    notes = {f"{GANG}groups": ids, f"{GANG}min-groups": str(enough), f"{GANG}match-policy": match}
    groups = [
        PodGroup(namespace="default", name=f"g{number}", min_member=least, annotations=notes)
        for number, least in enumerate(minimums)
    ]

    def members(kind: str, numbers: tuple[int, ...]) -> list[Pod]:
        return [
            Pod(name=f"{kind}{gang}-{number}", labels={LABEL: f"g{gang}"}, requests={"cpu": 1000})
            for gang, there in enumerate(numbers)
            for number in range(there)
        ]

    node = Node(name="a", allocatable={"cpu": 16_000, "pods": 90})
    state = NodeState(node, tuple(pod.at("a") for pod in members("r", running)))
    snapshot = ClusterSnapshot(nodes=[state], pending=members("w", waiting), records=groups)
    result = schedule(snapshot)
    assert starts is None or len(result.bound) == starts
    assert verify(snapshot, result) == ()


@pytest.mark.parametrize("least", [0, 1])
def test_a_layer_that_is_not_there_refuses_with_evidence(least: int) -> None:
    """Be it a gang that asks for nobody."""
    network = ClusterNetworkTopology(
        "default", (LayerSpec("Block", ("block",)), LayerSpec("NodeTopologyLayer", (), "Block"))
    )
    rules = NetworkTopologySpec((GatherRule("Nowhere", "MustGather"),))
    group = PodGroup(namespace="default", name="g", min_member=least, topology_spec=rules)
    pod = Pod(name="g-0", labels={LABEL: "g"}, requests={"cpu": 1000})
    node = Node(name="a", labels={"block": "x"}, allocatable={"cpu": 4000, "pods": 9})
    snapshot = ClusterSnapshot(nodes=[node], pending=[pod], records=[network, group])
    result = schedule(snapshot)
    known = result.jobs[0].certificate
    assert not result.bound
    assert known is not None
    assert known.problem is not None
    assert check_certificate(known.problem, known).outcome is CertificateCheck.ACCEPTED
