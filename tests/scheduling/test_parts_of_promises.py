"""Who has a part of what his quota is promised: told in columns as it is counted pod by pod."""

from __future__ import annotations

import random
from itertools import permutations

from koordcore import ClusterSnapshot, Node, Pod, PodKey
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.model.policy import Policy
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources
from koordcore.scheduling.plugins.quota import QuotaPlugin

TEAM = "quota.scheduling.koordinator.sh/name"
PROMISED = {"first": {"cpu": 4, "memory": 3}, "second": {"cpu": 3, "memory": 4}}


def world(chance: random.Random) -> ClusterSnapshot:
    """Six pods that run, of which some have to go, and five that wait, some of them for this node."""
    most = make_resources({"cpu": 99, "memory": 99})
    quotas = [ElasticQuota(name=name, min=make_resources(one), max=most) for name, one in PROMISED.items()]
    pods = [
        Pod(
            name=f"p{number:02}",
            labels={TEAM: chance.choice(("first", "second"))},
            requests={"cpu": chance.randint(0, 2), "memory": chance.randint(0, 2)},
            priority=chance.randint(0, 2),
            preempted_by="default/x" if number < 6 and chance.random() < 0.2 else "",
            nominated_node="n" if number >= 6 and chance.random() < 0.5 else None,
        )
        for number in range(11)
    ]
    node = Node(name="n", allocatable={"cpu": 99, "memory": 99, "pods": 99})
    there = ClusterSnapshot(nodes=[node], records=quotas).assume(*(pod.at("n") for pod in pods[:6]))
    return there.with_pending(*pods[6:])


def has_part(pod: Pod, other: Pod, running: dict[PodKey, Pod], waiting: list[Pod]) -> bool:
    """Those before a pod do not fill what its quota is promised of all that both ask for.

    Before it is whoever runs and is no less important, and who is nominated and comes before it in line.
    """
    ahead = [one for one in running.values() if one.priority >= pod.priority and not one.leaving]
    ahead += [one for one in waiting if one.nominated_node and in_line(one) < in_line(pod)]
    mine = [one for one in ahead if one.labels == pod.labels and one.key != pod.key]
    both = [name for name in ("cpu", "memory") if pod.requests[name] and other.requests[name]]
    least = PROMISED[pod.labels[TEAM]]
    return bool(both) and all(sum(one.requests[name] for one in mine) < least[name] for name in both)


def in_line(pod: Pod) -> tuple[int, bool, PodKey]:
    return -pod.priority, not pod.nominated_node, pod.key


def outranking(seed: int) -> set[tuple[bool, bool]]:
    """Let pods come and leave, undo that at times, and ask about every two that do not run for good."""
    chance = random.Random(seed)
    snapshot = world(chance)
    workspace = Workspace(snapshot)
    (plugin,) = (one for one in PluginSet(workspace, Policy()).plugins if isinstance(one, QuotaPlugin))
    there = {pod.key: pod.at(None) for pod in snapshot.bound_pods()}
    asking = {pod.key: pod for pod in snapshot.pending}
    mark, seen = workspace.checkpoint(), set[tuple[bool, bool]]()
    for _ in range(12):
        running = workspace.pods_on(0)
        gone = {key: pod for key, pod in there.items() if key not in running}
        waiting = [pod for key, pod in asking.items() if key not in running]
        for pod, other in permutations((*asking.values(), *gone.values()), 2):
            first, second = has_part(pod, other, running, waiting), has_part(other, pod, running, waiting)
            assert plugin.outranks(pod, other) is (first and not second), (pod, other)
            seen.add((first, second))
        move = chance.random()
        if move < 0.2:
            workspace.rollback(mark)
        elif move < 0.6 and (waiting or gone):
            comes = chance.choice([*waiting, *gone.values()]).at("n")
            workspace.bind(comes, 0)
            plugin.placed(comes, 0)
        elif running:
            leaves = workspace.evict(chance.choice(sorted(running)), 0)
            plugin.removed(leaves, 0)
    return seen


def test_who_has_a_part_outranks_who_has_none_whoever_comes_and_leaves() -> None:
    seen = set[tuple[bool, bool]]().union(*map(outranking, range(12)))
    assert len(seen) == 4, "one of both, the other, both and none"
