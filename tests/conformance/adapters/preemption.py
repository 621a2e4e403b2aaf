"""Job preemption: eligibility, cost, plans and outcomes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from koordcore.manifests.loading import snapshot_from_objects
from koordcore.manifests.pods import pod_from_manifest
from koordcore.model.certificates import Certificate, CertificateStatus
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.gangs import NetworkTopologySpec, PodGroup
from koordcore.model.pods import Pod
from koordcore.model.preemption import Gather, Members, NotHelpful, PreemptionPlan
from koordcore.model.selectors import EVERYTHING
from koordcore.preemption.cost import broken_jobs, close, damage_of
from koordcore.preemption.eligible import check_eligible, may_evict
from koordcore.preemption.identify import PreemptingJob, identify_job
from koordcore.preemption.plan import plan_preemption
from koordcore.preemption.problem import PreemptionProblem
from koordcore.preemption.running import running_pods, told_by
from koordcore.preemption.setup import make_problem
from koordcore.preemption.victims import collect_candidates
from koordcore.protocol.gang_names import gang_name
from koordcore.protocol.gathering import parse_topology_spec
from koordcore.protocol.network_topology import parse_cluster_network_topology
from koordcore.protocol.preemption import (
    QUESTIONED_OBJECT_KEY,
    preemption_disabled,
)
from koordcore.protocol.quota import is_preemptible
from koordcore.snapshot import ClusterSnapshot
from koordcore.topology.network import NetworkTopology, build_tree, order_layers
from tests.conformance.core import Case, Verdict, difference, subject
from tests.reference.preemption_attempt import (
    Attempt,
    attempt_preemption,
    format_diagnosis,
    nominations_after,
)
from tests.reference.preemption_policy import parse_policy, transformed_policy
from tests.reference.preemption_refusals import (
    candidate_nodes,
    explain_invalid,
    explain_not_tried,
    explain_plain,
    explain_planned,
    plain_refusals,
)


def read(raw: Mapping[str, Any], key: str) -> list[Pod]:
    return [pod_from_manifest(one) for one in raw.get(key) or []]


@attrs.frozen(eq=False)
class World:
    """A case's input as records."""

    raw: Mapping[str, Any]

    @cached_property
    def snapshot(self) -> ClusterSnapshot:
        kinds = ("nodes", "pods", "waiting", "pending", "nominated", "podGroups", "pdbs")
        return snapshot_from_objects(
            [one for kind in kinds for one in self.raw.get(kind) or []], strict=True
        ).snapshot

    @cached_property
    def pending(self) -> list[Pod]:
        return read(self.raw, "pending")

    @cached_property
    def waiting(self) -> list[Pod]:
        return read(self.raw, "waiting")

    @cached_property
    def trigger(self) -> Pod:
        if "triggerPod" in self.raw:
            return pod_from_manifest(self.raw["triggerPod"])
        return next(pod for pod in self.pending if str(pod.key) == self.raw["trigger"])

    @cached_property
    def minimums(self) -> dict[str, int]:
        return {group.id: group.min_member for group in self.snapshot.of(PodGroup)}

    @cached_property
    def statuses(self) -> dict[str, str]:
        return {node: status["code"] for node, status in (self.raw.get("statuses") or {}).items()}

    @cached_property
    def on_node(self) -> dict[str, list[Pod]]:
        found: dict[str, list[Pod]] = {node["metadata"]["name"]: [] for node in self.raw.get("nodes") or []}
        for pod in (*read(self.raw, "pods"), *self.waiting):
            found.setdefault(str(pod.node_name), []).append(pod)
        return found

    @property
    def stale(self) -> bool:
        """A later member failed where the plan of this cycle had put it."""
        return self.spec is not None and len(self.raw.get("attempted") or ()) > 1

    @cached_property
    def job(self) -> PreemptingJob:
        return identify_job(
            self.trigger,
            group=self.raw.get("gangGroup") or (),
            pending=self.pending,
            waiting=self.waiting,
            minimums=self.minimums,
        )

    @cached_property
    def tree(self) -> NetworkTopology | None:
        if "topology" not in self.raw:
            return None
        labels = {state.name: state.node.labels for state in self.snapshot.nodes}
        return build_tree(order_layers(parse_cluster_network_topology(self.raw["topology"])), labels)

    @cached_property
    def spec(self) -> NetworkTopologySpec | None:

        raw = self.raw.get("topologySpec")
        return None if raw is None else parse_topology_spec(json.dumps(raw))

    @cached_property
    def problem(self) -> PreemptionProblem:
        return make_problem(
            self.snapshot,
            self.trigger,
            self.job.parts,
            minimums=self.minimums,
            own=[
                (pod.key, self.snapshot.layout.row_of[str(pod.node_name)])
                for pod in self.waiting
                if pod.node_name in self.snapshot.layout.row_of
            ],
            tree=self.tree,
            spec=self.spec,
        )

    def attempt(self, members: Members = Members.ALL, gather: Gather = Gather.DEEPEST) -> Attempt:
        def explain() -> Any:
            nodes = candidate_nodes(self.statuses)
            problem = self.problem
            failure = explain_not_tried(problem, nodes)
            if failure is not None:
                return failure
            refuse = plain_refusals(self.snapshot.layout, self.pending)
            if self.stale:
                return explain_invalid()
            if self.spec is not None:
                return explain_planned(problem, nodes, refuse)
            by_key = {member.key: member for member in problem.members}
            return explain_plain(problem, nodes, [by_key[str(pod.key)] for pod in self.pending], refuse)

        return attempt_preemption(
            self.trigger,
            preemptor=self.job.preemptor,
            pending=self.pending,
            waiting=self.waiting,
            on_node=self.on_node,
            statuses=self.statuses,
            earlier=self.raw.get("preemptionMessage", ""),
            find=lambda: (
                NOTHING if self.stale else plan_preemption(self.problem, members=members, gather=gather)
            ),
            explain=explain,
        )


