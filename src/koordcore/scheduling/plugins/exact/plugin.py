"""One plugin for CPUs, NUMA amounts and devices of one pod on one node, under two names of the policy.

NodeNUMAResource and DeviceShare filter and score under their own names, with their own weights; what they ask
about is one question with the arguments of both (see :mod:`koordcore.scheduling.plugins.exact.question`), and
what a pod gets is taken and given back in one piece. A policy that lacks one of the names does not ask what
belongs to it: without DeviceShare nobody chooses devices, without NodeNUMAResource nothing is aligned.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from immutabledict import immutabledict

from koordcore._record import record
from koordcore.allocators.device.request import DEVICE_RESOURCES, device_request_of
from koordcore.allocators.node_request import NodeArgs, NodeRequest
from koordcore.allocators.numa_request import CPURequest, NUMARefusal, cpu_request_of
from koordcore.errors import ManifestError
from koordcore.framework.evaluator import Evaluator, Refusal, Reserved, Scope
from koordcore.framework.hints import ROOM
from koordcore.framework.node_moves import NodeMoves
from koordcore.framework.node_view import NodeView
from koordcore.framework.numa_sides import NUMASides
from koordcore.framework.plugin import JointPlugin, Plugin, Together
from koordcore.framework.workspace import Workspace
from koordcore.model.decisions import Shortfall
from koordcore.model.device_policy import DEFAULT_DEVICE_POLICY, DevicePolicy
from koordcore.model.device_requests import (
    DeviceRequest,
)
from koordcore.model.devices import (
    DeviceAllocation,
    DeviceObject,
    DeviceShortfall,
    SharedResourceTemplates,
    SharedTemplates,
)
from koordcore.model.numa import DEFAULT_NUMA_ARGS, NodeResourceTopology, NUMAArgs
from koordcore.model.pods import Pod
from koordcore.model.policy import PluginSetting
from koordcore.model.reservations import Reservation
from koordcore.protocol.fields import load_json
from koordcore.protocol.hints import hints_at
from koordcore.protocol.holdings import HOLDINGS
from koordcore.protocol.numa import ANNOTATION_RESOURCE_STATUS
from koordcore.protocol.reservation import RESERVATION_NAME, is_operating_pod
from koordcore.protocol.reserve_pod import is_reserve_pod
from koordcore.scheduling.plugins.exact.chooser import NUMAChooser
from koordcore.scheduling.plugins.exact.heeded import SAID, NodeHints, any_node_hints, heeds, hints
from koordcore.scheduling.plugins.exact.whole import WholeNode, WholeNodeEvaluator, whole_node
from koordcore.snapshot.following import ClusterChanges
from koordcore.topology.cpu import format_cpulist
from koordcore.topology.numa import NUMATopologyPolicy

if TYPE_CHECKING:
    # What chooses CPUs and devices is read for the first pod that wants any.
    from koordcore.allocators.node import NodeAllocation
    from koordcore.scheduling.plugins.exact.question import Question
    from koordcore.scheduling.plugins.exact.reserved import ExactLoans
    from koordcore.scheduling.plugins.exact.states import ExactStates

NUMA: str = "NodeNUMAResource"
DEVICES: str = "DeviceShare"
NO_CARD = "no card chosen: the node has no Device object"


@record(cache_hash=True)
class _Wanted:
    """What a pod wants under each name, and in one piece."""

    numa: NodeRequest | WholeNode | None
    devices: NodeRequest | None
    exact: NodeRequest | None


@lru_cache(maxsize=4096)
def _wanted(cpu: CPURequest | None, devices: DeviceRequest | None) -> _Wanted:
    """Give the very same value for the same requests, which are then compared at a glance."""
    exact = NodeRequest(cpu=cpu, devices=devices)
    return _Wanted(exact if cpu is not None else None, exact if devices is not None else None, exact)


@lru_cache(maxsize=4096)
def _rated_only(cpu: CPURequest) -> _Wanted | None:
    """Give a request for amounts only, which gets nothing of its own; ``None`` where it is more than that."""
    whole = whole_node(cpu)
    return None if whole is None else _Wanted(whole, None, None)


class ExactPlugin(JointPlugin):
    """CPUs, NUMA amounts and devices; the arguments are ``NUMAArgs`` and ``DevicePolicy``.

    In a cluster where no node tells its topology or wants a policy, only pods that want CPUs of their own
    concern NodeNUMAResource, unless it scores: then every pod that asks for anything is scored, as upstream
    has it.
    """

    name = "NodeNUMAResource and DeviceShare"
    by_template = True
    gives_first = True
    helped_by = ROOM | {"DeviceObject", "NodeResourceTopology", "SharedTemplates"}
    reads = frozenset((NodeResourceTopology, DeviceObject, SharedTemplates, Reservation))
    entry_arguments: ClassVar[Mapping[str, type]] = {NUMA: NUMAArgs, DEVICES: DevicePolicy}

    def __init__(self, workspace: Workspace, settings: Mapping[str, PluginSetting]) -> None:
        super().__init__(workspace, settings)
        numa, devices = settings.get(NUMA), settings.get(DEVICES)
        self._numa, self._devices = numa is not None, devices is not None
        self._rates_numa = numa is not None and numa.scores
        self.node_args = NodeArgs(
            numa=(numa.args if numa is not None else None) or DEFAULT_NUMA_ARGS,
            devices=(devices.args if devices is not None else None) or DEFAULT_DEVICE_POLICY,
        )
        namespace, name = self.node_args.devices.template_source
        templates = workspace.snapshot.find(SharedTemplates, name, namespace)
        self._templates: SharedResourceTemplates = (
            immutabledict() if templates is None else templates.templates
        )
        self._entries: dict[str, Plugin] = {}
        # Both names ask the same question, so that the node that one finds is the node that the other means.
        self._questions: dict[NodeRequest, Question] = {}
        self._stale: set[NodeRequest] = set()
        # Nodes joined or left since the last call.
        self._moved = False
        self.sides = workspace.once(NUMASides)
        if self._numa:
            self.sides.chooser = NUMAChooser(self)

    @cached_property
    def states(self) -> ExactStates:
        """What every node has of CPUs and devices now."""
        from koordcore.scheduling.plugins.exact.states import ExactStates

        return ExactStates(self.workspace, cpus=self._numa, devices=self._devices)

    @cached_property
    def loans(self) -> ExactLoans:
        """What reservations lend of them."""
        from koordcore.scheduling.plugins.exact.reserved import ExactLoans

        return ExactLoans(self.states)

    def rereads(self, changes: ClusterChanges) -> bool:
        return bool(changes.nodes) and (not changes.said <= SAID or heeds(changes))

    def follow(self, changes: ClusterChanges) -> bool:
        reread = self.rereads(changes)
        moved, self._moved = self._moved, False
        changed = moved or changes.nodes or NodeResourceTopology in changes.records
        anew = changed and self.workspace.made(NodeHints)
        if anew and self.tells_numa != self._hinted(changes):
            self.workspace.drop(NodeHints)
            return False
        if SharedTemplates in changes.records:
            return False
        # The states of nodes have followed already.
        known = "states" in vars(self)
        if known and reread:
            self.states.relabel(said=heeds(changes))
        if reread or moved:
            self._stale.update(self._questions)  # each is renewed when an evaluator asks for it again
        return not (known and self.states.locked())  # a lock ends with time

    def _hinted(self, changes: ClusterChanges) -> bool:
        """Tell whether any node says something to heed now."""
        if self.tells_numa or NodeResourceTopology in changes.records:
            return any_node_hints(self.workspace.snapshot)
        return any(hints(after) for _, after in changes.nodes.values())  # no other node did

    def moved(self, moves: NodeMoves) -> bool:
        self._moved = True
        if "states" in vars(self):
            self.states.move(moves)
        return True

    def entry(self, name: str) -> Plugin:
        """Give the plugin that filters and scores under one of the names."""
        found = self._entries.get(name)
        if found is None:
            kind = _NUMAEntry if name == NUMA else _DeviceEntry
            found = self._entries[name] = kind(self)
        return found

    def part(self, name: str, request: Any) -> Hashable | None:
        wanted: _Wanted | None = request
        if wanted is None:
            return None
        return wanted.numa if name == NUMA else wanted.devices

    @property
    def tells_numa(self) -> bool:
        """Some node tells its topology, wants a policy, or amplifies its CPU."""
        return self.workspace.once(NodeHints).anything

    def request_of(self, pod: Pod) -> _Wanted | Refusal | None:
        cpu, devices = self.cpu_request(pod), self.device_request(pod)
        if isinstance(cpu, Refusal):
            return cpu
        if isinstance(devices, Refusal) or (cpu is None and devices is None):
            return devices  # a refusal, or nothing
        if cpu is not None and devices is None and not self.tells_numa:
            # Who asks for amounts only, where nodes say nothing, gets nothing of its own and is only scored.
            rated = None if ANNOTATION_RESOURCE_STATUS in pod.annotations else _rated_only(cpu)
            if rated is not None:
                return rated
        return _wanted(cpu, devices)

    def cpu_request(self, pod: Pod) -> CPURequest | Refusal | None:
        """Read what a pod wants of CPUs and NUMA nodes; ``None`` where that is nobody's concern."""
        if not self._numa:
            return None
        try:
            asked = cpu_request_of(pod, self.node_args.numa)
        except ManifestError as error:
            return Refusal(str(error))
        if isinstance(asked, NUMARefusal):
            return Refusal(asked.reasons[0], resolvable=asked.resolvable)
        if asked is None or self.tells_numa or asked.bind or asked.numa_policy:
            return asked
        if self._rates_numa and asked.requests:
            return asked
        return None

    def device_request(self, pod: Pod) -> DeviceRequest | Refusal | None:
        """Read what a pod wants of devices; ``None`` where that is nobody's concern."""
        if not self._devices or DEVICE_RESOURCES.isdisjoint(pod.requests):
            return None
        asked = device_request_of(
            pod.requests,
            annotations=pod.annotations,
            labels=pod.labels,
            templates=self._templates,
            policy=self.node_args.devices,
            designated=hints_at(pod.annotations, DEVICES),
        )
        return Refusal(asked.reasons[0]) if isinstance(asked, DeviceShortfall) else asked

    def node_request(self, pod: Pod) -> NodeRequest | None:
        """Give what a pod asks for; ``None`` for nothing, and for what is refused."""
        wanted = self.request_of(pod)
        return wanted.exact if isinstance(wanted, _Wanted) else None

    def question(self, request: NodeRequest) -> Question:
        """Open the answers to one kind of request."""
        found = self._questions.get(request)
        if found is None:
            from koordcore.scheduling.plugins.exact.question import Question

            found = self._questions[request] = Question(self.states, request, self.node_args)
        elif request in self._stale:
            self._stale.remove(request)
            found.renew()
        return found

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        return Evaluator() if request.exact is None else _Reserving(self, self.question(request.exact))

    def together(self, pods: Sequence[Pod], row: int) -> Together | None:
        from koordcore.scheduling.plugins.exact.together import found_together

        self.states.update()
        asked = []
        for pod in pods:
            wanted = self.request_of(pod)
            if isinstance(wanted, Refusal):
                return None
            asked.append((pod, (wanted.exact if wanted is not None else None) or NodeRequest()))
        if all(request == NodeRequest() for _, request in asked):
            return None
        policies = {self.question(request).policy_at(row) for _, request in asked if request.cpu is not None}
        tied = bool(policies - {NUMATopologyPolicy.NONE})
        if any(request.cpu is not None and request.cpu.designated is not None for _, request in asked):
            return None
        if tied and any(self.sides.of(pod, row) for pod in pods):
            return None  # each in its turn, with what others give it
        plan = found_together(self.states, self.node_args, asked, row, tied=tied)
        # Empty is a proof, and it holds for every node whose devices stand as they do here.
        proven = plan is not None and not plan
        same = self.states.device_table().ids if proven else np.zeros(0, np.int64)
        rows = np.flatnonzero(same == same[row]) if proven else same
        return Together(plan=plan or {}, rows=rows)

    def never_together(
        self, pods: Sequence[Pod], demand: Sequence[int], rows: Sequence[int]
    ) -> Mapping[int, tuple[tuple[int, ...], ...]]:
        from koordcore.scheduling.plugins.exact.together import never_taken

        self.states.update()
        asked = [wanted for pod in pods if isinstance(wanted := self.request_of(pod), _Wanted)]
        requests = [one.exact.devices for one in asked if one.exact is not None]
        if len(requests) < len(pods):
            return {}
        return never_taken(self.states, self.node_args.devices, requests, demand, rows)

    def written_on(self, pod: Pod) -> Mapping[str, str]:
        """Give the annotations that stand on the object itself: those of a template do not."""
        one = None
        if pod.annotations and is_reserve_pod(pod):
            one = self.workspace.snapshot.find(Reservation, pod.annotations.get(RESERVATION_NAME, ""))
        return pod.annotations if one is None else one.annotations

    def placed(self, pod: Pod, row: int) -> None:
        if _may_hold(pod):
            self.states.placed(pod, row)

    def removed(self, pod: Pod, row: int) -> None:
        if _may_hold(pod):
            self.states.removed(pod, row)


