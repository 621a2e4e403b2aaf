"""What controllers, webhooks and node agents do beside the scheduler: pure steps, none of which schedules.

Each takes what the control plane knows and gives what it should write; the guide says who calls which.
"""

from koordcore.allocators.device.admission import complete_container, validate_containers
from koordcore.allocators.gang.podgroup import MemberPhase, next_status
from koordcore.colocation.checkpoints import format_checkpoint, format_state, parse_checkpoint, parse_state
from koordcore.colocation.config import admit_config, config_absent, config_read, is_node_strategy_valid
from koordcore.colocation.cpuqos import (
    directory_identity,
    group_identity_rule,
    host_application_identity,
    merged_cpu_qos,
    pod_identity,
)
from koordcore.colocation.normalization import (
    amplification_changed,
    amplification_ratios,
    amplify_node,
    normalization_changed,
    normalization_ratio,
)
from koordcore.colocation.peak import peaks_of_state, raw_allocatable_of
from koordcore.colocation.prediction import collect_garbage, restore, save_step
from koordcore.colocation.profile import mutate_pod
from koordcore.colocation.resctrl import (
    class_schemata,
    new_tasks,
    parse_mask,
    pod_bandwidth,
    pod_group,
    pod_schemata,
    resctrl_group,
)
from koordcore.colocation.sync import (
    needs_meta_sync,
    needs_status_sync,
    prepare_node,
    run_cycle,
    update_zones,
)
from koordcore.descheduling.migration.arbitrate import arbitrate
from koordcore.descheduling.migration.limits import LimiterState
from koordcore.protocol.device_amounts import device_resources
from koordcore.protocol.device_plugins import adapt_to_plugin, lock_blocks
from koordcore.protocol.gang import format_pod_group_status
from koordcore.protocol.network_topology import format_detail_status
from koordcore.protocol.normalization import cpu_basic_info_of, format_amplification, format_raw_allocatable
from koordcore.protocol.pod_qos import cpu_qos_of, parse_resource_qos
from koordcore.quota import refuse_pod_update
from koordcore.quota.evaluate import admit_batch, evaluate_creation, evaluated_request, replace_resources
from koordcore.quota.hints import hint_for_deleted_pod, hint_for_quota
from koordcore.quota.profile import reconcile_profile, tree_profile
from koordcore.quota.status import stale_annotations, status_annotations
from koordcore.reservations.lifecycle import collected, made_unschedulable, next_sync, synced
from koordcore.topology.network import tree_status

__all__ = [
    "LimiterState",
    "MemberPhase",
    "adapt_to_plugin",
    "admit_batch",
    "admit_config",
    "amplification_changed",
    "amplification_ratios",
    "amplify_node",
    "arbitrate",
    "class_schemata",
    "collect_garbage",
    "collected",
    "complete_container",
    "config_absent",
    "config_read",
    "cpu_basic_info_of",
    "cpu_qos_of",
    "device_resources",
    "directory_identity",
    "evaluate_creation",
    "evaluated_request",
    "format_amplification",
    "format_checkpoint",
    "format_detail_status",
    "format_pod_group_status",
    "format_raw_allocatable",
    "format_state",
    "group_identity_rule",
    "hint_for_deleted_pod",
    "hint_for_quota",
    "host_application_identity",
    "is_node_strategy_valid",
    "lock_blocks",
    "made_unschedulable",
    "merged_cpu_qos",
    "mutate_pod",
    "needs_meta_sync",
    "needs_status_sync",
    "new_tasks",
    "next_status",
    "next_sync",
    "normalization_changed",
    "normalization_ratio",
    "parse_checkpoint",
    "parse_mask",
    "parse_resource_qos",
    "parse_state",
    "peaks_of_state",
    "pod_bandwidth",
    "pod_group",
    "pod_identity",
    "pod_schemata",
    "prepare_node",
    "raw_allocatable_of",
    "reconcile_profile",
    "refuse_pod_update",
    "replace_resources",
    "resctrl_group",
    "restore",
    "run_cycle",
    "save_step",
    "stale_annotations",
    "status_annotations",
    "synced",
    "tree_profile",
    "tree_status",
    "update_zones",
    "validate_containers",
]
