"""Several profiles in one queue, and pods that wait for schedulers of somebody else."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from benchmarks.claims_data import whole_gpus
from koordcore import (
    Bound,
    ClusterSnapshot,
    ModelError,
    Node,
    NodeState,
    PluginSetting,
    Pod,
    Policy,
    PreemptionRules,
    schedule,
    verify,
)
from koordcore.cli import main
from koordcore.explaining import explain
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.named_policies import POLICY_NAMES, named_policy
from koordcore.manifests.records import result_from_record, result_record
from koordcore.model.claims import ResourceClaim
from koordcore.model.decisions import NotOurs
from koordcore.model.pods import PodKey
from koordcore.model.quotas import ElasticQuota
from koordcore.model.resources import make_resources
from tests.scheduling import test_claims_gangs as gangs, test_claims_on_nodes as on_nodes

ROOM = {"cpu": 16_000, "memory": 64 << 30, "pods": 50, "nvidia.com/gpu": 8}
NODES = [Node(name=name, allocatable=ROOM) for name in ("a", "b")]
PACKER = attrs.evolve(named_policy("binpack"), name="packer", scheduler_names=("packer",))
BOTH = attrs.evolve(Policy(), others=(PACKER,))


def pod(name: str, cpu: int = 1, scheduler: str = "default-scheduler", **fields: object) -> Pod:
    return Pod(name=name, requests={"cpu": 1_000 * cpu}, scheduler_name=scheduler, **fields)  # type: ignore[arg-type]


def places(snapshot: ClusterSnapshot, policy: Policy) -> dict[str, str]:
    result = schedule(snapshot, policy=policy)
    assert verify(snapshot, result) == ()
    return {
        one.pod.name: one.node if isinstance(one, Bound) else type(one).__name__ for one in result.decisions
    }


PLAIN = Policy(name="plain", plugins=(PluginSetting(name="NodeResourcesFit"),))
SECOND = attrs.evolve(
    PLAIN, others=(attrs.evolve(Policy(), name="with-claims", scheduler_names=("with-claims",)),)
)
"""The first profile knows nothing of claims."""


def by_the_second(snapshot: ClusterSnapshot) -> dict[str, str]:
    """Give the places where the second profile decides all who wait."""
    pods = [attrs.evolve(one, scheduler_name="with-claims") for one in snapshot.pending]
    nodes, records = snapshot.nodes, snapshot.records
    return places(ClusterSnapshot(nodes=nodes, pending=pods, records=records), SECOND)


def test_devices_that_nodes_share_are_chosen_by_the_profile_of_the_members() -> None:
    """Whoever can go anywhere leaves the devices of all nodes to one that has too few on its own."""
    pools = [on_nodes.pool("l0", "aa", "n0"), on_nodes.pool("l2", "b", "n2"), on_nodes.pool("zz", "a")]
    members = [on_nodes.member("w0", "a"), on_nodes.member("w1", "any", "a", node="n2")]
    cluster = on_nodes.cluster({"n0": 3, "n1": 3, "n2": 1}, pools, members)
    assert by_the_second(cluster) == {"w0": "n0", "w1": "n2"}


def test_members_who_share_a_claim_stay_together_by_their_own_profile() -> None:
    """Both nodes have a card; only one has room for all."""
    shared = ResourceClaim(name="shared", spec=gangs.TEMPLATES["gpu"])
    members = [gangs.member(f"m{number}", named="shared", least=3) for number in range(3)]
    cluster = gangs.cluster([whole_gpus("a", 2), whole_gpus("b", 2)], members, shared)
    narrow = attrs.evolve(cluster.node("a").node, allocatable={"cpu": 2000, "pods": 110})
    assert by_the_second(cluster.with_nodes(narrow)) == dict.fromkeys(("m0", "m1", "m2"), "b")


def test_each_pod_is_decided_by_the_profile_of_its_scheduler() -> None:
    pods = [pod("d0"), pod("d1"), pod("p0", scheduler="packer"), pod("p1", scheduler="packer")]
    snapshot = ClusterSnapshot(nodes=NODES, pending=[*pods, pod("v", scheduler="volcano")])
    assert places(snapshot, BOTH) == {"d0": "a", "d1": "b", "p0": "a", "p1": "a", "v": "NotOurs"}
    assert places(snapshot, Policy()) | {"d0": "", "d1": ""} == {
        "d0": "",
        "d1": "",
        **dict.fromkeys(("p0", "p1", "v"), "NotOurs"),
    }
    assert "NotOurs" not in places(snapshot, Policy().of_all_schedulers()).values()
    assert "NotOurs" not in places(snapshot, BOTH.of_all_schedulers()).values()


def test_who_is_handed_over_is_ours_whatever_it_says() -> None:
    stranger = pod("v", scheduler="volcano")
    snapshot = ClusterSnapshot(nodes=NODES, pending=[stranger])
    (decision,) = schedule(snapshot, [stranger]).decisions
    assert isinstance(decision, Bound)


@pytest.mark.parametrize("policy", [Policy(), BOTH, BOTH.of_all_schedulers()])
def test_explain_says_what_schedule_says(policy: Policy) -> None:
    names = ("default-scheduler", "packer", "volcano")
    pods = [pod(f"p{number}", 6, names[number % 3]) for number in range(7)]
    snapshot = ClusterSnapshot(nodes=NODES, pending=pods)
    result = schedule(snapshot, policy=policy)
    for one in pods:
        assert explain(snapshot, one.key, policy=policy).decision == result.decision(one.key)


def test_quotas_count_the_pods_of_all_profiles() -> None:
    """Both profiles have a quota plugin of the same arguments, and one more with others."""
    team = ElasticQuota(name="team", max=make_resources({"cpu": 3_000}), min=make_resources({"cpu": 1_000}))
    labels = {"quota.scheduling.koordinator.sh/name": "team"}
    pods = [
        pod(f"{scheduler}{number}", 1, scheduler, labels=labels)
        for scheduler in ("default-scheduler", "packer")
        for number in range(2)
    ]
    snapshot = ClusterSnapshot(nodes=NODES, pending=pods, records=(team,))
    placed = places(snapshot, BOTH)
    assert sum(node in ("a", "b") for node in placed.values()) == 3


def test_a_profile_without_a_plugin_is_not_held_to_it() -> None:
    """The second profile does not know of taints; the verdict is that of each pod's own profile."""
    from koordcore import Taint

    tainted = attrs.evolve(NODES[0], taints=(Taint(key="k", effect="NoSchedule"),))
    bold = attrs.evolve(PACKER.without_plugin("TaintToleration"), name="bold", scheduler_names=("bold",))
    policy = attrs.evolve(Policy(), others=(bold,))
    snapshot = ClusterSnapshot(nodes=[tainted], pending=[pod("d"), pod("b", scheduler="bold")])
    assert places(snapshot, policy) == {"d": "Unschedulable", "b": "a"}
    result = schedule(snapshot, policy=policy)
    assert [one.subject for one in verify(snapshot, attrs.evolve(result, policy=Policy()))] == ["default/b"]


