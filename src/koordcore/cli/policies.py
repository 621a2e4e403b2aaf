"""The option ``--policy``: a scheduler configuration, or the default."""

from __future__ import annotations

import argparse
import sys

import attrs

from koordcore.errors import ModelError
from koordcore.manifests import load
from koordcore.model.policy import Policy
from koordcore.schedule.features import FEATURES

__all__ = ["add_policy", "read_policy"]


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Add ``--policy`` and ``--profile``."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="a KubeSchedulerConfiguration; without it the stock Kubernetes features decide",
    )
    parser.add_argument(
        "--profile", metavar="NAME", help="which profile of that file, where it has more than one"
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
        return Policy()
    loaded = load([arguments.policy], sys.stdin)
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return _supported(_chosen(arguments, {one.name: one for one in loaded.policies}))


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
    for feature in policy.features:
        if feature.name not in FEATURES:
            print(f"warning: --policy: {feature.name} does not take part yet", file=sys.stderr)
    return attrs.evolve(policy, features=tuple(one for one in policy.features if one.name in FEATURES))
