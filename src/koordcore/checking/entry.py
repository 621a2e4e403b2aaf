"""The function that callers call; what it needs is read when it is called.

Annotations name types through the package, which reads them when somebody asks what they are.
"""

from __future__ import annotations

import koordcore

__all__ = ["verify"]


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
