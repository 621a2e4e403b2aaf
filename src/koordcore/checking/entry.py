"""The function that callers call; what it needs is read when it is called.

Annotations name types through the package, which reads them when somebody asks what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

import koordcore
from koordcore._blame import shown

if TYPE_CHECKING:
    from koordcore.checking.certificates import CheckedProof
    from koordcore.model.proofs import Problem


def verify(
    snapshot: koordcore.ClusterSnapshot,
    result: koordcore.ScheduleResult | None = None,
    *,
    policy: koordcore.Policy | None = None,
    now: datetime | None = None,
    progress: Callable[[int, int], None] = lambda _, __: None,
) -> tuple[koordcore.Violation, ...]:
    """Check a result against the snapshot that it was made from, or a whole cluster as it stands.

    A result costs what it touches: the nodes that change, and whoever belongs together with the pods that
    were decided about. What the checker remembers for that goes with the snapshots, is its own, and may be
    dropped at any time.

    Parameters
    ----------
    snapshot
        The cluster before; without a result, the cluster.
    result
        What :func:`koordcore.schedule` returned, or any plan in that form. Left out, all pods that run are
        held to the rules as if they had been placed now and together: also to those that Kubernetes asks only
        when a pod is placed, such as taints, cordons and spread. Not held against them is what others may
        have placed or changed since, or what a dump leaves out: CPUs, NUMA nodes and NICs of pods on which
        none are written, or of nodes whose topology is gone, gangs and groups whose configuration or network
        is gone, reservations that were closed, have other amounts or are gone, claims and volumes that are
        gone or going. :func:`koordcore.load` warns of the ResourceClaims that running pods name and a dump
        lacks.
    policy
        Which rules hold where there is no result; left out, the default policy.
    now
        The moment for which the result was made, as :func:`koordcore.schedule` takes it. Left out, how old a
        NodeMetric was is not looked at; what nodes use is all the same.
    progress
        Called after each rule book with how many a result has been held to, and of how many.

    Returns
    -------
    tuple of Violation
        Every broken rule, sorted; empty when the result is legal. A node that was overcommitted before is not
        held against the result unless it got worse.

    Raises
    ------
    TypeError
        When something is not what it has to be, a policy is given beside a result, which has its own, or a
        moment without one.
    """
    # The checks bring attrs; `import koordcore` is not to.
    from koordcore.checking.check import check_cluster, check_touched
    from koordcore.model.policy import DEFAULT_POLICY, Policy
    from koordcore.result import ScheduleResult
    from koordcore.snapshot import ClusterSnapshot

    for name, value, kind in (
        ("snapshot", snapshot, ClusterSnapshot),
        ("result", result, ScheduleResult),
        ("policy", policy, Policy),
        ("now", now, datetime),
    ):
        if not isinstance(value, kind) and (value is not None or name == "snapshot"):
            raise TypeError(f"{name}: expected {kind.__name__}, got {shown(value)}")
    if result is None and now is not None:
        raise TypeError("now: only a result is made at a moment")
    if result is None:
        return check_cluster(snapshot, policy or DEFAULT_POLICY)
    if policy is not None:
        raise TypeError("policy: a result is held to its own")
    return check_touched(snapshot, result, progress, now)


def check_certificate(problem: Problem | None, certificate: koordcore.Certificate) -> CheckedProof:
    """Repeat the proof that nothing better exists.

    Parameters
    ----------
    problem
        What was asked: the certificate's own ``problem``, or one that was made from the same facts elsewhere.
    certificate
        What is claimed, with the evidence.

    Returns
    -------
    CheckedProof
        Accepted only where the claim follows from the problem, in exact integers. What is claimed without
        evidence is not checked.
    """
    from koordcore.checking.certificates import check_certificate as check

    return check(problem, certificate)
