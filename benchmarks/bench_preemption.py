"""Job preemption: time to the first legal and to the proven plan, and how much is evicted."""

from __future__ import annotations

import numpy as np

from koordcore._arrays import IntMatrix, IntVector
from koordcore.allocators.gang.demand import Member, Role
from koordcore.model.certificates import DEFAULT_LIMITS, Limits
from koordcore.model.gangs import GatherRule, NetworkTopologySpec
from koordcore.model.preemption import NotHelpful, PreemptionPlan
from koordcore.preemption.cost import close, damage_of
from koordcore.preemption.parties import Candidates, Jobs, MemberShape
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import PreemptionProblem
from koordcore.topology.network import LayerSpec, NetworkTopology, build_tree
from tests.reference.preemption_as_is import as_is_plan

GI = 2**30
QUICK = Limits(deterministic_time=1e-6)


def _tree(names: list[str], block: int) -> NetworkTopology:
    layers = (
        LayerSpec("BlockLayer", ("block",)),
        LayerSpec("NodeTopologyLayer", (), "BlockLayer"),
    )
    labels = {name: {"block": f"b{number // block:03d}"} for number, name in enumerate(names)}
    return build_tree(layers, labels)


def _cluster(
    node: IntVector,
    amounts: IntMatrix,
    job: IntVector,
    priority: IntVector,
    least: IntVector,
    ask: tuple[int, ...],
    members: int,
    *,
    block: int = 0,
) -> PreemptionProblem:
    """Nodes without any room, and a gang that wants some.

    Parameters
    ----------
    node, amounts, job
        Of every pod, shapes (V,), (R, V), (V,).
    priority, least
        Of every job, shape (J,). Jobs of more than one pod are gangs.
    ask, members
        Request of each member, and how many there are.
    block
        Nodes of a domain in which all members must gather; 0 for no network.
    """
    nodes, running = int(node[-1]) + 1, np.bincount(job)
    names = [f"n{number:05d}" for number in range(nodes)]
    free = np.zeros((len(ask), nodes), np.int64)
    free[-1] = 102
    big = tuple(Member(f"default/big-{number}", 0, number) for number in range(members))
    gathering = NetworkTopologySpec((GatherRule("BlockLayer", "MustGather"),) if block else ())
    return PreemptionProblem(
        nodes=tuple(names),
        free=free,
        shapes=(MemberShape(request=np.array(ask, np.int64), allowed=np.ones(nodes, np.bool_)),),
        roles=(Role(name="default/big", members=big, min_available=members),),
        candidates=Candidates(
            keys=tuple(f"default/p{number:05d}" for number in range(len(node))),
            node=node,
            amounts=amounts,
            priority=priority[job],
            job=job,
        ),
        jobs=Jobs(
            names=tuple(f"default/job{number:05d}" for number in range(len(running))),
            least=least,
            running=running,
            protected=np.zeros_like(running),
            gang=running > 1,
        ),
        tree=_tree(names, block) if block else None,
        spec=gathering,
    )


def domains_problem(nodes: int = 10_240, jobs: int = 25_000, gang: int = 128) -> PreemptionProblem:
    """Nodes of 128 cpu and 1 Ti, each full with 8 pods of 16 cpu and 128 Gi of gangs spread at random;
    a gang of 96 cpu, 700 Gi pods that must gather in a domain of 512 nodes.
    """  # noqa: D205 - one thought
    rng = np.random.default_rng(11)
    pods = nodes * 8
    job = np.concatenate([np.arange(jobs), rng.integers(0, jobs, pods - jobs)])
    rng.shuffle(job)
    return _cluster(
        np.repeat(np.arange(nodes), 8),
        np.tile(np.array([[16_000], [128 * GI], [1]], np.int64), (1, pods)),
        job,
        rng.integers(100, 2001, jobs),
        np.bincount(job, minlength=jobs),
        (96_000, 700 * GI, 1),
        gang,
        block=512,
    )


def flat_problem(nodes: int, members: int, gpus: int) -> PreemptionProblem:
    """Nodes of 8 GPUs, full with pods of 1 GPU, half of them in gangs of 2 to 8 with slack, no network."""
    rng = np.random.default_rng(5)
    pods = nodes * 8
    sizes: list[int] = []
    while sum(sizes) < pods:
        sizes.append(int(rng.integers(2, 9)) if rng.random() < 0.3 else 1)
    sizes[-1] -= sum(sizes) - pods
    if not sizes[-1]:
        sizes.pop()
    job = np.repeat(np.arange(len(sizes)), sizes)
    rng.shuffle(job)
    running = np.bincount(job)
    least = np.where(running > 1, np.maximum(1, running - rng.integers(0, 2, len(running))), 1)
    levels = np.array([0, 100, 500, 1000, 3000])[rng.integers(0, 5, len(running))]
    ones = np.ones((2, pods), np.int64)
    return _cluster(np.repeat(np.arange(nodes), 8), ones, job, levels, least, (gpus, 1), members)


