"""Adapters of the scheduler's ``quota.*`` subjects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from koordcore.errors import ManifestError
from koordcore.model.cluster import PodDisruptionBudget
from koordcore.model.pods import PreemptionPolicy
from koordcore.model.quotas import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
    QuotaPod,
    QuotaPolicy,
)
from koordcore.model.resources import Resources, total
from koordcore.model.selectors import NOTHING
from koordcore.protocol.exact import amounts_of, parse_exact_list
from koordcore.protocol.quota import elastic_quota_from_object, label_selector_from_object
from koordcore.protocol.quota_args import parse_quota_args
from koordcore.quota.admission import (
    Admitted,
    QuotaCheckKind,
    QuotaRefusal,
    Ungoverned,
    admit,
    limit_of,
    masked_request,
)
from koordcore.quota.ledger import QuotaLedger
from koordcore.quota.opening import open_ledger
from koordcore.quota.overuse import (
    OveruseMonitor,
    monitored_quotas,
    over_used,
    plan_revoke,
    select_revoked,
)
from koordcore.quota.preempt import NoVictims, can_preempt, select_victims, split_by_budgets
from koordcore.quota.status import QuotaStatus
from tests.conformance.core import Case, Missing, Verdict, difference, equality, subject
from tests.reference.quota_objects import quota_pod_from_object, quota_usage_from_object
from tests.reference.quota_preempt import eligible_to_preempt, resource_filter

Json = Mapping[str, Any]
SPECIAL = (DEFAULT_QUOTA, SYSTEM_QUOTA)
"""Built-in quotas without a runtime of their own."""


def policy_of(given: Json) -> QuotaPolicy:
    return parse_quota_args(given.get("args", {}), gates=given.get("gates", []))


def resources(raw: Any) -> Resources:
    return amounts_of(parse_exact_list(raw))


def total_of(given: Json) -> Resources:
    if "nodes" not in given:
        return resources(given.get("total"))
    nodes = [node for node in given["nodes"] if not node["metadata"].get("deletionTimestamp")]
    return total(resources(node.get("status", {}).get("allocatable")) for node in nodes)


def quotas_of(objects: Sequence[Json]) -> list[ElasticQuota]:
    return [elastic_quota_from_object(raw)[0] for raw in objects]


def pods_of(given: Json, objects: Sequence[Json]) -> list[QuotaPod]:
    gates = given.get("gates", [])
    pods = [
        quota_pod_from_object(raw, overhead="ElasticQuotaIgnorePodOverhead" not in gates) for raw in objects
    ]
    return [pod for pod, raw in zip(pods, objects, strict=True) if not ignored(raw, gates)]


def ignored(raw: Json, gates: Sequence[str]) -> bool:
    deleted = raw["metadata"].get("deletionTimestamp")
    if deleted is None:
        return False
    # The clock stands anywhere between 2021 and 2199.
    past = deleted < "2100"
    return "ElasticQuotaImmediateIgnoreTerminatingPod" in gates or (
        "ElasticQuotaIgnoreTerminatingPod" in gates and past
    )


def ledger_of(given: Json) -> QuotaLedger:
    return open_ledger(
        quotas_of(given.get("quotas", [])),
        total=total_of(given),
        policy=policy_of(given),
        pods=pods_of(given, given.get("pods", [])),
        usage={name: quota_usage_from_object(raw) for name, raw in given.get("usage", {}).items()},
    )


def as_int64(amount: int) -> int:
    """The files hold 64-bit integers; what is beyond them wraps."""
    return (amount + 2**63) % 2**64 - 2**63


def plain(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: as_int64(amount) for name, amount in amounts.items()}


def described(status: QuotaStatus, given: Json) -> dict[str, Any]:
    answer: dict[str, Any] = {"runtime": plain(status.runtime or {})}
    parts = {
        "request": status.request,
        "childRequest": status.child_request,
        "limitRequest": status.limit_request,
        "scaledMin": status.scaled_min,
        "used": status.used,
        "guaranteed": status.guaranteed,
        "allocated": status.allocated,
        "nonPreemptibleRequest": status.non_preemptible_request,
        "nonPreemptibleUsed": status.non_preemptible_used,
    }
    for name, amounts in parts.items():
        kept = {key: amount for key, amount in plain(amounts).items() if amount}
        if kept:
            answer[name] = kept
    if status.tree:
        answer["tree"] = status.tree
    return answer


def state_of(given: Json) -> dict[str, Any]:
    ledger = ledger_of(given)
    statuses = ledger.statuses()
    attached = {name: one for name, one in statuses.items() if one.runtime is not None}
    return {
        "pools": {tree: plain(ledger.pool_of(tree)) for tree in ledger.trees},
        "quotas": {name: described(one, given) for name, one in attached.items()},
    }


@subject("quota.runtime")
def quota_runtime(case: Case) -> Any:
    given = dict(case.input)
    if "steps" not in given:
        return state_of(given)
    answers = []
    for step in given.pop("steps"):
        quotas = list(given.get("quotas", []))
        usage = dict(given.get("usage", {}))
        match step["op"]:
            case "apply":
                name = step["quota"]["metadata"]["name"]
                quotas = [raw for raw in quotas if raw["metadata"]["name"] != name] + [step["quota"]]
            case "delete":
                quotas = [raw for raw in quotas if raw["metadata"]["name"] != step["name"]]
                usage.pop(step["name"], None)
            case "usage":
                usage[step["name"]] = step["usage"]
            case "total":
                given["total"] = step["total"]
            case other:
                raise Missing(f"step {other}")
        given |= {"quotas": quotas, "usage": usage}
        answers.append(state_of(given))
    return {"steps": answers}


@subject("quota.admission")
def quota_admission(case: Case) -> Any:
    given = case.input
    ledger = ledger_of(given)
    pod = pods_of(given, [given["pod"]])[0]
    if given.get("mode") != "untracked":
        ledger = ledger.track(attrs.evolve(pod, node=""))
    outcome = admit(ledger, pod)
    name = ledger.resolve(pod) or ""
    answer: dict[str, Any] = {"quota": name, "tree": ledger.tree_of(name), "message": ""}
    if isinstance(outcome, Ungoverned):
        return answer | {"code": "Skip"}
    return answer | outcome_of(ledger, name, pod, outcome)


def outcome_of(
    ledger: QuotaLedger, name: str, pod: QuotaPod, outcome: Admitted | QuotaRefusal
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "code": "Success",
        "request": plain(masked_request(ledger, name, pod)),
        "used": plain({} if name == ROOT_QUOTA else ledger.used_of(name)),
    }
    if name not in SPECIAL or not ledger.policy.enable_runtime_quota:
        stored = ledger.handed_to(name) if ledger.policy.enable_runtime_quota else None
        answer["limit"] = plain(limit_of(ledger, name) if stored is None else stored)
    held = plain(ledger.status(name).non_preemptible_used)
    if held:
        answer["nonPreemptibleUsed"] = held
    if isinstance(outcome, QuotaRefusal):
        answer |= {
            "code": "Error" if outcome.kind is QuotaCheckKind.ERROR else "Unschedulable",
            "kind": str(outcome.kind),
            "message": outcome.message,
        }
        if outcome.exceeded:
            answer["exceeded"] = list(outcome.exceeded)
    return answer


# --- overuse ----------------------------------------------------------------------------------------------


def names_of(pods: Sequence[QuotaPod]) -> list[str]:
    return [str(pod.key) for pod in pods]


BEFORE = ("used", "limit", "preFilter")
"""What an answer tells of the state before anything is chosen, which no ruling touches."""


def given_only(case: Case, answer: Any) -> tuple[Verdict, str]:
    """A derived answer gives only the fields that are beyond doubt; the reference's are right elsewhere."""
    expected = case.raw.get("expect")
    if not case.raw.get("derived") or not isinstance(expected, Mapping):
        return equality(case, answer)
    known = {key: one for key, one in case.raw.get("upstream", {}).items() if key in BEFORE} | dict(expected)
    report = difference(known, {key: one for key, one in answer.items() if key in known or key in BEFORE})
    if not report and "victims" in answer and case.input.get("mode") == "victims":
        told = _told_of(case, answer)
        report = difference(told, {key: answer.get(key) for key in told})
    return (Verdict.WRONG, report) if report else (Verdict.EQUAL, "")


