"""Subjects ``rebalance.*``: arguments, order, fit, detectors."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping
from typing import Any, Final

from koordcore.descheduling import args as validation
from koordcore.descheduling.anomaly import Detector, Detectors
from koordcore.descheduling.classify import PoolLoad, classify_pool
from koordcore.descheduling.evict import CycleEvictor, LowNodeLoadState, balance_low_node_load
from koordcore.descheduling.load_problem import problem_of_load
from koordcore.descheduling.migration.filter import MigrationFilter, evictability
from koordcore.descheduling.nodefit import Fit
from koordcore.descheduling.plan import plan_rebalance
from koordcore.descheduling.sort import node_usage_score, pod_usage_score, sort_pods
from koordcore.errors import ManifestError
from koordcore.manifests import node_from_manifest
from koordcore.model.durations import MILLISECOND, SECOND
from koordcore.model.metrics import rounded
from koordcore.model.rebalance import AnomalyCondition, NodePool
from koordcore.model.resources import parse_resources
from koordcore.protocol import rebalance as wire
from koordcore.protocol.load import raw_allocatable
from koordcore.protocol.node_metric import parse_node_metric
from koordcore.protocol.selectors import as_node_selector
from koordcore.protocol.times import parse_timestamp
from tests.conformance.adapters.load import pod_of
from tests.conformance.adapters.migration import filter_of, pods_of
from tests.conformance.core import Case, Verdict, equality, subject
from tests.reference import descheduler_args
from tests.reference.descheduler_rounds import (
    balance_fragmentation,
    imbalance_gains,
    scale_down_bin_pack,
    sort_nodes,
)

PLUGINS: Final = {
    "LowNodeLoadArgs": (wire.default_low_node_load, validation.low_node_load_problems),
    "MigrationControllerArgs": (wire.default_migration_controller, validation.migration_controller_problems),
    "FragmentationAwareArgs": (
        descheduler_args.default_fragmentation_aware,
        descheduler_args.fragmentation_aware_problems,
    ),
    "ScaleDownBinPackArgs": (
        descheduler_args.default_scale_down_bin_pack,
        descheduler_args.scale_down_bin_pack_problems,
    ),
}


def judge_args(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Compare; of an error of decoding only that there is one, of a selector's error path and reason."""
    expected = case.raw.get("expect") or {}
    if "decodeError" in expected:
        refused = answer == {"decodeError": True}
        return (Verdict.EQUAL, "") if refused else (Verdict.WRONG, "decoded")
    if expected.get("errors") and answer.get("errors"):
        answer = {**answer, "errors": sorted(map(shortened, answer["errors"]))}
        expected = {**expected, "errors": sorted(map(shortened, expected["errors"]))}
        case = Case(
            case.subject, case.id, case.why, case.input, {**case.raw, "expect": expected}, case.tables
        )
    return equality(case, answer)


def shortened(error: str) -> str:
    return re.sub(r": Invalid value: \{.*\}: ", ": Invalid value: …: ", error)


@subject("rebalance.args", judge=judge_args)
def arguments(case: Case) -> Any:
    default, problems = PLUGINS[case.input["kind"]]
    try:
        defaulted = default(case.input["args"])
    except ManifestError:
        return {"decodeError": True}
    answer = {"defaulted": defaulted, "errors": list(problems(defaulted)) or None}
    if case.input["kind"] == "LowNodeLoadArgs":
        blocks = [defaulted, *defaulted.get("nodePools", ())]
        pools = wire.low_node_load_args(case.input["args"]).pools
        answer["pools"] = [pool_answer(pool, block) for pool, block in zip(pools, blocks, strict=True)]
    return answer


