"""Random pods: what they ask for, what their place must be like, and what they belong to."""

from __future__ import annotations

import json
import random
from typing import Any, Final, NamedTuple

from campaigns.case import Object

__all__ = ["WHOLE", "Ask", "Wants", "asking", "running"]

WHOLE: Final = 100
_GIB: Final = 2**30
_SPEC: Final = "gang.scheduling.koordinator.sh/network-topology-spec"
_WHEN: Final = "DuringSchedulingIgnoredDuringExecution"


class Ask(NamedTuple):
    """Amounts, and the cards and CPUs behind them.

    Parameters
    ----------
    requests
        Milli-CPU, bytes, counts.
    cards, percent
        Cards, and how much of each; 0 for none.
    bound_cpus
        CPUs of its own; 0 for none.
    """

    requests: dict[str, int]
    cards: int = 0
    percent: int = 0
    bound_cpus: int = 0


def asking(chance: random.Random, *, cards: bool, cpus: bool) -> Ask:
    """Draw amounts."""
    requests = {"cpu": chance.choice((0, 100, 500, 1000, 1500, 2000, 4000))}
    requests["memory"] = chance.choice((0, 1, 1, 2, 4)) * _GIB // chance.choice((1, 2))
    requests = {key: amount for key, amount in requests.items() if amount}
    count = percent = bound = 0
    if cards and chance.random() < 0.5:
        count, percent = chance.choice(((1, 100), (1, 100), (2, 100), (4, 100), (1, 50), (1, 20)))
        for name in ("koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"):
            requests[name] = count * percent
    if cpus and not count and chance.random() < 0.4:
        bound = chance.choice((2, 2, 4))
        requests["cpu"] = bound * 1000
    return Ask(requests, count, percent, bound)


def _written(ask: Ask, chance: random.Random) -> Object:
    """A container; whole cards are sometimes asked for under the vendor's name."""
    amounts = {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in ask.requests.items()}
    if ask.percent == WHOLE and chance.random() < 0.5:
        amounts = {key: amount for key, amount in amounts.items() if "gpu" not in key}
        amounts["nvidia.com/gpu"] = str(ask.cards)
    limits = {key: amount for key, amount in amounts.items() if "/" in key}
    return {"name": "c", "resources": {"requests": amounts, **({"limits": limits} if limits else {})}}


def _pod(name: str, ask: Ask, chance: random.Random, **spec: Any) -> Object:
    labels = {"app": chance.choice("xyz")}
    annotations: dict[str, str] = {}
    priority = chance.choice((0, 0, 10, 100, 5500))
    if ask.bound_cpus:
        labels["koordinator.sh/qosClass"] = "LSR"
        policy = {"preferredCPUBindPolicy": chance.choice(("FullPCPUs", "SpreadByPCPUs"))}
        annotations["scheduling.koordinator.sh/resource-spec"] = json.dumps(policy)
        priority = 9500
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"u-{name}",
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {"containers": [_written(ask, chance)], "priority": priority, **spec},
        "status": {},
    }


def running(
    chance: random.Random,
    name: str,
    node: str,
    ask: Ask,
    annotations: dict[str, str],
    themes: frozenset[str],
) -> Object:
    """Write a pod that runs."""
    one = _pod(name, ask, chance, nodeName=node)
    one["metadata"]["annotations"] |= annotations
    if "quotas" in themes and chance.random() < 0.6:
        one["metadata"]["labels"]["quota.scheduling.koordinator.sh/name"] = chance.choice(("qa", "qb"))
    if "gangs" in themes and chance.random() < 0.2:
        one["metadata"]["annotations"] |= {
            "gang.scheduling.koordinator.sh/name": chance.choice(("old", "g0")),
            "gang.scheduling.koordinator.sh/min-available": "2",
        }
    if chance.random() < 0.1:
        one["metadata"]["labels"]["quota.scheduling.koordinator.sh/preemptible"] = "false"
    if "neighbours" in themes and chance.random() < 0.2:
        one["spec"]["affinity"] = {"podAntiAffinity": {f"required{_WHEN}": [_near(chance)]}}
    one["spec"]["tolerations"] = [{"operator": "Exists"}]
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-01T11:50:00Z"}
    one["status"] = {"phase": "Running", "conditions": [condition]}
    return one


def _again(one: Object, name: str) -> Object:
    """Write a pod that differs in its name alone, as those of a ReplicaSet do."""
    other: Object = json.loads(json.dumps(one))
    other["metadata"] |= {"name": name, "uid": f"u-{name}"}
    return other