NOTHING = NotHelpful(
    reason="preemption not helpful", message="", certificate=Certificate(CertificateStatus.HEURISTIC)
)


def gang_of(pod: Pod) -> str:
    return f"{pod.namespace}/{gang_name(pod.labels, pod.annotations)}"


def outcome(world: World, attempt: Attempt) -> dict[str, Any]:
    diagnosis = attempt.diagnosis
    victims = attempt.plan.victims if attempt.plan else ()
    uids = {str(pod.key): pod.uid for pods in world.on_node.values() for pod in pods}
    failure = attempt.failure
    return {
        "status": {
            "code": attempt.code,
            "reasons": [] if attempt.code == "Success" else [diagnosis.message],
        },
        "result": None if attempt.nominated is None else {"nominatedNodeName": attempt.nominated},
        "reason": diagnosis.reason,
        "message": diagnosis.message,
        "victims": sorted(str(victim.pod) for victim in victims),
        "contextMessage": attempt.told,
        "diagnosis": format_diagnosis(diagnosis, uids),
        "terminatingPodOnNominatedNode": dict(diagnosis.terminating),
        "nominatedNodeNameAfter": nominations_after(
            attempt,
            members=[*world.pending, *world.waiting],
            nominated=read(world.raw, "nominated"),
            trigger=world.trigger,
        ),
        "schedulingMode": diagnosis.mode,
        "unschedulablePods": list(diagnosis.unschedulable),
        "dryRunStatuses": {
            node: {"code": refused.code, "reasons": list(refused.reasons)}
            for node, refused in (failure.statuses if failure else {}).items()
        },
        "slots": dict(diagnosis.slots or {}),
    }


