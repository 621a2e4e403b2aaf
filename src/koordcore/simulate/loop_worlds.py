"""Small closed worlds of pods, nodes and quotas, and how what happens in them is written down."""

from __future__ import annotations

from typing import Final, TypeAlias

from koordcore._record import record

WAITS: Final = -1
GONE: Final = -2
LEAVING: Final = 50
"""A pod that has to go and still holds its room on node n stands at 50 + n."""
NOMINATED: Final = 100
"""A pod that waits for room that was made for it on node n stands at 100 + n."""
State: TypeAlias = tuple[int, ...]
"""Where each pod is: the number of its node, or one of the above."""


@record
class LoopPod:
    """A pod of a small world; ``quota`` is the number of its quota, -1 for none."""

    amount: int
    priority: int
    quota: int = -1


@record
class LoopWorld:
    """A small closed cluster.

    Parameters
    ----------
    nodes
        What each has.
    quotas
        ``min`` and ``max`` of each.
    pods
        Who there is.
    above
        The number of the quota above each, -1 for none; empty where all stand side by side. Pods name quotas
        that are above none.
    """

    nodes: tuple[int, ...]
    quotas: tuple[tuple[int, int], ...]
    pods: tuple[LoopPod, ...]
    above: tuple[int, ...] = ()

    def chain(self, quota: int) -> tuple[int, ...]:
        """Give a quota and all above it, from below; what is in none is its own."""
        found = [quota]
        while self.above and found[-1] >= 0 and self.above[found[-1]] >= 0:
            found.append(self.above[found[-1]])
        return tuple(found)


@record
class LoopStep:
    """One thing that happens.

    Parameters
    ----------
    rule
        ``places``, ``preempts``, ``reclaims``, ``makes way``, ``awaits``, ``revokes``, ``moves``, ``ends`` or
        ``gives up``.
    pod, node
        Who, and where to.
    evicted
        Who leaves for it, or has to move.
    before, after
        Where everybody is.
    """

    rule: str
    pod: int
    node: int
    evicted: tuple[int, ...]
    before: State
    after: State
