"""The answer to the question that was asked: in the queue, in the gang, and what would help."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import attrs
import pytest

from koordcore import Bound, ClusterSnapshot, Node, Pod, schedule
from koordcore.cli.explain_tables import say_advice
from koordcore.explaining.advice import Advice, advise
from koordcore.explaining.ends import expectations
from koordcore.explaining.remedy import Remedy, RemedyKind
from koordcore.manifests import snapshot_from_objects
from koordcore.model.affinity import Affinity, PodAffinity, PodAffinityTerm, Taint, TaintEffect
from koordcore.model.gangs import PodGroup
from koordcore.model.quotas import ElasticQuota
from koordcore.model.selectors import LabelSelector
from koordcore.protocol.times import format_time
from koordcore.scheduling.serving import queue_starts

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


END = "koordcore.io/expected-end"
NOW = datetime(2026, 11, 1, 8, tzinfo=UTC)


def two_equal(*closed: str, **annotations: str) -> ClusterSnapshot:
    """Two pods of which each asks for a whole node, one node that is taken, and some that are closed."""
    held = attrs.evolve(pod("old", priority=9), node_name="n", annotations=annotations)
    nodes = [node("n"), *(node(name, unschedulable=True) for name in closed)]
    return ClusterSnapshot(nodes=nodes, pending=[pod("w-0"), pod("w-1")]).assume(held)


def test_what_helps_is_enough_for_an_equal_pod_before_it_as_well() -> None:
    told = helps(advice(two_equal("c0", "c1"), "w-1"))
    first = "; default/w-0, before it in the queue, gets its own first"
    assert told[RemedyKind.UNCORDON] == f"c0, c1, which are cordoned{first}"
    assert told[RemedyKind.GROW].startswith("2 more like c0")
    assert told[RemedyKind.GROW].endswith(first)
    assert RemedyKind.WAIT not in told
    # Nobody is before the other one.
    told = helps(advice(two_equal("c0", "c1"), "w-0"))
    assert told[RemedyKind.UNCORDON] == "c0, which is cordoned"
    assert told[RemedyKind.WAIT] == "for default/old on n; nothing says when it ends"


def test_nobody_is_told_to_open_the_only_node_that_another_takes() -> None:
    assert RemedyKind.UNCORDON not in helps(advice(two_equal("c0"), "w-1"))


def test_the_end_that_another_takes_is_no_end_to_wait_for() -> None:
    snapshot = two_equal(**{END: "2026-11-01T09:00:00Z"})
    result = schedule(snapshot)
    told = helps(advise(snapshot, result, "default/w-0", now=NOW))
    assert told[RemedyKind.WAIT] == "until 2026-11-01T09:00:00Z, when default/old ends"
    assert RemedyKind.WAIT not in helps(advise(snapshot, result, "default/w-1", now=NOW))


def test_the_end_of_the_turn_is_what_the_queue_says() -> None:
    """The first of two starts when the old one ends, runs an hour, and then it is the turn of the second."""
    first = pod("w-0", priority=1, annotations={"koordcore.io/expected-duration": "1h"})
    held = attrs.evolve(pod("old", priority=9), node_name="n", annotations={END: "2026-11-01T09:00:00Z"})
    snapshot = ClusterSnapshot(nodes=[node("n")], pending=[first, pod("w-1")]).assume(held)
    (found, *_) = advise(snapshot, schedule(snapshot), "default/w-1", now=NOW).remedies
    assert found.text == "until 2026-11-01T10:00:00Z, when its turn brings it n; others take room before"
    ends, durations = expectations(snapshot, NOW)
    served = queue_starts(snapshot, ends, durations, now=NOW)[1]
    assert served.start is not None
    assert found.until == format_time(served.start)


def test_where_nothing_helps_beside_those_before_the_advice_says_so() -> None:
    """All nodes are of one team, and two of these pods never share one: the first keeps the second out."""
    key = "team"
    apart = Affinity(
        anti=PodAffinity(
            required=(PodAffinityTerm(topology_key=key, selector=LabelSelector(match_labels={"app": "w"})),)
        )
    )
    two = [pod(f"w-{one}", labels={"app": "w"}, affinity=apart) for one in range(2)]
    held = attrs.evolve(pod("old"), node_name="n")
    snapshot = ClusterSnapshot(nodes=[node("n", labels={key: "a"})], pending=two).assume(held)
    told = helps(advice(snapshot, "w-1"))
    assert told[RemedyKind.GROW] == (
        "1 more like n (64 cpu, 256Gi memory, 8 cards); not while default/w-0 waits before it in the queue"
    )
    assert told[RemedyKind.WAIT].endswith("; not while default/w-0 waits before it in the queue")


def test_of_thousands_before_it_the_nearest_are_tried(capsys: pytest.CaptureFixture[str]) -> None:
    many = [pod(f"a{number:04}", priority=2) for number in range(2000)]
    held = attrs.evolve(pod("old", priority=9), node_name="n")
    snapshot = ClusterSnapshot(nodes=[node("n")], pending=[*many, pod("w")]).assume(held)
    found = advice(snapshot, "w")
    assert (len(found.attempts.refused), found.aside) == (64, 2000 - 64)
    assert [one.name for one in found.attempts.refused][:1] == ["a1936"]
    assert helps(found)[RemedyKind.GROW].startswith("65 more like n")
    say_advice(found)
    told = "tried with the 64 nearest before it in the queue; 1936 more there get no node either"
    assert told in capsys.readouterr().out


def test_a_gang_behind_another_is_told_what_both_need() -> None:
    """Two gangs of two members, each of which asks for a whole node; one node is there."""
    one, other = gang(members=2, least=2, nodes=1), gang(members=2, least=2, nodes=1)
    (second,) = other.of(PodGroup)
    pods = [
        attrs.evolve(each, name=f"h{each.name}", labels=dict.fromkeys(each.labels, "h"))
        for each in other.pending
    ]
    snapshot = one.with_records(attrs.evolve(second, name="h")).with_pending(*pods)
    assert helps(advice(snapshot, "g-0"))[RemedyKind.GROW].startswith("1 more like n0")
    told = helps(advice(snapshot, "hg-0"))[RemedyKind.GROW]
    assert told.startswith("3 more like n0")
    assert told.endswith("; 2 pods before it in the queue get theirs first")


def test_whom_another_evicts_first_is_not_offered_again() -> None:
    held = attrs.evolve(pod("low", priority=-1), node_name="n")
    snapshot = ClusterSnapshot(nodes=[node("n")], pending=[pod("w-0"), pod("w-1")]).assume(held)
    assert helps(advice(snapshot, "w-0"))[RemedyKind.EVICT].startswith("default/low (priority -1)")
    assert RemedyKind.EVICT not in helps(advice(snapshot, "w-1"))


def test_a_quota_is_made_large_enough_for_whoever_waits_in_it_before() -> None:
    label = {"quota.scheduling.koordinator.sh/name": "q"}
    quota = ElasticQuota(name="q", min={"nvidia.com/gpu": 2}, max={"nvidia.com/gpu": 2})
    held = attrs.evolve(pod("old", 2, labels=label), node_name="n")
    two = [pod(f"w-{one}", 2, labels=label) for one in range(2)]
    snapshot = ClusterSnapshot(nodes=[node("n")], pending=two, records=[quota]).assume(held)
    assert "with max 6 nvidia.com/gpu" in helps(advice(snapshot, "w-1"))[RemedyKind.QUOTA]
    larger = attrs.evolve(quota, max={"nvidia.com/gpu": 6})
    assert len(schedule(snapshot.with_records(larger)).bound) == 2


def test_of_a_queue_a_selector_is_labelled_for_whoever_comes_first() -> None:
    two = [pod(f"w-{one}", node_selector={"role": "train"}) for one in range(2)]
    snapshot = ClusterSnapshot(nodes=[node("n0"), node("n1")], pending=two)
    (first, *_) = advice(snapshot, "w-1").remedies
    assert first.paste == "kubectl label node n0 n1 role=train --overwrite"
    only = ClusterSnapshot(nodes=[node("n0")], pending=two)
    (first, *_) = advice(only, "w-1").remedies
    assert (first.kind, first.paste) == (RemedyKind.SELECT, "")


@pytest.mark.parametrize("seed", range(16))
def test_what_is_advised_starts_the_pod_when_the_whole_queue_is_scheduled(seed: int) -> None:
    """Pods of several sizes before and behind, some of them with rules of their own."""
    drawn = random.Random(seed)
    nodes = [
        node(f"n{row}", labels={"pool": drawn.choice("ab")}, unschedulable=drawn.random() < 0.5)
        for row in range(5)
    ]
    running = [
        attrs.evolve(pod(f"r{row}", drawn.choice((2, 4, 8)), priority=9), node_name=f"n{row}")
        for row in range(5)
        if drawn.random() < 0.6
    ]
    waiting = [
        pod(
            f"w{number}",
            drawn.choice((2, 4, 8)),
            priority=drawn.choice((1, 2)),
            node_selector=drawn.choice(({}, {}, {"pool": "a"})),
        )
        for number in range(8)
    ]
    snapshot = ClusterSnapshot(nodes=nodes, pending=waiting).assume(*running)
    tried = 0
    for one in waiting:
        for remedy in advice(snapshot, one.name).remedies:
            if "; not while" in remedy.text:
                continue
            after = done(snapshot, one, remedy, drawn.choice(("0-", "zz-")))
            if after is not None:
                tried += 1
                decision = schedule(after).decision(one.key)
                assert isinstance(decision, Bound), (one.name, remedy)
    assert tried or len(schedule(snapshot).bound) == len(waiting)


def done(snapshot: ClusterSnapshot, asked: Pod, remedy: Remedy, prefix: str) -> ClusterSnapshot | None:
    """Do what a remedy says, to the letter; ``None`` for what this does not read."""
    if remedy.kind is RemedyKind.WAIT:
        running = [one for one in remedy.pods if one in snapshot.location]
        return snapshot.forget(*running) if len(running) == len(remedy.pods) else None
    if remedy.kind is RemedyKind.GROW:
        number, like = remedy.text.split(" more like ")
        state = snapshot.node(like.split(" ")[0]).node
        more = [
            attrs.evolve(state, name=f"{prefix}{state.name}-more-{each}", unschedulable=False)
            for each in range(int(number))
        ]
        return snapshot.with_nodes(*more)
    if remedy.kind is RemedyKind.UNCORDON:
        names = remedy.paste.split()[2:]
        states = [snapshot.node(name) for name in names]
        return snapshot.with_nodes(
            *(attrs.evolve(one, node=attrs.evolve(one.node, unschedulable=False)) for one in states)
        )
    if remedy.kind is RemedyKind.SELECT and remedy.paste:
        *names, label, _ = remedy.paste.split()[3:]
        key, _, value = label.partition("=")
        states = [snapshot.node(name) for name in names]
        return snapshot.with_nodes(
            *(
                attrs.evolve(one, node=attrs.evolve(one.node, labels={**one.node.labels, key: value}))
                for one in states
            )
        )
    if remedy.kind is RemedyKind.SHRINK:
        less = int(remedy.text.split(" ")[0])
        if " nvidia.com/gpu instead" not in remedy.text:
            return None
        return snapshot.with_pending(attrs.evolve(asked, requests={**asked.requests, "nvidia.com/gpu": less}))
    return None
