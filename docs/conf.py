"""Sphinx configuration of the book."""

project = "koordcore"
author = "The koordcore authors"
copyright = "The koordcore authors"  # noqa: A001 - the name that Sphinx reads
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
html_theme = "furo"
html_title = "koordcore"
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_numpy_docstring = True
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
nitpicky = False
