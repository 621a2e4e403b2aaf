"""Everything read back from the API server, and looked at as one plan by koordcore's checker."""

from __future__ import annotations

from examples.kubernetes.api import Api
from examples.kubernetes.scheduler import Settings
from koordcore import snapshot_from_objects, verify
from koordcore.controlplane import RESOURCES, complete

__all__ = ["check"]


def check(api: Api) -> list[str]:
    """Give every broken rule: rooms, cards, virtual functions, CPUs, quotas' max, gangs and their gathering.

    All that runs is looked at as if it had been decided about at once. The checker shares no code with the
    scheduler's decisions, and it does not know in which order they were taken.
    """
    objects = [complete(kind, item) for kind, path in RESOURCES.items() for item in api.list_all(path).items]
    snapshot = snapshot_from_objects(objects).snapshot
    return [str(violation) for violation in verify(snapshot, policy=Settings().policy)]