def _told_of(case: Case, answer: Any) -> Json:
    """What follows from the victims: whether there are any, and how many of them budgets would spare."""
    chosen = [
        raw
        for raw in case.input["pods"]
        if f"{raw['metadata']['namespace']}/{raw['metadata']['name']}" in answer["victims"]
    ]
    pods = {str(pod.key): pod for pod in pods_of(case.input, chosen)}
    budgets = [budget_of(raw) for raw in case.input.get("pdbs", [])]
    violating, _ = split_by_budgets([pods[name] for name in answer["victims"]], budgets)
    if not answer["victims"]:
        return {"violating": 0}
    return {"code": "Success", "message": "", "violating": len(violating), "quotaFitsAfterAll": True}


@subject("quota.revoke", judge=given_only)
def quota_revoke(case: Case) -> Any:
    given = case.input
    match given["mode"]:
        case "select":
            return revoke_select(given)
        case "trigger":
            return revoke_trigger(given)
        case "monitorAll":
            return revoke_all(given)
        case mode:
            raise Missing(mode)


def revoke_select(given: Json) -> Any:
    quota = elastic_quota_from_object(given["quota"])[0]
    pods = [pod for pod in pods_of(given, given["pods"]) if pod.assigned]
    ledger = open_ledger([quota], total={}, pods=[attrs.evolve(pod, quota=quota.name) for pod in pods])
    used, runtime = ledger.used_of(quota.name), resources(given["runtime"])
    over = bool(over_used(used, runtime))
    requests = [(pod, masked_request(ledger, quota.name, pod)) for pod in pods]
    victims = select_revoked(used, runtime, requests) if over else ()
    return {"used": plain(used), "over": over, "victims": names_of(victims)}


