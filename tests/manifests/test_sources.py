"""Reading files: formats, lists, folders, and input that means harm."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koordcore.errors import ModelError, Problem
from koordcore.manifests._raw import Source
from koordcore.manifests.sources import (
    SourceLimits,
    SourceObject,
    read_json,
    read_sources,
    read_yaml,
)

SMALL = SourceLimits(file_bytes=100_000, total_bytes=150_000, depth=50, alias_values=1000)


def values(sources: Any) -> list[Any]:
    return [source.raw for source in sources]


def yaml_value(text: str) -> Any:
    (source,) = read_yaml(text, "x.yaml")
    assert isinstance(source, SourceObject), source
    return source.raw


def only_problem(sources: Any) -> str:
    (problem,) = sources
    assert isinstance(problem, Problem), problem
    return str(problem)


def test_yaml_documents_come_one_by_one_with_their_numbers() -> None:
    text = "# first\n---\na: 1\n---\n# nothing here\n---\nb: 2\n...\n"
    assert list(read_yaml(text, "x.yaml")) == [
        SourceObject("x.yaml (document 1)", {"a": 1}),
        SourceObject("x.yaml (document 2)", {"b": 2}),
    ]


def test_a_broken_document_costs_only_itself() -> None:
    first, second = read_yaml("---\na: [1\n---\nb: 2\n", "x.yaml")
    assert str(first).startswith("x.yaml (document 1): not YAML: did not find expected")
    assert second == SourceObject("x.yaml (document 2)", {"b": 2})


def test_directives_between_documents() -> None:
    assert values(read_yaml("%YAML 1.1\n---\na: 1\n...\n%YAML 1.1\n---\nb: 2\n", "x")) == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("2024-01-01", "2024-01-01"),
        ("1:30", "1:30"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("12", 12),
        ("-5", -5),
        ("1_000", 1000),
        ("0x10", 16),
        ("010", 8),
        ("0o10", 8),
        ("08", 8.0),
        ("1e3", 1000.0),
        ("1.5", 1.5),
        ("yes", True),
        ("Off", False),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ('"true"', "true"),
        ("!!str 5", "5"),
        ("!!int '7'", 7),
        ("1Gi", "1Gi"),
        ("=", "="),
        ("y", "y"),
    ],
)
def test_yaml_scalars_are_read_as_kubernetes_reads_them(text: str, value: object) -> None:
    found = yaml_value(f"a: {text}\n")["a"]
    assert (type(found), found) == (type(value), value)


def test_yaml_keys_are_text() -> None:
    assert yaml_value("1: a\ntrue: b\n") == {"1": "a", "true": "b"}


def test_yaml_aliases_and_merges_are_followed() -> None:
    text = "base: &b {x: 1, y: 2}\none: *b\ntwo: {<<: *b, y: 3}\nthree: {<<: [*b, {z: 4}]}\n"
    assert yaml_value(text) == {
        "base": {"x": 1, "y": 2},
        "one": {"x": 1, "y": 2},
        "two": {"x": 1, "y": 3},
        "three": {"x": 1, "y": 2, "z": 4},
    }


def bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{', '.join(['*' + before] * 10)}]")
    return "\n".join(lines)


def merge_bomb() -> str:
    lines = ["a: &a {x: 1}"]
    for before, name in zip("abcdefghijklmnopqrstuvwx", "bcdefghijklmnopqrstuvwxy", strict=True):
        lines.append(f"{name}: &{name} {{<<: [*{before}, *{before}]}}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(), "aliases add more than 1000 values"),
        (merge_bomb(), "aliases add more than 1000 values"),
        ("&a [*a]", "an alias stands for something that contains it"),
        ("[" * 100_000, "nested more than 50 levels deep"),
        ("{a: " * 25_000, "nested more than 50 levels deep"),
        ("- " * 50_000, "nested more than 50 levels deep"),
        ("? " * 50_000, "nested more than 50 levels deep"),
        ("\n".join(" " * level + "a:" for level in range(400)), "nested more than 50 levels deep"),
        ("a: .nan", ".nan is not a JSON number"),
        ("a: -.inf", "-.inf is not a JSON number"),
        ("a: 1e999", "1e999 is not a JSON number"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", 'duplicate key "c": line 4'),
        ("? [a]\n: b\n", "a key must be text"),
        ("a: !!python/object:os.system x", "unknown tag tag:yaml.org,2002:python/object:os.system"),
        ("a: !!set {b}", "unknown tag tag:yaml.org,2002:set"),
        ("a: !!int x", "unknown tag tag:yaml.org,2002:int"),
        ("a: {<<: 5}", "<< takes mappings only"),
        ("a\x00b", "control characters are not allowed"),
        ("a: " + "1" * 5000, "too large a number"),
    ],
)
def test_hostile_yaml_is_refused(text: str, message: str) -> None:
    assert message in only_problem(read_yaml(text, "x.yaml", limits=SMALL))


def test_many_brackets_in_text_are_not_depth() -> None:
    assert yaml_value("a: '" + "[{" * 500 + "'\n") == {"a": "[{" * 500}


def test_json_documents_lists_and_list_kinds() -> None:
    pod = {"kind": "Pod", "metadata": {"name": "a"}}
    assert values(read_json(json.dumps(pod), "x")) == [pod]
    assert values(read_json(json.dumps([pod, pod]), "x")) == [pod, pod]
    assert values(read_json(json.dumps({"kind": "List", "items": [pod]}), "x")) == [pod]
    assert values(read_json(json.dumps({"items": [pod], "kind": "List"}), "x")) == [pod]
    assert values(read_json(json.dumps(pod) + "\n" + json.dumps(pod), "x")) == [pod, pod]
    assert values(read_json("", "x")) == []


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_items_of_a_typed_list_get_its_kind(read: Callable[[str, str], Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "a"}}]})
    assert list(read(text, "x")) == [
        SourceObject("x (item 1)", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
    ]


def test_items_of_another_kind_stay_where_they_are() -> None:
    raw = {"kind": "Shelf", "items": [{"size": 1}], "more": 2}
    assert values(read_json(json.dumps(raw), "x")) == [raw]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"a": NaN}', "NaN is not a JSON number"),
        ('{"a": -Infinity}', "-Infinity is not a JSON number"),
        ('{"a": 1e999}', "1e999 is not a JSON number"),
        ('{"a": ' + "1" * 5000 + "}", "thousands of digits"),
        ('{"a": 1,\n "a": 2}', 'duplicate key "a"'),
        ('{"a": {"c": 1, "c": 2}}', 'duplicate key "c"'),
        ('{"a": 1,}', 'expected a key, got "}"'),
        ('{"a" 1}', 'expected ":" after a string, got "1"'),
        ('{"a": 1 "b": 2}', 'expected "," or "}", got """'),
        ('{"a": 1', 'expected "," or "}", got the end'),
        ("{1: 2}", 'expected ":" after a string'),
        ('{"a": "\\x"}', "Invalid \\escape"),
    ],
)
def test_bad_json_is_refused(text: str, message: str) -> None:
    assert message in only_problem(read_json(text, "x.json"))


