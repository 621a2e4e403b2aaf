"""The table of packages in CONTRIBUTING says what the build holds the imports to."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_table_of_packages_is_the_contract() -> None:
    """Each row of the table names the packages of one layer, from the top down."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    held = [set(re.findall(r"koordcore\.(\w+)", layer)) - {"__main__"} for layer in layers]
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    told = [set(re.findall(r"`(\w+)`", row)) for row in rows]
    order = [name for layer in held for name in sorted(layer)]
    assert sorted(order) == sorted({name for row in told for name in row} - {"manifests"})
    depth = {name: number for number, layer in enumerate(held) for name in layer}
    places = [{depth[name] for name in row if name in depth} for row in told]
    assert [sorted(place) for place in places if place] == sorted(sorted(place) for place in places if place)