def revoke_trigger(given: Json) -> Any:
    monitor, samples = OveruseMonitor(nanoseconds(given["start"])), []
    for sample in given["samples"]:
        over = bool(over_used(resources(sample["used"]), resources(sample["runtime"])))
        monitor, trigger = monitor.observe(
            nanoseconds(sample["time"]), over=over, delay=nanoseconds(given["delaySeconds"])
        )
        samples.append({"time": sample["time"], "trigger": trigger, "lastUnder": monitor.last_under / 10**9})
    return {"samples": samples}


def nanoseconds(seconds: float) -> int:
    return round(seconds * 10**9)


def revoke_all(given: Json) -> Any:
    ledger = ledger_of(given)
    now = nanoseconds(given["elapsedSeconds"])
    names = [
        name for name in monitored_quotas(ledger) if name != DEFAULT_QUOTA or ledger.used_of(DEFAULT_QUOTA)
    ]
    plan = plan_revoke(
        ledger, pods_of(given, given["pods"]), {name: OveruseMonitor(0) for name in names}, now=now
    )
    return {
        "quotas": {
            name: {"used": plain(ledger.used_of(name)), "runtime": plain(ledger.runtime_of(name) or {})}
            for name in names
        },
        "triggered": {name: names_of(victims) for name, victims in plan.victims.items()},
    }


# --- preemption -------------------------------------------------------------------------------------------


