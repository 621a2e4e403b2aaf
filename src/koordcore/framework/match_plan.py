"""What the pods of a call are meant for, where a plugin matches all of them before anybody has a turn."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod, PodKey


@record
class MatchPlan:
    """What pods that were matched all together are meant for.

    Parameters
    ----------
    meant
        By pod, the number by which the plugin knows what the pod tries first.
    left
        Pods that something would serve and nothing is meant for.
    """

    meant: immutabledict[PodKey, int] = attrs.field(default=EMPTY, converter=immutabledict)
    left: frozenset[PodKey] = frozenset()

    def order(self, queue: Iterable[Pod]) -> list[Pod]:
        """Give the queue with those that are left out behind all others of their priority."""
        return sorted(queue, key=lambda pod: (-pod.priority, pod.key in self.left))
