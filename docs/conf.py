"""The configuration of Sphinx for the documentation as a site: ``tox -e docs`` builds it."""

from typing import Any

from docutils.nodes import Element
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import plantstore

project = "plantstore"
version = release = plantstore.__version__
root_doc = "docs/index"
# The source is the whole project, so that a link to a file outside docs/ is checked, too.
include_patterns = ["docs/*.md", "*.md", "benchmarks/README.md"]
exclude_patterns = [".*", "build", "tests", "plantstore*"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["alert", "colon_fence", "deflist"]
# Links to a heading use the anchors of GitHub.
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# The names of other packages. Their documentation is not at hand without a network.
nitpick_ignore_regex = [(r"py:.*", r"(?!plantstore)[\w.]+")]
# What a program may use of it is what a flask.Blueprint has.
nitpick_ignore = [("py:class", "plantstore.blueprint.OperationsBlueprint")]
html_theme = "furo"
html_title = "plantstore"
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_extra_path = ["start"]


def find_public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: Element
) -> Element | None:
    """Let a reference to plantstore.stores.base.Plant lead to plantstore.Plant."""
    name = node["reftarget"].rpartition(".")[2]
    if node["refdomain"] != "py" or name not in plantstore.__all__:
        return None
    return env.domains.python_domain.resolve_xref(
        env, node["refdoc"], app.builder, "obj", f"plantstore.{name}", node, content
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the function above."""
    app.connect("missing-reference", find_public_name)
    return {"parallel_read_safe": True}