def _near(chance: random.Random) -> Object:
    key = chance.choice(("kubernetes.io/hostname", "zone"))
    return {"labelSelector": {"matchLabels": {"app": chance.choice("xy")}}, "topologyKey": key}


class Wants:
    """What waits in one world, and the objects that it belongs to."""

    def __init__(self, chance: random.Random, themes: frozenset[str], scale: int) -> None:
        self.chance, self.themes, self.scale = chance, themes, scale

    def records(self) -> list[Object]:
        """Quotas and volumes."""
        made: list[Object] = []
        chance = self.chance
        if "quotas" in self.themes:
            tops = {"qa": chance.choice((2, 4, 8)), "qb": chance.choice((2, 6, 20))}
            lows = {name: chance.randint(0, top // 2) for name, top in tops.items()}
            if chance.random() < 0.5:
                made.append(
                    _quota(
                        "dept",
                        (max(tops.values()) + 2) * self.scale,
                        sum(lows.values()) * self.scale,
                        parent=True,
                    )
                )
            made += [
                _quota(name, top * self.scale, lows[name] * self.scale, under="dept" if made else "")
                for name, top in tops.items()
            ]
        if "volumes" in self.themes:
            made += _volumes(chance)
        return made

    def waiting(self, nodes: list[str]) -> list[Object]:
        """Pods that wait for themselves and pods of gangs."""
        chance, made = self.chance, list[Object]()
        for number in range(chance.randint(1, 8)):
            one = self._single(f"p{number}", nodes)
            made += [one, *(_again(one, f"p{number}-{copy}") for copy in range(1, self.scale))]
        if "gangs" in self.themes:
            for number in range(self.scale * chance.randint(1, 3)):
                made += self._gang(f"g{number}")
        return made

    def _ask(self) -> Ask:
        return asking(self.chance, cards="cards" in self.themes, cpus="numa" in self.themes)

    def _single(self, name: str, nodes: list[str]) -> Object:
        chance = self.chance
        one = _pod(name, self._ask(), chance)
        self._place(one)
        if "nominated" in self.themes and chance.random() < 0.3:
            one["status"]["nominatedNodeName"] = chance.choice(nodes)
        if "volumes" in self.themes and chance.random() < 0.3:
            claim = {"claimName": chance.choice(("c0", "c1", "c2"))}
            one["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]
        if chance.random() < 0.04:
            one["spec"]["schedulingGates"] = [{"name": "wait"}]
        if chance.random() < 0.1:
            one["spec"]["preemptionPolicy"] = "Never"
        if "reservations" in self.themes and chance.random() < 0.1:
            want: Object = {"reservationSelector": {}} if chance.random() < 0.5 else {"name": "v0"}
            key = "scheduling.koordinator.sh/reservation-affinity"
            one["metadata"]["annotations"][key] = json.dumps(want)
        return one

    def _place(self, one: Object) -> None:
        """Say what the place must be like."""
        chance, spec = self.chance, one["spec"]
        if "labels" in self.themes and chance.random() < 0.3:
            spec["nodeSelector"] = {chance.choice(("zone", "disk")): chance.choice("ab")}
        if "labels" in self.themes and chance.random() < 0.2:
            spec.setdefault("affinity", {})["nodeAffinity"] = _node_affinity(chance)
        if "taints" in self.themes and chance.random() < 0.5:
            spec["tolerations"] = [{"key": "only", "operator": "Equal", "value": chance.choice("ab")}]
        if "ports" in self.themes and chance.random() < 0.3:
            spec["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": chance.choice((80, 81))}]
        if "neighbours" in self.themes and chance.random() < 0.4:
            kind = chance.choice(("podAntiAffinity", "podAffinity"))
            spec.setdefault("affinity", {})[kind] = {f"required{_WHEN}": [_near(chance)]}
        if "spread" in self.themes and chance.random() < 0.4:
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": chance.choice((1, 2)),
                    "topologyKey": chance.choice(("kubernetes.io/hostname", "zone")),
                    "whenUnsatisfiable": chance.choice(("DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": {"matchLabels": {"app": one["metadata"]["labels"]["app"]}},
                }
            ]
        if "quotas" in self.themes and chance.random() < 0.6:
            one["metadata"]["labels"]["quota.scheduling.koordinator.sh/name"] = chance.choice(("qa", "qb"))
        if "numa" in self.themes and chance.random() < 0.15:
            want = {"numaTopologyPolicy": chance.choice(("BestEffort", "SingleNUMANode"))}
            key = "scheduling.koordinator.sh/numa-topology-spec"
            one["metadata"]["annotations"][key] = json.dumps(want)

    def _gang(self, name: str) -> list[Object]:
        """A gang by annotation or by PodGroup, of one shape mostly."""
        chance, size = self.chance, self.chance.randint(1, 4)
        least = chance.randint(1, size)
        pattern, other = self._ask(), self._ask()
        template = _pod(name, pattern, chance)
        if chance.random() < 0.5:
            self._place(template)
        spec = self._spec()
        made: list[Object] = []
        marks: dict[str, str] = {}
        labels: dict[str, str] = {}
        if chance.random() < 0.6:
            marks = {
                "gang.scheduling.koordinator.sh/name": name,
                "gang.scheduling.koordinator.sh/min-available": str(least),
            }
            if spec:
                marks[_SPEC] = spec
            if chance.random() < 0.2:
                marks["gang.scheduling.koordinator.sh/mode"] = "NonStrict"
        else:
            labels = {"pod-group.scheduling.sigs.k8s.io": name}
            group: Object = {"name": name, "namespace": "default"}
            if spec:
                group["annotations"] = {_SPEC: spec}
            made.append(
                {
                    "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
                    "kind": "PodGroup",
                    "metadata": group,
                    "spec": {"minMember": least, "scheduleTimeoutSeconds": 300},
                }
            )
        mixed = chance.random() < 0.3
        for number in range(size):
            one: Object = json.loads(json.dumps(template))
            one["metadata"] |= {"name": f"{name}-{number}", "uid": f"u-{name}-{number}"}
            one["metadata"]["annotations"] |= marks
            one["metadata"]["labels"] |= labels
            if mixed and number % 2 and not pattern.bound_cpus and not other.bound_cpus:
                one["spec"]["containers"] = [_written(other, chance)]
            made.append(one)
        return made

    def _spec(self) -> str:
        chance = self.chance
        if "network" not in self.themes or chance.random() < 0.3:
            return ""
        layer = chance.choice(("SpineLayer", "BlockLayer", "NodeTopologyLayer"))
        strategy = chance.choice(("MustGather", "PreferGather", "PreferGather"))
        return json.dumps({"gatherStrategy": [{"layer": layer, "strategy": strategy}]})


def _node_affinity(chance: random.Random) -> Object:
    operator = chance.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    one: Object = {"key": chance.choice(("zone", "disk")), "operator": operator}
    if operator in ("In", "NotIn"):
        one["values"] = [chance.choice("ab")]
    term = {"matchExpressions": [one]}
    if chance.random() < 0.5:
        return {f"required{_WHEN}": {"nodeSelectorTerms": [term]}}
    return {f"preferred{_WHEN}": [{"weight": chance.randint(1, 100), "preference": term}]}


def _quota(name: str, top: int, low: int, *, parent: bool = False, under: str = "") -> Object:
    labels = {"quota.scheduling.koordinator.sh/is-parent": str(parent).lower()}
    if under:
        labels["quota.scheduling.koordinator.sh/parent"] = under
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"max": {"cpu": f"{top * 1000}m"}, "min": {"cpu": f"{low * 1000}m"}},
    }


