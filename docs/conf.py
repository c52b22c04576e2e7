"""Sphinx configuration: Markdown pages, examples that are run, the reference from docstrings."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "Edgewise"
author = "Edgewise developers"
project_copyright = "Edgewise developers; BSD-3-Clause"
release = version_of("edgewise")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Edgewise"
autodoc_typehints = "none"
autosummary_generate = True
numpydoc_class_members_toctree = False
numpydoc_show_class_members = False
myst_heading_anchors = 3
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",  # all of them are run
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "write_computation_times": False,
}
