"""The option ``--policy``: a scheduler configuration, the default, or several to compare."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from koordcore.errors import ModelError
from koordcore.framework.registry import known_plugins
from koordcore.manifests import load
from koordcore.manifests.idle_settings import idle_gates
from koordcore.manifests.scheduler_config import koordinator_policy
from koordcore.model.policy import PluginSetting, Policy
from koordcore.protocol.feature_gates import parse_feature_gates
from koordcore.protocol.fields import at
from koordcore.scheduling.plugins.gpu_share import GpuShareArgs
from koordcore.scoring.gpu_policies import PolicyName

__all__ = ["KNOWN_POLICIES", "add_policy", "read_policies", "read_policy"]

STOCK: Final = "stock"
KOORDINATOR: Final = "koordinator"
KNOWN_POLICIES: Final = (STOCK, KOORDINATOR, *PolicyName)
"""Policies that need no file; the last ones are the stock policy with a GPU policy's score before all."""
_BEFORE_ALL_OTHERS: Final = 10_000


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Add ``--policy`` and ``--profile``."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="a KubeSchedulerConfiguration; without it the stock Kubernetes plugins decide",
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="which profile of that file, where it has more than one"
    )
    parser.add_argument(
        "--feature-gates",
        metavar="NAME=BOOL,…",
        help="gates of the scheduler, such as MultiQuotaTree=true; before those of the file",
    )


def read_policy(arguments: argparse.Namespace) -> Policy:
    """Read the policy that was asked for.

    Raises
    ------
    ManifestError
        When the file cannot be read.
    ModelError
        When it does not say which profile is meant.
    """
    if arguments.policy is None:
        if arguments.profile is not None:
            raise ModelError("--profile: chooses a profile of --policy FILE, which is missing")
        return _gated(arguments, Policy())
    return _gated(arguments, _supported(_chosen(arguments, _profiles(arguments.policy))))


def _gated(arguments: argparse.Namespace, policy: Policy) -> Policy:
    if arguments.feature_gates is None:
        return policy
    gates = at("--feature-gates", parse_feature_gates, arguments.feature_gates)
    for one in idle_gates(gates):
        print(f"warning: --feature-gates: {one.path.partition('.')[2]}: {one.reason}", file=sys.stderr)
    return attrs.evolve(policy, feature_gates={**policy.feature_gates, **gates})


def read_policies(sources: Sequence[str]) -> dict[str, Policy]:
    """Read several policies: known ones by name, and every profile of the files; two at the least.

    A profile is called by its scheduler name, with the file's name before it where that is taken. A single
    one is compared with the stock policy.

    Raises
    ------
    ManifestError
        When a file cannot be read.
    ModelError
        When there is no configuration in it.
    """
    found: dict[str, Policy] = {}
    for source in sources or (STOCK, KOORDINATOR):
        profiles = {source: known} if (known := _known(source)) is not None else _profiles(source)
        if not profiles:
            raise ModelError(f"--policy: there is no KubeSchedulerConfiguration in {source}")
        for name, policy in profiles.items():
            free = next(one for one in _names(source, name) if one not in found)
            found[free] = _supported(policy)
    return {STOCK: Policy(), **found} if len(found) == 1 and STOCK not in found else found


def _names(source: str, name: str) -> Iterator[str]:
    yield name
    yield f"{Path(source).stem}:{name}"
    yield from (f"{Path(source).stem}:{name}#{number}" for number in itertools.count(2))


def _known(name: str) -> Policy | None:
    if name == STOCK:
        return Policy()
    if name == KOORDINATOR:
        return koordinator_policy(known_plugins())
    if name not in tuple(PolicyName):
        return None
    share = PluginSetting(
        name="GpuShare", weight=_BEFORE_ALL_OTHERS, args=GpuShareArgs(policy=PolicyName(name))
    )
    return Policy().with_plugin(share)


def _profiles(path: str) -> dict[str, Policy]:
    loaded = load([path], sys.stdin)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return {one.name: one for one in loaded.policies}


def _chosen(arguments: argparse.Namespace, profiles: dict[str, Policy]) -> Policy:
    names = ", ".join(profiles)
    if not profiles:
        raise ModelError(f"--policy: there is no KubeSchedulerConfiguration in {arguments.policy}")
    if arguments.profile is not None:
        if arguments.profile not in profiles:
            raise ModelError(f"--profile: no profile {arguments.profile} in {arguments.policy}, only {names}")
        return profiles[arguments.profile]
    if len(profiles) > 1:
        raise ModelError(f"--policy: {arguments.policy} has several profiles: choose with --profile: {names}")
    return next(iter(profiles.values()))


def _supported(policy: Policy) -> Policy:
    """Leave out what this version cannot decide by, and say so."""
    known = known_plugins()
    for plugin in policy.plugins:
        if plugin.name not in known:
            print(f"warning: --policy: {plugin.name} does not take part yet", file=sys.stderr)
    return attrs.evolve(policy, plugins=tuple(one for one in policy.plugins if one.name in known))