def plan_record(plan: PreemptionPlan | NotHelpful) -> dict[str, Any]:
    if isinstance(plan, NotHelpful):
        return {"feasible": False, "certificate": plan.certificate.status.value}
    return {
        "feasible": True,
        "objective": list(plan.damage.vector[:5]),
        "victims": sorted(str(victim.pod) for victim in plan.victims),
        "brokenGangs": list(plan.broken),
        "placement": dict(plan.nominations),
        "layer": plan.layer,
        "domain": plan.domain,
        "certificate": plan.certificate.status.value,
    }


# -- judging without the planner ----------------------------------------------------------------------------


def illegal(world: World, plan: Mapping[str, Any], *, everybody: bool) -> str:
    """Re-derive a plan from the objects: rights, gang rule, damage, room."""
    if misformed := out_of_form(world, plan):
        return misformed
    if not plan["feasible"]:
        return ""
    pods = {str(pod.key): pod for found in world.on_node.values() for pod in found}
    gone = {key: pods[key] for key in plan["victims"]}
    waiting = {str(pod.key) for pod in world.waiting}
    for key, pod in gone.items():
        if key in waiting or not may_evict(world.trigger, pod):
            return f"{key} may not be evicted"
    for gang, least in world.minimums.items():
        running = [key for key, pod in pods.items() if gang_of(pod) == gang]
        going = [key for key in running if key in gone]
        if going and len(running) - len(going) < least and len(going) < len(running):
            return f"{gang} falls below its minimum and is not evicted whole"
    damage = damage_by_hand(world, gone)
    if damage != plan["objective"]:
        return f"the damage is {damage}, not {plan['objective']}"
    placed = plan["placement"]
    if everybody and len(placed) < len(world.pending):
        return "a member has no place"
    for gang, (members, least) in world.job.parts.items():
        if sum(str(pod.key) in placed for pod in members) < least:
            return f"{gang} does not reach its minimum"
    return no_room(world, gone, placed)


def out_of_form(world: World, plan: Mapping[str, Any]) -> str:
    """Say what cannot be true of a plan whatever it does: unknown names, missing fields, other gangs."""
    if plan["feasible"] not in (True, False) or plan["certificate"] not in {
        str(one) for one in CertificateStatus
    }:
        return f"feasible {plan['feasible']}, {plan['certificate']}"
    if not plan["feasible"]:
        return "" if set(plan) == {"feasible", "certificate"} else f"not feasible: {sorted(plan)}"
    pending = {str(pod.key) for pod in world.pending}
    if set(plan["placement"]) - pending or set(plan["placement"].values()) - set(world.on_node):
        return f"placement {plan['placement']}"
    going = Counter(
        gang_of(pod) for pods in world.on_node.values() for pod in pods if str(pod.key) in plan["victims"]
    )
    running = Counter(gang_of(pod) for pods in world.on_node.values() for pod in pods)
    broken = sorted(
        gang for gang, count in going.items() if running[gang] - count < world.minimums.get(gang, 0)
    )
    if list(plan["brokenGangs"]) != broken:
        return f"gangs broken: {broken}, not {plan['brokenGangs']}"
    if len(set(plan["victims"])) != len(plan["victims"]) or plan["victims"] != sorted(plan["victims"]):
        return f"victims {plan['victims']}"
    return outside(world, plan)


def outside(world: World, plan: Mapping[str, Any]) -> str:
    """Say which node of a placement is not in the domain that a plan names; without a tree it names none."""
    tree = world.tree
    if tree is None or not plan["layer"]:
        named = plan["layer"] or plan["domain"]
        return f"{named} without a topology" if named and tree is None else ""
    depth = tree.depth_of(plan["layer"])
    if depth is None:
        return f"no layer {plan['layer']}"
    inside = {tree.names[tree.ancestors[depth, tree.node_index[node]]] for node in plan["placement"].values()}
    return "" if inside <= {plan["domain"]} else f"placed in {sorted(inside)}, not in {plan['domain']}"