def _planned(problem: PreemptionProblem, limits: Limits = DEFAULT_LIMITS) -> PreemptionPlan:
    plan = plan_preemption(problem, limits=limits)
    if isinstance(plan, NotHelpful):
        raise AssertionError("the benchmark's job must be able to preempt")
    return plan


class Domains:
    """A gang of 128 on 10,240 nodes in domains of 512."""

    timeout = 120

    def setup(self) -> None:
        self.problem = domains_problem()
        plan = _planned(self.problem)
        assert plan.certificate.proven
        self.plan = plan

    def time_first_legal(self) -> None:
        _planned(self.problem, QUICK)

    def time_proven(self) -> None:
        _planned(self.problem)

    def track_victims(self) -> int:
        return len(self.plan.victims)

    def track_jobs(self) -> int:
        return self.plan.damage.jobs


class Flat:
    """A gang of 8 among 500 nodes; a single pod among 5000."""

    timeout = 120

    def setup(self) -> None:
        self.gang = flat_problem(500, 8, 4)
        self.single = flat_problem(5000, 1, 1)
        assert _planned(self.gang).certificate.proven
        assert _planned(self.single).certificate.proven

    def time_gang_proven(self) -> None:
        _planned(self.gang)

    def time_single_pod(self) -> None:
        _planned(self.single)


def quality_problem(seed: int) -> PreemptionProblem:
    """A cluster of 4 to 12 nodes, full with pods of mixed size and of gangs; a gang of 1 to 6 members."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(4, 13))
    node: list[int] = []
    size: list[int] = []
    for row in range(nodes):
        left = 16
        while left > 0:
            amount = int(min(left, rng.choice([1, 2, 4, 8])))
            node.append(row)
            size.append(amount)
            left -= amount
    pods = len(node)
    gangs = max(1, pods // 5)
    job = np.where(rng.random(pods) < 0.6, rng.integers(0, gangs, pods), gangs + np.arange(pods))
    names, job = np.unique(job, return_inverse=True)
    running = np.bincount(job)
    least = np.where(running > 1, rng.integers(1, running + 1), 1)
    levels = rng.choice([0, 100, 500, 1000], len(names))
    members = int(rng.integers(1, 7))
    ask = int(rng.choice([4, 8, 12, 16]))
    amounts = np.stack([np.array(size, np.int64), np.ones(pods, np.int64)])
    return _cluster(np.array(node, np.int64), amounts, job, levels, least, (ask, 1), members)


class Quality:
    """200 generated clusters: what leaves, beside the reference's rule with the rest of broken gangs."""

    timeout = 300

    def setup_cache(self) -> dict[str, int]:
        found = dict.fromkeys(
            ("ours_pods", "theirs_pods", "ours_jobs", "theirs_jobs", "false", "refused", "hold", "unproven"),
            0,
        )
        for seed in range(200):
            problem = quality_problem(seed)
            theirs, plan = as_is_plan(problem), plan_preemption(problem)
            if isinstance(plan, NotHelpful):
                found["false"] += theirs is not None
                continue
            found["unproven"] += not plan.certificate.proven
            if theirs is None:
                found["refused"] += 1
                continue
            where, gone = theirs
            room = problem.freed(gone) - problem.shapes[0].request[:, None] * np.bincount(
                where, minlength=len(problem.nodes)
            )
            if (room < 0).any():
                found["false"] += 1
                continue
            closed = close(problem, gone)
            assert closed is not None
            damage = damage_of(problem, closed)
            assert plan.damage <= damage
            found["hold"] += 1
            found["ours_pods"] += plan.damage.pods
            found["theirs_pods"] += damage.pods
            found["ours_jobs"] += plan.damage.jobs
            found["theirs_jobs"] += damage.jobs
        return found

    def track_pods_ours(self, found: dict[str, int]) -> int:
        return found["ours_pods"]

    def track_pods_reference(self, found: dict[str, int]) -> int:
        return found["theirs_pods"]

    def track_jobs_ours(self, found: dict[str, int]) -> int:
        return found["ours_jobs"]

    def track_jobs_reference(self, found: dict[str, int]) -> int:
        return found["theirs_jobs"]

    def track_false_success_of_reference(self, found: dict[str, int]) -> int:
        return found["false"]

    def track_wrong_refusals_of_reference(self, found: dict[str, int]) -> int:
        return found["refused"]


Domains.track_victims.unit = "pods"  # type: ignore[attr-defined]
Domains.track_jobs.unit = "jobs"  # type: ignore[attr-defined]
for _name in ("ours", "reference"):
    getattr(Quality, f"track_pods_{_name}").unit = "pods"
    getattr(Quality, f"track_jobs_{_name}").unit = "jobs"
Quality.track_false_success_of_reference.unit = "clusters"  # type: ignore[attr-defined]
Quality.track_wrong_refusals_of_reference.unit = "clusters"  # type: ignore[attr-defined]
