"""Random objects as a cluster would hold them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

__all__ = ["dumps", "nodes", "pods"]

NAMES = st.sampled_from(["a", "b", "c"])
AMOUNTS = st.sampled_from(["0", "100m", "1", "1500m", "2Gi", "3k", "0.5", 4, "1e3"])
LISTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi"]), AMOUNTS
)
LABELS = st.dictionaries(NAMES, st.sampled_from(["", "x", "y"]))
TIMES = st.sampled_from(["2024-05-01T10:00:00Z", "2024-05-01T12:00:00.25+02:00"])


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


REQUIREMENTS = st.one_of(
    st.fixed_dictionaries(
        {
            "key": NAMES,
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(NAMES, min_size=1, max_size=2),
        }
    ),
    st.fixed_dictionaries({"key": NAMES, "operator": st.sampled_from(["Exists", "DoesNotExist"])}),
)
SELECTORS = maybe(matchLabels=LABELS, matchExpressions=st.lists(REQUIREMENTS, max_size=2))
NODE_TERMS = maybe(matchExpressions=st.lists(REQUIREMENTS, max_size=2))
POD_TERMS = st.fixed_dictionaries(
    {"topologyKey": NAMES},
    optional={
        "labelSelector": SELECTORS,
        "namespaces": st.lists(NAMES, max_size=2),
        "namespaceSelector": SELECTORS,
        "matchLabelKeys": st.lists(NAMES, max_size=1),
    },
)
WHEN = "DuringSchedulingIgnoredDuringExecution"
NODE_AFFINITY = maybe(
    **{
        f"required{WHEN}": st.fixed_dictionaries({"nodeSelectorTerms": st.lists(NODE_TERMS, max_size=2)}),
        f"preferred{WHEN}": st.lists(
            st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": NODE_TERMS}), max_size=2
        ),
    }
)
POD_AFFINITY = maybe(
    **{
        f"required{WHEN}": st.lists(POD_TERMS, max_size=2),
        f"preferred{WHEN}": st.lists(
            st.fixed_dictionaries({"weight": st.integers(1, 100), "podAffinityTerm": POD_TERMS}), max_size=2
        ),
    }
)
CONTAINERS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={
        "image": NAMES,
        "resources": maybe(requests=LISTS, limits=LISTS),
        "restartPolicy": st.just("Always"),
        "ports": st.lists(
            st.fixed_dictionaries(
                {"containerPort": st.integers(1, 9)},
                optional={"hostPort": st.integers(1, 9), "protocol": st.sampled_from(["TCP", "UDP"])},
            ),
            max_size=2,
        ),
    },
)
SPREAD = st.fixed_dictionaries(
    {
        "maxSkew": st.integers(1, 3),
        "topologyKey": NAMES,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    },
    optional={
        "labelSelector": SELECTORS,
        "minDomains": st.integers(1, 3),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
    },
)
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(CONTAINERS, min_size=1, max_size=2)},
    optional={
        "initContainers": st.lists(CONTAINERS, max_size=2),
        "overhead": LISTS,
        "resources": maybe(requests=LISTS, limits=LISTS),
        "nodeName": st.sampled_from(["n1", "n2", "n9"]),
        "hostNetwork": st.booleans(),
        "priority": st.integers(-5, 5),
        "priorityClassName": st.sampled_from(["high", "unknown"]),
        "preemptionPolicy": st.sampled_from(["Never", "PreemptLowerPriority"]),
        "nodeSelector": LABELS,
        "tolerations": st.lists(
            maybe(
                key=NAMES,
                operator=st.sampled_from(["Exists", "Equal"]),
                value=NAMES,
                effect=st.sampled_from(["", "NoSchedule", "NoExecute"]),
            ),
            max_size=2,
        ),
        "affinity": maybe(nodeAffinity=NODE_AFFINITY, podAffinity=POD_AFFINITY, podAntiAffinity=POD_AFFINITY),
        "topologySpreadConstraints": st.lists(SPREAD, max_size=2),
        "schedulingGates": st.lists(st.fixed_dictionaries({"name": NAMES}), max_size=2),
        "resourceClaims": st.just([{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]),
        "schedulingGroup": st.just({"podGroupName": "train"}),
        "volumes": st.lists(
            st.fixed_dictionaries(
                {"name": NAMES},
                optional={
                    "persistentVolumeClaim": st.just({"claimName": "disk"}),
                    "ephemeral": st.just({}),
                },
            ),
            max_size=2,
        ),
    },
)
STATUSES = maybe(
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
    startTime=TIMES,
    nominatedNodeName=st.just("n1"),
    conditions=st.just(
        [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2024-05-01T10:00:00Z"},
            {"type": "Ready", "status": "True"},
        ]
    ),
    containerStatuses=st.lists(
        st.fixed_dictionaries(
            {"name": NAMES},
            optional={"resources": maybe(requests=LISTS), "allocatedResources": LISTS},
        ),
        max_size=1,
    ),
)


def metadata(names: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"name": names},
        optional={"labels": LABELS, "annotations": LABELS, "uid": NAMES, "creationTimestamp": TIMES},
    )


def pods() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just("v1"),
            "kind": st.just("Pod"),
            "metadata": metadata(NAMES),
            "spec": SPECS,
            "status": STATUSES,
        }
    )


def nodes() -> st.SearchStrategy[dict[str, Any]]:
    taint = st.fixed_dictionaries({"key": NAMES, "effect": st.sampled_from(["NoSchedule", "NoExecute"])})
    return st.fixed_dictionaries(
        {
            "apiVersion": st.just("v1"),
            "kind": st.just("Node"),
            "metadata": metadata(st.sampled_from(["n1", "n2"])),
            "spec": maybe(unschedulable=st.booleans(), taints=st.lists(taint, max_size=2)),
            "status": maybe(
                allocatable=LISTS,
                capacity=LISTS,
                conditions=st.just([{"type": "Ready", "status": "False"}]),
                images=st.just([{"names": ["i@1", "i:1"], "sizeBytes": 5}]),
            ),
        }
    )


def _unique(raw: dict[str, Any]) -> tuple[str, str]:
    return raw["kind"], raw["metadata"]["name"]


def dumps() -> st.SearchStrategy[list[dict[str, Any]]]:
    high = st.just(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 100,
        }
    )
    return st.lists(st.one_of(pods(), nodes(), high), max_size=6, unique_by=_unique)