def pool_answer(pool: NodePool, block: Mapping[str, Any]) -> Any:
    condition = pool.anomaly
    return {
        "name": pool.name,
        "nodeSelector": block.get("nodeSelector"),
        "useDeviationThresholds": pool.deviation,
        "highThresholds": table(pool.high),
        "lowThresholds": table(pool.low),
        "prodHighThresholds": table(pool.prod_high),
        "prodLowThresholds": table(pool.prod_low),
        "resourceWeights": table(pool.weights),
        "anomalyCondition": condition
        and {
            "timeoutSeconds": condition.timeout / SECOND,
            "consecutiveAbnormalities": condition.consecutive_abnormalities,
            "consecutiveNormalities": condition.consecutive_normalities,
        },
    }


def table(values: Mapping[str, float] | None) -> Any:
    return None if values is None else dict(values)


def judge_sort(case: Case, answer: Any) -> tuple[Verdict, str]:
    expected = case.raw["expect"]
    if set(answer) != {"order", "score"} or set(answer["score"]) != set(expected.get("score") or ()):
        return Verdict.WRONG, f"scores of others: {answer}"
    for key, score in (expected.get("score") or {}).items():
        if abs(answer["score"][key] - score) > 1e-9 * max(1.0, abs(score)):
            return Verdict.WRONG, f"score of {key}: expected {score}, got {answer['score'][key]}"
    same = expected["order"] == answer["order"]
    return (Verdict.EQUAL, "") if same else (Verdict.WRONG, f"{expected['order']} != {answer['order']}")


@subject("rebalance.sort", judge=judge_sort)
def order(case: Case) -> Any:
    given = case.input
    if given["kind"] in ("nodes", "prodNodes"):
        usage = {name: parse_resources(one) for name, one in given["usage"].items()}
        nodes = [node_from_manifest(raw) for raw in given["nodes"]]
        score = {
            node.name: node_usage_score(usage[node.name], raw_allocatable(node), given["resourceWeights"])
            for node in nodes
        }
        sign = -1 if given.get("ascending") else 1
        ordered = sort_nodes(nodes, lambda node: sign * score[node.name])
        return {"order": [node.name for node in ordered], "score": score}
    pods = [pod_of(raw) for raw in given["pods"]]
    if given["kind"] == "podsWithoutUsage":
        return {"order": [str(pod.key) for pod in sort_pods(pods)], "score": {}}
    excess, weights = parse_resources(given["excess"]), given["resourceWeights"]
    used = {key: parse_resources(one) for key, one in given["usage"].items()}
    usage_of = {(pod.namespace, pod.name): used[str(pod.key)] for pod in pods if str(pod.key) in used}
    sorted_pods = sort_pods(pods, usage=usage_of, excess=excess, weights=weights)
    return {
        "order": [str(pod.key) for pod in sorted_pods],
        "score": {key: pod_usage_score(one, excess, weights) for key, one in used.items()},
    }


