"""Adapters of the ``quota.*`` subjects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from koordcore.model.quotas import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
    QuotaPod,
    QuotaPolicy,
)
from koordcore.model.resources import Resources, total
from koordcore.protocol.exact import amounts_of, parse_exact_list
from koordcore.protocol.quota import (
    elastic_quota_from_object,
    quota_pod_from_object,
    quota_usage_from_object,
)
from koordcore.quota.admission import (
    Admitted,
    QuotaCheckKind,
    QuotaRefusal,
    Ungoverned,
    admit,
    limit_of,
    masked_request,
)
from koordcore.quota.ledger import QuotaLedger, QuotaStatus, open_ledger
from tests.conformance.core import Case, Missing, subject

Json = Mapping[str, Any]
SPECIAL = (DEFAULT_QUOTA, SYSTEM_QUOTA)
"""Built-in quotas without a runtime of their own."""


def policy_of(given: Json) -> QuotaPolicy:
    args, gates = given.get("args", {}), given.get("gates", [])
    names = {
        "enableRuntimeQuota": "enable_runtime_quota",
        "enableMinQuotaScale": "enable_min_quota_scale",
        "enableCheckParentQuota": "enable_check_parent_quota",
        "disableDefaultQuotaPreemption": "disable_default_quota_preemption",
        "monitorAllQuotas": "monitor_all_quotas",
    }
    fields: dict[str, Any] = {field: args[name] for name, field in names.items() if name in args}
    for name, field in (
        ("defaultQuotaGroupMax", "default_quota_group_max"),
        ("systemQuotaGroupMax", "system_quota_group_max"),
    ):
        if name in args:
            fields[field] = resources(args[name])
    return QuotaPolicy(
        multi_quota_tree="MultiQuotaTree" in gates,
        guarantee_usage="ElasticQuotaGuaranteeUsage" in gates,
        disable_default_quota="DisableDefaultQuota" in gates,
        **fields,
    )


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
        answer["limit"] = plain(limit_of(ledger, name))
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
