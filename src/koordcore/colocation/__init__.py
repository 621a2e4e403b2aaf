"""How much of the cluster can be lent to batch and mid pods, predicted from usage and explained.

A snapshot lends with :func:`lend`, shows it with :func:`lending_table` and explains it with
:func:`explain_node`; :func:`batch_of_node` and :func:`mid_of_node` answer for one node. Predictions live in
:mod:`~koordcore.colocation.prediction` and :mod:`~koordcore.colocation.peak`, ratios in
:mod:`~koordcore.colocation.normalization`, what a controller writes in :mod:`~koordcore.colocation.sync`,
and the quality of service of pods in :mod:`~koordcore.colocation.resctrl`,
:mod:`~koordcore.colocation.cpuqos` and :mod:`~koordcore.colocation.profile`.
"""

from koordcore.colocation.batch import Batch, Degraded, Failed, batch_of_node
from koordcore.colocation.cluster import (
    LendingRow,
    LendingTable,
    config_of_snapshot,
    latest_report,
    lend,
    lending_table,
)
from koordcore.colocation.config import admit_config, completed_config, effective_strategy
from koordcore.colocation.mid import Mid, mid_of_node
from koordcore.colocation.peak import prod_reclaimable
from koordcore.colocation.prediction import NO_MODELS, PredictionState, predict, train, update
from koordcore.colocation.profile import mutate_pod
from koordcore.colocation.waterfall import Step, Waterfall, explain_node, render_waterfalls

__all__ = [
    "NO_MODELS",
    "Batch",
    "Degraded",
    "Failed",
    "LendingRow",
    "LendingTable",
    "Mid",
    "PredictionState",
    "Step",
    "Waterfall",
    "admit_config",
    "batch_of_node",
    "completed_config",
    "config_of_snapshot",
    "effective_strategy",
    "explain_node",
    "latest_report",
    "lend",
    "lending_table",
    "mid_of_node",
    "mutate_pod",
    "predict",
    "prod_reclaimable",
    "render_waterfalls",
    "train",
    "update",
]
