"""Parts of one gang with a minimum and a place of their own: a leader, slices of workers, replicas.

Ours: the modelled system knows gangs of gangs, and nothing below a gang.
"""

from __future__ import annotations

from typing import Final

import attrs
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.checks import check_fields
from koordcore.model.gangs import NetworkTopologySpec
from koordcore.model.mappings import frozen_texts

ANYWHERE: Final = NetworkTopologySpec()
_NO_TEXTS: Final[immutabledict[str, str]] = immutabledict()


@record(kw_only=True)
class SubGroup:
    """One entry of the annotation ``sub-groups``: a part of a gang, or several parts that are alike.

    Parameters
    ----------
    name
        Of the part; members say it in the label ``sub-group``, unless ``match_labels`` chooses them.
    match_labels
        Labels that its members have; empty for those that name it.
    by
        Label of the members that parts them: one part for every value. Empty for none.
    size
        Members of a part, cut in the order of their ranks; 0 for no cutting.
    min_member
        Members that each part needs; 0 for all that it has.
    min_replicas
        How many of the parts have to start; 0 for all.
    spec
        How each part lies in the network: layers that its members share, and multiples.
    """

    name: str
    match_labels: immutabledict[str, str] = attrs.field(default=_NO_TEXTS, converter=frozen_texts)
    by: str = ""
    size: int = 0
    min_member: int = 0
    min_replicas: int = 0
    spec: NetworkTopologySpec = ANYWHERE

    __attrs_post_init__ = check_fields


@record(kw_only=True)
class SubGroups:
    """The parts of a gang.

    Parameters
    ----------
    entries
        As written; a member belongs to the first that chooses it, or to none and may go anywhere.
    least
        How many of the entries have to start; 0 for all.
    """

    entries: tuple[SubGroup, ...]
    least: int = 0

    __attrs_post_init__ = check_fields

    @property
    def gathered(self) -> bool:
        """Some part has a wish for its place."""
        return any(entry.spec.gather_strategy for entry in self.entries)
