"""Where a greedy that evicts from hot nodes loses: small stories with the best answer stated."""

from __future__ import annotations

from collections.abc import Mapping

from koordcore.checking.certificates import check_certificate
from koordcore.descheduling.defrag import Wanted, plan_defragmentation
from koordcore.descheduling.moves import Group, Host, Movable, MoveProblem
from koordcore.descheduling.plan import RebalancePlan, plan_rebalance
from koordcore.model.certificates import CertificateStatus
from koordcore.model.pods import PodKey

Amounts = Mapping[str, int]


def problem(
    nodes: Mapping[str, Mapping[str, Amounts]],
    *,
    size: Amounts,
    high: Amounts | None = None,
    base: Mapping[str, Amounts] | None = None,
    costs: Mapping[str, int] | None = None,
    groups: tuple[Group, ...] = (),
) -> MoveProblem:
    """Give nodes with pods that use what they ask for, on top of what cannot move."""
    movable, hosts = [], []
    for node, pods in nodes.items():
        used = dict((base or {}).get(node, {}))
        for name, amounts in pods.items():
            for key, amount in amounts.items():
                used[key] = used.get(key, 0) + amount
            price = (costs or {}).get(name, 1)
            movable.append(
                Movable(pod=PodKey("d", name), node=node, requests=amounts, usage=amounts, cost=price)
            )
        hosts.append(Host(name=node, requested=used, allocatable=size, usage=used, high=high or {}))
    return MoveProblem(hosts=tuple(hosts), movable=tuple(movable), groups=groups)


def moved(plan: RebalancePlan) -> list[str]:
    assert plan.certificate.proven
    return [move.pod.name for move in plan.moves]


def test_four_cards_on_no_node() -> None:
    """Four cards are free on three nodes; two moves of three cards bring them together."""
    sizes = {"n1": (4, 2, 1), "n2": (4, 2), "n3": (4, 2, 1)}
    nodes = {node: {f"{node}-{gpu}": {"gpu": gpu} for gpu in own} for node, own in sizes.items()}
    asked = problem(nodes, size={"gpu": 8})
    plan = plan_defragmentation(asked, Wanted(requests={"gpu": 4}))
    assert plan.certificate.proven
    assert plan.certificate.objective == (0, 2, 2)
    asks = {one.pod: one.requests["gpu"] for one in asked.movable}
    assert sum(asks[move.pod] for move in plan.moves) == 3
    # Only n2 may serve: the chain is needed, in two waves.
    only = plan_defragmentation(asked, Wanted(requests={"gpu": 4}, nodes=("n2",)))
    assert only.certificate.proven
    assert [(move.pod.name[-1], move.arrives) for move in only.moves] == [("1", 0), ("2", 1)]


def test_a_swap_of_two_kinds_of_pods() -> None:
    """Neither can move first; with a buffer node one move is enough, without one pod is down for a while."""
    nodes = {"A": {"a": {"cpu": 30, "mem": 5}}, "B": {"b": {"cpu": 5, "mem": 30}}}
    base = {"A": {"cpu": 67, "mem": 45}, "B": {"cpu": 45, "mem": 67}, "C": {"cpu": 70, "mem": 95}}
    wanted = Wanted(requests={"cpu": 15, "mem": 15})
    swap = plan_defragmentation(problem(nodes, size={"cpu": 100, "mem": 100}, base=base), wanted)
    assert (swap.missing, len(swap.moves)) == (0, 2)
    assert sorted(move.arrives - move.leaves for move in swap.moves) == [0, 2]
    buffered = problem({**nodes, "C": {}}, size={"cpu": 100, "mem": 100}, base=base)
    plan = plan_defragmentation(buffered, wanted)
    assert [(move.pod.name, move.target) for move in plan.moves] == [("a", "C")]