def no_room(world: World, gone: Mapping[str, Pod], placed: Mapping[str, str]) -> str:
    members = {str(pod.key): pod for pod in world.pending}
    others = [pod for pod in read(world.raw, "nominated") if pod.priority >= world.trigger.priority]
    for node in sorted(set(placed.values())):
        allocatable = world.snapshot.node(node).node.allocatable
        there = [pod for pod in world.on_node[node] if str(pod.key) not in gone]
        there = [pod for pod in there if not (pod.leaving and may_evict(world.trigger, pod))]  # ruling 29
        there += [pod for pod in others if pod.nominated_node == node]
        fresh = [members[key] for key, where in placed.items() if where == node]
        if len(there) + len(fresh) > allocatable.get("pods", 0):
            return f"too many pods on {node}"
        for name in {name for pod in fresh for name, amount in pod.requests.items() if amount > 0}:
            if sum(pod.requests.get(name, 0) for pod in (*there, *fresh)) > allocatable.get(name, 0):
                return f"{name} of {node} is overcommitted"
        from koordcore.preemption.setup import plain_mask

        row = world.snapshot.layout.row_of[node]
        for pod in fresh:
            if not plain_mask(world.snapshot.layout, pod)[row]:
                return f"{pod.key} may not run on {node}"
    return ""


def damage_by_hand(world: World, gone: Mapping[str, Pod]) -> list[int]:
    if not gone:
        return [0, -(2**31), 0, 0, 0]
    violations = 0
    for budget in world.snapshot.of(PodDisruptionBudget):
        hit = [
            pod
            for pod in gone.values()
            if pod.namespace == budget.namespace
            and budget.selector != EVERYTHING
            and budget.selector.matches(pod.labels)
            and pod.name not in budget.disrupted_pods
        ]
        violations += max(0, len(hit) - budget.disruptions_allowed)
    pods = [pod for found in world.on_node.values() for pod in found]
    lost = 0
    for gang, least in world.minimums.items():
        running = sum(gang_of(pod) == gang for pod in pods)
        going = sum(gang_of(pod) == gang for pod in gone.values())
        lost += bool(going) and running - going < least
    lost += sum(gang_of(pod) not in world.minimums for pod in gone.values())
    priorities = [pod.priority for pod in gone.values()]
    return [violations, max(priorities), lost, len(gone), sum(priorities)]


def compare(expected: Sequence[int], seen: Sequence[int]) -> tuple[Verdict, str]:
    """Equal or wrong: the expected objective is proven, so beside it checker, case or library errs."""
    if list(seen) == list(expected):
        return Verdict.EQUAL, ""
    side = "worse" if list(seen) > list(expected) else "better"
    return Verdict.WRONG, f"objective {list(seen)} is {side} than {list(expected)}"


def judge_plan(world: World, expect: Mapping[str, Any], answer: Mapping[str, Any]) -> tuple[Verdict, str]:
    for key, wanted in (("all", expect), ("minimum", expect.get("atMinMember"))):
        plan = answer[key]
        if wanted is not None and plan["feasible"] != wanted["feasible"]:
            return Verdict.WRONG, f"{key}: feasible is {plan['feasible']}"
        if reason := illegal(world, plan, everybody=key == "all"):
            return Verdict.WRONG, f"{key}: {reason}"
        if wanted is not None and plan["feasible"]:
            verdict, detail = compare(wanted["objective"], plan["objective"])
            if verdict is not Verdict.EQUAL:
                return verdict, f"{key}: {detail}"
    if answer["all"]["feasible"] and (
        not answer["minimum"]["feasible"] or answer["minimum"]["objective"] > answer["all"]["objective"]
    ):
        return Verdict.WRONG, "minimum: what places everybody places the minimum"
    return Verdict.EQUAL, ""


