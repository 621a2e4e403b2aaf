"""Random clusters as Kubernetes objects: nodes with all that they can have, and what runs there already.

Every world has some themes only, so that each meets every other often enough. Running pods stand where there
is room for them by sums, cards and CPUs.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any, Final

from campaigns.asks import WHOLE, Wants, asking, running
from campaigns.case import Case, Object
from campaigns.policies import draw_policy

__all__ = ["GIB", "LAYERS", "NETWORK", "NOW", "THEMES", "draw_world"]

GIB: Final = 2**30
THEMES: Final[dict[str, float]] = {
    "labels": 0.6,
    "taints": 0.4,
    "ports": 0.3,
    "neighbours": 0.25,
    "spread": 0.25,
    "cards": 0.45,
    "tables": 0.2,
    "numa": 0.35,
    "held-back": 0.2,
    "quotas": 0.3,
    "gangs": 0.4,
    "network": 0.5,
    "reservations": 0.3,
    "nominated": 0.2,
    "load": 0.2,
    "budgets": 0.3,
    "volumes": 0.15,
}
"""What a world may have, and in which share of the worlds it does."""
LAYERS: Final = ("SpineLayer", "BlockLayer", "NodeTopologyLayer")
NETWORK: Final[Object] = {
    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
    "kind": "ClusterNetworkTopology",
    "metadata": {"name": "default"},
    "spec": {
        "networkTopologySpec": [
            {"labelKey": ["net/spine"], "topologyLayer": "SpineLayer"},
            {"labelKey": ["net/block"], "parentTopologyLayer": "SpineLayer", "topologyLayer": "BlockLayer"},
            {"parentTopologyLayer": "BlockLayer", "topologyLayer": "NodeTopologyLayer"},
        ]
    },
}
NOW: Final = "2026-11-01T12:00:00Z"
EARLIER: Final = "2026-11-01T11:50:00Z"


def draw_world(chance: random.Random, themes: dict[str, float] | None = None, *, scale: int = 1) -> Case:
    """Draw a cluster, pods that wait, a policy, and whether jobs may have others evicted.

    Parameters
    ----------
    themes
        In which share of the worlds there is something.
    scale
        So many times the nodes and pods.
    """
    given = THEMES if themes is None else themes
    chosen = frozenset(theme for theme, share in given.items() if chance.random() < share)
    world = _World(chance, chosen, scale)
    objects = world.objects()
    return {
        "themes": sorted(chosen),
        "objects": objects,
        "policy": draw_policy(chance),
        "preempt": chance.choice((None, None, {}, {"relocation": "first"}, {"members": "all"})),
        "now": NOW,
    }


class _World:
    """One world while it is drawn."""

    def __init__(self, chance: random.Random, themes: frozenset[str], scale: int) -> None:
        self.chance, self.themes, self.scale = chance, themes, scale
        self.wants = Wants(chance, themes, scale)
        self.nodes: list[Object] = []
        self.free: dict[str, dict[str, int]] = {}
        self.cards: dict[str, list[int]] = {}
        self.cpus: dict[str, list[int]] = {}

    def objects(self) -> list[Object]:
        """Everything, in the order of the kinds."""
        made: list[Object] = []
        for number in range(self.scale * self.chance.randint(1, 7)):
            made += self._node(f"n{number}")
        if "network" in self.themes:
            made.append(copy.deepcopy(NETWORK))  # what is drawn may be mutated
        made += self.wants.records()
        placed = [self._placed(number) for number in range(self.chance.randint(0, 3 * len(self.nodes)))]
        made += [one for one in placed if one is not None]
        if "budgets" in self.themes:
            made += self._budgets()
        if "reservations" in self.themes:
            count = self.scale * self.chance.randint(1, 3)
            made += [self._reservation(number) for number in range(count)]
        made += self.wants.waiting([node["metadata"]["name"] for node in self.nodes])
        return made

    # -- nodes ----------------------------------------------------------------------------------------------

    def _node(self, name: str) -> list[Object]:
        chance = self.chance
        cores, memory = chance.choice((2, 4, 8, 16)), chance.choice((4, 8, 16, 64))
        labels = {"kubernetes.io/hostname": name}
        annotations: dict[str, str] = {}
        free = {"cpu": cores * 1000, "memory": memory * GIB, "pods": chance.choice((3, 6, 20))}
        if "labels" in self.themes:
            labels |= {key: chance.choice("ab") for key in ("zone", "disk") if chance.random() < 0.8}
        if "network" in self.themes and chance.random() < 0.95:
            block = chance.randint(0, 3)
            labels |= {"net/spine": f"s{block // 2}", "net/block": f"b{block}"}
        node: Object = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
            "spec": {},
            "status": {},
        }
        made = [node]
        if "cards" in self.themes and chance.random() < 0.6:
            made.append(self._device(name, free, labels))
        if "numa" in self.themes and chance.random() < 0.7:
            made.append(self._zones(name, cores, memory, labels, annotations))
        if "load" in self.themes and chance.random() < 0.8:
            made.append(_metric(name, cores, memory, chance))
        if "taints" in self.themes and chance.random() < 0.4:
            effect = chance.choice(("NoSchedule", "NoSchedule", "PreferNoSchedule", "NoExecute"))
            node["spec"]["taints"] = [{"key": "only", "value": chance.choice("ab"), "effect": effect}]
        if chance.random() < 0.05:
            node["spec"]["unschedulable"] = True
        node["status"]["allocatable"] = {key: _written(key, amount) for key, amount in free.items()}
        if "held-back" in self.themes and chance.random() < 0.5:
            kept = chance.choice((500, 1000, 2000))
            annotations["node.koordinator.sh/reservation"] = json.dumps({"resources": {"cpu": f"{kept}m"}})
            free["cpu"] = max(0, free["cpu"] - kept)
        self.free[name] = free
        self.nodes.append(node)
        return made

    def _device(self, name: str, free: dict[str, int], labels: dict[str, str]) -> Object:
        chance, count = self.chance, self.chance.choice((2, 4, 8))
        labels["node.koordinator.sh/gpu-model"] = "H800"
        free |= {"nvidia.com/gpu": count, "koordinator.sh/gpu-core": count * WHOLE}
        free |= {
            "koordinator.sh/gpu-memory-ratio": count * WHOLE,
            "koordinator.sh/gpu-memory": count * 80 * GIB,
        }
        self.cards[name] = [WHOLE] * count
        devices = []
        for minor in range(count):
            healthy = chance.random() > 0.05
            if not healthy:
                self.cards[name][minor] = 0
            devices.append(_card(minor, count, healthy=healthy))
        if chance.random() < 0.5:
            free["koordinator.sh/rdma"] = 2 * WHOLE
            devices += [_nic(minor) for minor in range(2)]
        meta: Object = {"name": name, "labels": {"node.koordinator.sh/gpu-model": "H800"}}
        if "tables" in self.themes and chance.random() < 0.6:
            meta["annotations"] = {"scheduling.koordinator.sh/gpu-partitions": json.dumps(_table(count))}
            meta["labels"]["node.koordinator.sh/gpu-partition-policy"] = chance.choice(("Honor", "Prefer"))
        return {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": meta,
            "spec": {"devices": devices},
        }

    def _zones(
        self, name: str, cores: int, memory: int, labels: dict[str, str], annotations: dict[str, str]
    ) -> Object:
        chance = self.chance
        policy = chance.choice(("", "", "BestEffort", "Restricted", "SingleNUMANode"))
        if policy:
            labels["node.koordinator.sh/numa-topology-policy"] = policy
        if chance.random() < 0.2:
            labels["node.koordinator.sh/cpu-bind-policy"] = "FullPCPUsOnly"
        zones, detail = 2, []
        for cpu in range(cores):
            zone = cpu * zones // cores
            detail.append({"id": cpu, "core": cpu // 2, "node": zone, "socket": zone})
        self.cpus[name] = list(range(cores))
        parts = []
        for zone in range(zones):
            amounts = {"cpu": str(cores // zones), "memory": f"{memory // zones}Gi"}
            resources = [
                {"name": key, "allocatable": value, "available": value, "capacity": value}
                for key, value in amounts.items()
            ]
            parts.append({"name": f"node-{zone}", "type": "Node", "resources": resources})
        return {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": name,
                "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": detail})},
            },
            "topologyPolicies": ["None"],
            "zones": parts,
        }

    # -- what runs there ------------------------------------------------------------------------------------

    def _placed(self, number: int) -> Object | None:
        """A running pod on a node that has room for it by sums, cards and CPUs; None where none was found."""
        chance = self.chance
        node = chance.choice(self.nodes)
        name = node["metadata"]["name"]
        ask = asking(chance, cards=name in self.cards, cpus=name in self.cpus)
        free = self.free[name]
        asked = {**ask.requests, "pods": 1}
        if any(amount > free.get(key, 0) for key, amount in asked.items()):
            return None
        annotations: dict[str, str] = {}
        if ask.percent:
            fitting = [minor for minor, left in enumerate(self.cards[name]) if left >= ask.percent]
            if len(fitting) < ask.cards:
                return None
            for minor in fitting[: ask.cards]:
                self.cards[name][minor] -= ask.percent
            annotations |= _holding(fitting[: ask.cards], ask.percent)
        if ask.bound_cpus:
            taken = self._cpus(name, ask.bound_cpus)
            if not taken:
                return None
            status = {"cpuset": ",".join(map(str, taken))}
            annotations["scheduling.koordinator.sh/resource-status"] = json.dumps(status)
        for key, amount in asked.items():
            free[key] = free.get(key, 0) - amount
        return running(chance, f"r{number}", name, ask, annotations, self.themes)

    def _cpus(self, name: str, count: int) -> list[int]:
        """CPUs of whole cores of one zone, as the library would give them."""
        left = self.cpus[name]
        half = max(left, default=0) // 2 + 1
        for zone in (0, 1):
            inside = [cpu for cpu in left if (cpu >= half) == bool(zone)]
            whole = [cpu for cpu in inside if cpu ^ 1 in inside]
            if len(whole) >= count:
                taken = whole[:count]
                self.cpus[name] = [cpu for cpu in left if cpu not in taken]
                return taken
        return []

    def _budgets(self) -> list[Object]:
        return [
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": f"pdb-{app}", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"disruptionsAllowed": self.chance.randint(0, 2)},
            }
            for app in "xy"
        ]

    def _reservation(self, number: int) -> Object:
        """A reservation that waits, or one that holds what is free on a node."""
        chance = self.chance
        once, app = chance.random() < 0.5, chance.choice("xy")
        node = chance.choice(self.nodes)
        amounts = {"cpu": chance.choice((500, 1000, 2000)), "memory": chance.choice((1, 2)) * GIB}
        written = {key: _written(key, amount) for key, amount in amounts.items()}
        one: Object = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Reservation",
            "metadata": {"name": f"v{number}", "uid": f"u-v{number}"},
            "spec": {
                "allocateOnce": once,
                "allocatePolicy": chance.choice(("", "Aligned", "Restricted")),
                "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
                "template": {
                    "metadata": {"namespace": "default"},
                    "spec": {"containers": [{"name": "c", "resources": {"requests": written}}]},
                },
                "ttl": "24h0m0s",
            },
        }
        free = self.free[node["metadata"]["name"]]
        fits = all(amount <= free.get(key, 0) for key, amount in {**amounts, "pods": 1}.items())
        if chance.random() < 0.7 and fits and not node["spec"].get("taints"):
            for key, amount in {**amounts, "pods": 1}.items():
                free[key] -= amount
            one["status"] = {
                "phase": "Available",
                "nodeName": node["metadata"]["name"],
                "allocatable": written,
                "conditions": [
                    {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": EARLIER}
                    for kind in ("Scheduled", "Ready")
                ],
            }
        return one


def _written(name: str, amount: int) -> str:
    return f"{amount}m" if name == "cpu" else str(amount)


def _card(minor: int, count: int, *, healthy: bool) -> Object:
    zone = minor * 2 // count
    amounts = {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"}
    return {
        "type": "gpu",
        "minor": minor,
        "id": f"GPU-{minor}",
        "health": healthy,
        "resources": {**amounts, "koordinator.sh/gpu-memory": "80Gi"},
        "topology": {"socketID": zone, "nodeID": zone, "pcieID": f"p{minor // 2}"},
    }


def _nic(minor: int) -> Object:
    vfs = [{"minor": -1, "busID": f"0000:{minor}.{number}"} for number in range(4)]
    return {
        "type": "rdma",
        "minor": minor,
        "id": f"nic-{minor}",
        "health": True,
        "resources": {"koordinator.sh/rdma": "100"},
        "topology": {"socketID": minor, "nodeID": minor, "pcieID": f"p{minor}"},
        "vfGroups": [{"vfs": vfs}],
    }


def _table(count: int) -> dict[str, list[Any]]:
    """Groups of one, two, four, … neighbouring cards."""
    table: dict[str, list[Any]] = {}
    size = 1
    while size <= count:
        table[str(size)] = [
            {
                "minors": list(range(start, start + size)),
                "gpuLinkType": "NVLink",
                "allocationScore": 1 + start % 3,
            }
            for start in range(0, count, size)
        ]
        size *= 2
    return table


def _holding(minors: list[int], percent: int) -> dict[str, str]:
    amounts = {"koordinator.sh/gpu-core": str(percent), "koordinator.sh/gpu-memory-ratio": str(percent)}
    amounts["koordinator.sh/gpu-memory"] = str(80 * GIB * percent // WHOLE)
    held = {"gpu": [{"minor": minor, "resources": amounts, "id": f"GPU-{minor}"} for minor in minors]}
    return {"scheduling.koordinator.sh/device-allocated": json.dumps(held)}


def _metric(name: str, cores: int, memory: int, chance: random.Random) -> Object:
    share = chance.choice((10, 40, 60, 80, 97))
    usage = {"cpu": f"{cores * 10 * share}m", "memory": str(memory * GIB * share // 100)}
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
        "status": {"nodeMetric": {"nodeUsage": {"resources": usage}}, "updateTime": "2026-11-01T11:59:00Z"},
    }
