"""docs/architecture.md lists the modules."""

from collections.abc import Iterator

from tests.support.readme import block
from tests.support.serving import ROOT


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
