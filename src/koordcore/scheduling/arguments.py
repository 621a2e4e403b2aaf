"""What callers hand over, before anything is done with it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from koordcore._blame import shown
from koordcore.model.certificates import Limits
from koordcore.model.pods import Pod
from koordcore.model.policy import Policy
from koordcore.snapshot import ClusterSnapshot

_KINDS: Final[dict[str, type]] = {
    "snapshot": ClusterSnapshot,
    "policy": Policy,
    "now": datetime,
    "limits": Limits,
}


def check_pods(pods: Iterable[Pod]) -> tuple[Pod, ...]:
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
        if not isinstance(pod, Pod):
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
    given = {"snapshot": snapshot, "policy": policy, "now": now, "limits": limits, "preempt": preempt}
    for name, value in given.items():
        if name == "preempt":
            if value is None:
                continue
            from koordcore.model.preemption import PreemptionRules  # few calls evict

            kind: type = PreemptionRules
        else:
            kind = _KINDS[name]
        if not isinstance(value, kind) and (value is not None or name == "snapshot"):
            raise TypeError(f"{name}: expected {kind.__name__}, got {shown(value)}")
    if isinstance(now, datetime) and now.tzinfo is None:
        raise TypeError(f"now: expected a time with its zone, got {now.isoformat()}")
