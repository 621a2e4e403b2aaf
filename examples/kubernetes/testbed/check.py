"""Everything read back from the API server, and looked at as one plan by koordcore's checker."""

from __future__ import annotations

from collections.abc import Iterator

from examples.kubernetes.api import Api, Object, RefusedError
from examples.kubernetes.scheduler import Settings
from koordcore import snapshot_from_objects, verify
from koordcore.controlplane import Mirror, places

__all__ = ["check", "everything"]


def check(api: Api) -> list[str]:
    """Give every broken rule: rooms, cards, claims' devices, CPUs, quotas' max, gangs and their gathering.

    All that runs is looked at as if it had been decided about at once. The checker shares no code with the
    scheduler's decisions, and it does not know in which order they were taken.
    """
    snapshot = snapshot_from_objects(everything(api)).snapshot
    return [str(violation) for violation in verify(snapshot, policy=Settings().policy)]


def everything(api: Api) -> Iterator[Object]:
    """Give all objects that decisions read."""
    mirror = Mirror({})
    for paths in places(api.send("GET", "/apis"), jobs=False):
        for path in paths:
            try:
                listing = api.list_all(path)
            except RefusedError as error:
                if error.status != 404:
                    raise
                continue
            yield from mirror.listed(mirror.follow(listing.kind, path), listing.items, listing.version)
            break
