"""Policies by name: what may be said instead of a scheduler's configuration."""

from __future__ import annotations

from typing import Final

from koordcore.errors import ModelError
from koordcore.manifests.plugins import MODELLED
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.plugin_args import FitArgs, ScoringStrategy
from koordcore.model.policy import STOCK_PLUGINS, PluginSetting, Policy, rating_devices


def _stock() -> Policy:
    return Policy(plugins=STOCK_PLUGINS)


def _koordinator() -> Policy:
    return koordinator_policy(MODELLED)


def _binpack() -> Policy:
    packing = PluginSetting(
        name="NodeResourcesFit", weight=5, args=FitArgs(strategy=ScoringStrategy.MOST_ALLOCATED)
    )
    return Policy().with_plugin(packing)


def _spread() -> Policy:
    return Policy(plugins=rating_devices(STOCK_PLUGINS, ScoringStrategy.LEAST_ALLOCATED))


_MAKERS: Final = {
    "default": Policy,
    "stock": _stock,
    "koordinator": _koordinator,
    "binpack": _binpack,
    "spread": _spread,
}
POLICY_NAMES: Final = tuple(_MAKERS)
"""Names that :func:`named_policy` knows.

``default``: devices packed, CPUs and memory spread; ``stock``: kube-scheduler's; ``koordinator``: its shipped
profile; ``binpack``: everything packed; ``spread``: everything spread.
"""


def named_policy(name: str) -> Policy:
    """Give a policy by its name.

    Parameters
    ----------
    name
        One of :data:`POLICY_NAMES`.

    Raises
    ------
    ModelError
        When there is none of that name.

    Examples
    --------
    >>> from koordcore import Policy
    >>> named_policy("default") == Policy()
    True
    """
    if name not in _MAKERS:
        raise ModelError(f"no policy {name!r}: expected {', '.join(POLICY_NAMES)}")
    return _MAKERS[name]()
