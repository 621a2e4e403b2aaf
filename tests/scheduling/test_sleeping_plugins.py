"""Plugins that need something of the cluster are asked nothing before it is there, and all from then on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from koordcore import Bound, ClusterSnapshot, Node, Pod, Policy, schedule
from koordcore.framework import Plugin
from koordcore.framework.readable import Readable
from koordcore.framework.registry import known_plugins, plugin_kinds
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm
from koordcore.model.pods import HostPort
from koordcore.model.policy import PluginSetting
from koordcore.model.quotas import ElasticQuota
from koordcore.model.reservations import Reservation, ReservationOwner, ReservationPhase, ReservationStatus
from koordcore.model.resources import make_resources
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.hints import ANNOTATION_SCHEDULING_HINT
from koordcore.snapshot import RecordAdded, RecordRemoved

SHIPPED: Final = koordinator_policy(known_plugins())
NAMES: Final = {one.name for one in SHIPPED.plugins}
MORE: Final = sorted({"SchedulingHint", "DynamicResources"} - NAMES)
POLICY: Final = Policy(plugins=(*SHIPPED.plugins, *(PluginSetting(name=name) for name in MORE)))
WEB: Final = LabelSelector({"app": "web"})
ALONE: Final = Affinity(anti=PodAffinity(required=(PodAffinityTerm(topology_key="host", selector=WEB),)))


def pod(name: str, **fields: Any) -> Pod:
    return Pod(name=name, requests={"cpu": 1000}, labels={"app": "web"}, **fields)


def cluster(number: int = 1) -> ClusterSnapshot:
    room = {"cpu": 4000, "memory": 2**33, "pods": 110}
    names = [f"n{row}" for row in range(number)]
    return ClusterSnapshot(nodes=[Node(name=one, allocatable=room, labels={"host": one}) for one in names])


def placed(snapshot: ClusterSnapshot, *pods: Pod) -> list[str]:
    """The node of each pod, or why there is none."""
    decisions = schedule(snapshot, pods, policy=POLICY).decisions
    return [one.node if isinstance(one, Bound) else str(one) for one in decisions]


def anew(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    return ClusterSnapshot(nodes=snapshot.nodes, pending=snapshot.pending, records=snapshot.records)


def sleepers() -> Iterator[type[Plugin]]:
    kinds: list[type[Plugin]] = [Readable, *plugin_kinds(POLICY)]
    return (kind for kind in kinds if kind.needs is not None)


def test_whoever_sleeps_is_asked_and_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("asked in its sleep")

    asleep = [*sleepers()]
    assert len(asleep) == 8
    for kind in asleep:
        own = vars(kind)
        for hook in ("follow", "placed", "removed", "preferred", "request_of"):
            if hook in own and not (hook == "request_of" and kind.by_template):
                monkeypatch.setattr(kind, hook, never)
        for hook in ("waiting", "opened", "closed"):
            if hook in own:
                monkeypatch.setattr(kind, hook, classmethod(never))
    first = schedule(cluster(), [pod("first")], policy=POLICY)
    later = schedule(first.snapshot.forget(first.bound[0].pod), [pod("second")], policy=POLICY)
    assert [str(one.pod) for one in later.bound] == ["default/second"]


def runs(one: Pod) -> Callable[[ClusterSnapshot], ClusterSnapshot]:
    return lambda snapshot: snapshot.assume(one.at("n0"))


QUOTA: Final = ElasticQuota(name="default", namespace="default", max=make_resources({"cpu": 1500}))
HELD: Final = Reservation(
    name="held",
    uid="held",
    template=Pod(name="held", requests={"cpu": 2500}),
    owners=(ReservationOwner(selector=LabelSelector({"app": "other"})),),
    status=ReservationStatus(phase=ReservationPhase.AVAILABLE, node_name="n0", allocatable={"cpu": 2500}),
)
PORT: Final = (HostPort(80),)
CAME: Final[dict[str, tuple[Callable[[ClusterSnapshot], ClusterSnapshot], Pod]]] = {
    "a quota": (lambda one: one.apply(RecordAdded(QUOTA)), pod("asks")),
    "a reservation": (lambda one: one.apply(RecordAdded(HELD)), pod("asks")),
    "a pod that wants to be alone": (
        lambda one: one.assume(pod("alone", affinity=ALONE).at("n0")),
        pod("asks"),
    ),
    "a pod with a port": (runs(pod("holds", host_ports=PORT)), pod("asks", host_ports=PORT)),
    "a pod that cannot be read": (
        lambda one: one.assume(pod("odd", unreadable="text").at("n0")),
        pod("asks"),
    ),
    "a nominated pod that wants to be alone": (
        lambda one: one.with_pending(pod("alone", affinity=ALONE, nominated_node="n0", priority=9)),
        pod("asks"),
    ),
    "a pod that needs a feature": (lambda one: one, pod("asks", features=("Other",))),
    "an annotation": (
        lambda one: one,
        pod("asks", annotations={ANNOTATION_SCHEDULING_HINT: '{"nodeNames": ["elsewhere"]}'}),
    ),
}


@pytest.mark.parametrize("what", sorted(CAME))
def test_whoever_wakes_decides_as_a_new_one(what: str) -> None:
    come, asking = CAME[what]
    before = schedule(cluster(), [pod("first"), pod("second")], policy=POLICY).snapshot
    after = come(before)
    found = placed(after, asking)
    assert found == placed(anew(after), asking)
    assert found != ["n0"] == placed(before, pod("plain"))


def test_a_template_that_was_read_before_somebody_woke_is_read_again() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    first, alone, second = (
        pod(name, created=start + timedelta(seconds=age), affinity=affinity)
        for age, (name, affinity) in enumerate({"first": None, "alone": ALONE, "second": None}.items())
    )
    assert placed(cluster(2), first, second) == ["n0", "n1"]
    assert placed(cluster(2), first, alone, second) == ["n0", "n1", "n0"]


def test_quotas_that_go_let_the_next_pod_in() -> None:
    before = schedule(cluster(), [pod("first")], policy=POLICY).snapshot
    refused = schedule(before.apply(RecordAdded(QUOTA)), [pod("second")], policy=POLICY)
    assert not refused.bound
    gone = refused.snapshot.apply(RecordRemoved(QUOTA))
    assert placed(gone, pod("third")) == ["n0"]
