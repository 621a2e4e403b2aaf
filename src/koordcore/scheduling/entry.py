"""The function that callers call, and what they hand over; what it needs is read when it is called.

Annotations name types through the package, which reads them when somebody asks what they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

import koordcore
from koordcore._blame import shown

_CLASSES: Final = {"policy": "Policy", "limits": "Limits", "preempt": "PreemptionRules"}


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
    check_arguments(snapshot, policy, now, limits, preempt)
    asked = None if pods is None else check_pods(pods)
    # The loop brings numpy and attrs; `import koordcore` is to bring neither.
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


def check_pods(pods: Iterable[koordcore.Pod]) -> tuple[koordcore.Pod, ...]:
    """Take pods in.

    Raises
    ------
    TypeError
        When they are no pods; the message says which is not.
    """
    try:
        found = tuple(pods)
    except TypeError:
        raise TypeError(f"pods: expected several, got {shown(pods)}") from None
    for number, pod in enumerate(found):
        if not isinstance(pod, koordcore.Pod):
            raise TypeError(f"pods[{number}]: expected Pod, got {shown(pod)}")
    return found


def check_arguments(
    snapshot: object,
    policy: object = None,
    now: object = None,
    limits: object = None,
    preempt: object = None,
) -> None:
    """Check the types of what the entry functions share; all but the snapshot may be left out.

    Raises
    ------
    TypeError
        Names the argument that is of another type, or the time that has no zone.
    """
    if not isinstance(snapshot, koordcore.ClusterSnapshot):
        raise TypeError(f"snapshot: expected ClusterSnapshot, got {shown(snapshot)}")
    given = {"policy": policy, "now": now, "limits": limits, "preempt": preempt}
    for name, value in given.items():
        if value is None:
            continue  # nor is its class read
        kind = datetime if name == "now" else getattr(koordcore, _CLASSES[name])
        if not isinstance(value, kind):
            raise TypeError(f"{name}: expected {kind.__name__}, got {shown(value)}")
    if isinstance(now, datetime) and now.tzinfo is None:
        raise TypeError(f"now: expected a time with its zone, got {now.isoformat()}")
