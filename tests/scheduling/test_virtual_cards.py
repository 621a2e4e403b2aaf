"""Virtual cards by their vendor's templates, out of the ConfigMap of a dump."""

from __future__ import annotations

import json

import attrs
import pytest

from koordcore import PluginSetting, Policy, schedule, verify
from koordcore.explaining import explain
from koordcore.manifests import snapshot_from_objects
from koordcore.manifests.plan_patches import patches
from koordcore.manifests.scheduler_config import scheduler_configuration
from koordcore.model.device_policy import DevicePolicy
from koordcore.model.devices import SharedTemplates
from tests.scheduling.device_objects import (
    ALLOCATED,
    ASCEND,
    HALF,
    KOORD,
    NPU,
    NPU_CARD,
    QUARTER,
    asks,
    bound,
    card,
    config_map,
    given,
    node,
    pod,
    refusal,
    run,
)

CLUSTER = node("n", card(0, NPU_CARD), card(1, NPU_CARD), labels=ASCEND, of_device=ASCEND)


def test_a_virtual_card_is_placed_and_named_by_its_template() -> None:
    """What is left of two cards together is not enough of any one of them."""
    asked = [asks(f"a{number}", QUARTER) for number in range(3)] + [asks("b", HALF), asks("c", QUARTER)]
    _, result = run(CLUSTER, config_map(), *asked, asks("late", HALF), policy=_with(DevicePolicy()))
    assert [given(result, name)["gpu"] for name in ("a0", "a1", "a2", "b", "c")] == [[0], [1], [0], [1], [0]]
    assert "Insufficient GPU Devices" in refusal(result, "late")
    written = [call.body["metadata"]["annotations"] for call in patches(result) if not call.subresource]
    held = [json.loads(one[ALLOCATED])["gpu"][0] for one in written]
    named = [one["extension"]["gpuSharedResourceTemplate"] for one in held]
    assert named == ["vir05"] * 3 + ["vir10", "vir05"]


def test_amounts_of_no_template_and_templates_of_another_model_are_refused() -> None:
    """A template of another model helps only nodes of that model."""
    odd = {**QUARTER, NPU + "core": "4"}
    _, result = run(CLUSTER, config_map(), asks("odd", odd), asks("mine", QUARTER))
    assert "no matched GPU shared resource template" in refusal(result, "odd")
    other = {**ASCEND, "node.koordinator.sh/gpu-model": "Elsewhere"}
    _, result = run(
        node("n", card(0, NPU_CARD), labels=other, of_device=other), config_map(), asks("p", QUARTER)
    )
    assert refusal(result, "p") == "0/1 nodes are available: 1 no matched GPU shared resource template."


def test_explain_knows_the_templates() -> None:
    loaded = snapshot_from_objects([*CLUSTER, *config_map(), *asks("p", QUARTER)])
    assert explain(loaded.snapshot, "default/p").fitting == ("n",)


def test_verify_finds_a_template_that_is_none() -> None:
    """The name and the amounts must belong together, and to the model."""
    loaded, result = run(CLUSTER, config_map(), asks("p", QUARTER))
    decision = bound(result, "p")
    for wrong in ("vir10", "vir99"):
        text = decision.annotations[ALLOCATED].replace("vir05", wrong)
        node_after = result.snapshot.node("n")
        (held,) = node_after.pods
        forged = attrs.evolve(held, annotations={**held.annotations, ALLOCATED: text})
        snapshot = loaded.snapshot.assume(forged)
        forgery = attrs.evolve(decision, annotations={**decision.annotations, ALLOCATED: text})
        found = verify(loaded.snapshot, attrs.evolve(result, decisions=(forgery,), snapshot=snapshot))
        assert any("no virtual card of a template" in one.message for one in found)


def test_only_the_config_map_that_counts_is_read() -> None:
    """One of another namespace is passed over with a warning; a configuration may name any."""
    elsewhere = config_map(namespace="default")
    loaded, result = run(CLUSTER, elsewhere, asks("p", QUARTER))
    assert "no matched GPU shared resource template" in refusal(result, "p")
    assert any("only the one in koordinator-system counts" in one.message for one in loaded.warnings)
    own = config_map(namespace="team", name="cards")
    policy = DevicePolicy(template_source=("team", "cards"))
    _, result = run(CLUSTER, own, asks("p", QUARTER), policy=_with(policy))
    assert given(result, "p") == {"gpu": [0]}


def _with(args: DevicePolicy) -> Policy:
    return Policy().with_plugin(PluginSetting(name="DeviceShare", args=args))


def test_the_configuration_says_which_requests_need_a_template_and_where_it_stands() -> None:
    """Another vendor's cards are held to templates, too, once its resource is named."""
    args = {
        "gpuSharedResourceTemplatesConfig": {
            "configMapNamespace": "team",
            "configMapName": "cards",
            "matchedResources": [KOORD + "gpu-core"],
        }
    }
    profile = {"pluginConfig": [{"name": "DeviceShare", "args": args}]}
    (read,) = scheduler_configuration(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "koord-scheduler", **profile}],
        }
    ).profiles
    labels = {"node.koordinator.sh/gpu-vendor": "acme", "node.koordinator.sh/gpu-model": "A1"}
    slice_ = {KOORD + "gpu-core": "25", KOORD + "gpu-memory": "20Gi"}
    own = config_map({"acme-A1": {"q": slice_}}, namespace="team", name="cards")
    objects = [*node("n", card(0), labels=labels, of_device=labels), *own, *asks("p", slice_)]
    odd = asks("odd", {**slice_, KOORD + "gpu-core": "30"})
    _, result = run([*objects, *odd], policy=_with(read.args["DeviceShare"]))
    assert given(result, "p") == {"gpu": [0]}
    assert "no matched GPU shared resource template" in refusal(result, "odd")


@pytest.mark.parametrize("text", ["a: [\n", "[]", '{"m": 1}', '{"m": {"t": {"x": "many"}}}'])
def test_templates_that_cannot_be_read_hurt_only_who_needs_them(text: str) -> None:
    """As upstream has it, no template counts then; the loader says where the fault is."""
    whole = pod("whole", {NPU + "core": "20", KOORD + "gpu-memory-ratio": "100"})
    loaded, result = run(CLUSTER, config_map(text), asks("p", QUARTER), whole)
    assert "no matched GPU shared resource template" in refusal(result, "p")
    assert given(result, "whole") == {"gpu": [0]}
    (said,) = [one for one in loaded.warnings if "no template of virtual cards counts" in one.message]
    assert said.path.startswith("data[data.yaml]")


def test_config_maps_of_others_stay_unread() -> None:
    """``data.yaml`` is a common name for a key."""
    for text in ("{}", "replicas: 3\n", "a: {b: c}\n", "a: [\n"):
        loaded = snapshot_from_objects(config_map(text, name="chart"))
        assert loaded.snapshot.of(SharedTemplates) == ()
        assert not loaded.warnings
        assert loaded.unread == {"ConfigMap": 1}


def test_templates_in_yaml_are_read() -> None:
    lines = ["huawei-Ascend-910B:", "  vir05:", *(f"    {key}: {text}" for key, text in QUARTER.items())]
    _, result = run(CLUSTER, config_map("\n".join(lines)), asks("p", QUARTER))
    assert given(result, "p") == {"gpu": [0]}
    assert schedule(result.snapshot, []).decisions == ()
