"""What Sphinx needs to know to build the site of these pages: `make docs`."""

import sys
from importlib import metadata
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the extensions `diagrams` and `outline`

project = "txsaga"
release = metadata.version(project)
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "diagrams", "outline"]
root_doc = "index"
default_role = "code"  # docstrings write names in single backticks

myst_heading_anchors = 4  # links lead to headings as on a forge; one that leads nowhere is a warning
myst_fence_as_directive = ["mermaid"]

add_module_names = False
autodoc_default_options = {
    "members": True,
    "inherited-members": "Enum,Exception,Generic,IntEnum,Protocol,StrEnum,int,str,tuple",
}
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False  # the Markdown of a page is next to it
html_show_copyright = False
html_show_sphinx = False
