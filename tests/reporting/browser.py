"""A real browser without a window, where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
    "--virtual-time-budget=4000",
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; apt-get install chromium")


def opened(
    page: str, folder: Path, *, at: str = "", then: str = "", width: int = 1280, lazily: bool = False
) -> str:
    """Open a page in a frame of a width, run a script in it, and give the elements of the page afterwards.

    Parameters
    ----------
    at
        What stands behind the ``#`` of the address.
    then
        The script; ``say(value)`` makes a value the page's title.
    lazily
        Long lists are drawn when they come into view, which takes frames of a browser that has time for
        them; without it, all at once.
    """
    assert CHROMIUM is not None
    if not lazily:
        page = page.replace("<head>", "<head><script>delete window.IntersectionObserver;</script>", 1)
    script = (
        f"<script>const say = (told) => {{ document.title = JSON.stringify(told); }};{then}</script></body>"
    )
    (folder / "page.html").write_text(page.replace("</body>", script), encoding="utf-8")
    address = f"{(folder / 'page.html').as_uri()}#{at}"
    command = [
        CHROMIUM,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},900",
        "--dump-dom",
        address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return done.stdout