def _may_hold(pod: Pod) -> bool:
    """Tell whether a pod may hold CPUs or devices, or has to do with reservations: whoever does says so."""
    return bool(pod.annotations) or (bool(pod.labels) and is_operating_pod(pod))


class _NUMAEntry(Plugin):
    """What the exact plugin says under the name NodeNUMAResource."""

    name = NUMA
    refuses_at = 2

    def __init__(self, exact: ExactPlugin) -> None:
        super().__init__(exact.workspace, exact.node_args.numa)
        self.joint = self._exact = exact

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        asked = self._exact.cpu_request(pod)
        if not isinstance(asked, CPURequest):
            return asked
        wanted = self._exact.request_of(pod)
        return None if isinstance(wanted, Refusal) else self._exact.part(NUMA, wanted)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        if isinstance(request, WholeNode):
            return WholeNodeEvaluator(self.workspace, request.requests, self.args)
        from koordcore.scheduling.plugins.exact.question import NUMAEvaluator

        return NUMAEvaluator(self._exact.question(request), self._exact.loans)


class _DeviceEntry(Plugin):
    """What the exact plugin says under the name DeviceShare."""

    name = DEVICES
    refuses_at = 3

    def __init__(self, exact: ExactPlugin) -> None:
        super().__init__(exact.workspace, exact.node_args.devices)
        self.joint = self._exact = exact

    def request_of(self, pod: Pod) -> Hashable | Refusal | None:
        asked = self._exact.device_request(pod)
        if not isinstance(asked, DeviceRequest):
            return asked
        wanted = self._exact.request_of(pod)
        return None if isinstance(wanted, Refusal) else self._exact.part(DEVICES, wanted)

    def evaluator(self, pod: Pod, request: Any) -> Evaluator:
        from koordcore.scheduling.plugins.exact.devices import DeviceEvaluator, VendorPlugins

        vendors = VendorPlugins(self._exact.states, request.devices, self.args)
        return DeviceEvaluator(self._exact.question(request), self._exact.loans, vendors)


