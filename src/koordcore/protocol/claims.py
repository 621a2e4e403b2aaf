"""How claims are made, named and tied to pods (``resource.k8s.io``).

Reference: Kubernetes 1.37, the resourceclaim controller and the package ``resourceclaim`` of
``k8s.io/dynamic-resource-allocation``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

import attrs

from koordcore.model.claims import POD_GROUPS, ClaimConsumer, ResourceClaim, ResourceClaimTemplate
from koordcore.model.pods import Pod, PodResourceClaim

POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim made from a template: the name of the entry in the pod."""
EXTENDED_CLAIM: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim made for extended resources."""

_LONGEST_BASE: Final = 57
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX: Final = 5


@attrs.frozen
class ClaimProblem:
    """Why a pod has to wait for one of its claims."""

    reason: str

    def __str__(self) -> str:
        return self.reason


@attrs.frozen
class PodClaims:
    """The claims of a pod.

    Parameters
    ----------
    claims
        In the order of the pod's entries; one that two entries name stands there twice.
    planned
        Names of those that do not exist yet and were made here as the controller will make them: their
        suffix will be another one.
    """

    claims: tuple[ResourceClaim, ...] = ()
    planned: frozenset[str] = frozenset()


class ClaimIndex:
    """The claims and templates of a cluster, found by name and by owner.

    Parameters
    ----------
    claims, templates
        In any order; where two claims were made for one entry of a pod, the first by name counts.
    """

    def __init__(
        self, claims: Iterable[ResourceClaim], templates: Iterable[ResourceClaimTemplate] = ()
    ) -> None:
        self._claims: dict[tuple[str, str], ResourceClaim] = {}
        self._made: dict[tuple[str, str, str], ResourceClaim] = {}
        self._extended: dict[tuple[str, str], ResourceClaim] = {}
        for claim in sorted(claims, key=lambda one: (one.namespace, one.name)):
            self._claims[claim.namespace, claim.name] = claim
            if claim.owner and claim.extended and not claim.deleting:
                self._extended.setdefault((claim.namespace, claim.owner), claim)
            if claim.owner and claim.pod_claim_name and not claim.deleting:
                self._made.setdefault((claim.namespace, claim.owner, claim.pod_claim_name), claim)
        self._templates = {(one.namespace, one.name): one for one in templates}

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The claim of a name."""
        return self._claims.get((namespace, name))

    def template(self, namespace: str, name: str) -> ResourceClaimTemplate | None:
        """The template of a name."""
        return self._templates.get((namespace, name))

    def made_for(self, pod: Pod, entry: str) -> ResourceClaim | None:
        """The claim that the controller has made for an entry, whether or not the pod's status tells."""
        return self._made.get((pod.namespace, pod.uid or pod.name, entry))

    def extended_of(self, pod: Pod) -> ResourceClaim | None:
        """The claim that was made for a pod's extended resources."""
        return self._extended.get((pod.namespace, pod.uid or pod.name)) if self._extended else None


def claim_name(pod: Pod, entry: str) -> str:
    """Name of the claim that the controller makes for an entry of a pod.

    The controller ends the name with five random characters; here they are derived from what the claim is
    for, so that equal input gives equal names.

    Examples
    --------
    >>> claim_name(Pod(name="train-0"), "gpu")
    'train-0-gpu-ghnr4'
    """
    base = f"{pod.name}-{entry}"
    if len(base) > _LONGEST_BASE:
        # Both parts are cut in proportion, so that something of either is left.
        parts = (part[: len(part) * _LONGEST_BASE // len(base)] for part in (pod.name, entry))
        base = "-".join(parts)
    digest = hashlib.sha256(f"{pod.namespace}/{pod.name}/{pod.uid}/{entry}".encode()).digest()
    suffix = "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_SUFFIX])
    return f"{base}-{suffix}"


def claim_from_template(pod: Pod, entry: str, template: ResourceClaimTemplate) -> ResourceClaim:
    """Make the claim that the controller makes for an entry of a pod; the pod owns it.

    Parameters
    ----------
    pod
        Whose claim it becomes.
    entry
        Name of the entry in ``spec.resourceClaims``.
    template
        What the claim asks for.
    """
    return ResourceClaim(
        name=claim_name(pod, entry),
        namespace=pod.namespace,
        spec=template.spec,
        owner=pod.uid or pod.name,
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
    for entry in pod.resource_claims:
        claim = _claim_of(pod, entry, index)
        if isinstance(claim, ClaimProblem):
            return claim
        if index.claim(claim.namespace, claim.name) is None:
            planned.add(claim.name)
        found.append(claim)
    return PodClaims(tuple(found), frozenset(planned))


def _claim_of(pod: Pod, entry: PodResourceClaim, index: ClaimIndex) -> ResourceClaim | ClaimProblem:
    if not entry.claim:
        made = index.made_for(pod, entry.name)
        if made is not None:
            return made
        template = index.template(pod.namespace, entry.template)
        if template is None:
            return ClaimProblem(f'resourceclaimtemplate "{entry.template}" not found')
        return claim_from_template(pod, entry.name, template)
    claim = index.claim(pod.namespace, entry.claim)
    if claim is None:
        return ClaimProblem(f'resourceclaim "{entry.claim}" not found')
    if claim.deleting:
        return ClaimProblem(f'resourceclaim "{entry.claim}" is being deleted')
    if entry.template and claim.owner not in _owners(pod):
        shown = f"{claim.namespace}/{claim.name} was not created for Pod {pod.namespace}/{pod.name}"
        return ClaimProblem(f"ResourceClaim {shown} (Pod is not owner)")
    return claim


def _owners(pod: Pod) -> set[str]:
    """Whose claims made from templates a pod may use: its own, and its group's."""
    group = set() if pod.scheduling_group is None else {pod.scheduling_group.pod_group}
    return {pod.uid or pod.name} | group


def consumer_of(claim: ResourceClaim, pod: Pod) -> ClaimConsumer | None:
    """The entry that reserves a claim for a pod, by itself or through its group."""
    group = None if pod.scheduling_group is None else pod.scheduling_group.pod_group
    return next((one for one in claim.reserved_for if _is_consumer(one, pod, group)), None)


def _is_consumer(consumer: ClaimConsumer, pod: Pod, group: str | None) -> bool:
    if consumer.resource == POD_GROUPS:
        return consumer.name == group
    return consumer.resource == "pods" and (
        consumer.uid == pod.uid if consumer.uid and pod.uid else consumer.name == pod.name
    )
