"""The configuration of Sphinx for the documentation as a site: ``tox -e docs`` builds it."""

import re
import sys
from pathlib import Path
from typing import Any

from docutils.nodes import Element, document, meta, raw, section
from sphinx.addnodes import index, pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import plantstore

sys.path.insert(0, str(Path(__file__).parent))  # For http_reference.
project = "plantstore"
version = release = plantstore.__version__
root_doc = "docs/index"
# The source is the whole project, so that a link to a file outside docs/ is checked, too.
include_patterns = ["docs/*.md", "*.md", "benchmarks/README.md"]
exclude_patterns = [".*", "build", "tests", "plantstore*"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "http_reference"]
myst_enable_extensions = ["alert", "colon_fence", "deflist"]
# Links to a heading use the anchors of GitHub.
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# The names of other packages. Their documentation is not at hand without a network.
nitpick_ignore_regex = [(r"py:.*", r"(?!plantstore)[\w.]+")]
# What a program may use of it is what a flask.Blueprint has.
nitpick_ignore = [("py:class", "plantstore.blueprint.ServiceBlueprint")]
html_theme = "furo"
html_title = f"plantstore {version}"
html_favicon = "../plantstore/openapi/page/icon.svg"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = [("site.js", {"defer": "defer"})]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_extra_path = ["start"]
# A page has a link to its source as soon as setup.py has the address of the repository.
(repository,) = re.findall(
    '^REPOSITORY = "(.*)"$', Path(__file__, "../../setup.py").resolve().read_text(), re.M
)
if repository:
    html_theme_options = {
        "source_repository": repository,
        "source_branch": "main",
        "source_directory": "",
    }


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


def index_errors(app: Sphinx, page: document) -> None:
    """Let a search for 50301 or 503 find headings: otherwise, Sphinx ignores numbers."""
    for part in page.findall(section):
        for number in re.findall(r"\b[45]\d{4}\b", part[0].astext()):
            part += index(entries=[("single", number, part["ids"][0], "main", None)])


def index_words(app: Sphinx, page: document) -> None:
    """Let a search find a section by the words of a reader: ``<!-- words: paging, offset -->``.

    The whole phrase leads to the section, and other combinations of the words to the page.
    """
    for line in [*page.findall(raw)]:
        found = re.fullmatch("<!-- words: (.*) -->", line.astext().strip())
        if found is not None:
            phrases, id = found[1].lower().split(", "), line.parent["ids"][0]
            entries = [("single", phrase, id, "main", None) for phrase in phrases]
            words = ", ".join(re.findall(r"\w+", found[1]))
            line.replace_self([index(entries=entries), meta(name="keywords", content=words)])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the functions above."""
    app.connect("missing-reference", find_public_name)
    app.connect("doctree-read", index_errors)
    app.connect("doctree-read", index_words)
    return {"parallel_read_safe": True}
