"""The function that callers call; what it needs is read when it is called.

Annotations name types through the package, which reads them when somebody asks what they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import koordcore


def schedule(
    snapshot: koordcore.ClusterSnapshot,
    pods: Iterable[koordcore.Pod] | None = None,
    *,
    policy: koordcore.Policy | None = None,
    now: datetime | None = None,
    limits: koordcore.Limits | None = None,
    preempt: koordcore.PreemptionRules | None = None,
) -> koordcore.ScheduleResult:
    """Decide about pods, one after another, each on the cluster as the earlier ones left it.

    Parameters
    ----------
    snapshot
        The cluster; it is not changed.
    pods
        Whom to place; the snapshot's pending pods when left out. Pods that the snapshot does not know are
        taken in.
    policy
        Which plugins decide, with weights and arguments; ``Policy()`` when left out.
    now
        The clock, for plugins that look at the age of things; left out, it is the moment of the newest
        metric.
    limits
        Budget and seed of the solver, where a job needs one; ``Limits()`` when left out.
    preempt
        What may be done for jobs that find no place; without it nobody is evicted. Their members are then
        nominated, and nobody counts on that room until the victims have gone.

    Returns
    -------
    ScheduleResult
        One decision per pod in queue order, one plan per job, the cluster afterwards, and counts. The members
        of a gang take their turn together, when the first of them would. The same arguments give the same
        bytes. Ties between nodes go to the first name. Where a policy's ``matching`` is
        ``Joint``, the result is the better of two: pods one after another as ever, and pods that try first
        what they were matched with all together.

    Raises
    ------
    ModelError
        When a pod is bound already or stands twice, or the policy names an unknown plugin.
    TypeError
        When an argument is of another type; the message names it.

    Examples
    --------
    >>> from koordcore import ClusterSnapshot, Node, Pod, schedule
    >>> node = Node(name="n1", allocatable={"cpu": 4000, "memory": 2**33, "pods": 110})
    >>> result = schedule(ClusterSnapshot(nodes=[node]), [Pod(name="web", requests={"cpu": 1000})])
    >>> [(str(one.pod), one.node) for one in result.bound]
    [('default/web', 'n1')]
    """
    # The loop brings numpy and attrs; `import koordcore` is to bring neither.
    from koordcore.scheduling.arguments import check_arguments, check_pods

    check_arguments(snapshot, policy, now, limits, preempt)
    asked = None if pods is None else check_pods(pods)
    from koordcore.model.certificates import DEFAULT_LIMITS
    from koordcore.model.policy import DEFAULT_POLICY
    from koordcore.scheduling.cycle import run

    return run(
        snapshot,
        asked,
        DEFAULT_POLICY if policy is None else policy,
        now,
        DEFAULT_LIMITS if limits is None else limits,
        preempt,
    )
