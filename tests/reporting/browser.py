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


_WATCHED = """
window.IntersectionObserver = class {
  constructor(told, { rootMargin }) { this.told = told; this.margin = parseInt(rootMargin); }
  observe(target) {
    setTimeout(() => {
      const isIntersecting = target.getBoundingClientRect().top < innerHeight + this.margin;
      this.told([{ target, isIntersecting }]);
    });
  }
  unobserve() {}
};
"""


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
        Long lists are drawn when they are in view, else all at once. A busy browser draws no frames by which
        it would see that; so it is asked at once, on its own clock.
    """
    assert CHROMIUM is not None
    watched = _WATCHED if lazily else "delete window.IntersectionObserver;"
    page = page.replace("<head>", f"<head><script>{watched}</script>", 1)
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
