"""The rules that move pods, of this library and of others, as a search for loops takes them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields, names_its_fields


class Preempts(StrEnum):
    """From whom a more important pod takes room."""

    NOBODY = "nobody"
    OWN_QUOTA = "own-quota"
    ANYBODY = "anybody"


class Reclaims(StrEnum):
    """From whom a pod takes back what its quota is due, whatever the priorities."""

    NOBODY = "nobody"
    BEYOND_MIN = "beyond-min"
    """Within its own ``min``, from quotas that use more than theirs at the moment."""
    LARGER_SHARE = "larger-share"
    """From a quota that uses more of its ``min`` than its own does, itself not counted: the move itself
    changes who is in front."""
    FINAL_SHARE = "final-share"
    """From a quota that uses no less of its ``min`` afterwards than its own does then."""


class Kept(StrEnum):
    """Against whom the room that was made for a pod is kept until it is there."""

    NOBODY = "nobody"
    LESS_IMPORTANT = "less-important"
    """Those of lower and equal priority."""
    BORROWERS = "less-important-and-borrowers"
    """Those too, whatever their priority, who go beyond their ``min`` or have none, if it waits within
    its own."""


class Defragments(StrEnum):
    """Who makes way for a pod that fits nowhere, although he fits elsewhere himself."""

    NOBODY = "nobody"
    MOVES = "moves"
    """Whoever runs where it may go, of any priority and quota; his place elsewhere is his at once."""
    EVICTS = "evicts"
    """He is evicted, and has to look for the other place himself."""


@names_its_fields
@record(kw_only=True)
class LoopRules:
    """Which rules move pods.

    Parameters
    ----------
    preemption, reclaim
        From whom room is taken.
    promises
        Who goes beyond his quota's ``min`` (or has no quota) preempts nobody who is within his.
    partly
        Who is within his quota's ``min`` in part only counts as within it for whoever goes beyond his own;
        without, as beyond it.
    kept
        Against whom room is kept that was made for somebody.
    revoke
        A quota that uses more than its ``max`` gives the least important back.
    spread, pack
        A pod moves to a node that is emptier than its own, or fuller, even with it.
    defragment
        Who makes way for a pod that fits nowhere.
    recreated
        Evicted pods come back.
    graceful
        Evicted pods hold their room until they end, each in its own time.
    """

    preemption: Preempts = attrs.field(default=Preempts.ANYBODY, converter=Preempts)
    promises: bool = True
    partly: bool = True
    reclaim: Reclaims = attrs.field(default=Reclaims.BEYOND_MIN, converter=Reclaims)
    kept: Kept = attrs.field(default=Kept.BORROWERS, converter=Kept)
    revoke: bool = True
    spread: bool = False
    pack: bool = False
    defragment: Defragments = attrs.field(default=Defragments.NOBODY, converter=Defragments)
    recreated: bool = True
    graceful: bool = False

    __attrs_post_init__ = check_fields


OUR_RULES: Final = LoopRules()
"""What :func:`koordcore.schedule` with preemption and :class:`koordcore.controlplane.Overdue` do."""


KNOWN_RULES: Final[Mapping[str, LoopRules]] = immutabledict(
    {
        "koordcore": OUR_RULES,
        "koordcore-spread": LoopRules(spread=True),
        "koordcore-all": LoopRules(spread=True, defragment=Defragments.MOVES, graceful=True),
        "kube-scheduler": LoopRules(reclaim=Reclaims.NOBODY, promises=False, kept=Kept.LESS_IMPORTANT),
        "volcano-4947": LoopRules(preemption=Preempts.OWN_QUOTA, promises=False, kept=Kept.NOBODY),
        "kueue-3779": LoopRules(
            preemption=Preempts.OWN_QUOTA, promises=False, reclaim=Reclaims.FINAL_SHARE, kept=Kept.NOBODY
        ),
        "kueue-14543": LoopRules(
            preemption=Preempts.OWN_QUOTA, promises=False, reclaim=Reclaims.LARGER_SHARE
        ),
        "kueue-13662": LoopRules(
            preemption=Preempts.NOBODY, promises=False, kept=Kept.LESS_IMPORTANT, graceful=True
        ),
        "kai-1565": LoopRules(
            preemption=Preempts.OWN_QUOTA, promises=False, kept=Kept.NOBODY, defragment=Defragments.EVICTS
        ),
        "reclaim-and-preempt": LoopRules(promises=False),
        "spread-and-pack": LoopRules(
            preemption=Preempts.NOBODY, reclaim=Reclaims.NOBODY, spread=True, pack=True
        ),
    }
)
"""Rule sets by name: ours, and those of loops that others have reported, written as rules."""
