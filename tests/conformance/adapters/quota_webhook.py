"""Adapters of the webhook's subjects: ``quota.validate``, ``quota.evaluate``, ``quota.profile``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from koordcore.errors import ManifestError
from koordcore.model.nodes import Node
from koordcore.model.selectors import NOTHING
from koordcore.protocol.exact import ExactList, amounts_of
from koordcore.protocol.fields import load_json
from koordcore.protocol.quota import (
    CHILD_REQUEST,
    PREEMPTIBLE,
    TOTAL_RESOURCE,
    TREE_ID,
    UNSCHEDULABLE_RESOURCE,
    QuotaObject,
    quota_object,
    quota_profile_from_object,
    resource_list_annotation,
)
from koordcore.protocol.quota_rules import QuotaTopology, WebhookPolicy
from koordcore.protocol.quota_webhook import (
    Refused,
    create_quota,
    delete_quota,
    fill_quota,
    open_topology,
    refuse_pod,
    refuse_pod_update,
    resolve_quota,
    update_quota,
)
from koordcore.protocol.times import parse_timestamp
from koordcore.quota.evaluate import (
    Granted,
    admit_batch,
    evaluate_creation,
    evaluated_request,
    replace_resources,
    retry_budget,
)
from koordcore.quota.profile import add_tree_affinity, reconcile_profile, tree_id_of, tree_profile
from tests.conformance.adapters.quota import Json, plain, pods_of, resources
from tests.conformance.core import Case, Missing, Verdict, equality, subject

# --- webhook ----------------------------------------------------------------------------------------------

PARSER_TEXTS = (
    "invalid character",
    "quantities must match",
    "unexpected end of JSON",
    "json: cannot unmarshal",
    "unable to parse quantity",
)


def with_own_parser_texts(expected: Any, seen: Any) -> Any:
    """What a parser says need not be reproduced, only that the request is refused there."""
    if isinstance(expected, Mapping) and isinstance(seen, Mapping):
        return {key: with_own_parser_texts(value, seen.get(key)) for key, value in expected.items()}
    if isinstance(expected, list) and isinstance(seen, list) and len(expected) == len(seen):
        return [with_own_parser_texts(*pair) for pair in zip(expected, seen, strict=True)]
    if isinstance(expected, str) and isinstance(seen, str) and seen:
        starts = [expected.find(text) for text in PARSER_TEXTS if text in expected]
        if starts and seen.startswith(expected[: min(starts)]):
            return seen
    return expected


def but_for_parsers(case: Case, answer: Any) -> tuple[Verdict, str]:
    raw = dict(case.raw)
    if "expect" in raw:
        raw["expect"] = with_own_parser_texts(raw["expect"], answer)
    return equality(attrs.evolve(case, raw=raw), answer)


def webhook_policy(given: Json) -> WebhookPolicy:
    gates = given.get("gates", [])
    return WebhookPolicy(
        guarantee_usage="ElasticQuotaGuaranteeUsage" in gates,
        update_resource_key="ElasticQuotaEnableUpdateResourceKey" in gates,
        support_parent_quota_submit_pod="SupportParentQuotaSubmitPod" in gates,
        disable_default_quota="DisableDefaultQuota" in gates,
    )


def annotations_parsed(annotations: Mapping[str, str]) -> dict[str, object]:
    """Give annotations with those that hold JSON parsed."""
    result: dict[str, object] = {}
    for key, text in annotations.items():
        try:
            result[key] = load_json(text)
        except ManifestError:
            result[key] = text
    return result


@subject("quota.validate", judge=but_for_parsers)
def quota_validate(case: Case) -> Any:
    given = case.input
    request, policy = given["request"], webhook_policy(given)
    topology = open_topology(quota_object(raw) for raw in given.get("quotas", []))
    pods = pods_of({}, given.get("pods", []))
    if request.get("kind") == "Pod":
        return validate_pod(topology, request, policy)
    answer: dict[str, Any] = {}
    outcome: QuotaTopology | Refused
    if request["operation"] == "CREATE":
        filled = fill_quota(topology, quota_object(request["object"]))
        if isinstance(filled, Refused):
            return {"mutateError": filled.message}
        answer["mutated"] = {
            "labels": dict(filled.labels),
            "annotations": annotations_parsed(filled.annotations),
        }
        outcome = create_quota(topology, filled, policy=policy)
    elif request["operation"] == "UPDATE":
        old, new = quota_object(request["oldObject"]), quota_object(request["object"])
        outcome = update_quota(topology, old, new, pods=pods, policy=policy)
    else:
        outcome = delete_quota(topology, request["object"]["metadata"]["name"], pods=pods)
    if isinstance(outcome, Refused):
        return answer | {"error": outcome.message}
    return answer | {
        "error": "",
        "children": {name: sorted(names) for name, names in outcome.children.items() if names},
        "namespaces": dict(outcome.namespaces),
    }


def validate_pod(topology: QuotaTopology, request: Json, policy: WebhookPolicy) -> Any:
    pod = pods_of({}, [request["object"]])[0]
    if request["operation"] == "CREATE":
        refused = refuse_pod(topology, pod, policy=policy)
    else:
        texts = [
            (raw["metadata"].get("labels") or {}).get(PREEMPTIBLE, "")
            for raw in (request["oldObject"], request["object"])
        ]
        refused = refuse_pod_update(topology, pod, preemptible_label=(texts[0], texts[1]), policy=policy)
    return {"error": "" if refused is None else refused.message}


# --- creation-time admission ------------------------------------------------------------------------------

NOW = parse_timestamp("2026-06-01T00:00:00Z")


@subject("quota.evaluate", judge=but_for_parsers)
def quota_evaluate(case: Case) -> Any:
    given = case.input
    match given["mode"]:
        case "retries":
            return {"retries": retry_budget(given["n"], given["maxRetries"])}
        case "batch":
            return evaluate_batch(given)
        case "evaluate":
            return evaluate_one(given)
        case mode:
            raise Missing(mode)


def request_of(raw: Json, gates: Sequence[str]) -> ExactList:
    transform = {"ElasticQuotaEvaluationTransformPod", "ReplaceResourcesTransformer"} <= set(gates)
    return evaluated_request(replace_resources(raw) if transform else raw, now=NOW)


def evaluate_one(given: Json) -> Any:
    gates, operation = given.get("gates", []), given.get("operation", "CREATE")
    quotas = [quota_object(raw) for raw in given["quotas"]]
    topology, policy = open_topology(quotas), webhook_policy(given)
    name = resolve_quota(topology, pods_of({}, [given["pod"]])[0], policy=policy)
    outcome = Granted()
    if "EnableQuotaAdmission" in gates and operation == "CREATE":
        outcome = evaluate_creation(quotas, name, request_of(given["pod"], gates))
    elif {"EnableQuotaAdmission", "EnableQuotaAdmissionOnUpdate"} <= set(gates) and operation == "UPDATE":
        before = resolve_quota(topology, pods_of({}, [given["oldPod"]])[0], policy=policy)
        if before != name:
            outcome = evaluate_creation(quotas, name, request_of(given["pod"], gates))
    if outcome.quota is not None:
        quotas = [outcome.quota if quota.name == name else quota for quota in quotas]
    return {
        "allowed": not outcome.reason,
        "reason": outcome.reason,
        "childRequest": {
            f"{quota.namespace}/{quota.name}": counted(quota)
            for quota in quotas
            if quota.annotations.get(CHILD_REQUEST)
        },
    }


def counted(quota: QuotaObject) -> Any:
    try:
        return plain(amounts_of(resource_list_annotation(quota.annotations, CHILD_REQUEST)))
    except ManifestError:
        return quota.annotations[CHILD_REQUEST]


def evaluate_batch(given: Json) -> Any:
    conflicts = [quota_object(raw) for raw in given.get("conflicts", [])]
    writes: list[dict[str, Any]] = []

    def write(quota: QuotaObject) -> QuotaObject | None:
        found = conflicts.pop(0) if conflicts else None
        writes.append({"childRequest": counted(quota), "ok": found is None})
        return found

    results = admit_batch(
        quota_object(given["quota"]),
        [request_of(raw, []) for raw in given["pods"]],
        write,
        max_retries=given.get("maxRetries", 3),
    )
    return {"results": list(results), "writes": writes}


# --- profiles ---------------------------------------------------------------------------------------------


@subject("quota.profile")
def quota_profile(case: Case) -> Any:
    given = case.input
    match given["mode"]:
        case "reconcile":
            return profile_reconcile(given)
        case "affinity":
            return profile_affinity(given)
        case mode:
            raise Missing(mode)


def node_of(raw: Json) -> Node:
    status = raw.get("status", {})
    ready = [one["status"] == "True" for one in status.get("conditions", []) if one["type"] == "Ready"]
    return Node(
        name=raw["metadata"]["name"],
        labels=raw["metadata"].get("labels") or {},
        allocatable=resources(status.get("allocatable")),
        unschedulable=bool(raw.get("spec", {}).get("unschedulable")),
        ready=any(ready),
    )


def profile_reconcile(given: Json) -> Any:
    raw = given["profile"]
    try:
        profile = quota_profile_from_object(raw)
    except ManifestError as error:
        bare = quota_profile_from_object({"metadata": raw["metadata"]})
        return {
            "error": error.problems[0].message,
            "quota": None,
            "profileLabels": {**bare.labels, TREE_ID: tree_id_of(bare)},
        }
    existing = given.get("quota")
    kept = {} if existing is None else existing["metadata"]
    root = reconcile_profile(profile, map(node_of, given["nodes"]), existing_labels=kept.get("labels") or {})
    annotations: dict[str, Any] = dict(kept.get("annotations") or {})
    annotations |= {TOTAL_RESOURCE: plain(root.total), UNSCHEDULABLE_RESOURCE: plain(root.unschedulable)}
    return {
        "profileLabels": {**profile.labels, TREE_ID: tree_id_of(profile)},
        "quota": {
            "namespace": root.namespace,
            "name": root.name,
            "labels": dict(root.labels),
            "min": plain(root.min),
            "max": plain(root.max),
            "annotations": annotations,
        },
    }


def profile_affinity(given: Json) -> Any:
    raw = given["pod"]
    after = raw["spec"].get("affinity")
    changed = False
    if "MultiQuotaTree" in given.get("gates", []) and given.get("operation", "CREATE") == "CREATE":
        pod = pods_of({}, [raw])[0]
        profiles = [quota_profile_from_object(one) for one in given["profiles"]]
        topology = open_topology(quota_object(one) for one in given["quotas"])
        profile = tree_profile(topology, profiles, quota=pod.quota, namespace=pod.namespace)
        if profile is not None:
            # A selector of all nodes counts as applied, though there is nothing to add.
            changed = profile.node_selector != NOTHING
            after = add_tree_affinity(after, profile.node_selector)
    return {"changed": changed, "affinity": after}
