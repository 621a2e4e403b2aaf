"""One call of the scheduler that tells a terminal how far it is."""

from __future__ import annotations

from datetime import datetime

from koordcore.cli.progress import working
from koordcore.model.certificates import DEFAULT_LIMITS
from koordcore.model.policy import Policy
from koordcore.model.preemption import PreemptionRules
from koordcore.result import ScheduleResult
from koordcore.scheduling.cycle import open_cycle
from koordcore.snapshot import ClusterSnapshot


def place(
    snapshot: ClusterSnapshot, policy: Policy, now: datetime | None, rules: PreemptionRules | None = None
) -> ScheduleResult:
    """Do what :func:`koordcore.schedule` does, and count the pods that are decided."""
    what = f"placing {len(snapshot.pending)} pods on {len(snapshot.nodes)} nodes"
    with working(what, len(snapshot.pending)) as step:
        cycle = open_cycle(snapshot, None, policy, now, DEFAULT_LIMITS, rules)
        for _ in cycle.turns():
            cycle.decide()
            step(len(cycle.decisions))
        return cycle.finish()
