"""What the fields of an object mean, as far as the campaigns write them."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from campaigns.case import Object, parsed

__all__ = [
    "cards_of",
    "cpus_in",
    "gang_of",
    "matches",
    "plain",
    "ports_of",
    "requests_of",
    "selected",
    "tolerates",
]

_GANG: Final = "gang.scheduling.koordinator.sh/name"
_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"


def requests_of(pod: Object) -> Counter[str]:
    """What a pod asks for, itself included."""
    total: Counter[str] = Counter(pods=1)
    for container in pod["spec"]["containers"]:
        for key, amount in container.get("resources", {}).get("requests", {}).items():
            total[key] += parsed(amount)
    return total


def cards_of(pod: Object) -> tuple[int, int]:
    """How many cards a pod asks for, and how much of each."""
    asked = requests_of(pod)
    if asked["nvidia.com/gpu"]:
        return asked["nvidia.com/gpu"], 100
    percent = asked["koordinator.sh/gpu-core"]
    return (percent // 100, 100) if percent >= 100 else (int(percent > 0), percent)


def plain(pod: Object) -> bool:
    """Tell whether all that a pod wants is an amount, a label, a taint or a port."""
    spec, asked = pod["spec"], requests_of(pod)
    return not (
        any("/" in key for key in asked)
        or spec.get("schedulingGates")
        or spec.get("topologySpreadConstraints")
        or spec.get("affinity", {}).keys() - {"nodeAffinity"}
        or spec.get("volumes")
        or pod["metadata"].get("annotations")
    )


def gang_of(pod: Object) -> str:
    """Give the gang of a pod, or nothing."""
    meta = pod["metadata"]
    name = meta.get("annotations", {}).get(_GANG) or meta.get("labels", {}).get(_GROUP)
    return f"{meta.get('namespace', 'default')}/{name}" if name else ""


def ports_of(pod: Object) -> list[int]:
    """Give the ports of the node that a pod takes."""
    found = [port for container in pod["spec"]["containers"] for port in container.get("ports", [])]
    return [port["hostPort"] for port in found]


def cpus_in(text: str) -> list[int]:
    """Read a list such as ``0-2,5``."""
    found: list[int] = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def tolerates(pod: Object, taint: dict[str, Any]) -> bool:
    """Tell whether a pod tolerates a taint."""
    for one in pod["spec"].get("tolerations", []):
        if one.get("key") not in (None, taint["key"]):
            continue
        if one.get("operator", "Equal") == "Equal" and one.get("value", "") != taint.get("value", ""):
            continue
        if one.get("effect") in (None, "", taint["effect"]):
            return True
    return False


def matches(term: dict[str, Any], labels: dict[str, str]) -> bool:
    """Tell whether labels match a term of a node affinity."""
    for one in term["matchExpressions"]:
        value, operator = labels.get(one["key"]), one["operator"]
        good = {
            "In": value in one.get("values", []),
            "NotIn": value not in one.get("values", []),
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }[operator]
        if not good:
            return False
    return True


def selected(selector: dict[str, Any], pod: Object) -> bool:
    """Tell whether a pod has the labels of a selector."""
    labels = pod["metadata"].get("labels", {})
    return all(labels.get(key) == value for key, value in selector["matchLabels"].items())
