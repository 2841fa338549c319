"""Access to the README and the other documents: code blocks, tables, recipes."""

import re
from typing import Any

from flask import Flask

from .serving import ROOT

README = (ROOT / "README.md").read_text()
# The line of the embedding recipe that creates the blueprint, with the function of a recipe.
VERIFY_TOKEN_PASSED = "garden = create_blueprint(store=store, verify_token=verify_token)\n"


def block(name: str, file: str = "README.md") -> str:
    """Return the block of code that follows the comment ``<!-- block: NAME -->`` in a document."""
    text = (ROOT / file).read_text()
    found = re.search(rf"^<!-- block: {name} -->\n```\w+\n(.*?)^```$", text, re.M | re.S)
    assert found is not None, name
    return found[1]


def recipe(name: str) -> str:
    """Return a block of docs/embedding.md."""
    return block(name, "docs/embedding.md")


def rows(first: str) -> list[list[str]]:
    """Return the rows of the README's table whose first column has this heading."""
    table = re.search(rf"^\| {first} \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.MULTILINE)
    assert table is not None
    return [
        [cell.strip(" `") for cell in row.strip("|").split("|")] for row in table[1].splitlines()
    ]


def site_code(*recipes: str, **replaced: str) -> str:
    """Return the code that embeds the store, and then these recipes.

    :param replaced: the code that replaces the line of ``app``, ``store``, ``garden`` or
        ``registration``.
    """
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


def site_with_cors(origin: str) -> Flask:
    """Return the site of the CORS recipe, with this allowed origin."""
    site: Flask = run_recipes(recipe("cors").replace("https://shop.example", origin))["app"]
    return site
