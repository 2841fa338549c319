"""Access to the README and the other documents: code blocks, tables, recipes."""

import re
from typing import Any

from flask import Flask
from werkzeug.test import TestResponse

from tests.support.serving import ROOT
from tests.support.sites import BEARER, ROSE

# The line of the embedding recipe that creates the blueprint, with the function of a recipe.
VERIFY_TOKEN_PASSED = "garden = create_blueprint(store=store, verify_token=verify_token)\n"


def block(name: str, file: str = "README.md") -> str:
    """Return the block of code that follows the comment ``<!-- block: NAME -->`` in a document."""
    text = (ROOT / file).read_text()
    found = re.search(rf"^<!-- block: {name} -->\n```\w+\n(.*?)^```$", text, re.M | re.S)
    assert found is not None, name
    return found[1]


def recipe(name: str) -> str:
    """Return a block of a page of the documentation. A name is on one page only."""
    marker = f"<!-- block: {name} -->"
    (file,) = [file for file in (ROOT / "docs").glob("*.md") if marker in file.read_text()]
    return block(name, str(file))


def rows(first: str, file: str = "README.md") -> list[list[str]]:
    """Return the rows of a document's table whose first column has this heading."""
    text = (ROOT / file).read_text()
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip(" `") for cell in row.strip("|").split("|")] for row in table[1].splitlines()
    ]


def site_code(*recipes: str, **replaced: str) -> str:
    """Return the code that embeds the store with these recipes, in which lines are replaced."""
    code = recipe("embedding")
    for name, new in replaced.items():
        start = r"app\.register_blueprint\(" if name == "registration" else f"{name} = "
        line = re.search(f"^{start}.*\n", code, re.MULTILINE)
        assert line is not None, name
        code = code.replace(line[0], new)
    return "\n".join([code, *recipes])


def run_recipes(*recipes: str, **replaced: str) -> dict[str, Any]:
    """Execute :func:`site_code`; return all names that it defines."""
    names: dict[str, Any] = {"__name__": "shop"}
    exec(site_code(*recipes, **replaced), names)
    return names


def create_rose(site: Flask, path: str = "/garden/plants", **options: Any) -> TestResponse:
    """Send a create request for ROSE, with a token, to a site."""
    return site.test_client().post(path, json=ROSE, headers=BEARER, **options)
