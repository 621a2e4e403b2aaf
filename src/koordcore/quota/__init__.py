"""May it: the rules of the quota tree, runtime quota, admission and overuse."""

from koordcore.protocol.quota_webhook import (
    QuotaTopology,
    Refused,
    WebhookPolicy,
    create_quota,
    delete_quota,
    fill_quota,
    open_topology,
    refuse_pod,
    refuse_pod_update,
    update_quota,
)
from koordcore.quota.admission import (
    Admission,
    Admitted,
    QuotaCheck,
    QuotaCheckKind,
    QuotaRefusal,
    Ungoverned,
    admit,
    admit_together,
    limit_of,
)
from koordcore.quota.cluster import cluster_ledger
from koordcore.quota.evaluate import admit_batch, evaluate_creation, evaluated_request, replace_resources
from koordcore.quota.explain import (
    QuotaRow,
    Waterfall,
    explain_runtime,
    format_table,
    format_waterfall,
    quota_table,
)
from koordcore.quota.hints import QueueingHint, hint_for_deleted_pod, hint_for_quota
from koordcore.quota.ledger import QuotaLedger, open_ledger
from koordcore.quota.overuse import OveruseMonitor, RevokePlan, plan_revoke, select_revoked
from koordcore.quota.preempt import NoVictims, QuotaVictims, can_preempt, select_victims
from koordcore.quota.profile import RootQuota, add_tree_affinity, reconcile_profile, tree_profile
from koordcore.quota.reclaim import ReclaimNode, ReclaimPlan, entitled_to_reclaim, plan_reclaim
from koordcore.quota.status import QuotaStatus, stale_annotations, status_annotations

__all__ = [
    "Admission",
    "Admitted",
    "NoVictims",
    "OveruseMonitor",
    "QueueingHint",
    "QuotaCheck",
    "QuotaCheckKind",
    "QuotaLedger",
    "QuotaRefusal",
    "QuotaRow",
    "QuotaStatus",
    "QuotaTopology",
    "QuotaVictims",
    "ReclaimNode",
    "ReclaimPlan",
    "Refused",
    "RevokePlan",
    "RootQuota",
    "Ungoverned",
    "Waterfall",
    "WebhookPolicy",
    "add_tree_affinity",
    "admit",
    "admit_batch",
    "admit_together",
    "can_preempt",
    "cluster_ledger",
    "create_quota",
    "delete_quota",
    "entitled_to_reclaim",
    "evaluate_creation",
    "evaluated_request",
    "explain_runtime",
    "fill_quota",
    "format_table",
    "format_waterfall",
    "hint_for_deleted_pod",
    "hint_for_quota",
    "limit_of",
    "open_ledger",
    "open_topology",
    "plan_reclaim",
    "plan_revoke",
    "quota_table",
    "reconcile_profile",
    "refuse_pod",
    "refuse_pod_update",
    "replace_resources",
    "select_revoked",
    "select_victims",
    "stale_annotations",
    "status_annotations",
    "tree_profile",
    "update_quota",
]
