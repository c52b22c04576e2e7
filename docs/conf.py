"""Sphinx configuration: Markdown pages, and the reference from the docstrings."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "Edgewise"
author = "Edgewise developers"
project_copyright = "Edgewise developers; BSD-3-Clause"
release = version_of("edgewise")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
templates_path = ["_templates"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Edgewise"
autodoc_typehints = "none"
autosummary_generate = True
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
myst_heading_anchors = 3
