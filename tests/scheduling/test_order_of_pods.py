"""What earlier pods of a call mean for later ones: neighbours, promises, reservations."""

from __future__ import annotations

import attrs
import pytest

from koordcore import (
    ClusterSnapshot,
    Node,
    Nominated,
    Pod,
    PreemptionRules,
    Unschedulable,
    named_policy,
    schedule,
    verify,
)
from koordcore.explaining import explain
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.reservations import AllocatePolicy
from koordcore.model.selectors import LabelSelector
from koordcore.result import ScheduleResult
from koordcore.scheduling.plugins.gpu_share import GpuShareArgs
from koordcore.scoring.gpu_policies import PolicyName
from koordcore.scoring.gpu_share import GpuDemand
from tests.reservations import worlds
from tests.scheduling.test_gpu_share import node as card_node, pod as sharing, policy as cards

HOST = "kubernetes.io/hostname"
WEB = PodAffinity(required=(PodAffinityTerm(HOST, LabelSelector({"app": "web"})),))


def pod(name: str, priority: int, app: str = "", **fields: object) -> Pod:
    labels = {"app": app} if app else {}
    return Pod(name=name, priority=priority, labels=labels, requests={"cpu": 100}, **fields)  # type: ignore[arg-type]


def legal(snapshot: ClusterSnapshot, **how: object) -> ScheduleResult:
    result = schedule(snapshot, **how)  # type: ignore[arg-type]  # as given
    assert verify(snapshot, result) == ()
    return result


@pytest.mark.parametrize(
    ("earlier", "later", "refused"),
    [
        pytest.param(
            pod("a", 2), pod("b", 1, affinity=Affinity(pod=WEB)), True, id="nobody is there to be near"
        ),
        pytest.param(pod("a", 2, "web"), pod("b", 1, affinity=Affinity(pod=WEB)), False, id="near who came"),
        pytest.param(
            pod("a", 2, "web"), pod("b", 1, affinity=Affinity(anti=WEB)), True, id="far from who came"
        ),
        pytest.param(
            pod("a", 2, affinity=Affinity(anti=WEB)), pod("b", 1, "web"), True, id="who came keeps away"
        ),
        pytest.param(
            pod("a", 2, affinity=Affinity(anti=WEB)), pod("b", 1, "db"), False, id="others may come"
        ),
    ],
)
def test_terms_count_between_pods_of_one_call(earlier: Pod, later: Pod, refused: bool) -> None:
    node = Node(name="n", labels={HOST: "n"}, allocatable={"cpu": 8000, "pods": 10})
    before = pod("first", 3)  # nobody has any terms yet
    result = legal(ClusterSnapshot(nodes=[node], pending=[before, earlier, later]))
    assert ("b" not in {one.pod.name for one in result.bound}) == refused


def test_who_finds_room_that_is_promised_to_another_is_told_what_is_left_of_it() -> None:
    node = Node(name="n", allocatable={"cpu": 4000, "pods": 10})
    running = Pod(name="old", requests={"cpu": 3000}).at("n")
    high = Pod(name="high", requests={"cpu": 4000}, priority=9)
    low = Pod(name="low", requests={"cpu": 1000}, priority=5)
    snapshot = ClusterSnapshot(nodes=[node], pending=[high, low]).assume(running)
    nominated, refused = legal(snapshot, preempt=PreemptionRules()).decisions
    assert isinstance(nominated, Nominated)
    assert isinstance(refused, Unschedulable)
    assert refused.message == "0/1 nodes are available: 1 Insufficient cpu."


def test_who_may_use_a_reservation_of_any_policy_may_have_others_evicted_on_its_node() -> None:
    held = worlds.reservation("r", 2, on="n1", policy=AllocatePolicy.DEFAULT)
    low = worlds.pod("low", 6).at("n1")
    high = worlds.pod("high", 6, app="a", priority=9)
    snapshot = ClusterSnapshot(nodes=[worlds.node("n1")], pending=[high], records=[held]).assume(low)
    (found,) = legal(snapshot, policy=named_policy("koordinator"), preempt=PreemptionRules()).decisions
    assert isinstance(found, Nominated)
    assert [one.pod.name for one in found.victims] == ["low"]


def test_who_must_use_a_reservation_and_may_use_none_of_those_that_stand_is_told_so() -> None:
    held = worlds.reservation("r", 2, on="n1", app="a")
    asks = worlds.pod("p", 1, app="b", annotations=worlds.must())
    snapshot = ClusterSnapshot(nodes=[worlds.node("n1")], pending=[asks], records=[held])
    (found,) = legal(snapshot, policy=named_policy("koordinator")).decisions
    assert isinstance(found, Unschedulable)
    assert found.message == ("0/1 nodes are available: node(s) no reservations match reservation affinity.")


def test_a_reservation_without_a_uid_is_placed_over_running_pods_as_well() -> None:
    """The node is full, and one of its pods is of the size that is held."""
    held = worlds.reservation("r", 4, policy=AllocatePolicy.RESTRICTED, pre_allocation=True)
    held = attrs.evolve(held, uid="")
    running = [worlds.pod(name, 4, app=app).at("n1") for name, app in (("own", "a"), ("other", "b"))]
    snapshot = ClusterSnapshot(nodes=[worlds.node("n1")], records=[held]).assume(*running)
    assert [one.node for one in legal(snapshot, policy=worlds.POLICY).bound] == ["n1"]


def test_a_policy_that_draws_gives_a_hundred_to_the_node_that_it_draws_and_nothing_to_others() -> None:
    policy = cards(GpuShareArgs(policy=PolicyName.RANDOM, seed=5))
    asks = sharing("p", GpuDemand(cpu=1000, memory=1 << 30, gpus=1, milli=1000))
    snapshot = ClusterSnapshot(nodes=[card_node("a", 2), card_node("b", 2)], pending=[asks])
    scores = explain(snapshot, asks.key, policy=policy).table()["GpuShare"]
    assert sorted(scores) == [0, 100]
