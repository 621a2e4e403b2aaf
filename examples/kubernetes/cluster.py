"""The objects of a cluster as a snapshot; what cannot be read is left out and named."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from examples.kubernetes.api import Object, key_of
from koordcore import ClusterSnapshot, ManifestError, snapshot_from_objects

__all__ = ["read"]

_log = logging.getLogger(__name__)


def read(objects: Sequence[Object]) -> ClusterSnapshot:
    """Make a snapshot; one broken object must not stop the whole cluster.

    Raises
    ------
    ManifestError
        When the objects contradict each other, such as quotas that are each other's parents.
    """
    while True:
        try:
            return snapshot_from_objects(objects).snapshot
        except ManifestError as error:
            broken = {problem.source for problem in error.problems if problem.source}
            kept = []
            for number, item in enumerate(objects, 1):
                if f"object {number}" in broken:
                    _log.error("left out: %s %s", item["kind"], "/".join(key_of(item)))
                else:
                    kept.append(item)
            if len(kept) == len(objects):
                raise
            objects = kept