def without_broken_terms(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Empty the node selector terms that the loader refuses; upstream lets such a term match nothing."""
    affinity = (raw.get("spec") or {}).get("affinity") or {}
    node = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if node is None:
        return raw
    raw = copy.deepcopy(dict(raw))
    required = raw["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    required["nodeSelectorTerms"] = [one if readable(one) else {} for one in required["nodeSelectorTerms"]]
    return raw


def readable(term: Mapping[str, Any]) -> bool:
    try:
        as_node_selector({"nodeSelectorTerms": [term]})
    except ManifestError:
        return False
    return True


@subject("rebalance.nodefit")
def nodefit(case: Case) -> Any:
    given = case.input
    pod = pod_of(without_broken_terms(given["pod"]))
    fit = Fit(map(node_from_manifest, given["nodes"]), map(pod_of, given.get("pods") or []))
    found = {name: sorted(fit.failures(pod, name)) for name in fit.nodes}
    fitting = {name for name, failures in found.items() if not failures}
    return {
        "nodes": found,
        "fitsAnyOtherNode": bool(fitting - {pod.node_name}),
        "fitsAnyNode": bool(fitting),
    }


@subject("rebalance.anomaly")
def anomaly(case: Case) -> Any:
    given = case.input
    return detector_steps(given) if "steps" in given else detector_rounds(given)


def detector_steps(given: Mapping[str, Any]) -> Any:
    default = AnomalyCondition()
    condition = AnomalyCondition(
        int(given.get("timeoutSeconds", 60) * SECOND),
        given.get("consecutiveAbnormalities", default.consecutive_abnormalities),
        given.get("consecutiveNormalities", default.consecutive_normalities),
    )
    detector, answers = Detector(condition=condition), []
    for step in given["steps"]:
        now = step["atMs"] * MILLISECOND
        match step["op"]:
            case "abnormal":
                detector = detector.seen(abnormal=True, now=now)
            case "normal":
                detector = detector.seen(abnormal=False, now=now)
            case "reset":
                detector = detector.reset(now)
            case _:
                detector = detector.at(now)
        answers.append([str(detector.state), detector.abnormal, detector.normal])
    return answers


def detector_rounds(given: Mapping[str, Any]) -> Any:
    state, answers = LowNodeLoadState(), []
    for one in given["rounds"]:
        evicted, state = balance({**given, **one}, state)
        answers.append(
            {
                "evicted": [str(eviction.pod.key) for eviction in evicted],
                "detectors": {"node": live(state.node, given, one), "prod": live(state.prod, given, one)},
            }
        )
    return answers


def live(detectors: Detectors, given: Mapping[str, Any], one: Mapping[str, Any]) -> Any:
    now = parse_timestamp(one["now"])
    timeout = wire.low_node_load_args(given["args"]).detector_cache_timeout
    return {
        # The counters are read before the state, which an anomaly that ran out changes.
        name: {"state": str(one.at(now).state), "abnormal": one.abnormal, "normal": one.normal}
        for name, one in detectors.live(now, timeout).by_node.items()
    }


def evictor_of(given: Mapping[str, Any]) -> CycleEvictor:
    evictor = given.get("evictor") or {}
    limits = wire.parse_eviction_limits(given.get("limits") or {})
    if evictor.get("kind") == "migration":
        return CycleEvictor(migration_rules(given, evictor), limits, frozenset(evictor.get("refuse") or ()))
    flags = dict(evictor)
    if isinstance(flags.get("priorityThreshold"), int):
        flags["priorityThreshold"] = {"value": flags["priorityThreshold"]}
    return CycleEvictor(wire.parse_evictor_args(flags), limits, frozenset(flags.get("refuse") or ()))


def migration_rules(given: Mapping[str, Any], evictor: Mapping[str, Any]) -> MigrationFilter:
    return filter_of({**given, "args": evictor.get("args") or {}}, pods_of(given))


def balance(given: Mapping[str, Any], state: LowNodeLoadState) -> Any:
    metrics = {metric.node: metric for metric in map(parse_node_metric, given["nodeMetrics"])}
    return balance_low_node_load(
        [node_from_manifest(raw) for raw in given["nodes"]],
        [pod_of(raw) for raw in given["pods"]],
        metrics,
        wire.low_node_load_args(given["args"]),
        now=parse_timestamp(given["now"]),
        evictor=evictor_of(given),
        state=state,
    )


@subject("rebalance.evict_plan")
def evict_plan(case: Case) -> Any:
    given = case.input
    problems = validation.low_node_load_problems(wire.default_low_node_load(given["args"]))
    if problems:
        text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        return {"error": f'initializing plugin "LowNodeLoad": {text}'}
    evicted, _ = balance(given, LowNodeLoadState())
    if given["args"].get("dryRun") or given.get("frameworkDryRun"):
        return {"evicted": [], "dryRun": [str(one.pod.key) for one in evicted]}
    return {"evicted": [{"pod": str(one.pod.key), "node": one.node, "reason": one.reason} for one in evicted]}


@subject("rebalance.classify")
def classify(case: Case) -> Any:
    given = case.input
    problems = validation.low_node_load_problems(wire.default_low_node_load(given["args"]))
    if problems:
        return {"errors": list(problems)}
    args, now = wire.low_node_load_args(given["args"]), parse_timestamp(given["now"])
    nodes = [node_from_manifest(raw) for raw in given["nodes"]]
    metrics = {metric.node: metric for metric in map(parse_node_metric, given["nodeMetrics"])}
    pods: dict[str, list[Any]] = {}
    for pod in map(pod_of, given["pods"]):
        pods.setdefault(pod.node_name or "", []).append(pod)
    pools = (classify_pool(pool, nodes, pods, metrics, args, now) for pool in args.pools)
    return {"pools": [pool_load(one) for one in pools]}


def pool_load(one: PoolLoad) -> Any:
    return {
        "pool": one.pool.name,
        "percent": {
            "high": dict(one.percents.high),
            "low": dict(one.percents.low),
            "prodHigh": dict(one.percents.prod_high),
            "prodLow": dict(one.percents.prod_low),
        },
        "skipped": list(one.skipped),
        "nodes": {
            load.name: {
                "class": str(load.kind),
                "usage": dict(rounded(load.usage)),
                "prodUsage": dict(rounded(load.prod_usage)),
                "low": dict(rounded(load.low)),
                "high": dict(rounded(load.high)),
                "prodLow": dict(rounded(load.prod_low)),
                "prodHigh": dict(rounded(load.prod_high)),
            }
            for load in one.loads
        },
    }


def judge_floats(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Compare; floats to a billionth, as scores and gains are."""
    if case.ruled or case.input["kind"] != "score":
        return equality(case, answer)
    expected = case.raw["expect"]
    if set(answer["gain"]) - set(expected["gain"]):
        return Verdict.WRONG, f"gains of others: {sorted(answer['gain'])}"
    pairs = [("std", expected["std"], answer["std"])]
    pairs += [(key, gain, answer["gain"].get(key, -1.0)) for key, gain in expected["gain"].items()]
    for key, left, right in pairs:
        if abs(left - right) > 1e-9:
            return Verdict.WRONG, f"{key}: expected {left}, got {right}"
    return Verdict.EQUAL, ""


@subject("rebalance.fragmentation", judge=judge_floats)
def fragmentation(case: Case) -> Any:
    given = case.input
    pods = [pod_of(raw) for raw in given["pods"]]
    if given["kind"] == "score":
        std, gains = imbalance_gains(node_from_manifest(given["node"]), pods, given["resources"])
        return {"std": std, "gain": {str(pod.key): gain for pod, gain in zip(pods, gains, strict=True)}}
    nodes, evictor = [node_from_manifest(raw) for raw in given["nodes"]], evictor_of(given)
    if given["kind"] == "frag":
        args = descheduler_args.fragmentation_aware_args(given["args"])
        evicted = () if args.dry_run else balance_fragmentation(nodes, pods, args, evictor=evictor)
        return {
            "evicted": [{"pod": str(one.pod.key), "node": one.node, "reason": one.reason} for one in evicted]
        }
    done = scale_down_bin_pack(
        nodes, pods, descheduler_args.scale_down_bin_pack_args(given["args"]), evictor=evictor
    )
    return {
        "ranked": [
            {
                "pod": str(one.pod.key),
                "rank": rank,
                "node": one.node,
                "score": "+Inf" if math.isinf(one.score) else f"{one.score:.12g}",
            }
            for rank, one in enumerate(done.ranked)
        ],
        "deletionCosts": {str(key): cost for key, cost in done.costs.items()},
        "evicted": [str(pod.key) for pod in done.evicted],
    }


def judge_best(case: Case, answer: Any) -> tuple[Verdict, str]:
    """Apply the answer's moves to the case's own objects and compare what comes out with the optimum."""
    problem = reckoned(case.input, answer["moves"])
    if isinstance(problem, str):
        return Verdict.WRONG, problem
    if problem != answer["objective"]:
        return Verdict.WRONG, f"objective {answer['objective']} of a plan that has {problem}"
    expected = case.raw["expect"]["objective"]
    # The expected one is proven: one of checker, case and library errs where a plan beats it.
    same = problem == expected
    if problem[0] == expected[0] > 0 and problem[1] > expected[1]:
        return (
            Verdict.RULED,
            "the node that stays hot is relieved, which is not counted there",
        )
    return (Verdict.EQUAL, "") if same else (Verdict.WRONG, f"objective {problem}, expected {expected}")


def reckoned(given: Mapping[str, Any], moves: list[Mapping[str, str]]) -> list[int] | str:
    """Re-derive the objective with plain sums; a text where the plan is not legal."""
    nodes = {raw["metadata"]["name"]: raw for raw in given["nodes"]}
    pods = {f"{raw['metadata']['namespace']}/{raw['metadata']['name']}": raw for raw in given["pods"]}
    places = {key: raw["spec"].get("nodeName") for key, raw in pods.items()}
    usage_of: dict[str, Any] = {}
    base: dict[str, Any] = {}
    for raw in given["nodeMetrics"]:
        status = raw["status"]
        system = (status.get("nodeMetric") or {}).get("systemUsage") or {}
        base[raw["metadata"]["name"]] = parse_resources(system.get("resources") or {})
        for one in status.get("podsMetric") or []:
            usage_of[f"{one['namespace']}/{one['name']}"] = parse_resources(one["podUsage"]["resources"])
    high = given["args"]["highThresholds"]
    limits = {
        (name, resource): int(
            high[resource] * 0.01 * float(parse_resources(raw["status"]["allocatable"])[resource])
        )
        for name, raw in nodes.items()
        for resource in ("cpu", "memory")
        if resource in high
    }

    def hot() -> set[str]:
        over = set()
        for (name, resource), limit in limits.items():
            used = base.get(name, {}).get(resource, 0)
            used += sum(one.get(resource, 0) for key, one in usage_of.items() if places.get(key) == name)
            if used > limit:
                over.add(name)
        return over

    before = hot()
    for move in moves:
        raw = pods[move["pod"]]
        movable = evictability(pod_of(raw), wire.parse_evictor_args(given.get("evictor") or {})) is None
        if not movable or places[move["pod"]] != move["from"] or move["to"] == move["from"]:
            return f"{move} is not allowed"
        if (nodes[move["to"]].get("spec") or {}).get("unschedulable"):
            return f"{move} goes to a cordoned node"
        places[move["pod"]] = move["to"]
    for name in {move["to"] for move in moves}:
        room = parse_resources(nodes[name]["status"]["allocatable"])
        own = [pod_of(raw) for key, raw in pods.items() if places[key] == name]
        for resource in ("cpu", "memory"):
            if sum(pod.requests.get(resource, 0) for pod in own) > room.get(resource, 0):
                return f"{name} has not enough {resource}"
    after = hot()
    if after - before:
        return f"newly hot: {sorted(after - before)}"
    return [len(after), len(moves)]


@subject("rebalance.best", judge=judge_best)
def best(case: Case) -> Any:
    given = case.input
    args, now = wire.low_node_load_args(given["args"]), parse_timestamp(given["now"])
    problem = problem_of_load(
        [node_from_manifest(raw) for raw in given["nodes"]],
        [pod_of(raw) for raw in given["pods"]],
        {metric.node: metric for metric in map(parse_node_metric, given["nodeMetrics"])},
        args,
        now=now,
        evictor=evictor_of(given),
    )
    plan = plan_rebalance(problem)
    moves = [{"pod": str(one.pod), "from": one.source, "to": one.target} for one in plan.moves]
    return {"objective": [plan.certificate.objective[0], plan.certificate.objective[2]], "moves": moves}
