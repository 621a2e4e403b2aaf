"""What the judge keeps of the truth: read from the objects by itself, once for each pod."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import attrs

from koordcore._record import record
from koordcore.controlplane.requests import Object
from koordcore.protocol.preemption import PREEMPTED_REASON, parse_preempted
from koordcore.simulate.world.load import CARD, GROUP, QUOTA

ALLOCATED: Final = "scheduling.koordinator.sh/device-allocated"
FINISHED: Final = frozenset({"Succeeded", "Failed"})
_UNITS: Final[Mapping[str, int]] = {"Gi": 2**30, "Mi": 2**20, "m": 1}


@lru_cache(maxsize=4096)
def amount(name: str, text: str) -> int:
    """Read an amount as the bottle writes them: cores in thousandths, the rest as it is."""
    for unit, factor in _UNITS.items():
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text) * (1000 if name == "cpu" else 1)


def amounts(texts: Mapping[str, str]) -> dict[str, int]:
    """Read the amounts of an object."""
    return {name: amount(name, text) for name, text in texts.items()}


@record
class PodFacts:
    """What never changes about a pod."""

    uid: str
    name: str
    wants: Mapping[str, int]
    priority: int
    gang: str
    quota: str
    app: str

    @classmethod
    def of(cls, pod: Object) -> PodFacts:
        """Read a pod."""
        metadata, spec = pod["metadata"], pod["spec"]
        wants = Counter({"pods": 1})
        for container in spec["containers"]:
            wants.update(amounts(container["resources"]["requests"]))
        labels = metadata.get("labels") or {}
        return cls(
            uid=metadata["uid"],
            name=metadata["name"],
            wants=dict(wants),
            priority=spec.get("priority", 0),
            gang=labels.get(GROUP, ""),
            quota=labels.get(QUOTA + "name", ""),
            app=labels.get("app", ""),
        )

    @property
    def cards(self) -> int:
        """Percent of cards that it wants."""
        return self.wants.get(CARD, 0)


@lru_cache(maxsize=4096)
def cards_given(text: str) -> tuple[tuple[int, int], ...]:
    """Read which cards a pod was given: minor, and percent of it."""
    listed = json.loads(text).get("gpu", ()) if text else ()
    return tuple((one["minor"], int(one["resources"][f"{CARD}-core"])) for one in listed)


def given_text(pod: Object) -> str:
    """Give the text that says which cards a pod was given."""
    text: str = (pod["metadata"].get("annotations") or {}).get(ALLOCATED, "")
    return text


@attrs.define
class Truth:
    """Who holds what, kept from change to change.

    Parameters
    ----------
    facts
        Of every pod that there is, by uid.
    pods
        The pods as they are now, by uid.
    used, given
        By node: amounts, and percent of each card.
    held
        By quota: amounts of the pods that have a node.
    room, limits, least
        By node: what it has; by quota: its ``max`` and its ``min``.
    members, minimum
        By gang: its pods, and how many have to run.
    reports
        By node that has reported what it uses: when, on the clock of the bottle, and how much.
    """

    facts: dict[str, PodFacts] = attrs.Factory(dict)
    pods: dict[str, Object] = attrs.Factory(dict)
    used: dict[str, Counter[str]] = attrs.Factory(dict)
    given: dict[str, Counter[int]] = attrs.Factory(dict)
    held: dict[str, Counter[str]] = attrs.Factory(dict)
    room: dict[str, dict[str, int]] = attrs.Factory(dict)
    open: dict[str, bool] = attrs.Factory(dict)
    limits: dict[str, dict[str, int]] = attrs.Factory(dict)
    least: dict[str, dict[str, int]] = attrs.Factory(dict)
    members: dict[str, dict[str, None]] = attrs.Factory(dict)
    minimum: dict[str, int] = attrs.Factory(dict)
    waiting: dict[str, None] = attrs.Factory(dict)
    reports: dict[str, tuple[int, dict[str, int]]] = attrs.Factory(dict)

    def note_pod(self, before: Object | None, now: Object | None) -> PodFacts:
        """Book a change of a pod; ``None`` where it is not there."""
        item = now or before
        assert item is not None
        uid = item["metadata"]["uid"]
        facts = self.facts.get(uid)
        if facts is None:
            facts = self.facts[uid] = PodFacts.of(item)
        was, is_now = before is not None and holds(before), now is not None and holds(now)
        if was and not is_now:
            assert before is not None
            self._book(facts, before, -1)
        elif is_now and not was:
            assert now is not None
            self._book(facts, now, 1)
        if now is None:
            del self.facts[uid], self.pods[uid]
            self.waiting.pop(uid, None)
            if facts.gang:
                del self.members[facts.gang][uid]
        else:
            self.pods[uid] = now
            if "nodeName" in now["spec"] or now["status"].get("phase") in FINISHED:
                self.waiting.pop(uid, None)
            else:
                self.waiting[uid] = None
            if facts.gang:
                self.members.setdefault(facts.gang, {})[uid] = None
        return facts

    def _book(self, facts: PodFacts, pod: Object, sign: int) -> None:
        node = pod["spec"]["nodeName"]
        used = self.used.setdefault(node, Counter())
        held = self.held.setdefault(facts.quota, Counter())
        for name, value in facts.wants.items():
            used[name] += sign * value
            held[name] += sign * value
        given = self.given.setdefault(node, Counter())
        for minor, share in cards_given(given_text(pod)):
            given[minor] += sign * share

    def cores(self, node: str) -> int:
        """Milli-cores of a node that are held."""
        return self.used[node]["cpu"] if node in self.used else 0

    def cores_by_pod(self, node: str) -> dict[str, int]:
        """Milli-cores of a node that are held, by the names of the pods."""
        there = (uid for uid, pod in self.pods.items() if pod["spec"].get("nodeName") == node and holds(pod))
        return {self.facts[uid].name: self.facts[uid].wants["cpu"] for uid in there}

    def note_node(self, node: Object, *, there: bool) -> None:
        """Book a node."""
        name = node["metadata"]["name"]
        self.room[name] = amounts(node["status"]["allocatable"])
        closed = node["spec"].get("unschedulable") or node["spec"].get("taints")
        self.open[name] = there and not closed

    def note_report(self, metric: Object, time: int, *, there: bool) -> None:
        """Book what a node says that it uses."""
        name = metric["metadata"]["name"]
        self.reports.pop(name, None)
        if there:
            self.reports[name] = time, amounts(metric["status"]["nodeMetric"]["nodeUsage"]["resources"])

    def note_quota(self, quota: Object) -> None:
        """Book a quota."""
        name, spec = quota["metadata"]["name"], quota["spec"]
        self.limits[name], self.least[name] = amounts(spec["max"]), amounts(spec["min"])

    def over(self, held: Mapping[str, int], limit: Mapping[str, int]) -> list[str]:
        """Say which of some amounts exceed their limits."""
        return [f"{held[name]} of {most} {name}" for name, most in limit.items() if held.get(name, 0) > most]

    def is_half(self, gang: str) -> bool:
        """Tell whether some pods of a gang run, and fewer than its minimum have started."""
        runs = started = 0
        for uid in self.members.get(gang, ()):
            pod = self.pods[uid]
            if pod["status"].get("phase") == "Succeeded":
                started += 1
            elif holds(pod) and "deletionTimestamp" not in pod["metadata"]:
                started += 1
                runs += 1
        return runs > 0 and started < self.minimum.get(gang, 0)


def holds(pod: Object) -> bool:
    """Tell whether a pod holds room: it has a node and has not finished."""
    return "nodeName" in pod["spec"] and pod["status"].get("phase") not in FINISHED


def preempted_for(pod: Object) -> str:
    """Name the job that a pod is evicted for, by what its status says; ``""`` for none."""
    for one in pod["status"].get("conditions") or ():
        if one["type"] == "DisruptionTarget" and one.get("reason") == PREEMPTED_REASON:
            return parse_preempted(one.get("message", ""))
    return ""
