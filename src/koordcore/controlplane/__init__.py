"""The pure core of a control plane: what it knows, whose turn it is, what it is about to do.

Nothing here talks to a server, reads a clock or waits. ``examples/kubernetes`` puts HTTP around it.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.controlplane.admission import (
        AdmissionPlan as AdmissionPlan,
        WorkloadDecision as WorkloadDecision,
        admit_workloads as admit_workloads,
    )
    from koordcore.controlplane.admission_review import (
        PlacedWorkload as PlacedWorkload,
        review_admitted as review_admitted,
    )
    from koordcore.controlplane.journal import (
        Batch as Batch,
        is_final as is_final,
    )
    from koordcore.controlplane.mirror import (
        Mirror as Mirror,
        complete as complete,
    )
    from koordcore.controlplane.overdue import (
        Overdue as Overdue,
    )
    from koordcore.controlplane.queue import (
        Backoff as Backoff,
        SchedulingQueue as SchedulingQueue,
    )
    from koordcore.controlplane.requests import (
        RESOURCES as RESOURCES,
        Request as Request,
        version_of as version_of,
    )
    from koordcore.controlplane.turn import (
        is_news as is_news,
        orders as orders,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.controlplane.admission": "AdmissionPlan WorkloadDecision admit_workloads",
            "koordcore.controlplane.admission_review": "PlacedWorkload review_admitted",
            "koordcore.controlplane.journal": "Batch is_final",
            "koordcore.controlplane.mirror": "Mirror complete",
            "koordcore.controlplane.overdue": "Overdue",
            "koordcore.controlplane.queue": "Backoff SchedulingQueue",
            "koordcore.controlplane.requests": "RESOURCES Request version_of",
            "koordcore.controlplane.turn": "is_news orders",
        },
    )
