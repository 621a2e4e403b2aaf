"""CPUs and NUMA amounts: what each pod was given, added up anew from the annotations."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from koordcore._record import record
from koordcore.checking.violation import Violation, ViolationKind
from koordcore.errors import KoordcoreError, ManifestError
from koordcore.model.decisions import Bound
from koordcore.model.nodes import NodeState
from koordcore.model.numa import NodeResourceTopology, amplify
from koordcore.model.pods import Pod, PodKey
from koordcore.model.resources import CPU, Resources, parse_resources
from koordcore.protocol.normalization import parse_amplification
from koordcore.protocol.reserved_on_node import trimmed_allocatable
from koordcore.result import ScheduleResult
from koordcore.snapshot import ClusterSnapshot

STATUS: Final = "scheduling.koordinator.sh/resource-status"
_MOST_CPUS: Final = 4096


@record
class Held:
    """What one pod's annotation says."""

    cpus: frozenset[int]
    amounts: Mapping[int, Resources]


def check_cpus(
    snapshot: ClusterSnapshot, result: ScheduleResult, *, standing: bool = False
) -> Iterator[Violation]:
    """CPUs that new pods got exist and are nobody else's; NUMA amounts fit their NUMA node.

    Parameters
    ----------
    snapshot, result
        Before, and what was decided.
    standing
        The pods run already: a dump that does not tell the CPUs of their node says nothing against them.
    """
    if not result.policy.filters("NodeNUMAResource"):
        return
    objects = {one.name: one for one in snapshot.of(NodeResourceTopology)}
    new = {one.pod for one in result.decisions if isinstance(one, Bound)}
    for state in result.snapshot.nodes:
        if standing and state.name not in objects:
            continue
        if any(pod.key in new and STATUS in pod.annotations for pod in state.pods):
            yield from _check_node(objects.get(state.name), state, new)


def check_amplified(snapshot: ClusterSnapshot, result: ScheduleResult) -> Iterator[Violation]:
    """Where a node has more CPU than it is made of, CPUs that somebody is bound to count as many times."""
    if not result.policy.filters("NodeNUMAResource"):
        return
    new = {one.pod: None for one in result.decisions if isinstance(one, Bound)}  # in the order they came
    before = {state.name: state for state in snapshot.nodes}
    for state in result.snapshot.nodes:
        if not any(pod.key in new and pod.requests.get(CPU) for pod in state.pods):
            continue
        try:
            ratio = parse_amplification(state.node.annotations).get(CPU, 1.0)
        except ManifestError:
            continue
        if not 1 < ratio < math.inf:
            continue
        limit = trimmed_allocatable(state.node.allocatable, state.node.annotations).get(CPU, 0)
        amount, earlier = _amplified(state.pods, ratio), before.get(state.name)
        if amount <= limit or (earlier is not None and amount <= _amplified(earlier.pods, ratio)):
            continue
        # What is there at the end may have counted as less when the last of them came.
        amount = _most_met(state, new, ratio)
        if amount > limit:
            message = f"{CPU}: {amount} requested with what is bound amplified, {limit} allocatable"
            yield Violation(ViolationKind.RESOURCE, state.name, message)


def _most_met(state: NodeState, new: Mapping[PodKey, None], ratio: float) -> int:
    """Give the most CPU that counted when one of the new pods came, what it asks for included."""
    pods, most = {pod.key: pod for pod in state.pods}, 0
    there = [pod for key, pod in pods.items() if key not in new]
    for key in new:
        pod = pods.get(key)
        cpu = pod.requests.get(CPU, 0) if pod is not None else 0
        if pod is not None and cpu:
            need = int(cpu * ratio) if _cpus_of(pod) else cpu
            most = max(most, _amplified(there, ratio) + need)
            there.append(pod)
    return most


def _amplified(pods: Iterable[Pod], ratio: float) -> int:
    """Add up the CPU of a node's pods: of CPUs that are held what they are amplified to, rounded down.

    CPUs count as often as they are amplified only where at least as much is requested as is held.
    """
    asked, cpus = 0, set[int]()
    for pod in pods:
        asked += pod.requests.get(CPU, 0)
        cpus |= _cpus_of(pod)
    bound = 1000 * len(cpus)
    return asked + (int(bound * ratio) - bound if asked >= bound else 0)


def _cpus_of(pod: Pod) -> frozenset[int]:
    """Give the CPUs that a pod is bound to; none where what it was given cannot be read."""
    try:
        held = held_of(pod)
    except (ValueError, TypeError, AttributeError, KoordcoreError):
        return frozenset()
    return frozenset() if held is None else held.cpus


