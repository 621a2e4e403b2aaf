"""Moves after which a pod fits with its claims."""

from __future__ import annotations

import attrs
import pytest

from benchmarks.claims_data import mig_cards
from koordcore import ClusterSnapshot, Pod, schedule
from koordcore.checking.moves import verify_moves
from koordcore.descheduling import plan_room_for
from koordcore.manifests.move_records import moves_from_record, moves_record
from koordcore.model.certificates import CertificateStatus
from koordcore.model.pods import OwnerReference
from tests.scheduling.test_claims_gangs import cluster, member

OWNER = (OwnerReference(kind="ReplicaSet", name="set", uid="set", controller=True),)


def pod(name: str, profile: str) -> Pod:
    return attrs.evolve(member(name, profile, least=1), annotations={}, owners=OWNER)


def scattered(nodes: int, cards: int) -> ClusterSnapshot:
    """One 3g partition on each card: two were there, and one of them has gone."""
    pods = [pod(f"p{number:04}", "3g-40gb") for number in range(nodes * cards * 2)]
    placed = schedule(cluster([mig_cards(f"n{number:02}", cards) for number in range(nodes)], pods))
    assert len(placed.bound) == len(pods)
    seen: set[str] = set()
    gone = []
    for one in placed.bound:
        (device,) = one.claims[0].allocation.results
        card = f"{device.pool}/{device.device.split('-3g')[0]}"
        gone += [one.pod] if card in seen else []
        seen.add(card)
    return placed.snapshot.forget(*gone)


@pytest.mark.parametrize(("nodes", "cards"), [(1, 2), (2, 1), (50, 8)])
def test_one_partition_moves_so_that_a_whole_card_is_free(nodes: int, cards: int) -> None:
    snapshot = scattered(nodes, cards)
    large = pod("large", "7g-80gb")
    assert not schedule(snapshot.with_pending(large)).bound
    moving = plan_room_for(snapshot, large)
    (move,) = moving.plan.moves
    assert moving.plan.certificate.proven
    assert moving.plan.place is not None
    assert verify_moves(snapshot, moving.plan.moves, moving.checked.bound) == ()
    # The pod has the card, and who made way runs on beside it.
    assert moving.checked.snapshot.pod(large.key) is not None
    assert moving.checked.snapshot.pod(move.pod) is not None
    read = moves_from_record(moves_record(moving.plan.moves, moving.checked.bound))
    assert read[1][0].claims == moving.checked.bound[0].claims


def test_a_partition_makes_room_for_one_that_makes_room() -> None:
    """A whole card is wanted: the partition of one finds no place until another card's smallest has moved."""
    wanted = [("a", "3g-40gb"), ("b1", "1g-10gb"), ("b3", "3g-40gb"), ("c3", "3g-40gb"), ("c2", "2g-20gb")]
    snapshot = cluster([mig_cards(f"n{number}", 1) for number in range(3)], [])
    named = [attrs.evolve(one.node, labels={"name": one.name}) for one in snapshot.nodes]
    snapshot = snapshot.with_nodes(*named)
    for name, node in zip(wanted, (0, 1, 1, 2, 2), strict=True):
        waiting = attrs.evolve(pod(*name), node_selector={"name": f"n{node}"})
        placed = schedule(snapshot.with_pending(waiting)).snapshot.pod(waiting.key)
        assert placed is not None
        snapshot = snapshot.assume(attrs.evolve(placed, node_selector={}))
    large = pod("large", "7g-80gb")
    moving = plan_room_for(snapshot, large)
    assert moving.plan.place is not None
    moved = {move.pod.name: (move.source, move.target) for move in moving.plan.moves}
    assert moved == {"a": ("n0", "n1"), "b1": ("n1", "n2")}
    assert verify_moves(snapshot, moving.plan.moves, moving.checked.bound) == ()
    assert not moving.plan.certificate.proven


def test_nobody_moves_where_it_fits_or_where_nothing_helps() -> None:
    snapshot = scattered(1, 2)
    assert plan_room_for(snapshot, pod("small", "1g-10gb")).plan.moves == ()
    full = schedule(snapshot.with_pending(pod("a", "3g-40gb"), pod("b", "3g-40gb"))).snapshot
    nothing = plan_room_for(full, pod("large", "7g-80gb")).plan
    assert nothing.place is None
    assert nothing.moves == ()
    assert nothing.certificate.status is CertificateStatus.HEURISTIC
    bare = schedule(cluster([mig_cards("n", 1)], [attrs.evolve(pod("p", "7g-80gb"), owners=())])).snapshot
    hopeless = plan_room_for(bare, pod("large", "7g-80gb")).plan
    assert hopeless.certificate.status is CertificateStatus.INFEASIBLE
