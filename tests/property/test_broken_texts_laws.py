"""What one object says wrongly hurts that object alone, whatever key it stands under (ruling 25)."""

from __future__ import annotations

import copy
import importlib
import pkgutil
import re
from typing import Any, Final

from hypothesis import given, settings, strategies as st

from koordcore import Bound, Policy, PreemptionRules, protocol as protocols, schedule, verify
from koordcore.explaining.pod import explain
from koordcore.manifests import snapshot_from_objects
from koordcore.model.policy import GangTurns, PluginSetting
from tests.scheduling.test_numa import node, pod

GROUP: Final = "gang.scheduling.koordinator.sh/"
QUOTA: Final = "quota.scheduling.koordinator.sh/"


def keys_read() -> list[str]:
    """Every key of a label or annotation that the package's room for texts knows."""
    found = {"alibabacloud.com/gpu-index", "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count"}
    for module in pkgutil.iter_modules(protocols.__path__, protocols.__name__ + "."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, str) and re.fullmatch(r"[a-z0-9.-]+\.[a-z]+/[A-Za-z0-9._-]+", value):
                found.add(value)
    return sorted(found)


KEYS: Final = keys_read()
VALUES: Final = (
    *("", " ", "{", "[", "null", "1", "-1", "0", "true", '"x"', "[]", "{}", "[1]", '[{"a": 1}]', '{"a": []}'),
    *(
        "NaN",
        "1e400",
        "9" * 30,
        "9" * 5000,
        "-" + "9" * 5000,
        "0-",
        "0-9999999999",
        "3-1",
        "\x1b[31m",
        "\u0663",
    ),
    *('{"cpuset": 5}', '{"cpuset": "0-\u0663"}', '{"gpu": {}}', '{"gpu": [{"minor": -1}]}', '{"gpu": null}'),
    *(
        '{"resources": {"cpu": "x"}}',
        '{"resources": 3}',
        '{"name": 1}',
        '{"numaTopologyPolicy": 1}',
        "x" * 300,
    ),
    *(
        '{"preferredCPUBindPolicy": []}',
        '{"gather": 1}',
        '{"gatherStrategy": [{"layer": 1}]}',
        "default/none",
    ),
    *('{"numaNodeResources": [{"node": 99999999999, "resources": {"cpu": "1"}}]}', '{"deviceTypes": 1}'),
    '{"requiredDuringSchedulingIgnoredDuringExecution": {"reservationSelectorTerms": [{}]}}',
    '{"reservationSelector": {"a": 1}}',
)


def named(kind: str, name: str, api: str, **rest: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": "default"}, **rest}


def world() -> list[dict[str, Any]]:
    """Something of everything whose texts are read while pods are placed."""
    held = pod("held", 2, annotations={"scheduling.koordinator.sh/resource-status": '{"cpuset": "0-1"}'})
    held["spec"]["nodeName"] = "n"
    low = pod("low", 1, bound=False, labels={QUOTA + "name": "q"})
    low["spec"] |= {"nodeName": "m", "priority": 1}
    gang = {GROUP + "name": "g", GROUP + "min-available": "2"}
    template = {"spec": pod("t", 1, bound=False)["spec"]}
    owners = [{"labelSelector": {"matchLabels": {"app": "owner"}}}]
    group = "scheduling.sigs.k8s.io/v1alpha1"
    ours = "scheduling.koordinator.sh/v1alpha1"
    amounts = {"cpu": "100", "memory": "100Gi", "koordinator.sh/gpu-core": "1000"}
    spec = {"template": template, "owners": owners, "ttl": "24h"}
    return [
        *node("k"),
        *node("room"),
        *node("m", cards=(0, 1)),
        *node("n", policy="SingleNUMANode", cards=(0, 1)),
        held,
        low,
        pod("cpus", 2, annotations={"scheduling.koordinator.sh/resource-spec": "{}"}),
        pod("card", 1, gpus=1, bound=False, labels={QUOTA + "name": "q"}),
        pod("user", 1, bound=False, labels={"app": "owner"}),
        pod("big", 7, gpus=2, bound=False),
        pod("g-0", 1, bound=False, annotations=gang),
        pod("g-1", 1, bound=False, annotations=gang),
        pod("h-0", 1, bound=False, labels={"pod-group.scheduling.sigs.k8s.io/name": "h"}),
        named("PodGroup", "h", group, spec={"minMember": 1}),
        named("ElasticQuota", "q", group, spec={"min": amounts, "max": amounts}),
        named("Reservation", "waiting", ours, spec=spec),
        named("Reservation", "open", ours, spec=spec, status={"phase": "Available", "nodeName": "k"}),
    ]


WORLD: Final = world()
GOOD: Final = pod("zz-good", 1, bound=False)
POLICIES: Final = (
    Policy(),
    Policy(gangs=GangTurns.TOGETHER),
    Policy().with_plugin(PluginSetting(name="LoadAwareScheduling")),
)


@settings(max_examples=10)
@given(
    st.integers(0, len(WORLD) - 1),
    st.sampled_from(["annotations", "labels"]),
    st.sampled_from(KEYS),
    st.sampled_from(VALUES),
    st.sampled_from(POLICIES),
    st.booleans(),
)
def test_a_broken_text_hurts_its_object_alone(
    subject: int, place: str, key: str, value: str, policy: Policy, preempting: bool
) -> None:
    objects = copy.deepcopy(WORLD)
    metadata = objects[subject]["metadata"]
    metadata[place] = {**metadata.get(place, {}), key: value}
    snapshot = snapshot_from_objects([*objects, GOOD]).snapshot
    result = schedule(snapshot, policy=policy, preempt=PreemptionRules() if preempting else None)
    decisions = {one.pod.name: one for one in result.decisions}
    assert isinstance(decisions["zz-good"], Bound)
    assert verify(snapshot, result) == ()
    for waiting in snapshot.pending:
        explain(snapshot, waiting, policy=policy)