def test_a_bad_item_costs_only_itself() -> None:
    text = '{"kind": "List", "items": [{"kind": "A", "a": 1, "a": 2}, {"kind": "B"}]}'
    problem, item = read_json(text, "x.json")
    assert str(problem) == 'x.json (item 1): duplicate key "a"'
    assert item == SourceObject("x.json (item 2)", {"kind": "B"})


def test_items_before_a_syntax_error_are_given_and_the_error_is_reported() -> None:
    item, problem = read_json('{"items": [{"kind": "A"}, ', "x.json")
    assert isinstance(item, SourceObject)
    assert "Expecting value" in str(problem)


def test_folders_are_read_in_order_without_hidden_files_and_links(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / "b" / "two.yml").write_text("kind: Two")
    (tmp_path / "a.json").write_text('{"kind": "One"}')
    (tmp_path / "c.yaml.gz").write_bytes(gzip.compress(b"kind: Three"))
    (tmp_path / "notes.txt").write_text("not a manifest")
    (tmp_path / ".git" / "x.yaml").write_text("kind: Hidden")
    (tmp_path / "b" / "again").symlink_to(tmp_path)
    assert values(read_sources([tmp_path])) == [{"kind": "One"}, {"kind": "Two"}, {"kind": "Three"}]


def test_an_explicit_file_needs_no_suffix(tmp_path: Path) -> None:
    (tmp_path / "dump").write_text('\ufeff {"kind": "One"}', encoding="utf-8")
    (tmp_path / "other").write_text("kind: Two")
    assert values(read_sources([tmp_path / "dump", tmp_path / "other"])) == [{"kind": "One"}, {"kind": "Two"}]