class _Reserving(Evaluator):
    """What the pods of one kind get, all in one piece."""

    scope = Scope.NODE

    def __init__(self, exact: ExactPlugin, question: Question) -> None:
        self._exact = exact
        self._question = question

    def allocate(self, pod: Pod, view: NodeView) -> Reserved | Shortfall | None:
        if view.drawn is None:
            planned = self._exact.planned.get(pod.key)
            if planned is not None:
                self._question.states.take(pod, view.row, planned)
                return self._write(pod, view.row, planned)
            sides = self._exact.sides
            beside = sides.of(pod, view.row) if sides.giving else ()
            given = self._question.take(pod, view.row, beside)
            if beside and not isinstance(given, NUMARefusal):
                sides.given[pod.key] = view.row, given.numa.mask
            return self._write(pod, view.row, given)
        loan = view.drawn.loan(0)
        given = self._exact.loans.fit(self._question, self._question.request, loan, view.beside(loan))
        if not isinstance(given, NUMARefusal):
            self._exact.states.take(pod, loan.row, given)
        return self._write(pod, loan.row, given)

    def _write(self, pod: Pod, row: int, given: NodeAllocation | NUMARefusal) -> Reserved | Shortfall:
        if isinstance(given, NUMARefusal):
            return given.shortfalls[0]
        request = self._question.request
        before = self._exact.written_on(pod)
        node = self._exact.states.node_of(row)
        annotations = given.annotations(request, node, before)
        notes = []
        if given.numa.written:
            notes.append(_describe_numa(given))
        if given.devices is not None and given.devices.devices:
            notes += (
                describe_allocation(given.devices),
                *(request.devices.warnings if request.devices else ()),
            )
        elif request.devices is not None and self._exact.states.devices[row] is None:
            there = self._exact.workspace.layout.nodes[row].allocatable
            # What the node does not even list is served by a claim.
            if any(there.get(name) for name in pod.requests if "/" in name):
                notes.append(NO_CARD)
        return Reserved(_changed(annotations, before), notes=tuple(note for note in notes if note))


