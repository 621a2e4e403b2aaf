"""How claims are made, named and tied to pods (``resource.k8s.io``).

Reference: Kubernetes 1.37, the resourceclaim controller and the package ``resourceclaim`` of
``k8s.io/dynamic-resource-allocation``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from koordcore._record import record
from koordcore.model.claims import (
    POD_GROUPS,
    ClaimAllocation,
    ClaimConsumer,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.mappings import EMPTY
from koordcore.model.pods import Pod, PodResourceClaim
from koordcore.model.scheduling_groups import GroupClaim, SchedulingPodGroup

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim made from a template: the name of the entry in the pod."""
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim made for extended resources."""

BINDING_TIMEOUT: Final = timedelta(minutes=10)
"""How long after its allocation a claim may wait for the binding conditions of its devices."""

GROUPS_API: Final = "scheduling.k8s.io"
"""API group of a consumer that is a group of pods."""

Owner: TypeAlias = Pod | SchedulingPodGroup
"""For whom the controller makes claims from templates."""

_LONGEST_BASE: Final = 57
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = 5
_LETTERS: Final = bytes(ord(_ALPHABET[byte % len(_ALPHABET)]) for byte in range(256))
"""By byte: the character of a name that it stands for."""


@record
class ClaimProblem:
    """Why a pod has to wait for one of its claims."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@record
class PodClaims:
    """The claims of a pod.

    Parameters
    ----------
    claims
        In the order of the pod's entries; one that two entries name stands there twice.
    planned
        Names of those that do not exist yet and were made here as the controller will make them: their
        suffix will be another one.
    grouped
        Names of those that belong to the pod's group: its members share them.
    """

    claims: tuple[ResourceClaim, ...] = ()
    planned: frozenset[str] = frozenset()
    grouped: frozenset[str] = frozenset()


class ClaimIndex:
    """The claims and templates of a cluster, found by name and by owner.

    Parameters
    ----------
    claims, templates
        In any order; where two claims were made for one entry of a pod, the first by name counts.
    groups
        Kubernetes' own groups, which may have claims that their members share.
    """

    def __init__(
        self,
        claims: Iterable[ResourceClaim],
        templates: Iterable[ResourceClaimTemplate] = (),
        groups: Iterable[SchedulingPodGroup] = (),
    ) -> None:
        self._groups = {(one.namespace, one.name): one for one in groups if one.claims}
        self._claims: dict[tuple[str, str], ResourceClaim] = {}
        self._made: dict[tuple[str, str, str], ResourceClaim] = {}
        self._extended: dict[tuple[str, str], ResourceClaim] = {}
        # Whether some claim was made for what another was made for: who counts after it hangs on all of them.
        self._doubled = False
        for claim in sorted(claims, key=lambda one: (one.namespace, one.name)):
            self._enter(claim)
        self._templates = {(one.namespace, one.name): one for one in templates}

    def _enter(self, claim: ResourceClaim) -> None:
        self._claims[claim.namespace, claim.name] = claim
        if not claim.owner or claim.deleting:
            return
        if claim.extended:
            self._extended.setdefault((claim.namespace, claim.owner), claim)
        if claim.pod_claim_name:
            first = self._made.setdefault((claim.namespace, claim.owner, claim.pod_claim_name), claim)
            self._doubled = self._doubled or first is not claim

    def _forget(self, claim: ResourceClaim) -> None:
        del self._claims[claim.namespace, claim.name]
        if claim.owner and claim.pod_claim_name and not claim.deleting:
            del self._made[claim.namespace, claim.owner, claim.pod_claim_name]

    def after(
        self, changed: Iterable[tuple[ResourceClaim | None, ResourceClaim | None]]
    ) -> ClaimIndex | None:
        """Give the index after some claims came, left or say something else.

        ``None`` where that takes a look at all claims: where members of groups share some, several were made
        for one entry, or a change is of claims for extended resources.

        Parameters
        ----------
        changed
            Each claim before and after.
        """
        made = copy(self)
        made._claims, made._made = dict(self._claims), dict(self._made)  # noqa: SLF001  # its own kind
        for pair in changed:
            if self._groups or made._doubled or any(one.extended for one in pair if one):  # noqa: SLF001
                return None
            before, after = pair
            if before is not None:
                made._forget(before)  # noqa: SLF001
            if after is not None:
                made._enter(after)  # noqa: SLF001
        return None if made._doubled else made  # noqa: SLF001

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim of a name."""
        return self._claims.get((namespace, name))

    def template(self, namespace: str, name: str) -> ResourceClaimTemplate | None:
        """The template of a name."""
        return self._templates.get((namespace, name))

    def made_for(self, owner: Owner, entry: str) -> ResourceClaim | None:
        """The claim that the controller has made for an entry, whether or not the owner's status tells."""
        return self._made.get((owner.namespace, owner.uid or owner.name, entry))

    def sharing(self, pod: Pod, entry: PodResourceClaim) -> SchedulingPodGroup | None:
        """The group whose claim an entry of a pod means: name and source of both are equal (KEP-5729)."""
        group = pod.scheduling_group
        if group is None or group.workload or not self._groups:
            return None
        found = self._groups.get((pod.namespace, group.pod_group))
        return found if found is not None and sharing_entry(found, entry) is not None else None

    @property
    def extends(self) -> bool:
        """Some claim was made for extended resources."""
        return bool(self._extended)

    def extended_of(self, pod: Pod) -> ResourceClaim | None:
        """The claim that was made for a pod's extended resources."""
        return self._extended.get((pod.namespace, pod.uid or pod.name)) if self._extended else None


