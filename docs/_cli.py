"""The reference of the command line: one page per verb, from its parser, with what its examples print."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest import mock

from koordcore.cli import main
from koordcore.cli.main import VERBS

EXAMPLE = "examples/gpu-cluster.yaml"
SHOWN: Mapping[str, tuple[str, ...]] = {
    "schedule": (f"schedule {EXAMPLE}",),
    "explain": (f"explain render-16 {EXAMPLE}",),
    "inspect": (f"inspect {EXAMPLE}", f"inspect gpu-s1b1-2 {EXAMPLE}"),
    "topology": (f"topology {EXAMPLE}",),
    "defrag": (f"defrag {EXAMPLE} --want 3x:nvidia.com/gpu=8",),
    "compare": (f"compare {EXAMPLE} --policy stock --policy fgd",),
    "simulate": ("simulate tests/simulate/data/small --policy fgd --policy foresight --seed 1 --seed 2",),
}
"""What is run for a verb's page, in the folder of the checkout."""


def write_pages(root: Path, target: Path) -> None:
    """Write a page per verb and their index; pages of verbs that are gone are removed."""
    target.mkdir(exist_ok=True)
    pages = {verb: _page(root, verb, about) for verb, about in VERBS.items()}
    pages["index"] = _index()
    for path in target.glob("*.md"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = target / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _index() -> str:
    lines = ["# Command line", ""]
    lines += [
        "`koordcore COMMAND ... PATH ...` reads dumps: what `kubectl get nodes,pods -A -o json` prints, JSON",
        "or YAML, compressed or not; files, folders, or `-` for a pipe. Nothing is ever sent to a cluster.",
        "",
        "| command | answers |",
        "|---|---|",
        *(f"| [{verb}]({verb}.md) | {about} |" for verb, about in VERBS.items()),
        "",
        "| exit code | means |",
        "|---|---|",
        "| 0 | done |",
        "| 1 | done, and the answer is no: a pod is unschedulable, a plan is not legal |",
        "| 2 | the command or its input cannot be read; the reasons are on standard error |",
        "| 70 | no answer: a defect of koordcore, with what to report |",
        "| 130 | stopped by Ctrl-C |",
        "",
        "```{toctree}",
        ":hidden:",
        "",
        *VERBS,
        "```",
    ]
    return "\n".join(lines) + "\n"


def _page(root: Path, verb: str, about: str) -> str:
    parser = argparse.ArgumentParser(
        prog=f"koordcore {verb}", add_help=False, formatter_class=partial(argparse.HelpFormatter, width=84)
    )
    import_module(f"koordcore.cli.{verb}").describe(parser)
    lines = [f"# {verb}", "", parser.description or about.capitalize() + ".", "", "```text"]
    lines += [*_usage(parser), "```", "", "| argument | what it is |", "|---|---|", *_arguments(parser)]
    notes, examples = _epilog(parser.epilog or "")
    lines += ["", *notes]
    if examples:
        lines += ["", "## Examples", "", "```text", *(f"$ {one}" for one in examples), "```"]
    for command in SHOWN.get(verb, ()):
        lines += ["", f"## `koordcore {command}`", "", "```text", _printed(root, command), "```"]
    return "\n".join(lines) + "\n"


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    return usage.replace("\n       ", "\n  ").splitlines()


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = parser._get_formatter()  # noqa: SLF001 - no public way to list arguments
    for action in parser._actions:  # noqa: SLF001 - likewise
        if action.help == argparse.SUPPRESS:
            continue
        value = "" if action.nargs == 0 else _value(action)
        names = " ".join([", ".join(action.option_strings), value]).strip() or action.dest
        told = formatter._expand_help(action) if action.help else ""  # noqa: SLF001 - likewise
        cells = (f"`{names}`", told.replace("__", r"\_\_"))
        yield "| " + " | ".join(one.replace("|", "\\|").replace("<", "&lt;") for one in cells) + " |"


def _value(action: argparse.Action) -> str:
    if action.metavar is not None:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper()


def _epilog(text: str) -> tuple[list[str], list[str]]:
    """Part what is said below the options from the examples."""
    notes, _, examples = text.partition("examples:\n")
    kept = [one.strip() for one in examples.splitlines() if one.strip()]
    return notes.strip().splitlines(), kept


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _printed(root: Path, command: str) -> str:
    """Run a command in the checkout and give what it prints."""
    out = _Terminal()
    environment = mock.patch.dict(os.environ, COLUMNS="80", NO_COLOR="1")
    with (
        environment,
        contextlib.chdir(root),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        main(command.split())
    return out.getvalue().strip("\n")
