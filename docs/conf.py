"""Sphinx configuration of the book."""

import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]  # the pages' generator; the package of this checkout

import _api  # noqa: E402 - found by the line above
import _cli  # noqa: E402 - likewise

_api.write_pages(HERE.parent / "src" / "koordcore", HERE / "api")
_cli.write_pages(HERE.parent, HERE / "cli")

project = "koordcore"
author = "The koordcore authors"
copyright = "The koordcore authors"  # noqa: A001 - the name that Sphinx reads
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "koordcore"
exclude_patterns = ["_build", "_api.py", "_cli.py"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
smartquotes = False  # flags begin with two hyphens
napoleon_google_docstring = False
napoleon_numpy_docstring = True
napoleon_use_param = False
napoleon_use_rtype = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
nitpicky = False
# Annotations name types without their modules, and two rooms may use one word (`Bound`).
suppress_warnings = ["ref.python"]

html_static_path = ["_static"]
html_css_files = ["book.css"]


def setup(app: Sphinx) -> None:
    """Let records and enumerations read as they are written."""
    app.connect("autodoc-process-signature", _api.show_defaults)
    app.connect("autodoc-process-docstring", _api.show_values)
