"""``koordcore policy``: what a configuration, or a policy by name, means, and what is odd about it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from koordcore.cli.layout import Column, Table, Tone
from koordcore.cli.output import CONFIG, add_output, for_programs, print_record
from koordcore.cli.policies import CONFIGURATION, known_policy, no_such_policy
from koordcore.cli.progress import add_quiet
from koordcore.cli.tables import say, show
from koordcore.errors import ManifestError, ModelError, Problem
from koordcore.framework.registry import known_plugins
from koordcore.manifests.bundle import called_alike
from koordcore.manifests.config_maps import unpacked
from koordcore.manifests.loading import opened
from koordcore.manifests.named_policies import POLICY_NAMES
from koordcore.manifests.plugins import KOORDINATOR_CONFIGURATION
from koordcore.manifests.policy_args import OUR_ARGUMENTS, write_args
from koordcore.manifests.policy_lint import lint_configuration
from koordcore.manifests.policy_manifest import configuration_manifest
from koordcore.manifests.scheduler_config import (
    SchedulerConfiguration,
    SchedulerProfile,
    scheduler_configuration,
)
from koordcore.manifests.sources import read_sources
from koordcore.model.policy import PluginSetting, Policy
from koordcore.scheduling.plugins.gpu_share import GpuShareArgs

EPILOG: Final = """\
examples:
  koordcore policy scheduler-config.yaml
  koordcore policy scheduler-config.yaml -o config   written out, no defaults
  koordcore policy scheduler-config.yaml -o json     findings for programs
  koordcore policy binpack                           what a known name means
"""


SHIPPED: Final = "koordinator"
"""The known policy that is a configuration, which the lint reads."""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = (
        "Say what a KubeSchedulerConfiguration, or a policy by name, means here, and what is odd about it."
    )
    parser.epilog = EPILOG
    parser.add_argument(
        "file",
        metavar="NAME|FILE",
        help=f"{', '.join(POLICY_NAMES)}, a KubeSchedulerConfiguration (also in its ConfigMap), or - for "
        "standard input",
    )
    add_quiet(parser)
    add_output(parser, CONFIG)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain every profile; 1 when there is anything to say against it."""
    known = None if Path(arguments.file).exists() else known_policy(arguments.file)
    if known is not None and arguments.file != SHIPPED:
        return _print_known(known, arguments)
    configurations = list(_configurations(arguments.file, quiet=arguments.quiet))
    alike = list(called_alike(one.name for each in configurations for one in each.profiles))
    if alike:
        raise ManifestError(attrs.evolve(one, source=arguments.file) for one in alike)
    findings = [one for each in configurations for one in lint_configuration(each, known_plugins())]
    profiles = [one for each in configurations for one in each.profiles]
    if arguments.output == CONFIG:
        _print_configuration(arguments, *(one.policy(known_plugins()) for one in profiles))
        return 0
    if for_programs(arguments):
        record = [{"profile": one.profile, "plugin": one.plugin, "message": one.message} for one in findings]
        print_record(arguments, record)
        return 1 if findings else 0
    tables = [_table(profile.policy(known_plugins()), _left_out(profile)) for profile in profiles]
    if findings:
        rows = [(one.profile, one.plugin, one.message) for one in findings]
        columns = (
            Column("PROFILE", tone=Tone.NAME),
            Column("PLUGIN"),
            Column("FINDING", tone=Tone.BAD, text=True),
        )
        tables.append(Table(title="Findings", columns=columns, rows=rows))
    show(*tables)
    say(_counts(len(profiles), len(findings)))
    return 1 if findings else 0


def _print_known(policy: Policy, arguments: argparse.Namespace) -> int:
    """Print a policy that has a name: there is nothing to say against it."""
    if arguments.output == CONFIG:
        _print_configuration(arguments, policy)
    elif for_programs(arguments):
        print_record(arguments, [])
    else:
        show(_table(policy))
        say(_counts(1, 0))
    return 0


def _print_configuration(arguments: argparse.Namespace, *policies: Policy) -> None:
    """Write policies out, and name the arguments that are ours."""
    written = configuration_manifest(*policies)
    print(json.dumps(written, indent=2))
    for number, profile in enumerate(() if arguments.quiet else written["profiles"]):
        for one in profile.get("pluginConfig", ()):
            for name in OUR_ARGUMENTS.get(one["name"], ()):
                if name in one["args"]:
                    place = f"profiles[{number}].pluginConfig[{one['name']}].args.{name}"
                    told = f"{place}: koordcore alone reads it, other schedulers refuse it"
                    print(f"warning: {told}", file=sys.stderr)


def _counts(profiles: int, findings: int) -> str:
    counted = ((profiles, "profile"), (findings, "finding"))
    return " · ".join(f"{number} {what}{'s' * (number != 1)}" for number, what in counted)


def _configurations(path: str, *, quiet: bool) -> Iterator[SchedulerConfiguration]:
    if path != "-" and not Path(path).exists():
        if path != SHIPPED:
            raise ModelError(no_such_policy(path))
        yield scheduler_configuration(KOORDINATOR_CONFIGURATION)
        return
    found = False
    for source in unpacked(opened(read_sources([path], stdin=sys.stdin)), CONFIGURATION):
        if isinstance(source, Problem):
            raise ManifestError([source])
        if not isinstance(source.raw, dict):
            raise ManifestError([Problem("", "expected an object", source=source.source)])
        found = True
        if "apiVersion" not in source.raw:  # as for `schedule`, and for the scheduler itself
            missing = f'required (such as "{KOORDINATOR_CONFIGURATION["apiVersion"]}")'
            raise ManifestError([Problem("apiVersion", missing, source=source.source)])
        try:
            configuration = scheduler_configuration(source.raw)
        except ManifestError as error:
            raise ManifestError(attrs.evolve(one, source=source.source) for one in error.problems) from None
        for warning in () if quiet else configuration.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        yield configuration
    if not found:
        raise ManifestError([Problem("", "there is no KubeSchedulerConfiguration in it", source=path)])


def _table(policy: Policy, note: str = "") -> Table:
    share = policy.percentage_of_nodes
    looked_at = {0: "a share of the nodes that falls with their number", 100: "all nodes"}
    return Table(
        title="; ".join(
            (f"{policy.name}: {looked_at.get(share, f'{share} % of the nodes')}", *_gates(policy))
        ),
        columns=(
            Column("PLUGIN", tone=Tone.NAME),
            Column("FILTERS"),
            Column("WEIGHT", number=True),
            Column("ARGUMENTS", tone=Tone.DIM, text=True, rank=1),
        ),
        rows=[_row(one) for one in policy.plugins],
        note=note,
    )


def _gates(policy: Policy) -> Iterator[str]:
    if policy.feature_gates:
        gates = sorted(policy.feature_gates.items())
        yield "feature gates " + ", ".join(f"{name}={str(on).lower()}" for name, on in gates)


def _row(setting: PluginSetting) -> tuple[str, str, str, str]:
    args: Any = setting.args
    match args:
        case None:
            text = ""
        case GpuShareArgs():
            text = str(args.policy)
        case _:
            text = json.dumps(write_args(setting.name, args))
    return (
        setting.name,
        "yes" if setting.filters else "",
        str(setting.weight) if setting.scores else "",
        text,
    )


def _left_out(profile: SchedulerProfile) -> str:
    missing = profile.missing(known_plugins())
    return f"left out: {', '.join(missing)}" if missing else ""
