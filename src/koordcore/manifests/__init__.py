"""Kubernetes and Koordinator objects in; annotations, patches and statuses out.

The only room that knows what objects look like. :func:`load` reads files, :func:`snapshot_from_objects` takes
objects that are parsed already, and both report every problem of every object at once.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.manifests._raw import SourceLimits as SourceLimits
    from koordcore.manifests.bundle import Loaded as Loaded
    from koordcore.manifests.encode import (
        node_manifest as node_manifest,
        pod_manifest as pod_manifest,
    )
    from koordcore.manifests.events import EventReader as EventReader
    from koordcore.manifests.loading import (
        load as load,
        snapshot_from_objects as snapshot_from_objects,
    )
    from koordcore.manifests.named_policies import named_policy as named_policy
    from koordcore.manifests.nodes import node_from_manifest as node_from_manifest
    from koordcore.manifests.plan_patches import patches as patches
    from koordcore.manifests.plugins import KOORDINATOR_CONFIGURATION as KOORDINATOR_CONFIGURATION
    from koordcore.manifests.pods import pod_from_manifest as pod_from_manifest
    from koordcore.manifests.policy_lint import lint_configuration as lint_configuration
    from koordcore.manifests.policy_manifest import configuration_manifest as configuration_manifest
    from koordcore.manifests.records import (
        result_from_record as result_from_record,
        result_record as result_record,
    )
    from koordcore.manifests.reservations import reservation_from_manifest as reservation_from_manifest
    from koordcore.manifests.scheduler_config import (
        policies_from_manifest as policies_from_manifest,
        scheduler_configuration as scheduler_configuration,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.manifests._raw": ("SourceLimits",),
            "koordcore.manifests.bundle": ("Loaded",),
            "koordcore.manifests.loading": ("load", "snapshot_from_objects"),
            "koordcore.manifests.encode": ("node_manifest", "pod_manifest"),
            "koordcore.manifests.events": ("EventReader",),
            "koordcore.manifests.named_policies": ("named_policy",),
            "koordcore.manifests.nodes": ("node_from_manifest",),
            "koordcore.manifests.plan_patches": ("patches",),
            "koordcore.manifests.plugins": ("KOORDINATOR_CONFIGURATION",),
            "koordcore.manifests.pods": ("pod_from_manifest",),
            "koordcore.manifests.policy_lint": ("lint_configuration",),
            "koordcore.manifests.policy_manifest": ("configuration_manifest",),
            "koordcore.manifests.records": ("result_from_record", "result_record"),
            "koordcore.manifests.reservations": ("reservation_from_manifest",),
            "koordcore.manifests.scheduler_config": ("policies_from_manifest", "scheduler_configuration"),
        },
    )
