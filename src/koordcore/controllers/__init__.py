"""What controllers, webhooks and node agents do beside the scheduler: pure steps, none of which schedules.

Each takes what the control plane knows and gives what it should write; the guide says who calls which.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.allocators.device.admission import (
        complete_container as complete_container,
        validate_containers as validate_containers,
    )
    from koordcore.allocators.gang.podgroup import (
        MemberPhase as MemberPhase,
        next_status as next_status,
    )
    from koordcore.colocation.agent import pod_settings as pod_settings
    from koordcore.colocation.checkpoints import (
        format_checkpoint as format_checkpoint,
        format_state as format_state,
        parse_checkpoint as parse_checkpoint,
        parse_state as parse_state,
    )
    from koordcore.colocation.config import (
        ConfigState as ConfigState,
        admit_config as admit_config,
        is_node_strategy_valid as is_node_strategy_valid,
    )
    from koordcore.colocation.cpuqos import group_identity_rule as group_identity_rule
    from koordcore.colocation.normalization import amplify_node as amplify_node
    from koordcore.colocation.peak import (
        peaks_of_state as peaks_of_state,
        raw_allocatable_of as raw_allocatable_of,
    )
    from koordcore.colocation.prediction import (
        collect_garbage as collect_garbage,
        restore as restore,
        save_step as save_step,
    )
    from koordcore.colocation.profile import mutate_pod as mutate_pod
    from koordcore.colocation.resctrl import (
        class_schemata as class_schemata,
        new_tasks as new_tasks,
        parse_mask as parse_mask,
    )
    from koordcore.colocation.sync import run_cycle as run_cycle
    from koordcore.colocation.zones import update_zones as update_zones
    from koordcore.descheduling.migration.arbitrate import arbitrate as arbitrate
    from koordcore.descheduling.migration.limits import LimiterState as LimiterState
    from koordcore.protocol.device_amounts import device_resources as device_resources
    from koordcore.protocol.device_plugins import adapt_to_plugin as adapt_to_plugin
    from koordcore.protocol.network_topology import format_detail_status as format_detail_status
    from koordcore.protocol.pod_group import format_pod_group_status as format_pod_group_status
    from koordcore.protocol.pod_qos import parse_resource_qos as parse_resource_qos
    from koordcore.protocol.quota_webhook import refuse_pod_update as refuse_pod_update
    from koordcore.quota.evaluate import (
        admit_batch as admit_batch,
        evaluate_creation as evaluate_creation,
        evaluated_request as evaluated_request,
        replace_resources as replace_resources,
    )
    from koordcore.quota.hints import (
        hint_for_deleted_pod as hint_for_deleted_pod,
        hint_for_quota as hint_for_quota,
    )
    from koordcore.quota.profile import (
        reconcile_profile as reconcile_profile,
        tree_profile as tree_profile,
    )
    from koordcore.topology.network import tree_status as tree_status
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.allocators.device.admission": ("complete_container", "validate_containers"),
            "koordcore.protocol.device_amounts": ("device_resources",),
            "koordcore.protocol.device_plugins": ("adapt_to_plugin",),
            "koordcore.allocators.gang.podgroup": ("MemberPhase", "next_status"),
            "koordcore.colocation.agent": ("pod_settings",),
            "koordcore.colocation.checkpoints": (
                "format_checkpoint",
                "format_state",
                "parse_checkpoint",
                "parse_state",
            ),
            "koordcore.colocation.config": (
                "ConfigState",
                "admit_config",
                "is_node_strategy_valid",
            ),
            "koordcore.colocation.cpuqos": ("group_identity_rule",),
            "koordcore.colocation.normalization": ("amplify_node",),
            "koordcore.colocation.peak": ("peaks_of_state", "raw_allocatable_of"),
            "koordcore.colocation.prediction": ("collect_garbage", "restore", "save_step"),
            "koordcore.colocation.profile": ("mutate_pod",),
            "koordcore.colocation.resctrl": (
                "class_schemata",
                "new_tasks",
                "parse_mask",
            ),
            "koordcore.colocation.sync": ("run_cycle",),
            "koordcore.colocation.zones": ("update_zones",),
            "koordcore.descheduling.migration.arbitrate": ("arbitrate",),
            "koordcore.descheduling.migration.limits": ("LimiterState",),
            "koordcore.protocol.pod_group": ("format_pod_group_status",),
            "koordcore.protocol.network_topology": ("format_detail_status",),
            "koordcore.protocol.pod_qos": ("parse_resource_qos",),
            "koordcore.protocol.quota_webhook": ("refuse_pod_update",),
            "koordcore.quota.evaluate": (
                "admit_batch",
                "evaluate_creation",
                "evaluated_request",
                "replace_resources",
            ),
            "koordcore.quota.hints": ("hint_for_deleted_pod", "hint_for_quota"),
            "koordcore.quota.profile": ("reconcile_profile", "tree_profile"),
            "koordcore.topology.network": ("tree_status",),
        },
    )
