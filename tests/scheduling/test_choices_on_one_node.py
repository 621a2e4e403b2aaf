"""What members of a gang get of one node together, and what is proven where it has nothing for all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import attrs
import pytest

from koordcore import CertificateStatus, ClusterSnapshot, schedule, verify
from koordcore.allocators.joint import together as counting
from koordcore.explaining import explain
from koordcore.framework.plugin import Together
from koordcore.framework.plugin_set import PluginSet
from koordcore.framework.workspace import Workspace
from koordcore.manifests import snapshot_from_objects
from koordcore.model.devices import GPU_CORE, GPU_MEMORY_RATIO
from koordcore.model.pods import HostPort
from koordcore.model.policy import DEFAULT_POLICY
from koordcore.result import ScheduleResult
from koordcore.scheduling.one_pod import place_there
from koordcore.scheduling.plugins.exact.plugin import ExactPlugin
from tests.scheduling import test_gang_devices as partitioned
from tests.scheduling.test_gang_company import block, decided as company, gathered
from tests.scheduling.test_numa import ALLOCATED, node, pod, status_of

GANG = "gang.scheduling.koordinator.sh/"
CARD = {GPU_CORE: "100", GPU_MEMORY_RATIO: "100"}
AMOUNTS = {GPU_CORE: 200, GPU_MEMORY_RATIO: 200}


def gang(*members: dict[str, Any]) -> list[dict[str, Any]]:
    """Pods that start all together or not at all."""
    for one in members:
        notes = one["metadata"].setdefault("annotations", {})
        notes |= {f"{GANG}name": "g", f"{GANG}min-available": str(len(members))}
    return list(members)


def sized(name: str, memory: int) -> dict[str, Any]:
    """A pod of one CPU and so much memory, in GiB."""
    made = pod(name, 1, bound=False)
    for amounts in made["spec"]["containers"][0]["resources"].values():
        amounts["memory"] = f"{memory}Gi"
    return made


def decided(*objects: dict[str, Any]) -> ScheduleResult:
    snapshot: ClusterSnapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    return result


@pytest.mark.parametrize("idle", [False, True])
def test_members_are_laid_on_numa_nodes_in_the_one_way_in_which_all_have_room(idle: bool) -> None:
    """Of 16 GiB a NUMA node has: one after another the third small one finds 3 GiB on either."""
    members = [sized(f"m{number}", memory) for number, memory in enumerate((8, 8, 5, 5, 5))]
    if idle:
        members.append(sized("m9", 0))
        members[-1]["spec"]["containers"][0]["resources"] = {}
    result = decided(*node("n", policy="SingleNUMANode"), *gang(*members))
    assert len(result.bound) == len(members)
    places = {
        name: [one["node"] for one in status_of(result, name)["numaNodeResources"]]
        for name in ("m0", "m1", "m2", "m3", "m4")
    }
    assert places["m0"] == places["m1"] != places["m2"] == places["m3"] == places["m4"]


def test_that_two_kinds_of_members_find_no_cards_beside_each_other_is_proven() -> None:
    """Each needs one of two pairs of cards that share the one in the middle; there are cards enough."""
    name, device = partitioned.node("n")
    table = {"2": [{"minors": minors, "allocationScore": 1} for minors in ([0, 1], [1, 2])]}
    device["metadata"]["annotations"] = {f"{partitioned.PREFIX}gpu-partitions": json.dumps(table)}
    members = gang(*(pod(f"m{cpu}", cpu, gpus=2, bound=False) for cpu in (1, 2)))
    result = decided(name, device, *members)
    assert not result.bound
    (plan,) = result.jobs
    assert plan.certificate is not None
    assert plan.certificate.status is CertificateStatus.INFEASIBLE


HINT = {f"{partitioned.PREFIX}device-allocate-hint": '{"gpu": {"exclusivePolicy": "PCIeLevel"}}'}


@pytest.mark.parametrize(
    ("table", "notes", "budget"),
    [
        # Who comes first takes the better pair, on both switches, and leaves none untouched.
        ({(0, 2): 5, (0, 1): 1, (2, 3): 1}, HINT, 500),
        ({(0, 1): 1, (1, 2): 1}, {}, 0),
    ],
)
def test_that_one_after_another_find_no_cards_is_no_proof_of_them_together(
    table: dict[tuple[int, int], int],
    notes: dict[str, str],
    budget: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Exclusive cards are counted one pod after another, others too once there are too many ways."""
    monkeypatch.setattr(counting, "_COUNTED", budget)
    pairs = {"2": [{"minors": list(pair), "allocationScore": score} for pair, score in table.items()]}
    name, device = partitioned.node("n")
    for one in device["spec"]["devices"]:
        one["topology"] = {"nodeID": 0, "pcieID": str(one["minor"] // 2), "busID": str(one["minor"])}
    device["metadata"]["annotations"] = {f"{partitioned.PREFIX}gpu-partitions": json.dumps(pairs)}
    members = gang(*(pod(f"m{at}", 1, gpus=2, bound=False, annotations={**notes}) for at in (1, 2)))
    result = decided(name, device, *members)
    assert not result.bound
    (plan,) = result.jobs
    assert plan.certificate is not None
    assert plan.certificate.status is CertificateStatus.HEURISTIC
    assert "not every way" in plan.detail


def test_members_with_one_port_go_to_nodes_of_their_own_whose_cards_nobody_knows() -> None:
    """The nodes list cards and have no Device object, so there is nothing to choose on either."""
    nodes = [attrs.evolve(one, allocatable={**one.allocatable, **AMOUNTS}) for one in block(2)]
    members = [
        attrs.evolve(one, requests={**one.requests, GPU_CORE: 100, GPU_MEMORY_RATIO: 100})
        for one in gathered((1000, 1500), host_ports=(HostPort(80),))
    ]
    result = company(nodes, members)
    assert sorted(one.node for one in result.bound) == [one.name for one in nodes]
    assert {one.notes for one in result.bound} == {("no card chosen: the node has no Device object",)}


def test_only_cards_near_the_numa_nodes_that_the_policy_leaves_are_scored() -> None:
    """Near NUMA node 0 one of two cards would be left, as on the other node, and one of four in all."""
    taken = {"gpu": [{"minor": minor, "resources": CARD} for minor in (2, 3)]}
    there = pod("there", 1, gpus=2, bound=False, annotations={ALLOCATED: json.dumps(taken)})
    there["spec"]["nodeName"] = "n1"
    there["status"] = {"phase": "Running"}
    asks = pod("asks", 2, gpus=1, bound=False)
    nodes = (*node("n1", policy="SingleNUMANode", cards=(0, 0, 1, 1)), *node("n2", cards=(0, 1)))
    snapshot = snapshot_from_objects([*nodes, there, asks]).snapshot
    verdicts = explain(snapshot, "default/asks").verdicts
    assert {one.node: one.scores["DeviceShare"] for one in verdicts} == {"n1": 100, "n2": 100}


# --- what the plugin answers, by itself ----------------------------------------------------------------


def answered(objects: Sequence[dict[str, Any]]) -> tuple[Together | None, list[str]]:
    """Ask for all pending pods on the only node; and bind them there by the answer, in its order.

    That nothing has changed for the question is checked, too.
    """
    snapshot = snapshot_from_objects(objects).snapshot
    workspace = Workspace(snapshot)
    plugins = PluginSet(workspace, DEFAULT_POLICY)
    (exact,) = (one for one in plugins.plugins if isinstance(one, ExactPlugin))
    exact.states.update()
    before = exact.states.numa[0], exact.states.devices[0]
    found = exact.together(snapshot.pending, 0)
    assert (exact.states.numa[0], exact.states.devices[0]) == before
    bound = []
    if found is not None and found.plan:
        exact.planned = found.plan
        for key in found.plan:
            (one,) = (one for one in snapshot.pending if one.key == key)
            if place_there(workspace, plugins, one, 0) is not None:
                bound.append(str(key))
    return found, bound


@pytest.mark.parametrize("cards", [(2, 0), (1, 1), (1, 2)])
def test_every_choice_of_numa_nodes_is_tried_for_members_with_cards(cards: tuple[int, int]) -> None:
    """Four CPUs and some cards on each of two NUMA nodes, one of which has to serve a member."""
    where = [zone for zone, number in enumerate(cards) for _ in range(number)]
    kinds = ((1, 0), (2, 1), (3, 0), (3, 1), (1, 2))
    for number in (2, 3):
        for wanted in combinations_with_replacement(kinds, number):
            if not any(gpus for _, gpus in wanted):
                continue
            members = [
                pod(f"m{place}", cpu, gpus=gpus, bound=False) for place, (cpu, gpus) in enumerate(wanted)
            ]
            found, bound = answered([*node("n", policy="SingleNUMANode", cards=tuple(where)), *members])
            fits = any(
                all(
                    sum(cpu for (cpu, _), at in zip(wanted, places, strict=True) if at == zone) <= 4
                    and sum(gpus for (_, gpus), at in zip(wanted, places, strict=True) if at == zone) <= have
                    for zone, have in enumerate(cards)
                )
                for places in product(range(2), repeat=number)
            )
            assert (found is not None and len(found.plan) == number) == fits, wanted
            assert len(bound) == (number if fits else 0)


def test_who_needs_most_cards_comes_first_and_then_who_needs_most_else() -> None:
    members = [sized(f"m{number}", memory) for number, memory in enumerate((2, 8, 1))]
    members.append(pod("m3", 1, gpus=1, bound=False))
    found, bound = answered([*node("n", policy="SingleNUMANode", cards=(0,)), *members])
    assert found is not None
    assert [key.name for key in found.plan] == ["m3", "m1", "m0", "m2"]
    assert len(bound) == len(members)


def test_cards_that_do_for_all_are_no_answer_where_their_cpus_do_not() -> None:
    """Four cards and eight CPUs for three with a card and four CPUs each."""
    members = [pod(f"m{number}", 4, gpus=1) for number in range(3)]
    found, bound = answered([*node("n", cards=(0, 0, 1, 1)), *members])
    assert found is None or not found.plan
    assert not bound


def test_what_cards_never_serve_together_is_known_of_pods_that_all_ask_for_cards() -> None:
    """Both kinds need one of two pairs of cards that share the one in the middle."""
    name, device = partitioned.node("n")
    table = {"2": [{"minors": minors, "allocationScore": 1} for minors in ([0, 1], [1, 2])]}
    device["metadata"]["annotations"] = {f"{partitioned.PREFIX}gpu-partitions": json.dumps(table)}
    kinds = [pod(f"m{cpu}", cpu, gpus=2, bound=False) for cpu in (1, 2)]
    snapshot = snapshot_from_objects([name, device, *kinds, pod("plain", 1, bound=False)]).snapshot
    plugins = PluginSet(Workspace(snapshot), DEFAULT_POLICY)
    (exact,) = (one for one in plugins.plugins if isinstance(one, ExactPlugin))
    *pairs, plain = snapshot.pending
    assert exact.never_together(pairs, [1, 1], [0]) == {0: ((1, 1),)}
    assert exact.never_together(pairs[:1], [1], [0]) == {0: ()}
    assert exact.never_together([*pairs, plain], [1, 1, 1], [0]) == {}