def cpulist(text: str) -> frozenset[int]:
    """Read ``0-3,8``; written apart from the library's own reader on purpose."""
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        first, last = _number(low), _number(high if dash else low)
        if dash and last > _MOST_CPUS:
            raise ValueError("a range that ends at an absurd number")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def _number(digits: str) -> int:
    """Read digits, and nothing that ``int`` reads besides."""
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"not a number: {digits!r}")
    return int(digits)


def held_of(pod: Pod) -> Held | None:
    """Read what a pod was given; ``None`` where nothing is written.

    Raises
    ------
    ValueError, TypeError, AttributeError, KoordcoreError
        When that cannot be read.
    """
    text = pod.annotations.get(STATUS)
    if not text:
        return None
    raw: Any = json.loads(text)
    amounts = {
        int(entry.get("node", 0)): parse_resources(entry.get("resources") or {})
        for entry in raw.get("numaNodeResources") or ()
    }
    return Held(cpulist(raw.get("cpuset") or ""), amounts)


def _check_node(
    topology: NodeResourceTopology | None, state: NodeState, new: set[PodKey]
) -> Iterator[Violation]:
    held: dict[PodKey, Held] = {}
    for pod in state.pods:
        try:
            found = held_of(pod)
        except (ValueError, TypeError, AttributeError, KoordcoreError):
            if pod.key in new:
                yield Violation(ViolationKind.CPU, str(pod.key), f"{STATUS} cannot be read")
            continue
        if found is not None:
            held[pod.key] = found
    yield from _check_cpusets(topology, state, held, new)
    yield from _check_amounts(topology, state, held, new)


def _check_cpusets(
    topology: NodeResourceTopology | None,
    state: NodeState,
    held: Mapping[PodKey, Held],
    new: set[PodKey],
) -> Iterator[Violation]:
    known = {info.cpu for info in topology.topology.cpus} if topology else set()
    uses = Counter(cpu for one in held.values() for cpu in one.cpus)
    most = topology.max_ref_count if topology else 1
    for key in sorted(held.keys() & new):
        cpus = held[key].cpus
        for cpu in sorted(cpus):
            if cpu not in known:
                yield Violation(ViolationKind.CPU, str(key), f"{state.name} has no CPU {cpu}")
            elif topology is not None and topology.reserved_cpus >> cpu & 1:
                yield Violation(ViolationKind.CPU, str(key), f"CPU {cpu} of {state.name} is reserved")
            elif uses[cpu] > most:
                message = f"CPU {cpu} of {state.name} is given {uses[cpu]} times, at most {most}"
                yield Violation(ViolationKind.CPU, str(key), message)


def _ratios(topology: NodeResourceTopology | None, state: NodeState) -> Mapping[str, float]:
    """By how much the node makes more of what its zones say; those of an object that says it are done."""
    if topology is None or topology.amplification_ratios:
        return {}
    try:
        return parse_amplification(state.node.annotations)
    except ManifestError:
        return {}


def _check_amounts(
    topology: NodeResourceTopology | None,
    state: NodeState,
    held: Mapping[PodKey, Held],
    new: set[PodKey],
) -> Iterator[Violation]:
    zones = {zone.node: zone.resources for zone in topology.zones} if topology else {}
    ratios = _ratios(topology, state)
    used: dict[int, Counter[str]] = defaultdict(Counter)
    for one in held.values():
        for numa, amounts in one.amounts.items():
            used[numa].update(amounts)
    before = [one for key, one in held.items() if key not in new]
    more = (ratios or (topology.amplification_ratios if topology else {})).get(CPU, 1.0)
    for key in sorted(held.keys() & new):
        for numa, amounts in sorted(held[key].amounts.items()):
            if numa not in zones:
                message = f"{state.name} has no NUMA node {numa}"
                yield Violation(ViolationKind.NUMA, str(key), message)
                continue
            for name in sorted(amounts):
                limit = amplify(zones[numa].get(name, 0), ratios.get(name, 1.0))
                taken = used[numa][name]
                if name == CPU and topology is not None:
                    taken = max(taken, amounts[name] + _amplified_there(topology, numa, before, more))
                if taken > limit:
                    message = f"{name} on NUMA node {numa} of {state.name}: {taken} of {limit}"
                    yield Violation(ViolationKind.NUMA, str(key), message)


def _amplified_there(topology: NodeResourceTopology, numa: int, before: Iterable[Held], ratio: float) -> int:
    """Add up the CPU of a NUMA node that was held before; CPUs of its own count as many times as it has more.

    They do where amounts were written down for it; for new pods only what they ask for counts at first.
    """
    written = [one.amounts[numa].get(CPU, 0) for one in before if numa in one.amounts]
    cpus = frozenset[int]().union(*(one.cpus for one in before))
    mask = topology.topology.node_masks.get(numa, 0)
    bound = 1000 * sum(mask >> cpu & 1 for cpu in cpus)
    return sum(written) + (amplify(bound, ratio) - bound if written else 0)
