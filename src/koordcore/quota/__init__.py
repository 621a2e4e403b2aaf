"""May it: the rules of the quota tree, runtime quota, admission and overuse."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.protocol.quota_webhook import (
        create_quota as create_quota,
        delete_quota as delete_quota,
        fill_quota as fill_quota,
        open_topology as open_topology,
        refuse_pod_update as refuse_pod_update,
        update_quota as update_quota,
    )
    from koordcore.quota.admission import (
        Admitted as Admitted,
        QuotaCheck as QuotaCheck,
        QuotaRefusal as QuotaRefusal,
        admit as admit,
        admit_together as admit_together,
    )
    from koordcore.quota.evaluate import admit_batch as admit_batch
    from koordcore.quota.explain import (
        explain_runtime as explain_runtime,
        format_waterfall as format_waterfall,
    )
    from koordcore.quota.ledger import QuotaLedger as QuotaLedger
    from koordcore.quota.opening import open_ledger as open_ledger
    from koordcore.quota.overuse import plan_revoke as plan_revoke
    from koordcore.quota.preempt import select_victims as select_victims
    from koordcore.quota.profile import add_tree_affinity as add_tree_affinity
    from koordcore.quota.table import quota_table as quota_table
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.protocol.quota_webhook": (
                "create_quota",
                "delete_quota",
                "fill_quota",
                "open_topology",
                "refuse_pod_update",
                "update_quota",
            ),
            "koordcore.quota.admission": (
                "Admitted",
                "QuotaCheck",
                "QuotaRefusal",
                "admit",
                "admit_together",
            ),
            "koordcore.quota.evaluate": ("admit_batch",),
            "koordcore.quota.explain": ("explain_runtime", "format_waterfall"),
            "koordcore.quota.ledger": ("QuotaLedger",),
            "koordcore.quota.opening": ("open_ledger",),
            "koordcore.quota.overuse": ("plan_revoke",),
            "koordcore.quota.preempt": ("select_victims",),
            "koordcore.quota.profile": ("add_tree_affinity",),
            "koordcore.quota.table": ("quota_table",),
        },
    )
