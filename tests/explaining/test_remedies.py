"""Remedies that are offered are true: carried out on the dump, the pod gets its place."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from koordcore import ClusterSnapshot, Node, Pod, schedule
from koordcore.explaining.advice import Advice, advise
from koordcore.explaining.remedy import Remedy, RemedyKind
from koordcore.manifests import snapshot_from_objects
from tests.manifests.builders import container, node, obj, pod

Object = dict[str, Any]
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "99", "nvidia.com/gpu": "8"}
GROUP = "pod-group.scheduling.sigs.k8s.io"


def cards(name: str, number: int, on: str = "", quota: str = "", group: str = "", owner: str = "") -> Object:
    labels = {"quota.scheduling.koordinator.sh/name": quota} if quota else {}
    labels |= {GROUP: group} if group else {}
    kind, _, owned = owner.partition("/")
    one = {"apiVersion": "v1", "kind": kind, "name": owned, "uid": owned, "controller": True}
    metadata: Object = {"labels": labels, **({"ownerReferences": [one]} if owner else {})}
    box = container(limits={"nvidia.com/gpu": str(number)})
    return pod(name, metadata=metadata, containers=[box], **({"nodeName": on} if on else {}))


def quota(name: str, least: int, most: int, parent: str = "") -> Object:
    labels = {"quota.scheduling.koordinator.sh/parent": parent} if parent else {}
    labels |= {"quota.scheduling.koordinator.sh/is-parent": str(not parent).lower()}
    spec = {"min": {"nvidia.com/gpu": str(least)}, "max": {"nvidia.com/gpu": str(most)}}
    return obj(
        "ElasticQuota", name, "scheduling.sigs.k8s.io/v1alpha1", spec=spec, metadata={"labels": labels}
    )


def advice(objects: list[Object], name: str) -> Advice:
    snapshot = snapshot_from_objects(objects).snapshot
    return advise(snapshot, schedule(snapshot), f"default/{name}")


def helps(objects: list[Object], name: str, kind: RemedyKind) -> Remedy:
    (found,) = (one for one in advice(objects, name).remedies if one.kind is kind)
    return found


def starts(objects: list[Object], name: str) -> bool:
    result = schedule(snapshot_from_objects(objects).snapshot)
    return any(one.pod.name == name for one in result.bound)


def two_teams(most: int = 16, least: int = 8) -> list[Object]:
    """Team a uses all of its max while b, which waits for more, is promised half of the cards."""
    return [
        *(node(f"n{number}", ROOM) for number in range(4)),
        quota("org", 32, 32),
        quota("a", least, most, "org"),
        quota("b", 16, 24, "org"),
        *(cards(f"a{number}", 4, f"n{number}", "a") for number in range(4)),
        *(cards(f"b{number}", 2, f"n{number}", "b") for number in range(4)),
        *(cards(f"bw{number}", 4, quota="b") for number in range(3)),
        cards("aw", 2, quota="a"),
    ]


def test_a_larger_max_is_not_offered_where_others_may_claim_the_rest() -> None:
    assert not starts(two_teams(most=18), "aw")
    told = helps(two_teams(), "aw", RemedyKind.QUOTA)
    assert told.text == "only its quota a is in the way; it fits n0 once default/a0, default/a1 end"
    gone = {one.name for one in told.pods}
    assert starts([one for one in two_teams() if one["metadata"]["name"] not in gone], "aw")


def test_a_larger_max_is_offered_where_it_does() -> None:
    def small(most: int) -> list[Object]:
        return [node("n0", ROOM), quota("q", 4, most), cards("r", 4, "n0", "q"), cards("w", 2, quota="q")]

    told = helps(small(4), "w", RemedyKind.QUOTA)
    assert "with max 6 nvidia.com/gpu for q, or once default/r ends" in told.text
    assert starts(small(6), "w")
    assert starts([one for one in small(4) if one["metadata"]["name"] != "r"], "w")


def test_whoever_is_replaced_when_it_ends_is_waited_for_last() -> None:
    nodes = [node("n0", ROOM), node("n1", ROOM)]
    serving = cards("a", 8, "n0", owner="ReplicaSet/web")
    job = cards("b", 8, "n1", owner="Job/train")
    told = helps([*nodes, serving, job, cards("w", 8)], "w", RemedyKind.WAIT)
    assert told.text == "for default/b on n1; nothing says when it ends"
    other = cards("b", 8, "n1", owner="StatefulSet/db")
    told = helps([*nodes, serving, other, cards("w", 8)], "w", RemedyKind.WAIT)
    assert told.text == "for default/a on n0, until somebody scales down ReplicaSet web"
    static = cards("a", 8, "n0", owner="Node/n0")
    found = advice([node("n0", ROOM), static, cards("w", 8)], "w")
    assert RemedyKind.WAIT not in {one.kind for one in found.remedies}


def group(least: int) -> Object:
    return obj("PodGroup", "g", "scheduling.sigs.k8s.io/v1alpha1", spec={"minMember": least})


def test_a_gang_waits_for_few_who_run() -> None:
    nodes = [node(f"n{number}", ROOM) for number in range(4)]
    running = [cards(f"r{number}", 4, f"n{number}", owner="Job/old") for number in range(3)]
    members = [cards(f"m{number}", 8, group="g") for number in range(2)]
    told = helps([*nodes, group(2), *running, *members], "m0", RemedyKind.WAIT)
    assert told.text == "for default/r0 on n0; nothing says when it ends"


@pytest.mark.parametrize(
    ("least", "members", "text"),
    [
        (3, 2, "1 more pod of default/g: 2 of at least 3 exist"),
        (4, 2, "2 more pods of default/g: 2 of at least 4 exist"),
        (0, 1, "the dump has no PodGroup default/g, nor a pod that says how large this gang is"),
    ],
)
def test_a_gang_that_is_not_tried_says_what_it_lacks(least: int, members: int, text: str) -> None:
    own = [cards(f"m{number}", 1, group="g") for number in range(members)]
    objects = [node("n0", ROOM), *([group(least)] if least else []), *own]
    found = advice(objects, "m0")
    assert [(one.kind, one.text) for one in found.remedies] == [(RemedyKind.COMPLETE, text)]


def test_a_dump_without_its_pod_groups_is_said_to_lack_them() -> None:
    own = [cards(f"m{number}", 1, group="g") for number in range(2)]
    loaded = snapshot_from_objects([node("n0", ROOM), *own])
    (told,) = (str(one) for one in loaded.warnings)
    assert told.endswith("the dump has no PodGroup default/g, so 2 pods wait for it")
    assert not snapshot_from_objects([node("n0", ROOM), group(2), *own]).warnings


def test_more_nodes_are_described_by_what_is_asked_for() -> None:
    room = {**ROOM, "nvidia.com/mig-3g.40gb": "2"}
    box = container(limits={"nvidia.com/mig-3g.40gb": "2"})
    objects = [node("n0", room), pod("r", containers=[box], nodeName="n0"), pod("w", containers=[box])]
    assert "64Gi memory, 2 nvidia.com/mig-3g.40gb)" in helps(objects, "w", RemedyKind.GROW).text


def test_a_cluster_without_nodes_is_called_so() -> None:
    assert advice([cards("w", 1)], "w").never == ("the cluster has no node",)


def test_the_deadline_of_a_job_is_an_end() -> None:
    started = {"startTime": "2026-11-01T10:00:00Z"}
    job = obj("Job", "old", "batch/v1", spec={"activeDeadlineSeconds": 3600}, status=started)
    running = cards("r", 8, "n0", owner="Job/old")
    running["status"] = {"phase": "Running", **started}
    told = helps([node("n0", ROOM), job, running, cards("w", 8)], "w", RemedyKind.WAIT)
    assert (told.until, told.pods[0].name) == ("2026-11-01T11:00:00Z", "r")


def labelled(objects: list[Object], command: str) -> list[Object]:
    """Do what ``kubectl label node`` and ``kubectl uncordon`` do."""
    found = copy.deepcopy(objects)
    for one in command.split(" && "):
        words = one.split()
        label = words[-2] if words[1] == "label" else ""
        names = words[3:-2] if label else words[2:]
        for other in found:
            if other["kind"] == "Node" and other["metadata"]["name"] in names:
                if label:
                    key, _, value = label.partition("=")
                    other["metadata"].setdefault("labels", {})[key] = value
                else:
                    other["spec"]["unschedulable"] = False
    return found


def choosy(name: str, **selector: str) -> Object:
    found = cards(name, 8, group="g")
    found["spec"]["nodeSelector"] = selector
    return found


@pytest.mark.parametrize(
    ("roles", "command"),
    [
        (("train", "train"), "kubectl label node n0 n1 role=train --overwrite"),
        (
            ("serve", "train"),
            "kubectl label node n0 role=serve --overwrite && kubectl label node n1 role=train --overwrite",
        ),
    ],
)
def test_every_node_of_a_gang_gets_the_label(roles: tuple[str, str], command: str) -> None:
    nodes = [node(f"n{number}", ROOM) for number in range(2)]
    objects = [*nodes, group(2), *(choosy(f"m{row}", role=role) for row, role in enumerate(roles))]
    told = helps(objects, "m0", RemedyKind.SELECT)
    assert told.text.startswith(
        f"without nodeSelector role={' or '.join(dict.fromkeys(roles))} it fits n0, n1"
    )
    assert told.paste == command
    assert starts(labelled(objects, told.paste), "m0")


def test_a_label_is_not_pasted_where_no_label_does() -> None:
    """Both members go to the only node, which cannot have two values of one label."""
    halves = [choosy("m0", role="serve"), choosy("m1", role="train")]
    for one in halves:
        one["spec"]["containers"] = [container(limits={"nvidia.com/gpu": "4"})]
    told = helps([node("n0", ROOM), group(2), *halves], "m0", RemedyKind.SELECT)
    assert (told.text[:47], told.paste) == ("without nodeSelector role=serve or train it fit", "")


def test_as_many_nodes_are_opened_as_a_gang_needs() -> None:
    nodes = [node(f"n{number}", ROOM, spec={"unschedulable": True}) for number in range(4)]
    small = node("a", {**ROOM, "nvidia.com/gpu": "4"}, spec={"unschedulable": True})
    members = [cards(f"m{number}", 8, group="g") for number in range(2)]
    objects = [small, *nodes, group(2), *members]
    told = helps(objects, "m0", RemedyKind.UNCORDON)
    assert told.paste == "kubectl uncordon n0 n1"
    assert told.text == "n0, n1, which are cordoned"
    assert starts(labelled(objects, told.paste), "m0")


def test_many_to_wait_for_are_counted() -> None:
    nodes = [node(f"n{number}", ROOM) for number in range(6)]
    running = [cards(f"r{number}", 4, f"n{number}", owner="Job/old") for number in range(6)]
    members = [cards(f"m{number}", 8, group="g") for number in range(5)]
    told = helps([*nodes, group(5), *running, *members], "m0", RemedyKind.WAIT)
    assert told.text == "for 5 pods on 5 nodes, n4, n3, n2 and others; nothing says when they end"


def test_rules_about_neighbours_are_tried_without() -> None:
    labelled = node("n0", ROOM, metadata={"labels": {"zone": "a"}})
    near = {"labelSelector": {"matchLabels": {"app": "absent"}}, "topologyKey": "zone"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [near]}
    lonely = pod("w", affinity={"podAffinity": required})
    found = helps([labelled, lonely], "w", RemedyKind.RELAX)
    assert found.text == "without required podAffinity (over zone) it fits n0"
    spread = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    found = helps([labelled, pod("w", topologySpreadConstraints=[spread])], "w", RemedyKind.RELAX)
    told = "topologySpreadConstraints that bind (over rack)"
    assert found.text == f"without {told} it fits n0; no node has the label rack"


def test_what_no_node_has_is_told_in_units_that_people_use() -> None:
    large = pod("w", containers=[container(requests={"cpu": "100", "memory": "1Ti"})])
    assert advice([node("n0", ROOM), large], "w").never == (
        "no node has ever 100 cpu: the most is 64, on n0",
        "no node has ever 1024Gi memory: the most is 64Gi, on n0",
    )


def test_what_a_quota_never_gives_is_said() -> None:
    """Six cards under a max of four, where the only node has none free either: nobody's end would do."""
    full = [node("n0", ROOM), quota("q", 0, 4), cards("r", 8, "n0"), cards("w", 6, quota="q")]
    told = advice(full, "w")
    assert told.never == ("the max of quota q is 4, below 6 nvidia.com/gpu",)
    assert not starts([one for one in full if one["metadata"]["name"] != "r"], "w")
    assert advice([*full[:3], cards("w", 3, quota="q")], "w").never == ()


def test_nodes_without_room_for_pods_are_said() -> None:
    """Who writes a node by hand forgets it; upstream's message, Too many pods, misleads."""
    bare = ClusterSnapshot(nodes=[Node(name="n", allocatable={"cpu": 1000})], pending=[Pod(name="p")])
    told = advise(bare, schedule(bare), "default/p")
    assert told.never == ("no node takes any pod: `pods` is not in its allocatable",)
