"""Settings of a scheduler configuration that no decision here looks at, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from immutabledict import immutabledict

from koordcore._record import record
from koordcore.model.feature_gates import FIXED_GATES, GATED_ARGUMENTS, POLICY_GATES, WEBHOOK_GATES


@record
class Unused:
    """A setting without effect.

    Parameters
    ----------
    path
        Where it stands in the configuration.
    reason
        Why nothing follows from it, and what to do instead where there is something.
    plugin
        Plugin that it is about; empty for the component.
    profile
        Index of its profile; ``None`` for what stands above the profiles.
    """

    path: str
    reason: str
    plugin: str = ""
    profile: int | None = None


_COMPONENT: Final = "runs the component; says nothing about placement"
_QUEUE: Final = "a call decides about every pod once; nobody backs off"
COMPONENT_FIELDS: Final[Mapping[str, str]] = immutabledict(
    {
        "parallelism": "the answer does not depend on the number of workers",
        **dict.fromkeys(
            (
                "leaderElection",
                "clientConnection",
                "healthzBindAddress",
                "metricsBindAddress",
                "enableProfiling",
                "enableContentionProfiling",
                "delayCacheUntilActive",
            ),
            _COMPONENT,
        ),
        "podInitialBackoffSeconds": _QUEUE,
        "podMaxBackoffSeconds": _QUEUE,
    }
)
"""Fields of the component to why they have no effect."""

_WORKERS: Final = "the answer does not depend on the number of workers"
_ALL_NODES: Final = "preemption looks at all nodes"
_CONTROLLER: Final = "a call looks once, as the cluster stands; nothing goes on in the background"
IDLE_ARGUMENTS: Final[Mapping[str, Mapping[str, str]]] = immutabledict(
    {
        "ElasticQuota": {
            "hookPlugins": "compiled into the scheduler; in Python give QuotaPolicy(checks=...)",
            "revokePodInterval": "`koordcore quota revoke` looks once",
            "quotaSnapshotUpdateInterval": _CONTROLLER,
            "quotaGroupNamespace": "quotas are told apart by their names alone",
            "enableQueueHint": _QUEUE,
        },
        "Reservation": {
            "controllerWorkers": _WORKERS,
            "minCandidateNodesPercentage": _ALL_NODES,
            "minCandidateNodesAbsolute": _ALL_NODES,
            "gcDurationSeconds": _CONTROLLER,
            "gcIntervalSeconds": _CONTROLLER,
            "disableGarbageCollection": _CONTROLLER,
            "resyncIntervalSeconds": _CONTROLLER,
        },
        "DynamicResources": {
            "filterTimeout": "no filter runs into a time limit",
        },
        "NodeNUMAResource": {
            "numaScoringStrategy.resources": "nodes and NUMA nodes are scored by scoringStrategy.resources",
        },
        "Coscheduling": {
            "controllerWorkers": _WORKERS,
            "awareNetworkTopology": "gangs heed the topology that they name, always",
        },
    }
)
"""Plugin to those of its arguments that are legal and have no effect."""

IDLE_POINTS: Final = (
    "preEnqueue",
    "queueSort",
    "postFilter",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""Extension points at which nothing is decided here by itself."""
POINTS_REASON: Final = (
    "who filters and scores decides; the queue goes by priority, age and name, gangs start together, and "
    "`--preempt` says whether somebody is evicted"
)

UNREAD_ARGUMENTS: Final[Mapping[str, str]] = immutabledict(
    {
        "DefaultPreemption": _ALL_NODES,
        "VolumeBinding": "binding volumes is not waited for",
        "DefaultBinder": "nothing is bound here",
    }
)
"""Plugin to why none of its arguments has an effect."""


def idle_gates(gates: Mapping[str, bool], *, loading: bool = False) -> Iterator[Unused]:
    """Give the gates that change nothing: unknown ones, and those that act the other way here.

    Parameters
    ----------
    loading
        Objects were read with these gates, too, so that those of the quota webhook count.
    """
    deciding = set(WEBHOOK_GATES if loading else ())
    deciding |= {gate for _, fields in GATED_ARGUMENTS.values() for gate in fields} | POLICY_GATES.keys()
    for gate, on in gates.items():
        if gate in deciding or FIXED_GATES.get(gate) is on:
            continue
        acts = FIXED_GATES.get(gate)
        fixed = f"acts as {'on' if acts else 'off'} here, always"
        reason = "no decision here reads it" if acts is None else fixed
        yield Unused(f"featureGates.{gate}", reason)