def planned(world: World) -> dict[str, Any]:
    return {
        "all": plan_record(plan_preemption(world.problem, members=Members.ALL)),
        "minimum": plan_record(plan_preemption(world.problem, members=Members.MINIMUM)),
    }


def judge_best(case: Case, answer: Any) -> tuple[Verdict, str]:
    return judge_plan(World(case.input), case.raw["expect"], answer)


@subject("preemption.best", judge=judge_best)
def best(case: Case) -> Any:
    return planned(World(case.input))


def judge_job(case: Case, answer: Any) -> tuple[Verdict, str]:
    expect = case.raw["expect"]
    if expect.get("derived"):
        found = judge_plan(World(case.input), expect, answer["plans"])
        return free_of_charge(case, answer["plans"]) or found if found[0] is Verdict.WRONG else found
    report = difference(
        {key: value for key, value in expect.items() if key not in ("feasible", "derived")},
        {key: value for key, value in answer["outcome"].items() if key in expect},
    )
    return (Verdict.WRONG, report) if report else (Verdict.EQUAL, "")


def free_of_charge(case: Case, plans: Mapping[str, Any]) -> tuple[Verdict, str] | None:
    """Ruling 29: pods that terminate cost nothing. Were they to stay, the expected plan would be the best."""
    world = World(case.input)
    leaving = [pod for pods in world.on_node.values() for pod in pods if pod.leaving]
    if not any(may_evict(world.trigger, pod) for pod in leaving):
        return None
    staying = World(_staying(case.input))
    wrong = [illegal(world, plans[key], everybody=key == "all") for key in ("all", "minimum")]
    if any(wrong) or judge_plan(staying, case.raw["expect"], planned(staying))[0] is not Verdict.EQUAL:
        return None
    return Verdict.RULED, "29: pods that terminate cost nothing; the expectation charges them"


def _staying(raw: Any) -> Any:
    """Give the objects as if nobody terminated."""
    if isinstance(raw, dict):
        return {key: _staying(one) for key, one in raw.items() if key != "deletionTimestamp"}
    return [_staying(one) for one in raw] if isinstance(raw, list) else raw


@subject("preemption.job", judge=judge_job)
def job(case: Case) -> Any:
    world = World(case.input)
    if case.raw["expect"].get("derived"):
        return {"plans": planned(world)}
    return {"outcome": expected_of(case, outcome(world, world.attempt()))}


def expected_of(case: Case, found: Mapping[str, Any]) -> dict[str, Any]:
    """Keep of an outcome what the case tells; which fields it has differs from case to case."""
    return {key: one for key, one in found.items() if key in case.raw["expect"]}


def judge_topology(case: Case, answer: Any) -> tuple[Verdict, str]:
    expect, world = case.raw["expect"], World(case.input)
    if not expect.get("derived"):
        skipped = ("feasible", "derived", "plannerSlots", "plannerMessage", "possibleVictims")
        report = difference(
            {key: value for key, value in expect.items() if key not in skipped},
            {key: value for key, value in answer["outcome"].items() if key in expect},
        )
        return (Verdict.WRONG, report) if report else (Verdict.EQUAL, "")
    pairs = (("deepest", "objectiveAtDeepest"), ("anywhere", "objectiveAnywhere"))
    verdicts = []
    for key, name in pairs:
        plan = answer[key]
        if plan["feasible"] != expect["feasible"]:
            return Verdict.WRONG, f"{key}: feasible is {plan['feasible']}"
        if reason := illegal(world, plan, everybody=True):
            return Verdict.WRONG, f"{key}: {reason}"
        if not plan["feasible"]:
            continue
        if key == "deepest" and (
            plan["layer"] != expect["deepestLayer"] or plan["domain"] not in expect["domains"]
        ):
            return Verdict.WRONG, f"gathers in {plan['layer']}/{plan['domain']}"
        verdict, detail = compare(expect[name], plan["objective"])
        if verdict is Verdict.WRONG:
            return verdict, f"{key}: {detail}"
        verdicts.append(verdict)
    return (Verdict.BETTER if Verdict.BETTER in verdicts else Verdict.EQUAL), ""


