"""Odd calls: whatever is handed to a public function, it ends in an answer or in an error that helps.

Errors that help are the library's own, and a TypeError that names the argument.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from campaigns.case import Case, Failure, Figures, check_laws
from koordcore import (
    ClusterSnapshot,
    KoordcoreError,
    Limits,
    Node,
    NodeState,
    PluginSetting,
    Pod,
    PodKey,
    Policy,
    PreemptionRules,
    Taint,
    Toleration,
    schedule,
    verify,
)
from koordcore.explaining import explain
from koordcore.manifests import load, snapshot_from_objects

__all__ = ["Api"]

NODE: Final = Node(name="n", allocatable={"cpu": 4000, "memory": 2**33, "pods": 10})
POD: Final = Pod(name="p", requests={"cpu": 1000})
SMALL: Final = ClusterSnapshot(nodes=[NODE], pending=[POD])
ODD: Final[dict[str, Any]] = {
    "None": None,
    "True": True,
    "-1": -1,
    "1.5": 1.5,
    "nan": float("nan"),
    "2**63": 2**63,
    "2**57": 2**57,
    "10**30": 10**30,
    "''": "",
    "'x'": "x",
    "b'x'": b"x",
    "()": (),
    "('x',)": ("x",),
    "[None]": [None],
    "{'x': 'y'}": {"x": "y"},
    "{'cpu': 1.5}": {"cpu": 1.5},
    "{1: 2}": {1: 2},
    "object()": object,
    "naive": datetime(2026, 1, 1),  # noqa: DTZ001 - meant
    "aware": datetime(2026, 1, 1, tzinfo=UTC),
    "pod": POD,
    "key": PodKey("default", "p"),
}
"""Odd values by the name that a case writes down."""

CALLS: Final[dict[str, Callable[..., object]]] = {
    "Node": lambda **given: _placed(node=Node(**{"name": "n", "allocatable": NODE.allocatable, **given})),
    "Pod": lambda **given: _placed(pod=Pod(**{"name": "p", "requests": {"cpu": 1000}, **given})),
    "Taint": lambda **given: _placed(
        node=Node(
            name="n", allocatable=NODE.allocatable, taints=(Taint(**{"key": "k", "value": "v", **given}),)
        )
    ),
    "Toleration": lambda **given: _placed(pod=Pod(name="p", tolerations=(Toleration(**given),))),
    "NodeState": lambda **given: NodeState(**{"node": NODE, **given}),
    "ClusterSnapshot": lambda **given: schedule(ClusterSnapshot(**{"nodes": [NODE], **given})),
    "Policy": lambda **given: schedule(SMALL, policy=Policy(**given)),
    "PluginSetting": lambda **given: schedule(
        SMALL,
        policy=Policy().with_plugin(PluginSetting(**{"name": "NodeResourcesFit", **given})),
    ),
    "Limits": lambda **given: schedule(SMALL, limits=Limits(**given)),
    "PreemptionRules": lambda **given: schedule(SMALL, preempt=PreemptionRules(**given)),
    "schedule": lambda **given: schedule(**{"snapshot": SMALL, **given}),
    "verify": lambda **given: verify(**{"snapshot": SMALL, "result": schedule(SMALL), **given}),
    "explain": lambda **given: explain(**{"source": SMALL, "pod": POD, **given}),
    "load": lambda **given: load(**{"paths": [], **given}),
    "snapshot_from_objects": snapshot_from_objects,
}
ARGUMENTS: Final[dict[str, tuple[str, ...]]] = {
    "Node": ("name", "labels", "annotations", "taints", "unschedulable", "allocatable", "created", "images"),
    "Pod": (
        *(
            "name",
            "namespace",
            "uid",
            "labels",
            "annotations",
            "owners",
            "containers",
            "requests",
            "priority",
        ),
        *("node_selector", "affinity", "tolerations", "spread_constraints", "host_ports", "claims", "gates"),
        *("created", "nominated_node", "preemption_policy", "overhead"),
    ),
    "Taint": ("key", "value", "effect"),
    "Toleration": ("key", "operator", "value", "effect"),
    "NodeState": ("node", "pods"),
    "ClusterSnapshot": ("nodes", "pending", "records"),
    "Policy": ("name", "plugins", "percentage_of_nodes", "gangs"),
    "PluginSetting": ("name", "weight", "filters", "scores", "args"),
    "Limits": ("deterministic_time", "seed"),
    "PreemptionRules": ("members", "gather", "relocation", "restart_costs"),
    "schedule": ("snapshot", "pods", "policy", "now", "limits", "preempt"),
    "verify": ("snapshot", "result", "policy"),
    "explain": ("source", "pod", "policy", "now", "limits"),
    "load": ("paths", "limits"),
    "snapshot_from_objects": ("objects",),
}


def _placed(node: Node = NODE, pod: Pod = POD) -> object:
    """Use what was made: a record that takes anything must not fail later, far from the cause."""
    snapshot = ClusterSnapshot(nodes=[node], pending=[pod])
    return verify(snapshot, schedule(snapshot, preempt=PreemptionRules()))


class Api:
    """The campaign; see the module."""

    name = "api"
    laws: tuple[str, ...] = ("answers", "named")
    open_laws: tuple[str, ...] = ()

    def draw(self, chance: random.Random) -> Case:
        """Draw a call with one or two odd arguments."""
        call = chance.choice(sorted(CALLS))
        names = chance.sample(ARGUMENTS[call], min(len(ARGUMENTS[call]), chance.choice((1, 1, 1, 2))))
        return {"call": call, "given": {name: chance.choice(sorted(ODD)) for name in names}}

    def check(self, case: Case, laws: Iterable[str], figures: Figures) -> list[Failure]:
        """Call, and judge how it ends."""
        figures["call", case["call"]] += 1
        given = {name: ODD[value] for name, value in case["given"].items()}

        def named() -> Iterator[str]:
            try:
                CALLS[case["call"]](**given)
            except KoordcoreError as error:
                figures["outcome", type(error).__name__] += 1
                if not str(error):
                    yield f"{case['call']}: a refusal that says nothing"
            except TypeError as error:
                figures["outcome", "TypeError"] += 1
                if not any(name in str(error) for name in given):
                    yield f"{case['call']}({', '.join(given)}): {error}"
            else:
                figures["outcome", "an answer"] += 1

        return check_laws({"named": named}, laws)
