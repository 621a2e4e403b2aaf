"""Claims whose volumes are made for the first pod that uses them are told its node."""

from __future__ import annotations

from collections.abc import Iterator

from koordcore.manifests.calls import MERGE_PATCH, Call
from koordcore.model.decisions import Bound
from koordcore.model.volumes import SELECTED_NODE, PersistentVolumeClaim, StorageClass
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.free_volumes import free_volumes


def volume_calls(snapshot: ClusterSnapshot, decision: Bound, told: set[tuple[str, str]]) -> Iterator[Call]:
    """Say for which node volumes are to be made, as the stock scheduler does before it binds a pod.

    Nothing is said of a claim that a volume would serve which is there already: which one it gets is not
    modelled.

    Parameters
    ----------
    snapshot
        The cluster after the decision.
    decision
        Who is bound.
    told
        Namespaces and names of claims that were told before; those that are told now are added.
    """
    pod = snapshot.pod(decision.pod)
    for name in () if pod is None else pod.claims:
        claim = snapshot.find(PersistentVolumeClaim, name, decision.pod.namespace)
        if claim is None or claim.volume or claim.selected_node or (claim.namespace, name) in told:
            continue
        made_by = snapshot.find(StorageClass, claim.storage_class) if claim.storage_class else None
        if made_by is None or made_by.immediate or not made_by.makes:
            continue
        if not any(volume.serves(claim) for volume in free_volumes(snapshot).values()):
            told.add((claim.namespace, name))
            body = {"metadata": {"annotations": {SELECTED_NODE: decision.node}}}
            yield Call(verb="patch", pod=decision.pod, content_type=MERGE_PATCH, body=body, volume_claim=name)