def test_room_is_made_on_a_hot_node_without_cooling_it() -> None:
    """One pod of two leaves, and the node is as hot as it may stay: what it is asked for is what counts."""
    asked = MoveProblem(
        hosts=(
            Host(
                name="hot",
                allocatable={"cpu": 10},
                requested={"cpu": 9},
                usage={"cpu": 14},
                high={"cpu": 8},
            ),
            Host(name="cool", allocatable={"cpu": 8}, requested={"cpu": 1}),
        ),
        movable=(
            Movable(pod=PodKey("d", "busy"), node="hot", requests={"cpu": 3}, usage={"cpu": 5}),
            Movable(pod=PodKey("d", "calm"), node="hot", requests={"cpu": 2}, usage={"cpu": 2}),
        ),
    )
    plan = plan_defragmentation(asked, Wanted(requests={"cpu": 3}, count=2, per_node=1))
    assert [(move.pod.name, move.target) for move in plan.moves] == [("calm", "cool")]
    assert (plan.missing, plan.certificate.objective) == (0, (0, 1, 1))
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted
    # Where nothing helps, nobody moves for the sake of the hot node.
    nothing = plan_defragmentation(asked, Wanted(requests={"cpu": 11}))
    assert (nothing.moves, nothing.certificate.objective) == ((), (1, 0, 0))


def test_a_node_that_stays_hot_takes_no_pod_for_room() -> None:
    """The pod in the way may go to the hot node alone; it does once enough of that has left."""
    hosts = (
        Host(name="full", allocatable={"cpu": 4}, requested={"cpu": 2}),
        Host(name="hot", allocatable={"cpu": 4}, requested={"cpu": 2}, usage={"cpu": 3}, high={"cpu": 2}),
        Host(name="third", allocatable={"cpu": 2}),
    )
    idle = Movable(pod=PodKey("d", "idle"), node="full", requests={"cpu": 2})
    busy = Movable(pod=PodKey("d", "busy"), node="hot", requests={"cpu": 2}, usage={"cpu": 2})
    wanted = Wanted(requests={"cpu": 4}, nodes=("full",))

    def planned(*movable: Movable) -> list[tuple[str, str]]:
        problem = MoveProblem(
            hosts=hosts, movable=movable, allows=lambda pod, node: (pod.name == "idle") == (node == "hot")
        )
        plan = plan_defragmentation(problem, wanted)
        assert plan.certificate.proven
        return [(move.pod.name, move.target) for move in plan.moves]

    assert planned(idle) == []
    assert planned(idle, busy) == [("busy", "third"), ("idle", "hot")]


def test_a_node_that_receives_no_pods_serves_no_slots() -> None:
    """Not even where it is named."""
    closed = Host(name="closed", allocatable={"cpu": 4}, receives=False)
    asked = MoveProblem(hosts=(closed, Host(name="open", allocatable={"cpu": 4})), movable=())
    for nodes, places in ((None, (("open", 1),)), (("closed", "open"), (("open", 1),)), (("closed",), ())):
        assert plan_defragmentation(asked, Wanted(requests={"cpu": 4}, nodes=nodes)).places == places


def test_a_candidate_that_is_not_needed_holds_no_room() -> None:
    """One target with room for four: for P alone, or for both others where P must stay."""
    nodes = {"hot": {"P": {"cpu": 4}, "B1": {"cpu": 2}, "B2": {"cpu": 2}}, "t": {}}
    assert moved(plan_rebalance(problem(nodes, size={"cpu": 20}, high={"cpu": 4}))) == ["P"]
    stays = (Group("prod", (PodKey("d", "P"),), 0),)
    asked = problem(nodes, size={"cpu": 20}, high={"cpu": 4}, groups=stays)
    assert moved(plan_rebalance(asked)) == ["B1", "B2"]


def test_room_on_several_targets_is_no_room() -> None:
    """Four and a half cores are free in all, never four at once: nobody is evicted in vain."""
    nodes = {"hot": {"p": {"m": 4000}}, "t1": {}, "t2": {}, "t3": {}}
    base = {"hot": {"m": 3000}, **{name: {"m": 3500} for name in ("t1", "t2", "t3")}}
    plan = plan_rebalance(problem(nodes, size={"m": 9000}, high={"m": 5000}, base=base))
    assert (moved(plan), plan.after) == ([], ("hot",))


