"""docs/architecture.md describes the folders, and the modules keep its rules."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.readme import block
from tests.support.serving import ROOT

PACKAGE = ROOT / "plantstore"
# The modules that a user, an operator or Python itself names. Nothing in the package imports them.
PUBLIC = {
    "plantstore.__main__",
    "plantstore.testing",
    "plantstore.wsgi",
    "plantstore.server.config",
}


def described() -> Iterator[str]:
    """Yield the paths of the modules in the tree of the document."""
    folders: list[str] = []
    for line in block("tree", "docs/architecture.md").splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        folders[depth:] = [name.rstrip("/")]
        if not name.endswith("/"):
            yield "/".join(folders)


def name_of(module: Path) -> str:
    """Return the name of a module in a folder of the project."""
    parts = module.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(module: Path) -> Iterator[str]:
    """Yield the names of the modules of the project that a module imports."""
    package = module.relative_to(ROOT).parts[:-1]
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            names = [*base, *(node.module or "").split(".")]
            start = ".".join(name for name in names if name)
            yield start
            yield from (f"{start}.{alias.name}" for alias in node.names)


def test_tree_of_the_document_is_that_of_the_package() -> None:
    """The tree in docs/architecture.md lists exactly the modules of the package."""
    found = [str(module.relative_to(ROOT)) for module in PACKAGE.rglob("*.py")]
    assert sorted(described()) == sorted(found)


def test_underscore_marks_the_modules_of_one_package() -> None:
    """A module is imported outside its package if, and only if, its name has no underscore."""
    modules = {name_of(path): path for path in PACKAGE.glob("*/**/*.py")}
    outside = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in imports(path)
        if name in modules and not path.is_relative_to(modules[name].parent)
    }
    for name, path in modules.items():
        if path.stem != "__init__":
            assert path.stem.startswith("_") == (name not in outside | PUBLIC), name


def test_folders_of_the_tests_are_those_of_the_package() -> None:
    """Each folder of the package with more than one module has a folder of tests."""
    for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
        assert (ROOT / "tests" / folder.relative_to(PACKAGE)).is_dir(), folder


def test_no_test_file_imports_another_one() -> None:
    """The helpers of the tests are in tests/support, and in the file that uses them."""
    for path in (ROOT / "tests").rglob("*.py"):
        for name in imports(path):
            assert not re.search(r"(^|\.)(test_\w+|conftest)$", name), (path, name)
