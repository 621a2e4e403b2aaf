"""What is called proven: repeated by the checker, compared with trying everything, and with other budgets."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import attrs

from campaigns.brute import best_gathering, cheapest_eviction
from campaigns.case import Case, Failure, Figures, Object, check_laws
from campaigns.plans import policy_of
from campaigns.spared import one_job, spared
from campaigns.worlds import NETWORK, NOW, THEMES, draw_world
from koordcore import Certificate, Limits, PreemptionRules, ScheduleResult, schedule
from koordcore.checking import check_certificate
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.proof_records import certificates_of

__all__ = ["Proofs"]

BUDGETS: Final = (1e-9, 1e-6, 1e-4, 1e-3, 1e-2)
PLENTY: Final = 10.0
_GANG: Final = "gang.scheduling.koordinator.sh/"


class Proofs:
    """The campaign; see the module."""

    name = "proofs"
    laws: tuple[str, ...] = ("answers", "repeated", "best", "cheapest", "spared", "budgets")
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a gathering, an eviction, a queue of gangs, a whole world, or a job that needs room in one."""
        kind = chance.choice(("gather", "evict", "queue", "world", "job"))
        if kind == "job":
            # Gathering and promises of quotas come before cheaper victims, and load counts who has left.
            off = dict.fromkeys(("network", "quotas", "nominated", "load", "budgets"), 0.0)
            world = draw_world(chance, {**THEMES, "gangs": 0.7, "reservations": 0.6, **off})
            objects = one_job(world["objects"])
            return {"kind": kind, **world, "objects": objects, "preempt": {}}
        if kind == "world":
            themes = {**THEMES, "gangs": 0.9, "network": 0.8, "quotas": 0.1, "nominated": 0.0}
            return {"kind": kind, **draw_world(chance, themes), "preempt": chance.choice((None, {}, {}))}
        least = 0
        objects = _nodes(chance, chance.randint(1, 5 if kind != "evict" else 3))
        if kind == "gather":
            size, cpu = chance.randint(1, 5), chance.choice((1000, 1000, 2000))
            least = chance.randint(1, size)
            objects += [*_running(chance, objects, chance.randint(0, 3)), NETWORK]
            objects += _gang("g", size, cpu, least, 100, _spec(chance))
        elif kind == "evict":
            size, cpu = chance.choice((1, 1, 2, 3)), chance.choice((1000, 2000, 3000))
            least = chance.randint(1, size)
            objects += _running(chance, objects, chance.randint(2, 8))
            objects += _gang("g", size, cpu, least, 100, "")
        else:
            objects.append(NETWORK)
            for number in range(chance.randint(2, 7)):
                size = chance.randint(1, 4)
                must = json.dumps({"gatherStrategy": [{"layer": "BlockLayer", "strategy": "MustGather"}]})
                spec = must if chance.random() < 0.6 else ""
                objects += _gang(f"g{number}", size, 1000, size, chance.choice((0, 3)), spec)
        return {
            "kind": kind,
            "least": least,
            "objects": objects,
            "policy": None,
            "preempt": {} if kind == "evict" else None,
            "now": NOW,
            "budgets": [chance.choice(BUDGETS)],
        }

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Ask once with a budget for everything, and again with less."""
        question = _Question(case)
        result = question.asked(PLENTY)
        alone = case["kind"] == "job"
        figures["outcome", case["kind"]] += len(result.decisions)
        return check_laws(
            {
                "repeated": lambda: _repeated(result, figures),
                "best": lambda: _best(case, result),
                "cheapest": lambda: _cheapest(case, result),
                "spared": lambda: spared(question.snapshot, result, question.now) if alone else (),
                "budgets": lambda: _budgets(case, question),
            },
            laws,
        )


class _Question:
    """A case, read once, and what was answered within each budget."""

    def __init__(self, case: Case) -> None:
        self.snapshot = snapshot_from_objects(case["objects"], strict=True).snapshot
        self._rules = None if case["preempt"] is None else PreemptionRules(**case["preempt"])
        self.now = datetime.fromisoformat(case["now"])
        self._policy = policy_of(case["policy"])
        self._turns = "Together" if case["kind"] == "queue" else self._policy.gangs
        self._known: dict[tuple[float, bool], ScheduleResult] = {}

    def asked(self, budget: float, *, alone: bool = False) -> ScheduleResult:
        """Ask with a budget; ``alone``: gangs one by one."""
        if (budget, alone) not in self._known:
            self._known[budget, alone] = schedule(
                self.snapshot,
                policy=attrs.evolve(self._policy, gangs=self._policy.gangs if alone else self._turns),
                now=self.now,
                preempt=self._rules,
                limits=Limits(budget),
            )
        return self._known[budget, alone]


def _repeated(result: ScheduleResult, figures: Figures) -> Iterator[str]:
    """Every proof is repeated, and none shows more than it should."""
    for name, one in certificates_of(result).items():
        check = check_certificate(one.problem, one)
        figures["certificates", one.status.value] += 1
        figures["checked", check.outcome.value] += 1
        kind = name.split()[0]
        if check.outcome.value == "Rejected":
            yield f"{kind}: {one.status} is not shown: {check.reason}"
        if check.accepted and one.objective:
            for part in range(len(one.objective)):
                planted = _less(one, part)
                if check_certificate(planted.problem, planted).accepted:
                    yield f"{kind}: {one.objective} is proven, and {planted.objective} as well"


def _less(one: Certificate, part: int) -> Certificate:
    objective = tuple(value - (at == part) for at, value in enumerate(one.objective))
    return attrs.evolve(one, objective=objective, bound=objective)


def _best(case: Case, result: ScheduleResult) -> Iterator[str]:
    """A gathering that is proven is the best by trying everything."""
    if case["kind"] != "gather" or not result.jobs or result.jobs[0].certificate is None:
        return
    members = [one for one in case["objects"] if one["kind"] == "Pod" and not one["spec"].get("nodeName")]
    if not members or not any(one["kind"] == "ClusterNetworkTopology" for one in case["objects"]):
        return
    found = result.jobs[0].certificate
    least = max(case["least"], 0)
    expected = best_gathering(case["objects"], members, least)
    # What members are worth on their nodes comes last, and trying everything knows nothing of it.
    claimed = found.objective[: len(expected or ())] or None
    if found.proven and claimed != expected:
        yield f"{found.status} says {found.objective or None}, trying everything {expected}"


def _cheapest(case: Case, result: ScheduleResult) -> Iterator[str]:
    """Evictions that are proven are the cheapest by trying everything; nobody is left out in vain."""
    members = [one for one in case["objects"] if one["kind"] == "Pod" and not one["spec"].get("nodeName")]
    if case["kind"] != "evict" or len(members) < max(1, case["least"]) or len(result.bound) >= case["least"]:
        return
    expected = cheapest_eviction(case["objects"], members, case["least"])
    found = result.preemptions[0] if result.preemptions else None
    if found is None:
        if expected is not None:
            yield f"nobody is evicted, and {expected} would do"
    elif found.certificate.proven and found.damage.vector != expected:
        yield f"{found.certificate.status} says {found.damage.vector}, trying everything {expected}"


def _budgets(case: Case, question: _Question) -> Iterator[str]:
    """No budget claims a bound that another one beats; where nothing better exists, nobody finds it."""
    if case["kind"] not in ("queue", "evict"):
        return
    known = {budget: certificates_of(question.asked(budget)) for budget in (*case["budgets"], PLENTY)}
    names = set.intersection(*(set(one) for one in known.values()))
    for name in sorted(one for one in names if one.startswith(("together", "preemption"))):
        best = min(one[name].objective for one in known.values())
        for budget, one in known.items():
            if one[name].bound and one[name].bound > best:
                yield f"budget {budget}: bound {one[name].bound}, and {best} is reached"
    if case["kind"] == "queue":
        yield from _waiting_for_less(case, question)


def _waiting_for_less(case: Case, question: _Question) -> Iterator[str]:
    """Whatever the budget, no fewer gangs of the highest priority start than one by one."""
    priority = _priorities(case)
    top = max(priority.values(), default=0)

    def started(of: ScheduleResult) -> int:
        return sum(bool(one.placed) and priority.get(one.job) == top for one in of.jobs)

    alone = started(question.asked(PLENTY, alone=True))
    for budget in case["budgets"]:
        together = started(question.asked(budget))
        if together < alone:
            yield f"budget {budget}: {together} gangs of priority {top} start, one by one {alone}"


def _priorities(case: Case) -> dict[str, int]:
    found = {}
    for one in case["objects"]:
        if one["kind"] == "Pod" and not one["spec"].get("nodeName"):
            gang = one["metadata"]["annotations"].get(f"{_GANG}name", "")
            found[f"default/{gang}"] = one["spec"]["priority"]
    return found


# -- small worlds --------------------------------------------------------------------------------------------


def _nodes(chance: random.Random, count: int) -> list[Object]:
    made = []
    for number in range(count):
        block = chance.randint(0, 3)
        labels = {"net/spine": f"s{block // 2}", "net/block": f"b{block}"}
        room = {"cpu": f"{chance.randint(1, 4) * 1000}m", "memory": str(2**33), "pods": "10"}
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{number}", "labels": labels},
                "spec": {},
                "status": {"allocatable": room},
            }
        )
    return made


def _pod(name: str, cpu: int, priority: int, **spec: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": {}},
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{cpu}m"}}}],
            "priority": priority,
            **spec,
        },
        "status": {},
    }


def _running(chance: random.Random, nodes: list[Object], count: int) -> list[Object]:
    """Pods where there is room for them."""
    free = {
        one["metadata"]["name"]: int(one["status"]["allocatable"]["cpu"].removesuffix("m")) for one in nodes
    }
    made = []
    for number in range(count):
        name, cpu = chance.choice(sorted(free)), chance.choice((500, 1000, 1000, 2000))
        if free[name] >= cpu:
            free[name] -= cpu
            made.append(_pod(f"r{number}", cpu, chance.choice((-5, 0, 0, 10, 50)), nodeName=name))
    return made


def _gang(name: str, size: int, cpu: int, least: int, priority: int, spec: str) -> list[Object]:
    made = []
    for number in range(size):
        one = _pod(f"{name}-{number}", cpu, priority)
        one["metadata"]["annotations"] = {f"{_GANG}name": name, f"{_GANG}min-available": str(least)}
        if spec:
            one["metadata"]["annotations"][f"{_GANG}network-topology-spec"] = spec
        made.append(one)
    return made


def _spec(chance: random.Random) -> str:
    layers = ["SpineLayer", "BlockLayer", "NodeTopologyLayer"]
    chosen = [layer for layer in layers if chance.random() < 0.5] or ["BlockLayer"]
    chance.shuffle(chosen)
    rules = [
        {"layer": one, "strategy": chance.choice(("PreferGather", "PreferGather", "MustGather"))}
        for one in chosen
    ]
    return json.dumps({"gatherStrategy": rules})
