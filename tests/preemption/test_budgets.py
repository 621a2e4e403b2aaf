"""Plans within disruption budgets: who can make room only beyond them takes nobody's room."""

from immutabledict import immutabledict

from koordcore import (
    Bound,
    ClusterSnapshot,
    Node,
    Nominated,
    Pod,
    PreemptionRules,
    Unschedulable,
    schedule,
    verify,
)
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.selectors import LabelSelector

RULES = PreemptionRules(within_budgets=True)
GUARDED = Pod(name="guarded", requests={"cpu": 1000}, labels={"app": "db"}, priority=1, node_name="n")
BUDGET = PodDisruptionBudget(
    name="db", selector=LabelSelector(immutabledict(app="db")), disruptions_allowed=0
)


def cluster(cpu: int, *pods: Pod) -> ClusterSnapshot:
    node = Node(name="n", allocatable={"cpu": cpu, "memory": 1 << 30, "pods": 9})
    return ClusterSnapshot(nodes=[node]).with_records(BUDGET).assume(GUARDED).with_pending(*pods)


def test_who_would_evict_beyond_a_budget_is_not_nominated_and_takes_nobodys_room() -> None:
    """``large`` needs both cores, one of which a guarded pod holds; ``small`` takes the other."""
    large = Pod(name="large", requests={"cpu": 2000}, priority=9)
    small = Pod(name="small", requests={"cpu": 1000}, priority=9)
    snapshot = cluster(2000, large, small)

    last_resort = schedule(snapshot, preempt=PreemptionRules())
    assert [type(one) for one in last_resort.decisions] == [Nominated, Unschedulable]
    assert last_resort.preemptions[0].damage.violations == 1

    kept = schedule(snapshot, preempt=RULES)
    assert [type(one) for one in kept.decisions] == [Unschedulable, Bound]
    assert not kept.preemptions
    assert not verify(snapshot, kept)


def test_a_promise_that_takes_evictions_beyond_a_budget_is_taken_back() -> None:
    pod = Pod(name="pod", requests={"cpu": 1000}, priority=9, nominated_node="n")
    result = schedule(cluster(1000, pod), preempt=RULES)
    assert [type(one) for one in result.decisions] == [Unschedulable]
    assert [*result.withdrawn] == [pod.key]
