"""Access to the README and the other documents: code blocks, tables, recipes."""

import re
from typing import Any

from flask import Flask

from .serving import ROOT

README = (ROOT / "README.md").read_text()


def block(name: str, file: str = "README.md") -> str:
    """Return the block of code that follows the comment ``<!-- block: NAME -->`` in a document."""
    text = (ROOT / file).read_text()
    found = re.search(rf"^<!-- block: {name} -->\n```\w+\n(.*?)^```$", text, re.M | re.S)
    assert found is not None, name
    return found[1]


def rows(first: str) -> list[list[str]]:
    """Return the rows of the README's table whose first column has this heading."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip(" `") for cell in row.strip("|").split("|")] for row in table[1].splitlines()
    ]


def run_recipes(*recipes: str) -> dict[str, Any]:
    """Execute the embedding recipe and then these; return all names that they define."""
    names: dict[str, Any] = {"__name__": "shop"}
    for recipe in (block("embedding"), *recipes):
        exec(recipe, names)
    return names


def site_with_cors(origin: str) -> Flask:
    """Return the site of the CORS recipe, with this allowed origin."""
    site: Flask = run_recipes(block("cors").replace("https://shop.example", origin))["app"]
    return site