def _changed(annotations: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Leave out what the pod says already in other white space; what it gets is written in any case."""
    return {
        key: text
        for key, text in annotations.items()
        if key in HOLDINGS or key not in before or load_json(before[key]) != load_json(text)
    }


def _describe_numa(given: NodeAllocation) -> str:
    """Write CPUs and NUMA nodes on one line: ``cpu 0-3 · NUMA 0``."""
    status = given.numa.status
    parts = [f"cpu {format_cpulist(status.cpuset)}"] if status.cpuset else []
    if status.numa_node_resources:
        parts.append("NUMA " + ",".join(str(entry.node) for entry in status.numa_node_resources))
    return " · ".join(parts)


def describe_allocation(allocation: DeviceAllocation) -> str:
    """Write an allocation on one line: ``gpu 0,1 (50%) + rdma 2``; each share where cards differ in size."""
    parts = []
    for kind, holdings in allocation.devices.items():
        minors = ",".join(str(one.minor) for one in holdings)
        shares = [amount for one in holdings for name, amount in one.resources.items() if "ratio" in name]
        told = shares if len(set(shares)) > 1 else shares[:1]
        share = f" ({', '.join(f'{one}%' for one in told)})" if any(one < 100 for one in told) else ""
        parts.append(f"{kind} {minors}{share}")
    return " + ".join(parts)
