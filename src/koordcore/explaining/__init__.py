"""Why here, why not there, what would help."""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.explaining.advice import Advice as Advice, Ahead as Ahead, advise as advise
    from koordcore.explaining.audit import (
        Audit as Audit,
        audit_workloads as audit_workloads,
        reason_histogram as reason_histogram,
    )
    from koordcore.explaining.claimed_devices import (
        node_room as node_room,
        pool_views as pool_views,
    )
    from koordcore.explaining.cycle import explain_cycle as explain_cycle
    from koordcore.explaining.diagnosis import diagnose as diagnose
    from koordcore.explaining.differences import (
        ClusterDifference as ClusterDifference,
        PlanDifference as PlanDifference,
        cluster_differences as cluster_differences,
        plan_differences as plan_differences,
    )
    from koordcore.explaining.endpoints import (
        ENDPOINTS as ENDPOINTS,
        endpoint_view as endpoint_view,
    )
    from koordcore.explaining.groups import explain_group as explain_group
    from koordcore.explaining.node_states import (
        CardCounts as CardCounts,
        NodeCondition as NodeCondition,
        cards_of as cards_of,
        condition_of as condition_of,
    )
    from koordcore.explaining.pod import (
        Explanation as Explanation,
        Help as Help,
        NodeVerdict as NodeVerdict,
        explain as explain,
    )
    from koordcore.explaining.post_filter import failure_event as failure_event
    from koordcore.explaining.remedies import Remedy as Remedy, RemedyKind as RemedyKind
    from koordcore.explaining.reservation_events import (
        reservation_event as reservation_event,
        reservation_reasons as reservation_reasons,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.explaining.advice": "Advice Ahead advise",
            "koordcore.explaining.audit": "Audit audit_workloads reason_histogram",
            "koordcore.explaining.claimed_devices": "node_room pool_views",
            "koordcore.explaining.cycle": "explain_cycle",
            "koordcore.explaining.differences": (
                "ClusterDifference PlanDifference cluster_differences plan_differences"
            ),
            "koordcore.explaining.diagnosis": "diagnose",
            "koordcore.explaining.endpoints": "ENDPOINTS endpoint_view",
            "koordcore.explaining.groups": "explain_group",
            "koordcore.explaining.node_states": "CardCounts NodeCondition cards_of condition_of",
            "koordcore.explaining.pod": "Explanation Help NodeVerdict explain",
            "koordcore.explaining.post_filter": "failure_event",
            "koordcore.explaining.remedies": "Remedy RemedyKind",
            "koordcore.explaining.reservation_events": "reservation_event reservation_reasons",
        },
    )
