"""Thresholds for prod pods in a plan."""

from __future__ import annotations

from koordcore.descheduling.evict import CycleEvictor
from koordcore.descheduling.load_problem import problem_of_load, prod_usage, resource_of, spared
from koordcore.descheduling.moves import Host, Movable, MoveProblem
from koordcore.descheduling.plan import plan_rebalance
from koordcore.model.colocation import RawSelector
from koordcore.model.metrics import NodeMetric, PodMetric, measured_of
from koordcore.model.nodes import Node
from koordcore.model.pods import OwnerReference, Pod, PodKey, PodPhase
from koordcore.model.rebalance import EvictorArgs, LowNodeLoadArgs, NodePool, Thresholds
from koordcore.model.resources import make_resources

NOW = 10**18
OWNER = (OwnerReference("ReplicaSet", "rs", "rs", controller=True),)
PROD, BATCH = 9500, 5500


def cluster(nodes: dict[str, list[tuple[int, int]]]) -> tuple[list[Pod], dict[str, NodeMetric]]:
    """Give pods by priority and usage in cores, and what is reported of them."""
    pods, metrics = [], {}
    for node, own in nodes.items():
        reports = []
        for index, (priority, cores) in enumerate(own):
            pod = Pod(
                name=f"{node}{index}",
                owners=OWNER,
                priority=priority,
                requests={"cpu": 1000},
                node_name=node,
                phase=PodPhase.RUNNING,
            )
            pods.append(pod)
            usage = measured_of({"cpu": cores * 1000})
            reports.append(PodMetric(namespace="default", name=pod.name, usage=usage))
        metrics[node] = NodeMetric(
            node=node, update_time=NOW, node_usage=measured_of({}), pods=tuple(reports)
        )
    return pods, metrics


def problem(nodes: dict[str, list[tuple[int, int]]], high: float, prod_high: float | None) -> MoveProblem:
    """Give nodes of 100 cores with pods by priority and usage in cores."""
    pods, metrics = cluster(nodes)
    pool = NodePool(
        high=Thresholds({"cpu": high}),
        prod_high=None if prod_high is None else Thresholds({"cpu": prod_high}),
    )
    return problem_of_load(
        [Node(name=name, allocatable={"cpu": 100_000, "pods": 110}) for name in nodes],
        pods,
        metrics,
        LowNodeLoadArgs(pools=(pool,)),
        now=NOW,
        evictor=CycleEvictor(EvictorArgs()),
    )


def moved(asked: MoveProblem) -> list[tuple[str, str]]:
    plan = plan_rebalance(asked)
    assert plan.certificate.proven
    return [(move.pod.name, move.target) for move in plan.moves]


def test_prod_pods_alone_can_make_a_node_hot() -> None:
    """50 of 60 cores are prod where 40 are allowed; the batch pod would not help."""
    nodes = {"a": [(PROD, 15), (PROD, 35), (BATCH, 10)], "b": []}
    assert moved(problem(nodes, 65, None)) == []
    assert moved(problem(nodes, 65, 40)) == [("a0", "b")]


def test_a_target_stays_below_both_thresholds() -> None:
    """Node b has room for prod, but not in all; c has room in all, but not for prod; d takes the pod."""
    nodes = {
        "a": [(PROD, 5), (PROD, 40)],
        "b": [(PROD, 10), (BATCH, 54)],
        "c": [(PROD, 40)],
        "d": [(BATCH, 50)],
    }
    assert moved(problem(nodes, 65, 40)) == [("a0", "d")]
    del nodes["d"]
    plan = plan_rebalance(problem(nodes, 65, 40))
    assert all(target not in ("b", "c") or name != "a0" for name, target in moved(problem(nodes, 65, 40)))
    assert plan.certificate.proven


def test_names_of_prod_usage() -> None:
    """No resource is called so, and the way back is known."""
    assert resource_of(prod_usage("cpu")) == resource_of("cpu") == "cpu"
    host = problem({"a": [(PROD, 15), (BATCH, 5)]}, 65, 40).hosts[0]
    assert dict(host.usage) == {"cpu": 20_000, prod_usage("cpu"): 15_000}
    assert dict(host.high)[prod_usage("cpu")] == 40_000


