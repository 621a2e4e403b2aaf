"""Fields of configuration records that are parsed and that no decision reads; the list may only shrink."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import attrs

from koordcore.manifests.idle_settings import IDLE_ARGUMENTS
from koordcore.manifests.scheduler_config import policies_from_manifest
from koordcore.model import plugin_args
from koordcore.model.claims import ClaimArgs
from koordcore.model.colocation import ColocationStrategy
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.gangs import CoschedulingArgs
from koordcore.model.load import AggregatedArgs, LoadAwareArgs
from koordcore.model.numa import NUMAArgs
from koordcore.model.quotas import QuotaPolicy
from koordcore.model.rebalance import (
    EvictorArgs,
    LowNodeLoadArgs,
    MigrationControllerArgs,
    NodePool,
    ObjectLimiter,
)
from koordcore.model.reservations import PreAllocationArgs, ReservationArgs

SOURCE: Final = Path(__file__).resolve().parents[1] / "src" / "koordcore"
KINDS: Final[tuple[type[Any], ...]] = (
    plugin_args.FitArgs,
    plugin_args.BalancedArgs,
    plugin_args.FitPlusArgs,
    plugin_args.ScarceArgs,
    plugin_args.SpreadArgs,
    plugin_args.InterPodArgs,
    plugin_args.NodeAffinityArgs,
    AggregatedArgs,
    ClaimArgs,
    ColocationStrategy,
    CoschedulingArgs,
    DevicePolicy,
    EvictorArgs,
    LoadAwareArgs,
    LowNodeLoadArgs,
    MigrationControllerArgs,
    NUMAArgs,
    NodePool,
    ObjectLimiter,
    PreAllocationArgs,
    QuotaPolicy,
    ReservationArgs,
)
WORKERS = "the answer does not depend on the number of workers"
AGENT = "what the node agent measures and reports, which a dump shows as it is"
LOOKS_ONCE = "a call looks at the cluster once; nothing is collected in the background"
IDLE: Final = {
    "ColocationStrategy.metric_aggregate_duration_seconds": AGENT,
    "ColocationStrategy.metric_report_interval_seconds": AGENT,
    "ColocationStrategy.metric_aggregate_durations": AGENT,
    "ColocationStrategy.metric_memory_collect_policy": AGENT,
    "ColocationStrategy.extensions": "the embedder's own",
    "CoschedulingArgs.aware_network_topology": "gangs heed the topology that they name, always",
    "CoschedulingArgs.controller_workers": WORKERS,
    "LoadAwareArgs.estimator": "there is one; another name is refused",
    "MigrationControllerArgs.default_job_ttl": "written by `-o patches` as five minutes",
    "MigrationControllerArgs.dry_run": "every plan is one",
    "ReservationArgs.controller_workers": WORKERS,
    "ReservationArgs.disable_garbage_collection": LOOKS_ONCE,
    "ReservationArgs.gc_duration": LOOKS_ONCE,
    "ReservationArgs.gc_interval": LOOKS_ONCE,
    "ReservationArgs.min_candidate_nodes_absolute": "preemption looks at all nodes",
    "ReservationArgs.min_candidate_nodes_percentage": "preemption looks at all nodes",
    "ReservationArgs.resync_interval": LOOKS_ONCE,
    "ReservationArgs.skip_fits_node": "filter and allocation are one question (ruling 23)",
}
"""Record and field to why nothing reads it. Wire a field in and strike it out; add none."""


def read_fields() -> set[str]:
    """Give every attribute name that code reads outside of parsers, writers and the records themselves."""
    found: set[str] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        room = path.relative_to(SOURCE).parts[0]
        if room not in ("protocol", "manifests", "model"):
            chains = re.findall(r"(?<![\w)\]])\w+((?:\.\w+)+)", path.read_text(encoding="utf-8"))
            found.update(name for chain in chains for name in chain.split("."))
    # Records that decide by methods of their own.
    for name in (
        "numa",
        "load",
        "reservations",
        "device_policy",
        "gangs",
        "policy",
        "plugin_args",
        "rebalance",
    ):
        text = (SOURCE / "model" / f"{name}.py").read_text(encoding="utf-8")
        found.update(re.findall(r"self\.(\w+)", text))
    # Arguments that stand in for what an object does not say, which its parser asks for.
    found.update(re.findall(r"\bargs\.(\w+)", (SOURCE / "protocol" / "gang.py").read_text(encoding="utf-8")))
    return found


def test_every_field_of_a_configuration_is_read_or_has_a_reason() -> None:
    read = read_fields()
    idle = {
        f"{kind.__name__}.{one.name}" for kind in KINDS for one in attrs.fields(kind) if one.name not in read
    }
    assert idle - IDLE.keys() == set()


def test_what_no_plugin_reads_is_told_to_whoever_configures_it() -> None:
    """Every idle argument that the linter names is legal, and reads as it is written upstream."""
    values: dict[str, Any] = {"hookPlugins": [], "quotaGroupNamespace": "q", "revokePodInterval": "1s"}
    values |= {
        "quotaSnapshotUpdateInterval": "1s",
        "defaultTimeout": "600s",
        "defaultMatchPolicy": "only-waiting",
    }
    for plugin, fields in IDLE_ARGUMENTS.items():
        for field in fields:
            value = values.get(field, False if field.startswith(("enable", "disable", "aware")) else 1)
            args = [{"name": plugin, "args": {field: value}}]
            assert policies_from_manifest({"profiles": [{"pluginConfig": args}]})
