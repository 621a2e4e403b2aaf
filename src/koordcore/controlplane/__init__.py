"""The pure core of a control plane: what it knows, whose turn it is, what it is about to do.

Nothing here talks to a server, reads a clock or waits. ``examples/kubernetes`` puts HTTP around it.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.controlplane.admission import admit_workloads as admit_workloads
    from koordcore.controlplane.effects import is_final as is_final
    from koordcore.controlplane.feed import Feed as Feed
    from koordcore.controlplane.journal import Batch as Batch
    from koordcore.controlplane.kinds import places as places
    from koordcore.controlplane.loop import (
        ControlLoop as ControlLoop,
        LoopSettings as LoopSettings,
    )
    from koordcore.controlplane.mirror import (
        Mirror as Mirror,
        complete as complete,
    )
    from koordcore.controlplane.overdue import Overdue as Overdue
    from koordcore.controlplane.queue import (
        Backoff as Backoff,
        SchedulingQueue as SchedulingQueue,
    )
    from koordcore.controlplane.requests import (
        RESOURCES as RESOURCES,
        Request as Request,
        version_of as version_of,
    )
    from koordcore.controlplane.steps import (
        NO_ANSWER as NO_ANSWER,
        Answer as Answer,
        Await as Await,
        Look as Look,
        Moment as Moment,
        Relist as Relist,
        Say as Say,
        Send as Send,
        Step as Step,
        Steps as Steps,
    )
    from koordcore.controlplane.turn import (
        is_news as is_news,
        orders as orders,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.controlplane.admission": ("admit_workloads",),
            "koordcore.controlplane.effects": ("is_final",),
            "koordcore.controlplane.feed": ("Feed",),
            "koordcore.controlplane.journal": ("Batch",),
            "koordcore.controlplane.loop": ("ControlLoop", "LoopSettings"),
            "koordcore.controlplane.mirror": ("Mirror", "complete"),
            "koordcore.controlplane.overdue": ("Overdue",),
            "koordcore.controlplane.queue": ("Backoff", "SchedulingQueue"),
            "koordcore.controlplane.kinds": ("places",),
            "koordcore.controlplane.requests": ("RESOURCES", "Request", "version_of"),
            "koordcore.controlplane.steps": (
                "NO_ANSWER",
                "Answer",
                "Await",
                "Look",
                "Moment",
                "Relist",
                "Say",
                "Send",
                "Step",
                "Steps",
            ),
            "koordcore.controlplane.turn": ("is_news", "orders"),
        },
    )
