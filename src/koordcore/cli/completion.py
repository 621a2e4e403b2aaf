"""``koordcore completion``: what a shell has to be told to complete verbs, flags, files and names."""

from __future__ import annotations

import argparse
from typing import Any, Final

from koordcore.errors import MissingExtraError

SHELLS: Final = ("bash", "zsh", "fish")
EPILOG: Final = """\
Names of pods, gangs, nodes, quotas and namespaces come from the dump that
stands on the line, before or after the name.

examples:
  eval "$(koordcore completion bash)"          in ~/.bashrc
  eval "$(koordcore completion zsh)"           in ~/.zshrc, after compinit
  koordcore completion fish | source           in ~/.config/fish/config.fish
"""


def describe(parser: argparse.ArgumentParser) -> None:
    """Describe the verb."""
    parser.description = "Print what makes a shell complete verbs, flags and their values."
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the shell's code."""
    print(_argcomplete().shellcode(["koordcore"], shell=arguments.shell))
    return 0


def complete(parser: argparse.ArgumentParser, described: argparse.ArgumentParser | None) -> None:
    """Answer the shell that asks how a line goes on, and end.

    Parameters
    ----------
    described
        The parser of the verb on the line.
    """
    argcomplete = _argcomplete()
    if described is not None:
        from koordcore.cli.completed_names import know_names

        know_names(described)
    argcomplete.autocomplete(parser)


def _argcomplete() -> Any:
    try:
        import argcomplete  # type: ignore[import-not-found, unused-ignore]  # optional
    except ImportError:
        raise MissingExtraError.for_extra("argcomplete", "cli", "completion") from None
    return argcomplete