@subject("quota.preempt", judge=given_only)
def quota_preempt(case: Case) -> Any:
    given = case.input
    match given["mode"]:
        case "canPreempt":
            ledger = ledger_of({"quotas": given["quotas"], "args": given.get("args", {}), **gates_of(given)})
            pod, victim = pods_of(given, [given["pod"], given["victim"]])
            return {"canPreempt": can_preempt(ledger, pod, victim)}
        case "eligible":
            return preempt_eligible(given)
        case "pdb":
            budgets = [budget_of(raw) for raw in given.get("pdbs", [])]
            violating, others = split_by_budgets(pods_of(given, given["pods"]), budgets)
            return {"violating": names_of(violating), "nonViolating": names_of(others)}
        case "victims":
            return preempt_victims(given)
        case mode:
            raise Missing(mode)


def gates_of(given: Json) -> dict[str, Any]:
    return {"gates": given.get("gates", [])}


def budget_of(raw: Json) -> PodDisruptionBudget:
    status = raw.get("status", {})
    try:
        selector = label_selector_from_object(raw.get("spec", {}).get("selector"))
    except ManifestError:
        selector = NOTHING
    return PodDisruptionBudget(
        name=raw["metadata"]["name"],
        namespace=raw["metadata"].get("namespace", ""),
        selector=selector,
        disruptions_allowed=status.get("disruptionsAllowed", 0),
        disrupted_pods=tuple(sorted(status.get("disruptedPods") or {})),
    )


def preempt_eligible(given: Json) -> Any:
    ledger = ledger_of({"quotas": given["quotas"], "args": given.get("args", {}), **gates_of(given)})
    raw = given["pod"]
    nominated = raw.get("status", {}).get("nominatedNodeName", "")
    hopeless = given.get("nominatedNodeStatus") == "UnschedulableAndUnresolvable"
    message = eligible_to_preempt(
        ledger,
        pods_of(given, [raw])[0],
        policy=PreemptionPolicy(raw["spec"].get("preemptionPolicy", "PreemptLowerPriority")),
        nominated=[
            pod
            for pod in pods_of(given, given.get("pods", []))
            if nominated and not hopeless and pod.node == nominated
        ],
    )
    return {"eligible": not message, "message": message}


def preempt_victims(given: Json) -> Any:
    pod = pods_of(given, [given["pod"]])[0]
    ledger = ledger_of(given).track(pod)
    name = ledger.resolve(pod) or ""
    answer: dict[str, Any] = {"used": plain(ledger.used_of(name))}
    if "runtime" in given:
        ledger = ledger.with_runtimes({name: resources(given["runtime"])})
    else:
        outcome = admit(ledger, pod)
        refused = isinstance(outcome, QuotaRefusal)
        answer["preFilter"] = {
            "code": "Unschedulable" if refused else "Success",
            "message": outcome.message if isinstance(outcome, QuotaRefusal) else "",
        }
    stored = ledger.runtime_of(name) if ledger.policy.enable_runtime_quota else ledger.max_of(name)
    answer["limit"] = plain(stored or {})
    node = given["node"]["metadata"]["name"]
    on_node = [other for other in pods_of(given, given["pods"]) if other.node == node]
    emptied = ledger
    for other in on_node:
        if can_preempt(ledger, pod, other):
            emptied = emptied.forget(other)
    answer["quotaFitsAfterAll"] = not isinstance(admit(emptied, pod), QuotaRefusal)
    allocatable = resources(given["node"].get("status", {}).get("allocatable"))
    found = select_victims(
        ledger,
        pod,
        node=node,
        on_node=on_node,
        budgets=[budget_of(raw) for raw in given.get("pdbs", [])],
        refuse=resource_filter(allocatable, pod) if given.get("filter") == "resources" else lambda _: "",
    )
    if isinstance(found, NoVictims):
        code = "Unschedulable" if found.resolvable else "UnschedulableAndUnresolvable"
        return answer | {"code": code, "message": found.message, "victims": [], "violating": 0}
    return answer | {
        "code": "Success",
        "message": "",
        "victims": names_of(found.victims),
        "violating": found.violating,
    }
