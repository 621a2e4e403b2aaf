"""Selectors that err on some devices: these are left out, and nothing else would say so.

Upstream one such device may end the whole allocation, so that whoever moves over, or back, wants to know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from koordcore._record import record
from koordcore.allocators.claims.cluster import ClusterDevices, cluster_devices
from koordcore.model.claims import ResourceClaim, ResourceClaimTemplate
from koordcore.model.pods import Pod
from koordcore.protocol.claims import ClaimIndex, ClaimProblem, claims_of_pod
from koordcore.snapshot import ClusterSnapshot


@record
class SelectorErrors:
    """One selector that errs.

    Parameters
    ----------
    where
        The class or claim, and which of its selectors.
    devices
        On how many devices of the cluster it errs, those counted once for each node that sees them.
    first
        One of them.
    error
        What happens there.
    """

    where: str
    devices: int
    first: str
    error: str

    def __str__(self) -> str:
        more = "s" * (self.devices != 1)
        return (
            f"{self.where} errs on {self.devices} device{more}, left out, such as {self.first}: {self.error}"
        )


def selector_errors(snapshot: ClusterSnapshot, pods: Sequence[Pod]) -> tuple[SelectorErrors, ...]:
    """List the selectors that err on devices, of classes and claims that some pods ask for.

    Parameters
    ----------
    snapshot
        The cluster.
    pods
        Whose claims are looked at.

    Returns
    -------
    tuple of SelectorErrors
        By name of class, then by claim. An expression that does not compile errs on no device: it is the
        reason of whoever needs it.
    """
    asking = [pod for pod in pods if pod.resource_claims]
    if not asking:
        return ()
    devices = cluster_devices(snapshot)
    index = ClaimIndex(snapshot.of(ResourceClaim), snapshot.of(ResourceClaimTemplate))
    # Who says the last of some selectors, and how many others stand before those that are its own.
    texts: dict[tuple[str, ...], tuple[str, int]] = {}
    for pod in asking:
        found = claims_of_pod(pod, index)
        for claim in () if isinstance(found, ClaimProblem) else found.claims:
            for request in claim.spec.requests:
                for form in request.forms:
                    known = devices.classes.get(form.class_name)
                    own = tuple(one for one in form.selectors if one is not None)
                    name = f"claim {claim.namespace}/{claim.name}, request {request.name}"
                    if known is not None:
                        theirs = tuple(one for one in known.selectors if one is not None)
                        texts.setdefault(theirs, (f"DeviceClass {known.name}", 0))
                        texts.setdefault((*theirs, *own), (name, len(theirs)))
    rows = Counter(devices.shape)
    return tuple(
        error
        for selectors, (where, before) in sorted(texts.items(), key=lambda one: one[1])
        for error in _errors(devices, rows, selectors, where, before)
    )


def _errors(
    devices: ClusterDevices, rows: Counter[int], selectors: Sequence[str], where: str, others: int
) -> Iterator[SelectorErrors]:
    """List what errs of those selectors that stand behind some others."""
    for place in range(others, len(selectors)):
        count, first, text = 0, "", ""
        for shape, nodes in sorted(rows.items()):
            table = devices.table(shape)
            mask = table.everything
            for before in selectors[:place]:
                mask &= table.selected(before).mask
            faults = table.selected(selectors[place]).faults
            errs = [one for one, fault in sorted(faults.items()) if fault.compiles and mask >> one & 1]
            count += nodes * len(errs)
            if errs and not first:
                first, text = str(table.devices[errs[0]].id), faults[errs[0]].text.partition(". consider")[0]
        if count:
            yield SelectorErrors(f"{where}: selector #{place - others}", count, first, text)