@subject("preemption.topology", judge=judge_topology)
def topology(case: Case) -> Any:
    world = World(case.input)
    if not case.raw["expect"].get("derived"):
        return {"outcome": expected_of(case, outcome(world, world.attempt()))}
    return {
        "deepest": plan_record(plan_preemption(world.problem, members=Members.ALL)),
        "anywhere": plan_record(plan_preemption(world.problem, members=Members.ALL, gather=Gather.IF_FREE)),
    }


def judge_eligible(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Ruling 29: pods that the eviction API takes away count; without them the answer is upstream's."""
    report = difference(case.raw["expect"], answer)
    if not report:
        return Verdict.EQUAL, ""
    text = json.dumps(case.input).replace("EvictionByEvictionAPI", "")
    plain = attrs.evolve(case, input=json.loads(text))
    if not difference(eligible(case), answer) and not difference(case.raw["expect"], eligible(plain)):
        return Verdict.RULED, "a pod evicted by the API leaves a nominated node"
    return Verdict.WRONG, report


@subject("preemption.eligible", judge=judge_eligible)
def eligible(case: Case) -> Any:
    if case.input["kind"] == "policy":
        pod = pod_from_manifest(case.input["pod"])
        policy = parse_policy(pod.labels)
        return {
            "policyLabel": None if policy is None else policy.value,
            "policyWhenTransformed": transformed_policy(pod.labels).value,
            "disablePreemptible": preemption_disabled(pod.labels),
            "nonPreemptible": not is_preemptible(pod.labels),
            "jobKey": pod.labels.get(QUESTIONED_OBJECT_KEY, ""),
        }
    world = World(case.input)
    answer = check_eligible(world.trigger, world.pending, world.on_node, world.statuses)
    return {
        "eligible": answer.eligible,
        "reason": answer.reason,
        "terminatingPodOnNominatedNode": dict(answer.terminating),
        "preemptible": {
            str(pod.key): may_evict(world.trigger, pod) for pods in world.on_node.values() for pod in pods
        },
    }


@subject("preemption.cost")
def cost(case: Case) -> Any:
    if case.input["kind"] == "nodeCost":
        return {}
    world = World({**case.input, "nodes": [], "pods": []})
    pods = read(case.input, "pods")
    preemptor = Pod(name="preemptor", priority=case.input["preemptorPriority"])
    states = sorted({str(pod.node_name) for pod in pods})
    layout = ClusterSnapshot(nodes=[_bare(name) for name in states]).layout
    budgets = world.snapshot.of(PodDisruptionBudget)
    candidates, jobs = collect_candidates(
        running_pods(layout, pods, told=told_by(budgets)), preemptor, minimums=world.minimums, budgets=budgets
    )
    wanted = set(case.input["victims"])
    if not wanted <= set(candidates.keys):
        return {"allowed": False}
    problem = PreemptionProblem(
        nodes=tuple(layout.names),
        free=layout.allocatable,
        shapes=(),
        roles=(),
        candidates=candidates,
        jobs=jobs,
        budgets=np.array([budget.disruptions_allowed for budget in budgets], dtype=np.int64),
    )
    closed = close(problem, np.array([key in wanted for key in candidates.keys], dtype=np.bool_))
    if closed is None:
        return {"allowed": False}
    broken = broken_jobs(problem, closed) & jobs.gang
    return {
        "allowed": True,
        "victims": sorted(key for key, gone in zip(candidates.keys, closed, strict=True) if gone),
        "brokenGangs": sorted(name for name, lost in zip(jobs.names, broken, strict=True) if lost),
        "objective": list(damage_of(problem, closed).vector[:5]),
    }


def _bare(name: str) -> Any:
    from koordcore.model.nodes import Node

    return Node(name=name)
