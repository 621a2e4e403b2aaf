"""What can be wrong with a result."""

from __future__ import annotations

from enum import StrEnum

from koordcore._record import record


class ViolationKind(StrEnum):
    """Kinds of illegality."""

    UNKNOWN_POD = "unknown pod"
    UNKNOWN_NODE = "unknown node"
    DECIDED_TWICE = "decided twice"
    NOT_DECIDED = "not decided"
    ALREADY_BOUND = "already bound"
    GATED = "gated"
    SNAPSHOT = "snapshot"
    UNMODELLED = "not modelled"
    UNREADABLE = "unreadable"
    DELETED = "deleted"
    GROUP = "group"
    RESOURCE = "resource"
    POD_COUNT = "pod count"
    TAINT = "taint"
    CORDON = "cordon"
    FEATURE = "node feature"
    AFFINITY = "node affinity"
    PORT = "host port"
    VOLUME = "volume"
    SPREAD = "topology spread"
    POD_AFFINITY = "pod affinity"
    DEVICE = "device"
    CLAIM = "claim"
    CPU = "cpu"
    NUMA = "NUMA"
    LOAD = "load"
    QUOTA = "quota"
    GANG = "gang"
    RESERVATION = "reservation"
    VICTIM = "victim"
    MOVE = "move"
    BUDGET = "disruption budget"
    LIMIT = "migration limit"


@record(order=True)
class Violation:
    """One thing that is not legal.

    Parameters
    ----------
    kind
        What rule is broken.
    subject
        The pod, node, gang or quota concerned.
    message
        What is wrong, with numbers.
    """

    kind: ViolationKind
    subject: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.subject}: {self.message}"