def test_the_pod_that_uses_what_is_short() -> None:
    """Memory is short, so the one large pod goes and not five small ones first."""
    small = {f"b{index}": {"mem": 1} for index in range(5)}
    plan = plan_rebalance(
        problem(
            {"hot": {**small, "p": {"mem": 80}}, "t": {}},
            size={"mem": 200},
            high={"mem": 100},
            base={"hot": {"mem": 95}},
        )
    )
    assert moved(plan) == ["p"]


def test_little_memory_does_not_stop_relief_of_cpu() -> None:
    """The target has four of memory; the pod with seven cores needs next to none."""
    nodes = {"hot": {"batch": {"cpu": 1, "mem": 4}, "ls": {"cpu": 7, "mem": 0}}, "t": {}}
    plan = plan_rebalance(
        problem(
            nodes,
            size={"cpu": 100, "mem": 100},
            high={"cpu": 20, "mem": 50},
            base={"hot": {"cpu": 19}, "t": {"mem": 46}},
        )
    )
    assert moved(plan) == ["ls"]


def test_scarce_slots_go_where_they_save_most() -> None:
    """Of six replicas two may move; two of the nodes have nothing else that would do in one move."""
    nodes: dict[str, dict[str, Amounts]] = {f"t{index}": {} for index in range(3)}
    for index in range(6):
        other = (1, 1, 1) if index in (2, 5) else (3,)
        nodes[f"h{index}"] = {
            f"w{index}": {"cpu": 3},
            **{f"x{index}-{number}": {"cpu": size} for number, size in enumerate(other)},
        }
    replicas = tuple(PodKey("d", f"w{index}") for index in range(6))
    plan = plan_rebalance(
        problem(
            nodes,
            size={"cpu": 40},
            high={"cpu": 9},
            base={f"h{index}": {"cpu": 6} for index in range(6)},
            groups=(Group("w", replicas, 2),),
        )
    )
    names = moved(plan)
    assert (len(names), plan.after) == (6, ())
    assert {"w2", "w5"} <= set(names)


def test_what_a_node_that_stays_hot_exceeds_is_proven_by_who_moves() -> None:
    """Its excess follows from the moves; permille told apart one by one are thousands of cases."""

    def host(name: str, cpu: Amounts, memory: int, asked: Amounts, *, receives: bool = True) -> Host:
        return Host(
            name=name,
            allocatable={"cpu": cpu["size"], "memory": 16_384, "pods": 110},
            requested=asked,
            usage={"cpu": cpu["used"], "memory": memory},
            high={"cpu": cpu["high"], "memory": 16_384},
            spared=True,
            receives=receives,
        )

    pods = (
        ("p1", "n1", 2200, 3000, 900, 3500),
        ("p3", "n1", 1300, 1300, 2800, 2200),
        ("p5", "n0", 700, 2200, 2700, 2400),
    )
    plan = plan_rebalance(
        MoveProblem(
            hosts=(
                host(
                    "n0",
                    {"size": 8000, "high": 5200, "used": 7900},
                    11_100,
                    {"cpu": 700, "memory": 2200, "pods": 1},
                ),
                host(
                    "n1",
                    {"size": 8000, "high": 5200, "used": 9700},
                    7100,
                    {"cpu": 3500, "memory": 4300, "pods": 2},
                    receives=False,
                ),
                host("n2", {"size": 10_000, "high": 6500, "used": 2400}, 3200, {}),
            ),
            movable=tuple(
                Movable(
                    pod=PodKey("d", name),
                    node=node,
                    requests={"cpu": cpu, "memory": memory, "pods": 1},
                    usage={"cpu": used, "memory": held},
                    cost=4,
                )
                for name, node, cpu, memory, used, held in pods
            ),
        )
    )
    assert plan.certificate.status is CertificateStatus.PROVEN
    assert plan.certificate.objective == (1, 450, 2, 8)
    assert check_certificate(plan.certificate.problem, plan.certificate).accepted
    assert moved(plan) == ["p1", "p5"]
