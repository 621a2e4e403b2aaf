"""The option ``--policy``: a scheduler configuration, the default, or several to compare."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from koordcore.cli.own_policies import own_policy
from koordcore.cli.words import near
from koordcore.errors import ModelError
from koordcore.framework.plugin import Plugin
from koordcore.framework.registry import known_plugins
from koordcore.manifests.config_maps import unpacked
from koordcore.manifests.idle_settings import idle_gates
from koordcore.manifests.loading import assemble, opened
from koordcore.manifests.named_policies import POLICY_NAMES, named_policy
from koordcore.manifests.sources import read_sources
from koordcore.model.gangs import CoschedulingArgs, GangFit
from koordcore.model.policy import GangTurns, PluginSetting, Policy
from koordcore.protocol.feature_gates import parse_feature_gates
from koordcore.protocol.fields import at
from koordcore.scheduling.plugins.gpu_share import GpuShareArgs
from koordcore.scoring.gpu_policies import PolicyName

CONFIGURATION: Final = "KubeSchedulerConfiguration"
KNOWN_POLICIES: Final = (*POLICY_NAMES, *PolicyName)
"""Policies that need no file; the last ones are the stock policy with a GPU policy's score before all."""
_BEFORE_ALL_OTHERS: Final = 10_000
_OPTION: Final = "--policy"


