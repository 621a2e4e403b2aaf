"""Whether decisions are legal, read from the objects alone.

Nothing here is shared with the library: not what an object means, and not what a rule is. It is slow and
plain, and knows only what the worlds of the campaigns hold.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from campaigns.case import Case, Object, key_of, parsed
from campaigns.meaning import (
    cards_of,
    cpus_in,
    gang_of,
    matches,
    ports_of,
    requests_of,
    selected,
    tolerates,
)
from koordcore import Bound, Nominated, ScheduleResult, Waiting

__all__ = ["Judge"]

_WHEN: Final = "DuringSchedulingIgnoredDuringExecution"
_HELD: Final = "scheduling.koordinator.sh/device-allocated"
_STATUS: Final = "scheduling.koordinator.sh/resource-status"
_USED: Final = "scheduling.koordinator.sh/reservation-allocated"
_GANG: Final = "gang.scheduling.koordinator.sh/"
_QUOTA: Final = "quota.scheduling.koordinator.sh/"
_AMOUNTS: Final = ("cpu", "memory", "pods")


class _Place(NamedTuple):
    """A pod on a node, with what is written on it."""

    pod: Object
    node: str
    notes: dict[str, str]
    new: bool


class Judge:
    """One plan and the objects that it was made from."""

    def __init__(self, case: Case, result: ScheduleResult) -> None:
        self.result = result
        self.of: dict[str, list[Object]] = defaultdict(list)
        for one in case["objects"]:
            self.of[one["kind"]].append(one)
        self.nodes = {one["metadata"]["name"]: one for one in self.of["Node"]}
        self.devices = {one["metadata"]["name"]: one for one in self.of["Device"]}
        self.pods = {key_of(one): one for one in self.of["Pod"]}
        self.waiting = {key: one for key, one in self.pods.items() if not one["spec"].get("nodeName")}
        self.before = [
            _Place(one, one["spec"]["nodeName"], one["metadata"].get("annotations", {}), new=False)
            for one in self.of["Pod"]
            if one["spec"].get("nodeName") in self.nodes
        ]
        self.bound = [
            _Place(
                self.waiting[str(one.pod)],
                one.node,
                {**self.waiting[str(one.pod)]["metadata"].get("annotations", {}), **one.annotations},
                new=True,
            )
            for one in result.decisions
            if isinstance(one, Bound) and str(one.pod) in self.waiting
        ]
        held = [one.held for one in result.decisions if isinstance(one, Waiting) and one.held is not None]
        self.bound += [
            _Place(self.waiting[str(one.pod)], one.node, dict(one.annotations), new=True) for one in held
        ]
        self.after = [*self.before, *self.bound]

    def faults(self) -> Iterator[str]:
        """Every broken rule."""
        yield from self._decisions()
        for place in self.bound:
            yield from self._node(place)
        yield from self._amounts()
        yield from self._ports()
        yield from self._neighbours()
        yield from self._cards()
        yield from self._cpus()
        yield from self._quotas()
        yield from self._gangs()
        yield from self._victims()

    # -- decisions, and what nodes say about a pod -----------------------------------------------------------

    def _decisions(self) -> Iterator[str]:
        """One decision for every pod that waits."""
        told = Counter(str(one.pod) for one in self.result.decisions)
        for key in self.waiting:
            if told[key] != 1:
                yield f"{key} has {told[key]} decisions"
        for place in self.bound:
            if place.node not in self.nodes:
                yield f"{key_of(place.pod)} is on {place.node}, which does not exist"
            if place.pod["spec"].get("schedulingGates"):
                yield f"{key_of(place.pod)} is gated and placed"

    def _node(self, place: _Place) -> Iterator[str]:
        for what in self.refusals(place.pod, place.node):
            yield f"{key_of(place.pod)} on {place.node}: {what}"

    def refusals(self, pod: Object, name: str) -> Iterator[str]:
        """What speaks against a pod on a node, whatever runs there."""
        node = self.nodes[name]
        labels = node["metadata"].get("labels", {})
        if node["spec"].get("unschedulable") and not tolerates(
            pod, {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        ):
            yield "unschedulable"
        for taint in node["spec"].get("taints", []):
            if taint["effect"] != "PreferNoSchedule" and not tolerates(pod, taint):
                yield f"taint {taint}"
        for key, value in pod["spec"].get("nodeSelector", {}).items():
            if labels.get(key) != value:
                yield f"selector {key}={value}"
        affinity = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(f"required{_WHEN}")
        if affinity and not any(matches(term, labels) for term in affinity["nodeSelectorTerms"]):
            yield "node affinity"
        for volume in pod["spec"].get("volumes", []):
            yield from self._volume(volume["persistentVolumeClaim"]["claimName"], labels)

    def _volume(self, claim: str, labels: dict[str, str]) -> Iterator[str]:
        bound = next(
            (one for one in self.of["PersistentVolumeClaim"] if one["metadata"]["name"] == claim), None
        )
        if bound is None:
            yield f"no claim {claim}"
            return
        name = bound["spec"].get("volumeName")
        if name is None:
            if not self._can_come(bound, labels):
                yield f"no volume for {claim} can be made or found there"
            return
        volume = next((one for one in self.of["PersistentVolume"] if one["metadata"]["name"] == name), None)
        if volume is None:
            yield f"no volume {name}"
            return
        terms = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
        if terms and not any(matches(term, labels) for term in terms):
            yield f"volume {name} is elsewhere"

    def _can_come(self, claim: Object, labels: dict[str, str]) -> bool:
        """Whether a claim that waits can have a volume made on such a node, or take one that is there."""
        (kind,) = (one for one in self.of["StorageClass"] if one["metadata"]["name"] == "later")
        terms = kind.get("allowedTopologies")
        if kind["provisioner"] == "disk.example.com" and (
            not terms or labels.get("zone") in terms[0]["matchLabelExpressions"][0]["values"]
        ):
            return True
        wanted = parsed(claim["spec"]["resources"]["requests"]["storage"])
        return any(
            one["spec"]["storageClassName"] == "later"
            and one["status"]["phase"] == "Available"
            and parsed(one["spec"]["capacity"]["storage"]) >= wanted
            and matches(one["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0], labels)
            for one in self.of["PersistentVolume"]
        )

    # -- amounts --------------------------------------------------------------------------------------------

    def allocatable(self, name: str) -> dict[str, int]:
        """What a node offers, less what is held back on it."""
        node = self.nodes[name]
        offered = {key: parsed(amount) for key, amount in node["status"]["allocatable"].items()}
        note = node["metadata"].get("annotations", {}).get("node.koordinator.sh/reservation")
        for key, amount in json.loads(note)["resources"].items() if note else ():
            offered[key] = max(0, offered.get(key, 0) - parsed(amount))
        return offered

    def used(self, name: str, places: list[_Place], extra: tuple[Object, ...] = ()) -> dict[str, int]:
        """What pods take on a node together with what its reservations still hold."""
        total: Counter[str] = Counter()
        inside: dict[str, Counter[str]] = defaultdict(Counter)
        for place in places:
            if place.node != name:
                continue
            asked = requests_of(place.pod)
            total.update(asked)
            note = place.notes.get(_USED)
            if note:
                inside[json.loads(note)["name"]].update(asked)
        for pod in extra:
            total.update(requests_of(pod))
        for one in self.of["Reservation"]:
            held = self._holds(one, name)
            users = inside[one["metadata"]["name"]]
            for pod in extra:
                # Whoever will come there may use what is kept for it.
                if self._owns(one, pod):
                    users.update(requests_of(pod))
            if held and not (one["spec"]["allocateOnce"] and users):
                total.update({key: max(0, amount - users[key]) for key, amount in held.items()})
                # Its place among the pods is that of its first user, and whoever may use it may take that.
                total["pods"] += not users and not any(
                    place.new and place.node == name and self._owns(one, place.pod) for place in places
                )
        return dict(total)

    @staticmethod
    def _owns(one: Object, pod: Object) -> bool:
        """Tell whether a pod may use a reservation."""
        return any(selected(owner["labelSelector"], pod) for owner in one["spec"]["owners"])

    def _holds(self, one: Object, name: str) -> dict[str, int]:
        """What a reservation holds on a node: it did before, or was placed there now."""
        status = one.get("status", {})
        if status.get("phase") == "Available" and status["nodeName"] == name:
            return {key: parsed(amount) for key, amount in status["allocatable"].items()}
        return {}

    def _amounts(self) -> Iterator[str]:
        for name in self.nodes:
            offered = self.allocatable(name)
            used, before = self.used(name, self.after), self.used(name, self.before)
            for key in _AMOUNTS:
                if used.get(key, 0) > max(offered.get(key, 0), before.get(key, 0)):
                    yield f"{name}: {used[key]} {key} used, {offered.get(key, 0)} allocatable"

    def _ports(self) -> Iterator[str]:
        taken: dict[tuple[str, int], str] = {}
        for place in self.after:
            for port in ports_of(place.pod):
                other = taken.setdefault((place.node, port), key_of(place.pod))
                if other != key_of(place.pod) and place.new:
                    yield f"{key_of(place.pod)} and {other} both have port {port} of {place.node}"

    # -- neighbours -----------------------------------------------------------------------------------------

    def _domain(self, node: str, key: str) -> str | None:
        value: str | None = self.nodes[node]["metadata"].get("labels", {}).get(key)
        return value

    def _neighbours(self) -> Iterator[str]:
        for place in self.after:
            affinity = place.pod["spec"].get("affinity", {})
            for term in affinity.get("podAntiAffinity", {}).get(f"required{_WHEN}", []):
                domain = self._domain(place.node, term["topologyKey"])
                for other in self.after:
                    if other.pod is place.pod or not (place.new or other.new) or domain is None:
                        continue
                    same = self._domain(other.node, term["topologyKey"]) == domain
                    if same and selected(term["labelSelector"], other.pod):
                        yield f"{key_of(place.pod)} keeps away from {key_of(other.pod)}, both in {domain}"
            for term in affinity.get("podAffinity", {}).get(f"required{_WHEN}", []) if place.new else ():
                domain = self._domain(place.node, term["topologyKey"])
                others = [one for one in self.after if selected(term["labelSelector"], one.pod)]
                near = [one for one in others if self._domain(one.node, term["topologyKey"]) == domain]
                if domain is None or not near:
                    yield f"{key_of(place.pod)} wants to be near {term['labelSelector']} in {domain}"

    # -- cards and CPUs -------------------------------------------------------------------------------------

    def _cards(self) -> Iterator[str]:
        used: Counter[tuple[str, int]] = Counter()
        for place in self.after:
            count, percent = cards_of(place.pod)
            device = self.devices.get(place.node)
            if not count or device is None:
                continue
            cards = {one["minor"]: one for one in device["spec"]["devices"] if one["type"] == "gpu"}
            held = json.loads(place.notes.get(_HELD, "{}")).get("gpu", [])
            minors = [one["minor"] for one in held]
            who = f"{key_of(place.pod)} on {place.node}"
            if place.new and (len(set(minors)) != len(minors) or len(minors) != count):
                yield f"{who} asks for {count} cards and gets {minors}"
            for one in held:
                if one["minor"] not in cards or (place.new and not cards[one["minor"]]["health"]):
                    yield f"{who} gets card {one['minor']}, which is not there or ill"
                got = parsed(one["resources"].get("koordinator.sh/gpu-core", 0))
                if place.new and got != percent:
                    yield f"{who} gets {got} % of card {one['minor']} instead of {percent}"
                used[place.node, one["minor"]] += got
            if place.new:
                yield from _partition(who, device, minors, percent)
        for (name, minor), percent in used.items():
            if percent > 100:
                yield f"{name}: card {minor} is given away to {percent} %"

    def _cpus(self) -> Iterator[str]:
        taken: dict[tuple[str, int], str] = {}
        zones = {one["metadata"]["name"]: one for one in self.of["NodeResourceTopology"]}
        for place in self.after:
            status = json.loads(place.notes.get(_STATUS, "{}"))
            if place.node not in zones or not status:
                continue
            note = zones[place.node]["metadata"]["annotations"]["node.koordinator.sh/cpu-topology"]
            known = {one["id"] for one in json.loads(note)["detail"]}
            who = f"{key_of(place.pod)} on {place.node}"
            cpus = cpus_in(status.get("cpuset", ""))
            if cpus and place.new and len(cpus) * 1000 != requests_of(place.pod).get("cpu", 0):
                yield f"{who} has {len(cpus)} CPUs and asks for {requests_of(place.pod).get('cpu', 0)}m"
            for cpu in cpus:
                other = taken.setdefault((place.node, cpu), key_of(place.pod))
                if cpu not in known or other != key_of(place.pod):
                    yield f"{who} has CPU {cpu}, as {other} has"
            labels = self.nodes[place.node]["metadata"]["labels"]
            single = labels.get("node.koordinator.sh/numa-topology-policy") == "SingleNUMANode"
            if place.new and single and len(status.get("numaNodeResources", [])) > 1:
                yield f"{who} lies on several NUMA nodes"

    # -- quotas and gangs -----------------------------------------------------------------------------------

    def _quotas(self) -> Iterator[str]:
        """No quota uses more than its max; that of its parents binds only where a policy asks for it."""
        most = {one["metadata"]["name"]: parsed(one["spec"]["max"]["cpu"]) for one in self.of["ElasticQuota"]}
        before: Counter[str] = Counter()
        after: Counter[str] = Counter()
        for place in self.after:
            name = place.pod["metadata"].get("labels", {}).get(f"{_QUOTA}name", "")
            amount = requests_of(place.pod).get("cpu", 0)
            after[name] += amount
            before[name] += 0 if place.new else amount
        for name in sorted(most):
            if after[name] > max(most[name], before[name]):
                yield f"quota {name} uses {after[name]}m cpu of {most[name]}m"

    def _gangs(self) -> Iterator[str]:
        """Whoever starts has the minimum of its gang beside it, in one domain where that is a must."""
        least, spec = {}, {}
        for group in self.of["PodGroup"]:
            least[key_of(group)] = group["spec"]["minMember"]
            spec[key_of(group)] = (
                group["metadata"].get("annotations", {}).get(f"{_GANG}network-topology-spec")
            )
        for pod in self.of["Pod"]:
            notes, name = pod["metadata"].get("annotations", {}), gang_of(pod)
            if name and f"{_GANG}min-available" in notes:
                stated = int(notes[f"{_GANG}min-available"])
                least[name] = min(least.get(name, stated), stated)
                spec.setdefault(name, notes.get(f"{_GANG}network-topology-spec"))
        members: dict[str, list[_Place]] = defaultdict(list)
        held = {str(one.pod) for one in self.result.decisions if isinstance(one, Waiting)}
        for place in self.after:
            if gang_of(place.pod) and key_of(place.pod) not in held:
                members[gang_of(place.pod)].append(place)
        for name, places in members.items():
            new = [one for one in places if one.new]
            if new and len(places) < least.get(name, 0):
                yield f"gang {name} has {len(places)} of {least[name]} members"
            for rule in json.loads(spec.get(name) or "{}").get("gatherStrategy", []):
                if rule["strategy"] == "MustGather" and new:
                    where = {self._layer(one.node, rule["layer"]) for one in new}
                    if len(where) > 1 or None in where:
                        yield f"gang {name} lies in {sorted(map(str, where))} of {rule['layer']}"

    def _layer(self, node: str, layer: str) -> str | None:
        keys = {"SpineLayer": "net/spine", "BlockLayer": "net/block"}
        return self._domain(node, keys[layer]) if layer in keys else node

    # -- evictions ------------------------------------------------------------------------------------------

    def _victims(self) -> Iterator[str]:
        nominated = [one for one in self.result.decisions if isinstance(one, Nominated)]
        leaving: Counter[str] = Counter(str(v.pod) for one in nominated for v in one.victims)
        runs = {key_of(one.pod): one for one in self.before}
        for key, times in leaving.items():
            if times > 1:
                yield f"{key} is a victim {times} times"
        least: dict[str, int] = {}
        for plan in self.result.preemptions:
            asking = [self.pods[key]["spec"].get("priority", 0) for key in plan.nominations]
            least |= {str(v.pod): min(asking, default=0) for v in plan.victims}
            if plan.borrowers:
                # What was lent comes back whatever the priorities are.
                least |= {str(v.pod): 2**31 for v in plan.victims}
                yield from self._lent(plan.borrowers)
        for one in nominated:
            mine = self.pods[str(one.pod)]
            if one.victims and mine["spec"].get("preemptionPolicy") == "Never":
                yield f"{one.pod} never preempts, and does"
            for victim in one.victims:
                place = runs.get(str(victim.pod))
                if place is None or place.node != victim.node:
                    yield f"{victim.pod} is no pod on {victim.node}"
                    continue
                if place.pod["spec"].get("priority", 0) >= least.get(
                    str(victim.pod), mine["spec"]["priority"]
                ):
                    yield f"{victim.pod} leaves for {one.pod}, which is not more important"
                if place.pod["metadata"]["labels"].get(f"{_QUOTA}preemptible") == "false":
                    yield f"{victim.pod} is protected"
        moved = [
            _Place(runs[str(move.victim.pod)].pod, move.node, {}, new=False)
            for plan in self.result.preemptions
            for move in plan.moves
            if str(move.victim.pod) in runs
        ]
        staying = [one for one in self.after if key_of(one.pod) not in leaving] + moved
        for name in {one.node for one in nominated} | {one.node for one in moved}:
            coming = tuple(self.pods[str(one.pod)] for one in nominated if one.node == name)
            used, offered = self.used(name, staying, coming), self.allocatable(name)
            for key in _AMOUNTS:
                amount, most = used.get(key, 0), offered.get(key, 0)
                if amount > most:
                    yield f"{name}: {amount} {key} once the victims have gone, {most} allocatable"

    def _lent(self, names: Iterable[str]) -> Iterator[str]:
        """Who gives back uses more than its min, scaled to what pods without a quota leave."""
        least = {
            one["metadata"]["name"]: parsed(one["spec"]["min"]["cpu"]) for one in self.of["ElasticQuota"]
        }
        used: Counter[str] = Counter()
        nominated = [self.pods[str(one.pod)] for one in self.result.decisions if isinstance(one, Nominated)]
        for pod in (*(place.pod for place in self.after), *nominated):
            name = pod["metadata"].get("labels", {}).get(f"{_QUOTA}name", "")
            used[name if name in least else ""] += requests_of(pod).get("cpu", 0)
        room = sum(self.allocatable(name).get("cpu", 0) for name in self.nodes) - used[""]
        promised = max(1, sum(least.values()))
        for name in names:
            floor = min(least.get(name, 0), least.get(name, 0) * max(0, room) // promised)
            if used[name] <= floor:
                yield f"quota {name} gives back and uses {used[name]}m cpu of {floor}m promised"


def _partition(who: str, device: Object, minors: list[int], percent: int) -> Iterator[str]:
    """Where the table binds, whole cards are one of its entries."""
    table = device["metadata"].get("annotations", {}).get("scheduling.koordinator.sh/gpu-partitions")
    policy = device["metadata"]["labels"].get("node.koordinator.sh/gpu-partition-policy")
    if table and policy == "Honor" and percent == 100:
        entries = [sorted(one["minors"]) for one in json.loads(table).get(str(len(minors)), [])]
        if sorted(minors) not in entries:
            yield f"{who}: cards {minors} are no partition"
