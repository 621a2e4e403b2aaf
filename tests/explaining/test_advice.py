"""The answer to the question that was asked: in the queue, in the gang, and what would help."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import attrs

from koordcore import ClusterSnapshot, Node, Pod, schedule
from koordcore.explaining.advice import Advice, advise
from koordcore.explaining.remedy import RemedyKind
from koordcore.manifests import snapshot_from_objects
from koordcore.model.affinity import Taint, TaintEffect

ROOM = {"cpu": 64_000, "memory": 256 << 30, "pods": 110, "nvidia.com/gpu": 8}


def node(name: str, **changes: Any) -> Node:
    return Node(**{"name": name, "allocatable": ROOM, **changes})


def pod(name: str, cards: int = 8, **changes: Any) -> Pod:
    return Pod(**{"name": name, "requests": {"cpu": 1000, "nvidia.com/gpu": cards}, **changes})


def advice(snapshot: ClusterSnapshot, name: str) -> Advice:
    return advise(snapshot, schedule(snapshot), f"default/{name}")


def helps(found: Advice) -> dict[RemedyKind, str]:
    return {one.kind: one.text for one in reversed(found.remedies)}


def test_who_is_before_it_in_the_queue_is_named() -> None:
    """Of three before it only the one that takes its node is in the way."""
    nodes = [node("n1"), node("n2"), node("n5")]
    small = [pod(f"a{number}", priority=9, node_selector={}) for number in range(2)]
    snapshot = ClusterSnapshot(nodes=nodes, pending=[*small, pod("b0", priority=5), pod("b1")])
    found = advice(snapshot, "b1")
    assert [(str(one.pod), one.node) for one in found.ahead] == [("default/b0", "n5")]
    assert (found.place, found.queue, found.settled) == (4, 4, False)
    assert advice(snapshot, "b0").settled


def test_room_that_is_kept_for_a_nominated_pod_is_named() -> None:
    low = attrs.evolve(pod("hi", priority=9, nominated_node="n1"))
    snapshot = ClusterSnapshot(nodes=[node("n1"), node("n2", unschedulable=True)], pending=[low, pod("lo")])
    found = advise(snapshot, schedule(snapshot, [snapshot.pending[1]]), "default/lo")
    (ahead,) = found.ahead
    assert (str(ahead.pod), ahead.node, ahead.nominated) == ("default/hi", "n1", True)
    assert advice(snapshot, "hi").summary == ("goes to n1 in its turn, the node that it is nominated for",)


def test_a_quota_that_is_used_up_is_told_apart_from_room() -> None:
    """Two pods of the quota run; the third would fit on the node."""
    room = {"cpu": "64", "pods": "110"}
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"min": {"cpu": "2"}, "max": {"cpu": "2"}},
    }
    label = "quota.scheduling.koordinator.sh/name"
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": room}},
        quota,
    ]
    objects += [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{one}", "labels": {label: "q"}},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                **({"nodeName": "n"} if one < 2 else {}),
            },
        }
        for one in range(3)
    ]
    told = helps(advice(snapshot_from_objects(objects).snapshot, "p2"))
    assert told[RemedyKind.QUOTA].startswith("only its quota q is in the way")
    assert RemedyKind.GROW not in told


def gang(members: int, least: int, nodes: int) -> ClusterSnapshot:
    label = "pod-group.scheduling.sigs.k8s.io"
    room = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    objects: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{one}"}, "status": {"allocatable": room}}
        for one in range(nodes)
    ]
    objects.append(
        {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"minMember": least},
        }
    )
    requests = {"nvidia.com/gpu": "8", "cpu": "8"}
    objects += [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"g-{one}", "namespace": "default", "labels": {label: "g"}},
            "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        }
        for one in range(members)
    ]
    return snapshot_from_objects(objects).snapshot


def test_a_gang_is_told_how_many_members_fit_and_how_many_nodes_are_missing() -> None:
    found = advice(gang(members=4, least=4, nodes=3), "g-0")
    assert len(found.members) == 4
    assert not found.settled
    told = helps(found)
    assert told[RemedyKind.FEWER].startswith("3 of 4 members fit")
    assert told[RemedyKind.GROW].startswith("1 more like n0 (64 cpu, 256Gi memory, 8 cards)")
    assert helps(advice(gang(members=6, least=6, nodes=3), "g-0"))[RemedyKind.GROW].startswith(
        "3 more like n0"
    )


def test_a_gang_that_starts_says_so_as_one() -> None:
    found = advice(gang(members=3, least=3, nodes=3), "g-2")
    assert found.settled
    assert found.summary[0].startswith("3 of 3 members get nodes")
    assert found.remedies == ()


def test_what_no_node_ever_has_is_said_and_nothing_in_vain_is_advised() -> None:
    snapshot = ClusterSnapshot(nodes=[node("n1"), node("n2")], pending=[pod("big", 16)])
    found = advice(snapshot, "big")
    assert found.never == ("no node has ever 16 nvidia.com/gpu: the most is 8, on n1 and 1 more",)
    assert set(helps(found)) == {RemedyKind.SHRINK}
    assert (
        helps(found)[RemedyKind.SHRINK]
        == "8 nvidia.com/gpu instead of 16; or 2 pods of 8 nvidia.com/gpu each"
    )


def test_a_toleration_is_given_to_paste() -> None:
    tainted = node("n1", taints=(Taint("team", "red", TaintEffect.NO_SCHEDULE),))
    found = advice(
        ClusterSnapshot(nodes=[tainted, node("cpu", allocatable={"cpu": 8000})], pending=[pod("p")]), "p"
    )
    (first, *_) = found.remedies
    assert first.kind is RemedyKind.TOLERATE
    assert first.paste == 'tolerations:\n- {key: team, operator: Equal, value: "red", effect: NoSchedule}'


def test_a_selector_names_what_nodes_have_instead() -> None:
    snapshot = ClusterSnapshot(
        nodes=[node("n1", labels={"pool": "a"})], pending=[pod("p", node_selector={"pool": "b"})]
    )
    (first, *_) = advice(snapshot, "p").remedies
    assert first.kind is RemedyKind.SELECT
    assert first.text == "without nodeSelector pool=b it fits n1; nodes have pool=a"


def test_a_cordoned_node_and_who_would_have_to_end() -> None:
    held = attrs.evolve(pod("old"), node_name="n1")
    snapshot = ClusterSnapshot(nodes=[node("n1"), node("n2", unschedulable=True)], pending=[pod("p")]).assume(
        held
    )
    told = helps(advice(snapshot, "p"))
    assert told[RemedyKind.WAIT] == "for default/old on n1; nothing says when it ends"
    assert told[RemedyKind.UNCORDON] == "n2, which is cordoned"


def test_a_known_end_says_until_when() -> None:
    annotations = {"koordcore.io/expected-end": "2026-11-01T11:30:00Z"}
    held = attrs.evolve(pod("old"), node_name="n1", annotations=annotations)
    snapshot = ClusterSnapshot(nodes=[node("n1")], pending=[pod("p")]).assume(held)
    now = datetime(2026, 11, 1, 10, tzinfo=UTC)
    found = advise(snapshot, schedule(snapshot, now=now), "default/p", now=now)
    assert found.remedies[0].until == "2026-11-01T11:30:00Z"
    assert found.remedies[0].pods == (held.key,)


def test_victims_are_named_with_their_price() -> None:
    held = attrs.evolve(pod("low", priority=1), node_name="n1")
    snapshot = ClusterSnapshot(nodes=[node("n1")], pending=[pod("high", priority=9)]).assume(held)
    told = helps(advice(snapshot, "high"))
    assert told[RemedyKind.EVICT].startswith("default/low (priority 1): the cheapest, proven")
    assert RemedyKind.EVICT not in helps(
        advice(ClusterSnapshot(nodes=[node("n1")], pending=[pod("high", priority=0)]).assume(held), "high")
    )


def test_whoever_takes_the_room_in_the_same_queue_is_waited_for_until_its_end() -> None:
    """It starts now and says how long it will run: ``when`` says the same."""
    now = datetime(2026, 11, 1, 8, tzinfo=UTC)
    first = pod("b0", priority=5, annotations={"koordcore.io/expected-duration": "2h"})
    snapshot = ClusterSnapshot(nodes=[node("n5")], pending=[first, pod("b1")])
    found = advise(snapshot, schedule(snapshot), "default/b1", now=now)
    assert helps(found)[RemedyKind.WAIT] == "until 2026-11-01T10:00:00Z, when default/b0 ends"
