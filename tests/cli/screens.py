"""A terminal of a given width, as tests see it."""

from __future__ import annotations

import sys

import pytest

from koordcore.cli import main


def screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, *argv: str
) -> tuple[int, str]:
    """Run a command on a terminal without colours; gives its code and what it prints."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    code = main(argv)
    return code, capsys.readouterr().out