def add_policy(parser: argparse.ArgumentParser, *, gangs: bool = True) -> None:
    """Add ``--policy`` and what else says by which rules pods are placed; ``gangs``: gangs, too."""
    parser.add_argument(
        "--policy",
        metavar="NAME|FILE",
        help=f"{', '.join(POLICY_NAMES)}, or a KubeSchedulerConfiguration, also in its ConfigMap (default: "
        "default, which packs devices and spreads CPUs)",
    )
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help="one profile of that file alone; else each pod is decided by the profile of its schedulerName",
    )
    parser.add_argument(
        "--all-schedulers",
        action="store_true",
        help="decide about the pods of other schedulers, too, by the first profile",
    )
    parser.add_argument(
        "--feature-gates",
        metavar="NAME=BOOL,…",
        help="gates of the scheduler, such as MultiQuotaTree=true; before those of the file",
    )
    if not gangs:
        parser.set_defaults(gang_fit=None, joint_gangs=False)
        return
    parser.add_argument(
        "--gang-fit",
        choices=[fit.value for fit in GangFit],
        metavar="FIT",
        help="what gathered gangs look for first on nodes of unequal size: FewestNodes (default), or "
        "TightestFit, which keeps larger blocks whole",
    )
    parser.add_argument(
        "--joint-gangs",
        action="store_true",
        help="plan gangs that follow each other in the queue as one, so that most of them start",
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
    policy = _fitted(arguments, _gated(arguments, _read(arguments)))
    if arguments.joint_gangs:
        policy = attrs.evolve(policy, gangs=GangTurns.TOGETHER)
    return policy.of_all_schedulers() if arguments.all_schedulers else policy


def policy_called(name: str, *, quiet: bool, option: str = _OPTION) -> Policy:
    """Read a policy by its name or file alone, where a command takes nothing else about it.

    Parameters
    ----------
    name, quiet
        As typed; without warnings.
    option
        Under which it was typed, for what is wrong with it.
    """
    rest = {"profile": None, "feature_gates": None, "gang_fit": None, "policy_option": option}
    flags = {"all_schedulers": False, "joint_gangs": False}
    return read_policy(argparse.Namespace(policy=name, quiet=quiet, **rest, **flags))


def _read(arguments: argparse.Namespace) -> Policy:
    known = Policy() if arguments.policy is None else known_policy(arguments.policy)
    if known is None:
        quiet: bool = arguments.quiet
        option: str = getattr(arguments, "policy_option", _OPTION)
        chosen = _chosen(arguments, _profiles(arguments.policy, quiet=quiet), option)
        profiles = [_supported(one, quiet=quiet, option=option) for one in chosen]
        return attrs.evolve(profiles[0], others=tuple(profiles[1:]))
    if arguments.profile is not None:
        raise ModelError("--profile: chooses a profile of --policy FILE, which is missing")
    return known


def _gated(arguments: argparse.Namespace, policy: Policy) -> Policy:
    if arguments.feature_gates is None:
        return policy
    gates = at("--feature-gates", parse_feature_gates, arguments.feature_gates)
    for one in () if arguments.quiet else idle_gates(gates, loading=True):
        print(f"warning: --feature-gates: {one.path.partition('.')[2]}: {one.reason}", file=sys.stderr)
    others = tuple(attrs.evolve(one, feature_gates={**one.feature_gates, **gates}) for one in policy.others)
    return attrs.evolve(policy, feature_gates={**policy.feature_gates, **gates}, others=others)


def _fitted(arguments: argparse.Namespace, policy: Policy) -> Policy:
    if arguments.gang_fit is None:
        return policy
    profiles = []
    for one in policy.profiles:
        known = one.plugin("Coscheduling") or PluginSetting(name="Coscheduling", scores=False)
        args = attrs.evolve(known.args or CoschedulingArgs(), gang_fit=GangFit(arguments.gang_fit))
        profiles.append(one.alone().with_plugin(attrs.evolve(known, args=args)))
    return attrs.evolve(profiles[0], others=tuple(profiles[1:]))


def read_policies(
    sources: Sequence[str], *, all_schedulers: bool = False, quiet: bool = False
) -> dict[str, Policy]:
    """Read several policies: known ones by name, and every profile of the files; two at the least.

    A profile is called by its scheduler name, with the file's name before it where that is taken. A single
    one is compared with the stock policy. Each decides the pods of every scheduler that one of them names,
    with ``all_schedulers`` those of all.

    Raises
    ------
    ManifestError
        When a file cannot be read.
    ModelError
        When there is no configuration in it.
    """
    found: dict[str, Policy] = {}
    for source in sources or ("stock", "koordinator"):
        profiles = (
            {source: known} if (known := known_policy(source)) is not None else _profiles(source, quiet=quiet)
        )
        if not profiles:
            raise ModelError(f"--policy: there is no KubeSchedulerConfiguration in {source}")
        for name, policy in profiles.items():
            free = next(one for one in _names(source, name) if one not in found)
            found[free] = _supported(policy, quiet=quiet)
    if len(found) == 1 and "stock" not in found:
        found = {"stock": named_policy("stock"), **found}
    return _of_the_same_pods(found, all_schedulers=all_schedulers)


def _of_the_same_pods(policies: Mapping[str, Policy], *, all_schedulers: bool) -> dict[str, Policy]:
    """Let each policy decide the pods that one of them names, since different pods cannot be compared."""
    named: dict[str, None] = {}
    for profile in (profile for policy in policies.values() for profile in policy.profiles):
        all_schedulers = all_schedulers or profile.scheduler_names is None
        named |= dict.fromkeys(profile.scheduler_names or ())
    if all_schedulers:
        return {name: policy.of_all_schedulers() for name, policy in policies.items()}
    found = {}
    for name, policy in policies.items():
        taken = {one for profile in policy.others for one in profile.scheduler_names or ()}
        found[name] = attrs.evolve(policy, scheduler_names=[one for one in named if one not in taken])
    return found


def _names(source: str, name: str) -> Iterator[str]:
    yield name
    yield f"{Path(source).stem}:{name}"
    yield from (f"{Path(source).stem}:{name}#{number}" for number in itertools.count(2))


def known_policy(name: str) -> Policy | None:
    """Give a policy that needs no file; ``None`` where nobody knows the name."""
    if name in POLICY_NAMES:
        return named_policy(name)
    meant: Any = name if name in tuple(PolicyName) else own_policy(name)
    if meant is None:
        return None
    if isinstance(meant, Policy):
        return meant
    if isinstance(meant, type) and issubclass(meant, Plugin):
        return named_policy("default").with_plugin(PluginSetting(plugin=meant))
    share = PluginSetting(name="GpuShare", weight=_BEFORE_ALL_OTHERS, args=GpuShareArgs(policy=meant))
    return named_policy("stock").with_plugin(share)


def no_such_policy(text: str) -> str:
    """Say that there is neither a file nor a policy of that name, with the nearest name."""
    message = f"{text}: no such file or folder, and none of {', '.join(POLICY_NAMES)}"
    return f"{message}{near(text, KNOWN_POLICIES)}"


def _profiles(path: str, *, quiet: bool) -> dict[str, Policy]:
    if path != "-" and not Path(path).exists():
        raise ModelError(f"--policy: {no_such_policy(path)}")
    loaded = assemble(unpacked(opened(read_sources([path], stdin=sys.stdin)), CONFIGURATION))
    for warning in () if quiet else loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return {one.name: one for one in loaded.policies}


def _chosen(arguments: argparse.Namespace, profiles: dict[str, Policy], option: str) -> list[Policy]:
    names = ", ".join(profiles)
    if not profiles:
        raise ModelError(f"{option}: there is no KubeSchedulerConfiguration in {arguments.policy}")
    if arguments.profile is not None:
        if arguments.profile not in profiles:
            raise ModelError(f"--profile: no profile {arguments.profile} in {arguments.policy}, only {names}")
        return [profiles[arguments.profile]]
    return list(profiles.values())


def _supported(policy: Policy, *, quiet: bool, option: str = _OPTION) -> Policy:
    """Leave out what this version cannot decide by, and say so."""
    known = known_plugins()
    for plugin in policy.plugins:
        if plugin.name not in known and not quiet:
            print(f"warning: {option}: {plugin.name} does not take part yet", file=sys.stderr)
    return attrs.evolve(policy, plugins=tuple(one for one in policy.plugins if one.name in known))
