"""What a page shows, as compact JSON values: names and texts once, rows of numbers that point at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from immutabledict import immutabledict

from koordcore.descheduling.card_moves import fragments_of
from koordcore.explaining.network import job_of, used_domains
from koordcore.explaining.workloads import by_workload, stand_in_names, workload_of
from koordcore.model.certificates import Certificate
from koordcore.model.decisions import Bound, Nominated, NotOurs, PodDecision, Unschedulable, Waiting
from koordcore.model.nodes import NodeState
from koordcore.model.pods import Pod, PodKey
from koordcore.protocol.device_object import GPU_MODEL
from koordcore.protocol.times import format_time
from koordcore.reporting.cards import Card, cards_of
from koordcore.reporting.quotas import quota_data
from koordcore.reporting.steps import Change, Story
from koordcore.result import ScheduleResult
from koordcore.result.networks import network_used
from koordcore.scheduling.network_trees import known_network, network_tree
from koordcore.scheduling.plain_cards import CARD_NAMES
from koordcore.scoring.fragmentation import FragmentationMeasure
from koordcore.snapshot import ClusterSnapshot
from koordcore.snapshot.following import once

_MODELS: Final = (GPU_MODEL, "nvidia.com/gpu.product", "alibabacloud.com/gpu-card-model")


class _Numbers:
    """Texts in the order in which they first occur, each with its number."""

    def __init__(self) -> None:
        self.number: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        return self.number.setdefault(value, len(self.number))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.number)


class PageData:
    """Gathers the values of one page.

    Parameters
    ----------
    snapshot
        The cluster that is drawn.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self.texts, self.shapes, self.jobs = _Numbers(), _Numbers(), _Numbers()
        self.row_of = {state.name: row for row, state in enumerate(snapshot.nodes)}
        self.pod_of: dict[str, int] = {}
        self.pods: list[list[Any]] = []
        everybody = (*snapshot.bound_pods(), *snapshot.pending)
        self._names = by_workload(everybody)
        for pod in everybody:
            self._add(pod)

    def _add(self, pod: Pod) -> None:
        self.pod_of[str(pod.key)] = len(self.pods)
        node = -1 if pod.node_name is None else self.row_of.get(pod.node_name, -1)
        self.pods.append(
            [
                self.texts(pod.namespace),
                pod.name,
                node,
                self._job(pod),
                self.shapes(_asked(pod)),
                pod.priority or 0,
            ]
        )

    def _job(self, pod: Pod) -> int:
        """Number what a pod belongs to, as tables of the command line name it; -1 for a pod by itself."""
        if gang := _group_of(pod):
            return self.jobs(("gang", gang))
        if pod.controller is not None:
            return self.jobs(("workload", f"{pod.namespace}/{workload_of(pod)}"))
        name = self._names[pod.key]
        return -1 if name == str(pod.key) else self.jobs(("workload", name))

    def values(
        self,
        result: ScheduleResult | None,
        stories: Sequence[Story],
        starts: Mapping[PodKey, datetime | None],
        progress: Callable[[int, int], None],
    ) -> dict[str, Any]:
        """Give all values of the page; who is not in ``starts`` has no known start."""
        in_vain = self._in_vain()
        nodes = []
        for number, state in enumerate(self.snapshot.nodes, 1):
            nodes.append({**self._node(state), "v": in_vain.get(state.name, 0)})
            progress(number, len(self.snapshot.nodes))
        values = {
            "nodes": nodes,
            "network": self._network(),
            "resources": self._resources(),
            "queue": self._queue(result, starts),
            "gangs": self._gangs(result),
            "quotas": quota_data(self.snapshot, None if result is None else result.policy),
            "plans": [self._story(one) for one in stories],
        }
        return {
            **values,
            "pods": self.pods,
            "jobs": list(self.jobs),
            "shapes": [dict(one) for one in self.shapes],
            "texts": list(self.texts),
        }

    # --- the cluster --------------------------------------------------------------------------------------

    def _node(self, state: NodeState) -> dict[str, Any]:
        node = state.node
        model = next((node.labels[name] for name in _MODELS if name in node.labels), "")
        said: dict[str, Any] = {"n": state.name}
        cards = [self._card(one) for one in cards_of(self.snapshot, state)]
        if cards:
            said["c"] = cards
        if model:
            said["m"] = self.texts(model)
        if node.taints:
            said["t"] = [self.texts(f"{taint} {taint.effect.value}") for taint in node.taints]
        if node.unschedulable:
            said["x"] = "cordoned"
        if not node.ready:
            said["x"] = "not ready"
        return said

    def _card(self, card: Card) -> list[Any]:
        """Write name, kind, NUMA node, switch, state, and per holder who, how much, and if not sure 0."""
        uses = [
            [self.pod_of.get(use.holder, use.holder), use.milli, *([] if use.exact else [0])]
            for use in card.uses
        ]
        state = (0 if card.health else 1) + (2 if card.parts else 0)
        return [card.name, self.texts(card.kind), card.numa, self.texts(card.pcie), state, *uses]

    def _in_vain(self) -> dict[str, int]:
        """Give per node the idle thousandths of cards that the pods of the cluster cannot use there."""
        if not self.snapshot.nodes:
            return {}
        aim = fragments_of(self.snapshot)
        measure = FragmentationMeasure(aim.mix)
        return {node.name: measure.weighted(node) // aim.mix.kept for node in aim.nodes if node.cards}

    def _resources(self) -> dict[str, Any]:
        layout, columns = self.snapshot.layout, self.snapshot.columns
        return {
            "names": list(layout.resources),
            "whole": [row.tolist() for row in layout.allocatable],
            "used": [row.tolist() for row in columns.requested],
            "cards": [name in CARD_NAMES for name in layout.resources],
        }

    def _network(self) -> dict[str, Any] | None:
        tree = once(self.snapshot, network_tree)
        known = once(self.snapshot, known_network)
        if tree is None or known is None:
            return None
        first = tree.first_node
        rows = [self.row_of.get(name, -1) for name in tree.nodes]
        return {
            "source": known.source,
            "layers": list(tree.layers),
            "domains": [
                [tree.names[one], int(tree.depth[one]), int(tree.parent[one])] for one in range(first)
            ],
            "nodes": [[row, int(tree.parent[first + place])] for place, row in enumerate(rows) if row >= 0],
        }

    # --- the queue ----------------------------------------------------------------------------------------

    def _queue(
        self, result: ScheduleResult | None, starts: Mapping[PodKey, datetime | None]
    ) -> list[dict[str, Any]]:
        if result is None:
            return [{"p": self._who(pod.key), "o": "pending"} for pod in self.snapshot.pending]
        turns = self._turns(result)
        return [{**self._decided(one, starts), "t": turns[one.pod]} for one in result.decisions]

    def _turns(self, result: ScheduleResult) -> dict[PodKey, int]:
        """Number the turns as ``explain`` does: a gang has one, other schedulers' pods have none, 0."""
        plans = {gang: plan.job for plan in result.jobs for gang in plan.job.split(",")}
        turns: dict[PodKey, int] = {}
        numbers = _Numbers()
        for one in result.decisions:
            pod = self.snapshot.pod(one.pod)
            gang = "" if pod is None else _group_of(pod)
            unit = ("gang", plans.get(gang, gang)) if gang else ("pod", str(one.pod))
            turns[one.pod] = 0 if isinstance(one, NotOurs) else numbers(unit) + 1
        return turns

    def _who(self, key: PodKey) -> int | str:
        """Number of a pod, or the name of what is no pod."""
        known = self.pod_of.get(str(key))
        if known is not None:
            return known
        return stand_in_names(self.snapshot).get(key, str(key))

    def _decided(self, one: PodDecision, starts: Mapping[PodKey, datetime | None]) -> dict[str, Any]:
        said: dict[str, Any] = {"p": self._who(one.pod)}
        if one.pod in starts:
            start = starts[one.pod]
            said["s"] = "" if start is None else format_time(start)
        match one:
            case Bound():
                notes = [result.device for held in one.claims for result in held.allocation.results]
                text = ", ".join((*notes, *one.notes))
                said |= {"o": "placed", "n": self.row_of[one.node], "w": self.texts(text)}
            case Nominated():
                victims = ", ".join(str(victim.pod) for victim in one.victims)
                text = f"once {victims} left" if victims else ""
                said |= {"o": "nominated", "n": self.row_of[one.node], "w": self.texts(text)}
            case Waiting():
                said |= {"o": "waiting", "w": self.texts(one.reason)}
                if one.held is not None:
                    said["n"] = self.row_of[one.held.node]
            case Unschedulable():
                said |= {"o": "no place", "w": self.texts(one.message)}
                if one.nearest is not None:
                    said["near"] = [
                        self.row_of.get(one.nearest.node, -1),
                        *([lack.reason, lack.resource, lack.lacking] for lack in one.nearest.short),
                    ]
            case NotOurs():
                said |= {"o": "not ours", "w": self.texts(one.message)}
        return said

    def _gangs(self, result: ScheduleResult | None) -> dict[str, Any]:
        if result is None or not result.jobs:
            return {"rows": []}
        names = used_domains(result)
        preempting = {one.job for one in result.preemptions}
        rows = [
            {
                "job": plan.job,
                "members": plan.members,
                "placed": plan.placed,
                "held": plan.held,
                "least": plan.least,
                "outcome": _outcome(plan.placed, plan.held, preempts=plan.job in preempting),
                "domains": [
                    [layer, count, names.get(plan.job, {}).get(layer, [])]
                    for layer, count in plan.domains.items()
                ],
                "certificate": plan.certificate and certificate_data(plan.certificate),
                "why": plan.detail or plan.message,
                "message": plan.message,
            }
            for plan in result.jobs
        ]
        joint = [
            {
                "jobs": list(plan.jobs),
                "started": list(plan.started),
                "alone": plan.one_by_one,
                "certificate": certificate_data(plan.certificate),
            }
            for plan in result.together
        ]
        return {"rows": rows, "joint": joint, "network": network_used(result)}

    # --- plans --------------------------------------------------------------------------------------------

    def _story(self, story: Story) -> dict[str, Any]:
        return {
            "title": story.title,
            "kind": story.kind,
            "certificate": certificate_data(story.certificate),
            "facts": [list(one) for one in story.facts],
            "steps": [
                {
                    "label": step.label,
                    "changes": [self._change(one) for one in step.changes],
                    "cards": [
                        [self.row_of.get(name, name), [self._card(one) for one in cards]]
                        for name, cards in step.cards.items()
                    ],
                    "loads": [
                        [self.row_of.get(name, name), [[one.resource, one.used, one.limit] for one in loads]]
                        for name, loads in step.loads.items()
                    ],
                }
                for step in story.steps
            ],
        }

    def _change(self, one: Change) -> list[Any]:
        return [
            self.pod_of.get(one.pod, one.pod),
            self.row_of.get(one.source, -1),
            self.row_of.get(one.target, -1),
            one.what,
        ]


def _asked(pod: Pod) -> immutabledict[str, int]:
    """Give what a pod asks for, claims by their names, in an order of its own."""
    asked = {name: pod.requests[name] for name in sorted(pod.requests) if pod.requests[name]}
    return immutabledict({**asked, **{f"claim {one.name}": 1 for one in pod.resource_claims}})


def _group_of(pod: Pod) -> str:
    """Name the gang or Kubernetes' own group of a pod; empty for none."""
    gang = job_of(pod)
    group = pod.scheduling_group
    return gang or (f"{pod.namespace}/{group.pod_group}" if group is not None else "")


def _outcome(placed: int, held: int, *, preempts: bool) -> str:
    if placed:
        return "placed"
    if held:
        return "waits"
    return "preempts" if preempts else "no place"


def certificate_data(certificate: Certificate) -> dict[str, Any]:
    """Write what a certificate claims."""
    return {
        "text": certificate.status.text,
        "proven": certificate.proven,
        "objective": list(certificate.objective),
        "bound": list(certificate.bound),
    }
