"""The option ``--policy``: a scheduler configuration, or the default."""

from __future__ import annotations

import argparse

from koordcore.errors import ModelError
from koordcore.model.policy import Policy

__all__ = ["add_policy", "read_policy"]


def add_policy(parser: argparse.ArgumentParser) -> None:
    """Add ``--policy``."""
    parser.add_argument(
        "--policy",
        metavar="FILE",
        help="a KubeSchedulerConfiguration; without it the stock Kubernetes features decide",
    )


def read_policy(arguments: argparse.Namespace) -> Policy:
    """Read the policy that was asked for."""
    if arguments.policy is not None:
        raise ModelError("--policy: reading a scheduler configuration is not there yet")
    return Policy()