def sharing_entry(group: SchedulingPodGroup, entry: PodResourceClaim) -> GroupClaim | None:
    """The entry of a group that an entry of its member means: name and source of both are equal."""
    for one in group.claims:
        source = one.template or one.claim
        if (one.name, source) == (entry.name, entry.template or entry.claim):
            return one if bool(one.template) is bool(entry.template) else None
    return None


def claim_name(owner: Owner, entry: str) -> str:
    """Name of the claim that the controller makes for an entry of a pod or of a group.

    The controller ends the name with five random characters; here they are derived from what the claim is
    for, so that equal input gives equal names.

    Examples
    --------
    >>> claim_name(Pod(name="train-0"), "gpu")
    'train-0-gpu-ghnr4'
    """
    base = f"{owner.name}-{entry}"
    if len(base) > _LONGEST_BASE:
        # Both parts are cut in proportion, so that something of either is left.
        parts = (part[: len(part) * _LONGEST_BASE // len(base)] for part in (owner.name, entry))
        base = "-".join(parts)
    import hashlib  # few name claims, and it takes longer to import than all that is around it

    text = f"{owner.namespace}/{owner.name}/{owner.uid}/{entry}"
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return f"{base}-{digest[:_SUFFIX].translate(_LETTERS).decode()}"


def claim_from_template(owner: Owner, entry: str, template: ResourceClaimTemplate) -> ResourceClaim:
    """Make the claim that the controller makes for an entry of a pod or of a group, which owns it.

    Parameters
    ----------
    owner
        Whose claim it becomes.
    entry
        Name of the entry in ``spec.resourceClaims``.
    template
        What the claim asks for.
    """
    return ResourceClaim(
        name=claim_name(owner, entry),
        namespace=owner.namespace,
        spec=template.spec,
        owner=owner.uid or owner.name,
        pod_claim_name=entry,
        labels=template.labels,
        annotations={**template.annotations, POD_CLAIM_NAME: entry},
    )


def claims_of_pod(pod: Pod, index: ClaimIndex) -> PodClaims | ClaimProblem:
    """Find the claims of a pod, and make those that its templates will give.

    Parameters
    ----------
    pod
        With its entries as ``resource_claims``.
    index
        The claims and templates of the cluster.

    Returns
    -------
    PodClaims or ClaimProblem
        The claims, or why the pod has to wait, in the reference's words.
    """
    found: list[ResourceClaim] = []
    planned: set[str] = set()
    grouped: set[str] = set()
    for entry in pod.resource_claims:
        group = index.sharing(pod, entry)
        claim = _claim_of(pod, entry, index) if group is None else _claim_of_group(pod, group, entry, index)
        if isinstance(claim, ClaimProblem):
            return claim
        if index.claim(claim.namespace, claim.name) is None:
            planned.add(claim.name)
        if group is not None:
            grouped.add(claim.name)
        found.append(claim)
    return PodClaims(tuple(found), frozenset(planned), frozenset(grouped))


def _claim_of(pod: Pod, entry: PodResourceClaim, index: ClaimIndex) -> ResourceClaim | ClaimProblem:
    if not entry.claim:
        return _from_template(pod, entry, index)
    claim = _named(pod, entry.claim, index)
    if isinstance(claim, ResourceClaim) and entry.template and claim.owner not in _owners(pod):
        return _not_owner(pod, claim)
    return claim


def _claim_of_group(
    pod: Pod, group: SchedulingPodGroup, entry: PodResourceClaim, index: ClaimIndex
) -> ResourceClaim | ClaimProblem:
    """Find the claim that all members share; one from a template is made once, for the group."""
    shared = sharing_entry(group, entry)
    assert shared is not None, "the group has the entry"
    name = shared.claim or entry.claim
    if not name:
        return _from_template(group, entry, index)
    claim = _named(pod, name, index)
    if isinstance(claim, ResourceClaim) and entry.template and claim.owner not in {group.uid, group.name}:
        return _not_owner(pod, claim)
    return claim


def _from_template(owner: Owner, entry: PodResourceClaim, index: ClaimIndex) -> ResourceClaim | ClaimProblem:
    made = index.made_for(owner, entry.name)
    if made is not None:
        return made
    template = index.template(owner.namespace, entry.template)
    if template is None:
        return ClaimProblem(f'resourceclaimtemplate "{entry.template}" not found')
    return claim_from_template(owner, entry.name, template)


def _named(pod: Pod, name: str, index: ClaimIndex) -> ResourceClaim | ClaimProblem:
    claim = index.claim(pod.namespace, name)
    if claim is None:
        return ClaimProblem(f'resourceclaim "{name}" not found')
    return ClaimProblem(f'resourceclaim "{name}" is being deleted') if claim.deleting else claim


def _not_owner(pod: Pod, claim: ResourceClaim) -> ClaimProblem:
    shown = f"{claim.namespace}/{claim.name} was not created for Pod {pod.namespace}/{pod.name}"
    return ClaimProblem(f"ResourceClaim {shown} (Pod is not owner)")


def _owners(pod: Pod) -> set[str]:
    """Whose claims made from templates a pod may use: its own, and its group's."""
    group = set() if pod.scheduling_group is None else {pod.scheduling_group.pod_group}
    return {pod.uid or pod.name} | group


def consumer_for(pod: Pod, entry: str, group: SchedulingPodGroup | None) -> ClaimConsumer:
    """Make the entry that reserves a claim: for the group that shares it, or for the pod.

    Parameters
    ----------
    entry
        Name in the pod of the entry that asks for the claim.
    group
        The pod's group, as far as it is known.
    """
    if group is not None:
        mine = next((one for one in pod.resource_claims if one.name == entry), None)
        if mine is not None and sharing_entry(group, mine) is not None:
            return ClaimConsumer(group.name, group.uid, POD_GROUPS, GROUPS_API)
    return ClaimConsumer(pod.name, pod.uid)


def consumer_of(claim: ResourceClaim, pod: Pod) -> ClaimConsumer | None:
    """The entry that reserves a claim for a pod, by itself or through its group."""
    group = None if pod.scheduling_group is None else pod.scheduling_group.pod_group
    return next((one for one in claim.reserved_for if _is_consumer(one, pod, group)), None)


def awaits_binding(claim: ResourceClaim) -> bool:
    """Tell whether an allocated claim still waits for binding conditions, so that its time may run out."""
    allocation = claim.allocation
    return allocation is not None and allocation.allocated is not None and bool(_missing(claim))


def binding_failure(claim: ResourceClaim, now: datetime | None = None) -> str:
    """Say why nobody can be bound with the devices that a claim is allocated; empty where somebody can.

    A failure condition of one of them holds, or a binding condition is missing though its time is over.

    Parameters
    ----------
    now
        Time of the call; without it no time is ever over.
    """
    said = _conditions(claim)
    for result in claim.allocation.results if claim.allocation is not None else ():
        holding = said.get((*result.id, result.share_id), EMPTY)
        failed = [kind for kind in result.binding_failure_conditions if holding.get(kind)]
        if failed:
            return f"{claim.name}: {', '.join(failed)} of {result.id} holds"
    since = None if claim.allocation is None else claim.allocation.allocated
    if now is None or since is None or now - since <= BINDING_TIMEOUT:
        return ""
    missing = _missing(claim)
    return f"{claim.name}: {missing} is missing {BINDING_TIMEOUT} after the allocation" if missing else ""


def _missing(claim: ResourceClaim) -> str:
    """Name the binding conditions of the first device that is not ready."""
    return next(missing_conditions(claim, claim.allocation), "") if claim.allocation is not None else ""


def missing_conditions(claim: ResourceClaim, allocation: ClaimAllocation) -> Iterator[str]:
    """Name the binding conditions that devices lack, device by device.

    Parameters
    ----------
    claim
        With what drivers say of its devices.
    allocation
        What it has, or will have.
    """
    said = _conditions(claim)
    for result in allocation.results:
        holding = said.get((*result.id, result.share_id), EMPTY)
        missing = [kind for kind in result.binding_conditions if not holding.get(kind)]
        if missing:
            yield f"{', '.join(missing)} of {result.id}"


def _conditions(claim: ResourceClaim) -> dict[tuple[str, str, str, str | None], Mapping[str, bool]]:
    return {(one.driver, one.pool, one.device, one.share_id): one.conditions for one in claim.devices}


def _is_consumer(consumer: ClaimConsumer, pod: Pod, group: str | None) -> bool:
    if consumer.resource == POD_GROUPS:
        return consumer.name == group
    return consumer.resource == "pods" and (
        consumer.uid == pod.uid if consumer.uid and pod.uid else consumer.name == pod.name
    )