def _volumes(chance: random.Random) -> list[Object]:
    """Two claims that are bound, one to a volume of one zone, and one that waits for its first pod."""
    made: list[Object] = []
    for number in range(2):
        volume: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv{number}", "labels": {}},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "",
            },
        }
        if number and chance.random() < 0.7:
            terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
            volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        claim: Object = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"c{number}", "namespace": "default"},
            "spec": {"volumeName": f"pv{number}", "accessModes": ["ReadWriteOnce"], "storageClassName": ""},
            "status": {"phase": "Bound"},
        }
        made += [volume, claim]
    return [*made, *_volume_to_come(chance)]


def _volume_to_come(chance: random.Random) -> list[Object]:
    """A claim whose volume is made in some zones, or found in one."""
    by_hand = chance.random() < 0.5
    made_by: Object = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "later"},
        "provisioner": "kubernetes.io/no-provisioner" if by_hand else "disk.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    if not by_hand and chance.random() < 0.7:
        terms = [{"matchLabelExpressions": [{"key": "zone", "values": [chance.choice("ab")]}]}]
        made_by["allowedTopologies"] = terms
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c2", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "later",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    }
    there: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv2", "labels": {}},
        "spec": {
            "capacity": {"storage": chance.choice(("1Gi", "1Gi", "1000Mi"))},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": chance.choice(("later", "later", "other")),
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
                    ]
                }
            },
        },
        "status": {"phase": chance.choice(("Available", "Available", "Released"))},
    }
    return [made_by, claim, *([there] if chance.random() < 0.7 else [])]
