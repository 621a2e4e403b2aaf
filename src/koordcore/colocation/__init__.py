"""How much of the cluster can be lent to batch and mid pods, predicted from usage and explained.

A snapshot lends with :func:`lend`, shows it with :func:`lending_table` and explains it with
:func:`explain_node`; :func:`batch_of_node` and :func:`mid_of_node` answer for one node. Predictions live in
:mod:`~koordcore.colocation.prediction` and :mod:`~koordcore.colocation.peak`, ratios in
:mod:`~koordcore.colocation.normalization` and for a whole snapshot in
:mod:`~koordcore.colocation.amplifying`, what a controller writes in :mod:`~koordcore.colocation.sync`,
and the quality of service of pods in :mod:`~koordcore.colocation.resctrl`,
:mod:`~koordcore.colocation.cpuqos` and :mod:`~koordcore.colocation.profile`.
"""

from typing import TYPE_CHECKING

from koordcore._face import read_late

if TYPE_CHECKING:
    from koordcore.colocation.batch import batch_of_node as batch_of_node
    from koordcore.colocation.cluster import (
        config_of_snapshot as config_of_snapshot,
        latest_report as latest_report,
        lend as lend,
        lending_table as lending_table,
    )
    from koordcore.colocation.peak import prod_reclaimable as prod_reclaimable
    from koordcore.colocation.prediction import (
        NO_MODELS as NO_MODELS,
        predict as predict,
        train as train,
        update as update,
    )
    from koordcore.colocation.profile import PriorityClassSpec as PriorityClassSpec
    from koordcore.colocation.waterfall import (
        explain_node as explain_node,
        render_waterfalls as render_waterfalls,
    )
else:
    __all__, __getattr__, __dir__ = read_late(
        __name__,
        {
            "koordcore.colocation.batch": ("batch_of_node",),
            "koordcore.colocation.cluster": ("config_of_snapshot", "latest_report", "lend", "lending_table"),
            "koordcore.colocation.peak": ("prod_reclaimable",),
            "koordcore.colocation.prediction": ("NO_MODELS", "predict", "train", "update"),
            "koordcore.colocation.profile": ("PriorityClassSpec",),
            "koordcore.colocation.waterfall": ("explain_node", "render_waterfalls"),
        },
    )