def test_standard_input() -> None:
    assert values(read_sources(["-"], stdin=io.StringIO('{"kind": "A"}'))) == [{"kind": "A"}]
    assert only_problem(read_sources(["-"])) == "standard input: no standard input was given"


def test_what_cannot_be_opened_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"a: 1" * 100)[:-10])
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8bnot gzip")
    assert only_problem(read_sources([tmp_path / "none"])).endswith("none: no such file or folder")
    assert "no file with .json, .yaml, .yml" in only_problem(read_sources([tmp_path / "empty"]))
    assert only_problem(read_sources([tmp_path / "latin.json"])).endswith("latin.json: not UTF-8: byte 7")
    assert only_problem(read_sources([tmp_path / "cut.gz"])).endswith("gzip data end too early")
    assert "not gzip" in only_problem(read_sources([tmp_path / "bad.gz"]))


def test_a_gzip_bomb_stops_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * 10_000_000))
    found: list[Source] = list(read_sources([tmp_path], limits=SMALL))
    assert only_problem(found).endswith("more than 100000 bytes (SourceLimits.file_bytes)")


def test_gzip_members_are_joined(tmp_path: Path) -> None:
    (tmp_path / "two.yaml.gz").write_bytes(gzip.compress(b"a: 1\n") + gzip.compress(b"b: 2\n"))
    assert values(read_sources([tmp_path])) == [{"a": 1, "b": 2}]


def test_size_limits_hold_per_file_and_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"a": "' + "x" * 80_000 + '"}')
    first, second = read_sources([tmp_path], limits=SMALL)
    assert isinstance(first, SourceObject)
    assert str(second).endswith("all files together hold more than 150000 bytes")
    big = io.StringIO("x" * 100_001)
    assert only_problem(read_sources(["-"], stdin=big, limits=SMALL)).endswith(
        "more than 100000 bytes (SourceLimits.file_bytes)"
    )


def test_limits_are_positive() -> None:
    with pytest.raises(ModelError, match="depth: expected a positive number, got 0"):
        SourceLimits(depth=0)


LONG = """\
apiVersion: v1
items:
{indent}- kind: A
{indent}  text: |
{indent}    - kind: not an item
{indent}    items:
{indent}# a comment
{indent}- kind: B
{indent}  list:
{indent}  - x
{indent}-
{indent}  kind: C
kind: List
metadata: {{}}
"""


@pytest.mark.parametrize("indent", ["", "  "])
def test_long_yaml_lists_are_read_item_by_item(indent: str) -> None:
    found = list(read_yaml(LONG.format(indent=indent), "x"))
    assert found == [
        SourceObject("x (item 1)", {"kind": "A", "text": "- kind: not an item\nitems:\n"}),
        SourceObject("x (item 2)", {"kind": "B", "list": ["x"]}),
        SourceObject("x (item 3)", {"kind": "C"}),
    ]


def test_a_broken_item_of_a_yaml_list_costs_only_itself() -> None:
    text = "items:\n- kind: A\n- kind: [B\n- kind: C\n  a: 1\n  a: 2\n- kind: D\nkind: List\n"
    found = list(read_yaml(text, "x"))
    assert [one.raw["kind"] for one in found if isinstance(one, SourceObject)] == ["A", "D"]  # type: ignore[index]
    assert [str(one) for one in found if isinstance(one, Problem)] == [
        "x (item 2): not YAML: did not find expected ',' or ']': line 4",
        'x (item 3): not YAML: duplicate key "a": line 6',
    ]


@pytest.mark.parametrize(
    "text",
    [
        'items:\n- kind: A\n- kind: "B\n- C"\n- kind: D\nkind: List\n',
        'items:\n- kind: A\n- kind: "B\nfoo: C"\n- kind: D\nkind: List\n',
        "items:\n- kind: A\n- kind: B\n  x: [1,\n- 2]\n- kind: D\nkind: List\n",
        "items:\n- &a {kind: A}\n- *a\n- kind: D\nkind: List\n",
        "items:\n- kind: A\n- kind: D\n-\nkind: List",
        "items:\n- kind: A\n- kind: D\n-",
    ],
)
def test_lists_in_odd_style_mean_what_the_whole_document_means(text: str) -> None:
    import yaml

    try:
        expected = yaml.safe_load(text)["items"]
    except yaml.YAMLError:
        assert any(isinstance(one, Problem) for one in read_yaml(text, "x"))
    else:
        assert values(read_yaml(text, "x")) == expected
