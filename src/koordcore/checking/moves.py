"""Is a plan of moves legal: replayed wave by wave on the snapshot, with what every pod gets at its target.

A wave is looked at twice: while the pods that leave still hold what they had, the room that the others take
must be free; and once they have gone, everything that binds a placement must hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Final

import attrs

from koordcore.checking.claim_records import claims_after
from koordcore.checking.entry import verify
from koordcore.checking.evictable import why_it_stays
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.model.claims import ResourceClaim
from koordcore.model.decisions import Bound
from koordcore.model.moves import Move
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.model.rebalance import NO_LIMITS, EvictionLimits, EvictorArgs, MigrationControllerArgs
from koordcore.model.reservations import Reservation
from koordcore.protocol.reservation_status import with_decided_users
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.cluster import bind

HELD: Final = (
    "scheduling.koordinator.sh/device-allocated",
    "scheduling.koordinator.sh/resource-status",
    "scheduling.koordinator.sh/reservation-allocated",
    "alibabacloud.com/gpu-index",
)


def verify_moves(
    snapshot: ClusterSnapshot,
    moves: Sequence[Move],
    bound: Sequence[Bound],
    *,
    policy: Policy = Policy(),
    args: MigrationControllerArgs | None = None,
    limits: EvictionLimits = NO_LIMITS,
    now: datetime | None = None,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> tuple[Violation, ...]:
    """Check a plan of moves against the snapshot that it was made from.

    Parameters
    ----------
    snapshot
        The cluster before.
    moves
        The plan, in waves.
    bound
        What each moved pod gets at its target, one decision per move.
    policy
        What is asked of placements.
    args
        Limits of migration, and which pods may be evicted; upstream's defaults when left out.
    limits
        Evictions that the plan may make.
    now
        The moment for which the plan was made. Left out, how old a NodeMetric was is not looked at.
    progress
        Called before each wave with how many have been replayed, and of how many.

    Returns
    -------
    tuple of Violation
        Every broken rule, sorted; empty when every step is legal and no budget or limit is passed at any
        moment. A plan that does not fit the snapshot at all is not replayed.
    """
    from koordcore.checking.disruption import check_disruptions  # brings the model of gangs

    args = args or MigrationControllerArgs()
    found = list(_check_form(snapshot, moves, bound, args.evictor))
    if not found:
        found += check_disruptions(snapshot, moves, args, limits)
        found += _replay(snapshot, moves, bound, policy, now, progress)
    return tuple(sorted(set(found)))


def _check_form(
    snapshot: ClusterSnapshot, moves: Sequence[Move], bound: Sequence[Bound], evictor: EvictorArgs
) -> Iterator[Violation]:
    """Every move is of a pod that may go, from where it is, to another node, where it gets something."""
    ready = {state.name: state.node.ready for state in snapshot.nodes}
    running = {pod.key: state.name for state in snapshot.nodes for pod in state.pods}
    given = {one.pod: one for one in bound}
    times = Counter(move.pod for move in moves)
    for move in moves:
        key = str(move.pod)
        if running.get(move.pod) != move.source:
            yield Violation(ViolationKind.MOVE, key, f"does not run on {move.source}")
            continue
        if times[move.pod] > 1:
            yield Violation(ViolationKind.MOVE, key, "moves more than once")
        if move.target not in ready:
            yield Violation(ViolationKind.UNKNOWN_NODE, key, f"no node {move.target}")
        elif not ready[move.target]:
            yield Violation(ViolationKind.MOVE, key, f"{move.target} is not Ready")
        pod = snapshot.pod(move.pod)
        if move.target == move.source and not (pod is not None and pod.resource_claims):
            # With claims it may be made anew on its node for the sake of other devices.
            yield Violation(ViolationKind.MOVE, key, f"is on {move.target} already")
        if not 0 <= move.leaves <= move.arrives:
            yield Violation(ViolationKind.MOVE, key, f"arrives in {move.arrives}, leaves in {move.leaves}")
        decision = given.get(move.pod)
        if decision is None or decision.node != move.target:
            yield Violation(ViolationKind.NOT_DECIDED, key, f"gets nothing on {move.target}")
        reason = None if pod is None else why_it_stays(pod, evictor)
        if reason is not None:
            yield Violation(ViolationKind.MOVE, key, reason)
    for one in sorted(given.keys() - times.keys()):
        yield Violation(ViolationKind.MOVE, str(one), "gets something and does not move")


def _replay(
    snapshot: ClusterSnapshot,
    moves: Sequence[Move],
    bound: Sequence[Bound],
    policy: Policy,
    at: datetime | None,
    progress: Callable[[int, int], None],
) -> Iterator[Violation]:
    given = {one.pod: one for one in bound}
    pods = {pod.key: pod for state in snapshot.nodes for pod in state.pods}
    now = snapshot
    waves = max((move.arrives for move in moves), default=-1) + 1
    for wave in range(waves):
        progress(wave, waves)
        leaving = [move.pod for move in moves if move.leaves == wave]
        decisions = tuple(given[move.pod] for move in moves if move.arrives == wave)
        arriving = [bind(_anew(pods[one.pod]), one) for one in decisions]
        before = now.forget(*leaving)
        after = _users_written(before.assume(*arriving), decisions)
        step = ScheduleResult(decisions=decisions, snapshot=after, policy=policy)
        if before.has(ResourceClaim):  # these say whom they are reserved for
            after = after.with_records(*claims_after(before, step).of(ResourceClaim))
            step = attrs.evolve(step, snapshot=after)
        found = list(verify(before, step, now=at))
        found += _check_overlap(before, step, [pods[key] for key in leaving], arriving)
        for one in found:
            yield attrs.evolve(one, message=f"wave {wave + 1}: {one.message}")
        now = after


def _anew(pod: Pod) -> Pod:
    """Give the pod that its owner makes again: nothing of what it held goes along."""
    kept = {name: text for name, text in pod.annotations.items() if name not in HELD}
    return attrs.evolve(pod, node_name=None, annotations=kept)


def _users_written(snapshot: ClusterSnapshot, decisions: tuple[Bound, ...]) -> ClusterSnapshot:
    used = with_decided_users(
        snapshot.of(Reservation), decisions, lambda name: snapshot.node(name).pods, None
    )
    return snapshot.with_records(*used) if used else snapshot


def _check_overlap(
    before: ClusterSnapshot, step: ScheduleResult, leaving: Sequence[Pod], arriving: Sequence[Pod]
) -> Iterator[Violation]:
    """Whoever arrives finds room beside those that leave in the same wave."""
    from koordcore.checking.cpus import check_cpus
    from koordcore.checking.devices import check_devices
    from koordcore.checking.nodes import check_nodes

    targets = {pod.node_name for pod in arriving}
    # No pod of Kubernetes has a space in its name.
    standing = [
        attrs.evolve(pod, name=f"{pod.name} (leaving)") for pod in leaving if pod.node_name in targets
    ]
    if not standing:
        return
    crowded = attrs.evolve(step, snapshot=step.snapshot.assume(*standing))
    for check in (check_nodes, check_devices, check_cpus):
        yield from check(before.assume(*standing), crowded)
