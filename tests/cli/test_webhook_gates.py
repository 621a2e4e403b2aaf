"""What the quota webhook would refuse is said when a dump is read, by the webhook's own gates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from koordcore.cli import main
from koordcore.manifests import load

QUOTA = "quota.scheduling.koordinator.sh/"
INNER = "pod can not be linked to a parentQuotaGroup"
KEYS = "max keys are not the same"


def dump(path: Path) -> str:
    """A pod in a parent quota whose child limits less than the parent."""

    def quota(name: str, most: dict[str, str], **labels: str) -> dict[str, Any]:
        meta = {"name": name, "labels": {QUOTA + key: text for key, text in labels.items()}}
        kind = {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "ElasticQuota"}
        return {**kind, "metadata": meta, "spec": {"max": most, "min": {"cpu": "1"}}}

    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    items = [
        quota("up", {"cpu": "8", "memory": "8Gi"}, **{"is-parent": "true"}),
        quota("low", {"cpu": "8"}, parent="up"),
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "labels": {f"{QUOTA}name": "up"}},
            "spec": spec,
        },
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "9"}},
        },
    ]
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


@pytest.mark.parametrize(
    ("gates", "told", "silent"),
    [
        ("", (INNER, KEYS), ()),
        ("SupportParentQuotaSubmitPod=true", (KEYS,), (INNER,)),
        ("ElasticQuotaEnableUpdateResourceKey=true", (INNER,), (KEYS,)),
        ("SupportParentQuotaSubmitPod=false,ElasticQuotaEnableUpdateResourceKey=false", (INNER, KEYS), ()),
    ],
)
def test_the_gates_of_the_webhook_decide_what_it_would_refuse(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    gates: str,
    told: tuple[str, ...],
    silent: tuple[str, ...],
) -> None:
    cluster = dump(tmp_path / "c.json")
    for verb in (["schedule"], ["quota"], ["schedule", "--admit"]):
        main([*verb, cluster, *(["--feature-gates", gates] if gates else [])])
        said = capsys.readouterr().err
        assert all(text in said for text in told), said
        assert not any(text in said for text in silent), said
        assert "no decision here reads it" not in said
    given = {one.partition("=")[0]: one.endswith("true") for one in gates.split(",") if one}
    warnings = "\n".join(map(str, load(cluster, feature_gates=given).warnings))
    assert [text in warnings for text in (*told, *silent)] == [True] * len(told) + [False] * len(silent)
