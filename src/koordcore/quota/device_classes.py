"""Quotas that count devices of Kubernetes' drivers: ``<class>.deviceclass.resource.k8s.io/devices``.

The names and what a claim counts with are those of ResourceQuota, which charges a claim when it is created;
here a pod is charged with what its claims ask for. Claims that several pods share count with each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

from koordcore._line import RecordPair
from koordcore._record import record
from koordcore._vector import Vector
from koordcore.model.claims import (
    ALL_DEVICES,
    MAX_DEVICES,
    ClaimSpec,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod
from koordcore.model.quotas import ElasticQuota, QuotaPod
from koordcore.model.records import ClusterRecord
from koordcore.model.resources import make_resources
from koordcore.protocol.quota import quota_pod_of
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import changed_records, derived

DEVICES_OF_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
"""End of the resource name under which quotas count the devices of a class."""


def devices_asked_for(spec: ClaimSpec) -> Mapping[str, int]:
    """Count the devices of each class that a claim is charged with.

    ``All`` counts as many as a claim may have; of alternatives the largest of each class counts.
    """
    found: Counter[str] = Counter()
    for request in spec.requests:
        most: dict[str, int] = {}
        for form in request.forms:
            most[form.class_name] = max(most.get(form.class_name, 0), _count(form))
        found.update(most)
    return found


def _count(form: DeviceSubRequest) -> int:
    return MAX_DEVICES if form.mode == ALL_DEVICES else form.count


def counted_classes(snapshot: ClusterSnapshot) -> frozenset[str]:
    """Name the device classes that some quota counts."""
    return derived(snapshot, _counted, _counted_again, replaced=True)


def _counted(snapshot: ClusterSnapshot) -> frozenset[str]:
    return frozenset().union(*map(_named, snapshot.of(ElasticQuota)))


def _named(quota: ClusterRecord | None) -> frozenset[str]:
    if not isinstance(quota, ElasticQuota):
        return frozenset()
    names = (*quota.max, *quota.min)
    return frozenset([one.removesuffix(DEVICES_OF_CLASS) for one in names if one.endswith(DEVICES_OF_CLASS)])


def _counted_again(
    nodes: Vector[NodeState], records: Vector[ClusterRecord], value: frozenset[str], snapshot: ClusterSnapshot
) -> frozenset[str]:
    """Take in what quotas name that came; where one names a class no more, others may name it still."""
    del nodes
    for old, new in changed_records(snapshot, records):
        if _named(old) - _named(new):
            return _counted(snapshot)
        value |= _named(new)
    return value


def quota_reader(snapshot: ClusterSnapshot) -> Callable[[Pod], QuotaPod]:
    """Give what reads of a pod what quotas need, with the devices that its claims ask for."""
    classes = counted_classes(snapshot)
    if not classes:
        return quota_pod_of
    return _WithDevices(snapshot, classes).read


@record(eq=False)
class _WithDevices:
    snapshot: ClusterSnapshot
    classes: frozenset[str]

    def read(self, pod: Pod) -> QuotaPod:
        """Give what quotas need of a pod."""
        known = quota_pod_of(pod)
        if not pod.resource_claims:
            return known
        found: Counter[str] = Counter()
        for entry in pod.resource_claims:
            spec = self._spec(pod, entry.claim, entry.template)
            if spec is not None:
                found.update(devices_asked_for(spec))
        devices = {
            f"{name}{DEVICES_OF_CLASS}": count for name, count in found.items() if name in self.classes
        }
        if not devices:
            return known
        return attrs.evolve(known, request=make_resources({**known.request, **devices}))

    def _spec(self, pod: Pod, claim: str, template: str) -> ClaimSpec | None:
        made = self.snapshot.find(ResourceClaimTemplate, template, pod.namespace) if template else None
        if made is not None:
            return made.spec
        known = self.snapshot.find(ResourceClaim, claim, pod.namespace) if claim else None
        return None if known is None else known.spec


def charged_otherwise(records: Iterable[RecordPair]) -> bool:
    """Tell whether pods may be charged with other devices after some records changed.

    A claim that was made from a template asks for what that asks for, however its status changes.
    """
    for old, new in records:
        if isinstance(old or new, ResourceClaimTemplate):
            return True
        claims = [one for one in (old, new) if isinstance(one, ResourceClaim) and not one.owner]
        if len(claims) == 1 or len({one.spec for one in claims}) > 1:
            return True
    return False


def devices_offered(snapshot: ClusterSnapshot) -> Mapping[str, int]:
    """Give as many devices of each counted class as all quotas together may have.

    Partitions exclude each other, so that drivers' devices have no sum to be shared out: min is guaranteed
    and max binds, nothing between.
    """
    found: Counter[str] = Counter()
    for quota in snapshot.of(ElasticQuota):
        for name, amount in quota.max.items():
            if name.endswith(DEVICES_OF_CLASS):
                found[name] += amount
    return found
