"""The guide's tables of policies and plugins say what the policies are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from koordcore import Policy, named_policy
from koordcore.framework.registry import PLUGINS
from koordcore.manifests.named_policies import POLICY_NAMES
from koordcore.model.claims import ClaimArgs
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.plugin_args import FitArgs
from koordcore.model.policy import PluginSetting

PAGE = (Path(__file__).parents[2] / "docs" / "guides" / "policies.md").read_text(encoding="utf-8")


def rows(head: str) -> Iterator[list[str]]:
    """Give the cells of the table with this head, and of its rows."""
    table = PAGE[PAGE.index(head) :].partition("\n\n")[0].splitlines()
    for line in (table[0], *table[2:]):
        yield [cell.strip() for cell in line.strip("|").split("|")]


def strategy(setting: PluginSetting) -> str:
    match setting.name, setting.args:
        case "NodeResourcesFit", args:
            return str((args or FitArgs()).strategy)
        case "DeviceShare", args:
            return str((args or DevicePolicy()).strategy)
        case "DynamicResources", args:
            return "MostAllocated" if (args or ClaimArgs()).packed else "LeastAllocated"
        case _, args:
            return str(args.extended[0])


def test_the_table_of_plugins_has_all_of_them_and_says_which_are_on() -> None:
    _, *table = rows("| name | filters | scores |")
    told = {name: row[1:] for row in table for name in re.findall(r"`(\w+)`", row[0])}
    assert set(told) == set(PLUGINS)
    for name, (_, scores, on) in told.items():
        setting = Policy().plugin(name)
        expected = "" if setting is None else "filter only" if scores and not setting.scores else "yes"
        assert (name, on) == (name, expected)


def test_the_table_of_policies_says_by_what_they_rate() -> None:
    head, *table = rows("| policy | CPUs and memory")
    plugins = [re.findall(r"`(\w+)`", cell)[0] for cell in head[1:-1]]
    assert [row[0] for row in table] == [f"`{name}`" for name in POLICY_NAMES]
    for (_, *cells, _), name in zip(table, POLICY_NAMES, strict=True):
        for plugin, cell in zip(plugins, cells, strict=True):
            setting = named_policy(name).plugin(plugin)
            if setting is None or not setting.scores:
                assert (name, plugin, cell) == (name, plugin, "not scored")
                continue
            how, _, weight = cell.partition(", ")
            assert (name, plugin, weight) == (name, plugin, str(setting.weight))
            assert how in ("its own", strategy(setting))
