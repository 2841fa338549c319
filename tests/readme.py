"""The README, to be run and compared: its blocks of code, its tables, its recipes."""

import re
from typing import Any

from flask import Flask

from .serving import ROOT

README = (ROOT / "README.md").read_text()


def block(name: str) -> str:
    """Return the README's block of code that follows the comment ``<!-- block: NAME -->``."""
    found = re.search(rf"^<!-- block: {name} -->\n```\w+\n(.*?)^```$", README, re.M | re.S)
    assert found is not None, name
    return found[1]


def rows(first: str) -> list[list[str]]:
    """Return the rows of the README's table whose first column has this heading."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip(" `") for cell in row.strip("|").split("|")] for row in table[1].splitlines()
    ]


def cook(*recipes: str) -> dict[str, Any]:
    """Return all the names of a site in which the store is embedded by these lines."""
    names: dict[str, Any] = {"__name__": "shop"}
    for recipe in (block("embedding"), *recipes):
        exec(recipe, names)
    return names


def site_with_cors(origin: str) -> Flask:
    """Return a site whose store may be used by the pages of an origin."""
    site: Flask = cook(block("cors").replace("https://shop.example", origin))["app"]
    return site