def test_no_node_is_given_up_for_others() -> None:
    """Of two hot nodes one could be cooled by heating the other; that is done only where it is allowed."""
    nodes = {"a": [(BATCH, 40), (BATCH, 40)], "b": [(BATCH, 40), (BATCH, 40)]}
    asked = problem(nodes, 65, None)
    assert len(plan_rebalance(asked).after) == 1
    plan = plan_rebalance(spared(asked))
    assert (len(plan.after), plan.moves) == (2, ())
    assert plan.certificate.proven


def test_a_node_that_stays_hot_takes_no_pod() -> None:
    """One that gives up three cores would take two of another's, and cool both a little; it may not."""
    size, high = make_resources({"cpu": 10}), make_resources({"cpu": 5})
    hosts = (
        Host(
            name="big",
            allocatable=make_resources({"cpu": 100}),
            usage=make_resources({"cpu": 68}),
            high=make_resources({"cpu": 50}),
        ),
        Host(name="small", allocatable=size, usage=make_resources({"cpu": 9}), high=high),
        Host(name="third", allocatable=size, usage=make_resources({"cpu": 1}), high=high),
    )
    movable = (
        Movable(pod=PodKey("a", "x"), node="small", usage=make_resources({"cpu": 2})),
        Movable(pod=PodKey("a", "y"), node="big", usage=make_resources({"cpu": 3})),
    )

    def allows(pod: PodKey, node: str) -> bool:
        return (pod.name, node) in {("x", "big"), ("y", "third")}

    problem = MoveProblem(hosts=hosts, movable=movable, allows=allows)
    given_up = plan_rebalance(problem)
    assert {(move.pod.name, move.target) for move in given_up.moves} == {("x", "big"), ("y", "third")}
    kept = plan_rebalance(spared(problem))
    assert [(move.pod.name, move.target) for move in kept.moves] == [("y", "third")]
    assert kept.certificate.proven
    assert kept.certificate.objective[:3] == (2, 150 + 400, 1)


def test_a_threshold_for_pods_counts_pods() -> None:
    """Six of ten places are taken where half of them may be; one of four prod pods where a fifth may."""
    nodes = {"a": [(BATCH, 1)] * 2 + [(PROD, 1)] * 4, "b": [(PROD, 1)]}
    pods, metrics = cluster(nodes)
    slots = [Node(name=name, allocatable={"cpu": 100_000, "pods": 10}) for name in nodes]

    def asked(pool: NodePool) -> MoveProblem:
        args = LowNodeLoadArgs(pools=(pool,))
        return problem_of_load(slots, pods, metrics, args, now=NOW, evictor=CycleEvictor(EvictorArgs()))

    assert moved(asked(NodePool(high=Thresholds(pods=60)))) == []
    assert moved(asked(NodePool(high=Thresholds(pods=50)))) == [("a0", "b")]
    assert moved(asked(NodePool(prod_high=Thresholds(pods=30)))) == [("a2", "b")]
    plan = plan_rebalance(asked(NodePool(prod_high=Thresholds(pods=20))))
    assert (len(plan.moves), plan.after) == (1, ("a",))


def test_prod_pods_that_come_from_another_pool_count() -> None:
    """Only pool y limits what prod pods use: its node b would be above that with the pod of node a."""
    nodes = {"a": [(PROD, 45), (PROD, 25)], "b": [(PROD, 20)]}
    pods, metrics = cluster(nodes)
    machines = [
        Node(name=name, allocatable={"cpu": 100_000, "pods": 110}, labels={"pool": pool})
        for name, pool in (("a", "x"), ("b", "y"))
    ]
    pool = NodePool(
        name="y",
        selector=RawSelector(match_labels={"pool": "y"}),
        high=Thresholds(cpu=80),
        prod_high=Thresholds(cpu=30),
    )
    args = LowNodeLoadArgs(pools=(NodePool(high=Thresholds(cpu=60)), pool))
    asked = problem_of_load(machines, pods, metrics, args, now=NOW, evictor=CycleEvictor(EvictorArgs()))
    plan = plan_rebalance(spared(asked))
    assert (plan.moves, plan.after) == ((), ("a",))