def test_a_pod_of_one_profile_preempts_that_of_another() -> None:
    low = pod("low", 16, "packer", priority=1, node_name="a")
    high = pod("high", 16, priority=100)
    state = NodeState(NODES[0], (low,))
    snapshot = ClusterSnapshot(nodes=[state], pending=[high])
    result = schedule(snapshot, policy=BOTH, preempt=PreemptionRules())
    assert verify(snapshot, result) == ()
    assert [one.pod.name for plan in result.preemptions for one in plan.victims] == ["low"]


def test_a_decision_that_leaves_a_pod_of_ours_to_others_is_a_violation() -> None:
    snapshot = ClusterSnapshot(nodes=NODES, pending=[pod("v", scheduler="volcano")])
    result = schedule(snapshot)
    assert verify(snapshot, result) == ()
    known = attrs.evolve(result, policy=Policy(scheduler_names=("volcano",)))
    assert [one.subject for one in verify(snapshot, known)] == ["default/v"]
    lie = attrs.evolve(result, decisions=(NotOurs(pod=PodKey("default", "v"), scheduler_name="x"),))
    assert [one.subject for one in verify(snapshot, lie)] == ["default/v"]


def test_results_are_read_back() -> None:
    snapshot = ClusterSnapshot(nodes=NODES, pending=[pod("v", scheduler="volcano"), pod("d")])
    result = schedule(snapshot)
    again = result_from_record(snapshot, json.loads(json.dumps(result_record(result))))
    assert again.decisions == result.decisions


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ((attrs.evolve(PACKER, others=(Policy(name="x"),)),), "others: packer has others of its own"),
        ((PACKER, attrs.evolve(PACKER, name="y")), "scheduler_names: packer stands in two profiles"),
    ],
)
def test_profiles_do_not_contradict_each_other(others: tuple[Policy, ...], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        attrs.evolve(Policy(), others=others)


def test_other_profiles_are_called_by_their_names() -> None:
    policy = attrs.evolve(Policy(), others=(Policy(name="volcano"),))
    assert policy.profile_of("volcano") is policy.others[0]
    assert policy.profile_of("koord-scheduler") is policy
    assert policy.profile_of("kueue") is None


@pytest.mark.parametrize("name", POLICY_NAMES)
def test_named_policies_take_the_pods_of_the_default(name: str) -> None:
    snapshot = ClusterSnapshot(nodes=NODES, pending=[pod("d")])
    assert places(snapshot, named_policy(name))["d"] in ("a", "b")


def test_cards_are_packed_in_any_spelling_and_cpus_are_spread() -> None:
    cards = [Pod(name=f"c{number}", requests={"cpu": 2_000, "nvidia.com/gpu": 1}) for number in range(3)]
    plain = [pod(f"w{number}", 2) for number in range(2)]
    found = places(ClusterSnapshot(nodes=NODES, pending=[*cards, *plain]), Policy())
    assert {found[one.name] for one in cards} == {"a"}
    assert {found[one.name] for one in plain} == {"b"}
    spread = places(ClusterSnapshot(nodes=NODES, pending=cards), named_policy("spread"))
    assert set(spread.values()) == {"a", "b"}


def manifest(name: str, scheduler: str) -> dict[str, object]:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


def test_the_command_line_decides_by_all_profiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
    }
    pods = [manifest(name, name) for name in ("one", "two", "three")]
    profiles = [{"schedulerName": "one"}, {"schedulerName": "two"}]
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    dump, config = tmp_path / "dump.json", tmp_path / "config.json"
    dump.write_text("\n".join(map(json.dumps, [node, *pods])), encoding="utf-8")
    config.write_text(json.dumps({**kind, "profiles": profiles}), encoding="utf-8")

    def decided(*options: str) -> dict[str, str]:
        assert main(["schedule", str(dump), "-o", "json", *options]) == 0
        decisions = json.loads(capsys.readouterr().out)["decisions"]
        return {one["pod"].partition("/")[2]: one["decision"] for one in decisions}

    assert decided() == dict.fromkeys(("one", "three", "two"), "NotOurs")
    assert decided("--policy", str(config)) == {"one": "Bound", "two": "Bound", "three": "NotOurs"}
    alone = decided("--policy", str(config), "--profile", "two")
    assert alone == {"two": "Bound", "one": "NotOurs", "three": "NotOurs"}
    assert set(decided("--policy", "binpack", "--all-schedulers").values()) == {"Bound"}
    assert main(["schedule", str(dump)]) == 0
    out = capsys.readouterr().out
    assert "Not ours" in out
    assert "0 of 0 pods placed on 1 node · 0 unschedulable · 0 waiting · 3 not ours · verified" in out


def test_reservations_go_by_the_scheduler_of_their_template() -> None:
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
        },
        *(
            {
                "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                "kind": "Reservation",
                "metadata": {"name": name},
                "spec": {
                    "owners": [{"labelSelector": {"matchLabels": {"app": "x"}}}],
                    "ttl": "1h",
                    "template": {"spec": manifest(name, name)["spec"]},
                },
            }
            for name in ("koord-scheduler", "other")
        ),
    ]
    snapshot = snapshot_from_objects(objects).snapshot
    result = schedule(snapshot)
    kinds = {one.pod.name: type(one).__name__ for one in result.decisions}
    assert sorted(kinds.values()) == ["Bound", "NotOurs"]
    assert verify(snapshot, result) == ()


def test_profiles_may_differ_in_what_they_score_by() -> None:
    bare = Policy(name="bare", plugins=(PluginSetting(name="NodeResourcesFit", scores=False),))
    policy = attrs.evolve(Policy(), others=(bare,))
    snapshot = ClusterSnapshot(
        nodes=NODES, pending=[pod("d"), pod("x", scheduler="bare"), pod("y", scheduler="bare")]
    )
    assert places(snapshot, policy) == {"d": "a", "x": "a", "y": "a"}
