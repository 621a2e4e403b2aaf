"""The function that callers call; what it needs is read when it is called.

Annotations name types through the package, which reads them when somebody asks what they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import koordcore

if TYPE_CHECKING:
    from koordcore.checking.certificates import CheckedProof
    from koordcore.model.proofs import Problem

__all__ = ["check_certificate", "verify"]


def verify(
    snapshot: koordcore.ClusterSnapshot, result: koordcore.ScheduleResult
) -> tuple[koordcore.Violation, ...]:
    """Check a result against the snapshot that it was made from.

    Parameters
    ----------
    snapshot
        The cluster before.
    result
        What :func:`koordcore.schedule` returned, or any plan in that form.

    Returns
    -------
    tuple of Violation
        Every broken rule, sorted; empty when the result is legal. A node that was overcommitted before is not
        held against the result unless it got worse.
    """
    # The checks bring attrs; `import koordcore` is not to.
    from koordcore.checking.check import check_result
    from koordcore.result import ScheduleResult
    from koordcore.snapshot import ClusterSnapshot

    for name, value, kind in (("snapshot", snapshot, ClusterSnapshot), ("result", result, ScheduleResult)):
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected {kind.__name__}, got {value!r:.60}")
    return check_result(snapshot, result)


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
