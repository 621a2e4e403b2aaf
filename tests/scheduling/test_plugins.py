"""The list of plugins."""

from __future__ import annotations

import pytest

from koordcore import ModelError, Node, PluginSetting, Policy, schedule
from koordcore.framework.plugin import JointPlugin
from koordcore.framework.registry import PLUGINS, plugin_type
from koordcore.framework.workspace import Workspace
from koordcore.model.policy import DEFAULT_PLUGINS
from koordcore.snapshot import ClusterSnapshot


@pytest.mark.parametrize("name", PLUGINS)
def test_each_name_leads_to_its_plugin(name: str) -> None:
    """The list and the classes agree on the names."""
    kind = plugin_type(name)
    if issubclass(kind, JointPlugin):
        workspace = Workspace(ClusterSnapshot(nodes=[Node(name="n")]))
        assert kind(workspace, {name: PluginSetting(name=name)}).entry(name).name == name
    else:
        assert kind.name == name


def test_the_default_policy_names_plugins_that_exist() -> None:
    """Nothing in the default policy is unknown."""
    assert {setting.name for setting in DEFAULT_PLUGINS} <= PLUGINS.keys()


def test_an_unknown_plugin_is_refused_by_name() -> None:
    """A policy with a misspelt plugin is the caller's mistake."""
    policy = Policy(name="mine", plugins=(PluginSetting(name="NodeResourceFit"),))
    with pytest.raises(ModelError, match=r"^policy mine: no plugin NodeResourceFit$"):
        schedule(ClusterSnapshot(nodes=[Node(name="n")]), policy=policy)
