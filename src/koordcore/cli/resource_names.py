"""Names of resources that somebody types: what nodes offer, and what may have been meant by another name."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from koordcore.cli.words import near
from koordcore.snapshot import ClusterSnapshot


def offered_names(snapshot: ClusterSnapshot) -> set[str]:
    """Give the names of the resources that any node offers."""
    return {name for state in snapshot.nodes for name in state.node.allocatable}


def meant(name: str, known: Collection[str]) -> str:
    """Find what somebody may have meant who leaves the domain out, or misspells a name, in words."""
    ends = {one: one.rpartition("/")[2] for one in known}
    close = {name, name.lower()} | set(
        get_close_matches(name.lower(), sorted(ends.values()), n=1, cutoff=0.8)
    )
    short = [one for one in known if ends[one] in close]
    # A device plugin's name says how many; Koordinator's own name says how many hundredths.
    short.sort(key=lambda one: (one.startswith("koordinator.sh/"), one))
    return f"; did you mean {short[0]}?" if short else near(name, known)
