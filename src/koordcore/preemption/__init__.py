"""Who must leave so that a whole job fits.

A failing pod's job is identified
(:mod:`~koordcore.preemption.identify`), it may preempt or not (:mod:`~koordcore.preemption.eligible`),
candidates are collected (:mod:`~koordcore.preemption.victims`) and the question is set up
(:mod:`~koordcore.preemption.setup`), damage is counted (:mod:`~koordcore.preemption.cost`), and the cheapest
plan is found (:mod:`~koordcore.preemption.plan`).
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.preemption.identify import identify_job as identify_job
    from koordcore.preemption.plan import plan_preemption as plan_preemption
    from koordcore.preemption.setup import make_problem as make_problem
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.preemption.identify": ("identify_job",),
            "koordcore.preemption.plan": ("plan_preemption",),
            "koordcore.preemption.setup": ("make_problem",),
        },
    )
