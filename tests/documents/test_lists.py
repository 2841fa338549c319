"""The pages that list what the package has: the API, the modules and the lines of the log."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import plantstore
import plantstore.testing
from plantstore.errors import ERRORS
from tests.support.readme import block
from tests.support.serving import ROOT

API = (ROOT / "docs" / "api.md").read_text()
TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text()


def test_api_has_every_public_name() -> None:
    """docs/api.md describes each public name of the package and of plantstore.testing."""
    names = re.findall(r"^\.\. auto\w+:: plantstore\.(\w+)$", API, re.MULTILINE)
    assert sorted(names) == sorted([*plantstore.__all__, "testing"])
    (suites,) = re.findall(r"^\.\. automodule:: .*\n   :members: (.*)$", API, re.MULTILINE)
    assert sorted(suites.split(", ")) == plantstore.testing.__all__


def described() -> Iterator[str]:
    """Yield the paths of the modules in the tree of the document."""
    folders: list[str] = []
    for line in block("tree", "docs/architecture.md").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders[depth:] = [name.rstrip("/")]
        if not name.endswith("/"):
            yield "/".join(folders)


def test_tree_of_the_document_is_that_of_the_package() -> None:
    """The tree in docs/architecture.md lists exactly the modules of the package."""
    found = [str(module.relative_to(ROOT)) for module in (ROOT / "plantstore").rglob("*.py")]
    assert sorted(described()) == sorted(found)


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
    assert [text for text in found if text not in TROUBLESHOOTING.lower()] == []


def test_every_5xx_is_explained() -> None:
    """The page has each error 5xx of the service that the log names, with its reason."""
    for number in ERRORS:
        if number > 50000 and number % 100:
            assert f"`{number}: " in TROUBLESHOOTING
