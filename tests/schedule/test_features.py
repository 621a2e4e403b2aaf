"""The list of features."""

from __future__ import annotations

import pytest

from koordcore import FeatureSetting, ModelError, Node, Policy, schedule
from koordcore.model.policy import DEFAULT_FEATURES
from koordcore.schedule.features import FEATURES, feature_type
from koordcore.snapshot import ClusterSnapshot


@pytest.mark.parametrize("name", FEATURES)
def test_each_name_leads_to_its_feature(name: str) -> None:
    """The list and the classes agree on the names."""
    assert feature_type(name).name == name


def test_the_default_policy_names_features_that_exist() -> None:
    """Nothing in the default policy is unknown."""
    assert {setting.name for setting in DEFAULT_FEATURES} <= FEATURES.keys()


def test_an_unknown_feature_is_refused_by_name() -> None:
    """A policy with a misspelt feature is the caller's mistake."""
    policy = Policy(name="mine", features=(FeatureSetting(name="NodeResourceFit"),))
    with pytest.raises(ModelError, match=r"^policy mine: no feature NodeResourceFit$"):
        schedule(ClusterSnapshot(nodes=[Node(name="n")]), policy=policy)
