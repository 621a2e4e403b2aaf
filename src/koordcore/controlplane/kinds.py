"""Where a server lists what bears on scheduling: its groups and their versions, as it says them itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from koordcore._blame import names_its_arguments

CORE: Final = (
    "nodes",
    "pods",
    "namespaces",
    "persistentvolumeclaims",
    "persistentvolumes",
    "replicationcontrollers",
    "services",
)
"""What bears on scheduling of the API that has no group."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "apps": ("replicasets", "statefulsets", "deployments", "daemonsets"),
    "batch": ("jobs",),
    "policy": ("poddisruptionbudgets",),
    "scheduling.k8s.io": ("priorityclasses", "podgroups", "compositepodgroups", "workloads"),
    "storage.k8s.io": ("storageclasses", "csinodes"),
    "resource.k8s.io": (
        "deviceclasses",
        "resourceclaims",
        "resourceclaimtemplates",
        "resourceslices",
        "devicetaintrules",
    ),
    "scheduling.sigs.k8s.io": ("podgroups", "elasticquotas"),
    "scheduling.koordinator.sh": (
        "clusternetworktopologies",
        "devices",
        "reservations",
        "podmigrationjobs",
    ),
    "slo.koordinator.sh": ("nodemetrics",),
    "quota.koordinator.sh": ("elasticquotaprofiles",),
    "config.koordinator.sh": ("clustercolocationprofiles",),
    "topology.node.k8s.io": ("noderesourcetopologies",),
}
"""What decisions read, by group."""
JOBS: Final[Mapping[str, tuple[str, ...]]] = {
    "kueue.x-k8s.io": (
        "clusterqueues",
        "cohorts",
        "localqueues",
        "resourceflavors",
        "topologies",
        "workloads",
    ),
    "leaderworkerset.x-k8s.io": ("leaderworkersets",),
    "jobset.x-k8s.io": ("jobsets",),
    "ray.io": ("rayclusters", "rayjobs"),
    "kubeflow.org": ("pytorchjobs", "mpijobs"),
    "trainer.kubeflow.org": ("trainjobs", "clustertrainingruntimes", "trainingruntimes"),
}
"""What controllers make pods of, and queue: read where jobs are to be shown as gangs."""


@names_its_arguments
def places(served: Mapping[str, Any], *, jobs: bool = True) -> tuple[tuple[str, ...], ...]:
    """Give where each kind is listed, one after the other; kinds of groups that are not there are left out.

    Parameters
    ----------
    served
        The server's answer to ``GET /apis``.
    jobs
        Kinds that controllers make pods of, too.

    Returns
    -------
    tuple of tuple of str
        For each kind paths to try one after the other, the version that the server likes best first: not
        every version of a group has all of its kinds.

    Examples
    --------
    >>> served = {"groups": [{"name": "policy", "versions": [{"groupVersion": "policy/v1"}]}]}
    >>> places(served)[-1]
    ('/apis/policy/v1/poddisruptionbudgets',)
    """
    found: list[tuple[str, ...]] = [(f"/api/v1/{kind}",) for kind in CORE]
    versions = {
        one["name"]: [each["groupVersion"] for each in one["versions"]] for one in served.get("groups") or ()
    }
    for group, kinds in {**GROUPS, **(JOBS if jobs else {})}.items():
        if group in versions:
            found += [tuple(f"/apis/{version}/{kind}" for version in versions[group]) for kind in kinds]
    return tuple(found)
