"""Loops of evictions: found where others have met them, none with our rules, in the model and in truth."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import attrs
import pytest

from koordcore import ClusterSnapshot, ModelError, Node, Pod, Policy, PreemptionRules, schedule, verify
from koordcore.cli import main
from koordcore.model import ElasticQuota, QuotaPolicy
from koordcore.model.decisions import Bound, Nominated
from koordcore.model.policy import PluginSetting
from koordcore.model.quotas import ROOT_QUOTA
from koordcore.simulate import KNOWN_RULES, LoopPod, LoopRules, LoopWorld, find_loop, search_loops
from koordcore.simulate.loop_search import loop_story, nested_worlds, small_worlds

OURS = KNOWN_RULES["koordcore"]
LOOPING = (
    "volcano-4947", "kueue-3779", "kueue-14543", "kueue-13662", "kai-1565", "reclaim-and-preempt",
    "spread-and-pack",
)  # fmt: skip
QUOTAS = QuotaPolicy(monitor_all_quotas=True, delay_evict=0)
KEPT = ("NodeResourcesFit", "ElasticQuota")
POLICY = Policy(plugins=tuple(one for one in Policy().plugins if one.name in KEPT)).with_plugin(
    PluginSetting(name="ElasticQuota", scores=False, args=QUOTAS)
)


@pytest.mark.parametrize("name", LOOPING)
def test_the_loops_that_others_have_met_are_found(name: str) -> None:
    loop, _ = search_loops(
        KNOWN_RULES[name],
        pods=3 if name == "kueue-3779" else 2,
        nodes=2 if name in ("spread-and-pack", "kai-1565") else 1,
    )
    assert loop is not None
    assert loop.steps[0].before == loop.steps[-1].after
    assert any(step.evicted for step in loop.steps)
    assert loop_story(loop)[-1] == "and all is as it was before"


@pytest.mark.parametrize("name", ["koordcore", "koordcore-spread", "koordcore-all", "kube-scheduler"])
def test_our_rules_have_no_loop_in_any_world_of_two_pods_on_one_node(name: str) -> None:
    """Nor in a sample of those of four on two nodes; ``koordcore audit`` searches all of them."""
    rules = KNOWN_RULES[name]
    assert search_loops(rules, pods=2, nodes=1)[0] is None
    assert all(find_loop(world, rules) is None for world in islice(small_worlds(4), 610, None, 8009))


def test_every_condition_is_needed() -> None:
    """Without one of the rules that keep order our rules go round."""
    worlds = (
        LoopWorld((1,), ((1, 1), (0, 1)), (LoopPod(1, 0, 0), LoopPod(1, 1, 1))),
        LoopWorld((1,), ((1, 1), (0, 1)), (LoopPod(1, 0, 0), LoopPod(1, 2, 1), LoopPod(1, 1))),
    )
    for world in worlds:
        assert find_loop(world, OURS) is None
    assert find_loop(worlds[0], attrs.evolve(OURS, promises=False)) is not None
    # A large pod takes the place of a small one of its own quota, and a borrower that of the large one.
    uneven = LoopWorld((2,), ((1, 2), (0, 2)), (LoopPod(1, 0, 0), LoopPod(2, 1, 0), LoopPod(2, 2, 1)))
    assert find_loop(uneven, OURS) is None
    assert find_loop(uneven, attrs.evolve(OURS, partly=False)) is not None
    for kept in ("less-important", "nobody"):
        assert find_loop(worlds[0], attrs.evolve(OURS, kept=kept)) is not None


def test_a_quota_above_others_makes_no_loop() -> None:
    """Whoever is promised room by his own quota keeps it, whatever the quota above has used up."""
    assert all(find_loop(world, OURS) is None for world in islice(nested_worlds(2), 0, None, 9))
    pods = (LoopPod(1, 0, 0), LoopPod(1, 1, 1), LoopPod(1, 2, 0))
    assert find_loop(LoopWorld((2,), ((0, 2), (1, 1), (1, 3)), pods, (2, 2, -1)), OURS) is None
    assert find_loop(TIGHT, OURS) is None


def test_the_library_keeps_what_a_parent_has_promised_from_who_was_evicted_for_it() -> None:
    checked = attrs.evolve(QUOTAS, enable_check_parent_quota=True)
    policy = POLICY.with_plugin(PluginSetting(name="ElasticQuota", scores=False, args=checked))
    for placed in ({}, {0: 0}, {0: 1}):
        assert lived(real(TIGHT, placed), policy=policy) is None


# A max above that refuses: who is evicted would fit again before the pod is there that it left for.
TIGHT = LoopWorld((1, 1), ((0, 1), (1, 1), (1, 1)), (LoopPod(1, 0, 0), LoopPod(1, 0, 1)), (2, 2, -1))


def real(world: LoopWorld, placed: dict[int, int]) -> ClusterSnapshot:
    nodes = [
        Node(name=f"n{number}", allocatable={"cpu": 1000 * room, "memory": 1 << 40, "pods": 9})
        for number, room in enumerate(world.nodes)
    ]
    above = world.above or (-1,) * len(world.quotas)
    quotas = [
        ElasticQuota(
            name="abc"[number],
            namespace="q",
            parent="abc"[above[number]] if above[number] >= 0 else ROOT_QUOTA,
            is_parent=number in above,
            min={"cpu": 1000 * least},
            max={"cpu": 1000 * most},
        )
        for number, (least, most) in enumerate(world.quotas)
    ]
    pods = [
        Pod(
            name=f"p{number}",
            requests={"cpu": 1000 * pod.amount},
            priority=pod.priority,
            labels={"quota.scheduling.koordinator.sh/name": "ab"[pod.quota]} if pod.quota >= 0 else {},
            node_name=f"n{placed[number]}" if number in placed else None,
        )
        for number, pod in enumerate(world.pods)
    ]
    bound = [pod for pod in pods if pod.node_name]
    snapshot = ClusterSnapshot(nodes=nodes).with_records(*quotas)
    for pod in bound:
        snapshot = snapshot.assume(pod)
    return snapshot.with_pending(*(pod for pod in pods if not pod.node_name))


def lived(snapshot: ClusterSnapshot, turns: int = 30, policy: Policy = POLICY) -> list[str] | None:
    """Let the real functions decide until nothing changes; ``None`` then, else what goes round."""
    seen: list[tuple[object, ...]] = []
    told: list[str] = []
    for _ in range(turns):
        result = schedule(snapshot, policy=policy, preempt=PreemptionRules())
        assert verify(snapshot, result) == ()
        after = result.snapshot
        victims = {
            one.pod for each in result.decisions if isinstance(each, Nominated) for one in each.victims
        }
        for key in sorted(victims):
            pod = after.pod(key)
            assert pod is not None
            again = attrs.evolve(pod, node_name=None, preempted_by="", nominated_node=None)
            after = after.forget(key).with_pending(again)
            told.append(f"{key.name} leaves")
        told += [f"{one.pod.name} starts" for one in result.decisions if isinstance(one, Bound)]
        state = (*((str(pod.key), pod.node_name) for pod in after.bound_pods()),)
        waits = (*((str(pod.key), pod.nominated_node) for pod in after.pending),)
        if (state, waits) in seen:
            return told if victims else None
        seen.append((state, waits))
        snapshot = after
    return told


def test_the_library_itself_comes_to_rest_in_worlds_that_went_round() -> None:
    """Reclaim against priority, for a borrower, for a pod without a quota, and within one quota."""
    for world, placed in (
        (LoopWorld((2,), ((0, 3), (2, 2)), (LoopPod(1, 2, 0), LoopPod(2, 0, 1))), {}),
        (LoopWorld((1, 2), ((0, 4), (2, 3)), (LoopPod(2, 0, 1), LoopPod(2, 1, 0), LoopPod(1, 2, 0))), {}),
        (LoopWorld((3,), ((0, 2), (2, 4)), (LoopPod(2, 2, 0), LoopPod(2, 0, 1))), {0: 0}),
        (
            LoopWorld(
                (1, 2),
                ((1, 2), (1, 4)),
                (LoopPod(1, 2, 0), LoopPod(1, 0, 1), LoopPod(1, 1), LoopPod(1, 2, 0)),
            ),
            {0: 1, 3: 1},
        ),
        (LoopWorld((1,), ((1, 1), (0, 1)), (LoopPod(1, 0, 0), LoopPod(1, 2, 1), LoopPod(1, 1))), {2: 0}),
    ):
        assert lived(real(world, placed)) is None


def test_the_library_comes_to_rest_in_a_sample_of_all_small_worlds() -> None:
    for world in islice(small_worlds(3), 0, None, 1409):
        assert lived(real(world, {})) is None


def test_the_audit_tells_the_loop_and_how_to_end_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--loops", "volcano-4947"]) == 1
    told = capsys.readouterr().out
    assert "p1 reclaims on n0: p0 has to go" in told
    assert max(map(len, told.splitlines())) <= 80
    assert main(["audit", "--loops", "koordinator", "--nodes", "1", "--trees"]) == 0
    told = capsys.readouterr().out
    assert "one above others" in told
    assert "(enableRuntimeQuota)" in told  # what was not searched
    own = tmp_path / "rules.json"
    own.write_text(json.dumps({"promises": False}), encoding="utf-8")
    assert main(["audit", "--loops", str(own)]) == 1
    assert main(["audit", "--loops", str(own), "--set", "promises=true", "--nodes", "1"]) == 0
    assert main(["audit", "--loops", str(own), "--set", "luck=true"]) == 2


def test_a_pod_of_an_unknown_quota_is_refused() -> None:
    with pytest.raises(ModelError, match="quota"):
        find_loop(LoopWorld((1,), (), (LoopPod(1, 0, 0),)), LoopRules())
