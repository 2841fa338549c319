"""The page that explains the lines of the log."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from plantstore.errors import ERRORS
from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
# The methods of a logger whose lines an operator should act on, and an exception with a reason.
CALLS = {"warning", "error", "exception", "StoreUnavailable"}


def pieces(node: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """Yield each fixed text of an expression, also of the constants of its module."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from re.split(r"%[a-z]", part.value)
        if isinstance(part, ast.Name) and part.id in constants:
            others = {name: value for name, value in constants.items() if name != part.id}
            yield from pieces(constants[part.id], others)


def texts(module: Path) -> Iterator[str]:
    """Yield the longest fixed text of each line that a module logs, and of each reason."""
    tree = ast.parse(module.read_text())
    constants = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in CALLS:
                yield max(pieces(node.args[0], constants), key=len, default="")


def test_every_line_of_the_log_is_explained() -> None:
    """The page has each warning and error that the service can log, and each reason of 50301."""
    found = {
        text.strip(" :.")[:20].lower()
        for path in (ROOT / "plantstore").rglob("*.py")
        for text in texts(path)
        if text
    }
    assert len(found) > 25
    assert [text for text in found if text not in PAGE.lower()] == []


def test_every_5xx_is_explained() -> None:
    """The page has each error 5xx of the service that the log names, with its reason."""
    for number in ERRORS:
        if number > 50000 and number % 100:
            assert f"`{number}: " in PAGE
